"""Deals the partitions of a walk to those who can work: slaves as long as there are any, else this server.

A partition is given to one worker at a time. If that dies, falls silent or fails for a reason that passes, the
partition goes to another, from the end of the last lot that it has told of: work that is done twice is the same.
Whoever was given up may still commit something, within the fence that it was given; that does no harm.

What is left of the partitions under way is noted every few seconds, and when the work is held up or given up.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from f1common.errors import Code, F1Error
from f1server.schemachange.jobs.ownership import Paused
from f1server.schemachange.jobs.progress import Watch
from f1server.schemachange.work.sums import Sums, added
from f1server.schemachange.work.walking import Ended, Rest, Tell, Walk

__all__ = ["PASSING", "Dealer", "Worker"]

LOG = logging.getLogger(__name__)

PASSING = frozenset(
    {
        Code.UNAVAILABLE,
        Code.DEADLINE_EXCEEDED,
        Code.ABORTED,
        Code.OVERLOADED,
        Code.NOT_LEADER,
        Code.WRONG_RANGE,
        Code.FENCED,
    }
)
"""Errors after which work on data is simply tried again."""

_LOOK_S = 0.2
_AVOID_S = 2.0
_MOST_TRIES = 20
_NOTE_S = 5.0
"""Notes of what is left of partitions are commits, as batches are: not one for each lot."""


class Worker(Protocol):
    """Can do walks, one at a time."""

    @property
    def elsewhere(self) -> bool:
        """Is it in another process, which may die without this one?"""

    async def work(self, walk: Walk, tell: Tell, ended: Ended) -> Sums:
        """Do a walk, and tell of its lots; return what was added up.

        Raises as a walk does, and UNAVAILABLE if the worker is gone.
        """


@dataclass(slots=True)
class _Given:
    """A partition that somebody works on: what was left of it before, and rows and bytes that it has told of."""

    number: int
    worker: Worker
    task: asyncio.Task[Sums]
    before: Rest
    told: list[int]


class Dealer:
    """Deals the partitions of one walk."""

    def __init__(
        self,
        workers: Callable[[], Mapping[str, Worker]],
        watch: Watch,
        done: Callable[[int, int, int, Sums], Awaitable[None]],
        left: Callable[[Mapping[int, Rest]], Awaitable[None]],
        now_s: Callable[[], float],
    ) -> None:
        """``workers`` tells who there is, by name.

        ``done`` is told of a partition, with its rows, bytes, sums; ``left``, now and then, of what is left of some.
        """
        self._workers = workers
        self._watch = watch
        self._done = done
        self._left = left
        self._now_s = now_s
        self._given: dict[str, _Given] = {}
        self._avoided: dict[str, float] = {}
        self._tries: dict[int, int] = {}
        self._rests: dict[int, Rest] = {}
        self._unnoted: set[int] = set()
        self._noted_s = now_s()

    async def deal(self, walks: Mapping[int, Walk], rests: Mapping[int, Rest]) -> None:
        """Have all walks done, or what is left of them as ``rests`` says.

        Raises what one of them raises that does not pass, and what the watch raises.
        """
        self._rests = dict(rests)
        try:
            await self._deal(walks)
        except (F1Error, Paused):
            with suppress(F1Error):  # whoever goes on does some of it again
                await self._note()
            raise

    async def _deal(self, walks: Mapping[int, Walk]) -> None:
        left = deque(sorted(walks))
        try:
            while left or self._given:
                self._give(left, walks)
                if self._given:
                    tasks = [given.task for given in self._given.values()]
                    await asyncio.wait(tasks, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(_LOOK_S)
                await self._watch(0, 0)
                for name, given in [item for item in self._given.items() if item[1].task.done()]:
                    del self._given[name]
                    await self._ended(name, given, left)
                if self._now_s() >= self._noted_s + _NOTE_S:
                    await self._note()
        finally:
            tasks = [given.task for given in self._given.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _give(self, left: deque[int], walks: Mapping[int, Walk]) -> None:
        now_s = self._now_s()
        for name, worker in self._workers().items():
            if left and name not in self._given and self._avoided.get(name, now_s) <= now_s:
                number = left.popleft()
                before = self._rests.get(number, Rest(walks[number].start, walks[number].end))
                told = [0, 0]
                work = self._work(worker, number, walks[number].within(before.start, before.end), before, told)
                self._given[name] = _Given(
                    number, worker, asyncio.create_task(work, name=f"walk {number}"), before, told
                )

    async def _work(self, worker: Worker, number: int, walk: Walk, before: Rest, told: list[int]) -> Sums:
        async def tell(rows: int, size: int) -> None:
            told[0] += rows
            told[1] += size
            await self._watch(rows, size)

        def ended(rest: Rest) -> None:
            self._rests[number] = before.then(rest)
            self._unnoted.add(number)

        return await worker.work(walk, tell, ended)

    async def _note(self) -> None:
        """Note what is left of the partitions of which some has been done since the last time."""
        self._noted_s = self._now_s()
        if self._unnoted:
            rests = {number: self._rests[number] for number in self._unnoted}
            self._unnoted.clear()
            await self._left(rests)

    async def _ended(self, name: str, given: _Given, left: deque[int]) -> None:
        """Take in how the work on a partition ended. Raises its error if nobody else is to try."""
        rows, size = given.told
        try:
            sums = given.task.result()
        except F1Error as error:
            tries = self._tries[given.number] = self._tries.get(given.number, 0) + 1
            passing = error.code in PASSING or error.ambiguous
            if not (passing and given.worker.elsewhere) or tries > _MOST_TRIES:
                raise
            LOG.info("%s did not end partition %d, which is given out again: %s", name, given.number, error)
            self._avoided[name] = self._now_s() + _AVOID_S
            left.appendleft(given.number)
            rest = self._rests.get(given.number, given.before)
            await self._watch(rest.rows - given.before.rows - rows, rest.size - given.before.size - size)
        else:
            before = given.before
            self._rests.pop(given.number, None)
            self._unnoted.discard(given.number)
            await self._done(given.number, before.rows + rows, before.size + size, added(before.sums, sums))
