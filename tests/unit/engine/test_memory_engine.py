"""The simulator's disk: what a crash takes, what a fault does, and that nothing piles up."""

import asyncio
from collections.abc import Awaitable, Coroutine

import pytest

from f1common.errors import Code
from spanstore.engine.base import EngineFailed, WriteBatch
from spanstore.engine.memory import MemoryEngine


def run(coroutine: Coroutine[object, object, None]) -> None:
    asyncio.run(coroutine)


def batch(key: str, value: str) -> WriteBatch:
    made = WriteBatch()
    made.put(key.encode(), value.encode())
    return made


class Gate:
    """A disk whose syncs end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.waiting: list[asyncio.Future[None]] = []

    def sleep(self, delay_s: float) -> Awaitable[None]:
        self.asked.append(delay_s)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return future

    async def open(self) -> None:
        self.waiting.pop(0).set_result(None)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def read(engine: MemoryEngine, key: str) -> bytes | None:
    with engine.snapshot() as reader:
        return reader.get(key.encode())


def test_a_commit_is_neither_visible_nor_done_before_its_sync() -> None:
    async def body() -> None:
        gate = Gate()
        engine = MemoryEngine(sleep=gate.sleep, latency=lambda: 0.25)
        task = asyncio.ensure_future(engine.commit(batch("a", "1")))
        await settle()
        assert (task.done(), read(engine, "a"), gate.asked) == (False, None, [0.25])
        await gate.open()
        assert (task.done(), read(engine, "a")) == (True, b"1")

    run(body())


def test_commits_that_queue_up_share_the_next_sync() -> None:
    async def body() -> None:
        gate = Gate()
        engine = MemoryEngine(sleep=gate.sleep)
        tasks = [asyncio.ensure_future(engine.commit(batch("a", str(i)))) for i in range(1)]
        await settle()
        tasks += [asyncio.ensure_future(engine.commit(batch("a", str(i)))) for i in range(1, 5)]
        await settle()
        await gate.open()
        assert [task.done() for task in tasks] == [True, False, False, False, False]
        await gate.open()
        assert all(task.done() for task in tasks)
        assert read(engine, "a") == b"4"

    run(body())


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_crash_keeps_a_prefix_of_the_unsynced_commits(keep: int) -> None:
    async def body() -> None:
        gate = Gate()
        engine = MemoryEngine(sleep=gate.sleep)
        first = asyncio.ensure_future(engine.commit(batch("a", "0")))
        await settle()
        await gate.open()
        await first
        tasks = [asyncio.ensure_future(engine.commit(batch("a", str(i)))) for i in (1, 2)]
        await settle()
        engine.crash(keep_pending=keep)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, EngineFailed)
        with pytest.raises(EngineFailed):
            engine.snapshot()
        engine.restart()
        assert read(engine, "a") == str(keep).encode()

    run(body())


def test_the_old_incarnation_neither_reads_nor_writes_after_a_crash() -> None:
    async def body() -> None:
        gate = Gate()
        engine = MemoryEngine(sleep=gate.sleep)
        before = engine.incarnation
        reader = engine.snapshot()
        task = asyncio.ensure_future(engine.commit(batch("a", "old")))
        await settle()
        engine.crash()
        engine.restart()
        assert engine.incarnation > before
        with pytest.raises(EngineFailed):
            reader.get(b"a")
        reader.close()
        fresh = asyncio.ensure_future(engine.commit(batch("b", "new")))
        await settle()
        await gate.open() if not gate.waiting[0].cancelled() else gate.waiting.pop(0)
        await gate.open()
        await fresh
        assert isinstance(task.exception(), EngineFailed)
        assert (read(engine, "a"), read(engine, "b")) == (None, b"new")

    run(body())


@pytest.mark.parametrize("kept", [False, True])
def test_a_failed_sync_ends_the_incarnation_and_may_have_kept_the_commit(kept: bool) -> None:
    async def body() -> None:
        engine = MemoryEngine()
        await engine.commit(batch("a", "1"))
        engine.fail_next_commit(Code.UNAVAILABLE, kept=kept)
        with pytest.raises(EngineFailed) as raised:
            await engine.commit(batch("a", "2"))
        assert raised.value.code is Code.UNAVAILABLE
        with pytest.raises(EngineFailed):
            await engine.commit(batch("a", "3"))
        engine.restart()
        assert read(engine, "a") == (b"2" if kept else b"1")
        await engine.commit(batch("a", "4"))
        assert read(engine, "a") == b"4"

    run(body())


def test_a_full_disk_refuses_until_there_is_room() -> None:
    async def body() -> None:
        engine = MemoryEngine()
        await engine.commit(batch("a", "1"))
        engine.disk_full = True
        for _ in range(2):
            with pytest.raises(EngineFailed) as raised:
                await engine.commit(batch("a", "2"))
            assert raised.value.code is Code.DISK_FULL
            engine.restart()
        engine.disk_full = False
        await engine.commit(batch("b", "3"))
        assert (read(engine, "a"), read(engine, "b")) == (b"1", b"3")

    run(body())


def test_the_mutation_acknowledges_and_shows_what_a_crash_then_takes() -> None:
    async def body() -> None:
        gate = Gate()
        engine = MemoryEngine(sleep=gate.sleep, ack_before_sync=True)
        await engine.commit(batch("a", "1"))
        await settle()
        await gate.open()
        await engine.commit(batch("a", "2"))
        await engine.commit(batch("b", "2"))
        assert (read(engine, "a"), read(engine, "b")) == (b"2", b"2")
        engine.crash()
        engine.restart()
        assert (read(engine, "a"), read(engine, "b")) == (b"1", None)

    run(body())


def test_values_that_nobody_can_see_are_dropped() -> None:
    async def body() -> None:
        engine = MemoryEngine()
        reader = engine.snapshot()
        for i in range(100):
            await engine.commit(batch(f"k{i % 10}", str(i)))
        gone = WriteBatch()
        gone.delete_range(b"k0", b"k5")
        await engine.commit(gone)
        assert list(reader.scan(b"", b"z")) == []
        assert engine.info()["entries"] == 10
        reader.close()
        await engine.commit(batch("z", ""))
        assert engine.info()["entries"] == 6

    run(body())


def test_the_mutation_keeps_what_was_synced_below_what_was_not() -> None:
    async def body() -> None:
        gate = Gate()
        engine = MemoryEngine(sleep=gate.sleep, ack_before_sync=True)
        await engine.commit(batch("a", "synced"))
        await settle()
        await engine.commit(batch("a", "not synced"))
        await gate.open()
        assert read(engine, "a") == b"not synced"
        engine.crash()
        engine.restart()
        assert read(engine, "a") == b"synced"

    run(body())
