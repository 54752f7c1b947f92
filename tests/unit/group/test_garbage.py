"""The leader's side of garbage collection, step by step: permits, marks, passes, and what is never collected."""

import itertools
from typing import Any

import pytest

from f1common.errors import Code
from spanstore.group import collecting
from spanstore.group.garbage import Collected
from spanstore.group.requests import (
    Collect,
    CollectReply,
    Decide,
    DecideReply,
    OldestPrepared,
    OldestPreparedReply,
    Outcome,
    Read,
)
from spanstore.mvcc.collect import Found, find_garbage
from spanstore.testing.replicas import EPOCH, MS, Replicas
from spanstore.txn.commands import CollectCmd, RaiseMarkCmd
from tests.unit.group.kit import code, commit, decided, far, group, prepare, prepared, put, ref, value

KEEP = 500 * MS
VERSIONS: dict[str, Any] = {"version_keep_us": KEEP}
OUTCOMES: dict[str, Any] = {"outcome_keep_us": KEEP}
ANY = 1 << 62


def permit(world: Replicas, name: str = "a", limit_ts: int = ANY, unsettled: tuple[int, ...] = ()) -> None:
    before_ts = world.now(name).tt.earliest - world.config.outcome_keep_us
    assert isinstance(world.get(name, Collect(limit_ts, before_ts, unsettled)), CollectReply)


def done(world: Replicas, name: str = "a") -> Collected:
    return world.members[name].live.state.collected


def pass_over(world: Replicas, name: str = "a", **options: Any) -> None:
    """Let time pass with fresh permits until a pass has ended that began after this call."""
    for _ in range(40):
        permit(world, name, **options)
        world.run(50 * MS)


def test_nothing_happens_without_a_permit() -> None:
    with group(**VERSIONS) as world:
        put(world, "a", "t1", {b"k": b"1"})
        put(world, "a", "t2", {b"k": b"2"})
        world.run(3 * KEEP)
        assert done(world) == Collected()


def test_versions_go_at_every_replica_alike_and_the_mark_refuses_reads() -> None:
    with group(**VERSIONS) as world:
        first = put(world, "a", "t1", {b"k": b"1", b"l": b"1"})
        put(world, "a", "t2", {b"k": b"2", b"l": None})
        pass_over(world)
        assert {done(world, name) for name in "abc"} == {done(world)}
        assert (done(world).versions, done(world).passes > 0) == (3, True)
        for name in "abc":
            assert code(world.get(name, Read(first, (b"k",)))) is Code.SNAPSHOT_TOO_OLD
            assert value(world, name, b"k", done(world).mark_ts) == b"2"
            assert value(world, name, b"l", done(world).mark_ts) is None


def test_an_idle_group_comes_to_rest() -> None:
    with group(**VERSIONS, **OUTCOMES) as world:
        put(world, "a", "t1", {b"k": b"1"})
        pass_over(world)
        before = world.members["a"].live.replica.last_index
        pass_over(world)
        assert world.members["a"].live.replica.last_index == before


def test_the_mark_stays_at_the_limit_and_never_goes_back() -> None:
    with group(**VERSIONS) as world:
        put(world, "a", "t1", {b"k": b"1"})
        ts = put(world, "a", "t2", {b"k": b"2"})
        pass_over(world, limit_ts=ts - 1)
        # By steps of some width, so that not each pass raises it.
        assert ts - 1 - KEEP // 16 <= done(world).mark_ts <= ts - 1
        pass_over(world)
        mark = done(world).mark_ts
        assert mark > ts
        put(world, "a", "t3", {b"k": b"3"})
        pass_over(world, limit_ts=ts - 1)
        assert done(world).mark_ts == mark


def test_a_prepared_transaction_holds_the_mark_below_itself() -> None:
    with group(**VERSIONS) as world:
        put(world, "a", "t1", {b"k": b"1"})
        at = prepared(world.get("a", prepare(far("t2"), {b"k": b"2"})))
        put(world, "a", "t3", {b"l": b"3"})
        pass_over(world)
        assert done(world).mark_ts < at
        assert isinstance(world.get("a", Decide(far("t2"), at + 1)), DecideReply)
        pass_over(world)
        assert done(world).mark_ts > at
        assert value(world, "a", b"k") == b"2"


def test_no_commit_of_a_later_leader_lies_at_or_below_the_mark() -> None:
    with group(**VERSIONS) as world:
        put(world, "a", "t1", {b"k": b"1"})
        put(world, "a", "t2", {b"k": b"2"})
        pass_over(world)
        world.lead("b")
        assert put(world, "b", "t3", {b"k": b"3"}) > done(world, "b").mark_ts
        pass_over(world, "b")
        commands = [d.command for d in world.members["c"].applied]
        marks = [c.mark_ts for c in commands if isinstance(c, RaiseMarkCmd)]
        assert marks == sorted(set(marks))
        assert any(isinstance(c, CollectCmd) and c.removed for c in commands)


def test_an_outcome_stays_until_its_participants_are_settled() -> None:
    """The group of the participant did not answer, or said that it has an old transaction prepared."""
    with group(**OUTCOMES) as world:
        txn = ref("t1", created=EPOCH + world.time)
        request = commit(txn, {b"k": b"1"}, participants=((7, EPOCH + world.time),))
        world.get("a", request)
        pass_over(world, unsettled=(7,))
        assert done(world).outcomes == 0
        assert decided(world.get("a", Outcome(txn)))[0] is True
        pass_over(world, unsettled=(8,))
        assert done(world).outcomes == 1
        assert code(world.get("a", Outcome(txn))) is Code.EXPIRED
        assert code(world.get("a", request)) is Code.EXPIRED


def test_an_inquiry_about_an_old_id_records_nothing() -> None:
    with group(**OUTCOMES) as world:
        txn = ref("t1", created=EPOCH)
        world.run(2 * KEEP)
        assert decided(world.get("a", Outcome(txn, inquiry=True))) == (False, 0)
        assert code(world.get("a", Outcome(txn))) is Code.EXPIRED


def test_the_oldest_prepared_id_is_told_also_while_its_prepare_is_on_its_way() -> None:
    with group(**OUTCOMES) as world:
        assert world.get("a", OldestPrepared()) == OldestPreparedReply(0)
        world.isolate("a")
        old = far("t1")
        sent = world.ask("a", prepare(old, {b"k": b"1"}))
        world.turn("a")
        asked = world.ask("a", OldestPrepared())
        world.turn("a")
        assert asked.answer == OldestPreparedReply(old.created_ts)
        world.heal()
        world.until(lambda: sent.done)
        assert world.get("a", OldestPrepared()) == OldestPreparedReply(old.created_ts)
        assert code(world.get("b", OldestPrepared())) is Code.NOT_LEADER


def test_no_prepare_of_an_id_that_is_older_than_outcomes_are_kept() -> None:
    """Whoever was told that nothing so old is prepared here may rely on it for ever."""
    with group(**OUTCOMES) as world:
        txn = far("t1")
        world.run(2 * KEEP)
        assert code(world.get("a", prepare(txn, {b"k": b"1"}, deadline=EPOCH + 60_000 * MS))) is Code.FENCED


def test_what_is_clean_is_looked_at_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over much that holds no garbage leaves the leader's time to users."""
    monkeypatch.setattr(collecting, "_ITEMS", 1)
    looks: list[int] = []

    with group(**VERSIONS) as world:
        for n in range(60):
            put(world, "a", f"t{n}", {b"k%02d" % n: b"1"})

        def noted(*arguments: Any, **options: Any) -> Found:
            looks.append(world.true_ts)
            return find_garbage(*arguments, **options)

        monkeypatch.setattr(collecting, "find_garbage", noted)
        pass_over(world)
        pass_over(world)
    pauses = [later - before for before, later in itertools.pairwise(looks)]
    assert max(pauses[:18]) < 100 * MS
    assert min(pauses[22:40]) >= 250 * MS
