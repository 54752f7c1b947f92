"""Records and verdicts, case by case. The package docstring of spanstore.txn says why each is as it is."""

from collections.abc import Callable

import pytest

from f1common.clock import TTInterval
from f1common.errors import Code, F1Error
from spanstore.txn import outcomes
from spanstore.txn.commands import AbortCmd, CommitCmd, LockRecord, PrepareCmd, TxnRef, Write
from spanstore.txn.locks import LockMode, Priority, Span
from spanstore.txn.outcomes import (
    ABSENT,
    AlreadyAborted,
    AlreadyCommitted,
    AlreadyFinished,
    AlreadyPrepared,
    ExpectAbsent,
    ExpectExists,
    ExpectUnchangedRange,
    ExpectVersion,
    Expired,
    FinishedRecord,
    Fresh,
    FreshPrepare,
    MustLogAbort,
    NoNewer,
    OutcomeRecord,
    PastDeadline,
    Precondition,
    Premature,
    Stale,
    TooEarly,
    WrittenAbsent,
)

CREATED = 1_000
KEEP = 500
YOUNG = TTInterval(1_190, 1_210)
OLD = TTInterval(1_600, 1_620)


def ref(attempt: int) -> TxnRef:
    return TxnRef(b"root", b"unique", CREATED, attempt)


def committed(attempt: int) -> OutcomeRecord:
    return OutcomeRecord.committed(ref(attempt), 1_100, (2, 3))


def aborted(attempt: int) -> OutcomeRecord:
    return OutcomeRecord.aborted(ref(attempt), 1_100)


@pytest.mark.parametrize(
    ("record", "attempt", "young", "old"),
    [
        (None, 1, Fresh(), Expired()),
        (None, 2, Premature(0), Expired()),
        (aborted(1), 1, AlreadyAborted(1), AlreadyAborted(1)),
        (aborted(1), 2, Fresh(), Expired()),
        (aborted(1), 3, Premature(1), Expired()),
        (aborted(4), 2, AlreadyAborted(4), AlreadyAborted(4)),
        (aborted(4), 5, Fresh(), Expired()),
        (committed(1), 1, AlreadyCommitted(1_100), AlreadyCommitted(1_100)),
        (committed(1), 2, AlreadyCommitted(1_100), AlreadyCommitted(1_100)),
        (committed(3), 2, AlreadyAborted(2), AlreadyAborted(2)),
        (committed(3), 9, AlreadyCommitted(1_100), AlreadyCommitted(1_100)),
    ],
)
def test_judge_attempt(
    record: OutcomeRecord | None, attempt: int, young: outcomes.Verdict, old: outcomes.Verdict
) -> None:
    assert outcomes.judge_attempt(record, attempt, CREATED, YOUNG, KEEP) == young
    assert outcomes.judge_attempt(record, attempt, CREATED, OLD, KEEP) == old


def test_expiry_leaves_no_gap_between_two_clocks() -> None:
    """Collected by one leader's earlier edge, refused by another's later edge: both contain the true time 1,600."""
    record = OutcomeRecord.committed(TxnRef(b"", b"", 1_049, 1), 1_050)
    slow, fast = TTInterval(1_480, 1_600), TTInterval(1_600, 1_720)
    for collector in (slow, fast):
        dropped = outcomes.collectable(record, collector.earliest - KEEP)
        for judge in (slow, fast):
            verdict = outcomes.judge_attempt(None, 1, record.created_ts, judge, KEEP)
            assert not dropped or verdict == Expired()
    assert outcomes.collectable(record, fast.earliest - KEEP)


def test_a_record_is_collected_only_when_old_in_both_ways_and_settled() -> None:
    late = OutcomeRecord.aborted(TxnRef(b"", b"", 900, 1), 2_000)
    ahead = OutcomeRecord.committed(TxnRef(b"", b"", 2_000, 1), 900)
    assert not outcomes.collectable(late, 1_000)
    assert not outcomes.collectable(ahead, 1_000)
    assert outcomes.collectable(late, 2_001)
    assert outcomes.collectable(ahead, 2_001)
    assert outcomes.collectable(committed(1), 1_101, unsettled=(4,))
    assert not outcomes.collectable(committed(1), 1_101, unsettled=(4, 3)), "group 3 has it prepared still"


@pytest.mark.parametrize(
    ("record", "attempt", "young", "old"),
    [
        (None, 1, MustLogAbort(), AlreadyAborted(1)),
        (aborted(1), 1, AlreadyAborted(1), AlreadyAborted(1)),
        (aborted(3), 1, AlreadyAborted(1), AlreadyAborted(1)),
        (aborted(1), 2, MustLogAbort(), AlreadyAborted(2)),
        (committed(2), 2, AlreadyCommitted(1_100), AlreadyCommitted(1_100)),
        (committed(2), 1, AlreadyAborted(1), AlreadyAborted(1)),
        (committed(2), 3, AlreadyAborted(3), AlreadyAborted(3)),
    ],
)
def test_judge_inquiry(record: OutcomeRecord | None, attempt: int, young: object, old: object) -> None:
    """Nothing is logged about an old id: it may have committed by another attempt, whose record is gone."""
    assert outcomes.judge_inquiry(record, attempt, CREATED, YOUNG, KEEP) == young
    assert outcomes.judge_inquiry(record, attempt, CREATED, OLD, KEEP) == old


def test_nothing_is_said_about_an_id_that_is_old_by_some_clocks_only() -> None:
    """Another leader, whose clock is behind, might start the attempt yet; or the record may be gone."""
    between = TTInterval(CREATED + KEEP - 1, CREATED + KEEP)
    assert outcomes.judge_inquiry(None, 1, CREATED, between, KEEP) == TooEarly()
    assert outcomes.judge_inquiry(committed(1), 1, CREATED, between, KEEP) == AlreadyCommitted(1_100)


def test_no_deadline_outlives_the_memory_of_its_id() -> None:
    assert outcomes.latest_deadline(0, CREATED, KEEP) == CREATED + KEEP - 1
    assert outcomes.latest_deadline(CREATED + 1, CREATED, KEEP) == CREATED + 1
    assert outcomes.latest_deadline(CREATED + 9 * KEEP, CREATED, KEEP) == CREATED + KEEP - 1


@pytest.mark.parametrize(
    ("record", "attempt", "after_commit", "after_abort"),
    [
        (None, 1, committed(1), aborted(1)),
        (aborted(1), 1, None, aborted(1)),
        (aborted(1), 2, committed(2), aborted(2)),
        (aborted(3), 2, None, aborted(3)),
        (committed(1), 1, None, committed(1)),
        (committed(1), 2, None, committed(1)),
        (committed(2), 1, None, committed(2)),
    ],
)
def test_what_is_decided_first_stands(
    record: OutcomeRecord | None, attempt: int, after_commit: OutcomeRecord | None, after_abort: OutcomeRecord
) -> None:
    commit = CommitCmd(ref(attempt), 1_100, (), (2, 3), 9_999)
    assert outcomes.after_commit(record, commit.txn, commit.ts, commit.participants) == after_commit
    assert outcomes.after_abort(record, AbortCmd(ref(attempt), "asked for", 1_100)) == after_abort


def prepare(attempt: int) -> PrepareCmd:
    locks = (LockRecord(b"k", None, LockMode.EXCLUSIVE),)
    return PrepareCmd(ref(attempt), 1_150, Priority(CREATED, b"unique"), (Write(b"k", b"v"),), locks, 1, 1_300)


@pytest.mark.parametrize(
    ("finished", "prepared", "attempt", "verdict", "late"),
    [
        (None, None, 1, FreshPrepare(), PastDeadline()),
        (None, prepare(1), 1, AlreadyPrepared(1_150), AlreadyPrepared(1_150)),
        (None, prepare(1), 2, FreshPrepare(unresolved=1), PastDeadline()),
        (None, prepare(2), 1, Stale(), Stale()),
        (FinishedRecord(1, None, 1_300), None, 1, AlreadyFinished(None), AlreadyFinished(None)),
        (FinishedRecord(1, None, 1_300), None, 2, FreshPrepare(), PastDeadline()),
        (FinishedRecord(2, None, 1_300), None, 1, Stale(), Stale()),
        (FinishedRecord(1, None, 1_300), prepare(2), 2, AlreadyPrepared(1_150), AlreadyPrepared(1_150)),
        (FinishedRecord(1, None, 1_300), prepare(2), 1, AlreadyFinished(None), AlreadyFinished(None)),
        (FinishedRecord(1, 1_200, 1_300), None, 1, AlreadyFinished(1_200), AlreadyFinished(1_200)),
        (FinishedRecord(1, 1_200, 1_300), None, 2, AlreadyFinished(1_200), AlreadyFinished(1_200)),
        (FinishedRecord(2, 1_200, 1_300), None, 1, Stale(), Stale()),
    ],
)
def test_judge_prepare(
    finished: FinishedRecord | None,
    prepared: PrepareCmd | None,
    attempt: int,
    verdict: outcomes.PrepareVerdict,
    late: outcomes.PrepareVerdict,
) -> None:
    assert outcomes.judge_prepare(finished, prepared, attempt, 1_210, YOUNG) == verdict
    assert outcomes.judge_prepare(finished, prepared, attempt, 1_209, YOUNG) == late


@pytest.mark.parametrize(
    ("finished", "attempt", "ts", "deadline", "after"),
    [
        (None, 1, None, 50, FinishedRecord(1, None, 50)),
        (None, 1, 40, 50, FinishedRecord(1, 40, 50)),
        (FinishedRecord(1, None, 50), 2, 45, 30, FinishedRecord(2, 45, 50)),
        (FinishedRecord(2, None, 50), 1, None, 90, FinishedRecord(2, None, 90)),
        (FinishedRecord(1, 40, 50), 2, None, 90, FinishedRecord(1, 40, 90)),
        (FinishedRecord(1, 40, 50), 1, 40, 50, FinishedRecord(1, 40, 50)),
    ],
)
def test_after_decide(
    finished: FinishedRecord | None, attempt: int, ts: int | None, deadline: int, after: FinishedRecord
) -> None:
    assert outcomes.after_decide(finished, attempt, ts, deadline) == after


def test_a_finished_attempt_is_remembered_until_its_prepare_is_refused_anyway() -> None:
    finished = FinishedRecord(1, None, 1_200)
    slow, fast = TTInterval(1_101, 1_201), TTInterval(1_201, 1_301)
    assert not outcomes.forgettable(finished, slow.earliest)
    assert outcomes.forgettable(finished, fast.earliest)
    for judge in (slow, fast):
        assert outcomes.judge_prepare(None, None, 1, finished.deadline, judge) == PastDeadline()


def test_records_survive_their_bytes() -> None:
    for record in (committed(1), aborted(2)):
        assert outcomes.decode_outcome(outcomes.encode_outcome(record)) == record
    assert outcomes.decode_prepared(outcomes.encode_prepared(prepare(1))) == prepare(1)
    for finished in (FinishedRecord(1, None, 5), FinishedRecord(1, 4, 5)):
        assert outcomes.decode_finished(outcomes.encode_finished(finished)) == finished


@pytest.mark.parametrize("decode", [outcomes.decode_outcome, outcomes.decode_prepared, outcomes.decode_finished])
def test_damaged_records_are_reported(decode: Callable[[bytes], object]) -> None:
    for data in (
        b"",
        b"\xc1",
        b"\x93\x01",
        outcomes.encode_outcome(committed(1))[:-1],
        b"\x96\x01\x07\x00\x90\x00\x00",
    ):
        with pytest.raises(F1Error) as caught:
            decode(data)
        assert caught.value.code is Code.DATA_CORRUPTION


ROWS = {b"row": (10, True), b"deleted": (20, False)}


def newest_in_range(start: bytes, end: bytes) -> int:
    return max((ts for key, (ts, _) in ROWS.items() if start <= key < end), default=0)


@pytest.mark.parametrize(
    ("precondition", "code"),
    [
        (ExpectVersion(b"row", 10), None),
        (ExpectVersion(b"row", 9), Code.ABORTED),
        (ExpectVersion(b"row", 11), Code.ABORTED),
        (ExpectVersion(b"row", ABSENT), Code.ABORTED),
        (ExpectVersion(b"deleted", 20), None),
        (ExpectVersion(b"deleted", 19), Code.ABORTED),
        (ExpectVersion(b"deleted", ABSENT), None),
        (ExpectVersion(b"never", ABSENT), None),
        (ExpectVersion(b"never", 10), Code.ABORTED),
        (ExpectExists(b"row"), None),
        (ExpectExists(b"deleted"), Code.NOT_FOUND),
        (ExpectExists(b"never"), Code.NOT_FOUND),
        (ExpectAbsent(b"row"), Code.ALREADY_EXISTS),
        (ExpectAbsent(b"deleted"), None),
        (ExpectAbsent(b"never"), None),
        (ExpectUnchangedRange(b"a", b"z", 20), None),
        (ExpectUnchangedRange(b"a", b"z", 19), Code.ABORTED),
        (ExpectUnchangedRange(b"e", b"z", 10), None),
        (ExpectUnchangedRange(b"s", b"z", 0), None),
    ],
)
def test_preconditions(precondition: Precondition, code: Code | None) -> None:
    preconditions: list[Precondition] = [ExpectVersion(b"never", ABSENT), precondition]
    failure = outcomes.evaluate(preconditions, ROWS.get, newest_in_range)
    if code is None:
        assert failure is None
        return
    assert failure is not None and failure.code is code
    assert failure.key.hex() in failure.message
    error = failure.error()
    assert error.code is code and error.details["key"] == failure.key.hex()
    assert error.retryable == (code is Code.ABORTED)


WRITTEN = [b"deleted", b"never", b"row"]  # at 20, never, at 10


@pytest.mark.parametrize(
    ("test", "mark_ts", "code"),
    [
        (NoNewer(20), 0, None),
        (NoNewer(20), 20, None),
        (NoNewer(19), 0, Code.ABORTED),  # a delete counts as well
        (NoNewer(19, leave_out=True), 0, None),
        (NoNewer(19, leave_out=True), 20, Code.SNAPSHOT_TOO_OLD),
        (NoNewer(20), 21, Code.SNAPSHOT_TOO_OLD),
    ],
)
def test_what_is_written_has_no_newer_version(test: NoNewer, mark_ts: int, code: Code | None) -> None:
    failure = outcomes.evaluate([test], ROWS.get, newest_in_range, mark_ts, WRITTEN)
    assert (failure.code if failure else None) is code
    assert outcomes.spans_of(test) == ()


@pytest.mark.parametrize(
    ("keys", "found"),
    [((), None), ((b"never", b"other"), None), ((b"deleted", b"never"), None), ((b"never", b"row", b"z"), b"row")],
)
def test_none_of_the_rows_that_are_written_is_there(keys: tuple[bytes, ...], found: bytes | None) -> None:
    looked: list[tuple[bytes, bytes]] = []

    def is_empty(first: bytes, last: bytes) -> bool:
        looked.append((first, last))
        return not any(first <= key <= last for key in ROWS)

    for asked in (is_empty, lambda first, last: False):
        failure = outcomes.evaluate([WrittenAbsent(keys)], ROWS.get, newest_in_range, is_empty=asked)
        assert (failure.key if failure else None) == found
        assert failure is None or failure.code is Code.ALREADY_EXISTS
    assert looked == ([(min(keys), max(keys))] if keys else [])


def test_the_lowest_timestamp_says_which_writes_are_left_out() -> None:
    assert outcomes.left_out_above([NoNewer(5), ExpectExists(b"row")]) is None
    assert outcomes.left_out_above([NoNewer(5, leave_out=True), NoNewer(4, leave_out=True)]) == 4


def test_first_failure_is_the_one_reported() -> None:
    preconditions: list[Precondition] = [ExpectExists(b"row"), ExpectAbsent(b"row"), ExpectExists(b"never")]
    failure = outcomes.evaluate(preconditions, ROWS.get, newest_in_range)
    assert failure is not None and failure.code is Code.ALREADY_EXISTS


def test_spans_that_preconditions_look_at() -> None:
    assert outcomes.spans_of(ExpectVersion(b"k", 5)) == (Span(b"k"),)
    assert outcomes.spans_of(ExpectExists(b"k")) == (Span(b"k"),)
    assert outcomes.spans_of(ExpectAbsent(b"k")) == (Span(b"k"),)
    assert outcomes.spans_of(ExpectUnchangedRange(b"a", b"b", 5)) == (Span(b"a", b"b"),)
