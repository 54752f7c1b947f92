"""Single keys, each read, overwritten, conditionally replaced and deleted: every key must be linearizable."""

import random
from collections.abc import Awaitable, Callable, Sequence

from spanstore.testing.checkers import (
    Violation,
    check_linearizable,
    check_snapshot_replay,
    check_timestamp_order,
)
from spanstore.testing.history import Attempt, History, Op
from spanstore.testing.workloads.base import (
    Absent,
    Condition,
    Final,
    KvClient,
    KvTx,
    KvWrite,
    Unchanged,
    breathe,
    in_real_time,
    read_all,
    strong_read,
)


class RegisterWorkload:
    """Operations on one key each, by every way that a client has to write it. The registers begin absent."""

    def __init__(self, keys: Sequence[bytes], *, pause_us: int = 2_000) -> None:
        self.keys = sorted(keys)
        self._pause_us = pause_us
        self._tags = 0

    def _value(self) -> bytes:
        self._tags += 1
        return b"%d" % self._tags

    async def setup(self, client: KvClient, history: History) -> None:
        """There is nothing to set up."""

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Read, write, replace and delete."""
        while not until():
            key = rng.choice(self.keys)
            choice = rng.random()
            if choice < 0.4:
                op = await history.run(process, "read", strong_read(client, [key]))
            elif choice < 0.6:
                value = None if rng.random() < 0.4 else self._value()
                op = await history.run(process, "write", _write(client, key, value))
            elif choice < 0.8:
                op = await history.run(process, "replace", _replace(client, key, self._value()))
            else:
                op = await history.run(process, "transaction", _transaction(client, key, self._value()))
            await breathe(rng, op, self._pause_us)

    async def final(self, client: KvClient, history: History) -> Final:
        """Read all registers, one operation each."""
        found: dict[bytes, bytes | None] = {}
        for key in self.keys:
            found |= await read_all(client, history, [key])
        return found

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check linearizability of each key, external consistency, and every read against a replay."""
        return [
            *check_linearizable(ops),
            *check_timestamp_order(in_real_time(ops)),
            *check_snapshot_replay(ops),
        ]


def _write(client: KvClient, key: bytes, value: bytes | None) -> Callable[[Attempt], Awaitable[int]]:
    async def body(attempt: Attempt) -> int:
        attempt.write(key, value)
        return await client.commit([KvWrite(key, value)])

    return body


def _replace(client: KvClient, key: bytes, value: bytes) -> Callable[[Attempt], Awaitable[int]]:
    """Read, then write on the condition that nothing changed since."""

    async def body(attempt: Attempt) -> int:
        ts, (seen,) = await client.read([key])
        attempt.read(key, seen)
        attempt.write(key, value)
        condition: Condition = Absent(key) if seen is None else Unchanged(key, ts)
        return await client.commit([KvWrite(key, value)], [condition])

    return body


def _transaction(client: KvClient, key: bytes, value: bytes) -> Callable[[Attempt], Awaitable[int]]:
    async def body(attempt: Attempt) -> int:
        async def fn(tx: KvTx) -> None:
            attempt.begin()
            (seen,) = await tx.read([key])
            attempt.read(key, seen)
            attempt.write(key, value)
            tx.write(key, value)

        return await client.transact(fn)

    return body
