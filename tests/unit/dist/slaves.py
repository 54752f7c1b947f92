"""Slaves in one event loop over real gRPC, their tables in memory, so that a test can look inside."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import grpc.aio
import pyarrow as pa

from f1common.config import SlaveSection
from f1common.rpc.channels import ChannelCache
from f1common.rpc.server import server_options
from f1server.catalog.schema import Table
from f1server.dist.coordinator import Coordinator, DistributedResult
from f1server.dist.scheduler import SchedulerLimits, Worker
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine
from f1server.plan.parts import DistributedPlan, Output, Part, PartScan, Spread, Workers
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import FieldWanted, TableScan
from f1server.rows.keys import row_key, table_span
from f1server.testing.embedded import EmbeddedDatabase
from slavepool.service import PartService

__all__ = ["Output", "Part", "PartScan", "Spread", "Workers", "PoolOfSlaves", "database", "plan", "running", "scan"]


def database(ddl: str, **rows: Sequence[Sequence[Any]]) -> EmbeddedDatabase:
    """A database with these rows, in the order of each table's columns."""
    found = EmbeddedDatabase()
    found.apply(ddl)
    for name, values in rows.items():
        table = found.schema.table(name)
        found.tables.put(table, [dict(zip((c.id for c in table.columns), row, strict=True)) for row in values])
    return found


def scan(table: Table, relation: str = "", *, divided: bool = True, **more: Any) -> PartScan:
    """A scan of all columns."""
    columns = table.visible
    wanted = TableScan(table, tuple(FieldWanted(c.id) for c in columns))
    return PartScan(PlannedScan(relation or table.name, tuple(c.name for c in columns), wanted, **more), divided)


def plan(db: EmbeddedDatabase, *parts: Part) -> DistributedPlan:
    return DistributedPlan(db.schema, parts, None)


@dataclass(slots=True)
class PoolOfSlaves:
    """Slaves, who of them is live, and a coordinator of them."""

    db: EmbeddedDatabase
    coordinator: Coordinator
    services: dict[str, PartService] = field(default_factory=dict)
    servers: dict[str, Any] = field(default_factory=dict)
    members: list[Worker] = field(default_factory=list)
    suspected: list[str] = field(default_factory=list)

    def live(self) -> list[Worker]:
        return [m for m in self.members if m.name not in self.suspected]

    def suspect(self, name: str, incarnation: int, reason: str) -> None:
        self.suspected.append(name)

    async def run(self, query: DistributedPlan, *, borders: Sequence[Any] = (), **more: Any) -> DistributedResult:
        """Run a plan; rows are divided at these values of the first key column, or all go to the first worker."""

        def clips(item: PartScan, workers: int) -> list[tuple[bytes, bytes]]:
            table = item.planned.scan.table
            start, end = table_span(self.db.schema, table)
            cuts = [row_key(self.db.schema, self.db.schema.root(table), (b,)) for b in borders]
            cuts = [start, *cuts[: workers - 1], *[end] * (workers - 1 - len(cuts)), end]
            return list(pairwise(cuts))

        return await self.coordinator.run(query, timestamp=1, clips=clips if borders else None, **more)

    async def table(self, query: DistributedPlan, **more: Any) -> pa.Table:
        return await (await self.run(query, **more)).result.table()

    async def kill(self, name: str) -> None:
        """End a slave without a word."""
        await self.servers[name].stop(None)

    @property
    def running(self) -> int:
        return sum(service.running for service in self.services.values())

    async def idle(self) -> float:
        """Wait until no slave holds anything; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(20):
            while self.running:
                await asyncio.sleep(0.005)
        return loop.time() - began


@asynccontextmanager
async def running(
    db: EmbeddedDatabase,
    slaves: int = 2,
    *,
    section: SlaveSection | None = None,
    memory_mib: int = 64,
    window_bytes: int = 4 << 20,
    **limits: int,
) -> AsyncIterator[PoolOfSlaves]:
    channels = ChannelCache()
    executor = ThreadPoolExecutor(2)
    duck = Duck(DuckConfig(memory_mb=memory_mib, threads=1, spool_bytes=4 << 20), executor)
    pool = PoolOfSlaves(db, cast(Coordinator, None))
    pool.coordinator = Coordinator(
        pool,
        Engine(duck),
        cast(Any, None),
        channels,
        random.Random(1),
        SchedulerLimits(**limits),
        window_bytes=window_bytes,
    )
    section = section or SlaveSection(memory_mib=256, query_memory_mib=64, threads=1)
    try:
        for number in range(1, slaves + 1):
            name = f"slave-{number}"
            server = grpc.aio.server(options=server_options())
            port = server.add_insecure_port("127.0.0.1:0")
            service = PartService(section, cast(Any, None), channels, source=lambda a: db.tables.source(a.schema))
            service.register(server)
            await server.start()
            pool.services[name], pool.servers[name] = service, server
            pool.members.append(Worker(name, number, f"127.0.0.1:{port}"))
        yield pool
    finally:
        for name, service in pool.services.items():
            await service.close()
            await pool.servers[name].stop(None)
        await channels.close()
        duck.close()
        executor.shutdown()
