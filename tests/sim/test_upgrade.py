"""Servers that are upgraded one after the other: what only the new ones understand waits for the last one."""

import asyncio

import pytest

from f1common.config import StorageSection
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.client.groups import GroupAdmin
from spanstore.client.placement import move_jobs, submit_move
from spanstore.group.versions import Versions
from spanstore.placement.jobs import JobState
from spanstore.runtime.peers import PROTOCOL_VERSION
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.world import World, run_sim
from tests.amounts import some
from tests.sim.test_membership import begin

OLD, NEWER = 1, 2
"""Neighbours: the newer one brought most of what there is."""

NAMES = ("span-a", "span-b", "span-c", "span-d")


def old_cluster() -> ClusterConfig:
    """Servers of the older version, and settings under which there is always something for the newer one to do."""
    storage = StorageSection(version_keep_ms=500, digest_every_ms=500)
    return ClusterConfig(servers=4, spare=1, groups=2, storage=storage, versions=dict.fromkeys(NAMES, OLD))


def conditions(cluster: SimCluster) -> str:
    running = [process for name in cluster.names if (process := cluster.running(name))]
    return "; ".join(text for process in running for text in process.server.conditions())


def collected(cluster: SimCluster) -> int:
    return sum(replica.state.collected.versions for group in cluster.groups for _, replica in cluster.replicas(group))


async def upgrade(world: World) -> list[str]:
    """Upgrade all servers while everything that is new is asked for; return what an old one would have failed at."""
    config = old_cluster()
    cluster, client, load = await begin(world, config)
    table = (tuples.encode((1,)), tuples.encode((2,)))
    group = (await client.range_map()).group_of(table[0])
    await submit_move(client, *table, 3 - group)
    admin = GroupAdmin(client, timeout_s=8)
    await asyncio.sleep(2)
    for name in NAMES:
        try:
            await admin.add_reader(1, "span-d")
        except F1Error as error:
            assert error.code is Code.FAILED_PRECONDITION, error
        await asyncio.sleep(2)
        if not cluster.unknown and name != "span-d":
            assert "wait until" in conditions(cluster) and not collected(cluster)
            (job,) = await move_jobs(client)
            assert job.state is JobState.COPYING and "version 2" in job.message, job
        config.versions[name] = NEWER
        world.crash(name)
        world.restart(name)
    await asyncio.sleep(6)
    assert [job.state for job in await move_jobs(client)] == [JobState.DONE]
    assert "span-d" in " ".join((await admin.add_reader(1, "span-d")).learners)
    assert collected(cluster)
    for version in range(NEWER, PROTOCOL_VERSION):
        if not cluster.unknown:
            assert f"version {PROTOCOL_VERSION} of the protocol is needed" in conditions(cluster)
        for name in NAMES:
            config.versions[name] = version + 1
            world.crash(name)
            world.restart(name)
            await asyncio.sleep(1)
    await asyncio.sleep(2)
    assert not conditions(cluster)
    await load.check()
    return cluster.unknown


@pytest.mark.parametrize("seed", some([1], [0, *range(2, 5)]))
def test_what_is_new_waits_until_all_members_know_it(seed: int) -> None:
    assert run_sim(upgrade, seed) == []


def test_an_entry_that_came_too_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that does not ask what the members know logs what the old ones cannot read."""
    monkeypatch.setattr(Versions, "_without", lambda self, version, members: [])
    unknown = " ".join(run_sim(upgrade, 0))
    assert all(kind in unknown for kind in ("BeginMoveCmd", "RaiseMarkCmd", "DigestCmd", "MembersChanged"))


async def upgrade_one_by_one(world: World) -> int:
    config = ClusterConfig(groups=2, versions=dict.fromkeys(NAMES[:3], OLD))
    cluster, _, load = await begin(world, config)
    for version in range(NEWER, PROTOCOL_VERSION + 1):
        for name in cluster.names:
            await asyncio.sleep(3)
            config.versions[name] = version
            world.crash(name)
            world.restart(name)
    await asyncio.sleep(3)
    return await load.check()


def test_servers_are_upgraded_one_after_the_other() -> None:
    assert run_sim(upgrade_one_by_one, 1) > 100


async def too_far_apart(world: World) -> str:
    config = ClusterConfig(groups=1, versions={"span-a": PROTOCOL_VERSION + 2})
    cluster = SimCluster(world, config)
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    return next(name for name, replica in cluster.replicas(1) if replica.is_serving_leader())


def test_versions_that_are_too_far_apart_do_not_speak() -> None:
    """The two that understand each other go on, and the third hears nobody."""
    assert {run_sim(too_far_apart, seed) for seed in range(4)} == {"span-b", "span-c"}
