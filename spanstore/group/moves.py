"""A leader's part in the moves of ranges: it answers their movers, and gives up a range only when nothing holds it.

The package docstring of :mod:`spanstore.placement` has the protocol. What the log must say is checked once more when
it is applied (:mod:`spanstore.placement.holdings`); here is what only a leader knows: locks, commands under way, time.

Giving up a range has two steps. While it is *closing*, nothing new that would lock or decide in it is taken in, its
unprepared transactions are wounded, and prepared ones are waited for, up to a limit, after which all is as before. Then
it is *sealed*: the command is on its way through the log, and reads are refused as well.
"""

from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from f1common.clock import Now
from f1common.errors import Code, F1Error
from spanstore.engine import keyspace
from spanstore.engine.base import Reader
from spanstore.group import exporting
from spanstore.group.config import GroupConfig
from spanstore.group.move_requests import (
    Abandon,
    BeginMove,
    Cede,
    Clear,
    Export,
    MoveReply,
    MoveRequest,
    Own,
    Stage,
    checksum_of,
)
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.ownership import check_owned, touched_by, wrong_range
from spanstore.group.requests import Read, Request, Settle
from spanstore.group.state import Done, ReplicatedState
from spanstore.mvcc.versions import decode_version
from spanstore.placement.holdings import Incoming
from spanstore.txn.commands import (
    AbandonCmd,
    BeginMoveCmd,
    CedeCmd,
    ClearCmd,
    CopyStage,
    MoveCommand,
    OwnCmd,
    Progress,
    StageCmd,
)
from spanstore.txn.spans import Span

_CLEAR_ITEMS = 5_000
_OUTCOME_MARGIN_US = 60_000_000
"""How much more of the outcomes a pass ships again, should clocks be outside their bounds."""


class Work(Protocol):
    """What is under way in a term, as far as a move must know."""

    def propose_move(self, command: MoveCommand) -> int:
        """Log a command and return its index. Raises FAILED_PRECONDITION while not all members know it."""
        ...

    def drain(self, span: Span) -> bool:
        """Wound the unprepared transactions that lock something in ``span``; tell whether nothing is left there."""
        ...

    def read_rows(self, ticket: Ticket) -> None:
        """Answer a ticket whose request is an Export, at a timestamp that is settled for its range."""
        ...

    def promised_ts(self) -> int:
        """Return a timestamp at or above everything that was given out or promised in this term and before."""
        ...

    def promise(self, ts: int) -> None:
        """Give out no timestamp at or below ``ts``."""
        ...

    def oldest_decision_ts(self) -> int | None:
        """Return the timestamp of the oldest outcome that is on its way through the log."""
        ...


def _damaged_on_its_way() -> F1Error:
    """Return the error of a piece that is not what was sent: nothing is wrong with the replica that refuses it."""
    return F1Error(Code.DATA_CORRUPTION, "a piece of a range was damaged on its way; it is sent again", retryable=True)


@dataclass(slots=True)
class _Closing:
    """A range that is to be given up: who asked, and until when to try. ``index``: of the entry, once it is sealed."""

    request: Cede
    tickets: list[Ticket]
    give_up_us: int
    index: int = 0

    @property
    def span(self) -> Span:
        return Span(self.request.start, self.request.end)


class Moves:
    """The moves that one leader takes part in during its term."""

    def __init__(self, work: Work, state: ReplicatedState, config: GroupConfig, out: Outbox, term: int) -> None:
        self._work = work
        self._state = state
        self._config = config
        self._out = out
        self._term = term
        self._closing: _Closing | None = None
        self._flights: dict[int, tuple[int, list[Ticket]]] = {}

    # ------------------------------------------------------------------ what may be worked on

    def admit(self, request: Request) -> None:
        """Raise WRONG_RANGE for what touches keys that the group does not own, or is about to give up."""
        if isinstance(request, Export) and request.stage in exporting.LAST:
            return
        check_owned(self._state.holding, request, self._state.group)
        closing = self._closing
        if closing is None or (not closing.index and isinstance(request, Read | Settle | Export)):
            return
        for span in touched_by(request):
            if closing.span.overlaps(span):
                raise wrong_range(self._state.group, closing.span, closing.request.heir)

    # ------------------------------------------------------------------ requests

    def handle(self, ticket: Ticket, request: MoveRequest, reader: Reader, now: Now) -> None:
        """Answer a mover, now or later."""
        match request:
            case BeginMove():
                self._begin(ticket, request)
            case Export():
                self._export(ticket, request, reader, now)
            case Stage():
                self._stage(ticket, request, reader)
            case Cede():
                self._cede(ticket, request, now)
            case Own():
                self._own(ticket, request, now)
            case Clear():
                self._clear(ticket, request, reader)
            case Abandon():
                self._abandon(ticket, request)

    def _begin(self, ticket: Ticket, request: BeginMove) -> None:
        record = self._state.holding.record
        known = record.incoming is not None and record.incoming.move >= request.move
        if known or request.move <= record.closed:
            self._answer(ticket, request.move)
            return
        if record.owns_any(request.start, request.end):
            raise F1Error(Code.FAILED_PRECONDITION, f"group {self._state.group} owns some of what it is to receive")
        self._propose(BeginMoveCmd(request.move, request.start, request.end, request.source), ticket)

    def _export(self, ticket: Ticket, request: Export, reader: Reader, now: Now) -> None:
        record = self._state.holding.record
        if request.stage in exporting.LAST:
            ceded = record.ceded_by(request.move)
            if ceded is None or (ceded.start, ceded.end) != (request.start, request.end):
                text = f"group {self._state.group} has not ceded the range for move {request.move}"
                raise F1Error(Code.FAILED_PRECONDITION, text)
            answer = exporting.export(reader, self._state.group, request, ceded.last_ts)
            self._out.send_leased(ticket.reply, answer, self._term)
        elif request.stage is CopyStage.ROWS:
            self._work.read_rows(ticket)
        else:
            ts = request.timestamp or self._decided_before(now)
            self._out.send_leased(ticket.reply, exporting.export(reader, self._state.group, request, ts), self._term)

    def _decided_before(self, now: Now) -> int:
        """Return a timestamp at or below which no outcome will be decided that is not applied here.

        Decisions in flight say when they were made, and later ones are made later, whoever leads. The margin is for
        clocks that lie.
        """
        oldest = self._work.oldest_decision_ts()
        ts = now.tt.earliest - 1 if oldest is None else min(now.tt.earliest, oldest) - 1
        return max(1, ts - _OUTCOME_MARGIN_US)

    def _stage(self, ticket: Ticket, request: Stage, reader: Reader) -> None:
        incoming = self._state.holding.record.incoming
        if incoming is None or incoming.move != request.move or incoming.seq + 1 != request.seq:
            self._answer(ticket, request.move)
            return
        if request.checksum != checksum_of(request.items):
            raise _damaged_on_its_way()
        if request.clear:
            self._propose(self._next_clear(incoming, reader), ticket)
            return
        stage, items = incoming.progress.stage, request.items
        command = StageCmd(request.move, request.seq, request.progress)
        if stage in exporting.ROWS:
            self._check_rows(incoming, request)
            command = replace(command, versions=items)
        elif stage in exporting.OUTCOMES:
            command = replace(command, outcomes=items)
        elif stage is CopyStage.LAST_FINISHED:
            command = replace(command, finished=items)
        self._propose(command, ticket)

    def _check_rows(self, incoming: Incoming, request: Stage) -> None:
        """Refuse rows that nobody could read, or that lie elsewhere. Raises DATA_CORRUPTION, INVALID_ARGUMENT."""
        prefix = keyspace.data_prefix(self._state.group)
        for key, value in request.items:
            if not incoming.start <= key < incoming.end:
                raise F1Error(Code.INVALID_ARGUMENT, f"key {key.hex()} lies outside of the range that is received")
            try:
                decode_version(prefix + key, value)
            except F1Error as error:
                raise _damaged_on_its_way() from error

    def _next_clear(self, incoming: Incoming, reader: Reader) -> StageCmd:
        left = exporting.leftovers(reader, self._state.group, incoming.start, incoming.end, _CLEAR_ITEMS)
        stage = CopyStage.CLEARING if left is not None else CopyStage.ROWS
        return StageCmd(incoming.move, incoming.seq + 1, Progress(stage), clear=left)

    def _cede(self, ticket: Ticket, request: Cede, now: Now) -> None:
        record = self._state.holding.record
        if request.move <= record.closed:
            self._answer(ticket, request.move)
            return
        closing = self._closing
        if closing is not None:
            if closing.request != request:
                raise F1Error(Code.ABORTED, f"move {closing.request.move} is closing a range here; retry later")
            closing.tickets.append(ticket)
            return
        if not record.owns_all(request.start, request.end):
            raise wrong_range(self._state.group, Span(request.start, request.end))
        self._closing = _Closing(request, [ticket], now.boot_us + self._config.cede_patience_us)
        self.go_on(now)

    def go_on(self, now: Now) -> None:
        """A turn begins: look whether the range that is closing can be sealed, or for how long it has been tried."""
        closing = self._closing
        if closing is None or closing.index:
            return
        free = self._work.drain(closing.span)
        last_ts = self._work.promised_ts()
        # What lies ahead of this clock could lie further ahead of the heir's: it passes soon.
        if free and last_ts <= now.tt.latest:
            r = closing.request
            command = CedeCmd(r.move, r.start, r.end, r.heir, last_ts, now.tt.earliest)
            try:
                closing.index = self._work.propose_move(command)
            except F1Error as error:
                if error.code is not Code.FAILED_PRECONDITION:
                    raise
                self._reopen(error)  # a member has come that does not know the command
                return
            self._flights[closing.index] = (r.move, closing.tickets)
        elif closing.give_up_us <= now.boot_us:
            self._reopen(
                F1Error(Code.ABORTED, "prepared transactions hold keys of the range and do not end; retry later")
            )

    def is_closing(self) -> bool:
        """Tell whether a range waits for transactions to end."""
        return self._closing is not None and not self._closing.index

    def _reopen(self, error: F1Error) -> None:
        closing, self._closing = self._closing, None
        for ticket in closing.tickets if closing is not None else []:
            self._out.send(ticket.reply, error)

    def _own(self, ticket: Ticket, request: Own, now: Now) -> None:
        incoming = self._state.holding.record.incoming
        if incoming is None or incoming.move != request.move or incoming.progress.stage is not CopyStage.READY:
            self._answer(ticket, request.move)
            return
        if request.floor_ts > now.tt.latest + self._config.max_skew_us:
            raise F1Error(
                Code.CLOCK_SKEW,
                f"the range comes from a group whose time is {request.floor_ts - now.tt.latest} us ahead, more than "
                "clocks may differ: repair the clock of its leader, or of this server",
            )
        self._work.promise(request.floor_ts)
        self._propose(OwnCmd(request.move, request.floor_ts, request.mark_ts), ticket)

    def _clear(self, ticket: Ticket, request: Clear, reader: Reader) -> None:
        if not self._state.holding.record.may_clear(request.move, request.start, request.end):
            raise F1Error(Code.FAILED_PRECONDITION, f"there is nothing left of move {request.move} to be removed")
        left = exporting.leftovers(reader, self._state.group, request.start, request.end, _CLEAR_ITEMS)
        if left is None:
            self._answer(ticket, request.move, done=True)
        else:
            self._propose(ClearCmd(request.move, *left), ticket)

    def _abandon(self, ticket: Ticket, request: Abandon) -> None:
        if request.move <= self._state.holding.record.closed:
            self._answer(ticket, request.move)
            return
        closing = self._closing
        if closing is not None and closing.request.move == request.move:
            if closing.index:
                raise F1Error(Code.ABORTED, "the range is just being given up; ask again")
            self._reopen(F1Error(Code.CANCELLED, f"move {request.move} was abandoned"))
        self._propose(AbandonCmd(request.move), ticket)

    # ------------------------------------------------------------------ what was logged

    def _propose(self, command: MoveCommand, ticket: Ticket) -> None:
        self._flights[self._work.propose_move(command)] = (command.move, [ticket])

    def durable(self, done: Done) -> None:
        """An entry is applied: tell who waits how the group stands now."""
        closing = self._closing
        if closing is not None and closing.index == done.index:
            self._closing = None
        if isinstance(done.command, OwnCmd):
            # Whoever proposed it: nothing is given out in the range at or below the timestamps of its old group.
            self._work.promise(done.command.floor_ts)
        move, tickets = self._flights.pop(done.index, (0, []))
        for ticket in tickets:
            self._answer(ticket, move)

    def close(self, error: F1Error) -> None:
        """The term is over."""
        if self._closing is not None and not self._closing.index:
            self._reopen(error)
        for index in sorted(self._flights):
            for ticket in self._flights[index][1]:
                self._out.send(ticket.reply, error)

    def _answer(self, ticket: Ticket, move: int, *, done: bool = False) -> None:
        record = self._state.holding.record
        incoming = record.incoming if record.incoming is not None and record.incoming.move == move else None
        mark_ts = self._state.collected.mark_ts
        reply = MoveReply(record.closed, incoming, record.ceded_by(move), done, mark_ts)
        self._out.send_leased(ticket.reply, reply, self._term)
