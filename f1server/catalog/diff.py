"""From one schema to another over states that neighbouring servers can share (schema-change paper, section 3).

Two servers may use two neighbouring versions of the schema at the same time, never versions further apart. So a step is
right if every element moves by one state at most, and the states are ordered so that no server relies on what another
does not maintain yet:

* An index on a table that exists: absent, DELETE_ONLY, WRITE_ONLY, filled, PUBLIC; dropped the same way back.
* A table whose parent, or the target of a foreign key of it, existed before: DELETE_ONLY first, so that every server
  that deletes a parent looks for children before any server can insert one. It is dropped the same way.
* Everything else appears and disappears at once.

Columns of tables that exist do not change yet: that comes with online schema change, and is refused here with reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from f1common.errors import Code, F1Error
from f1server.catalog import protos
from f1server.catalog.schema import (
    Check,
    Column,
    ElementState,
    ForeignKey,
    Index,
    LockColumn,
    Schema,
    Table,
    View,
)
from f1server.catalog.tables import NewId

__all__ = ["Step", "adopt_ids", "advance", "plan_steps"]


_Element = TypeVar("_Element", Index, ForeignKey, Check, LockColumn)

# Edits: what one step does to whatever schema is current when it is written.


@dataclass(frozen=True, slots=True)
class AddTable:
    """A new table, in the state that it has."""

    table: Table


@dataclass(frozen=True, slots=True)
class TableTo:
    """A table moves to a state; ABSENT removes it."""

    table_id: int
    name: str
    state: ElementState


@dataclass(frozen=True, slots=True)
class EditTable:
    """Parts of a table that may change at once; ``before`` is what they were when the step was planned."""

    before: Table
    after: Table


@dataclass(frozen=True, slots=True)
class AddIndex:
    """A new index, in the state that it has."""

    table_id: int
    index: Index


@dataclass(frozen=True, slots=True)
class IndexTo:
    """An index moves to a state; ABSENT removes it."""

    table_id: int
    index_id: int
    name: str
    state: ElementState


@dataclass(frozen=True, slots=True)
class SetViews:
    """Views come and go."""

    gone: tuple[str, ...]
    new: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class SetProtos:
    """The .proto files, and what they compile to."""

    files: tuple[tuple[str, str], ...]
    descriptor_set: bytes


Edit = AddTable | TableTo | EditTable | AddIndex | IndexTo | SetViews | SetProtos


@dataclass(frozen=True, slots=True)
class Step:
    """One version of the schema. When every server has it, indexes are filled and data of dropped elements removed."""

    what: tuple[str, ...]
    edits: tuple[Edit, ...]
    backfill: tuple[tuple[int, int], ...] = ()
    """(table id, index id): entries for all rows."""
    purge_tables: tuple[Table, ...] = ()
    purge_indexes: tuple[tuple[Table, Index], ...] = ()

    @property
    def loses_data(self) -> bool:
        """Are rows deleted?"""
        return bool(self.purge_tables)


def advance(schema: Schema, step: Step) -> Schema:
    """Return the schema after a step, with the next version number.

    Raises F1Error ABORTED if what the step changes was changed by somebody else since it was planned.
    """
    for edit in step.edits:
        schema = _apply(schema, edit)
    return replace(schema, version=schema.version + 1, commit_ts=0)


def _apply(schema: Schema, edit: Edit) -> Schema:
    match edit:
        case AddTable(table):
            return _put(schema, table)
        case TableTo(table_id, name, ElementState.ABSENT):
            _require(schema, table_id, name)
            kept = tuple(t for t in schema.tables if t.id != table_id)
            return replace(schema, tables=kept, dropped=tuple(sorted({*schema.dropped, name.lower()})))
        case TableTo(table_id, name, state):
            return _put(schema, replace(_require(schema, table_id, name), state=state))
        case EditTable(before, after):
            current = _require(schema, after.id, after.name)
            if _editable(current) != _editable(before):
                raise _changed(after.name)
            indexes, state = current.indexes, current.state
            return _put(schema, replace(after, indexes=indexes, state=state))
        case AddIndex(table_id, index):
            table = _require(schema, table_id, index.name)
            return _put(schema, replace(table, indexes=(*table.indexes, index)))
        case IndexTo(table_id, index_id, name, state):
            return _put(schema, _index_to(_require(schema, table_id, name), index_id, name, state))
        case SetViews(gone, new):
            names = {*gone, *(view.name.lower() for view in new)}
            kept_views = [view for view in schema.views if view.name.lower() not in names]
            return replace(schema, views=tuple(sorted([*kept_views, *new], key=lambda v: v.name.lower())))
        case SetProtos(files, descriptor_set):
            return replace(schema, proto_files=files, descriptor_set=descriptor_set)


def readable_from(before: Schema, after: Schema, now_us: int) -> Schema:
    """Return ``after`` with indexes that became public marked as readable from ``now_us`` on: when they were filled.

    At an older timestamp the entries of some rows are missing, and a query by the index would miss these rows.
    """
    public = {i.id for table in before.tables for i in table.indexes if i.state is ElementState.PUBLIC}
    known = {table.id for table in before.tables}
    tables = []
    for table in after.tables:
        fresh = {i.id for i in table.indexes if i.state is ElementState.PUBLIC and i.id not in public}
        if fresh and table.id in known:
            marked = tuple(replace(i, readable_from=now_us) if i.id in fresh else i for i in table.indexes)
            table = replace(table, indexes=marked)
        tables.append(table)
    return replace(after, tables=tuple(tables))


def readable_at(schema: Schema, timestamp: int) -> Schema:
    """Return the schema as a snapshot at ``timestamp`` is read: without indexes that were not filled then. 0: now."""
    if not timestamp or schema.indexes_since <= timestamp:
        return schema
    tables = [
        replace(
            table,
            indexes=tuple(
                i if i.readable_from <= timestamp else replace(i, state=min(i.state, ElementState.WRITE_ONLY))
                for i in table.indexes
            ),
        )
        for table in schema.tables
    ]
    return replace(schema, tables=tuple(tables))


def _index_to(table: Table, index_id: int, name: str, state: ElementState) -> Table:
    if all(index.id != index_id for index in table.indexes):
        raise _changed(name)
    moved = [replace(i, state=state) if i.id == index_id else i for i in table.indexes]
    return replace(table, indexes=tuple(i for i in moved if i.state is not ElementState.ABSENT))


def _put(schema: Schema, table: Table) -> Schema:
    others = [t for t in schema.tables if t.id != table.id]
    return replace(schema, tables=tuple(sorted([*others, table], key=lambda t: t.id)))


def _require(schema: Schema, table_id: int, name: str) -> Table:
    table = schema.by_id.get(table_id)
    if table is None:
        raise _changed(name)
    return table


def _changed(name: str) -> F1Error:
    return F1Error(Code.ABORTED, f"{name} was changed or dropped by another schema change at the same time; retry")


def _editable(table: Table) -> tuple[object, ...]:
    return table.name, table.columns, table.key_column_ids, table.checks, table.foreign_keys, table.locks


# Planning.


def plan_steps(old: Schema, new: Schema) -> list[Step]:
    """Return the steps from ``old`` to ``new``, whose elements have the same ids where they are the same.

    Raises F1Error FAILED_PRECONDITION with all reasons if something is asked for that cannot be done yet.
    """
    reasons = _reasons(old, new)
    if reasons:
        raise F1Error(
            Code.FAILED_PRECONDITION,
            "changing columns and constraints of a live table comes with online schema change: " + "; ".join(reasons),
        )
    plan = _Plan(old, new)
    return plan.steps()


class _Plan:
    """Which elements come and go, and the (at most three) versions in which they do."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._added = [t for t in new.tables if t.id not in old.by_id]
        self._dropped = [t for t in old.tables if t.id not in new.by_id]
        self._new_indexes: list[tuple[Table, Index]] = []
        self._gone_indexes: list[tuple[Table, Index]] = []
        for table in new.tables:
            before = old.by_id.get(table.id)
            if before is not None:
                known = {i.id for i in before.indexes}
                kept = {i.id for i in table.indexes}
                self._new_indexes += [(table, i) for i in table.indexes if i.id not in known]
                self._gone_indexes += [(table, i) for i in before.indexes if i.id not in kept]
        self._late = _reliant(self._added, old)
        """New tables that others must know of before they are written to."""
        self._leaving = _reliant(self._dropped, new)
        """Dropped tables that others must know of until nobody writes to them."""
        self._edits: list[list[Edit]] = [[], [], []]
        self._what: list[list[str]] = [[], [], []]

    def _do(self, stage: int, edit: Edit, what: str) -> None:
        self._edits[stage].append(edit)
        if what:
            self._what[stage].append(what)

    def steps(self) -> list[Step]:
        """Return the steps; stages in which nothing happens are left out."""
        self._protos()
        self._tables()
        self._indexes()
        self._views()
        gone_first = [t for t in self._dropped if not self._leaves_late(t)]
        gone_later = [t for t in self._dropped if self._leaves_late(t)]
        backfill = tuple((t.id, i.id) for t, i in self._new_indexes)
        steps = [
            Step(tuple(self._what[0]), tuple(self._edits[0]), purge_tables=tuple(gone_first)),
            Step(tuple(self._what[1]), tuple(self._edits[1]), backfill, tuple(gone_later)),
            Step(tuple(self._what[2]), tuple(self._edits[2]), purge_indexes=tuple(self._gone_indexes)),
        ]
        return [step for step in steps if step.edits]

    def _protos(self) -> None:
        old, new = self._old, self._new
        if (old.proto_files, old.descriptor_set) != (new.proto_files, new.descriptor_set):
            names = ", ".join(name for name, _ in new.proto_files) or "none"
            self._do(0, SetProtos(new.proto_files, new.descriptor_set), f"set the .proto files: {names}")

    def _leaves_late(self, table: Table) -> bool:
        return table.state is not ElementState.DELETE_ONLY and table.id in self._leaving

    def _tables(self) -> None:
        public = 2 if self._new_indexes else 1
        for table in self._added:
            if table.id in self._late:
                waiting = replace(table, state=ElementState.DELETE_ONLY)
                self._do(0, AddTable(waiting), f"create table {table.name} (delete-only)")
                self._do(public, TableTo(table.id, table.name, ElementState.PUBLIC), f"table {table.name}: public")
            else:
                self._do(0, AddTable(table), f"create table {table.name}")
        for table in self._dropped:
            gone = TableTo(table.id, table.name, ElementState.ABSENT)
            if self._leaves_late(table):
                first = TableTo(table.id, table.name, ElementState.DELETE_ONLY)
                self._do(0, first, f"table {table.name}: delete-only")
                self._do(1, gone, f"drop table {table.name} and its rows")
            else:
                self._do(0, gone, f"drop table {table.name} and its rows")
        for table in self._new.tables:
            before = self._old.by_id.get(table.id)
            if before is None:
                continue
            if before.state is not table.state:
                self._do(public, TableTo(table.id, table.name, table.state), f"table {table.name}: public")
            if _editable(before) != _editable(table) or _options(before) != _options(table):
                self._do(0, EditTable(before, table), f"alter table {table.name}")

    def _indexes(self) -> None:
        for table, index in self._new_indexes:
            waiting = replace(index, state=ElementState.DELETE_ONLY)
            self._do(0, AddIndex(table.id, waiting), f"create index {index.name} on {table.name} (delete-only)")
            writing = IndexTo(table.id, index.id, index.name, ElementState.WRITE_ONLY)
            self._do(1, writing, f"index {index.name}: write-only, then entries for all rows of {table.name}")
            self._do(2, IndexTo(table.id, index.id, index.name, ElementState.PUBLIC), f"index {index.name}: public")
        for table, index in self._gone_indexes:
            back = [ElementState.WRITE_ONLY, ElementState.DELETE_ONLY, ElementState.ABSENT]
            words = ["write-only", "delete-only", "dropped with its entries"]
            for stage, (state, word) in enumerate(zip(back, words, strict=True)):
                if state < index.state:
                    self._do(stage, IndexTo(table.id, index.id, index.name, state), f"index {index.name}: {word}")

    def _views(self) -> None:
        gone = tuple(sorted(set(self._old.views_by_name) - set(self._new.views_by_name)))
        new = tuple(v for v in self._new.views if self._old.views_by_name.get(v.name.lower()) != v)
        if gone:
            self._do(0, SetViews(gone, ()), "drop view " + ", ".join(gone))
        if new:
            stage = max(n for n in range(3) if n == 0 or self._edits[n])
            self._do(stage, SetViews((), new), "create view " + ", ".join(v.name for v in new))


def _relies_on(table: Table) -> set[int]:
    """The tables whose writers must know of ``table``: its parent, and what its foreign keys refer to."""
    parents = {table.parent_id} if table.parent_id else set()
    return parents | {key.referenced_table_id for key in table.foreign_keys}


def _reliant(tables: Sequence[Table], others: Schema) -> set[int]:
    """Return which of ``tables`` rely, directly or over each other, on tables of ``others``."""
    found: set[int] = set()
    while True:
        more = {t.id for t in tables if any(i in others.by_id or i in found for i in _relies_on(t) - {t.id})}
        if more == found:
            return found
        found = more


def _options(table: Table) -> tuple[object, ...]:
    return table.cascade, table.untracked


# What cannot be done yet.


def _reasons(old: Schema, new: Schema) -> list[str]:
    reasons: list[str] = []
    for table in new.tables:
        before = old.by_id.get(table.id)
        if before is not None:
            reasons += _table_reasons(old, new, before, table)
    used = [name for name in protos.used_messages(old) if name in protos.used_messages(new)]
    if old.descriptor_set != new.descriptor_set and used:
        reasons += protos.incompatibilities(old.descriptor_set, new.descriptor_set, used)
    return reasons


def _table_reasons(old: Schema, new: Schema, before: Table, after: Table) -> list[str]:
    reasons: list[str] = []
    name = after.name
    if before.parent_id != after.parent_id:
        reasons.append(f"{name} would have another parent")
    if before.key_column_ids != after.key_column_ids:
        reasons.append(f"{name} would have another primary key")
    for column in after.columns:
        known = before.by_id.get(column.id)
        if known is None:
            reasons.append(f"{name}.{column.name} would be added")
        elif known.type != column.type:
            reasons.append(f"{name}.{column.name} is {known.type.sql()}, would be {column.type.sql()}")
        elif known.not_null != column.not_null:
            words = "NOT NULL, would allow NULL" if known.not_null else "nullable, would be NOT NULL"
            reasons.append(f"{name}.{column.name} is {words}")
    reasons += [f"{name}.{c.name} would be dropped" for c in before.columns if c.id not in after.by_id]
    for what, had, has in (
        ("check", before.checks, after.checks),
        ("foreign key", before.foreign_keys, after.foreign_keys),
    ):
        kept = {item.id for item in had}
        reasons += [f"{name} would get the {what} {item.name}" for item in has if item.id not in kept]
    if before.locks != after.locks:
        reasons.append(f"{name} would have other locks")
    return reasons


# Ids.


def adopt_ids(old: Schema, wanted: Schema, new_id: NewId) -> Schema:
    """Return ``wanted``, compiled from sources with ids of its own, with the ids of the same elements of ``old``.

    Elements are the same if they have the same name (tables, columns) or the same name and definition (indexes,
    constraints, locks). ``new_id`` is drawn for the others, tables first, roots before their children.
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
    tables = [_renumbered(table, by_name.get(table.name.lower()), ids, new_id) for table in order]
    return replace(
        wanted,
        database=old.database,
        version=old.version,
        tables=tuple(sorted(tables, key=lambda t: t.id)),
        dropped=old.dropped,
    )


def _renumbered(table: Table, same: Table | None, ids: Mapping[int, int], new_id: NewId) -> Table:
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
        indexes=tuple(_same_or_new(indexes, same.indexes if same else (), new_id)),
        foreign_keys=tuple(_same_or_new(keys, same.foreign_keys if same else (), new_id)),
        checks=tuple(_same_or_new(list(table.checks), same.checks if same else (), new_id)),
        locks=tuple(_same_or_new(locks, same.locks if same else (), new_id)),
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


def _same_or_new(wanted: Sequence[_Element], known: Sequence[_Element], new_id: NewId) -> list[_Element]:
    """Give each wanted element the id of the same known one, or a new id."""
    found: list[_Element] = []
    for element in wanted:
        # What was left behind half-built is dropped and built anew.
        ready = [k for k in known if k.state is ElementState.PUBLIC]
        same = next((k for k in ready if _definition(k) == _definition(element)), None)
        found.append(same if same is not None else replace(element, id=new_id()))
    return found


def _definition(element: Index | ForeignKey | Check | LockColumn) -> object:
    return replace(element, id=0, name=element.name.lower(), state=ElementState.PUBLIC)
