"""Warnings about a change that can be made and that somebody may regret (pure)."""

import re
from collections.abc import Iterator, Mapping, Sequence

from f1common.errors import F1Error
from f1server.catalog.expressions import column_part, column_references
from f1server.catalog.protos import registry_of
from f1server.catalog.render import quoted
from f1server.catalog.schema import Column, ForeignKey, Index, Kind, Schema, Table
from f1server.plan.prepare import prepare
from f1server.plan.statements import QueryStatement, parse
from f1server.plan.types import of_path

__all__ = ["advice"]

_CLOCK = re.compile(r"\b(now|current_timestamp|current_date|localtimestamp|\w+_timestamp|uuidv7)\b", re.IGNORECASE)
_LAST_RANGE = "so that all new ones are written to the last range, by one group; begin with another column, or a hash"


def advice(old: Schema, new: Schema, rows: Mapping[int, int]) -> list[str]:
    """Return the warnings; ``rows``: about how many rows tables of ``old`` have, by id."""
    found: list[str] = []
    for table in new.tables:
        before = old.by_id.get(table.id)
        if before is None:
            found += _table(table)
        for index in table.indexes:
            if before is None or all(index.id != known.id for known in before.indexes):
                found += _index(new, table, index)
                found += _made_for_a_key(table, index) if before is not None else ()
        if before is not None:
            found += _columns(before, table, rows.get(table.id, 0))
    return [*found, *_checks_of_messages(old, new), *_views(new)]


def _table(table: Table) -> Iterator[str]:
    first = table.key_columns[0]
    if not table.parent_id and _grows(first):
        yield f"the keys of the table {table.name} begin with {first.name}, whose values grow with time, {_LAST_RANGE}"


def _grows(column: Column) -> bool:
    """Do later rows have greater values? Times do, as a rule, and defaults that come from a clock."""
    in_time = column.type.kind in (Kind.TIMESTAMP, Kind.DATE)
    return in_time or (bool(_CLOCK.search(column.default_sql)) and not column.hidden)


def _index(schema: Schema, table: Table, index: Index) -> Iterator[str]:
    if not index.local:
        yield from _monotonic(schema, table, index)
    yield from _redundant(table, index)


def _made_for_a_key(table: Table, index: Index) -> Iterator[str]:
    """Whoever writes a foreign key may not know that he gets an index."""
    made_for = [key for key in table.foreign_keys if index.name.lower().endswith("_fkey_idx") and _begins(index, key)]
    if made_for:
        names = ", ".join(table.by_id[i].name for i in made_for[0].column_ids)
        yield (
            f"the foreign key {made_for[0].name} needs an index of {table.name} that begins with ({names}), and there "
            f"is none: {index.name} is made for it"
        )


def _monotonic(schema: Schema, table: Table, index: Index) -> Iterator[str]:
    part = index.parts[0]
    column = table.by_id[part.column_id]
    if part.path:
        return
    if _grows(column):
        yield f"the entries of {index.name} begin with {column.name}, whose values grow with time, {_LAST_RANGE}"
        return
    above = len(schema.by_id[table.parent_id].key_column_ids) if table.parent_id else 0
    if column.type.kind is Kind.INT64 and column.id in table.key_column_ids[above:]:
        yield (
            f"the entries of {index.name} begin with {column.name}, the id of the rows of {table.name}: if ids are "
            f"given out in order they grow, {_LAST_RANGE}"
        )


def _redundant(table: Table, index: Index) -> Iterator[str]:
    """An index is of no use beside another one that begins with the same columns, or beside the primary key."""
    if index.unique:
        return
    columns = tuple(part.column_id for part in index.parts)
    if not any(part.path for part in index.parts) and table.key_column_ids[: len(columns)] == columns:
        yield f"the index {index.name} begins as the primary key of {table.name} does, which finds the same rows"
        return
    for other in table.indexes:
        longer = len(other.parts) > len(index.parts) or other.id < index.id or other.unique
        held = {part.column_id for part in other.parts if not part.path} | {*other.storing, *table.key_column_ids}
        same = other.parts[: len(index.parts)] == index.parts and other.local == index.local
        if other.id != index.id and longer and same and set(index.storing) <= held:
            yield f"the index {index.name} has nothing that {other.name} has not: that one begins with the same columns"
            return


def _begins(index: Index, key: ForeignKey) -> bool:
    return tuple(part.column_id for part in index.parts) == key.column_ids


def _columns(before: Table, after: Table, rows: int) -> Iterator[str]:
    known = {column.id for column in before.columns}
    for column in after.columns:
        if column.id not in known and column.not_null and not column.default_sql and rows:
            yield (
                f"the new column {after.name}.{column.name} is NOT NULL and has no default, and {after.name} has about "
                f"{rows:,} rows, which have no value: give it a DEFAULT"
            )


def _checks_of_messages(old: Schema, new: Schema) -> Iterator[str]:
    """Numbers of fields and of enum values that get a name are read by it from then on, also in rows that are there."""
    if not old.proto_files or dict(old.proto_files) == dict(new.proto_files):
        return
    for table in new.tables:
        messages = {column.name.lower() for column in table.columns if column.type.kind is Kind.PROTO}
        names = {column.name.lower() for column in table.columns}
        known = {check.name for check in old.by_id[table.id].checks} if table.id in old.by_id else set()
        for check in table.checks:
            for reference in column_references(check.sql, check.name) if messages and check.name in known else ():
                at = column_part(reference, table.name, names)
                if reference[at].lower() in messages and not _is_scalar(new, table, reference[at:]):
                    whole = ".".join(reference[at:])
                    yield (
                        f"the check {check.name} of {table.name} reads {whole} as a whole, which shows fields and enum "
                        "values by their names: rows are not looked at again; do so afterwards with f1 check"
                    )


def _is_scalar(schema: Schema, table: Table, reference: Sequence[str]) -> bool:
    column = next(c for c in table.columns if c.name.lower() == reference[0].lower())
    if len(reference) == 1:
        return False
    try:
        found = of_path(registry_of(schema), column.type.proto, tuple(reference[1:]))
    except F1Error:
        return False
    return found.kind is not Kind.PROTO


def _views(new: Schema) -> Iterator[str]:
    """Views are kept as text: one that reads what is no more there is noticed by whoever reads it."""
    for view in new.views:
        text = f"SELECT * FROM {quoted(view.name)}"
        (statement,) = parse(text)
        try:
            if isinstance(statement, QueryStatement):
                prepare(new, text, statement.ast.copy())
        except F1Error as error:
            yield f"the view {view.name} cannot be read any more: {error.message}"
