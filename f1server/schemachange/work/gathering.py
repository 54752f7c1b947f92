"""Rows as a walk finds them, many at a time, and the index entries that follow from them.

Most of what a walk over a table does with a row is to make its entries, once to write them and once to add them up. So
rows stay as they are stored until somebody wants to know more of them (:attr:`StoredRows.rows`).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from f1common.encoding.row import StoredCell, decode_stored
from f1common.errors import F1Error
from f1server.catalog.schema import Schema, Table
from f1server.rows.keys import IndexLayout
from f1server.rows.layout import layout, of_schema
from f1server.rows.rowcodec import row_of
from f1server.rows.storedentries import EntryMaker, key_elements
from f1server.schemachange.work.changes import Stored, entry_keys, stored_row
from f1server.schemachange.work.walking import Walk

__all__ = ["Entry", "Gathered", "StoredRows", "entries_of"]

_SORTED_ENTRIES = 50_000
_SORTED_BYTES = 16 << 20
"""Entries that are sorted before they are written: the more there are, the more of a commit's keys share pages."""


class StoredRows:
    """The rows of ``table`` among some keys, with their timestamps and values."""

    def __init__(
        self, schema: Schema, table: Table, keys: Sequence[bytes], times: Sequence[int], values: Sequence[bytes]
    ) -> None:
        self._schema = schema
        self._table = table
        self._found = (keys, times, values)

    @cached_property
    def rows(self) -> list[Stored]:
        """The rows, decoded. Raises F1Error DATA_CORRUPTION."""
        found = zip(*self._found, strict=True)
        decoded = (stored_row(self._schema, self._table, key, value, ts) for key, ts, value in found)
        return [row for row in decoded if row is not None]

    @cached_property
    def _all_elements(self) -> list[list[bytes] | None]:
        where = layout(self._schema, self._table)
        return [key_elements(where, key) for key in self._found[0]]

    @cached_property
    def _elements(self) -> list[list[bytes]]:
        return [elements for elements in self._all_elements if elements is not None]

    @cached_property
    def _cells(self) -> list[dict[int, StoredCell]]:
        return decode_stored([value for _, value in self._keys_and_values], whole=False)

    @cached_property
    def _keys_and_values(self) -> list[tuple[bytes, bytes]]:
        keys, _, values = self._found
        every = zip(self._all_elements, keys, values, strict=True)
        return [(key, value) for elements, key, value in every if elements is not None]

    @property
    def sizes(self) -> list[int]:
        """How many bytes key and value of each row have. Raises F1Error DATA_CORRUPTION."""
        return [len(key) + len(value) for key, value in self._keys_and_values]

    def entries(self, where: IndexLayout) -> Iterator[tuple[bytes, bytes, bytes, bool]]:
        """Yield the entries of an index: the key of the row, then as :func:`entries_of`."""
        if EntryMaker.takes(where):
            try:
                made = list(_maker(where).entries(self._elements, self._cells))
            except F1Error:
                pass  # a row by itself can be named
            else:
                yield from ((key, *entry) for (key, _), entry in zip(self._keys_and_values, made, strict=True))
                return
        for row in self.rows:
            yield from ((row.key, *entry) for entry in entries_of(where, row))


def _maker(where: IndexLayout) -> EntryMaker:
    return of_schema(where.schema, ("entry maker", where.table.id, where.index.id), lambda: EntryMaker(where))


def entries_of(where: IndexLayout, row: Stored) -> Iterator[tuple[bytes, bytes, bool]]:
    """Yield the entries of a row: key, value, and whether another row may want the same key.

    Raises F1Error as :func:`f1server.schemachange.work.changes.entry_keys`.
    """
    values = row_of(where.table, row.primary, row.cells, where.columns)
    keys = entry_keys(where, values, row.primary)
    value = where.value_of(values, row.primary, row.cells, row.ts) if keys else b""
    yield from ((key, value, several) for key, several in keys.items())


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry that follows from a row of the snapshot, which has the key ``row``."""

    key: bytes
    value: bytes
    where: IndexLayout
    row: bytes


class Gathered:
    """Entries that follow from rows of the snapshot: the rows themselves, which are larger, are let go."""

    def __init__(self, walk: Walk) -> None:
        self._indexes = walk.work.indexes
        self.plain: list[Entry] = []
        self.contended: dict[bytes, list[Entry]] = {}
        """Those that other rows may want as well, in unique indexes, by key."""
        self.sizes: list[int] = []
        """The size of each row, in bytes."""
        self.count = 0
        self._size = 0

    def add(self, row: Stored) -> None:
        """Take in the entries of a row."""
        self.sizes.append(row.size)
        for where in self._indexes:
            for entry in entries_of(where, row):
                self._enter(where, row.key, *entry)

    def add_all(self, rows: StoredRows) -> None:
        """Take in the entries of some rows."""
        self.sizes += rows.sizes
        for where in self._indexes:
            for entry in rows.entries(where):
                self._enter(where, *entry)

    def _enter(self, where: IndexLayout, row: bytes, key: bytes, value: bytes, several: bool) -> None:
        self.count += 1
        self._size += len(key) + len(value) + len(row)
        entry = Entry(key, value, where, row)
        if several:
            self.contended.setdefault(key, []).append(entry)
        else:
            self.plain.append(entry)

    @property
    def full(self) -> bool:
        """Is it time to write them?"""
        return max(self.count, len(self.sizes)) >= _SORTED_ENTRIES or self._size >= _SORTED_BYTES
