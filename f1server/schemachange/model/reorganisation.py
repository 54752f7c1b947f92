"""The database reorganisation: what fills, validates and removes pairs between two schema versions (3.3 and 4.4)."""

from collections.abc import Collection, Iterable

from f1server.schemachange.model.consistency import entry_of, is_honoured
from f1server.schemachange.model.representation import EXISTS, Cell, Entry, Representation, rows_of
from f1server.schemachange.model.schema import DEFAULT, Element, Schema
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work

__all__ = ["Row", "all_rows", "are_valid", "reorganise", "reorganise_row"]

Row = tuple[str, int]
"""A table and a primary key."""


def all_rows(d: Representation, schema: Schema) -> list[Row]:
    """Return the rows of a snapshot, which the reorganiser goes through."""
    return [(table.name, pk) for table in schema.structure.tables for pk in rows_of(d, table.name)]


def reorganise_row(
    d: Representation, schema: Schema, tasks: Iterable[Task[Element]], row: Row, written: Collection[Row] = ()
) -> Representation:
    """Return ``d`` after the reorganiser's one atomic step on one row.

    ``written``: rows that were written since its snapshot, which it need not fill (the Thomas write rule of section
    4.4) but removes from.
    """
    table, pk = row
    after = dict(d)
    if Cell(table, pk, EXISTS) not in d:
        return after
    structure = schema.structure.by_name[table]
    mine = {name: task.work for task in tasks for of, name in [task.element] if of == table}
    for column in structure.columns:
        key = Cell(table, pk, column.name)
        if mine.get(column.name) is Work.FILL and row not in written:
            after.setdefault(key, DEFAULT)
    for index in structure.indexes:
        entry = entry_of(after, table, index, pk)
        if entry is not None and mine.get(index.name) is Work.FILL and row not in written:
            after[entry] = None
        elif entry is not None and mine.get(index.name) is Work.REMOVE:
            after.pop(entry, None)
    for column in structure.columns:
        if mine.get(column.name) is Work.REMOVE:
            after.pop(Cell(table, pk, column.name), None)
    if mine.get("") is Work.REMOVE:
        return {key: value for key, value in after.items() if not _is_of(key, row)}
    return after


def _is_of(key: object, row: Row) -> bool:
    return isinstance(key, Cell | Entry) and (key.table, key.pk) == row


def are_valid(d: Representation, schema: Schema, tasks: Iterable[Task[Element]]) -> bool:
    """Tell whether the constraints that are to become public hold; if not, the change fails."""
    wanted = {task.element for task in tasks if task.work is Work.VALIDATE}
    return all(
        is_honoured(d, table, constraint)
        for table in schema.structure.tables
        for constraint in table.constraints
        if (table.name, constraint.name) in wanted
    )


def reorganise(d: Representation, schema: Schema, tasks: Iterable[Task[Element]]) -> Representation | None:
    """Return ``d`` after a whole reorganisation; None: a constraint is not honoured."""
    work = list(tasks)
    for row in all_rows(d, schema):
        d = reorganise_row(d, schema, work, row)
    return d if are_valid(d, schema, work) else None
