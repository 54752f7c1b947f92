"""A small simulated database without faults, for tests that look at one thing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import f1
from f1common.config import PlacementSection, StorageSection
from f1server.process import F1Process
from f1server.session import Frontend
from f1server.testing.cluster import F1Nodes
from spanstore.client import SpanClient
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import World, WorldConfig, simulate
from spanstore.testing.sim.world import NodeEnv

T = TypeVar("T")


class Database:
    """One world: a storage cluster, f1servers, and connections to them."""

    def __init__(
        self, world: World, cluster: SimCluster, nodes: F1Nodes, env: NodeEnv, conn: f1.aio.Connection
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.nodes = nodes
        self.env = env
        self.conn = conn
        """Connected to all servers; each statement commits by itself."""
        self.storage: SpanClient = cluster.client(env)

    def process(self, number: int = 0) -> F1Process:
        """Return the process of a server."""
        return self.nodes.processes[self.nodes.names[number]]

    def frontend(self, number: int = 0) -> Frontend:
        """Return what serves the requests of a server."""
        return self.process(number).frontend

    async def at(self, number: int, *, autocommit: bool = True) -> f1.aio.Connection:
        """Connect to one server only."""
        host = self.nodes.host(self.nodes.names[number])
        return await self.nodes.connect(self.env, hosts=host, autocommit=autocommit)

    async def require_passwords(self) -> None:
        """Restart all f1servers, which want clients to log in from now on."""
        self.nodes.authentication = "password"
        for name in self.nodes.names:
            self.world.crash(name)
            self.world.restart(name)
        for name in self.nodes.names:
            while name not in self.nodes.processes or self.nodes.processes[name].doors is None:
                await asyncio.sleep(0.05)
        await self.nodes.ready()

    async def login(
        self, user: str, password: str, number: int | None = None, *, database: str | None = None
    ) -> f1.aio.Connection:
        """Connect as a role, to one server or to all."""
        hosts = "" if number is None else self.nodes.host(self.nodes.names[number])
        return await self.nodes.connect(
            self.env, hosts=hosts, database=database, autocommit=True, user=user, password=password
        )

    async def rows(self, sql: str, *params: object) -> list[Any]:
        """Return the rows of a query as tuples."""
        return list(await (await self.conn.execute(sql, params)).fetchall())

    async def ddl(self, *statements: str) -> None:
        """Execute statements."""
        for statement in statements:
            await self.conn.execute(statement)

    def on(self, number: int, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run something as a task of a server's process."""
        env = self.world.nodes[self.nodes.names[number]].env
        if env is None:
            raise RuntimeError(f"server {number} is down")
        return env.spawn(work)


def with_database(
    body: Callable[[Database], Awaitable[T]],
    *ddl: str,
    seed: int = 1,
    spanservers: int = 1,
    groups: int = 2,
    f1servers: int = 2,
    lease_ms: int = 2_000,
    version_keep_ms: int = 0,
    voters: Mapping[int, Sequence[int]] = MappingProxyType({}),
    slaves: int = 0,
    clock_bound_us: int = 0,
    balance: bool = False,
) -> T:
    """Run ``body`` with a new database that has this schema and return its value.

    ``version_keep_ms``: how long versions are kept at least; 0: as by default. ``voters``: the spanservers of a group,
    by their positions; of one that is not named, all. ``clock_bound_us``: how far clocks may be off.
    ``balance``: ranges move by themselves, as policies, size and load want.
    """
    storage = StorageSection(version_keep_ms=version_keep_ms) if version_keep_ms else StorageSection()

    async def main(world: World) -> T:
        placement = PlacementSection(replace_after_ms=0, rebalance=False, balance_load=balance, balance_period_ms=1_000)
        shape = ClusterConfig(spanservers, groups, voters, storage=storage, placement=placement)
        cluster = SimCluster(world, shape)
        nodes = F1Nodes(world, cluster, servers=f1servers, lease_ms=lease_ms, slaves=slaves)
        cluster.start()
        nodes.start()
        env = world.add_client("user")

        async def work() -> T:
            await nodes.ready()
            conn = await nodes.connect(env, autocommit=True)
            if ddl:
                await conn.apply_schema({"schema.sql": ";\n".join(ddl)})
            return await body(Database(world, cluster, nodes, env, conn))

        return await env.spawn(work())

    return simulate(main, seed, WorldConfig(clock_bound_us=clock_bound_us)).value
