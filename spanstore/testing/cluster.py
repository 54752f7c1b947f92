"""A whole cluster of spanservers in a simulated world: the code that runs in production, on simulated disks and links.

Only the engine, the channels, the clock and the random numbers differ. What every replica applies is recorded, so that
the agreement of the logs can be checked whatever the clients saw.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from f1common.config import (
    ClockSection,
    ClusterGroup,
    ClusterRange,
    ClusterSection,
    ClusterServer,
    Config,
    PaxosSection,
    PlacementSection,
    ServerSection,
    StorageSection,
)
from f1common.rpc.channels import ChannelCache
from spanstore.client import SpanClient
from spanstore.engine import keyspace
from spanstore.engine.base import EngineFailed
from spanstore.engine.keyspace import Subspace
from spanstore.engine.memory import MemoryEngine
from spanstore.group import checkpoint
from spanstore.group.group import Group
from spanstore.group.state import Done
from spanstore.placement.range_map import spread_tables
from spanstore.runtime.peers import PROTOCOL_VERSION
from spanstore.runtime.process import SpanProcess
from spanstore.testing.checkers import Applied, Installed
from spanstore.testing.sim.world import NodeEnv, World
from spanstore.txn.kinds import CONFIGURATION_SINCE, SINCE

_PORT = 7000
TABLES = 16
"""Root tables 1 to TABLES are spread over the groups; with more groups, as many as there are groups."""

_RESPAWN_US = 300_000
_MAX_KEPT = 3


@dataclass(slots=True)
class ClusterConfig:
    """Shape of a cluster. ``paxos`` and ``storage`` are as in the configuration file.

    ``voters``: the servers of a group, by their positions; a group that is not named has all but the readers.
    """

    servers: int = 3
    groups: int = 2
    voters: Mapping[int, Sequence[int]] = field(default_factory=dict)
    paxos: PaxosSection = field(default_factory=PaxosSection)
    storage: StorageSection = field(default_factory=StorageSection)
    ack_before_sync: bool = False
    leader_zone: str = ""
    """Where all groups should be led; servers are in zones named by the last letters of their names."""
    placement: PlacementSection = field(
        default_factory=lambda: PlacementSection(replace_after_ms=0, rebalance=False, balance_load=False)
    )
    """Nothing is moved by itself, unless a test wants that."""
    spare: int = 0
    """How many of the servers, the last ones, have no replica at first."""
    versions: dict[str, int] = field(default_factory=dict)
    """Versions of the protocol that servers speak, where it is not this program's. Read when a server starts."""
    readers: int = 0
    """How many of the servers, the last ones, have read-only replicas of all groups."""


class SimCluster:
    """Spanservers ``span-a``, ``span-b``, ... of one world, and clients of them."""

    def __init__(self, world: World, config: ClusterConfig | None = None) -> None:
        self.world = world
        self.config = config or ClusterConfig()
        self.names = [f"span-{chr(ord('a') + i)}" for i in range(self.config.servers)]
        self.groups = list(range(self.config.groups + 1))
        self.applied: list[Applied | Installed] = []
        self.processes: dict[str, SpanProcess] = {}
        self.engines: dict[str, MemoryEngine] = {}
        self.unknown: list[str] = []
        """Entries of the log that servers of an older version could not have read."""
        self.transfers = 0
        """How often the state of a replica was installed from another."""
        self.next_absence_us = 0
        """When a server may be absent again (:mod:`spanstore.testing.scenarios.faults`)."""
        self.resumed = 0
        """How often a server started whose replica had the records of such a state, and some of the rows."""
        self.first_map = spread_tables(self.groups, max(TABLES, self.config.groups))
        self._cluster = self._describe()

    def _describe(self) -> ClusterSection:
        ranges = self.first_map
        founders = self.names[: len(self.names) - self.config.spare]
        readers = tuple(founders[len(founders) - self.config.readers :])
        return ClusterSection(
            cluster_id="sim",
            servers=tuple(ClusterServer(name=n, zone=n[-1], address=f"{n}:{_PORT}") for n in self.names),
            groups=tuple(
                ClusterGroup(id=g, voters=self.voters(g), readers=readers, preferred_zone=self.config.leader_zone)
                for g in self.groups
            ),
            ranges=tuple(ClusterRange(start=r.start.hex(), group=r.group) for r in ranges.ranges),
        )

    @property
    def addresses(self) -> list[str]:
        """Where clients find the servers."""
        return [f"{name}:{_PORT}" for name in self.names]

    def voters(self, group: int) -> tuple[str, ...]:
        """Return the names of the servers that vote in ``group`` at first."""
        count = len(self.names) - self.config.spare - self.config.readers
        return tuple(self.names[i] for i in self.config.voters.get(group, range(count)))

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
            storage=self.config.storage,
            placement=self.config.placement,
            cluster=self._cluster,
        )

        version = self.config.versions.get(env.name, PROTOCOL_VERSION)

        def record(group: int, done: Done) -> None:
            command = done.payload()
            if SINCE.get(type(done.command), CONFIGURATION_SINCE) > version:
                self.unknown.append(f"{env.name} of version {version} applies {done.command} in group {group}")
            self.applied.append(Applied(env.name, env.incarnation, group, done.index, command))

        def installed(group: int, index: int) -> None:
            self.transfers += 1
            self.applied.append(Installed(env.name, env.incarnation, group, index))

        process = SpanProcess(
            config, engine, env.clock, channels, env.rng, on_applied=record, on_installed=installed, version=version
        )
        self.processes[env.name] = process
        self.resumed += sum(progress.base_index > 0 for progress in process.transfers.status())
        for number, replica in sorted(process.server.groups.items()):
            # The last entries before a crash may have been applied without anybody hearing of it.
            self.applied.append(Installed(env.name, env.incarnation, number, replica.state.applied.index))
        # A failed disk ends the process, also while it starts; it is started again, as by a supervisor.
        error: Exception
        try:
            server = env.server()
            await process.start(server)
            server.add_insecure_port(env.address(_PORT))
            await server.start()
            error = await process.failed
        except EngineFailed as failed:
            error = failed
        self.world.net.later(_RESPAWN_US, self.world.restart, env.name)
        self.world.exit_node(env.name, error)

    def _disk(self, env: NodeEnv) -> MemoryEngine:
        """The machine's disk: it outlives the process and loses what was not synced."""
        engine = self.engines.get(env.name)
        if engine is None:
            engine = self.engines[env.name] = MemoryEngine(
                sleep=asyncio.sleep,
                latency=lambda: env.disk.sync_us() / 1_000_000,
                ack_before_sync=self.config.ack_before_sync,
            )
        else:
            engine.restart()
        # Of the writes that nobody was told of, the first few may have reached the disk all the same.
        env.on_crash(lambda: engine.crash(keep_pending=env.rng.randrange(_MAX_KEPT)))
        return engine

    def client(self, env: NodeEnv, *, zone: str = "") -> SpanClient:
        """Make a client on a node of the world. The zone of a server is the last letter of its name."""
        return SpanClient(self.addresses, clock=env.clock, rng=env.rng, channels=ChannelCache(env.channel), zone=zone)

    def running(self, name: str) -> SpanProcess | None:
        """Return the process of a server unless it is down or stopped."""
        node = self.world.nodes[name]
        return self.processes.get(name) if node.running and not node.paused else None

    async def settle(self, client: SpanClient, groups: Sequence[int] | None = None, timeout_s: float = 30.0) -> None:
        """Wait until every group answers a strong read: after faults were healed, progress must return."""
        ranges = await client.range_map(timeout_s=timeout_s)
        wanted = set(groups if groups is not None else ranges.groups())
        for item in ranges.ranges:
            if item.group in wanted:
                wanted.discard(item.group)
                await client.read([item.start or b"\x01"], timeout_s=timeout_s)

    def replicas(self, group: int) -> list[tuple[str, Group]]:
        """Return the replicas of a group in all running servers."""
        found = [(name, self.running(name)) for name in self.names]
        return [
            (name, process.server.groups[group])
            for name, process in found
            if process is not None and group in process.server.groups
        ]

    def unsettled(self) -> str:
        """Say what keeps the replicas from being all alike and at rest; nothing once they are."""
        for group in self.groups:
            replicas = self.replicas(group)
            if len(replicas) < len(self.voters(group)):
                return f"of group {group} only {[name for name, _ in replicas]} are up"
            indexes = {name: replica.state.applied.index for name, replica in replicas}
            if len(set(indexes.values())) > 1:
                return f"the replicas of group {group} have applied {indexes}"
            prepared = sorted({txn.hex() for _, replica in replicas for txn in replica.state.prepared})
            if prepared:
                return f"transactions {prepared} are still prepared in group {group}"
        return ""

    def digests(self) -> dict[tuple[int, int], set[int]]:
        """Return the digests by (group, applied index) over all running replicas: each set must have one member."""
        found: dict[tuple[int, int], set[int]] = {}
        for group in self.groups:
            for _, replica in self.replicas(group):
                state = replica.state.applied
                found.setdefault((group, state.index), set()).add(state.digest)
        return found

    def state(self, name: str, group: int) -> dict[bytes, bytes]:
        """Return everything that the log of a group has made of the disk of a server."""
        with self.engines[name].snapshot() as reader:
            return {
                key: value
                for space in checkpoint.STATE
                for key, value in reader.scan(*keyspace.subspace_range(group, space))
                if space is not Subspace.META or not checkpoint.is_local(key)
            }
