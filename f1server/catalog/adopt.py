"""The ids of elements that are described anew: what is the same keeps the id that it has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from f1server.catalog import rewrites
from f1server.catalog.ids import NewId, index_id
from f1server.catalog.schema import Check, Column, ElementState, ForeignKey, Index, LockColumn, Schema, Table

__all__ = ["adopt_ids"]

_Element = TypeVar("_Element", Index, ForeignKey, Check)


def adopt_ids(old: Schema, wanted: Schema, new_id: NewId) -> Schema:
    """Return ``wanted``, compiled from sources with ids of its own, with the ids of the same elements of ``old``.

    Elements are the same if they have the same name (tables, columns, locks) or the same name and definition (indexes,
    constraints). ``new_id`` is drawn for the others, tables first, roots before their children.
    """
    ids: dict[int, int] = {}
    by_name = {t.name.lower(): t for t in old.tables}
    order = sorted(wanted.tables, key=lambda t: (t.parent_id != 0, t.id))
    for table in order:
        same = by_name.get(table.name.lower())
        ids[table.id] = same.id if same else new_id()
    for table in order:
        same = by_name.get(table.name.lower())
        columns = {c.name.lower(): c.id for c in same.columns} if same else {}
        for column in table.columns:
            ids[column.id] = columns.get(column.name.lower()) or new_id()
    tables = [_renumbered(wanted, table, by_name.get(table.name.lower()), ids, new_id) for table in order]
    return replace(
        wanted,
        database=old.database,
        version=old.version,
        tables=tuple(sorted(tables, key=lambda t: t.id)),
        dropped=old.dropped,
    )


def _renumbered(wanted: Schema, table: Table, same: Table | None, ids: Mapping[int, int], new_id: NewId) -> Table:
    root_id = ids[wanted.root(table).id]

    def of_index(index: Index) -> int:
        return index_id(new_id, root_id, local=index.local)

    columns = tuple(replace(column, id=ids[column.id]) for column in table.columns)
    known_columns = {c.id: c for c in same.columns} if same else {}
    columns = tuple(_in_state(column, known_columns.get(column.id)) for column in columns)
    indexes = [_index_ids(index, ids) for index in table.indexes]
    keys = [_foreign_key_ids(key, ids) for key in table.foreign_keys]
    locks = [replace(lock, column_ids=tuple(ids[i] for i in lock.column_ids)) for lock in table.locks]
    return replace(
        table,
        id=ids[table.id],
        parent_id=ids[table.parent_id] if table.parent_id else 0,
        columns=columns,
        key_column_ids=tuple(ids[i] for i in table.key_column_ids),
        indexes=tuple(_same_or_new(indexes, same.indexes if same else (), of_index)),
        foreign_keys=tuple(_same_or_new(keys, same.foreign_keys if same else (), lambda _: new_id())),
        checks=tuple(_same_or_new(list(table.checks), same.checks if same else (), lambda _: new_id())),
        locks=tuple(_same_locks(locks, same.locks if same else (), new_id)),
    )


def _in_state(column: Column, known: Column | None) -> Column:
    return replace(column, state=known.state) if known else column


def _index_ids(index: Index, ids: Mapping[int, int]) -> Index:
    parts = tuple(replace(part, column_id=ids[part.column_id]) for part in index.parts)
    return replace(index, parts=parts, storing=tuple(ids[i] for i in index.storing))


def _foreign_key_ids(key: ForeignKey, ids: Mapping[int, int]) -> ForeignKey:
    return replace(
        key,
        column_ids=tuple(ids[i] for i in key.column_ids),
        referenced_table_id=ids[key.referenced_table_id],
        referenced_column_ids=tuple(ids[i] for i in key.referenced_column_ids),
    )


def _same_or_new(
    wanted: Sequence[_Element], known: Sequence[_Element], id_of: Callable[[_Element], int]
) -> list[_Element]:
    """Give each wanted element the id of the same known one, or a new id."""
    found: list[_Element] = []
    for element in wanted:
        # What was left behind half-built is dropped and built anew.
        ready = [k for k in known if k.state is ElementState.PUBLIC]
        same = next((k for k in ready if _definition(k) == _definition(element)), None)
        found.append(same if same is not None else replace(element, id=id_of(element)))
    return found


def _same_locks(wanted: Sequence[LockColumn], known: Sequence[LockColumn], new_id: NewId) -> list[LockColumn]:
    """Give each wanted lock the id of the known one of its name: its columns may come and go."""
    ready = {lock.name.lower(): lock for lock in known if lock.state is ElementState.PUBLIC}
    found = []
    for lock in wanted:
        same = ready.get(lock.name.lower())
        if same is not None and set(same.column_ids) != set(lock.column_ids):
            same = replace(same, column_ids=lock.column_ids)
        found.append(same if same is not None else replace(lock, id=new_id()))
    return found


def _definition(element: Index | ForeignKey | Check) -> object:
    bare = replace(element, id=0, name=element.name.lower(), state=ElementState.PUBLIC)
    return replace(bare, sql=rewrites.canonical(bare.sql)) if isinstance(bare, Check) else bare
