"""New rows of one table by columns: what inserts of many rows and bulk loads send."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from f1common.encoding.row import encode_row
from f1common.encoding.values import Date, Timestamp
from f1common.pb import f1_pb2 as pb

__all__ = ["NewRows", "cells_of"]


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


def cells_of(array: pa.Array) -> list[Any]:
    """Return the values of an array of one of the column types as cells."""
    kind = array.type
    if pa.types.is_date32(kind):
        return [None if v is None else Date(v) for v in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        return [None if v is None else Timestamp(v) for v in array.cast(pa.int64()).to_pylist()]
    values: list[Any] = array.to_pylist()
    return values
