"""The gRPC call: settle, read, pass on; and whatever ends it ends the scan."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest

from f1common.clock import ManualClock
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import types_pb2
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, RangeRead, ReadReply, Settle, SettleReply
from spanstore.scan import service as module
from spanstore.scan.frames import Chunk
from spanstore.scan.plan import Column, ColumnType, KeyShape, Operator, Predicate, ScanPlan, Source
from spanstore.scan.service import ScanService, plan_from_pb


class FakeRun:
    """Gives prepared chunks, then waits for ever."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks
        self.closed = 0

    async def next(self) -> Chunk:
        if not self._chunks:
            await asyncio.Event().wait()
        return self._chunks.pop(0)

    def close(self) -> None:
        self.closed += 1


class FakeSource:
    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = chunks
        self.plans: list[ScanPlan] = []
        self.runs: list[FakeRun] = []

    async def open(self, plan: ScanPlan) -> FakeRun:
        self.plans.append(plan)
        self.runs.append(FakeRun(list(self.chunks)))
        return self.runs[-1]


class FakeContext:
    """Takes so many messages, then the client is gone."""

    def __init__(self, takes: int = 1000) -> None:
        self.takes = takes
        self.written: list[pb.ScanChunk] = []

    async def write(self, message: pb.ScanChunk) -> None:
        await asyncio.sleep(0)
        if len(self.written) == self.takes:
            raise grpc.aio.InternalError("the client is gone")
        self.written.append(message)


def chunk(rows: int, last: bool = False) -> Chunk:
    return Chunk(1, b"ipc", rows, 2, b"resume", last)


def request(**changes: Any) -> pb.ScanRequest:
    fields: dict[str, Any] = {
        "group": 3,
        "ranges": [types_pb2.KeyRange(start=b"a", end=b"b")],
        "timeout_ms": 2_000,
    } | changes
    return pb.ScanRequest(**fields)


def service(source: FakeSource, answer: Answer | None, seen: list[tuple[int, Ticket]] | None = None) -> ScanService:
    def submit(group: int, ticket: Ticket, size: int) -> None:
        assert size > 0
        if seen is not None:
            seen.append((group, ticket))
        if answer is not None:
            ticket.reply(answer)

    return ScanService(submit, ManualClock(), source)


def test_the_plan_is_read_at_what_was_settled() -> None:
    source, context, seen = FakeSource(chunk(0), chunk(5), chunk(0, last=True)), FakeContext(), []  # type: ignore[var-annotated]
    scans = service(source, SettleReply(77, 12), seen)
    asyncio.run(scans.scan(request(timestamp=50), context))
    ((group, ticket),) = seen
    assert (group, ticket.request) == (3, Settle(50, (RangeRead(b"a", b"b"),)))
    assert ticket.deadline_us == ManualClock().sample().boot_us + 2_000_000
    assert (source.plans[0].timestamp, source.plans[0].min_index) == (77, 12)
    assert [message.timestamp for message in context.written] == [77, 0, 0]
    assert [(m.rows, m.range, m.resume, m.last) for m in context.written[1:]] == [
        (5, 2, b"resume", False),
        (0, 2, b"resume", True),
    ]
    assert source.runs[0].closed


def test_what_the_group_refuses_is_raised_and_nothing_is_read() -> None:
    source = FakeSource()
    with pytest.raises(F1Error) as caught:
        asyncio.run(service(source, F1Error(Code.NOT_LEADER, "ask b")).scan(request(), FakeContext()))
    assert caught.value.code is Code.NOT_LEADER
    assert source.plans == []
    with pytest.raises(F1Error) as odd:
        asyncio.run(service(source, ReadReply(1)).scan(request(), FakeContext()))
    assert odd.value.code is Code.INTERNAL


@pytest.mark.parametrize("wrong", [{"ranges": []}, {"ranges": [types_pb2.KeyRange(start=b"b", end=b"b")]}])
def test_what_cannot_be_read_is_refused_before_anything_is_settled(wrong: dict[str, Any]) -> None:
    seen: list[tuple[int, Ticket]] = []
    with pytest.raises(F1Error) as caught:
        asyncio.run(service(FakeSource(), None, seen).scan(request(**wrong), FakeContext()))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert seen == []


def test_a_client_that_is_gone_ends_the_scan_quietly() -> None:
    source = FakeSource(*[chunk(1)] * 10)
    asyncio.run(service(source, SettleReply(1, 1)).scan(request(), FakeContext(takes=3)))
    assert source.runs[0].closed


def cancelled_after(scans: ScanService, ready: Callable[[], bool]) -> None:
    """Cancel a call once ``ready``, as gRPC does when its client is gone."""

    async def run() -> None:
        call = asyncio.create_task(scans.scan(request(), FakeContext()))
        while not ready():
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())


def test_a_cancelled_call_ends_its_scan_wherever_it_is() -> None:
    source = FakeSource(chunk(0), chunk(1))
    cancelled_after(service(source, SettleReply(1, 1)), lambda: bool(source.runs and not source.runs[0]._chunks))
    assert source.runs[0].closed
    seen: list[tuple[int, Ticket]] = []
    cancelled_after(service(source, None, seen), lambda: bool(seen))
    seen[0][1].reply(SettleReply(1, 1))  # an answer that comes too late meets nobody


def test_scans_beyond_the_bound_are_refused_and_ended_ones_make_room() -> None:
    async def run() -> None:
        source = FakeSource(chunk(0))
        scans = service(source, SettleReply(1, 1))
        calls = [asyncio.create_task(scans.scan(request(), FakeContext())) for _ in range(module._MAX_SCANS)]
        while len(source.runs) < len(calls):
            await asyncio.sleep(0)
        with pytest.raises(F1Error) as caught:
            await scans.scan(request(), FakeContext())
        assert caught.value.code is Code.OVERLOADED
        calls[0].cancel()
        await asyncio.sleep(0)
        source.chunks = (chunk(0, last=True),)
        await scans.scan(request(), FakeContext())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(run())


def test_a_request_says_the_same_as_its_plan() -> None:
    literal = tuples.encode((5,))
    message = request(
        timestamp=9,
        columns=[
            pb.ScanColumn(name="a", type="INT64", source="CELL", number=4),
            pb.ScanColumn(name="b", type="BYTES", source="RAW_KEY"),
        ],
        predicates=[pb.ScanPredicate(column=0, operator="IN", literals=[pb.ScanLiteral(value=literal)])],
        limit=10,
        batch_rows=20,
        key_elements=2,
        table_element=literal,
        table_position=1,
    )
    assert plan_from_pb(message) == ScanPlan(
        group=3,
        timestamp=9,
        ranges=((b"a", b"b"),),
        columns=(Column("a", ColumnType.INT64, Source.CELL, 4), Column("b", ColumnType.BYTES, Source.RAW_KEY)),
        predicates=(Predicate(0, Operator.IN, (literal,)),),
        shape=KeyShape(2, literal, 1),
        limit=10,
        batch_rows=20,
    )


@pytest.mark.parametrize(
    "columns_and_predicates",
    [
        {"columns": [pb.ScanColumn(name="a", type="BLOB")]},
        {"columns": [pb.ScanColumn(name="a", type="INT64", source=17)]},  # type: ignore[arg-type]
        {"predicates": [pb.ScanPredicate(operator=99)]},  # type: ignore[arg-type]
    ],
)
def test_unknown_kinds_are_refused(columns_and_predicates: dict[str, Any]) -> None:
    with pytest.raises(F1Error) as caught:
        plan_from_pb(request(**columns_and_predicates))
    assert caught.value.code is Code.INVALID_ARGUMENT
