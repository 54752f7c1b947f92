"""Schemas of the model: tables with columns, indexes and constraints, each in a state (sections 2.2 and 3.1).

A :class:`Structure` says which elements there are at all; a :class:`Schema` gives each of them a state. The schemas of
one change share a structure, and an element that a schema does not contain is absent in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from f1server.schemachange.steps.states import ElementClass, ElementState

__all__ = ["Column", "Element", "Index", "Reference", "Schema", "Structure", "Table", "Unique"]

Element = tuple[str, str]
"""Names an element: the table, and what is in it; the table itself is ``(table, "")``."""

DEFAULT = 0
"""What a required column is filled with."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column beside the primary key. An optimistic lock is a required one (section 2.5)."""

    name: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index over columns."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values in these columns; rows that lack one of them are free."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: a row of ``target`` has the column's value as its primary key, if the column has a value."""

    name: str
    column: str
    target: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Its primary key is one integer."""

    name: str
    columns: tuple[Column, ...] = ()
    indexes: tuple[Index, ...] = ()
    constraints: tuple[Unique | Reference, ...] = ()


@dataclass(frozen=True)
class Structure:
    """All elements that any schema of a change has."""

    tables: tuple[Table, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Table]:
        """Tables by name."""
        return {table.name: table for table in self.tables}

    @cached_property
    def classes(self) -> Mapping[Element, ElementClass]:
        """The class of every element, by which its transitions go (:mod:`f1server.schemachange.steps.states`)."""
        found: dict[Element, ElementClass] = {}
        for table in self.tables:
            found[table.name, ""] = ElementClass.OPTIONAL
            for column in table.columns:
                found[table.name, column.name] = ElementClass.REQUIRED if column.required else ElementClass.OPTIONAL
            found |= {(table.name, index.name): ElementClass.REQUIRED for index in table.indexes}
            found |= {(table.name, constraint.name): ElementClass.CONSTRAINT for constraint in table.constraints}
        return found

    def schema(self, states: Mapping[Element, ElementState]) -> "Schema":
        """Return the schema with these states; elements that are not named are public."""
        return Schema(self, {element: states.get(element, ElementState.PUBLIC) for element in self.classes})


@dataclass(frozen=True)
class Schema:
    """A structure and the state of each of its elements."""

    structure: Structure
    states: Mapping[Element, ElementState]

    def state(self, table: str, name: str = "") -> ElementState:
        """Return the state of an element; what is in an absent table, or in no table, is absent."""
        if self.states.get((table, ""), ElementState.ABSENT) is ElementState.ABSENT:
            return ElementState.ABSENT
        return self.states.get((table, name), ElementState.ABSENT)

    def columns(self, table: Table, least: ElementState) -> list[Column]:
        """Return the columns of a table whose state is ``least`` or higher."""
        return [column for column in table.columns if self.state(table.name, column.name) >= least]

    def indexes(self, table: Table, least: ElementState) -> list[Index]:
        """Return the indexes of a table whose state is ``least`` or higher."""
        return [index for index in table.indexes if self.state(table.name, index.name) >= least]

    def constraints(self, table: Table, least: ElementState) -> list[Unique | Reference]:
        """Return the constraints of a table whose state is ``least`` or higher."""
        return [item for item in table.constraints if self.state(table.name, item.name) >= least]

    def moved(self, states: Mapping[Element, ElementState]) -> "Schema":
        """Return the schema with some elements in other states."""
        return Schema(self.structure, {**self.states, **states})
