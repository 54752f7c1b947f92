"""New rows of one table as Arrow columns: how bulk loads and inserts of many rows arrive.

Where nothing of a table needs a look at each row by itself, such rows are planned column by column (:func:`plan_rows`):
keys and values are put together from the pieces of the columns, a row is never a dictionary, and what the transaction
depends on is tested by the commit. The plan is the one that :class:`f1server.rows.planner.WritePlanner` makes of the
same rows as INSERTs, byte for byte. Everything else (foreign keys, checks, lock columns, defaults to be filled in,
messages and indexes on their fields, tables that move, values that need conversion, and all errors) is left to that
planner, which takes the rows one by one (:class:`RowWrites`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from f1common.encoding.columns import join_rows, pieces_of, rows_of_cells, units_of
from f1common.encoding.values import NUMERIC_SCALE
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ElementState, Kind, Schema, Table
from f1server.rows import locks
from f1server.rows.arrow import arrow_type, from_arrow
from f1server.rows.changes import BATCH_CELL, batch_tail, check_batch_key, tracked_ids
from f1server.rows.columnchanges import new_batches, new_changes
from f1server.rows.columnentries import NewEntries, entries_by_columns, plan_entries
from f1server.rows.columnkeys import RowKeys
from f1server.rows.defaults import columns_with_default
from f1server.rows.ipc import read_batch
from f1server.rows.keys import MAX_KEY_BYTES
from f1server.rows.layout import layout, of_schema
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite, WriteKind
from spanstore.client import Puts

__all__ = ["ColumnBatch", "PlannedRows", "RowWrites", "plan_rows", "read_columns"]

_ID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class ColumnBatch:
    """New rows of ``table``: for each column id an array, all of one length above 0.

    ``schema_version``: under which the ids were resolved.
    """

    table: str
    columns: Mapping[int, pa.Array]
    rows: int
    schema_version: int = 0


def read_columns(table: str, data: bytes, schema_version: int) -> ColumnBatch:
    """Read an Arrow IPC stream of one batch, whose columns are named by their ids.

    Raises INVALID_ARGUMENT, and OUT_OF_RANGE for too many rows.
    """
    batch = read_batch(data)
    names = batch.schema.names
    if not all(map(_ID.fullmatch, names)):
        raise F1Error(Code.INVALID_ARGUMENT, "the columns of an insert are named by their ids")
    ids = list(map(int, names))
    if len(set(ids)) != len(ids):
        raise F1Error(Code.INVALID_ARGUMENT, "an insert by columns has no column twice")
    return ColumnBatch(table, dict(zip(ids, batch.columns, strict=True)), batch.num_rows, schema_version)


class RowWrites(Sequence[LogicalWrite]):
    """The rows of a batch as INSERTs, made when they are looked at."""

    def __init__(self, batch: ColumnBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return self.batch.rows

    @overload
    def __getitem__(self, index: int) -> LogicalWrite: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LogicalWrite]: ...

    def __getitem__(self, index: int | slice) -> LogicalWrite | Sequence[LogicalWrite]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        return self._write({i: from_arrow(array.slice(index, 1))[0] for i, array in self.batch.columns.items()})

    def __iter__(self) -> Iterator[LogicalWrite]:
        return iter(self._all)

    @cached_property
    def _all(self) -> list[LogicalWrite]:
        ids = tuple(self.batch.columns)
        values = zip(*(from_arrow(array) for array in self.batch.columns.values()), strict=True)
        return [self._write(dict(zip(ids, row, strict=True))) for row in values]

    def _write(self, row: Mapping[int, Value]) -> LogicalWrite:
        # An INSERT may have the columns of its key among the others.
        return LogicalWrite(WriteKind.INSERT, self.batch.table, {}, row, schema_version=self.batch.schema_version)


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """What to write: the rows, which are new, their index entries and their history.

    ``parents`` are keys of rows that must be there.
    """

    rows: Puts
    parents: list[bytes]
    entries: NewEntries
    history: Puts | None


def plan_rows(schema: Schema, batch: ColumnBatch, commit_unique: bytes) -> PlannedRows | None:
    """Plan the insertion of a batch; None if its rows have to be looked at one by one, for whatever reason."""
    table = schema.by_name.get(batch.table.lower())
    if table is None or not _takes_columns(schema, table) or not _fits(schema, table, batch):
        return None
    try:
        return _plan(schema, table, batch, commit_unique)
    except F1Error:
        return None  # the same rows one by one give an error that names one


def _takes_columns(schema: Schema, table: Table) -> bool:
    def look() -> bool:
        where = layout(schema, table)
        moving = table.mirror_of or table.id in schema.forms or table.dual
        return not (
            moving
            or not entries_by_columns(schema, table)
            or where.foreign_keys
            or locks.locks_of_insert(table)
            or any(c.state >= ElementState.WRITE_ONLY for c in table.checks)
            or any(c.type.kind is Kind.PROTO for c in table.key_columns)
        )

    return of_schema(schema, ("takes columns", table.id), look)


def _fits(schema: Schema, table: Table, batch: ColumnBatch) -> bool:
    """Tell whether the columns are those of the table, of its types, with values wherever one is needed."""
    for column_id, array in batch.columns.items():
        column = table.by_id.get(column_id)
        if column is None or column.state < ElementState.WRITE_ONLY or not _is_of_type(column, array):
            return False
        if array.null_count and (column.not_null or column_id in table.key_column_ids):
            return False
    needed = {*table.key_column_ids, *(column.id for column in columns_with_default(schema, table))}
    needed |= {c.id for c in table.columns if c.not_null and c.state >= ElementState.WRITE_ONLY}
    return needed <= batch.columns.keys()


def _is_of_type(column: Column, array: pa.Array) -> bool:
    kind = column.type
    if kind.kind is Kind.PROTO or array.type != arrow_type(kind):
        return False
    if kind.max_length and len(array) > array.null_count:
        longest: int = pc.max(pc.utf8_length(array)).as_py()
        return longest <= kind.max_length
    return True


def _scale(column: Column) -> int:
    return column.type.scale if column.type.precision else NUMERIC_SCALE


def _check_precision(column: Column, array: pa.Array) -> None:
    if not (column.type.kind is Kind.NUMERIC and column.type.precision) or array.null_count == len(array):
        return
    found = pc.min_max(array)
    limit = Decimal(10) ** (column.type.precision - column.type.scale)
    if not -limit < found["min"].as_py() <= found["max"].as_py() < limit:
        raise F1Error(Code.OUT_OF_RANGE, f"a value is out of range of {column.type.sql()}")


def _plan(schema: Schema, table: Table, batch: ColumnBatch, commit_unique: bytes) -> PlannedRows | None:
    """Plan. Raises F1Error for values that do not fit."""
    for column_id, array in batch.columns.items():
        _check_precision(table.by_id[column_id], array)
        if column_id in table.key_column_ids and table.by_id[column_id].type.kind is Kind.NUMERIC:
            units_of(array, _scale(table.by_id[column_id]))  # what has to be rounded is no key yet; see pieces_of
    keys = RowKeys(schema, table, batch.columns, batch.rows)
    if keys.twice or max(map(len, keys.rows)) > MAX_KEY_BYTES:
        return None
    ids = sorted(set(batch.columns) - set(table.key_column_ids))
    pieces = {i: pieces_of(i, batch.columns[i], _scale(table.by_id[i])) for i in ids}
    values = join_rows([pieces[i] for i in ids], batch.rows)
    history = None
    if not table.untracked:
        history = _history(schema, table, keys, batch, pieces, values, commit_unique)
    entries = plan_entries(schema, table, keys, batch.columns, pieces)
    if entries is None:
        return None
    order = keys.order
    rows = Puts([keys.rows[i] for i in order], [values[i] for i in order], absent=True)
    return PlannedRows(rows, keys.parents(), entries, history)


def _history(
    schema: Schema,
    table: Table,
    keys: RowKeys,
    batch: ColumnBatch,
    pieces: Mapping[int, Sequence[bytes]],
    values: Sequence[bytes],
    commit_unique: bytes,
) -> Puts:
    """Return the change batches: as :func:`f1server.rows.changes.batches_of` and what follows it.

    ``values``: the rows from all of ``pieces``.
    """
    tracked = [i for i in tracked_ids(table) if i in pieces]
    after = values
    if len(tracked) < len(pieces):
        after = join_rows([pieces[i] for i in sorted(tracked)], len(keys.rows))
    names = tuple(table.by_id[i].name for i in tracked)
    own, order = keys.own(), keys.order
    given = [names] * len(order)
    if any(batch.columns[i].null_count for i in tracked):
        filled = list(zip(*(pieces[i] for i in tracked), strict=True))
        given = [tuple(n for n, piece in zip(names, filled[i], strict=True) if piece) for i in order]
    changes = new_changes(table, [own[i] for i in order], [after[i] for i in order], given)
    roots, batches = new_batches(layout(schema, table).root, [keys.roots[i] for i in order], changes)
    tail, offset = batch_tail(commit_unique)
    check_batch_key(max(roots, key=len), commit_unique, table.name)
    stored = rows_of_cells(BATCH_CELL, batches)
    return Puts([root + tail for root in roots], stored, stamp_before_end=len(tail) - offset)
