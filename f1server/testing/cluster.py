"""f1servers and their clients as nodes of a simulated world, beside the spanservers of a simulated cluster."""

import asyncio

import f1
from f1common.config import ClockSection, Config, F1ServerSection, ServerSection
from f1common.rpc.channels import ChannelCache
from f1server.process import F1Process
from spanstore.testing.cluster import SimCluster
from spanstore.testing.sim import World
from spanstore.testing.sim.world import NodeEnv

_PORT = 7400
_CONNECT_S = 120.0


class F1Nodes:
    """f1servers ``f1-a``, ``f1-b``, ... of one world. They hold nothing that outlives them."""

    def __init__(self, world: World, cluster: SimCluster, *, servers: int = 2, lease_ms: int = 2_000) -> None:
        """Describe them; ``lease_ms`` is the period of their schema leases."""
        self._world = world
        self._cluster = cluster
        self._lease_ms = lease_ms
        self.names = [f"f1-{chr(ord('a') + i)}" for i in range(servers)]
        self.processes: dict[str, F1Process] = {}

    def start(self) -> None:
        """Start all servers."""
        for name in self.names:
            self._world.add_node(name, self._run)

    async def _run(self, env: NodeEnv) -> None:
        config = Config(
            server=ServerSection(name=env.name, zone=env.name[-1], port=_PORT, data_dir="sim"),
            clock=ClockSection(source="same_host", offset_us=0),
            cluster=self._cluster._cluster,  # what its own servers are told
            f1server=F1ServerSection(schema_lease_ms=self._lease_ms, query_memory_mib=64),
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

    @property
    def hosts(self) -> str:
        """What clients connect to."""
        return ",".join(f"{name}:{_PORT}" for name in self.names)

    async def ready(self) -> None:
        """Wait until every server can use the default database."""
        await asyncio.gather(*(self.processes[name].ready.wait() for name in self.names))

    async def connect(
        self, env: NodeEnv, *, hosts: str = "", autocommit: bool = False, kind: str = "optimistic"
    ) -> f1.aio.Connection:
        """Connect a node of the world as a user would."""
        return await f1.aio.connect(
            hosts or self.hosts,
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
