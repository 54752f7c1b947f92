"""Learners that are to become voters, and whoever sees to that goes away."""

import asyncio

import pytest

from f1common.config import PlacementSection, StorageSection
from spanstore.client.groups import GroupAdmin
from spanstore.paxos.configuration import server_of
from spanstore.placement.balance import Move, Why
from spanstore.placement.range_map import META_GROUP
from spanstore.runtime.placement import PlacementDriver
from spanstore.testing.cluster import SimCluster
from spanstore.testing.sim.world import World, run_sim
from spanstore.tools.groups import row_of
from tests.sim.test_membership import begin, small_logs


def driver(cluster: SimCluster) -> PlacementDriver:
    leader = next(name for name, replica in cluster.replicas(META_GROUP) if replica.is_serving_leader())
    return cluster.processes[leader].placement


async def broken_off(world: World) -> list[str]:
    """An operator replaces a voter, and is gone before the new one votes; return who votes in the end."""
    config = small_logs(servers=4, spare=1)
    config.placement = PlacementSection(replace_after_ms=0, rebalance=False, balance_load=False, period_ms=500)
    config.storage = StorageSection(transfer_bytes_per_s=2_000)
    cluster, client, load = await begin(world, config)
    await asyncio.sleep(3)
    admin = GroupAdmin(client, timeout_s=8)
    task = asyncio.create_task(admin.replace(1, "span-c", "span-d"))
    await asyncio.sleep(2)
    task.cancel()
    (members,) = [m for m in await admin.all_members() if m.group == 1]
    joining = {(row.group, row.server) for row in await admin.joining()}
    shown = {m.server: m for m in row_of(members, joining).members}
    assert shown["span-d"].joining and not shown["span-d"].votes and not shown["span-a"].joining
    # As long as it may be the operator's, the driver leaves it alone, whatever becomes of a move of its own.
    await driver(cluster)._give_up(Move(1, "span-a", "span-d", True, Why.BALANCE))
    assert (await admin.members(1)).of("span-d") is not None, "it was removed under the operator's hands"
    for _ in range(60):
        await asyncio.sleep(1)
        members = await admin.members(1)
        if not members.learners and len(members.voters) == 3 and not await admin.joining():
            break
    assert not await admin.joining()
    await load.check()
    return sorted(server_of(member) for member in members.voters)


def test_a_replacement_that_was_broken_off_is_finished() -> None:
    assert run_sim(broken_off, 1) == ["span-a", "span-b", "span-d"]


def test_a_driver_that_removes_what_is_not_its_own_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacementDriver, "_is_mine", lambda self, joining, move: True)
    with pytest.raises(AssertionError, match="under the operator's hands"):
        run_sim(broken_off, 1)


async def nowhere_to_go(world: World) -> tuple[list[str], list[str]]:
    """The server of a learner that is to vote dies with its operator; return the voters and learners in the end."""
    config = small_logs(servers=4, spare=1)
    config.placement = PlacementSection(replace_after_ms=0, rebalance=False, balance_load=False, period_ms=500)
    config.storage = StorageSection(transfer_bytes_per_s=2_000)
    _, client, load = await begin(world, config)
    await asyncio.sleep(3)
    admin = GroupAdmin(client, timeout_s=8)
    task = asyncio.create_task(admin.replace(1, "span-c", "span-d"))
    await asyncio.sleep(2)
    task.cancel()
    world.crash("span-d")
    for _ in range(90):
        await asyncio.sleep(1)
        members = await admin.members(1)
        if not members.learners and not await admin.joining():
            break
    assert not await admin.joining()
    await load.check()
    return sorted(members.voters), sorted(members.learners)


def test_a_learner_that_cannot_vote_goes() -> None:
    assert run_sim(nowhere_to_go, 1) == (["span-a", "span-b", "span-c"], [])
