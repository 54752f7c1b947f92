"""The reorganiser: what a schema change does with rows (schema-change paper, section 4.3).

It fills what old rows lack, sees that they honour new constraints, and removes what no server uses any more. It runs
when every server has the version of the schema that is current, so every row that is written meanwhile is right
already. All of it may be done again: what is there is not written a second time.

Each table is walked over once for everything that is filled and validated, by the rows of a snapshot that is taken now,
and once more for what is removed. Rows are changed in small transactions that read them again under locks, so that no
lock is held for longer than a batch takes. A row that is newer than the snapshot has its index entries already (the
Thomas write rule of section 4.3: what is newer stays); a column is filled where it is still missing, whatever the age
of the row, since updates of other columns do not write it. No lock column is bumped by any of this, and no change
history is written: for users, nothing has changed.

Each batch commits under the lease of its server on the schema, as users' commits do. So an owner of a change that stood
still while another one finished it, and while the next change dropped what this one made, leaves nothing behind.

Between two batches the reorganiser rests for as long as the last one took, so that users find at most half of a server
busy with it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell, decode_row, patch_row_with_placeholders
from f1common.errors import Code, F1Error
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.schema import Column, ForeignKey, Index, Schema, Table
from f1server.rows.coerce import coerce_column
from f1server.rows.constraints import reference_of
from f1server.rows.defaults import literal_value
from f1server.rows.images import Image, describe_key
from f1server.rows.keys import IndexLayout, index_layout, row_key, split_row_key, table_span
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.rows.locks import locks_carried_over, raised
from f1server.rows.rowcodec import row_of
from f1server.rows.values import Row, Value
from f1server.schemachange.diff import Element
from f1server.schemachange.edits import Part
from f1server.schemachange.plan import Task
from f1server.schemachange.states import Work
from spanstore.client import KeyRange, SpanClient, Transaction, Write

__all__ = ["Reorganiser", "RowEvaluators", "Watch"]

_CHUNK = 200
_PAGE = 2_000
_LANES = 4
_REST = 1.0
"""How long to rest after a batch, as a part of the time that it took."""


class RowEvaluators(Protocol):
    """SQL over rows that are at hand (:class:`f1server.exec.rowwise.RowEvaluator`)."""

    def defaults(self, schema: Schema) -> Callable[[Sequence[str]], Sequence[Value]]:
        """Return an evaluator of expressions over no row."""

    def checks(self, schema: Schema) -> Callable[[Table, list[Row]], Sequence[tuple[int, str]]]:
        """Return an evaluator of the enforced checks of a table: (position of the row, name) where one is false."""


Watch = Callable[[int], Awaitable[None]]
"""Called between batches with the number of rows of the last one; raises to stop the work."""


@dataclass(slots=True)
class _TableWork:
    """What is done with the rows of one table in one walk."""

    table: Table
    columns: list[Column] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)
    indexes: list[IndexLayout] = field(default_factory=list)
    not_null: list[Column] = field(default_factory=list)
    foreign_keys: list[ForeignKey] = field(default_factory=list)
    checks: bool = False
    gone: list[int] = field(default_factory=list)
    """Cells of columns that are removed."""
    gone_locks: list[int] = field(default_factory=list)
    moved: list[tuple[int, int]] = field(default_factory=list)
    """Columns and the locks that are to cover them alone."""

    @property
    def touched(self) -> list[IndexLayout]:
        """The indexes whose entries change when a column is filled."""
        filled = {column.id for column in self.columns}
        return [where for where in self.indexes if not filled.isdisjoint(where.columns)]


@dataclass(slots=True)
class _Stored:
    """A row as it is stored."""

    key: bytes
    primary: tuple[Value, ...]
    value: bytes
    ts: int
    cells: Mapping[int, Cell]


class Reorganiser:
    """Does the work on data of schema changes, over the storage tier."""

    def __init__(
        self,
        client: SpanClient,
        leases: SchemaLeases,
        evaluators: Callable[[], RowEvaluators],
        *,
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """``now_s`` measures time, ``evaluators`` is asked when rows are at hand."""
        self._client = client
        self._leases = leases
        self._evaluators = evaluators
        self._now_s = now_s
        self._sleep = sleep

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
            for work in _by_table(schema, chosen):
                await self._walk_table(schema, work, watch)
            if removing:
                await self._purge(schema, chosen, watch)

    # ------------------------------------------------------------------ rows of one table

    async def _walk_table(self, schema: Schema, work: _TableWork, watch: Watch) -> None:
        low, high = table_span(schema, work.table)
        snapshot = await self._now_of(low)
        pieces = (await self._client.range_map()).pieces(low, high)
        lanes = asyncio.Semaphore(_LANES)
        walks = [
            asyncio.create_task(self._walk_piece(schema, work, (start, end), snapshot, watch, lanes))
            for start, end, _ in pieces
        ]
        try:
            await asyncio.gather(*walks)
        finally:
            for walk in walks:
                walk.cancel()
            await asyncio.gather(*walks, return_exceptions=True)

    async def _walk_piece(
        self,
        schema: Schema,
        work: _TableWork,
        span: tuple[bytes, bytes],
        snapshot: int,
        watch: Watch,
        lanes: asyncio.Semaphore,
    ) -> None:
        async with lanes:
            chunk: list[_Stored] = []
            async for key, value, ts in self._walk(span, snapshot):
                split = split_row_key(schema, key)
                if split is None or split[0].id != work.table.id:
                    continue
                chunk.append(_Stored(key, split[1], value, ts, decode_row(value)))
                if len(chunk) == _CHUNK:
                    await self._batch(schema, work, chunk, snapshot, watch)
                    chunk = []
            if chunk:
                await self._batch(schema, work, chunk, snapshot, watch)

    async def _batch(self, schema: Schema, work: _TableWork, rows: list[_Stored], snapshot: int, watch: Watch) -> None:
        began_s = self._now_s()
        if work.columns or work.locks or work.moved or work.indexes or work.gone or work.gone_locks:
            fills = self._fills(schema, work, rows)

            async def change(tx: Transaction) -> None:
                await _change_rows(tx, schema, work, fills, snapshot)

            await self._under_lease(schema, lambda deadline: self._client.run(change, deadline=deadline))
        await self._validate(schema, work, rows, snapshot)
        await watch(len(rows))
        await self._sleep(_REST * (self._now_s() - began_s))

    async def _under_lease(self, schema: Schema, commit: Callable[[Callable[[], int]], Awaitable[object]]) -> None:
        """Commit, not later than this server may use ``schema``. Raises ABORTED if it uses another one."""
        async with self._leases.use(schema.database) as leased:
            if leased.schema.version != schema.version:
                raise F1Error(Code.ABORTED, f"the schema has version {leased.schema.version} by now", retryable=True)
            await commit(leased.deadline)

    def _fills(self, schema: Schema, work: _TableWork, rows: Iterable[_Stored]) -> dict[bytes, dict[int, Value]]:
        """Return, for each row, what the filled columns are to have; expressions are evaluated for each row."""
        wanted: dict[bytes, dict[int, Value]] = {row.key: {} for row in rows}
        for column in work.columns:
            literal = literal_value(column.default_sql)
            if literal is not None:
                values: Sequence[Value] = [literal[0]] * len(wanted)
            else:
                values = self._evaluators().defaults(schema)([column.default_sql] * len(wanted))
            for fills, value in zip(wanted.values(), values, strict=True):
                fills[column.id] = coerce_column(schema, work.table, column, value)
        return wanted

    async def _validate(self, schema: Schema, work: _TableWork, stored: list[_Stored], snapshot: int) -> None:
        if not (work.not_null or work.checks or work.foreign_keys):
            return
        table = work.table
        rows = [row_of(table, item.primary, item.cells) for item in stored]
        for column in work.not_null:
            for item, row in zip(stored, rows, strict=True):
                if row[column.id] is None:
                    what = f"column {table.name}.{column.name} cannot be NOT NULL: it is NULL in the row"
                    raise _broken(what, table, item.primary)
        if work.checks:
            for position, name in self._evaluators().checks(schema)(table, rows):
                raise _broken(f"check {name} fails for the row of {table.name}", table, stored[position].primary)
        for foreign in work.foreign_keys:
            await self._validate_references(schema, table, foreign, list(zip(stored, rows, strict=True)), snapshot)

    async def _validate_references(
        self, schema: Schema, table: Table, foreign: ForeignKey, rows: list[tuple[_Stored, Row]], snapshot: int
    ) -> None:
        wanted: dict[bytes, tuple[Value, ...]] = {}
        for item, row in rows:
            reference = reference_of(schema, Image(table, item.primary, item.key, None, None, None, row), foreign)
            if reference is not None:
                wanted.setdefault(reference.key, item.primary)
        keys = sorted(wanted)
        found = (await self._client.read(keys, timestamp=snapshot)).versions if keys else []
        for key, version in zip(keys, found, strict=True):
            if version is None or version.value is None:
                target = schema.by_id[foreign.referenced_table_id]
                what = f"foreign key {foreign.name}: {target.name} has no row for the row of {table.name}"
                raise _broken(what, table, wanted[key])

    # ------------------------------------------------------------------ removals

    async def purge(self, before: Schema, tables: Sequence[Table]) -> None:
        """Delete all rows, entries and history of tables that no server uses any more: a database was dropped."""
        elements = [Task(Element("table", table.id, name=table.name), Work.REMOVE) for table in tables]

        async def go_on(rows: int) -> None:
            """Nobody stops it."""

        await self._purge(before, elements, go_on)

    async def _purge(self, schema: Schema, tasks: Sequence[Task[Element]], watch: Watch) -> None:
        """Delete rows and entries of elements that nobody writes to; a dropped root takes its history along."""
        tables = [schema.by_id[t.element.table_id] for t in tasks if t.element.kind == "table"]
        indexes = [
            (schema.by_id[t.element.table_id], _find(schema, t.element, Part.INDEX))
            for t in tasks
            if t.element.kind == "index"
        ]
        gone = {table.id for table in tables}
        codes = {LOCAL_INDEX_BASE + index.id for _, index in indexes}
        codes |= {LOCAL_INDEX_BASE + index.id for table in tables for index in table.indexes}
        whole = [table_span(schema, table) for table in tables if not table.parent_id]
        for code in sorted(codes):
            prefix = tuples.encode((code,))
            whole.append((prefix, tuples.successor(prefix)))
        for span in whole:
            await self._delete(span, lambda _: True, watch)
        roots = {schema.root(table).id: schema.root(table) for table in tables}
        roots |= {schema.root(table).id: schema.root(table) for table, index in indexes if index.local}
        for root_id in sorted(roots.keys() - gone):
            span = table_span(schema, roots[root_id])
            await self._delete(span, lambda key: _is_of(schema, key, gone, codes), watch)

    async def _delete(self, span: tuple[bytes, bytes], doomed: Callable[[bytes], bool], watch: Watch) -> None:
        """Delete rows whose ids nobody writes any more, and nobody ever will: that needs no lease."""
        timestamp = await self._now_of(span[0])
        chunk: list[Write] = []
        async for key, _, _ in self._walk(span, timestamp):
            if doomed(key):
                chunk.append(Write(key, None))
            if len(chunk) == _CHUNK:
                await self._client.commit(chunk)
                await watch(len(chunk))
                chunk = []
        if chunk:
            await self._client.commit(chunk)
            await watch(len(chunk))

    # ------------------------------------------------------------------ reading

    async def _now_of(self, key: bytes) -> int:
        """Return a timestamp at which every acknowledged commit can be seen."""
        return (await self._client.read([key])).timestamp

    async def _walk(self, span: tuple[bytes, bytes], timestamp: int) -> AsyncIterator[tuple[bytes, bytes, int]]:
        """Yield key, value and timestamp of the live rows of a range as of ``timestamp``, read a page at a time."""
        start, end = span
        while True:
            result = await self._client.read(ranges=[KeyRange(start, end, _PAGE)], timestamp=timestamp)
            (rows,) = result.ranges
            for row in rows:
                yield row.key, row.value, row.ts
            if len(rows) < _PAGE:
                return
            start = rows[-1].key + b"\x01"


def _by_table(schema: Schema, tasks: Sequence[Task[Element]]) -> list[_TableWork]:
    """Return what is to be done with rows, by table: all of it in one walk."""
    found: dict[int, _TableWork] = {}
    for task in tasks:
        element = task.element
        table = schema.by_id.get(element.table_id)
        if table is None or element.kind == "table" or (element.kind == "index" and task.work is Work.REMOVE):
            continue
        work = found.setdefault(table.id, _TableWork(table))
        match element.kind, task.work:
            case "column", Work.FILL:
                column = table.by_id[element.id]
                if column.default_sql:
                    work.columns.append(column)
            case "column", Work.REMOVE:
                work.gone.append(element.id)
            case "lock", Work.REMOVE:
                work.gone_locks.append(element.id)
            case "lock", _:
                work.locks.append(element.id)
            case "lock coverage of", _:
                work.moved.append((element.id, element.lock))
            case "index", _:
                work.indexes.append(index_layout(schema, table, _find(schema, element, Part.INDEX)))
            case "NOT NULL of", _:
                work.not_null.append(table.by_id[element.id])
            case "foreign key", _:
                work.foreign_keys.append(_find(schema, element, Part.FOREIGN_KEY))
            case _:
                work.checks = True
    return [found[table_id] for table_id in sorted(found)]


def _find(schema: Schema, element: Element, part: Part) -> Any:
    table = schema.by_id[element.table_id]
    return next(e for e in getattr(table, part) if e.id == element.id)


async def _change_rows(
    tx: Transaction, schema: Schema, work: _TableWork, fills: Mapping[bytes, Mapping[int, Value]], snapshot: int
) -> None:
    """Bring rows, and their entries in the indexes that are built, to where the schema wants them."""
    keys = list(fills)
    rewrites = bool(work.columns or work.locks or work.moved or work.gone or work.gone_locks)
    result = await tx.read(keys, exclusive=rewrites)
    entries = _Entries(schema, work.table)
    for key, version in zip(keys, result.versions, strict=True):
        split = split_row_key(schema, key)
        if split is None or version is None or version.value is None:
            continue
        stored = _Stored(key, split[1], version.value, version.ts, decode_row(version.value))
        missing = {i: v for i, v in fills[key].items() if i not in stored.cells and v is not None}
        before = row_of(work.table, stored.primary, stored.cells)
        if rewrites:
            _rewrite(tx, work, stored, missing)
        if missing:
            for where in work.touched:
                entries.leave(where, before, {**before, **missing}, stored.primary)
        if missing or version.ts <= snapshot:
            for where in work.indexes:
                entries.put(where, {**before, **missing}, stored.primary)
    await entries.write(tx)


def _rewrite(tx: Transaction, work: _TableWork, stored: _Stored, missing: Mapping[int, Value]) -> None:
    """Write a row anew if cells are missing in it or to be removed from it. No lock moves by that."""
    cells = stored.cells
    dropped = {i for i in work.gone if i in cells}
    later = raised(work.table, cells, stored.ts, work.moved, work.locks)
    folded = [i for i in work.gone_locks if i in cells]
    if not (missing or dropped or later or folded):
        return
    changes, leaving = locks_carried_over(work.table, cells, stored.ts, later)
    kept: dict[int, Cell] = {i: value for i, value in missing.items() if value is not None}
    value, offsets = patch_row_with_placeholders(stored.value, {**kept, **changes}, dropped | leaving)
    tx.write(stored.key, value, value_offsets=offsets)


class _Entries:
    """The entries that a batch of rows puts and leaves, in indexes that are not public yet."""

    def __init__(self, schema: Schema, table: Table) -> None:
        self._schema = schema
        self._table = table
        self._puts: dict[bytes, tuple[IndexLayout, bytes, bool, tuple[Value, ...]]] = {}
        self._left: dict[bytes, tuple[IndexLayout, bool, tuple[Value, ...]]] = {}

    def leave(self, where: IndexLayout, before: Row, after: Row, primary: tuple[Value, ...]) -> None:
        """A row's values have changed: what it had and has no more goes."""
        kept = where.keys(after, primary)
        for key, contended in where.keys(before, primary).items():
            if key not in kept:
                self._left[key] = (where, contended, primary)

    def put(self, where: IndexLayout, row: Row, primary: tuple[Value, ...]) -> None:
        """Take in the entries of a row. Raises ALREADY_EXISTS if another row of the batch has the same."""
        for key, contended in where.keys(row, primary).items():
            other = self._puts.get(key)
            if other is not None and other[3] != primary:
                raise _duplicate(self._table, where.index, primary, other[3])
            self._puts[key] = (where, where.value(row, primary), contended, primary)

    async def write(self, tx: Transaction) -> None:
        """Write all, once no other row is seen to have an entry that is wanted. Raises ALREADY_EXISTS."""
        contended = {key for key, entry in self._puts.items() if entry[2]}
        contended |= {key for key, entry in self._left.items() if entry[1]}
        owners: dict[bytes, bytes] = {}
        if contended:
            keys = sorted(contended)
            held = await tx.read(keys, exclusive=True)
            for key, version in zip(keys, held.versions, strict=True):
                if version is not None and version.value is not None:
                    where = self._puts[key][0] if key in self._puts else self._left[key][0]
                    owner = where.split(key, version.value)[1]
                    owners[key] = row_key(self._schema, self._table, owner)
        for key, (where, value, _, primary) in sorted(self._puts.items()):
            if owners.get(key, self._row(primary)) != self._row(primary):
                raise _duplicate(self._table, where.index, primary, where.split(key, value)[1])
            tx.write(key, value)
        for key, (_, _, primary) in self._left.items():
            if key not in self._puts and owners.get(key, self._row(primary)) == self._row(primary):
                tx.write(key, None)

    def _row(self, primary: tuple[Value, ...]) -> bytes:
        return row_key(self._schema, self._table, primary)


def _broken(what: str, table: Table, primary: tuple[Value, ...]) -> F1Error:
    key = describe_key(table, primary)
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"{what} with {key}; nothing was changed. Mend such rows, then try again",
        details={"table": table.name, "key": key},
    )


def _duplicate(table: Table, index: Index, first: Sequence[Value], second: Sequence[Value]) -> F1Error:
    return F1Error(
        Code.ALREADY_EXISTS,
        f"index {index.name} cannot be unique: the rows of {table.name} with keys {tuple(second)} and {tuple(first)} "
        "have the same values in it",
        details={"index": index.name},
    )


def _is_of(schema: Schema, key: bytes, tables: set[int], codes: set[int]) -> bool:
    """Tell whether a storage key within a hierarchy belongs to one of the tables or to one of the local indexes."""
    split = split_row_key(schema, key)
    if split is not None:
        return split[0].id in tables
    return any(type(element) is int and element in codes for element in tuples.decode(key))
