"""How the keys of a table are laid out: computed once for a schema and kept with it."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TypeVar

from f1common.encoding import tuple as tuples
from f1common.encoding.values import numeric_from_units, numeric_units
from f1common.errors import check
from f1server.catalog.schema import ElementState, ForeignKey, Index, Kind, Schema, Table
from f1server.rows.values import Value

T = TypeVar("T")

LOCAL_INDEX_BASE = 1 << 40
"""Added to an index's id: entries of indexes sort after all child tables of a root, and after all root tables."""
HISTORY_ID = 1 << 41
"""The id of a root's change history among its children: after all tables and indexes."""


def of_schema(schema: Schema, what: object, make: Callable[[], T]) -> T:
    """Return what ``make`` gave the first time for ``(schema, what)``: kept in the schema, as a cached property is."""
    kept: dict[object, T] | None = vars(schema).get("_rows")
    if kept is None:
        kept = vars(schema)["_rows"] = {}
    found = kept.get(what)
    if found is None:
        found = kept[what] = make()
    return found


def layout(schema: Schema, table: Table) -> "TableLayout":
    """Return the layout of ``table``, which is one of ``schema``'s."""
    kept: dict[int, TableLayout] | None = schema.__dict__.get("_layouts")
    if kept is None:
        kept = schema.__dict__["_layouts"] = {}
    found = kept.get(table.id)
    if found is None:
        found = kept[table.id] = TableLayout(schema, table)
    return found


@dataclass(frozen=True)
class TableLayout:
    """Where the key columns of a table stand among the table ids of its path.

    A row's key is the path: root table id, root key, child table id, the child's own part of its key, and so on.
    """

    schema: Schema
    table: Table

    @cached_property
    def path(self) -> tuple[Table, ...]:
        """The tables from the root down to this one."""
        return self.schema.ancestors(self.table)

    @cached_property
    def root(self) -> Table:
        """The root of the hierarchy."""
        return self.path[0]

    @cached_property
    def root_width(self) -> int:
        """How many values the root's key has."""
        return len(self.root.key_column_ids)

    @cached_property
    def parent(self) -> Table | None:
        """The table in which this one is interleaved."""
        return self.path[-2] if len(self.path) > 1 else None

    @cached_property
    def steps(self) -> tuple[tuple[int, int, int], ...]:
        """For each table of the path: its id, and which of the key's values are its own part, ``[first, end)``."""
        steps = []
        first = 0
        for table in self.path:
            end = len(table.key_column_ids)
            check(end >= first, f"the key of {table.name} does not begin with its parent's")
            steps.append((table.id, first, end))
            first = end
        return tuple(steps)

    @cached_property
    def width(self) -> int:
        """How many elements a row's key has, table ids included."""
        return len(self.path) + len(self.table.key_column_ids)

    @cached_property
    def id_position(self) -> int:
        """Which element of a row's key is the table's own id."""
        return len(self.path) - 1 + self.steps[-1][1]

    @cached_property
    def marks(self) -> tuple[tuple[int, bytes], ...]:
        """The elements of a row's key that are ids of tables: (element, encoded id), from above."""
        return tuple((i + first, tuples.encode((table_id,))) for i, (table_id, first, _) in enumerate(self.steps))

    @cached_property
    def ids_above(self) -> tuple[tuple[int, int], ...]:
        """Which elements of a row's key are the ids of the tables between the root and this one: (element, id)."""
        return tuple((i + first, table_id) for i, (table_id, first, _) in enumerate(self.steps[:-1]) if i)

    @cached_property
    def key_kinds(self) -> tuple[Kind, ...]:
        """The types of the key's columns."""
        return tuple(column.type.kind for column in self.table.key_columns)

    @cached_property
    def inexact(self) -> tuple[int, ...]:
        """Positions in the key whose values keys change into an equal one: -0.0, 1.50."""
        return tuple(i for i, kind in enumerate(self.key_kinds) if kind in (Kind.DOUBLE, Kind.NUMERIC))

    @cached_property
    def column_ids(self) -> tuple[int, ...]:
        """Ids of the columns that are not in the key, ascending, whatever their state."""
        return tuple(sorted(set(self.table.by_id) - set(self.table.key_column_ids)))

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        """The indexes whose entries must be kept up, by id: all states but ABSENT."""
        return tuple(sorted((i for i in self.table.indexes if i.state > ElementState.ABSENT), key=lambda i: i.id))

    @cached_property
    def unique_indexes(self) -> tuple[Index, ...]:
        """Those that new rows are entered into and that are unique."""
        return tuple(i for i in self.indexes if i.unique and i.state >= ElementState.WRITE_ONLY)

    @cached_property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """The foreign keys of this table that are enforced: a mirror has the rows that its other form may have."""
        if self.is_mirror:
            return ()
        found = [f for f in self.table.foreign_keys if f.state >= ElementState.WRITE_ONLY]
        return tuple(sorted(found, key=lambda f: f.id))

    @cached_property
    def referrers(self) -> tuple[tuple[Table, ForeignKey], ...]:
        """Who references this table: (table, foreign key), the enforced ones."""
        found = [
            (table, foreign)
            for table in sorted(self.schema.tables, key=lambda t: t.id)
            if table.state > ElementState.ABSENT
            for foreign in layout(self.schema, table).foreign_keys
            if foreign.referenced_table_id == self.table.id
        ]
        return tuple(found)

    @cached_property
    def children(self) -> tuple[Table, ...]:
        """The tables interleaved directly in this one that may hold rows; mirrors follow their other form."""
        found = (t for t in self.schema.children(self.table) if t.state > ElementState.ABSENT)
        return tuple(t for t in found if not layout(self.schema, t).is_mirror)

    @cached_property
    def mirror(self) -> Table | None:
        """The other form of this table, which is moving and public in this one."""
        other = self.schema.forms.get(self.table.id)
        if other is None or self.table.state is not ElementState.PUBLIC or other.state is ElementState.ABSENT:
            return None
        return other

    @cached_property
    def is_mirror(self) -> bool:
        """Is this the form of a moving table that is not public, and written with the one that is?"""
        other = self.schema.forms.get(self.table.id)
        return other is not None and self.table.state < other.state is ElementState.PUBLIC

    @cached_property
    def cascading(self) -> frozenset[int]:
        """Ids of the tables whose rows go with a row of this one: reached from it by ON DELETE CASCADE alone."""
        found: set[int] = set()
        for child in self.children:
            if cascades(child):
                found |= {child.id} | layout(self.schema, child).cascading
        return frozenset(found)

    def elements(self, key_values: tuple[Value, ...]) -> list[Value]:
        """Return the elements of a row's key, or of the longest prefix that these first values of the key fix."""
        given = len(key_values)
        found: list[Value] = []
        for table_id, first, end in self.steps:
            found.append(table_id)
            found.extend(key_values[first:end])
            if given < end:
                break
        return found

    def canonical(self, key_values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return the values as a key gives them back."""
        if not self.inexact:
            return key_values
        values = list(key_values)
        for i in self.inexact:
            values[i] = canonical(values[i])
        return tuple(values)

    def row_key(self, key_values: tuple[Value, ...]) -> bytes:
        """Encode the key of a row."""
        return tuples.encode(self.elements(key_values))

    def row_key_again(self, key_values: tuple[Value, ...]) -> bytes:
        """Encode the key of a row that is often the same one as the last time, such as the parent of many rows."""
        last: tuple[tuple[Value, ...], bytes] | None = self.__dict__.get("_last")
        if last is None or last[0] != key_values:
            last = self.__dict__["_last"] = (key_values, self.row_key(key_values))
        return last[1]


def canonical(value: Value) -> Value:
    """Return the value that a key gives back for ``value``, which is equal to it."""
    if isinstance(value, float):
        return value + 0.0  # -0.0 becomes 0.0
    if isinstance(value, Decimal):
        return numeric_from_units(numeric_units(value))
    return value


def cascades(child: Table) -> bool:
    """Tell whether rows of ``child`` go with their parent; those of a table on its way out do, nobody sees them."""
    return child.cascade or child.state < ElementState.WRITE_ONLY
