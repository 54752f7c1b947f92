"""Rows of Arrow arrays as logical writes, cut into transactions that touch few directories."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from f1.loading.readers import Chunk
from f1.metadata import Column, Metadata, Table
from f1common.encoding.row import Cell, encode_row
from f1common.encoding.tuple import encode
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

MAX_BATCH_BYTES = 2 << 20
"""Rows of a transaction are fewer if they are large."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one transaction: their writes and numbers in the file."""

    writes: tuple[pb.LogicalWrite, ...]
    rows: tuple[int, ...]
    keys: tuple[tuple[Any, ...], ...]


class WriteMaker:
    """Makes the writes of one table."""

    def __init__(
        self, metadata: Metadata, table: Table, columns: Sequence[Column], kind: "pb.LogicalWrite.Kind", root_width: int
    ) -> None:
        """``root_width``: how many columns of the key name the directory. Raises F1Error if the key is incomplete."""
        self._metadata = metadata
        self._table = table
        self._columns = tuple(columns)
        self._kind = kind
        self._root_width = root_width
        positions = {column.id: i for i, column in enumerate(columns)}
        missing = [c.name for c in table.key if c.id not in positions and not (c.hidden or c.default_sql)]
        if missing:
            raise F1Error(
                Code.INVALID_ARGUMENT, f"the file lacks {', '.join(missing)} of the primary key of {table.name}"
            )
        self._key = tuple(positions[c.id] for c in table.key if c.id in positions)
        self._whole_key = len(self._key) == len(table.key)
        self._rest = tuple(i for i in range(len(columns)) if i not in self._key)

    def batches(self, chunk: Chunk, rows_per_batch: int) -> Iterator[Batch]:
        """Yield the rows of a chunk, by key, in batches that end where a directory ends if that is near.

        Raises NullValue.
        """
        for column, array in zip(self._columns, chunk.arrays, strict=True):
            if column.not_null and array.null_count:
                raise NullValue(chunk.first_row + array.is_null().index(True).as_py(), column.name)
        values = [cells_of(array) for array in chunk.arrays]
        keys = list(zip(*(values[i] for i in self._key), strict=True)) if self._key else [()] * chunk.rows
        order: Sequence[int] = range(chunk.rows)
        if self._whole_key:
            encoded = [encode(key) for key in keys]
            order = sorted(order, key=encoded.__getitem__)
        start = 0
        while start < len(order):
            end = self._end(order, keys, start, rows_per_batch)
            writes: list[pb.LogicalWrite] = []
            size = 0
            for row in order[start:end]:
                write = self._write(keys[row], values, row)
                size += len(write.key) + len(write.columns)
                if writes and size > MAX_BATCH_BYTES:
                    break
                writes.append(write)
            rows = order[start : start + len(writes)]
            yield Batch(tuple(writes), tuple(chunk.first_row + row for row in rows), tuple(keys[row] for row in rows))
            start += len(writes)

    def _end(self, order: Sequence[int], keys: Sequence[tuple[Any, ...]], start: int, size: int) -> int:
        """Return where the batch from ``start`` ends: after ``size`` rows, or sooner where another directory begins."""
        end = min(start + size, len(order))
        if end == len(order) or not self._root_width:
            return end
        width = self._root_width
        last = keys[order[end]][:width]
        border = end
        while border > start and keys[order[border - 1]][:width] == last:
            border -= 1
        # A directory that is larger than half a batch is cut after all.
        return border if border > start + size // 2 else end

    def _write(self, key: tuple[Any, ...], values: Sequence[Sequence[Any]], row: int) -> pb.LogicalWrite:
        columns = self._columns
        key_cells: dict[int, Cell] = {columns[i].id: value for i, value in zip(self._key, key, strict=True)}
        cells: dict[int, Cell] = {columns[i].id: values[i][row] for i in self._rest}
        return pb.LogicalWrite(
            kind=self._kind,
            table=self._table.name,
            key=encode_row(key_cells),
            columns=encode_row(cells),
            schema_version=self._metadata.version,
        )


class NullValue(Exception):
    """A row without a value in a column that needs one: ``row`` is its number in the file."""

    def __init__(self, row: int, column: str) -> None:
        super().__init__(row, column)
        self.row = row
        self.column = column


def cells_of(array: pa.Array) -> list[Any]:
    """Return the values of an array of one of the column types as cells."""
    kind = array.type
    if pa.types.is_date32(kind):
        return [None if v is None else Date(v) for v in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        return [None if v is None else Timestamp(v) for v in array.cast(pa.int64()).to_pylist()]
    values: list[Any] = array.to_pylist()
    return values


def root_width(metadata: Metadata, table: Table) -> int:
    """Return how many columns of a table's key are the root's: they name the directory."""
    root = table
    while root.parent:
        root = metadata.table(root.parent)
    return len(root.key) if table.parent else 0
