"""What must be the same in all servers: the cluster's value counts, whatever the files of servers say."""

import asyncio
from typing import Any

import pytest

from f1common.config import StorageSection
from f1common.errors import Code, F1Error
from spanstore.client import SpanClient, Write
from spanstore.runtime import collector
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.world import World, run_sim

KEY = b"\x15\x02key"
LONG = StorageSection(version_keep_ms=60_000)
SHORT = StorageSection(version_keep_ms=1_000)


async def begun(world: World, storage: StorageSection) -> tuple[SimCluster, SpanClient]:
    cluster = SimCluster(world, ClusterConfig(groups=1, storage=storage))
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    return cluster, client


async def restarted(world: World, cluster: SimCluster, client: SpanClient, storage: StorageSection) -> None:
    """Start all servers again, with another file."""
    cluster.config.storage = storage
    for name in cluster.names:
        world.crash(name)
        world.restart(name)
    await cluster.settle(client)


def conditions(cluster: SimCluster) -> list[str]:
    return [text for process in cluster.processes.values() for text in process.server.conditions()]


async def refused(asked: Any) -> Code | None:
    try:
        await asked
    except F1Error as error:
        return error.code
    return None


async def overwrite(client: SpanClient) -> None:
    """Make garbage for five seconds."""
    for value in range(50):
        await client.commit([Write(KEY, b"%d" % value)])
        await asyncio.sleep(0.1)


async def shorter_in_the_files(world: World) -> bytes | None:
    """Return what a read at a timestamp sees that the cluster keeps, and that the files of its servers do not."""
    cluster, client = await begun(world, LONG)
    ts = await client.commit([Write(KEY, b"kept")])
    await restarted(world, cluster, client, SHORT)
    await overwrite(client)
    assert len([text for text in conditions(cluster) if "version_keep_ms is 1000" in text]) == 3
    pin = await client.pins.add("old", ts)
    assert pin.ts == ts
    await overwrite(client)
    return (await client.read([KEY], timestamp=ts)).values()[0]


def test_versions_are_kept_for_as_long_as_the_cluster_says() -> None:
    assert run_sim(shorter_in_the_files, 1) == b"kept"


def test_a_server_that_goes_by_its_own_file_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        collector, "highest_mark", lambda read_ts, keep_us, pins: read_ts - SHORT.version_keep_ms * 1000
    )
    with pytest.raises(F1Error, match="SNAPSHOT_TOO_OLD"):
        run_sim(shorter_in_the_files, 1)


async def change_what_is_kept(world: World) -> None:
    cluster, client = await begun(world, LONG)
    ts = await client.commit([Write(KEY, b"first")])
    assert await client.pins.keep() == 60
    assert await client.pins.keep(1) == 1
    await restarted(world, cluster, client, SHORT)
    await overwrite(client)
    assert not conditions(cluster)
    assert await refused(client.read([KEY], timestamp=ts)) is Code.SNAPSHOT_TOO_OLD
    before = client.strong_timestamp()
    assert await client.pins.keep(60) == 60
    # What was collected while versions were kept for a second is not there because they are kept longer now.
    assert await refused(client.pins.add("gone", before - 5_000_000)) is Code.SNAPSHOT_TOO_OLD
    await asyncio.sleep(20)
    await client.pins.add("there", client.strong_timestamp() - 5_000_000)
    assert await refused(client.pins.keep(0.1)) is Code.INVALID_ARGUMENT
    assert await refused(client.pins.add("future", client.strong_timestamp() + 3_600_000_000)) is Code.INVALID_ARGUMENT


def test_how_long_versions_are_kept_changes_while_the_cluster_serves() -> None:
    run_sim(change_what_is_kept, 1)


async def another_keeping_of_outcomes(world: World) -> set[str]:
    """Return who leads something after one server has come back with another ``outcome_keep_ms``."""
    cluster, client = await begun(world, LONG)
    cluster.config.storage = StorageSection(version_keep_ms=60_000, outcome_keep_ms=7_200_000)
    world.crash("span-a")
    world.restart("span-a")
    leaders = set()
    await asyncio.sleep(5)
    cluster.config.storage = LONG
    for _ in range(3):
        for other in ("span-b", "span-c"):
            world.crash(other)
            await asyncio.sleep(5)
            leaders |= {
                name for group in cluster.groups for name, replica in cluster.replicas(group) if replica.leads()
            }
            world.restart(other)
            await asyncio.sleep(3)
    assert "founded with 3600000" in " ".join(conditions(cluster))
    await client.commit([Write(KEY, b"1")])
    return leaders


def test_a_server_that_forgets_outcomes_at_another_time_leads_nothing() -> None:
    assert run_sim(another_keeping_of_outcomes, 1) <= {"span-b", "span-c"}
