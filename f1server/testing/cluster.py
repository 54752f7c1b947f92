"""f1servers with their clients, slaves and master as nodes of a simulated world, beside a cluster's spanservers."""

import asyncio
from typing import Literal

import msgspec

import f1
from f1common.config import ClockSection, Config, F1ServerSection, MasterSection, ServerSection, SlaveSection
from f1common.observe.metrics import Metrics
from f1common.rpc.channels import ChannelCache
from f1server.process import F1Process
from master.process import MasterProcess
from slavepool.process import SlaveProcess
from spanstore.testing.cluster import SimCluster
from spanstore.testing.sim import World
from spanstore.testing.sim.world import NodeEnv

_PORT = 7400
_CONNECT_S = 120.0


class F1Nodes:
    """f1servers ``f1-a``, ``f1-b``, ... of one world. They hold nothing that outlives them.

    With slaves (``slave-a``, ..., and ``master``) every query that can be spread is.
    """

    MASTER = "master"

    def __init__(
        self,
        world: World,
        cluster: SimCluster,
        *,
        servers: int = 2,
        lease_ms: int = 2_000,
        slaves: int = 0,
        authentication: Literal["none", "password"] = "none",
    ) -> None:
        """Describe them; ``lease_ms`` is the period of their schema leases."""
        self.authentication = authentication
        """Counts for servers that start from now on."""
        self._world = world
        self._cluster = cluster
        self._lease_ms = lease_ms
        self.names = [f"f1-{chr(ord('a') + i)}" for i in range(servers)]
        self.slave_names = [f"slave-{chr(ord('a') + i)}" for i in range(slaves)]
        self.processes: dict[str, F1Process] = {}
        self.slaves: dict[str, SlaveProcess] = {}
        self._metrics: list[Metrics] = []
        self._section = cluster._cluster  # what its own servers are told
        if slaves:
            self._section = msgspec.structs.replace(self._section, master=f"{self.MASTER}:{_PORT}")

    def start(self) -> None:
        """Start all servers."""
        for name in self.names:
            self._world.add_node(name, self._run)
        if self.slave_names:
            self._world.add_node(self.MASTER, self._run_master)
        for name in self.slave_names:
            self._world.add_node(name, self._run_slave)

    async def _run(self, env: NodeEnv) -> None:
        config = msgspec.structs.replace(
            self._config(env.name),
            f1server=F1ServerSection(
                schema_lease_ms=self._lease_ms,
                query_memory_mib=64,
                distribute="force" if self.slave_names else "auto",
                authentication=self.authentication,
            ),
        )
        process = F1Process(
            config, env.clock, ChannelCache(env.channel), env.rng, address=env.address(_PORT), inline=True
        )
        self.processes[env.name] = process
        env.on_crash(lambda: _free(process))
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(_PORT))
        await server.start()

    async def _run_master(self, env: NodeEnv) -> None:
        process = MasterProcess(MasterSection(), env.clock)
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(_PORT))
        await server.start()

    async def _run_slave(self, env: NodeEnv) -> None:
        metrics = Metrics()
        process = SlaveProcess(
            self._config(env.name), env.clock, ChannelCache(env.channel), env.rng, metrics=metrics, inline=True
        )
        self.slaves[env.name] = process
        self._metrics.append(metrics)
        env.on_crash(process.parts._ducks.close)
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(_PORT))
        await server.start()
        process.announce(env.address(_PORT))

    def _config(self, name: str) -> Config:
        return Config(
            server=ServerSection(name=name, zone=name[-1], port=_PORT, data_dir="sim"),
            clock=ClockSection(source="same_host", offset_us=0),
            cluster=self._section,
            slave=SlaveSection(batch_rows=3, memory_mib=128, query_memory_mib=32),
        )

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of rows that slaves have sent, those that are dead included."""
        return round(sum(metrics.value("f1_slave_exchange_bytes_total") for metrics in self._metrics))

    def unspread(self) -> str:
        """Say which slaves still hold something of a query, or are missing at an f1server; empty: none, once healed."""
        busy = {name: n for name in self.slave_names if (n := self.slaves[name].parts.running)}
        runs = {name: self.slaves[name].incarnation for name in self.slave_names}
        views = {name: {s.name: s.incarnation for s in self.processes[name].pool.live()} for name in self.names}
        missing = [name for name, view in views.items() if view != runs]
        return f"slaves still run queries: {busy}; f1servers {missing} do not know all" if busy or missing else ""

    @property
    def hosts(self) -> str:
        """What clients connect to."""
        return ",".join(f"{name}:{_PORT}" for name in self.names)

    async def ready(self) -> None:
        """Wait until every server can use the default database."""
        await asyncio.gather(*(self.processes[name].ready.wait() for name in self.names))

    async def connect(
        self,
        env: NodeEnv,
        *,
        hosts: str = "",
        database: str | None = None,
        autocommit: bool = False,
        kind: str = "optimistic",
        user: str | None = None,
        password: str | None = None,
    ) -> f1.aio.Connection:
        """Connect a node of the world as a user would."""
        return await f1.aio.connect(
            hosts or self.hosts,
            database,
            user=user,
            password=password,
            autocommit=autocommit,
            kind=kind,
            timeout_s=30.0,
            connect_timeout_s=_CONNECT_S,
            channel_factory=env.channel,
            rng=env.rng,
            clock=env.clock,
        )

    def host(self, name: str) -> str:
        """Return the address of one server."""
        return f"{name}:{_PORT}"


def _free(process: F1Process) -> None:
    """Give back the memory of a process that was killed: a simulated one leaves its database of queries behind."""
    process._sql._engine.duck.close()
