"""The lock table of a group's leader: strict two-phase locking with wound-wait on keys and ranges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from f1common.errors import Code, F1Error, check
from spanstore.txn.spans import Span, SpanIndex, check_span

__all__ = [
    "Acquired",
    "Holder",
    "LockMode",
    "LockTable",
    "Priority",
    "Refused",
    "Span",
    "WaitPolicy",
    "Waiter",
    "Waiting",
]


class LockMode(IntEnum):
    """How a span is locked. Values are bits, so that what a transaction holds on a span is one mask."""

    SHARED = 1
    EXCLUSIVE = 2
    APPEND = 4
    """For inserts whose key ends in the commit timestamp: covers the range of their fixed prefix, is compatible with
    other appends (commit timestamps and ids keep the keys apart), conflicts with SHARED and EXCLUSIVE."""


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
    """The request waits; a later call returns its token, as granted or as dropped."""

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


_ACQUIRED = Acquired()
_SHARED, _EXCLUSIVE, _APPEND = LockMode.SHARED, LockMode.EXCLUSIVE, LockMode.APPEND
_CLASHES: dict[int, int] = {
    _SHARED: _EXCLUSIVE | _APPEND,
    _EXCLUSIVE: _SHARED | _EXCLUSIVE | _APPEND,
    _APPEND: _SHARED | _EXCLUSIVE,
}
"""For a mode, the modes of other transactions that it is incompatible with, as a mask."""
_SUFFICES: dict[int, int] = {mode: mode | _EXCLUSIVE for mode in LockMode}
"""For a mode, the held modes any one of which makes asking for it needless, as a mask."""

_Rank = tuple[Priority, bytes]
"""Total order of age: the priority, then the transaction, so that no two transactions are ever equally old."""


class _Request:
    """A waiting request and whom it waits for."""

    __slots__ = ("blockers", "policy", "rank", "seq", "since_us", "token", "txn", "wanted")

    def __init__(
        self,
        state: "_Txn",
        wanted: list[tuple[Span, LockMode]],
        policy: WaitPolicy,
        token: object,
        since_us: int,
        seq: int,
    ) -> None:
        self.txn = state.txn
        self.rank = state.rank
        self.wanted = wanted
        self.policy = policy
        self.token = token
        self.since_us = since_us
        self.seq = seq
        self.blockers: set[bytes] = set()


class _Txn:
    """What one transaction holds and waits for. ``waited_by`` is a set that remembers its order."""

    __slots__ = ("locks", "prepared", "rank", "requests", "txn", "waited_by")

    def __init__(self, txn: bytes, priority: Priority) -> None:
        self.txn = txn
        self.rank: _Rank = (priority, txn)
        self.prepared = False
        self.locks: dict[Span, int] = {}
        self.requests: list[_Request] = []
        self.waited_by: dict[_Request, None] = {}


def _precedes(first: _Request, second: _Request) -> bool:
    """Tell which of two clashing requests waits for the other. Nobody overtakes a PREPARE request that waits."""
    if second.policy is WaitPolicy.PREPARE:
        return first.policy is WaitPolicy.PREPARE and first.seq < second.seq
    return first.policy is WaitPolicy.PREPARE or first.rank < second.rank


def _order(request: _Request) -> tuple[_Rank, int]:
    return request.rank, request.seq


def _wounds(state: _Txn, holder: _Txn) -> bool:
    """Tell whether a request of ``state`` wounds ``holder``, which is in its way."""
    return not holder.prepared and state.rank < holder.rank


def _blocks(state: _Txn, request: _Request) -> bool:
    """Tell whether ``request`` has to wait for ``state``: from scratch, for when ``state`` gives up a request."""

    def clashes(others: Iterable[tuple[Span, int]]) -> bool:
        return any(
            _CLASHES[mode] & bits and span.overlaps(other) for other, bits in others for span, mode in request.wanted
        )

    if clashes(state.locks.items()):
        return True
    return any(_precedes(other, request) and clashes(other.wanted) for other in state.requests)


def _modes(bits: int) -> tuple[LockMode, ...]:
    """Return the modes in a mask, without those that EXCLUSIVE includes."""
    if bits & _EXCLUSIVE:
        return (_EXCLUSIVE,)
    return tuple(mode for mode in (_SHARED, _APPEND) if bits & mode)


class LockTable:
    """Locks of one group under one leader term. Pure: no clock, no callbacks; the caller delivers what it returns.

    Waiting is an explicit graph: each waiting request has the set of transactions that it waits for, those that hold a
    clashing lock and those with a clashing request ahead of it. Every change keeps the sets exact, so a request is
    granted at the very call that empties its set, and two clashing requests never become free together, because the
    one behind waits for the one ahead.
    """

    __slots__ = ("_held", "_requests", "_seq", "_txns", "_wanted")

    def __init__(self) -> None:
        self._txns: dict[bytes, _Txn] = {}
        self._held: SpanIndex[bytes] = SpanIndex()
        self._wanted: SpanIndex[_Request] = SpanIndex()
        self._requests: dict[object, _Request] = {}
        self._seq = 0

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
        Raises F1Error INVALID_ARGUMENT for an empty range or another priority than before, FAILED_PRECONDITION if the
        transaction is prepared and asks for more than it has.
        """
        wanted = self._missing(txn, requests)
        if not wanted:
            return _ACQUIRED
        state = self._txns.get(txn)
        if state is None:
            state = _Txn(txn, priority)
        elif state.prepared:
            raise F1Error(Code.FAILED_PRECONDITION, "a transaction that is being committed asked for another lock")
        if state.rank[0] != priority:
            raise F1Error(Code.INVALID_ARGUMENT, f"a transaction keeps its priority: {state.rank[0]}, not {priority}")
        holders = self._clashing_holders(txn, wanted)
        waiting = self._clashing_requests(txn, wanted) if self._requests else []
        if not holders and not waiting:
            self._txns[txn] = state
            self._take(state, wanted)
            return _ACQUIRED
        if policy is WaitPolicy.PREPARE:
            older = {holder for holder in holders if self._txns[holder].rank < state.rank}
            older.update(request.txn for request in waiting if request.rank < state.rank)
            if older:
                return Refused(tuple(sorted(older)))
        self._txns[txn] = state
        self._seq += 1
        return self._overtake(state, _Request(state, wanted, policy, token, boot_us, self._seq), holders, waiting)

    def acquire_free(self, txn: bytes, priority: Priority, requests: Sequence[tuple[Span, LockMode]]) -> bool:
        """Take locks for a transaction that has none, if nobody is in the way; tell whether they were taken."""
        if txn in self._txns:
            return False
        wanted = list(dict.fromkeys(requests))
        if self._clashing_holders(txn, wanted) or (self._requests and self._clashing_requests(txn, wanted)):
            return False
        state = self._txns[txn] = _Txn(txn, priority)
        self._take(state, wanted)
        return True

    def release(self, txn: bytes) -> list[object]:
        """Give up everything ``txn`` holds or waits for (commit applied, or aborted). Returns granted tokens.

        Requests of its own that still wait are forgotten: answering those is the caller's.
        """
        state = self._txns.get(txn)
        return [] if state is None else self._remove([state])

    def cancel(self, token: object) -> list[object]:
        """Stop waiting; what the transaction holds stays. Returns granted tokens. Unknown tokens are ignored."""
        request = self._requests.get(token)
        if request is None:
            return []
        state = self._txns[request.txn]
        self._dequeue(request)
        free: list[_Request] = []
        for other in list(state.waited_by):
            if not _blocks(state, other):
                del state.waited_by[other]
                other.blockers.remove(state.txn)
                if not other.blockers:
                    free.append(other)
        if not state.locks and not state.requests:
            check(not state.waited_by, "nobody waits for a transaction that has nothing")
            del self._txns[state.txn]
        return self._grant(free)

    def mark_prepared(self, txn: bytes) -> None:
        """``txn`` can no longer be wounded: its prepare or commit is being logged. It may ask for no more locks.

        One without any lock here (a commit of nothing) needs no mark. A stray read of its own that still waits changes
        nothing either: the transaction ends without it.
        """
        state = self._txns.get(txn)
        if state is not None:
            state.prepared = True

    def restore_prepared(self, txn: bytes, priority: Priority, requests: Sequence[tuple[Span, LockMode]]) -> None:
        """A new leader takes over the locks of a logged prepare, before it serves anything."""
        check(not self._requests, "prepared locks are restored before the leader serves")
        wanted = self._missing(txn, requests)
        check(not self._clashing_holders(txn, wanted), "two prepared transactions hold clashing locks")
        state = self._txns.get(txn)
        if state is None:
            state = self._txns[txn] = _Txn(txn, priority)
        self._take(state, wanted)
        state.prepared = True

    def holds(self, txn: bytes, requests: Sequence[tuple[Span, LockMode]]) -> bool:
        """Tell whether ``txn`` still holds locks that cover all of ``requests``."""
        return all(self._held.covers(span, txn, _SUFFICES[mode]) for span, mode in requests)

    def is_prepared(self, txn: bytes) -> bool:
        """Tell whether ``txn`` holds its locks here as prepared."""
        state = self._txns.get(txn)
        return state is not None and state.prepared

    def locks_of(self, txn: bytes) -> tuple[tuple[Span, LockMode], ...]:
        """Return every lock that ``txn`` holds, sorted: what its prepare must log."""
        state = self._txns.get(txn)
        if state is None:
            return ()
        # A single key sorts before a range that starts with it: None does not compare with bytes.
        spans = sorted(state.locks, key=lambda span: (span.start, span.end or b""))
        return tuple((span, mode) for span in spans for mode in _modes(state.locks[span]))

    def holders_overlapping(self, span: Span) -> tuple[Holder, ...]:
        """Return who holds locks on any key of ``span``, oldest first."""
        found: dict[bytes, int] = {}
        for owners in self._held.overlapping(span):
            for txn, bits in owners.items():
                found[txn] = found.get(txn, 0) | bits
        states = sorted((self._txns[txn] for txn in found), key=lambda state: state.rank)
        return tuple(Holder(state.txn, state.rank[0], _modes(found[state.txn]), state.prepared) for state in states)

    def waiters(self, boot_us: int) -> tuple[Waiter, ...]:
        """Return all waiting requests, oldest first. ``boot_us`` is now."""
        return tuple(
            Waiter(
                txn=request.txn,
                priority=request.rank[0],
                policy=request.policy,
                requests=tuple(request.wanted),
                blockers=tuple(sorted(request.blockers)),
                waited_us=boot_us - request.since_us,
            )
            for request in sorted(self._requests.values(), key=_order)
        )

    def clear(self) -> list[object]:
        """Forget everything (the leader lost its term). Returns the tokens of the requests that waited."""
        tokens = list(self._requests)
        self._txns.clear()
        self._requests.clear()
        self._held = SpanIndex()
        self._wanted = SpanIndex()
        return tokens

    def _missing(self, txn: bytes, requests: Sequence[tuple[Span, LockMode]]) -> list[tuple[Span, LockMode]]:
        """Return what ``txn`` does not hold yet, each lock once, in the order of the request."""
        known = txn in self._txns
        missing: dict[tuple[Span, LockMode], None] = {}
        for request in requests:
            span, mode = request
            if span.end is not None:
                check_span(span)
            if not known or not self._held.covers(span, txn, _SUFFICES[mode]):
                missing[request] = None
        return list(missing)

    def _clashing_holders(self, txn: bytes, wanted: list[tuple[Span, LockMode]]) -> set[bytes]:
        """Return the transactions other than ``txn`` that hold locks which clash with ``wanted``."""
        found: set[bytes] = set()
        for span, mode in wanted:
            clashes = _CLASHES[mode]
            for owners in self._held.overlapping(span):
                for owner, bits in owners.items():
                    if bits & clashes and owner != txn:
                        found.add(owner)
        return found

    def _clashing_requests(self, txn: bytes, wanted: list[tuple[Span, LockMode]]) -> list[_Request]:
        """Return the waiting requests of other transactions that clash with ``wanted``."""
        found: dict[_Request, None] = {}
        for span, mode in wanted:
            clashes = _CLASHES[mode]
            for owners in self._wanted.overlapping(span):
                for request, bits in owners.items():
                    if bits & clashes and request.txn != txn:
                        found[request] = None
        return list(found)

    def _overtake(
        self, state: _Txn, request: _Request, holders: set[bytes], waiting: list[_Request]
    ) -> Acquired | Waiting:
        """Place a request that clashes: wound, go ahead of some and wait for the others, or take the locks."""
        victims = [other for other in map(self._txns.__getitem__, sorted(holders)) if _wounds(state, other)]
        wounded = tuple(victim.txn for victim in victims)
        request.blockers = holders.difference(wounded)
        for other in waiting:
            if _precedes(request, other):
                other.blockers.add(state.txn)
                state.waited_by[other] = None
            elif other.txn not in wounded:
                request.blockers.add(other.txn)
        blockers = tuple(sorted(request.blockers))
        # Placed before the victims go, so that what their going lets through is not in this request's way.
        if blockers:
            self._enqueue(state, request)
        else:
            self._take(state, request.wanted)
        dropped = tuple(other.token for victim in victims for other in victim.requests)
        granted = tuple(self._remove(victims))
        if blockers:
            return Waiting(blockers, wounded, dropped, granted)
        return Acquired(wounded, dropped, granted)

    def _take(self, state: _Txn, wanted: list[tuple[Span, LockMode]]) -> None:
        self._held.add_all(state.txn, wanted)
        for span, mode in wanted:
            state.locks[span] = state.locks.get(span, 0) | mode

    def _enqueue(self, state: _Txn, request: _Request) -> None:
        check(request.token not in self._requests, "a token names one waiting request")
        self._requests[request.token] = request
        state.requests.append(request)
        self._wanted.add_all(request, request.wanted)
        for blocker in request.blockers:
            self._txns[blocker].waited_by[request] = None

    def _dequeue(self, request: _Request) -> None:
        del self._requests[request.token]
        self._txns[request.txn].requests.remove(request)
        self._wanted.remove(request, dict.fromkeys(span for span, _ in request.wanted))
        for blocker in request.blockers:
            del self._txns[blocker].waited_by[request]

    def _remove(self, states: list[_Txn]) -> list[object]:
        """Take transactions out, all of them before anyone is let through. Returns granted tokens."""
        for state in states:
            for request in list(state.requests):
                self._dequeue(request)
        free: list[_Request] = []
        for state in states:
            self._held.remove(state.txn, state.locks)
            del self._txns[state.txn]
            for other in state.waited_by:
                other.blockers.remove(state.txn)
                if not other.blockers:
                    free.append(other)
        return self._grant(free)

    def _grant(self, free: list[_Request]) -> list[object]:
        free.sort(key=_order)
        for request in free:
            self._dequeue(request)
            self._take(self._txns[request.txn], request.wanted)
        return [request.token for request in free]
