"""Names in a query: what relations there are at a place, and what columns they have."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from f1common.encoding.proto import ProtoRegistry
from f1common.errors import Code, F1Error
from f1server.catalog.lexer import position
from f1server.catalog.schema import Table
from f1server.plan.scans import FieldWanted
from f1server.plan.types import UNKNOWN, SqlType

COLUMN_META = "f1_column"
"""Key of ``Expression.meta`` of a column: the :class:`Origin` of its values."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which column of which base table a column is. ``through``: a query in FROM stands between."""

    number: int
    field: FieldWanted
    through: bool = False

    def __deepcopy__(self, memo: object) -> "Origin":
        """A value: copies of trees, which carry origins, share it."""
        return self


@dataclass(frozen=True, slots=True)
class OutColumn:
    """A column that a relation gives. ``origin``: conditions on it may be tested on that column of a table already."""

    name: str
    type: SqlType = UNKNOWN
    origin: Origin | None = None


@dataclass(slots=True, eq=False)
class BaseTable:
    """One place where a statement reads a table. ``needed``: what of it, and the name that DuckDB knows it by."""

    number: int
    table: Table
    node: exp.Table
    alias: str
    needed: dict[FieldWanted, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    target: bool = False

    @property
    def relation(self) -> str:
        """The name under which its rows are registered with DuckDB."""
        return f"f1_t{self.number}"

    def in_order(self) -> dict[FieldWanted, str]:
        """Return what is needed in the order of the table's columns, which ``*`` shows; what it does not show comes
        last."""
        place = {column.id: i for i, column in enumerate(self.table.visible)}
        return dict(
            sorted(self.needed.items(), key=lambda n: (len(n[0].path) > 0, place.get(n[0].column_id, len(place))))
        )

    def need(self, column_id: int, path: tuple[str, ...] = ()) -> str:
        """Note that a column or field is needed and return its name in the relation."""
        wanted = FieldWanted(column_id, path)
        name = self.needed.get(wanted)
        if name is None:
            column = self.table.by_id[column_id]
            name = column.name if not path else f"{column.name}.{'.'.join(path)}#{self.number}"
            self.needed[wanted] = name
            if path or column.hidden:
                self.hidden.add(name)
        return name


@dataclass(slots=True, eq=False)
class FieldSource:
    """A repeated field used as a table: PROTO JOIN, or FROM path.

    One of ``base``, ``parent`` and ``expression`` says what the field is in. ``items``: what is wanted of each element,
    by path within it, and the column that it becomes.
    """

    node: exp.Expr
    alias: str
    column_id: int
    path: tuple[str, ...]
    element: SqlType
    base: BaseTable | None = None
    owner: str = ""
    parent: "FieldSource | None" = None
    expression: exp.Expr | None = None
    message: str = ""
    items: dict[tuple[str, ...], str] = field(default_factory=dict)

    def need(self, path: tuple[str, ...]) -> str:
        """Note that a field of the elements is needed (no path: the elements) and return the name of its column."""
        return self.items.setdefault(path, ".".join(path) if path else self.alias)


@dataclass(slots=True, eq=False)
class Relation:
    """Something with a name in FROM. ``columns`` None: not known here, DuckDB will tell."""

    alias: str
    columns: dict[str, OutColumn] | None
    base: BaseTable | None = None
    field_source: FieldSource | None = None

    def column(self, name: str) -> OutColumn | None:
        """Return a column by name, in any case."""
        return self.columns.get(name.lower()) if self.columns is not None else None


def columns_by_name(columns: Sequence[OutColumn]) -> dict[str, OutColumn]:
    """Return columns by lower-case name; of equal names the first."""
    found: dict[str, OutColumn] = {}
    for column in columns:
        found.setdefault(column.name.lower(), column)
    return found


@dataclass(frozen=True, slots=True)
class Cte:
    """A query of WITH: its output, or None if it is not known."""

    columns: tuple[OutColumn, ...] | None


@dataclass(slots=True, eq=False)
class Scope:
    """What names mean inside one SELECT, and around it."""

    parent: "Scope | None" = None
    ctes: Mapping[str, Cte] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    aliases: dict[str, OutColumn] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)
    natural: bool = False
    padding: bool = False

    def outward(self) -> Iterator["Scope"]:
        """Yield this scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def relation(self, alias: str) -> Relation | None:
        """Return the innermost relation of that name."""
        for scope in self.outward():
            for relation in scope.relations:
                if relation.alias.lower() == alias.lower():
                    return relation
        return None

    def shadowed(self, relation: Relation) -> bool:
        """Does another relation of the same name hide this one from here?"""
        return self.relation(relation.alias) is not relation

    def holders(self, name: str) -> list[Relation]:
        """Return the relations that have a column of that name, of the innermost scope that has any."""
        for scope in self.outward():
            found = [r for r in scope.relations if r.column(name) is not None]
            if found:
                return found
        return []

    @property
    def open(self) -> bool:
        """Is there a relation whose columns are not known?"""
        return any(r.columns is None for scope in self.outward() for r in scope.relations)

    def merges(self, name: str) -> bool:
        """Is this name one of USING, or may it be one of NATURAL?"""
        return any(name.lower() in scope.merged or scope.natural for scope in self.outward())

    def known_names(self) -> list[str]:
        """Return the names that could be meant here, for hints."""
        names: list[str] = []
        for scope in self.outward():
            for relation in scope.relations:
                names.append(relation.alias)
                names += [c.name for c in (relation.columns or {}).values()]
        return names


def at(text: str, node: exp.Expr, code: Code, message: str) -> F1Error:
    """Return an error that points at an expression in the text, if its place is known."""
    start = place(node)
    if start is None or start >= len(text):
        return F1Error(code, message)
    return position(text, start).error(code, message)


def place(node: object) -> int | None:
    """Return where in the text an expression begins, as far as its names tell."""
    if not isinstance(node, exp.Expr):
        return None  # the parser lets a flag stand where something is missing
    places = [
        name.meta["start"]
        for name in [node, *node.find_all(exp.Identifier, exp.Anonymous)]
        if name.meta and "start" in name.meta
    ]
    return min(places, default=None)


def near_miss(name: str, known: Sequence[str]) -> str:
    """Return a hint at a name like ``name``, or nothing."""
    lowered = {k.lower(): k for k in reversed(known)}
    close = difflib.get_close_matches(name.lower(), sorted(lowered), n=1)
    return f"; did you mean {lowered[close[0]]}?" if close else ""


def field_path(registry: ProtoRegistry, message: str, names: Sequence[exp.Expr], text: str) -> tuple[str, ...]:
    """Return the fields that names in any case mean. Raises NOT_FOUND, INVALID_ARGUMENT, pointing at the name."""
    found: list[str] = []
    at_message: Any = registry.message_class(message).DESCRIPTOR
    for name in names:
        if at_message is None or at_message.GetOptions().map_entry:
            before = found[-1] if found else message
            raise at(text, name, Code.INVALID_ARGUMENT, f"{before} has no fields: {name.name} cannot follow")
        fields = {f.lower(): f for f in at_message.fields_by_name}
        field_name = name.name if name.name in at_message.fields_by_name else fields.get(name.name.lower())
        if field_name is None:
            hint = near_miss(name.name, list(at_message.fields_by_name))
            raise at(
                text, name, Code.NOT_FOUND, f"the message type {at_message.full_name} has no field {name.name}{hint}"
            )
        found.append(field_name)
        at_message = at_message.fields_by_name[field_name].message_type
    return tuple(found)
