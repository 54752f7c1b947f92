"""What makes the placement driver end a move, or begin none."""

from f1common.pb import spanstore_pb2 as pb
from spanstore.paxos.configuration import Configuration
from spanstore.placement.balance import GroupState, Move, Why
from spanstore.placement.directory import Directory
from spanstore.runtime.placement import _all_seen, _obstacle

MOVE = Move(2, "d#4-0ld", "d", True, Why.LOST)


def leader(*members: str) -> pb.StatusReply:
    view = pb.GroupStatus(group=2, role="leader", lease_valid=True, voters=["a", "b"], learners=members)
    return pb.StatusReply(name="a", home="aaaa", groups=[view])


def test_a_server_that_is_there_and_whole_is_no_obstacle() -> None:
    answers = {"1": leader("d#5-d1d1"), "2": pb.StatusReply(name="d", home="d1d1")}
    assert _obstacle(MOVE, dict(answers)) == ""


def test_a_silent_server_is_one() -> None:
    assert "not answered" in _obstacle(MOVE, {"1": leader("d#5-d1d1")})


def test_a_server_whose_file_is_damaged_is_one() -> None:
    answers = {"1": leader("d#5-d1d1"), "2": pb.StatusReply(name="d", home="d1d1", all_damaged=True)}
    assert "damaged" in _obstacle(MOVE, dict(answers))


def test_a_server_that_was_emptied_meanwhile_is_one() -> None:
    answers = {"1": leader("d#5-d1d1"), "2": pb.StatusReply(name="d", home="beef")}
    assert "another data directory" in _obstacle(MOVE, dict(answers))


def test_load_is_not_evened_out_while_a_group_has_no_leader() -> None:
    """Its replicas would not count: servers would seem empty, and get replicas that move back at once."""
    directory = Directory(groups={number: Configuration(0, ("a", "b", "c")) for number in (0, 1)})
    groups = [GroupState(number, ("a", "b", "c")) for number in (0, 1)]
    assert _all_seen(groups, directory)
    assert not _all_seen(groups[:1], directory)
