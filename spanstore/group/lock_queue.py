"""Requests that wait for locks, and the transactions that hold them under one leader term.

The lock table decides; this is what must follow each of its decisions: whoever got the locks goes on with the next view
of the rows (which shows what the releasing commit wrote), whoever was wounded is answered and remembered, so that a
later request of it is refused instead of beginning anew with half of its locks.

A prepare that meets an older transaction must not wait for it, or waits among prepared transactions could form a cycle
(package docstring of :mod:`spanstore.txn`). Most often, though, what it meets is about to end: the decision of a
commit that its client knows already. So it asks again for a short while, holding no place in any queue, before it dies;
a cycle lives no longer than that.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.requests import Commit, LockRead, Prepare
from spanstore.txn.commands import TxnRef
from spanstore.txn.locks import Acquired, LockMode, LockTable, Priority, Refused, WaitPolicy
from spanstore.txn.spans import Span

_DEAD_KEPT_US = 120_000_000
_PATIENCE_US = 100_000
_ASK_AGAIN_US = 5_000
_DEAD_SWEEP = 1_000


@dataclass(slots=True, eq=False)
class Parked:
    """A request that waits for locks, or holds them and waits for the ceiling. ``replies``: it and its duplicates."""

    ticket: Ticket
    txn: bytes
    replies: list[Ticket]
    priority_ts: int
    wanted: Sequence[tuple[Span, LockMode]]
    policy: WaitPolicy
    token: int = 0
    refused_us: int = 0

    @property
    def deadline_us(self) -> int:
        """When the last of its callers stops waiting."""
        return max(t.deadline_us for t in self.replies)


class LockQueue:
    """The lock table of a term with the requests around it."""

    def __init__(
        self, outbox: Outbox, max_parked: int, go: Callable[[Parked], None], may_kill: Callable[[bytes], bool]
    ) -> None:
        """``go`` is called with a request that holds its locks; ``may_kill`` tells whether a transaction may die."""
        self.locks = LockTable()
        self.boot_us = 0
        self._out = outbox
        self._max_parked = max_parked
        self._go = go
        self._may_kill = may_kill
        self._parked: dict[int, Parked] = {}
        self._parked_of: dict[bytes, set[int]] = {}
        self._runnable: deque[Parked] = deque()
        self._refused: list[Parked] = []
        self.for_ceiling: list[Parked] = []
        """Who holds his locks and waits for a higher ceiling; the lock table may still take them from him."""
        self._active: dict[bytes, tuple[int, int]] = {}
        self._dead: dict[bytes, tuple[int, int]] = {}
        self._tokens = 0

    # ------------------------------------------------------------------ asking for locks

    def acquire(self, parked: Parked) -> None:
        """Ask for locks. The request goes on now, later, or is answered ABORTED. Raises OVERLOADED."""
        if len(self._parked) + len(self._refused) >= self._max_parked and parked.txn not in self._active:
            # Whoever holds locks goes on, or those who wait for him would wait for ever.
            raise F1Error(Code.OVERLOADED, "too many requests wait for locks in this group; retry later")
        self._ask(parked)

    def _ask(self, parked: Parked) -> None:
        self._tokens += 1
        parked.token = self._tokens
        result = self.locks.acquire(
            parked.txn,
            Priority(parked.priority_ts, parked.txn),
            parked.wanted,
            policy=parked.policy,
            token=parked.token,
            boot_us=self.boot_us,
        )
        attempt = max(_attempt_of(parked), self._active.get(parked.txn, (0, 0))[1])
        self._active[parked.txn] = (self.boot_us, attempt)
        for txn in result.wounded:
            self._bury(txn, "an older transaction wounded it")
        for token in result.dropped:
            self._fail(token, "an older transaction wounded it")
        self.granted(result.granted)
        if isinstance(result, Acquired):
            self._answering_errors(self._go, parked)
        elif isinstance(result, Refused):
            parked.refused_us = parked.refused_us or self.boot_us
            self._refused.append(parked)
        else:
            self._parked[parked.token] = parked
            self._parked_of.setdefault(parked.txn, set()).add(parked.token)

    def join(self, ticket: Ticket, txn: TxnRef) -> bool:
        """Let a duplicate of a commit or prepare that waits wait with it."""
        waiting = [self._parked[t] for t in sorted(self._parked_of.get(txn.unique, ()))]
        for parked in [*waiting, *self._runnable, *self._refused, *self.for_ceiling]:
            request = parked.ticket.request
            if parked.txn != txn.unique or type(request) is not type(ticket.request):
                continue
            if cast(Commit | Prepare, request).work.txn.attempt == txn.attempt:
                parked.replies.append(ticket)
                return True
        return False

    def refuse_dead(self, txn: TxnRef) -> None:
        """Raise ABORTED for an attempt that was killed under this term, or that a higher one has followed."""
        if txn.unique in self._dead and txn.attempt <= self._dead[txn.unique][1]:
            raise _aborted("an older one wounded it, or it was idle too long")
        if txn.unique in self._active and txn.attempt < self._active[txn.unique][1]:
            raise _aborted("a higher attempt has begun")

    # ------------------------------------------------------------------ going on

    def granted(self, tokens: Sequence[object]) -> None:
        """The lock table let these requests through."""
        for token in tokens:
            parked = self._parked.get(cast(int, token))
            if parked is not None:
                self._unpark(parked)
                self._runnable.append(parked)
                if parked.txn in self._active:
                    # It was not idle while it waited.
                    self._active[parked.txn] = (self.boot_us, self._active[parked.txn][1])

    def go_on(self, has_room: Callable[[], bool]) -> None:
        """A fresh view is open: let those go on who have locks, and let those ask again who were refused.

        ``has_room`` tells whether one more may be answered in this turn.
        """
        while self._runnable and has_room():
            self._answering_errors(self._go, self._runnable.popleft())
        for parked in sorted(self._refused, key=lambda p: (p.priority_ts, p.txn)):
            # Whoever goes on may kill another that waits.
            if parked in self._refused and has_room():
                self._refused.remove(parked)
                self._answering_errors(self._ask, parked)

    def _answering_errors(self, step: Callable[[Parked], None], parked: Parked) -> None:
        """Take a step whose error is the end of its transaction, not of the replica."""
        try:
            step(parked)
        except InvariantViolation:
            raise
        except F1Error as error:
            self.kill(parked.txn, error.message, _attempt_of(parked))
            self.answer(parked, error)

    def ask_again_us(self) -> int | None:
        """Return when someone who was refused should ask again, in boot time."""
        return self.boot_us + _ASK_AGAIN_US if self._refused else None

    def can_go_on(self) -> bool:
        """Tell whether someone has locks and waits for a fresh view."""
        return bool(self._runnable)

    def proposed(self, txn: bytes) -> None:
        """The transaction's command is in the log: it no longer dies of idleness."""
        self._active.pop(txn, None)

    # ------------------------------------------------------------------ the end of transactions

    def kill(self, txn: bytes, reason: str, attempt: int = 0) -> None:
        """Take all locks from a transaction, answer what it has waiting, and remember it; not if it is committing.

        ``attempt``: at least this one is refused from now on, and without it whichever asked for locks here. The locks
        stay with a higher one: what comes late about an attempt does no harm to the next.
        """
        if not self._may_kill(txn):
            return
        if not 0 < attempt < self._active.get(txn, (0, 0))[1]:
            self.granted(self.locks.release(txn))
            self._bury(txn, reason, attempt)
            return
        self._dead[txn] = (self.boot_us, max(attempt, self._dead.pop(txn, (0, 0))[1]))
        for parked in [p for p in self.all_parked() if p.txn == txn and _attempt_of(p) <= attempt]:
            self.granted(self.locks.cancel(parked.token))
            self._forget(parked)
            self.answer(parked, _aborted(reason))

    def _bury(self, txn: bytes, reason: str, attempt: int = 0) -> None:
        _, seen = self._active.pop(txn, (0, 0))
        _, before = self._dead.pop(txn, (0, 0))
        self._dead[txn] = (self.boot_us, max(attempt, seen, before))
        for token in sorted(self._parked_of.get(txn, ())):
            self._fail(token, reason)
        for parked in [p for p in (*self._runnable, *self._refused, *self.for_ceiling) if p.txn == txn]:
            self._forget(parked)
            self.answer(parked, _aborted(reason))
        while len(self._dead) > _DEAD_SWEEP:
            oldest = next(iter(self._dead))
            if self._dead[oldest][0] > self.boot_us - _DEAD_KEPT_US:
                break
            del self._dead[oldest]

    def _forget(self, parked: Parked) -> None:
        if parked.token in self._parked:
            self._unpark(parked)
        for waiting in (self._runnable, self._refused, self.for_ceiling):
            if parked in waiting:
                waiting.remove(parked)

    def _fail(self, token: object, reason: str) -> None:
        parked = self._parked.get(cast(int, token))
        if parked is not None:
            self._unpark(parked)
            self.answer(parked, _aborted(reason))

    def expire(self, boot_us: int) -> list[Parked]:
        """Answer requests whose callers stopped waiting, and return them."""
        late = []
        for parked in [p for p in self._parked.values() if p.deadline_us <= boot_us]:
            if parked.token not in self._parked:
                continue  # it got its locks because one before it gave up
            late.append(parked)
            self._unpark(parked)
            self.granted(self.locks.cancel(parked.token))
            self.answer(parked, F1Error(Code.DEADLINE_EXCEEDED, "the locks were not free in time; retry"))
        for parked in [p for p in self._refused if p.refused_us + _PATIENCE_US <= boot_us]:
            self.kill(parked.txn, "an older transaction is in its way", _attempt_of(parked))
        return late

    def idle(self, before_us: int) -> list[bytes]:
        """Return unprepared transactions whose last request came before ``before_us`` and that wait for nothing."""
        return [t for t, (last, _) in self._active.items() if last < before_us and t not in self._parked_of]

    def answer(self, parked: Parked, error: F1Error) -> None:
        """Answer a request and its duplicates."""
        for ticket in parked.replies:
            self._out.send(ticket.reply, error)

    # ------------------------------------------------------------------ questions

    def all_parked(self) -> list[Parked]:
        """Return everyone who waits, oldest first."""
        parked = [self._parked[token] for token in sorted(self._parked)]
        return [*parked, *self._runnable, *self._refused, *self.for_ceiling]

    def concerned(self, span: Span) -> list[bytes]:
        """Return the transactions of which a waiting request wants something in ``span``, or has its anchor there."""
        return [p.txn for p in self.all_parked() if _concerns(p, span)]

    def knows(self, txn: bytes) -> bool:
        """Tell whether the transaction asked for locks under this term and is not logged, or was killed."""
        return txn in self._active or txn in self._dead

    def holders(self) -> int:
        """Return how many unprepared transactions hold or await locks."""
        return len(self._active)

    def _unpark(self, parked: Parked) -> None:
        del self._parked[parked.token]
        tokens = self._parked_of[parked.txn]
        tokens.discard(parked.token)
        if not tokens:
            del self._parked_of[parked.txn]


def _concerns(parked: Parked, span: Span) -> bool:
    if any(span.overlaps(wanted) for wanted, _ in parked.wanted):
        return True
    request = parked.ticket.request
    return isinstance(request, Commit) and span.overlaps(Span(request.work.txn.anchor))


def _attempt_of(parked: Parked) -> int:
    request = parked.ticket.request
    if isinstance(request, LockRead):
        return request.txn.attempt
    return cast(Commit | Prepare, request).work.txn.attempt


def _aborted(reason: str) -> F1Error:
    return F1Error(Code.ABORTED, f"the transaction was aborted: {reason}; run it again")
