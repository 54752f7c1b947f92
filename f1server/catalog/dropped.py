"""Databases that were dropped and whose rows are still there, as rows of the meta group.

The transaction that drops a database writes ``(0, "dropped_database", database, version)``, with the schema that it had
and the server that removes its rows; it goes when they are gone. So whatever becomes of that server, what is left is
known, and somebody removes it (:mod:`f1server.schemachange.jobs.removals`).
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.places import SYSTEM_TABLE
from f1server.catalog.schema import Schema
from spanstore.client import ExpectVersion, KeyRange, ReadResult, Write
from spanstore.client.values import Precondition

__all__ = ["Dropped", "DroppedDatabases", "StorageClient"]

_PREFIX = tuples.encode((SYSTEM_TABLE, "dropped_database"))
_SPAN = KeyRange(_PREFIX, tuples.successor(_PREFIX))


class StorageClient(Protocol):
    """What this module needs of :class:`spanstore.client.SpanClient`."""

    async def read(
        self, keys: Sequence[bytes] = ..., ranges: Sequence[KeyRange] = ..., *, timestamp: int
    ) -> ReadResult:
        """Read at one timestamp; 0: now."""

    async def commit(self, writes: Sequence[Write], preconditions: Sequence[Precondition]) -> int:
        """Commit if the preconditions hold, and return when; raises ABORTED if one does not."""


class _Value(msgspec.Struct, frozen=True, array_like=True):
    version: int
    schema: bytes
    owner: str


class Dropped(msgspec.Struct, frozen=True):
    """A database that is no more. ``version``: that of its empty schema; ``ts``: when its row was last written."""

    database: str
    version: int
    schema: Schema
    owner: str
    ts: int

    @property
    def key(self) -> bytes:
        """The key of its row."""
        return _key(self.database, self.version)


def _key(database: str, version: int) -> bytes:
    return tuples.encode((SYSTEM_TABLE, "dropped_database", database, version))


def _value(version: int, schema: Schema, owner: str) -> bytes:
    return msgspec.msgpack.encode(_Value(version, encode_schema(schema), owner))


class DroppedDatabases:
    """Reads and writes these rows."""

    def __init__(self, client: StorageClient) -> None:
        self._client = client

    @staticmethod
    def note(before: Schema, after: Schema, owner: str) -> Sequence[Write]:
        """Return what the transaction writes that drops a database."""
        return [Write(_key(before.database, after.version), _value(after.version, before, owner))]

    async def listed(self, timestamp: int = 0) -> list[Dropped]:
        """Return all of them, as of a timestamp (microseconds since 1970; 0: now). Raises DATA_CORRUPTION."""
        found = []
        for row in (await self._client.read([], [_SPAN], timestamp=timestamp)).ranges[0]:
            try:
                value = msgspec.msgpack.decode(row.value, type=_Value)
            except msgspec.MsgspecError as error:
                text = f"the row {row.key.hex()} of a dropped database cannot be read: {error}"
                raise F1Error(Code.DATA_CORRUPTION, text) from error
            schema = decode_schema(value.schema, 0)
            found.append(Dropped(schema.database, value.version, schema, value.owner, row.ts))
        return found

    async def take(self, row: Dropped, owner: str) -> Dropped:
        """Write the row again, as that of ``owner``. Raises ABORTED if it was written or removed since it was read."""
        write = Write(row.key, _value(row.version, row.schema, owner))
        ts = await self._client.commit([write], [ExpectVersion(row.key, row.ts)])
        return msgspec.structs.replace(row, owner=owner, ts=ts)

    async def forget(self, row: Dropped) -> None:
        """Its rows are gone. Raises ABORTED as :meth:`take`."""
        await self._client.commit([Write(row.key, None)], [ExpectVersion(row.key, row.ts)])
