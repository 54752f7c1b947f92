"""What a reorganisation does with the rows of one table, all of it in one walk."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from f1server.catalog.schema import Column, ForeignKey, Schema, Table
from f1server.rows.keys import IndexLayout, index_layout
from f1server.rows.mirrors import mirror_layout
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.edits import Part
from f1server.schemachange.steps.moves import FORM
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work

__all__ = ["TableWork", "by_table", "find"]


@dataclass(slots=True)
class TableWork:
    """What is done with the rows of one table in one walk."""

    table: Table
    tasks: list[Task[Element]] = field(default_factory=list)
    """What all the rest follows from."""
    columns: list[Column] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)
    indexes: list[IndexLayout] = field(default_factory=list)
    not_null: list[Column] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    checks: bool = False
    gone: list[int] = field(default_factory=list)
    """Cells of columns that are removed."""
    gone_locks: list[int] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)
    """Columns and the locks that are to cover them alone."""

    @property
    def touched(self) -> list[IndexLayout]:
        """The indexes whose entries change when a column is filled."""
        filled = {column.id for column in self.columns}
        return [where for where in self.indexes if not filled.isdisjoint(where.columns)]

    @property
    def rewrites(self) -> bool:
        """Are rows written anew?"""
        return bool(self.columns or self.locks or self.moved or self.gone or self.gone_locks)

    @property
    def validates(self) -> bool:
        """Are rows looked at, to see that they honour something?"""
        return bool(self.not_null or self.checks or self.foreign_keys)


def by_table(schema: Schema, tasks: Sequence[Task[Element]]) -> list[TableWork]:
    """Return what is to be done with rows, by table."""
    found: dict[int, TableWork] = {}
    for task in tasks:
        element = task.element
        table = schema.by_id.get(element.table_id)
        purged = task.work is Work.REMOVE and element.kind in ("index", FORM)
        if table is None or element.kind == "table" or purged:
            continue
        if element.kind == FORM:
            # A mirror is filled from the rows of its other form.
            table = schema.forms[table.id]
        work = found.setdefault(table.id, TableWork(table))
        work.tasks.append(task)
        _add(schema, work, task)
    return [found[table_id] for table_id in sorted(found)]


def _add(schema: Schema, work: TableWork, task: Task[Element]) -> None:
    element, table = task.element, work.table
    match element.kind, task.work:
        case "column", Work.FILL:
            column = table.by_id[element.id]
            if column.fills:
                work.columns.append(column)
        case "column", Work.REMOVE:
            work.gone.append(element.id)
        case "lock", Work.REMOVE:
            work.gone_locks.append(element.id)
        case "lock", _:
            work.locks.append(element.id)
        case "lock coverage of", _:
            work.moved.append((element.id, element.lock))
        case "form of", _:
            work.indexes.append(mirror_layout(schema, table, schema.by_id[element.table_id]))
        case "index", _:
            work.indexes.append(index_layout(schema, table, find(schema, element, Part.INDEX)))
        case "NOT NULL of", _:
            work.not_null.append(table.by_id[element.id])
        case "foreign key", _:
            work.foreign_keys.append(find(schema, element, Part.FOREIGN_KEY))
        case _:
            work.checks = True


def find(schema: Schema, element: Element, part: Part) -> Any:
    """Return an element of a table of ``schema``."""
    table = schema.by_id[element.table_id]
    return next(e for e in getattr(table, part) if e.id == element.id)
