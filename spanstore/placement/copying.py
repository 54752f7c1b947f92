"""The course of a copy, as pure rules: what to ask the old group for next, and where the copy stands afterwards.

Where it stands is kept by the group that receives it, so that whoever carries the move on, also two at a time, goes on
from what is really there.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from f1common.errors import check
from spanstore.txn.commands import CopyStage, Progress

FEW_ROWS = 500
"""A pass that shipped so few is followed by the last one, for which the range is closed."""

MAX_PASSES = 6
"""After so many passes the range is written to about as fast as it is copied: the last one will not become smaller."""

_FOLLOWING = {
    CopyStage.ROWS: CopyStage.OUTCOMES,
    CopyStage.OUTCOMES: CopyStage.ROWS,
    CopyStage.LAST_ROWS: CopyStage.LAST_OUTCOMES,
    CopyStage.LAST_OUTCOMES: CopyStage.LAST_FINISHED,
    CopyStage.LAST_FINISHED: CopyStage.READY,
}


@dataclass(frozen=True, slots=True)
class Copy:
    """How the receiving group stands: ``seq`` pieces were logged."""

    seq: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask the old group for."""

    stage: CopyStage
    resume: bytes
    since_ts: int
    timestamp: int


def between_passes(progress: Progress) -> bool:
    """Tell whether a pass has ended and the next has not begun."""
    return progress.stage is CopyStage.ROWS and not progress.until_ts and not progress.resume


def caught_up(progress: Progress) -> bool:
    """Tell whether what is missing is little enough, or will not become less."""
    if not between_passes(progress) or not progress.passes:
        return False
    return progress.last_rows <= FEW_ROWS or progress.passes >= MAX_PASSES


def begin_last(progress: Progress) -> Progress:
    """The range is ceded: return where the last pass begins. A pass that was under way counts for nothing."""
    check(progress.stage in (CopyStage.ROWS, CopyStage.OUTCOMES), "the last pass begins once")
    return replace(progress, stage=CopyStage.LAST_ROWS, resume=b"", until_ts=0, outcomes_until_ts=0)


def wanted(progress: Progress, ceded_ts: int = 0) -> Wanted:
    """Return what comes next; ``ceded_ts`` is the earlier edge of the clock at which the range was ceded."""
    match progress.stage:
        case CopyStage.ROWS | CopyStage.LAST_ROWS:
            return Wanted(progress.stage, progress.resume, progress.since_ts, progress.until_ts)
        case CopyStage.LAST_FINISHED:
            return Wanted(progress.stage, progress.resume, ceded_ts, ceded_ts)
        case _:
            return Wanted(progress.stage, progress.resume, progress.outcomes_since_ts, progress.outcomes_until_ts)


def after_piece(progress: Progress, timestamp: int, items: int, resume: bytes, done: bool) -> Progress:
    """Return where the copy stands after a piece; the arguments are those of the old group's answer."""
    stage = progress.stage
    if stage is CopyStage.ROWS:
        progress = replace(progress, until_ts=progress.until_ts or timestamp)
    if stage is CopyStage.OUTCOMES:
        progress = replace(progress, outcomes_until_ts=progress.outcomes_until_ts or timestamp)
    if stage in (CopyStage.ROWS, CopyStage.LAST_ROWS):
        progress = replace(progress, rows=progress.rows + items, total=progress.total + items)
    if not done:
        return replace(progress, resume=resume)
    progress = replace(progress, stage=_FOLLOWING[stage], resume=b"")
    return _end_pass(progress) if stage is CopyStage.OUTCOMES else progress


def _end_pass(progress: Progress) -> Progress:
    """What was committed up to the timestamp of the pass has been shipped; what is newer is for the next one."""
    return replace(
        progress,
        since_ts=progress.until_ts,
        until_ts=0,
        outcomes_since_ts=progress.outcomes_until_ts,
        outcomes_until_ts=0,
        passes=progress.passes + 1,
        last_rows=progress.rows,
        rows=0,
    )
