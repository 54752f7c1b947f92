"""Plans made by hand on real processes: slaves exchange rows, are killed and stopped, and nobody sees it."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from f1common.clock import SameHostClock, same_host_offset_us
from f1common.rpc.channels import ChannelCache
from f1deploy.cluster import Cluster
from f1server.catalog.codec import decode_schema
from f1server.catalog.places import schema_key
from f1server.catalog.schema import Schema
from f1server.dist.coordinator import Coordinator, DistributedResult
from f1server.dist.pool import SlavePool
from f1server.dist.stats import SERVER
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine
from f1server.history.table import with_history
from f1server.plan.parts import DistributedPlan, Output, Part, PartScan, Spread, Workers
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import FieldWanted, TableScan
from f1server.rows.keys import row_key, table_span
from spanstore.client import SpanClient
from tests.integration.database import Database, running

ROWS = 20_000
KINDS = 37
EXPECTED = sorted((k, len(range(k, ROWS, KINDS)), sum(range(k, ROWS, KINDS))) for k in range(KINDS))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("distributed")
    (folder / "items.csv").write_text("Id,Kind\n" + "".join(f"{i},{i % KINDS}\n" for i in range(ROWS)))
    with running(folder, "--slaves", "2", "--f1servers", "1") as found:
        with found.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE Item (Id INT64 NOT NULL, Kind INT64, PRIMARY KEY (Id))")
        found.command("load", "Item", str(folder / "items.csv"))
        yield found


@dataclass
class Server:
    """An f1server's half of distributed queries, in this process."""

    client: SpanClient
    pool: SlavePool
    coordinator: Coordinator
    schema: Schema

    async def run(self, plan: DistributedPlan) -> DistributedResult:
        table = self.schema.table("Item")

        def clips(_: PartScan, workers: int) -> list[tuple[bytes, bytes]]:
            start, end = table_span(self.schema, table)
            cuts = [start, *(row_key(self.schema, table, (ROWS * i // workers,)) for i in range(1, workers)), end]
            return [(cuts[i], cuts[i + 1]) for i in range(workers)]

        return await self.coordinator.run(plan, timestamp=self.client.strong_timestamp(), clips=clips)

    def by_kind(self) -> DistributedPlan:
        """Scan, exchange by hash, aggregate, gather."""
        table = self.schema.table("Item")
        wanted = tuple(FieldWanted(table.column(name).id) for name in ("Id", "Kind"))
        scan = PartScan(PlannedScan("t", ("Id", "Kind"), TableScan(table, wanted)))
        sql = 'SELECT "Kind" AS k, count(*) AS n, CAST(sum("Id") AS BIGINT) AS s FROM y GROUP BY 1'
        return DistributedPlan(
            self.schema,
            (
                Part(1, "SELECT * FROM t", Workers.ALL, (scan,), {}, (Output(2, "y", Spread.HASH, ('"Kind"',)),)),
                Part(2, sql, Workers.ALL, (), {"y": 1}, (Output(3, "x", Spread.GATHER),)),
                Part(3, "SELECT k, n, s FROM x", Workers.SERVER, (), {"x": 2}),
            ),
            None,
        )

    def long(self, rows: int) -> DistributedPlan:
        """Rows made of nothing at every worker, exchanged by hash."""
        made = f"SELECT range AS k, repeat('x', 50) AS t FROM range({rows}) AS r(range)"
        return DistributedPlan(
            self.schema,
            (
                Part(1, made, Workers.ALL, outputs=(Output(2, "y", Spread.HASH, ("k",)),)),
                Part(2, "SELECT count(*) AS n FROM y", Workers.ALL, (), {"y": 1}, (Output(3, "x", Spread.GATHER),)),
                Part(3, "SELECT CAST(sum(n) AS BIGINT) AS n, count(*) AS w FROM x", Workers.SERVER, (), {"x": 2}),
            ),
            None,
        )


@asynccontextmanager
async def serving(database: Database) -> AsyncIterator[Server]:
    processes = Cluster(database.directory).status()
    storage = [p.address for p in processes if p.kind == "spanserver"]
    (master,) = [p.address for p in processes if p.kind == "master"]
    clock = SameHostClock(same_host_offset_us(database.directory / "clock"))
    rng, channels = random.Random(1), ChannelCache()
    client = SpanClient(storage, clock=clock, rng=rng, channels=channels)
    pool = SlavePool(master, server="test", clock=clock, channels=channels, rng=rng)
    executor = ThreadPoolExecutor(2)
    duck = Duck(DuckConfig(memory_mb=64, threads=1), executor)
    try:
        found = await client.read([schema_key("default")], timestamp=client.strong_timestamp())
        (version,) = found.versions
        assert version is not None
        assert version.value is not None
        schema = with_history(decode_schema(version.value, version.ts))
        pool.start()
        await until(lambda: len(pool.live()) == 2)
        yield Server(client, pool, Coordinator(pool, Engine(duck), client, channels, rng), schema)
    finally:
        await pool.close()
        await client.close()
        await channels.close()
        duck.close()
        executor.shutdown()


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


async def kinds(result: DistributedResult) -> list[tuple[int, int, int]]:
    return sorted((row["k"], row["n"], row["s"]) for row in (await result.result.table()).to_pylist())


def shell(database: Database, command: str, name: str) -> None:
    database.command("cluster", command, name, "--dir", str(database.directory))


def test_both_slaves_exchange_rows_also_without_a_master(database: Database) -> None:
    async def go() -> None:
        async with serving(database) as server:
            for dead in (False, True):
                if dead:
                    await asyncio.to_thread(shell, database, "kill", "master")
                done = await server.run(server.by_kind())
                assert await kinds(done) == EXPECTED
                parts = {(p.part, p.worker): p for p in done.stats.parts}
                assert {w for _, w in parts} == {"slave-1", "slave-2", SERVER}
                for name, other in (("slave-1", "slave-2"), ("slave-2", "slave-1")):
                    assert sum(r.rows for r in parts[1, name].reads if r.scan) == ROWS // 2
                    assert sum(s.bytes for s in parts[1, name].sent if s.destination == other) > 10_000
                assert parts[3, SERVER].reads[0].rows == KINDS
                assert not any(read.scan for read in parts[3, SERVER].reads)

    try:
        asyncio.run(go())
    finally:
        shell(database, "start", "master")


@pytest.mark.parametrize("what", ["kill", "stop"])
def test_a_slave_ends_or_hangs_in_the_middle(database: Database, what: str) -> None:
    cluster = Cluster(database.directory)
    pid = next(p.pid or 0 for p in cluster.status() if p.name == "slave-2")

    async def go() -> None:
        async with serving(database) as server:
            task = asyncio.create_task(server.run(server.long(4_000_000)))
            await asyncio.sleep(1.0)
            if what == "kill":
                # Not by the command: to start that takes as long as the query, on a machine that is busy.
                await asyncio.to_thread(cluster.kill, "slave-2")
            else:
                os.kill(pid, signal.SIGSTOP)
            done = await task
            (row,) = (await done.result.table()).to_pylist()
            assert done.stats.workers == ("slave-1",)
            assert done.stats.attempt > 1
            assert row == {"n": 4_000_000, "w": 1}
            assert "slave-2" not in [slave.name for slave in server.pool.live()]
            assert await kinds(await server.run(server.by_kind())) == EXPECTED

    try:
        asyncio.run(go())
    finally:
        if what == "kill":
            shell(database, "start", "slave-2")
        else:
            os.kill(pid, signal.SIGCONT)
