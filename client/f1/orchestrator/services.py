"""The two services that the orchestrator uses, as interfaces, and their twins within the process."""

import asyncio
import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from f1.errors import translating
from f1.orchestrator import options
from f1.orchestrator.protocol import DECISIONS, EVERYTHING
from f1.orchestrator.steps import Write
from f1.orchestrator.stores.base import Store
from f1common.clock import boot_us
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.ids import new_id, process_rng
from f1common.orchestrator.lock_desk import LockDesk
from f1common.orchestrator.lock_table import LockConfig, LockTable, Token, WantedLock

__all__ = ["LocalLocks", "LocalTimestamps", "LockService", "TimestampService", "require_shared_twins"]

_BOUND_KEY = tuples.encode((None, "timestamps"))
_RANGE = 100_000


class TimestampService(Protocol):
    """Gives out timestamps that rise strictly, whoever asks."""

    async def next(self) -> int:
        """Return a timestamp above all that were given out before this call. Raises F1Error."""
        ...

    async def close(self) -> None:
        """Give back what is held. Idempotent."""
        ...


class LockService(Protocol):
    """Leases locks. What it knows is in memory only."""

    @property
    def lease_s(self) -> float:
        """How long a lease lasts without a refresh, in seconds, as far as it is known."""
        ...

    async def acquire(self, locks: Sequence[WantedLock], bound: int | None, timeout_s: float) -> Token:
        """Lease all of ``locks``, in lexical order, when they are free. Raises F1Error DEADLINE_EXCEEDED."""
        ...

    async def refresh(self, tokens: Sequence[Token]) -> list[bool]:
        """Prolong leases; for each, whether it was alive."""
        ...

    async def validate(self, tokens: Sequence[Token]) -> list[bool]:
        """Tell for each lease whether it was held from the beginning until now."""
        ...

    async def release(self, tokens: Sequence[Token]) -> list[bool]:
        """End leases; for each, whether it was alive."""
        ...

    async def oldest_bound(self) -> int | None:
        """Return the lowest bound of all leases."""
        ...

    async def close(self) -> None:
        """Give back what is held. Idempotent."""
        ...


class LocalTimestamps:
    """Timestamps for the orchestrators of one process, the only one that uses their store.

    The bound is kept in the store, so that a store that outlives the process never sees a timestamp twice.
    """

    def __init__(self) -> None:
        """Serve nobody yet: the orchestrator says which store it is for."""
        self._store: Store | None = None
        self._last = 0
        self._bound = 0
        self._raising = asyncio.Lock()

    def bind(self, store: Store) -> None:
        """Keep the bound in ``store``. Raises F1Error INVALID_ARGUMENT if it is kept in another one already."""
        if self._store is not None and self._store is not store:
            raise F1Error(Code.INVALID_ARGUMENT, "one LocalTimestamps serves one store: make another one")
        self._store = store

    async def next(self) -> int:
        """Return the next timestamp. Raises F1Error FAILED_PRECONDITION for a store of another timestamp service."""
        if self._last >= self._bound:
            async with self._raising:
                if self._last >= self._bound:
                    await self._raise()
        self._last += 1
        return self._last

    async def _raise(self) -> None:
        if self._store is None:
            raise F1Error(Code.FAILED_PRECONDITION, "LocalTimestamps is used by an orchestrator, which names the store")
        (kept,) = await self._store.get_versions([(_BOUND_KEY, EVERYTHING)])
        if kept is None and await self._store.range(*DECISIONS, EVERYTHING, 1):
            text = "another timestamp service has given out this store's timestamps, and this one would repeat them"
            raise F1Error(Code.FAILED_PRECONDITION, f"{text}: use that one")
        bound = max(self._bound, 0 if kept is None else kept.ts)
        await self._store.put([Write(_BOUND_KEY, bound + _RANGE, b"")])
        if kept is not None:
            await self._store.delete([(_BOUND_KEY, kept.ts)])
        self._last, self._bound = bound, bound + _RANGE

    async def close(self) -> None:
        """Nothing is held."""


class LocalLocks:
    """The lock service for the orchestrators of one process."""

    def __init__(
        self,
        *,
        lease_ms: int = 30_000,
        tenure_ms: int = 600_000,
        rng: random.Random | None = None,
        now_us: Callable[[], int] = boot_us,
    ) -> None:
        """Know nothing. A lease lasts ``lease_ms``, refreshed up to ``tenure_ms``. Raises F1Error INVALID_ARGUMENT."""
        self._rng = rng or process_rng()
        with translating():
            lease_us = 1000 * options.above_zero("lease_ms", lease_ms)
            config = LockConfig(lease_us, 1000 * options.above_zero("tenure_ms", tenure_ms))
        self.lease_s = lease_ms / 1000
        self._desk = LockDesk(LockTable(config, self._rng.getrandbits(62)), now_us)

    async def acquire(self, locks: Sequence[WantedLock], bound: int | None, timeout_s: float) -> Token:
        """Lease all of ``locks``. Raises F1Error DEADLINE_EXCEEDED, INVALID_ARGUMENT."""
        request = new_id(self._rng)
        future: asyncio.Future[Token | None] = asyncio.get_running_loop().create_future()
        self._desk.acquire(request, locks, bound, int(timeout_s * 1_000_000), lambda token: _set(future, token))
        try:
            token = await future
        except asyncio.CancelledError:
            self._desk.withdraw(request)
            raise
        if token is None:
            raise not_free(timeout_s)
        return token

    async def refresh(self, tokens: Sequence[Token]) -> list[bool]:
        """Prolong leases."""
        return self._desk.refresh(tokens)

    async def validate(self, tokens: Sequence[Token]) -> list[bool]:
        """Tell which leases are held."""
        return self._desk.validate(tokens)

    async def release(self, tokens: Sequence[Token]) -> list[bool]:
        """End leases."""
        return self._desk.release(tokens)

    async def oldest_bound(self) -> int | None:
        """Return the lowest bound."""
        return self._desk.oldest_bound()

    async def close(self) -> None:
        """Keep everything: another orchestrator may use it."""


class _User(Protocol):
    """An orchestrator."""

    @property
    def closed(self) -> bool: ...


class _Use:
    """What an orchestrator that may still work uses with a store."""

    def __init__(self, user: _User, timestamps: TimestampService, locks: LockService) -> None:
        self.user = weakref.ref(user)
        self.services = (timestamps, locks)

    @property
    def is_over(self) -> bool:
        user = self.user()
        return user is None or user.closed


def _is_twin(service: object) -> bool:
    return isinstance(service, LocalTimestamps | LocalLocks)


_uses: "weakref.WeakKeyDictionary[Any, list[_Use]]" = weakref.WeakKeyDictionary()


def require_shared_twins(user: _User, store: Store, timestamps: TimestampService, locks: LockService) -> None:
    """Note that ``user``, an orchestrator, uses these, if the twins among them are those of all users of the store.

    Two twins know nothing of one another: one store with both would lose updates and see no snapshots, in silence.
    Raises F1Error FAILED_PRECONDITION, INVALID_ARGUMENT.
    """
    services = (timestamps, locks)
    if any(_is_twin(service) for service in services) and getattr(store, "shared", False):
        text = "processes that share a store share its services too: use Timestamps and Locks, not their local twins"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    if isinstance(timestamps, LocalTimestamps):
        timestamps.bind(store)
    uses = [use for use in _uses.get(store, ()) if not use.is_over]
    for other in uses:
        for mine, theirs in zip(services, other.services, strict=True):
            if mine is not theirs and (_is_twin(mine) or _is_twin(theirs)):
                text = f"another orchestrator uses this store with its own {type(theirs).__name__}"
                raise F1Error(Code.FAILED_PRECONDITION, f"{text}: give both the same, or close that orchestrator first")
    _uses[store] = [*uses, _Use(user, timestamps, locks)]


def not_free(timeout_s: float) -> F1Error:
    """Return the error of locks that others hold for too long."""
    text = f"the locks were not free within {timeout_s:g} s: another transaction holds them; run it again"
    return F1Error(Code.DEADLINE_EXCEEDED, text, retryable=True)


def _set(future: "asyncio.Future[Token | None]", token: Token | None) -> None:
    if not future.done():
        future.set_result(token)
