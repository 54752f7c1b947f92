"""New rows of one table by columns: what inserts of many rows and bulk loads send."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from f1.metadata import Column, Metadata
from f1.values import ARROW_TYPES, to_cell
from f1common.encoding.columns import MOST_CELLS, MOST_ROWS
from f1common.encoding.row import encode_row
from f1common.encoding.values import TIMESTAMP_MAX, Date, Timestamp
from f1common.errors import F1Error
from f1common.pb import f1_pb2 as pb

__all__ = ["MANY", "NewRows", "cells_of", "new_rows"]

MANY = 32
"""From so many rows on it pays to send them by columns."""

_EXACT: Mapping[str, type] = {
    "BOOL": bool,
    "INT64": int,
    "DOUBLE": float,
    "NUMERIC": Decimal,
    "STRING": str,
    "BYTES": bytes,
    "DATE": Date,
    "TIMESTAMP": Timestamp,
}


class NewRows:
    """Rows to be inserted, as arrays in the types of their columns (:data:`f1.values.ARROW_TYPES`)."""

    def __init__(
        self, table: str, key_ids: Sequence[int], ids: Sequence[int], arrays: Sequence[pa.Array], schema_version: int
    ) -> None:
        """``ids``: the column of each array. ``key_ids``: those of the primary key, given or not."""
        self.table = table
        self.schema_version = schema_version
        self._key_ids = frozenset(key_ids)
        self._ids = tuple(ids)
        self._arrays = tuple(arrays)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def arrow(self) -> bytes:
        """Return them as an Arrow IPC stream of one batch, each column named by its id."""
        batch = pa.RecordBatch.from_arrays(list(self._arrays), names=[str(i) for i in self._ids])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def first(self) -> pb.LogicalWrite:
        """Return the write of the first row, which names the commit."""
        return NewRows(
            self.table, tuple(self._key_ids), self._ids, [a.slice(0, 1) for a in self._arrays], self.schema_version
        ).writes()[0]

    def writes(self) -> list[pb.LogicalWrite]:
        """Return the same as one write for each row."""
        values = zip(*(cells_of(array) for array in self._arrays), strict=True)
        return [self._write(dict(zip(self._ids, row, strict=True))) for row in values]

    def _write(self, row: dict[int, Any]) -> pb.LogicalWrite:
        return pb.LogicalWrite(
            kind=pb.LogicalWrite.INSERT,
            table=self.table,
            key=encode_row({i: value for i, value in row.items() if i in self._key_ids}),
            columns=encode_row({i: value for i, value in row.items() if i not in self._key_ids}),
            schema_version=self.schema_version,
        )


def new_rows(metadata: Metadata, name: str, rows: Sequence[Mapping[str, Any]]) -> NewRows | None:
    """Return rows, as mappings by column name, by columns; None if that cannot be done without converting something.

    Then they go one by one, and whatever is wrong with them is found there. Raises F1Error NOT_FOUND.
    """
    names = rows[0].keys()
    if not names or len(rows) > MOST_ROWS or len(rows) * len(names) > MOST_CELLS:
        return None
    if any(row.keys() != names for row in rows):
        return None
    table = metadata.table(name)
    columns = [table.column(column) for column in names]
    given = {column.id for column in columns}
    if len(given) < len(columns) or not {c.id for c in table.key if not (c.hidden or c.default_sql)} <= given:
        return None
    try:
        arrays = [_array(column, [row[key] for row in rows]) for column, key in zip(columns, names, strict=True)]
    except (F1Error, pa.ArrowException, OverflowError, ValueError):
        return None
    found = [array for array in arrays if array is not None]
    if len(found) < len(arrays):
        return None
    return NewRows(table.name, [c.id for c in table.key], [c.id for c in columns], found, metadata.version)


def _array(column: Column, values: list[Any]) -> pa.Array | None:
    exact = _EXACT.get(column.kind)
    if exact is None or (exact is Decimal and column.scale is None):
        return None  # a NUMERIC without a scale keeps the digits that it was given
    if not set(map(type, values)) <= {exact, type(None)}:
        values = [to_cell(value, column.name) for value in values]
        if not set(map(type, values)) <= {exact, type(None)}:
            return None
    kind = ARROW_TYPES[column.kind]
    if exact is Date:
        return pa.array([None if value is None else value.days for value in values], pa.int32()).cast(kind)
    if exact is Timestamp:
        moments = [None if value is None else value.us for value in values]
        return None if TIMESTAMP_MAX + 1 in moments else pa.array(moments, pa.int64()).cast(kind)
    return pa.array(values, kind)


def cells_of(array: pa.Array) -> list[Any]:
    """Return the values of an array of one of the column types as cells."""
    kind = array.type
    if pa.types.is_date32(kind):
        return [None if v is None else Date(v) for v in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        return [None if v is None else Timestamp(v) for v in array.cast(pa.int64()).to_pylist()]
    values: list[Any] = array.to_pylist()
    return values
