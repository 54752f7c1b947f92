"""Timestamps, ceilings, fences and lying clocks (Spanner, sections 4.1 and 4.2)."""

import pytest

from f1common.errors import Code
from spanstore.group.config import GroupConfig
from spanstore.group.requests import CommitReply, Decide, LockRead, Read, ReadReply
from spanstore.testing.replicas import EPOCH, FAST, MS, Replicas
from tests.unit.group.kit import code, commit, committed, far, group, lock, prepare, prepared, put, read_one, ref, value

HOUR = 3_600_000 * MS


def starve_of_ceiling(world: Replicas, name: str) -> int:
    """Cut the leader off and return a timestamp that nobody promises it any more."""
    ceiling = world.members[name].live.replica.usable_ceiling
    world.isolate(name)
    return ceiling


def test_commit_above_the_ceiling_waits_for_a_higher_one_and_then_happens() -> None:
    with group() as world:
        ceiling = starve_of_ceiling(world, "a")
        parked = world.ask("a", commit(ref("t1"), {b"k": b"v"}, above=ceiling))
        world.run(50 * MS)
        assert not parked.done
        world.heal()
        world.until(lambda: parked.done)
        assert parked.of(CommitReply).ts > ceiling
        assert value(world, "a", b"k") == b"v"


def test_prepare_above_the_ceiling_waits_and_is_lost_with_the_leader() -> None:
    with group() as world:
        ceiling = starve_of_ceiling(world, "a")
        parked = world.ask("a", prepare(far("t1"), {b"k": b"v"}, above=ceiling))
        twin = world.ask("a", prepare(far("t1"), {b"k": b"v"}, above=ceiling))
        world.elect("b")
        world.until(lambda: parked.done and twin.done)
        for asked in (parked, twin):
            assert asked.code is Code.NOT_LEADER
            assert not asked.answer.ambiguous  # type: ignore[union-attr]


def test_read_above_the_ceiling_waits_for_a_higher_one() -> None:
    with group() as world:
        ceiling = starve_of_ceiling(world, "a")
        parked = world.ask("a", Read(ceiling + 1, (b"k",)))
        world.run(30 * MS)
        assert not parked.done
        world.heal()
        world.until(lambda: parked.done)
        assert isinstance(parked.answer, ReadReply)


def test_fence_is_checked_at_the_timestamp_and_not_at_the_arrival() -> None:
    with group() as world:
        edge = world.true_ts + 50 * MS
        assert committed(world.get("a", commit(ref("t1"), {b"k": b"1"}, deadline=edge))) <= edge
        late = world.get("a", commit(ref("t2"), {b"k": b"2"}, deadline=world.true_ts - 1))
        assert code(late) is Code.FENCED
        # In time when it came, too late when it had its locks.
        world.get("a", lock(ref("t0"), b"k"))
        waits = world.ask("a", commit(ref("t3"), {b"k": b"3"}, deadline=world.true_ts + 20 * MS))
        world.run(50 * MS)
        world.get("a", lock(ref("t0"), b"x"))
        world.get("a", commit(ref("t0"), {b"x": b"0"}))
        world.until(lambda: waits.done)
        assert waits.code is Code.FENCED
        # In time by the clock, too late by what it must be above.
        above = world.get(
            "a", commit(ref("t4"), {b"k": b"4"}, above=world.true_ts + 90 * MS, deadline=world.true_ts + 50 * MS)
        )
        assert code(above) is Code.FENCED
        assert value(world, "a", b"k") == b"1"


def test_fence_is_checked_again_when_the_ceiling_came() -> None:
    with group() as world:
        ceiling = starve_of_ceiling(world, "a")
        parked = world.ask("a", commit(ref("t1"), {b"k": b"v"}, above=ceiling, deadline=ceiling + 2))
        world.turn("a")
        # Whoever reads above it pushes the timestamp past the fence.
        read = world.ask("a", Read(ceiling + 10, (b"k",)))
        world.turn("a")
        world.heal()
        world.until(lambda: parked.done and read.done)
        if parked.code is None:
            assert parked.of(CommitReply).ts <= ceiling + 2
        else:
            assert parked.code is Code.FENCED
        assert isinstance(world.get("a", lock(ref("t9"), b"k", exclusive=True)), ReadReply)


def test_timestamps_from_too_far_ahead_are_refused_and_drag_nothing_along() -> None:
    with group() as world:
        ahead = world.true_ts + HOUR
        assert code(world.get("a", commit(ref("t1"), {b"k": b"v"}, above=ahead))) is Code.CLOCK_SKEW
        assert code(world.get("a", commit(ref("t2"), {b"k": b"v"}, participants=((3, ahead),)))) is Code.CLOCK_SKEW
        assert code(world.get("a", prepare(far("t3"), {b"k": b"v"}, above=ahead))) is Code.CLOCK_SKEW
        assert code(world.get("a", Read(ahead, (b"k",)))) is Code.CLOCK_SKEW
        ts = put(world, "a", "t4", {b"k": b"v"})
        assert ts < world.true_ts
        assert isinstance(world.get("a", lock(ref("t9"), b"k", exclusive=True)), ReadReply)


def test_ratchet_follows_what_clients_saw() -> None:
    with group() as world:
        seen = world.true_ts + 50 * MS
        ts = committed(world.get("a", commit(ref("t1"), {b"k": b"v"}, above=seen)))
        assert ts == seen + 1
        assert put(world, "a", "t2", {b"l": b"v"}) > ts


def test_timestamps_rise_over_leaders_with_clocks_at_opposite_ends_of_the_bound() -> None:
    with group() as world:
        world.members["a"].skew_us = world.members["a"].bound_us
        world.members["b"].skew_us = -world.members["b"].bound_us
        world.members["c"].skew_us = 0
        last = 0
        for leader in "abacbab":
            world.lead(leader)
            for n in range(3):
                ts = put(world, leader, f"t{world.time}-{n}", {b"k": b"v"})
                assert last < ts < world.true_ts
                last = ts


def test_hand_over_is_fast_and_timestamps_rise() -> None:
    with group() as world:
        last = put(world, "a", "t0", {b"k": b"v"})
        world.run(50 * MS)
        before = world.time
        leader = "a"
        for n in range(6):
            world.members[leader].live.hand_over()
            world.until(lambda leader=leader: world.leader() not in (None, leader))  # type: ignore[misc]
            leader = world.leader() or ""
            ts = put(world, leader, f"h{n}", {b"k": b"v"})
            assert last < ts
            last = ts
            world.run(10 * MS)
        assert world.time - before < FAST.lease_us * 3


def test_hand_over_under_load_waits_for_a_voter_that_has_everything_not_for_the_lease() -> None:
    with group() as world:
        put(world, "a", "t0", {b"k": b"v"})
        world.run(50 * MS)
        world.held = {("b", "a"), ("c", "a")}
        asked = world.ask("a", commit(ref("t1"), {b"k": b"w"}))
        world.run(5 * MS)
        world.members["a"].live.hand_over()
        assert world.members["a"].live.leads()
        late = world.ask("a", commit(ref("t2"), {b"k": b"x"}))
        world.run(5 * MS)
        assert late.code is Code.NOT_LEADER
        before = world.time
        world.held.clear()
        world.until(lambda: world.leader() not in (None, "a"))
        assert world.time - before < FAST.lease_us // 2
        world.until(lambda: asked.done)
        assert value(world, world.leader() or "", b"k") == b"w"


def test_version_from_the_end_of_a_term_is_not_shown_before_its_timestamp_has_passed() -> None:
    """The old leader waits for the timestamp with its locks; the new one has no such lock, and must wait as well."""
    with group() as world:
        world.run(50 * MS)
        ahead = world.true_ts + 200 * MS
        asked = world.ask("a", commit(ref("t1"), {b"k": b"v"}, above=ahead))
        world.run(10 * MS)
        assert not asked.done
        world.members["a"].live.hand_over()
        world.until(lambda: world.leader() not in (None, "a"))
        leader = world.leader() or ""
        assert world.true_ts < ahead
        read = world.ask(leader, lock(ref("t2"), b"k"))
        world.until(lambda: read.done)
        assert read_one(read.answer) == b"v"
        assert world.true_ts > ahead


@pytest.mark.parametrize("kind", ["strong", "at a timestamp"])
def test_clock_of_the_leader_steps_back_by_an_hour(kind: str) -> None:
    with group() as world:
        ts = put(world, "a", "t0", {b"k": b"v"})
        if kind == "strong":
            waits = world.ask("a", Read(0, (b"k",)))
            parked = world.ask("a", prepare(far("t1"), {b"k": b"w"}))
        else:
            ceiling = starve_of_ceiling(world, "a")
            waits = world.ask("a", Read(ceiling + 1, (b"k",)))
            parked = world.ask("a", commit(ref("t1"), {b"k": b"w"}, above=ceiling))
        world.turn("a")
        world.members["a"].skew_us = -HOUR
        world.heal()
        world.run(100 * MS)
        assert "a" not in world.crashed
        world.isolate("a")
        world.elect("b")
        assert value(world, "b", b"k", ts) == b"v"
        later = put(world, "b", "t9", {b"l": b"v"})
        assert later > ts
        world.members["a"].skew_us = 0
        world.heal()
        world.until(lambda: waits.done and parked.done)


def test_group_whose_clocks_were_all_an_hour_ahead_waits_for_the_present_and_goes_on() -> None:
    with group() as world:
        for member in world.members.values():
            member.skew_us = HOUR
        world.run(100 * MS)
        ts = committed(world.get("a", commit(ref("t1", created=EPOCH + HOUR), {b"k": b"v"})))
        assert ts > world.true_ts + HOUR - 10 * MS
        for member in world.members.values():
            member.skew_us = 0
        old = world.ask("a", Read(world.true_ts - 1, (b"k",)))
        strong = world.ask("a", Read(0, (b"k",)), timeout_us=100 * MS)
        write = world.ask("a", commit(ref("t2"), {b"k": b"w"}), timeout_us=100 * MS)
        world.run(1_000 * MS)
        assert not world.crashed and read_one(old.answer) is None
        world.time += HOUR
        world.run(1_000 * MS)
        assert strong.done and write.done
        leader = world.leader()
        assert leader is not None
        assert value(world, leader, b"k") == (b"w" if write.code is None else b"v")
        assert committed(world.get(leader, commit(ref("t3", created=EPOCH + HOUR), {b"k": b"x"}))) > ts


def test_locked_read_gives_the_newest_version_whatever_the_clock_says() -> None:
    with group() as world:
        put(world, "a", "t0", {b"k": b"v"})
        world.members["a"].skew_us = -HOUR
        request = lock(ref("t1"), b"k")
        assert isinstance(request, LockRead)
        assert read_one(world.get("a", request)) == b"v"


def test_new_leader_with_a_slow_clock_commits_above_what_the_old_one_read_at() -> None:
    """The answer is still waiting for its timestamp to pass when the other leader commits."""
    with Replicas(config=GroupConfig(paxos=FAST), bound_us=500 * MS) as world:
        world.members["a"].skew_us = 500 * MS
        world.members["b"].skew_us = -500 * MS
        world.lead("a")
        world.run(100 * MS)
        read = world.ask("a", Read(0, (b"k",)))
        world.step()
        world.elect("b")
        assert not read.done
        write = world.ask("b", commit(ref("t1"), {b"k": b"v"}))
        world.until(lambda: read.done and write.done)
        answer = read.of(ReadReply)
        assert answer.versions == [None]
        assert write.of(CommitReply).ts > answer.timestamp


def test_no_commit_comes_at_or_below_a_timestamp_that_was_called_safe() -> None:
    with group() as world:
        for n in range(5):
            world.run(50 * MS)
            _, promised = world.members["b"].live.replica.safe
            # The leader's clock steps back by less than anybody would notice.
            world.members["a"].skew_us -= 20 * MS
            write = world.ask("a", commit(ref(f"t{n}"), {b"k": b"v"}))
            world.until(lambda write=write: write.done)  # type: ignore[misc]
            assert write.of(CommitReply).ts > promised > 0


def test_read_above_the_ceiling_sees_what_commits_below_it_meanwhile() -> None:
    with group() as world:
        ceiling = starve_of_ceiling(world, "a")
        read = world.ask("a", Read(ceiling + 1, (b"k",)))
        world.turn("a")
        write = world.ask("a", commit(ref("t1"), {b"k": b"v"}))
        world.turn("a")
        world.heal()
        world.until(lambda: read.done and write.done)
        if write.of(CommitReply).ts <= ceiling + 1:
            assert read_one(read.answer) == b"v"


def test_ceiling_that_is_too_low_is_raised_at_once() -> None:
    with group() as world:
        leader = world.members["a"].live
        before = leader.replica.last_index
        world.ask("a", commit(ref("t1"), {b"k": b"v"}, above=leader.replica.usable_ceiling + 100 * MS))
        world.run(10 * MS)
        assert leader.replica.last_index == before + 1


def test_leader_by_hand_over_commits_above_what_the_old_one_read_at() -> None:
    with Replicas(config=GroupConfig(paxos=FAST), bound_us=500 * MS) as world:
        world.members["a"].skew_us = 500 * MS
        world.members["b"].skew_us = -500 * MS
        world.members["c"].skew_us = -500 * MS
        world.lead("a")
        world.run(100 * MS)
        read = world.ask("a", Read(world.true_ts + 1_100 * MS, (b"k",)))
        world.turn("a")
        world.members["a"].live.hand_over()
        world.until(lambda: world.leader() not in (None, "a"))
        write = world.ask(world.leader() or "", commit(ref("t1"), {b"k": b"v"}))
        world.until(lambda: read.done and write.done, within_us=10_000 * MS)
        if isinstance(read.answer, ReadReply):
            assert read.answer.versions == [None]
            assert write.of(CommitReply).ts > read.answer.timestamp


def test_strong_read_under_a_ceiling_that_lags_sees_what_was_acknowledged_elsewhere() -> None:
    """The coordinator is another group: its commit timestamp may lie above this group's ceiling, and has passed."""
    with group() as world:
        put(world, "a", "t0", {b"k": b"old"})
        leader = world.members["a"].live
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"new"})))
        world.until(lambda: leader.replica.usable_ceiling < world.true_ts + 200 * MS)
        world.held = {("b", "a"), ("c", "a")}  # nobody's promise arrives for most of a lease
        world.until(lambda: leader.replica.usable_ceiling < world.true_ts - 20 * MS)
        acknowledged = world.true_ts - 10 * MS
        assert acknowledged > ts
        read = world.ask("a", Read(0, (b"k",)))
        world.step()
        world.ask("a", Decide(far("t1"), acknowledged))
        world.step()
        assert leader.is_serving_leader() and not read.done
        world.heal()
        world.until(lambda: read.done)
        assert read_one(read.answer) == b"new"


def test_leader_an_hour_ahead_is_refused_and_drags_nobody_along() -> None:
    with group() as world:
        ts = put(world, "a", "t0", {b"k": b"v"})
        world.members["a"].skew_us = HOUR
        world.until(lambda: world.leader() not in (None, "a"), within_us=5_000 * MS)
        leader = world.leader() or ""
        assert world.members[leader].live.clocks_ahead.get("a", HOUR) > HOUR // 2
        for n in range(3):
            later = put(world, leader, f"t{n + 1}", {b"k": b"%d" % n})
            assert ts < later < world.true_ts
            ts = later
        # Its clock is repaired: it follows. Until the ceiling that it gave itself has passed, it cannot lead or elect.
        world.members["a"].skew_us = 0
        world.run(500 * MS)
        assert value(world, "a", b"k", ts) == b"2"
        world.time += HOUR
        world.run(1_000 * MS)
        world.lead("a")
        assert value(world, "a", b"k") == b"2"
        assert committed(world.get("a", commit(ref("t9", created=EPOCH + HOUR), {b"k": b"9"}))) > ts
        assert not any(m.live.clocks_ahead for m in world.members.values())


def test_follower_an_hour_behind_refuses_alone_and_the_others_go_on() -> None:
    with group() as world:
        world.members["c"].skew_us = -HOUR
        world.run(500 * MS)
        assert world.leader() == "a"
        put(world, "a", "t1", {b"k": b"v"})
        assert world.members["c"].live.clocks_ahead["a"] > HOUR // 2
        world.members["c"].skew_us = 0
        world.run(500 * MS)
        assert not world.members["c"].live.clocks_ahead
        assert value(world, "c", b"k", world.true_ts - 100 * MS) == b"v"
