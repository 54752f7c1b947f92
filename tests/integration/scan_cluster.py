"""Spanservers in one event loop, over real gRPC, LMDB and scan processes, so that a test can look inside."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from f1common.clock import SameHostClock, measure_same_host_offset_us
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
from f1common.rpc.server import server_options
from spanstore.client import SpanClient
from spanstore.engine.lmdb_engine import LmdbEngine
from spanstore.placement.range_map import spread_tables
from spanstore.runtime.process import SpanProcess
from spanstore.scan.pool import ScanPool

MAP_BYTES = 1 << 30


@dataclass(slots=True)
class Member:
    """One spanserver."""

    name: str
    config: Config
    engine: LmdbEngine
    pool: ScanPool
    channels: ChannelCache
    process: SpanProcess
    server: Any

    async def stop(self) -> None:
        """End it as a signal does, in order."""
        await self.server.stop(None)
        await self.process.stop()
        await self.pool.close()
        await self.channels.close()
        await self.engine.close()

    def views(self, pids: Collection[int] | None = None) -> int:
        """Read transactions open in any process, or in the given ones."""
        readers = [line.split() for line in self.engine._env.readers().splitlines()]
        opened = [int(words[0]) for words in readers if len(words) == 3 and words[0].isdigit() and words[2] != "-"]
        return sum(pids is None or pid in pids for pid in opened)


@dataclass(slots=True)
class Cluster:
    """All of them, and what a client needs."""

    clock: SameHostClock
    cluster: ClusterSection
    root: Path
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.cluster.servers]

    def client(self, seed: int = 1) -> SpanClient:
        return SpanClient(self.addresses, clock=self.clock, rng=random.Random(seed))

    async def start(self, name: str) -> Member:
        server = self.cluster.server(name)
        config = Config(
            server=ServerSection(
                name=name,
                zone=server.zone,
                port=int(server.address.rpartition(":")[2]),
                data_dir=str(self.root / name),
            ),
            clock=ClockSection(),
            paxos=PaxosSection(heartbeat_ms=50, lease_ms=600, election_timeout_ms=200),
            cluster=self.cluster,
        )
        path = Path(config.server.data_dir)
        engine = LmdbEngine.open(path, cluster="test", server=name, map_bytes=MAP_BYTES)
        pool = ScanPool(path, processes=1, map_bytes=MAP_BYTES, reader_check=engine.reader_check)
        channels = ChannelCache()
        process = SpanProcess(config, engine, self.clock, channels, random.Random(name), scan_source=pool)
        grpc_server = grpc.aio.server(options=server_options())
        grpc_server.add_insecure_port(server.address)
        await process.start(grpc_server)
        await grpc_server.start()
        member = self.members[name] = Member(name, config, engine, pool, channels, process, grpc_server)
        return member

    async def stop(self, name: str) -> None:
        await self.members.pop(name).stop()

    async def leader(self, group: int) -> Member:
        """The member that leads ``group``, waited for: where the machine stands still, none does for a while."""
        async with asyncio.timeout(30):
            while True:
                for member in self.members.values():
                    if member.process.server.groups[group].is_serving_leader():
                        return member
                await asyncio.sleep(0.02)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


@asynccontextmanager
async def running(root: Path, *, servers: int = 3, groups: int = 3) -> AsyncIterator[Cluster]:
    """A cluster whose tables 1, 2, ... lie in groups 1, 2, ... in turn."""
    names = [f"span-{chr(ord('a') + i)}" for i in range(servers)]
    numbers = list(range(groups + 1))
    section = ClusterSection(
        cluster_id="test",
        servers=tuple(
            ClusterServer(name=name, zone=name[-1], address=f"127.0.0.1:{port}")
            for name, port in zip(names, free_ports(servers), strict=True)
        ),
        groups=tuple(ClusterGroup(id=number, voters=tuple(names)) for number in numbers),
        ranges=tuple(ClusterRange(start=r.start.hex(), group=r.group) for r in spread_tables(numbers).ranges),
    )
    cluster = Cluster(SameHostClock(measure_same_host_offset_us()), section, root)
    try:
        for name in names:
            await cluster.start(name)
        client = cluster.client()
        async with asyncio.timeout(30):
            await client.range_map(timeout_s=30)
            await client.read([b"\x19"], timeout_s=30)
        await client.close()
        yield cluster
    finally:
        for name in list(cluster.members):
            await cluster.stop(name)
