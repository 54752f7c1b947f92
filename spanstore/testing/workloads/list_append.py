"""Transactions that read and append to lists, whose history shows every anomaly (Elle)."""

import random
from collections.abc import Awaitable, Callable, Sequence

from spanstore.testing.checkers import (
    Violation,
    check_list_append,
    check_snapshot_replay,
    check_timestamp_order,
)
from spanstore.testing.checkers.list_append import decode_list, encode_list
from spanstore.testing.history import Attempt, History, Op
from spanstore.testing.workloads.base import (
    READ_AT,
    Final,
    KvClient,
    KvTx,
    breathe,
    in_real_time,
    read_all,
    strong_read,
)


class ListAppendWorkload:
    """Reads and appends over a window of lists.

    A list lives under one of ``slots`` (keys, which should lie in several groups) and a generation: after
    ``appends_per_list`` appends a slot gets a new list, so that values stay short.
    """

    def __init__(self, slots: Sequence[bytes], *, appends_per_list: int = 40, pause_us: int = 2_000) -> None:
        self._slots = sorted(slots)
        self._appends_per_list = appends_per_list
        self._pause_us = pause_us
        self._elements = 0
        self._appends = dict.fromkeys(self._slots, 0)

    def _list(self, slot: bytes) -> bytes:
        """Return the key of the present list of a slot."""
        return b"%s/%d" % (slot, self._appends[slot] // self._appends_per_list)

    async def setup(self, client: KvClient, history: History) -> None:
        """Lists begin absent."""

    async def client_loop(
        self,
        process: int,
        client: KvClient,
        rng: random.Random,
        history: History,
        until: Callable[[], bool],
    ) -> None:
        """Read and append."""
        while not until():
            if rng.random() < 0.35:
                slots = rng.sample(self._slots, rng.randint(1, len(self._slots)))
                op = await history.run(process, "read", strong_read(client, [self._list(slot) for slot in slots]))
            else:
                op = await history.run(process, "append", self._append(client, rng))
            await breathe(rng, op, self._pause_us)

    def _append(self, client: KvClient, rng: random.Random) -> Callable[[Attempt], Awaitable[int]]:
        steps: list[tuple[bytes, int | None]] = []
        for _ in range(rng.randint(1, 4)):
            slot = rng.choice(self._slots)
            element = None
            key = self._list(slot)
            if not steps or rng.random() < 0.5:
                self._elements += 1
                self._appends[slot] += 1
                element = self._elements
            steps.append((key, element))

        async def body(attempt: Attempt) -> int:
            async def fn(tx: KvTx) -> None:
                attempt.begin()
                for key, element in steps:
                    (value,) = await tx.read([key])
                    attempt.read(key, value)
                    if element is not None:
                        value = encode_list([*decode_list(value), element])
                        attempt.write(key, value)
                        tx.write(key, value)

            return await client.transact(fn)

        return body

    def _all_lists(self) -> list[bytes]:
        return [
            b"%s/%d" % (slot, generation)
            for slot in self._slots
            for generation in range(self._appends[slot] // self._appends_per_list + 1)
        ]

    async def final(self, client: KvClient, history: History) -> Final:
        """Read all lists there ever were."""
        return await read_all(client, history, self._all_lists())

    def check(self, ops: Sequence[Op], final: Final) -> list[Violation]:
        """Check strict serializability, external consistency, and every read against a replay."""
        return [
            *check_list_append([op for op in ops if op.kind != READ_AT]),
            *check_timestamp_order(in_real_time(ops)),
            *check_snapshot_replay(ops),
        ]
