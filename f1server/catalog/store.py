"""The canonical schemas, the counter of ids and the leases, as rows of the meta group (F1 section 4; docs/schema.md).

=========================================== ====================================================================
key (a tuple under table id 0)              value
=========================================== ====================================================================
``(0, "database", database)``               a row: 1 when it was created (the version's own timestamp tells)
``(0, "schema", database)``                 the schema, ``proto/schema.proto``; stays, empty, when it is dropped
``(0, "next_id")``                          a row: 1 the lowest id that was never drawn
``(0, "schema_job", database)``             the change that runs (:mod:`f1server.schemachange.jobs`)
``(0, "schema_job_log", database, number)`` a change that has ended
``(0, "schema_lease", database, server)``   a row: 1 version, 2 address, 3 lease in us, 4 oldest version still at work
                                            there and 5 until when (us), 0 and 0: none
=========================================== ====================================================================

All of them lie in one group, so each commit below is one round.

Why the fence is what it is
    At most two neighbouring versions of a schema may be at work at a time. A version N+1 may be written once nobody can
    commit under N-1 any more. Every server that may commit under a version has said so in its lease row before: a lease
    is written only while the schema is unchanged. So whoever reads the schema at version N and the lease rows at one
    timestamp sees every lease on an older version that can exist, and the new version's commit timestamp must lie above
    the ends of those. If all servers have confirmed N, that is no wait at all; the bound that the schema-change paper
    uses, the previous version's timestamp plus a lease period, is what it comes to when nobody has.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.schema import Schema
from f1server.catalog.tables import NewId
from spanstore.client import CommitId, Decision, ExpectVersion, KeyRange, ReadResult, Version, Write
from spanstore.client.values import Precondition

__all__ = ["LeaseRow", "SchemaStore", "Sleep", "StorageClient", "Stored"]

SYSTEM_TABLE = 0
DEFAULT_DATABASE = "default"
_FIRST_ID = 1
_ATTEMPTS = 40
_PAST_SCHEMAS = 20

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

    def end_below(self, version: int) -> int:
        """Return until when the server may commit under a version below ``version``; 0: it may not."""
        end = self.ts + self.lease_us if self.version < version else 0
        return max(end, self.old_until if self.old_version and self.old_version < version else 0)


def schema_key(database: str) -> bytes:
    """Return the key of a database's schema."""
    return tuples.encode((SYSTEM_TABLE, "schema", database))


def database_key(database: str) -> bytes:
    """Return the key of the row that says that a database exists."""
    return tuples.encode((SYSTEM_TABLE, "database", database))


def lease_key(database: str, server: str) -> bytes:
    """Return the key of a server's lease."""
    return tuples.encode((SYSTEM_TABLE, "schema_lease", database, server))


def _lease_range(database: str) -> KeyRange:
    prefix = tuples.encode((SYSTEM_TABLE, "schema_lease", database))
    return KeyRange(prefix, tuples.successor(prefix))


_NEXT_ID_KEY = tuples.encode((SYSTEM_TABLE, "next_id"))


class SchemaStore:
    """Reads and writes these rows."""

    def __init__(self, client: StorageClient, clock: Clock, sleep: Sleep) -> None:
        """Take the storage client, and how to wait."""
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._past: dict[tuple[str, int], Schema] = {}
        """Schemas that snapshots have been read with, by database and commit timestamp."""

    # ------------------------------------------------------------------ reading

    async def load(self, database: str) -> Stored:
        """Read the newest schema; the default database is created by that.

        Raises F1Error NOT_FOUND, and what the storage client raises.
        """
        stored, _, _ = await self._load(database)
        if stored.database_ts == 0 and database == DEFAULT_DATABASE:
            await self.create_database(database, exists_ok=True)
            stored, _, _ = await self._load(database)
        if stored.database_ts == 0:
            raise _no_database(database)
        return stored

    async def _load(self, database: str) -> tuple[Stored, tuple[int, int], list[LeaseRow]]:
        """Read the schema, the next id with its row's timestamp, and all leases, at one timestamp."""
        keys = [schema_key(database), database_key(database), _NEXT_ID_KEY]
        result = await self._client.read(keys, [_lease_range(database)])
        schema_row, database_row, counter = result.versions
        schema = Schema(database)
        if schema_row is not None and schema_row.value is not None:
            schema = decode_schema(schema_row.value, schema_row.ts)
        next_id = _FIRST_ID
        if counter is not None and counter.value is not None:
            next_id = _int(decode_row(counter.value).get(1))
        stored = Stored(schema, _live_ts(schema_row), _live_ts(database_row))
        leases = [_lease_row(row.key, row.ts, row.value) for row in result.ranges[0]]
        return stored, (next_id, _live_ts(counter)), leases

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

    async def databases(self) -> list[str]:
        """Return the names of all databases, ascending."""
        prefix = tuples.encode((SYSTEM_TABLE, "database"))
        result = await self._client.read([], [KeyRange(prefix, tuples.successor(prefix))])
        return [str(tuples.decode(row.key)[2]) for row in result.ranges[0]]

    async def leases(self, database: str) -> list[LeaseRow]:
        """Return all lease rows of a database, expired ones too, by server."""
        result = await self._client.read([], [_lease_range(database)])
        return [_lease_row(row.key, row.ts, row.value) for row in result.ranges[0]]

    # ------------------------------------------------------------------ leases

    async def lease(self, database: str, server: str) -> LeaseRow | None:
        """Return a server's lease row: an earlier process of that name may have left one."""
        key = lease_key(database, server)
        row = (await self._client.read([key])).versions[0]
        return None if row is None or row.value is None else _lease_row(key, row.ts, row.value)

    async def write_lease(self, stored: Stored, lease: LeaseRow) -> int:
        """Write a lease if the schema is still the one that was read, and return the commit timestamp.

        Raises F1Error ABORTED if the schema or the database changed: read them again.
        """
        cells: dict[int, Cell] = {
            _VERSION: lease.version,
            _ADDRESS: lease.address,
            _LEASE_US: lease.lease_us,
            _OLD_VERSION: lease.old_version,
            _OLD_UNTIL: lease.old_until,
        }
        database = stored.schema.database
        return await self._client.commit(
            [Write(lease_key(database, lease.server), encode_row(cells))],
            [
                ExpectVersion(schema_key(database), stored.schema_ts),
                ExpectVersion(database_key(database), stored.database_ts),
            ],
            timeout_s=5.0,
        )

    async def remove_lease(self, database: str, server: str) -> None:
        """Remove a server's lease: it stops."""
        await self._client.commit([Write(lease_key(database, server), None)], timeout_s=2.0)

    async def remove_expired(self, database: str, older_than_ts: int) -> None:
        """Remove lease rows that were written before a time: their servers are gone. Losing a race is fine."""
        for lease in await self.leases(database):
            if lease.ts >= older_than_ts:
                continue
            key = lease_key(database, lease.server)
            try:
                await self._client.commit([Write(key, None)], [ExpectVersion(key, lease.ts)], timeout_s=2.0)
            except F1Error:
                return

    # ------------------------------------------------------------------ writing schemas

    async def begin(self, database: str, make: Callable[[Schema, NewId], Write | None]) -> tuple[Stored, int]:
        """Commit a row that says what is to become of the schema, with new ids; ``make`` None: nothing to do.

        There must be no such row yet. Returns the schema as it is, and when the row was written; 0 if it was not, also
        because there is one. Raises as :meth:`write`.
        """
        for attempt in range(_ATTEMPTS):
            stored, (next_id, counter_ts), _ = await self._load(database)
            if stored.database_ts == 0:
                raise _no_database(database)
            counter = _Counter(next_id)
            write = make(stored.schema, counter.draw)
            if write is None:
                return stored, 0
            writes = [write, Write(_NEXT_ID_KEY, encode_row({1: counter.next}))]
            expected = [
                *self._unchanged(stored),
                ExpectVersion(_NEXT_ID_KEY, counter_ts),
                ExpectVersion(write.key, 0),
            ]
            if ts := await self._commit_above(0, writes, expected):
                return stored, ts
            found = (await self._client.read([write.key])).versions[0]
            if found is not None and found.value is not None:
                return stored, 0
            await self._sleep(min(0.5, 0.01 * 1.3**attempt))
        raise F1Error(Code.ABORTED, f"the schema of {database} keeps being changed by others; retry")

    @staticmethod
    def _unchanged(stored: Stored) -> list[Precondition]:
        database = stored.schema.database
        return [
            ExpectVersion(schema_key(database), stored.schema_ts),
            ExpectVersion(database_key(database), stored.database_ts),
        ]

    async def write(
        self,
        database: str,
        make: Callable[[Schema, NewId], Schema | None],
        *,
        fence: Callable[[], Awaitable[Precondition]] | None = None,
    ) -> tuple[Stored, bool]:
        """Replace the schema of a database by what ``make`` returns (None: nothing to do); it may be called again.

        ``fence`` is asked before each try for one thing more that must hold at the commit. Returns the schema that is
        current then, and whether it was written. Raises F1Error NOT_FOUND for the database, whatever ``make`` and
        ``fence`` raise, ABORTED if others keep changing the schema, and what the storage client raises.
        """

        def change(stored: Stored, new_id: NewId) -> tuple[Schema, list[Write]] | None:
            if stored.database_ts == 0:
                raise _no_database(database)
            made = make(stored.schema, new_id)
            return None if made is None else (made, [])

        return await self._write(database, change, fence)

    async def create_database(self, database: str, *, exists_ok: bool) -> None:
        """Create an empty database. Raises F1Error ALREADY_EXISTS."""

        def change(stored: Stored, _: NewId) -> tuple[Schema, list[Write]] | None:
            if stored.database_ts:
                if exists_ok:
                    return None
                raise F1Error(Code.ALREADY_EXISTS, f"there is a database {database} already")
            created = [Write(database_key(database), encode_row({1: True}))]
            return Schema(database, version=stored.schema.version + 1), created

        await self._write(database, change)

    async def drop_database(self, database: str) -> Schema:
        """Remove a database and return what it was. Its data is still there. Raises F1Error NOT_FOUND."""
        before: list[Schema] = []

        def change(stored: Stored, _: NewId) -> tuple[Schema, list[Write]] | None:
            if stored.database_ts == 0:
                raise _no_database(database)
            before[:] = [stored.schema]
            return Schema(database, version=stored.schema.version + 1), [Write(database_key(database), None)]

        await self._write(database, change)
        return before[0]

    async def _write(
        self,
        database: str,
        change: Callable[[Stored, NewId], tuple[Schema, list[Write]] | None],
        fence: Callable[[], Awaitable[Precondition]] | None = None,
    ) -> tuple[Stored, bool]:
        for attempt in range(_ATTEMPTS):
            stored, (next_id, counter_ts), leases = await self._load(database)
            counter = _Counter(next_id)
            made = change(stored, counter.draw)
            if made is None:
                return stored, False
            schema, writes = made
            writes = [Write(schema_key(database), encode_schema(schema)), *writes]
            expected = self._unchanged(stored)
            if fence is not None:
                expected.append(await fence())
            if counter.next != next_id:
                writes.append(Write(_NEXT_ID_KEY, encode_row({1: counter.next})))
                expected.append(ExpectVersion(_NEXT_ID_KEY, counter_ts))
            above = max((lease.end_below(stored.schema.version) for lease in leases), default=0)
            # Whoever uses the new schema reads above this: its indexes serve all strong reads.
            above = max([above, *(i.readable_from for table in schema.tables for i in table.indexes)])
            ts = await self._commit_above(above, writes, expected)
            if ts:
                database_ts = ts if any(w.key == database_key(database) for w in writes) else stored.database_ts
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


class _Counter:
    """Draws ids, which the commit that uses them makes good."""

    def __init__(self, next_id: int) -> None:
        self.next = next_id

    def draw(self) -> int:
        self.next += 1
        return self.next - 1


def _live_ts(version: Version | None) -> int:
    return version.ts if version is not None and version.value is not None else 0


def _lease_row(key: bytes, ts: int, value: bytes) -> LeaseRow:
    cells = decode_row(value)
    return LeaseRow(
        server=str(tuples.decode(key)[3]),
        address=str(cells.get(_ADDRESS, "")),
        version=_int(cells.get(_VERSION)),
        lease_us=_int(cells.get(_LEASE_US)),
        old_version=_int(cells.get(_OLD_VERSION)),
        old_until=_int(cells.get(_OLD_UNTIL)),
        ts=ts,
    )


def _int(cell: object) -> int:
    if not isinstance(cell, int):
        raise F1Error(Code.DATA_CORRUPTION, "a system row lacks a number")
    return cell


def _no_database(database: str) -> F1Error:
    return F1Error(Code.NOT_FOUND, f"there is no database {database}; CREATE DATABASE {database} makes one")
