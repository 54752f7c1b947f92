"""Serializable tables: what many tasks read and wrote is what they would have, one after the other.

The order is that of commit timestamps, and of start timestamps for those that wrote nothing. The whole history is done
again in that order in a dictionary; each read, of a cell or of a range, has to find there what it found. Under snapshot
isolation the same worlds show write skew and phantoms.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from f1.orchestrator import LocalLocks, LocalTimestamps, MemoryStore, aio
from f1.orchestrator import driver as drivers
from f1.orchestrator.steps import Step

ROWS = 6
CLIENTS = 5
TRANSACTIONS = 8

State = dict[int, int | None]


@dataclass
class Done:
    """A transaction that committed: when, what it read of which rows after which writes of its own, and its writes."""

    ts: int = 0
    reads: list[tuple[range, State, State]] = field(default_factory=list)
    writes: State = field(default_factory=dict)


async def client(o: aio.Orchestrator, rng: random.Random, history: list[Done]) -> None:
    for _ in range(TRANSACTIONS):
        async with await o.start() as tx:
            done = Done()
            for _ in range(rng.randrange(1, 4)):
                first = rng.randrange(ROWS)
                if rng.random() < 0.5:
                    rows = range(first, first + 1)
                    found: State = {first: await tx.get("t", first, "x")}
                else:
                    rows = range(first, first + rng.randrange(1, ROWS))
                    batch = rng.choice([1, 2, 50])
                    pages = tx.get_range("t", rows.start, rows.stop, batch=batch)
                    found = {row.row: row.columns["x"] async for row in pages}  # type: ignore[misc]
                done.reads.append((rows, found, dict(done.writes)))
                if rng.random() < 0.6:
                    row = rng.randrange(ROWS)
                    done.writes[row] = None if rng.random() < 0.3 else rng.getrandbits(30)
                    if done.writes[row] is None:
                        tx.delete("t", row, "x")
                    else:
                        tx.set("t", row, "x", done.writes[row])
            if await tx.commit():
                done.ts = tx.commit_ts if done.writes else tx.start_ts
                history.append(done)
        if rng.random() < 0.15:
            await o.sweep()


def anomalies(history: list[Done]) -> list[str]:
    found: list[str] = []
    state: State = {}
    for done in sorted(history, key=lambda done: done.ts):
        for rows, seen, own in done.reads:
            now = {**state, **own}
            expected = {row: now[row] for row in rows if now.get(row) is not None}
            if {row: value for row, value in seen.items() if value is not None} != expected:
                found.append(f"at {done.ts} rows {rows.start} to {rows.stop} were {seen}, not {expected}")
        state.update(done.writes)
    return found


def play(seed: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Done]:
    """Let clients work whose steps take turns as the seed has it."""
    rng = random.Random(seed)
    perform = drivers._perform
    history: list[Done] = []

    async def slow(step: Step, around: Any) -> Any:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        answer = await perform(step, around)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        return answer

    async def main() -> None:
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks(), **options)
        await asyncio.gather(*(client(o, rng, history) for _ in range(CLIENTS)))
        await o.close()

    with monkeypatch.context() as patched:
        patched.setattr(drivers, "_perform", slow)
        asyncio.run(main())
    return history


def test_serializable_tables_are_serializable(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = 0
    for seed in range(40):
        history = play(seed, monkeypatch, serializable_tables=["t"])
        assert not anomalies(history), f"seed {seed}"
        commits += len(history)
    assert commits > 40 * CLIENTS * TRANSACTIONS / 4


def test_snapshot_isolation_alone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(anomalies(play(seed, monkeypatch)) for seed in range(40))
