"""Rows of Arrow arrays cut into transactions that touch few directories."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from f1.loading.readers import Chunk
from f1.metadata import Column, Metadata, Table
from f1.newrows import NewRows, cells_of
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

MAX_BATCH_BYTES = 2 << 20
"""Rows of a transaction are fewer if they are large."""


@dataclass(frozen=True)
class Batch:
    """The rows of one transaction: their columns, and their numbers in the file."""

    new: NewRows
    rows: Sequence[int]
    key_columns: Sequence[pa.Array]
    upsert: bool = False

    @cached_property
    def writes(self) -> list[pb.LogicalWrite]:
        """One write for each row."""
        writes = self.new.writes()
        if self.upsert:
            for write in writes:
                write.kind = pb.LogicalWrite.UPSERT
        return writes

    @cached_property
    def keys(self) -> list[tuple[Any, ...]]:
        """The rows' primary keys, as far as the file has them."""
        if not self.key_columns:
            return [()] * len(self.rows)
        return list(zip(*map(cells_of, self.key_columns), strict=True))


class WriteMaker:
    """Makes the transactions of one table."""

    def __init__(
        self, metadata: Metadata, table: Table, columns: Sequence[Column], kind: "pb.LogicalWrite.Kind", root_width: int
    ) -> None:
        """``root_width``: how many columns of the key name the directory. Raises F1Error if the key is incomplete."""
        self._metadata = metadata
        self._table = table
        self._columns = tuple(columns)
        self._upsert = kind == pb.LogicalWrite.UPSERT
        self._root_width = root_width
        positions = {column.id: i for i, column in enumerate(columns)}
        missing = [c.name for c in table.key if c.id not in positions and not (c.hidden or c.default_sql)]
        if missing:
            raise F1Error(
                Code.INVALID_ARGUMENT, f"the file lacks {', '.join(missing)} of the primary key of {table.name}"
            )
        self._key = tuple(positions[c.id] for c in table.key if c.id in positions)
        self._whole_key = len(self._key) == len(table.key)

    def batches(self, chunk: Chunk, rows_per_batch: int) -> Iterator[Batch]:
        """Yield the rows of a chunk, by key, in batches that end where a directory ends if that is near.

        Raises NullValue.
        """
        for column, array in zip(self._columns, chunk.arrays, strict=True):
            if column.not_null and array.null_count:
                raise NullValue(chunk.first_row + array.is_null().index(True).as_py(), column.name)
        rows = pa.RecordBatch.from_arrays(list(chunk.arrays), names=[str(c.id) for c in self._columns])
        numbers = list(range(chunk.first_row, chunk.first_row + chunk.rows))
        if self._whole_key:
            order = pc.sort_indices(rows, sort_keys=[(rows.schema.names[i], "ascending") for i in self._key])
            rows = rows.take(order)
            numbers = [numbers[i] for i in order.to_pylist()]
        roots = list(zip(*(cells_of(rows.column(i)) for i in self._key[: self._root_width]), strict=True))
        start = 0
        while start < chunk.rows:
            end = self._small(rows, start, self._end(roots, chunk.rows, start, rows_per_batch))
            yield self._batch(rows.slice(start, end - start), numbers[start:end])
            start = end

    def _batch(self, rows: pa.RecordBatch, numbers: Sequence[int]) -> Batch:
        ids = [column.id for column in self._columns]
        key_ids = [column.id for column in self._table.key]
        new = NewRows(self._table.name, key_ids, ids, rows.columns, self._metadata.version)
        return Batch(new, tuple(numbers), [rows.column(i) for i in self._key], self._upsert)

    def _end(self, roots: Sequence[tuple[Any, ...]], rows: int, start: int, size: int) -> int:
        """Return where the batch from ``start`` ends: after ``size`` rows, or sooner where another directory begins."""
        end = min(start + size, rows)
        if end == rows or not roots:
            return end
        border = end
        while border > start and roots[border - 1] == roots[end]:
            border -= 1
        # A directory that is larger than half a batch is cut after all.
        return border if border > start + size // 2 else end

    @staticmethod
    def _small(rows: pa.RecordBatch, start: int, end: int) -> int:
        """Return an end before which the rows have at most :data:`MAX_BATCH_BYTES`, unless it is one that is larger."""
        if rows.slice(start, end - start).nbytes <= MAX_BATCH_BYTES:
            return end
        least, most = start + 1, end - 1
        while least < most:
            middle = (least + most + 1) // 2
            if rows.slice(start, middle - start).nbytes <= MAX_BATCH_BYTES:
                least = middle
            else:
                most = middle - 1
        return least


class NullValue(Exception):
    """A row without a value in a column that needs one: ``row`` is its number in the file."""

    def __init__(self, row: int, column: str) -> None:
        super().__init__(row, column)
        self.row = row
        self.column = column


def root_width(metadata: Metadata, table: Table) -> int:
    """Return how many columns of a table's key are the root's: they name the directory."""
    root = table
    while root.parent:
        root = metadata.table(root.parent)
    return len(root.key) if table.parent else 0
