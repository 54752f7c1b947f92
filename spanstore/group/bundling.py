"""Small commits that travel together, are logged together and commit at one timestamp, each a transaction of its own.

A commit of one row costs a leader and its followers most of its time not for the row: an entry of the log to be copied,
synced and acknowledged, an answer to be sent. So clients send the commits that they are asked for at about the same
time as one bundle. Of a bundle the leader takes those that can go at once: their ids are new here, nobody is in the way
of their locks, their preconditions hold. Each of them has its own locks until the entry is applied, its own outcome
record, and the same answer to any repetition as if it had come alone. Of all others nothing is done, and nothing is
said but that they are left out: their clients send them alone, and hear the reason then.

One timestamp for several transactions orders them no worse than one after the other: what one of them writes no other
one reads, tests or writes, for their locks would clash. Readers see all of them or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from f1common.clock import Now
from f1common.errors import F1Error
from spanstore.engine.base import Reader
from spanstore.group import storage
from spanstore.group.config import GroupConfig
from spanstore.group.flights import Flights
from spanstore.group.lock_queue import LockQueue
from spanstore.group.requests import Commit, TxnWork
from spanstore.group.state import ReplicatedState
from spanstore.group.validation import validate_work
from spanstore.mvcc.safetime import LeaderSafeTime
from spanstore.mvcc.timestamps import TimestampOracle, WaitForCeiling
from spanstore.paxos.replica import Replica
from spanstore.txn import outcomes
from spanstore.txn.commands import BundleCmd, Bundled
from spanstore.txn.locks import Priority

__all__ = ["Bound", "Bundling"]


@dataclass(frozen=True, slots=True)
class Bound:
    """What is to be logged of a bundle, and the positions of the transactions that are not in it."""

    command: BundleCmd
    left_out: tuple[int, ...]


class Bundling:
    """Which transactions of a bundle a leader takes, under one term."""

    def __init__(
        self,
        replica: Replica,
        state: ReplicatedState,
        config: GroupConfig,
        oracle: TimestampOracle,
        undecided: LeaderSafeTime,
        waiting: LockQueue,
        flights: Flights,
    ) -> None:
        self._group = state.group
        self._replica = replica
        self._state = state
        self._config = config
        self._oracle = oracle
        self._undecided = undecided
        self._waiting = waiting
        self._locks = waiting.locks
        self._flights = flights

    def bind(self, works: Sequence[TxnWork], reader: Reader, now: Now) -> Bound | None:
        """Take the locks of those that can go, and stamp them; None if none of them can: nothing was done then."""
        took: list[TxnWork] = []
        commits: list[Bundled] = []
        left_out: list[int] = []
        for position, work in enumerate(works):
            bundled = self._take(work, reader, now)
            if bundled is None:
                left_out.append(position)
            else:
                took.append(work)
                commits.append(bundled)
        ts = self._stamp(took, now) if took else 0
        for one in commits:
            if ts:
                self._locks.mark_prepared(one.txn.unique)
                self._undecided.begin(one.txn.unique, ts)
            else:
                self._give_up(one.txn.unique)
        return Bound(BundleCmd(ts, tuple(commits)), tuple(left_out)) if ts else None

    def _take(self, work: TxnWork, reader: Reader, now: Now) -> Bundled | None:
        """Take the locks of a transaction that can be logged at once, and return what is; None: nothing was done."""
        unique = work.txn.unique
        if not self._is_new(work, reader, now):
            return None
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
