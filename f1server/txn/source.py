"""What queries read from: scans of tables turned into storage requests, as Arrow batches.

Few rows by key come through ordinary reads, many through bulk scans in the storage servers' sibling processes. Which of
the two serves a scan changes nothing but speed: both give the rows as of one timestamp, own writes laid over.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from f1common.aside import MANY_ROWS
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Column, ColumnType, Index, Kind, Schema, Table
from f1server.history.reading import history_shape, read_batch
from f1server.history.table import history_rows, is_history_table, root_of_history
from f1server.plan.scans import FieldWanted, KeySpan, TableScan
from f1server.plan.types import of_path
from f1server.rows.arrow import arrow_type, from_arrow, to_arrow
from f1server.rows.keys import (
    index_key,
    index_layout,
    index_prefix,
    index_span,
    row_key,
    row_prefix,
    row_span,
    table_span,
)
from f1server.rows.layout import HISTORY_ID, TableLayout, layout
from f1server.rows.rowcodec import decode_index_value
from f1server.rows.values import Row, Value
from f1server.txn.reader import FoundRow, RowReader, Span
from spanstore.client import KeyRange, SpanClient
from spanstore.client.scanning import ScanColumn, ScanOperator, ScanPredicate, ScanSource, TableRows

_SMALL_SPANS = 2_000
_FEW_ROWS = 1_000
"""What a range of keys may hold to be read with ordinary reads."""
_BATCH_ROWS = 8_192
_HIDDEN = ("\x01key", "\x01ts")

Batches = AsyncIterator[pa.RecordBatch]


class StorageSource:
    """Serves the scans of one statement, all as of one moment."""

    def __init__(self, reader: RowReader, client: SpanClient, *, locking: bool = False) -> None:
        """``reader`` knows timestamp or locks, own writes and the read set; ``locking``: SELECT ... FOR UPDATE."""
        self._reader = reader
        self._client = client
        self._locking = locking

    async def scan(self, scans: Sequence[TableScan]) -> list[Batches]:
        """Return the batches of each scan, columns in the order of ``scan.columns``, named by their position."""
        clusters: dict[int, list[int]] = {}
        for position, scan in enumerate(scans):
            if scan.ancestry is not None:
                clusters.setdefault(scan.ancestry, []).append(position)
        found: dict[int, Batches] = {}
        for members in clusters.values():
            if len(members) > 1 and not any(scans[i].empty for i in members):
                found.update(await self._cluster([(i, scans[i]) for i in members]))
        return [found[i] if i in found else self._one(scan) for i, scan in enumerate(scans)]

    async def rows(self, scan: TableScan) -> list[Row]:
        """Return the rows of a scan of keys as they are."""
        found = await self._found(scan)
        return [item.row for item in found]

    async def by_key(self, scan: TableScan) -> list[Row] | None:
        """Return the rows of a scan of keys, in their order; None if it is about something else, or they are large."""
        if scan.empty or scan.clip is not None or scan.index is not None or is_history_table(scan.table):
            return None
        if (span := await self._snapshot_span(scan)) is None:
            return await self.rows(scan)
        limit = _limit(scan)
        rows, rest = await self._page(scan, span, limit)
        cut_short = rest is not None and not (limit and len(rows) == limit)
        return None if cut_short else [found.row for found in rows]

    def _one(self, scan: TableScan) -> Batches:
        if scan.empty or (scan.clip is not None and scan.clip[0] >= scan.clip[1]):
            return self._given(scan, [])
        if is_history_table(scan.table):
            return self._history(scan)
        if scan.index is not None:
            return self._by_index(scan, scan.index)
        if scan.in_key_order:
            return self._by_key(scan)
        if not self._is_small(scan):
            return self._bulk(scan, self._spans(scan))
        if scan.limit or self._is_certainly_small(scan):
            return self._by_key(scan)
        return self._few_or_bulk(scan)

    def _is_small(self, scan: TableScan) -> bool:
        """Whole keys, or a few rows of a prefix; under locks everything is read one by one."""
        return not self._reader.at_timestamp or scan.is_point or (bool(scan.spans) and len(scan.spans) <= _SMALL_SPANS)

    def _is_certainly_small(self, scan: TableScan) -> bool:
        """One range of keys may hold any number of rows; under locks that changes nothing."""
        return not self._reader.at_timestamp or scan.is_point or len(scan.spans) != 1

    async def _few_or_bulk(self, scan: TableScan) -> Batches:
        """Serve one range of keys: a few rows by an ordinary read, and in bulk what lies behind them."""
        spans = self._spans(scan)
        if (span := await self._snapshot_span(scan)) is not None:
            rows, rest = await self._page(scan, span, _FEW_ROWS)
            async for batch in self._given(scan, rows):
                yield batch
            if rest is None:
                return
            spans = [rest]
        async for batch in self._bulk(scan, spans):
            yield batch

    # ------------------------------------------------------------------ rows by key

    def _spans(self, scan: TableScan) -> list[Span]:
        schema, table = self._reader.schema, scan.table
        if not scan.spans:
            return _clipped([table_span(schema, table)], scan.clip)
        spans: list[Span] = []
        for span in scan.spans:
            if len(span.prefix) == len(table.key_column_ids):
                spans.append((row_key(schema, table, span.prefix), b""))
            elif span.lower is None and span.upper is None:
                prefix = row_prefix(schema, table, span.prefix)
                spans.append((prefix, prefix + b"\xff"))
            else:
                spans.append(row_span(schema, table, *span.encoded()))
        return _clipped([span for span in dict.fromkeys(spans) if not span[1] or span[0] < span[1]], scan.clip)

    async def _by_key(self, scan: TableScan) -> Batches:
        rest = await self._snapshot_span(scan)
        if rest is None:
            async for batch in self._given(scan, await self._found(scan)):
                yield batch
        left = _limit(scan)
        while rest is not None:
            rows, rest = await self._page(scan, rest, left)
            async for batch in self._given(scan, rows):
                yield batch
            left -= len(rows)
            if _limit(scan) and not left:
                return

    async def _snapshot_span(self, scan: TableScan) -> Span | None:
        """Return the only span of a scan if it is a range of stored rows without locks, which can be read in pages."""
        spans = self._spans(scan)
        stored = self._reader.at_timestamp and len(spans) == 1 and spans[0][1]
        return spans[0] if stored and not (await self._reader.overlay()).touches(scan.table) else None

    async def _page(self, scan: TableScan, span: Span, limit: int) -> tuple[list[FoundRow], Span | None]:
        reverse = scan.in_key_order < 0
        return await self._reader.page(scan.table, span, limit=limit, reverse=reverse, columns=_column_ids(scan))

    async def _found(self, scan: TableScan) -> list[FoundRow]:
        return await self._reader.rows(
            scan.table,
            self._spans(scan),
            limit=_limit(scan),
            reverse=scan.in_key_order < 0,
            exclusive=self._locking,
            columns=_column_ids(scan),
        )

    async def _cluster(self, members: list[tuple[int, TableScan]]) -> dict[int, Batches]:
        """Serve the scans of one ancestry path with one storage request (F1 section 8.5)."""
        top = min((scan for _, scan in members), key=lambda s: len(s.table.key_column_ids))
        if not self._is_small(top) or any(scan.clip != top.clip for _, scan in members):
            return {}
        tables = {scan.table.id: scan.table for _, scan in members}
        columns = {column for _, scan in members for column in _column_ids(scan)}
        # A whole key of the topmost table is a prefix of everything below it.
        spans: list[Span] = []
        for start, end in self._spans(top):
            spans.append((start, end or start + b"\xff"))
        found = await self._reader.rows_of(list(tables.values()), spans, exclusive=self._locking, columns=columns)
        return {i: self._given(scan, found[scan.table.id]) for i, scan in members}

    async def _given(self, scan: TableScan, rows: Sequence[FoundRow]) -> Batches:
        for first in range(0, max(len(rows), 1), _BATCH_ROWS):
            part = rows[first : first + _BATCH_ROWS]
            yield self.batch(scan, [found.row for found in part])

    def batch(self, scan: TableScan, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows as a batch of a scan."""
        fields = _Fields(self._reader.schema, scan.table)
        arrays = [fields.array(wanted, [row.get(wanted.column_id) for row in rows]) for wanted in scan.columns]
        return _named(arrays, len(rows))

    # ------------------------------------------------------------------ rows by index

    async def _by_index(self, scan: TableScan, index: Index) -> Batches:
        spans = self._index_spans(scan, index)
        own = await self._reader.overlay()
        limit = 0 if scan.predicates else scan.limit or 0
        if scan.covering and not scan.with_locks and not own.touches(scan.table) and self._reader.at_timestamp:
            entries = await self._reader.entries(scan.table, index, spans, limit=limit)
            rows = [self._entry_row(scan.table, index, *entry[1:]) for entry in entries]
            async for batch in self._given(scan, [FoundRow(b"", row) for row in rows]):
                yield batch
            return
        several = scan.clip is not None and any(index_layout(self._reader.schema, scan.table, index).readers)
        found = await self._reader.rows_by_index(
            scan.table, index, spans, limit=0 if several else limit, exclusive=self._locking, columns=_column_ids(scan)
        )
        if several:
            found = self._first_here(scan, index, found)
        async for batch in self._given(scan, found):
            yield batch

    def _entry_row(
        self, table: Table, index: Index, values: tuple[Value, ...], primary: tuple[Value, ...], value: bytes
    ) -> Row:
        row: Row = decode_index_value(self._reader.schema, table, value)
        for part, found in zip(index.parts, values, strict=True):
            if not part.path:
                row[part.column_id] = found
        row.update(zip(table.key_column_ids, primary, strict=True))
        return row

    def _first_here(self, scan: TableScan, index: Index, found: Sequence[FoundRow]) -> list[FoundRow]:
        """Leave out rows that another share gives: those whose first entry in the scan's spans lies in that share.

        A row with a repeated field has an entry for each value, and the entries of one row may lie in several shares.
        """
        schema, table = self._reader.schema, scan.table
        whole = self._index_spans(replace(scan, clip=None), index)
        kept = []
        for item in found:
            primary = [item.row[i] for i in table.key_column_ids]
            entries = [e for e in index_key(schema, table, index, item.row, primary) if _within(e, whole)]
            if entries and scan.clip is not None and scan.clip[0] <= entries[0] < scan.clip[1]:
                kept.append(item)
        return kept

    def _index_spans(self, scan: TableScan, index: Index) -> list[Span]:
        schema, table = self._reader.schema, scan.table
        spans: list[Span] = []
        for span in scan.index_spans or (KeySpan(),):
            if span.lower is None and span.upper is None:
                prefix = index_prefix(schema, table, index, span.prefix)
                spans.append((prefix, prefix + b"\xff"))
            else:
                spans.append(index_span(schema, table, index, *span.encoded()))
        return _clipped([span for span in dict.fromkeys(spans) if span[0] < span[1]], scan.clip)

    # ------------------------------------------------------------------ many rows

    async def _bulk(self, scan: TableScan, spans: Sequence[Span]) -> Batches:
        reader = self._reader
        own = await reader.overlay()
        hide = own.touches(scan.table)
        layouts = layout(reader.schema, scan.table)
        wanted = _storage_columns(scan, _key_positions(layouts))
        extra = [
            ScanColumn(_HIDDEN[0], "BYTES", ScanSource.RAW_KEY),
            ScanColumn(_HIDDEN[1], "INT64", ScanSource.VERSION_TS),
        ]
        keys_needed = hide or scan.with_locks
        ranges = [(start, end or start + b"\x01") for start, end in spans]
        if not ranges:
            yield self.batch(scan, [])
            return
        columns = [*wanted.columns, *(extra if keys_needed else ())]
        found = self._client.scan(
            [KeyRange(*span) for span in ranges],
            columns,
            timestamp=reader.timestamp,
            # Under optimistic concurrency every row that is looked at counts, also those that a predicate rejects.
            predicates=() if scan.with_locks else wanted.predicates,
            table=TableRows(layouts.width, layouts.id_position, scan.table.id, layouts.ids_above),
            limit=0 if keys_needed or scan.predicates else scan.limit or 0,
        )
        fields = _Fields(reader.schema, scan.table)
        async for batch in found:
            if keys_needed:
                batch = await self._look_at(scan, batch, len(wanted.columns), own.hides if hide else None)
            arrays = [fields.extracted(w, batch.column(wanted.place[w.column_id])) for w in scan.columns]
            yield _named(arrays, batch.num_rows)
        if hide:
            rows = [row for key, row in own.rows(scan.table) if _within(key, spans)]
            yield self.batch(scan, rows)

    async def _look_at(
        self, scan: TableScan, batch: pa.RecordBatch, columns: int, hides: Callable[[bytes], bool] | None
    ) -> pa.RecordBatch:
        """Note the rows of a batch in the read set, and leave out those that the transaction wrote itself."""
        keys = batch.column(columns).to_pylist()
        if scan.with_locks:
            ids = _column_ids(scan)
            for position, (key, ts) in enumerate(zip(keys, batch.column(columns + 1).to_pylist(), strict=True), 1):
                self._reader.note_lock(scan.table, key, ts, ids)
                if not position % MANY_ROWS:
                    await asyncio.sleep(0)  # others are served; not on a thread, for two scans may note one row
        if hides is None:
            return batch
        mask = pa.array([not hides(key) for key in keys], pa.bool_())
        return batch.filter(mask)

    # ------------------------------------------------------------------ change history

    async def _history(self, scan: TableScan) -> Batches:
        schema = self._reader.schema
        root = root_of_history(schema, scan.table)
        shape = history_shape(schema, root)
        spans = [table_span(schema, root)]
        prefixes = [span.prefix for span in scan.spans]
        width = len(root.key_column_ids)
        if prefixes and all(len(prefix) >= width for prefix in prefixes):
            starts = {row_key(schema, root, prefix[:width]) for prefix in prefixes}
            spans = [(start, start + b"\xff") for start in sorted(starts)]
        spans = _clipped(spans, scan.clip)
        if not spans:
            yield self.batch(scan, [])
            return
        found = self._client.scan(
            [KeyRange(*span) for span in spans],
            [ScanColumn("k", "BYTES", ScanSource.RAW_KEY), ScanColumn("v", "BYTES", ScanSource.RAW_VALUE)],
            timestamp=self._reader.timestamp or self._client.strong_timestamp(),
            table=TableRows(shape.key_elements, shape.position, HISTORY_ID),
        )
        order = {column.id: i for i, column in enumerate(scan.table.columns)}
        empty = True
        async for part in found:
            batches = [
                batch
                for key, value in zip(part.column(0).to_pylist(), part.column(1).to_pylist(), strict=True)
                if (batch := read_batch(schema, root, key, value)) is not None
            ]
            rows = history_rows(schema, batches, self._reader.sees)
            arrays = []
            for wanted in scan.columns:
                column = scan.table.by_id[wanted.column_id]
                arrays.append(to_arrow(column.type, [row[order[wanted.column_id]] for row in rows]))
            empty = False
            yield _named(arrays, len(rows))
        if empty:
            yield self.batch(scan, [])


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The columns of a bulk scan, where each of the table's columns stands among them, and the predicates."""

    columns: list[ScanColumn]
    place: dict[int, int]
    predicates: list[ScanPredicate]


def _key_positions(where: TableLayout) -> dict[int, int]:
    """Return which element of a row's key holds each key column: table ids stand between them."""
    positions: dict[int, int] = {}
    for ids, (_, first, end) in enumerate(where.steps, 1):
        for i in range(first, end):
            positions[where.table.key_column_ids[i]] = i + ids
    return positions


def _storage_columns(scan: TableScan, key_positions: dict[int, int]) -> _Wanted:
    columns: list[ScanColumn] = []
    place: dict[int, int] = {}

    def add(column: Column) -> int:
        if column.id not in place:
            place[column.id] = len(columns)
            in_key = column.id in key_positions
            source = ScanSource.KEY_PART if in_key else ScanSource.CELL
            number = key_positions[column.id] if in_key else column.id
            columns.append(ScanColumn(f"c{column.id}", column.type.kind.value, source, number))
        return place[column.id]

    for wanted in scan.columns:
        add(scan.table.by_id[wanted.column_id])
    predicates = []
    for test in scan.predicates:
        column = scan.table.by_id[test.column.column_id]
        if not test.column.path and column.type.kind is not Kind.PROTO:
            predicates.append(ScanPredicate(add(column), ScanOperator(test.op.value), test.values))
    return _Wanted(columns, place, predicates)


class _Fields:
    """Columns, and fields inside proto columns, as Arrow arrays."""

    def __init__(self, schema: Schema, table: Table) -> None:
        self._schema = schema
        self._table = table

    def array(self, wanted: FieldWanted, values: Sequence[Value]) -> pa.Array:
        """Return the array of a column's values, or of a field of them."""
        column = self._table.by_id[wanted.column_id]
        if not wanted.path:
            return to_arrow(column.type, values)
        return self._field(column, wanted.path, values)

    def extracted(self, wanted: FieldWanted, array: pa.Array) -> pa.Array:
        """Return the array of a column that came as one, or of a field of it."""
        if not wanted.path:
            return array
        return self._field(self._table.by_id[wanted.column_id], wanted.path, from_arrow(array))

    def _field(self, column: Column, path: tuple[str, ...], values: Sequence[Value]) -> pa.Array:
        registry = registry_of(self._schema)
        projection = registry.projection(column.type.proto, [".".join(path)])
        found = of_path(registry, column.type.proto, path)
        kind: pa.DataType = pa.binary() if found.kind is None else arrow_type_of(found.kind)
        for _ in range(found.lists):
            kind = pa.list_(kind)
        fields = [projection.extract(v)[0] if isinstance(v, bytes) else None for v in values]
        return pa.array(fields, kind)


def arrow_type_of(kind: Kind) -> pa.DataType:
    """Return the Arrow type of a kind of values."""
    return arrow_type(ColumnType(kind))


def _limit(scan: TableScan) -> int:
    """Return how many rows are enough; 0: all are wanted, since what storage gives is not yet tested."""
    return 0 if scan.predicates else scan.limit or 0


def _column_ids(scan: TableScan) -> tuple[int, ...]:
    """The columns that a scan looks at: those that it gives, and those that its predicates test."""
    ids = {wanted.column_id for wanted in scan.columns} | {test.column.column_id for test in scan.predicates}
    return tuple(sorted(ids))


def _named(arrays: Sequence[pa.Array], rows: int) -> pa.RecordBatch:
    if not arrays:
        # A query that only counts rows asks for no column at all.
        return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["0"])
    return pa.RecordBatch.from_arrays(list(arrays), names=[str(i) for i in range(len(arrays))])


def _clipped(spans: list[Span], clip: Span | None) -> list[Span]:
    """Return what of the spans lies in ``clip``, all of them if it is None."""
    if clip is None:
        return spans
    low, high = clip
    found: list[Span] = []
    for start, end in spans:
        if not end:
            if low <= start < high:
                found.append((start, end))
        elif max(start, low) < min(end, high):
            found.append((max(start, low), min(end, high)))
    return found


def _within(key: bytes, spans: Sequence[Span]) -> bool:
    return any(key == start if not end else start <= key < end for start, end in spans)
