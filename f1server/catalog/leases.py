"""A server's leases on schemas: which version it may use, and until when (schema-change paper, section 3).

A lease is taken by one commit that writes the server's lease row and fails unless the schema is unchanged. It ends at
that commit's timestamp plus the lease period; every data commit carries this end as its deadline, so that a server that
cannot renew stops by itself, whatever its clock or its operating system does. Leases are renewed at half their life
(or another share of it, as configured).
The schema has copies in several groups (:mod:`f1server.catalog.places`): while the meta group does not answer, a lease
is taken where one of them is, and is worth the same.

Work that began under an older version may still commit until the lease it was given ends. The lease row says so, and
whoever changes the schema next waits for it. :meth:`SchemaLeases.use` tells when a piece of work is over, so that this
wait is short; what :meth:`SchemaLeases.current` gives counts until the task that asked is over. If the end of some work
is unknown, the end of its lease counts. Nothing begins under the old version once the row for a new one is being
written: the row would be silent about it. What another process of this server's name has said counts as old work too:
one that was there before, or one that was taken for dead, stood still, and is back. Neither writes over a row of the
other that it has not read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from f1common.clock import Clock
from f1common.config_sql import BOUNDS_OF_A_LEASE
from f1common.errors import Code, F1Error, check
from f1server.catalog.schema import Schema
from f1server.catalog.store import LeaseRow, SchemaStore, Stored

__all__ = ["Leased", "SchemaLeases", "Use"]

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE_LEASES = 30
_UNTRIED_US = 30_000_000
"""An attempt to take a lease takes less than that: between failures further apart nobody tried."""
_ATTEMPTS = 20


class _Reason(Enum):
    NEEDED = "no valid lease"
    REREAD = "the schema may be newer"
    RENEWAL = "the lease is due to be renewed"


@dataclass(slots=True, eq=False)
class _Held:
    """One database's lease."""

    stored: Stored
    lease_end: int
    used_us: int
    pins: dict[int, int] = field(default_factory=dict)
    """Running uses by version."""
    handed: dict[int, int] = field(default_factory=dict)
    """Latest lease end that was given to a use, by version."""
    loose: dict[int, int] = field(default_factory=dict)
    """Until when work of unknown end may commit, by version."""
    told_old: bool = False
    """Does the lease row mention older versions?"""
    newest: tuple[int, int] = (0, 0)
    """A version, and a timestamp at which it was the newest."""
    rows: dict[int, int] = field(default_factory=dict)
    """By place: when the lease row that is there was written, as far as is known."""

    def old_work(self, now_earliest: int) -> tuple[int, int]:
        """Return the oldest version below the current one under which work may still commit, and until when."""
        current = self.stored.schema.version
        ends: dict[int, int] = {}
        for version in sorted({*self.pins, *self.loose}):
            end = self.loose.get(version, 0)
            if self.pins.get(version):
                end = max(end, self.handed.get(version, 0))
            if version < current and end >= now_earliest:
                ends[version] = end
            elif version < current and not self.pins.get(version):
                self.loose.pop(version, None)
                self.handed.pop(version, None)
        return (min(ends), max(ends.values())) if ends else (0, 0)


@dataclass(frozen=True, slots=True)
class Leased:
    """A schema and the timestamp at which the right to use it ends, unless the lease is renewed meanwhile."""

    schema: Schema
    lease_end: int
    _held: _Held | None = field(default=None, repr=False, compare=False)

    def checked(self, timestamp: int) -> int:
        """Return a timestamp to read at. Raises UNAVAILABLE if it lies behind the lease: the process stood still.

        What the schema promises to be there, such as the entries of an index, may be gone by then.
        """
        if timestamp > self.deadline():
            raise F1Error(Code.UNAVAILABLE, "this server stood still for longer than its schema lease; ask again")
        return timestamp

    def deadline(self) -> int:
        """Return the latest timestamp of a commit that is made under this schema now: the lease's end as it is known.

        While the version is in use, its renewals count for work that began before them.
        """
        held, version = self._held, self.schema.version
        if held is None or held.stored.schema.version != version or not held.pins.get(version):
            return self.lease_end
        held.handed[version] = max(held.handed.get(version, 0), held.lease_end)
        return max(self.lease_end, held.lease_end)


class Use:
    """``async with leases.use(database) as leased``: a piece of work under one version of the schema."""

    __slots__ = ("_database", "_held", "_leased", "_leases")

    def __init__(self, leases: "SchemaLeases", database: str) -> None:
        self._leases = leases
        self._database = database
        self._held: _Held | None = None
        self._leased: Leased | None = None

    async def __aenter__(self) -> Leased:
        """Begin. Raises F1Error NOT_FOUND for the database, UNAVAILABLE if no lease can be had."""
        held = await self._leases.held(self._database)
        version = held.stored.schema.version
        held.pins[version] = held.pins.get(version, 0) + 1
        held.handed[version] = max(held.handed.get(version, 0), held.lease_end)
        self._held = held
        self._leased = Leased(held.stored.schema, held.lease_end, held)
        return self._leased

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End. Work that failed may have left a commit behind whose outcome nobody knows."""
        held, leased = self._held, self._leased
        if held is None or leased is None:
            return
        version = leased.schema.version
        until = max(leased.lease_end, held.handed.get(version, 0))
        self._leases.release(held, version, 0 if _is_definite(error) else until)


def _take_over(held: _Held, rows: Iterable[LeaseRow]) -> None:
    """Count what another process of this server's name may do under its leases as old work of this one."""
    for left in rows:
        held.rows[left.place] = left.ts
        held.loose[left.version] = max(held.loose.get(left.version, 0), left.ts + left.lease_us)
        if left.old_version:
            held.loose[left.old_version] = max(held.loose.get(left.old_version, 0), left.old_until)


def _is_definite(error: BaseException | None) -> bool:
    """Did work that ended so leave nothing behind that may still commit?"""
    return error is None or (isinstance(error, F1Error) and not error.ambiguous)


class SchemaLeases:
    """The leases of one server, for all databases that it is asked about."""

    def __init__(
        self,
        store: SchemaStore,
        clock: Clock,
        *,
        server: str,
        address: str,
        lease_ms: int = 2_000,
        renewal_percent: int = 50,
        lost_after_ms: int = 0,
    ) -> None:
        """``address`` is where other servers reach this one; ``lease_ms`` is the lease period.

        ``renewal_percent``: how much of it is over when the lease is renewed.
        ``lost_after_ms``: when no lease could be had for so long, :attr:`lost` is set; 0: never.
        """
        self._store = store
        self._clock = clock
        self.server = server
        self._address = address
        self._lease_us = lease_ms * 1_000
        self._left_us = self._lease_us * (100 - renewal_percent) // 100
        """How much of a lease is left when it is renewed."""
        self._patience_s = self._left_us / 1_000_000 / 4
        """How long one copy of the schema is waited for: all of them are asked before the lease is over."""
        self._held: dict[str, _Held] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while a database's lease is taken; nothing stays of names that somebody has made up."""
        self._acquiring: set[asyncio.Task[_Held]] = set()
        self._by_task: dict[asyncio.Task[Any], list[tuple[_Held, int]]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._lost_after_us = lost_after_ms * 1_000
        self._failing_us: dict[str, tuple[int, int]] = {}
        """When, on the boot clock, a lease could first and last not be had on a database that one was held on."""
        self.lost = asyncio.Event()
        """Set when this server is of no use any more as it is: others may go on, and a new process may be better off
        (schema-change paper, section 4.3)."""

    async def current(self, database: str) -> Leased:
        """Return the schema to use and until when, for reads and plans of the task that asks; commits need :meth:`use`.

        Raises F1Error NOT_FOUND for the database, UNAVAILABLE if no lease can be had: nothing may be done then.
        """
        held = await self.held(database)
        task = asyncio.current_task()
        check(task is not None, "leases are used by tasks")
        self._pin_for(task, held)  # type: ignore[arg-type]
        return Leased(held.stored.schema, held.lease_end, held)

    def _pin_for(self, task: asyncio.Task[Any], held: _Held) -> None:
        version = held.stored.schema.version
        if task not in self._by_task:
            self._by_task[task] = []
            task.add_done_callback(self._task_is_over)
        held.handed[version] = max(held.handed.get(version, 0), held.lease_end)
        if (held, version) not in self._by_task[task]:
            held.pins[version] = held.pins.get(version, 0) + 1
            self._by_task[task].append((held, version))

    def _task_is_over(self, task: asyncio.Task[Any]) -> None:
        self._unpin(task, failed=task.cancelled() or not _is_definite(task.exception()))

    def release_task(self) -> None:
        """What the running task did under schemas that it got by :meth:`current` is over: it changes the schema now."""
        task = asyncio.current_task()
        if task is not None:
            self._unpin(task, failed=False)

    def _unpin(self, task: asyncio.Task[Any], *, failed: bool) -> None:
        for held, version in self._by_task.get(task, ()):
            self.release(held, version, held.handed.get(version, 0) if failed else 0)
        if self._by_task.pop(task, None) is not None:
            task.remove_done_callback(self._task_is_over)

    def release(self, held: _Held, version: int, loose_until: int) -> None:
        """Give back one pin; ``loose_until``: a commit of unknown outcome may come until then. For :class:`Use`."""
        if loose_until:
            held.loose[version] = max(held.loose.get(version, 0), loose_until)
        held.pins[version] -= 1
        if not held.pins[version]:
            del held.pins[version]
            held.handed.pop(version, None)
            if held.told_old:
                self.kick()

    def use(self, database: str) -> Use:
        """Return a context for a piece of work: a statement, a commit. A schema change must not be made inside it."""
        return Use(self, database)

    async def refresh(self, database: str) -> Schema:
        """Read the schema again and use the newest version from now on: an unknown name was met. Raises as above."""
        return (await self._acquire(database, _Reason.REREAD)).stored.schema

    async def fresh(self, database: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work``; if it meets an unknown name, look for a newer schema first, and try once more."""
        try:
            return await work()
        except F1Error as error:
            if error.code is not Code.NOT_FOUND or error.ambiguous:
                raise
            before = (await self.current(database)).schema.version
            if (await self.refresh(database)).version == before:
                raise
        return await work()

    async def confirm(self, leased: Leased, timestamp: int) -> None:
        """See that a schema was still the newest at some time after ``timestamp``, when its lease was written.

        The lease is renewed for that if need be. Raises ABORTED if there is a newer one, and as :meth:`current`.
        """
        database, version = leased.schema.database, leased.schema.version
        held = await self.held(database)
        if held.newest[0] != version or held.newest[1] <= timestamp:
            held = await self._acquire(database, _Reason.RENEWAL)
        if held.newest[0] != version or held.newest[1] <= timestamp:
            raise F1Error(Code.ABORTED, "the schema has changed meanwhile; run it again")

    async def catch_up(self, database: str, version: int) -> int:
        """Use ``version`` or a newer one from now on; return which, once the lease row says so. 0: it is not used here.

        For the RPC by which a server that changed the schema tells the others. Raises as above.
        """
        held = self._held.get(database)
        if held is None:
            return 0
        if held.stored.schema.version < version:
            held = await self._acquire(database, _Reason.REREAD)
        return held.stored.schema.version

    def status(self) -> list[tuple[str, int, int]]:
        """Return (database, version, lease end) of everything held, by database."""
        return [(name, held.stored.schema.version, held.lease_end) for name, held in sorted(self._held.items())]

    async def close(self) -> None:
        """Give all leases up, so that nobody waits for them, but those under which something may still commit."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for task in self._acquiring:
            task.cancel()
        await asyncio.gather(*self._acquiring, return_exceptions=True)
        now = self._clock.sample().tt.earliest
        for database, held in sorted(self._held.items()):
            await self._give_up(database, held, now)
        self._held.clear()

    async def _give_up(self, database: str, held: _Held, now_earliest: int) -> None:
        if held.pins or any(end >= now_earliest for end in held.loose.values()):
            return
        held.lease_end = 0
        for place, ts in sorted(held.rows.items()):
            try:
                await self._store.remove_lease(database, self.server, place, ts)
            except F1Error as error:
                LOG.info("the schema lease on %s was left to expire: %s", database, error)

    # ------------------------------------------------------------------ inside

    def kick(self) -> None:
        """Let the renewal look at once."""
        self._wake.set()

    async def held(self, database: str) -> _Held:
        """Return the valid lease on a database, taking one if need be. For :class:`Use`."""
        now = self._clock.sample().tt.latest
        held = self._held.get(database)
        if held is None or now >= held.lease_end:
            held = await self._acquire(database, _Reason.NEEDED)
        held.used_us = now
        return held

    async def _acquire(self, database: str, reason: _Reason) -> _Held:
        """Do what the reason wants, to its end: also when the caller is cancelled, once nobody waits for it any more.

        A row that was written and not noted looks like another process's, whose lease would have to be waited for.
        """
        task = asyncio.create_task(self._acquire_alone(database, reason))
        self._acquiring.add(task)
        task.add_done_callback(self._acquired)
        return await asyncio.shield(task)

    def _acquired(self, task: asyncio.Task[_Held]) -> None:
        self._acquiring.discard(task)
        if not task.cancelled():
            task.exception()  # known to the caller, unless that is gone

    async def _acquire_alone(self, database: str, reason: _Reason) -> _Held:
        if self._closed:
            raise F1Error(Code.UNAVAILABLE, "this server is stopping; ask another one")
        lock = self._locks.setdefault(database, asyncio.Lock())
        async with lock:
            held = self._held.get(database)
            valid = held is not None and self._clock.sample().tt.latest < held.lease_end
            try:
                if held is not None and valid and reason is _Reason.NEEDED:
                    return held
                if held is None:
                    return await self._take_first(database)
                stored = held.stored
                if reason is _Reason.REREAD:
                    stored = await self._store.load_any(held.stored, self._patience_s)
                    if valid and stored.schema_ts == held.stored.schema_ts:
                        return held
                return await self._take(database, held, stored)
            except F1Error as error:
                if error.code is Code.NOT_FOUND:
                    self._failing_us.pop(database, None)
                    if self._held.pop(database, None) is held and held is not None:
                        await self._give_up(database, held, self._clock.sample().tt.earliest)
                    raise
                self._failed(database, had_one=held is not None)
                raise F1Error(
                    Code.UNAVAILABLE,
                    f"this server has no valid lease on the schema of {database} ({error.message}); ask another one",
                ) from error

    def _failed(self, database: str, *, had_one: bool) -> None:
        """Count for how long a lease could not be had; a server that never had one waits for storage to come up.

        What lies before a while in which nobody tried, or the process stood still, does not count.
        """
        now_us = self._clock.sample().boot_us
        if not self._lost_after_us or not (had_one or database in self._failing_us):
            return
        since_us, last_us = self._failing_us.get(database, (now_us, now_us))
        if now_us - last_us >= max(self._lost_after_us, _UNTRIED_US):
            since_us = now_us
        self._failing_us[database] = since_us, now_us
        if now_us - since_us >= self._lost_after_us:
            self.lost.set()

    async def _take_first(self, database: str) -> _Held:
        stored = await self._store.load(database)
        held = _Held(stored, 0, self._clock.sample().tt.latest)
        _take_over(held, await self._store.leases_of(database, self.server))
        held = await self._take(database, held, stored)
        self._held[database] = held
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._renew_all(), name="schema leases")
        return held

    async def _take(self, database: str, held: _Held, stored: Stored) -> _Held:
        """Write the lease row under the newest schema. The lock is held."""
        self._refuse_wide_clock()
        for _ in range(_ATTEMPTS):
            # Whoever comes while the row is written works under the new version, until the end that the old row gives.
            held.stored = stored
            old_version, old_until = held.old_work(self._clock.sample().tt.earliest)
            version = stored.schema.version
            row = LeaseRow(self.server, self._address, version, self._lease_us, old_version, old_until)
            try:
                row = await self._store.write_lease(stored, row, held.rows, self._patience_s)
            except F1Error as error:
                if error.code is not Code.ABORTED:
                    raise
                rows, places = await self._store.leases_that_answer(database, self.server, self._patience_s)
                others = [row for row in rows if row.ts != held.rows.get(row.place)]
                if others:
                    LOG.info("another process has this server's name, or a renewal was not answered: %s", others)
                _take_over(held, others)
                for place in places.difference(row.place for row in rows):
                    held.rows.pop(place, None)
                stored = await self._store.load_any(stored, self._patience_s)
                continue
            held.stored, held.lease_end, held.told_old = stored, row.ts + self._lease_us, old_version != 0
            held.newest = version, row.ts
            held.rows[row.place] = row.ts
            self._failing_us.pop(database, None)
            if held.told_old and held.old_work(self._clock.sample().tt.earliest) == (0, 0):
                self.kick()  # what the row mentions ended while it was being written
            return held
        raise F1Error(Code.ABORTED, "the schema keeps changing")

    def _refuse_wide_clock(self) -> None:
        """Raise UNAVAILABLE while the clock knows the time so badly that a lease is over when its commit has waited.

        The settings refuse that (:mod:`f1common.config`), but for a clock whose bound the kernel gives.
        """
        now = self._clock.sample().tt
        bound_us = (now.latest - now.earliest) // 2
        if 2 * self._lease_us < BOUNDS_OF_A_LEASE * bound_us:
            wanted_ms = BOUNDS_OF_A_LEASE * bound_us // 1000
            text = (
                f"the clock's bound is {bound_us / 1000:g} ms, and f1server.schema_lease_ms {self._lease_us // 1000}: "
                f"let the clock be set better, or set that to {wanted_ms} or more"
            )
            raise F1Error(Code.UNAVAILABLE, text)

    async def _renew_all(self) -> None:
        while True:
            self._wake.clear()
            for database in sorted(self._held):
                held = self._held.get(database)
                if held is not None and self._is_due(database, held):
                    await self._renew(database)
            try:
                async with asyncio.timeout(self._lease_us / 10 / 1_000_000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _is_due(self, database: str, held: _Held) -> bool:
        now = self._clock.sample().tt
        if now.latest - held.used_us > _IDLE_LEASES * self._lease_us:
            if now.earliest > held.lease_end:
                del self._held[database]
            return False
        over = held.told_old and held.old_work(now.earliest) == (0, 0)
        return over or now.latest >= held.lease_end - self._left_us

    async def _renew(self, database: str) -> None:
        try:
            await self._acquire(database, _Reason.RENEWAL)
        except F1Error as error:
            LOG.warning("the schema lease on %s was not renewed: %s", database, error)
            self._wake.clear()
            await asyncio.sleep(self._lease_us / 20 / 1_000_000)
