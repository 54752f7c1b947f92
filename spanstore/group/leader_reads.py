"""Reads at the leader: which timestamp a strong one gets, and for whom a read must wait.

A read at t waits for undecided transactions that hold write locks on what it reads and may commit at or below t
(Spanner, section 4.2.4, the remedy by keys), and for a ceiling that covers t. It waits until its deadline at most, and
then says for whom.
"""

from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from f1common.clock import Now
from f1common.errors import Code, F1Error
from spanstore.engine.base import Reader
from spanstore.group import reads
from spanstore.group.config import GroupConfig
from spanstore.group.garbage import check_readable
from spanstore.group.move_requests import Export
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.requests import Read, ReadReply, Settle
from spanstore.group.room import Room
from spanstore.group.state import ReplicatedState
from spanstore.mvcc.safetime import LeaderSafeTime
from spanstore.mvcc.timestamps import TimestampOracle
from spanstore.mvcc.versions import Version, read_version
from spanstore.paxos.replica import Replica
from spanstore.txn.locks import LockMode, LockTable
from spanstore.txn.spans import Span

APART_BYTES = 256 << 10
"""Rows that are read for several readers at once: nobody waits long for what another one asked for."""


class LeaderReads:
    """Reads of one leader's term: those that can be answered are, the others wait for the next view."""

    def __init__(
        self,
        *,
        term: int,
        replica: Replica,
        state: ReplicatedState,
        config: GroupConfig,
        outbox: Outbox,
        oracle: TimestampOracle,
        undecided: LeaderSafeTime,
        locks: LockTable,
        room: Room,
    ) -> None:
        self._term = term
        self._replica = replica
        self._state = state
        self._config = config
        self._out = outbox
        self._oracle = oracle
        self._undecided = undecided
        self._locks = locks
        self._room = room
        self._waiting: list[Ticket] = []

    def read(self, ticket: Ticket, view: Reader, now: Now) -> None:
        """Answer a read, or let it wait. Raises OVERLOADED, CLOCK_SKEW, SNAPSHOT_TOO_OLD, DATA_CORRUPTION."""
        request = cast(Read | Settle | Export, ticket.request)
        ts = request.timestamp
        if ts == 0:
            # A strong read keeps the timestamp that it is given first, however long it waits.
            ts = self._oracle.read_ts(now.tt, self._replica.usable_ceiling)
            ticket = replace(ticket, request=replace(request, timestamp=ts))
        else:
            self._oracle.observe_read(ts, now.tt, self._replica.usable_ceiling, self._config.max_skew_us)
        if isinstance(request, Read) and request.apart and not request.ranges and ts <= self._replica.usable_ceiling:
            self._out.send_leased(ticket.reply, self._answer_apart(view, request, ts), self._term, ts)
            return
        if ts > self._replica.usable_ceiling or self._undecided_below(reads.spans_of(request), ts) is not None:
            if len(self._waiting) >= self._config.max_parked:
                raise F1Error(Code.OVERLOADED, "too many reads wait for running commits; retry later")
            self._replica.want_ceiling(ts)
            self._waiting.append(ticket)
            return
        answer = reads.answer(view, self._state, request, ts, self._config)
        self._room.take(reads.size_of(answer))
        self._out.send_leased(ticket.reply, answer, self._term, ts)

    def _answer_apart(self, view: Reader, request: Read, ts: int) -> ReadReply:
        """Read for several readers: what one of them would have to wait for, and what is too much, is left out."""
        check_readable(ts, self._state.collected.mark_ts, self._state.group)
        versions: list[Version | None] = []
        left_out: list[int] = []
        room = min(APART_BYTES, self._config.read_max_bytes)
        for position, key in enumerate(request.keys):
            if room <= 0 or self._undecided_below([Span(key)], ts) is not None:
                left_out.append(position)
                continue
            version = read_version(view, self._state.group, key, ts)
            size = len(version.value or b"") if version is not None else 0
            if size > room and versions:
                left_out.append(position)  # smaller ones may fit
                continue
            versions.append(version)
            room -= size
        return ReadReply(ts, versions, left_out=tuple(left_out))

    def go_on(self, handle: Callable[[Ticket], None]) -> None:
        """Have those that wait looked at again, as many as there is room for in this turn."""
        waiting, looked_at = self.take_waiting(), 0
        while looked_at < len(waiting) and self._room.is_left():
            handle(waiting[looked_at])
            looked_at += 1
        self._waiting = waiting[looked_at:] + self._waiting

    def take_waiting(self) -> list[Ticket]:
        """Return those that wait, who wait no more."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def expire(self, now: Now) -> None:
        """Answer reads whose callers stopped waiting."""
        expired = [t for t in self._waiting if t.deadline_us <= now.boot_us]
        if expired:
            self._waiting = [t for t in self._waiting if t.deadline_us > now.boot_us]
        for ticket in expired:
            self._out.send(ticket.reply, self._too_late(cast(Read | Settle | Export, ticket.request), now))

    def __len__(self) -> int:
        return len(self._waiting)

    def _undecided_below(self, spans: list[Span], ts: int) -> tuple[bytes, int] | None:
        """Return (transaction, its first timestamp) of an undecided writer of ``spans`` that may commit by ``ts``."""
        if not len(self._undecided):
            return None
        for span in spans:
            for holder in self._locks.holders_overlapping(span):
                since_ts = self._undecided.held_ts(holder.txn)
                if since_ts is not None and since_ts <= ts and holder.modes != (LockMode.SHARED,):
                    return holder.txn, since_ts
        return None

    def _too_late(self, request: Read | Settle | Export, now: Now) -> F1Error:
        holder = self._undecided_below(reads.spans_of(request), request.timestamp)
        if holder is None:
            return F1Error(Code.DEADLINE_EXCEEDED, "the read waited too long for its timestamp to be promised; retry")
        txn, since_ts = holder
        age_s = (now.tt.latest - since_ts) / 1e6
        return F1Error(
            Code.DEADLINE_EXCEEDED,
            f"the read waited for transaction {txn.hex()}, which has been committing in group {self._state.group} for "
            f"{age_s:.3f} s; retry, or read below {since_ts}",
            details={"holder": txn.hex(), "group": str(self._state.group), "holder_ts": str(since_ts)},
        )
