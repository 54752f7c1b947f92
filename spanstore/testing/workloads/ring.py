"""The ring (FoundationDB's Cycle test): transactions swap two neighbours; every view is one cycle through all keys."""

import random
from collections.abc import Awaitable, Callable, Sequence

from f1common.errors import check
from spanstore.testing.checkers import Violation, check_ring, check_snapshot_replay, check_timestamp_order
from spanstore.testing.checkers.ring import successor
from spanstore.testing.history import Attempt, History, Op
from spanstore.testing.workloads.base import (
    READ_AT,
    Final,
    KvClient,
    KvTx,
    breathe,
    in_real_time,
    put_all,
    read_all,
    read_at,
    strong_read,
)

_PAST_US = 2_000_000


class RingWorkload:
    """Swaps in a ring of ``keys``, which should lie in several groups and contain no ``#``."""

    def __init__(self, keys: Sequence[bytes], *, pause_us: int = 2_000) -> None:
        check(len(keys) >= 4, "a swap needs a ring of four keys")
        check(not any(b"#" in key for key in keys), "a ring's keys contain no #")
        self.keys = sorted(keys)
        self._pause_us = pause_us
        self._tags = 0

    def _value(self, key: bytes) -> bytes:
        self._tags += 1
        return b"%s#%d" % (key, self._tags)

    async def setup(self, client: KvClient, history: History) -> None:
        """Let each key name the next one."""
        following = [*self.keys[1:], self.keys[0]]
        await put_all(client, history, {k: self._value(f) for k, f in zip(self.keys, following, strict=True)})

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Swap and look."""
        oldest_ts = newest_ts = 0
        while not until():
            choice = rng.random()
            if choice < 0.7:
                op = await history.run(process, "swap", self._swap(client, rng.choice(self.keys)))
            elif choice < 0.9 or not newest_ts:
                op = await history.run(process, "read", strong_read(client, self.keys))
            else:
                past_ts = max(oldest_ts, newest_ts - rng.randrange(_PAST_US))
                op = await history.run(process, READ_AT, read_at(client, past_ts, self.keys))
            newest_ts = max(newest_ts, op.ts or 0)
            oldest_ts = oldest_ts or newest_ts
            await breathe(rng, op, self._pause_us)

    def _swap(self, client: KvClient, first: bytes) -> Callable[[Attempt], Awaitable[int]]:
        """From a, b, c, d make a, c, b, d."""

        async def body(attempt: Attempt) -> int:
            async def fn(tx: KvTx) -> None:
                attempt.begin()
                chain = [first]
                for _ in range(3):
                    (value,) = await tx.read([chain[-1]])
                    attempt.read(chain[-1], value)
                    if value is None:
                        return  # the checker will say so
                    chain.append(successor(value))
                a, b, c, d = chain
                for key, following in ((a, c), (c, b), (b, d)):
                    value = self._value(following)
                    attempt.write(key, value)
                    tx.write(key, value)

            return await client.transact(fn)

        return body

    async def final(self, client: KvClient, history: History) -> Final:
        """Read the whole ring."""
        return await read_all(client, history, self.keys)

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check that it always was a ring, external consistency, and every read against a replay."""
        return [
            *check_ring(ops, self.keys, final),
            *check_timestamp_order(in_real_time(ops)),
            *check_snapshot_replay(ops),
        ]
