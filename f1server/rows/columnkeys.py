"""The keys of new rows that come by columns, from the encoded elements of their key columns."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1server.catalog.schema import Schema, Table
from f1server.rows.arrow import from_arrow
from f1server.rows.layout import layout
from f1server.rows.values import Value

__all__ = ["RowKeys", "elements_of", "joined"]


class RowKeys:
    """The keys of the rows of ``columns``, which have all of the primary key."""

    def __init__(self, schema: Schema, table: Table, columns: Mapping[int, pa.Array], rows: int) -> None:
        self._where = layout(schema, table)
        self.elements = [elements_of(columns[i]) for i in table.key_column_ids]
        """The encoded elements of each column of the primary key."""
        self.count = rows
        self.rows = self._joined(len(self._where.steps))
        """The storage keys of the rows, in their order in the batch."""
        self.order = sorted(range(rows), key=self.rows.__getitem__)
        """Positions in the batch by ascending key."""
        self.twice = len(set(self.rows)) < rows

    def _joined(self, steps: int) -> list[bytes]:
        """Return the keys of the rows' ancestors that are so many steps from above."""
        parts: list[Sequence[bytes]] = []
        for table_id, first, end in self._where.steps[:steps]:
            parts.append(self.same(table_id))
            parts.extend(self.elements[first:end])
        return joined(parts)

    def same(self, value: Value) -> list[bytes]:
        """Return the encoded element of one value, for each row."""
        return [tuples.encode((value,))] * self.count

    def parents(self) -> list[bytes]:
        """Return the keys of the rows' parents, each once, ascending."""
        above = len(self._where.steps) - 1
        return sorted(set(self._joined(above))) if above else []

    @cached_property
    def roots(self) -> list[bytes]:
        """The keys of the rows' roots."""
        return self._joined(1)

    def own(self) -> list[bytes]:
        """Return the encoded primary keys, without the ids of tables."""
        return joined(self.elements)


def joined(parts: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return encoded tuples from the elements of each of their positions."""
    return [b"".join(row) for row in zip(*parts, strict=True)]


def elements_of(array: pa.Array) -> list[bytes]:
    """Return the values of a column as encoded elements of keys."""
    made: dict[Value, bytes] = {}
    found = []
    for value in from_arrow(array):
        element = made.get(value)
        if element is None:
            element = made[value] = tuples.encode((value,))
        found.append(element)
    return found
