"""Reading rows of tables in a transaction: at its timestamp or under its locks, its own writes laid over."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from f1common.encoding.row import decode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Index, Schema, Table
from f1server.rows.keys import index_key, row_key, split_index_key, split_row_key
from f1server.rows.locks import lock_value
from f1server.rows.rowcodec import decode_row_value
from f1server.rows.values import Row, Value
from f1server.rows.writes import LogicalWrite
from f1server.txn import overlay
from f1server.txn.readset import ReadSetEntry
from spanstore.client import KeyRange, ReadResult, SpanClient, Version

MAX_READ_SET = 100_000
"""Most rows that an optimistic transaction may look at: its client carries each of them to the commit."""

_FIRST_PAGE = 8
_PAGE_BYTES = 8 << 20

ReadRow = Callable[[bytes], Awaitable[tuple[int, Version | None]]]
"""Reads the row with a storage key as it is now; returns the timestamp, too."""

Span = tuple[bytes, bytes]
"""Storage keys from the first to below the second; a single key has the end ``b""``."""


_Split = tuple[Table, tuple[Value, ...]] | None
_Stored = tuple[bytes, Version | None, _Split]


class LockingReads(Protocol):
    """Reads under the locks of a transaction."""

    async def read(
        self, keys: Sequence[bytes] = (), ranges: Sequence[KeyRange] = (), *, exclusive: bool = False
    ) -> ReadResult:
        """Lock and read rows."""
        ...


class FoundRow(msgspec.Struct, frozen=True, gc=False):
    """A row as the transaction sees it."""

    key: bytes
    row: Row


class RowReader:
    """Reads for one statement or one NoSQL request. Everything it reads is as of one moment."""

    def __init__(
        self,
        client: SpanClient,
        schema: Schema,
        *,
        timestamp: int,
        filled: Sequence[LogicalWrite] = (),
        tx: LockingReads | None = None,
        collect: bool = False,
        sees: Callable[[int], bool] | None = None,
    ) -> None:
        """``timestamp`` for all reads, unless they are made under the locks of ``tx``; ``collect`` the read set.

        ``sees``: of which tables, by id, the change history is shown; None: of all.
        """
        self.sees = sees
        self.of_now: ReadRow | None = None
        """How to read the one row that the statement is about as it is now, later than at ``timestamp``."""
        self.schema = schema
        self.timestamp = timestamp
        self.read_set: dict[bytes, ReadSetEntry] = {}
        self._client = client
        self._filled = filled
        self._tx = tx
        self._collect = collect
        self._overlay: overlay.Overlay | None = None if filled else overlay.NOTHING

    async def overlay(self) -> overlay.Overlay:
        """Return the transaction's own writes as rows."""
        if self._overlay is None:
            self._overlay = await overlay.build(self.schema, self._filled, self.fetch)
        return self._overlay

    async def fetch(
        self, keys: Sequence[bytes], ranges: Sequence[KeyRange] = (), *, exclusive: bool = False
    ) -> ReadResult:
        """Read storage rows, without the transaction's own writes."""
        if not keys and not ranges:
            return ReadResult(self.timestamp)
        if self._tx is not None:
            return await self._tx.read(keys, ranges, exclusive=exclusive)
        if self.of_now is not None and len(keys) == 1 and not ranges:
            read_row, self.of_now = self.of_now, None
            self.timestamp, version = await read_row(keys[0])
            return ReadResult(self.timestamp, [version])
        return await self._client.read(keys, ranges, timestamp=self.timestamp)

    @property
    def at_timestamp(self) -> bool:
        """Tell whether reads are snapshots that need no locks, so that scans may serve them."""
        return self._tx is None

    # ------------------------------------------------------------------ rows by primary key

    async def rows(
        self,
        table: Table,
        spans: Sequence[Span],
        *,
        limit: int = 0,
        reverse: bool = False,
        exclusive: bool = False,
        columns: Iterable[int] = (),
    ) -> list[FoundRow]:
        """Return the rows of ``table`` in ``spans``, in key order (or its reverse); ``columns`` are looked at."""
        found = await self.rows_of([table], spans, limit=limit, reverse=reverse, exclusive=exclusive, columns=columns)
        return found[table.id]

    async def rows_of(
        self,
        tables: Sequence[Table],
        spans: Sequence[Span],
        *,
        limit: int = 0,
        reverse: bool = False,
        exclusive: bool = False,
        columns: Iterable[int] = (),
    ) -> dict[int, list[FoundRow]]:
        """Return the rows of several tables of one hierarchy from one storage request (F1 section 8.5)."""
        own = await self.overlay()
        wanted = {table.id: table for table in tables}
        stored: list[_Stored]
        if limit and len(tables) == 1 and len(spans) == 1 and spans[0][1] and not own.touches(tables[0]):
            stored, _ = await self._first(tables[0], spans[0], limit, reverse=reverse, exclusive=exclusive)
        else:
            keys = sorted({start for start, end in spans if not end})
            ranges = [KeyRange(start, end, 0, reverse) for start, end in spans if end]
            result = await self.fetch(keys, ranges, exclusive=exclusive)
            both = list(zip(keys, result.versions, strict=True))
            both += [(row.key, Version(row.ts, row.value)) for rows in result.ranges for row in rows]
            stored = [(key, version, split_row_key(self.schema, key)) for key, version in both]
        found: dict[int, dict[bytes, Row]] = {table.id: {} for table in tables}
        for table, key, row in self._decoded(stored, wanted, columns):
            if not own.hides(key):
                found[table.id][key] = row
        for table in tables:
            for key, row in own.rows(table):
                if _inside(key, spans):
                    found[table.id][key] = row
        result_rows: dict[int, list[FoundRow]] = {}
        for table_id, rows in found.items():
            ordered = [FoundRow(key, rows[key]) for key in sorted(rows, reverse=reverse)]
            result_rows[table_id] = ordered[:limit] if limit else ordered
        return result_rows

    async def page(
        self, table: Table, span: Span, *, limit: int = 0, reverse: bool = False, columns: Iterable[int] = ()
    ) -> tuple[list[FoundRow], Span | None]:
        """Return the first rows of ``table`` in a span of a snapshot, in key order (or its reverse), and the rest of
        the span, None if there is none: some megabytes at a time, however large rows are.

        The transaction must have written to none of them.
        """
        stored, rest = await self._first(table, span, limit, reverse=reverse, exclusive=False, most_bytes=_PAGE_BYTES)
        return [FoundRow(key, row) for _, key, row in self._decoded(stored, {table.id: table}, columns)], rest

    def _decoded(
        self, stored: Iterable[_Stored], wanted: Mapping[int, Table], columns: Iterable[int]
    ) -> Iterator[tuple[Table, bytes, Row]]:
        """Yield the rows of the ``wanted`` tables among what is stored, and note that they were looked at."""
        looked_at = tuple(sorted(columns))
        for key, version, split in stored:
            if split is None or split[0].id not in wanted:
                continue
            if self._collect:
                self.note(split[0], key, version, looked_at)
            if version is not None and version.value is not None:
                yield split[0], key, decode_row_value(split[0], split[1], version.value)

    async def _first(
        self, table: Table, span: Span, limit: int, *, reverse: bool, exclusive: bool, most_bytes: int = 0
    ) -> tuple[list[_Stored], Span | None]:
        """Return what lies in a span up to its ``limit``-th row of ``table``, and what of the span is left.

        A limit counts rows of one table. Storage counts whatever lies there: rows of other tables, entries of local
        indexes, history. So it is read in pages, each larger than the one before.
        """
        start, end = span
        page = limit + _FIRST_PAGE if limit else 0
        found: list[_Stored] = []
        size = rows_found = 0
        while start < end:
            wanted = KeyRange(start, end, page, reverse, most_bytes - size if most_bytes else 0)
            (rows,) = (await self.fetch((), [wanted], exclusive=exclusive)).ranges
            for row in rows:
                split = split_row_key(self.schema, row.key)
                found.append((row.key, Version(row.ts, row.value), split))
                size += len(row.value)
                rows_found += split is not None and split[0].id == table.id
                start, end = (start, row.key) if reverse else (row.key + b"\x00", end)
                if limit and rows_found == limit:
                    return found, (start, end) if start < end else None
            if most_bytes and size >= most_bytes:
                return found, (start, end) if start < end else None
            if not page or len(rows) < page:
                break
            page *= 4
        return found, None

    def note(self, table: Table, key: bytes, version: Version | None, columns: tuple[int, ...]) -> None:
        """Add a row that was looked at to the read set. Raises OUT_OF_RANGE when there are too many."""
        ts = 0
        if version is not None and version.value is not None:
            ts = lock_value(table, decode_row(version.value) if table.locks else {}, version.ts, columns)
        self.note_lock(table, key, ts, columns)

    @property
    def collects(self) -> bool:
        """Tell whether what is looked at joins the read set."""
        return self._collect

    def note_all(self, entries: Iterable[ReadSetEntry]) -> None:
        """Add rows that others have looked at for this statement. Raises OUT_OF_RANGE when there are too many."""
        for entry in entries:
            self.note_lock(self.schema.table(entry.table), entry.key, entry.ts, entry.columns)

    def note_lock(self, table: Table, key: bytes, ts: int, columns: tuple[int, ...]) -> None:
        """Add a row with the value of its lock to the read set, widening what was looked at before."""
        before = self.read_set.get(key)
        if before is not None and before.columns != columns:
            columns = tuple(sorted({*before.columns, *columns})) if before.columns and columns else ()
            # Of one moment: the lock that changed last speaks for all of the columns.
            ts = max(ts, before.ts)
        self.read_set[key] = ReadSetEntry(key, ts, table.name, columns)
        if len(self.read_set) > MAX_READ_SET:
            raise F1Error(
                Code.OUT_OF_RANGE,
                f"the transaction looks at more than {MAX_READ_SET} rows; read them in a snapshot transaction, or "
                "split the work",
            )

    # ------------------------------------------------------------------ rows by index

    async def entries(
        self, table: Table, index: Index, spans: Sequence[Span], *, limit: int = 0, reverse: bool = False
    ) -> list[tuple[bytes, tuple[Value, ...], tuple[Value, ...], bytes]]:
        """Return stored index entries: key, index values, primary key, value."""
        keys = sorted({start for start, end in spans if not end})
        ranges = [KeyRange(start, end, limit, reverse) for start, end in spans if end]
        result = await self.fetch(keys, ranges)
        stored = [(k, v.value) for k, v in zip(keys, result.versions, strict=True) if v is not None]
        stored += [(row.key, row.value) for rows in result.ranges for row in rows]
        found = []
        for key, value in stored:
            if value is not None:
                values, primary = split_index_key(self.schema, table, index, key, value)
                found.append((key, values, primary, value))
        return found

    async def rows_by_index(
        self,
        table: Table,
        index: Index,
        spans: Sequence[Span],
        *,
        limit: int = 0,
        reverse: bool = False,
        exclusive: bool = False,
        columns: Iterable[int] = (),
    ) -> list[FoundRow]:
        """Return the rows whose entries of ``index`` lie in ``spans``, in the order of the entries."""
        own = await self.overlay()
        bound = 0 if own.touches(table) else limit
        entries = await self.entries(table, index, spans, limit=bound, reverse=reverse)
        keys = [row_key(self.schema, table, primary) for _, _, primary, _ in entries]
        found = await self.rows(
            table, [(key, b"") for key in dict.fromkeys(keys)], exclusive=exclusive, columns=columns
        )
        by_key = {item.key: item for item in found}
        placed = [(entry[0], by_key[key]) for entry, key in zip(entries, keys, strict=True) if key in by_key]
        # Own writes may have moved a row within the index, or into it: their entries are computed, not read.
        placed = [(entry, item) for entry, item in placed if not own.hides(item.key)]
        for key, row in own.rows(table):
            primary = [row[i] for i in table.key_column_ids]
            placed += [
                (entry, FoundRow(key, row))
                for entry in index_key(self.schema, table, index, row, primary)
                if _inside(entry, spans)
            ]
        placed.sort(key=lambda item: item[0], reverse=reverse)
        rows = list({item.key: item for _, item in placed}.values())
        return rows[:limit] if limit else rows


def _inside(key: bytes, spans: Sequence[Span]) -> bool:
    return any(key == start if not end else start <= key < end for start, end in spans)
