"""Commands of transactions on their way through the log: who waits for them, and for what."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from f1common.errors import F1Error
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.requests import BundleReply, Commit, CommitReply, DecideReply, OutcomeReply, PrepareReply
from spanstore.group.state import Done
from spanstore.txn.commands import AbortCmd, BundleCmd, CommitCmd, DecideCmd, PrepareCmd, TxnRef

TxnCommand = CommitCmd | BundleCmd | PrepareCmd | AbortCmd | DecideCmd


@dataclass(slots=True)
class Flight:
    """A command that was proposed and is not applied yet. ``then``: to be judged again once it is."""

    command: TxnCommand
    tickets: list[Ticket]
    then: list[Ticket] = field(default_factory=list)
    answered: bool = False
    left_out: tuple[tuple[int, ...], ...] = ()
    """Of bundles, one for each ticket: positions of the works that are not in the command."""

    def txns(self) -> list[TxnRef]:
        """Return whose command it is."""
        command = self.command
        return [one.txn for one in command.commits] if isinstance(command, BundleCmd) else [command.txn]


class Flights:
    """At most one command of a transaction is on its way."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._flights: dict[int, Flight] = {}
        self._busy: dict[bytes, int] = {}

    def begin(
        self, index: int, command: TxnCommand, tickets: list[Ticket], left_out: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """``command`` was proposed as the entry ``index``."""
        flight = self._flights[index] = Flight(command, tickets, left_out=left_out)
        for txn in flight.txns():
            self._busy[txn.unique] = index

    def has(self, txn: bytes) -> bool:
        """Tell whether a command of the transaction is on its way."""
        return txn in self._busy

    def after(self, txn: bytes) -> list[Ticket] | None:
        """Return the list of those who are judged again after the transaction's command; None if it has none."""
        index = self._busy.get(txn)
        return None if index is None else self._flights[index].then

    def wait_for(self, ticket: Ticket, txn: TxnRef) -> bool:
        """Let a request wait for the command of its transaction, if there is one on its way."""
        then = self.after(txn.unique)
        if then is None:
            return False
        then.append(ticket)
        return True

    def chosen(self, done: Done) -> None:
        """An entry was chosen: its outcome can be told, since every later read waits until it is applied."""
        flight = self._flights.get(done.index)
        if flight is None:
            return
        flight.answered = True
        for number, ticket in enumerate(flight.tickets):
            match flight.command:
                case CommitCmd(ts=ts):
                    if isinstance(ticket.request, Commit):
                        self._out.send_after(ticket.reply, CommitReply(ts), ts)
                case BundleCmd(ts=ts):
                    self._out.send_after(ticket.reply, BundleReply(ts, flight.left_out[number]), ts)
                case PrepareCmd(prepare_ts=prepare_ts):
                    self._out.send(ticket.reply, PrepareReply(prepare_ts))
                case AbortCmd(txn=txn):
                    self._out.send(ticket.reply, OutcomeReply(False, 0, txn.attempt))
                case DecideCmd():
                    self._out.send(ticket.reply, DecideReply())

    def applied(self, index: int) -> list[Ticket]:
        """The entry is durable. Returns who is to be judged again."""
        flight = self._flights.pop(index, None)
        if flight is None:
            return []
        for txn in flight.txns():
            del self._busy[txn.unique]
        return flight.then

    def oldest_prepared(self, prepared: Iterable[PrepareCmd]) -> int:
        """Return when the oldest id was created of which something is ``prepared``, or proposed; 0 if there is none.

        A prepare that is on its way through the log counts, since nobody sees it in the state yet.
        """
        proposed = (f.command for f in self._flights.values() if isinstance(f.command, PrepareCmd))
        return min((record.txn.created_ts for record in chain(prepared, proposed)), default=0)

    def close(self, error: F1Error) -> None:
        """The term is over: answer everyone with ``error``."""
        for index in sorted(self._flights):
            flight = self._flights[index]
            for ticket in ([] if flight.answered else flight.tickets) + flight.then:
                self._out.send(ticket.reply, error)

    def has_anchor_in(self, start: bytes, end: bytes) -> bool:
        """Tell whether a command is on its way whose anchor lies in ``[start, end)``."""
        return any(start <= txn.anchor < end for flight in self._flights.values() for txn in flight.txns())

    def oldest_decision_ts(self) -> int | None:
        """Return the timestamp of the oldest outcome that is on its way."""
        commands = (flight.command for flight in self._flights.values())
        return min((c.ts for c in commands if isinstance(c, CommitCmd | BundleCmd | AbortCmd)), default=None)
