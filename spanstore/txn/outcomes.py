"""What is remembered about transactions, and the rules that make a commit happen exactly once.

The coordinator keeps one :class:`OutcomeRecord` per commit id, a participant its :data:`PreparedRecord` until the
decision and a :class:`FinishedRecord` after it. The ``judge_*`` functions say what a leader does with a request, given
the records as of everything applied or in flight; the ``after_*`` functions say what a replica keeps when it applies a
command, and hold even if two commands about one id lie in the log. The package docstring has the argument.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar, assert_never

import msgspec

from f1common.clock import TTInterval
from f1common.errors import Code, F1Error
from spanstore.txn.commands import AbortCmd, PrepareCmd, TxnRef
from spanstore.txn.spans import Span


class OutcomeState(IntEnum):
    """How an attempt ended."""

    COMMITTED = 1
    ABORTED = 2


class OutcomeRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """How the newest decided attempt of a commit id ended; all lower attempts aborted.

    ``ts`` is the commit timestamp (0 if aborted), ``participants`` the groups beside the coordinator that must learn
    it, ``decided_ts`` the time of the decision and ``created_ts`` that of the id, all in microseconds since the epoch.
    """

    attempt: int
    state: OutcomeState
    ts: int
    participants: tuple[int, ...]
    decided_ts: int
    created_ts: int

    @classmethod
    def committed(cls, txn: TxnRef, ts: int, participants: tuple[int, ...] = ()) -> "OutcomeRecord":
        """Make the record of a commit."""
        return cls(txn.attempt, OutcomeState.COMMITTED, ts, participants, ts, txn.created_ts)

    @classmethod
    def aborted(cls, txn: TxnRef, decided_ts: int) -> "OutcomeRecord":
        """Make the record of an abort."""
        return cls(txn.attempt, OutcomeState.ABORTED, 0, (), decided_ts, txn.created_ts)


PreparedRecord = PrepareCmd
"""A participant keeps the logged prepare itself: writes, locks, coordinator, deadline."""


class FinishedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A participant's memory of the newest attempt it finished: committed at ``ts``, or aborted if that is None.

    Kept until ``deadline`` (microseconds since the epoch) has passed, the latest of all attempts of the id: from then
    on their late prepares are refused without it.
    """

    attempt: int
    ts: int | None
    deadline: int


_ENCODER = msgspec.msgpack.Encoder()
_OUTCOME = msgspec.msgpack.Decoder(OutcomeRecord)
_PREPARED = msgspec.msgpack.Decoder(PreparedRecord)
_FINISHED = msgspec.msgpack.Decoder(FinishedRecord)
_Record = TypeVar("_Record")


def encode_outcome(record: OutcomeRecord) -> bytes:
    """Return the stored bytes of an outcome record."""
    return _ENCODER.encode(record)


def decode_outcome(data: bytes) -> OutcomeRecord:
    """Read an outcome record. Raises F1Error DATA_CORRUPTION."""
    return _decode(_OUTCOME, data, "outcome record")


def encode_prepared(record: PreparedRecord) -> bytes:
    """Return the stored bytes of a prepared transaction."""
    return _ENCODER.encode(record)


def decode_prepared(data: bytes) -> PreparedRecord:
    """Read a prepared transaction. Raises F1Error DATA_CORRUPTION."""
    return _decode(_PREPARED, data, "prepared transaction")


def encode_finished(record: FinishedRecord) -> bytes:
    """Return the stored bytes of a finished record."""
    return _ENCODER.encode(record)


def decode_finished(data: bytes) -> FinishedRecord:
    """Read a finished record. Raises F1Error DATA_CORRUPTION."""
    return _decode(_FINISHED, data, "finished record")


def _decode(decoder: msgspec.msgpack.Decoder[_Record], data: bytes, what: str) -> _Record:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"{len(data)} bytes are no {what}: {error}") from error


# The coordinator.


@dataclass(frozen=True, slots=True)
class Fresh:
    """The attempt may start."""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The id committed at ``ts``, by this attempt or a lower one."""

    ts: int


@dataclass(frozen=True, slots=True)
class AlreadyAborted:
    """This attempt aborted, as did all up to ``attempt``: only a higher one may start."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Expired:
    """The id is older than records are kept: it is decided, and how is not known here. It is not "aborted"."""


@dataclass(frozen=True, slots=True)
class Premature:
    """An attempt before it is unaccounted for: the highest that is recorded as aborted is ``aborted`` (0: none)."""

    aborted: int


Verdict = Fresh | AlreadyCommitted | AlreadyAborted | Expired | Premature


def judge_attempt(
    record: OutcomeRecord | None,
    attempt: int,
    created_ts: int,
    now: TTInterval,
    keep_us: int,
) -> Verdict:
    """Decide whether the coordinator may work on ``attempt`` of a commit id.

    What is recorded is answered at any age. Nothing new starts for an id that ``keep_us`` has passed since its
    creation, because its record may be gone: :func:`collectable` drops only what the earlier edge of the clock calls
    old, this refuses all that the later edge calls old, so that no leader's clock finds a gap between the two.
    """
    aborted = 0
    if record is not None:
        if record.state is OutcomeState.COMMITTED:
            return AlreadyCommitted(record.ts) if attempt >= record.attempt else AlreadyAborted(record.attempt - 1)
        if attempt <= record.attempt:
            return AlreadyAborted(record.attempt)
        aborted = record.attempt
    if created_ts + keep_us <= now.latest:
        return Expired()
    return Fresh() if attempt == aborted + 1 else Premature(aborted)


def check_created(created_ts: int, now: TTInterval, keep_us: int) -> None:
    """Refuse to begin with an id from so far ahead that how it ended would be kept for more than twice ``keep_us``.

    Raises F1Error CLOCK_SKEW.
    """
    ahead_us = created_ts - now.latest
    if ahead_us > keep_us:
        raise F1Error(
            Code.CLOCK_SKEW,
            f"the commit id was created {ahead_us / 1e6:.0f} s ahead of this server's clock, and outcomes are kept for "
            f"{keep_us / 1e6:.0f} s: repair the clock of its client, or of this server",
            details={"ahead_us": str(ahead_us)},
        )


@dataclass(frozen=True, slots=True)
class MustLogAbort:
    """Nobody knows the attempt: it may still be on its way, so its abort is logged before anyone is told of it."""


@dataclass(frozen=True, slots=True)
class TooEarly:
    """By some clocks the id is as old as records are kept, by others not: ask again when it is by all of them."""


def judge_inquiry(
    record: OutcomeRecord | None, attempt: int, created_ts: int, now: TTInterval, keep_us: int
) -> AlreadyCommitted | AlreadyAborted | MustLogAbort | TooEarly:
    """Answer a participant that has ``attempt`` prepared and asks how it ended.

    The record of a decision stays until each of its participants has applied it, so for one that still has the
    transaction prepared, no record means no decision for that attempt, at any age. Of a young id the abort is logged,
    so that the attempt cannot commit later. Of an old one nothing is logged: no leader starts an attempt of it any
    more, and a record made now would call an id aborted that may have committed by another attempt long ago. The caller
    first rules out that the attempt is in flight at the coordinator itself.
    """
    if record is None or (record.state is OutcomeState.ABORTED and record.attempt < attempt):
        if created_ts + keep_us > now.latest:
            return MustLogAbort()
        return AlreadyAborted(attempt) if created_ts + keep_us <= now.earliest else TooEarly()
    if record.state is OutcomeState.COMMITTED and record.attempt == attempt:
        return AlreadyCommitted(record.ts)
    # A prepare of another attempt than the one that committed holds other writes and must not be applied.
    return AlreadyAborted(attempt)


def after_commit(
    record: OutcomeRecord | None, txn: TxnRef, ts: int, participants: tuple[int, ...] = ()
) -> OutcomeRecord | None:
    """Return the record that a replica keeps when it applies a commit at ``ts``, or None if it must do nothing of it.

    None: the attempt was decided earlier in the log. Writing it would commit a second time, or after an abort.
    """
    if record is not None and (record.state is OutcomeState.COMMITTED or txn.attempt <= record.attempt):
        return None
    return OutcomeRecord.committed(txn, ts, participants)


def after_abort(record: OutcomeRecord | None, command: AbortCmd) -> OutcomeRecord:
    """Return the record that a replica keeps when it applies ``command``: what was decided earlier stands."""
    if record is not None and (record.state is OutcomeState.COMMITTED or command.txn.attempt <= record.attempt):
        return record
    return OutcomeRecord.aborted(command.txn, command.ts)


def collectable(record: OutcomeRecord, before_ts: int, unsettled: Sequence[int] = ()) -> bool:
    """Tell whether a GcOutcomesCmd drops ``record``.

    ``before_ts`` must be at or below ``now.earliest - keep_us`` at the leader that logs the command, and groups that
    are not in ``unsettled`` must have said, after that was so, that they have nothing prepared of an id created before
    ``before_ts``. Then they never will have: see :func:`latest_deadline`.
    """
    old = record.created_ts < before_ts and record.decided_ts < before_ts
    return old and not any(group in unsettled for group in record.participants)


def latest_deadline(deadline: int, created_ts: int, keep_us: int) -> int:
    """Return the deadline that counts for an attempt whose own is ``deadline`` (0: none).

    No attempt commits or is prepared when its id is as old as records are kept: by then the record of how the id ended
    may be gone, and whoever asks is told that it has ended.
    """
    last = created_ts + keep_us - 1
    return min(deadline, last) if deadline else last


# The participant.


@dataclass(frozen=True, slots=True)
class FreshPrepare:
    """The prepare may go ahead, once the prepare of the lower attempt ``unresolved`` (0: none) that still stands here
    has been resolved with the coordinator."""

    unresolved: int = 0


@dataclass(frozen=True, slots=True)
class AlreadyPrepared:
    """This attempt is prepared here at ``prepare_ts``: the answer to a repeated request."""

    prepare_ts: int


@dataclass(frozen=True, slots=True)
class AlreadyFinished:
    """The decision was applied here: committed at ``ts``, or this attempt aborted if that is None."""

    ts: int | None


@dataclass(frozen=True, slots=True)
class PastDeadline:
    """The deadline has passed, so the attempt can no longer commit and may have been finished and forgotten here."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A higher attempt has been here: this one can no longer commit."""


PrepareVerdict = FreshPrepare | AlreadyPrepared | AlreadyFinished | PastDeadline | Stale


def judge_prepare(
    finished: FinishedRecord | None,
    prepared: PreparedRecord | None,
    attempt: int,
    deadline: int,
    now: TTInterval,
) -> PrepareVerdict:
    """Decide whether a participant may prepare ``attempt``, whose write fence is ``deadline`` (us since the epoch)."""
    if finished is not None:
        if finished.ts is not None and attempt >= finished.attempt:
            return AlreadyFinished(finished.ts)
        if attempt == finished.attempt:
            return AlreadyFinished(None)
        if attempt < finished.attempt:
            return Stale()
    unresolved = 0
    if prepared is not None:
        if attempt == prepared.txn.attempt:
            return AlreadyPrepared(prepared.prepare_ts)
        if attempt < prepared.txn.attempt:
            return Stale()
        unresolved = prepared.txn.attempt
    # The later edge: finished records are dropped when the earlier edge of some leader's clock passes the deadline.
    if deadline < now.latest:
        return PastDeadline()
    return FreshPrepare(unresolved)


def after_decide(finished: FinishedRecord | None, attempt: int, ts: int | None, deadline: int) -> FinishedRecord:
    """Return the record that a participant keeps when it applies the decision on ``attempt``.

    ``deadline`` is that of the prepare, or of the decision if there was none. A commit and a higher attempt stand.
    """
    if finished is None:
        return FinishedRecord(attempt, ts, deadline)
    deadline = max(deadline, finished.deadline)
    if finished.ts is not None or finished.attempt > attempt:
        return FinishedRecord(finished.attempt, finished.ts, deadline)
    return FinishedRecord(attempt, ts, deadline)


def forgettable(finished: FinishedRecord, before_ts: int) -> bool:
    """Tell whether a GcOutcomesCmd drops ``finished``; ``before_ts`` must be at or below its leader's earliest now."""
    return finished.deadline < before_ts


# Preconditions.

ABSENT = 0
"""As a version's timestamp: the row is not there, because it never was or because its newest version is a delete."""


class ExpectVersion(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """The newest version of ``key``, a delete included, was committed at ``ts``; for :data:`ABSENT`, there is no row.

    This is how an optimistic transaction validates a read (F1, section 5.1). Of a delete that was collected nobody
    knows the timestamp: it fails then, and the transaction reads again and finds no row.
    """

    key: bytes
    ts: int


class ExpectExists(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """There is a row under ``key``."""

    key: bytes


class ExpectAbsent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """There is no row under ``key``."""

    key: bytes


class ExpectUnchangedRange(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """No version in ``[start, end)``, deletes included, is newer than ``since_ts``.

    It cannot be known below the garbage mark, and fails there like one that does not hold: ABORTED, read again.
    """

    start: bytes
    end: bytes
    since_ts: int


class NoNewer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """No key that the transaction writes in this group has a version above ``since_ts``, deletes included.

    Where one has, the transaction aborts; with ``leave_out`` its write is left out instead, and the others are made:
    the Thomas write rule, by which the schema-change paper (section 4.3) writes what was true at a timestamp. Below the
    garbage mark it cannot be known: SNAPSHOT_TOO_OLD.
    """

    since_ts: int
    leave_out: bool = False


class WrittenAbsent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """There is no row under any of ``keys``, all of which the transaction writes."""

    keys: tuple[bytes, ...]


Precondition = ExpectVersion | ExpectExists | ExpectAbsent | ExpectUnchangedRange | NoNewer | WrittenAbsent


def spans_of(precondition: Precondition) -> tuple[Span, ...]:
    """Return what must be locked, at least shared, while ``precondition`` is evaluated and until the commit."""
    # Nearly all are about a key, and this is asked several times of each of hundreds.
    if isinstance(precondition, (ExpectVersion, ExpectExists, ExpectAbsent)):
        return (Span(precondition.key),)
    match precondition:
        case ExpectUnchangedRange(start, end):
            return (Span(start, end),)
        case NoNewer() | WrittenAbsent():
            return ()  # the writes are locked anyway
        case _:
            assert_never(precondition)


@dataclass(frozen=True, slots=True)
class Failure:
    """The first precondition that does not hold: the code for the caller, and the key in the way."""

    code: Code
    message: str
    key: bytes

    def error(self) -> F1Error:
        """Return it as an error; ``details["key"]`` is the key in hexadecimal."""
        return F1Error(self.code, self.message, details={"key": self.key.hex()})


def evaluate(
    preconditions: Sequence[Precondition],
    latest: Callable[[bytes], tuple[int, bool] | None],
    newest_in_range: Callable[[bytes, bytes], int],
    mark_ts: int = 0,
    written: Sequence[bytes] = (),
    is_empty: Callable[[bytes, bytes], bool] = lambda first, last: False,
) -> Failure | None:
    """Return the first of ``preconditions`` that fails, None if all hold. The caller holds locks on all of their keys.

    ``written``: the keys that the transaction writes. ``is_empty`` may say of two keys that neither they nor any
    between them have a version, which saves looking at each of many.

    ``latest`` gives the commit timestamp of a key's newest version and whether it is a row (not a delete), or None if
    there is no version; ``newest_in_range`` gives the newest commit timestamp in a range, 0 if there is none.
    ``mark_ts`` is the garbage mark: deletes at or below it may have left no trace, so that nobody can tell any more
    whether a range has changed since a timestamp below it. Such a test fails, like one of a range that has changed.
    """
    for precondition in preconditions:
        match precondition:
            case ExpectUnchangedRange(start, end, since_ts):
                if since_ts < mark_ts:
                    message = (
                        f"range {start.hex()} to {end.hex()} was read at {since_ts}, which lies below the garbage mark "
                        f"{mark_ts}: deletes since then may have left no trace"
                    )
                    return Failure(Code.ABORTED, message, start)
                newest = newest_in_range(start, end)
                if newest > since_ts:
                    message = f"range {start.hex()} to {end.hex()} was read at {since_ts} and changed at {newest}"
                    return Failure(Code.ABORTED, message, start)
            case ExpectVersion(key, ts):
                if (failure := _compare_version(key, ts, latest(key))) is not None:
                    return failure
            case ExpectExists(key):
                if not _is_row(latest(key)):
                    return Failure(Code.NOT_FOUND, f"there is no row with key {key.hex()}", key)
            case ExpectAbsent(key):
                if (failure := _present((key,), latest)) is not None:
                    return failure
            case WrittenAbsent(keys):
                if keys and not is_empty(min(keys), max(keys)) and (failure := _present(keys, latest)) is not None:
                    return failure
            case NoNewer():
                if (failure := _newer(precondition, written, latest, mark_ts)) is not None:
                    return failure
            case _:
                assert_never(precondition)
    return None


def _present(keys: Iterable[bytes], latest: Callable[[bytes], tuple[int, bool] | None]) -> Failure | None:
    for key in keys:
        if _is_row(latest(key)):
            return Failure(Code.ALREADY_EXISTS, f"there is a row with key {key.hex()} already", key)
    return None


def _newer(
    test: NoNewer, written: Sequence[bytes], latest: Callable[[bytes], tuple[int, bool] | None], mark_ts: int
) -> Failure | None:
    if test.since_ts < mark_ts and written:
        message = f"what was written since {test.since_ts} cannot be known: it lies below the garbage mark {mark_ts}"
        return Failure(Code.SNAPSHOT_TOO_OLD, message, written[0])
    for key in () if test.leave_out else written:
        if (version := latest(key)) is not None and version[0] > test.since_ts:
            return Failure(Code.ABORTED, f"row {key.hex()} was written at {version[0]}, after {test.since_ts}", key)
    return None


def left_out_above(preconditions: Sequence[Precondition]) -> int | None:
    """Return the timestamp above which a version of a key lets its write be left out; None: all are made."""
    found = [test.since_ts for test in preconditions if isinstance(test, NoNewer) and test.leave_out]
    return min(found, default=None)


def _is_row(version: tuple[int, bool] | None) -> bool:
    return version is not None and version[1]


def _compare_version(key: bytes, ts: int, version: tuple[int, bool] | None) -> Failure | None:
    if ts == ABSENT:
        if version is None or not version[1]:
            return None
        return Failure(Code.ABORTED, f"row {key.hex()} was read as absent and exists since {version[0]}", key)
    if version is None:
        return Failure(Code.ABORTED, f"row {key.hex()} was read as of version {ts} and is gone", key)
    if version[0] == ts:
        return None
    change = "changed" if version[1] else "deleted"
    return Failure(Code.ABORTED, f"row {key.hex()} was read as of version {ts} and {change} at {version[0]}", key)
