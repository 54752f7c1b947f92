"""The load balancer at work in whole simulated clusters, under load and under faults."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import pytest

from f1common.config import ClusterSection, PlacementSection
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from scripts.simulate import try_one
from spanstore.client import KeyRange, SpanClient, Write
from spanstore.client.groups import GroupAdmin, read_directory
from spanstore.client.placement import split_range, stored_map
from spanstore.client.policies import place_group, place_table, table_places
from spanstore.client.surveying import Surveyor, automatic_borders
from spanstore.paxos.configuration import server_of
from spanstore.placement.load_balance import View
from spanstore.placement.policy import Policy
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.scenarios import WORKLOADS, draw, run
from spanstore.testing.sim.world import World, run_sim

EAGER = PlacementSection(
    replace_after_ms=0,
    period_ms=1_000,
    balance_period_ms=1_000,
    load_window_ms=2_000,
    count_every_ms=2_000,
    max_range_mib=1,
    busy_rows_per_s=50,
)


def row(*elements: int) -> bytes:
    return tuples.encode(elements)


class ZonedCluster(SimCluster):
    """Two servers in each of the zones a, b and c."""

    def _describe(self) -> ClusterSection:
        described = super()._describe()
        zones = dict(zip(self.names, "abcabc", strict=False))
        return msgspec.structs.replace(
            described, servers=tuple(msgspec.structs.replace(s, zone=zones[s.name]) for s in described.servers)
        )


@dataclasses.dataclass
class Bench:
    cluster: SimCluster
    client: SpanClient
    surveyor: Surveyor

    async def view(self) -> View:
        return await self.surveyor.view()

    async def write(self, values: Mapping[bytes, bytes | None]) -> None:
        for keys in (sorted(values)[at : at + 25] for at in range(0, len(values), 25)):
            await self.client.commit([Write(key, values[key]) for key in keys], timeout_s=60)

    async def until(self, done: Callable[[View], bool], what: str, limit_s: float = 300) -> View:
        end = asyncio.get_running_loop().time() + limit_s
        while True:
            view = await self.view()
            if done(view):
                return view
            held = [(item.start, item.group, item.bytes, item.rows_per_s) for item in view.ranges if item.rows]
            assert asyncio.get_running_loop().time() < end, f"{what}: {held} {view.groups}"
            await asyncio.sleep(3)

    async def zones(self, group: int) -> Counter[str]:
        directory = self.cluster.processes[self.cluster.names[0]].registrar.directory
        members = await GroupAdmin(self.client).members(group)
        return Counter(directory.servers[server_of(member)].zone for member in members.voters)


async def bench(world: World, config: ClusterConfig, kind: type[SimCluster] = SimCluster) -> Bench:
    cluster = kind(world, config)
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    while len((await read_directory(client)).servers) < config.servers:
        await asyncio.sleep(0.2)
    return Bench(cluster, client, Surveyor(client))


def test_a_large_table_is_cut_and_spread_while_it_is_written() -> None:
    async def main(world: World) -> None:
        made = await bench(world, ClusterConfig(groups=3, placement=EAGER))
        expected = {row(1, number, 2, 5): b"%06d" % number + bytes(20_000) for number in range(250)}
        await made.write(expected)
        view = await made.until(
            lambda view: (
                all(item.bytes <= 1 << 20 for item in view.ranges)
                and len({item.group for item in view.ranges if item.table == 1 and item.bytes}) == 3
            ),
            "it is not cut",
        )
        assert all(len(tuples.decode(border)) <= 2 for border in view.borders)
        (rows,) = (await made.client.read(ranges=[KeyRange(row(1), row(2), limit=10)])).ranges
        assert [item.key for item in rows] == sorted(expected)[:10]
        found = (await made.client.read(sorted(expected))).values()
        assert found == [expected[key] for key in sorted(expected)]
        # What shrinks is joined again; a border that somebody asked for stays.
        await split_range(made.client, row(1, 1_000))
        await made.write(dict.fromkeys(expected))
        await made.until(lambda view: sum(item.table == 1 for item in view.ranges) == 2, "it is not joined")
        ranges, _ = await stored_map(made.client)
        assert ranges.lookup(row(1, 1_000)).start == row(1, 1_000)
        assert row(1, 1_000) not in await automatic_borders(made.client)

    run_sim(main, 11)


def test_a_busy_table_is_divided_between_the_groups() -> None:
    async def main(world: World) -> None:
        made = await bench(world, ClusterConfig(groups=3, placement=EAGER))
        stop = False
        written: Counter[int] = Counter()

        async def load(number: int) -> None:
            while not stop:
                written[number] += 1
                await made.client.commit([Write(row(1, number), b"%d" % written[number])], timeout_s=60)
                await asyncio.sleep(0.1)

        tasks = [asyncio.create_task(load(number)) for number in range(12)]
        await made.until(
            lambda view: len({item.group for item in view.ranges if item.rows_per_s > 20}) == 3, "it is not divided"
        )
        stop = True
        await asyncio.gather(*tasks)
        found = (await made.client.read([row(1, number) for number in range(12)])).values()
        assert found == [b"%d" % written[number] for number in range(12)]

    run_sim(main, 12)


def test_leaders_are_spread_and_spread_again_when_a_server_comes_back() -> None:
    async def main(world: World) -> None:
        made = await bench(world, ClusterConfig(groups=5, placement=EAGER))

        def even(view: View) -> bool:
            led = Counter(group.leader for group in view.groups.values())
            return set(led.values()) == {2}

        await made.until(even, "leaders are not spread")
        world.crash(made.cluster.names[0])
        await asyncio.sleep(20)
        world.restart(made.cluster.names[0])
        await made.until(even, "leaders are not spread again")

    run_sim(main, 13)


def test_policies_move_replicas_leaders_and_tables() -> None:
    async def main(world: World) -> None:
        voters = dict.fromkeys(range(4), (0, 1, 2))
        config = ClusterConfig(servers=6, groups=3, voters=voters, placement=EAGER)
        made = await bench(world, config, ZonedCluster)
        policy = Policy(("b", "b", "a"), "b")
        await made.client.commit([Write(row(1, 7), b"seven"), Write(row(2, 7), b"other")])
        place = await place_table(made.client, 1, policy)
        assert place.fit == ()
        assert "f1 group place" in place.note and "--zones b,b,a --leader-zone b" in place.note
        await place_group(made.client, 3, policy)
        await made.until(lambda view: _placed(view, 3, "b"), "the table is not where it belongs")
        assert await made.zones(3) == Counter("bba")
        (now,) = await table_places(made.client)
        assert (now.groups, now.fit, now.note) == ((3,), (3,), "")
        # Its group is for it alone.
        view = await made.view()
        assert not [item for item in view.ranges if item.group == 3 and item.table == 2]
        assert (await made.client.read([row(1, 7), row(2, 7)])).values() == [b"seven", b"other"]

    def _placed(view: View, group: int, zone: str) -> bool:
        held = {item.group for item in view.ranges if item.table == 1}
        return held == {group} and view.able.get(view.groups[group].leader) == zone

    run_sim(main, 14)


def test_policies_that_nobody_can_meet_are_refused() -> None:
    async def main(world: World) -> None:
        made = await bench(world, ClusterConfig(servers=3, groups=1, placement=EAGER), ZonedCluster)
        for policy, text in (
            (Policy(("a", "b", "x"), ""), "no server is in zone x"),
            (Policy(("a", "b", "b"), "c"), "no voter would lie in the leader zone"),
            (Policy(("a", "b"), ""), "1, 3 or 5"),
        ):
            with pytest.raises(F1Error, match=text) as caught:
                await place_table(made.client, 1, policy)
            assert caught.value.code is Code.INVALID_ARGUMENT
        with pytest.raises(F1Error, match="name one for each voter"):
            await place_group(made.client, 1, Policy(("a",), ""))
        with pytest.raises(F1Error, match="there is no group 9") as missing:
            await place_group(made.client, 9, Policy((), "a"))
        assert missing.value.code is Code.NOT_FOUND

    run_sim(main, 15)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", [4_000])
def test_seeds(workload: str, seed: int) -> None:
    verdict = try_one(draw(seed, workload).with_(balance=True, run_us=5_000_000))
    assert not verdict.failure, f"seed {seed}: {verdict.failure}"


def test_the_balancer_has_something_to_do_there() -> None:
    calm = {"clock_bound_us": 0, "drop_ppm": 0, "link_min_us": 100, "link_spike_ppm": 0, "disk_mean_extra_us": 0}
    scenario = draw(4_000, "bank").with_(balance=True, groups=3, keys=10, clients=5, pause_us=5_000, faults=(), **calm)
    assert run(scenario.with_(run_us=2_000_000, link_mean_extra_us=150, disk_min_us=100)).value.moves > 0
