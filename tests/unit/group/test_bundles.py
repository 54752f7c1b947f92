"""Commits that come together are logged together, and each of them is what it would have been alone."""

import pytest
from msgspec.structs import replace

from f1common.errors import Code, F1Error
from spanstore.group.requests import Answer, Bundle, BundleReply, Commit, Outcome, Read, ReadReply, Release
from spanstore.mvcc.placeholders import fill
from spanstore.testing.replicas import EPOCH, MS, Asked, Replicas
from spanstore.txn.commands import BundleCmd, CommitCmd, TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import ExpectAbsent, ExpectVersion
from tests.unit.group.kit import (
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
    ref,
    term_of,
    value,
)


def bundle(*commits: Commit) -> Bundle:
    return Bundle(tuple(one.work for one in commits))


def bound(answer: Answer) -> tuple[int, tuple[int, ...]]:
    assert isinstance(answer, BundleReply), answer
    return answer.ts, answer.left_out


def bundles_in_log(world: Replicas, name: str) -> list[BundleCmd]:
    return [done.command for done in world.members[name].applied if isinstance(done.command, BundleCmd)]


def append(txn: TxnRef, prefix: bytes) -> Commit:
    """Write below a prefix, as the change history does: the key has the commit timestamp in it."""
    one = commit(txn, {})
    key = prefix + bytes(8) + txn.unique
    return Commit(type(one.work)(txn, one.work.priority_ts, (Write(key, b"h", len(prefix)),)))


def test_all_commit_at_one_timestamp_and_have_outcomes_of_their_own() -> None:
    with group() as world:
        old_ts = put(world, "a", "t0", {b"k": b"0", b"m": b"0"})
        tests = [ExpectVersion(b"k", old_ts)]
        ts, left_out = bound(
            world.get(
                "a",
                bundle(
                    commit(ref("t1"), {b"k": b"1", b"l": b"1"}, tests=tests),
                    commit(ref("t2"), {b"m": None}),
                    commit(ref("t3"), {b"n": b"3"}, tests=[ExpectAbsent(b"n")]),
                ),
            )
        )
        assert ts > old_ts and left_out == ()
        world.run(100 * MS)
        for name in "abc":
            (logged,) = bundles_in_log(world, name)
            assert [one.txn for one in logged.commits] == [ref("t1"), ref("t2"), ref("t3")]
            assert [value(world, name, key, ts) for key in (b"k", b"l", b"m", b"n")] == [b"1", b"1", None, b"3"]
            assert [value(world, name, key, ts - 1) for key in (b"k", b"l", b"m", b"n")] == [b"0", None, b"0", None]
        for name in ("t1", "t2", "t3"):
            assert decided(world.get("a", Outcome(ref(name)))) == (True, ts)
            assert committed(world.get("a", commit(ref(name), {b"k": b"twice"}))) == ts
        assert value(world, "a", b"k") == b"1"


def test_the_answer_comes_after_the_timestamp_has_passed() -> None:
    with group() as world:
        asked = world.ask("a", bundle(commit(ref("t1"), {b"k": b"v"}), commit(ref("t2"), {b"l": b"v"})))
        world.until(lambda: asked.done)
        assert EPOCH <= asked.of(BundleReply).ts < world.true_ts


def locked_by_another(world: Replicas) -> Commit:
    assert isinstance(world.get("a", lock(ref("t0"), b"x")), ReadReply)
    return commit(ref("t2"), {b"x": b"2"})


def changed_since(world: Replicas) -> Commit:
    put(world, "a", "t0", {b"x": b"0"})
    return commit(ref("t2"), {b"x": b"2"}, tests=[ExpectVersion(b"x", 5)])


def in_the_way_of_one_before(world: Replicas) -> Commit:
    return commit(ref("t2"), {b"k": b"2"})


def looks_at_what_one_before_writes(world: Replicas) -> Commit:
    return commit(ref("t2"), {b"x": b"2"}, tests=[ExpectAbsent(b"k")])


def writes_what_one_before_looks_at(world: Replicas) -> Commit:
    return commit(ref("t2"), {b"j": b"2"})


def done_before(world: Replicas) -> Commit:
    put(world, "a", "t2", {b"x": b"0"})
    return commit(ref("t2"), {b"x": b"2"})


def aborted_before(world: Replicas) -> Commit:
    assert decided(world.get("a", Outcome(ref("t2")))) == (False, 0)
    return commit(ref("t2"), {b"x": b"2"})


def prepared_here(world: Replicas) -> Commit:
    assert prepared(world.get("a", prepare(far("t2"), {b"x": b"0"})))
    return commit(ref("t2"), {b"w": b"2"})


def before_its_turn(world: Replicas) -> Commit:
    return commit(ref("t2", attempt=2), {b"x": b"2"})


def too_old(world: Replicas) -> Commit:
    return commit(ref("t2", created=EPOCH - 10**12), {b"x": b"2"})


def from_far_ahead(world: Replicas) -> Commit:
    return commit(ref("t2", created=EPOCH + 10**12), {b"x": b"2"})


def killed_before(world: Replicas) -> Commit:
    assert isinstance(world.get("a", lock(ref("t2"), b"x")), ReadReply)
    world.get("a", Release(ref("t2")))
    return commit(ref("t2"), {b"x": b"2"})


def that_nobody_can_store(world: Replicas) -> Commit:
    return commit(ref("t2"), {b"x" * 10_000: b"2"})


def that_holds_locks(world: Replicas) -> Commit:
    term = term_of(world.get("a", lock(ref("t2"), b"x", exclusive=True)))
    return commit(ref("t2"), {b"x": b"2"}, locks=held(b"x", mode=LockMode.EXCLUSIVE), term=term)


@pytest.mark.parametrize(
    "other",
    [
        locked_by_another,
        changed_since,
        in_the_way_of_one_before,
        looks_at_what_one_before_writes,
        writes_what_one_before_looks_at,
        done_before,
        aborted_before,
        prepared_here,
        before_its_turn,
        too_old,
        from_far_ahead,
        killed_before,
        that_nobody_can_store,
        that_holds_locks,
    ],
)
def test_what_cannot_go_is_left_out_and_nothing_is_done_of_it(other: object) -> None:
    with group() as world:
        odd = other(world)  # type: ignore[operator]
        before = {key: value(world, "a", key) for key in (b"w", b"y")}
        ts, left_out = bound(
            world.get(
                "a",
                bundle(
                    commit(ref("t1"), {b"k": b"1"}, tests=[ExpectAbsent(b"j")]), odd, commit(ref("t3"), {b"m": b"3"})
                ),
            )
        )
        assert ts and left_out == (1,)
        assert [value(world, "a", key) for key in (b"k", b"m")] == [b"1", b"3"]
        assert {key: value(world, "a", key) for key in before} == before
        assert not any(one.txn.unique == b"t2" for done in bundles_in_log(world, "a") for one in done.commits)
        # Whatever is left of it would be in the way of this.
        for holder in ("t0", "t2") if other is that_holds_locks else ("t0",):
            world.get("a", Release(ref(holder)))
        if other is not prepared_here:
            assert committed(world.get("a", commit(ref("t9"), {b"x": b"9", b"j": b"9"})))


def test_if_none_can_go_nothing_is_logged() -> None:
    with group() as world:
        assert isinstance(world.get("a", lock(ref("t0"), b"k", b"l")), ReadReply)
        answer = world.get("a", bundle(commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"})))
        assert bound(answer) == (0, (0, 1)) and not bundles_in_log(world, "a")


def test_one_that_is_fenced_stands_in_nobodys_way() -> None:
    with group() as world:
        late = commit(ref("t2"), {b"l": b"2"}, deadline=EPOCH)
        world.run(10 * MS)
        ts, left_out = bound(world.get("a", bundle(commit(ref("t1"), {b"k": b"1"}), late)))
        assert ts and left_out == (1,)
        assert code(world.get("a", late)) is Code.FENCED
        assert committed(world.get("a", commit(ref("t3"), {b"k": b"3", b"l": b"3"})))


def test_one_that_is_for_later_is_waited_for_by_nobody() -> None:
    with group() as world:
        works = commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"})
        later = Commit(replace(works[1].work, above=EPOCH + 500 * MS))
        ts, left_out = bound(world.get("a", bundle(works[0], later)))
        assert EPOCH < ts < EPOCH + 500 * MS and left_out == (1,)
        assert committed(world.get("a", later)) > EPOCH + 500 * MS


def test_bundles_that_come_while_one_is_on_its_way_are_one_entry() -> None:
    with group() as world:
        put(world, "a", "t0", {b"m": b"0"})
        world.isolate("a")
        first = world.ask("a", bundle(commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"})))
        world.turn("a")
        second = world.ask("a", bundle(commit(ref("t3"), {b"k": b"3"}), commit(ref("t4"), {b"n": b"4"})))
        world.turn("a")
        third = world.ask(
            "a",
            bundle(
                commit(ref("t4"), {b"n": b"4"}),  # sent again while it waits
                commit(ref("t5"), {b"o": b"5"}),
                commit(ref("t6"), {b"m": b"6"}, tests=[ExpectAbsent(b"m")]),
            ),
        )
        world.turn("a")
        assert not second.done and len(bundles_in_log(world, "a")) == 0
        world.heal()
        world.until(lambda: first.done and second.done and third.done)
        assert bound(first.answer)[1] == ()
        # Whoever is in the way of the first one, and whoever has failed or was sent twice, is left out of its own.
        assert bound(second.answer)[1] == (0,) and bound(third.answer)[1] == (0, 2)
        assert second.of(BundleReply).ts == third.of(BundleReply).ts > first.of(BundleReply).ts
        world.run(5 * MS)
        assert [len(command.commits) for command in bundles_in_log(world, "a")] == [2, 2]
        assert committed(world.get("a", commit(ref("t4"), {b"n": b"4"}))) == second.of(BundleReply).ts


def test_they_do_not_wait_for_long() -> None:
    with group() as world:
        world.isolate("a")
        world.ask("a", bundle(commit(ref("t1"), {b"k": b"1"})))
        world.turn("a")
        second = world.ask("a", bundle(commit(ref("t2"), {b"l": b"2"})))
        world.turn("a")
        before = world.members["a"].live.replica.last_index
        world.run(12 * MS)
        assert world.members["a"].live.replica.last_index == before + 1
        world.heal()
        world.until(lambda: second.done)
        assert second.of(BundleReply).ts


def test_of_those_who_wait_at_the_end_of_a_term_nothing_was_done() -> None:
    with group() as world:
        world.isolate("a")
        first = world.ask("a", bundle(commit(ref("t1"), {b"k": b"1"})))
        world.turn("a")
        second = world.ask("a", bundle(commit(ref("t2"), {b"l": b"2"})))
        world.turn("a")
        tenure = world.members["a"].live._tenure
        assert tenure is not None
        tenure.close(F1Error(Code.NOT_LEADER, "another one leads"))
        world.turn("a")
        assert isinstance(first.answer, F1Error) and first.answer.ambiguous
        assert isinstance(second.answer, F1Error) and not second.answer.ambiguous


def test_what_may_be_logged_is_asked_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may have joined since that does not know bundles, or a range been given up."""
    with group() as world:
        world.isolate("a")
        first = world.ask("a", bundle(commit(ref("t1"), {b"k": b"1"})))
        world.turn("a")
        second = world.ask("a", bundle(commit(ref("t2"), {b"l": b"2"})))
        world.turn("a")
        live = world.members["a"].live
        assert live is not None and live._tenure is not None

        def unknown(*_: object) -> None:
            raise F1Error(Code.FAILED_PRECONDITION, "not all members know it")

        with monkeypatch.context() as patched:
            patched.setattr(live._tenure._versions, "check", unknown)
            world.run(12 * MS)
        assert isinstance(second.answer, F1Error) and second.answer.code is Code.FAILED_PRECONDITION
        world.heal()
        world.until(lambda: first.done)
        assert committed(world.get("a", commit(ref("t3"), {b"l": b"3"})))  # nothing of it is left in the way


def test_nobody_waits_for_a_leader_that_is_leaving() -> None:
    with group() as world:
        world.isolate("a")
        world.ask("a", bundle(commit(ref("t1"), {b"k": b"1"})))
        world.turn("a")
        second = world.ask("a", bundle(commit(ref("t2"), {b"l": b"2"})))
        world.turn("a")
        live = world.members["a"].live
        assert live is not None
        live.hand_over()  # nobody has the whole log: it serves nothing until somebody does
        world.turn("a")
        assert isinstance(second.answer, F1Error) and second.answer.code is Code.NOT_LEADER


def test_a_repeated_bundle_waits_for_little_and_its_commits_are_found_done() -> None:
    with group() as world:
        works = (commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"}))
        world.isolate("a")
        first = world.ask("a", bundle(*works))
        world.turn("a")
        again = world.ask("a", bundle(*works))
        alone = world.ask("a", works[0])
        world.turn("a")
        world.run(11 * MS)
        assert again.of(BundleReply) == BundleReply(0, (0, 1)) and not first.done and not alone.done
        world.heal()
        world.until(lambda: first.done and alone.done)
        ts = first.of(BundleReply).ts
        assert committed(alone.answer) == ts and len(bundles_in_log(world, "a")) == 1
        assert committed(world.get("a", works[1])) == ts


def test_rows_stay_locked_until_they_are_applied() -> None:
    with group() as world:
        world.isolate("a")
        asked = world.ask("a", bundle(commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"})))
        world.turn("a")
        flights = world.members["a"].live._tenure._flights  # type: ignore[union-attr]
        assert flights.has_anchor_in(b"k", b"l") and not flights.has_anchor_in(b"l", b"z")
        readers = [world.ask("a", lock(ref("t5"), b"k")), world.ask("a", Read(0, (b"l",)))]
        readers.append(world.ask("a", lock(ref("t00"), b"l")))  # older, and wounds nobody who is in the log
        older = world.ask("a", commit(ref("t0"), {b"k": b"0"}))
        world.turn("a")
        assert not any(reader.done for reader in [*readers, older, asked])
        world.heal()
        world.until(lambda: asked.done and older.done and all(reader.done for reader in readers))
        ts = asked.of(BundleReply).ts
        assert readers[1].of(ReadReply).versions[0].value == b"2"  # type: ignore[union-attr]
        assert committed(older.answer) > ts


def test_a_leader_that_goes_leaves_all_of_them_unclear() -> None:
    with group() as world:
        world.isolate("a")
        works = (commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"}))
        asked: Asked = world.ask("a", bundle(*works))
        world.turn("a")
        world.elect("b")
        world.heal()
        world.until(lambda: asked.done)
        assert asked.code is Code.NOT_LEADER and asked.answer.ambiguous  # type: ignore[union-attr]
        world.lead("b")
        # Whoever asks learns that they never will be: the new leader's log has nothing of them.
        for work in works:
            assert decided(world.get("b", Outcome(work.work.txn))) == (False, 0)


def test_what_is_appended_below_one_prefix_goes_together() -> None:
    with group() as world:
        ts, left_out = bound(world.get("a", bundle(append(ref("t1"), b"h/"), append(ref("t2"), b"h/"))))
        assert ts and not left_out
        for unique in (b"t1", b"t2"):
            key, _ = fill(b"h/" + bytes(8) + unique, 2, None, (), ts)
            assert value(world, "a", key) == b"h"


def test_an_older_member_would_not_understand_it() -> None:
    with group() as world:
        world.versions["c"] = 3
        works = (commit(ref("t1"), {b"k": b"1"}), commit(ref("t2"), {b"l": b"2"}))
        assert code(world.get("a", bundle(*works))) is Code.FAILED_PRECONDITION
        assert committed(world.get("a", works[0]))
        world.versions["c"] = 4
        assert bound(world.get("a", bundle(commit(ref("t3"), {b"k": b"1"}), works[1])))[0]
        assert sum(isinstance(done.command, CommitCmd) for done in world.members["a"].applied) == 1
