"""When a distributed query starts, goes, is tried again and ends: the core of the coordinator. Pure.

One query, one scheduler. It hears what slaves say and how time passes, and answers with :class:`Effects` which the
coordinator performs. An attempt runs at all slaves that may be used or not at all: all say that they are ready (so that
no rows meet a slave that does not know the query) before any is told to go, and the first that fails ends the attempt.
What failed decides who takes part in the next one:

* a slave that broke off or was silent for too long is left out, and the pool hears of it;
* a slave that another one could not reach is left out of this query: both may be well, and the link between them not;
* an error that is retryable, such as a spanserver that was away, leaves nobody out;
* any other error is the query's own, and final.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from f1common.errors import Code, F1Error, check

__all__ = ["Effects", "Failure", "Scheduler", "SchedulerLimits", "Worker"]


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """One run of a slave's process."""

    name: str
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """``silence_us``: how long a slave may say nothing. ``attempts``: how many there are at most."""

    silence_us: int = 2_000_000
    attempts: int = 4


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a slave's part of an attempt failed. ``broke``: the slave itself is at fault; ``blamed``: the position of
    another one that it could not reach."""

    error: F1Error
    broke: bool = False
    blamed: int | None = None


@dataclass(frozen=True, slots=True)
class Effects:
    """What the coordinator has to do, in this order."""

    suspect: tuple[tuple[Worker, str], ...] = ()
    """Tell the pool: (who, why)."""
    cancel: bool = False
    """End the present attempt everywhere."""
    start: tuple[Worker, ...] = ()
    """Start an attempt at these; their positions are those in this tuple."""
    go: bool = False
    """Tell all of them to go."""
    retry: bool = False
    """Wait a moment, then :meth:`Scheduler.begin` again."""
    finished: bool = False
    """Every part has ended everywhere."""
    failed: F1Error | None = None
    """The query cannot be run so."""


_NOTHING = Effects()


class _State(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Scheduler:
    """One query. Times are microseconds of any steady clock."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._state = _State.WAITING
        self._workers: tuple[Worker, ...] = ()
        self._excluded: set[tuple[str, int]] = set()
        self._heard_us: list[int] = []
        self._ready: set[int] = set()
        self._done: set[int] = set()
        self._ticked_us = 0
        self._error: F1Error | None = None
        self.attempt = 0
        """The present attempt, from 1; what is said of another one is not heard."""

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self._state is _State.ENDED

    def begin(self, live: Sequence[Worker], now_us: int) -> Effects:
        """Begin an attempt at those of the live slaves that are not left out."""
        if self._state is not _State.WAITING:
            return _NOTHING
        self._workers = tuple(sorted(w for w in live if (w.name, w.incarnation) not in self._excluded))
        if not self._workers:
            why = f"; the last attempt failed: {self._error.message}" if self._error is not None else ""
            return self._end(F1Error(Code.UNAVAILABLE, f"no slave can run the query{why}"))
        self.attempt += 1
        self._state = _State.STARTING
        self._heard_us = [now_us] * len(self._workers)
        self._ready, self._done = set(), set()
        self._ticked_us = now_us
        return Effects(start=self._workers)

    def heard(self, attempt: int, position: int, now_us: int) -> None:
        """A slave said something, whatever it was."""
        if self._is_on(attempt):
            self._heard_us[position] = now_us

    def ready(self, attempt: int, position: int, now_us: int) -> Effects:
        """A slave knows the query: rows may be sent there."""
        if not self._is_on(attempt) or self._state is not _State.STARTING:
            return _NOTHING
        self.heard(attempt, position, now_us)
        self._ready.add(position)
        if len(self._ready) < len(self._workers):
            return _NOTHING
        self._state = _State.RUNNING
        return Effects(go=True)

    def done(self, attempt: int, position: int, now_us: int) -> Effects:
        """All parts have ended at a slave, and others have taken over what they gave."""
        if not self._is_on(attempt):
            return _NOTHING
        if self._state is not _State.RUNNING:
            error = F1Error(Code.INTERNAL, f"{self._workers[position].name} ended before it was told to go")
            return self.failed(attempt, position, Failure(error, broke=True))
        self.heard(attempt, position, now_us)
        self._done.add(position)
        if len(self._done) < len(self._workers):
            return _NOTHING
        self._state = _State.ENDED
        return Effects(finished=True)

    def failed(self, attempt: int, position: int, failure: Failure) -> Effects:
        """The attempt failed at a slave."""
        if not self._is_on(attempt):
            return _NOTHING
        suspect: tuple[tuple[Worker, str], ...] = ()
        if failure.broke:
            worker = self._workers[position]
            self._leave_out(worker)
            suspect = ((worker, failure.error.message),)
        elif failure.blamed is not None and 0 <= failure.blamed < len(self._workers):
            self._leave_out(self._workers[failure.blamed])
        elif not failure.error.retryable:
            return self._end(failure.error)
        return self._again(failure.error, suspect)

    def lost(self, attempt: int, error: F1Error) -> Effects:
        """The attempt failed at the f1server itself: a root part that cannot take its rows."""
        return self._end(error) if self._is_on(attempt) else _NOTHING

    def tick(self, now_us: int) -> Effects:
        """Time has passed. To be called several times in the time that a slave may be silent."""
        late = now_us - self._ticked_us > self._limits.silence_us // 2
        self._ticked_us = now_us
        if self._state not in (_State.STARTING, _State.RUNNING):
            return _NOTHING
        if late:
            # It was this server that stood still: what the slaves said meanwhile is still to be read.
            self._heard_us = [now_us] * len(self._workers)
        silent = [i for i, heard in enumerate(self._heard_us) if now_us - heard > self._limits.silence_us]
        if not silent:
            return _NOTHING
        for i in silent:
            self._leave_out(self._workers[i])
        names = ", ".join(self._workers[i].name for i in silent)
        reason = f"silent for {self._limits.silence_us / 1e6:g} s in a query"
        return self._again(
            F1Error(Code.UNAVAILABLE, f"{names}: {reason}"), tuple((self._workers[i], reason) for i in silent)
        )

    def cancel(self) -> Effects:
        """Nobody wants the result any more."""
        running = self._state in (_State.STARTING, _State.RUNNING)
        self._state = _State.ENDED
        return Effects(cancel=running)

    def _is_on(self, attempt: int) -> bool:
        return attempt == self.attempt and self._state in (_State.STARTING, _State.RUNNING)

    def _leave_out(self, worker: Worker) -> None:
        self._excluded.add((worker.name, worker.incarnation))

    def _again(self, error: F1Error, suspect: tuple[tuple[Worker, str], ...]) -> Effects:
        check(self._state in (_State.STARTING, _State.RUNNING), "an attempt that is not under way does not fail")
        self._error = error
        if self.attempt >= self._limits.attempts:
            self._state = _State.ENDED
            return Effects(suspect=suspect, cancel=True, failed=error)
        self._state = _State.WAITING
        return Effects(suspect=suspect, cancel=True, retry=True)

    def _end(self, error: F1Error) -> Effects:
        running = self._state in (_State.STARTING, _State.RUNNING)
        self._state = _State.ENDED
        return Effects(cancel=running, failed=error)
