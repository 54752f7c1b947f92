"""The read and the write protocol of patent 9619507, step by step (pure: generators of :mod:`f1.orchestrator.steps`).

Everything rests on the *transaction table*: one row for each transaction that was decided, keyed by its start
timestamp, with its commit timestamp or :data:`FAILED`. The row is written by put-if-absent, so there is one decision
and it never changes. A version in a cell carries the start timestamp of its writer; who meets one looks its writer up
in the table. No lock is needed for that to be right: who finds no row writes FAILED into it, and the writer, if it
lives, cannot commit any more. The lock on the row is there so that live writers are waited for and not failed. The
locks on data rows, and the lease on the start timestamp, do matter, which is why they are validated *after* what they
protect has been done. docs/orchestrator.md explains each step by what goes wrong without it.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from f1.orchestrator.steps import (
    Acquire,
    Delete,
    GetVersions,
    NextTimestamp,
    Put,
    PutIfAbsent,
    ReadRange,
    Release,
    Steps,
    Validate,
    Version,
    Write,
)
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.orchestrator.lock_table import MAX_LOCKS, Mode, Token, WantedLock

__all__ = [
    "DECISIONS",
    "EVERYTHING",
    "FAILED",
    "Attempt",
    "RangeRead",
    "Seen",
    "commit",
    "read_cells",
    "read_range",
    "start",
    "transaction_key",
]

FAILED = -1
"""The invalid commit timestamp: this transaction did not commit and never will."""

EVERYTHING = 1 << 62
"""Above every timestamp."""

DECISIONS = (tuples.encode((None,)), tuples.encode((None, "")))
"""The range of the transaction table: what else has no table for its first element has a text for its second."""

SHARDS = 16
"""Neighbouring transactions have their rows in different parts of the transaction table."""

Known = MutableMapping[int, int]
"""Start timestamp -> commit timestamp or FAILED: a cache of the transaction table."""


class Seen(NamedTuple):
    """What a transaction finds in a cell: the value, and the start timestamp of its writer. None, 0: no value."""

    value: bytes | None
    ts: int


NOTHING = Seen(None, 0)


class RangeRead(NamedTuple):
    """What was read of a range: live cells of ``start <= key < end`` in the order of keys."""

    start: bytes
    end: bytes
    cells: tuple[tuple[bytes, Seen], ...]


@dataclass(slots=True)
class Attempt:
    """One transaction as the protocol knows it."""

    start_ts: int
    lease: Token
    """On the start timestamp, from before that was handed out."""
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    rows: dict[bytes, bytes] = field(default_factory=dict)
    """For each key in ``writes`` the name of its row's lock, b"" where write-write conflicts are not looked for."""
    reads: dict[bytes, int] = field(default_factory=dict)
    """Serializable mode: the writers of what was read."""
    ranges: list[RangeRead] = field(default_factory=list)
    commit_lease: Token | None = None
    commit_ts: int = 0
    released: bool = False
    """Whether all leases have been given back."""
    committed: bool = False
    deciding: bool = False
    """Whether the row that commits it is on its way: until it is known what became of that, so is the outcome."""
    delete_failed: bool = True
    """Whether values of failed transactions that are met are removed."""


def transaction_key(start_ts: int) -> bytes:
    """Return the key of a transaction's row, which is also the name of its lock. No table's name is NULL."""
    return tuples.encode((None, start_ts % SHARDS, start_ts))


def transaction_of(key: bytes) -> int:
    """Return the start timestamp of a row of the transaction table. Raises F1Error DATA_CORRUPTION."""
    match tuples.decode(key):
        case (None, int(), int(start_ts)):
            return start_ts
        case _:
            raise F1Error(Code.DATA_CORRUPTION, f"{key.hex()} is no key of the transaction table")


def encode_decision(commit_ts: int) -> bytes:
    """Return the value of a row of the transaction table."""
    return tuples.encode((commit_ts,))


def decode_decision(data: bytes | None) -> int:
    """Return the commit timestamp, or FAILED, of a row of the transaction table. Raises F1Error DATA_CORRUPTION."""
    match tuples.decode(data or b""):
        case (int(commit_ts),):
            return commit_ts
        case _:
            raise F1Error(Code.DATA_CORRUPTION, "a row of the transaction table cannot be read")


def expired() -> F1Error:
    """Return the error of a transaction whose lease on its start timestamp has lapsed."""
    text = (
        "the lease on the transaction's start timestamp has lapsed, so what it reads may be gone: run it again; "
        "if that is no accident, make it shorter or the lease and tenure of the lock service longer"
    )
    return F1Error(Code.TRANSACTION_EXPIRED, text)


# ---------------------------------------------------------------------- START_TX


def start(last_ts: int) -> Steps[Attempt]:
    """Begin a transaction; ``last_ts`` is any timestamp that was given out before.

    The lease comes first. A sweep takes a timestamp and then asks for the lowest lease: if it did not see this one, it
    asked before, so that its timestamp is below the one that is handed out here. Raises F1Error.
    """
    lease: Token = yield Acquire((), last_ts)
    try:
        start_ts: int = yield NextTimestamp()
    except F1Error:
        # Nobody is to read under it, so that sweeps need not wait for it to lapse.
        yield Release((lease,))
        raise
    return Attempt(start_ts, lease)


# ---------------------------------------------------------------------- decisions


def look_up(starts: Iterable[int], known: Known) -> Steps[dict[int, int]]:
    """Return the decisions about these transactions, as far as there are any."""
    wanted = set(starts)
    found = {ts: known[ts] for ts in wanted if ts in known}
    unknown = sorted(wanted - found.keys())
    if unknown:
        rows: list[Version | None] = yield GetVersions(tuple((transaction_key(ts), EVERYTHING) for ts in unknown))
        for ts, row in zip(unknown, rows, strict=True):
            if row is not None:
                found[ts] = known[ts] = decode_decision(row.value)
    return found


def fail(start_ts: int, known: Known) -> Steps[int]:
    """See to it that the transaction never commits, unless it has; return the decision."""
    found: bytes = yield PutIfAbsent(Write(transaction_key(start_ts), 0, encode_decision(FAILED)))
    decision = known[start_ts] = decode_decision(found)
    return decision


def decide(starts: Iterable[int], known: Known) -> Steps[dict[int, int]]:
    """Return the decisions about these transactions, waiting for those that commit now and failing the dead.

    A row that is there never changes, so the lock is only for those without one.
    """
    wanted = sorted(set(starts))
    decisions = yield from look_up(wanted, known)
    open_ = [ts for ts in wanted if ts not in decisions]
    if open_:
        locks = sorted(WantedLock(transaction_key(ts), Mode.READ) for ts in open_)
        token: Token = yield Acquire(tuple(locks))
        yield Release((token,))
        decisions.update((yield from look_up(open_, known)))
    for ts in open_:
        if ts not in decisions:
            decisions[ts] = yield from fail(ts, known)
    return decisions


# ---------------------------------------------------------------------- GET


def read_cells(attempt: Attempt, keys: Sequence[bytes], known: Known) -> Steps[list[Seen]]:
    """Return what the transaction's snapshot has in these cells. Raises F1Error TRANSACTION_EXPIRED."""
    found = yield from _settle(attempt, dict.fromkeys(keys, attempt.start_ts), known)
    yield from _check_lease(attempt)
    return [found[key] for key in keys]


def _check_lease(attempt: Attempt) -> Steps[None]:
    """Only now is it known that no sweep has removed anything that the snapshot needs: it would have begun later."""
    held: bool = yield Validate((attempt.lease,))
    if not held:
        raise expired()


def _settle(attempt: Attempt, below: dict[bytes, int], known: Known) -> Steps[dict[bytes, Seen]]:
    """Read cells, going back from version to version until one committed before the transaction started."""
    found: dict[bytes, Seen] = {}
    while below:
        asked = tuple(sorted(below.items()))
        answers: list[Version | None] = yield GetVersions(asked)
        versions = {key: version for (key, _), version in zip(asked, answers, strict=True)}
        below = yield from _sift(attempt, versions, found, known)
    return found


def _sift(
    attempt: Attempt, versions: Mapping[bytes, Version | None], found: dict[bytes, Seen], known: Known
) -> Steps[dict[bytes, int]]:
    """Put what is visible of ``versions`` into ``found``; return where to look on for the other cells."""
    decisions = yield from decide({v.ts for v in versions.values() if v is not None}, known)
    below: dict[bytes, int] = {}
    failed: list[tuple[bytes, int]] = []
    for key, version in versions.items():
        if version is None:
            found[key] = NOTHING
        elif decisions[version.ts] == FAILED:
            below[key] = version.ts
            failed.append((key, version.ts))
        elif decisions[version.ts] > attempt.start_ts:
            below[key] = version.ts
        else:
            found[key] = NOTHING if version.value is None else Seen(version.value, version.ts)
    if failed and attempt.delete_failed:
        yield from _remove(failed)
    return below


def _remove(versions: Iterable[tuple[bytes, int]]) -> Steps[None]:
    """Remove values that nobody will ever see: the decision stays when they are gone.

    That it cannot be done, as in a store that is full, is no reason not to say what was found: they mean nothing where
    they are, and a sweep finds them.
    """
    try:
        yield Delete(tuple(versions))
    except F1Error:
        return


def read_range(attempt: Attempt, start: bytes, end: bytes, limit: int, known: Known) -> Steps[RangeRead]:
    """Read up to ``limit`` cells from ``start`` on; the result's ``end`` says how far that came.

    Raises F1Error TRANSACTION_EXPIRED.
    """
    page: list[tuple[bytes, list[Version]]] = yield ReadRange(start, end, attempt.start_ts, limit)
    reached = end if len(page) < limit else page[-1][0] + b"\x00"
    found: dict[bytes, Seen] = {}
    below = yield from _sift(attempt, {key: versions[0] for key, versions in page}, found, known)
    found.update((yield from _settle(attempt, below, known)))
    yield from _check_lease(attempt)
    cells = tuple((key, found[key]) for key in sorted(found) if found[key].value is not None)
    return RangeRead(start, reached, cells)


# ---------------------------------------------------------------------- COMMIT_TX


def commit(attempt: Attempt, known: Known) -> Steps[bool]:
    """Commit the buffered writes; False if another transaction was in the way, and nothing of them is kept.

    Raises F1Error TRANSACTION_EXPIRED, OUT_OF_RANGE (nothing is kept), UNKNOWN_OUTCOME.
    """
    if not attempt.writes:
        return True
    own_row = transaction_key(attempt.start_ts)
    rows = {own_row, *(attempt.rows[key] for key in attempt.writes if attempt.rows.get(key))}
    if len(rows) > MAX_LOCKS:
        text = (
            f"a transaction writes up to {MAX_LOCKS - 1} rows that are looked at for conflicts, not {len(rows) - 1}: "
            "write them in several, or commit with check=False"
        )
        raise F1Error(Code.OUT_OF_RANGE, text)
    attempt.commit_lease = yield Acquire(tuple(WantedLock(name, Mode.WRITE) for name in sorted(rows)))
    leases = (attempt.lease, attempt.commit_lease)
    checked = [key for key in sorted(attempt.writes) if attempt.rows.get(key)]
    if (yield from _has_conflict(attempt, checked, known)):
        yield from _release(attempt)
        return False
    written = tuple(Write(key, attempt.start_ts, value) for key, value in sorted(attempt.writes.items()))
    yield Put(written)
    # From here on the values are there for others to meet; they mean nothing until the row is there.
    held: bool = yield Validate(leases)
    committed = held and (yield from _decide_own(attempt, own_row, known))
    if not committed:
        # It never will be: these values are of no use to anybody, and no decision has to be left for them.
        yield from _remove((write.key, write.ts) for write in written)
    readable: bool = held or (yield Validate((attempt.lease,)))
    yield from _release(attempt)
    if not readable:
        raise expired()
    return committed


def _release(attempt: Attempt) -> Steps[None]:
    yield Release(tuple(token for token in (attempt.lease, attempt.commit_lease) if token is not None))
    attempt.released = True


def _decide_own(attempt: Attempt, own_row: bytes, known: Known) -> Steps[bool]:
    """Phase two: the commit timestamp, and the row that makes it so."""
    attempt.commit_ts = yield NextTimestamp()
    if (attempt.reads or attempt.ranges) and not (yield from _reads_stand(attempt, known)):
        return False
    attempt.deciding = True
    found: bytes = yield PutIfAbsent(Write(own_row, 0, encode_decision(attempt.commit_ts)))
    attempt.deciding = False
    decision = known[attempt.start_ts] = decode_decision(found)
    attempt.committed = decision == attempt.commit_ts
    return attempt.committed


def _has_conflict(attempt: Attempt, keys: Sequence[bytes], known: Known) -> Steps[bool]:
    """Tell whether another transaction has committed to one of these cells since this one started.

    Their rows are locked. So who wrote a version there and has no row in the transaction table does not look for
    conflicts, or has lost its lock: it is waited for or failed, and then its version does not count.
    """
    below = dict.fromkeys(keys, EVERYTHING)
    while below:
        asked = tuple(sorted(below.items()))
        answers: list[Version | None] = yield GetVersions(asked)
        versions = {key: v for (key, _), v in zip(asked, answers, strict=True) if v is not None}
        decisions = yield from decide({v.ts for v in versions.values()}, known)
        if any(decisions[version.ts] > attempt.start_ts for version in versions.values()):
            return True
        below = {key: version.ts for key, version in versions.items() if decisions[version.ts] == FAILED}
    return False


# ---------------------------------------------------------------------- serializable mode


def _reads_stand(attempt: Attempt, known: Known) -> Steps[bool]:
    """Tell whether a read at the commit timestamp would find what the transaction read (beyond the patent).

    Whoever committed in between had its commit timestamp before this one, and so its values in their cells before the
    look that is taken here. Nobody is waited for, or two transactions might wait for one another: of two that meet, the
    one that started first fails the other.
    """
    below = dict.fromkeys(attempt.reads, attempt.commit_ts)
    while below:
        asked = tuple(sorted(below.items()))
        answers: list[Version | None] = yield GetVersions(asked)
        versions = {key: version for (key, _), version in zip(asked, answers, strict=True)}
        visible = yield from _visible_at_commit(attempt, versions, known)
        if visible is None or any(attempt.reads[key] != ts for key, ts in visible.items()):
            return False
        below = {key: v.ts for key, v in versions.items() if v is not None and key not in visible}
    for read in attempt.ranges:
        if not (yield from _range_stands(attempt, read, known)):
            return False
    return True


def _visible_at_commit(
    attempt: Attempt, versions: Mapping[bytes, Version | None], known: Known
) -> Steps[dict[bytes, int] | None]:
    """Return for each cell whose version is visible at the commit timestamp its writer, 0 for none and deletes.

    None: an earlier transaction is under way there.
    """
    starts = {v.ts for v in versions.values() if v is not None and v.ts != attempt.start_ts}
    decisions = yield from look_up(starts, known)
    for ts in sorted(starts - decisions.keys()):
        if ts < attempt.start_ts:
            return None
        decisions[ts] = yield from fail(ts, known)
    visible: dict[bytes, int] = {}
    for key, version in versions.items():
        if version is None:
            visible[key] = 0
        elif version.ts != attempt.start_ts and FAILED != decisions[version.ts] < attempt.commit_ts:
            visible[key] = 0 if version.value is None else version.ts
    return visible


def _range_stands(attempt: Attempt, read: RangeRead, known: Known) -> Steps[bool]:
    expected = {key: seen.ts for key, seen in read.cells}
    limit = len(expected) + 100
    start = read.start
    while start < read.end:
        page: list[tuple[bytes, list[Version]]] = yield ReadRange(start, read.end, attempt.commit_ts, limit)
        start = read.end if len(page) < limit else page[-1][0] + b"\x00"
        versions: dict[bytes, Version | None] = {key: found[0] for key, found in page}
        while versions:
            visible = yield from _visible_at_commit(attempt, versions, known)
            if visible is None or any(expected.pop(key, 0) != ts for key, ts in visible.items()):
                return False
            rest = tuple((key, v.ts) for key, v in sorted(versions.items()) if v is not None and key not in visible)
            if not rest:
                break
            answers: list[Version | None] = yield GetVersions(rest)
            versions = {key: version for (key, _), version in zip(rest, answers, strict=True)}
    return not expected
