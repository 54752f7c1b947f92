"""What schema changes do with rows: look whether there are any, fill an index, remove what was dropped.

All of it goes on from scratch when it is called again: entries are written to where they belong and nothing is deleted
that any server can still see.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Index, Schema, Table
from f1server.rows.keys import index_layout, row_key, split_row_key, table_span
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.rows.rowcodec import decode_row_value
from f1server.rows.values import Row, Value
from spanstore.client import KeyRange, SpanClient, Transaction, Write
from spanstore.client import Row as StoredRow

_CHUNK = 500


class StorageWork:
    """Implements :class:`f1server.catalog.changes.DataWork` over the storage tier."""

    def __init__(self, client: SpanClient) -> None:
        self._client = client

    async def has_rows(self, schema: Schema, table: Table) -> bool:
        """Is there any row of ``table``?"""
        timestamp = await self._now(table, schema)
        async for key, _ in self._walk(table_span(schema, table), timestamp):
            split = split_row_key(schema, key)
            if split is not None and split[0].id == table.id:
                return True
        return False

    async def backfill(self, schema: Schema, table: Table, index: Index) -> None:
        """Write the entries of all rows as of a snapshot that is taken now.

        Rows that are newer than the snapshot were written by servers that maintain the index already, so that they are
        left alone; all others are read again under locks before their entries are written (schema-change paper,
        section 4.3). Raises ALREADY_EXISTS if two rows have the same values in a unique index.
        """
        snapshot = await self._now(table, schema)
        chunk: list[bytes] = []
        async for key, _ in self._walk(table_span(schema, table), snapshot):
            split = split_row_key(schema, key)
            if split is None or split[0].id != table.id:
                continue
            chunk.append(key)
            if len(chunk) == _CHUNK:
                await self._fill(schema, table, index, chunk, snapshot)
                chunk = []
        await self._fill(schema, table, index, chunk, snapshot)

    async def _fill(self, schema: Schema, table: Table, index: Index, keys: list[bytes], snapshot: int) -> None:
        if not keys:
            return

        async def write_entries(tx: Transaction) -> None:
            await _write_entries(tx, schema, table, index, keys, snapshot)

        await self._client.run(write_entries)

    async def purge(self, before: Schema, tables: Sequence[Table], indexes: Sequence[tuple[Table, Index]]) -> None:
        """Delete rows and entries of elements that no server uses any more; a dropped root takes its history along."""
        gone = {table.id for table in tables}
        codes = {LOCAL_INDEX_BASE + index.id for _, index in indexes}
        codes |= {LOCAL_INDEX_BASE + index.id for table in tables for index in table.indexes}
        whole = [table_span(before, table) for table in tables if not table.parent_id]
        for code in sorted(codes):
            prefix = tuples.encode((code,))
            whole.append((prefix, tuples.successor(prefix)))
        for span in whole:
            await self._delete(span, lambda _: True)
        roots = {before.root(table).id: before.root(table) for table in tables}
        roots |= {before.root(table).id: before.root(table) for table, index in indexes if index.local}
        for root_id in sorted(roots.keys() - gone):
            await self._delete(table_span(before, roots[root_id]), lambda key: _is_of(before, key, gone, codes))

    async def _delete(self, span: tuple[bytes, bytes], doomed: Callable[[bytes], bool]) -> None:
        timestamp = await self._now_of(span[0])
        chunk: list[Write] = []
        async for key, _ in self._walk(span, timestamp):
            if doomed(key):
                chunk.append(Write(key, None))
            if len(chunk) == _CHUNK:
                await self._client.commit(chunk)
                chunk = []
        if chunk:
            await self._client.commit(chunk)

    async def _now(self, table: Table, schema: Schema) -> int:
        return await self._now_of(table_span(schema, table)[0])

    async def _now_of(self, key: bytes) -> int:
        """Return a timestamp at which every acknowledged commit can be seen."""
        return (await self._client.read([key])).timestamp

    async def _walk(self, span: tuple[bytes, bytes], timestamp: int) -> AsyncIterator[tuple[bytes, StoredRow]]:
        """Yield the live rows of a range as of ``timestamp``, a page at a time."""
        start, end = span
        while True:
            result = await self._client.read(ranges=[KeyRange(start, end, 2_000)], timestamp=timestamp)
            (rows,) = result.ranges
            for row in rows:
                yield row.key, row
            if len(rows) < 2_000:
                return
            start = rows[-1].key + b"\x01"


async def _write_entries(
    tx: Transaction, schema: Schema, table: Table, index: Index, keys: list[bytes], snapshot: int
) -> None:
    where = index_layout(schema, table, index)
    result = await tx.read(keys)
    entries: dict[bytes, tuple[bytes, bool, tuple[Value, ...]]] = {}
    for key, version in zip(keys, result.versions, strict=True):
        split = split_row_key(schema, key)
        if split is None or version is None or version.value is None or version.ts > snapshot:
            continue
        primary = split[1]
        row: Row = decode_row_value(table, primary, version.value)
        for entry, contended in where.keys(row, primary).items():
            other = entries.get(entry)
            if other is not None and other[2] != primary:
                raise _duplicate(table, index, primary, other[2])
            entries[entry] = (where.value(row, primary), contended, primary)
    contended_keys = sorted(entry for entry, (_, contended, _) in entries.items() if contended)
    if contended_keys:
        held = await tx.read(contended_keys, exclusive=True)
        for entry, version in zip(contended_keys, held.versions, strict=True):
            if version is not None and version.value is not None:
                owner = where.split(entry, version.value)[1]
                if row_key(schema, table, owner) != row_key(schema, table, entries[entry][2]):
                    raise _duplicate(table, index, entries[entry][2], owner)
    for entry, (value, _, _) in sorted(entries.items()):
        tx.write(entry, value)


def _duplicate(table: Table, index: Index, first: Sequence[Value], second: Sequence[Value]) -> F1Error:
    return F1Error(
        Code.ALREADY_EXISTS,
        f"index {index.name} cannot be unique: the rows of {table.name} with keys {tuple(second)} and {tuple(first)} "
        "have the same values in it",
        details={"index": index.name},
    )


def _is_of(schema: Schema, key: bytes, tables: set[int], codes: set[int]) -> bool:
    """Tell whether a storage key within a hierarchy belongs to one of the tables or to one of the local indexes."""
    split = split_row_key(schema, key)
    if split is not None:
        return split[0].id in tables
    return any(type(element) is int and element in codes for element in tuples.decode(key))
