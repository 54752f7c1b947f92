"""The plan of a cluster: names, zones, voters, ports."""

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from f1common.errors import Code, F1Error
from f1deploy.spec import Kind, Shape, front_ports, grown, plan, shrunk, with_ports, without_front_ports
from spanstore.placement.range_map import RangeMap


def ports() -> Callable[[], int]:
    numbers = count(20_000)
    return lambda: next(numbers)


def test_three_servers_lie_in_three_zones_and_clients_connect_to_port_and_after() -> None:
    spec = plan(Shape(), "c", 7400, ports())
    assert [(p.name, p.kind, p.zone) for p in spec.processes] == [
        ("span-a1", "spanserver", "a"),
        ("span-b1", "spanserver", "b"),
        ("span-c1", "spanserver", "c"),
        ("f1-1", "f1server", "a"),
        ("f1-2", "f1server", "b"),
        ("master", "master", "a"),
        ("slave-1", "slave", "a"),
        ("slave-2", "slave", "b"),
        ("timestamps-1", "timestamps", "a"),
        ("timestamps-2", "timestamps", "b"),
        ("locks", "locks", "c"),
    ]
    assert spec.cluster_section().master == spec.process("master").address
    assert [p.address for p in spec.f1servers()] == ["127.0.0.1:7400", "127.0.0.1:7401"]
    assert not {p.port for p in spec.spanservers()} & {7400, 7401}
    assert [group.id for group in spec.groups] == [0, 1, 2, 3, 4]
    assert all(sorted(group.voters) == ["span-a1", "span-b1", "span-c1"] for group in spec.groups)


def test_further_servers_are_second_in_their_zone() -> None:
    storage_only = plan(Shape(f1servers=0), "c", 7400, ports())
    assert [p.address for p in storage_only.processes] == ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]
    spec = plan(Shape(spanservers=5, f1servers=0, zones=2), "c", 0, ports())
    assert [p.name for p in spec.processes] == ["span-a1", "span-b1", "span-a2", "span-b2", "span-a3"]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 6))
def test_every_shape_gives_a_valid_topology(spanservers: int, groups: int, zones: int) -> None:
    spec = plan(Shape(spanservers=spanservers, groups=groups, zones=zones), "c", 0, ports())
    section = spec.cluster_section()  # validates names, addresses, voters and preferred zones
    zone_of = {server.name: server.zone for server in section.servers}
    used = len(set(zone_of.values()))
    for group in section.groups:
        assert len(group.voters) == (3 if spanservers >= 3 else 1)
        assert len({zone_of[voter] for voter in group.voters}) == min(used, len(group.voters))
        assert zone_of[group.voters[0]] == group.preferred_zone
    ranges = RangeMap.from_starts([(item.start_key, item.group) for item in section.ranges])
    assert ranges.groups() == list(range(groups + 1))
    taken = [port for process in spec.processes for port in (process.port, process.metrics_port)]
    assert len(set(taken)) == len(taken)


def test_a_cluster_without_slaves_has_no_master() -> None:
    for shape in (Shape(slaves=0), Shape(f1servers=0)):
        spec = plan(shape, "c", 0, ports())
        assert {process.kind for process in spec.processes} <= {"spanserver", "f1server", "timestamps", "locks"}
        assert spec.cluster_section().master == ""


def test_leadership_is_spread_over_zones() -> None:
    spec = plan(Shape(groups=5), "c", 0, ports())
    preferred = [group.preferred_zone for group in spec.groups]
    assert {zone: preferred.count(zone) for zone in "abc"} == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("shape", "option"),
    [
        (Shape(spanservers=0), "--spanservers"),
        (Shape(groups=0), "--groups"),
        (Shape(zones=27), "--zones"),
        (Shape(f1servers=-1), "--f1servers"),
        (Shape(slaves=-1), "--slaves"),
        (Shape(f1servers=0, slaves=1), "--slaves"),
        (Shape(voters=2), "--voters"),
        (Shape(readonly=-1), "--readonly"),
        (Shape(readonly=1), "3 voters and 1 read-only replicas of a group need 4 spanservers, not 3"),
        (Shape(spanservers=5, voters=5, readonly=2), "need 7 spanservers"),
    ],
)
def test_impossible_shape_names_the_option(shape: Shape, option: str) -> None:
    with pytest.raises(F1Error, match=option) as raised:
        plan(shape, "c", 0, ports())
    assert raised.value.code is Code.INVALID_ARGUMENT


def test_ports_beyond_the_last_are_refused() -> None:
    with pytest.raises(F1Error, match="ports up to 65536 would be needed"):
        plan(Shape(f1servers=0), "c", 65_534, ports())
    assert plan(Shape(f1servers=0), "c", 65_533, ports()).processes[-1].port == 65_535


def test_new_ports_keep_everything_else() -> None:
    spec = plan(Shape(f1servers=0), "c", 0, ports())
    moved = with_ports(spec, 9000, ports())
    assert [p.port for p in moved.processes] == [9000, 9001, 9002]
    assert (moved.groups, moved.ranges, moved.cluster_id) == (spec.groups, spec.ranges, "c")


def test_ports_that_clients_know_stay_although_they_were_chosen_free_until_others_are_asked_for() -> None:
    numbers = ports()
    spec = plan(Shape(), "c", 0, numbers)
    again = with_ports(spec, 0, numbers)
    assert front_ports(again) == front_ports(spec) and again.spanservers() != spec.spanservers()
    others = with_ports(without_front_ports(spec), 0, numbers)
    assert not {*front_ports(others)} & {*front_ports(spec)}


def test_unknown_process_is_answered_with_those_there_are() -> None:
    with pytest.raises(F1Error, match="span-a1, span-b1, span-c1") as raised:
        plan(Shape(), "c", 0, ports()).process("span-z9")
    assert raised.value.code is Code.NOT_FOUND


@given(st.integers(1, 9), st.sampled_from((None, 1, 3, 5)), st.integers(0, 4))
def test_read_only_replicas_lie_where_nobody_votes_and_are_spread(
    servers: int, voters: int | None, readonly: int
) -> None:
    shape = Shape(spanservers=servers, groups=7, voters=voters, readonly=readonly)
    if shape.voters_of_a_group + readonly > servers:
        with pytest.raises(F1Error, match="spanservers"):
            shape.check()
        return
    section = plan(shape, "c", 0, ports()).cluster_section()
    assert all(len(group.voters) == shape.voters_of_a_group for group in section.groups)
    assert all(len(group.readers) == readonly for group in section.groups)
    assert all(not set(group.readers) & set(group.voters) for group in section.groups)
    load = [sum(server.name in group.readers for group in section.groups) for server in section.servers]
    if readonly and voters == 1:
        assert max(load) - min(load) <= 2, "they are spread"


def test_a_new_server_goes_to_the_zone_with_the_fewest_under_the_next_name() -> None:
    free = ports()
    spec = plan(Shape(), "c", 7400, free)
    founded = spec.groups
    spec, (first,) = grown(spec, "spanserver", 1, None, free)
    assert (first.name, first.zone) == ("span-a2", "a")
    spec, more = grown(spec, "spanserver", 3, None, free)
    assert [p.name for p in more] == ["span-b2", "span-c2", "span-a3"]
    spec, (chosen,) = grown(spec, "spanserver", 1, "d", free)
    assert (chosen.name, chosen.zone) == ("span-d1", "d")
    assert [p.kind for p in spec.processes][:8] == ["spanserver"] * 8
    assert spec.groups == founded
    assert [s.name for s in spec.cluster_section().servers] == [p.name for p in spec.spanservers()]


def test_clients_find_a_new_f1server_at_the_next_port() -> None:
    spec = plan(Shape(), "c", 7400, ports())
    spec, new = grown(spec, "f1server", 2, "b", ports())
    assert [(p.name, p.zone, p.port) for p in new] == [("f1-3", "b", 7402), ("f1-4", "b", 7403)]
    spec, (slave,) = grown(spec, "slave", 1, None, ports())
    assert (slave.name, slave.zone) == ("slave-3", "c")
    storage_only, (server,) = grown(plan(Shape(f1servers=0), "c", 7400, ports()), "spanserver", 1, None, ports())
    assert server.port == 7403
    assert [p.port for p in with_ports(storage_only, 7400, ports()).processes] == [7400, 7401, 7402, 7403]


def test_a_removed_server_leaves_its_name_and_the_founders_as_they_were() -> None:
    spec = plan(Shape(), "c", 7400, ports())
    left = shrunk(spec, "span-b1")
    section = left.cluster_section()
    assert [s.name for s in section.servers] == ["span-a1", "span-c1"]
    assert section.groups == spec.groups
    assert section.removed == ("span-b1",)
    _, (new,) = grown(left, "spanserver", 1, None, ports())
    assert (new.name, new.zone) == ("span-b2", "b")
    assert "f1-2" not in {p.name for p in shrunk(spec, "f1-2").processes}
    assert shrunk(spec, "f1-2").removed == ()


def test_what_the_cluster_needs_stays() -> None:
    spec = plan(Shape(spanservers=1, f1servers=1, slaves=1, orchestrator=False), "c", 7400, ports())
    for process in spec.processes:
        with pytest.raises(F1Error, match="the cluster needs it"):
            shrunk(spec, process.name)
    with pytest.raises(F1Error, match="no process"):
        shrunk(spec, "span-z9")


@pytest.mark.parametrize(
    ("kind", "count", "zone", "says"),
    [
        ("master", 1, None, "one master"),
        ("spanserver", 0, None, "--count"),
        ("spanserver", 62, None, "--count is a number from 1 to 61"),
        ("spanserver", 1, "a1", "--zone"),
        ("slave", 1, None, "without slaves"),
        ("locks", 1, None, "one lock service"),
        ("timestamps", 9, None, "from 1 to 8"),
    ],
)
def test_growth_that_cannot_be_is_refused(kind: Kind, count: int, zone: str | None, says: str) -> None:
    spec = plan(Shape(slaves=0), "c", 7400, ports())
    with pytest.raises(F1Error, match=says):
        grown(spec, kind, count, zone, ports())


def test_a_server_behind_a_relay_is_found_at_the_relay_also_after_a_restart() -> None:
    spec = plan(Shape(), "c", 7400, ports())
    first, *others = spec.processes
    spec = replace(spec, processes=(replace(first, front=19_999), *others))
    for each in (spec, with_ports(spec, 0, ports())):
        addresses = [server.address for server in each.cluster_section().servers]
        assert addresses == ["127.0.0.1:19999", *(p.address for p in each.spanservers()[1:])]


def test_the_orchestrators_services_are_found_at_ports_of_their_own() -> None:
    spec = plan(Shape(), "c", 7400, ports())
    found = ("127.0.0.1:7480", "127.0.0.1:7481"), "127.0.0.1:7490"
    assert (spec.cluster_section().timestamps, spec.cluster_section().locks) == found
    assert {7480, 7481, 7490} <= set(front_ports(spec))
    moved = with_ports(without_front_ports(spec), 8400, ports()).cluster_section()
    assert (moved.timestamps, moved.locks) == (("127.0.0.1:8480", "127.0.0.1:8481"), "127.0.0.1:8490")
    free = plan(Shape(), "c", 0, ports())
    again = with_ports(free, 0, ports())
    assert again.cluster_section().timestamps == free.cluster_section().timestamps, "clients know them"
    assert again.cluster_section().locks == free.cluster_section().locks
    with pytest.raises(F1Error, match="leaves no room"):
        plan(Shape(), "c", 65_500, ports())


def test_the_orchestrators_services_run_where_there_are_f1servers_or_as_somebody_says() -> None:
    for shape, has in (
        (Shape(f1servers=0), False),
        (Shape(f1servers=0, orchestrator=True), True),
        (Shape(orchestrator=False), False),
    ):
        section = plan(shape, "c", 0, ports()).cluster_section()
        assert (bool(section.timestamps), bool(section.locks)) == (has, has)


def test_the_orchestrators_services_come_and_go() -> None:
    spec = plan(Shape(orchestrator=False), "c", 7400, ports())
    spec, _ = grown(spec, "timestamps", 2, None, ports())
    spec, (locks,) = grown(spec, "locks", 1, "b", ports())
    assert (locks.name, locks.zone, locks.port) == ("locks", "b", 7490)
    spec, (third,) = grown(spec, "timestamps", 1, None, ports())
    assert (third.name, third.port) == ("timestamps-3", 7482)
    for name in ("timestamps-1", "timestamps-2", "timestamps-3", "locks"):
        spec = shrunk(spec, name)
    assert not spec.cluster_section().timestamps and not spec.removed
