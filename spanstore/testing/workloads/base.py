"""What a workload asks of a store, and what a harness asks of a workload.

A workload sets up data, runs any number of client loops that record into one history, reads the final state, and
checks both. It knows nothing about faults; a harness composes it with a nemesis, in the simulator or on real processes.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spanstore.testing.checkers import Violation
from spanstore.testing.history import Attempt, History, Op, Status

READ_AT = "read_at"
"""Kind of reads at a chosen timestamp of the past, which say nothing about real time."""

_RETRY_S = 0.2
_SETUP_PROCESS = -1


@dataclass(frozen=True, slots=True)
class KvWrite:
    """A new value of a key; None deletes it."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Commit only if ``key`` was not written after ``since_ts``."""

    key: bytes
    since_ts: int


@dataclass(frozen=True, slots=True)
class Absent:
    """Commit only if ``key`` has no value."""

    key: bytes


Condition = Unchanged | Absent


class KvTx(Protocol):
    """A transaction with locks."""

    async def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Lock the keys and return their newest values, or this transaction's own."""
        ...

    def write(self, key: bytes, value: bytes | None) -> None:
        """Write at commit; None deletes."""
        ...


class KvClient(Protocol):
    """A client of a transactional, multi-version key-value store. Raises F1Errors; ambiguous: it may have happened."""

    async def read(self, keys: Sequence[bytes]) -> tuple[int, list[bytes | None]]:
        """Read at one timestamp, which is returned, that sees every commit acknowledged before."""
        ...

    async def read_at(self, ts: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read at ``ts``."""
        ...

    async def transact(self, fn: Callable[[KvTx], Awaitable[None]]) -> int:
        """Run ``fn`` in a transaction, again if it was aborted, commit it and return the commit timestamp."""
        ...

    async def commit(self, writes: Sequence[KvWrite], conditions: Sequence[Condition] = ()) -> int:
        """Apply ``writes`` at once if all conditions hold and return the commit timestamp, else raise."""
        ...


Final = Mapping[bytes, bytes | None]
"""The final state: every key of the workload."""


class Workload(Protocol):
    """A composition of operations and the checks that their history must pass."""

    async def setup(self, client: KvClient, history: History) -> None:
        """Write the initial data, however often that takes."""
        ...

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Perform operations until told to stop. ``process`` is unique among the clients."""
        ...

    async def final(self, client: KvClient, history: History) -> Final:
        """Read everything once the clients have stopped, as an operation of the history."""
        ...

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Say what is wrong."""
        ...


async def persist(
    history: History,
    kind: str,
    body: Callable[[Attempt], Awaitable[int | None]],
    process: int = _SETUP_PROCESS,
) -> Op:
    """Perform an operation again and again until it succeeds; each try is recorded."""
    while True:
        op = await history.run(process, kind, body)
        if op.status is Status.OK:
            return op
        await asyncio.sleep(_RETRY_S)


async def put_all(client: KvClient, history: History, values: Mapping[bytes, bytes]) -> None:
    """Write the initial data of a workload in one commit."""

    async def body(attempt: Attempt) -> int:
        for key, value in sorted(values.items()):
            attempt.write(key, value)
        return await client.commit([KvWrite(key, value) for key, value in sorted(values.items())])

    await persist(history, "setup", body)


async def read_all(client: KvClient, history: History, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
    """Read ``keys`` strongly, however often that takes."""
    op = await persist(history, "final", strong_read(client, keys))
    return {read.key: read.value for read in op.reads}


def strong_read(client: KvClient, keys: Sequence[bytes]) -> Callable[[Attempt], Awaitable[int]]:
    """Return an operation that reads ``keys`` strongly."""

    async def body(attempt: Attempt) -> int:
        ts, values = await client.read(keys)
        for key, value in zip(keys, values, strict=True):
            attempt.read(key, value)
        return ts

    return body


def read_at(client: KvClient, ts: int, keys: Sequence[bytes]) -> Callable[[Attempt], Awaitable[int]]:
    """Return an operation that reads ``keys`` at ``ts``; its kind should be READ_AT."""

    async def body(attempt: Attempt) -> int:
        for key, value in zip(keys, await client.read_at(ts, keys), strict=True):
            attempt.read(key, value)
        return ts

    return body


async def breathe(rng: random.Random, op: Op, mean_us: int) -> None:
    """Wait between two operations: longer after one that did not succeed."""
    mean_us = mean_us if op.status is Status.OK else mean_us * 5 + 20_000
    await asyncio.sleep(rng.expovariate(1.0 / mean_us) / 1_000_000)


def in_real_time(ops: Sequence[Op]) -> list[Op]:
    """Return the operations whose timestamps say something about real time."""
    return [op for op in ops if op.kind != READ_AT and op.ts]


__all__ = [
    "READ_AT",
    "Absent",
    "Condition",
    "Final",
    "KvClient",
    "KvTx",
    "KvWrite",
    "Unchanged",
    "Workload",
    "breathe",
    "in_real_time",
    "persist",
    "put_all",
    "read_all",
    "read_at",
    "strong_read",
]
