"""Bulk scans over any number of groups at one timestamp, as Arrow record batches.

One call for each group, all at a time; the batches of different groups arrive in any order. A call that breaks off is
repeated from where it was: each chunk carries the position behind it, and at one timestamp every replica has the same
rows, so each row is given exactly once.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import grpc.aio

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import types_pb2
from f1common.rpc.backoff import Backoff
from f1common.rpc.status import error_from_rpc
from spanstore.client.router import PROTOCOL_VERSION, Router, made
from spanstore.client.values import KeyRange
from spanstore.placement.range_map import RangeMap

if TYPE_CHECKING:
    import pyarrow as pa

_QUEUED_BATCHES = 2
_SILENCE_S = 10.0
"""A server that sends nothing for so long is given up for another; it tells of its progress every second."""


class ScanSource(StrEnum):
    """Where the values of a column come from."""

    CELL = "CELL"
    KEY_PART = "KEY_PART"
    VERSION_TS = "VERSION_TS"
    RAW_KEY = "RAW_KEY"
    RAW_VALUE = "RAW_VALUE"


class ScanOperator(StrEnum):
    """What a predicate tests; NULL passes IS_NULL only."""

    EQ = "EQ"
    NE = "NE"
    LT = "LT"
    LE = "LE"
    GT = "GT"
    GE = "GE"
    IN = "IN"
    IS_NULL = "IS_NULL"
    IS_NOT_NULL = "IS_NOT_NULL"


@dataclass(frozen=True, slots=True)
class ScanColumn:
    """A column of the result.

    ``type``: BOOL, INT64, DOUBLE, NUMERIC, STRING, BYTES, DATE, TIMESTAMP or PROTO. ``number``: the column id of a
    cell, or the position of a key part.
    """

    name: str
    type: str
    source: ScanSource = ScanSource.CELL
    number: int = 0


STORED_COLUMNS = (
    ScanColumn("key", "BYTES", ScanSource.RAW_KEY),
    ScanColumn("ts", "INT64", ScanSource.VERSION_TS),
    ScanColumn("value", "BYTES", ScanSource.RAW_VALUE),
)
"""Rows as they are stored, with the timestamps of their commits."""


@dataclass(frozen=True, slots=True)
class ScanPredicate:
    """A test of the column at position ``column`` with constants of its type."""

    column: int
    operator: ScanOperator
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table within a hierarchy: keys of ``elements`` elements with ``table`` at ``position``.

    ``above``: positions and ids of the tables on the way. Without them a sibling with more columns in its key may look
    alike: one of these columns stands where the id does.
    """

    elements: int
    position: int
    table: Value
    above: tuple[tuple[int, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class SketchSpec:
    """What a sketch tells apart; see :meth:`SpanClient.sketch`."""

    tables: tuple[tuple[tuple[Value, int], ...], ...] = ()
    every: int = 1000
    max_keys: int = 2_000_000

    def message(self) -> pb.ScanSketch:
        """Return the message. Raises INVALID_ARGUMENT for ids that cannot be encoded."""
        step = pb.SketchTable.Step
        return pb.ScanSketch(
            tables=[
                pb.SketchTable(steps=[step(element=tuples.encode((table,)), own=own) for table, own in path])
                for path in self.tables
            ],
            every=self.every,
            max_keys=self.max_keys,
        )


@dataclass(frozen=True, slots=True)
class ScanSpec:
    """What a scan looks for; one field for each argument of :meth:`SpanClient.scan`."""

    ranges: tuple[KeyRange, ...]
    columns: tuple[ScanColumn, ...]
    timestamp: int = 0
    predicates: tuple[ScanPredicate, ...] = ()
    table: TableRows | None = None
    limit: int = 0
    batch_rows: int = 0
    anywhere: bool = False
    timeout_s: float = 30.0
    sketch: SketchSpec | None = None
    background: bool = False

    def request(self) -> pb.ScanRequest:
        """Return the message without group, timestamp, ranges and limit. Raises INVALID_ARGUMENT."""
        table = self.table
        return pb.ScanRequest(
            columns=[
                pb.ScanColumn(name=c.name, type=c.type, source=c.source.value, number=c.number) for c in self.columns
            ],
            predicates=[
                pb.ScanPredicate(
                    column=p.column,
                    operator=p.operator.value,
                    literals=[pb.ScanLiteral(value=tuples.encode((value,))) for value in p.values],
                )
                for p in self.predicates
            ],
            key_elements=table.elements if table else 0,
            table_element=tuples.encode((table.table,)) if table else b"",
            table_position=table.position if table else 0,
            more_elements=[
                pb.KeyElement(position=position, element=tuples.encode((value,)))
                for position, value in (table.above if table else ())
            ],
            batch_rows=self.batch_rows,
            protocol_version=PROTOCOL_VERSION,
            sketch=self.sketch.message() if self.sketch is not None else None,
        )


Pieces = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class _Share:
    """What is still to be read of one group; ``left`` rows up to the limit, negative: there is none."""

    group: int
    pieces: Pieces
    left: int
    heard_s: float


@dataclass(frozen=True, slots=True)
class _End:
    """A share is done, or failed."""

    error: Exception | None = None


class Scan:
    """The record batches of a scan, to be iterated over once; rows are in the order of their keys within each group.

    Iterating raises DEADLINE_EXCEEDED (no progress for ``timeout_s``), DATA_CORRUPTION, INVALID_ARGUMENT, CLOCK_SKEW,
    SNAPSHOT_TOO_OLD. Who stops early and does not want to wait for the garbage collector iterates inside
    ``contextlib.aclosing(aiter(scan))``.
    """

    def __init__(
        self,
        spec: ScanSpec,
        router: Router,
        strong_ts: Callable[[], int],
        new_backoff: Callable[[], Backoff],
    ) -> None:
        """Send nothing yet. Raises INVALID_ARGUMENT, OUT_OF_RANGE for literals that cannot be encoded."""
        self._spec = spec
        self._pieces = merged(spec.ranges)
        self._request = made(spec.request)
        self._request.background = router.background or spec.background
        self._router = router
        self._strong_ts = strong_ts
        self._new_backoff = new_backoff
        self._begun = False
        self.timestamp = spec.timestamp
        """The timestamp of all rows; 0 until it is known, at the latest with the first batch."""
        self.schema: pa.Schema | None = None
        """Known with the first batch, or at the end if there is none."""

    def __aiter__(self) -> "AsyncGenerator[pa.RecordBatch, None]":
        if self._begun:
            raise F1Error(Code.FAILED_PRECONDITION, "a scan is iterated over once; scan again")
        self._begun = True
        return self._batches()

    async def read_all(self) -> "pa.Table":
        """Return everything as one table."""
        import pyarrow as pa

        batches = [batch async for batch in self]
        return pa.Table.from_batches(batches, self.schema)

    async def _batches(self) -> "AsyncGenerator[pa.RecordBatch, None]":
        shares = self._deal(await self._router.range_map(self._spec.timeout_s), self._pieces, self._spec.limit or -1)
        # One group picks the timestamp of a strong scan itself, which spares the wait for this client's clock.
        if not self.timestamp and len(shares) > 1:
            self.timestamp = self._strong_ts()
        queue: asyncio.Queue[pa.RecordBatch | _End] = asyncio.Queue(_QUEUED_BATCHES)
        tasks = [asyncio.create_task(self._work(share, queue), name=f"scan of group {share.group}") for share in shares]
        left, running = self._spec.limit or -1, len(tasks)
        try:
            while running and left:
                item = await queue.get()
                if isinstance(item, _End):
                    if item.error is not None:
                        raise item.error
                    running -= 1
                    continue
                batch = item.slice(0, left) if 0 < left < item.num_rows else item
                left -= batch.num_rows
                yield batch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    def _deal(ranges_map: RangeMap, pieces: Pieces, left: int) -> list[_Share]:
        """Cut the pieces at the borders of groups."""
        heard_s = asyncio.get_running_loop().time()
        shares: dict[int, _Share] = {}
        for low, high in pieces:
            for start, end, group in ranges_map.pieces(low, high):
                shares.setdefault(group, _Share(group, [], left, heard_s)).pieces.append((start, end))
        return [shares[group] for group in sorted(shares)]

    async def _work(self, first: _Share, queue: "asyncio.Queue[pa.RecordBatch | _End]") -> None:
        """Read a share, whatever groups it turns out to belong to, and put its end into the queue."""
        try:
            shares, backoff = [first], self._new_backoff()
            while shares:
                share, heard_s = shares[0], shares[0].heard_s
                try:
                    await self._read(share, queue)
                except F1Error as error:
                    if share.heard_s > heard_s:
                        backoff.reset()
                    ranges_map = await self._newer_map(share, error, backoff)
                    dealt = self._deal(ranges_map, share.pieces, share.left)
                    shares[:1] = [replace(item, heard_s=share.heard_s) for item in dealt]
                    if len(shares) > 1:
                        self.timestamp = self.timestamp or self._strong_ts()
                else:
                    del shares[0]
        except Exception as error:
            await queue.put(_End(error))
        else:
            await queue.put(_End())

    async def _newer_map(self, share: _Share, error: F1Error, backoff: Backoff) -> RangeMap:
        """Get a newer map, after a pause: a range on its way to another group has no owner for a moment.

        Raises ``error`` unless it is WRONG_RANGE, and when the share has made no progress for too long.
        """
        left_s = share.heard_s + self._spec.timeout_s - asyncio.get_running_loop().time()
        if error.code is not Code.WRONG_RANGE or left_s <= 0:
            raise error
        await asyncio.sleep(min(backoff.next_s(), left_s))
        return await self._router.range_map(max(left_s, 0.001), refresh=True)

    async def _read(self, share: _Share, queue: "asyncio.Queue[pa.RecordBatch | _End]") -> None:
        """Read a share from its group, from one server after the other if need be. Raises WRONG_RANGE besides all."""
        spec, backoff = self._spec, self._new_backoff()
        server = self._router.pick(share.group, leader=not spec.anywhere)
        while True:
            heard_s = share.heard_s
            try:
                await self._call(server, share, queue)
                return
            except F1Error as failure:
                error = failure
            if share.heard_s > heard_s:
                backoff.reset()
            end = share.heard_s + spec.timeout_s
            server = await self._router.elsewhere(share.group, server, error, end, backoff)

    async def _call(self, server: str, share: _Share, queue: "asyncio.Queue[pa.RecordBatch | _End]") -> None:
        """Ask one server; ``share`` is what is left after the last chunk that came, whatever happens."""
        import pyarrow as pa

        loop = asyncio.get_running_loop()
        asked = share.pieces
        schema: pa.Schema | None = None
        call = self._router.stub(server).Scan(made(lambda: self._message(share)))
        try:
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    chunk = await call.read()
                if not isinstance(chunk, pb.ScanChunk):
                    raise F1Error(Code.UNAVAILABLE, f"the scan at {server} ended too soon")
                share.pieces = rest(asked, chunk.range, chunk.resume)
                share.heard_s = loop.time()
                if schema is None:
                    schema = pa.ipc.read_schema(pa.py_buffer(chunk.ipc))
                    self.schema, self.timestamp = schema, chunk.timestamp
                elif chunk.rows:
                    share.left -= chunk.rows
                    await queue.put(pa.ipc.read_record_batch(pa.py_buffer(chunk.ipc), schema))
                    share.heard_s = loop.time()
                if chunk.last:
                    return
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        except TimeoutError as error:
            raise F1Error(Code.UNAVAILABLE, f"{server} sent nothing of a scan for {_SILENCE_S:g} s") from error
        finally:
            call.cancel()

    def _message(self, share: _Share) -> pb.ScanRequest:
        request = pb.ScanRequest()
        request.CopyFrom(self._request)
        request.group = share.group
        request.timestamp = self.timestamp
        request.ranges.extend(types_pb2.KeyRange(start=start, end=end) for start, end in share.pieces)
        request.limit = max(share.left, 0)
        # A server that waits for the timestamp says so before it is taken for dead.
        request.timeout_ms = int(min(self._spec.timeout_s, _SILENCE_S) * 900)
        return request


def merged(ranges: Sequence[KeyRange]) -> Pieces:
    """Return what the ranges cover, ascending and without overlaps, so that each row comes once.

    Raises INVALID_ARGUMENT for no ranges, empty ones, and ones with a limit or in reverse.
    """
    if not ranges or any(item.end <= item.start or item.limit or item.reverse for item in ranges):
        raise F1Error(Code.INVALID_ARGUMENT, "a scan needs ranges with start < end, ascending and without limits")
    result: Pieces = []
    for start, end in sorted((item.start, item.end) for item in ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def rest(pieces: Pieces, position: int, resume: bytes) -> Pieces:
    """Return what is left of ``pieces`` from ``resume`` in the one at ``position`` on."""
    left = pieces[position:]
    if left and resume > left[0][0]:
        left = [(resume, left[0][1]), *left[1:]] if resume < left[0][1] else left[1:]
    return left
