"""The lock table of a group's leader: strict two-phase locking with wound-wait on keys and ranges."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple


class LockMode(IntEnum):
    """How a span is locked. Values are bits, so that what a transaction holds on a span is one mask."""

    SHARED = 1
    EXCLUSIVE = 2
    APPEND = 4
    """For inserts whose key ends in the commit timestamp: covers the range of their fixed prefix, is compatible with
    other appends (commit timestamps and ids keep the keys apart), conflicts with SHARED and EXCLUSIVE."""


class Span(NamedTuple):
    """What a lock covers: the key ``start`` if ``end`` is None, else every key k with ``start <= k < end``."""

    start: bytes
    end: bytes | None = None


class Priority(NamedTuple):
    """Age of a transaction: the smaller one is older and wins. Kept by the retries of a transaction.

    ``ts`` is when it first began (microseconds since the epoch), ``unique`` its random bytes break ties.
    """

    ts: int
    unique: bytes


class WaitPolicy(Enum):
    """What a request does about conflicts; the package docstring proves that the two together never deadlock."""

    WOUND_WAIT = "wound-wait"
    """Execution phase and one-group commits: wound younger holders that are not prepared, wait for the others."""
    PREPARE = "prepare"
    """Prepare or decision of a multi-group transaction: as above if older than all in the way, else die at once."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """All locks of the request are held now.

    In this and the other results: ``wounded`` are transactions that lost all their locks here and that the caller must
    abort; ``dropped`` are the tokens of requests that those had waiting; ``granted`` are the tokens of other waiting
    requests that the wounds let through, oldest first.
    """

    wounded: tuple[bytes, ...] = ()
    dropped: tuple[object, ...] = ()
    granted: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The request waits; its token comes back from a later call (``granted``, :meth:`LockTable.release`) or is dropped."""

    blockers: tuple[bytes, ...]
    wounded: tuple[bytes, ...] = ()
    dropped: tuple[object, ...] = ()
    granted: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A PREPARE request met an older transaction: nothing changed; abort it and retry with its old priority."""

    blockers: tuple[bytes, ...]
    wounded: tuple[bytes, ...] = ()
    dropped: tuple[object, ...] = ()
    granted: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Holder:
    """A transaction that holds locks on a span, for reads that must wait and for status."""

    txn: bytes
    priority: Priority
    modes: tuple[LockMode, ...]
    prepared: bool


@dataclass(frozen=True, slots=True)
class Waiter:
    """One waiting request, for status: who waits for whom, and for how long (microseconds)."""

    txn: bytes
    priority: Priority
    policy: WaitPolicy
    requests: tuple[tuple[Span, LockMode], ...]
    blockers: tuple[bytes, ...]
    waited_us: int


class LockTable:
    """Locks of one group under one leader term. Pure: no clock, no callbacks; the caller delivers what it returns."""

    def acquire(
        self,
        txn: bytes,
        priority: Priority,
        requests: Sequence[tuple[Span, LockMode]],
        *,
        policy: WaitPolicy,
        token: object,
        boot_us: int,
    ) -> Acquired | Waiting | Refused:
        """Ask for locks as one request: all of them are granted together, now or later, or it is refused.

        ``token`` (hashable, unique among waiting requests) names the request while it waits; ``boot_us`` is now, for
        :meth:`waiters` only. A transaction holds what it already has meanwhile, and never conflicts with itself.
        Raises F1Error INVALID_ARGUMENT for an empty range.
        """
        raise NotImplementedError

    def release(self, txn: bytes) -> list[object]:
        """Give up everything ``txn`` holds or waits for (commit applied, or aborted). Returns granted tokens."""
        raise NotImplementedError

    def cancel(self, token: object) -> list[object]:
        """Stop waiting; what the transaction holds stays. Returns granted tokens. Unknown tokens are ignored."""
        raise NotImplementedError

    def mark_prepared(self, txn: bytes) -> None:
        """``txn`` can no longer be wounded: its prepare or commit is being logged. It may ask for no more locks."""
        raise NotImplementedError

    def restore_prepared(self, txn: bytes, priority: Priority, requests: Sequence[tuple[Span, LockMode]]) -> None:
        """A new leader takes over the locks of a logged prepare, before it serves anything."""
        raise NotImplementedError

    def holds(self, txn: bytes, requests: Sequence[tuple[Span, LockMode]]) -> bool:
        """Tell whether ``txn`` still holds locks that cover all of ``requests``."""
        raise NotImplementedError

    def is_prepared(self, txn: bytes) -> bool:
        """Tell whether ``txn`` holds its locks here as prepared."""
        raise NotImplementedError

    def locks_of(self, txn: bytes) -> tuple[tuple[Span, LockMode], ...]:
        """Return every lock that ``txn`` holds, sorted: what its prepare must log."""
        raise NotImplementedError

    def holders_overlapping(self, span: Span) -> tuple[Holder, ...]:
        """Return who holds locks on any key of ``span``, oldest first."""
        raise NotImplementedError

    def waiters(self, boot_us: int) -> tuple[Waiter, ...]:
        """Return all waiting requests, oldest first."""
        raise NotImplementedError

    def clear(self) -> list[object]:
        """Forget everything (the leader lost its term). Returns the tokens of the requests that waited."""
        raise NotImplementedError
