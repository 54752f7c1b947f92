"""What one version of a schema changes: edits of single elements, applied to whatever schema is current by then."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from f1common.errors import Code, F1Error
from f1server.catalog.roles import Grant, Role
from f1server.catalog.schema import Check, Column, ElementState, ForeignKey, Index, LockColumn, Schema, Table, View
from f1server.rows.locks import DEFAULT_LOCK

__all__ = [
    "AddElement",
    "AddTable",
    "CoverageTo",
    "Edit",
    "EditElement",
    "EditTable",
    "ElementTo",
    "NotNullTo",
    "Part",
    "SetGrants",
    "SetProtos",
    "SetRoles",
    "SetViews",
    "TableTo",
    "advance",
    "options",
]

MOST_DROPPED = 100
"""So many names of dropped tables are remembered, the last ones, so that the schema stays as small as its tables."""


class Part(StrEnum):
    """The kinds of elements inside a table, by the names of its attributes."""

    COLUMN = "columns"
    INDEX = "indexes"
    FOREIGN_KEY = "foreign_keys"
    CHECK = "checks"
    LOCK = "locks"


Element = Column | Index | ForeignKey | Check | LockColumn


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
    """The name and the options of a table: what may change at once."""

    before: Table
    after: Table


@dataclass(frozen=True, slots=True)
class SetGrants:
    """What roles may do with a table."""

    table_id: int
    name: str
    before: tuple[Grant, ...]
    after: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class SetRoles:
    """All roles."""

    before: tuple[Role, ...]
    after: tuple[Role, ...]


@dataclass(frozen=True, slots=True)
class AddElement:
    """A new element of a table, in the state that it has."""

    part: Part
    table_id: int
    element: Element


@dataclass(frozen=True, slots=True)
class ElementTo:
    """An element of a table moves to a state; ABSENT removes it."""

    part: Part
    table_id: int
    element_id: int
    name: str
    state: ElementState


@dataclass(frozen=True, slots=True)
class EditElement:
    """An element's name, and whatever else of it may change at once; its state stays."""

    part: Part
    table_id: int
    before: Element
    after: Element


@dataclass(frozen=True, slots=True)
class NotNullTo:
    """NOT NULL of a column moves to a state; ABSENT: the column may be NULL."""

    table_id: int
    column_id: int
    name: str
    state: ElementState


@dataclass(frozen=True, slots=True)
class CoverageTo:
    """A column comes under these locks and no others (ids; 0: the row's default lock)."""

    table_id: int
    column_id: int
    name: str
    locks: tuple[int, ...]


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


Edit = (
    AddTable
    | TableTo
    | EditTable
    | AddElement
    | ElementTo
    | EditElement
    | NotNullTo
    | CoverageTo
    | SetViews
    | SetProtos
    | SetGrants
    | SetRoles
)


def advance(schema: Schema, edits: tuple[Edit, ...], *, back: bool = False) -> Schema:
    """Return the schema after some edits, with the next version number; ``back``: they take a change back.

    Raises F1Error ABORTED if what they change was changed by somebody else since they were planned.
    """
    for edit in edits:
        schema = _apply(schema, edit, back)
    # A name that is in use again says nothing about a table of long ago, also once its table is called otherwise.
    dropped = tuple(name for name in schema.dropped if name not in schema.by_name)
    return replace(schema, version=schema.version + 1, commit_ts=0, elements_since=0, dropped=dropped)


def _remembered(dropped: tuple[str, ...], name: str) -> tuple[str, ...]:
    return (*(other for other in dropped if other != name.lower()), name.lower())[-MOST_DROPPED:]


def _apply(schema: Schema, edit: Edit, back: bool) -> Schema:
    match edit:
        case AddTable(table):
            return _put(schema, table)
        case TableTo(table_id, name, ElementState.ABSENT):
            _require(schema, table_id, name)
            kept = tuple(t for t in schema.tables if t.id != table_id)
            named = any(t.name.lower() == name.lower() for t in kept)  # it moved, and is still there
            return replace(schema, tables=kept, dropped=schema.dropped if named else _remembered(schema.dropped, name))
        case TableTo(table_id, name, state):
            return _put(schema, replace(_require(schema, table_id, name), state=state))
        case EditTable(before, after):
            current = _require(schema, after.id, after.name)
            if options(current) != options(before):
                raise _changed(after.name)
            edited = replace(current, name=after.name, cascade=after.cascade, untracked=after.untracked)
            return _put(schema, edited)
        case SetGrants(table_id, name, before_grants, after_grants):
            table = _require(schema, table_id, name)
            if table.grants != before_grants:
                raise _changed(name)
            return _put(schema, replace(table, grants=after_grants))
        case SetRoles(before_roles, after_roles):
            if schema.roles != before_roles:
                raise F1Error(Code.ABORTED, "roles were changed by another schema change at the same time; retry")
            return replace(schema, roles=after_roles)
        case AddElement(part, table_id, element):
            table = _require(schema, table_id, element.name)
            return _put(schema, _with(table, part, (*getattr(table, part), element)))
        case CoverageTo(table_id, column_id, name, locks):
            return _put(schema, _covered(_require(schema, table_id, name), column_id, locks))
        case SetViews(gone, new):
            names = {*gone, *(view.name.lower() for view in new)}
            kept_views = [view for view in schema.views if view.name.lower() not in names]
            return replace(schema, views=tuple(sorted([*kept_views, *new], key=lambda v: v.name.lower())))
        case SetProtos(files, descriptor_set):
            return replace(schema, proto_files=files, descriptor_set=descriptor_set)
        case _:
            return _put(schema, _edit_element(schema, edit, back))


def _edit_element(schema: Schema, edit: ElementTo | EditElement | NotNullTo, back: bool) -> Table:
    match edit:
        case ElementTo(part, table_id, element_id, name, state):
            table = _require(schema, table_id, name)
            current = _element(table, part, element_id, name)
            if part is Part.COLUMN and state is ElementState.ABSENT:
                table = _covered(table, element_id, ())
            moved = replace(current, state=state)
            if isinstance(current, Column):
                moved = replace(moved, dropping=_is_dropping(current, state, back))
            return _replaced(table, part, moved)
        case EditElement(part, table_id, before, after):
            table = _require(schema, table_id, after.name)
            current = _element(table, part, after.id, after.name)
            if _stateless(current) != _stateless(before):
                raise _changed(after.name)
            return _replaced(table, part, _named(schema, current, _in_state_of(current, after)))
        case NotNullTo(table_id, column_id, name, state):
            table = _require(schema, table_id, name)
            column = _element(table, Part.COLUMN, column_id, name)
            not_null = state is not ElementState.ABSENT
            kept = state if not_null else ElementState.PUBLIC
            return _replaced(table, Part.COLUMN, replace(column, not_null=not_null, not_null_state=kept))


def _is_dropping(column: Column, after: ElementState, back: bool) -> bool:
    """Tell whether a column is being dropped; one that its change has brought, and takes back, had no values before."""
    leaves = column.state is ElementState.PUBLIC and not back
    return after is not ElementState.PUBLIC and (column.dropping or leaves)


def _covered(table: Table, column_id: int, locks: tuple[int, ...]) -> Table:
    """Return the table with a column under these locks only; none at all: the column goes."""

    def with_or_without(ids: tuple[int, ...], wanted: bool) -> tuple[int, ...]:
        if (column_id in ids) is wanted:
            return ids
        return (*ids, column_id) if wanted else tuple(i for i in ids if i != column_id)

    moved = tuple(replace(k, column_ids=with_or_without(k.column_ids, k.id in locks)) for k in table.locks)
    dual = with_or_without(table.dual, DEFAULT_LOCK in locks and len(locks) > 1)
    return replace(table, locks=moved, dual=dual)


def options(table: Table) -> tuple[object, ...]:
    """Return what an :class:`EditTable` changes."""
    return table.name, table.cascade, table.untracked


def _stateless(element: Any) -> Any:
    found = replace(element, state=ElementState.PUBLIC)
    return replace(found, not_null=False, not_null_state=ElementState.PUBLIC) if isinstance(element, Column) else found


def _in_state_of(current: Any, after: Any) -> Any:
    if isinstance(current, Column):
        states = current.not_null, current.not_null_state, current.dropping
        after = replace(after, not_null=states[0], not_null_state=states[1], dropping=states[2])
    if isinstance(current, Index):
        after = replace(after, readable_from=current.readable_from)
    return replace(after, state=current.state)


def _named(schema: Schema, before: Any, after: Any) -> Any:
    """Return an element after an edit that knows which names it had."""
    if not isinstance(after, Column):
        return after
    if before.name.lower() == after.name.lower():
        return replace(after, former_names=before.former_names)
    return replace(after, former_names=(*before.former_names, (before.name, schema.version + 1)))


def _with(table: Table, part: Part, elements: tuple[Any, ...]) -> Table:
    changes: dict[str, Any] = {part.value: elements}
    return replace(table, **changes)


def _replaced(table: Table, part: Part, element: Any) -> Table:
    """Return the table with an element in the place of the one with its id; without it if it is ABSENT."""
    moved = [element if e.id == element.id else e for e in getattr(table, part)]
    return _with(table, part, tuple(e for e in moved if e.state is not ElementState.ABSENT))


def _element(table: Table, part: Part, element_id: int, name: str) -> Any:
    found = next((e for e in getattr(table, part) if e.id == element_id), None)
    if found is None:
        raise _changed(name)
    return found


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
