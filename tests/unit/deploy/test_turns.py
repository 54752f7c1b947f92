"""A build that is held up in turns: what lies in which turn, what it took, and that nothing stays paused."""

import asyncio
from itertools import pairwise

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1deploy.bench.turns import Timer, Turns, take_turns


class Change:
    """A change of 10 s of work on rows, which is asked about; time passes while somebody sleeps."""

    def __init__(self, work_s: float = 10.0, fails_after: float = 1e9) -> None:
        self.now_us = 1_000_000_000
        self.worked_s = 0.0
        self.state = "running"
        self.orders: list[int] = []
        self._work_s = work_s
        self._fails_after = fails_after
        self._ended_us = 0
        self._began_us = self.now_us

    async def sleep(self, pause_s: float) -> None:
        self.now_us += int(pause_s * 1e6)
        if self.state == "running":
            self.worked_s += pause_s
            if self.worked_s >= self._fails_after:
                self.state = "failed"
            elif self.worked_s >= self._work_s:
                self.state = "done"
                self._ended_us = self.now_us - int((self.worked_s - self._work_s) * 1e6)

    async def ask(self, order: pb.SchemaJobs) -> pb.SchemaJobsReply:
        if order.order:
            assert order.number == 7
            self.orders.append(order.order)
            if order.order == pb.SchemaJobs.PAUSE:
                if self.state != "running":
                    raise F1Error(Code.NOT_FOUND, "it has ended")
                self.state = "paused"
            elif order.order == pb.SchemaJobs.RESUME:
                assert self.state == "paused"
                self.state = "running"
        job = pb.SchemaJob(
            number=7, state=self.state, rows=1 + int(self.worked_s * 100), error="a row is in the way",
            created_ts=self._began_us, ended_ts=self._ended_us,
        )  # fmt: skip
        return pb.SchemaJobsReply(jobs=[pb.SchemaJob(number=6, state="done", rows=5), job])


def hold_up(change: Change, turn_s: float) -> Turns:
    timer = Timer(lambda: change.now_us, change.sleep)
    return asyncio.run(take_turns(change.ask, turn_s, lambda text: None, timer))


def test_both_kinds_of_turns_alternate_and_what_it_took_is_without_them() -> None:
    change = Change()
    found = hold_up(change, 2.0)
    assert len(found.going_on) == len(found.held_up) == 3
    both = sorted([*found.going_on, *found.held_up])
    assert both[::2] == found.going_on and both[1::2] == found.held_up
    assert all(end - start == 2_000_000 for start, end in both)
    assert all(later[0] - earlier[1] >= 1_000_000 for earlier, later in pairwise(both))
    assert found.took_s == pytest.approx(10.0)
    assert change.orders == [pb.SchemaJobs.PAUSE, pb.SchemaJobs.RESUME] * 3


def test_a_build_that_is_over_within_a_turn_tells_nothing() -> None:
    with pytest.raises(F1Error, match="use more rows") as caught:
        hold_up(Change(), 20.0)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_it_may_end_just_when_it_is_to_be_held_up() -> None:
    change = Change()
    ask = change.ask

    async def late(order: pb.SchemaJobs) -> pb.SchemaJobsReply:
        if order.order == pb.SchemaJobs.PAUSE and len(change.orders) == 2:
            change.worked_s = 100.0
            await change.sleep(0.0)
        return await ask(order)

    change.ask = late  # type: ignore[method-assign]
    found = hold_up(change, 2.0)
    assert len(found.going_on) == 2 and len(found.held_up) == 1


def test_a_change_that_fails_is_an_error_and_taken_back() -> None:
    change = Change(fails_after=5.0)
    with pytest.raises(F1Error, match="has failed: a row is in the way"):
        hold_up(change, 2.0)
    assert change.orders[-1] == pb.SchemaJobs.CANCEL


def test_a_change_that_each_pause_throws_back_is_given_up() -> None:
    change = Change(work_s=1e6)
    ask = change.ask

    async def forgetful(order: pb.SchemaJobs) -> pb.SchemaJobsReply:
        if order.order == pb.SchemaJobs.PAUSE:
            change.worked_s = 0.0
        return await ask(order)

    change.ask = forgetful  # type: ignore[method-assign]
    with pytest.raises(F1Error, match="give it longer ones"):
        hold_up(change, 2.0)
    assert change.orders[-1] == pb.SchemaJobs.CANCEL
