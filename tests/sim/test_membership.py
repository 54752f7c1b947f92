"""Members of groups that come, go and are lost, in whole simulated clusters."""

import asyncio
from typing import Any

import pytest

from f1common.errors import F1Error
from spanstore.client import SpanClient, Write
from spanstore.runtime.birth import Birth
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.world import World, run_sim

KEY = b"\x15\x02key"


async def put(client: SpanClient, value: bytes, timeout_s: float = 20.0) -> int:
    return await client.commit([Write(KEY, value)], timeout_s=timeout_s)


async def get(client: SpanClient, timeout_s: float = 20.0) -> bytes | None:
    return (await client.read([KEY], timeout_s=timeout_s)).values()[0]


async def lose_a_disk_and_its_rival(world: World) -> bytes | None:
    """Two of three have a commit; one of them loses its disk while the other is away, and the third comes back.

    Returns what a reader then sees before the one with the commit returns, None if nobody answers.
    """
    cluster = SimCluster(world, ClusterConfig(groups=1))
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    await put(client, b"old")
    await asyncio.sleep(2)
    group = (await client.range_map()).group_of(KEY)
    leader = next(name for name, replica in cluster.replicas(group) if replica.is_serving_leader())
    lost, behind = (name for name in cluster.names if name != leader)
    world.crash(behind)
    await put(client, b"new")
    world.crash(leader)
    world.crash(lost)
    del cluster.engines[lost]
    world.restart(behind)
    world.restart(lost)
    try:
        seen = await get(client, timeout_s=20)
    except F1Error:
        seen = None
    world.restart(leader)
    assert await get(client, timeout_s=30) == b"new"
    await client.close()
    return seen


@pytest.mark.parametrize("seed", range(3))
def test_a_voter_that_lost_its_disk_does_not_vote(seed: int) -> None:
    assert run_sim(lose_a_disk_and_its_rival, seed) is None


def test_the_loss_of_a_disk_is_seen_to_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that lets an empty directory vote loses the commit."""

    async def believe(self: Birth, ask: Any) -> None:
        await self._adopt({name: b"" if name != self._me else self._nonce for name in self._founders})

    monkeypatch.setattr(Birth, "settle", believe)
    seen = []
    for seed in range(5):
        try:
            seen.append(run_sim(lose_a_disk_and_its_rival, seed))
        except AssertionError:
            return
    pytest.fail(f"nothing was lost: {seen}")
