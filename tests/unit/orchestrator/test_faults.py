"""A transaction whose surroundings fail, or whose task is cancelled, at each of its steps."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import f1
from f1.orchestrator import LmdbStore, LocalLocks, LocalTimestamps, MemoryStore, aio, cells, protocol, sweeping
from f1.orchestrator import driver as drivers
from f1.orchestrator.steps import Step, Write
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics

X = cells.cell_key("t", "a", "x")
Before = Callable[[Step], Awaitable[None]]


class Stage:
    """An orchestrator over memory, whose steps a test may meddle with before they are performed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.store, self.locks, self.metrics = MemoryStore(), LocalLocks(), Metrics()
        self.o = aio.Orchestrator(self.store, LocalTimestamps(), self.locks, metrics=self.metrics, **options)
        self.steps: list[str] = []
        self.before: Before | None = None
        perform = drivers._perform

        async def meddled(step: Step, around: Any) -> Any:
            self.steps.append(type(step).__name__)
            if self.before is not None:
                await self.before(step)
            return await perform(step, around)

        monkeypatch.setattr(drivers, "_perform", meddled)

    async def fill(self) -> None:
        async def both(tx: aio.Transaction) -> None:
            tx.set("t", "a", "x", 1)
            tx.set("t", "b", "x", 1)

        await self.o.run(both)

    async def values(self) -> list[Any]:
        self.before = None
        async with await self.o.start() as tx:
            return await tx.get_many([("t", "a", "x"), ("t", "b", "x")])

    def outcomes(self) -> dict[str, float]:
        names = ("committed", "conflict", "failed", "unknown")
        counts = {n: self.metrics.value("f1_orchestrator_commits_total", {"outcome": n}) for n in names}
        return {name: count for name, count in counts.items() if count}

    async def leave_values(self) -> int:
        """Write values of a client that died before it committed; return its start timestamp."""
        dead = await self.o.start()
        await self.store.put([Write(X, dead.start_ts, b"\x07")])
        await dead.abort()
        return dead.start_ts


def at(count: int, do: Callable[[], Awaitable[None]]) -> Before:
    """Do something before a step, the ``count``-th from now on."""
    seen = 0

    async def before(_: Step) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            await do()

    return before


@pytest.mark.parametrize("serializable", [False, True])
def test_a_commit_that_is_cancelled_at_any_step_is_whole_or_not_there(
    serializable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one(step: int) -> str | None:
        stage = Stage(monkeypatch, serializable_tables=["t"] if serializable else [])
        await stage.fill()
        tx = await stage.o.start()
        assert [row.row async for row in tx.get_range("t")] == ["a", "b"]
        tx.set("t", "a", "x", 2)
        tx.set("t", "b", "x", 2)
        reached = asyncio.Event()

        async def stand_still() -> None:
            reached.set()
            await asyncio.Event().wait()

        stage.before = at(step, stand_still)
        committing, reaching = asyncio.create_task(tx.commit()), asyncio.create_task(reached.wait())
        await asyncio.wait((committing, reaching), return_when=asyncio.FIRST_COMPLETED)
        reaching.cancel()
        if not reached.is_set():
            assert await committing
            return None
        name = stage.steps[-1]
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        assert stage.locks._desk.table.counts == (0, 0), f"leases are left at {name}"
        found = await stage.values()
        assert found in ([1, 1], [2, 2])
        expected = {"PutIfAbsent": "unknown"}.get(name, "failed" if found == [1, 1] else "committed")
        outcomes = stage.outcomes()
        outcomes["committed"] -= 1  # the one that filled it
        assert {name for name, count in outcomes.items() if count} == {expected}, name
        assert (tx.commit_ts > 0) is (expected == "committed")
        return name

    async def main() -> list[str]:
        names: list[str] = []
        while (name := await one(len(names) + 1)) is not None:
            names.append(name)
        return names

    names = asyncio.run(main())
    assert {"Acquire", "Put", "Validate", "NextTimestamp", "PutIfAbsent", "Release"} <= set(names)


@pytest.mark.parametrize("serializable", [False, True])
def test_only_the_decision_of_a_commit_can_be_in_doubt(serializable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else fails in doubt, the transaction has left nothing that anybody sees, and `run` runs it again."""

    async def one(step: int) -> str | None:
        stage = Stage(monkeypatch, serializable_tables=["t"] if serializable else [])
        await stage.fill()
        dead = await stage.leave_values()

        async def break_off() -> None:
            if stage.steps[-1] != "Release":  # one that fails is none: leases lapse
                raise F1Error(Code.UNAVAILABLE, "no answer", ambiguous=True)

        async def add(tx: aio.Transaction) -> None:
            tx.set("t", "a", "x", await tx.get("t", "a", "x") + 1)

        stage.steps.clear()
        stage.before = at(step, break_off)
        decides = 0
        try:
            await stage.o.run(add)
        except f1.UnknownOutcome:
            decides = 1
        if len(stage.steps) < step:
            return None
        name = stage.steps[step - 1]
        done = "Put" in stage.steps[:step]
        assert decides == (name == "PutIfAbsent" and done), f"{name} after {stage.steps[:step]}"
        assert (await stage.values())[0] == 2 - decides
        (row,) = await stage.store.get_versions([(protocol.transaction_key(dead), protocol.EVERYTHING)])
        assert row is not None and protocol.decode_decision(row.value) == protocol.FAILED
        return name

    async def main() -> set[str]:
        names: list[str] = []
        while (name := await one(len(names) + 1)) is not None:
            names.append(name)
        return set(names)

    assert {"GetVersions", "Acquire", "Put", "PutIfAbsent", "Delete"} <= asyncio.run(main())


class Keeping(MemoryStore):
    """Removes nothing, as a store that is full or may not be written to."""

    async def delete(self, versions: Sequence[tuple[bytes, int]]) -> None:
        raise F1Error(Code.DISK_FULL, "the store is full")


def test_values_that_cannot_be_removed_are_in_nobodys_way() -> None:
    async def main() -> None:
        store = Keeping()
        o = aio.Orchestrator(store, LocalTimestamps(), LocalLocks(), serializable_tables=["t"])
        dead = await o.start()
        await store.put([Write(X, dead.start_ts, b"\x07")])
        await dead.abort()
        async with await o.start() as tx:
            assert await tx.get("t", "a", "x") is None
            assert [row async for row in tx.get_range("t")] == []
            tx.set("t", "b", "x", 1)
            async with await o.start() as other:
                other.set("t", "a", "x", 1)
                assert await other.commit()
            assert not await tx.commit(), "that it has lost is known, whether its values can be removed or not"
        async with await o.start() as tx:
            assert await tx.get_many([("t", "a", "x"), ("t", "b", "x")]) == [1, None]

    asyncio.run(main())


def test_a_write_that_nobody_expected_to_fail_does_not_end_the_thread_of_a_store(tmp_path: Path) -> None:
    async def main() -> None:
        store = LmdbStore(tmp_path / "store")
        with pytest.raises(F1Error) as caught:
            await store.put([Write(b"k", protocol.EVERYTHING + 1, b"a timestamp that there is not")])
        assert caught.value.code is Code.INTERNAL
        await store.put([Write(b"k", 1, b"v")])
        assert (await store.get_versions([(b"k", 2)])) != [None]
        await store.close()

    asyncio.run(main())


def test_a_dry_run_reports_what_a_sweep_then_does() -> None:
    async def main() -> None:
        store = MemoryStore()
        o = aio.Orchestrator(store, LocalTimestamps(), LocalLocks())
        dead = await o.start()
        keys = [cells.cell_key("t", n, "x") for n in range(10)]
        await store.put([Write(key, dead.start_ts, b"\x07") for key in keys])
        await dead.abort()

        async def write(tx: aio.Transaction) -> None:
            tx.set("t", "a", "x", 1)
            tx.delete("t", "b", "x")

        for _ in range(3):
            await o.run(write)
        reports = [
            await drivers.drive(sweeping.sweep({}, dry_run=dry_run, page=3), o.around) for dry_run in (True, False)
        ]
        for report in reports:
            report.horizon, report.dry_run = 0, False
        assert reports[0] == reports[1]
        assert (reports[1].failed_now, reports[1].kept_failures, reports[1].failed_values) == (1, 1, 10)

    asyncio.run(main())


def test_the_refresher_outlives_an_answer_that_nobody_expected() -> None:
    class Odd(LocalLocks):
        refreshed = 0

        async def refresh(self, tokens: Any) -> list[bool]:
            self.refreshed += 1
            if self.refreshed == 1:
                raise ValueError("an answer that cannot be read")
            return await super().refresh(tokens)

    async def main() -> None:
        locks = Odd(lease_ms=60)
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), locks)
        tx = await o.start()
        refresher = o._refresher
        while locks.refreshed < 3:
            await asyncio.sleep(0.01)
            assert refresher is not None and not refresher.done()
        await tx.abort()
        await o.close()

    asyncio.run(main())


def test_a_task_of_many_transactions_in_memory_lets_others_have_their_turns() -> None:
    async def main() -> None:
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks())
        done = [0, 0]

        async def work(number: int) -> None:
            for row in range(20):

                async def write(tx: aio.Transaction, row: int = row) -> None:
                    tx.set("t", (number, row), "x", row)

                await o.run(write)
                done[number] += 1
                assert abs(done[0] - done[1]) <= 1

        await asyncio.gather(work(0), work(1))
        await o.close()

    asyncio.run(main())
