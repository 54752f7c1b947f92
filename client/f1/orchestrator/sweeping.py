"""The sweep: old versions, values of failed transactions and decisions that nobody needs any more are removed.

The *horizon* is a timestamp such that every transaction that reads now or later started above it. Of each cell the
newest version that was committed at or below the horizon is what all of them see, or something newer; whatever has an
earlier start timestamp than that version, no reader ever gets to. If that version is a delete, it goes too, after all
that it hides, so that a cell that was deleted leaves nothing behind.

Why no transaction that reads can have started at or below the horizon: it leased a bound below its start timestamp
before it got that. The sweep takes a timestamp *first* and asks for the lowest bound *then*. A lease that it does not
see was granted later, or was lost with the memory of the lock service; in the first case the start timestamp is above
the sweep's, in the second the transaction learns from each of its reads that its lease is no longer valid.

Transactions at or below the horizon that have no row in the transaction table are failed before their values are
removed, since they could be about to commit. Their rows stay for ever, one for each client that died or stood still
in the middle of a commit: it may come back and try. The row of a committed transaction goes when none of its values
is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from f1.orchestrator.protocol import (
    DECISIONS,
    EVERYTHING,
    FAILED,
    Known,
    decode_decision,
    fail,
    look_up,
    transaction_of,
)
from f1.orchestrator.steps import Delete, NextTimestamp, OldestBound, ReadRange, Steps, Version
from f1common.encoding import tuple as tuples

__all__ = ["SweepReport", "horizon", "sweep"]

_CELLS = (tuples.encode(("",)), b"\xff")
"""All cells: names of tables are text, and keys of the transaction table begin with NULL."""


@dataclass(slots=True)
class SweepReport:
    """What a sweep has removed, or with a dry run would have.

    ``old_versions`` were overtaken, ``deletes`` are tombstones, ``failed_values`` belong to failed transactions, of
    which ``failed_now`` had no decision yet. ``decisions`` are rows of the transaction table, ``kept_failures`` those
    that have to stay.
    """

    horizon: int = 0
    dry_run: bool = False
    cells: int = 0
    old_versions: int = 0
    deletes: int = 0
    failed_values: int = 0
    failed_now: int = 0
    decisions: int = 0
    kept_failures: int = 0


def horizon() -> Steps[int]:
    """Return a timestamp that no transaction started at or below whose reads can still succeed."""
    now: int = yield NextTimestamp()
    oldest: int | None = yield OldestBound()
    return now if oldest is None else min(now, oldest)


def sweep(known: Known, *, dry_run: bool = False, page: int = 500) -> Steps[SweepReport]:
    """Go over everything once, ``page`` cells at a time. Any number of sweeps may run at once, or end anywhere."""
    report = SweepReport((yield from horizon()), dry_run)
    if dry_run:
        known = dict(known)  # for what would have been decided
    used: set[int] = set()
    start, end = _CELLS
    while True:
        cells: list[tuple[bytes, list[Version]]] = yield ReadRange(start, end, EVERYTHING, page, every=True)
        yield from _sweep_cells(cells, used, known, report)
        if len(cells) < page:
            break
        start = cells[-1][0] + b"\x00"
    yield from _sweep_decisions(used, report, page)
    if dry_run:
        report.kept_failures += report.failed_now  # whose rows are not there yet
    return report


def _sweep_cells(
    cells: Sequence[tuple[bytes, Sequence[Version]]], used: set[int], known: Known, report: SweepReport
) -> Steps[None]:
    starts = {version.ts for _, versions in cells for version in versions}
    decisions = yield from look_up(starts, known)
    for ts in sorted(starts - decisions.keys()):
        if ts <= report.horizon:
            decisions[ts] = known[ts] = FAILED if report.dry_run else (yield from fail(ts, known))
            report.failed_now += decisions[ts] == FAILED
    garbage: list[tuple[bytes, int]] = []
    for key, versions in cells:
        report.cells += 1
        found = _garbage(versions, decisions, report)
        garbage += [(key, ts) for ts in found]
        gone = set(found)
        used.update(version.ts for version in versions if version.ts not in gone)
    if garbage and not report.dry_run:
        yield Delete(tuple(garbage))


def _garbage(versions: Sequence[Version], decisions: dict[int, int], report: SweepReport) -> list[int]:
    """Return which of a cell's versions, newest first, are to go, in the order in which they have to."""
    failed = [v.ts for v in versions if decisions.get(v.ts) == FAILED]
    report.failed_values += len(failed)
    rest = [v for v in versions if decisions.get(v.ts) != FAILED]
    # A transaction above the horizon that has no decision yet may be committing.
    below = [place for place, v in enumerate(rest) if v.ts in decisions and decisions[v.ts] <= report.horizon]
    if not below:
        return failed
    base = below[0]
    old = [v.ts for v in reversed(rest[base + 1 :])]
    report.old_versions += len(old)
    if rest[base].value is None:
        report.deletes += 1
        return [*failed, *old, rest[base].ts]
    return [*failed, *old]


def _sweep_decisions(used: set[int], report: SweepReport, page: int) -> Steps[None]:
    """Remove the rows of transactions that committed at or below the horizon and have no value any more."""
    start, end = DECISIONS
    while True:
        rows: list[tuple[bytes, list[Version]]] = yield ReadRange(start, end, EVERYTHING, page)
        garbage = []
        for key, versions in rows:
            ts = transaction_of(key)
            if ts > report.horizon or ts in used:
                continue
            if decode_decision(versions[0].value) == FAILED:
                report.kept_failures += 1
            else:
                garbage.append((key, 0))
        report.decisions += len(garbage)
        if garbage and not report.dry_run:
            yield Delete(tuple(garbage))
        if len(rows) < page:
            return
        start = rows[-1][0] + b"\x00"
