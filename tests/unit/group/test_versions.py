"""What a leader logs while not all members of its group know everything."""

from typing import get_args

from f1common.errors import Code, F1Error
from spanstore.group.move_requests import BeginMove, Cede
from spanstore.group.versions import Versions
from spanstore.paxos.configuration import Configuration
from spanstore.runtime.peers import PROTOCOL_VERSION
from spanstore.runtime.versions import PeerVersions
from spanstore.txn import commands
from spanstore.txn.commands import BeginMoveCmd, CommitCmd
from spanstore.txn.kinds import NEWEST, SINCE, WORK
from tests.unit.group.kit import code, commit, committed, ref
from tests.unit.group.test_moves import HIGH, LOW, MOVE, cede, new_group, old_group, stand

THREE = Configuration(4, ("a", "b", "c#2-x"))


def known(**versions: int) -> Versions:
    return Versions(lambda server: versions.get(server, 0))


def test_every_kind_of_command_has_a_version_that_is_spoken() -> None:
    assert set(SINCE) == set(get_args(commands.Command))
    assert set(SINCE.values()) <= {1, *WORK} and NEWEST == PROTOCOL_VERSION


def test_a_kind_waits_for_all_members_and_says_for_whom() -> None:
    old = known(a=2, b=2, c=1)
    assert old.allows(CommitCmd, THREE) and not old.allows(BeginMoveCmd, THREE)
    assert "c, which speaks version 1" in old.waiting(THREE) and "moves of ranges" in old.waiting(THREE)
    assert not known(a=2, b=2).allows(BeginMoveCmd, THREE)
    assert "c, which has not said" in known(a=2, b=2).waiting(THREE)
    new = known(a=2, b=3, c=2)
    assert new.allows(BeginMoveCmd, THREE) and "moves of ranges" not in new.waiting(THREE)
    assert "share an entry" in known(a=3, b=4, c=3).waiting(THREE)
    assert not known(a=4, b=5, c=4).waiting(THREE)


def refusal(versions: Versions, before: Configuration, after: Configuration) -> str:
    try:
        versions.check_change(before, after)
    except F1Error as error:
        assert error.code is Code.FAILED_PRECONDITION
        return error.message
    return ""


def test_members_change_when_all_who_read_of_it_know_configurations() -> None:
    without = THREE.without("c#2-x")
    assert not refusal(known(a=2, b=2, c=2), THREE, without)
    assert not refusal(known(a=2, b=2), THREE, without)  # nothing is known of the one that goes
    assert "c, which speaks version 1" in refusal(known(a=2, b=2, c=1), THREE, without)
    assert "b, which has not said" in refusal(known(a=2, c=2), THREE, without)


def test_a_newcomer_speaks_no_older_version_than_the_members() -> None:
    more = THREE.with_learner("d", "y")
    assert not refusal(known(a=3, b=2, c=2, d=2), THREE, more)
    assert "d, which speaks version 2" in refusal(known(a=3, b=3, c=3, d=2), THREE, more)
    assert "d, which has not said" in refusal(known(a=2, b=2, c=2), THREE, more)


def test_what_a_server_says_counts_more_than_its_row() -> None:
    versions = PeerVersions("a", 2)
    assert (versions.of("a"), versions.of("b")) == (2, 0)
    versions.stored = {"a": 1, "b": 2}.get  # type: ignore[assignment]
    assert (versions.of("a"), versions.of("b")) == (2, 2)
    versions.heard("b", 1)
    assert versions.of("b") == 1


def test_a_move_does_not_begin_beside_an_old_member_and_commits_go_on() -> None:
    with new_group() as world:
        world.versions["c"] = 1
        assert code(world.get("a", BeginMove(MOVE, LOW, HIGH, 2))) is Code.FAILED_PRECONDITION
        assert committed(world.get("a", commit(ref("t1", anchor=b"a"), {b"a": b"1"})))
        world.versions["c"] = 2
        assert stand(world, BeginMove(MOVE, LOW, HIGH, 2)).incoming is not None


def test_a_range_is_not_given_up_beside_an_old_member() -> None:
    with old_group() as world:
        world.versions["b"] = 1
        assert code(world.get("a", Cede(MOVE, LOW, HIGH, 2), within_us=5_000_000)) is Code.FAILED_PRECONDITION
        assert committed(world.get("a", commit(ref("t1"), {LOW: b"1"})))
        world.versions["b"] = 2
        assert cede(world).ceded is not None
