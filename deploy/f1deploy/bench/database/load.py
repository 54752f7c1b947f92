"""One load process: some of the clients of a contestant, from a warm-up to the end of the window, then a check."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from f1common.errors import Code, F1Error
from spanstore.tools.load import LoadResult, Window, process_runner, run_clients

__all__ = ["Acknowledged", "Driver", "Opener", "Operation", "Share", "Task", "WrongAnswer", "run_task"]

K = TypeVar("K")
V = TypeVar("V")

SAMPLE = 25
"""Rows that each load process reads and compares after its window."""

Operation = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Share:
    """One client among all of a run: the ``number``-th of ``clients``. ``run`` tells runs apart."""

    number: int
    clients: int
    run: int

    def own(self, rows: int, rng: random.Random) -> int:
        """Draw one of the rows, numbered from 0, that no other client of the run writes."""
        return self.number + self.clients * rng.randrange(max((rows - self.number - 1) // self.clients + 1, 1))


class Driver(Protocol):
    """What a load process talks through."""

    def operation(self, work: str, share: Share, rng: random.Random) -> Operation:
        """Return what one client does over and over. It raises F1Error, and WrongAnswer."""
        ...

    async def check(self, rng: random.Random) -> int:
        """Read a sample of what was acknowledged and return its size. Raises WrongAnswer."""
        ...

    def cpu_s(self) -> float:
        """Return the processor time that the load has used, in seconds."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class Opener(Protocol):
    """Where a system is; it travels to the load processes."""

    async def open(self, work: str, clients: int) -> Driver:
        """Connect, ready for so many clients of a work. Raises F1Error."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """The clients ``first`` to ``first + count - 1`` of ``clients``; the window is on the boot clock."""

    system: Opener
    work: str
    first: int
    count: int
    clients: int
    begin_us: int
    end_us: int
    run: int


class WrongAnswer(Exception):
    """A system returned something else than what it had acknowledged. Not an F1Error: no client goes on after it."""

    def __init__(self, system: str, key: object, found: object, wanted: object) -> None:
        super().__init__(f"{system} acknowledged {wanted!r} for {key!r} and then returned {found!r}")


class Acknowledged(Generic[K, V]):
    """What clients know about rows that only they write: the last value that was acknowledged.

    A row with a write under way, or with one whose outcome nobody knows, is not known.
    """

    def __init__(self) -> None:
        self._values: dict[K, V] = {}

    def begin(self, key: K) -> None:
        """Forget a row that is about to be written."""
        self._values.pop(key, None)

    def end(self, key: K, value: V) -> None:
        """Note a write that was acknowledged."""
        self._values[key] = value

    def sample(self, rng: random.Random) -> dict[K, V]:
        """Draw rows, :data:`SAMPLE` at most."""
        keys = list(self._values)
        return {key: self._values[key] for key in rng.sample(keys, min(SAMPLE, len(keys)))}


def run_task(task: Task) -> LoadResult:
    """Run the load; what a load process is started for. Raises F1Error DATA_CORRUPTION for a wrong answer."""
    try:
        return process_runner().run(_run(task))
    except WrongAnswer as error:
        raise F1Error(Code.DATA_CORRUPTION, str(error)) from None


async def _run(task: Task) -> LoadResult:
    window = Window(task.begin_us, task.end_us)
    driver = await task.system.open(task.work, task.count)
    try:
        shares = [Share(number, task.clients, task.run) for number in range(task.first, task.first + task.count)]
        operations = [
            driver.operation(task.work, share, random.Random(f"{task.run} {share.number}")) for share in shares
        ]
        cpu_s = await run_clients(operations, window, driver.cpu_s)
        checked = await driver.check(random.Random(f"{task.run} {task.first} check"))
    finally:
        await driver.close()
    return LoadResult(window.latencies_us, window.errors, window.first_error, cpu_s, checked)
