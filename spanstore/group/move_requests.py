"""What the mover of a range asks the leaders of the two groups, and what they answer; :mod:`spanstore.placement` has
the protocol. ``move`` is the job's number, keys are bytes compared as bytes, timestamps microseconds.

All of it may be asked again and again, late, and by a mover that somebody has replaced.
"""

from collections.abc import Sequence
from zlib import crc32

import msgspec

from spanstore.placement.holdings import Ceded, Incoming
from spanstore.txn.commands import CopyStage, Progress

Item = tuple[bytes, bytes]
"""A key without group and subspace, and its value, both as stored."""


class BeginMove(msgspec.Struct, frozen=True, gc=False):
    """Expect ``[start, end)`` from the group ``source``. Asked again it tells how far the copy is."""

    move: int
    start: bytes
    end: bytes
    source: int


class Export(msgspec.Struct, frozen=True, gc=False):
    """The next items of ``[start, end)`` from ``resume`` on (empty: the beginning) that are newer than ``since_ts``.

    ``stage`` tells of what kind; the ``LAST_`` ones are answered only once the range is ceded for this move.
    ``timestamp`` is that of the pass, 0 in its first request: then the group settles on one.
    """

    move: int
    start: bytes
    end: bytes
    stage: CopyStage
    resume: bytes = b""
    since_ts: int = 0
    timestamp: int = 0


class Stage(msgspec.Struct, frozen=True, gc=False):
    """Log piece number ``seq`` of a copy. ``clear``: remove the next leftovers instead, the leader finds them."""

    move: int
    seq: int
    progress: Progress
    items: tuple[Item, ...] = ()
    checksum: int = 0
    clear: bool = False


class Cede(msgspec.Struct, frozen=True, gc=False):
    """Give ``[start, end)`` up to ``heir``, once nothing that touches it is under way."""

    move: int
    start: bytes
    end: bytes
    heir: int


class Own(msgspec.Struct, frozen=True, gc=False):
    """Own what was received, above ``floor_ts``; ``mark_ts`` is the garbage mark of the group that it comes from."""

    move: int
    floor_ts: int
    mark_ts: int = 0


class Clear(msgspec.Struct, frozen=True, gc=False):
    """Remove some of what is left of a range that was moved away, or whose move was given up."""

    move: int
    start: bytes
    end: bytes


class Abandon(msgspec.Struct, frozen=True, gc=False):
    """Have nothing more to do with the move, unless its range is ceded already."""

    move: int


MoveRequest = BeginMove | Export | Stage | Cede | Own | Clear | Abandon


class ExportReply(msgspec.Struct, frozen=True, gc=False):
    """``resume``: where to go on, unless ``done``. ``timestamp``: everything at or below it is shipped by this pass."""

    timestamp: int
    items: tuple[Item, ...]
    resume: bytes
    done: bool
    checksum: int


class MoveReply(msgspec.Struct, frozen=True, gc=False):
    """How a group stands to a move after its last applied entry; ``done``: of a Clear, nothing is left."""

    closed: int
    incoming: Incoming | None = None
    ceded: Ceded | None = None
    done: bool = False
    mark_ts: int = 0
    """The group's garbage mark: what was collected before the range was ceded lies at or below it."""


def checksum_of(items: Sequence[Item]) -> int:
    """Return the CRC-32 over items in their order."""
    result = 0
    for key, value in items:
        result = crc32(value, crc32(key, crc32(len(key).to_bytes(4, "big"), result)))
    return result
