"""Money moves between accounts; the total stays. Reads of all accounts, now and in the past, must sum to it."""

import random
from collections.abc import Awaitable, Callable, Sequence

from spanstore.testing.checkers import Violation, check_bank, check_snapshot_replay, check_timestamp_order
from spanstore.testing.checkers.bank import decode_balance, encode_balance
from spanstore.testing.history import Attempt, History, Op
from spanstore.testing.workloads.base import (
    READ_AT,
    Final,
    KvClient,
    KvTx,
    KvWrite,
    Unchanged,
    breathe,
    in_real_time,
    put_all,
    read_all,
    read_at,
    strong_read,
)

_PAST_US = 2_000_000


class BankWorkload:
    """Transfers by transaction and by conditional commit. ``accounts`` should lie in several groups."""

    def __init__(self, accounts: Sequence[bytes], initial: int = 100, *, pause_us: int = 2_000) -> None:
        self.accounts = sorted(accounts)
        self.total = initial * len(self.accounts)
        self._initial = initial
        self._pause_us = pause_us
        self._tags = 0

    def _value(self, balance: int) -> bytes:
        """Return a stored balance that no other write stores: its tag tells checkers who wrote it."""
        self._tags += 1
        return encode_balance(balance, self._tags)

    async def setup(self, client: KvClient, history: History) -> None:
        """Give every account its initial balance."""
        await put_all(client, history, {account: self._value(self._initial) for account in self.accounts})

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Transfer and look."""
        oldest_ts = newest_ts = 0
        while not until():
            choice = rng.random()
            if choice < 0.5:
                op = await history.run(process, "transfer", self._transfer(client, rng))
            elif choice < 0.7:
                op = await history.run(process, "conditional transfer", self._conditional(client, rng))
            elif choice < 0.9 or not newest_ts:
                op = await history.run(process, "read", strong_read(client, self.accounts))
            else:
                past_ts = max(oldest_ts, newest_ts - rng.randrange(_PAST_US))
                op = await history.run(process, READ_AT, read_at(client, past_ts, self.accounts))
            newest_ts = max(newest_ts, op.ts or 0)
            oldest_ts = oldest_ts or newest_ts
            await breathe(rng, op, self._pause_us)

    def _transfer(self, client: KvClient, rng: random.Random) -> Callable[[Attempt], Awaitable[int]]:
        source, target = rng.sample(self.accounts, 2)
        amount = rng.randint(1, 10)

        async def body(attempt: Attempt) -> int:
            async def fn(tx: KvTx) -> None:
                attempt.begin()
                values = await tx.read([source, target])
                attempt.read(source, values[0])
                attempt.read(target, values[1])
                for write in self._move(source, target, values, amount):
                    attempt.write(write.key, write.value)
                    tx.write(write.key, write.value)

            return await client.transact(fn)

        return body

    def _conditional(self, client: KvClient, rng: random.Random) -> Callable[[Attempt], Awaitable[int]]:
        source, target = rng.sample(self.accounts, 2)
        amount = rng.randint(1, 10)

        async def body(attempt: Attempt) -> int:
            ts, values = await client.read([source, target])
            attempt.read(source, values[0])
            attempt.read(target, values[1])
            writes = self._move(source, target, values, amount)
            for write in writes:
                attempt.write(write.key, write.value)
            return await client.commit(writes, [Unchanged(source, ts), Unchanged(target, ts)]) if writes else ts

        return body

    def _move(self, source: bytes, target: bytes, values: list[bytes | None], amount: int) -> list[KvWrite]:
        have, had = decode_balance(values[0]), decode_balance(values[1])
        if have < amount:
            return []
        return [KvWrite(source, self._value(have - amount)), KvWrite(target, self._value(had + amount))]

    async def final(self, client: KvClient, history: History) -> Final:
        """Read all accounts."""
        return await read_all(client, history, self.accounts)

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check conservation, external consistency, and every read against a replay."""
        return [
            *check_bank(ops, self.accounts, self.total, final),
            *check_timestamp_order(in_real_time(ops)),
            *check_snapshot_replay(ops),
        ]
