"""A mixed load of queries and writes on one table, from a process of its own: closed loop to find the capacity, open
loop to see latencies.

In the open loop operations arrive at random moments at a given rate, whether or not earlier ones have ended, and an
operation's latency runs from the moment at which it was to arrive: a server that stands still for a second is seen as
it would be by the users who come in that second. Every operation is noted with its moment, so that whoever asked for
the load says afterwards which window is of interest.
"""

import asyncio
import multiprocessing
import os
import random
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Any, Self

import uvloop

from f1 import aio
from f1.errors import Error
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1common.programs import deaf_to_interrupts

__all__ = ["DDL", "GAP", "TABLE", "Load", "MixSpec", "Operations", "hand_over"]

TABLE = "Item"
DDL = f"""\
CREATE TABLE {TABLE} (
  Id INT64 NOT NULL, Category INT64, Name STRING, Price NUMERIC, Note STRING,
  PRIMARY KEY (Id)
);
"""
GAP = 16
"""Rows are loaded with ids that are multiples of this; inserts take ids between them."""

CATEGORIES = 5_000
QUERY_SHARE = 0.75
"""As in section 5 of the schema-change paper."""

_MOST_WAITING = 20_000
_STARTED_S = 30.0
_COLLECTED_S = 120.0

_POINT = f"SELECT * FROM {TABLE} WHERE Id = ?"
_RANGE = f"SELECT Id, Name, Price FROM {TABLE} WHERE Id >= ? AND Id < ? ORDER BY Id"
_UPDATE = f"UPDATE {TABLE} SET Category = ?, Price = Price + 1 WHERE Id = ?"
_INSERT = f"INSERT INTO {TABLE} (Id, Category, Name, Price, Note) VALUES (?, ?, ?, 1, ?)"
_DELETE = f"DELETE FROM {TABLE} WHERE Id = ?"


@dataclass(frozen=True, slots=True)
class MixSpec:
    """The load: on which cluster, over how many loaded rows; ``rate`` operations a second arrive, or, if that is 0,
    ``clients`` begin an operation whenever their last one has ended."""

    hosts: str
    rows: int
    seed: int
    rate: float = 0.0
    clients: int = 0


@dataclass(slots=True)
class Operations:
    """What was done, an element of each array per operation: when it arrived (boot clock), how long it took, in
    microseconds, whether it was a query; failed ones are only counted."""

    began_us: "array[int]" = field(default_factory=lambda: array("q"))
    took_us: "array[int]" = field(default_factory=lambda: array("q"))
    query: "array[int]" = field(default_factory=lambda: array("b"))
    failed_us: "array[int]" = field(default_factory=lambda: array("q"))
    first_error: str = ""

    def latencies(self, windows: Sequence[tuple[int, int]], *, query: bool) -> "array[int]":
        """Return the latencies, in microseconds, of the queries or the writes that arrived within some windows."""
        return array(
            "q",
            (
                took
                for began, took, kind in zip(self.began_us, self.took_us, self.query, strict=True)
                if bool(kind) is query and any(start <= began < end for start, end in windows)
            ),
        )

    def failed(self, windows: Sequence[tuple[int, int]]) -> int:
        """Return how many operations that arrived within some windows failed."""
        return sum(any(start <= moment < end for start, end in windows) for moment in self.failed_us)

    def ended_within(self, start_us: int, end_us: int) -> int:
        """Return how many operations ended well within a window."""
        ends = (began + took for began, took in zip(self.began_us, self.took_us, strict=True))
        return sum(start_us <= end < end_us for end in ends)


class Load:
    """A load in a process of its own, from entering the context until :meth:`stop`."""

    def __init__(self, spec: MixSpec) -> None:
        """Start nothing yet."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(spec, theirs), daemon=True)

    def __enter__(self) -> Self:
        """Start it. Raises F1Error UNAVAILABLE if it does not come up."""
        with deaf_to_interrupts():
            self._process.start()
        if not self._pipe.poll(_STARTED_S) or self._pipe.recv() != "running":
            self._process.kill()
            raise F1Error(Code.UNAVAILABLE, "the process that makes the load did not start")
        return self

    def stop(self) -> Operations:
        """Let no more operations begin and return all that were done once they have ended."""
        self._pipe.send("stop")
        if not self._pipe.poll(_COLLECTED_S):
            raise F1Error(Code.UNAVAILABLE, "the process that makes the load gives no answer")
        found: Operations = self._pipe.recv()
        self._process.join()
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_alive():
            self._process.kill()


def _serve(spec: MixSpec, pipe: Pipe) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(spec, pipe))


async def _run(spec: MixSpec, pipe: Pipe) -> None:
    stop = asyncio.Event()
    done = Operations()
    async with await aio.connect(spec.hosts, autocommit=True, timeout_s=30.0) as connection:
        asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
        pipe.send("running")
        mix = Mix(connection.execute, spec.rows, done, odd=not spec.rate)
        if spec.rate:
            await mix.arrive(random.Random(spec.seed), spec.rate, stop)
        else:
            clients = [mix.repeat(random.Random(f"{spec.seed} {n}"), stop) for n in range(spec.clients)]
            await asyncio.gather(*clients)
        asyncio.get_running_loop().remove_reader(pipe.fileno())
    hand_over(pipe, done)


def hand_over(pipe: Pipe, done: Operations) -> None:
    """Answer what came through a pipe that the event loop has watched: the loop leaves it not blocking, and what does
    not fit into the pipe at once would be an error."""
    os.set_blocking(pipe.fileno(), True)
    pipe.recv()
    pipe.send(done)


class Mix:
    """Draws operations and performs them through ``execute``."""

    def __init__(
        self, execute: Callable[..., Awaitable[Any]], rows: int, done: Operations, *, odd: bool = False
    ) -> None:
        """``odd``: whether inserts take odd ids. The two loads of a measurement must not insert the same row."""
        self._odd = odd
        self._execute = execute
        self._rows = rows
        self._done = done
        self._running: set[asyncio.Task[None]] = set()
        self._inserted: set[int] = set()

    async def arrive(self, rng: random.Random, rate: float, stop: asyncio.Event) -> None:
        """Have operations arrive at random, ``rate`` a second, until ``stop`` is set, and wait for their ends."""
        due_us = float(boot_us())
        while not stop.is_set():
            due_us += rng.expovariate(rate) * 1e6
            pause_s = (due_us - boot_us()) / 1e6
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            if len(self._running) >= _MOST_WAITING:
                self._failed(int(due_us), "more operations wait than this process can hold")
                await asyncio.sleep(0)
                continue
            task = asyncio.create_task(self._perform(rng, int(due_us)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        await asyncio.gather(*self._running)

    async def repeat(self, rng: random.Random, stop: asyncio.Event) -> None:
        """Perform one operation after the other until ``stop`` is set."""
        while not stop.is_set():
            await self._perform(rng, boot_us())

    async def _perform(self, rng: random.Random, began_us: int) -> None:
        query, text, parameters = self.draw(rng)
        try:
            cursor = await self._execute(text, parameters)
            if query:
                await cursor.fetchall()
        except Error as error:
            self._failed(began_us, str(error))
            await asyncio.sleep(0.05)
            return
        self._done.began_us.append(began_us)
        self._done.took_us.append(boot_us() - began_us)
        self._done.query.append(query)

    def _failed(self, began_us: int, why: str) -> None:
        self._done.failed_us.append(began_us)
        self._done.first_error = self._done.first_error or why

    def draw(self, rng: random.Random) -> tuple[bool, str, tuple[Any, ...]]:
        """Return whether it is a query, its text, and its parameters."""
        row = rng.randrange(self._rows) * GAP
        what = rng.random()
        if what < QUERY_SHARE:
            if what < QUERY_SHARE * 2 / 3:
                return True, _POINT, (row,)
            return True, _RANGE, (row, row + 20 * GAP)
        match rng.randrange(5):
            case 0:
                new = row
                while new % GAP == 0 or new % 2 != self._odd or new in self._inserted:
                    new = rng.randrange(self._rows * GAP)
                self._inserted.add(new)
                return False, _INSERT, (new, rng.randrange(CATEGORIES), f"item {new}", "n" * 40)
            case 1:
                return False, _DELETE, (row + rng.randrange(GAP),)
            case _:
                return False, _UPDATE, (rng.randrange(CATEGORIES), row)
