"""Distributed queries in simulated worlds: slaves die, hang and are cut off while queries run through them.

A query that succeeds gives what the tables hold, whatever happened meanwhile; one that fails says why; none hangs; and
once nothing happens any more every query succeeds and no slave holds anything of an earlier one.
"""

import asyncio
import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from f1common.config import ClockSection, Config, ServerSection, SlaveSection
from f1common.errors import Code
from f1common.rpc.channels import ChannelCache
from f1server.dist.coordinator import Coordinator, SpreadFailed
from f1server.dist.scheduler import SchedulerLimits, Worker
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine
from f1server.history.table import with_history
from f1server.plan.parts import DistributedPlan, Output, Part, PartScan, Spread, Workers
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import FieldWanted, TableScan
from f1server.rows.keys import row_key, table_span
from f1server.testing.cluster import F1Nodes
from slavepool.process import SlaveProcess
from spanstore.client import SpanClient
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import NodeEnv, World, simulate
from tests.amounts import some

PORT = 7500
SLAVES = ["slave-1", "slave-2", "slave-3"]
ROWS = 120
EXPECTED = sorted(
    (k, sum(1 for i in range(ROWS) if i % 7 == k), sum(i for i in range(ROWS) if i % 7 == k)) for k in range(7)
)
AVOIDED_S = 3.0


@dataclass
class Slaves:
    """All processes of one world, and a coordinator of the slaves."""

    world: World
    cluster: SimCluster
    coordinator: Coordinator | None = None
    processes: dict[str, SlaveProcess] = field(default_factory=dict)
    avoided: dict[tuple[str, int], float] = field(default_factory=dict)
    plan: DistributedPlan | None = None
    attempts: list[int] = field(default_factory=list)

    def start(self) -> None:
        for name in SLAVES:
            self.world.add_node(name, self._slave)

    async def _slave(self, env: NodeEnv) -> None:
        config = Config(
            server=ServerSection(name=env.name, zone="a", port=PORT, data_dir="sim"),
            clock=ClockSection(source="same_host", offset_us=0),
            cluster=self.cluster._cluster,
            slave=SlaveSection(batch_rows=5, memory_mib=256, query_memory_mib=64),
        )
        process = SlaveProcess(config, env.clock, ChannelCache(env.channel), env.rng, inline=True)
        self.processes[env.name] = process
        env.on_crash(process.parts._ducks.close)
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(PORT))
        await server.start()

    # -- the pool, as a master that sees everything would have it --

    def live(self) -> list[Worker]:
        now = asyncio.get_running_loop().time()
        return [
            Worker(name, process.incarnation, f"{name}:{PORT}")
            for name, process in sorted(self.processes.items())
            if self.avoided.get((name, process.incarnation), 0.0) <= now
        ]

    def suspect(self, name: str, incarnation: int, reason: str) -> None:
        self.avoided[name, incarnation] = asyncio.get_running_loop().time() + AVOIDED_S

    # -- queries --

    async def query(self) -> list[tuple[Any, ...]]:
        """Count rows by a column that does not divide them. Raises SpreadFailed."""
        assert self.coordinator is not None
        assert self.plan is not None
        schema = self.plan.schema
        table = schema.table("Item")

        def clips(_: PartScan, workers: int) -> list[tuple[bytes, bytes]]:
            start, end = table_span(schema, table)
            cuts = [row_key(schema, table, (ROWS * i // workers,)) for i in range(1, workers)]
            return list(pairwise([start, *cuts, end]))

        timestamp = self.coordinator._client.strong_timestamp()
        done = await self.coordinator.run(self.plan, timestamp=timestamp, clips=clips)
        self.attempts.append(done.stats.attempt)
        rows = (await done.result.table()).to_pylist()
        return sorted((row["k"], row["n"], row["s"]) for row in rows)

    @property
    def running(self) -> int:
        return sum(p.parts.running for n, p in self.processes.items() if self.world.nodes[n].running)


async def opened(world: World) -> tuple[Slaves, NodeEnv]:
    """Start everything and fill the table."""
    cluster = SimCluster(world, ClusterConfig(servers=3, groups=2))
    cluster.start()
    nodes = F1Nodes(world, cluster, servers=1)
    nodes.start()
    slaves = Slaves(world, cluster)
    slaves.start()
    await asyncio.sleep(0.001)
    env = world.add_client("client")

    async def fill() -> None:
        await nodes.ready()
        connection = await nodes.connect(env, autocommit=True)
        await connection.execute("CREATE TABLE Item (Id INT64 NOT NULL, Kind INT64, PRIMARY KEY (Id))")
        values = ", ".join(f"({i}, {i % 7})" for i in range(ROWS))
        await connection.execute(f"INSERT INTO Item VALUES {values}")
        await connection.close()

    await env.spawn(fill())
    schema = with_history((await nodes.processes["f1-a"].leases.current("default")).schema)
    world.crash("f1-a")
    slaves.plan = _plan(schema)

    async def make() -> None:
        channels = ChannelCache(env.channel)
        duck = Duck(DuckConfig(threads=1, memory_mb=64))
        env.on_crash(duck.close)
        client = SpanClient(cluster.addresses, clock=env.clock, rng=env.rng, channels=channels)
        slaves.coordinator = Coordinator(slaves, Engine(duck), client, channels, env.rng, SchedulerLimits())

    await env.spawn(make())
    return slaves, env


def _plan(schema: Any) -> DistributedPlan:
    table = schema.table("Item")
    wanted = tuple(FieldWanted(table.column(name).id) for name in ("Id", "Kind"))
    planned = PlannedScan("t", ("Id", "Kind"), TableScan(table, wanted))
    sql = 'SELECT "Kind" AS k, count(*) AS n, CAST(sum("Id") AS BIGINT) AS s FROM y GROUP BY 1'
    return DistributedPlan(
        schema,
        (
            Part(
                1, "SELECT * FROM t", Workers.ALL, (PartScan(planned),), {}, (Output(2, "y", Spread.HASH, ('"Kind"',)),)
            ),
            Part(2, sql, Workers.ALL, (), {"y": 1}, (Output(3, "x", Spread.GATHER),)),
            Part(3, "SELECT k, n, s FROM x", Workers.SERVER, (), {"x": 2}),
        ),
        None,
    )


def strike(slaves: Slaves, rng: random.Random) -> None:
    """Do one thing to the slaves or their links, or undo what was done."""
    world = slaves.world
    name = rng.choice(SLAVES)
    other = rng.choice([n for n in (*SLAVES, "client") if n != name])
    match rng.choice(["crash", "power", "pause", "cut", "reset", "storage", "return", "return"]):
        case "crash":
            world.crash(name)
        case "power":
            world.crash(name, silent=True)
        case "pause":
            world.pause(name, rng.choice([300_000, 1_500_000, 4_000_000]))
        case "cut":
            world.cut(name, other)
            world.cut(other, name)
        case "reset":
            world.reset_links(name, other)
        case "storage":
            world.reset_links(name, rng.choice(slaves.cluster.names))
        case _:
            world.heal()


async def under_faults(world: World, faults: int) -> tuple[int, int]:
    """Run queries while things happen. Returns how many succeeded and how many attempts that took."""
    slaves, env = await opened(world)
    rng = random.Random(f"{world.seed}/faults")
    stop = asyncio.Event()
    succeeded = 0

    async def ask() -> None:
        nonlocal succeeded
        while not stop.is_set():
            try:
                async with asyncio.timeout(60):
                    assert await slaves.query() == EXPECTED
                succeeded += 1
            except SpreadFailed as error:
                assert error.code in (Code.UNAVAILABLE, Code.OVERLOADED), error
            await asyncio.sleep(0.05)

    asking = [env.spawn(ask()) for _ in range(2)]
    for _ in range(faults):
        await asyncio.sleep(rng.uniform(0.005, 1.0))
        strike(slaves, rng)
    stop.set()
    await asyncio.gather(*asking)
    world.heal()
    await asyncio.sleep(8.0)
    assert await env.spawn(slaves.query()) == EXPECTED
    assert slaves.attempts[-1] == 1
    await asyncio.sleep(1.0)
    assert slaves.running == 0
    return succeeded, sum(slaves.attempts)


@pytest.mark.parametrize("seed", some([1], [0, *range(2, 12)]))
def test_queries_while_slaves_die_and_hang(seed: int) -> None:
    simulate(lambda world: under_faults(world, 14), f"dist/{seed}")


def test_the_same_seed_is_the_same_run() -> None:
    runs = [simulate(lambda world: under_faults(world, 1), "dist/same") for _ in range(2)]
    assert runs[0].trace_hash == runs[1].trace_hash


def test_a_slave_that_hangs_is_found_and_left_out() -> None:
    async def main(world: World) -> None:
        slaves, env = await opened(world)
        assert await env.spawn(slaves.query()) == EXPECTED
        world.pause("slave-2")
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await env.spawn(slaves.query()) == EXPECTED
        # Virtual time: two seconds of silence, found at the next quarter, and a second attempt.
        assert 2.0 <= loop.time() - began < 3.0
        assert slaves.attempts == [1, 2]
        assert [name for name, _ in slaves.avoided] == ["slave-2"]
        world.heal()

    simulate(main, "dist/hang")


def test_slaves_that_do_not_reach_each_other() -> None:
    """Both answer the f1server; the query goes on with one of them, and nobody is reported."""

    async def main(world: World) -> None:
        slaves, env = await opened(world)
        world.partition(["slave-1"], ["slave-2"])
        assert await env.spawn(slaves.query()) == EXPECTED
        assert slaves.attempts[0] > 1
        assert not slaves.avoided
        world.heal()

    simulate(main, "dist/apart")


def test_cancelling_frees_the_slaves_within_a_second() -> None:
    async def main(world: World) -> None:
        slaves, env = await opened(world)
        # A slave that nothing is heard of holds the query up.
        world.pause("slave-3")
        task = env.spawn(slaves.query())
        await asyncio.sleep(1.0)
        assert slaves.running == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(1.0)
        assert [slaves.processes[name].parts.running for name in SLAVES[:2]] == [0, 0]
        world.heal()
        await asyncio.sleep(5.0)
        assert slaves.running == 0

    simulate(main, "dist/cancel")


def test_an_f1server_that_dies_leaves_nothing_behind() -> None:
    async def main(world: World) -> None:
        slaves, env = await opened(world)
        world.pause("slave-3")
        env.spawn(slaves.query())
        await asyncio.sleep(1.0)
        assert slaves.running == 2
        world.crash("client")
        await asyncio.sleep(1.0)
        assert [slaves.processes[name].parts.running for name in SLAVES[:2]] == [0, 0]
        world.heal()
        await asyncio.sleep(5.0)
        assert slaves.running == 0

    simulate(main, "dist/orphans")
