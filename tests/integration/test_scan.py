"""Scans over real gRPC, LMDB and processes: the right rows, whatever dies, waits or goes away."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pyarrow as pa
import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, encode_row
from f1common.errors import Code, F1Error
from spanstore.client import (
    KeyRange,
    ScanColumn,
    ScanOperator,
    ScanPredicate,
    ScanSource,
    SpanClient,
    TableRows,
    Write,
)
from tests.integration.scan_cluster import Cluster, Member, running

EVERYTHING = [KeyRange(tuples.encode((1,)), tuples.encode((10,)))]
COLUMNS = [
    ScanColumn("table", "INT64", ScanSource.KEY_PART, 0),
    ScanColumn("id", "INT64", ScanSource.KEY_PART, 1),
    ScanColumn("n", "INT64", number=1),
    ScanColumn("text", "STRING", number=2),
]
RAW = [
    ScanColumn("key", "BYTES", ScanSource.RAW_KEY),
    ScanColumn("ts", "INT64", ScanSource.VERSION_TS),
    ScanColumn("value", "BYTES", ScanSource.RAW_VALUE),
]


def key(*elements: tuples.Value) -> bytes:
    return tuples.encode(elements)


def row(n: int, text: str = "") -> bytes:
    cells: dict[int, Cell] = {1: n, 2: text or f"row {n}"}
    return encode_row(cells)


def with_cluster(root: Path, test: Callable[[Cluster, SpanClient], Awaitable[None]], **shape: int) -> None:
    """Run ``test`` with a cluster and a client of it."""

    async def run() -> None:
        async with running(root, **shape) as cluster:
            client = cluster.client()
            try:
                async with asyncio.timeout(120):
                    await test(cluster, client)
            finally:
                await client.close()

    asyncio.run(run())


async def fill(client: SpanClient, tables: int, rows: int, text: str = "") -> None:
    for table in range(1, tables + 1):
        for low in range(0, rows, 1000):
            writes = [Write(key(table, n), row(n, text)) for n in range(low, min(rows, low + 1000))]
            await client.commit(writes, timeout_s=30)


async def until(holds: Callable[[], bool], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.02)


async def stands_still(member: Member) -> None:
    """Wait until no batch goes on its way any more: no view is open either, once and for all.

    Between two batches no view is open for a moment, so that a single look does not tell.
    """
    still = 0
    last: object = None
    async with asyncio.timeout(60):
        while still < 20:
            await asyncio.sleep(0.05)
            seen = [(id(scan), scan.arrived.qsize()) for w in member.pool._workers for scan in w.scans.values()]
            quiet = seen == last and not member.views(member.pool.pids())
            last = seen
            still = still + 1 if quiet else 0


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table.column("table").to_pylist(), table.column("id").to_pylist(), strict=True))


def all_pairs(tables: int, rows: int) -> list[tuple[int, int]]:
    return [(table, n) for table in range(1, tables + 1) for n in range(rows)]


async def committed(client: SpanClient, writes: list[Write]) -> int:
    """Commit, again where the transaction before is still letting go of its locks on a slow machine."""
    while True:
        try:
            return await client.commit(writes)
        except F1Error as error:
            if error.ambiguous or not error.retryable:
                raise


def test_a_scan_over_groups_equals_a_range_read_of_the_same_timestamp(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        rng = random.Random(7)
        stamps = []
        for _ in range(40):
            rows = {
                key(rng.randint(1, 6), rng.randint(0, 30), *([2, rng.randint(0, 3)] * rng.randint(0, 1)))
                for _ in range(8)
            }
            writes = [Write(k, None if rng.random() < 0.3 else row(rng.randint(0, 99))) for k in sorted(rows)]
            stamps.append(await committed(client, writes))
        for timestamp in [0, *stamps[::5]]:
            scan = client.scan(EVERYTHING, RAW, timestamp=timestamp, batch_rows=rng.choice([0, 3]))
            table = await scan.read_all()
            read = await client.read([], EVERYTHING, timestamp=scan.timestamp)
            got = sorted(zip(*(table.column(name).to_pylist() for name in ("key", "ts", "value")), strict=True))
            assert got == [(r.key, r.ts, r.value) for r in read.ranges[0]]
            assert timestamp in (0, scan.timestamp)
            assert got or timestamp == stamps[0]
        children = await client.scan(EVERYTHING, COLUMNS, table=TableRows(4, 2, 2)).read_all()
        everything = await client.read([], EVERYTHING)
        assert children.num_rows == sum(len(tuples.decode(r.key)) == 4 for r in everything.ranges[0]) > 0

    with_cluster(tmp_path, test)


def test_selection_limit_and_any_replica(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        await fill(client, 3, 300)
        timestamp = (await client.read([key(1)])).timestamp
        some = (ScanPredicate(2, ScanOperator.LT, (5,)), ScanPredicate(3, ScanOperator.NE, ("row 2",)))
        for anywhere in (False, True):
            scan = client.scan(EVERYTHING, COLUMNS, timestamp=timestamp, predicates=some, anywhere=anywhere)
            assert pairs(await scan.read_all()) == [(t, n) for t in (1, 2, 3) for n in (0, 1, 3, 4)]
        limited = [batch async for batch in client.scan(EVERYTHING, COLUMNS, limit=70, batch_rows=50)]
        assert sum(batch.num_rows for batch in limited) == 70
        nothing = client.scan(EVERYTHING, COLUMNS, predicates=[ScanPredicate(2, ScanOperator.IS_NULL)])
        assert (await nothing.read_all()).num_rows == 0
        assert nothing.timestamp > 0
        served = sum(bool(member.pool.pids()) for member in cluster.members.values())
        assert served >= 1

    with_cluster(tmp_path, test)


def test_what_a_server_refuses_reaches_the_client_as_raised(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        await client.commit([Write(key(1, 1), row(1)), Write(key(1, 2), encode_row({1: "text"}))])
        with pytest.raises(F1Error) as wrong_type:
            await client.scan(EVERYTHING, COLUMNS).read_all()
        assert wrong_type.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(F1Error) as wrong_literal:
            await client.scan(EVERYTHING, COLUMNS, predicates=[ScanPredicate(2, ScanOperator.EQ, (1.5,))]).read_all()
        assert wrong_literal.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(F1Error) as ahead:
            await client.scan(EVERYTHING, RAW, timestamp=1 << 60, timeout_s=2).read_all()
        assert ahead.value.code is Code.CLOCK_SKEW
        with pytest.raises(F1Error) as unknown:
            await client.scan(EVERYTHING, [ScanColumn("x", "BLOB")]).read_all()
        assert unknown.value.code is Code.INVALID_ARGUMENT

    with_cluster(tmp_path, test)


def test_a_scan_goes_on_when_its_worker_is_killed_and_each_row_comes_once(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        await fill(client, 3, 4000)
        scan = client.scan(EVERYTHING, COLUMNS, batch_rows=100)
        batches: list[pa.RecordBatch] = []
        killed: list[int] = []
        async for batch in scan:
            batches.append(batch)
            if len(batches) % 25 == 0 and len(killed) < 4:
                for member in cluster.members.values():
                    for pid in member.pool.pids():
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
        assert len(killed) >= 2
        assert pairs(pa.Table.from_batches(batches)) == all_pairs(3, 4000)
        await until(lambda: not any(pid in m.pool.pids() for m in cluster.members.values() for pid in killed), 5)
        # The next scan gets a new worker.
        assert (await client.scan(EVERYTHING, COLUMNS).read_all()).num_rows == 12_000

    with_cluster(tmp_path, test)


def test_a_worker_that_dies_while_it_reads_does_not_pin_pages(tmp_path: Path) -> None:
    async def stop_while_reading(cluster: Cluster, scanning: "asyncio.Task[pa.Table]") -> tuple[Member, int] | None:
        """Stop a worker at a moment at which it has a view open; None if the scan ended before one was caught."""
        while not scanning.done():
            for member in cluster.members.values():
                for pid in member.pool.pids():
                    os.kill(pid, signal.SIGSTOP)
                    if member.views():
                        return member, pid
                    os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(0.002)
        return None

    async def test(cluster: Cluster, client: SpanClient) -> None:
        await fill(client, 1, 20_000)
        for _ in range(50):
            scanning = asyncio.create_task(client.scan(EVERYTHING, COLUMNS).read_all())
            caught = await stop_while_reading(cluster, scanning)
            if caught is not None:
                break
            await scanning
        assert caught is not None
        member, pid = caught
        os.kill(pid, signal.SIGKILL)
        assert member.views() == 1
        assert (await scanning).num_rows == 20_000
        await until(lambda: member.views() == 0, 5)

    with_cluster(tmp_path, test, groups=1)


def test_a_scan_goes_on_elsewhere_when_its_server_ends(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        await fill(client, 3, 3000)
        scan = client.scan(EVERYTHING, COLUMNS, batch_rows=100)
        batches = []
        async for batch in scan:
            batches.append(batch)
            if len(batches) == 12:
                await cluster.stop((await cluster.leader(2)).name)
        assert pairs(pa.Table.from_batches(batches)) == all_pairs(3, 3000)

    with_cluster(tmp_path, test)


def test_a_slow_client_holds_no_view_and_few_batches_and_the_file_stays_small(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        # Eighty batches of 200 kB, many more than may wait for the client.
        await fill(client, 1, 8000, "x" * 2000)
        member = await cluster.leader(1)
        scan = client.scan(EVERYTHING, COLUMNS, batch_rows=100)
        async with aclosing(aiter(scan)) as batches:
            got = [await anext(batches)]
            before = int(member.engine.info()["used_bytes"])
            views = waiting = 0
            await stands_still(member)
            # The same rows are overwritten again and again while the scan stands still.
            for n in range(60):
                await client.commit([Write(key(4, m), row(n)) for m in range(200)])
                views += member.views(member.pool.pids())
                waiting = max(waiting, *(s.arrived.qsize() for w in member.pool._workers for s in w.scans.values()))
            assert views == 0
            assert waiting <= 5
            grown = int(member.engine.info()["used_bytes"]) - before
            # 60 * 200 rows of about 60 bytes, stored twice (log and versions): pages that are freed are used again.
            assert grown < 12_000_000
            got += [batch async for batch in batches]
        table = pa.Table.from_batches(got)
        assert pairs(table) == all_pairs(1, 8000)

    with_cluster(tmp_path, test, groups=1)


def test_a_client_that_goes_away_ends_its_scan(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        await fill(client, 1, 8000, "x" * 2000)
        member = await cluster.leader(1)
        other = cluster.client(2)
        batches = aiter(other.scan(EVERYTHING, COLUMNS))
        await anext(batches)
        running_scans = [scan for worker in member.pool._workers for scan in worker.scans]
        assert len(running_scans) == 1
        await other.close()
        await batches.aclose()
        await until(lambda: not any(worker.scans for worker in member.pool._workers), 10)
        await until(lambda: member.views() == 0, 10)
        # And one that only loses interest, without saying so.
        async for _ in client.scan(EVERYTHING, COLUMNS):
            break
        await until(lambda: not any(worker.scans for worker in member.pool._workers), 10)

    with_cluster(tmp_path, test, groups=1)


def test_a_scan_never_misses_a_commit_acknowledged_before_it_began(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        newest: dict[bytes, int] = {}
        stop = asyncio.Event()

        async def write(seed: int) -> None:
            writer = cluster.client(seed)
            rng = random.Random(seed)
            try:
                while not stop.is_set():
                    # Two groups at a time, the same value in both: a scan sees all of a commit or nothing of it.
                    number = rng.randint(0, 1 << 40)
                    keys = [key(1, seed), key(2, seed)]
                    try:
                        ts = await writer.commit([Write(k, row(number)) for k in keys])
                    except F1Error as error:
                        assert error.code is Code.ABORTED
                        continue
                    for k in keys:
                        newest[k] = max(newest.get(k, 0), ts)
            finally:
                await writer.close()

        writers = [asyncio.create_task(write(seed)) for seed in range(8)]
        try:
            for _ in range(40):
                acknowledged = dict(newest)
                scan = client.scan(EVERYTHING, [*RAW, *COLUMNS])
                table = await scan.read_all()
                seen = dict(zip(table.column("key").to_pylist(), table.column("ts").to_pylist(), strict=True))
                for k, ts in acknowledged.items():
                    assert seen.get(k, 0) >= ts
                assert all(ts <= scan.timestamp for ts in seen.values())
                numbers: dict[int, set[int]] = {}
                for writer, number in zip(table.column("id").to_pylist(), table.column("n").to_pylist(), strict=True):
                    numbers.setdefault(writer, set()).add(number)
                assert all(len(both) == 1 for both in numbers.values())
        finally:
            stop.set()
            await asyncio.gather(*writers)
        assert len(newest) == 16

    with_cluster(tmp_path, test)


def test_many_scans_share_one_worker(tmp_path: Path) -> None:
    async def test(cluster: Cluster, client: SpanClient) -> None:
        await fill(client, 1, 3000)
        slow = aiter(client.scan(EVERYTHING, COLUMNS, batch_rows=10))
        await anext(slow)
        tables = await asyncio.gather(
            *(client.scan(EVERYTHING, COLUMNS, batch_rows=100, timeout_s=9).read_all() for _ in range(10))
        )
        assert all(pairs(table) == all_pairs(1, 3000) for table in tables)
        # Leadership may have moved meanwhile.
        assert max(len(member.pool.pids()) for member in cluster.members.values()) == 1
        await slow.aclose()

    with_cluster(tmp_path, test, groups=1)
