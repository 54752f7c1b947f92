"""The key space of a database: rows, index entries and change history. ``docs/encoding.md`` shows the bytes.

========================= ==============================================================================================
row                       root table id, root key, child table id, the child's own part of its key, and so on
entry of a local index    root table id, root key, 2**40 + index id, index values beyond the root key, the rest of the
                          row's key
entry of a global index   2**40 + index id, index values, the row's key
change batch of a root    root table id, root key, 2**41, commit timestamp, commit id
========================= ==============================================================================================

An entry of a unique index ends after the index values unless one of them is NULL: two rows with equal values would have
one key. All ids come from one counter for the whole cluster and stay below 2**32.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Index, IndexPart, Schema, Table
from f1server.rows import protofields
from f1server.rows.layout import LOCAL_INDEX_BASE, TableLayout, layout, of_schema
from f1server.rows.values import Value

__all__ = [
    "MAX_KEY_BYTES",
    "IndexLayout",
    "check_key_length",
    "decode_key",
    "index_key",
    "index_layout",
    "index_prefix",
    "index_span",
    "row_key",
    "row_prefix",
    "row_span",
    "split_index_key",
    "split_row_key",
    "table_span",
]

MAX_KEY_BYTES = 491
"""Bytes of the longest key: what the storage tier's 511 leave beside its prefix and version suffix."""


def row_key(schema: Schema, table: Table, key_values: Sequence[Value]) -> bytes:
    """Encode the key of the row of ``table`` with all these values of its primary key."""
    if len(key_values) != len(table.key_column_ids):
        raise F1Error(
            Code.INVALID_ARGUMENT,
            f"the key of {table.name} has {len(table.key_column_ids)} values, not {len(key_values)}",
        )
    return layout(schema, table).row_key(tuple(key_values))


def row_prefix(schema: Schema, table: Table, values: Sequence[Value]) -> bytes:
    """Encode what the keys of all rows of ``table`` begin with whose primary key begins with ``values``.

    Rows of other tables may begin so too: all that is below these rows, and, for values that end within the key of an
    ancestor, its other descendants.
    """
    if len(values) > len(table.key_column_ids):
        raise F1Error(
            Code.INVALID_ARGUMENT, f"the key of {table.name} has {len(table.key_column_ids)} values, not {len(values)}"
        )
    return tuples.encode(layout(schema, table).elements(tuple(values)))


def row_span(schema: Schema, table: Table, start: bytes, end: bytes) -> tuple[bytes, bytes]:
    """Turn a half-open range of encoded primary keys, or prefixes of them, into one of storage keys.

    Both may be the ``successor`` of a tuple; an empty ``end``: no end.
    """
    whole = table_span(schema, table)
    what = f"a range of keys of {table.name}"
    return _span(lambda values: row_prefix(schema, table, values), whole, start, end, what)


def _span(
    place: Callable[[Sequence[Value]], bytes], whole: tuple[bytes, bytes], start: bytes, end: bytes, what: str
) -> tuple[bytes, bytes]:
    return _border(place, start, what) if start else whole[0], _border(place, end, what) if end else whole[1]


def _border(place: Callable[[Sequence[Value]], bytes], border: bytes, what: str) -> bytes:
    if border.endswith(b"\xff"):
        # No tuple element begins with 0xFF: only a successor has one more byte than its elements.
        try:
            return place(tuples.decode(border))
        except F1Error:
            return tuples.successor(place(decode_key(border[:-1], what)))
    return place(decode_key(border, what))


def decode_key(encoded: bytes, what: str) -> tuple[Value, ...]:
    """Decode a key, or a part of one, that a client sent. Raises INVALID_ARGUMENT naming ``what``."""
    try:
        return tuples.decode(encoded)
    except F1Error as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} is no encoded tuple: {error.message}") from error


def split_row_key(schema: Schema, key: bytes) -> tuple[Table, tuple[Value, ...]] | None:
    """Return the table and the primary key of a storage key; None for what is no row of a table of the schema.

    Raises DATA_CORRUPTION for bytes that are no tuple.
    """
    elements = tuples.decode(key)
    by_parent = of_schema(schema, "by parent", lambda: {(t.parent_id, t.id): t for t in schema.tables})
    parent, position, have = 0, 0, 0
    values: list[Value] = []
    table: Table | None = None
    while position < len(elements):
        table_id = elements[position]
        if type(table_id) is not int or (table := by_parent.get((parent, table_id))) is None:
            return None
        own = len(table.key_column_ids) - have
        values.extend(elements[position + 1 : position + 1 + own])
        position += 1 + own
        have += own
        parent = table.id
    if table is None or len(values) != have:
        return None
    return table, tuple(values)


def table_span(schema: Schema, table: Table) -> tuple[bytes, bytes]:
    """Return the range that holds all rows of ``table``: its hierarchy, local indexes included."""
    prefix = tuples.encode((layout(schema, table).root.id,))
    return prefix, tuples.successor(prefix)


# ---------------------------------------------------------------- indexes


def index_layout(schema: Schema, table: Table, index: Index) -> "IndexLayout":
    """Return how the entries of ``index`` are laid out."""
    return of_schema(
        schema, ("index", table.id, index.id), lambda: IndexLayout(schema, table, index, layout(schema, table))
    )


@dataclass(frozen=True)
class IndexLayout:
    """Where the values of an index stand in its entries."""

    schema: Schema
    table: Table
    index: Index
    rows: TableLayout

    @cached_property
    def shared(self) -> int:
        """How many leading values are the root's key, which the entries of a local index begin with."""
        return self.rows.root_width if self.index.local else 0

    @cached_property
    def own_parts(self) -> tuple[IndexPart, ...]:
        """The parts that stand after the index id."""
        return self.index.parts[self.shared :]

    @cached_property
    def readers(self) -> tuple[protofields.FieldReader | None, ...]:
        """How to read each of ``own_parts`` that is a field of a message."""
        return tuple(
            protofields.field_reader(self.schema, self.table, part.column_id, part.path) if part.path else None
            for part in self.own_parts
        )

    @cached_property
    def columns(self) -> frozenset[int]:
        """The columns that entries depend on."""
        return frozenset(part.column_id for part in self.index.parts) | frozenset(self.index.storing)

    @property
    def state(self) -> ElementState:
        """How far the entries exist: no further than the rows."""
        return min(self.index.state, self.table.state)

    @property
    def code(self) -> int:
        """The element that marks the entries."""
        return LOCAL_INDEX_BASE + self.index.id

    def head(self, root_values: Sequence[Value]) -> list[Value]:
        """Return the elements up to the index's id."""
        return [self.rows.root.id, *root_values, self.code] if self.index.local else [self.code]

    def keys(self, row: Mapping[int, Value], key_values: tuple[Value, ...]) -> dict[bytes, bool]:
        """Encode the keys of the entries of a row: one, or for a repeated field as many as there are values.

        With each: whether another row may want the same key (the index is unique, and no value is NULL).
        """
        head = self.head(key_values[: self.shared])
        rest = key_values[self.shared :]
        if not any(self.readers):
            choices: Iterable[tuple[Value, ...]] = [tuple(row.get(part.column_id) for part in self.own_parts)]
        else:
            choices = itertools.product(
                *(
                    self._choices(row.get(part.column_id), reader)
                    for part, reader in zip(self.own_parts, self.readers, strict=True)
                )
            )
        found: dict[bytes, bool] = {}
        for values in choices:
            contended = self.index.unique and None not in values
            found[self._key([*head, *values] if contended else [*head, *values, *rest])] = contended
        return found

    def _choices(self, value: Value, reader: protofields.FieldReader | None) -> list[Value]:
        if reader is None:
            return [value]
        if not isinstance(value, bytes):
            return [] if reader.repeated else [None]
        return reader.values(value)

    def _key(self, elements: list[Value]) -> bytes:
        try:
            key = tuples.encode(elements)
        except F1Error as error:
            raise F1Error(error.code, f"index {self.index.name} of {self.table.name}: {error.message}") from error
        check_key_length(key, f"an entry of index {self.index.name} of {self.table.name}")
        return key

    def value(self, row: Mapping[int, Value], key_values: tuple[Value, ...]) -> bytes:
        """Encode the value of the entries of a row: the columns stored with it, and in a unique index its key."""
        cells: dict[int, Cell] = {i: v for i in self.index.storing if (v := row.get(i)) is not None}
        if self.index.unique:
            cells.update(zip(self.table.key_column_ids, key_values, strict=True))
        return encode_row(cells)

    def value_of(
        self, row: Mapping[int, Value], key_values: tuple[Value, ...], cells: Mapping[int, Cell], ts: int
    ) -> bytes:
        """Encode the value of the entries of a stored row: its cells and when it was committed are known, too."""
        return self.value(row, key_values)

    def told(self, value: bytes) -> bytes:
        """Return what of an entry's value is its row's doing: :meth:`value` says the same of that row."""
        return value

    def split(self, key: bytes, value: bytes) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Return the index values and the primary key of an entry of this index. Raises DATA_CORRUPTION."""
        elements = tuples.decode(key)
        root = elements[1 : 1 + self.shared] if self.index.local else ()
        position = self.shared + 1 if self.index.local else 0
        end = position + 1 + len(self.own_parts)
        if len(elements) < end or elements[position] != self.code:
            raise F1Error(Code.DATA_CORRUPTION, f"key {key.hex()} is no entry of index {self.index.name}")
        if self.index.unique:
            cells = decode_row(value)
            try:
                owner = tuple(cells[column_id] for column_id in self.table.key_column_ids)
            except KeyError:
                raise F1Error(
                    Code.DATA_CORRUPTION, f"the entry {key.hex()} of index {self.index.name} names no row"
                ) from None
            return root + elements[position + 1 : end], owner  # type: ignore[return-value]
        return root + elements[position + 1 : end], root + elements[end:]


def index_key(
    schema: Schema, table: Table, index: Index, row: Mapping[int, Value], key_values: Sequence[Value]
) -> list[bytes]:
    """Encode the keys of a row's entries in ``index``.

    A field of a message that is not there is NULL; a repeated one has an entry for each of its distinct values. Raises
    KEY_TOO_LONG, OUT_OF_RANGE (an unsigned field above INT64), DATA_CORRUPTION (no message), FAILED_PRECONDITION (a
    number of an enum that has no name).
    """
    return sorted(index_layout(schema, table, index).keys(row, tuple(key_values)))


def index_prefix(schema: Schema, table: Table, index: Index, values: Sequence[Value]) -> bytes:
    """Encode what the keys of all entries begin with whose index values, then primary key, begin with ``values``.

    For a local index with fewer values than the root's key has, that is the common prefix of the directories: entries
    of this index then lie scattered among rows.
    """
    where = index_layout(schema, table, index)
    given = tuple(values)
    if where.index.local and len(given) < where.shared:
        return tuples.encode((where.rows.root.id, *given))
    return tuples.encode([*where.head(given[: where.shared]), *given[where.shared :]])


def index_span(schema: Schema, table: Table, index: Index, start: bytes, end: bytes) -> tuple[bytes, bytes]:
    """Turn a half-open range of encoded index values into one of storage keys. As :func:`row_span`."""

    prefix = index_prefix(schema, table, index, ())
    whole = (prefix, tuples.successor(prefix))
    what = f"a range of index {index.name}"
    return _span(lambda values: index_prefix(schema, table, index, values), whole, start, end, what)


def split_index_key(
    schema: Schema, table: Table, index: Index, key: bytes, value: bytes
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return the index values and the primary key of an entry, the latter from ``value`` if the index is unique."""
    return index_layout(schema, table, index).split(key, value)


def check_key_length(key: bytes, what: str) -> None:
    """Raise KEY_TOO_LONG for a key that the storage tier would refuse, before anything is written."""
    if len(key) > MAX_KEY_BYTES:
        raise F1Error(
            Code.KEY_TOO_LONG,
            f"the key of {what} has {len(key)} bytes, at most {MAX_KEY_BYTES} fit: shorten its values",
            details={"limit": str(MAX_KEY_BYTES)},
        )
