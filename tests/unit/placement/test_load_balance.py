"""Cutting, joining and moving ranges by size, load and policy, over random clusters that follow what is planned."""

import random
from dataclasses import replace

import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Timestamp
from spanstore.placement.load_balance import (
    Action,
    GroupPlace,
    Lead,
    Limits,
    Merge,
    RangeLoad,
    Shift,
    Split,
    View,
    Why,
    plan,
    weigh,
)
from spanstore.placement.policy import Policy
from spanstore.placement.range_map import Range, RangeMap

LIMITS = Limits(max_bytes=1_000_000, busy_rows_per_s=1_000)
SERVERS = {"a1": "a", "b1": "b", "c1": "c"}
EAST = Policy(("a", "a", "b"), "a")


class Cluster:
    """Rows with sizes and rates at keys, a map, groups and leaders; does what is planned, and measures itself anew."""

    def __init__(self, groups: int = 4) -> None:
        starts = [(b"", 0), *((tuples.encode((table,)), 1 + table % groups) for table in range(1, 9))]
        self.map = RangeMap.from_starts(starts)
        self.sizes: dict[bytes, float] = {}
        self.rates: dict[bytes, float] = {}
        self.leaders = dict.fromkeys(range(groups + 1), "a1")
        self.policies: dict[int, Policy] = {}
        self.tables: dict[int, Policy] = {}
        self.borders: frozenset[bytes] = frozenset()
        self.groups = groups

    def view(self) -> View:
        places = {
            n: GroupPlace(n, tuple(SERVERS), self.leaders[n], p.leader_zone, p)
            for n in range(self.groups + 1)
            for p in (self.policies.get(n, Policy()),)
        }
        return View(tuple(map(self.measure, self.map.ranges)), places, self.tables, SERVERS, self.borders)

    def measure(self, item: Range) -> RangeLoad:
        sizes = weigh([(k, v) for k, v in self.sizes.items() if item.contains(k)])
        keys = weigh([(k, v) for k, v in self.rates.items() if item.contains(k)])
        total, rate = sum(v for _, v in sizes), sum(v for _, v in keys)
        return RangeLoad(item.start, item.end, item.group, int(total), len(sizes), rate, sizes, keys)

    def carry_out(self, action: Action) -> None:
        match action:
            case Split(key):
                self.map = self.map.split(key)
                self.borders |= {key}
            case Merge(key):
                self.map = self.map.merge(key)
                self.borders -= {key}
            case Shift(start, end, target):
                assert self.map.group_of(start) != target
                self.map = self.map.assign(start, end, target)
            case Lead(group, server):
                self.leaders[group] = server

    def settle(self) -> list[Action]:
        done: list[Action] = []
        while (action := plan(self.view(), LIMITS)) is not None:
            self.carry_out(action)
            done.append(action)
            assert len(done) < 300, f"it never comes to rest: {done[-6:]}"
        return done

    def load(self, group: int) -> float:
        return self.view().load_of(group)


def row(table: int, *rest: object) -> bytes:
    return tuples.encode((table, *rest))  # type: ignore[arg-type]


def test_nothing_is_done_where_nothing_is_stored_and_leaders_are_spread() -> None:
    cluster = Cluster(2)
    cluster.leaders = {0: "a1", 1: "b1", 2: "c1"}
    assert cluster.settle() == []


def test_leaders_are_spread_over_the_servers() -> None:
    cluster = Cluster(5)
    moved = cluster.settle()
    assert all(isinstance(action, Lead) for action in moved)
    led = [list(cluster.leaders.values()).count(server) for server in SERVERS]
    assert sorted(led) == [2, 2, 2]


def test_leaders_stay_in_the_zone_of_the_policy() -> None:
    cluster = Cluster(5)
    cluster.policies = dict.fromkeys(range(6), Policy((), "a"))
    assert cluster.settle() == []


def test_a_large_table_is_cut_at_borders_of_directories_and_spread() -> None:
    cluster = Cluster(4)
    for number in range(1000):
        cluster.sizes[row(1, number, 2, number % 7)] = 10_000.0
    cluster.settle()
    ranges = cluster.view().ranges
    assert all(item.bytes <= LIMITS.max_bytes for item in ranges)
    assert all(len(tuples.decode(border)) <= 2 for border in cluster.borders)
    sizes = [cluster.view().bytes_of(n) for n in range(1, 5)]
    assert sum(sizes) == 10_000_000
    assert max(sizes) - min(sizes) <= 2 * LIMITS.max_bytes
    assert cluster.view().bytes_of(0) == 0


def test_a_directory_is_cut_only_if_it_is_too_large_itself() -> None:
    cluster = Cluster(2)
    for number in range(300):
        cluster.sizes[row(1, 5, 2, number)] = 10_000.0
    cuts = [action for action in cluster.settle() if isinstance(action, Split)]
    assert cuts
    assert all(cut.fragment and cut.why is Why.SIZE for cut in cuts)
    assert all(item.bytes <= LIMITS.max_bytes for item in cluster.view().ranges)


def test_a_busy_directory_is_never_cut() -> None:
    cluster = Cluster(2)
    for number in range(50):
        cluster.rates[row(1, 5, 2, number)] = 100.0
    assert not any(isinstance(action, Split) for action in cluster.settle())


def test_a_busy_table_is_divided_between_groups() -> None:
    cluster = Cluster(4)
    for number in range(64):
        cluster.rates[row(1, number, 2, 1)] = 100.0
    cluster.settle()
    loads = [cluster.load(n) for n in range(1, 5)]
    assert max(loads) <= 2_400, loads
    assert min(loads) >= 800, loads


def test_a_border_holds_no_timestamp() -> None:
    cluster = Cluster(2)
    for number in range(300):
        cluster.sizes[row(1, Timestamp(number), number)] = 10_000.0
    assert not any(isinstance(action, Split) for action in cluster.settle())


def test_what_became_small_is_joined_again_but_borders_of_operators_stay() -> None:
    cluster = Cluster(2)
    for number in range(500):
        cluster.sizes[row(1, number)] = 10_000.0
    cluster.settle()
    assert len(cluster.borders) >= 4
    asked = row(1, 100_000)
    cluster.map = cluster.map.split(asked)
    cluster.sizes.clear()
    cluster.settle()
    assert [item.start for item in cluster.view().ranges if item.table == 1] == [row(1), asked]


def test_a_table_goes_where_its_policy_is_met_and_others_stay_away() -> None:
    cluster = Cluster(4)
    cluster.policies[3] = EAST
    cluster.tables[1] = EAST
    for number in range(400):
        cluster.sizes[row(1, number)] = 10_000.0
        cluster.sizes[row(2, number)] = 10_000.0
    cluster.settle()
    where = {table: {r.group for r in cluster.view().ranges if r.table == table and r.bytes} for table in (1, 2)}
    assert where[1] == {3}
    assert 3 not in where[2] or cluster.map.group_of(row(2)) == 3


def test_a_policy_that_no_group_meets_moves_nothing() -> None:
    cluster = Cluster(2)
    cluster.leaders = {0: "a1", 1: "b1", 2: "c1"}
    cluster.tables[1] = EAST
    assert cluster.settle() == []


@pytest.mark.parametrize("seed", range(30))
def test_random_clusters_come_to_rest_within_their_limits(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(rng.randint(1, 6))
    for _ in range(rng.randint(0, 400)):
        key = row(rng.randint(1, 8), int(rng.expovariate(0.02)), *((2, rng.randint(0, 9)) * rng.randint(0, 1)))
        cluster.sizes[key] = rng.expovariate(1 / 30_000)
        cluster.rates[key] = rng.expovariate(1 / 20) * rng.randint(0, 1)
    if rng.random() < 0.5:
        cluster.policies[cluster.groups] = EAST
        cluster.tables[rng.randint(1, 8)] = EAST
    cluster.settle()
    view = cluster.view()
    for item in view.ranges:
        assert item.bytes <= LIMITS.max_bytes or not any(item.start < key < item.end for key, _ in item.sizes)
        if item.table in cluster.tables and view.homes(item):
            assert item.group in view.homes(item)
    assert sum(item.bytes for item in view.ranges) == pytest.approx(sum(cluster.sizes.values()), abs=len(view.ranges))


def test_a_server_that_is_not_able_leads_nothing_more() -> None:
    cluster = Cluster(5)
    view = replace(cluster.view(), able={"b1": "b"})
    action = plan(view, LIMITS)
    assert isinstance(action, Lead)
    assert action.server == "b1"


def test_nothing_is_done_before_the_groups_are_known() -> None:
    view = replace(Cluster().view(), groups={}, tables={1: EAST})
    assert plan(view, LIMITS) is None
