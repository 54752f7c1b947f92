"""The walk over a whole table: divided, dealt out, noted as it goes, and gone on with by whoever owns the change."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from msgspec.structs import replace

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema
from f1server.rows.keys import table_span
from f1server.schemachange.dealing import Dealer, Worker
from f1server.schemachange.partitions import Partition, divided, path_of
from f1server.schemachange.progress import Watch
from f1server.schemachange.tablework import TableWork
from f1server.schemachange.walk import Walk
from f1server.schemachange.walkstore import WalkState, WalkStore
from spanstore.client import KeyRange, SpanClient

__all__ = ["TableWalks"]

LOG = logging.getLogger(__name__)

ROWS_EACH = 30_000
_SEGMENT_ROWS = 1_000
_PIN_S = 600.0
_REFRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class _Noted:
    """A walk that is noted: where, and what it is about."""

    schema: Schema
    work: TableWork
    place: tuple[int, int]


class TableWalks:
    """Walks over tables, for the owner of a change."""

    def __init__(
        self,
        client: SpanClient,
        here: Worker,
        workers: Callable[[], Mapping[str, Worker]],
        now_s: Callable[[], float],
    ) -> None:
        """``workers`` tells who can do walks, ``here`` is who does small ones."""
        self._client = client
        self._store = WalkStore(client)
        self._here = here
        self._workers = workers
        self._now_s = now_s
        self.rows_each = ROWS_EACH
        """Rows of a partition, about."""

    async def walk(self, schema: Schema, work: TableWork, watch: Watch, *, removing: bool) -> None:
        """Do ``work`` with all rows of its table. Raises as :meth:`f1server.schemachange.walk.Walker.walk`."""
        span = table_span(schema, work.table)
        # Every server has the version, so what was written under older ones lies before any strong timestamp now.
        snapshot = (await self._client.read([span[0]])).timestamp
        parts = await self._partitions(schema, work, span)
        if len(parts) > 1 and watch.job:
            await self._noted(_Noted(schema, work, (work.table.id, int(removing))), snapshot, parts, watch)
            return
        watch.expect(sum(part.rows for part in parts))
        await self._here.work(Walk(schema, work, *span, snapshot), watch)

    async def forget(self, database: str) -> None:
        """The walks of a change are over: let go of what is noted of them, and of their snapshots."""
        for state in await self._store.clear(database):
            await self._client.pins.remove(state.pin)

    async def _partitions(self, schema: Schema, work: TableWork, span: tuple[bytes, bytes]) -> list[Partition]:
        sketch = await self._client.sketch(
            [KeyRange(*span)], tables=[path_of(schema, work.table)], every=min(_SEGMENT_ROWS, max(self.rows_each, 1))
        )
        borders = [start for start, _, _ in (await self._client.range_map()).pieces(*span)]
        return divided(span, borders, sketch, self.rows_each)

    # ------------------------------------------------------------------ walks that take long

    async def _noted(self, noted: _Noted, snapshot: int, parts: list[Partition], watch: Watch) -> None:
        schema, table = noted.schema, noted.work.table
        what = crc32(repr([(str(task.element), task.element.id, task.work) for task in noted.work.tasks]).encode())
        pin = f"schema-{schema.database}-{watch.job}-{table.id}-{noted.place[1]}"
        borders = (parts[0].start, *(part.end for part in parts))
        rows = tuple(part.rows for part in parts)
        fresh = WalkState(watch.job, schema.version, what, snapshot, pin, borders, rows, bytes(len(parts)))
        state = await self._store.begin(schema.database, noted.place, fresh)
        state = await self._pinned(noted, state, snapshot)
        if state.rows_done:
            LOG.info(
                "the walk over %s goes on: %d of %d partitions are left", table.name, len(state.left), len(state.done)
            )
        watch.expect(sum(state.rows), done=state.rows_done, size=state.bytes_done)

        async def done(number: int, rows: int, size: int) -> None:
            await self._store.change(schema.database, noted.place, lambda found: found.with_done(number, rows, size))

        spans = list(pairwise(state.borders))
        walks = {n: Walk(schema, noted.work, *spans[n], state.snapshot) for n in state.left}
        keeping = asyncio.create_task(self._keep(state.pin), name="pin of a walk")
        try:
            await Dealer(self._workers, watch, done, self._now_s).deal(walks)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _pinned(self, noted: _Noted, state: WalkState, newer: int) -> WalkState:
        """Have the snapshot of a walk pinned; if it can no longer be read, go on at ``newer``."""
        pins = self._client.pins
        try:
            if (await pins.refresh(state.pin, ttl_s=_PIN_S)).ts <= state.snapshot:
                return state
            await pins.remove(state.pin)
        except F1Error as error:
            if error.code is not Code.NOT_FOUND:
                raise
        owner = f"schema change {state.job} of {noted.schema.database}"
        try:
            await pins.add(state.pin, state.snapshot, ttl_s=_PIN_S, owner=owner)
            return state
        except F1Error as error:
            if error.code is not Code.SNAPSHOT_TOO_OLD:
                raise
        LOG.info("the rest of the walk over %s is done at a newer snapshot", noted.work.table.name)
        state = await self._store.change(
            noted.schema.database, noted.place, lambda found: replace(found, snapshot=max(found.snapshot, newer))
        )
        await pins.add(state.pin, state.snapshot, ttl_s=_PIN_S, owner=owner)
        return state

    async def _keep(self, pin: str) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            try:
                await self._client.pins.refresh(pin, ttl_s=_PIN_S)
            except F1Error as error:
                LOG.warning("the snapshot of a walk was not kept for longer: %s", error)
