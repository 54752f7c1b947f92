"""Servers that are drained, removed and built anew, in whole simulated clusters, while clients write."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from f1common.config import ClusterSection
from f1common.errors import Code, F1Error
from spanstore.client import SpanClient, Write, servers
from spanstore.client.groups import GroupAdmin
from spanstore.client.servers import ServerAdmin
from spanstore.placement.directory import Standing, encode_standing
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.world import World, WorldConfig, run_sim

KEYS = [bytes([0x15, table, 1]) for table in (2, 3, 4)]
ENDS = WorldConfig(tolerated_exits=(F1Error,))


class GrownCluster(SimCluster):
    """Groups of three voters, and a fourth server without replicas, in a zone of another server."""

    def _describe(self) -> ClusterSection:
        described = super()._describe()
        zones = {"span-d": "c"}
        return msgspec.structs.replace(
            described,
            servers=tuple(msgspec.structs.replace(s, zone=zones.get(s.name, s.zone)) for s in described.servers),
            groups=tuple(msgspec.structs.replace(g, readers=()) for g in described.groups),
        )


@dataclasses.dataclass
class Bench:
    """A cluster, a client that gives orders, and one that writes."""

    world: World
    cluster: GrownCluster
    client: SpanClient
    written: dict[bytes, int] = dataclasses.field(default_factory=dict)

    def admin(self, timeout_s: float = 300.0) -> ServerAdmin:
        return ServerAdmin(self.client, timeout_s=timeout_s)

    async def write(self) -> None:
        """Write rising numbers until cancelled; what was acknowledged is noted."""
        for number in range(1, 1_000_000):
            key = KEYS[number % len(KEYS)]
            await self.client.commit([Write(key, b"%d" % number)], timeout_s=60)
            self.written[key] = number
            await asyncio.sleep(0.05)

    async def check(self) -> None:
        """Every row is the newest that was acknowledged, or the one after it."""
        found = (await self.client.read(KEYS, timeout_s=60)).values()
        for key, value in zip(KEYS, found, strict=True):
            assert value is not None
            assert int(value) in (self.written[key], self.written[key] + len(KEYS))


async def bench(world: World) -> Bench:
    cluster = GrownCluster(world, ClusterConfig(servers=4, groups=2, readers=1))
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    made = Bench(world, cluster, client)
    while len((await made.admin().directory()).servers) < 4:
        await asyncio.sleep(0.2)
    return made


async def while_writing(made: Bench, work: Callable[[], Awaitable[None]]) -> None:
    writer = asyncio.create_task(made.write())
    await work()
    await asyncio.sleep(1)
    assert not writer.done(), writer.exception()
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    assert set(made.written) == set(KEYS)
    await made.check()


async def refusal(work: Awaitable[object]) -> F1Error:
    with pytest.raises(F1Error) as raised:
        await work
    return raised.value


async def ended(made: Bench) -> None:
    """Wait until span-c has ended because it was removed, and see that nobody else has ended."""
    node = made.world.nodes["span-c"]
    for _ in range(200):
        if node.exit is not None:
            break
        await asyncio.sleep(0.1)
    error, node.exit = node.exit, None
    assert isinstance(error, F1Error)
    assert (error.code, "was removed" in error.message) == (Code.FAILED_PRECONDITION, True)
    assert all(made.world.nodes[name].exit is None for name in made.cluster.names)


async def drain_and_remove(world: World) -> None:
    made = await bench(world)
    admin = made.admin()

    async def work() -> None:
        assert await admin.drain("span-c") == [0, 1, 2]
        assert await admin.replicas("span-c") == []
        for members in await GroupAdmin(made.client).all_members():
            assert {m.partition("#")[0] for m in members.voters} == {"span-a", "span-b", "span-d"}
        error = await refusal(GroupAdmin(made.client).add_learner(1, "span-c"))
        assert (error.code, "drained" in error.message) == (Code.FAILED_PRECONDITION, True)
        await admin.remove("span-c")
        await admin.remove("span-c")
        assert sorted((await admin.directory()).servers) == ["span-a", "span-b", "span-d"]

    await while_writing(made, work)
    # It finds out, and ends; it is started again and again, and ends again.
    for _ in range(2):
        await ended(made)
    for name in ("span-a", "span-b", "span-d"):
        process = made.cluster.processes[name]
        with pytest.raises(F1Error, match="no member"):
            process.server.check_identity("span-c", "sim")
    assert (await refusal(admin.drain("span-c"))).code is Code.NOT_FOUND
    await made.client.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_server_is_emptied_and_removed_while_clients_write(seed: int) -> None:
    run_sim(drain_and_remove, seed, ENDS)


async def remove_a_dead_one(world: World) -> None:
    made = await bench(world)
    admin = made.admin()
    world.crash("span-c")

    async def work() -> None:
        await admin.drain("span-c")
        await admin.remove("span-c")

    await while_writing(made, work)
    # It comes back with all that it had: it held replicas of every group, and must not take part.
    world.restart("span-c")
    await asyncio.sleep(0.5)
    assert sorted(made.cluster.processes["span-c"].server.groups) == [0, 1, 2]
    await ended(made)
    await made.check()
    assert "span-c" not in (await admin.directory()).servers
    await made.client.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_dead_server_is_replaced_and_does_no_harm_when_it_comes_back(seed: int) -> None:
    run_sim(remove_a_dead_one, seed, ENDS)


def test_a_server_whose_removal_is_not_kept_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that deletes the row of a removed server, and no more, has it back as soon as it is started."""

    def forgetful(standing: Standing) -> bytes:
        return encode_standing(Standing.SERVING if standing is Standing.REMOVED else standing)

    monkeypatch.setattr(servers, "encode_standing", forgetful)
    with pytest.raises(AssertionError):
        run_sim(remove_a_dead_one, 0, ENDS)


async def refusals(world: World) -> None:
    made = await bench(world)
    admin = made.admin()
    error = await refusal(admin.drain("span-a"))
    assert error.code is Code.FAILED_PRECONDITION
    assert "2 zones instead of 3" in error.message
    assert "--any-zone" in error.message
    error = await refusal(admin.remove("span-c"))
    assert (error.code, "groups 0, 1, 2" in error.message) == (Code.FAILED_PRECONDITION, True)
    assert (await refusal(admin.drain("span-z"))).code is Code.NOT_FOUND
    # Nothing of that has left a mark.
    directory = await admin.directory()
    assert not any(directory.is_draining(name) for name in made.cluster.names)
    await admin.drain("span-c")
    error = await refusal(admin.drain("span-b"))
    assert "no place" in error.message
    assert (await refusal(admin.rebuild("span-c"))).code is Code.FAILED_PRECONDITION
    await admin.undrain("span-c")
    assert await admin.rebuild("span-c") == []
    await admin.drain("span-b", any_zone=True)
    await made.client.close()


def test_what_cannot_be_done_is_refused_before_anything_is() -> None:
    run_sim(refusals, 1)


async def rebuild_a_lost_disk(world: World) -> None:
    made = await bench(world)
    admin = made.admin()

    async def work() -> None:
        world.crash("span-b")
        del made.cluster.engines["span-b"]
        assert (await refusal(admin.rebuild("span-b"))).code is Code.FAILED_PRECONDITION
        world.restart("span-b")
        await asyncio.sleep(1)
        assert not made.cluster.processes["span-b"].server.groups
        assert await admin.rebuild("span-b") == [0, 1, 2]
        assert sorted(made.cluster.processes["span-b"].server.groups) == [0, 1, 2]
        for members in await GroupAdmin(made.client).all_members():
            voters = {m.partition("#")[0] for m in members.voters}
            assert "span-b" in voters  # and, while replicas are balanced, one more than three

    await while_writing(made, work)
    await made.client.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_server_without_its_disk_is_built_anew(seed: int) -> None:
    run_sim(rebuild_a_lost_disk, seed)
