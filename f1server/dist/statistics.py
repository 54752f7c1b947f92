"""Statistics of tables, fetched when a query wants them and kept for a minute.

They come from sketches (:meth:`spanstore.client.SpanClient.sketch`): one of each hierarchy counts all its tables and
says where its rows lie, which is what scans are divided by (:mod:`f1server.dist.division`). Queries that want the same
share one fetch. No query waits long for one or fails with one: it goes by what was known before, or by nothing. Where
what was known before is of a large table, it does not wait at all.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from f1common.clock import Clock
from f1common.errors import F1Error
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.dist.division import Division, Figures, Keyspace, keyspace_of
from f1server.history.table import is_history_table
from f1server.plan.parts import PartScan
from f1server.plan.statistics import TableStats
from f1server.rows.layout import HISTORY_ID, layout
from spanstore.client import KeyRange, SpanClient

__all__ = ["KnownStatistics", "StatisticsCache"]

_log = logging.getLogger(__name__)

_HISTORY_OWN = 2  # commit timestamp and commit id
_SLOWNESS = 20
"""A sketch is kept for so many times as long as it took, at least."""
_FEW_ROWS = 100_000
_FEW_AGE_US = 1_000_000
"""Small tables may be large soon, as while they are loaded, and are counted fast."""
_OLD = 10
"""Figures of a large table that are not older than so many times what they may be do until there are new ones: its
rows are counted in the background, which takes seconds of a processor that users want."""
_AGAIN_US = 5_000_000
"""After a failure nobody tries again for so long."""
_MOST_KEPT = 1_000
_SKETCH_TIMEOUT_S = 30.0

TablePath = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KnownStatistics:
    """The sizes of tables as they were known when a query asked."""

    stats: Mapping[int, TableStats]

    def table(self, table: Table) -> TableStats | None:
        """Return what is known of a table; None: nothing."""
        return self.stats.get(table.id)


@dataclass(slots=True)
class _Kept:
    """What was fetched of a keyspace, and the fetch under way; moments are those of the boot clock."""

    figures: Figures | None = None
    table_ids: tuple[int, ...] = ()
    """The tables that the last fetch, whatever became of it, was to tell apart."""
    until_us: int = 0
    task: asyncio.Task[None] | None = None
    asked_us: int = 0
    few: bool = True
    """There were few rows, or nothing is known."""
    awaited: bool = True
    """Queries wait for the fetch under way: they have nothing else to go by."""


class StatisticsCache:
    """Statistics of all databases, for one f1server. Of one event loop."""

    def __init__(self, client: SpanClient, clock: Clock, *, max_age_ms: int = 60_000, wait_ms: int = 2_000) -> None:
        """``max_age_ms``: how old figures may be; ``wait_ms``: how long a query waits for new ones at most."""
        self._client = client
        self._clock = clock
        self._max_age_us = max_age_ms * 1000
        self._wait_us = wait_ms * 1000
        self._kept: dict[tuple[int, int], _Kept] = {}

    async def fresh(self, schema: Schema, tables: Iterable[Table]) -> KnownStatistics:
        """Return what is known of ``tables``, fetching what is missing or too old. Raises nothing of storage's."""
        known = await self._figures(schema, [keyspace_of(schema, table) for table in tables])
        stats: dict[int, TableStats] = {}
        for figures in known:
            stats.update(figures.tables)
        return KnownStatistics(stats)

    async def division(self, schema: Schema, scans: Iterable[PartScan]) -> Division:
        """Return how the divided ones of the scans of a query are divided. As :meth:`fresh`."""
        wanted = [scan.planned.scan for scan in scans if scan.divided]
        return Division(
            schema, await self._figures(schema, [keyspace_of(schema, scan.table, scan.index) for scan in wanted])
        )

    async def close(self) -> None:
        """End the fetches that are under way."""
        tasks = [kept.task for kept in self._kept.values() if kept.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _figures(self, schema: Schema, keyspaces: Sequence[Keyspace]) -> list[Figures]:
        now_us = self._clock.sample().boot_us
        kept = [self._refreshed(schema, keyspace, now_us) for keyspace in {k.id: k for k in keyspaces}.values()]
        waiting = {
            entry.task: entry.asked_us + self._wait_us for entry in kept if entry.task is not None and entry.awaited
        }
        if waiting:
            # Who finds a fetch that has been going on for long does not wait for it once more.
            left_us = max(waiting.values()) - now_us
            await asyncio.wait(waiting, timeout=max(left_us, 0) / 1e6)
        return [entry.figures for entry in kept if entry.figures is not None]

    def _refreshed(self, schema: Schema, keyspace: Keyspace, now_us: int) -> _Kept:
        """Return what is kept of a keyspace; a fetch has begun if it is too old, or lacks a table."""
        entry = self._kept.pop(keyspace.id, None) or _Kept()
        self._kept[keyspace.id] = entry  # the last used are the last in the order
        if entry.task is not None and entry.task.done():
            entry.task = None  # it was cancelled before it began
        paths = {} if keyspace.index else _paths(schema, keyspace.root)
        if entry.task is None and (now_us >= entry.until_us or entry.table_ids != tuple(paths)):
            known = entry.figures is not None and not entry.few and entry.table_ids == tuple(paths)
            entry.awaited = not known or now_us >= entry.until_us + _OLD * self._max_age_us
            entry.asked_us, entry.table_ids = now_us, tuple(paths)
            entry.task = asyncio.create_task(self._fetch(entry, keyspace, paths), name="statistics")
            self._forget_oldest()
        return entry

    def _forget_oldest(self) -> None:
        for keyspace in list(self._kept)[: max(0, len(self._kept) - _MOST_KEPT)]:
            if self._kept[keyspace].task is None:
                del self._kept[keyspace]

    async def _fetch(self, entry: _Kept, keyspace: Keyspace, paths: Mapping[int, TablePath]) -> None:
        try:
            sketch = await self._client.sketch(
                [KeyRange(*keyspace.span)],
                tables=list(paths.values()),
                timeout_s=_SKETCH_TIMEOUT_S,
                background=not entry.awaited,
            )
        except F1Error as error:
            _log.warning("the statistics of %s could not be fetched: %s", keyspace.root.name, error)
            entry.until_us = self._clock.sample().boot_us + min(self._max_age_us, _AGAIN_US)
        else:
            now_us = self._clock.sample().boot_us
            entry.figures = Figures(keyspace, tuple(paths), sketch)
            took_us = now_us - entry.asked_us
            entry.few = sum(stats.rows for stats in entry.figures.tables.values()) < _FEW_ROWS
            age_us = min(self._max_age_us, _FEW_AGE_US) if entry.few else self._max_age_us
            entry.until_us = now_us + max(age_us, _SLOWNESS * took_us)
        finally:
            entry.task = None


def _paths(schema: Schema, root: Table) -> dict[int, TablePath]:
    """Return the path of each table below ``root``, itself and its change history among them, by the table's id.

    A path: (table id, how many elements its own part of the key has) from the root down.
    """
    found: dict[int, TablePath] = {}
    for table in schema.tables:
        if is_history_table(table) or table.state is ElementState.ABSENT:
            continue
        where = layout(schema, table)
        if where.root.id == root.id:
            found[table.id] = tuple((table_id, end - first) for table_id, first, end in where.steps)
    found[HISTORY_ID + root.id] = ((root.id, len(root.key_column_ids)), (HISTORY_ID, _HISTORY_OWN))
    return found
