"""Renames in sources: ``New RENAMED FROM Old`` of tables, columns and indexes (docs/schema.md).

The schema that is there is renamed first, as ALTER would do it, so that what follows finds elements by their new names.
A source may be applied again: where the old name is gone and the new one is there, nothing is left to do, and where
neither is there, as in a new database, the element is new.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from f1common.errors import Code, check
from f1server.catalog import alter
from f1server.catalog.schema import Check, ForeignKey, Index, Schema, Table
from f1server.catalog.statements import (
    AlterIndex,
    AlterTable,
    CreateIndex,
    CreateTable,
    Position,
    RenameColumn,
    RenameTable,
    SchemaStatement,
)
from f1server.catalog.working import WorkingSchema

__all__ = ["renamed", "without_renames"]


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of one space in a source: those that are declared, and (new, old, place) of those that are renamed."""

    what: str
    declared: frozenset[str]
    renames: tuple[tuple[str, str, Position], ...]

    def refuse_both(self) -> None:
        """Refuse a source that has the new name and the old one, or gives one old name to two. Raises F1Error."""
        taken: set[str] = set()
        for new, old, at in self.renames:
            if old.lower() == new.lower():
                raise at.error(Code.INVALID_ARGUMENT, f"{new} is RENAMED FROM itself")
            if old.lower() in self.declared:
                raise at.error(
                    Code.INVALID_ARGUMENT,
                    f"{new} is RENAMED FROM {old}, and the sources have a {self.what} {old} too: rename in one change, "
                    f"leave RENAMED FROM out, and add the other {old} in the next",
                )
            if old.lower() in taken:
                raise at.error(Code.INVALID_ARGUMENT, f"two {self.what}s are RENAMED FROM {old}")
            taken.add(old.lower())


def renamed(schema: Schema, statements: Sequence[SchemaStatement], wanted: Schema) -> Schema:
    """Return ``schema`` with what the sources rename under its new names; the views stay as they are.

    ``wanted`` is what the sources compile to, without their renames.

    Raises F1Error INVALID_ARGUMENT for sources that contradict themselves, FAILED_PRECONDITION if both names are there
    or a check cannot be rewritten, with the place in the source.
    """
    tables = [s for s in statements if isinstance(s, CreateTable)]
    indexes = [s for s in statements if isinstance(s, CreateIndex)]
    _relations("table", tables).refuse_both()
    _relations("index", indexes).refuse_both()
    for table in tables:
        renames = tuple((c.name, c.renamed_from, c.at) for c in table.columns if c.renamed_from)
        _Names("column", frozenset(c.name.lower() for c in table.columns), renames).refuse_both()
    # The sources say anew what views there are.
    work = WorkingSchema(replace(schema, views=()), _no_id)
    for table in tables:
        if table.renamed_from:
            _rename_table(work, table)
        for column in table.columns:
            if column.renamed_from:
                _rename_column(work, table, column.name, column.renamed_from, column.at)
    for index in indexes:
        if index.renamed_from:
            _rename_index(work, index)
    for moved in work.schema.tables:
        if moved != schema.by_id[moved.id]:
            work.put(_with_made_names(moved, schema.by_id[moved.id], wanted.by_name.get(moved.name.lower())))
    return replace(work.schema, views=schema.views)


def without_renames(statements: Iterable[SchemaStatement]) -> list[SchemaStatement]:
    """Return the statements as they describe the database once everything is renamed."""
    found: list[SchemaStatement] = []
    for statement in statements:
        match statement:
            case CreateTable():
                columns = tuple(replace(column, renamed_from="") for column in statement.columns)
                found.append(replace(statement, columns=columns, renamed_from=""))
            case CreateIndex():
                found.append(replace(statement, renamed_from=""))
            case _:
                found.append(statement)
    return found


def _relations(what: str, statements: Sequence[CreateTable | CreateIndex]) -> _Names:
    renames = tuple((s.name, s.renamed_from, s.at) for s in statements if s.renamed_from)
    return _Names(what, frozenset(s.name.lower() for s in statements), renames)


def _no_id() -> int:
    check(False, "a rename makes no element")
    return 0


def _named(elements: Iterable[Any], name: str) -> Any:
    return next((element for element in elements if element.name.lower() == name.lower()), None)


def _wanted(elements: Sequence[Any], new: str, old: str, what: str, at: Position) -> bool:
    """Is the old name there, and the new one not? Raises F1Error FAILED_PRECONDITION for both."""
    if _named(elements, old) is None:
        return False
    if _named(elements, new) is not None:
        raise at.error(
            Code.FAILED_PRECONDITION,
            f"{new} is RENAMED FROM {old}, and the database has both: drop one of the two {what}s first, or leave "
            "RENAMED FROM out",
        )
    return True


def _rename_table(work: WorkingSchema, statement: CreateTable) -> None:
    new, old, at = statement.name, statement.renamed_from, statement.at
    if _wanted(work.schema.tables, new, old, "table", at):
        alter.alter(work, AlterTable(old, (RenameTable(new, at),), at=at))


def _rename_column(work: WorkingSchema, statement: CreateTable, new: str, old: str, at: Position) -> None:
    table = _named(work.schema.tables, statement.name)
    if table is not None and _wanted(table.columns, new, old, "column", at):
        alter.alter(work, AlterTable(table.name, (RenameColumn(old, new, at),), at=at))


def _rename_index(work: WorkingSchema, statement: CreateIndex) -> None:
    new, old, at = statement.name, statement.renamed_from, statement.at
    if _wanted([i for table in work.schema.tables for i in table.indexes], new, old, "index", at):
        alter.alter(work, AlterIndex(old, new, at=at))


# Names that the compiler makes of those of tables and columns change with these.


def _with_made_names(table: Table, old: Table, wanted: Table | None) -> Table:
    """Give unnamed constraints and indexes the names that they get now, unless the source has the old ones."""
    taken = _names(wanted) if wanted is not None else set()
    before, after = _made_names(old), _made_names(table)

    def moved(elements: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(e, name=_moved(e.name, before[e.id], after[e.id], taken)) for e in elements)

    return replace(
        table, indexes=moved(table.indexes), foreign_keys=moved(table.foreign_keys), checks=moved(table.checks)
    )


def _names(table: Table) -> set[str]:
    named: list[Index | ForeignKey | Check] = [*table.indexes, *table.foreign_keys, *table.checks]
    return {element.name.lower() for element in named}


def _moved(name: str, before: Sequence[str], after: Sequence[str], taken: set[str]) -> str:
    for old, new in zip(before, after, strict=True):
        number = name[len(old) :]
        if name.lower().startswith(old.lower()) and (number.isdecimal() or not number):
            return name if name.lower() in taken or (new + number).lower() not in taken else new + number
    return name


def _made_names(table: Table) -> dict[int, tuple[str, ...]]:
    """Return the names, but for a number, that constraints and indexes get if nobody names them, by id."""
    found: dict[int, tuple[str, ...]] = {item.id: (f"{table.name}_check",) for item in table.checks}
    for key in table.foreign_keys:
        found[key.id] = ("_".join([table.name, *(table.by_id[i].name for i in key.column_ids), "fkey"]),)
    for index in table.indexes:
        parts = [name for part in index.parts for name in (table.by_id[part.column_id].name, *part.path)]
        found[index.id] = tuple("_".join([table.name, *parts, suffix]) for suffix in ("key", "fkey_idx", "idx"))
    return found
