"""Is a history of transactions snapshot isolation (or, where it was promised, serializable)?

The transactions name their versions by their own start timestamps, and all decisions are known, so that the check is
direct: every read is compared with what the decisions say that its snapshot held.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spanstore.testing.checkers.violation import Violation

__all__ = ["SnapshotRange", "SnapshotTxn", "check_snapshot_isolation"]

NAME = "snapshot isolation"


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """What was found in ``start <= key < end``: keys and the start timestamps of the writers of their values."""

    start: bytes
    end: bytes
    found: tuple[tuple[bytes, int], ...]


@dataclass(slots=True)
class SnapshotTxn:
    """One transaction as its client saw it.

    ``began`` and ``ended`` count events of the whole history, the same for all clients. ``committed``: what commit
    said, None if nothing. ``reads``: key and the writer of what was found, 0 for nothing. ``writes``: key and whether
    it is a value (else a delete). ``checked`` and ``serializable`` are the keys for which that was promised.
    """

    start: int
    began: int
    ended: int | None = None
    committed: bool | None = None
    reads: list[tuple[bytes, int]] = field(default_factory=list)
    ranges: list[SnapshotRange] = field(default_factory=list)
    writes: dict[bytes, bool] = field(default_factory=dict)
    checked: set[bytes] = field(default_factory=set)
    serializable: bool = False


class _Versions:
    """Which version of each key is visible when."""

    def __init__(self, transactions: Iterable[SnapshotTxn], decisions: Mapping[int, int]) -> None:
        self.by_key: dict[bytes, list[tuple[int, int, bool]]] = {}
        for txn in transactions:
            commit = decisions.get(txn.start, -1)
            if commit > 0:
                for key, is_value in txn.writes.items():
                    self.by_key.setdefault(key, []).append((txn.start, commit, is_value))
        for versions in self.by_key.values():
            versions.sort(reverse=True)

    def visible(self, key: bytes, at: int, besides: int = 0) -> int:
        """Return the writer of the value of ``key`` at a timestamp, 0 if there is none."""
        for start, commit, is_value in self.by_key.get(key, ()):
            if commit < at and start != besides:
                return start if is_value else 0
        return 0

    def range(self, found: SnapshotRange, at: int, besides: int = 0) -> tuple[tuple[bytes, int], ...]:
        keys = sorted(key for key in self.by_key if found.start <= key < found.end)
        seen = ((key, self.visible(key, at, besides)) for key in keys)
        return tuple((key, writer) for key, writer in seen if writer)


def check_snapshot_isolation(transactions: Sequence[SnapshotTxn], decisions: Mapping[int, int]) -> list[Violation]:
    """Return what is wrong. ``decisions``: start timestamp -> commit timestamp, or anything below 1 for failed."""
    versions = _Versions(transactions, decisions)
    found = [*_wrong_reads(transactions, versions), *_wrong_answers(transactions, decisions)]
    found += _lost_updates(transactions, decisions)
    found += _not_serial(transactions, decisions, versions)
    found += _out_of_order(transactions, decisions)
    return found


def _wrong_reads(transactions: Sequence[SnapshotTxn], versions: _Versions) -> list[Violation]:
    found = []
    for txn in transactions:
        for key, writer in txn.reads:
            expected = versions.visible(key, txn.start)
            if writer != expected:
                found.append(
                    Violation(NAME, f"{txn.start} read {key!r} of {writer}, its snapshot has it of {expected}")
                )
        for item in txn.ranges:
            if item.found != (expected_range := versions.range(item, txn.start)):
                found.append(Violation(NAME, f"{txn.start} found {item.found}, its snapshot has {expected_range}"))
    return found


def _wrong_answers(transactions: Sequence[SnapshotTxn], decisions: Mapping[int, int]) -> list[Violation]:
    found = []
    for txn in transactions:
        committed = decisions.get(txn.start, -1) > 0
        if txn.committed is not None and txn.writes and txn.committed != committed:
            found.append(
                Violation(NAME, f"{txn.start} was told {txn.committed}, the transaction table says {committed}")
            )
    return found


def _lost_updates(transactions: Sequence[SnapshotTxn], decisions: Mapping[int, int]) -> list[Violation]:
    writers: dict[bytes, list[tuple[int, int]]] = {}
    for txn in transactions:
        commit = decisions.get(txn.start, -1)
        if commit > 0:
            for key in txn.writes.keys() & txn.checked:
                writers.setdefault(key, []).append((commit, txn.start))
    found = []
    for key in sorted(writers):
        spans = sorted(writers[key])
        for (commit, _), (_, start) in itertools.pairwise(spans):
            if start < commit:
                found.append(Violation(NAME, f"lost update of {key!r}: {start} overlaps what committed at {commit}"))
    return found


def _not_serial(
    transactions: Sequence[SnapshotTxn], decisions: Mapping[int, int], versions: _Versions
) -> list[Violation]:
    """Serializable transactions read at their commit timestamps what they read at their starts."""
    found = []
    for txn in transactions:
        commit = decisions.get(txn.start, -1)
        if not txn.serializable or commit <= 0:
            continue
        for key, writer in txn.reads:
            if versions.visible(key, commit, txn.start) != writer:
                found.append(Violation(NAME, f"{txn.start} is not serializable: {key!r} changed before {commit}"))
        for item in txn.ranges:
            if versions.range(item, commit, txn.start) != item.found:
                found.append(Violation(NAME, f"{txn.start} is not serializable: a range changed before {commit}"))
    return found


def _out_of_order(transactions: Sequence[SnapshotTxn], decisions: Mapping[int, int]) -> list[Violation]:
    """Who begins after a commit was acknowledged sees it."""
    found = []
    ends = sorted(
        (txn.ended, decisions.get(txn.start, -1)) for txn in transactions if txn.committed and txn.ended is not None
    )
    highest, place = 0, 0
    for txn in sorted(transactions, key=lambda t: t.began):
        while place < len(ends) and ends[place][0] < txn.began:
            highest = max(highest, ends[place][1])
            place += 1
        if txn.start < highest:
            found.append(Violation(NAME, f"{txn.start} began after a commit at {highest} was acknowledged"))
    return found
