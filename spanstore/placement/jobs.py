"""Moves of ranges as rows of the meta group: who wants what moved, and how far it is.

A row per job. Whoever changes one expects the version that he has read, so that a mover that has been replaced changes
nothing. Jobs are carried out one after the other in the order of their numbers, which ascend for ever: a group tells
old messages from new ones by them.
"""

from enum import StrEnum

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.borders import check_interval
from spanstore.placement.range_map import META_GROUP, SYSTEM_TABLE_ID, RangeMap

_JOBS = "range_jobs"
COUNTER_KEY = tuples.encode((SYSTEM_TABLE_ID, "range_job_counter"))
"""The number of the newest job, as a tuple of one."""

FIRST_JOB_KEY = tuples.encode((SYSTEM_TABLE_ID, _JOBS))
JOBS_END = FIRST_JOB_KEY + b"\xff"

KEPT_JOBS = 50
"""Jobs that have ended and are still shown."""


class JobState(StrEnum):
    """How far a job is. Up to CEDING it can be cancelled."""

    PENDING = "pending"
    """Nothing has happened yet."""
    COPYING = "copying"
    """The new group receives copies while the old one serves."""
    CEDING = "ceding"
    """The old group gives the range up, the new group receives the rest and owns it; the range map follows."""
    OWNING = "owning"
    """The same, and the old group has given it up for certain, as somebody learned who wanted to cancel the move."""
    CLEANING = "cleaning"
    """The new group serves; the old one removes its rows."""
    CANCELLING = "cancelling"
    """The old group keeps the range; the new one removes what it has received."""
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    """Given up, because it came no further; all is as if it had been cancelled."""


ENDED = frozenset({JobState.DONE, JobState.CANCELLED, JobState.FAILED})


class MoveJob(msgspec.Struct, frozen=True, array_like=True):
    """Move ``[start, end)`` to the group ``target``.

    ``source`` is the group that owned it when the move began. ``owner`` is the server that carries it out, ``epoch``
    counts the owners. ``message`` says why it was cancelled or failed, or what it waits for. Timestamps are
    microseconds; ``progress_ts`` is when more than the message changed.
    """

    number: int
    start: bytes
    end: bytes
    target: int
    created_ts: int
    state: JobState = JobState.PENDING
    source: int = -1
    owner: str = ""
    epoch: int = 0
    cancel: bool = False
    message: str = ""
    updated_ts: int = 0
    rows: int = 0
    progress_ts: int = 0

    @property
    def ended(self) -> bool:
        """Tell whether nothing more will happen."""
        return self.state in ENDED


def job_key(number: int) -> bytes:
    """Return the key of a job's row."""
    return tuples.encode((SYSTEM_TABLE_ID, _JOBS, number))


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(MoveJob)


def encode_job(job: MoveJob) -> bytes:
    """Return the value of a job's row."""
    return _ENCODER.encode(job)


def decode_job(data: bytes) -> MoveJob:
    """Read what :func:`encode_job` wrote. Raises DATA_CORRUPTION."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the row of a range job cannot be read: {error}") from error


def source_of(ranges: RangeMap, groups: set[int], start: bytes, end: bytes, target: int) -> int:
    """Return the group that owns all of ``[start, end)``, which can move to ``target``.

    Raises INVALID_ARGUMENT, NOT_FOUND (no such group), FAILED_PRECONDITION (several groups own it).
    """
    check_interval(start, end)
    if target not in groups:
        known = ", ".join(map(str, sorted(groups)))
        raise F1Error(Code.NOT_FOUND, f"there is no group {target}; there are {known}")
    owners = {group for _, _, group in ranges.pieces(start, end)}
    if len(owners) > 1:
        names = ", ".join(map(str, sorted(owners)))
        raise F1Error(Code.FAILED_PRECONDITION, f"groups {names} own parts of the range: move the parts one by one")
    return owners.pop() if owners else META_GROUP
