"""Five data centres as F1 had them (section 10): two on the east coast, two on the west coast, one in the middle.

Virtual time, so that the figures are those of the protocol and not of the machine that plays it: what a commit costs
is how many times it crosses the continent. The round-trip times are those between large data centres of such places.
"""

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from f1common.encoding import tuple as tuples
from spanstore.client import SpanClient, Write
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.net import LinkProfile
from spanstore.testing.sim.world import World

MS = 1_000

SITES = {"a": "east 1", "b": "east 2", "c": "central", "d": "west 1", "e": "west 2"}
"""Zones of the servers; leaders are wanted in the first."""

ROUND_TRIP_MS = {"ab": 14, "ac": 38, "ad": 68, "ae": 64, "bc": 36, "bd": 70, "be": 66, "cd": 36, "ce": 40, "de": 22}
"""Between two sites; within one it is half a millisecond."""

_WITHIN_US = 250
_JITTER_US = 150


def round_trip_us(first: str, second: str) -> int:
    """Return the shortest round trip between two zones, in microseconds."""
    if first == second:
        return 2 * _WITHIN_US
    return ROUND_TRIP_MS["".join(sorted(first + second))] * MS


def second_nearest_us(leader: str = "a") -> int:
    """Return the round trip to the voter whose answer completes a majority of five."""
    return sorted(round_trip_us(leader, other) for other in SITES if other != leader)[1]


@dataclass(slots=True)
class Latencies:
    """What one kind of operation took, in microseconds of virtual time."""

    name: str
    samples: list[int] = field(default_factory=list)

    @property
    def p50_us(self) -> int:
        """The median."""
        return int(statistics.median(self.samples))

    def quantile_us(self, part: float) -> int:
        """Return the sample below which ``part`` of all samples lie."""
        ordered = sorted(self.samples)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


@dataclass(slots=True)
class Report:
    """The latencies of a run, by a client beside the leaders, and of reads by clients far away."""

    kinds: dict[str, Latencies]
    leaders: dict[int, str]
    writes_after_loss: int = 0
    writes_without_leaders: int = 0
    """After the loss of the site that led all groups, and one machine elsewhere."""


def connect(world: World, zones: dict[str, str]) -> None:
    """Give every link between nodes the latency of the zones that they are in."""
    for src, first in zones.items():
        for dst, second in zones.items():
            one_way = round_trip_us(first, second) // 2
            world.net.profiles[src, dst] = LinkProfile(one_way, _JITTER_US, 0)


def row(table: int, number: int) -> bytes:
    """Return a key of a root table; tables are dealt to the groups in turn."""
    return tuples.encode((table, number))


async def measure(world: World, rounds: int = 60) -> Report:
    """Run the five sites, measure, lose a site and one machine elsewhere, twice, and go on writing."""
    cluster = SimCluster(world, ClusterConfig(servers=5, groups=2, leader_zone="a"))
    zones = {name: name[-1] for name in cluster.names} | {"east": "a", "west": "d"}
    connect(world, zones)
    cluster.start()
    east = cluster.client(world.add_client("east"))
    west = cluster.client(world.add_client("west"))
    await cluster.settle(east)
    await _until_led_from(cluster, "a")
    report = Report({}, {})
    await _measure_all(report, world, east, west, rounds)
    report.leaders = _leaders(cluster)
    world.crash("span-b", silent=True)
    world.crash("span-d", silent=True)
    for number in range(rounds):
        await east.commit([Write(row(1, number), b"after")], timeout_s=30)
        report.writes_after_loss += 1
    world.restart("span-b")
    world.restart("span-d")
    await _until_caught_up(cluster)
    world.crash("span-a", silent=True)
    world.crash("span-c", silent=True)
    for number in range(rounds):
        await west.run(_in_both_groups(number))
        report.writes_without_leaders += 1
    await east.close()
    await west.close()
    return report


async def _measure_all(report: Report, world: World, east: SpanClient, west: SpanClient, rounds: int) -> None:
    async def in_transaction(number: int) -> None:
        async def work(tx: Any) -> None:
            await tx.read([row(1, number)])
            tx.write(row(1, number), b"again")

        await east.run(work)

    kinds: dict[str, Callable[[int], Awaitable[object]]] = {
        "commit, one group": lambda n: east.commit([Write(row(1, n), b"one")]),
        "commit, two groups": lambda n: east.commit([Write(row(1, n), b"two"), Write(row(2, n), b"two")]),
        "read under locks, commit": in_transaction,
        "strong read in the east": lambda n: east.read([row(1, n)]),
        "strong read from the west": lambda n: west.read([row(1, n)]),
    }
    for name, operation in kinds.items():
        report.kinds[name] = latencies = Latencies(name)
        for number in range(rounds):
            begin = world.now_us()
            await operation(number)
            latencies.samples.append(world.now_us() - begin)
            await asyncio.sleep(0.02)


def _in_both_groups(number: int) -> Callable[[Any], Awaitable[None]]:
    async def work(tx: Any) -> None:
        tx.write(row(1, number), b"without a")
        tx.write(row(2, number), b"without a")

    return work


async def _until_led_from(cluster: SimCluster, zone: str) -> None:
    while any(leader[-1:] != zone for leader in _leaders(cluster).values()) or not _leaders(cluster):
        await asyncio.sleep(0.5)


async def _until_caught_up(cluster: SimCluster) -> None:
    while cluster.unsettled():
        await asyncio.sleep(0.5)


def _leaders(cluster: SimCluster) -> dict[int, str]:
    return {
        group: next((name for name, replica in cluster.replicas(group) if replica.is_serving_leader()), "")
        for group in cluster.groups
    }
