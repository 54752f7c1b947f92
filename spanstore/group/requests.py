"""What a group is asked and what it answers: plain values, so that no protobuf object passes the edge of the process.

Keys are bytes compared as bytes, timestamps microseconds. Every answer reaches the caller through the ``Reply`` that
came with the request: a value of this module or an :class:`F1Error`, exactly once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from f1common.errors import F1Error
from spanstore.group.members import Step
from spanstore.group.move_requests import ExportReply, MoveReply, MoveRequest
from spanstore.mvcc.versions import Version
from spanstore.paxos.configuration import Configuration
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import Precondition, latest_deadline, spans_of
from spanstore.txn.spans import Span


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Live rows in ``[start, end)``; ``limit`` 0 is the server's own bound."""

    start: bytes
    end: bytes
    limit: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A snapshot read; ``timestamp`` 0 is strong: the leader picks the timestamp.

    ``apart``: the keys are for several readers, of whom none is to wait for a transaction that is in another's way.
    What is not in the answer, for that reason or because it would be too large, is asked for again.
    """

    timestamp: int
    keys: tuple[bytes, ...] = ()
    ranges: tuple[RangeRead, ...] = ()
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """A :class:`Read` for somebody who reads the rows himself, from another view of this replica's engine.

    Answered under the conditions of a read: from then on, every view with the applied index of the answer, or a higher
    one, has the same rows at the timestamp in ``ranges``. Nothing is locked; limits and directions are ignored.
    """

    timestamp: int
    ranges: tuple[RangeRead, ...]


@dataclass(frozen=True, slots=True)
class LockRead:
    """Lock, then read the newest versions. ``term`` is that of an earlier LockRead of the transaction here, or 0."""

    txn: TxnRef
    priority_ts: int
    mode: LockMode
    keys: tuple[bytes, ...] = ()
    ranges: tuple[RangeRead, ...] = ()
    term: int = 0


@dataclass(frozen=True, slots=True)
class TxnWork:
    """One group's share of a transaction, as Commit and Prepare carry it."""

    txn: TxnRef
    priority_ts: int
    writes: tuple[Write, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    held: tuple[tuple[Span, LockMode], ...] = ()
    term: int = 0
    deadline: int = 0
    above: int = 0
    locks: tuple[tuple[Span, LockMode], ...] = field(init=False, repr=False, compare=False)
    """What the writes lock, and how. This and the next are asked for on every step of a commit's way."""
    tested: tuple[Span, ...] = field(init=False, repr=False, compare=False)
    """What the preconditions look at."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "locks", tuple(map(lock_of_write, self.writes)))
        tested = tuple(span for test in self.preconditions for span in spans_of(test))
        object.__setattr__(self, "tested", tested)

    def fence(self, keep_us: int) -> int:
        """Return the last timestamp that the transaction may have, if outcomes are kept for ``keep_us``."""
        return latest_deadline(self.deadline, self.txn.created_ts, keep_us)

    def wanted(self) -> list[tuple[Span, LockMode]]:
        """Return the locks to take before it is logged: on what is written, and on what the preconditions look at."""
        wanted = list(self.locks)
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


@dataclass(frozen=True, slots=True)
class Commit:
    """One-group commit, or the coordinator's decision when ``participants`` (group, prepare timestamp) prepared."""

    work: TxnWork
    participants: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Bundle:
    """One-group commits of different transactions, none of which holds locks yet (:mod:`spanstore.group.bundling`)."""

    works: tuple[TxnWork, ...]


@dataclass(frozen=True, slots=True)
class Prepare:
    """First phase of two-phase commit at a participant that is not the coordinator."""

    work: TxnWork
    coordinator_group: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Second phase at a participant: ``ts`` is the commit timestamp, None an abort."""

    txn: TxnRef
    ts: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Did it commit? Unless ``peek``, an attempt never heard of is aborted, durably, before the answer.

    ``inquiry``: asked by a participant that has exactly this attempt prepared, which is answered at any age.
    """

    txn: TxnRef
    peek: bool = False
    inquiry: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Give up the locks of a transaction that is not prepared."""

    txn: TxnRef


@dataclass(frozen=True, slots=True)
class SafeTimeQuery:
    """Ask for the highest timestamp at which this replica can read now without waiting."""


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Change the members by one ``step``; ``name`` is a member's or its server's.

    Unless it is negative, ``version`` must be that of the present configuration. Answered when the change is chosen.
    """

    step: Step
    name: str
    version: int = -1
    home: str = ""
    """For a new replica: the name of its server's data directory."""


@dataclass(frozen=True, slots=True)
class OldestPrepared:
    """Ask the leader for the oldest id of which something is prepared here, or on its way to be."""


@dataclass(frozen=True, slots=True)
class Collect:
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


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows of one range read; when ``more``, go on at ``resume`` (start, or end of a reverse read)."""

    rows: list[tuple[bytes, Version]]
    more: bool = False
    resume: bytes = b""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """Versions in the order of the keys asked for (None: no version at all), row sets in the order of the ranges.

    ``leader``: who leads, as far as a replica that does not lead knows. ``left_out``: positions of keys that a read
    ``apart`` did not wait for; ``versions`` are those of the others.
    """

    timestamp: int
    versions: list[Version | None] = field(default_factory=list)
    ranges: list[RowSet] = field(default_factory=list)
    term: int = 0
    leader: str = ""
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SettleReply:
    """``timestamp`` is readable in every view that has applied the log up to ``applied_index``.

    ``range_epoch``: as long as the group's record of its ranges has this epoch, it owns what was asked about.
    """

    timestamp: int
    applied_index: int
    range_epoch: int = 0


@dataclass(frozen=True, slots=True)
class CommitReply:
    """Committed at ``ts``."""

    ts: int


@dataclass(frozen=True, slots=True)
class BundleReply:
    """All committed at ``ts`` but those at the positions ``left_out``, of which nothing was done; 0: all are."""

    ts: int
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PrepareReply:
    """Prepared at ``prepare_ts``: the commit timestamp will be above it or the transaction aborts."""

    prepare_ts: int


@dataclass(frozen=True, slots=True)
class DecideReply:
    """The decision is durable here."""


@dataclass(frozen=True, slots=True)
class OutcomeReply:
    """``committed`` None: unknown (only to a peek)."""

    committed: bool | None
    ts: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ReleaseReply:
    """The locks are gone."""


@dataclass(frozen=True, slots=True)
class SafeTimeReply:
    """Reads at or below ``safe_ts`` do not wait at this replica.

    ``groups``, if it is of the meta group: all that are in the directory at ``safe_ts``, and maybe more.
    """

    safe_ts: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MembersReply:
    """The members after the change."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class OldestPreparedReply:
    """No id that was created before ``created_ts`` has anything prepared here; 0: none at all has."""

    created_ts: int


@dataclass(frozen=True, slots=True)
class CollectReply:
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
