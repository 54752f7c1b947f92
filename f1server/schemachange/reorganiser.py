"""The reorganiser: what a schema change does with rows (schema-change paper, section 4.3).

It fills what old rows lack, sees that they honour new constraints, and removes what no server uses any more. It runs
when every server has the version of the schema that is current, so every row that is written meanwhile is right
already. All of it may be done again: what is there is not written a second time.

Each table is walked over once for everything that is filled and validated, by the rows of a snapshot that is taken now
(:mod:`f1server.schemachange.walk`), and once more for what is removed. Rows and entries are written in small commits,
so that no lock is held for longer than a batch takes. What is newer than the snapshot stays (the Thomas write rule of
section 4.3); a column is filled where it is still missing, whatever the age of the row, since updates of other columns
do not write it. No lock column is bumped by any of this, and no change history is written: for users, nothing has
changed.

Each batch commits under the lease of its server on the schema, as users' commits do. So an owner of a change that stood
still while another one finished it, and while the next change dropped what this one made, leaves nothing behind.

All of it is done as fast as users do not notice (:mod:`f1server.schemachange.throttle`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from f1common.clock import Clock
from f1common.encoding import tuple as tuples
from f1common.encoding.row import decode_row
from f1common.rpc.channels import ChannelCache
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.schema import Column, Schema, Table
from f1server.dist.pool import SlavePool
from f1server.rows.keys import split_row_key, table_span
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.schemachange.diff import Element
from f1server.schemachange.edits import Part
from f1server.schemachange.moves import FORM
from f1server.schemachange.pacing import Paced
from f1server.schemachange.plan import Task
from f1server.schemachange.progress import Watch
from f1server.schemachange.states import Work
from f1server.schemachange.tablewalk import TableWalks
from f1server.schemachange.tablework import by_table, find
from f1server.schemachange.throttle import ThrottleOptions
from f1server.schemachange.validation import RowEvaluators
from f1server.schemachange.walk import Walker
from f1server.schemachange.workers import Here, Workers, leased_fence
from spanstore.client import KeyRange, SpanClient, Write

__all__ = ["Reorganiser", "RowEvaluators", "Watch"]

_CHUNK = 200
_PAGE = 2_000


class Reorganiser:
    """Does the work on data of schema changes, over the storage tier."""

    def __init__(
        self,
        client: SpanClient,
        leases: SchemaLeases,
        evaluators: Callable[[], RowEvaluators],
        clock: Clock,
        *,
        options: ThrottleOptions,
        pool: SlavePool | None = None,
        channels: ChannelCache | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """``client`` is a background one; ``evaluators`` is asked when rows are at hand; ``pool``: slaves that help."""
        self._client = client
        self._pace = Paced(client, options, lambda: clock.sample().tt.latest / 1e6, sleep)

        def walker(schema: Schema) -> Walker:
            return Walker(client, evaluators, lambda: leased_fence(leases, schema), self._pace, sleep)

        here = Here(walker)
        workers = Workers(here, pool, leases, channels, options)
        self._walks = TableWalks(client, here, workers, lambda: clock.sample().boot_us / 1e6)

    async def has_rows(self, schema: Schema, table: Table, column: Column | None = None) -> bool:
        """Is there any row of ``table``, with a value in ``column`` if one is given?"""
        span = table_span(schema, table)
        async for key, value, _ in self._walk(span, await self._now_of(span[0])):
            split = split_row_key(schema, key)
            if split is not None and split[0].id == table.id and (column is None or column.id in decode_row(value)):
                return True
        return False

    async def run(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Do all tasks, under ``schema``, which every server has. Removals come last.

        Raises ALREADY_EXISTS for rows with equal values in a new unique index, FAILED_PRECONDITION for rows that break
        a new constraint, each with a row for example; what ``watch`` raises; and what storage raises.
        """
        for removing in (False, True):
            chosen = [task for task in tasks if (task.work is Work.REMOVE) is removing]
            if removing:
                # Entries go before the values that they are made of, without which they would be wrong.
                await self._purge(schema, chosen, watch)
            for work in by_table(schema, chosen):
                await self._walks.walk(schema, work, watch, removing=removing)

    async def forget(self, database: str) -> None:
        """The work of a change is done, or given up: nobody will go on with it."""
        await self._walks.forget(database)

    # ------------------------------------------------------------------ removals

    async def purge(self, before: Schema, tables: Sequence[Table]) -> None:
        """Delete all rows, entries and history of tables that no server uses any more: a database was dropped."""
        elements = [Task(Element("table", table.id, name=table.name), Work.REMOVE) for table in tables]

        await self._purge(before, elements, _Nobody())

    async def _purge(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Delete rows and entries of elements that nobody writes to; a dropped root takes its history along."""
        tables = [schema.by_id[t.element.table_id] for t in tasks if t.element.kind in ("table", FORM)]
        indexes = [
            (schema.by_id[t.element.table_id], find(schema, t.element, Part.INDEX))
            for t in tasks
            if t.element.kind == "index"
        ]
        gone = {table.id for table in tables}
        codes = {LOCAL_INDEX_BASE + index.id for _, index in indexes}
        codes |= {LOCAL_INDEX_BASE + index.id for table in tables for index in table.indexes}
        prefixes = [tuples.encode((code,)) for code in sorted(codes)]
        whole = [(prefix, tuples.successor(prefix)) for prefix in prefixes]
        whole += [table_span(schema, table) for table in tables if not table.parent_id]
        for span in whole:
            await self._delete(span, lambda _: True, watch)
        roots = {schema.root(table).id: schema.root(table) for table in tables}
        roots |= {schema.root(table).id: schema.root(table) for table, index in indexes if index.local}
        for root_id in sorted(roots.keys() - gone):
            span = table_span(schema, roots[root_id])
            await self._delete(span, lambda key: _is_of(schema, key, gone, codes), watch)

    async def _delete(self, span: tuple[bytes, bytes], doomed: Callable[[bytes], bool], watch: Watch) -> None:
        """Delete rows whose ids nobody writes any more, and nobody ever will: that needs no lease.

        From the end, where a row's entries and children are, so that nothing is left without what it belongs to.
        """
        timestamp = await self._now_of(span[0])
        chunk: list[Write] = []
        size = 0
        async for key, value, _ in self._walk(span, timestamp, reverse=True):
            if doomed(key):
                chunk.append(Write(key, None))
                size += len(key) + len(value)
            if len(chunk) == _CHUNK:
                await self._commit(chunk, size, watch)
                chunk, size = [], 0
        if chunk:
            await self._commit(chunk, size, watch)

    async def _commit(self, writes: Sequence[Write], size: int, watch: Watch) -> None:
        await self._pace.begin(len(writes))
        await self._client.commit(writes)
        self._pace.end(len(writes))
        await watch(len(writes), size)

    # ------------------------------------------------------------------ reading

    async def _now_of(self, key: bytes) -> int:
        """Return a timestamp at which every acknowledged commit can be seen."""
        return (await self._client.read([key])).timestamp

    async def _walk(
        self, span: tuple[bytes, bytes], timestamp: int, *, reverse: bool = False
    ) -> AsyncIterator[tuple[bytes, bytes, int]]:
        """Yield key, value and timestamp of the live rows of a range as of ``timestamp``, read a page at a time."""
        start, end = span
        while True:
            result = await self._client.read(ranges=[KeyRange(start, end, _PAGE, reverse)], timestamp=timestamp)
            (rows,) = result.ranges
            for row in rows:
                yield row.key, row.value, row.ts
            if len(rows) < _PAGE:
                return
            if reverse:
                end = rows[-1].key
            else:
                start = rows[-1].key + b"\x01"


class _Nobody:
    """Watches nothing."""

    job = 0

    def expect(self, rows: int, *, done: int = 0, size: int = 0) -> None:
        """Take no notice."""

    async def __call__(self, rows: int, size: int) -> None:
        """Nobody stops it."""


def _is_of(schema: Schema, key: bytes, tables: set[int], codes: set[int]) -> bool:
    """Tell whether a storage key within a hierarchy belongs to one of the tables or to one of the local indexes."""
    split = split_row_key(schema, key)
    if split is not None:
        return split[0].id in tables
    return any(type(element) is int and element in codes for element in tuples.decode(key))
