"""Runs bound queries: reads what they need from a :class:`Source` and lets DuckDB do the rest."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute  # casts import it: the first query would wait

from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.errors import Code, F1Error, check
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Kind, Schema
from f1server.exec.arrow_types import narrowed, result_type, sql_type
from f1server.exec.collect import Collector
from f1server.exec.duck import Connection, Duck
from f1server.exec.protos import arrow_function, duck_name
from f1server.exec.source import Direct, FieldWanted, KeySpan, PointSource, Source, TableScan
from f1server.plan.names import OutColumn
from f1server.plan.prepare import BoundQuery, PlannedScan
from f1server.plan.resolve import ProtoFunction
from f1server.rows.arrow import from_arrow
from f1server.rows.values import Row, Value

T = TypeVar("T")

_INTERRUPT_AGAIN_S = 0.02
FEW_ROWS = 32
"""As many are cheaper as cells than as an Arrow stream."""
_FEW_BYTES = 1 << 20
"""Cells go in one answer; a stream goes page by page."""


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a result. ``type``: a name of :class:`Kind`, ARRAY<...>, STRUCT<...>, PROTO<message> or DuckDB's.

    ``scale``: of a NUMERIC, how many digits after the point its Arrow type has.
    """

    name: str
    type: str
    proto_type: str = ""
    nullable: bool = True
    scale: int | None = None


@dataclass(slots=True)
class QueryResult:
    """The columns of a result and its batches, of these types. To be closed if it is not read to its end."""

    columns: tuple[ColumnInfo, ...]
    arrow_schema: Any
    batches: AsyncIterator[Any]
    close: Callable[[], None] = lambda: None
    cells: Sequence[bytes] = ()
    """The rows, instead of batches: each as cells by the positions of the columns, from 1."""

    async def table(self) -> Any:
        """Read all of the result into an Arrow table."""
        try:
            return pa.Table.from_batches([b async for b in self.batches], schema=self.arrow_schema)
        finally:
            self.close()


class Engine:
    """Runs queries with one DuckDB."""

    def __init__(self, duck: Duck) -> None:
        self._duck = duck

    @property
    def duck(self) -> Duck:
        """The evaluator."""
        return self._duck

    async def run_query(self, query: BoundQuery, source: Source) -> QueryResult:
        """Run a query; the result streams. Raises F1Error."""
        if query.picks is not None:
            return await _point_read(query, source)
        if (found := await self.run_direct(query, source)) is not None:
            return found
        connection = self._duck.connection()
        try:
            await self.feed(connection, query.schema, query.scans, query.functions, source)
            schema, first, more = await self.inline(lambda: _begun(connection, query), connection)
        except BaseException:
            connection.close()
            raise
        columns, target = result_columns(schema, query.columns)
        if more is None:
            connection.close()
            return QueryResult(columns, target, given([cast_batch(b, target) for b in first]))
        return QueryResult(columns, target, self._stream(connection, first, more, target), connection.close)

    async def run_point(self, query: BoundQuery, source: PointSource) -> QueryResult | None:
        """Run a query for rows by their keys whose values need no Arrow array; None: it is no such query.

        Raises F1Error.
        """
        if query.picks is None:
            return None
        form, (planned,) = _picks_of(query, query.picks), query.scans
        if form.cells is None or not planned.scan.is_point or (rows := await source.by_key(planned.scan)) is None:
            return None
        return _as_cells(form, form.cells, rows)

    async def run_few(self, query: BoundQuery, source: PointSource) -> QueryResult | None:
        """As :meth:`run_direct`; the fewest rows are answered as cells instead of Arrow arrays."""
        if query.direct is None or (scan := _direct_scan(query, query.direct)) is None:
            return None
        rows = await source.by_key(scan)
        if rows is None or len(rows) > query.direct.MOST_ROWS:
            return None
        form = _picks_of(query, query.direct.picks)
        if form.cells is not None and len(rows) <= FEW_ROWS:
            result = _as_cells(form, form.cells, rows)
            if sum(map(len, result.cells)) <= _FEW_BYTES:
                return result
        return _picked(query, query.direct.picks, given([source.batch(scan, rows)]))

    async def run_direct(self, query: BoundQuery, source: Source) -> QueryResult | None:
        """Run a query whose result is a few rows of its only scan; None: it is no such query. Raises F1Error."""
        return None if query.direct is None else await _direct_read(query, query.direct, source)

    async def _stream(
        self, connection: Connection, first: Sequence[Any], batches: Iterator[Any], target: Any
    ) -> AsyncIterator[Any]:
        try:
            for batch in first:
                yield cast_batch(batch, target)
            while (batch := await self.inline(lambda: next(batches, None), connection)) is not None:
                if batch.num_rows:
                    yield cast_batch(batch, target)
        finally:
            connection.close()

    async def feed(
        self,
        connection: Connection,
        schema: Schema,
        scans: Sequence[PlannedScan],
        functions: Sequence[ProtoFunction],
        source: Source,
        *,
        together: bool = False,
    ) -> list[Collector]:
        """Give DuckDB the functions and the rows that a query needs; returns what was read. Raises F1Error.

        ``together``: read several scans at a time, which a source under locks does not like.
        """
        registry = registry_of(schema)
        for function in functions:
            argument, call = arrow_function(registry, function)
            self._duck.function(function.name, argument, duck_name(function.result), call)
        kept: dict[str, Any] = {}
        done: list[Collector] = []
        waiting = list(scans)
        while waiting:
            ready = [s for s in waiting if s.lookup is None or s.lookup.relation in kept]
            check(ready, "lookups do not wait for each other")
            waiting = [s for s in waiting if s not in ready]
            pieces = {s.relation: _pieces(looked_up(schema, s, kept)) for s in ready}
            wanted = [(relation, scan) for relation, scans in pieces.items() for scan in scans]
            found = await source.scan([scan for _, scan in wanted]) if wanted else []
            check(len(found) == len(wanted), "a source answers every scan")
            streams: dict[str, list[AsyncIterator[Any]]] = {s.relation: [] for s in ready}
            for (relation, _), stream in zip(wanted, found, strict=True):
                streams[relation].append(stream)
            collectors = {s.relation: self.collector(connection, s.relation, _scan_schema(schema, s)) for s in ready}
            await _drain_all([(streams[r], collector) for r, collector in collectors.items()], together)
            for scan in ready:
                collector = collectors[scan.relation]
                kept.update(dict.fromkeys(scan.relations, await collector.finish()))
                done.append(collector)
                for view in scan.views:
                    make = partial(connection.view, view.relation, scan.relation, view.columns)
                    await self.brief(make, connection)
        return done

    def collector(self, connection: Connection, relation: str, schema: Any) -> Collector:
        """Return what takes over the rows of a relation of a query."""
        return Collector(self, connection, relation, schema, self._duck.config.spool_bytes)

    async def brief(self, work: Callable[[], T], connection: Connection) -> T:
        """Do something that takes no time, once nothing else runs on the connection."""
        async with connection.turn:
            return work()

    async def inline(self, work: Callable[[], T], connection: Connection | None = None) -> T:
        """Do something that takes time, on a thread if there are any. Cancellation interrupts DuckDB."""
        if self._duck.executor is None:
            return work()
        if connection is None:
            return await self._on_thread(work, None)
        async with connection.turn:
            return await self._on_thread(work, connection)

    async def _on_thread(self, work: Callable[[], T], connection: Connection | None) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._duck.executor, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await _stopped(future, connection)
            raise


def _begun(connection: Connection, query: BoundQuery) -> tuple[Any, list[Any], Iterator[Any] | None]:
    """Run a query as far as its first batch that has rows; return its Arrow schema, that batch, and what follows.

    A short result is all there (None): changing threads for each of its parts would take longer than the query.
    """
    schema, batches = connection.query(query.sql, query.bound)
    first: list[Any] = []
    for batch in batches:
        if first:
            return schema, [*first, batch], batches
        if batch.num_rows:
            first.append(batch)
    return schema, first, None


async def _stopped(future: "asyncio.Future[Any]", connection: Connection | None) -> None:
    """Stop work on a thread and return when it has ended: until then the connection is of no use to anybody.

    An interrupt is lost if the work has not begun, and whoever waits may be cancelled again: neither ends the wait.
    """
    # Nobody wants to know any more what became of it.
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    while not future.done():
        if connection is not None:
            connection.interrupt()
        try:
            await asyncio.wait([future], timeout=_INTERRUPT_AGAIN_S)
        except asyncio.CancelledError:
            pass


async def _drain(stream: AsyncIterator[Any] | None, collector: Collector) -> None:
    """Take over all rows of a scan. It ends with this call, also if that fails or is cancelled."""
    if stream is None:
        return
    try:
        async for batch in stream:
            await collector.add(_named(batch, collector.schema))
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


_LOOKUP_BATCH = 1_000
"""Keys that are looked up with one request."""


def _pieces(planned: PlannedScan) -> list[TableScan]:
    """Return the scans that read what one asks for: lookups of many keys go in batches."""
    scan = planned.scan
    if scan.empty:
        return []
    if planned.lookup is None or len(scan.spans) + len(scan.index_spans) <= _LOOKUP_BATCH:
        return [scan]
    by_index = scan.index is not None
    spans = scan.index_spans if by_index else scan.spans
    batches = [spans[i : i + _LOOKUP_BATCH] for i in range(0, len(spans), _LOOKUP_BATCH)]
    return [replace(scan, index_spans=batch) if by_index else replace(scan, spans=batch) for batch in batches]


async def _drain_all(work: Sequence[tuple[Sequence[AsyncIterator[Any]], Collector]], together: bool) -> None:
    """Take over all rows of some relations; the streams of one relation come one after the other."""

    async def drain(streams: Sequence[AsyncIterator[Any]], collector: Collector) -> None:
        for stream in streams:
            await _drain(stream, collector)

    if not together or len(work) < 2:
        for streams, collector in work:
            await drain(streams, collector)
        return
    tasks = [asyncio.create_task(drain(streams, collector)) for streams, collector in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def looked_up(schema: Schema, planned: PlannedScan, kept: Mapping[str, Any]) -> PlannedScan:
    """Give a scan that waited for another one its spans, unless there are too many."""
    lookup = planned.lookup
    rows = kept.get(lookup.relation) if lookup is not None else None
    if lookup is None or rows is None or rows.num_rows > 50 * lookup.limit:
        return planned
    columns = [[p[0]] * rows.num_rows if isinstance(p, tuple) else _values(rows, p) for p in lookup.parts]
    keys = {tuples.encode(key): key for key in zip(*columns, strict=True) if None not in key}
    if len(keys) > lookup.limit:
        return planned
    spans = tuple(KeySpan(keys[k]) for k in sorted(keys))
    if not spans:
        return replace(planned, scan=replace(planned.scan, empty=True))
    if lookup.index is None:
        return replace(planned, scan=replace(planned.scan, spans=spans))
    scan = replace(planned.scan, index=lookup.index, index_spans=spans, covering=lookup.covering)
    return replace(planned, scan=scan)


def _values(rows: Any, wanted: FieldWanted) -> list[Value]:
    """Return the values of a column of a scan's rows; the metadata of its schema says which it is."""
    place = json.loads(rows.schema.metadata[b"fields"]).index([wanted.column_id, *wanted.path])
    return from_arrow(rows.column(place))


def _scan_schema(schema: Schema, planned: PlannedScan) -> Any:
    """Return the Arrow schema in which DuckDB gets the rows of a scan."""
    kinds = [sql_type(schema, planned.scan.table, wanted) for wanted in planned.scan.columns]
    fields = json.dumps([[w.column_id, *w.path] for w in planned.scan.columns])
    typed = [(name, narrowed(kind)) for name, kind in zip(planned.names, kinds, strict=True)]
    return pa.schema(typed, metadata={"fields": fields})


def _named(batch: Any, target: Any) -> Any:
    return batch.rename_columns(target.names).cast(target)


async def _point_read(query: BoundQuery, source: Source) -> QueryResult:
    """Answer a query from the one scan that is its result."""
    (planned,) = query.scans
    (stream,) = await source.scan([planned.scan])
    return _picked(query, query.picks or (), stream)


async def _direct_read(query: BoundQuery, direct: Direct, source: Source) -> QueryResult | None:
    """Answer a query from the rows of its one scan, in the order of their keys; None if there are too many."""
    if (scan := _direct_scan(query, direct)) is None:
        return None
    (stream,) = await source.scan([scan])
    rows, batches = 0, []
    # No more rows than the limit: reading to the end ends the stream.
    async for batch in stream:
        batches.append(batch)
        rows += batch.num_rows
    if rows > direct.MOST_ROWS:
        return None
    return _picked(query, direct.picks, given(batches))


def _direct_scan(query: BoundQuery, direct: Direct) -> TableScan | None:
    (planned,) = query.scans
    scan = planned.scan
    if scan.empty:
        return None
    if scan.in_key_order:
        return scan
    return replace(scan, in_key_order=direct.way, limit=direct.MOST_ROWS + 1, predicates=())


def _as_cells(form: "PickedForm", columns: Sequence[int], rows: Sequence[Row]) -> QueryResult:
    places = tuple(enumerate(columns, 1))
    cells = [encode_row({p: value for p, i in places if (value := row.get(i)) is not None}) for row in rows]
    return QueryResult(form.columns, form.schema, given([]), cells=cells)


async def given(batches: Sequence[Any]) -> AsyncIterator[Any]:
    """Yield batches that are there."""
    for batch in batches:
        yield batch


@dataclass(frozen=True, slots=True)
class PickedForm:
    """How columns of a scan become those of a result: positions, and the types on the way and at the end."""

    columns: tuple[ColumnInfo, ...]
    schema: Any
    places: tuple[tuple[int, Any, Any], ...]
    cells: tuple[int, ...] | None
    """The columns whose cells are the values of the result, None if not all values are cells."""

    def batch(self, rows: Any) -> Any:
        """Return the columns of the result for a batch of the scan's rows. Raises F1Error OUT_OF_RANGE."""
        try:
            arrays = [_cast(_cast(rows.column(i), first), last) for i, first, last in self.places]
        except pa.ArrowException as error:
            raise F1Error(Code.OUT_OF_RANGE, f"a value of the result is out of range: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _cast(array: Any, wanted: Any) -> Any:
    return array if array.type == wanted else array.cast(wanted)


def _picks_of(query: BoundQuery, picks: tuple[str, ...]) -> PickedForm:
    """Return how the columns of the query's only scan become its result; worked out once for a statement."""
    found = query.kept.get(picks)
    if isinstance(found, PickedForm):
        return found
    (planned,) = query.scans
    check(query.columns is not None, "a query that only picks knows its columns")
    columns = query.columns or ()
    target = _scan_schema(query.schema, planned)
    indices = [planned.names.index(pick) for pick in picks]
    final = pa.schema([(c.name, target.types[i]) for c, i in zip(columns, indices, strict=True)])
    infos, result = result_columns(final, columns)
    places = tuple((i, target.types[i], last) for i, last in zip(indices, result.types, strict=True))
    query.kept[picks] = PickedForm(infos, result, places, _cells_of(planned, indices))
    return query.kept[picks]  # type: ignore[no-any-return]


def _cells_of(planned: PlannedScan, indices: Sequence[int]) -> tuple[int, ...] | None:
    """Return the columns that a result consists of; None if there are fields of messages, which are no cells."""
    wanted = [planned.scan.columns[i] for i in indices]
    if any(w.path for w in wanted):
        return None
    return tuple(w.column_id for w in wanted)


def _picked(query: BoundQuery, picks: Sequence[str], stream: AsyncIterator[Any]) -> QueryResult:
    """Return columns of the rows of a query's only scan."""
    form = _picks_of(query, tuple(picks))

    async def batches() -> AsyncIterator[Any]:
        async for batch in stream:
            if batch.num_rows:
                yield form.batch(batch)

    return QueryResult(form.columns, form.schema, batches())


def result_columns(schema: Any, known: Sequence[OutColumn] | None) -> tuple[tuple[ColumnInfo, ...], Any]:
    """Return a result's columns and the Arrow schema to send, from DuckDB's and what the query says of itself."""
    infos: list[ColumnInfo] = []
    fields: list[Any] = []
    said = known if known is not None and len(known) == len(schema) else [OutColumn(f.name) for f in schema]
    for field, column in zip(schema, said, strict=True):
        name, arrow = result_type(field.type)
        kind = column.type
        proto = kind.proto if kind.kind is Kind.PROTO and name.endswith("BYTES" + ">" * kind.lists) else ""
        if proto:
            name = kind.name
        scale = arrow.scale if name == Kind.NUMERIC.value else None
        infos.append(ColumnInfo(column.name, name, proto, scale=scale))
        fields.append(pa.field(column.name, arrow))
    return tuple(infos), pa.schema(fields)


def cast_batch(batch: Any, target: Any) -> Any:
    """Give a batch the types and names of a result. Raises F1Error OUT_OF_RANGE."""
    try:
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, target, strict=True)
        ]
    except pa.ArrowException as error:
        raise F1Error(Code.OUT_OF_RANGE, f"a value of the result is out of range: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=target)
