"""The lock service's state: leases on locks, in memory only (patent 9619507, "lock service"; pure).

A *lease* is what one request was granted: some locks, all or none, and perhaps a *bound*, which says that its holder
reads at no timestamp up to there. A lease lapses unless it is refreshed in time, and after a maximum tenure in any
case. Requests that cannot be granted wait in the order in which they came; none overtakes an earlier one that it
conflicts with. As a request holds nothing while it waits, requests cannot block one another in a circle.

A lease is known by its *token*: the incarnation of the service and a number that is never given twice. A service that
has lost its memory is a new incarnation, so that no token of the old one is ever valid again, also if the same request
arrives a second time. The name of the request is for that only: sent again, it is answered with the same token.

Times are microseconds of one monotonic clock that the caller samples after it has taken the request.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from f1common.errors import Code, F1Error

__all__ = ["Done", "LockConfig", "LockTable", "Mode", "Token", "WantedLock"]

MAX_LOCKS = 100_000
MAX_NAME_BYTES = 4096


class Mode(IntEnum):
    """How a lock is held: any number of leases may hold READ, or one WRITE."""

    READ = 1
    WRITE = 2


class WantedLock(NamedTuple):
    """A lock by its name, and how it is to be held."""

    name: bytes
    mode: Mode


class Token(NamedTuple):
    """Names a lease for ever."""

    incarnation: int
    number: int


class Done(NamedTuple):
    """A request is over: granted as ``token``, or, when that is None, not within its time."""

    request: bytes
    token: Token | None


@dataclass(frozen=True, slots=True)
class LockConfig:
    """``lease_us`` is how long a lease lasts without a refresh, ``tenure_us`` how long with any number of them."""

    lease_us: int
    tenure_us: int

    def __post_init__(self) -> None:
        """Raise F1Error INVALID_ARGUMENT unless 0 < lease_us <= tenure_us."""
        if not 0 < self.lease_us <= self.tenure_us:
            raise F1Error(Code.INVALID_ARGUMENT, "a lease lasts longer than 0 us and no longer than the maximum tenure")


@dataclass(slots=True)
class _Lease:
    request: bytes
    token: Token
    locks: tuple[WantedLock, ...]
    bound: int | None
    last_us: int
    """When the maximum tenure is over."""
    end_us: int


@dataclass(slots=True)
class _Waiter:
    request: bytes
    order: int
    locks: tuple[WantedLock, ...]
    bound: int | None
    until_us: int


@dataclass(slots=True)
class _Name:
    """One lock: who holds it, and who waits for it, oldest first."""

    holders: dict[int, Mode] = field(default_factory=dict)
    queue: deque[tuple[int, Mode, bytes]] = field(default_factory=deque)


def check_locks(locks: Sequence[WantedLock]) -> None:
    """Raise F1Error INVALID_ARGUMENT unless the names ascend and are within the limits: the order is the protocol's."""
    if len(locks) > MAX_LOCKS:
        raise F1Error(Code.INVALID_ARGUMENT, f"a request has up to {MAX_LOCKS} locks, not {len(locks)}")
    last = b""
    for position, lock in enumerate(locks):
        if not 0 < len(lock.name) <= MAX_NAME_BYTES:
            raise F1Error(Code.INVALID_ARGUMENT, f"the name of a lock has 1 to {MAX_NAME_BYTES} bytes")
        if position and lock.name <= last:
            raise F1Error(Code.INVALID_ARGUMENT, "the locks of a request stand in lexical order, each once")
        last = lock.name


class LockTable:
    """All leases and waiting requests of one incarnation. Every method lets time pass up to ``now_us`` first."""

    def __init__(self, config: LockConfig, incarnation: int) -> None:
        """Know nothing. ``incarnation`` is a number that no other life of the service has."""
        self.incarnation = incarnation
        self._config = config
        self._leases: dict[int, _Lease] = {}
        self._waiters: dict[bytes, _Waiter] = {}
        self._names: dict[bytes, _Name] = {}
        self._granted: dict[bytes, int] = {}
        self._ended: dict[bytes, int] = {}  # request -> when it may be forgotten
        self._numbers = 0
        self._orders = 0
        self._alarms: list[tuple[int, int, bytes]] = []  # (when, lease's number or 0, request)

    # ------------------------------------------------------------------ operations

    def acquire(
        self, request: bytes, locks: Sequence[WantedLock], bound: int | None, now_us: int, until_us: int
    ) -> list[Done]:
        """Grant all of ``locks`` now, or when they are free, unless that takes longer than ``until_us``.

        The answers are about this request and others that time has settled. A request that was granted before is
        answered with the same token while that lease lives, and as not granted afterwards. Raises INVALID_ARGUMENT.
        """
        check_locks(locks)
        if not 0 < len(request) <= MAX_NAME_BYTES:
            raise F1Error(Code.INVALID_ARGUMENT, "a request has a name, of up to 4096 bytes")
        done = self.tick(now_us)
        if request in self._granted:
            return [*done, Done(request, self._leases[self._granted[request]].token)]
        if request in self._ended:
            return [*done, Done(request, None)]
        if request in self._waiters:
            return done
        self._orders += 1
        waiter = _Waiter(request, self._orders, tuple(locks), bound, until_us)
        for lock in locks:
            self._names.setdefault(lock.name, _Name()).queue.append((waiter.order, lock.mode, request))
        self._waiters[request] = waiter
        if self._is_free(waiter):
            done.append(self._grant(waiter, now_us))
        elif until_us <= now_us:
            done.append(Done(request, None))
            done += self._withdraw(request, now_us)
        else:
            heapq.heappush(self._alarms, (until_us, 0, request))
        return done

    def withdraw(self, request: bytes, now_us: int) -> list[Done]:
        """End a request whose caller is gone, or what it was granted. The answers are about others."""
        done = self.tick(now_us)
        if request in self._granted:
            return done + self._end(self._granted[request], now_us)
        if request in self._waiters:
            return done + self._withdraw(request, now_us)
        # It may arrive after its withdrawal.
        self._remember_ended(request, now_us)
        return done

    def refresh(self, tokens: Sequence[Token], now_us: int) -> tuple[list[bool], list[Done]]:
        """Prolong leases; for each token, whether it was alive. None outlives the maximum tenure."""
        done = self.tick(now_us)
        alive = []
        for token in tokens:
            lease = self._find(token)
            alive.append(lease is not None)
            if lease is not None:
                lease.end_us = min(now_us + self._config.lease_us, lease.last_us)
        return alive, done

    def validate(self, tokens: Sequence[Token], now_us: int) -> tuple[list[bool], list[Done]]:
        """Tell for each token whether its lease has been held without a gap since it was granted, and is."""
        done = self.tick(now_us)
        return [self._find(token) is not None for token in tokens], done

    def release(self, tokens: Sequence[Token], now_us: int) -> tuple[list[bool], list[Done]]:
        """End leases; for each token, whether it was alive."""
        done = self.tick(now_us)
        alive = []
        for token in tokens:
            lease = self._find(token)
            alive.append(lease is not None)
            if lease is not None:
                done += self._end(token.number, now_us)
        return alive, done

    def oldest_bound(self, now_us: int) -> tuple[int | None, list[Done]]:
        """Return the lowest bound of all leases, None if none has one."""
        done = self.tick(now_us)
        return min((lease.bound for lease in self._leases.values() if lease.bound is not None), default=None), done

    # ------------------------------------------------------------------ time

    def tick(self, now_us: int) -> list[Done]:
        """Let time pass: leases lapse, requests that waited too long end, others are granted."""
        done: list[Done] = []
        while self._alarms and self._alarms[0][0] <= now_us:
            _, number, request = heapq.heappop(self._alarms)
            if number:
                lease = self._leases.get(number)
                if lease is not None and lease.end_us <= now_us:
                    done += self._end(number, now_us)
                elif lease is not None:
                    heapq.heappush(self._alarms, (lease.end_us, number, request))
            elif request in self._waiters:
                done.append(Done(request, None))
                done += self._withdraw(request, now_us)
            elif self._ended.get(request, now_us + 1) <= now_us:
                del self._ended[request]
        return done

    def next_us(self) -> int | None:
        """Return when :meth:`tick` has something to do at the earliest, None if never."""
        return self._alarms[0][0] if self._alarms else None

    @property
    def counts(self) -> tuple[int, int]:
        """How many leases there are, and how many requests wait."""
        return len(self._leases), len(self._waiters)

    # ------------------------------------------------------------------ inside

    def _find(self, token: Token) -> _Lease | None:
        return self._leases.get(token.number) if token.incarnation == self.incarnation else None

    def _is_free(self, waiter: _Waiter) -> bool:
        return all(self._is_lock_free(waiter.order, lock) for lock in waiter.locks)

    def _is_lock_free(self, order: int, lock: WantedLock) -> bool:
        name = self._names[lock.name]
        both_read = lock.mode is Mode.READ
        if any(not (both_read and mode is Mode.READ) for mode in name.holders.values()):
            return False
        for earlier, mode, _ in name.queue:
            if earlier >= order:
                return True
            if not (both_read and mode is Mode.READ):
                return False
        return True

    def _grant(self, waiter: _Waiter, now_us: int) -> Done:
        self._numbers += 1
        number = self._numbers
        for lock in waiter.locks:
            name = self._names[lock.name]
            name.queue.remove((waiter.order, lock.mode, waiter.request))
            name.holders[number] = lock.mode
        del self._waiters[waiter.request]
        last_us = now_us + self._config.tenure_us
        end_us = now_us + self._config.lease_us
        token = Token(self.incarnation, number)
        self._leases[number] = _Lease(waiter.request, token, waiter.locks, waiter.bound, last_us, end_us)
        self._granted[waiter.request] = number
        heapq.heappush(self._alarms, (end_us, number, waiter.request))
        return Done(waiter.request, token)

    def _end(self, number: int, now_us: int) -> list[Done]:
        lease = self._leases.pop(number)
        del self._granted[lease.request]
        self._remember_ended(lease.request, now_us)
        for lock in lease.locks:
            del self._names[lock.name].holders[number]
        return self._grant_freed(lease.locks, now_us)

    def _withdraw(self, request: bytes, now_us: int) -> list[Done]:
        waiter = self._waiters.pop(request)
        self._remember_ended(request, now_us)
        for lock in waiter.locks:
            self._names[lock.name].queue.remove((waiter.order, lock.mode, request))
        return self._grant_freed(waiter.locks, now_us)

    def _remember_ended(self, request: bytes, now_us: int) -> None:
        """A copy of the request that is still on its way must not be granted a second time.

        One that is on its way for longer than a lease lasts would get a lease that nobody refreshes: it lapses. To
        remember all requests for a whole tenure would take a gigabyte where there are thousands a second.
        """
        self._ended[request] = now_us + self._config.lease_us
        heapq.heappush(self._alarms, (self._ended[request], 0, request))

    def _grant_freed(self, locks: Sequence[WantedLock], now_us: int) -> list[Done]:
        """Grant, oldest first, what waited for one of ``locks`` and for nothing else."""
        waiting: dict[int, bytes] = {}
        for lock in locks:
            name = self._names[lock.name]
            waiting.update((order, request) for order, _, request in name.queue)
            if not name.queue and not name.holders:
                del self._names[lock.name]
        done = []
        for order in sorted(waiting):
            waiter = self._waiters[waiting[order]]
            if self._is_free(waiter):
                done.append(self._grant(waiter, now_us))
        return done
