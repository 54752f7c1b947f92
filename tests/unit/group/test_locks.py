"""Transactions that lose their locks, or seem to: nobody goes on without them, no stray message takes them away."""

from msgspec.structs import replace

from f1common.errors import Code
from spanstore.group.requests import (
    Commit,
    CommitReply,
    Decide,
    DecideReply,
    Outcome,
    RangeRead,
    Read,
    ReadReply,
    Release,
    TxnWork,
)
from spanstore.mvcc.versions import version_key
from spanstore.testing.replicas import EPOCH, GROUP, MS
from spanstore.txn.commands import Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import ExpectExists, ExpectVersion
from spanstore.txn.spans import Span
from tests.unit.group.kit import (
    age_of,
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


def test_late_abort_of_a_lower_attempt_leaves_a_prepared_attempt_its_locks() -> None:
    with group() as world:
        ts = prepared(world.get("a", prepare(far("t5", 2), {b"k": b"new"})))
        world.get("a", Decide(far("t5", 1), None))
        world.run(50 * MS)
        read = world.ask("a", Read(0, (b"k",)))
        other = world.ask("a", lock(ref("t1"), b"k", exclusive=True))
        world.run(100 * MS)
        assert not read.done and not other.done
        assert isinstance(world.get("a", Decide(far("t5", 2), ts + 1)), DecideReply)
        world.until(lambda: read.done and other.done)
        assert read_one(read.answer) == b"new"


def test_wounded_while_it_waits_for_a_ceiling_it_commits_nothing() -> None:
    with group() as world:
        leader = world.members["a"].live
        put(world, "a", "t2", {b"k": b"old"})
        ceiling = leader.replica.usable_ceiling
        world.isolate("a")  # nobody promises a higher ceiling
        late = world.ask("a", commit(ref("t9"), {b"k": b"young"}, above=ceiling))
        world.turn("a")
        old = world.ask("a", lock(ref("t1"), b"k", exclusive=True))
        world.turn("a")
        assert read_one(old.answer) == b"old"
        world.heal()
        world.until(lambda: late.done)
        assert late.code is Code.ABORTED
        assert isinstance(
            world.get("a", commit(ref("t1"), {b"k": b"older"}, locks=held(b"k"), term=term_of(old.answer))), CommitReply
        )
        assert value(world, "a", b"k") == b"older"


def test_two_requests_time_out_where_one_lets_the_other_through() -> None:
    with group() as world:
        assert isinstance(world.get("a", lock(ref("t1"), b"k")), ReadReply)
        first = world.ask("a", lock(ref("t2"), b"k", exclusive=True), timeout_us=50 * MS)
        world.step()
        second = world.ask("a", lock(ref("t3"), b"k"), timeout_us=49 * MS)
        world.run(200 * MS)
        assert first.code is Code.DEADLINE_EXCEEDED
        assert second.done


def test_prepares_of_two_attempts_wait_for_the_same_locks() -> None:
    with group() as world:
        # A prepare dies for an older holder, so let a younger prepared one be in the way.
        prepared(world.get("a", prepare(far("t9"), {b"m": b"9"})))
        one = world.ask("a", prepare(far("t5", 1), {b"m": b"5"}))
        two = world.ask("a", prepare(far("t5", 2), {b"m": b"5"}))
        world.run(20 * MS)
        assert not one.done and not two.done
        world.get("a", Decide(far("t9"), None))
        world.until(lambda: one.done and two.done)
        world.run(100 * MS)
        assert [one.code, two.code].count(None) == 1


def test_older_one_wounds_and_the_wounded_one_is_refused_from_then_on() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(ref("t5"), b"k")))
        assert isinstance(world.get("a", lock(ref("t2"), b"k", exclusive=True)), ReadReply)
        for request in (lock(ref("t5"), b"l"), commit(ref("t5"), {b"k": b"5"}, locks=held(b"k"), term=term)):
            assert code(world.get("a", request)) is Code.ABORTED
        assert committed(world.get("a", commit(ref("t2"), {b"k": b"2"}, locks=held(b"k", mode=X), term=term)))
        assert code(world.get("a", commit(ref("t5"), {b"m": b"5"}))) is Code.ABORTED
        assert value(world, "a", b"m") is None


def test_younger_one_waits_for_the_commit_of_the_older_and_reads_it() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(ref("t1"), b"k", exclusive=True)))
        waiting = world.ask("a", lock(ref("t2"), b"k", exclusive=True))
        world.run(20 * MS)
        assert not waiting.done
        ts = committed(world.get("a", commit(ref("t1"), {b"k": b"1"}, locks=held(b"k", mode=X), term=term)))
        world.until(lambda: waiting.done)
        (version,) = waiting.of(ReadReply).versions
        assert version is not None and (version.ts, version.value) == (ts, b"1")


def test_sixty_four_transactions_increment_one_row() -> None:
    """No lost update, each gets its turn, and the retries keep their age."""
    with group() as world:
        put(world, "a", "t0", {b"k": b"0"})
        todo = dict.fromkeys(range(1, 65), 0)
        while todo:
            reads = {n: world.ask("a", lock(ref(f"t{n}-{tries}"), b"k")) for n, tries in sorted(todo.items())}
            world.until(lambda reads=reads: all(r.done for r in reads.values()))  # type: ignore[misc]
            sent = {}
            for n, read in reads.items():
                if read.code is None:
                    answer = read.of(ReadReply)
                    assert answer.versions[0] is not None and answer.versions[0].value is not None
                    new = str(int(answer.versions[0].value) + 1).encode()
                    txn = ref(f"t{n}-{todo[n]}")
                    sent[n] = world.ask("a", commit(txn, {b"k": new}, locks=held(b"k"), term=answer.term))
            world.until(lambda sent=sent: all(s.done for s in sent.values()))  # type: ignore[misc]
            for n in list(todo):
                if n in sent and sent[n].code is None:
                    del todo[n]
                else:
                    todo[n] += 1
                    assert todo[n] <= 64
        assert value(world, "a", b"k") == b"64"


def test_leader_change_loses_locks_also_when_leadership_comes_back() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(ref("t1"), b"k")))
        world.lead("b")
        assert code(world.get("b", commit(ref("t1"), {b"l": b"1"}, locks=held(b"k"), term=term))) is Code.ABORTED
        world.lead("a")
        assert code(world.get("a", lock(ref("t1"), b"l", term=term))) is Code.ABORTED
        assert code(world.get("a", prepare(far("t1"), {}, locks=held(b"k"), term=term))) is Code.ABORTED
        # Locked again under the new term, but what was read under the old one is no longer protected.
        new = term_of(world.get("a", lock(ref("t2"), b"k")))
        assert new > term
        assert code(world.get("a", commit(ref("t2"), {b"l": b"1"}, locks=held(b"k"), term=term))) is Code.ABORTED
        assert value(world, "a", b"l") is None


def test_lock_never_taken_is_no_lock() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(ref("t1"), b"k")))
        for n, claimed in enumerate((held(b"m"), held(b"k", mode=X), ((Span(b"k", b"l"), S),))):
            txn = ref(f"t1-{n}")
            world.get("a", lock(txn, b"k"))
            assert code(world.get("a", commit(txn, {b"x": b"1"}, locks=claimed, term=term))) is Code.ABORTED
        assert value(world, "a", b"x") is None


def test_read_asked_for_twice_is_answered_twice_and_locked_once() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        twice = [world.ask("a", lock(ref("t2"), b"k", exclusive=True)) for _ in range(2)]
        world.run(10 * MS)
        world.get("a", Release(ref("t1")))
        world.until(lambda: all(t.done for t in twice))
        term = twice[0].of(ReadReply).term
        assert committed(world.get("a", commit(ref("t2"), {b"k": b"2"}, locks=held(b"k", mode=X), term=term)))
        assert isinstance(world.get("a", lock(ref("t3"), b"k", exclusive=True)), ReadReply)


def test_released_transaction_takes_no_more_locks() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        world.get("a", Release(ref("t1")))
        assert code(world.get("a", lock(ref("t1"), b"k"))) is Code.ABORTED
        assert isinstance(world.get("a", lock(ref("t2"), b"k", exclusive=True)), ReadReply)


def test_release_while_it_waits_answers_what_waits() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        waiting = world.ask("a", lock(ref("t2"), b"k"))
        world.step()
        world.get("a", Release(ref("t2")))
        assert waiting.code is Code.ABORTED


def test_idle_transaction_loses_its_locks_and_a_busy_one_does_not() -> None:
    with group(txn_idle_us=200 * MS) as world:
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        world.get("a", lock(ref("t2"), b"l", exclusive=True))
        for n in range(4):
            world.run(100 * MS)
            assert isinstance(world.get("a", lock(ref("t2"), b"m%d" % n)), ReadReply)
        assert isinstance(world.get("a", lock(ref("t9"), b"k", exclusive=True)), ReadReply)
        assert code(world.get("a", lock(ref("t1"), b"x"))) is Code.ABORTED


def test_transaction_that_waited_long_for_its_lock_is_not_idle() -> None:
    with group(txn_idle_us=200 * MS) as world:
        prepared(world.get("a", prepare(far("t1"), {b"k": b"v"})))
        waiting = world.ask("a", lock(ref("t2"), b"k"))
        world.run(400 * MS)
        assert not waiting.done
        world.get("a", Decide(far("t1"), None))
        world.until(lambda: waiting.done)
        world.run(150 * MS)
        term = waiting.of(ReadReply).term
        assert committed(world.get("a", commit(ref("t2"), {b"k": b"2"}, locks=held(b"k"), term=term)))


def test_prepared_transaction_is_never_idle() -> None:
    with group(txn_idle_us=100 * MS) as world:
        ts = prepared(world.get("a", prepare(far("t1"), {b"k": b"v"})))
        world.run(500 * MS)
        assert isinstance(world.get("a", Decide(far("t1"), ts + 1)), DecideReply)
        world.run(50 * MS)
        assert value(world, "a", b"k") == b"v"


def test_commit_that_waits_past_its_callers_patience_never_happens() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k"))
        late = world.ask("a", commit(ref("t2"), {b"k": b"2", b"l": b"2"}), timeout_us=50 * MS)
        world.run(100 * MS)
        assert late.code is Code.DEADLINE_EXCEEDED
        world.get("a", Release(ref("t1")))
        world.run(100 * MS)
        assert value(world, "a", b"k") is None
        assert isinstance(world.get("a", lock(ref("t3"), b"k", b"l", exclusive=True)), ReadReply)


def test_duplicate_with_more_patience_keeps_a_commit_waiting() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k"))
        short = world.ask("a", commit(ref("t2"), {b"k": b"2"}), timeout_us=50 * MS)
        long = world.ask("a", commit(ref("t2"), {b"k": b"2"}), timeout_us=500 * MS)
        world.run(100 * MS)
        world.get("a", Release(ref("t1")))
        world.until(lambda: long.done)
        assert long.of(CommitReply) == short.of(CommitReply)


def test_range_locks_keep_out_inserts_and_appends() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(ref("t1"), ranges=[(b"h", b"i")])))
        insert = world.ask("a", commit(ref("t2"), {b"hx": b"2"}))
        append = world.ask("a", Commit(TxnWork(ref("t3"), age_of(ref("t3")), (Write(b"h" + bytes(8), b"3", 1),))))
        beside = world.get("a", commit(ref("t4"), {b"i": b"4"}))
        world.run(20 * MS)
        assert committed(beside) and not insert.done and not append.done
        world.get("a", commit(ref("t1"), {b"x": b"1"}, locks=((Span(b"h", b"i"), S),), term=term))
        world.until(lambda: insert.done and append.done)
        assert insert.of(CommitReply).ts and append.of(CommitReply).ts


def test_appends_do_not_wait_for_each_other_and_each_key_has_its_timestamp() -> None:
    with group() as world:
        world.isolate("a")  # nothing is decided, so whoever waited for a lock would not be logged
        first = world.members["a"].live.replica.last_index
        asked = [
            world.ask(
                "a",
                Commit(
                    TxnWork(
                        ref(f"t{n}"), age_of(ref(f"t{n}")), (Write(b"h" + bytes(8) + b"%d" % n, bytes(9), 1, (1,)),)
                    )
                ),
            )
            for n in range(5)
        ]
        world.turn("a")
        assert world.members["a"].live.replica.last_index == first + 5
        world.heal()
        world.until(lambda: all(a.done for a in asked))
        stamps = [a.of(CommitReply).ts for a in asked]
        answer = world.get("a", Read(0, (), (RangeRead(b"h", b"i"),)))
        assert isinstance(answer, ReadReply)
        rows = answer.ranges[0].rows
        assert [int.from_bytes(key[1:9], "big") - (1 << 63) for key, _ in rows] == stamps
        assert [int.from_bytes(version.value[1:], "big") for _, version in rows if version.value] == stamps


def test_too_many_waiting_requests_are_refused_but_holders_go_on() -> None:
    with group(max_parked=2) as world:
        term = term_of(world.get("a", lock(ref("t1"), b"k", exclusive=True)))
        waiting = [world.ask("a", lock(ref(f"t{n}"), b"k", exclusive=True)) for n in (2, 3)]
        world.run(5 * MS)
        assert code(world.get("a", lock(ref("t4"), b"k"))) is Code.OVERLOADED
        assert committed(world.get("a", commit(ref("t1"), {b"k": b"1"}, locks=held(b"k", mode=X), term=term)))
        world.until(lambda: waiting[0].done)
        assert read_one(waiting[0].answer) == b"1"


def test_damaged_row_under_a_lock_is_an_error_of_that_request_alone() -> None:
    with group() as world:
        ts = put(world, "a", "t0", {b"k": b"v"})
        world.run(50 * MS)
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        read = world.ask("a", lock(ref("t2"), b"k", exclusive=True))
        test = world.ask("a", commit(ref("t3"), {b"l": b"v"}, tests=[ExpectVersion(b"k", ts)]))
        world.run(5 * MS)
        world.damage("a", version_key(GROUP, b"k", ts))
        world.get("a", Release(ref("t1")))
        world.until(lambda: read.done and test.done)
        assert read.code is Code.DATA_CORRUPTION and test.code is Code.DATA_CORRUPTION
        for request in (
            lock(ref("t4"), b"k"),
            Read(0, (b"k",)),
            commit(ref("t5"), {b"m": b""}, tests=[ExpectExists(b"k")]),
        ):
            assert code(world.get("a", request)) is Code.DATA_CORRUPTION
        assert committed(world.get("a", commit(ref("t6"), {b"k": b"whole"})))
        assert value(world, "a", b"k") == b"whole"


def test_priority_does_not_change_within_a_transaction() -> None:
    with group() as world:
        world.get("a", lock(ref("t5"), b"k"))
        other = replace(lock(ref("t5"), b"l"), priority_ts=EPOCH + 1)
        assert code(world.get("a", other)) is Code.INVALID_ARGUMENT


def test_what_comes_late_about_an_attempt_does_no_harm_to_the_next() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), b"k"))
        assert decided(world.get("a", Outcome(ref("t1")))) == (False, 0)
        term = term_of(world.get("a", lock(ref("t1", 2), b"k")))
        world.get("a", Release(ref("t1", 1)))
        world.get("a", Decide(ref("t1", 1), None))
        assert code(world.get("a", lock(ref("t1", 1), b"x"))) is Code.ABORTED
        assert committed(world.get("a", commit(ref("t1", 2), {b"k": b"2"}, locks=held(b"k"), term=term)))


def test_lower_attempt_takes_no_locks_beside_a_higher_one() -> None:
    """Or the end of the lower one would take the locks of the higher one, and nobody would know."""
    with group() as world:
        term = term_of(world.get("a", lock(ref("t9", 2), b"k")))
        assert code(world.get("a", lock(ref("t9", 1), b"l"))) is Code.ABORTED
        world.get("a", lock(ref("t1"), b"k", exclusive=True))
        assert committed(world.get("a", commit(ref("t1"), {b"k": b"1"})))
        for request in (lock(ref("t9", 2), b"k"), commit(ref("t9", 2), {b"x": b"9"}, locks=held(b"k"), term=term)):
            assert code(world.get("a", request)) in (Code.ABORTED, Code.FAILED_PRECONDITION)
        assert value(world, "a", b"x") is None


def test_abort_of_a_lower_attempt_ends_its_own_waiting_prepare_only() -> None:
    with group() as world:
        world.get("a", prepare(far("t9"), {b"k": b"9"}))
        first = world.ask("a", prepare(far("t5", 1), {b"k": b"5"}))
        world.run(5 * MS)
        second = world.ask("a", prepare(far("t5", 2), {b"k": b"5"}))
        world.run(5 * MS)
        world.get("a", Decide(far("t5", 1), None))
        assert first.code is Code.ABORTED and not second.done
        world.get("a", Decide(far("t9"), None))
        world.until(lambda: second.done)
        ts = prepared(second.answer)
        world.get("a", Decide(far("t5", 2), ts + 1))
        world.run(20 * MS)
        assert value(world, "a", b"k") == b"5"


def test_append_waits_for_whoever_read_its_range_and_is_waited_for() -> None:
    with group() as world:
        world.get("a", lock(ref("t1"), ranges=[(b"h", b"i")]))
        append = world.ask("a", Commit(TxnWork(ref("t3"), age_of(ref("t3")), (Write(b"h" + bytes(8), b"3", 1),))))
        world.run(20 * MS)
        assert not append.done
        world.get("a", Release(ref("t1")))
        world.isolate("a")
        world.turn("a")
        reader = world.ask("a", lock(ref("t2"), ranges=[(b"h", b"i")]))
        world.run(20 * MS)
        assert not reader.done
        world.heal()
        world.until(lambda: reader.done and append.done)
        assert len(reader.of(ReadReply).ranges[0].rows) == 1


def test_request_that_nobody_waits_for_any_more_takes_no_locks() -> None:
    """A leader that stood still finds old requests in its queue; their callers have gone on elsewhere."""
    with group() as world:
        world.paused.add("a")
        old = [
            world.ask("a", lock(ref("t1"), b"k", exclusive=True), timeout_us=50 * MS),
            world.ask("a", commit(ref("t2"), {b"l": b"2"}), timeout_us=50 * MS),
        ]
        world.time += 100 * MS
        world.paused.clear()
        world.until(lambda: all(o.done for o in old))
        assert [o.code for o in old] == [Code.DEADLINE_EXCEEDED] * 2
        assert world.members["a"].live.view(world.now("a")).locked_transactions == 0
        assert value(world, "a", b"l") is None


def test_commit_that_timed_out_gives_up_what_it_had_locked_before() -> None:
    with group() as world:
        term = term_of(world.get("a", lock(ref("t2"), b"m", exclusive=True)))
        world.get("a", lock(ref("t1"), b"k"))
        work = commit(ref("t2"), {b"k": b"2"}, locks=held(b"m", mode=X), term=term)
        late = world.ask("a", work, timeout_us=30 * MS)
        world.run(60 * MS)
        assert late.code is Code.DEADLINE_EXCEEDED
        assert isinstance(world.get("a", lock(ref("t3"), b"m", exclusive=True)), ReadReply)
        assert code(world.get("a", work)) is Code.ABORTED
