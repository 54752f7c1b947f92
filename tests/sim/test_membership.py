"""Members of groups that come, go and are lost, in whole simulated clusters."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from f1common.config import PaxosSection, PlacementSection, StorageSection
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import SpanClient, Write
from spanstore.client.groups import GroupAdmin
from spanstore.paxos.configuration import server_of
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


# ---------------------------------------------------------------------- members that come and go, by command


@dataclass
class Load:
    """Writers that count: each adds one to a row of its own, again and again, and knows how often it was told so."""

    client: SpanClient
    counts: dict[bytes, int] = field(default_factory=dict)
    stopped: bool = False

    async def write(self, key: bytes) -> None:
        self.counts[key] = 0
        while not self.stopped:

            async def add(tx: Any) -> None:
                found = (await tx.read([key])).values()[0]
                tx.write(key, str(int(found or 0) + 1).encode())

            await self.client.run(add)
            self.counts[key] += 1
            await asyncio.sleep(0.02)

    async def check(self) -> int:
        """Stop, compare and return how many additions there were."""
        self.stopped = True
        await asyncio.sleep(0.5)
        keys = sorted(self.counts)
        found = (await self.client.read(keys, timeout_s=30)).values()
        assert {key: int(value or 0) for key, value in zip(keys, found, strict=True)} == self.counts
        return sum(self.counts.values())


async def begin(world: World, config: ClusterConfig) -> tuple[SimCluster, SpanClient, Load]:
    cluster = SimCluster(world, config)
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    load = Load(cluster.client(world.add_client("writer")))
    for table in (1, 2):
        task = asyncio.get_running_loop().create_task(load.write(tuples.encode((table, "counter"))))
        task.add_done_callback(lambda done: None if done.cancelled() else done.result())
    return cluster, client, load


def small_logs(**changes: Any) -> ClusterConfig:
    """Logs that are soon cut, so that newcomers need the state."""
    config = ClusterConfig(groups=2, **changes)
    config.paxos = PaxosSection(log_keep_entries=20)
    return config


async def replace_a_dead_voter(world: World) -> int:
    config = small_logs(servers=4)
    config.spare = 1
    cluster, client, load = await begin(world, config)
    await asyncio.sleep(3)
    dead, new = "span-c", "span-d"
    world.crash(dead)
    admin = GroupAdmin(client)
    for group in cluster.groups:
        members = await admin.replace(group, dead, new)
        assert sorted(server_of(m) for m in members.voters) == ["span-a", "span-b", "span-d"]
    # Now the newcomer counts: without another of the first ones there is a majority only with it.
    world.crash("span-b")
    await asyncio.sleep(6)
    before = sum(load.counts.values())
    await asyncio.sleep(2)
    assert sum(load.counts.values()) > before
    return await load.check()


@pytest.mark.parametrize("seed", range(2))
def test_a_dead_voter_is_replaced_while_writes_go_on(seed: int) -> None:
    assert run_sim(replace_a_dead_voter, seed) > 50


async def replace_twice_at_once(world: World) -> int:
    config = small_logs(servers=4)
    config.spare = 1
    cluster, client, load = await begin(world, config)
    await asyncio.sleep(3)
    world.crash("span-c")
    for group in cluster.groups:
        orders = [GroupAdmin(cluster.client(world.add_client(f"operator-{group}-{n}"))) for n in range(3)]
        said = await asyncio.gather(
            *(admin.replace(group, "span-c", "span-d") for admin in orders), return_exceptions=True
        )
        for answer in said:
            if isinstance(answer, F1Error):
                assert answer.code is Code.FAILED_PRECONDITION and "is making span-d a voter" in answer.message
            else:
                assert not isinstance(answer, BaseException), answer
        members = await GroupAdmin(client).members(group)
        assert sorted(server_of(m) for m in members.voters) == ["span-a", "span-b", "span-d"] and not members.learners
    return await load.check()


@pytest.mark.parametrize("seed", range(3))
def test_several_who_give_the_same_order_at_once_are_served_or_told_who_is_at_work(seed: int) -> None:
    assert run_sim(replace_twice_at_once, seed) > 50


async def rebuild_a_lost_disk(world: World) -> int:
    cluster, client, load = await begin(world, small_logs())
    await asyncio.sleep(3)
    world.crash("span-b")
    del cluster.engines["span-b"]
    world.restart("span-b")
    await asyncio.sleep(3)
    admin = GroupAdmin(client)
    for group in cluster.groups:
        await admin.rebuild(group, "span-b")
    world.crash("span-a")
    await asyncio.sleep(6)
    return await load.check()


@pytest.mark.parametrize("seed", range(1))
def test_a_lost_disk_is_rebuilt_from_the_others(seed: int) -> None:
    assert run_sim(rebuild_a_lost_disk, seed) > 50


async def heal_by_itself(world: World) -> tuple[int, dict[int, list[str]]]:
    """One voter dies for good and another loses its disk; nobody gives a command."""
    config = small_logs(servers=4)
    config.spare = 1
    config.placement = PlacementSection(replace_after_ms=5_000, period_ms=500)
    cluster, client, load = await begin(world, config)
    await asyncio.sleep(2)
    world.crash("span-c")
    await whole(client, ["span-a", "span-b", "span-d"])
    lost = {(m.group, m.of("span-b")) for m in await GroupAdmin(client).all_members()}
    world.crash("span-b")
    del cluster.engines["span-b"]
    world.restart("span-b")
    voters = await whole(client, ["span-a", "span-b", "span-d"], lost)
    world.crash("span-a")
    await asyncio.sleep(6)
    return await load.check(), voters


async def whole(
    client: SpanClient, servers: list[str], lost: Collection[tuple[int, str | None]] = ()
) -> dict[int, list[str]]:
    """Wait until all groups have voters at ``servers`` alone that all hold the log, none of them ``lost``.

    Returns where they have them.
    """
    voters: dict[int, list[str]] = {}
    for _ in range(120):
        await asyncio.sleep(1)
        members = await GroupAdmin(client).all_members()
        voters = {m.group: sorted(server_of(v) for v in m.voters) for m in members}
        caught_up = all(m.leader and m.last_index - m.matches.get(v, 0) < 20 for m in members for v in m.voters)
        alive = not any((m.group, voter) in lost for m in members for voter in m.voters)
        if caught_up and alive and all(found == servers for found in voters.values()):
            break
    return voters


@pytest.mark.parametrize("seed", range(1))
def test_dead_servers_and_lost_disks_are_made_up_for(seed: int) -> None:
    count, voters = run_sim(heal_by_itself, seed)
    assert count > 50
    assert voters == {group: ["span-a", "span-b", "span-d"] for group in range(3)}


async def take_a_share(world: World) -> dict[str, int]:
    config = ClusterConfig(servers=6, groups=5, spare=3, placement=PlacementSection(period_ms=500))
    cluster, client, load = await begin(world, config)
    for _ in range(60):
        await asyncio.sleep(2)
        members = await GroupAdmin(client).all_members()
        counts = Counter(server_of(v) for m in members for v in m.voters + m.learners)
        if max(counts.values()) - min(counts[name] for name in cluster.names) <= 1:
            break
    await load.check()
    return dict(counts)


def test_new_servers_take_their_share() -> None:
    counts = run_sim(take_a_share, 1)
    assert len(counts) == 6 and max(counts.values()) - min(counts.values()) <= 1


async def read_from_a_reader(world: World) -> tuple[bytes | None, list[str]]:
    """Founded with a read-only replica: it serves reads at a timestamp, and never leads."""
    cluster = SimCluster(world, ClusterConfig(servers=4, groups=1, readers=1))
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    ts = await put(client, b"read me")
    group = (await client.range_map()).group_of(KEY)
    await asyncio.sleep(2)
    request = pb.Request(group=group, read=pb.Read(timestamp=ts, keys=[KEY]))
    answer = await client._router.send_to("span-d", request, 5.0)
    for name in cluster.names[:3]:
        world.crash(name)
    await asyncio.sleep(10)
    roles = [replica.replica.role.value for name, replica in cluster.replicas(group) if name == "span-d"]
    return answer.read.versions[0].value, roles


def test_a_read_only_replica_serves_reads_and_never_leads() -> None:
    assert run_sim(read_from_a_reader, 1) == (b"read me", ["follower"])


async def lose_a_disk_twice(world: World) -> tuple[int, dict[int, list[str]]]:
    """The disk is lost again while the replicas are built anew, which then cannot go on where it was."""
    config = small_logs()
    config.placement = PlacementSection(replace_after_ms=0, period_ms=500)
    config.storage = StorageSection(transfer_bytes_per_s=10_000)
    cluster, client, load = await begin(world, config)
    await asyncio.sleep(2)
    lost: set[tuple[int, str | None]] = set()
    for _ in range(2):
        lost = {(m.group, m.of("span-b")) for m in await GroupAdmin(client).all_members()}
        world.crash("span-b")
        del cluster.engines["span-b"]
        world.restart("span-b")
        await asyncio.sleep(13)
    voters = await whole(client, cluster.names, lost)
    return await load.check(), voters


def test_a_disk_that_is_lost_twice_is_made_up_for() -> None:
    count, voters = run_sim(lose_a_disk_twice, 1)
    assert count > 50
    assert voters == {group: ["span-a", "span-b", "span-c"] for group in range(3)}


async def ask_for_what_makes_no_sense(world: World) -> list[str]:
    _, client, load = await begin(world, ClusterConfig(servers=4, groups=1, spare=1))
    admin = GroupAdmin(client, timeout_s=30.0)
    said = []
    for asked in (
        admin.replace(1, "span-a", "span-c"),
        admin.replace(1, "nobody", "span-d"),
        admin.replace(1, "span-d", "span-a"),
        admin.demote(1, "span-d"),
        admin.add_reader(1, "span-a"),
        admin.add_voter(1, "nobody"),
        admin.remove(1, "span-d"),
    ):
        try:
            await asked
            said.append("done")
        except F1Error as error:
            said.append(error.code.name)
    members = await admin.members(1)
    assert (len(members.voters), members.version) == (3, 0), members
    for server in ("span-b", "span-c"):
        await admin.transfer(1, "span-a")
        await admin.remove(1, server)
    began = world.now_us()
    for asked in (admin.remove(1, "span-a"), admin.demote(1, "span-a")):
        try:
            await asked
        except F1Error as error:
            said.append(error.code.name)
    assert world.now_us() - began < 5_000_000, "it waited for what cannot come"
    await load.check()
    return said


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    assert run_sim(ask_for_what_makes_no_sense, 1) == [
        "ALREADY_EXISTS",
        "NOT_FOUND",
        "done",  # as it looks when somebody has done it already
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "NOT_FOUND",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "FAILED_PRECONDITION",
    ]
