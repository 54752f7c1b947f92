"""Definition 4: when a database representation is consistent with respect to a schema, clause by clause."""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from f1server.schemachange.model.representation import EXISTS, Cell, Entry, Representation, rows_of, value_of
from f1server.schemachange.model.schema import Element, Index, Reference, Schema, Table, Unique
from f1server.schemachange.steps.states import ElementState

__all__ = ["Clause", "Violation", "entry_of", "is_consistent", "is_honoured", "violations"]


class Clause(IntEnum):
    """The clauses of definition 4, by their numbers."""

    VALUES_HAVE_ROWS = 1
    REQUIRED_VALUES = 2
    ENTRIES_HAVE_INDEXES = 3
    INDEXES_COMPLETE = 4
    ENTRIES_VALID = 5
    CONSTRAINTS_HONOURED = 6
    NOTHING_UNKNOWN = 7

    @property
    def is_orphan_data(self) -> bool:
        """Whether its violation is an orphan data anomaly; otherwise it is an integrity anomaly (section 3.2)."""
        return self in (
            Clause.VALUES_HAVE_ROWS,
            Clause.ENTRIES_HAVE_INDEXES,
            Clause.ENTRIES_VALID,
            Clause.NOTHING_UNKNOWN,
        )


class Violation(NamedTuple):
    """A clause, and the element whose pairs violate it."""

    clause: Clause
    element: Element


def violations(d: Representation, schema: Schema) -> set[Violation]:
    """Return how ``d`` is inconsistent with respect to ``schema``; nothing: it is consistent."""
    return {violation for clause in _CLAUSES for violation in clause(d, schema)}


def is_consistent(d: Representation, schema: Schema) -> bool:
    """Tell whether ``d`` is consistent with respect to ``schema``: all seven clauses hold."""
    return not any(True for clause in _CLAUSES for _ in clause(d, schema))


def entry_of(d: Representation, table: str, index: Index, pk: int) -> Entry | None:
    """Return the entry that an index has for a row as it is in ``d``; None: some indexed column has no value."""
    values = [value_of(d, table, pk, column) for column in index.columns]
    found = tuple(value for value in values if value is not None)
    return Entry(table, index.name, found, pk) if len(found) == len(values) else None


def is_honoured(d: Representation, table: Table, constraint: Unique | Reference) -> bool:
    """Tell whether no row violates a constraint, whatever the constraint's state."""
    if isinstance(constraint, Reference):
        values = [value_of(d, table.name, pk, constraint.column) for pk in rows_of(d, table.name)]
        return all(value is None or Cell(constraint.target, value, EXISTS) in d for value in values)
    seen: set[tuple[int | None, ...]] = set()
    for pk in rows_of(d, table.name):
        combined = tuple(value_of(d, table.name, pk, column) for column in constraint.columns)
        if None not in combined and combined in seen:
            return False
        seen.add(combined)
    return True


def _values_have_rows(d: Representation, schema: Schema) -> Iterator[Violation]:
    for key in d:
        if isinstance(key, Cell):
            known = schema.state(key.table, "" if key.column == EXISTS else key.column)
            if known is ElementState.ABSENT or Cell(key.table, key.pk, EXISTS) not in d:
                yield Violation(Clause.VALUES_HAVE_ROWS, (key.table, "" if key.column == EXISTS else key.column))


def _required_values(d: Representation, schema: Schema) -> Iterator[Violation]:
    for table in schema.structure.tables:
        if schema.state(table.name) is ElementState.ABSENT:
            continue
        for column in schema.columns(table, ElementState.PUBLIC):
            if column.required and any(
                value_of(d, table.name, pk, column.name) is None for pk in rows_of(d, table.name)
            ):
                yield Violation(Clause.REQUIRED_VALUES, (table.name, column.name))


def _entries_have_indexes(d: Representation, schema: Schema) -> Iterator[Violation]:
    for key in d:
        if isinstance(key, Entry) and schema.state(key.table, key.of) is ElementState.ABSENT:
            yield Violation(Clause.ENTRIES_HAVE_INDEXES, (key.table, key.of))


def _indexes_complete(d: Representation, schema: Schema) -> Iterator[Violation]:
    for table in schema.structure.tables:
        for index in schema.indexes(table, ElementState.PUBLIC):
            wanted = [entry_of(d, table.name, index, pk) for pk in rows_of(d, table.name)]
            if any(entry is not None and entry not in d for entry in wanted):
                yield Violation(Clause.INDEXES_COMPLETE, (table.name, index.name))


def _entries_valid(d: Representation, schema: Schema) -> Iterator[Violation]:
    for key in d:
        if not isinstance(key, Entry):
            continue
        table = schema.structure.by_name.get(key.table)
        index = next((i for i in table.indexes if i.name == key.of), None) if table is not None else None
        if index is None or Cell(key.table, key.pk, EXISTS) not in d or entry_of(d, key.table, index, key.pk) != key:
            yield Violation(Clause.ENTRIES_VALID, (key.table, key.of))


def _constraints_honoured(d: Representation, schema: Schema) -> Iterator[Violation]:
    for table in schema.structure.tables:
        for constraint in schema.constraints(table, ElementState.PUBLIC):
            if not is_honoured(d, table, constraint):
                yield Violation(Clause.CONSTRAINTS_HONOURED, (table.name, constraint.name))


def _nothing_unknown(d: Representation, schema: Schema) -> Iterator[Violation]:
    for key in d:
        if isinstance(key, str):
            yield Violation(Clause.NOTHING_UNKNOWN, (key, ""))


_CLAUSES: tuple[Callable[[Representation, Schema], Iterator[Violation]], ...] = (
    _values_have_rows,
    _required_values,
    _entries_have_indexes,
    _indexes_complete,
    _entries_valid,
    _constraints_honoured,
    _nothing_unknown,
)
