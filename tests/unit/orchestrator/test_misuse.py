"""What programs get wrong around transactions: each is refused with a reason, nothing hangs or is lost."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import f1
from f1.orchestrator import (
    LmdbStore,
    LocalLocks,
    LocalTimestamps,
    Locks,
    MemoryStore,
    Orchestrator,
    SpanStore,
    Timestamps,
    aio,
    protocol,
)
from f1.runtime import runtime
from f1common.errors import Code, F1Error
from tests.unit.orchestrator.test_bank import example


def new(**options: Any) -> Orchestrator:
    return Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks(), **options)


async def of_asyncio(_: object) -> None:
    raise AssertionError("nobody awaits this")


BAD: dict[str, Callable[[], Any]] = {
    "a batch that is no number": lambda: list(new().start().get_range("t", batch="x")),  # type: ignore[arg-type]
    "a batch of half a cell": lambda: list(new().start().get_range("t", batch=1.5)),  # type: ignore[arg-type]
    "attempts that are no number": lambda: new().run(lambda tx: None, attempts=None),  # type: ignore[arg-type]
    "cells that are no list": lambda: new().start().get_many(None),  # type: ignore[arg-type]
    "a text for tables": lambda: new(serializable_tables="audit"),
    "a text for unchecked tables": lambda: new(unchecked_tables="audit"),
    "nothing for tables": lambda: new(serializable_tables=None),
    "a time that is none": lambda: new(timeout_s=float("nan")),
    "a time below 0": lambda: new(timeout_s=-1),
    "a time without an end": lambda: new(timeout_s=float("inf")),
    "no store": lambda: Orchestrator(None, LocalTimestamps(), LocalLocks()),  # type: ignore[arg-type]
    "the class of a store": lambda: Orchestrator(MemoryStore, LocalTimestamps(), LocalLocks()),  # type: ignore[arg-type]
    "services the wrong way round": lambda: Orchestrator(MemoryStore(), LocalLocks(), LocalTimestamps()),  # type: ignore[arg-type]
    "a lease of no time": lambda: LocalLocks(lease_ms=0),
    "a lease longer than its tenure": lambda: LocalLocks(lease_ms=2, tenure_ms=1),
    "a store nowhere": lambda: SpanStore(None),  # type: ignore[arg-type]
    "timestamps without a port": lambda: Timestamps("localhost"),
    "a list of addresses": lambda: Timestamps(["localhost:1"]),  # type: ignore[arg-type]
    "two lock services": lambda: Locks("localhost:1,localhost:2"),
    "no folder": lambda: LmdbStore(None),  # type: ignore[arg-type]
    "a store of no bytes": lambda: LmdbStore("never made", map_bytes=0),
    "a coroutine function without asyncio": lambda: new().run(of_asyncio),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_refused(name: str) -> None:
    with pytest.raises(f1.Error) as caught:
        BAD[name]()
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_cells_may_come_from_a_generator_that_reads() -> None:
    o = new()

    def fill(tx: Any) -> None:
        for n in range(5):
            tx.set("t", n, "x", n)

    o.run(fill)
    tx = o.start()
    assert tx.get_many(("t", row.row, "x") for row in tx.get_range("t", batch=2)) == [0, 1, 2, 3, 4]


def test_a_call_within_another_one_is_refused_instead_of_waiting_for_itself() -> None:
    async def call() -> None:
        with pytest.raises(f1.Error) as caught:
            new().start()
        assert caught.value.code is Code.FAILED_PRECONDITION

    runtime().call(call())


def test_a_closed_orchestrator_is_not_used_again() -> None:
    o = new()
    tx = o.start()
    tx.set("t", "a", "x", 1)
    o.close()
    o.close()
    for do in (o.start, o.sweep, lambda: o.run(lambda tx: None)):
        with pytest.raises(f1.Error) as caught:
            do()
        assert caught.value.code is Code.FAILED_PRECONDITION


def test_orchestrators_of_one_store_have_the_same_twins(tmp_path: Path) -> None:
    store, timestamps, locks = MemoryStore(), LocalTimestamps(), LocalLocks()
    first, second = Orchestrator(store, timestamps, locks), Orchestrator(store, timestamps, locks)
    first.run(lambda tx: tx.set("t", "a", "x", 1))
    assert second.run(lambda tx: tx.get("t", "a", "x")) == 1
    others: list[tuple[Any, Any]] = [(LocalTimestamps(), locks), (timestamps, LocalLocks()), (Timestamps("h:1"), locks)]
    for services in others:
        with pytest.raises(f1.Error) as caught:
            Orchestrator(store, *services)
        assert caught.value.code is Code.FAILED_PRECONDITION
    first.close()
    del second
    Orchestrator(store, LocalTimestamps(), LocalLocks()).close()

    half: list[tuple[Any, Any]] = [(LocalTimestamps(), Locks("h:1")), (Timestamps("h:1"), LocalLocks())]
    for shared in (LmdbStore(tmp_path / "shared", shared=True), SpanStore("h:1")):
        for services in half:
            with pytest.raises(f1.Error) as caught:
                Orchestrator(shared, *services)
            assert caught.value.code is Code.INVALID_ARGUMENT


def test_local_timestamps_do_not_begin_anew_where_others_were_given_out() -> None:
    class Service(LocalTimestamps):
        """A timestamp service that keeps its bound elsewhere."""

        last = 1_000_000

        async def next(self) -> int:
            self.last += 1
            return self.last

    store = MemoryStore()
    Orchestrator(store, Service(), LocalLocks()).run(lambda tx: tx.set("t", "a", "x", 1))
    with pytest.raises(f1.Error, match="another timestamp service has given out"):
        Orchestrator(store, LocalTimestamps(), LocalLocks()).start()


def test_a_service_that_is_none_is_named() -> None:
    """One that answers, but not as the service does that was looked for."""

    async def main() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        address = f"127.0.0.1:{port}"
        timestamps, locks = Timestamps(address), Locks(address)
        for work in (timestamps.next(), locks.oldest_bound(), locks.acquire([], 1, 1.0)):
            with pytest.raises(F1Error, match=f"at {address} does not answer as one does"):
                await work
        await timestamps.close()
        await locks.close()
        await server.stop(None)

    asyncio.run(main())


def test_errors_are_those_of_the_library_with_asyncio_too() -> None:
    async def main() -> None:
        o = aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks())
        with pytest.raises(f1.Error):
            aio.Orchestrator(MemoryStore(), LocalTimestamps(), LocalLocks(), timeout_s=-1)
        tx = await o.start()
        with pytest.raises(f1.DataError):
            await tx.get("t", "a" * 500, "x")
        with pytest.raises(f1.ProgrammingError):
            tx.set("t", "a", "x", None)
        with pytest.raises(f1.ProgrammingError):
            tx.delete("t", "a", "")
        with pytest.raises(f1.ProgrammingError):
            await anext(tx.get_range(""))
        await tx.abort()
        for work in (tx.commit(), tx.delete_row("t", "a"), anext(tx.get_range("t"))):
            with pytest.raises(f1.Error):
                await work

        async def lose(tx: aio.Transaction) -> None:
            tx.set("t", "a", "x", 0)
            async with await o.start() as other:
                other.set("t", "a", "x", 1)
                assert await other.commit()

        with pytest.raises(f1.TransactionAborted):
            await o.run(lose, attempts=2)
        await o.close()

    asyncio.run(main())


def test_a_transaction_of_too_many_rows_says_how_many_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_LOCKS", 4)
    o = new()

    def write(rows: int, check: bool = True) -> bool:
        with o.start() as tx:
            for row in range(rows):
                tx.set("t", row, "x", row)
            return tx.commit(check=check)

    assert write(3)
    with pytest.raises(f1.DataError, match=r"up to 3 rows .*, not 4: write them in several"):
        write(4)
    assert write(4, check=False)
    assert len(list(o.start().get_range("t"))) == 4


def test_a_range_waits_once_for_each_batch_and_not_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    o = new()

    def fill(tx: Any) -> None:
        for n in range(100):
            tx.set("t", n, "x", n)

    o.run(fill)
    tx = o.start()
    calls = 0
    call = runtime().call

    def counted(work: Any) -> Any:
        nonlocal calls
        calls += 1
        return call(work)

    monkeypatch.setattr(runtime(), "call", counted)
    assert [row.row for row in tx.get_range("t", batch=20)] == list(range(100))
    assert calls <= 8


def test_a_program_that_closes_nothing_ends_without_complaints() -> None:
    found = subprocess.run([sys.executable, "-X", "dev", "-c", example()], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("{'Alice': 12, 'Bob': 3} True\n", "")
