"""An event loop with virtual time: it never sleeps, and everything it does follows from its seed.

When nothing is ready the loop jumps to the next timer. Time is an integer in microseconds; callbacks take no time.
Timers of the same instant run in the order of their making, or in a random one drawn from the seed, because real
timers promise no order either. Callbacks of ``call_soon`` keep their order, which asyncio promises.

A :class:`Domain` is a unit that shares a fate, as a process does. Every callback belongs to the domain in whose context
it was made; tasks inherit it. A held domain's callbacks are kept, in order, while time goes on (SIGSTOP), until the
domain is released (SIGCONT). A domain that died is held for ever: not even a ``finally`` of its tasks runs, as in
a process that was killed. Only when the whole simulation is over are its tasks unwound.

Tasks and futures hash by the order in which they were made and not by address, since asyncio keeps tasks in
sets (``asyncio.wait``, ``TaskGroup``) and iterates over them.
"""

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from f1common.errors import check

T = TypeVar("T")

_MICROS = 1_000_000
_MAX_BATCHES_PER_INSTANT = 200_000
_MAX_UNWIND_BATCHES = 1_000
_MAX_UNWIND_ROUNDS = 10
_MIN_PURGE = 1_000


class SimulationError(Exception):
    """The simulated program cannot go on, which is a defect of it or of its test."""


class Deadlock(SimulationError):
    """No callback is ready and no timer is set, but the main task has not ended. The message names who waits."""


class Livelock(SimulationError):
    """Callbacks go on and on without time moving."""


class TimeLimit(SimulationError):
    """The limit of virtual time was reached."""


class SimTask(asyncio.Task[T]):
    """A task with a hash that is the same in every run."""

    sim_sequence: int

    def __hash__(self) -> int:
        return self.sim_sequence


class SimFuture(asyncio.Future[T]):
    """A future with a hash that is the same in every run."""

    sim_sequence: int

    def __hash__(self) -> int:
        return self.sim_sequence


class Domain:
    """What lives, stops and dies together: one incarnation of a node."""

    __slots__ = ("context", "dead", "held", "name", "on_death", "queue", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = False
        self.dead = False
        self.queue: deque[asyncio.Handle] = deque()
        self.tasks: list[SimTask[Any]] = []
        self.on_death: list[Callable[[], None]] = []
        self.context = contextvars.copy_context()
        self.context.run(_DOMAIN.set, self)

    def __repr__(self) -> str:
        state = "dead" if self.dead else "held" if self.held else "running"
        return f"<Domain {self.name} {state}>"


_DOMAIN: contextvars.ContextVar[Domain | None] = contextvars.ContextVar("sim_domain", default=None)


def current_domain() -> Domain | None:
    """Return the domain of the running callback, None for the world's own."""
    return _DOMAIN.get()


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. ``rng`` decides the order of simultaneous timers; None keeps the order in which they were made."""

    def __init__(self, rng: random.Random | None = None, *, start_us: int = 0, limit_us: int | None = None) -> None:
        super().__init__()
        self._rng = rng
        self._now_us = start_us
        self._limit_us = limit_us
        self._soon: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, int, asyncio.TimerHandle]] = []
        self._cancelled_timers = 0
        self._sequence = 0
        self._batches_at_instant = 0
        self._unwinding = False
        self.events = 0
        self.set_exception_handler(lambda _loop, context: self._remember(context))
        self.unhandled: list[dict[str, Any]] = []

    # -- time --

    @property
    def now_us(self) -> int:
        """Virtual time in microseconds."""
        return self._now_us

    def time(self) -> float:
        """Virtual time in seconds, as asyncio wants it."""
        return self._now_us / _MICROS

    # -- callbacks --

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run ``callback`` in the next turn. There is one thread only, in a simulation."""
        return self.call_soon(callback, *args, context=context)

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when_us``, or in the next turn if that has passed."""
        when_us = max(when_us, self._now_us)
        timer = asyncio.TimerHandle(when_us / _MICROS, callback, args, self, context)
        self._sequence += 1
        tie = 0 if self._rng is None else self._rng.getrandbits(30)
        heapq.heappush(self._timers, (when_us, tie, self._sequence, timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # so that the loop hears of its cancellation
        return timer

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` at ``when`` seconds of virtual time; what lies ahead at all is at least 1 us ahead."""
        when_us = round(when * _MICROS)
        if when_us <= self._now_us and when * _MICROS > self._now_us:
            when_us = self._now_us + 1
        return self.call_at_us(when_us, callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run ``callback`` in ``delay`` seconds of virtual time."""
        ahead_us = round(delay * _MICROS)
        if ahead_us <= 0 and delay > 0:
            ahead_us = 1
        return self.call_at_us(self._now_us + ahead_us, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future."""
        future: SimFuture[Any] = SimFuture.__new__(SimFuture)
        self._sequence += 1
        future.sim_sequence = self._sequence
        SimFuture.__init__(future, loop=self)
        return future

    def create_task(  # type: ignore[override]
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Make a task, which belongs to the domain of ``context`` (by default the current one)."""
        domain = _DOMAIN.get() if context is None else context.get(_DOMAIN)
        task: SimTask[T] = SimTask.__new__(SimTask)
        self._sequence += 1
        task.sim_sequence = self._sequence
        SimTask.__init__(task, coro, loop=self, name=name or f"sim-{self._sequence}", context=context)
        if domain is not None:
            tasks = domain.tasks
            tasks.append(task)
            if len(tasks) >= _MIN_PURGE and len(tasks) & (len(tasks) - 1) == 0:
                domain.tasks = [t for t in tasks if not t.done()]
        return task

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        """Run ``func`` here and now: a second thread would not be reproducible."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    # -- domains --

    def hold(self, domain: Domain) -> None:
        """Give ``domain`` no more turns until it is released."""
        domain.held = True

    def release(self, domain: Domain) -> None:
        """Give ``domain`` its turns again; what became ready meanwhile runs first, in order."""
        check(not domain.dead, "the dead are not released")
        domain.held = False
        self._soon.extend(domain.queue)
        domain.queue.clear()

    def kill(self, domain: Domain) -> None:
        """Give ``domain`` no turn ever again, and tell whoever wanted to know of its death."""
        domain.dead = domain.held = True
        callbacks, domain.on_death = domain.on_death, []
        for callback in callbacks:
            callback()

    # -- running --

    def _run_once(self) -> None:
        soon = self._soon
        if soon:
            self._batches_at_instant += 1
            if self._batches_at_instant > _MAX_BATCHES_PER_INSTANT:
                raise Livelock(f"time stands still at {self._now_us} us after {self._batches_at_instant} turns")
        elif not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        self.events += len(soon)
        unwinding = self._unwinding
        for _ in range(len(soon)):
            handle = soon.popleft()
            if handle._cancelled:
                continue
            domain = handle._context.get(_DOMAIN)  # type: ignore[attr-defined]
            if domain is not None and domain.held and not unwinding:
                domain.queue.append(handle)
            else:
                handle._run()

    def _jump(self) -> None:
        """Move time to the next timer that counts and make all timers of that instant ready."""
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise Deadlock(self._who_waits())
        when_us = timers[0][0]
        if self._limit_us is not None and when_us > self._limit_us:
            raise TimeLimit(f"the limit of {self._limit_us} us is reached; {self._who_waits()}")
        if when_us > self._now_us:
            self._now_us = when_us
            self._batches_at_instant = 0
        while timers and timers[0][0] <= when_us:
            timer = heapq.heappop(timers)[3]
            timer._scheduled = False  # type: ignore[attr-defined]
            self._soon.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > _MIN_PURGE and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[3]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _who_waits(self) -> str:
        names = []
        for task in sorted(asyncio.all_tasks(self), key=hash):
            coro: Any = task.get_coro()
            frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
            line = f" line {frame.f_lineno}" if frame is not None else ""
            names.append(f"{task.get_name()} in {getattr(coro, '__qualname__', coro)}{line}")
        return "waiting: " + ("; ".join(names) or "nobody")

    def _remember(self, context: dict[str, Any]) -> None:
        if not self._unwinding:
            self.unhandled.append(context)

    # What a loop with a selector would do here has no meaning without one.
    def _write_to_self(self) -> None:
        return

    def _process_events(self, event_list: list[Any]) -> None:
        return

    # -- the end --

    def unwind(self, domains: list[Domain]) -> None:
        """End all tasks, those of the dead included, so that no ``finally`` runs at the whim of the collector."""
        self._unwinding = True
        self._batches_at_instant = 0
        for domain in domains:
            self._soon.extend(domain.queue)
            domain.queue.clear()
        asyncio.events._set_running_loop(self)
        try:
            # Whoever is cancelled may start others to clean up behind him.
            for _ in range(_MAX_UNWIND_ROUNDS):
                left = sorted(asyncio.all_tasks(self), key=hash)
                if not left:
                    break
                for task in left:
                    task.cancel()
                self._timers.clear()
                self._drain()
        finally:
            asyncio.events._set_running_loop(None)
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._soon.clear()

    def _drain(self) -> None:
        for _ in range(_MAX_UNWIND_BATCHES):
            if not self._soon:
                return
            self._run_once()
