"""A participant's side of two-phase commit: prepare, decide, restart at each point, and what comes too late."""

import pytest

from f1common.errors import Code, F1Error
from spanstore.group.requests import Decide, DecideReply, Outcome, PrepareReply, Read, ReadReply, Release, SafeTimeReply
from spanstore.group.requests import SafeTimeQuery as SafeTime
from spanstore.testing.replicas import EPOCH, MS, Replicas
from spanstore.txn.commands import DecideCmd, PrepareCmd
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import ExpectAbsent
from spanstore.txn.spans import Span
from tests.unit.group.kit import (
    COORDINATOR,
    code,
    commit,
    committed,
    decided,
    far,
    group,
    held,
    lock,
    prepare,
    prepared,
    put,
    read_one,
    ref,
    term_of,
    value,
)

S, X = LockMode.SHARED, LockMode.EXCLUSIVE


def entries(world: Replicas, kind: type) -> int:
    return max(sum(isinstance(d.command, kind) for d in m.applied) for m in world.members.values())


def safe(world: Replicas, name: str) -> int:
    answer = world.get(name, SafeTime())
    assert isinstance(answer, SafeTimeReply)
    return answer.safe_ts


def test_prepared_writes_are_seen_from_the_commit_timestamp_on() -> None:
    with group() as world:
        put(world, "a", "t0", {b"k": b"old"})
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"new"}))) + 30 * MS
        assert isinstance(world.get("a", Decide(far("t1"), ts)), DecideReply)
        world.run(200 * MS)
        for name in "abc":
            assert value(world, name, b"k", ts) == b"new"
            assert value(world, name, b"k", ts - 1) == b"old"


def test_locks_of_a_decided_commit_stay_until_its_timestamp_has_passed() -> None:
    with group() as world:
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"new"}))) + 100 * MS
        world.get("a", Decide(far("t1"), ts))
        asked = world.ask("a", lock(ref("t2"), b"k"))
        world.until(lambda: asked.done)
        assert world.true_ts > ts
        assert read_one(asked.answer) == b"new"


def test_aborted_prepare_leaves_no_writes_and_no_locks() -> None:
    with group() as world:
        world.get("a", prepare(far("t5"), {b"k": b"new"}))
        assert isinstance(world.get("a", Decide(far("t5"), None)), DecideReply)
        assert isinstance(world.get("a", lock(ref("t9"), b"k", exclusive=True)), ReadReply)
        assert value(world, "a", b"l") is None


def test_every_message_twice() -> None:
    with group() as world:
        first, second = (world.ask("a", prepare(far("t1"), {b"k": b"v"})) for _ in range(2))
        world.until(lambda: first.done and second.done)
        ts = prepared(first.answer)
        assert prepared(second.answer) == ts
        assert prepared(world.get("a", prepare(far("t1"), {b"k": b"v"}))) == ts
        one, two = (world.ask("a", Decide(far("t1"), ts + 1)) for _ in range(2))
        world.until(lambda: one.done and two.done)
        assert one.of(DecideReply) == two.of(DecideReply)
        world.run(20 * MS)
        assert isinstance(world.get("a", Decide(far("t1"), ts + 1)), DecideReply)
        assert (entries(world, PrepareCmd), entries(world, DecideCmd)) == (1, 1)
        # Its late abort changes nothing.
        assert isinstance(world.get("a", Decide(far("t1"), None)), DecideReply)
        assert value(world, "a", b"k") == b"v"


def test_late_prepare_finds_the_abort_that_overtook_it() -> None:
    with group() as world:
        assert isinstance(world.get("a", Decide(far("t1"), None)), DecideReply)
        assert code(world.get("a", prepare(far("t1"), {b"k": b"v"}))) is Code.ABORTED
        world.lead("b")
        assert code(world.get("b", prepare(far("t1"), {b"k": b"v"}))) is Code.ABORTED
        assert isinstance(world.get("b", prepare(far("t1", 2), {b"k": b"v"})), PrepareReply)


def test_late_prepare_after_its_decision_is_refused() -> None:
    with group() as world:
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"v"})))
        world.get("a", Decide(far("t1"), ts + 1))
        for leader in "ab":
            world.lead(leader)
            assert code(world.get(leader, prepare(far("t1"), {b"k": b"w"}))) is Code.ABORTED
            assert code(world.get(leader, prepare(far("t1", 2), {b"k": b"w"}))) is Code.ABORTED
            assert value(world, leader, b"k") == b"v"


def test_prepare_past_its_deadline_is_refused_for_ever() -> None:
    with group() as world:
        late = prepare(far("t1"), {b"k": b"v"}, deadline=world.true_ts - 1)
        assert code(world.get("a", late)) is Code.FENCED
        edge = prepare(far("t2"), {b"k": b"v"}, deadline=world.true_ts + 5 * MS)
        assert isinstance(world.get("a", edge), PrepareReply)
        waits = world.ask("a", prepare(far("t1", 2), {b"k": b"v"}, deadline=world.true_ts + 20 * MS))
        world.run(50 * MS)
        world.get("a", Decide(far("t2"), None))
        world.until(lambda: waits.done)
        assert waits.code in (Code.FENCED, Code.ABORTED)


def test_commit_decided_for_who_never_prepared_is_refused() -> None:
    with group() as world:
        assert code(world.get("a", Decide(far("t1"), world.true_ts))) is Code.FAILED_PRECONDITION
        world.get("a", prepare(far("t1"), {b"k": b"v"}))
        assert code(world.get("a", Decide(far("t1", 2), world.true_ts))) is Code.FAILED_PRECONDITION


def test_next_attempt_waits_for_the_end_of_the_last() -> None:
    with group() as world:
        world.get("a", prepare(far("t1"), {b"k": b"1"}))
        assert code(world.get("a", prepare(far("t1", 2), {b"k": b"2"}))) is Code.ABORTED
        world.get("a", Decide(far("t1"), None))
        ts = prepared(world.get("a", prepare(far("t1", 2), {b"k": b"2"})))
        assert code(world.get("a", prepare(far("t1", 1), {b"k": b"1"}))) is Code.ABORTED
        world.get("a", Decide(far("t1", 2), ts + 1))
        world.run(20 * MS)
        assert value(world, "a", b"k") == b"2"


def test_next_attempt_that_reads_before_the_end_of_the_last_is_told_to_retry() -> None:
    with group() as world:
        world.get("a", prepare(far("t1"), {b"k": b"1"}))
        assert code(world.get("a", lock(far("t1"), b"m"))) is Code.FAILED_PRECONDITION
        early = world.get("a", lock(far("t1", 2), b"m"))
        assert isinstance(early, F1Error)
        assert early.code is Code.ABORTED
        assert early.retryable
        world.get("a", Decide(far("t1"), None))
        assert term_of(world.get("a", lock(far("t1", 3), b"m"))) > 0


def test_higher_attempt_is_aborted_before_it_came_and_the_lower_one_stays_prepared() -> None:
    with group() as world:
        world.get("a", prepare(far("t1"), {b"k": b"1"}))
        world.get("a", Decide(far("t1", 2), None))
        assert not world.ask("a", lock(ref("t2"), b"k")).done
        world.run(50 * MS)
        asked = world.asked[-1]
        assert not asked.done
        # The abort of attempt 2 is remembered, and that of attempt 1 frees the locks.
        world.get("a", Decide(far("t1", 1), None))
        world.until(lambda: asked.done)
        assert code(world.get("a", prepare(far("t1", 2), {b"k": b"2"}))) is Code.ABORTED


@pytest.mark.parametrize("crash", [False, True])
def test_new_leader_rebuilds_every_lock_of_a_prepared_transaction(crash: bool) -> None:
    with group() as world:
        term = term_of(world.get("a", lock(far("t9"), b"read", ranges=[(b"r", b"s")])))
        locks = (*held(b"read"), (Span(b"r", b"s"), S))
        work = prepare(far("t9"), {b"k": b"v"}, tests=[ExpectAbsent(b"none")], locks=locks, term=term)
        ts = prepared(world.get("a", work))
        world.run(50 * MS)
        if crash:
            for name in "abc":
                world.crash(name)
            for name in "abc":
                world.restart(name)
        for leader in "bca":
            world.lead(leader)
            assert prepared(world.get(leader, work)) == ts
            # Older ones, which wound whoever can be wounded, wait.
            wanted = [b"read", b"rx", b"k", b"none"]
            waiting = [
                world.ask(leader, lock(ref(f"t{n}{leader}"), key, exclusive=True), timeout_us=60 * MS)
                for n, key in enumerate(wanted)
            ]
            read = world.ask(leader, Read(0, (b"k",)), timeout_us=60 * MS)
            assert isinstance(world.get(leader, Read(0, (b"read", b"rx", b"none"))), ReadReply)
            assert isinstance(world.get(leader, lock(ref(f"t7{leader}"), b"read", b"rx", b"none")), ReadReply)
            world.get(leader, Release(ref(f"t7{leader}")))
            world.run(80 * MS)
            assert [w.code for w in waiting] == [Code.DEADLINE_EXCEEDED] * 4
            assert read.code is Code.DEADLINE_EXCEEDED
        assert isinstance(world.get("a", Decide(far("t9"), ts + 1)), DecideReply)
        world.run(20 * MS)
        assert value(world, "a", b"k") == b"v"
        assert isinstance(world.get("a", lock(ref("t50"), *wanted, exclusive=True)), ReadReply)


def test_reader_that_prepared_keeps_writers_out_over_a_change_of_leader() -> None:
    """Write skew over two groups: this one is read, the other written; its leader dies before the decision."""
    with group() as world:
        term = term_of(world.get("a", lock(far("t9"), b"k")))
        ts = prepared(world.get("a", prepare(far("t9"), {}, locks=held(b"k"), term=term)))
        world.crash("a")
        world.elect("b")
        rival = world.ask("b", commit(ref("t1"), {b"k": b"rival"}))
        world.run(100 * MS)
        assert not rival.done
        world.get("b", Decide(far("t9"), ts + 1))
        world.until(lambda: rival.done)
        assert committed(rival.answer) > ts


def test_reader_that_had_not_prepared_learns_that_its_locks_are_lost() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(far("t9"), b"k")))
        world.crash("a")
        world.elect("b")
        assert code(world.get("b", prepare(far("t9"), {}, locks=held(b"k"), term=term))) is Code.ABORTED


def test_prepare_in_flight_when_the_leader_falls_is_prepared_or_forgotten() -> None:
    for reaches in (True, False):
        with group() as world:
            world.isolate("a")
            if reaches:
                world.cut.discard(("a", "b"))
            lost = world.ask("a", prepare(far("t1"), {b"k": b"v"}))
            world.turn("a")
            world.step()
            world.isolate("a")
            world.elect("b")
            world.until(lambda lost=lost: lost.done)  # type: ignore[misc]
            assert lost.code is Code.NOT_LEADER and lost.answer.ambiguous  # type: ignore[union-attr]
            assert len(world.members["b"].live.state.prepared) == reaches
            again = prepared(world.get("b", prepare(far("t1"), {b"k": b"v"})))
            world.get("b", Decide(far("t1"), again + 1))
            world.run(20 * MS)
            assert value(world, "b", b"k") == b"v"
            world.heal()
            world.run(300 * MS)
            assert value(world, "b", b"k") == b"v"


def test_prepared_transaction_is_overdue_at_the_leader_again_and_again_until_decided() -> None:
    with group(resolve_after_us=100 * MS) as world:
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"v"})))
        leader = world.members["a"].live
        assert leader.overdue() == []
        for _ in range(3):
            world.run(150 * MS)
            (record,) = leader.overdue()
            assert (record.txn, record.coordinator_group) == (far("t1"), COORDINATOR)
            assert leader.overdue() == [] and world.members["b"].live.overdue() == []
        world.lead("b")
        world.run(150 * MS)
        assert len(world.members["b"].live.overdue()) == 1 and leader.overdue() == []
        world.get("b", Decide(far("t1"), ts + 1))
        world.run(300 * MS)
        assert world.members["b"].live.overdue() == []


def test_prepare_that_lost_a_race_for_its_locks_is_aborted_by_an_older_one_in_time() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        younger = world.ask("a", prepare(far("t5"), {b"k": b"5"}))
        world.until(lambda: younger.done, within_us=1_000 * MS)
        assert younger.code is Code.ABORTED
        assert code(world.get("a", prepare(far("t5"), {b"k": b"5"}))) is Code.ABORTED


def test_decision_overtakes_a_prepare_that_waits_for_locks() -> None:
    with group() as world:
        world.get("a", prepare(far("t9"), {b"k": b"9"}))
        waiting = world.ask("a", prepare(far("t5"), {b"k": b"5"}))
        world.run(10 * MS)
        assert not waiting.done
        assert isinstance(world.get("a", Decide(far("t5"), None)), DecideReply)
        assert waiting.code is Code.ABORTED
        world.get("a", Decide(far("t9"), None))
        world.run(50 * MS)
        assert entries(world, PrepareCmd) == 1


def test_release_does_not_touch_what_is_prepared_or_in_flight() -> None:
    with group() as world:
        work = world.ask("a", prepare(far("t1"), {b"k": b"v"}))
        early = world.ask("a", Release(far("t1")))
        world.until(lambda: work.done and early.done)
        world.get("a", Release(far("t1")))
        asked = world.ask("a", lock(ref("t0"), b"k"))
        world.run(50 * MS)
        assert not asked.done
        world.get("a", Decide(far("t1"), prepared(work.answer) + 1))
        world.until(lambda: asked.done)
        assert read_one(asked.answer) == b"v"


def test_coordinator_commits_above_every_prepare_timestamp_and_names_the_participants() -> None:
    with group() as world:
        high = world.true_ts + 80 * MS
        ts = committed(world.get("a", commit(ref("t1"), {b"k": b"v"}, participants=((3, EPOCH), (5, high)))))
        assert ts > high and world.true_ts > ts
        assert decided(world.get("a", Outcome(ref("t1"), inquiry=True))) == (True, ts)


def test_participant_is_answered_at_any_age_and_never_by_another_attempts_commit() -> None:
    with group() as world:
        assert decided(world.get("a", Outcome(ref("t1"), inquiry=True))) == (False, 0)
        ts = committed(world.get("a", commit(ref("t1", 2), {b"k": b"v"}, participants=((3, EPOCH),))))
        assert decided(world.get("a", Outcome(ref("t1", 1), inquiry=True))) == (False, 0)
        assert decided(world.get("a", Outcome(ref("t1", 2), inquiry=True))) == (True, ts)
        assert decided(world.get("a", Outcome(ref("t1", 3), inquiry=True))) == (False, 0)
        assert code(world.get("a", commit(ref("t1", 1), {b"k": b"w"}))) is Code.ABORTED


def test_safe_time_waits_for_the_decision_and_then_goes_on() -> None:
    with group() as world:
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"v"})))
        world.run(200 * MS)
        for name in "abc":
            assert ts - 60 * MS < safe(world, name) < ts
        world.lead("b")
        world.run(200 * MS)
        for name in "abc":
            assert safe(world, name) < ts
        view = world.members["b"].live.view(world.now("b"))
        assert (view.safe_holder, view.safe_holder_ts, view.prepared) == (b"t1", ts, 1)
        world.get("b", Decide(far("t1"), ts + 1))
        world.run(200 * MS)
        for name in "abc":
            assert safe(world, name) > world.true_ts - 60 * MS


def test_transaction_prepared_here_for_another_coordinator_does_not_commit_here() -> None:
    """Two anchors under one id: the client mixes up its transactions, and no lock of a promise may go by that."""
    with group() as world:
        ts = prepared(world.get("a", prepare(far("t5"), {b"k": b"v"})))
        assert code(world.get("a", commit(ref("t5"), {b"k": b"w"}))) is Code.FAILED_PRECONDITION
        assert decided(world.get("a", Outcome(ref("t5")))) == (False, 0)
        asked = world.ask("a", lock(ref("t1"), b"k"))
        world.run(50 * MS)
        assert not asked.done
        world.get("a", Decide(far("t5"), ts + 1))
        world.until(lambda: asked.done)
        assert read_one(asked.answer) == b"v"
