"""The server's side of the scan processes: real ones, over an environment without a spanserver."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from f1common.errors import Code, F1Error
from spanstore.engine.base import WriteBatch
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.mvcc.versions import put_version
from spanstore.scan import pool as pools
from spanstore.scan.frames import Cancel, Chunk, Credit, ToWorker
from spanstore.scan.pool import PooledScan, ScanPool, _Worker
from spanstore.scan.source import Run
from tests.unit.scan.store import GROUP, key, plan

MAP_BYTES = 1 << 26
ROWS = 100


def with_pool(path: Path, test: Callable[[ScanPool, LmdbEngine], Awaitable[None]], processes: int = 1) -> None:
    """Run ``test`` with a pool over an engine with a hundred rows."""

    async def run() -> None:
        engine = LmdbEngine.open(path, cluster="c", server="s", map_bytes=MAP_BYTES)
        batch = WriteBatch()
        for i in range(ROWS):
            put_version(batch, GROUP, key(i), 10, b"x" * 100)
        await engine.commit(batch)
        pool = ScanPool(path, processes=processes, map_bytes=MAP_BYTES, reader_check=engine.reader_check)
        try:
            async with asyncio.timeout(60):
                await test(pool, engine)
        finally:
            pids = pool.pids()
            await pool.close()
            await engine.close()
        assert not any(map(exists, pids))

    asyncio.run(run())


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """Whether a process that is nobody's child here is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def share_of_session(pid: int) -> str:
    """Return the priority of a process's session; nothing where the kernel has no such thing."""
    said = Path(f"/proc/{pid}/autogroup")
    return said.read_text().split()[-1] if said.exists() else ""


async def all_of(run: Run) -> list[Chunk]:
    chunks = [await run.next()]
    while not chunks[-1].last:
        chunks.append(await run.next())
    run.close()
    return chunks


def test_scans_are_dealt_to_processes_which_start_when_they_are_needed(tmp_path: Path) -> None:
    async def test(pool: ScanPool, engine: LmdbEngine) -> None:
        assert pool.pids() == []
        chunks = await all_of(await pool.open(plan(batch_rows=30)))
        assert [chunk.rows for chunk in chunks] == [0, 30, 30, 30, 10]
        assert pa.ipc.read_schema(pa.py_buffer(chunks[0].ipc)).names == ["key", "ts", "value"]
        assert len(pool.pids()) == 1
        # One is idle: it takes the next. Both busy: nobody starts a third.
        runs = [await pool.open(plan(batch_rows=1))]
        assert len(pool.pids()) == 1
        runs += [await pool.open(plan(batch_rows=1)) for _ in range(3)]
        assert len(pool.pids()) == 2
        assert [len(worker.scans) for worker in pool._workers] == [2, 2]
        assert [len(chunks) for chunks in await asyncio.gather(*map(all_of, runs))] == [ROWS + 2] * 4
        assert [len(worker.scans) for worker in pool._workers] == [0, 0]

    with_pool(tmp_path, test, processes=2)


def test_what_nobody_waits_for_has_a_process_of_its_own_that_gives_way(tmp_path: Path) -> None:
    async def test(pool: ScanPool, engine: LmdbEngine) -> None:
        for _ in range(2):
            await all_of(await pool.open(plan(background=True)))
        (idle,) = pool.pids()
        runs = [await pool.open(plan(background=True, batch_rows=1)) for _ in range(2)]
        assert len(await all_of(await pool.open(plan()))) > 1
        assert [len(worker.scans) for worker in pool._workers] == [2, 0]
        (users,) = set(pool.pids()) - {idle}
        assert os.sched_getscheduler(idle) == os.SCHED_IDLE
        assert os.sched_getscheduler(users) == os.SCHED_OTHER
        assert os.getpriority(os.PRIO_PROCESS, idle) > os.getpriority(os.PRIO_PROCESS, users)
        # Not the lowest: what has to end does so on a machine that is always busy, too.
        assert share_of_session(idle) in ("5", "")
        await asyncio.gather(*map(all_of, runs))

    with_pool(tmp_path, test)


def test_a_process_that_dies_fails_its_scans_and_is_replaced(tmp_path: Path) -> None:
    async def test(pool: ScanPool, engine: LmdbEngine) -> None:
        runs = [await pool.open(plan(batch_rows=1)) for _ in range(2)]
        for run in runs:
            assert (await run.next()).rows == 0
        (pid,) = pool.pids()
        os.kill(pid, signal.SIGKILL)
        for run in runs:
            with pytest.raises(F1Error) as caught:
                await all_of(run)
            assert caught.value.code is Code.UNAVAILABLE
            assert caught.value.retryable
            run.close()
        assert len(await all_of(await pool.open(plan()))) > 1
        (other,) = pool.pids()
        assert other != pid

    with_pool(tmp_path, test)


def test_a_process_that_stands_still_fails_its_scans_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "CHECK_S", 0.1)
    monkeypatch.setattr(pools, "STILL_S", 0.5)

    async def test(pool: ScanPool, engine: LmdbEngine) -> None:
        run = await pool.open(plan(batch_rows=1))
        await run.next()
        (pid,) = pool.pids()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(F1Error) as caught:
            await all_of(run)
        assert caught.value.code is Code.UNAVAILABLE and caught.value.retryable
        run.close()
        assert len(await all_of(await pool.open(plan()))) > 1
        assert pid not in pool.pids()

    with_pool(tmp_path, test)


def test_a_process_that_waits_for_a_slow_reader_does_not_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "CHECK_S", 0.05)
    monkeypatch.setattr(pools, "STILL_S", 0.5)

    async def test(pool: ScanPool, engine: LmdbEngine) -> None:
        slow = await pool.open(plan(batch_rows=1))
        chunks = [await slow.next()]
        while slow.arrived.qsize() < 3:
            await asyncio.sleep(0.01)
        (worker,) = pool._workers
        await asyncio.sleep(1.5)
        assert not worker.suspected
        chunks += await all_of(slow)
        assert len(chunks) == ROWS + 2
        # What has ended is owed nothing, also while nobody takes its end.
        done = await pool.open(plan(batch_rows=40))
        while done.arrived.qsize() < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)
        assert not worker.suspected
        for _ in range(2):
            await done.next()
        await asyncio.sleep(1.5)
        assert pool._workers == [worker] and not worker.suspected
        await all_of(done)
        await asyncio.sleep(1.0)  # with nothing to do
        assert pool._workers == [worker] and not worker.suspected

    with_pool(tmp_path, test)


def test_a_process_that_cannot_start_is_not_started_again_and_again(tmp_path: Path) -> None:
    async def run() -> None:
        pool = ScanPool(tmp_path / "nothing", processes=1, map_bytes=MAP_BYTES, reader_check=lambda: 0)
        scan = await pool.open(plan())
        with pytest.raises(F1Error) as died:
            await scan.next()
        assert died.value.code is Code.UNAVAILABLE
        with pytest.raises(F1Error, match="could not start") as refused:
            await pool.open(plan())
        assert refused.value.code is Code.UNAVAILABLE
        await pool.close()
        with pytest.raises(F1Error, match="shutting down"):
            await pool.open(plan())

    asyncio.run(run())


def test_closing_the_pool_fails_what_runs(tmp_path: Path) -> None:
    async def test(pool: ScanPool, engine: LmdbEngine) -> None:
        run = await pool.open(plan(batch_rows=1))
        assert (await run.next()).rows == 0
        await pool.close()
        with pytest.raises(F1Error) as caught:
            await all_of(run)
        assert caught.value.code is Code.UNAVAILABLE

    with_pool(tmp_path, test)


class Recorder:
    """A worker that only notes what it is told."""

    def __init__(self) -> None:
        self.sent: list[ToWorker] = []
        self.forgotten: list[int] = []

    def send(self, message: ToWorker) -> None:
        self.sent.append(message)

    def expect(self) -> None:
        """Nothing hangs on time here."""

    def forget(self, number: int) -> None:
        self.forgotten.append(number)


def chunk(last: bool = False) -> Chunk:
    return Chunk(7, b"", 0, 0, b"", last)


@pytest.mark.parametrize(
    ("arrived", "told"),
    [
        ([], [Cancel(7)]),
        ([chunk()], [Cancel(7)]),
        ([chunk(), chunk()], [Credit(7, 1), Cancel(7)]),
        ([chunk(), chunk(), chunk()], [Credit(7, 1), Credit(7, 1), Cancel(7)]),
        ([chunk(), chunk(), chunk(last=True)], [Credit(7, 1)]),
        ([chunk(), F1Error(Code.DATA_CORRUPTION, "damaged")], []),
    ],
)
def test_a_chunk_that_is_taken_gives_a_credit_and_closing_cancels_once(
    arrived: list[Chunk | F1Error], told: list[ToWorker]
) -> None:
    async def run() -> None:
        recorder = Recorder()
        scan = PooledScan(cast(_Worker, recorder), 7)
        for item in arrived:
            scan.arrived.put_nowait(item)
        for item in arrived:
            if isinstance(item, F1Error):
                with pytest.raises(F1Error):
                    await scan.next()
            else:
                assert await scan.next() == item
        scan.close()
        scan.close()
        assert recorder.sent == told
        assert set(recorder.forgotten) == {7}

    asyncio.run(run())


def test_processes_end_with_a_server_that_is_killed(tmp_path: Path) -> None:
    server = textwrap.dedent("""
        import asyncio, pathlib, sys
        from spanstore.engine.lmdb_engine import LmdbEngine
        from spanstore.scan.plan import ScanPlan
        from spanstore.scan.pool import ScanPool

        async def main():
            path = pathlib.Path(sys.argv[1])
            engine = LmdbEngine.open(path, cluster="c", server="s", map_bytes=1 << 26)
            pool = ScanPool(path, processes=1, map_bytes=1 << 26, reader_check=engine.reader_check)
            run = await pool.open(ScanPlan(group=1, timestamp=1, ranges=((b"a", b"b"),), columns=()))
            await run.next()
            print(pool.pids()[0], flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", server, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert exists(pid)
        process.kill()

    async def gone() -> None:
        async with asyncio.timeout(20):
            while runs(pid):
                await asyncio.sleep(0.05)

    asyncio.run(gone())
