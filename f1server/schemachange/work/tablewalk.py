"""Walks over whole tables and indexes: divided, dealt out, noted as they go, and gone on with by the next owner."""

import asyncio
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from msgspec.structs import replace

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema
from f1server.rows.keys import table_span
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.schemachange.jobs.progress import Stretch, Watch
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.edits import Part
from f1server.schemachange.steps.moves import FORM
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.work.dealing import Dealer, Worker
from f1server.schemachange.work.partitions import Partition, at_roots, cuts_in, divided, path_of
from f1server.schemachange.work.purging import gone_codes, gone_tables
from f1server.schemachange.work.sums import Sums, added
from f1server.schemachange.work.tablework import TableWork, by_table, find
from f1server.schemachange.work.verification import KEYS_FOR_ONE, entries_span
from f1server.schemachange.work.walking import SEGMENT_ROWS, Rest, Walk, WalkKind
from f1server.schemachange.work.walkstore import Place, WalkState, WalkStore
from spanstore.client import KeyRange, SpanClient

__all__ = ["Ground", "TableWalks", "Walked", "rows_of", "to_purge", "to_sum", "to_verify"]

LOG = logging.getLogger(__name__)

ROWS_EACH = 30_000
_AT_ONCE = 1_000
"""So few rows are worked on in one go: what is lost of it when the change is paused is soon done again."""
_FORESEEN_KEYS = 200_000
"""Keys that are looked at to tell how many there are, before the walk itself: half a second."""
_PIN_S = 600.0
_SUM_ROWS = 5
_REFRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class Ground:
    """What is walked over as a whole: keys of one range, for one purpose.

    ``place`` says where it is noted how far the walk is (:data:`f1server.schemachange.work.walkstore.Place`).
    """

    schema: Schema
    work: TableWork
    kind: WalkKind
    span: tuple[bytes, bytes]
    place: Place

    @property
    def tables(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The paths of the tables whose rows count as work; none: all keys do."""
        if self.kind in (WalkKind.CHANGE, WalkKind.VERIFY_ROWS, WalkKind.SUM_ROWS):
            return (path_of(self.schema, self.work.table),)
        return ()

    @property
    def pinned(self) -> Place:
        """What the pin of its snapshot is named after: sums of rows and of entries are of one snapshot, and one pin."""
        return (self.work.table.id, _SUM_ROWS) if self.kind.sums else self.place

    def stretch(self, rows: int) -> Stretch:
        """Return it as a part of all the work, if it has about so many rows."""
        return Stretch(self.place, rows, 1 / KEYS_FOR_ONE.get(self.kind, 1))


def rows_of(schema: Schema, work: TableWork, *, removing: bool) -> Ground:
    """Return the rows of a table, to be filled and validated, or rid of cells."""
    return Ground(schema, work, WalkKind.CHANGE, table_span(schema, work.table), (work.table.id, int(removing)))


@dataclass(frozen=True, slots=True)
class Walked:
    """What came of a walk: what was added up as of ``snapshot``."""

    snapshot: int
    sums: Sums


def to_sum(schema: Schema, work: TableWork) -> tuple[Ground, list[Ground]]:
    """Return what is read once to verify what was done with a table: its rows, and the entries of new indexes."""
    rows = Ground(schema, work, WalkKind.SUM_ROWS, table_span(schema, work.table), (work.table.id, _SUM_ROWS))
    entries = []
    for task in work.tasks:
        if task.element.kind in ("index", FORM):
            (of_index,) = by_table(schema, [task])
            (where,) = of_index.indexes
            entries.append(Ground(schema, of_index, WalkKind.SUM_ENTRIES, entries_span(where), (where.index.id, 6)))
    return rows, entries


def to_verify(schema: Schema, work: TableWork) -> list[Ground]:
    """Return what is read once more, and looked up key by key, to find what is wrong with one new index."""
    (where,) = work.indexes
    rows = Ground(schema, work, WalkKind.VERIFY_ROWS, table_span(schema, work.table), (where.index.id, 2))
    return [rows, Ground(schema, work, WalkKind.VERIFY_ENTRIES, entries_span(where), (where.index.id, 3))]


def to_purge(schema: Schema, tasks: Sequence[Task[Element]]) -> list[Ground]:
    """Return where rows and entries of dropped tables and indexes lie, in the order in which they go.

    Entries come first, since they would be wrong without what they are made of.
    """
    tables = gone_tables(tasks)
    if not tables and not gone_codes(schema, tasks):
        return []
    work = TableWork(schema.by_id[tasks[0].element.table_id], list(tasks))
    indexes = [task.element.id for task in tasks if task.element.kind == "index"]
    indexes += [index.id for table_id in tables for index in schema.by_id[table_id].indexes]
    found = []
    for index_id in sorted(set(indexes)):
        prefix = tuples.encode((LOCAL_INDEX_BASE + index_id,))
        found.append(Ground(schema, work, WalkKind.PURGE, (prefix, tuples.successor(prefix)), (index_id, 4)))
    local = {
        task.element.table_id
        for task in tasks
        if task.element.kind == "index" and find(schema, task.element, Part.INDEX).local
    }
    roots = {schema.root(schema.by_id[table_id]).id for table_id in tables | local}
    for root_id in sorted(roots, key=lambda root_id: (root_id not in tables, root_id)):
        span = table_span(schema, schema.by_id[root_id])
        found.append(Ground(schema, work, WalkKind.PURGE, span, (root_id, 4)))
    return found


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

    async def foresee(self, grounds: Sequence[Ground], watch: Watch) -> None:
        """Tell ``watch`` about how much there is to do. Entries that are still to be made are as many as their rows."""
        counted: dict[tuple[KeyRange, tuple[tuple[tuple[int, int], ...], ...]], int] = {}
        stretches = []
        for ground in grounds:
            of_rows = ground.kind is WalkKind.SUM_ENTRIES
            shown = rows_of(ground.schema, ground.work, removing=False) if of_rows else ground
            what = (KeyRange(*shown.span), shown.tables)
            if what not in counted:
                sketch = await self._client.sketch([what[0]], tables=shown.tables, max_keys=_FORESEEN_KEYS)
                counted[what] = sketch.totals[0].rows
            stretches.append(ground.stretch(counted[what]))
        watch.foresee(stretches)

    async def walk(self, ground: Ground, watch: Watch, snapshot: int = 0) -> Walked:
        """Walk over all of it, as of ``snapshot``, or now if that is 0 or cannot be kept until the end.

        Raises as :meth:`f1server.schemachange.work.walk.Walker.walk`.
        """
        now = await self._snapshot(ground.span[0])
        parts, cuts = await self._partitions(ground)
        rows = sum(part.rows for part in parts)
        if (len(parts) > 1 or rows > _AT_ONCE) and watch.job:
            return await self._noted(ground, snapshot, now, parts, cuts, watch)
        watch.begin(ground.stretch(rows))
        sums: Sums = {}
        for part in parts:
            walk = Walk(ground.schema, ground.work, part.start, part.end, snapshot or now, ground.kind, rows)
            sums = added(sums, await self._here.work(walk, watch, lambda rest: None))
        return Walked(snapshot or now, sums)

    async def _snapshot(self, key: bytes) -> int:
        """Return a strong timestamp: every server has the version, so older versions wrote nothing after it."""
        return (await self._client.read([key])).timestamp

    async def forget(self, database: str) -> None:
        """The walks of a change are over: let go of what is noted of them, and of their snapshots."""
        for state in await self._store.clear(database):
            await self._client.pins.remove(state.pin)

    async def _partitions(self, ground: Ground) -> tuple[list[Partition], list[bytes]]:
        """Return into what the ground is divided, and where that may be divided further, in order."""
        span = ground.span
        every = min(SEGMENT_ROWS, max(self.rows_each, 1))
        sketch = await self._client.sketch([KeyRange(*span)], tables=ground.tables, every=every)
        cuts = cuts_in(sketch, SEGMENT_ROWS)
        borders = [start for start, _, _ in (await self._client.range_map()).pieces(*span)]
        parts = divided(span, borders, sketch, self.rows_each)
        # What is deleted goes from a row's last descendant to itself, so a hierarchy is not cut below its root's rows.
        return at_roots(ground.schema, parts) if ground.kind is WalkKind.PURGE else parts, cuts

    # ------------------------------------------------------------------ walks that take long

    async def _noted(
        self, noted: Ground, snapshot: int, now: int, parts: list[Partition], cuts: list[bytes], watch: Watch
    ) -> Walked:
        schema, table = noted.schema, noted.work.table
        what = crc32(repr([(str(task.element), task.element.id, task.work) for task in noted.work.tasks]).encode())
        pin = f"schema-{schema.database}-{watch.job}-{noted.pinned[0]}-{noted.pinned[1]}"
        borders = (parts[0].start, *(part.end for part in parts))
        rows = tuple(part.rows for part in parts)
        fresh = WalkState(
            watch.job, schema.elements_version, what, snapshot or now, pin, borders, rows, bytes(len(parts))
        )
        state = await self._store.begin(schema.database, noted.place, fresh)
        if snapshot and state.snapshot != snapshot:
            # What an owner before has added up is of a snapshot that was lost since.
            state = await self._store.change(schema.database, noted.place, lambda found: found.begun_again(snapshot))
        state = await self._pinned(noted, state, now)
        rows_done, bytes_done = state.worked
        if rows_done:
            text = "the walk over %s goes on: %d rows are done, %d of %d partitions are left"
            LOG.info(text, table.name, rows_done, len(state.left), len(state.done))
        watch.begin(noted.stretch(sum(state.rows)), done=rows_done, size=bytes_done)

        snapshot = state.snapshot

        async def note(edit: Callable[[WalkState], WalkState]) -> None:
            def checked(found: WalkState) -> WalkState:
                if noted.kind.sums and found.snapshot != snapshot:
                    raise F1Error(Code.ABORTED, "another server adds up at another snapshot", retryable=True)
                return edit(found)

            await self._store.change(schema.database, noted.place, checked)

        async def done(number: int, rows: int, size: int, sums: Sums) -> None:
            await note(lambda found: found.with_done(number, rows, size, sums))

        async def left(rests: Mapping[int, Rest]) -> None:
            await note(lambda found: found.with_rests(rests))

        def walk(number: int) -> Walk:
            start, end = state.borders[number : number + 2]
            within = tuple(cuts[bisect_right(cuts, start) : bisect_left(cuts, end)])
            rows = sum(state.rows)
            return Walk(schema, noted.work, start, end, snapshot, noted.kind, rows, within, state.earlier)

        walks = {number: walk(number) for number in state.left}
        keeping = asyncio.create_task(self._keep(state.pin), name="pin of a walk")
        try:
            # What is not worth dividing is not worth waking slaves for.
            workers = self._workers if len(state.rows) > 1 else lambda: {"this server": self._here}
            await Dealer(workers, watch, done, left, self._now_s).deal(walks, state.rests)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        state = await self._store.change(schema.database, noted.place, lambda found: found)
        return Walked(state.snapshot, state.summed)

    async def _pinned(self, noted: Ground, state: WalkState, newer: int) -> WalkState:
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

        def edit(found: WalkState) -> WalkState:
            later = max(found.snapshot, newer)
            return found.begun_again(later) if noted.kind.sums else replace(found, snapshot=later, earlier=True)

        state = await self._store.change(noted.schema.database, noted.place, edit)
        await pins.add(state.pin, state.snapshot, ttl_s=_PIN_S, owner=owner)
        return state

    async def _keep(self, pin: str) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            try:
                await self._client.pins.refresh(pin, ttl_s=_PIN_S)
            except F1Error as error:
                LOG.warning("the snapshot of a walk was not kept for longer: %s", error)
