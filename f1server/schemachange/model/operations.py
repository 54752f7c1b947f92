"""The relational operations as changes of key-value pairs, under one schema (section 2.4, definitions 1 to 3).

Each returns the representation after it, or None if it is refused: the row is or is not there, a constraint that is
enforced would not hold, or a name is used that is not public.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from f1server.schemachange.model.consistency import entry_of
from f1server.schemachange.model.representation import EXISTS, Cell, Entry, Key, Representation, rows_of, value_of
from f1server.schemachange.model.schema import DEFAULT, Reference, Schema, Table
from f1server.schemachange.steps.states import ElementState

__all__ = ["Kind", "Operation", "apply", "query", "query_by_index"]


class Kind(StrEnum):
    """The operations that write."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one row; ``values`` are (column, value), None to delete the value of an optional column."""

    kind: Kind
    table: str
    pk: int
    values: tuple[tuple[str, int | None], ...] = ()


def apply(d: Representation, schema: Schema, operation: Operation) -> Representation | None:
    """Return ``d`` after an operation of a server that uses ``schema``; None: refused."""
    table = schema.structure.by_name[operation.table]
    there = Cell(table.name, operation.pk, EXISTS) in d
    needed = ElementState.DELETE_ONLY if operation.kind is Kind.DELETE else ElementState.PUBLIC
    if schema.state(table.name) < needed or there is (operation.kind is Kind.INSERT):
        return None
    if operation.kind is Kind.DELETE:
        return _delete(d, schema, table, operation.pk)
    given = dict(operation.values)
    if any(not _may_be_given(schema, table, name, value) for name, value in given.items()):
        return None
    return _put(d, schema, table, operation.pk, given)


def _may_be_given(schema: Schema, table: Table, name: str, value: int | None) -> bool:
    public = {column.name: column for column in schema.columns(table, ElementState.PUBLIC)}
    return name in public and not (value is None and public[name].required)


def _delete(d: Representation, schema: Schema, table: Table, pk: int) -> Representation | None:
    """Delete the row and all that the schema knows of it, whatever the states (definition 1)."""
    if any(value_of(d, other.name, row, ref.column) == pk for other, ref, row in _referrers(d, schema, table, pk)):
        return None
    gone: set[Key] = {Cell(table.name, pk, EXISTS)}
    gone |= {Cell(table.name, pk, column.name) for column in schema.columns(table, ElementState.DELETE_ONLY)}
    entries = [entry_of(d, table.name, index, pk) for index in schema.indexes(table, ElementState.DELETE_ONLY)]
    gone |= {entry for entry in entries if entry is not None}
    return {key: value for key, value in d.items() if key not in gone}


def _referrers(d: Representation, schema: Schema, table: Table, pk: int) -> Iterable[tuple[Table, Reference, int]]:
    """Yield (table, foreign key, row) that may refer to a row which goes, by foreign keys that are enforced."""
    for other in schema.structure.tables:
        for constraint in schema.constraints(other, ElementState.WRITE_ONLY):
            if isinstance(constraint, Reference) and constraint.target == table.name:
                for row in rows_of(d, other.name):
                    if (other.name, row) != (table.name, pk):
                        yield other, constraint, row


def _put(
    d: Representation, schema: Schema, table: Table, pk: int, given: Mapping[str, int | None]
) -> Representation | None:
    """Insert or update a row: what is write-only is written as well, what is delete-only is not (definitions 1, 2)."""
    after = dict(d)
    after[Cell(table.name, pk, EXISTS)] = None
    for column in schema.columns(table, ElementState.WRITE_ONLY):
        key = Cell(table.name, pk, column.name)
        value = given[column.name] if column.name in given else d.get(key)
        if value is None and column.required:
            value = DEFAULT
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    if not _constraints_hold(after, schema, table, pk):
        return None
    for index in schema.indexes(table, ElementState.DELETE_ONLY):
        old, new = entry_of(d, table.name, index, pk), entry_of(after, table.name, index, pk)
        if old is not None and old != new:
            after.pop(old, None)
        if new is not None and schema.state(table.name, index.name) >= ElementState.WRITE_ONLY:
            after[new] = None
    return after


def _constraints_hold(after: Representation, schema: Schema, table: Table, pk: int) -> bool:
    """Do the constraints that are enforced hold for one row (definition 3)? Other rows may violate them."""
    for constraint in schema.constraints(table, ElementState.WRITE_ONLY):
        if isinstance(constraint, Reference):
            value = value_of(after, table.name, pk, constraint.column)
            if value is not None and Cell(constraint.target, value, EXISTS) not in after:
                return False
            continue
        mine = [value_of(after, table.name, pk, column) for column in constraint.columns]
        others = [row for row in rows_of(after, table.name) if row != pk]
        if None not in mine and any(
            [value_of(after, table.name, row, column) for column in constraint.columns] == mine for row in others
        ):
            return False
    return True


Rows = list[tuple[int, tuple[int | None, ...]]]


def query(d: Representation, schema: Schema, table: str) -> Rows | None:
    """Return primary key and public columns of all rows; None: the table is not public."""
    if schema.state(table) < ElementState.PUBLIC:
        return None
    names = [column.name for column in schema.columns(schema.structure.by_name[table], ElementState.PUBLIC)]
    return [(pk, tuple(value_of(d, table, pk, name) for name in names)) for pk in rows_of(d, table)]


def query_by_index(d: Representation, schema: Schema, table: str, index: str) -> Rows | None:
    """Return primary key and indexed columns of all rows that an index-only scan finds; None: it is not public."""
    if schema.state(table) < ElementState.PUBLIC or schema.state(table, index) < ElementState.PUBLIC:
        return None
    return sorted((key.pk, key.values) for key in d if isinstance(key, Entry) and (key.table, key.of) == (table, index))
