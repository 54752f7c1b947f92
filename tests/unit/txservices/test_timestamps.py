"""The timestamp service over a record with compare-and-set: who gives out what, when leadership goes and comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from f1.orchestrator.remote import Timestamps
from f1common.clock import ManualClock
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.orchestrator.allocation import NO_RECORD, AllocationConfig, BoundRecord
from f1common.pb import orchestrator_pb2 as pb
from txservices.timestamps import TimestampServicer

LEASE_US = 1_000_000


class Record:
    """The durable record in memory. ``late`` holds writes that were sent and have not arrived."""

    def __init__(self) -> None:
        self.record, self.version = NO_RECORD, 0
        self.hold = False
        self.late: list[tuple[BoundRecord, int, asyncio.Future[int | None]]] = []

    async def read(self) -> tuple[BoundRecord, int]:
        return self.record, self.version

    async def write(self, record: BoundRecord, version: int) -> int | None:
        if not self.hold:
            return self.replace(record, version)
        arrived: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.late.append((record, version, arrived))
        return await arrived

    def replace(self, record: BoundRecord, version: int) -> int | None:
        if version != self.version:
            return None
        self.record, self.version = record, self.version + 1
        return self.version

    def arrive(self) -> None:
        for record, version, arrived in self.late:
            arrived.set_result(self.replace(record, version))
        self.late.clear()


class Stage:
    """Two processes of the service, and their clocks."""

    def __init__(self, range_size: int = 10) -> None:
        self.record = Record()
        self.clock = ManualClock(boot_us=1)
        config = AllocationConfig(LEASE_US, range_size)
        self.processes = [TimestampServicer(self.record, self.clock, config, Metrics()) for _ in range(2)]

    def ask(self, number: int, count: int = 1) -> list[pb.TimestampReply]:
        """Hand a request to a process; its reply comes into the list, now or later."""
        replies: list[pb.TimestampReply] = []
        try:
            self.processes[number]._handle(pb.TimestampRequest(id=1, count=count), replies.append)
        except F1Error as error:
            replies.append(pb.TimestampReply(id=1))
            replies[0].error.code = error.code.name
        return replies

    async def lead(self, number: int) -> None:
        """Let a process stand for leadership until it has it."""
        await self.processes[number]._stand()
        if not self.processes[number].leading:
            self.clock.advance(LEASE_US + LEASE_US // 10)
            await self.processes[number]._stand()
        assert self.processes[number].leading


def play(work: Callable[[Stage], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        await work(Stage(**options))

    asyncio.run(main())


def test_a_range_is_given_out_from_memory_and_the_bound_is_raised_before_more() -> None:
    async def work(stage: Stage) -> None:
        await stage.lead(0)
        bound, version = stage.record.record.bound, stage.record.version
        assert [stage.ask(0)[0].first for _ in range(bound)] == list(range(1, bound + 1))
        assert stage.record.version == version, "from memory"
        waiting = [stage.ask(0, 3), stage.ask(0)]
        assert waiting == [[], []]
        await stage.processes[0]._raise()
        assert [replies[0].first for replies in waiting] == [bound + 1, bound + 4]
        assert stage.record.record.bound >= bound + 4

    play(work)


def test_leadership_goes_and_comes_back_and_a_write_of_the_earlier_term_changes_nothing() -> None:
    async def work(stage: Stage) -> None:
        first, second = stage.processes
        await stage.lead(0)
        before = stage.ask(0)[0].first
        # The leader has sent a write when it loses touch; another one takes over, gives out, and resigns.
        stage.record.hold = True
        lost = asyncio.create_task(first._raise())
        await asyncio.sleep(0)
        stage.record.hold = False
        await stage.lead(1)
        between = stage.ask(1, 5)[0].first
        assert between > before
        assert stage.ask(0)[0].error.code == "NOT_LEADER", "its lease is over"
        await second.resign()
        # Leadership returns to the same process, and then the write of its earlier term arrives.
        await stage.lead(0)
        record = stage.record.record
        assert record.term == 3
        after = stage.ask(0)[0].first
        assert after > between + 4
        stage.record.arrive()
        await lost
        assert stage.record.record == record, "it was fenced"
        await stage.lead(0)
        assert stage.ask(0)[0].first > after

    play(work)


def test_a_leader_that_stood_still_gives_nothing_out() -> None:
    async def work(stage: Stage) -> None:
        await stage.lead(0)
        assert stage.ask(0)[0].first == 1
        stage.clock.advance(LEASE_US)
        assert stage.ask(0)[0].error.code == "NOT_LEADER"
        assert not stage.processes[0].leading

    play(work)


def test_a_leader_that_was_overtaken_raises_nothing() -> None:
    async def work(stage: Stage) -> None:
        await stage.lead(0)
        await stage.lead(1)
        record = stage.record.record
        waiting = stage.ask(0, 11)
        await stage.processes[0]._raise()
        assert stage.record.record == record
        assert waiting[0].error.code == "NOT_LEADER"
        assert stage.ask(1)[0].first == 11

    play(work)


def test_who_resigns_need_not_be_waited_for_and_leaves_what_was_not_given_out() -> None:
    async def work(stage: Stage) -> None:
        await stage.lead(0)
        last = stage.ask(0, 4)[0].first + 3
        await stage.processes[0].resign()
        await stage.processes[1]._stand()
        assert stage.ask(1)[0].first == last + 1

    play(work)


@pytest.mark.parametrize("count", [0, 1_000_001])
def test_a_request_takes_a_sensible_number(count: int) -> None:
    async def work(stage: Stage) -> None:
        await stage.lead(0)
        assert stage.ask(0, count)[0].error.code == "INVALID_ARGUMENT"

    play(work)


def test_the_status_says_who_leads() -> None:
    async def work(stage: Stage) -> None:
        await stage.lead(0)
        stage.ask(0, 7)
        leader, other = [await process.Status(pb.ServiceStatusRequest(), None) for process in stage.processes]
        assert (leader.leads, leader.term, leader.last, other.leads) == (True, 1, 7, False)
        stage.clock.advance(2 * LEASE_US)
        assert not (await stage.processes[0].Status(pb.ServiceStatusRequest(), None)).leads

    play(work)


def test_a_client_asks_for_all_who_wait_at_once() -> None:
    class Counting(Timestamps):
        """Answers by itself, after a turn of the loop."""

        def __init__(self) -> None:
            super().__init__("nowhere:1")
            self.counts: list[int] = []
            self.last = 0
            self.failure: BaseException | None = None

        async def _ask(self, count: int) -> int:
            self.counts.append(count)
            await asyncio.sleep(0)
            if self.failure is not None:
                raise self.failure
            self.last += count
            return self.last - count + 1

    async def main() -> None:
        service = Counting()
        first = asyncio.create_task(service.next())
        await asyncio.sleep(0)
        rest = [asyncio.create_task(service.next()) for _ in range(100)]
        gone = asyncio.create_task(service.next())
        await asyncio.sleep(0)
        gone.cancel()
        assert await asyncio.gather(first, *rest) == list(range(1, 102))
        assert len(service.counts) == 2 and service.counts[0] == 1
        service.failure = F1Error(Code.UNAVAILABLE, "away", retryable=True)
        failed = await asyncio.gather(*(service.next() for _ in range(5)), return_exceptions=True)
        assert {type(error) for error in failed} == {F1Error} and len(set(map(id, failed))) == 5
        service.failure = RuntimeError("a defect")
        async with asyncio.timeout(60):
            failed = await asyncio.gather(*(service.next() for _ in range(3)), return_exceptions=True)
        assert all(isinstance(error, F1Error) and error.code is Code.INTERNAL for error in failed)
        service.failure = None
        assert await service.next() > 101

    asyncio.run(main())
