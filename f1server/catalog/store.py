"""The canonical schemas, the counter of ids and the leases, as rows of the storage tier (F1 section 4; docs/schema.md).

============================================== =================================================================
key (a tuple)                                  value
============================================== =================================================================
``(place, "database", database)``              a row: 1 if the database exists
``(place, "schema", database)``                the schema, ``proto/schema.proto``; stays, empty, when it is dropped
``(place, "schema_lease", database, server)``  a row: 1 version, 2 address, 3 lease in us, 4 oldest version still at
                                               work there and 5 until when (us), 0 and 0: none
``(0, "next_id")``                             a row: 1 the lowest id that was never drawn
``(0, "schema_job", database)``                the change that runs (:mod:`f1server.schemachange.jobs.jobs`)
``(0, "schema_job_log", database, number)``    a change that has ended
``(0, "dropped_database", database, version)`` one whose rows are still there (:mod:`f1server.catalog.dropped`)
============================================== =================================================================

Place 0 is in the meta group. The first two kinds are also at the other places (:mod:`f1server.catalog.places`), always
with the same values and timestamps: whoever writes one writes all in one transaction. A server writes its lease at
place 0, or at another one while the meta group does not answer, each time in one round. A cluster that has no copies
yet gets them from :meth:`SchemaStore.replicate`.

Why the fence is what it is
    At most two neighbouring versions of a schema may be at work at a time. A version N+1 may be written once nobody can
    commit under N-1 any more. Every server that may commit under a version has said so in its lease row before: a lease
    is written only while the schema is unchanged at its place, where it changes together with all others. So whoever
    reads the schema at version N and the lease rows at one timestamp sees every lease on an older version that can
    exist, wherever it was taken, and the new version's commit timestamp must lie above the ends of those. If all
    servers have confirmed N, that is no wait at all; the bound that the schema-change paper uses, the previous
    version's timestamp plus a lease period, is what it comes to when nobody has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.dropped import DroppedDatabases
from f1server.catalog.ids import GroupOf, Ids, NewId
from f1server.catalog.places import PLACES, SYSTEM_TABLE, database_key, lease_key, lease_range, schema_key
from f1server.catalog.schema import Schema
from spanstore.client import CommitId, Decision, ExpectVersion, KeyRange, ReadResult, Version, Write
from spanstore.client.values import Precondition

__all__ = ["SYSTEM_TABLE", "Beside", "LeaseRow", "SchemaStore", "Sleep", "StorageClient", "Stored"]

DEFAULT_DATABASE = "default"
_FIRST_ID = 1
_ATTEMPTS = 40
_PAST_SCHEMAS = 20
_PATIENCE_S = 10.0
_LEASE_S = 5.0

_VERSION, _ADDRESS, _LEASE_US, _OLD_VERSION, _OLD_UNTIL = 1, 2, 3, 4, 5


class StorageClient(Protocol):
    """What this package needs of :class:`spanstore.client.SpanClient`."""

    async def read(
        self,
        keys: Sequence[bytes] = ...,
        ranges: Sequence[KeyRange] = ...,
        *,
        timestamp: int = ...,
        timeout_s: float = ...,
    ) -> ReadResult:
        """Read at one timestamp."""

    async def commit(
        self,
        writes: Sequence[Write],
        preconditions: Sequence[Precondition] = ...,
        *,
        deadline: int = ...,
        above: int = ...,
        commit_id: CommitId | None = ...,
        attempt: int = ...,
        timeout_s: float = ...,
    ) -> int:
        """Write if the preconditions hold."""

    def new_commit_id(self, anchor: bytes) -> CommitId:
        """Name a commit."""

    async def outcome(
        self, commit_id: CommitId, attempt: int = ..., *, peek: bool = ..., timeout_s: float = ...
    ) -> Decision:
        """Did it commit?"""


class Sleep(Protocol):
    """``asyncio.sleep``, or what a test puts in its place."""

    async def __call__(self, delay: float, /) -> object:
        """Sleep for some seconds."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A schema as read, with the timestamps of the rows that a commit must find unchanged."""

    schema: Schema
    schema_ts: int
    database_ts: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """What a server said of its use of a schema, committed at ``ts``. Times are microseconds since the epoch."""

    server: str
    address: str
    version: int
    lease_us: int
    old_version: int = 0
    old_until: int = 0
    ts: int = 0
    place: int = SYSTEM_TABLE

    def end_below(self, version: int) -> int:
        """Return until when the server may commit under a version below ``version``; 0: it may not."""
        end = self.ts + self.lease_us if self.version < version else 0
        return max(end, self.old_until if self.old_version and self.old_version < version else 0)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a change of a schema starts from, all read at one timestamp.

    ``copies``: the timestamps of the rows of the schema and of the database at each place, 0 for one that is not there.
    """

    stored: Stored
    next_id: int
    counter_ts: int
    copies: tuple[tuple[int, int], ...]
    leases: list[LeaseRow]

    @property
    def even(self) -> bool:
        """Tell whether all copies were written by one transaction."""
        return len(set(self.copies)) == 1


_AWAY = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.NOT_LEADER, Code.OVERLOADED, Code.WRONG_RANGE})
"""Errors after which another copy is asked, if the outcome is not what matters: the group does not answer."""

_NEXT_ID_KEY = tuples.encode((SYSTEM_TABLE, "next_id"))

Beside = Callable[[Schema, Schema], Awaitable[tuple[Sequence[Write], Sequence[Precondition]]]]
"""Of two neighbouring versions of a schema: what is written with the second, and what must hold then."""


class SchemaStore:
    """Reads and writes these rows."""

    def __init__(self, client: StorageClient, clock: Clock, sleep: Sleep, group_of: GroupOf | None = None) -> None:
        """Take the storage client, how to wait, and who knows where indexes lie (:class:`f1server.catalog.ids.Ids`)."""
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._group_of = group_of
        self._past: dict[tuple[str, int], Schema] = {}
        """Schemas that snapshots have been read with, by database and commit timestamp."""
        self.dropped = DroppedDatabases(client)

    # ------------------------------------------------------------------ reading

    async def load(self, database: str) -> Stored:
        """Read the newest schema; the default database is created by that.

        Raises F1Error NOT_FOUND, and what the storage client raises.
        """
        stored = await self._load_at(SYSTEM_TABLE, database, _PATIENCE_S)
        if stored.database_ts == 0 and database == DEFAULT_DATABASE:
            await self.create_database(database, exists_ok=True)
            stored = await self._load_at(SYSTEM_TABLE, database, _PATIENCE_S)
        if stored.database_ts == 0:
            raise _no_database(database)
        return stored

    async def load_any(self, known: Stored, patience_s: float) -> Stored:
        """Read the newest schema, from a copy if the meta group does not answer for so long.

        ``known`` was read before: a copy that is older, or not there, is none. Raises as :meth:`load`.
        """
        database = known.schema.database
        for place in PLACES:
            try:
                stored = await self._load_at(place, database, patience_s)
            except F1Error as error:
                if error.code not in _AWAY:
                    raise
                continue
            if place == SYSTEM_TABLE or (stored.schema_ts and stored.schema.version >= known.schema.version):
                if stored.database_ts == 0:
                    raise _no_database(database)
                return stored
        return await self.load(database)

    async def _load_at(self, place: int, database: str, timeout_s: float) -> Stored:
        keys = [schema_key(database, place), database_key(database, place)]
        schema_row, database_row = (await self._client.read(keys, timeout_s=timeout_s)).versions
        return _stored(database, schema_row, database_row)

    async def _load(self, database: str, places: Sequence[int] = PLACES) -> _Found:
        """Read the schema, its copies, the next id and all leases, at one timestamp."""
        keys = [key for place in places for key in (schema_key(database, place), database_key(database, place))]
        ranges = [lease_range(database, place) for place in places]
        result = await self._client.read([_NEXT_ID_KEY, *keys], ranges)
        counter, *rows = result.versions
        next_id = _FIRST_ID
        if counter is not None and counter.value is not None:
            next_id = _int(decode_row(counter.value).get(1))
        times = [_live_ts(row) for row in rows]
        copies = tuple(zip(times[::2], times[1::2], strict=True))
        leases = [_lease_row(row.key, row.ts, row.value) for found in result.ranges for row in found]
        return _Found(_stored(database, rows[0], rows[1]), next_id, _live_ts(counter), copies, leases)

    async def schemas_at(self, timestamp: int) -> dict[str, Schema]:
        """Return the schemas of all databases as of a timestamp (microseconds since the epoch), by database."""
        prefixes = [tuples.encode((SYSTEM_TABLE, what)) for what in ("database", "schema")]
        spans = [KeyRange(prefix, tuples.successor(prefix)) for prefix in prefixes]
        databases, schemas = (await self._client.read([], spans, timestamp=timestamp)).ranges
        live = {str(tuples.decode(row.key)[2]) for row in databases}
        found = {str(tuples.decode(row.key)[2]): decode_schema(row.value, row.ts) for row in schemas}
        return {name: found[name] for name in sorted(live & found.keys())}

    async def at(self, present: Schema, timestamp: int) -> Schema:
        """Return the schema as it was at ``timestamp``, for those who read as of then; ``present`` is a later one.

        Before the database was made, that is an empty one. Raises what the storage client raises, SNAPSHOT_TOO_OLD too.
        """
        if (known := self._past.get((present.database, timestamp))) is not None:
            return known
        row = (await self._client.read([schema_key(present.database)], timestamp=timestamp)).versions[0]
        if row is None or row.value is None:
            return Schema(present.database)
        known = self._past.get((present.database, row.ts))
        if known is None:
            known = decode_schema(row.value, row.ts)
            self._past[present.database, row.ts] = known
            while len(self._past) > _PAST_SCHEMAS:
                self._past.pop(next(iter(self._past)))
        return known

    async def next_id(self) -> int:
        """Return an id above all that were given out to tables, indexes and other elements until now."""
        counter = (await self._client.read([_NEXT_ID_KEY])).versions[0]
        return _FIRST_ID if counter is None or counter.value is None else _int(decode_row(counter.value).get(1))

    async def databases(self) -> list[str]:
        """Return the names of all databases, ascending."""
        prefix = tuples.encode((SYSTEM_TABLE, "database"))
        result = await self._client.read([], [KeyRange(prefix, tuples.successor(prefix))])
        return [str(tuples.decode(row.key)[2]) for row in result.ranges[0]]

    async def leases(self, database: str) -> list[LeaseRow]:
        """Return all lease rows of a database, expired ones too, by place and server."""
        result = await self._client.read([], [lease_range(database, place) for place in PLACES])
        return [_lease_row(row.key, row.ts, row.value) for found in result.ranges for row in found]

    # ------------------------------------------------------------------ leases

    async def leases_of(self, database: str, server: str) -> list[LeaseRow]:
        """Return a server's lease rows: an earlier process of that name may have left some."""
        return await self._leases_at(PLACES, database, server, _PATIENCE_S)

    async def leases_that_answer(
        self, database: str, server: str, patience_s: float
    ) -> tuple[list[LeaseRow], set[int]]:
        """Return the same at the places that answer within ``patience_s`` each, and these places.

        If none does, as where storage is slow, they are asked once more, for longer.
        """
        found: list[LeaseRow] = []
        answered: set[int] = set()
        for within_s in (patience_s, _LEASE_S):
            for place in PLACES if not answered else ():
                try:
                    found += await self._leases_at((place,), database, server, within_s)
                except F1Error as error:
                    if error.code not in _AWAY:
                        raise
                else:
                    answered.add(place)
        return found, answered

    async def _leases_at(self, places: Sequence[int], database: str, server: str, timeout_s: float) -> list[LeaseRow]:
        keys = [lease_key(database, server, place) for place in places]
        rows = zip(keys, (await self._client.read(keys, timeout_s=timeout_s)).versions, strict=True)
        return [_lease_row(key, row.ts, row.value) for key, row in rows if row is not None and row.value is not None]

    async def write_lease(
        self, stored: Stored, lease: LeaseRow, known: Mapping[int, int], patience_s: float
    ) -> LeaseRow:
        """Write a lease if the schema is still the one that was read, and return it with place and commit timestamp.

        ``known``: the timestamps of the server's rows by place, as they were read or written last. What another process
        of its name has written since is not written over: nobody else knows what that may still commit.

        The next place is tried when one has not answered for ``patience_s``, the meta group once more if all are away.
        A try whose outcome is not known may still leave its row: that makes somebody wait for a lease that nobody uses,
        and nothing worse.
        Raises F1Error ABORTED if the schema, the database or the server's row changed: read them again.
        """
        cells: dict[int, Cell] = {
            _VERSION: lease.version,
            _ADDRESS: lease.address,
            _LEASE_US: lease.lease_us,
            _OLD_VERSION: lease.old_version,
            _OLD_UNTIL: lease.old_until,
        }
        value = encode_row(cells)
        tries: dict[asyncio.Task[int], int] = {}

        def begin(place: int) -> None:
            write = self._write_lease_at(place, stored, lease.server, value, known, _LEASE_S)
            tries[asyncio.ensure_future(write)] = place

        try:
            for place in PLACES:
                begin(place)
                done = await self._lease_written(tries, stored, patience_s)
                if done is not None:
                    return replace(lease, place=done[0], ts=done[1])
            if not tries:
                begin(SYSTEM_TABLE)
            # No second try while the first is under way: its row would refuse it, each time where commits are slow.
            done = await self._lease_written(tries, stored, _LEASE_S)
        finally:
            for task in tries:
                if not task.cancel():
                    task.exception()  # seen: it is of no interest
        if done is None:
            raise F1Error(Code.DEADLINE_EXCEEDED, "the lease could not be written in time")
        return replace(lease, place=done[0], ts=done[1])

    async def _lease_written(
        self, tries: dict[asyncio.Task[int], int], stored: Stored, within_s: float
    ) -> tuple[int, int] | None:
        """Return place and timestamp of the first row that is written; None: there is none ``within_s``.

        Those that have ended are taken from ``tries``. Raises why one was refused, once none is under way any more: who
        reads the rows after that finds what came of all of them.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        refused: F1Error | None = None
        while tries and (left_s := end_s - loop.time()) > 0:
            done, _ = await asyncio.wait(tries, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                place = tries.pop(task)
                try:
                    return place, task.result()
                except F1Error as error:
                    if refused is None and await self._is_refusal(error, place, stored):
                        refused, end_s = error, loop.time() + _LEASE_S
        if refused is not None:
            raise refused
        return None

    async def _is_refusal(self, error: F1Error, place: int, stored: Stored) -> bool:
        """Tell whether a lease cannot be written anywhere, or only not at this place."""
        if error.code is Code.ABORTED and place != SYSTEM_TABLE:
            return bool((await self._load_at(place, stored.schema.database, _LEASE_S)).schema_ts)
        return error.code not in _AWAY and not error.ambiguous

    async def _write_lease_at(
        self, place: int, stored: Stored, server: str, value: bytes, known: Mapping[int, int], timeout_s: float
    ) -> int:
        database = stored.schema.database
        key = lease_key(database, server, place)
        return await self._client.commit(
            [Write(key, value)],
            [
                ExpectVersion(key, known.get(place, 0)),
                ExpectVersion(schema_key(database, place), stored.schema_ts),
                ExpectVersion(database_key(database, place), stored.database_ts),
            ],
            timeout_s=timeout_s,
        )

    async def remove_lease(self, database: str, server: str, place: int, ts: int) -> None:
        """Remove a server's lease at a place, which it wrote at ``ts``: it stops.

        Raises F1Error ABORTED if another process of its name has written one since.
        """
        key = lease_key(database, server, place)
        await self._client.commit([Write(key, None)], [ExpectVersion(key, ts)], timeout_s=2.0)

    async def remove_expired(self, database: str, older_than_ts: int) -> None:
        """Remove lease rows that were written before a time: their servers are gone. Losing a race is fine."""
        for lease in await self.leases(database):
            if lease.ts >= older_than_ts:
                continue
            key = lease_key(database, lease.server, lease.place)
            try:
                await self._client.commit([Write(key, None)], [ExpectVersion(key, lease.ts)], timeout_s=2.0)
            except F1Error:
                return

    # ------------------------------------------------------------------ writing schemas

    async def begin(
        self, database: str, make: Callable[[Schema, NewId], Write | None], *, absent: Sequence[bytes] = ()
    ) -> tuple[Stored, int]:
        """Commit a row that says what is to become of the schema, with new ids; ``make`` None: nothing to do.

        There must be no such row yet, nor any under ``absent``. Returns the schema as it is, and when the row was
        written; 0 if it was not, also because there is one. Raises as :meth:`write`.
        """
        for attempt in range(_ATTEMPTS):
            found = await self._load(database, (SYSTEM_TABLE,))
            stored = found.stored
            if stored.database_ts == 0:
                raise _no_database(database)
            counter = Ids(found.next_id, self._group_of)
            write = make(stored.schema, counter)
            if write is None:
                return stored, 0
            writes = [write, Write(_NEXT_ID_KEY, encode_row({1: counter.next}))]
            expected = [
                *self._unchanged(database, found),
                ExpectVersion(_NEXT_ID_KEY, found.counter_ts),
                *(ExpectVersion(key, 0) for key in (write.key, *absent)),
            ]
            if ts := await self._commit_above(0, writes, expected):
                return stored, ts
            others = (await self._client.read([write.key, *absent])).versions
            if any(_live_ts(other) for other in others):
                return stored, 0
            await self._sleep(min(0.5, 0.01 * 1.3**attempt))
        raise F1Error(Code.ABORTED, f"the schema of {database} keeps being changed by others; retry")

    @staticmethod
    def _unchanged(database: str, found: _Found) -> list[Precondition]:
        """Expect the schema and the database to be as they were read, at all places that were."""
        return [
            ExpectVersion(key, ts)
            for place, copy in zip(PLACES, found.copies, strict=False)
            for key, ts in zip((schema_key(database, place), database_key(database, place)), copy, strict=True)
        ]

    async def write(
        self,
        database: str,
        make: Callable[[Schema, NewId], Schema | None],
        *,
        beside: Beside | None = None,
    ) -> tuple[Stored, bool]:
        """Replace the schema of a database by what ``make`` returns (None: nothing to do); it may be called again.

        ``beside`` is asked before each try what else is written, and what must hold, in the same commit. Returns the
        schema that is current then, and whether it was written. Raises F1Error NOT_FOUND for the database, whatever
        ``make`` and ``beside`` raise, ABORTED if others keep changing the schema, and what the storage client raises.
        """

        def change(found: _Found, new_id: NewId) -> tuple[Schema, bool] | None:
            if found.stored.database_ts == 0:
                raise _no_database(database)
            made = make(found.stored.schema, new_id)
            return None if made is None else (made, True)

        return await self._write(database, change, beside)

    async def create_database(self, database: str, *, exists_ok: bool) -> None:
        """Create an empty database. Raises F1Error ALREADY_EXISTS."""

        def change(found: _Found, _: NewId) -> tuple[Schema, bool] | None:
            if found.stored.database_ts:
                if exists_ok:
                    return None
                raise F1Error(Code.ALREADY_EXISTS, f"there is a database {database} already")
            return Schema(database, version=found.stored.schema.version + 1), True

        await self._write(database, change)

    async def drop_database(self, database: str, owner: str) -> None:
        """Remove a database. Raises F1Error NOT_FOUND.

        Its data is still there, and a row says so: see :mod:`f1server.catalog.dropped`; ``owner`` removes it.
        """

        def change(found: _Found, _: NewId) -> tuple[Schema, bool] | None:
            if found.stored.database_ts == 0:
                raise _no_database(database)
            return Schema(database, version=found.stored.schema.version + 1), False

        async def beside(before: Schema, after: Schema) -> tuple[Sequence[Write], Sequence[Precondition]]:
            return self.dropped.note(before, after, owner), []

        await self._write(database, change, beside)

    async def replicate(self) -> list[str]:
        """Give each database the copies of its schema that it lacks, at the same version; return which lacked some."""

        def change(found: _Found, _: NewId) -> tuple[Schema, bool] | None:
            return None if found.even or not found.stored.database_ts else (found.stored.schema, True)

        return [name for name in await self.databases() if (await self._write(name, change))[1]]

    async def _write(
        self,
        database: str,
        change: Callable[[_Found, NewId], tuple[Schema, bool] | None],
        beside: Beside | None = None,
    ) -> tuple[Stored, bool]:
        """Write what ``change`` returns: a schema, and whether the database exists. All copies change at once."""
        for attempt in range(_ATTEMPTS):
            found = await self._load(database)
            stored = found.stored
            counter = Ids(found.next_id, self._group_of)
            made = change(found, counter)
            if made is None:
                return stored, False
            schema, exists = made
            writes = [Write(schema_key(database, place), encode_schema(schema)) for place in PLACES]
            announced = exists is not bool(stored.database_ts) or not found.even
            if announced:
                row = encode_row({1: True}) if exists else None
                writes += [Write(database_key(database, place), row) for place in PLACES]
            expected = self._unchanged(database, found)
            if beside is not None:
                more, conditions = await beside(stored.schema, schema)
                writes, expected = [*writes, *more], [*expected, *conditions]
            if counter.next != found.next_id:
                writes.append(Write(_NEXT_ID_KEY, encode_row({1: counter.next})))
                expected.append(ExpectVersion(_NEXT_ID_KEY, found.counter_ts))
            above = max((lease.end_below(stored.schema.version) for lease in found.leases), default=0)
            # Whoever uses the new schema reads above this: its indexes serve all strong reads.
            above = max([above, *(i.readable_from for table in schema.tables for i in table.indexes)])
            ts = await self._commit_above(above, writes, expected)
            if ts:
                database_ts = ts if announced else stored.database_ts
                return Stored(replace(schema, commit_ts=ts), ts, database_ts), True
            await self._sleep(min(0.5, 0.01 * 1.3**attempt))
        raise F1Error(Code.ABORTED, f"the schema of {database} keeps being changed by others; retry")

    async def _commit_above(self, fence: int, writes: list[Write], expected: Sequence[Precondition]) -> int:
        """Commit above a timestamp and return when; 0: others were first, nothing was written."""
        while (wait_us := fence - self._clock.sample().tt.earliest) > 0:
            await self._sleep(wait_us / 1_000_000)
        commit_id = self._client.new_commit_id(writes[0].key)
        try:
            return await self._client.commit(writes, expected, above=fence, commit_id=commit_id)
        except F1Error as error:
            if not error.ambiguous:
                if error.code in (Code.ABORTED, Code.ALREADY_EXISTS):
                    return 0
                raise
        decision = await self._client.outcome(commit_id, timeout_s=20.0)
        return decision.ts if decision.committed else 0


def _stored(database: str, schema_row: Version | None, database_row: Version | None) -> Stored:
    schema = Schema(database)
    if schema_row is not None and schema_row.value is not None:
        schema = decode_schema(schema_row.value, schema_row.ts)
    return Stored(schema, _live_ts(schema_row), _live_ts(database_row))


def _live_ts(version: Version | None) -> int:
    return version.ts if version is not None and version.value is not None else 0


def _lease_row(key: bytes, ts: int, value: bytes) -> LeaseRow:
    cells = decode_row(value)
    place, _, _, server = tuples.decode(key)
    return LeaseRow(
        server=str(server),
        address=str(cells.get(_ADDRESS, "")),
        version=_int(cells.get(_VERSION)),
        lease_us=_int(cells.get(_LEASE_US)),
        old_version=_int(cells.get(_OLD_VERSION)),
        old_until=_int(cells.get(_OLD_UNTIL)),
        ts=ts,
        place=_int(place),
    )


def _int(cell: object) -> int:
    if not isinstance(cell, int):
        raise F1Error(Code.DATA_CORRUPTION, "a system row lacks a number")
    return cell


def _no_database(database: str) -> F1Error:
    return F1Error(Code.NOT_FOUND, f"there is no database {database}; CREATE DATABASE {database} makes one")
