"""What a group owns, receives and has given away, as its log says: pure rules of one replicated record.

The record is kept by every replica. ``after_*`` return what a command makes of it, or None if the command has come too
late or too often and must do nothing. Every rule is decided by the record alone, so that all replicas decide alike.

``closed`` is the number of the highest move that has ended here, whichever way. Moves have ascending numbers and run
one after the other, so that everything about a move at or below it is an old message.
"""

from collections.abc import Iterable

import msgspec

from f1common.errors import Code, F1Error
from spanstore.placement.range_map import OwnedRanges, Range
from spanstore.txn.commands import (
    AbandonCmd,
    BeginMoveCmd,
    CedeCmd,
    CopyStage,
    OwnCmd,
    Progress,
    StageCmd,
)

MAX_CEDED = 64
"""How many ranges given away are remembered, so that whoever asks can be told the heir."""

Interval = tuple[bytes, bytes]


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A positional record."""


class Incoming(_Record, frozen=True, array_like=True, gc=False):
    """A range on its way here: ``seq`` counts the pieces that were logged."""

    move: int
    start: bytes
    end: bytes
    source: int
    seq: int
    progress: Progress


class Ceded(_Record, frozen=True, array_like=True, gc=False):
    """A range given away; see :class:`~spanstore.txn.commands.CedeCmd`."""

    move: int
    start: bytes
    end: bytes
    heir: int
    last_ts: int
    earliest_ts: int


class Holdings(_Record, frozen=True, array_like=True, gc=False):
    """The record. ``epoch`` counts changes of ``ranges``, which are sorted and do not touch each other."""

    epoch: int
    ranges: tuple[Interval, ...]
    closed: int = 0
    incoming: Incoming | None = None
    ceded: tuple[Ceded, ...] = ()

    def owned(self) -> OwnedRanges:
        """Return the ranges for quick checks."""
        return OwnedRanges(Range(start, end, 0) for start, end in self.ranges)

    def owns_any(self, start: bytes, end: bytes) -> bool:
        """Tell whether some key of ``[start, end)`` is owned."""
        return any(low < end and start < high for low, high in self.ranges)

    def owns_all(self, start: bytes, end: bytes) -> bool:
        """Tell whether all keys of ``[start, end)`` are owned."""
        return any(low <= start and end <= high for low, high in self.ranges)

    def ceded_by(self, move: int) -> Ceded | None:
        """Return what was given away by a move, None if nothing was."""
        return next((item for item in self.ceded if item.move == move), None)

    def heir_of(self, start: bytes, end: bytes) -> int | None:
        """Return the group that some of ``[start, end)`` was given to last, None if it is not remembered."""
        for item in reversed(self.ceded):
            if item.start < end and start < item.end:
                return item.heir
        return None

    def may_clear(self, move: int, start: bytes, end: bytes) -> bool:
        """Tell whether rows in ``[start, end)`` are what the move ``move`` left behind."""
        return move == self.closed and self.incoming is None and not self.owns_any(start, end)


def first_holdings(ranges: Iterable[Interval]) -> Holdings:
    """Return the record of a group that never took part in a move."""
    return Holdings(0, joined(ranges))


def joined(ranges: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the ranges sorted, those that touch put together."""
    result: list[Interval] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def without(ranges: Iterable[Interval], start: bytes, end: bytes) -> tuple[Interval, ...]:
    """Return the ranges less ``[start, end)``."""
    result: list[Interval] = []
    for low, high in ranges:
        pieces = ((low, min(high, start)), (max(low, end), high)) if low < end and start < high else ((low, high),)
        result.extend(piece for piece in pieces if piece[0] < piece[1])
    return tuple(result)


def after_begin(holdings: Holdings, command: BeginMoveCmd) -> Holdings | None:
    """A range is announced. A copy that was given up before gives way to it."""
    if command.move <= holdings.closed or holdings.owns_any(command.start, command.end):
        return None
    if holdings.incoming is not None and holdings.incoming.move >= command.move:
        return None
    incoming = Incoming(command.move, command.start, command.end, command.source, 0, Progress())
    return msgspec.structs.replace(holdings, incoming=incoming)


def after_stage(holdings: Holdings, command: StageCmd) -> Holdings | None:
    """A piece of a copy. Only the next one counts: a repeated or late one could bring back what was deleted since."""
    incoming = holdings.incoming
    if incoming is None or incoming.move != command.move or incoming.seq + 1 != command.seq:
        return None
    incoming = msgspec.structs.replace(incoming, seq=command.seq, progress=command.progress)
    return msgspec.structs.replace(holdings, incoming=incoming)


def after_cede(holdings: Holdings, command: CedeCmd) -> Holdings | None:
    """A range is given away."""
    if command.move <= holdings.closed or not holdings.owns_all(command.start, command.end):
        return None
    ceded = Ceded(command.move, command.start, command.end, command.heir, command.last_ts, command.earliest_ts)
    return msgspec.structs.replace(
        holdings,
        epoch=holdings.epoch + 1,
        ranges=without(holdings.ranges, command.start, command.end),
        closed=command.move,
        ceded=(*holdings.ceded, ceded)[-MAX_CEDED:],
    )


def after_own(holdings: Holdings, command: OwnCmd) -> Holdings | None:
    """The range that was received is owned."""
    incoming = holdings.incoming
    if incoming is None or incoming.move != command.move or incoming.progress.stage is not CopyStage.READY:
        return None
    return Holdings(
        epoch=holdings.epoch + 1,
        ranges=joined([*holdings.ranges, (incoming.start, incoming.end)]),
        closed=command.move,
        incoming=None,
        # Whoever asks for what is back finds it here.
        ceded=tuple(c for c in holdings.ceded if not (incoming.start <= c.start and c.end <= incoming.end)),
    )


def after_abandon(holdings: Holdings, command: AbandonCmd) -> Holdings | None:
    """The move has ended without effect, if nothing was ceded for it and nothing of it is owned."""
    if command.move <= holdings.closed:
        return None
    incoming = holdings.incoming
    if incoming is not None and incoming.move <= command.move:
        incoming = None
    return msgspec.structs.replace(holdings, closed=command.move, incoming=incoming)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Holdings)


def encode_holdings(holdings: Holdings) -> bytes:
    """Return the stored bytes."""
    return _ENCODER.encode(holdings)


def decode_holdings(data: bytes) -> Holdings:
    """Read what :func:`encode_holdings` wrote. Raises F1Error DATA_CORRUPTION."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the record of a group's ranges cannot be read: {error}") from error
