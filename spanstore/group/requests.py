"""What a group is asked and what it answers: plain values, so that no protobuf object passes the edge of the process.

Keys are bytes compared as bytes, timestamps microseconds. Every answer reaches the caller through the ``Reply`` that
came with the request: a value of this module or an :class:`F1Error`, exactly once.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import force_setattr

from f1common.errors import F1Error
from spanstore.group.members import Step
from spanstore.group.move_requests import ExportReply, MoveReply, MoveRequest
from spanstore.mvcc.versions import Version
from spanstore.paxos.configuration import Configuration
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import Precondition, latest_deadline, spans_of
from spanstore.txn.spans import Span

_MANY_APPENDS = 32


class RangeRead(msgspec.Struct, frozen=True, gc=False):
    """Live rows in ``[start, end)``; ``limit`` 0 is the server's own bound."""

    start: bytes
    end: bytes
    limit: int = 0
    reverse: bool = False


class Read(msgspec.Struct, frozen=True, gc=False):
    """A snapshot read; ``timestamp`` 0 is strong: the leader picks the timestamp.

    ``apart``: the keys are for several readers, of whom none is to wait for a transaction that is in another's way.
    What is not in the answer, for that reason or because it would be too large, is asked for again.
    """

    timestamp: int
    keys: tuple[bytes, ...] = ()
    ranges: tuple[RangeRead, ...] = ()
    apart: bool = False


class Settle(msgspec.Struct, frozen=True, gc=False):
    """A :class:`Read` for somebody who reads the rows himself, from another view of this replica's engine.

    Answered under the conditions of a read: from then on, every view with the applied index of the answer, or a higher
    one, has the same rows at the timestamp in ``ranges``. Nothing is locked; limits and directions are ignored.
    """

    timestamp: int
    ranges: tuple[RangeRead, ...]


class LockRead(msgspec.Struct, frozen=True, gc=False):
    """Lock, then read the newest versions. ``term`` is that of an earlier LockRead of the transaction here, or 0."""

    txn: TxnRef
    priority_ts: int
    mode: LockMode
    keys: tuple[bytes, ...] = ()
    ranges: tuple[RangeRead, ...] = ()
    term: int = 0


class TxnWork(msgspec.Struct, frozen=True, gc=False):
    """One group's share of a transaction, as Commit and Prepare carry it."""

    txn: TxnRef
    priority_ts: int
    writes: tuple[Write, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    held: tuple[tuple[Span, LockMode], ...] = ()
    term: int = 0
    deadline: int = 0
    above: int = 0
    locks: tuple[tuple[Span, LockMode], ...] = ()
    """What the writes lock, and how. This and the next follow from the rest, and are asked for at every step."""
    tested: tuple[Span, ...] = ()
    """What the preconditions look at."""

    def __post_init__(self) -> None:
        force_setattr(self, "locks", tuple(map(lock_of_write, self.writes)))
        if self.preconditions:
            force_setattr(self, "tested", tuple(span for test in self.preconditions for span in spans_of(test)))

    def fence(self, keep_us: int) -> int:
        """Return the last timestamp that the transaction may have, if outcomes are kept for ``keep_us``."""
        return latest_deadline(self.deadline, self.txn.created_ts, keep_us)

    def appended(self) -> Span | None:
        """Return the range that has all that is appended; None if that is little."""
        spans = [span for span, mode in self.locks if mode is LockMode.APPEND]
        if len(spans) < _MANY_APPENDS:
            return None
        return Span(min(start for start, _ in spans), max(end or start for start, end in spans))

    def wanted(self, appended: Span | None = None) -> list[tuple[Span, LockMode]]:
        """Return the locks to take before it is logged: on what is written, and on what the preconditions look at.

        ``appended``: one lock on this range instead of one for each of what is appended.
        """
        wanted = list(self.locks)
        if appended is not None:
            wanted = [(appended, LockMode.APPEND), *(lock for lock in wanted if lock[1] is not LockMode.APPEND)]
        if not self.tested:
            return wanted
        written = {write.key for write in self.writes if write.key_offset < 0}
        return wanted + [(s, LockMode.SHARED) for s in self.tested if s.end is not None or s.start not in written]


def lock_of_write(write: Write) -> tuple[Span, LockMode]:
    """Return what a write locks, and how: a key that holds the commit timestamp by what comes before that."""
    if write.key_offset < 0:
        return Span(write.key), LockMode.EXCLUSIVE
    prefix = write.key[: write.key_offset]
    return Span(prefix, prefix + b"\xff"), LockMode.APPEND


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One-group commit, or the coordinator's decision when ``participants`` (group, prepare timestamp) prepared."""

    work: TxnWork
    participants: tuple[tuple[int, int], ...] = ()


class Bundle(msgspec.Struct, frozen=True, gc=False):
    """One-group commits of different transactions, none of which holds locks yet (:mod:`spanstore.group.bundling`)."""

    works: tuple[TxnWork, ...]


class Prepare(msgspec.Struct, frozen=True, gc=False):
    """First phase of two-phase commit at a participant that is not the coordinator."""

    work: TxnWork
    coordinator_group: int


class Decide(msgspec.Struct, frozen=True, gc=False):
    """Second phase at a participant: ``ts`` is the commit timestamp, None an abort."""

    txn: TxnRef
    ts: int | None


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """Did it commit? Unless ``peek``, an attempt never heard of is aborted, durably, before the answer.

    ``inquiry``: asked by a participant that has exactly this attempt prepared, which is answered at any age.
    """

    txn: TxnRef
    peek: bool = False
    inquiry: bool = False


class Release(msgspec.Struct, frozen=True, gc=False):
    """Give up the locks of a transaction that is not prepared."""

    txn: TxnRef


class SafeTimeQuery(msgspec.Struct, frozen=True, gc=False):
    """Ask for the highest timestamp at which this replica can read now without waiting."""


class ChangeMembers(msgspec.Struct, frozen=True, gc=False):
    """Change the members by one ``step``; ``name`` is a member's or its server's.

    Unless it is negative, ``version`` must be that of the present configuration. Answered when the change is chosen.
    """

    step: Step
    name: str
    version: int = -1
    home: str = ""
    """For a new replica: the name of its server's data directory."""


class OldestPrepared(msgspec.Struct, frozen=True, gc=False):
    """Ask the leader for the oldest id of which something is prepared here, or on its way to be."""


class Collect(msgspec.Struct, frozen=True, gc=False):
    """Permit this group's leader to collect garbage; of the server itself, never from outside.

    ``limit_ts``: the garbage mark may rise up to it, as far as the pins and the retention of the whole cluster are
    concerned. ``before_ts``: records of ids created before it may be dropped, unless they name a participant among
    ``unsettled`` (:func:`spanstore.txn.outcomes.collectable`).
    """

    limit_ts: int
    before_ts: int
    unsettled: tuple[int, ...] = ()


Request = (
    Read
    | Settle
    | LockRead
    | Commit
    | Bundle
    | Prepare
    | Decide
    | Outcome
    | Release
    | SafeTimeQuery
    | ChangeMembers
    | MoveRequest
    | OldestPrepared
    | Collect
)


class RowSet(msgspec.Struct, frozen=True, gc=False):
    """Rows of one range read; when ``more``, go on at ``resume`` (start, or end of a reverse read)."""

    rows: list[tuple[bytes, Version]]
    more: bool = False
    resume: bytes = b""


class ReadReply(msgspec.Struct, frozen=True, gc=False):
    """Versions in the order of the keys asked for (None: no version at all), row sets in the order of the ranges.

    ``leader``: who leads, as far as a replica that does not lead knows. ``left_out``: positions of keys that a read
    ``apart`` did not wait for; ``versions`` are those of the others.
    """

    timestamp: int
    versions: list[Version | None] = []
    ranges: list[RowSet] = []
    term: int = 0
    leader: str = ""
    left_out: tuple[int, ...] = ()


class SettleReply(msgspec.Struct, frozen=True, gc=False):
    """``timestamp`` is readable in every view that has applied the log up to ``applied_index``.

    ``range_epoch``: as long as the group's record of its ranges has this epoch, it owns what was asked about.
    """

    timestamp: int
    applied_index: int
    range_epoch: int = 0


class CommitReply(msgspec.Struct, frozen=True, gc=False):
    """Committed at ``ts``."""

    ts: int


class BundleReply(msgspec.Struct, frozen=True, gc=False):
    """All committed at ``ts`` but those at the positions ``left_out``, of which nothing was done; 0: all are."""

    ts: int
    left_out: tuple[int, ...] = ()


class PrepareReply(msgspec.Struct, frozen=True, gc=False):
    """Prepared at ``prepare_ts``: the commit timestamp will be above it or the transaction aborts."""

    prepare_ts: int


class DecideReply(msgspec.Struct, frozen=True, gc=False):
    """The decision is durable here."""


class OutcomeReply(msgspec.Struct, frozen=True, gc=False):
    """``committed`` None: unknown (only to a peek)."""

    committed: bool | None
    ts: int
    attempt: int


class ReleaseReply(msgspec.Struct, frozen=True, gc=False):
    """The locks are gone."""


class SafeTimeReply(msgspec.Struct, frozen=True, gc=False):
    """Reads at or below ``safe_ts`` do not wait at this replica.

    ``groups``, if it is of the meta group: all that are in the directory at ``safe_ts``, and maybe more.
    """

    safe_ts: int
    groups: tuple[int, ...] = ()


class MembersReply(msgspec.Struct, frozen=True, gc=False):
    """The members after the change."""

    configuration: Configuration


class OldestPreparedReply(msgspec.Struct, frozen=True, gc=False):
    """No id that was created before ``created_ts`` has anything prepared here; 0: none at all has."""

    created_ts: int


class CollectReply(msgspec.Struct, frozen=True, gc=False):
    """The permit is taken; the garbage mark is ``mark_ts`` so far."""

    mark_ts: int


Answer = (
    ReadReply
    | SettleReply
    | CommitReply
    | BundleReply
    | PrepareReply
    | DecideReply
    | OutcomeReply
    | ReleaseReply
    | SafeTimeReply
    | MembersReply
    | ExportReply
    | MoveReply
    | OldestPreparedReply
    | CollectReply
    | F1Error
)
Reply = Callable[[Answer], None]
