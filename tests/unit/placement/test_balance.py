"""Where replicas go: repairs, draining and an even load, over random clusters."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spanstore.placement.balance import GroupState, Health, Move, ServerState, Why, plan

ZONES = "abc"


def cluster(servers: int, groups: int, voters: int = 3) -> tuple[list[ServerState], list[GroupState]]:
    """Servers in zones in turn; the groups all lie on the first few of them."""
    made = [GroupState(n, tuple(f"s{i}" for i in range(min(voters, servers)))) for n in range(groups)]
    return [ServerState(f"s{i}", ZONES[i % 3], holds=held(f"s{i}", made)) for i in range(servers)], made


def held(server: str, groups: list[GroupState]) -> dict[int, str]:
    return {g.number: m for g in groups for m in g.voters + g.learners if m.partition("#")[0] == server}


def carry_out(move: Move, servers: list[ServerState], groups: list[GroupState], version: int) -> list[ServerState]:
    """Do what the move says to both lists."""
    for at, group in enumerate(groups):
        if group.number == move.group:
            gone = next(m for m in group.voters + group.learners if m.partition("#")[0] == move.old)
            new = f"{move.new}#{version}"
            assert move.new == move.old or move.new not in {m.partition("#")[0] for m in group.voters}
            voters = tuple(m for m in group.voters if m != gone) + ((new,) if move.votes else ())
            learners = tuple(m for m in group.learners if m != gone) + (() if move.votes else (new,))
            groups[at] = GroupState(group.number, voters, learners)
    return [replace(s, holds=held(s.name, groups) if s.health is Health.UP else {}) for s in servers]


def run(servers: list[ServerState], groups: list[GroupState]) -> tuple[list[ServerState], list[Move]]:
    moves: list[Move] = []
    while (move := plan(servers, groups)) is not None:
        moves.append(move)
        servers = carry_out(move, servers, groups, len(moves))
        assert len(moves) < 500, "it never comes to rest"
    return servers, moves


def load_of(servers: list[ServerState], groups: list[GroupState]) -> Counter[str]:
    return Counter({s.name: len(held(s.name, groups)) for s in servers})


def test_nothing_is_done_where_all_is_well() -> None:
    assert plan(*cluster(3, 5)) is None


def test_a_new_server_takes_its_share() -> None:
    servers, groups = cluster(3, 8)
    servers = [*servers, ServerState("s3", "a")]
    servers, moves = run(servers, groups)
    load = load_of(servers, groups)
    # Its zone had one server: what that held, the two share, since no group may lose a zone.
    assert load == {"s0": 4, "s1": 8, "s2": 8, "s3": 4}
    assert {move.why for move in moves} == {Why.BALANCE}
    zones = {s.name: s.zone for s in servers}
    assert all(len({zones[m.partition("#")[0]] for m in group.voters}) == 3 for group in groups)


def test_a_silent_server_is_left_alone_and_a_dead_one_replaced() -> None:
    servers, groups = cluster(4, 2)
    silent = [replace(s, health=Health.SILENT, holds={}) if s.name == "s1" else s for s in servers]
    assert plan(silent, groups) is None
    dead = [replace(s, health=Health.DEAD, holds={}) if s.name == "s1" else s for s in servers]
    assert plan(dead, groups) == Move(0, "s1", "s3", True, Why.DEAD)
    _, moves = run(dead, groups)
    assert [move.group for move in moves] == [0, 1]
    assert load_of(dead, groups)["s1"] == 0


def test_nothing_can_be_done_without_a_place() -> None:
    servers, groups = cluster(3, 2)
    dead = [replace(s, health=Health.DEAD, holds={}) if s.name == "s1" else s for s in servers]
    assert plan(dead, groups) is None


def test_a_replica_that_its_server_lost_is_built_anew_there() -> None:
    servers, groups = cluster(3, 2)
    lost = [replace(s, holds={0: "s2"}) if s.name == "s2" else s for s in servers]
    assert plan(lost, groups) == Move(1, "s2", "s2", True, Why.LOST)


@given(
    st.integers(3, 9),
    st.integers(1, 12),
    st.sampled_from((1, 3, 5)),
    st.sets(st.integers(0, 8), max_size=2),
    st.sets(st.integers(0, 8), max_size=1),
)
def test_it_comes_to_rest_and_helps(count: int, number: int, voters: int, dead: set[int], draining: set[int]) -> None:
    servers, groups = cluster(count, number, voters)
    size = len(groups[0].voters)
    servers = [
        replace(s, health=Health.DEAD, holds={}) if i in dead else replace(s, draining=i in draining)
        for i, s in enumerate(servers)
    ]
    able = [s.name for s in servers if s.health is Health.UP and not s.draining]
    servers, _ = run(servers, groups)
    assert all(len(group.voters) == size for group in groups)
    if len(able) >= size:
        assert {m.partition("#")[0] for group in groups for m in group.voters} <= set(able)


def with_zones(groups: list[GroupState], *zones: str) -> list[GroupState]:
    return [replace(group, zones=zones) for group in groups]


def zones_of(group: GroupState, servers: list[ServerState]) -> list[str]:
    zone = {server.name: server.zone for server in servers}
    return sorted(zone[voter.partition("#")[0]] for voter in group.voters)


def test_voters_go_where_the_policy_wants_them() -> None:
    servers, groups = cluster(9, 4)
    wishes = [("a", "a", "b"), ("b", "b", "b"), ("a", "b", "c"), ()]
    groups = [replace(group, zones=zones) for group, zones in zip(groups, wishes, strict=True)]
    zones = [group.zones for group in groups]
    for _ in range(20):
        move = plan(servers, groups, rebalance=False)
        if move is None:
            break
        assert move.why is Why.POLICY
        servers = carry_out(move, servers, groups, 1)
        groups = [replace(group, zones=wanted) for group, wanted in zip(groups, zones, strict=True)]
    assert move is None
    assert [zones_of(group, servers) for group in groups[:3]] == [list("aab"), list("bbb"), list("abc")]


def test_a_policy_without_servers_enough_is_met_as_far_as_it_goes() -> None:
    servers, groups = cluster(3, 1)
    groups = with_zones(groups, "a", "a", "b")
    assert plan(servers, groups) is None


def test_load_does_not_take_voters_out_of_the_zones_of_the_policy() -> None:
    servers, groups = cluster(3, 6)
    groups = with_zones(groups, "a", "b", "c")
    servers = [*servers, ServerState("s3", "b")]
    move = plan(servers, groups)
    assert move is not None
    assert (move.old, move.new, move.why) == ("s1", "s3", Why.BALANCE)


def test_a_dead_voter_is_replaced_in_a_zone_that_the_policy_wants() -> None:
    servers, groups = cluster(3, 1)
    groups = with_zones(groups, "a", "b", "b")
    servers = [servers[0], servers[1], replace(servers[2], health=Health.DEAD)]
    servers += [ServerState("s3", "c"), ServerState("s4", "b")]
    move = plan(servers, groups)
    assert move is not None
    assert (move.old, move.new, move.why) == ("s2", "s4", Why.DEAD)
