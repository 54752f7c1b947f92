"""Reads: what they see, what they wait for, who may answer them and until when."""

from itertools import pairwise

import pytest

from f1common.errors import Code
from spanstore.engine.base import WriteBatch
from spanstore.group.requests import (
    CommitReply,
    Decide,
    LockRead,
    RangeRead,
    Read,
    ReadReply,
    Release,
    SafeTimeQuery,
    SafeTimeReply,
    Settle,
    SettleReply,
)
from spanstore.mvcc.versions import version_key
from spanstore.testing.replicas import EPOCH, GROUP, MS, Asked, Replicas
from spanstore.txn.locks import LockMode
from tests.unit.group.kit import (
    code,
    commit,
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


def safe(world: Replicas, name: str) -> int:
    answer = world.get(name, SafeTimeQuery())
    assert isinstance(answer, SafeTimeReply)
    return answer.safe_ts


def test_strong_read_sees_every_commit_that_was_acknowledged_before_it_was_asked() -> None:
    """One entry is applied a turn, so that entries are chosen long before they are applied."""
    with group(turn_max_bytes=1) as world:
        world.isolate("a")
        sent = [world.ask("a", commit(ref(f"t{n}"), {b"k": b"%d" % n})) for n in range(5)]
        sent += [world.ask("a", commit(ref(f"f{n}"), {b"f%d" % n: b"x" * 50})) for n in range(20)]
        world.turn("a")
        world.heal()
        reads = []
        for _ in range(80):
            seen = max([a.of(CommitReply).ts for a in sent[:5] if a.done], default=0)
            reads.append((seen, world.ask("a", Read(0, (b"k",)))))
            world.step()
        assert all(a.done for a in sent)
        world.until(lambda: all(read.done for _, read in reads))
        assert len({seen for seen, _ in reads}) > 3
        for seen, read in reads:
            (version,) = read.of(ReadReply).versions
            assert (version.ts if version else 0) >= seen


def test_read_waits_for_a_prepared_write_of_its_keys_and_for_no_other() -> None:
    with group() as world:
        put(world, "a", "t0", {b"k": b"0", b"l": b"0", b"m": b"0"})
        term = term_of(world.get("a", lock(far("t1"), b"m")))
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"1"}, locks=held(b"m"), term=term)))
        world.run(20 * MS)
        waits = [
            world.ask("a", Read(0, (b"l", b"k"))),
            world.ask("a", Read(ts, (b"k",))),
            world.ask("a", Read(0, (), (RangeRead(b"a", b"l"),))),
            world.ask("a", Settle(world.true_ts, (RangeRead(b"k", b"k\x00"),))),
        ]
        assert value(world, "a", b"l") == b"0"
        assert value(world, "a", b"m") == b"0"  # locked shared only
        assert value(world, "a", b"k", ts - 1) == b"0"
        answer = world.get("a", Read(0, (b"l", b"m"), (RangeRead(b"l", b"z"), RangeRead(b"a", b"k"))))
        assert isinstance(answer, ReadReply) and len(answer.ranges[0].rows) == 2
        world.run(50 * MS)
        assert not any(w.done for w in waits)
        world.get("a", Decide(far("t1"), ts + 2))
        world.until(lambda: all(w.done for w in waits))
        first = waits[0].of(ReadReply).versions[1]
        assert first is not None and (first.ts, first.value) == (ts + 2, b"1")
        assert read_one(waits[1].answer) == b"0"  # the commit came after the timestamp that was asked for
        assert waits[3].of(SettleReply).timestamp


def test_read_for_several_readers_leaves_out_what_one_of_them_must_wait_for() -> None:
    with group() as world:
        put(world, "a", "t0", {b"k": b"0", b"l": b"0", b"m": b"0"})
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"1", b"kk": b"1"})))
        world.run(20 * MS)
        keys = (b"l", b"k", b"m", b"kk")
        answer = world.get("a", Read(0, keys, apart=True))
        assert isinstance(answer, ReadReply) and answer.left_out == (1, 3)
        assert [v.value for v in answer.versions if v] == [b"0", b"0"]
        before = world.get("a", Read(ts - 1, keys, apart=True))
        assert isinstance(before, ReadReply) and before.left_out == () and len(before.versions) == 4
        # It waits for its timestamp all the same.
        ahead = world.ask("a", Read(world.true_ts + 400 * MS, keys, apart=True))
        world.get("a", Decide(far("t1"), ts + 2))
        assert not ahead.done
        world.until(lambda: ahead.done)
        late = ahead.of(ReadReply)
        assert late.left_out == () and [v and v.value for v in late.versions] == [b"0", b"1", b"0", b"1"]


def test_read_for_several_readers_stops_where_it_gets_too_large() -> None:
    with group(read_max_bytes=250) as world:
        keys = tuple(b"k%d" % n for n in range(5))
        sizes = (100, 200, 100, 50, 0)
        put(world, "a", "t0", {key: b"x" * size for key, size in zip(keys, sizes, strict=True) if size})
        answer = world.get("a", Read(0, keys, apart=True))
        assert isinstance(answer, ReadReply)
        # The second does not fit, smaller ones after it do, and then there is room for nothing, not even for the last.
        assert ([v and len(v.value or b"") for v in answer.versions], answer.left_out) == ([100, 100, 50], (1, 4))
        large = world.get("a", Read(0, (keys[1],), apart=True))  # by itself, whatever its size
        assert isinstance(large, ReadReply) and large.left_out == ()


def test_read_that_waits_too_long_is_told_so() -> None:
    with group() as world:
        world.get("a", prepare(far("t1"), {b"k": b"1"}))
        strong = world.ask("a", Read(0, (b"k",)), timeout_us=50 * MS)
        later = world.ask("a", Read(world.true_ts + 100 * MS, (b"l",)), timeout_us=50 * MS)
        follower = world.ask("b", Read(world.true_ts, (b"k",)), timeout_us=50 * MS)
        world.run(80 * MS)
        assert [a.code for a in (strong, follower)] == [Code.DEADLINE_EXCEEDED] * 2
        world.until(lambda: later.done)


def test_no_commit_comes_at_or_below_a_timestamp_that_was_read() -> None:
    with group() as world:
        for n in range(20):
            ahead = world.true_ts + 40 * MS
            read = world.ask("a", Read(ahead, (b"k",)))
            write = world.ask("a", commit(ref(f"t{n}"), {b"k": b"%d" % n}))
            world.until(lambda read=read, write=write: read.done and write.done)  # type: ignore[misc]
            (seen,) = read.of(ReadReply).versions
            assert write.of(CommitReply).ts > ahead
            assert seen is None or seen.value == b"%d" % (n - 1)
            assert world.true_ts > ahead


def test_read_is_not_answered_before_its_timestamp_has_passed() -> None:
    with group() as world:
        ahead = world.true_ts + 100 * MS
        reads = [world.ask(name, Read(ahead, (b"k",))) for name in "abc"]
        world.until(lambda: any(r.done for r in reads))
        assert world.true_ts - world.members["a"].bound_us > ahead - 1
        world.until(lambda: all(r.done for r in reads))


def test_follower_answers_what_the_leader_would() -> None:
    with group() as world:
        stamps = [put(world, "a", f"t{n}", {b"k": b"%d" % n}) for n in range(5)]
        for name in "abc":
            for n, ts in enumerate(stamps):
                assert value(world, name, b"k", ts) == b"%d" % n


def test_follower_that_answers_says_who_leads() -> None:
    """So that whoever asked it goes to the leader next time, and need not wait."""
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"1"})
        asked = {name: world.ask(name, Read(ts, (b"k",)), timeout_us=5_000 * MS) for name in "abc"}
        world.until(lambda: all(r.done for r in asked.values()))
        answers = {name: r.of(ReadReply) for name, r in asked.items()}
        assert {read_one(answer) for answer in answers.values()} == {b"1"}
        assert {name: answer.leader for name, answer in answers.items()} == {"a": "", "b": "a", "c": "a"}


def test_follower_that_is_cut_off_answers_the_past_and_waits_for_the_rest() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"1"})
        world.run(100 * MS)
        world.isolate("c")
        put(world, "a", "t2", {b"k": b"2"})
        world.run(100 * MS)
        assert value(world, "c", b"k", ts) == b"1"
        now = world.ask("c", Read(world.true_ts, (b"k",)), timeout_us=5_000 * MS)
        world.run(200 * MS)
        assert not now.done
        assert safe(world, "c") < world.true_ts - 200 * MS
        world.heal()
        world.until(lambda: now.done)
        assert read_one(now.answer) == b"2"


def test_deposed_leader_answers_old_timestamps_only() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"1"})
        world.run(50 * MS)
        world.isolate("a")
        world.elect("b")
        put(world, "b", "t2", {b"k": b"2"})
        assert code(world.get("a", Read(0, (b"k",)))) is Code.NOT_LEADER
        assert value(world, "a", b"k", ts) == b"1"
        now = world.ask("a", Read(world.true_ts, (b"k",)), timeout_us=100 * MS)
        world.run(150 * MS)
        assert now.code is Code.DEADLINE_EXCEEDED


def test_lease_that_ends_between_work_and_answer_takes_the_answer_back() -> None:
    """The leader stands still for three leases after it has read; meanwhile another one commits."""
    with group() as world:
        put(world, "a", "t0", {b"k": b"old"})
        strong = world.ask("a", Read(0, (b"k",)))
        locked = world.ask("a", lock(ref("t9"), b"l"))
        batch = WriteBatch()
        # work() delivers at its end; standing still before that is what is tested.
        world.members["a"].stall_us = 900 * MS
        out = world.work("a", batch)
        assert strong.code is Code.NOT_LEADER and locked.code is Code.NOT_LEADER
        world.commit("a", batch)
        world.finish("a", out)
        world.run(50 * MS)


def test_paused_leader_answers_nothing_from_its_queue_that_is_stale() -> None:
    with group() as world:
        put(world, "a", "t0", {b"k": b"old"})
        world.paused.add("a")
        queued = [world.ask("a", Read(0, (b"k",))), world.ask("a", lock(ref("t9"), b"k"))]
        stale = world.ask("a", Read(world.true_ts, (b"k",)))
        write = world.ask("a", commit(ref("t8"), {b"k": b"stale"}))
        world.elect("b")
        ts = put(world, "b", "t1", {b"k": b"new"})
        world.paused.clear()
        world.until(lambda: all(q.done for q in [*queued, stale, write]))
        assert {q.code for q in [*queued, write]} == {Code.NOT_LEADER}
        assert read_one(stale.answer) == b"old"
        assert value(world, "b", b"k", ts) == b"new"


def test_follower_applies_what_it_missed_before_it_calls_it_safe() -> None:
    with group(turn_max_bytes=200) as world:
        world.run(50 * MS)
        world.isolate("c")
        asked = [world.ask("a", commit(ref(f"t{n}"), {b"k%02d" % n: b"v" * 100})) for n in range(30)]
        world.until(lambda: all(a.done for a in asked))
        stamps = [a.of(CommitReply).ts for a in asked]
        world.heal()
        while safe(world, "c") < max(stamps):
            ts = safe(world, "c")
            answer = world.get("c", Read(ts, (), (RangeRead(b"k", b"l"),)))
            assert isinstance(answer, ReadReply)
            assert len(answer.ranges[0].rows) == sum(stamp <= ts for stamp in stamps)


def test_safe_time_moves_without_writes_and_lags_little() -> None:
    with group() as world:
        world.run(500 * MS)
        for name in "abc":
            assert world.true_ts - 60 * MS < safe(world, name) < world.true_ts


def test_safe_time_never_falls_over_leaders() -> None:
    with group() as world:
        seen = dict.fromkeys("abc", 0)
        for leader in "bcabac":
            world.lead(leader)
            put(world, leader, f"t{world.time}", {b"k": b"v"})
            world.run(30 * MS)
            for name in "abc":
                now = safe(world, name)
                assert now >= seen[name]
                seen[name] = now


def test_pages_of_a_range_join_without_gap_or_overlap() -> None:
    with group(read_max_rows=3) as world:
        keys = [b"k%02d" % n for n in range(10)]
        put(world, "a", "t1", dict.fromkeys(keys, b"v"))
        for reverse in (False, True):
            found: list[bytes] = []
            start, end = b"k", b"l"
            while True:
                answer = world.get("a", Read(0, (), (RangeRead(start, end, 0, reverse),)))
                assert isinstance(answer, ReadReply)
                (rows,) = answer.ranges
                assert len(rows.rows) <= 3
                found += [key for key, _ in rows.rows]
                if not rows.more:
                    break
                start, end = (start, rows.resume) if reverse else (rows.resume, end)
            assert found == sorted(keys, reverse=reverse)


def test_page_ends_at_the_bound_of_bytes_but_has_one_row() -> None:
    with group(read_max_bytes=100) as world:
        put(world, "a", "t1", {b"k1": b"v" * 300, b"k2": b"v", b"k3": b"v"})
        answer = world.get("a", Read(0, (), (RangeRead(b"k", b"l"),)))
        assert isinstance(answer, ReadReply)
        (rows,) = answer.ranges
        assert [key for key, _ in rows.rows] == [b"k1"] and rows.more and rows.resume == b"k2"


@pytest.mark.parametrize("locked", [False, True])
def test_answers_have_a_bound_and_whoever_asks_again_gets_everything(locked: bool) -> None:
    keys = [b"k%02d" % n for n in range(12)]
    ranges = [RangeRead(b"l", b"m"), RangeRead(b"m", b"n", 0, True), RangeRead(b"o", b"p")]
    rows: dict[bytes, bytes | None] = {key: b"v" * (40 * (n % 4)) for n, key in enumerate(keys) if n % 5}
    rows |= {b"%c%d" % (letter, n): b"v" * 90 for letter in b"lmo" for n in range(5)}
    with group(answer_max_bytes=200, read_max_bytes=150) as world:
        put(world, "a", "t1", rows)
        left, open_ranges, answers = list(keys), dict(enumerate(ranges)), 0
        found: list[tuple[bytes, bytes]] = []
        versions: list[bytes | None] = []
        while left or open_ranges:
            asked = tuple(open_ranges.values())
            request = (
                LockRead(ref("t2"), EPOCH, LockMode.SHARED, tuple(left), asked)
                if locked
                else Read(0, tuple(left), asked)
            )
            answer = world.get("a", request)
            assert isinstance(answer, ReadReply) and len(answer.versions) >= bool(left)
            size = sum(len(v.value or b"") for v in answer.versions if v)
            size += sum(len(v.value or b"") for row_set in answer.ranges for _, v in row_set.rows)
            assert size <= 200 + 150 + 90
            versions += [None if v is None else v.value for v in answer.versions]
            left = left[len(answer.versions) :]
            for (number, wanted), row_set in zip(list(open_ranges.items()), answer.ranges, strict=True):
                found += [(key, v.value or b"") for key, v in row_set.rows]
                if not row_set.more:
                    del open_ranges[number]
                    continue
                bounds = (wanted.start, row_set.resume) if wanted.reverse else (row_set.resume, wanted.end)
                open_ranges[number] = RangeRead(*bounds, 0, wanted.reverse)
            answers += 1
        assert versions == [rows.get(key) for key in keys]
        assert sorted(found) == sorted((key, value) for key, value in rows.items() if key >= b"l")
        assert answers > 5


def test_page_that_is_exactly_full_says_that_there_is_no_more() -> None:
    with group() as world:
        put(world, "a", "t1", {b"k1": b"v", b"k2": b"v"})
        for limit, more in ((1, True), (2, False), (3, False)):
            answer = world.get("a", Read(0, (), (RangeRead(b"k", b"l", limit),)))
            assert isinstance(answer, ReadReply)
            assert (len(answer.ranges[0].rows), answer.ranges[0].more) == (min(limit, 2), more)


def test_deleted_rows_are_versions_of_keys_and_not_rows_of_ranges() -> None:
    with group() as world:
        before = put(world, "a", "t1", {b"k": b"v"})
        gone = put(world, "a", "t2", {b"k": None})
        answer = world.get("a", Read(0, (b"k",), (RangeRead(b"a", b"z"),)))
        assert isinstance(answer, ReadReply) and answer.versions[0] is not None
        assert (answer.versions[0].ts, answer.versions[0].value) == (gone, None)
        assert answer.ranges[0].rows == []
        assert value(world, "a", b"k", before) == b"v"


def test_settled_timestamp_reads_the_same_in_every_later_view() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"1"})
        settled = world.get("a", Settle(ts, (RangeRead(b"a", b"z"),)))
        assert isinstance(settled, SettleReply)
        world.isolate("a")
        put_ts = world.ask("a", commit(ref("t2"), {b"k": b"2"}))
        world.heal()
        world.until(lambda: put_ts.done)
        assert put_ts.of(CommitReply).ts > settled.timestamp
        with world.members["a"].engine.snapshot() as reader:
            assert reader.get(version_key(GROUP, b"k", ts)) is not None
        assert settled.applied_index <= world.members["a"].live.state.applied.index


def test_damaged_version_is_an_error_at_leader_and_follower_and_harms_nothing_else() -> None:
    with group() as world:
        ts = put(world, "a", "t1", {b"k": b"1", b"l": b"1"})
        world.run(100 * MS)
        for name in "ab":
            world.damage(name, version_key(GROUP, b"k", ts))
            assert code(world.get(name, Read(ts, (b"k",)))) is Code.DATA_CORRUPTION
            assert value(world, name, b"l", ts) == b"1"
        # Also for reads that had to wait.
        waits = [world.ask(name, Read(world.true_ts + 30 * MS, (b"k",))) for name in "ab"]
        world.until(lambda: all(w.done for w in waits))
        assert [w.code for w in waits] == [Code.DATA_CORRUPTION] * 2
        assert value(world, "c", b"k", ts) == b"1"


def test_too_many_waiting_reads_are_refused() -> None:
    with group(max_parked=2) as world:
        world.get("a", prepare(far("t1"), {b"k": b"v"}))
        world.isolate("b")
        world.run(5 * MS)
        for name in "ab":
            waiting = [world.ask(name, Read(world.true_ts, (b"k",))) for _ in range(3)]
            world.run(5 * MS)
            assert [w.code for w in waiting] == [None, None, Code.OVERLOADED]
        assert value(world, "a", b"l") is None


def most_answered_in_a_turn(world: Replicas, waiting: list[Asked]) -> int:
    """Let turns pass until all are answered; return how many were in the turn that answered most."""
    counts = [sum(w.done for w in waiting)]
    while counts[-1] < len(waiting):
        world.step()
        counts.append(sum(w.done for w in waiting))
    return max(after - before for before, after in pairwise(counts))


def test_readers_whom_one_commit_lets_go_on_are_answered_a_few_each_turn() -> None:
    with group(turn_max_bytes=64 << 10) as world:
        old = b"v" * (16 << 10)
        put(world, "a", "t0", {b"k": old})
        writer = far("t1")
        world.get("a", prepare(writer, {b"k": b"w"}))
        waiting = [world.ask("a", Read(world.true_ts, (b"k",))) for _ in range(20)]
        world.run(5 * MS)
        assert not any(w.done for w in waiting)
        world.ask("a", Decide(writer, None))
        assert most_answered_in_a_turn(world, waiting) == 4
        assert {read_one(w.answer) for w in waiting} == {old}


def test_locked_readers_whom_one_release_lets_go_on_are_answered_a_few_each_turn() -> None:
    with group(turn_max_bytes=64 << 10) as world:
        old = b"v" * (16 << 10)
        put(world, "a", "t0", {b"k": old})
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        waiting = [world.ask("a", lock(ref(f"t{n}"), b"k")) for n in range(2, 22)]
        world.run(5 * MS)
        assert not any(w.done for w in waiting)
        world.ask("a", Release(ref("t1")))
        assert most_answered_in_a_turn(world, waiting) == 4
        assert {read_one(w.answer) for w in waiting} == {old}
