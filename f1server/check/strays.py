"""Keys that belong to no table and no index: which of them may be deleted, and their deletion.

They are left over from what was dropped. Ids come from one counter and are never used again
(:mod:`f1server.rows.keys`), so a key whose table or index has an id that was given out, and that no schema of any
database had at the timestamp of the check, belongs to nothing and never will. A key of any other kind may be something
that this server does not know yet, in the middle of an upgrade: it is reported only. So is all of it while copies of a
schema differ (:func:`f1server.catalog.copies.all_even`): the tables that a damaged one lacks are no strays.

Each is looked at again under its lock. If its version is still the one that the check has seen, it was written before
the check's timestamp, under a schema of that time or an older one: nobody who writes now means it.
"""

from collections.abc import Collection, Iterable, Sequence

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1server.catalog.schema import Schema
from f1server.check.findings import Stray
from f1server.rows.layout import HISTORY_ID, LOCAL_INDEX_BASE
from spanstore.client import SpanClient, Transaction

__all__ = ["remove_strays", "unknown_id"]

_AT_ONCE = 100


def unknown_id(key: bytes, schemas: Collection[Schema]) -> int:
    """Return the id of the table or index that a key is of, if no schema has it; 0: that cannot be told, or one has."""
    try:
        elements = tuples.decode(key)
    except F1Error:
        return 0
    tables = {(table.parent_id, table.id): table for schema in schemas for table in schema.tables}
    position = parent = have = 0
    while position < len(elements):
        code = elements[position]
        if type(code) is not int or not 0 < code < HISTORY_ID:
            return 0
        if code > LOCAL_INDEX_BASE:
            return _if_unknown(code - LOCAL_INDEX_BASE, (i.id for t in tables.values() for i in t.indexes))
        table = tables.get((parent, code))
        if table is None:
            return _if_unknown(code, (t.id for t in tables.values()))
        own = len(table.key_column_ids) - have
        position, have, parent = position + 1 + own, have + own, table.id
    return 0


def _if_unknown(number: int, known: Iterable[int]) -> int:
    return 0 if number in set(known) else number


async def remove_strays(client: SpanClient, strays: Sequence[Stray]) -> list[bool]:
    """Delete keys that are still what the check has seen; tell of each whether it is gone. Raises what storage does."""
    gone: list[bool] = []
    for first in range(0, len(strays), _AT_ONCE):
        gone += await _remove(client, strays[first : first + _AT_ONCE])
    return gone


async def _remove(client: SpanClient, strays: Sequence[Stray]) -> list[bool]:
    gone: list[bool] = []

    async def look_again(tx: Transaction) -> None:
        gone.clear()
        versions = (await tx.read([stray.key for stray in strays], exclusive=True)).versions
        for stray, version in zip(strays, versions, strict=True):
            there = version is not None and version.value is not None
            same = version is not None and version.ts == stray.ts
            gone.append(not there or same)
            if there and same:
                tx.write(stray.key, None)

    await client.run(look_again)
    return gone
