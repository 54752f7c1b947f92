"""Small commits that travel together, are logged together and commit at one timestamp, each a transaction of its own.

A commit of one row costs a leader and its followers most of its time not for the row: an entry of the log to be copied,
synced and acknowledged, an answer to be sent. So clients send the commits that they are asked for at about the same
time as one bundle. Of a bundle the leader takes those that can go at once: their ids are new here, nobody is in the way
of their locks, their preconditions hold. Each of them has its own locks until the entry is applied, its own outcome
record, and the same answer to any repetition as if it had come alone. Of all others nothing is done, and nothing is
said but that they are left out: their clients send them alone, and hear the reason then.

Bundles of several clients go together as well: while one entry of bundles is on its way through the log, the next ones
wait until it is chosen, for a few milliseconds at most, and are one entry then. So the leader and its followers write,
sync and acknowledge entries that are the fewer and the greater the more there is to do, and one bundle by itself waits
for nothing.

One timestamp for several transactions orders them no worse than one after the other: what one of them writes no other
one reads, tests or writes, for their locks would clash. Readers see all of them or none.
"""

from collections.abc import Callable, Sequence

from f1common.clock import Now
from f1common.errors import F1Error
from spanstore.engine.base import Reader
from spanstore.group import storage
from spanstore.group.config import GroupConfig
from spanstore.group.flights import Flights
from spanstore.group.lock_queue import LockQueue
from spanstore.group.moves import Moves
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.requests import Bundle, BundleReply, Commit, TxnWork
from spanstore.group.state import ReplicatedState
from spanstore.group.validation import validate_work
from spanstore.group.versions import Versions
from spanstore.mvcc.safetime import LeaderSafeTime
from spanstore.mvcc.timestamps import TimestampOracle, WaitForCeiling
from spanstore.paxos.replica import Replica
from spanstore.txn import outcomes
from spanstore.txn.commands import BundleCmd, Bundled
from spanstore.txn.locks import Priority

__all__ = ["Bundling"]

_LONGEST_US = 10_000
"""How long a bundle waits for another to be chosen."""
_MOST_COMMITS = 256
"""Of one entry of the log, but for a bundle that has more by itself."""


class Bundling:
    """Which transactions of bundles a leader takes, and when, under one term."""

    def __init__(
        self,
        replica: Replica,
        state: ReplicatedState,
        config: GroupConfig,
        oracle: TimestampOracle,
        undecided: LeaderSafeTime,
        waiting: LockQueue,
        flights: Flights,
        out: Outbox,
        moves: Moves,
        versions: Versions,
        log: Callable[[BundleCmd], int],
    ) -> None:
        """``log`` proposes a command, and returns its index."""
        self._group = state.group
        self._replica = replica
        self._state = state
        self._config = config
        self._oracle = oracle
        self._undecided = undecided
        self._waiting = waiting
        self._locks = waiting.locks
        self._flights = flights
        self._out = out
        self._moves = moves
        self._versions = versions
        self._log = log
        self._gathered: list[tuple[Ticket, Bundle]] = []
        self._give_up_us = 0
        """Until when those wait for what is on its way."""
        self._last_index = 0

    # ------------------------------------------------------------------ when

    def take_in(self, ticket: Ticket, bundle: Bundle, now: Now) -> None:
        """Take in a bundle; it is logged at the end of this turn, or of one that follows soon."""
        if not self._gathered:
            self._give_up_us = now.boot_us + _LONGEST_US
        self._gathered.append((ticket, bundle))

    def end_turn(self, reader: Reader, now: Now, refusal: F1Error | None) -> None:
        """Log what has been taken in, unless it is better to wait for what is on its way.

        ``refusal``: why nothing can be logged. Then nobody waits: the lease may not come back.
        """
        if refusal is not None:
            for ticket in self.take_waiting():
                self._out.send(ticket.reply, refusal)
        if self._replica.chosen_index < self._last_index and now.boot_us < self._give_up_us:
            return
        gathered, self._gathered = self._gathered, []
        while gathered:
            commits = number = 0
            while number < len(gathered) and (not number or commits < _MOST_COMMITS):
                commits += len(gathered[number][1].works)
                number += 1
            self._log_together(gathered[:number], reader, now)
            del gathered[:number]

    def due_us(self) -> int | None:
        """Return until when bundles wait, in boot time; None: none does."""
        return self._give_up_us if self._gathered else None

    def take_waiting(self) -> list[Ticket]:
        """Return those of whom nothing was done, and forget them."""
        gathered, self._gathered = self._gathered, []
        return [ticket for ticket, _ in gathered]

    # ------------------------------------------------------------------ which

    def _log_together(self, gathered: Sequence[tuple[Ticket, Bundle]], reader: Reader, now: Now) -> None:
        tickets: list[Ticket] = []
        bundles: list[Bundle] = []
        for ticket, bundle in gathered:
            try:
                # As of now: since it came a member may have joined that does not know it, or a range been given up.
                self._versions.check(BundleCmd, self._replica.configuration)
                self._moves.admit(bundle)
            except F1Error as error:
                self._out.send(ticket.reply, error)
            else:
                tickets.append(ticket)
                bundles.append(bundle)
        command, left_out = self._bind(bundles, reader, now)
        if command is None:
            for ticket, positions in zip(tickets, left_out, strict=True):
                self._out.send(ticket.reply, BundleReply(0, positions))
            return
        self._last_index = self._log(command)
        self._flights.begin(self._last_index, command, tickets, left_out)

    def _bind(
        self, bundles: Sequence[Bundle], reader: Reader, now: Now
    ) -> tuple[BundleCmd | None, tuple[tuple[int, ...], ...]]:
        """Take the locks of those that can go, and stamp them.

        Returns what is to be logged, and of each bundle the positions of the transactions that are not in it; None if
        none of them can go: nothing was done then.
        """
        took: dict[bytes, TxnWork] = {}
        commits: list[Bundled] = []
        left_out: list[list[int]] = [[] for _ in bundles]
        for bundle, positions in zip(bundles, left_out, strict=True):
            for position, work in enumerate(bundle.works):
                # Of one that was sent twice one goes.
                bundled = None if work.txn.unique in took else self._take(work, reader, now)
                if bundled is None:
                    positions.append(position)
                else:
                    took[work.txn.unique] = work
                    commits.append(bundled)
        ts = self._stamp(list(took.values()), now) if took else 0
        for one in commits:
            if ts:
                self._locks.mark_prepared(one.txn.unique)
                self._undecided.begin(one.txn.unique, ts)
            else:
                self._give_up(one.txn.unique)
        if not ts:
            return None, tuple(tuple(range(len(bundle.works))) for bundle in bundles)
        return BundleCmd(ts, tuple(commits)), tuple(map(tuple, left_out))

    def _take(self, work: TxnWork, reader: Reader, now: Now) -> Bundled | None:
        """Take the locks of a transaction that can be logged at once, and return what is; None: nothing was done."""
        unique = work.txn.unique
        if not self._is_new(work, reader, now):
            return None
        if work.above > now.tt.latest or work.fence(self._config.outcome_keep_us) <= now.tt.latest:
            return None  # the others have no need to wait for its time, nor to fail with it
        if not self._locks.acquire_free(unique, Priority(work.priority_ts, unique), work.wanted()):
            return None
        try:
            if storage.failed_test(reader, self._group, work, self._state.collected.mark_ts) is None:
                return Bundled(work.txn, storage.made_writes(reader, self._group, work), work.deadline)
        except F1Error:
            pass  # of a damaged record whoever is sent alone hears
        self._give_up(unique)
        return None

    def _give_up(self, txn: bytes) -> None:
        self._waiting.granted(self._locks.release(txn))

    def _is_new(self, work: TxnWork, reader: Reader, now: Now) -> bool:
        """Tell whether nobody here has heard of the transaction, and it may begin."""
        txn = work.txn
        if work.held or self._flights.has(txn.unique) or self._waiting.knows(txn.unique):
            return False
        if txn.unique in self._state.prepared:
            return False
        keep_us = self._config.outcome_keep_us
        try:
            validate_work(Commit(work), self._config.txn_max_bytes)
            record = storage.load_outcome(reader, self._group, txn)
            outcomes.check_created(txn.created_ts, now.tt, keep_us)
        except F1Error:
            return False
        verdict = outcomes.judge_attempt(record, txn.attempt, txn.created_ts, now.tt, keep_us)
        return isinstance(verdict, outcomes.Fresh)

    def _stamp(self, works: Sequence[TxnWork], now: Now) -> int:
        """Return a timestamp that all of them may have; 0: there is none just now."""
        try:
            ts = self._oracle.commit_ts(
                now.tt,
                above=max(work.above for work in works),
                ceiling=self._replica.usable_ceiling,
                deadline=min(work.fence(self._config.outcome_keep_us) for work in works),
                max_skew_us=self._config.max_skew_us,
            )
        except F1Error:
            return 0
        if isinstance(ts, WaitForCeiling):
            self._replica.want_ceiling(ts.needed)
            return 0
        return ts
