"""The schema of one database as an immutable value, with the look-ups that everything else needs.

Names are case-insensitive and keep their case. Ids never change and are never used again: tables, indexes and columns
draw them from one counter for the whole cluster, so that a table's id is also the first element of its rows' keys.
Every element has a state of the schema-change paper (section 3.2): whoever plans writes asks for the state, whoever
reads sees public elements only.
"""

import difflib
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property

from f1common.errors import Code, F1Error
from f1server.catalog.roles import Grant, Role


class ElementState(IntEnum):
    """How far an element exists (schema-change paper, section 3.2). Ordered: what a state permits, higher ones do."""

    ABSENT = 0
    DELETE_ONLY = 1
    WRITE_ONLY = 2
    PUBLIC = 3


class Kind(StrEnum):
    """The scalar types, and proto columns."""

    BOOL = "BOOL"
    INT64 = "INT64"
    DOUBLE = "DOUBLE"
    NUMERIC = "NUMERIC"
    STRING = "STRING"
    BYTES = "BYTES"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    PROTO = "PROTO"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type: ``proto`` names the message of a PROTO column; lengths and scales are checked at writes."""

    kind: Kind
    proto: str = ""
    max_length: int = 0
    precision: int = 0
    scale: int = 0

    def sql(self) -> str:
        """Return the type as DDL writes it."""
        if self.kind is Kind.PROTO:
            return f"PROTO<{self.proto}>"
        if self.kind is Kind.STRING and self.max_length:
            return f"VARCHAR({self.max_length})"
        if self.kind is Kind.NUMERIC and self.precision:
            return f"DECIMAL({self.precision}, {self.scale})"
        return self.kind.value


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``hidden``: the generated key of a table that declares none.

    ``not_null``: writers refuse NULL. Only when ``not_null_state`` is PUBLIC are all stored rows known to have values.
    """

    id: int
    name: str
    type: ColumnType
    not_null: bool = False
    default_sql: str = ""
    state: ElementState = ElementState.PUBLIC
    hidden: bool = False
    untracked: bool = False
    not_null_state: ElementState = ElementState.PUBLIC
    former_names: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """The names that it had before, oldest first, each with the version of the schema that took it away."""
    dropping: bool = field(default=False, compare=False)
    """It was public before the change that drops it, and is on its way out, or on its way back."""

    @property
    def fills(self) -> bool:
        """Do rows without a value lack its default? Where there may be NULLs, and were before, they do not."""
        return bool(self.default_sql) and (self.not_null or not self.dropping)

    @property
    def returns(self) -> bool:
        """Are its values still wanted though no server uses them any more, should the change be taken back?"""
        return self.dropping and self.state is ElementState.DELETE_ONLY

    def name_in(self, version: int) -> str:
        """Return the name that it had in an older version of the schema."""
        return next((name for name, until in self.former_names if version < until), self.name)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A column of an index, or a field inside a proto column (``path``)."""

    column_id: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index. ``local``: its key begins with the root key and lies in the root's directory."""

    id: int
    name: str
    parts: tuple[IndexPart, ...]
    unique: bool = False
    local: bool = False
    storing: tuple[int, ...] = ()
    state: ElementState = ElementState.PUBLIC
    readable_from: int = field(default=0, compare=False)
    """The timestamp from which on there are entries for all rows: older snapshots are not read by the index."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """References the primary key, or the columns of a unique index, of another table."""

    id: int
    name: str
    column_ids: tuple[int, ...]
    referenced_table_id: int
    referenced_column_ids: tuple[int, ...]
    state: ElementState = ElementState.PUBLIC


@dataclass(frozen=True, slots=True)
class Check:
    """A boolean SQL expression over the row's columns that must not be false."""

    id: int
    name: str
    sql: str
    state: ElementState = ElementState.PUBLIC


@dataclass(frozen=True, slots=True)
class LockColumn:
    """A lock that covers some columns instead of the row's default lock (F1 section 5.1).

    A column under two locks has dual coverage: it is on its way from one to the other (schema-change paper, 3.4).
    """

    id: int
    name: str
    column_ids: tuple[int, ...]
    state: ElementState = ElementState.PUBLIC


@dataclass(frozen=True)
class Table:
    """A table. ``key_column_ids`` is its whole primary key, which begins with the parent's."""

    id: int
    name: str
    parent_id: int
    columns: tuple[Column, ...]
    key_column_ids: tuple[int, ...]
    cascade: bool = False
    indexes: tuple[Index, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[Check, ...] = ()
    locks: tuple[LockColumn, ...] = ()
    state: ElementState = ElementState.PUBLIC
    untracked: bool = False
    dual: tuple[int, ...] = ()
    """The columns that the row's default lock covers although a lock column does, too: their coverage is changing."""
    mirror_of: int = 0
    """The id of the table whose place this one takes, or took: the same rows under another parent or primary key."""
    readable_from: int = field(default=0, compare=False)
    """The timestamp from which on all rows are in this form of the table, in microseconds since 1970."""
    history_from: int = field(default=0, compare=False)
    """The timestamp from which on its changes are in the history of its root: it had another one; 0: all of them."""
    anchor_id: int = 0
    anchor_column_ids: tuple[int, ...] = ()
    """Root and columns by which commits are named, as in the first form of a table that was moved; 0: its own."""
    grants: tuple[Grant, ...] = ()
    """By role."""

    @cached_property
    def by_id(self) -> dict[int, Column]:
        """All columns by id, whatever their state."""
        return {c.id: c for c in self.columns}

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """Public columns by lower-case name, the hidden key included."""
        return {c.name.lower(): c for c in self.columns if c.state is ElementState.PUBLIC}

    @cached_property
    def names_since(self) -> int:
        """The version of the schema in which a column last got another name; 0: none ever did."""
        return max((until for c in self.columns for _, until in c.former_names), default=0)

    @cached_property
    def visible(self) -> tuple[Column, ...]:
        """What ``SELECT *`` shows, in order."""
        return tuple(c for c in self.columns if c.state is ElementState.PUBLIC and not c.hidden)

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the primary key, in order."""
        return tuple(self.by_id[i] for i in self.key_column_ids)

    def column(self, name: str) -> Column:
        """Return a public column. Raises NOT_FOUND, with a near miss if there is one."""
        found = self.by_name.get(name.lower())
        if found is None:
            raise _unknown("column", f"{self.name}.{name}", name, [c.name for c in self.visible])
        return found

    def index(self, name: str) -> Index:
        """Return a public index by name. Raises NOT_FOUND."""
        public = [index for index in self.indexes if index.state is ElementState.PUBLIC]
        for index in public:
            if index.name.lower() == name.lower():
                return index
        raise _unknown("index", name, name, [index.name for index in public])


@dataclass(frozen=True, slots=True)
class View:
    """A named query."""

    name: str
    sql: str


@dataclass(frozen=True)
class Schema:
    """One version of one database's schema.

    ``proto_files`` are (name, text); ``descriptor_set`` is their serialised FileDescriptorSet. ``commit_ts`` is when
    this version was stored (0: never).
    """

    database: str
    version: int = 0
    tables: tuple[Table, ...] = ()
    views: tuple[View, ...] = ()
    proto_files: tuple[tuple[str, str], ...] = ()
    descriptor_set: bytes = b""
    dropped: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    commit_ts: int = field(default=0, compare=False)
    elements_since: int = field(default=0, compare=False)
    """The version in which anything but roles and grants was last changed; 0: this one."""

    @property
    def elements_version(self) -> int:
        """The version since which only roles and grants were changed: work on rows is the same under all of them."""
        return self.elements_since or self.version

    @cached_property
    def indexes_since(self) -> int:
        """From when on all tables and indexes can be read, in microseconds since 1970."""
        indexes = (index.readable_from for table in self.tables for index in table.indexes)
        return max(*(table.readable_from for table in self.tables), *indexes, 0, 0)

    @cached_property
    def by_id(self) -> dict[int, Table]:
        """All tables by id, whatever their state."""
        return {t.id: t for t in self.tables}

    @cached_property
    def by_name(self) -> dict[str, Table]:
        """Public tables by lower-case name."""
        return {t.name.lower(): t for t in self.tables if t.state is ElementState.PUBLIC}

    @cached_property
    def views_by_name(self) -> dict[str, View]:
        """Views by lower-case name."""
        return {v.name.lower(): v for v in self.views}

    @cached_property
    def roles_by_name(self) -> dict[str, Role]:
        """Roles by lower-case name."""
        return {r.name.lower(): r for r in self.roles}

    @cached_property
    def roles_by_id(self) -> dict[int, Role]:
        """Roles by id."""
        return {r.id: r for r in self.roles}

    def role(self, name: str) -> Role:
        """Return a role. Raises NOT_FOUND, with a near miss if there is one."""
        found = self.roles_by_name.get(name.lower())
        if found is None:
            raise _unknown("role", name, name, [r.name for r in self.roles])
        return found

    def table(self, name: str) -> Table:
        """Return a public table. Raises NOT_FOUND, with a near miss if there is one."""
        found = self.by_name.get(name.lower())
        if found is None:
            if any(t.name.lower() == name.lower() and t.readable_from for t in self.tables):
                text = (
                    f"table {name} was moved to another parent or primary key since the transaction began; run it again"
                )
                raise F1Error(Code.ABORTED, text, retryable=True, details={"table": name, "conflict": "schema"})
            raise _unknown("table", name, name, [t.name for t in self.by_name.values()])
        return found

    @cached_property
    def forms(self) -> dict[int, Table]:
        """Of a table that is moving, by the id of each of its two forms: the other one."""
        pairs = [(t, self.by_id[t.mirror_of]) for t in self.tables if t.mirror_of in self.by_id]
        return {one.id: other for pair in pairs for one, other in (pair, pair[::-1])}

    def ancestors(self, table: Table) -> tuple[Table, ...]:
        """Return the path from the root table down to ``table``, both included."""
        path = [table]
        while path[-1].parent_id:
            path.append(self.by_id[path[-1].parent_id])
        return tuple(reversed(path))

    def root(self, table: Table) -> Table:
        """Return the root of the hierarchy that ``table`` is in."""
        return self.ancestors(table)[0]

    def children(self, table: Table) -> tuple[Table, ...]:
        """Return the tables interleaved directly in ``table``, by id."""
        return tuple(sorted((t for t in self.tables if t.parent_id == table.id), key=lambda t: t.id))

    def descendants(self, table: Table) -> tuple[Table, ...]:
        """Return all tables below ``table``, parents first."""
        found: list[Table] = []
        for child in self.children(table):
            found += [child, *self.descendants(child)]
        return tuple(found)


def _unknown(what: str, shown: str, name: str, known: list[str]) -> F1Error:
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    original = next((k for k in known if close and k.lower() == close[0]), "")
    hint = f"; did you mean {original}?" if original else ""
    return F1Error(Code.NOT_FOUND, f"there is no {what} {shown}{hint}", details={what: name})
