"""What a group refuses before anything is locked or logged: bad input never reaches the log, where it would stay."""

import pytest

from f1common.errors import Code
from spanstore.group.config import GroupConfig
from spanstore.group.requests import (
    Commit,
    Decide,
    LockRead,
    Outcome,
    Prepare,
    RangeRead,
    Read,
    Release,
    Request,
    Settle,
    TxnWork,
)
from spanstore.mvcc.versions import MAX_USER_KEY_BYTES
from spanstore.testing.replicas import EPOCH, FAST, MS, Replicas
from spanstore.txn.commands import Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import ExpectAbsent, ExpectUnchangedRange
from spanstore.txn.spans import Span
from tests.unit.group.kit import code, commit, committed, far, group, lock, prepare, prepared, ref, value

LONG = b"k" * (MAX_USER_KEY_BYTES + 1)


def writing(*writes: Write) -> Commit:
    return Commit(TxnWork(ref("t1"), EPOCH, writes))


REFUSED: list[tuple[str, Request, Code]] = [
    ("read of no key", Read(0, (b"",)), Code.INVALID_ARGUMENT),
    ("read of a key that begins with ff", Read(0, (b"\xff",)), Code.INVALID_ARGUMENT),
    ("read of a key that begins with 00", Read(0, (b"\x00k",)), Code.INVALID_ARGUMENT),
    ("read of a long key", Read(0, (LONG,)), Code.KEY_TOO_LONG),
    ("read of another group's key", Read(0, (b"zz",)), Code.WRONG_RANGE),
    ("strong read before the epoch", Read(-1, (b"k",)), Code.INVALID_ARGUMENT),
    ("settling before the epoch", Settle(-(1 << 63), (RangeRead(b"k", b"l"),)), Code.INVALID_ARGUMENT),
    ("empty range", Read(0, (), (RangeRead(b"k", b"k"),)), Code.INVALID_ARGUMENT),
    ("range upside down", Read(EPOCH, (), (RangeRead(b"m", b"k"),)), Code.INVALID_ARGUMENT),
    ("range over the border", Read(0, (), (RangeRead(b"k", b"z1"),)), Code.WRONG_RANGE),
    ("settling over the border", Settle(EPOCH, (RangeRead(b"k", b"z1"),)), Code.WRONG_RANGE),
    ("lock of another group's key", lock(ref("t1"), b"zz"), Code.WRONG_RANGE),
    ("lock of an empty range", lock(ref("t1"), ranges=[(b"k", b"k")]), Code.INVALID_ARGUMENT),
    ("append lock of a reader", LockRead(ref("t1"), EPOCH, LockMode.APPEND, (b"k",)), Code.INVALID_ARGUMENT),
    ("no unique id", commit(ref(""), {b"k": b"v"}), Code.INVALID_ARGUMENT),
    ("a unique id of 17 bytes", commit(ref("u" * 17), {b"k": b"v"}), Code.INVALID_ARGUMENT),
    ("attempt 0", commit(ref("t1", 0), {b"k": b"v"}), Code.INVALID_ARGUMENT),
    ("no unique id to release", Release(ref("")), Code.INVALID_ARGUMENT),
    ("no unique id to decide about", Decide(far(""), None), Code.INVALID_ARGUMENT),
    ("a long anchor", commit(ref("t1", anchor=LONG), {b"k": b"v"}), Code.KEY_TOO_LONG),
    ("an anchor elsewhere", commit(far("t1"), {b"k": b"v"}), Code.WRONG_RANGE),
    ("outcome of an anchor elsewhere", Outcome(far("t1")), Code.WRONG_RANGE),
    ("inquiry about an anchor elsewhere", Outcome(far("t1"), inquiry=True), Code.WRONG_RANGE),
    ("prepare at the coordinator", prepare(ref("t1"), {b"k": b"v"}), Code.WRONG_RANGE),
    ("prepare without a deadline", prepare(far("t1"), {b"k": b"v"}, deadline=0), Code.INVALID_ARGUMENT),
    ("write of another group's key", commit(ref("t1"), {b"zz": b"v"}), Code.WRONG_RANGE),
    ("write of a long key", commit(ref("t1"), {LONG: b"v"}), Code.KEY_TOO_LONG),
    ("write of no key", commit(ref("t1"), {b"": b"v"}), Code.INVALID_ARGUMENT),
    ("test of another group's key", commit(ref("t1"), {b"k": b"v"}, tests=[ExpectAbsent(b"zz")]), Code.WRONG_RANGE),
    (
        "test of an empty range",
        commit(ref("t1"), {b"k": b"v"}, tests=[ExpectUnchangedRange(b"m", b"k", 0)]),
        Code.INVALID_ARGUMENT,
    ),
    ("timestamp without a key before it", writing(Write(b"12345678", b"v", 0)), Code.INVALID_ARGUMENT),
    ("timestamp past the key", writing(Write(b"k1234567", b"v", 1)), Code.INVALID_ARGUMENT),
    ("timestamp past the value", writing(Write(b"k", b"1234567", -1, (0,))), Code.INVALID_ARGUMENT),
    ("timestamp before the value", writing(Write(b"k", b"12345678", -1, (-1,))), Code.INVALID_ARGUMENT),
    ("timestamps over each other", writing(Write(b"k", b"0123456789", -1, (0, 2))), Code.INVALID_ARGUMENT),
    ("timestamp in a deletion", writing(Write(b"k", None, -1, (0,))), Code.INVALID_ARGUMENT),
]


@pytest.mark.parametrize(("request_", "expected"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_request_is_refused_and_leaves_nothing_behind(request_: Request, expected: Code) -> None:
    with group() as world:
        leader = world.members["a"].live
        before = leader.replica.last_index
        assert code(world.get("a", request_)) is expected
        world.run(20 * MS)
        assert leader.replica.last_index == before
        assert leader.view(world.now("a")).locked_transactions == 0


@pytest.mark.parametrize(("request_", "expected"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_follower_refuses_in_the_same_words_or_does_not_lead(request_: Request, expected: Code) -> None:
    with group() as world:
        assert code(world.get("b", request_)) in (expected, Code.NOT_LEADER)


def test_longest_key_is_written_read_and_is_an_anchor() -> None:
    key = LONG[:-1]
    with group() as world:
        world.get("a", commit(ref("u" * 16, anchor=key), {key: b"v"}))
        assert value(world, "a", key) == b"v"


def test_owner_of_several_ranges_owns_no_key_between_them() -> None:
    with Replicas(owned=((b"a", b"c"), (b"e", b"g"))) as world:
        world.lead("a")
        assert code(world.get("a", Read(0, (b"d",)))) is Code.WRONG_RANGE
        assert code(world.get("a", Read(0, (b"c",)))) is Code.WRONG_RANGE
        assert code(world.get("a", Read(0, (), (RangeRead(b"b", b"f"),)))) is Code.WRONG_RANGE
        assert value(world, "a", b"e") is None


def test_decision_far_ahead_is_refused_and_the_group_keeps_its_time() -> None:
    """Applied, it would be a floor that no later leader could give a timestamp above."""
    with group() as world:
        prepared(world.get("a", prepare(far("t1"), {b"k": b"v"})))
        assert code(world.get("a", Decide(far("t1"), 1 << 62))) is Code.CLOCK_SKEW
        committed(world.get("a", commit(ref("t2"), {b"l": b"v"})))
        world.get("a", Decide(far("t1"), None))
        committed(world.get("a", commit(ref("t3"), {b"k": b"w"})))


def test_transactions_are_bounded_in_what_they_write_and_lock() -> None:
    config = GroupConfig(paxos=FAST, txn_max_bytes=1000)
    with Replicas(config=config, owned=((b"", b"z"),)) as world:
        world.lead("a")
        committed(world.get("a", commit(ref("t1"), {b"k": b"v" * 999})))
        assert code(world.get("a", commit(ref("t2"), {b"k": b"v" * 1000}))) is Code.OUT_OF_RANGE
        assert code(world.get("a", prepare(far("t3"), {b"k": b"v" * 1000}))) is Code.OUT_OF_RANGE
        tests = [ExpectAbsent(b"l%04d" % number) for number in range(200)]
        assert code(world.get("a", commit(ref("t4"), {b"k": b"v"}, tests=tests))) is Code.OUT_OF_RANGE
        held = tuple((Span(b"m%04d" % number), LockMode.SHARED) for number in range(200))
        work = TxnWork(ref("t5"), EPOCH, (Write(b"k", b"v"),), held=held)
        assert code(world.get("a", Commit(work))) is Code.OUT_OF_RANGE


def test_key_with_a_placeholder_is_owned_wherever_its_timestamp_puts_it() -> None:
    with Replicas(owned=((b"a", b"c"), (b"e", b"g"))) as world:
        world.lead("a")
        inside = Commit(TxnWork(ref("t1", anchor=b"b"), EPOCH, (Write(b"b12345678", b"v", 1),)))
        committed(world.get("a", inside, within_us=5_000_000))
        ahead = Commit(TxnWork(ref("t2", anchor=b"b"), EPOCH, (Write(b"bb12345678", b"v", 1),)))
        committed(world.get("a", ahead, within_us=5_000_000))
    with Replicas(owned=((b"b", b"bb"), (b"c", b"g"))) as world:
        world.lead("a")
        outside = Commit(TxnWork(ref("t1", anchor=b"b"), EPOCH, (Write(b"b12345678", b"v", 1),)))
        assert code(world.get("a", outside)) is Code.WRONG_RANGE


def test_decision_at_or_below_the_prepare_timestamp_is_refused() -> None:
    with group() as world:
        answer = world.get("a", prepare(far("t1"), {b"k": b"v"}))
        ts = answer.prepare_ts  # type: ignore[union-attr]
        assert code(world.get("a", Decide(far("t1"), ts))) is Code.INVALID_ARGUMENT
        assert code(world.get("a", Prepare(prepare(far("t1", 2), {}).work, 7))) is Code.ABORTED  # still prepared
