"""The reorganiser: what a schema change does with rows (schema-change paper, section 4.3).

It fills what old rows lack, sees that they honour new constraints, and removes what no server uses any more. It runs
when every server has the version of the schema that is current, so every row that is written meanwhile is right
already. All of it may be done again: what is there is not written a second time.

Each table is walked over once for everything that is filled and validated, by the rows of a snapshot that is taken
now (:mod:`f1server.schemachange.work.walk`), and once more for what is removed. Rows and entries are written in small
commits, so that no lock is held for longer than a batch takes. What is newer than the snapshot stays (the Thomas
write rule of section 4.3); a column is filled where it is still missing, whatever the age of the row, since updates
of other columns do not write it. No lock column is bumped by any of this, and no change history is written: for
users, nothing has changed.

Each batch commits under the lease of its server on the schema, as users' commits do. So an owner of a change that stood
still while another one finished it, and while the next change dropped what this one made, leaves nothing behind.

All of it is done as fast as users do not notice (:mod:`f1server.schemachange.work.throttle`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from f1common.clock import Clock
from f1common.encoding.row import decode_row
from f1common.errors import Code, F1Error
from f1common.rpc.channels import ChannelCache
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.schema import Column, Schema, Table
from f1server.dist.pool import SlavePool
from f1server.rows.keys import split_row_key, table_span
from f1server.schemachange.jobs.progress import Stretch, Watch
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work
from f1server.schemachange.work.pacing import Paced
from f1server.schemachange.work.sums import EntrySum
from f1server.schemachange.work.tablewalk import Ground, TableWalks, Walked, rows_of, to_purge, to_sum, to_verify
from f1server.schemachange.work.tablework import TableWork, by_table
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.schemachange.work.validation import RowEvaluators
from f1server.schemachange.work.verification import is_verified
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.workers import Here, Workers, leased_fence
from spanstore.client import KeyRange, SpanClient

__all__ = ["Reorganiser", "RowEvaluators", "Watch"]

LOG = logging.getLogger(__name__)

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
        verifies: bool = True,
    ) -> None:
        """``client`` is a background one; ``evaluators`` is asked when rows are at hand; ``pool``: slaves that help.

        ``verifies`` False: :meth:`verify` does nothing.
        """
        self._verifies = verifies
        self._client = client
        self._pace = Paced(client, options, lambda: clock.sample().tt.latest / 1e6, sleep)

        def walker(schema: Schema) -> Walker:
            return Walker(client, evaluators, lambda: leased_fence(leases, schema), self._pace, sleep)

        here = Here(walker, lambda table_rows: self._pace.adjust(options.over(table_rows)))
        workers = Workers(here, pool, leases, channels, options)
        self._walks = TableWalks(client, here, workers, lambda: clock.sample().boot_us / 1e6)

    async def has_rows(self, schema: Schema, table: Table, column: Column | None = None) -> bool:
        """Is there any row of ``table``, with a value in ``column`` if one is given?"""
        span = table_span(schema, table)
        async for key, value in self._walk(span, await self._now_of(span[0])):
            split = split_row_key(schema, key)
            if split is not None and split[0].id == table.id and (column is None or column.id in decode_row(value)):
                return True
        return False

    async def foresee(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Tell ``watch`` about how much :meth:`run` and :meth:`verify` have to do for all tasks.

        Raises what storage raises.
        """
        grounds = _to_change(schema, tasks)
        for work in self._verified(schema, tasks):
            rows, indexes = to_sum(schema, work)
            grounds += [rows, *indexes]
        await self._walks.foresee(grounds, watch)

    async def run(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Do all tasks, under ``schema``, which every server has. Removals come last.

        Raises ALREADY_EXISTS for rows with equal values in a new unique index, FAILED_PRECONDITION for rows that break
        a new constraint, each with a row for example; what ``watch`` raises; and what storage raises.
        """
        for ground in _to_change(schema, tasks):
            await self._walks.walk(ground, watch)

    async def verify(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """See as of fresh snapshots that what :meth:`run` was to fill and validate is right, before it is public.

        Raises INTERNAL with keys for example if it is not; what ``watch`` raises; and what storage raises.
        """
        for work in self._verified(schema, tasks):
            rows, indexes = to_sum(schema, work)
            walked = await self._walks.walk(rows, watch)
            for entries in indexes:
                if not await self._agrees(walked, entries, watch):
                    for ground in to_verify(schema, entries.work):
                        await self._walks.walk(ground, watch)

    def _verified(self, schema: Schema, tasks: Sequence[Task[Element]]) -> list[TableWork]:
        return by_table(schema, [task for task in tasks if is_verified(task)]) if self._verifies else []

    async def _agrees(self, rows: Walked, entries: Ground, watch: Watch) -> bool:
        """Tell whether the entries of an index are those that its rows should have; False: look at each of them."""
        (where,) = entries.work.indexes
        try:
            found = await self._walks.walk(entries, watch, rows.snapshot)
        except F1Error as error:
            if error.code is not Code.SNAPSHOT_TOO_OLD:
                raise
            LOG.info("the rows of index %s were added up too long ago", where.index.name)
            return False
        wanted, there = (sums.get(where.index.id, EntrySum()) for sums in (rows.sums, found.sums))
        if found.snapshot == rows.snapshot and wanted == there:
            return True
        LOG.warning(
            "index %s holds %d entries, its rows come to %d, or not at one time: each is looked at",
            where.index.name,
            there.count,
            wanted.count,
        )
        return False

    async def forget(self, database: str) -> None:
        """The work of a change is done, or given up: nobody will go on with it."""
        await self._walks.forget(database)

    async def purge(self, before: Schema, tables: Sequence[Table]) -> None:
        """Delete all rows, entries and history of tables that no server uses any more: a database was dropped."""
        elements = [Task(Element("table", table.id, name=table.name), Work.REMOVE) for table in tables]
        for ground in to_purge(before, elements):
            await self._walks.walk(ground, _Nobody())

    # ------------------------------------------------------------------ reading

    async def _now_of(self, key: bytes) -> int:
        """Return a timestamp at which every acknowledged commit can be seen."""
        return (await self._client.read([key])).timestamp

    async def _walk(self, span: tuple[bytes, bytes], timestamp: int) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yield key and value of the live rows of a range as of ``timestamp``, read a page at a time."""
        start, end = span
        while True:
            result = await self._client.read(ranges=[KeyRange(start, end, _PAGE)], timestamp=timestamp)
            (rows,) = result.ranges
            for row in rows:
                yield row.key, row.value
            if len(rows) < _PAGE:
                return
            start = rows[-1].key + b"\x01"


def _to_change(schema: Schema, tasks: Sequence[Task[Element]]) -> list[Ground]:
    """Return what is walked over to do all tasks, in this order."""
    careful = [task for task in tasks if task.work is not Work.REMOVE]
    removals = [task for task in tasks if task.work is Work.REMOVE]
    grounds = [rows_of(schema, work, removing=False) for work in by_table(schema, careful)]
    # Entries go before the values that they are made of, without which they would be wrong.
    grounds += to_purge(schema, removals)
    return grounds + [rows_of(schema, work, removing=True) for work in by_table(schema, removals)]


class _Nobody:
    """Watches nothing."""

    job = 0

    def foresee(self, stretches: Sequence[Stretch]) -> None:
        """Take no notice."""

    def begin(self, stretch: Stretch, *, done: int = 0, size: int = 0) -> None:
        """Take no notice."""

    async def __call__(self, rows: int, size: int) -> None:
        """Nobody stops it."""
