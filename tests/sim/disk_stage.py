"""A cluster in simulated time whose disks and clocks a test can spoil."""

from collections.abc import Awaitable, Callable

from f1common.config import PaxosSection, StorageSection
from f1common.encoding import tuple as tuples
from spanstore.client import Write
from spanstore.engine import keyspace
from spanstore.engine.base import EngineFailed
from spanstore.engine.keyspace import Subspace
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import World, WorldConfig, simulate

MIB = 1 << 20
GROUP = 1

Play = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A cluster of three servers with some rows in each group, and a client."""

    def __init__(self, world: World, digest_every_ms: int) -> None:
        self.world = world
        storage = StorageSection(digest_every_ms=digest_every_ms)
        paxos = PaxosSection(lease_ms=600, heartbeat_ms=80, election_timeout_ms=300)
        self.cluster = SimCluster(world, ClusterConfig(groups=2, storage=storage, paxos=paxos))
        self.keys: list[bytes] = []
        self.written: dict[bytes, int] = {}
        self.values: dict[bytes, bytes | None] = {}

    async def begin(self) -> None:
        self.cluster.start()
        env = self.world.add_client("client")
        self.client = self.cluster.client(env)
        await self.cluster.settle(self.client)
        ranges = await self.client.range_map()
        tables = [table for table in range(1, 17) if ranges.group_of(tuples.encode((table,))) == GROUP]
        self.keys = [tuples.encode((tables[0], i)) for i in range(20)]
        for key in self.keys:
            await self.put(key)

    async def put(self, key: bytes, value: bytes | None = b"v") -> int:
        ts = await self.client.commit([Write(key, value)], timeout_s=20)
        self.written[key], self.values[key] = ts, value
        return ts

    async def read_all(self) -> None:
        result = await self.client.read(self.keys, timeout_s=20)
        for key, version in zip(self.keys, result.versions, strict=True):
            assert version is not None and version.value is not None, key
            assert (version.ts, version.value) == (self.written[key], self.values[key])

    def leader(self) -> str | None:
        for name, replica in self.cluster.replicas(GROUP):
            if replica.is_serving_leader():
                return name
        return None

    async def until(self, done: Callable[[], object], seconds: float, what: str) -> None:
        end = self.world.now_us() + int(seconds * 1e6)
        while not done():
            assert self.world.now_us() < end, what
            await self.world.sleep_us(20_000)

    def conditions(self, name: str) -> list[str]:
        return self.cluster.processes[name].server.conditions()

    def row(self, name: str, position: int) -> bytes:
        """Return the engine key of the newest version of a row in a server's replica."""
        stem = keyspace.prefix(GROUP, Subspace.DATA) + self.keys[position] + b"\x00"
        with self.cluster.engines[name].snapshot() as view:
            found = view.seek_first(stem, stem + b"\xff" * 9)
        assert found is not None
        return found[0]


def play(seed: int, body: Play, *, digest_every_ms: int = 200, bound_us: int = 0) -> None:
    async def main(world: World) -> None:
        stage = Stage(world, digest_every_ms)
        await stage.begin()
        await body(stage)

    simulate(main, f"disks {seed}", WorldConfig(tolerated_exits=(EngineFailed,), clock_bound_us=bound_us))


def followers(stage: Stage) -> list[str]:
    leader = stage.leader()
    assert leader is not None
    return [name for name in stage.cluster.names if name != leader]
