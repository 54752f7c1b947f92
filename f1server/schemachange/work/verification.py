"""Verification before public: what a change has filled and validated is held against the rows (issue: ``f1 check``).

The paper relies on the reorganiser being right (schema-change paper, section 4.3); an element that becomes public
without its data is an anomaly that no server would notice. So after the reorganisation, and before the version that
makes its elements public, each of them is checked as of a fresh snapshot. The rows of a table are read once for all,
and the entries of each new index once. Only what is there is read, so a verification may be done again.

*Rows* are judged by the code of ``f1 check`` (:class:`f1server.check.judge.Judge`), against a schema in which these
elements are public and no others are looked at (:func:`verified`): old damage elsewhere is no reason to refuse a
change. *Entries* are not looked up row by row. Those that the rows should have are added up, and those that are there
(:mod:`f1server.schemachange.work.sums`). Only if the sums of an index differ, its rows and entries are read once more
and held against each other key by key, which says what is wrong. The rows of a table that moves are entries of the form
that it has: what they say about locks is part of the sum.

What is found is a defect: a broken constraint has been found by the validation before. The change fails, and goes back.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

import pyarrow as pa

from f1common.encoding.row import decode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.check.entries import EntryBatch, StoredKey
from f1server.check.findings import Example, Finding, Kind
from f1server.check.judge import Judge
from f1server.check.rows import RowBatch
from f1server.rows.images import describe_key
from f1server.rows.keys import IndexLayout, index_prefix, table_span
from f1server.rows.layout import layout, of_schema
from f1server.rows.locks import DEFAULT_LOCK, raised
from f1server.rows.mirrors import MirrorLayout
from f1server.rows.rowcodec import row_of
from f1server.rows.values import Value
from f1server.schemachange.steps.diff import Element
from f1server.schemachange.steps.moves import FORM
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work
from f1server.schemachange.work.changes import Stored, entry_keys, stored_row
from f1server.schemachange.work.gathering import StoredRows
from f1server.schemachange.work.sums import EntrySum, Sums, digest
from f1server.schemachange.work.tablework import TableWork
from f1server.schemachange.work.validation import RowEvaluators
from f1server.schemachange.work.walking import Pace, Tell, Walk, WalkKind, paced
from spanstore.client import STORED_COLUMNS, KeyRange, SpanClient, TableRows

__all__ = ["Verifier", "entries_span", "is_verified", "verified"]

_KINDS = frozenset({"index", "column", "lock", "lock coverage of", "NOT NULL of", "foreign key", "check", FORM})
_OF_INDEXES = frozenset({Kind.MISSING_ENTRY, Kind.ORPHAN_ENTRY, Kind.WRONG_ENTRY, Kind.DUPLICATE})
_SCAN_ROWS = 500
_SLICE_ROWS = 100
"""Rows that are worked on without letting others use the event loop."""
_EXAMPLES = 3
KEYS_FOR_ONE = {WalkKind.SUM_ROWS: 3, WalkKind.SUM_ENTRIES: 8}
"""So many keys that are added up cost about as much as a row that is written, by which the pace goes."""
_Key = tuple[bytes, int, bytes]
"""A key, the timestamp of its version, and its value."""

_PUBLIC, _WRITE_ONLY = ElementState.PUBLIC, ElementState.WRITE_ONLY


def is_verified(task: Task[Element]) -> bool:
    """Tell whether there is something to be verified about an element when the work for it has been done."""
    return task.work in (Work.FILL, Work.VALIDATE, Work.PROPAGATE) and task.element.kind in _KINDS


def entries_span(where: IndexLayout) -> tuple[bytes, bytes]:
    """Return the range that the entries of an index lie in; those of a local index lie between rows."""
    if isinstance(where, MirrorLayout):
        return table_span(where.schema, where.mirror)
    if where.index.local:
        return table_span(where.schema, where.table)
    prefix = index_prefix(where.schema, where.table, where.index, ())
    return prefix, prefix + b"\xff"


def verified(schema: Schema, work: TableWork, *, entries: bool = True) -> Schema:
    """Return a schema in which the elements of ``work`` are public, and nothing else of its table is looked at.

    ``entries`` False: nor are its indexes.
    """
    key = ("verified", work.table.id, tuple(work.tasks), entries)
    return of_schema(schema, key, lambda: _verified(schema, work, entries))


def _verified(schema: Schema, work: TableWork, entries: bool) -> Schema:
    named = {(task.element.kind, task.element.id) for task in work.tasks}
    table = work.table
    filled = {column.id for column in work.columns if column.not_null} | {column.id for column in work.not_null}
    columns = tuple(
        replace(column, state=_PUBLIC, not_null=column.id in filled, not_null_state=_PUBLIC) for column in table.columns
    )
    built = {where.index.id for where in work.indexes if entries}
    # Foreign keys of the table to itself find rows by its unique indexes; no row is held against those.
    indexes = tuple(
        replace(index, state=_PUBLIC if index.id in built else _WRITE_ONLY)
        for index in table.indexes
        if index.id in built or (index.unique and work.foreign_keys and index.state is _PUBLIC)
    )
    only = replace(
        table,
        state=_PUBLIC,
        columns=columns,
        indexes=indexes,
        foreign_keys=tuple(replace(f, state=_PUBLIC) for f in table.foreign_keys if ("foreign key", f.id) in named),
        checks=tuple(replace(c, state=_PUBLIC) for c in table.checks if ("check", c.id) in named),
        locks=tuple(replace(k, state=_PUBLIC if k.id in work.locks else _WRITE_ONLY) for k in table.locks),
    )
    return replace(schema, tables=tuple(only if t.id == table.id else t for t in schema.tables))


class Verifier:
    """Verifies parts of a table or of an index. Any number of them at once, of one event loop."""

    def __init__(
        self,
        client: SpanClient,
        evaluators: Callable[[], RowEvaluators],
        pace: Pace,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """``evaluators`` is asked when there are CHECK constraints."""
        self._client = client
        self._judge = Judge(client, lambda schema: evaluators().checks(schema), in_bulk=True)
        self._pace = pace
        self._sleep = sleep

    async def verify(self, walk: Walk, watch: Tell) -> Sums:
        """Verify what a walk goes over, or add it up if the walk is of that kind.

        Raises INTERNAL with keys for example if something is not as it should be; SNAPSHOT_TOO_OLD, what ``watch``
        raises, and what storage raises.
        """
        schema = verified(walk.schema, walk.work, entries=not walk.kind.sums)
        table = schema.by_id[walk.work.table.id]
        match walk.kind:
            case WalkKind.VERIFY_ROWS:
                (where,) = walk.work.indexes
                shape = _rows_shape(schema, table)
                if isinstance(form := where, MirrorLayout):
                    await self._scan(walk, shape, lambda batch: self._copied(form, batch, walk), watch)
                else:
                    await self._scan(walk, shape, lambda batch: self._rows(schema, table, batch, walk), watch)
            case WalkKind.SUM_ROWS:
                return await self._sum_rows(schema, table, walk, watch)
            case WalkKind.SUM_ENTRIES:
                return await self._sum_entries(walk, watch)
            case _:
                (where,) = walk.work.indexes
                for shape_of in _shapes(where):
                    await self._scan(walk, shape_of, lambda batch: self._entries(where, batch, walk), watch)
        return {}

    async def _scan(
        self,
        walk: Walk,
        shape: TableRows | None,
        look: Callable[[pa.RecordBatch], Awaitable[None]],
        watch: Tell,
    ) -> None:
        scan = self._client.scan(
            [KeyRange(walk.start, walk.end)],
            STORED_COLUMNS,
            timestamp=walk.snapshot,
            table=shape,
            batch_rows=_SCAN_ROWS,
        )
        async with aclosing(aiter(scan)) as batches:
            async for batch in batches:
                async with paced(self._pace, -(-batch.num_rows // KEYS_FOR_ONE.get(walk.kind, 1))):
                    await look(batch)
                await watch(batch.num_rows, batch.nbytes)

    # ------------------------------------------------------------------ sums

    async def _sum_rows(self, schema: Schema, table: Table, walk: Walk, watch: Tell) -> Sums:
        """Add up the entries that rows should have, and verify all else that they should."""
        work = walk.work
        sums = {where.index.id: EntrySum() for where in work.indexes}
        judged = any(task.element.kind not in ("index", "lock coverage of", FORM) for task in work.tasks)

        async def add(batch: pa.RecordBatch) -> None:
            async for keys in self._slices(batch):
                rows = StoredRows(walk.schema, work.table, *zip(*keys, strict=True))
                for where in work.indexes:
                    sums[where.index.id] = sums[where.index.id].plus(_digests_wanted(where, rows))
                self._refuse(walk, _locks_behind(walk, rows.rows) if work.moved else [])

        async def look(batch: pa.RecordBatch) -> None:
            if work.indexes or work.moved:
                await add(batch)
            if judged:
                await self._rows(schema, table, batch, walk)

        await self._scan(walk, _rows_shape(schema, table), look, watch)
        return sums

    async def _sum_entries(self, walk: Walk, watch: Tell) -> Sums:
        """Add up the entries that there are."""
        (where,) = walk.work.indexes
        total = EntrySum()

        async def look(batch: pa.RecordBatch) -> None:
            nonlocal total
            async for keys in self._slices(batch):
                total = total.plus(digest(key, _told(where, value, ts)) for key, ts, value in keys)

        for shape in _shapes(where):
            await self._scan(walk, shape, look, watch)
        return {where.index.id: total}

    # ------------------------------------------------------------------ key by key

    async def _rows(self, schema: Schema, table: Table, found: pa.RecordBatch, walk: Walk) -> None:
        batch = RowBatch(schema, schema.root(table), [], parents=False)
        async for keys in self._slices(found):
            for key in keys:
                batch.add(StoredKey(*key))
        self._refuse(walk, await self._judge.verdict(schema, batch, walk.snapshot))

    async def _entries(self, where: IndexLayout, found: pa.RecordBatch, walk: Walk) -> None:
        batch = EntryBatch(walk.schema)
        async for keys in self._slices(found):
            for key in keys:
                batch.add_in(where, StoredKey(*key))
        self._refuse(walk, await self._judge.entries(batch, walk.snapshot))

    async def _copied(self, form: MirrorLayout, found: pa.RecordBatch, walk: Walk) -> None:
        """See that rows have their copies; what those say is seen from the other side."""
        wanted: dict[bytes, tuple[Value, ...]] = {}
        async for keys in self._slices(found):
            for key, ts, value in keys:
                row = stored_row(walk.schema, form.table, key, value, ts)
                if row is not None:
                    values = row_of(form.table, row.primary, row.cells)
                    wanted.update(dict.fromkeys(entry_keys(form, values, row.primary), row.primary))
        there = await self._judge.versions(wanted, walk.snapshot)
        text = "there is no row of it under the primary key that the table is to have"
        self._refuse(
            walk,
            [
                Finding(
                    Kind.MISSING_ENTRY, form.table.name, form.index.name, Example(describe_key(form.table, p), text)
                )
                for key, p in wanted.items()
                if (version := there[key]) is None or version.value is None
            ],
        )

    async def _slices(self, batch: pa.RecordBatch) -> AsyncGenerator[list[_Key], None]:
        """Yield the keys of a batch, a few at a time, letting others use the event loop in between."""
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            await self._sleep(0)
            columns = (column.to_pylist() for column in batch.slice(start, _SLICE_ROWS).columns)
            yield list(zip(*columns, strict=True))

    def _refuse(self, walk: Walk, findings: Sequence[Finding]) -> None:
        wrong = [finding for finding in findings if _concerns(walk.work, finding)]
        if not wrong:
            return
        first = wrong[0]
        shown = [f.example for f in wrong if (f.kind, f.element) == (first.kind, first.element)]
        rows = "; ".join(f"{example.key}: {example.message}" for example in shown[:_EXAMPLES])
        more = f" and {len(wrong) - min(len(shown), _EXAMPLES)} more" if len(wrong) > min(len(shown), _EXAMPLES) else ""
        what = f"{first.table} {first.element}".rstrip()
        raise F1Error(
            Code.INTERNAL,
            f"the schema change did not do its work on {what} rightly, so it was not made public: {rows}{more}; "
            "nothing was changed. Try again, and report this with the logs of the servers",
            details={"table": first.table, "element": first.element, "key": first.example.key},
        )


def _concerns(work: TableWork, finding: Finding) -> bool:
    """Tell whether a finding is about what a change has done: other damage is older."""
    if finding.table != work.table.name:
        return False
    indexes = {where.index.name for where in work.indexes}
    match finding.kind:
        case kind if kind in _OF_INDEXES:
            return finding.element in indexes
        case Kind.LOCK:
            return finding.element != ""
        case Kind.UNREADABLE:
            return finding.element in indexes or finding.element in {column.name for column in work.columns}
        case _:
            return finding.kind in (Kind.NULL, Kind.DANGLING, Kind.CHECK)


def _shapes(where: IndexLayout) -> list[TableRows | None]:
    """Return what tells the entries of an index from other keys of the range that they lie in; None: nothing must."""
    if isinstance(where, MirrorLayout):
        return [_rows_shape(where.schema, where.mirror)]
    if not where.index.local:
        return [None]
    position = 1 + where.shared
    values = position + 1 + len(where.own_parts)
    widths = {values + len(where.table.key_column_ids) - where.shared} | ({values} if where.index.unique else set())
    return [TableRows(width, position, where.code) for width in sorted(widths)]


def _rows_shape(schema: Schema, table: Table) -> TableRows:
    """Return what tells the rows of a table from other keys of its hierarchy."""
    where = layout(schema, table)
    return TableRows(where.width, where.id_position, table.id, where.ids_above)


def _digests_wanted(where: IndexLayout, rows: StoredRows) -> Iterator[int]:
    """Yield the digests of the entries that rows should have."""
    if not isinstance(where, MirrorLayout):
        yield from (digest(key, value) for _, key, value, _ in rows.entries(where))
        return
    for row in rows.rows:
        values = row_of(where.table, row.primary, row.cells)
        told = where.value(values, row.primary) + repr(where.lock_times(row.cells, row.ts)).encode()
        for entry in entry_keys(where, values, row.primary):
            yield digest(entry, told)


def _told(where: IndexLayout, value: bytes, ts: int) -> bytes:
    """Return what an entry says that follows from its row."""
    if isinstance(where, MirrorLayout):
        return where.told(value) + repr(where.lock_times(decode_row(value), ts, of_mirror=True)).encode()
    return where.told(value)


def _locks_behind(walk: Walk, rows: Sequence[Stored]) -> list[Finding]:
    """Return the rows in which a lock that takes a column over says less than those that cover it now.

    Of rows that are older than dual coverage alone: a writer since may have bumped a lock for another of its columns.
    """
    work = walk.work
    names = {lock.id: lock.name for lock in work.table.locks} | {DEFAULT_LOCK: "the default lock"}
    text = "the lock that takes over does not say when its columns last changed"
    return [
        Finding(Kind.LOCK, work.table.name, names[lock], Example(describe_key(work.table, row.primary), text))
        for row in rows
        if row.ts < walk.schema.commit_ts
        for lock in raised(work.table, row.cells, row.ts, work.moved, work.locks)
    ]
