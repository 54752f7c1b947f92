"""Whether a server can be emptied, and why not."""

from dataclasses import replace

from spanstore.placement.balance import GroupState, Health, ServerState, Why, plan
from spanstore.placement.draining import why_not

SERVERS = [ServerState("a1", "a"), ServerState("b1", "b"), ServerState("c1", "c")]
GROUPS = [GroupState(0, ("a1", "b1", "c1")), GroupState(1, ("a1", "b1#4", "c1"))]


def reasons(server: str, *more: ServerState, any_zone: bool = False) -> list[str]:
    return why_not(server, [*SERVERS, *more], GROUPS, any_zone=any_zone)


def test_a_server_in_the_same_zone_takes_its_replicas() -> None:
    assert reasons("b1", ServerState("b2", "b")) == []


def test_as_many_servers_as_replicas_leave_no_place() -> None:
    found = reasons("b1", any_zone=True)
    assert len(found) == 2
    assert found[1] == (
        "group 1 has no place for another replica: a1, c1 have one, and 3 servers are up and not being drained"
    )
    silent = ServerState("b2", "b", Health.SILENT)
    draining = ServerState("b3", "b", draining=True)
    assert len(reasons("b1", silent, draining, any_zone=True)) == 2


def test_no_group_comes_to_lie_in_fewer_zones_unless_that_is_wanted() -> None:
    found = reasons("b1", ServerState("c2", "c"))
    assert found[0] == "the voters of group 0 would lie in 2 zones instead of 3"
    assert reasons("b1", ServerState("c2", "c"), any_zone=True) == []
    assert reasons("b1", ServerState("d1", "d")) == []


def test_zones_are_only_asked_for_by_voters() -> None:
    groups = [GroupState(0, ("a1",), ("b1",))]
    assert why_not("b1", SERVERS, groups, any_zone=False) == []


def test_an_empty_server_can_always_be_drained() -> None:
    assert why_not("c1", SERVERS, [GroupState(0, ("a1",))], any_zone=False) == []


def test_a_dead_server_that_is_drained_is_replaced_without_waiting() -> None:
    servers = [
        replace(s, health=Health.SILENT, draining=True) if s.name == "b1" else replace(s, holds={0: s.name, 1: s.name})
        for s in SERVERS
    ]
    move = plan([*servers, ServerState("b2", "b")], GROUPS)
    assert move is not None
    assert (move.group, move.old, move.new, move.why) == (0, "b1", "b2", Why.DRAINING)
