"""Groups that are founded while the cluster runs, whatever dies meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from f1common.config import StorageSection
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.client import SpanClient, Write
from spanstore.client.founding import create_group
from spanstore.client.groups import GroupAdmin, read_directory
from spanstore.client.placement import submit_move, wait_for_move
from spanstore.client.servers import ServerAdmin
from spanstore.group import reads
from spanstore.paxos.configuration import Configuration, home_of, joined_at, server_of
from spanstore.placement.policy import Policy
from spanstore.placement.range_map import RangeMap
from spanstore.runtime.collector import GarbageCollector
from spanstore.runtime.spanserver import SpanServer
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.world import World, run_sim
from tests.sim.test_garbage import ONE, TWO, Driver
from tests.sim.test_membership import Load, begin

TABLE = (tuples.encode((1,)), tuples.encode((2,)))


async def until(done: Callable[[], Awaitable[bool]], what: str, tries: int = 300) -> None:
    for _ in range(tries):
        try:
            if await done():
                return
        except F1Error:
            pass
        await asyncio.sleep(0.2)
    raise AssertionError(what)


def started(**changes: Any) -> ClusterConfig:
    return ClusterConfig(**{"servers": 4, "spare": 1, "groups": 2, **changes})


async def ready(world: World, config: ClusterConfig) -> tuple[SimCluster, SpanClient, Load]:
    """Begin with a cluster whose servers all have their rows."""
    cluster, client, load = await begin(world, config)

    async def registered() -> bool:
        return {*(await read_directory(client)).versions} == {*cluster.names}

    await until(registered, "a server has no row")
    return cluster, client, load


async def found_and_use(world: World) -> tuple[int, list[str]]:
    """A group is founded, gets a table that is written all the time, gives it back, and gets it again."""
    _, client, load = await ready(world, started())
    number = await create_group(client, "new")
    for target in (number, 1, number):
        job = await submit_move(client, *TABLE, target)
        await wait_for_move(client, job.number, 60)
        assert (await client.range_map(refresh=True)).group_of(TABLE[0]) == target
        await asyncio.sleep(0.5)
    assert await load.check() > 50
    again = await create_group(client, "new")
    other = await create_group(client, "other")
    assert (again, other) == (number, number + 1)
    return number, list((await GroupAdmin(client).members(number)).voters)


def seeds(count: int) -> list[Any]:
    """The first one always, the others in the long tests."""
    return [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, count))]


@pytest.mark.parametrize("seed", seeds(3))
def test_a_group_is_founded_and_gets_a_table_under_load(seed: int) -> None:
    number, voters = run_sim(found_and_use, seed)
    assert number == 3
    assert len({server_of(voter) for voter in voters}) == 3
    assert "span-d" in {server_of(voter) for voter in voters}, "the server without replicas is first"
    assert all(joined_at(voter) == 0 and home_of(voter) for voter in voters)


async def killed_meanwhile(world: World) -> int:
    """Whoever founds the group dies at some step, and so do servers; then somebody else founds it again."""
    cluster, client, load = await ready(world, started())
    rng = world.rng
    for round_number in range(3):
        name = f"group-{round_number}"
        dying = world.add_client(f"founder-{round_number}")
        dying.spawn(create_group(cluster.client(dying), name))
        await asyncio.sleep(rng.choice((0.0, 0.003, 0.01, 0.05, 0.5, 1.5, 3.0)))
        victim = rng.choice(cluster.names)
        world.crash(victim)
        world.crash(dying.name)
        await asyncio.sleep(rng.uniform(0.0, 3.0))
        world.restart(victim)
        for other in rng.sample(cluster.names, 2):
            await asyncio.sleep(rng.uniform(0.0, 1.0))
            world.crash(other)
            world.restart(other)
        numbers: set[int] = set()

        async def founded(name: str = name, numbers: set[int] = numbers) -> bool:
            numbers.add(await create_group(client, name, timeout_s=30))
            return True

        await until(founded, f"{name} is not founded")
        assert len(numbers) == 1
        job = await submit_move(client, *TABLE, numbers.pop())
        await wait_for_move(client, job.number, 60)
    directory = await read_directory(client)
    assert sorted(directory.groups) == sorted({0, 1, 2, *directory.foundings})
    assert len({founding.name for founding in directory.foundings.values()}) == len(directory.foundings) == 3
    for number in directory.foundings:
        members = await GroupAdmin(client).members(number)
        assert sorted(members.voters) == sorted(directory.foundings[number].voters)
    return await load.check()


@pytest.mark.parametrize("seed", seeds(20))
def test_whoever_dies_the_group_is_founded_once(seed: int) -> None:
    assert run_sim(killed_meanwhile, seed) > 50


async def a_founder_is_away(world: World) -> None:
    """A server that was to have a replica is down from before it read of it, until after it was replaced, or not."""
    cluster, client, load = await ready(world, started())
    number = 3
    task = asyncio.ensure_future(create_group(client, "new"))
    while number not in (await read_directory(client)).foundings:
        await asyncio.sleep(0.001)
    founding = (await read_directory(client)).foundings[number]
    away = server_of(founding.voters[0])
    world.crash(away)
    assert await task == number
    job = await submit_move(client, *TABLE, number)
    await wait_for_move(client, job.number, 60)
    replaced = world.rng.random() < 0.5
    if replaced:
        spare = next(name for name in cluster.names if name not in [server_of(v) for v in founding.voters])
        await GroupAdmin(client).replace(number, away, spare)
    world.restart(away)
    members = await GroupAdmin(client).members(number)

    async def whole() -> bool:
        await GroupAdmin(client, timeout_s=5).caught_up(number, server_of(members.voters[0]))
        here = {name for name, _ in cluster.replicas(number)}
        return here == {server_of(voter) for voter in members.voters}

    await until(whole, "the replicas are not where they should be")
    await asyncio.sleep(3)
    assert {name for name, _ in cluster.replicas(number)} == {server_of(voter) for voter in members.voters}
    await load.check()


@pytest.mark.parametrize("seed", seeds(4))
def test_a_server_that_was_down_has_its_replica_later_if_it_is_still_its_own(seed: int) -> None:
    run_sim(a_founder_is_away, seed)


async def lose_a_founders_disk(world: World) -> bytes | None:
    """Two of three have a commit; one loses its disk while the other is away, and the third comes back.

    Returns what a reader then sees before the one with the commit returns, None if nobody answers.
    """
    cluster, client, load = await ready(world, started())
    await load.check()
    number = await create_group(client, "new")
    job = await submit_move(client, *TABLE, number)
    await wait_for_move(client, job.number, 60)
    key = tuples.encode((1, "row"))
    await client.commit([Write(key, b"old")])
    await asyncio.sleep(2)
    leader = next(name for name, replica in cluster.replicas(number) if replica.is_serving_leader())
    lost, behind = (name for name, _ in cluster.replicas(number) if name != leader)
    world.crash(behind)
    await client.commit([Write(key, b"new")], timeout_s=20)
    world.crash(leader)
    world.crash(lost)
    del cluster.engines[lost]
    world.restart(behind)
    world.restart(lost)
    try:
        (seen,) = (await client.read([key], timeout_s=20)).values()
    except F1Error:
        seen = None
    world.restart(leader)
    assert (await client.read([key], timeout_s=30)).values()[0] == b"new"
    return seen


@pytest.mark.parametrize("seed", seeds(2))
def test_a_founder_that_lost_its_disk_does_not_found_again(seed: int) -> None:
    assert run_sim(lose_a_founders_disk, seed) is None


def test_a_founder_that_takes_any_directory_for_its_own_loses_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build in which the row of a founding does not name the data directories."""

    def anywhere(server: SpanServer, founding: Configuration) -> str:
        return next((member for member in founding.members if server_of(member) == server.name), "")

    monkeypatch.setattr(SpanServer, "_founder_in", anywhere)
    seen = []
    for seed in range(5):
        try:
            seen.append(run_sim(lose_a_founders_disk, seed))
        except AssertionError:
            return
    assert b"old" in seen, "nothing was lost"


async def refused(world: World) -> None:
    _, client, load = await ready(world, started())

    async def code(*arguments: Any, **options: Any) -> tuple[Code, str]:
        with pytest.raises(F1Error) as caught:
            await create_group(client, *arguments, **options)
        return caught.value.code, caught.value.message

    before = await read_directory(client)
    assert (await code(""))[0] is Code.INVALID_ARGUMENT
    assert (await code("7"))[0] is Code.INVALID_ARGUMENT
    assert (await code("x", voters=2))[0] is Code.INVALID_ARGUMENT
    assert (await code("x", voters=5))[0] is Code.FAILED_PRECONDITION
    assert (await code("x", policy=Policy(("a", "b", "z"))))[0] is Code.INVALID_ARGUMENT
    assert (await code("x", policy=Policy(("a", "b", "c"), "d")))[0] is Code.INVALID_ARGUMENT
    unlike, text = await code("x", policy=Policy(("a", "a", "b")))
    assert unlike is Code.FAILED_PRECONDITION and "zone a" in text
    world.crash("span-d")
    await asyncio.sleep(1)
    unlike, text = await code("x", policy=Policy(("a", "b", "d")))
    assert unlike is Code.FAILED_PRECONDITION and "zone d" in text
    world.restart("span-d")

    async def answers() -> bool:
        return "span-d" in {a.name for a in (await client.status()).values() if not isinstance(a, F1Error)}

    await until(answers, "span-d does not come back")
    await ServerAdmin(client).retire("span-d")
    assert (await code("x", policy=Policy(("a", "b", "d"))))[0] is Code.FAILED_PRECONDITION
    await ServerAdmin(client).undrain("span-d")
    after = await read_directory(client)
    assert (after.groups.keys(), after.foundings, after.policies) == (before.groups.keys(), {}, {})
    number = await create_group(client, "x", policy=Policy(("d", "a", "b"), "d"))
    members = await GroupAdmin(client).members(number)
    assert [server_of(voter)[-1] for voter in members.voters] == ["a", "b", "d"]
    unlike, text = await code("x", policy=Policy(("a", "b", "c")))
    assert unlike is Code.ALREADY_EXISTS and "f1 group place" in text
    assert await create_group(client, "x", policy=Policy(("a", "b", "d"), "d")) == number
    assert (await code("x", voters=5))[0] is Code.ALREADY_EXISTS

    async def led_where_wanted() -> bool:
        return (await GroupAdmin(client).members(number)).leader == "span-d"

    await until(led_where_wanted, "it is not led in its zone")
    with pytest.raises(F1Error, match="drain it first"):
        await ServerAdmin(client).retire("span-d")
    await load.check()


def test_what_makes_no_group_is_refused_and_leaves_nothing() -> None:
    run_sim(refused, 1)


async def two_at_once(world: World) -> list[int]:
    cluster, _, _ = await ready(world, started())
    clients = [cluster.client(world.add_client(f"founder-{i}")) for i in range(4)]
    names = ("one", "one", "two", "three")
    return list(await asyncio.gather(*(create_group(c, name) for c, name in zip(clients, names, strict=True))))


@pytest.mark.parametrize("seed", seeds(3))
def test_several_at_once_get_numbers_of_their_own(seed: int) -> None:
    one, again, two, three = run_sim(two_at_once, seed)
    assert one == again and {one, two, three} == {3, 4, 5}


async def with_old_servers(world: World) -> None:
    config = started(versions={"span-b": 2})
    _, client, _ = await ready(world, config)
    with pytest.raises(F1Error, match="span-b speaks version 2") as caught:
        await create_group(client, "new")
    assert caught.value.code is Code.FAILED_PRECONDITION
    del config.versions["span-b"]
    world.crash("span-b")
    world.restart("span-b")

    async def founded() -> bool:
        return await create_group(client, "new") == 3

    await until(founded, "it is not founded by upgraded servers")


def test_groups_are_founded_once_all_servers_know_how() -> None:
    run_sim(with_old_servers, 1)


async def stuck(world: World) -> None:
    """Two of three servers go for long before they have read of the group; nobody else has to wait for them."""
    cluster, client, load = await ready(world, started(servers=7, spare=4))
    task = asyncio.ensure_future(create_group(client, "new", timeout_s=5))
    while not (founding := (await read_directory(client)).foundings.get(3)):
        await asyncio.sleep(0.001)
    chosen = [server_of(voter) for voter in founding.voters]
    assert not {*chosen} & {*cluster.names[:3]}
    for name in chosen[:2]:
        world.crash(name)
    with pytest.raises(F1Error, match="start most of these servers") as caught:
        await task
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    (idle,) = {*cluster.names[3:]} - {*chosen}
    await ServerAdmin(client).retire(idle)
    with pytest.raises(F1Error, match="3 have no leader"):
        await ServerAdmin(client, timeout_s=3).retire(chosen[0])
    assert world.true_ts() - await client.safe_time() < 1_000_000, "what owns nothing holds nothing back"
    for name in chosen[:2]:
        world.restart(name)
    assert await create_group(client, "new") == 3
    await load.check()


def test_a_group_that_cannot_begin_keeps_nobody_waiting() -> None:
    run_sim(stuck, 1)


# ---------------------------------------------------------------------- the global safe timestamp


async def below_safe_time(world: World) -> list[str]:
    """Commits in a new group take long, while somebody who has not heard of it asks for safe timestamps.

    Returns what is wrong: commits at or below a timestamp that was called safe before they were chosen.
    """
    cluster, client, load = await ready(world, started())
    watcher = cluster.client(world.add_client("watcher"))
    await watcher.safe_time()
    number = await create_group(client, "new")
    job = await submit_move(client, *TABLE, number)
    await wait_for_move(client, job.number, 60)
    await GroupAdmin(client).transfer(number, "span-d")
    others = [name for name, _ in cluster.replicas(number) if name != "span-d"]
    wrong: list[str] = []
    for _ in range(5):
        world.partition(["span-d"], others)
        slow = asyncio.ensure_future(client.commit([Write(tuples.encode((1, "slow")), b"")], timeout_s=20))
        await asyncio.sleep(0.4)
        safe_ts = await watcher.safe_time(timeout_s=20)
        assert not slow.done()
        world.heal()
        ts = await slow
        if ts <= safe_ts:
            wrong.append(f"{safe_ts} was called safe before a commit at {ts} was chosen")
        await asyncio.sleep(0.5)
    assert world.true_ts() - await watcher.safe_time() < 1_000_000
    await load.check()
    return wrong


@pytest.mark.parametrize("seed", seeds(3))
def test_nothing_is_safe_that_a_group_may_commit_below_which_the_client_has_not_heard_of(seed: int) -> None:
    assert run_sim(below_safe_time, seed) == []


def test_safe_timestamps_of_known_groups_only_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose meta group does not tell which groups there are calls too much safe."""
    monkeypatch.setattr(reads, "listed_groups", lambda reader, group: ())
    assert run_sim(below_safe_time, 0) != []


# ---------------------------------------------------------------------- outcomes


async def prepared_for_long(world: World) -> list[bytes | None]:
    """A new group is away with something prepared for longer than outcomes are kept, and the coordinator committed.

    The servers of the coordinator have read the range map before the group was founded. Returns the rows in the end.
    """
    storage = StorageSection(outcome_keep_ms=2_000)
    config = ClusterConfig(servers=9, spare=3, groups=1, storage=storage, voters={0: (0, 1, 2), 1: (3, 4, 5)})
    cluster, client, load = await ready(world, config)
    await load.check()
    await asyncio.sleep(3)
    assert await create_group(client, "new") == 2
    job = await submit_move(client, tuples.encode((2,)), tuples.encode((3,)), 2)
    await wait_for_move(client, job.number, 60)
    await client.commit([Write(ONE, b"old"), Write(TWO, b"old")])
    driver = Driver(client)
    await driver.prepare()
    await driver.commit()
    apart = {name for name, _ in cluster.replicas(2)}
    assert not apart & {name for name, _ in [*cluster.replicas(0), *cluster.replicas(1)]}
    for name in sorted(apart):
        world.crash(name)
    await asyncio.sleep(12.0)
    for name in sorted(apart):
        world.restart(name)
    return (await client.read([ONE, TWO], timeout_s=30.0)).values()


@pytest.mark.parametrize("seed", seeds(2))
def test_an_outcome_is_kept_for_a_participant_that_was_founded_later(seed: int) -> None:
    assert run_sim(prepared_for_long, seed) == [b"new", b"new"]


def test_outcomes_that_are_kept_for_known_groups_only_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def known(collector: GarbageCollector, ranges_map: RangeMap) -> list[int]:
        return ranges_map.groups()

    monkeypatch.setattr(GarbageCollector, "_all_groups", known)
    assert run_sim(prepared_for_long, 0) == [b"new", b"old"]
