"""The orchestrator as programs use it: primitives, bad input, conflicts, leases, the retry loop and the sweep."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

import f1
from f1.orchestrator import LocalLocks, LocalTimestamps, MemoryStore, Orchestrator, Transaction, aio, cells, protocol
from f1.orchestrator.steps import Version, Write
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.orchestrator.lock_table import Mode, WantedLock


def new(**options: Any) -> Orchestrator:
    return Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks(), **options)


def test_a_transaction_reads_what_it_writes_and_others_when_it_has_committed() -> None:
    o = new()
    tx = o.start()
    tx.set("t", "a", "x", "value1")
    tx.set("t", ("a", 2), "x", {"k": [1, 2.5, None, True, b"\x00"]})
    tx.set("t", 7, "x", 1)
    tx.delete("t", 7, "x")
    assert tx.get("t", "a", "x") == "value1"
    assert tx.get("t", 7, "x") is None
    assert o.start().get("t", "a", "x") is None
    assert tx.commit() is True
    with o.start() as after:
        wanted: list[Any] = [("t", "a", "x"), ("t", "b", "x"), ("t", ("a", 2), "x"), ("t", 7, "x")]
        assert after.get_many(wanted) == ["value1", None, {"k": [1, 2.5, None, True, b"\x00"]}, None]
        assert after.start_ts > tx.commit_ts > tx.start_ts


def test_a_snapshot_stays_and_the_second_writer_is_refused() -> None:
    o = new()
    o.run(lambda tx: tx.set("t", "a", "x", 1))
    first, second = o.start(), o.start()
    first.set("t", "a", "x", first.get("t", "a", "x") + 1)
    second.set("t", "a", "x", second.get("t", "a", "x") + 1)
    assert first.commit()
    assert second.get("t", "a", "x") == 2, "its own write first"
    assert not second.commit()
    assert o.run(lambda tx: tx.get("t", "a", "x")) == 2


@pytest.mark.parametrize("how", ["per commit", "per table"])
def test_conflicts_are_not_looked_for_where_nobody_wants_that(how: str) -> None:
    o = new(unchecked_tables=["t"] if how == "per table" else [])
    first, second = o.start(), o.start()
    first.set("t", "a", "x", 1)
    second.set("t", "a", "x", 2)
    check = how == "per table"
    assert second.commit(check=check) and first.commit(check=check)
    assert o.start().get("t", "a", "x") == 2, "of two that overlap the one that started last"


def skew(o: Orchestrator) -> list[bool]:
    """Two doctors on call; each goes off if the other stays."""

    def on_call(tx: Any) -> None:
        tx.set("t", "alice", "on", 1)
        tx.set("t", "bob", "on", 1)

    o.run(on_call)
    both = [o.start(), o.start()]
    for tx, who in zip(both, ("alice", "bob"), strict=True):
        assert sum(row.columns["on"] for row in tx.get_range("t")) == 2
        tx.set("t", who, "on", 0)
    return [tx.commit() for tx in both]


def test_write_skew_is_possible_under_snapshot_isolation_and_impossible_in_serializable_mode() -> None:
    assert skew(new()) == [True, True]
    assert skew(new(serializable_tables=["t"])) == [True, False]


def test_a_phantom_is_possible_under_snapshot_isolation_and_impossible_in_serializable_mode() -> None:
    for serializable, expected in (([], True), (["t"], False)):
        o = new(serializable_tables=serializable)
        tx = o.start()
        assert list(tx.get_range("t", "a", "m")) == []
        o.run(lambda other: other.set("t", "b", "x", 1))
        tx.set("t", "z", "count", 0)
        assert tx.commit() is expected


def test_a_range_is_in_order_and_holds_own_writes() -> None:
    o = new()

    def fill(tx: Any) -> None:
        for n in range(50):
            tx.set("t", n, "x", n)
            tx.set("t", n, "y", -n)
        tx.set("u", 3, "x", "another table")

    o.run(fill)
    tx = o.start()
    tx.delete("t", 11)
    tx.delete("t", 12, "x")
    tx.set("t", 10, "x", "new")
    tx.set("t", (10, "below"), "x", "a tuple comes after numbers and text")
    tx.set("t", "text", "x", 0)
    for batch in (1, 2, 3, 7, 1000):
        rows = list(tx.get_range("t", 10, 14, batch=batch))
        assert rows == [(10, {"x": "new", "y": -10}), (12, {"y": -12}), (13, {"x": 13, "y": -13})]
        assert [row.row for row in tx.get_range("t", 48, batch=batch)] == [48, 49, "text", (10, "below")]
    assert len(list(tx.get_range("t"))) == 51


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


BAD: dict[str, tuple[Code, Callable[[Any], Any]]] = {
    "a table without a name": (Code.INVALID_ARGUMENT, lambda tx: tx.get("", "a", "x")),
    "a table that is no text": (Code.INVALID_ARGUMENT, lambda tx: tx.set(None, "a", "x", 1)),
    "a row that is no row": (Code.INVALID_ARGUMENT, lambda tx: tx.get("t", 1.5, "x")),
    "a row of truth": (Code.INVALID_ARGUMENT, lambda tx: tx.delete("t", True, "x")),
    "an empty row": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", (), "x", 1)),
    "a number too large for a row": (Code.OUT_OF_RANGE, lambda tx: tx.get("t", 1 << 70, "x")),
    "a column that is no text": (Code.INVALID_ARGUMENT, lambda tx: tx.get("t", "a", 7)),
    "no value": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", None)),
    "a value of a strange type": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", object())),
    "a value that would come back as text": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", Decimal("1.5"))),
    "such a value within others": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", [{"k": date(2012, 1, 1)}])),
    "a mapping with strange keys": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", {(1, 2): 3})),
    "a value nested too deep": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", nested(1000))),
    "a number too large for a value": (Code.INVALID_ARGUMENT, lambda tx: tx.set("t", "a", "x", 1 << 64)),
    "a column too long": (Code.INVALID_ARGUMENT, lambda tx: tx.get("t", "a", "x" * 256)),
    "no list of cells": (Code.INVALID_ARGUMENT, lambda tx: tx.get_many([7])),
    "a value too large": (Code.OUT_OF_RANGE, lambda tx: tx.set("t", "a", "x", b"0" * (17 << 20))),
    "a key too long": (Code.KEY_TOO_LONG, lambda tx: tx.set("t", "a" * 500, "x", 1)),
    "a lone surrogate": (Code.INVALID_ARGUMENT, lambda tx: tx.get("t", "\ud800", "x")),
    "a cell that is none": (Code.INVALID_ARGUMENT, lambda tx: tx.get_many([("t", "a")])),
    "an empty batch": (Code.INVALID_ARGUMENT, lambda tx: list(tx.get_range("t", batch=0))),
    "a range of nothing sensible": (Code.INVALID_ARGUMENT, lambda tx: list(tx.get_range("t", 1.5))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_and_harms_nothing(name: str) -> None:
    code, do = BAD[name]
    o = new()
    tx = o.start()
    tx.set("t", "a", "x", 1)
    with pytest.raises(f1.Error) as caught:
        do(tx)
    assert caught.value.code is code
    assert tx.commit()
    assert o.start().get("t", "a", "x") == 1


def test_a_range_that_ends_before_it_begins_is_empty() -> None:
    assert list(new().start().get_range("t", 5, 3)) == []


def test_an_ended_transaction_is_not_used_again() -> None:
    tx = new().start()
    assert tx.commit()
    tx.abort()
    for do in (
        lambda: tx.get("t", "a", "x"),
        lambda: tx.set("t", "a", "x", 1),
        tx.commit,
        lambda: list(tx.get_range("t")),
    ):
        with pytest.raises(f1.Error) as caught:
            do()
        assert caught.value.code is Code.FAILED_PRECONDITION


def test_contradicting_options_are_refused() -> None:
    with pytest.raises(f1.Error):
        new(unchecked_tables=["t"], serializable_tables=["t"])
    timestamps = LocalTimestamps()
    Orchestrator(MemoryStore(), timestamps, LocalLocks())
    with pytest.raises(f1.Error):
        Orchestrator(MemoryStore(), timestamps, LocalLocks())


def test_run_gives_up_and_says_so() -> None:
    o = new()

    def lose(tx: Any) -> None:
        tx.set("t", "a", "x", 0)
        o.run(lambda other: other.set("t", "a", "x", 1))

    with pytest.raises(f1.TransactionAborted):
        o.run(lose, attempts=3)
    with pytest.raises(ZeroDivisionError):
        o.run(lambda tx: 1 // 0)
    with pytest.raises(f1.Error):
        o.run(lambda tx: None, attempts=0)


# ---------------------------------------------------------------------- leases


class Time:
    """A clock of the lock service that a test moves."""

    def __init__(self) -> None:
        self.us = 1

    def __call__(self) -> int:
        return self.us


def timed(time: Time) -> aio.Orchestrator:
    locks = LocalLocks(lease_ms=1_000_000, tenure_ms=5_000_000, now_us=time)
    return aio.Orchestrator(MemoryStore(), LocalTimestamps(), locks)


async def expect_expired(work: Any) -> None:
    with pytest.raises(F1Error) as caught:
        await work
    assert caught.value.code is Code.TRANSACTION_EXPIRED
    assert caught.value.retryable


def test_a_lapsed_transaction_expires_at_each_primitive() -> None:
    async def main() -> None:
        time = Time()
        o = timed(time)
        one, two, three = [await o.start() for _ in range(3)]
        time.us += 2_000_000_000
        await expect_expired(one.get("t", "a", "x"))
        await expect_expired(anext(two.get_range("t")))
        three.set("t", "a", "x", 1)
        await expect_expired(three.commit())
        async with await o.start() as after:
            assert await after.get("t", "a", "x") is None

    asyncio.run(main())


def test_the_refresher_keeps_a_transaction_up_to_its_tenure_and_stops_with_it() -> None:
    async def main() -> None:
        locks = LocalLocks(lease_ms=60, tenure_ms=3_600_000)
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), locks)
        tx = await o.start()
        (lease,) = tx.leases()
        await asyncio.sleep(0.2)
        if await locks.refresh([lease]) == [True]:  # a machine may be so slow that it lapsed
            assert await tx.get("t", "a", "x") is None
        del tx
        gc.collect()
        while await locks.validate([lease]) != [False]:
            await asyncio.sleep(0.02)
        while o._refresher is not None and not o._refresher.done():
            await asyncio.sleep(0.02)

        short = aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks(lease_ms=20, tenure_ms=60))
        old = await short.start()
        while True:
            try:
                await old.get("t", "a", "x")
            except F1Error as error:
                assert error.code is Code.TRANSACTION_EXPIRED
                break
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_commit_whose_answer_is_lost_has_an_unknown_outcome() -> None:
    class Deaf(MemoryStore):
        async def put_if_absent(self, write: Write) -> bytes:
            await super().put_if_absent(write)
            raise F1Error(Code.UNAVAILABLE, "no answer", ambiguous=True)

    async def main() -> None:
        o = aio.Orchestrator(Deaf(), LocalTimestamps(), LocalLocks())
        tx = await o.start()
        tx.set("t", "a", "x", 1)
        with pytest.raises(F1Error) as caught:
            await tx.commit()
        assert caught.value.code is Code.UNKNOWN_OUTCOME
        assert caught.value.ambiguous
        assert await (await o.start()).get("t", "a", "x") == 1

    asyncio.run(main())


def test_who_waits_for_a_lock_and_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        locks = LocalLocks()
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), locks)
        first, second = await o.start(), await o.start()
        wanted = protocol.transaction_key(second.start_ts)
        token = await locks.acquire([WantedLock(wanted, Mode.WRITE)], None, 1.0)
        second.set("t", "a", "x", 1)
        waiting = asyncio.ensure_future(second.commit())
        while locks._desk.table.counts[1] == 0:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await locks.release([token])
        await first.abort()
        assert locks._desk.table.counts == (0, 0)

    asyncio.run(main())


# ---------------------------------------------------------------------- the sweep


def put_two(n: int, tx: Transaction) -> None:
    tx.set("t", "a", "x", n)
    tx.set("t", n, "x", n)


def put_and_delete(n: int, tx: Transaction) -> None:
    tx.set("t", "a", "x", n + 10)
    tx.delete("t", n, "x")


def test_a_sweep_leaves_what_is_in_sight_and_nothing_of_what_was_deleted() -> None:
    store = MemoryStore()
    o = Orchestrator(store, LocalTimestamps(), LocalLocks())
    for n in range(10):
        o.run(partial(put_two, n))
    reader = o.start()
    for n in range(10):
        o.run(partial(put_and_delete, n))
    o.sweep()
    assert reader.get("t", "a", "x") == 9
    assert len(list(reader.get_range("t"))) == 11
    reader.abort()
    dry = o.sweep(dry_run=True)
    before = len(store._cells)
    assert dry.old_versions >= 20 and dry.deletes == 10 and dry.dry_run
    wet = o.sweep()
    assert (wet.old_versions, wet.deletes) == (dry.old_versions, dry.deletes)
    assert len(store._cells) < before
    assert o.start().get("t", "a", "x") == 19
    assert wet.decisions >= 18
    assert len(store._cells) == 3, "one cell, its writer's decision, the timestamp service's bound"


def test_sweeps_count_what_they_remove() -> None:
    metrics = Metrics()
    o = new(metrics=metrics)
    for n in range(3):
        o.run(partial(put_two, n))
    o.sweep()
    assert metrics.value("f1_orchestrator_swept_total", {"what": "old_versions"}) == 2
    assert metrics.value("f1_orchestrator_commits_total", {"outcome": "committed"}) == 3


# ---------------------------------------------------------------------- several threads and tasks


def test_threads_that_share_a_transaction_take_turns() -> None:
    """A write is either committed or refused, whichever thread commits meanwhile."""
    for n in range(30):
        o = new()
        tx = o.start()
        accepted: list[int] = []
        begun = threading.Barrier(3)

        def write(first: int, tx: Transaction = tx, accepted: list[int] = accepted, begun: Any = begun) -> None:
            begun.wait()
            with contextlib.suppress(f1.Error):
                for row in range(first, first + 200):
                    tx.set("t", row, "x", row)
                    accepted.append(row)

        threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1000)]
        for thread in threads:
            thread.start()
        begun.wait()
        while len(accepted) < n:
            pass
        assert tx.commit()
        for thread in threads:
            thread.join()
        assert sorted(accepted) == [row.row for row in o.start().get_range("t")]


def test_a_commit_is_refused_while_a_task_reads() -> None:
    class Slow(MemoryStore):
        go = asyncio.Event()

        async def get_versions(self, asked: Any) -> Any:
            await self.go.wait()
            return await super().get_versions(asked)

    async def main() -> None:
        store = Slow()
        store.go.set()
        o = aio.Orchestrator(store, LocalTimestamps(), LocalLocks(), serializable_tables=["t"])
        tx = await o.start()
        tx.set("t", "b", "x", 1)
        store.go.clear()
        reading = asyncio.create_task(tx.get("t", "a", "x"))
        await asyncio.sleep(0)
        with pytest.raises(F1Error) as caught:
            await tx.commit()
        assert caught.value.code is Code.FAILED_PRECONDITION
        store.go.set()
        assert await reading is None
        assert await tx.commit()

    asyncio.run(main())


def test_the_same_with_asyncio() -> None:
    async def main() -> None:
        metrics = Metrics()
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks(), metrics=metrics)
        runs = 0

        async def add(tx: aio.Transaction) -> int:
            nonlocal runs
            runs += 1
            found: int = (await tx.get("t", "a", "x") or 0) + 1
            await asyncio.sleep(0)
            tx.set("t", "a", "x", found)
            return found

        assert sorted(await asyncio.gather(*(o.run(add) for _ in range(10)))) == list(range(1, 11))
        assert runs > 10, "some have lost a conflict and have run again"
        assert metrics.value("f1_orchestrator_commits_total", {"outcome": "conflict"}) == runs - 10
        async with await o.start() as tx:
            tx.set("t", "b", "x", 2)
            await tx.delete_row("t", "a")
            assert [row async for row in tx.get_range("t")] == [("b", {"x": 2})]
            await tx.abort()
            await tx.abort()
        assert metrics.value("f1_orchestrator_commits_total", {"outcome": "aborted"}) == 1
        assert await (await o.start()).get("t", "a", "x") == 10
        await o.close()

    asyncio.run(main())


@pytest.mark.parametrize("delete_failed", [True, False])
def test_readers_skip_values_of_the_failed_and_remove_them_if_that_is_wanted(delete_failed: bool) -> None:
    async def main() -> None:
        store = MemoryStore()
        o = aio.Orchestrator(store, LocalTimestamps(), LocalLocks(), delete_failed=delete_failed)
        dead = await o.start()
        key = cells.cell_key("t", "a", "x")
        await store.put([Write(key, dead.start_ts, b"\x07")])  # its client died before it committed
        await dead.abort()
        assert await (await o.start()).get("t", "a", "x") is None
        assert await store.get_versions([(protocol.transaction_key(dead.start_ts), protocol.EVERYTHING)]) == [
            Version(0, protocol.encode_decision(protocol.FAILED))
        ]
        (left,) = await store.get_versions([(key, protocol.EVERYTHING)])
        assert (left is None) is delete_failed
        report = await o.sweep()
        assert (report.failed_values, report.kept_failures) == (0 if delete_failed else 1, 1)
        assert await store.get_versions([(key, protocol.EVERYTHING)]) == [None]

    asyncio.run(main())


def test_neighbouring_transactions_have_their_rows_in_different_shards() -> None:
    shards = {tuples.decode(protocol.transaction_key(ts))[1] for ts in range(1000, 1000 + protocol.SHARDS)}
    assert len(shards) == protocol.SHARDS > 1
    assert all(protocol.transaction_of(protocol.transaction_key(ts)) == ts for ts in (1, 15, 16, 1 << 61))


def test_a_start_that_gets_no_timestamp_holds_no_sweep_back() -> None:
    class Away(LocalTimestamps):
        away = False

        async def next(self) -> int:
            if self.away:
                raise F1Error(Code.UNAVAILABLE, "nobody leads", retryable=True)
            return await super().next()

    async def main() -> None:
        timestamps, locks = Away(), LocalLocks()
        o = aio.Orchestrator(MemoryStore(), timestamps, locks)
        await (await o.start()).abort()
        timestamps.away = True
        with pytest.raises(F1Error):
            await o.start()
        assert await locks.oldest_bound() is None

    asyncio.run(main())


def test_a_process_that_was_idle_leases_a_bound_of_now() -> None:
    async def main() -> None:
        timestamps, locks = LocalTimestamps(), LocalLocks()
        o = aio.Orchestrator(MemoryStore(), timestamps, locks)
        await (await o.start()).abort()
        for _ in range(1000):
            last = await timestamps.next()
        o._last_s -= 3600
        async with await o.start() as tx:
            bound = await locks.oldest_bound()
            assert bound is not None and last < bound < tx.start_ts

    asyncio.run(main())


def test_a_commit_that_is_known_not_to_have_happened_says_what_is_wrong() -> None:
    class Full(MemoryStore):
        async def put_if_absent(self, write: Write) -> bytes:
            raise F1Error(Code.DISK_FULL, "the store is full")

    async def main() -> None:
        o = aio.Orchestrator(Full(), LocalTimestamps(), LocalLocks())
        tx = await o.start()
        tx.set("t", "a", "x", 1)
        with pytest.raises(F1Error) as caught:
            await tx.commit()
        assert (caught.value.code, caught.value.ambiguous) == (Code.DISK_FULL, False)

    asyncio.run(main())


def test_a_commit_that_is_decided_does_not_wait_for_a_lock_service_that_is_away() -> None:
    class Gone(LocalLocks):
        async def release(self, tokens: Any) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), Gone())
        async with asyncio.timeout(100):
            async with await o.start() as tx:
                tx.set("t", "a", "x", 1)
                assert await tx.commit()
            async with await o.start() as tx:
                assert await tx.get("t", "a", "x") == 1

    asyncio.run(main())
