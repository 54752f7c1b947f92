"""One-group commits are executed once, whenever and however often the request comes (package docstring of txn)."""

from collections.abc import Callable

import pytest

from f1common.errors import Code
from spanstore.group.requests import (
    Commit,
    CommitReply,
    Decide,
    Outcome,
    OutcomeReply,
    Read,
    ReadReply,
    Release,
    TxnWork,
)
from spanstore.group.storage import load_finished, load_outcome
from spanstore.mvcc.placeholders import fill
from spanstore.testing.replicas import EPOCH, GROUP, MS, Replicas
from spanstore.txn.commands import CommitCmd, Write
from spanstore.txn.outcomes import (
    ExpectAbsent,
    ExpectExists,
    ExpectUnchangedRange,
    ExpectVersion,
    NoNewer,
    Precondition,
    WrittenAbsent,
)
from tests.unit.group.kit import code, commit, committed, decided, group, lock, prepare, put, read_one, ref, value


def commits_in_log(world: Replicas, name: str) -> int:
    return sum(isinstance(done.command, CommitCmd) for done in world.members[name].applied)


def test_commit_is_read_by_everybody_at_its_timestamp() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"v", b"l": b"w"})
        world.run(100 * MS)
        for name in "abc":
            assert value(world, name, b"k", ts) == b"v"
            assert value(world, name, b"l", ts) == b"w"
            assert value(world, name, b"k", ts - 1) is None


def test_answer_comes_after_the_timestamp_has_passed_everywhere() -> None:
    with group() as world:
        for n in range(5):
            asked = world.ask("a", commit(ref(f"t{n}"), {b"k": b"v"}))
            world.until(lambda asked=asked: asked.done)  # type: ignore[misc]
            assert asked.of(CommitReply).ts < world.true_ts
            assert asked.of(CommitReply).ts >= EPOCH


def while_it_waits_for_locks(world: Replicas) -> Callable[[], None]:
    assert isinstance(world.get("a", lock(ref("t0"), b"k")), ReadReply)
    world.ask("a", commit(ref("t1"), {b"k": b"v"}))
    world.run(10 * MS)
    return lambda: world.get("a", Release(ref("t0")))  # type: ignore[return-value]


def while_it_is_in_flight(world: Replicas) -> Callable[[], None]:
    world.isolate("a")
    world.ask("a", commit(ref("t1"), {b"k": b"v"}))
    world.turn("a")
    return world.heal


def while_its_timestamp_has_not_passed(world: Replicas) -> Callable[[], None]:
    world.ask("a", commit(ref("t1"), {b"k": b"v"}, above=world.true_ts + 60 * MS))
    world.run(30 * MS)
    assert commits_in_log(world, "a") == 1
    return lambda: None


def while_it_waits_for_a_ceiling(world: Replicas) -> Callable[[], None]:
    ceiling = world.members["a"].live.replica.usable_ceiling
    world.isolate("a")
    world.ask("a", commit(ref("t1"), {b"k": b"v"}, above=ceiling))
    world.turn("a")
    return world.heal


def after_it_was_answered(world: Replicas) -> Callable[[], None]:
    put(world, "a", "t1", {b"k": b"v"})
    return lambda: None


STATES = [
    while_it_waits_for_locks,
    while_it_is_in_flight,
    while_its_timestamp_has_not_passed,
    while_it_waits_for_a_ceiling,
    after_it_was_answered,
]


@pytest.mark.parametrize("state", STATES)
def test_duplicate_is_answered_the_same_and_executed_once(state: Callable[[Replicas], Callable[[], None]]) -> None:
    with group() as world:
        go_on = state(world)
        first = [a for a in world.asked if a.request == commit(ref("t1"), {b"k": b"v"}) or a.code is None][-1]
        second, third = (world.ask("a", commit(ref("t1"), {b"k": b"v"})) for _ in range(2))
        world.turn("a")
        go_on()
        world.until(lambda: second.done and third.done)
        world.run(50 * MS)
        assert second.of(CommitReply) == third.of(CommitReply) == first.of(CommitReply)
        assert commits_in_log(world, "a") == 1


@pytest.mark.parametrize("state", STATES[:2] + STATES[3:])
def test_outcome_is_asked_for_meanwhile(state: Callable[[Replicas], Callable[[], None]]) -> None:
    with group() as world:
        go_on = state(world)
        world.ask("a", Outcome(ref("t1"), peek=True))
        question = world.ask("a", Outcome(ref("t1")))
        world.turn("a")
        go_on()
        world.until(lambda: question.done)
        world.run(100 * MS)
        told = question.of(OutcomeReply)
        assert told.committed is (commits_in_log(world, "b") == 1)
        assert value(world, "a", b"k") == (b"v" if told.committed else None)
        again = world.get("a", commit(ref("t1"), {b"k": b"v"}))
        assert again == CommitReply(told.ts) if told.committed else code(again) is Code.ABORTED


def test_committed_id_answers_after_a_change_of_leader() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"v"})
        for leader in "bca":
            world.lead(leader)
            assert world.get(leader, commit(ref("t1"), {b"k": b"other"})) == CommitReply(ts)
            assert world.get(leader, commit(ref("t1", 4), {b"k": b"other"})) == CommitReply(ts)
            assert decided(world.get(leader, Outcome(ref("t1")))) == (True, ts)
            assert value(world, leader, b"k") == b"v"
        assert commits_in_log(world, "a") == 1


def test_commit_in_flight_is_ambiguous_when_the_leader_falls_and_is_then_resolved() -> None:
    with group() as world:
        world.isolate("a")
        lost = world.ask("a", commit(ref("t1"), {b"k": b"v"}))
        joined = world.ask("a", commit(ref("t1"), {b"k": b"v"}))
        world.turn("a")
        world.elect("b")
        for asked in (lost, joined):
            world.until(lambda asked=asked: asked.done)  # type: ignore[misc]
            assert asked.code is Code.NOT_LEADER
        assert lost.answer.ambiguous  # type: ignore[union-attr]
        assert decided(world.get("b", Outcome(ref("t1"), peek=True))) == (None, 0)
        assert decided(world.get("b", Outcome(ref("t1")))) == (False, 0)
        world.heal()
        world.run(300 * MS)
        assert code(world.get("b", commit(ref("t1"), {b"k": b"v"}))) is Code.ABORTED
        assert value(world, "b", b"k") is None


def test_commit_that_reached_one_follower_survives_its_leader() -> None:
    with group() as world:
        world.cut = {("a", "c"), ("c", "a"), ("b", "a")}
        lost = world.ask("a", commit(ref("t1"), {b"k": b"v"}))
        world.turn("a")
        world.turn("b")
        world.isolate("a")
        world.paused.add("a")
        world.elect("b")
        found, ts = decided(world.get("b", Outcome(ref("t1"))))
        assert found is True
        assert value(world, "b", b"k") == b"v"
        world.heal()
        world.until(lambda: lost.done)
        assert lost.code is Code.NOT_LEADER and lost.answer.ambiguous  # type: ignore[union-attr]
        assert world.get("b", commit(ref("t1"), {b"k": b"v"})) == CommitReply(ts)


def test_next_attempt_starts_only_after_the_end_of_the_last_is_recorded() -> None:
    with group() as world:
        assert code(world.get("a", commit(ref("t1", 2), {b"k": b"2"}))) is Code.FAILED_PRECONDITION
        assert decided(world.get("a", Outcome(ref("t1", 1)))) == (False, 0)
        assert code(world.get("a", commit(ref("t1", 1), {b"k": b"1"}))) is Code.ABORTED
        assert code(world.get("a", commit(ref("t1", 3), {b"k": b"3"}))) is Code.FAILED_PRECONDITION
        ts = committed(world.get("a", commit(ref("t1", 2), {b"k": b"2"})))
        assert code(world.get("a", commit(ref("t1", 1), {b"k": b"1"}))) is Code.ABORTED
        assert decided(world.get("a", Outcome(ref("t1", 1)))) == (False, 0)
        assert decided(world.get("a", Outcome(ref("t1", 2)))) == (True, ts)
        assert value(world, "a", b"k") == b"2"


def test_the_end_of_an_attempt_is_that_of_all_below_it() -> None:
    with group() as world:
        assert decided(world.get("a", Outcome(ref("t1", 7)))) == (False, 0)
        for attempt in (1, 3, 7):
            assert code(world.get("a", commit(ref("t1", attempt), {b"k": b"1"}))) is Code.ABORTED
        ts = committed(world.get("a", commit(ref("t1", 8), {b"k": b"2"})))
        assert decided(world.get("a", Outcome(ref("t1", 9)))) == (True, ts)
        assert value(world, "a", b"k") == b"2"


def test_attempt_killed_by_the_question_frees_its_locks_for_the_next() -> None:
    with group() as world:
        assert isinstance(world.get("a", lock(ref("t0"), b"k")), ReadReply)
        first = world.ask("a", commit(ref("t1"), {b"k": b"1", b"l": b"1"}))
        world.run(5 * MS)
        assert decided(world.get("a", Outcome(ref("t1")))) == (False, 0)
        assert first.code is Code.ABORTED
        second = world.ask("a", commit(ref("t1", 2), {b"k": b"2"}))
        world.run(5 * MS)
        world.get("a", Release(ref("t0")))
        world.until(lambda: second.done)
        assert second.of(CommitReply).ts
        assert value(world, "a", b"l") is None and value(world, "a", b"k") == b"2"


def test_old_id_expires_and_a_recorded_one_is_answered_at_any_age() -> None:
    with group(outcome_keep_us=1_000 * MS) as world:
        ts = put(world, "a", "t1", {b"k": b"v"})
        world.run(1_500 * MS, step_us=10 * MS)
        assert world.get("a", commit(ref("t1"), {b"k": b"v"})) == CommitReply(ts)
        assert code(world.get("a", commit(ref("t2"), {b"k": b"v"}))) is Code.EXPIRED
        assert code(world.get("a", Outcome(ref("t2")))) is Code.EXPIRED
        assert decided(world.get("a", Outcome(ref("t2"), inquiry=True))) == (False, 0)


def test_an_id_from_far_ahead_is_refused_everywhere_and_leaves_no_record() -> None:
    keep_us = 2_000 * MS
    with group(outcome_keep_us=keep_us) as world:
        near = ref("t1", created=world.true_ts + keep_us)
        committed(world.get("a", commit(near, {b"k": b"1"})))
        created = world.true_ts + 2 * keep_us
        far_ahead, elsewhere = ref("t2", created=created), ref("t2", anchor=b"zz", created=created)
        values: dict[bytes, bytes | None] = {b"k": b"2"}
        for request in (commit(far_ahead, values), prepare(elsewhere, values), Outcome(far_ahead)):
            assert code(world.get("a", request)) is Code.CLOCK_SKEW
        # An abort of what was never prepared is taken, since it is good for those that were, and is kept for a while.
        world.get("a", Decide(elsewhere, None))
        with world.members["a"].engine.snapshot() as reader:
            finished = load_finished(reader, GROUP, elsewhere)
            assert finished is not None and finished.deadline <= world.true_ts + 2 * keep_us
            assert load_outcome(reader, GROUP, far_ahead) is None
        assert read_one(world.get("a", Read(0, (b"k",)))) == b"1"


def test_preconditions_hold_under_their_locks() -> None:
    with group() as world:
        one = put(world, "a", "t1", {b"k": b"v"})
        two = put(world, "a", "t2", {b"l": b"v", b"gone": b"v"})
        gone = put(world, "a", "t3", {b"gone": None})
        good: list[Precondition] = [
            ExpectVersion(b"k", one),
            ExpectVersion(b"gone", gone),
            ExpectVersion(b"gone", 0),
            ExpectVersion(b"none", 0),
            ExpectExists(b"k"),
            ExpectAbsent(b"none"),
            ExpectAbsent(b"gone"),
            ExpectUnchangedRange(b"k", b"kz", one),
            ExpectUnchangedRange(b"k", b"m", two),
        ]
        bad: list[tuple[Precondition, Code]] = [
            (ExpectVersion(b"k", two), Code.ABORTED),
            (ExpectVersion(b"k", 0), Code.ABORTED),
            (ExpectVersion(b"none", one), Code.ABORTED),
            (ExpectVersion(b"gone", two), Code.ABORTED),
            (ExpectExists(b"none"), Code.NOT_FOUND),
            (ExpectExists(b"gone"), Code.NOT_FOUND),
            (ExpectAbsent(b"k"), Code.ALREADY_EXISTS),
            (ExpectUnchangedRange(b"k", b"m", one), Code.ABORTED),
            (ExpectUnchangedRange(b"g", b"h", two), Code.ABORTED),
        ]
        for n, (test, why) in enumerate(bad):
            answer = world.get("a", commit(ref(f"b{n}"), {b"x": b"v"}, tests=[*good, test]))
            assert code(answer) is why, test
            assert value(world, "a", b"x") is None
        assert committed(world.get("a", commit(ref("t4"), {b"x": b"v"}, tests=good)))


def test_of_what_has_a_newer_version_the_write_is_left_out() -> None:
    """The Thomas write rule (schema-change paper, section 4.3): what is newer stays, a delete as well."""
    with group() as world:
        since = put(world, "a", "t1", {b"old": b"0", b"gone": b"0"})
        newer = put(world, "a", "t2", {b"new": b"2", b"gone": None})
        values: dict[bytes, bytes | None] = dict.fromkeys((b"old", b"gone", b"new", b"none"), b"backfill")
        refused = world.get("a", commit(ref("t3"), values, tests=[NoNewer(since)]))
        assert code(refused) is Code.ABORTED
        assert value(world, "a", b"none") is None
        committed(world.get("a", commit(ref("t4"), values, tests=[NoNewer(since, leave_out=True)])))
        found = {key: value(world, "a", key) for key in values}
        assert found == {b"old": b"backfill", b"gone": None, b"new": b"2", b"none": b"backfill"}
        # Nothing is left to be written: it commits all the same, and by then everything is newer.
        committed(world.get("a", commit(ref("t5"), values, tests=[NoNewer(since, leave_out=True)])))
        committed(world.get("a", commit(ref("t6"), {b"new": b"3"}, tests=[NoNewer(newer)])))
        assert value(world, "a", b"old") == b"backfill" and value(world, "a", b"new") == b"3"


def test_rows_that_are_written_are_not_there() -> None:
    """Whether nothing lies about, another row lies between them, or one is there, or was."""
    with group() as world:
        put(world, "a", "t0", {b"c": b"0", b"e": b"0"})
        put(world, "a", "t1", {b"e": None})
        for name, keys, refused in (
            ("t2", (b"f", b"g"), False),
            ("t3", (b"b", b"d"), False),
            ("t4", (b"a", b"c"), True),
            ("t5", (b"e", b"h"), False),
            ("t6", (b"x", b"f"), True),
            ("t7", (b"w\xff", b"w"), False),
            ("t8", (b"w", b"y"), True),
        ):
            answer = world.get("a", commit(ref(name), dict.fromkeys(keys, b"1"), tests=[WrittenAbsent(keys)]))
            if refused:
                assert code(answer) is Code.ALREADY_EXISTS, name
            else:
                committed(answer)
        assert {key: value(world, "a", key) for key in (b"a", b"b", b"c", b"e", b"x", b"y")} == {
            b"a": None,
            b"b": b"1",
            b"c": b"0",
            b"e": b"1",
            b"x": None,
            b"y": None,
        }


def test_a_write_that_waited_for_its_lock_is_left_out_for_what_came_meanwhile() -> None:
    with group() as world:
        since = put(world, "a", "t0", {b"k": b"0"})
        first = world.ask("a", commit(ref("t1"), {b"k": b"1"}))
        second = world.ask("a", commit(ref("t2"), {b"k": b"backfill"}, tests=[NoNewer(since, leave_out=True)]))
        world.until(lambda: first.done and second.done)
        assert first.of(CommitReply).ts and second.of(CommitReply).ts
        assert value(world, "a", b"k") == b"1"


def test_precondition_sees_the_commit_that_it_waited_for() -> None:
    with group() as world:
        put(world, "a", "t0", {b"n": b"0"})
        first = world.ask("a", commit(ref("t1"), {b"k": b"1"}, tests=[ExpectAbsent(b"k")]))
        second = world.ask("a", commit(ref("t2"), {b"k": b"2"}, tests=[ExpectAbsent(b"k")]))
        world.until(lambda: first.done and second.done)
        assert first.of(CommitReply).ts and second.code is Code.ALREADY_EXISTS


def test_absence_is_locked_against_whoever_would_insert() -> None:
    """Write skew: each inserts its own row after it has found the other's absent."""
    with group() as world:
        first = world.ask("a", commit(ref("t1"), {b"k": b"1"}, tests=[ExpectAbsent(b"l")]))
        second = world.ask("a", commit(ref("t2"), {b"l": b"2"}, tests=[ExpectAbsent(b"k")]))
        world.until(lambda: first.done and second.done)
        assert first.of(CommitReply).ts and second.code is Code.ALREADY_EXISTS
        assert value(world, "a", b"l") is None


def test_failed_disk_is_a_crash_and_what_was_acknowledged_is_there_afterwards() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"v"})
        world.members["a"].engine.fail_next_commit()
        lost = world.ask("a", commit(ref("t2"), {b"k": b"w"}))
        world.step()
        assert "a" in world.crashed and not lost.done
        world.elect("b")
        assert world.get("b", commit(ref("t1"), {b"k": b"x"})) == CommitReply(ts)
        world.restart("a")
        world.run(500 * MS)
        world.lead("a")
        told, _ = decided(world.get("a", Outcome(ref("t2"))))
        assert value(world, "a", b"k") == (b"w" if told else b"v")


def test_all_replicas_crash_and_come_back_with_every_acknowledged_commit() -> None:
    with group() as world:
        stamps = {n: put(world, "a", f"t{n}", {b"k%d" % n: b"v"}) for n in range(10)}
        for name in "abc":
            world.crash(name)
        world.run(10 * MS)
        for name in "abc":
            world.restart(name)
        world.lead("c")
        for n, ts in stamps.items():
            answer = world.get("c", Read(0, (b"k%d" % n,)))
            assert isinstance(answer, ReadReply) and answer.versions[0] is not None
            assert answer.versions[0].ts == ts
        later = put(world, "c", "t99", {b"k": b"v"})
        assert later > max(stamps.values())


def test_apply_takes_several_turns_and_a_read_waits_for_it() -> None:
    with group(turn_max_bytes=1) as world:
        world.isolate("a")
        all_asked = [world.ask("a", commit(ref(f"t{n}"), {b"k%d" % n: b"v" * 100})) for n in range(20)]
        world.turn("a")
        read = world.ask("a", Read(0, tuple(b"k%d" % n for n in range(20))))
        world.turn("a")
        world.heal()
        world.until(lambda: read.done and all(a.done for a in all_asked))
        versions = read.of(ReadReply).versions
        assert [v and v.ts for v in versions] == [a.of(CommitReply).ts for a in all_asked]


@pytest.mark.parametrize("something_there", [False, True])
def test_many_appends_where_nothing_is_take_one_lock(something_there: bool) -> None:
    """Elsewhere each has its own, so that nobody waits who has nothing to do with them."""
    prefixes = [b"h%02d/" % n for n in range(40)]
    with group() as world:
        if something_there:
            put(world, "a", "t0", {b"h05zzz": b"0"})
        txn = ref("t1")
        appends = tuple(Write(prefix + bytes(8) + b"id", b"v", len(prefix)) for prefix in prefixes)
        world.isolate("a")
        asked = world.ask("a", Commit(TxnWork(txn, EPOCH, appends)))
        world.turn("a")
        between, below = world.ask("a", lock(ref("t5"), b"h05zzz")), world.ask("a", lock(ref("t6"), b"h07/x"))
        world.turn("a")
        assert between.done is something_there and not below.done
        world.heal()
        world.until(lambda: asked.done and between.done and below.done)
        ts = committed(asked.answer)
        for prefix in prefixes:
            key, _ = fill(prefix + bytes(8) + b"id", len(prefix), None, (), ts)
            assert value(world, "a", key) == b"v"
