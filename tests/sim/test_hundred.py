"""Transactions over a hundred groups: every party dies at some step, and all groups agree on what happened."""

import asyncio

import pytest

from f1common.config import PaxosSection
from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from spanstore.client import CommitId, SpanClient, Write
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.mutations import MUTATIONS
from spanstore.testing.sim.world import World, run_sim

GROUPS = 100
KEYS = [tuples.encode((table, "key")) for table in range(1, GROUPS + 1)]
ROUNDS = 6


async def read_all(client: SpanClient) -> set[bytes | None]:
    """Return the values of all keys at one timestamp."""
    return set((await client.read(KEYS, timeout_s=60)).values())


async def drivers_and_servers_die(world: World) -> list[str]:
    """Write all keys again and again; drivers and servers die meanwhile. Return how each attempt ended."""
    # Of three hundred replicas most are idle: they need not say so all the time.
    paxos = PaxosSection(lease_ms=6_000, election_timeout_ms=3_000, heartbeat_ms=900)
    cluster = SimCluster(world, ClusterConfig(groups=GROUPS, paxos=paxos))
    cluster.start()
    client = cluster.client(world.add_client("reader"))
    await cluster.settle(client)
    assert len((await client.range_map()).groups()) == GROUPS + 1
    ends = []
    now: bytes | None = None
    for number in range(ROUNDS):
        value = b"%d" % number
        node = world.add_client(f"driver-{number}")
        driver = cluster.client(node)
        await driver.range_map()
        name = driver.new_commit_id(KEYS[number])
        node.spawn(_commit(driver, value, name))
        await asyncio.sleep(world.rng.choice((0.002, 0.004, 0.006, 0.01, 0.02, 0.1)))
        world.crash(node.name)
        victim = world.rng.choice([*cluster.names, ""])
        if victim:
            world.crash(victim)
        decision = await client.outcome(name, timeout_s=60)
        ends.append("committed" if decision.committed else "aborted")
        now = value if decision.committed else now
        assert await read_all(client) == {now}
        if decision.committed:
            assert set((await client.read(KEYS, timestamp=decision.ts, timeout_s=60)).values()) == {value}
            assert value not in set((await client.read(KEYS, timestamp=decision.ts - 1, timeout_s=60)).values())
        if victim:
            world.restart(victim)
    again = await client.commit([Write(key, b"last") for key in KEYS], timeout_s=60)
    assert set((await client.read(KEYS, timestamp=again, timeout_s=60)).values()) == {b"last"}
    return ends


async def _commit(driver: SpanClient, value: bytes, name: CommitId) -> None:
    try:
        await driver.commit([Write(key, value) for key in KEYS], commit_id=name, timeout_s=30)
    except F1Error:
        pass  # the outcome is asked for


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_groups_agree_whoever_dies(seed: int) -> None:
    assert len(run_sim(drivers_and_servers_die, seed)) == ROUNDS


@pytest.mark.long
def test_an_abort_that_is_not_logged_is_caught() -> None:
    (mutation,) = [mutation for mutation in MUTATIONS if mutation.name == "abort_not_logged"]
    with mutation.broken():
        for seed in range(1, 12):
            try:
                run_sim(drivers_and_servers_die, seed)
            except Exception:
                return
    pytest.fail("nobody noticed")
