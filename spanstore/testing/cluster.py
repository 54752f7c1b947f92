"""A whole cluster of spanservers in a simulated world: the code that runs in production, on simulated disks and links.

Only the engine, the channels, the clock and the random numbers differ. What every replica applies is recorded, so that
the agreement of the logs can be checked whatever the clients saw.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from f1common.config import (
    ClockSection,
    ClusterGroup,
    ClusterRange,
    ClusterSection,
    ClusterServer,
    Config,
    PaxosSection,
    ServerSection,
)
from f1common.rpc.channels import ChannelCache
from spanstore.client import SpanClient
from spanstore.engine.memory import MemoryEngine
from spanstore.group.state import Done
from spanstore.placement.range_map import spread_tables
from spanstore.runtime.process import SpanProcess
from spanstore.testing.sim.world import NodeEnv, World
from spanstore.txn.commands import encode_command

_PORT = 7000
_TABLES = 16


@dataclass(frozen=True, slots=True)
class Applied:
    """One entry as one incarnation of one replica applied it."""

    node: str
    incarnation: int
    group: int
    index: int
    command: bytes


@dataclass(slots=True)
class ClusterConfig:
    """Shape of a cluster. ``paxos`` are milliseconds and bytes as in the configuration file."""

    servers: int = 3
    groups: int = 2
    paxos: PaxosSection = field(default_factory=PaxosSection)
    ack_before_sync: bool = False


class SimCluster:
    """Spanservers ``span-a``, ``span-b``, ... of one world, and clients of them."""

    def __init__(self, world: World, config: ClusterConfig | None = None) -> None:
        self.world = world
        self.config = config or ClusterConfig()
        self.names = [f"span-{chr(ord('a') + i)}" for i in range(self.config.servers)]
        self.applied: list[Applied] = []
        self.processes: dict[str, SpanProcess] = {}
        self._cluster = self._describe()

    def _describe(self) -> ClusterSection:
        groups = list(range(self.config.groups + 1))
        ranges = spread_tables(groups, _TABLES)
        return ClusterSection(
            cluster_id="sim",
            servers=tuple(ClusterServer(name=n, zone=n[-1], address=f"{n}:{_PORT}") for n in self.names),
            groups=tuple(ClusterGroup(id=g, voters=tuple(self.names)) for g in groups),
            ranges=tuple(ClusterRange(start=r.start.hex(), group=r.group) for r in ranges.ranges),
        )

    @property
    def addresses(self) -> list[str]:
        """Where clients find the servers."""
        return [f"{name}:{_PORT}" for name in self.names]

    def start(self) -> None:
        """Start all servers."""
        for name in self.names:
            self.world.add_node(name, self._run)

    async def _run(self, env: NodeEnv) -> None:
        engine = self._disk(env)
        channels = ChannelCache(env.channel)
        config = Config(
            server=ServerSection(name=env.name, zone=env.name[-1], port=_PORT, data_dir="sim"),
            clock=ClockSection(source="same_host", offset_us=0),
            paxos=self.config.paxos,
            cluster=self._cluster,
        )

        def record(group: int, done: Done) -> None:
            command = encode_command(done.command)
            self.applied.append(Applied(env.name, env.incarnation, group, done.index, command))

        process = SpanProcess(config, engine, env.clock, channels, env.rng, on_applied=record)
        self.processes[env.name] = process
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(_PORT))
        await server.start()
        # A failed disk ends the process; somebody starts it again, as a supervisor would.
        error = await process.failed
        self.world.exit_node(env.name, error)

    def _disk(self, env: NodeEnv) -> MemoryEngine:
        """The machine's disk: it outlives the process and loses what was not synced."""
        engine = env.durable.get("engine")
        if engine is None:
            engine = MemoryEngine(
                sleep=asyncio.sleep,
                latency=lambda: env.disk.sync_us() / 1_000_000,
                ack_before_sync=self.config.ack_before_sync,
            )
            env.durable["engine"] = engine
        else:
            engine.restart()
        env.on_crash(engine.crash)
        found: MemoryEngine = engine
        return found

    def client(self, env: NodeEnv) -> SpanClient:
        """Make a client on a node of the world."""
        return SpanClient(self.addresses, clock=env.clock, rng=env.rng, channels=ChannelCache(env.channel))

    async def settle(self, client: SpanClient, groups: Sequence[int] | None = None, timeout_s: float = 30.0) -> None:
        """Wait until every group answers a strong read: after faults were healed, progress must return."""
        ranges = await client.range_map(timeout_s=timeout_s)
        wanted = set(groups if groups is not None else ranges.groups())
        for item in ranges.ranges:
            if item.group in wanted:
                wanted.discard(item.group)
                await client.read([item.start or b"\x01"], timeout_s=timeout_s)

    def digests(self) -> dict[tuple[int, int], set[int]]:
        """Return the digests by (group, applied index) over all running replicas: each set must have one member."""
        found: dict[tuple[int, int], set[int]] = {}
        for name in self.names:
            process = self.processes.get(name)
            if process is None or not self.world.nodes[name].running:
                continue
            for number, group in process.server.groups.items():
                state = group.state.applied
                found.setdefault((number, state.index), set()).add(state.digest)
        return found
