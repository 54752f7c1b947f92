"""Deleting rows and entries of elements that are dropped: what no server writes any more, a few keys at a time.

Nobody will ever write these ids again, so it does not matter when a commit of this arrives, or how often: it needs no
fence. A walk goes from its end to its beginning, since a row's entries and children come after it, so that nothing is
left without what it belongs to.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import pairwise

from f1common.encoding import tuple as tuples
from f1server.catalog.schema import Schema
from f1server.rows.keys import split_row_key
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.moves import FORM
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.work.walking import Pace, Tell, Walk, paced
from spanstore.client import STORED_COLUMNS, KeyRange, SpanClient, Write

__all__ = ["GONE_TABLES", "doomed", "gone_codes", "gone_tables", "purge"]

GONE_TABLES = frozenset({"table", FORM})
"""Kinds of elements whose rows are deleted as a whole: tables, and forms of tables that have moved."""

_CHUNK = 200
_SCAN_KEYS = 500
_HELD = 50_000
"""Keys that are held at once."""


def gone_tables(tasks: Sequence[Task[Element]]) -> set[int]:
    """Return the ids of the tables that are dropped."""
    return {task.element.table_id for task in tasks if task.element.kind in GONE_TABLES}


def gone_codes(schema: Schema, tasks: Sequence[Task[Element]]) -> set[int]:
    """Return the elements that mark entries of indexes that are dropped, by themselves or with their tables."""
    codes = {LOCAL_INDEX_BASE + task.element.id for task in tasks if task.element.kind == "index"}
    for table_id in gone_tables(tasks):
        codes |= {LOCAL_INDEX_BASE + index.id for index in schema.by_id[table_id].indexes}
    return codes


def doomed(schema: Schema, tasks: Sequence[Task[Element]]) -> Callable[[bytes], bool]:
    """Return what tells whether a storage key belongs to one of the tables or indexes that are dropped.

    All of a dropped root's hierarchy does, its history included.
    """
    tables, codes = gone_tables(tasks), gone_codes(schema, tasks)

    def is_doomed(key: bytes) -> bool:
        elements = tuples.decode(key)
        if elements and (elements[0] in tables or elements[0] in codes):
            return True
        split = split_row_key(schema, key)
        if split is not None:
            return split[0].id in tables
        return any(type(element) is int and element in codes for element in elements)

    return is_doomed


async def purge(client: SpanClient, pace: Pace, walk: Walk, tell: Tell) -> None:
    """Delete what is doomed of the keys of a walk. Raises what ``tell`` raises, and what storage raises."""
    keys = list[bytes]()
    borders = [walk.start, walk.end]
    async with aclosing(_doomed_keys(client, walk, walk.start, walk.end)) as found:
        async for key in found:
            if len(keys) == _HELD:
                borders.append(key)
                keys = []
            keys.append(key)
    if len(borders) == 2:
        await _delete(client, pace, keys, tell)
        return
    # There are too many to be held: they are read once more, some at a time. Of several groups they came in no order.
    for start, end in reversed(list(pairwise(sorted(set(borders))))):
        async with aclosing(_doomed_keys(client, walk, start, end)) as found:
            keys = [key async for key in found]
        await _delete(client, pace, keys, tell)


async def _doomed_keys(client: SpanClient, walk: Walk, start: bytes, end: bytes) -> AsyncGenerator[bytes, None]:
    is_doomed = doomed(walk.schema, walk.work.tasks)
    scan = client.scan([KeyRange(start, end)], STORED_COLUMNS[:1], timestamp=walk.snapshot, batch_rows=_SCAN_KEYS)
    async with aclosing(aiter(scan)) as batches:
        async for batch in batches:
            for key in batch.column(0).to_pylist():
                if is_doomed(key):
                    yield key


async def _delete(client: SpanClient, pace: Pace, keys: list[bytes], tell: Tell) -> None:
    keys.sort(reverse=True)
    for first in range(0, len(keys), _CHUNK):
        some = keys[first : first + _CHUNK]
        async with paced(pace, len(some)):
            await client.commit([Write(key, None) for key in some])
        await tell(len(some), sum(map(len, some)))
