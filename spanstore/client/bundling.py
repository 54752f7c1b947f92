"""Small commits of one group that are asked for at about the same time go to its leader together.

A commit that comes alone is sent alone, at once. While one, or some, are on their way to a group, those that come
meanwhile wait for the answer, and then leave as one request: the busier a client is, the more of them share a message,
an entry of the log and an answer. What takes longer than is usual, because it waits for a lock or nobody answers, is
not waited for, and is in nobody's way from then on.

What the leader leaves out of a bundle, because it has to wait or fails, is sent again alone, as if it had not been in
it; and so is all of a bundle that was not answered. Then a first copy may still arrive somewhere, so that the outcome
is asked for before anything is called aborted (:attr:`spanstore.client.twophase.Plan.named`).
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from msgspec.structs import replace

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import twophase
from spanstore.client.router import Router, Sent
from spanstore.client.twophase import Plan, Spawn
from spanstore.client.values import NoNewer

__all__ = ["Bundles"]

_MOST_WRITES = 16
"""Of one commit: with more of them an entry of the log of its own is no longer what it costs."""
_MOST_BYTES = 16 << 10
_MOST_COMMITS = 64
_USUAL_S = 0.01
"""How long a commit takes, until that is known."""
_WEIGHT = 0.1
"""Of each commit, in what is usual; one that takes long counts as if it had taken :data:`_PATIENCE` times that."""
_PATIENCE = 2.0
"""So many times what is usual is an answer waited for."""
_LEAST_S = 2.0
"""Whoever has less time left is not made to wait for others."""
_UNKNOWN = frozenset({Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION})
"""What an older leader says, or one with an older member."""
_LONGEST_S = 0.05
"""Nobody waits longer for the answer to another."""


class _Alone(Enum):
    """Why a commit is to be sent again, by itself."""

    LEFT_OUT = 1
    UNCLEAR = 2
    """A copy of it may still be on its way."""


@dataclass(slots=True, eq=False)
class _Flight:
    """What is on its way, since then on the clock of the loop. As the answer to a commit: it goes as this, alone."""

    began_s: float


_Future = asyncio.Future[int | _Alone | _Flight]


@dataclass(slots=True)
class _Asked:
    plan: Plan
    end: float
    """When its caller stops waiting, on the clock of the loop."""
    future: _Future


@dataclass(slots=True)
class _Lane:
    """What goes to one group."""

    waiting: deque[_Asked] = field(default_factory=deque)
    flight: _Flight | None = None
    """What is waited for."""
    usual_s: float = _USUAL_S
    due: asyncio.Handle | None = None
    """Somebody will look at who waits."""

    @property
    def patience_s(self) -> float:
        """How long after it left the answer is waited for."""
        return min(_PATIENCE * self.usual_s, _LONGEST_S)


class Bundles:
    """The commits of one client. Lives on one event loop."""

    def __init__(self, router: Router, spawn: Spawn) -> None:
        self._router = router
        self._spawn = spawn
        self._lanes: dict[int, _Lane] = {}
        self._tasks: set[asyncio.Task[list[int | _Alone]]] = set()

    async def commit(self, plan: Plan, timeout_s: float) -> int:
        """Drive ``plan`` to its end, with others if that saves something. Raises as :func:`twophase.commit`."""
        if timeout_s < _LEAST_S or not _is_small(plan) or not self._router.bundles():
            return await twophase.commit(self._router, plan, timeout_s, self._spawn)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        lane = self._lanes.setdefault(plan.coordinator, _Lane())
        future: _Future = loop.create_future()
        lane.waiting.append(_Asked(plan, end, future))
        self._look_soon(lane, plan.coordinator)
        try:
            answer = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and isinstance(found := future.result(), _Flight):
                self._landed(lane, plan.coordinator, found)
            raise
        if isinstance(answer, _Flight):
            try:
                return await twophase.commit(self._router, plan, end - loop.time(), self._spawn)
            finally:
                self._landed(lane, plan.coordinator, answer)
        if isinstance(answer, _Alone):
            again = replace(plan, named=True) if answer is _Alone.UNCLEAR else plan
            return await twophase.commit(self._router, again, max(0.001, end - loop.time()), self._spawn)
        return answer

    # ------------------------------------------------------------------ who leaves when

    def _look_soon(self, lane: _Lane, group: int) -> None:
        """See to it that those who wait leave: at the end of this turn, or when the answer should have come."""
        if lane.due is not None:
            return
        loop = asyncio.get_running_loop()
        if lane.flight is None:
            lane.due = loop.call_soon(self._leave, lane, group)
        else:
            lane.due = loop.call_at(lane.flight.began_s + lane.patience_s, self._leave, lane, group)

    def _leave(self, lane: _Lane, group: int) -> None:
        lane.due = None
        together: list[_Asked] = []
        while lane.waiting and len(together) < _MOST_COMMITS:
            asked = lane.waiting.popleft()
            if not asked.future.done():
                together.append(asked)
        if together:
            lane.flight = flight = _Flight(asyncio.get_running_loop().time())
            if len(together) == 1:
                together[0].future.set_result(flight)
            else:
                task = asyncio.get_running_loop().create_task(self._ask(group, together), name="a bundle")
                self._tasks.add(task)
                task.add_done_callback(partial(self._answered, lane, group, together, flight))
        if lane.waiting:
            self._look_soon(lane, group)

    def _landed(self, lane: _Lane, group: int, flight: _Flight) -> None:
        took_s = asyncio.get_running_loop().time() - flight.began_s
        lane.usual_s += _WEIGHT * (min(took_s, _PATIENCE * lane.usual_s) - lane.usual_s)
        if lane.flight is not flight:
            return  # it took too long, and others have left since
        lane.flight = None
        if lane.waiting:
            if lane.due is not None:
                lane.due.cancel()
                lane.due = None
            self._look_soon(lane, group)

    # ------------------------------------------------------------------ what is sent

    def _answered(
        self, lane: _Lane, group: int, together: list[_Asked], flight: _Flight, task: asyncio.Task[list[int | _Alone]]
    ) -> None:
        """Tell everybody, also if the task was cancelled before it began."""
        self._tasks.discard(task)
        answers: list[int | _Alone] = [_Alone.UNCLEAR] * len(together)
        try:
            if not task.cancelled():
                answers = task.result()
        finally:
            for asked, answer in zip(together, answers, strict=True):
                if not asked.future.done():
                    asked.future.set_result(answer)
            self._landed(lane, group, flight)

    async def close(self) -> None:
        """Give up what is on its way: nobody knows what became of it."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, group: int, together: list[_Asked]) -> list[int | _Alone]:
        sent = Sent()
        bundle = pb.Bundle(works=[asked.plan.work(group) for asked in together])
        left_s = min(asked.end for asked in together) - asyncio.get_running_loop().time()
        again = _Alone.LEFT_OUT
        try:
            response = await self._router.send(group, lambda: pb.Request(bundle=bundle), left_s, sent=sent)
        except F1Error as error:
            if error.code in _UNKNOWN and not (error.ambiguous or error.retryable):
                self._router.bundle_later()
            return [_Alone.UNCLEAR if error.ambiguous or sent.repeated else again] * len(together)
        if sent.repeated:
            again = _Alone.UNCLEAR
        reply = response.bundle
        answers: list[int | _Alone] = [int(reply.ts)] * len(together)
        for position in reply.left_out:
            answers[position] = again
        if not reply.ts:
            return [again] * len(together)
        return answers


def _is_small(plan: Plan) -> bool:
    """Tell whether a commit is of one group, holds nothing and writes little."""
    if len(plan.shares) != 1 or plan.named:
        return False
    share = plan.shares.get(plan.coordinator)
    if share is None or share.term or share.rows > _MOST_WRITES or len(share.preconditions) > 2 * _MOST_WRITES:
        return False
    if any(isinstance(test, NoNewer) for test in share.preconditions):
        return False
    return share.size <= _MOST_BYTES
