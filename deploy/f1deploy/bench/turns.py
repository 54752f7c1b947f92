"""A schema change that goes on and is held up in turns, so that users are seen with it and without it at the same time.

What a machine does changes by more within minutes than a build costs, so windows of minutes before and after it tell of
the machine. Here the change is paused again and again and resumed (`f1 schema pause`): both kinds of turns are spread
evenly over the build, and a drift weighs on both alike. What happens within :data:`_SETTLE_S` of a change of turns
belongs to neither.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import uvloop

from f1 import aio
from f1.interrupts import is_running
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

__all__ = ["Timer", "Turns", "Window", "hold_up_in_turns", "take_turns"]

Window = tuple[int, int]
"""Beginning and end, microseconds of the boot clock."""

Ask = Callable[[pb.SchemaJobs], Awaitable[pb.SchemaJobsReply]]

_SETTLE_S = 1.0
_POLL_S = 0.25
_IN_VAIN = 4
"""After so many turns that brought it no further it will not end."""


@dataclass(frozen=True, slots=True)
class Timer:
    """Tells the time, in microseconds, and lets it pass, in seconds."""

    now_us: Callable[[], int] = boot_us
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep


@dataclass(slots=True)
class Turns:
    """When the change went on, when it was held up, and how long it took without the times in which it was held up."""

    going_on: list[Window] = field(default_factory=list)
    held_up: list[Window] = field(default_factory=list)
    took_s: float = 0.0


def hold_up_in_turns(hosts: str, turn_s: float, say: Callable[[str], object]) -> Turns:
    """Hold up the work on rows of the change that was just begun, every other ``turn_s`` seconds, until it ends.

    Raises F1Error FAILED_PRECONDITION if the change fails, ends within the first turn or gets nowhere, UNAVAILABLE if
    none works on rows. Whatever goes wrong, the change is taken back: nobody waits for one that is paused.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_hold_up_at(hosts, turn_s, say))


async def _hold_up_at(hosts: str, turn_s: float, say: Callable[[str], object]) -> Turns:
    async with await aio.connect(hosts, autocommit=True) as connection:
        return await take_turns(connection.session.schema_jobs, turn_s, say, Timer())


async def take_turns(ask: Ask, turn_s: float, say: Callable[[str], object], timer: Timer) -> Turns:
    """As :func:`hold_up_in_turns`; ``ask`` lists changes and gives orders about them."""
    watched = await _Watched.begin(ask, timer)
    try:
        turns = await _take(watched, turn_s, say, timer)
    except BaseException:
        with suppress(F1Error):
            await watched.cancel()
        raise
    if not turns.held_up:
        raise F1Error(Code.FAILED_PRECONDITION, "the change ended within the first turn: use more rows, or --turns 0")
    return turns


async def _take(watched: "_Watched", turn_s: float, say: Callable[[str], object], timer: Timer) -> Turns:
    turns = Turns()
    held_us = furthest = in_vain = 0
    while True:
        window = await _turn(turn_s, timer)
        if await watched.has_ended():
            break  # some time within this turn: it counts for nothing
        in_vain = in_vain + 1 if watched.rows <= furthest else 0
        furthest = max(furthest, watched.rows)
        if in_vain >= _IN_VAIN:
            text = f"turns of {turn_s:g} s get the change nowhere; give it longer ones (--turns)"
            raise F1Error(Code.FAILED_PRECONDITION, text)
        turns.going_on.append(window)
        say(f"an index is built: {watched.progress()}, held up {len(turns.held_up)} times")
        if not await watched.pause():
            break
        began_us = timer.now_us()
        turns.held_up.append(await _turn(turn_s, timer))
        held_us += timer.now_us() - began_us
        if not await watched.resume():
            break
    turns.took_s = watched.took_s() - held_us / 1e6
    return turns


async def _turn(turn_s: float, timer: Timer) -> Window:
    await timer.sleep(_SETTLE_S)
    start = timer.now_us()
    await timer.sleep(turn_s)
    return start, timer.now_us()


class _Watched:
    """The change that runs."""

    def __init__(self, ask: Ask, job: pb.SchemaJob, timer: Timer) -> None:
        self._ask = ask
        self._job = job
        self._timer = timer

    @classmethod
    async def begin(cls, ask: Ask, timer: Timer) -> "_Watched":
        """Wait until a change works on rows."""
        for _ in range(240):
            for job in (await ask(pb.SchemaJobs())).jobs:
                if is_running(job) and job.rows:
                    return cls(ask, job, timer)
            await timer.sleep(_POLL_S)
        raise F1Error(Code.UNAVAILABLE, "no schema change works on rows: use a larger table")

    async def has_ended(self) -> bool:
        """Ask how the change stands. Raises FAILED_PRECONDITION if it has not made what it was to make."""
        found = (await self._ask(pb.SchemaJobs())).jobs
        self._job = next(job for job in found if job.number == self._job.number)
        if self._job.state in ("failed", "cancelled"):
            raise F1Error(Code.FAILED_PRECONDITION, f"the schema change has {self._job.state}: {self._job.error}")
        return not is_running(self._job)

    async def pause(self) -> bool:
        """Hold it up, and return once it is; False: it has ended."""
        try:
            await self._order(pb.SchemaJobs(order=pb.SchemaJobs.PAUSE))
        except F1Error:
            if not await self.has_ended():
                raise
        while not await self.has_ended():
            if self._job.state == "paused":
                return True
            await self._timer.sleep(_POLL_S)
        return False

    async def resume(self) -> bool:
        """Let it go on, and return once it works again; False: it has ended."""
        worked = self._worked()
        await self._order(pb.SchemaJobs(order=pb.SchemaJobs.RESUME))
        while not await self.has_ended():
            if self._worked() != worked:
                return True
            await self._timer.sleep(_POLL_S)
        return False

    async def cancel(self) -> None:
        """Have it taken back."""
        await self._order(pb.SchemaJobs(order=pb.SchemaJobs.CANCEL))

    @property
    def rows(self) -> int:
        """How many rows it has worked on."""
        return self._job.rows

    def progress(self) -> str:
        """Return how far it is."""
        return f"{self._job.rows:,} of {max(self._job.rows_total, self._job.rows):,} rows"

    def took_s(self) -> float:
        """Return how long it took in all."""
        return (self._job.ended_ts - self._job.created_ts) / 1e6

    async def _order(self, order: pb.SchemaJobs) -> None:
        order.number = self._job.number
        await self._ask(order)

    def _worked(self) -> tuple[int, int]:
        return self._job.worked_rows, self._job.rows
