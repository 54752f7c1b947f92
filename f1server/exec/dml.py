"""Runs statements that write: their query gives keys and values, which become logical writes.

Nothing is written here. Whoever runs the transaction keeps the writes until it commits, and fills in defaults.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from f1common.aside import aside
from f1common.encoding import tuple as tuples
from f1common.encoding.values import numeric_from_units, numeric_units
from f1common.errors import Code, F1Error, check
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Column, Index, Schema, Table
from f1server.exec.arrow_types import arrow_type, sql_type
from f1server.exec.engine import Engine, QueryResult
from f1server.exec.source import FieldWanted, KeySpan, Source, TableScan
from f1server.plan.constants import Constant, assigned
from f1server.plan.dml import BoundDml, Cell, Default, PreparedDml
from f1server.plan.keyed import NotKeyed
from f1server.rows.arrow import from_arrow, to_arrow
from f1server.rows.coerce import coerce_column
from f1server.rows.values import Row, Value
from f1server.rows.writes import LogicalWrite, WriteKind

Fill = Callable[[Sequence[LogicalWrite]], Sequence[LogicalWrite]]
"""Fills in defaults and hidden keys; doing it twice changes nothing."""

MAX_ROWS = 1_000_000
"""A statement that writes more rows than this is refused: a transaction is held in memory."""


@dataclass(slots=True)
class DmlResult:
    """What a statement writes, in order, and its result if it has RETURNING."""

    writes: list[LogicalWrite]
    rows_affected: int
    returning: QueryResult | None = None


async def run_dml(
    engine: Engine, bound: BoundDml, source: Source, fill: Fill, *, with_locks: bool = False
) -> DmlResult:
    """Run a statement; ``with_locks``: every row that it looks at joins the read set of an optimistic transaction.

    Raises F1Error INVALID_ARGUMENT, OUT_OF_RANGE for values that do not fit their columns.
    """
    prepared = bound.prepared
    queries = [q for q in (bound.query, bound.update) if q is not None]
    if with_locks or any(scan.scan.with_locks for query in queries for scan in query.scans):
        source = _WithLocks(source)
    match prepared.tag:
        case "INSERT" | "UPSERT":
            writes, after = await _Insert(engine, bound, source, fill).run()
        case "UPDATE":
            writes, after = await _update(engine, bound, source)
        case _:
            writes, after = await _delete(engine, bound, source)
    result = DmlResult(writes, len(writes))
    if bound.returning is not None:
        given = GivenRows(prepared.schema, [after])
        result.returning = await engine.run_query(replace(bound.returning, picks=None, direct=None), given)
    return result


class _WithLocks:
    """A source that is asked for the locks of all rows."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def scan(self, scans: Sequence[TableScan]) -> list[AsyncIterator[Any]]:
        return await self._source.scan([replace(scan, with_locks=True) for scan in scans])


class GivenRows:
    """A source whose rows are at hand: one list of rows for each scan, in order."""

    def __init__(self, schema: Schema, rows: Sequence[Sequence[Mapping[int, Value]]]) -> None:
        self._schema = schema
        self._rows = rows

    async def scan(self, scans: Sequence[TableScan]) -> list[AsyncIterator[Any]]:
        """See :class:`Source`."""
        check(len(scans) <= len(self._rows), "rows are given for every scan")
        return [self._batches(scan, rows) for scan, rows in zip(scans, self._rows, strict=False)]

    async def _batches(self, scan: TableScan, rows: Sequence[Mapping[int, Value]]) -> AsyncIterator[Any]:
        arrays = [self._array(scan.table, wanted, rows) for wanted in scan.columns]
        yield pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])

    def _array(self, table: Table, wanted: FieldWanted, rows: Sequence[Mapping[int, Value]]) -> Any:
        column = table.by_id[wanted.column_id]
        values = [row.get(wanted.column_id) for row in rows]
        if not wanted.path:
            return to_arrow(column.type, values)
        projection = registry_of(self._schema).projection(column.type.proto, [".".join(wanted.path)])
        found = [projection.extract(v)[0] if isinstance(v, bytes) else None for v in values]
        return pa.array(found, arrow_type(sql_type(self._schema, table, wanted)))


async def _columns_of(engine: Engine, bound: BoundDml, source: Source) -> tuple[list[list[Value]], int]:
    """Run the query of a statement and return its columns as values, and the number of rows."""
    check(bound.query is not None, "the statement has a query")
    query = bound.query
    if query is None:
        return [], 0
    result = await engine.run_query(replace(query, locking=bound.prepared.tag in ("UPDATE", "DELETE")), source)
    table = await result.table()
    if table.num_rows > MAX_ROWS:
        raise F1Error(
            Code.FAILED_PRECONDITION,
            f"the statement writes {table.num_rows} rows; one transaction takes {MAX_ROWS}: write them in parts",
        )

    def columns() -> list[list[Value]]:
        return [[_plain_decimal(v) for v in from_arrow(column)] for column in table.columns]

    return await aside(table.num_rows, columns), table.num_rows


def _plain_decimal(value: Value) -> Value:
    """Drop the zeros that DECIMAL(38,9) adds."""
    if isinstance(value, Decimal):
        try:
            return numeric_from_units(numeric_units(value))
        except F1Error:
            return value
    return value


# ---------------------------------------------------------------------- UPDATE, DELETE


async def _update(engine: Engine, bound: BoundDml, source: Source) -> tuple[list[LogicalWrite], list[Row]]:
    columns, count = await _columns_of(engine, bound, source)
    defaults = await _defaults(engine, bound.prepared, bound.prepared.defaulted, bound.now_us)
    return await aside(count, lambda: _updates(bound, columns, count, defaults))


def _updates(
    bound: BoundDml, columns: Sequence[Sequence[Value]], count: int, defaults: Row
) -> tuple[list[LogicalWrite], list[Row]]:
    prepared = bound.prepared
    table, schema = prepared.table, prepared.schema
    width = len(table.key_column_ids)
    end = width + len(prepared.columns)
    writes: list[LogicalWrite] = []
    after: list[Row] = []
    seen: set[bytes] = set()
    for i in range(count):
        key = {c: columns[k][i] for k, c in enumerate(table.key_column_ids)}
        encoded = tuples.encode(tuple(key.values()))
        if encoded in seen:
            continue  # another match of FROM: the first one counts
        seen.add(encoded)
        values: Row = {
            column.id: coerce_column(schema, table, column, columns[width + k][i])
            for k, column in enumerate(prepared.columns)
        }
        values.update(defaults)
        writes.append(LogicalWrite(WriteKind.UPDATE, table.name, key, values, schema_version=schema.version))
        if bound.returning is not None:
            old = {c.id: columns[end + k][i] for k, c in enumerate(table.visible)}
            after.append({**key, **old, **values})
    return writes, after


async def _delete(engine: Engine, bound: BoundDml, source: Source) -> tuple[list[LogicalWrite], list[Row]]:
    columns, count = await _columns_of(engine, bound, source)
    return await aside(count, lambda: _deletes(bound, columns, count))


def _deletes(bound: BoundDml, columns: Sequence[Sequence[Value]], count: int) -> tuple[list[LogicalWrite], list[Row]]:
    table, schema = bound.prepared.table, bound.prepared.schema
    width = len(table.key_column_ids)
    writes: list[LogicalWrite] = []
    before: list[Row] = []
    seen: set[bytes] = set()
    for i in range(count):
        key = {c: columns[k][i] for k, c in enumerate(table.key_column_ids)}
        encoded = tuples.encode(tuple(key.values()))
        if encoded in seen:
            continue
        seen.add(encoded)
        writes.append(LogicalWrite(WriteKind.DELETE, table.name, key, schema_version=schema.version))
        if bound.returning is not None:
            before.append({**key, **{c.id: columns[width + k][i] for k, c in enumerate(table.visible)}})
    return writes, before


async def _defaults(engine: Engine, prepared: PreparedDml, columns: Sequence[Column], now_us: int) -> Row:
    """Return the values of SET column = DEFAULT."""
    from f1server.plan.prepare import prepare
    from f1server.plan.statements import QueryStatement, parse

    found: Row = {}
    for column in columns:
        if not column.default_sql:
            found[column.id] = None
            continue
        (statement,) = parse(f"SELECT ({column.default_sql})")
        check(isinstance(statement, QueryStatement), "a default is an expression")
        if isinstance(statement, QueryStatement):
            query = prepare(prepared.schema, statement.sql, statement.ast.copy()).bind((), now_us)
            table = await (await engine.run_query(query, GivenRows(prepared.schema, []))).table()
            value = _plain_decimal(from_arrow(table.column(0))[0])
            found[column.id] = coerce_column(prepared.schema, prepared.table, column, value)
    return found


class KeyedRows(Protocol):
    """What gives rows by key as they are, instead of as Arrow batches."""

    async def rows(self, scan: TableScan) -> list[Row]:
        """Return the rows of a scan of whole keys. They join the read set as those of other scans do."""
        ...


async def run_keyed(
    prepared: PreparedDml, params: Sequence[object], now_us: int, source: KeyedRows
) -> DmlResult | None:
    """Run UPDATE or DELETE of the row at a key without the evaluator; None: it has to go the general way.

    Raises F1Error INVALID_ARGUMENT, OUT_OF_RANGE for values that do not fit their columns.
    """
    keyed = prepared.keyed
    scan = keyed.scan(params, now_us) if keyed is not None else None
    if keyed is None or scan is None:
        return None
    schema, table = prepared.schema, prepared.table
    writes: list[LogicalWrite] = []
    for row in await source.rows(scan):
        key = {c: row[c] for c in table.key_column_ids}
        if prepared.tag == "DELETE":
            writes.append(LogicalWrite(WriteKind.DELETE, table.name, key, schema_version=schema.version))
            continue
        try:
            found = keyed.values(row, params, now_us)
        except NotKeyed:
            return None
        values = {i: coerce_column(schema, table, table.by_id[i], value) for i, value in found.items()}
        writes.append(LogicalWrite(WriteKind.UPDATE, table.name, key, values, schema_version=schema.version))
    return DmlResult(writes, len(writes))


def said_write(prepared: PreparedDml, params: Sequence[object], now_us: int) -> LogicalWrite | None:
    """Return what a statement itself says of the only row that it writes: its key; of a new one all but defaults.

    None if it says no such thing. Without looking at any row: it says the same whenever it is asked. Raises as
    :func:`run_keyed`.
    """
    if prepared.returning is not None or prepared.conflict is not None:
        return None
    schema, table = prepared.schema, prepared.table
    if prepared.keyed is not None:
        scan = prepared.keyed.scan(params, now_us)
        if scan is None or len(scan.spans) != 1:
            return None
        kind = WriteKind.DELETE if prepared.tag == "DELETE" else WriteKind.UPDATE
        key = dict(zip(table.key_column_ids, scan.spans[0].prefix, strict=True))
        return LogicalWrite(kind, table.name, key, schema_version=schema.version)
    if prepared.rows is None or len(prepared.rows) != 1:
        return None
    row = {
        column.id: coerce_column(schema, table, column, assigned(cell, params, now_us))
        for column, cell in zip(prepared.columns, prepared.rows[0], strict=True)
        if not isinstance(cell, Default)
    }
    key = {i: row.pop(i) for i in table.key_column_ids if i in row}
    if len(key) < len(table.key_column_ids):
        return None
    return LogicalWrite(WriteKind.INSERT, table.name, key, row, schema_version=schema.version)


# ---------------------------------------------------------------------- INSERT


class _Insert:
    """One INSERT: rows, then what is there already if ON CONFLICT asks for it."""

    def __init__(self, engine: Engine, bound: BoundDml, source: Source, fill: Fill) -> None:
        self._engine = engine
        self._bound = bound
        self._prepared = bound.prepared
        self._schema = bound.prepared.schema
        self._table = bound.prepared.table
        self._source = source
        self._fill = fill

    async def run(self) -> tuple[list[LogicalWrite], list[Row]]:
        """Return the writes, and the rows as they are after them."""
        rows = await self._rows()
        writes = await aside(len(rows), lambda: [self._write(row) for row in rows])
        needs_rows = self._bound.returning is not None or self._prepared.conflict is not None
        if not needs_rows:
            return writes, []
        plain = writes
        writes = await aside(len(plain), lambda: list(self._fill(plain)))
        images: list[Row] = [{**w.key, **w.columns} for w in writes]
        if self._prepared.tag == "UPSERT":
            return writes, await self._upserted(writes)
        if self._prepared.conflict is None:
            return writes, images
        return await self._resolved(writes, images)

    def _write(self, row: Row) -> LogicalWrite:
        keys = self._table.key_column_ids
        kind = WriteKind.UPSERT if self._prepared.tag == "UPSERT" else WriteKind.INSERT
        key = {i: row[i] for i in keys if i in row}
        columns = {i: v for i, v in row.items() if i not in keys}
        return LogicalWrite(kind, self._table.name, key, columns, schema_version=self._schema.version)

    async def _rows(self) -> list[Row]:
        prepared = self._prepared
        if prepared.rows is not None:
            given = prepared.rows
            return await aside(len(given), lambda: [self._constant_row(row) for row in given])
        columns, count = await _columns_of(self._engine, self._bound, self._source)
        if len(columns) != len(prepared.columns):
            raise F1Error(
                Code.INVALID_ARGUMENT, f"INSERT has {len(prepared.columns)} columns but the query gives {len(columns)}"
            )

        def rows() -> list[Row]:
            return [
                {
                    column.id: coerce_column(self._schema, self._table, column, values[i])
                    for column, values in zip(prepared.columns, columns, strict=True)
                }
                for i in range(count)
            ]

        return await aside(count, rows)

    def _constant_row(self, cells: Sequence[Cell]) -> Row:
        row: Row = {}
        for column, cell in zip(self._prepared.columns, cells, strict=True):
            if not isinstance(cell, Default):
                row[column.id] = coerce_column(self._schema, self._table, column, self._assigned(cell))
        return row

    def _assigned(self, cell: Constant) -> Value:
        return assigned(cell, self._bound.params, self._bound.now_us)

    # ------------------------------------------------------------------ rows that are there

    async def _existing(self, arbiter: Index | None, images: Sequence[Row]) -> dict[bytes, Row]:
        """Return the rows that collide with ``images`` in a unique index or the primary key, by what collides."""
        keys = [self._collision(arbiter, image) for image in images]
        wanted = {tuples.encode(key): key for key in keys if key is not None}
        if not wanted:
            return {}
        columns = tuple(FieldWanted(c.id) for c in self._table.by_name.values())
        spans = tuple(KeySpan(tuple(key)) for key in wanted.values())
        scan = TableScan(self._table, columns, spans if arbiter is None else ())
        if arbiter is not None:
            scan = replace(scan, index=arbiter, index_spans=spans)
        (stream,) = await self._source.scan([scan])
        found: dict[bytes, Row] = {}
        async for batch in stream:
            values = [from_arrow(column) for column in batch.columns]
            for i in range(batch.num_rows):
                row = {c.column_id: values[k][i] for k, c in enumerate(columns)}
                key = self._collision(arbiter, row)
                if key is not None and tuples.encode(key) in wanted:
                    found[tuples.encode(key)] = row
        return found

    def _collision(self, arbiter: Index | None, image: Mapping[int, Value]) -> list[Value] | None:
        """Return the values that collide; a unique index does not hold NULLs against each other."""
        if arbiter is None:
            return [image.get(i) for i in self._table.key_column_ids]
        values = [self._part(image.get(p.column_id), p.column_id, p.path) for p in arbiter.parts]
        return None if any(v is None for v in values) else values

    def _part(self, value: Value, column_id: int, path: tuple[str, ...]) -> Any:
        if not path or not isinstance(value, bytes):
            return value
        name = self._table.by_id[column_id].type.proto
        return registry_of(self._schema).projection(name, [".".join(path)]).extract(value)[0]

    async def _upserted(self, writes: Sequence[LogicalWrite]) -> list[Row]:
        """Return the rows after INSERT OR UPDATE: columns that are not given keep what they have."""
        images: list[Row] = [dict(w.key) for w in writes]
        there = await self._existing(None, images)
        after: list[Row] = []
        for write, image in zip(writes, images, strict=True):
            key = self._collision(None, image)
            old = there.get(tuples.encode(key or ()))
            after.append({**(old if old is not None else write.defaults), **write.key, **write.columns})
            there[tuples.encode(key or ())] = after[-1]
        return after

    async def _resolved(
        self, writes: Sequence[LogicalWrite], images: Sequence[Row]
    ) -> tuple[list[LogicalWrite], list[Row]]:
        conflict = self._prepared.conflict
        check(conflict is not None, "there is a conflict clause")
        arbiters = conflict.arbiters if conflict is not None else ()
        known = {i: await self._existing(arbiter, images) for i, arbiter in enumerate(arbiters)}
        fresh: list[int] = []
        colliding: list[tuple[Row, Row]] = []
        updates = conflict is not None and conflict.update is not None
        taken: set[bytes] = set()
        for position, image in enumerate(images):
            hit: Row | None = None
            for i, arbiter in enumerate(arbiters):
                key = self._collision(arbiter, image)
                if key is None:
                    continue
                encoded = tuples.encode(key)
                hit = hit or known[i].get(encoded)
                mark = bytes([i]) + encoded
                if mark in taken and updates:
                    message = "ON CONFLICT DO UPDATE meets the same row twice: two of the new rows collide"
                    raise F1Error(Code.FAILED_PRECONDITION, message)
                if mark in taken:
                    hit = hit or image
            for i, arbiter in enumerate(arbiters):
                key = self._collision(arbiter, image)
                if key is not None:
                    taken.add(bytes([i]) + tuples.encode(key))
            if hit is None:
                fresh.append(position)
            elif updates:
                colliding.append((hit, image))
        kept = [writes[p] for p in fresh]
        after = [images[p] for p in fresh]
        if colliding:
            changed, rows = await self._do_update(colliding)
            kept, after = kept + changed, after + rows
        return kept, after

    async def _do_update(self, colliding: Sequence[tuple[Row, Row]]) -> tuple[list[LogicalWrite], list[Row]]:
        query, conflict = self._bound.update, self._prepared.conflict
        check(query is not None and conflict is not None, "DO UPDATE has a query")
        if query is None or conflict is None:
            return [], []
        given = GivenRows(self._schema, [[old for old, _ in colliding], [new for _, new in colliding]])
        table = await (await self._engine.run_query(query, given)).table()
        columns = [[_plain_decimal(v) for v in from_arrow(column)] for column in table.columns]
        width = len(self._table.key_column_ids)
        old_rows = {tuples.encode(self._collision(None, old) or ()): old for old, _ in colliding}
        writes: list[LogicalWrite] = []
        after: list[Row] = []
        for i in range(table.num_rows):
            if columns[-1][i] is not True:
                continue
            key = {c: columns[k][i] for k, c in enumerate(self._table.key_column_ids)}
            values = {
                column.id: coerce_column(self._schema, self._table, column, columns[width + k][i])
                for k, column in enumerate(conflict.columns)
            }
            version = self._schema.version
            writes.append(LogicalWrite(WriteKind.UPDATE, self._table.name, key, values, schema_version=version))
            after.append({**old_rows[tuples.encode(tuple(key.values()))], **values})
        return writes, after
