"""Sketches as their users see them: how many rows of each table there are, and where."""

from dataclasses import dataclass
from functools import cached_property

from spanstore.client.scanning import Scan

__all__ = ["Segment", "Sketch", "TableCount", "read_sketch"]


@dataclass(frozen=True, slots=True)
class TableCount:
    """Rows, and bytes of their keys and values."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """The keys from ``key`` to the next segment's; ``counts`` by the table's position among those asked for.

    What is of none of them is counted under the number of tables.
    """

    key: bytes
    counts: dict[int, TableCount]


@dataclass(frozen=True)
class Sketch:
    """Segments in the order of their keys, over ``tables`` tables. All counts are estimates."""

    segments: tuple[Segment, ...]
    tables: int

    @cached_property
    def totals(self) -> tuple[TableCount, ...]:
        """What each table has, and last what is of none of them."""
        rows, sizes = [0] * (self.tables + 1), [0] * (self.tables + 1)
        for segment in self.segments:
            for table, count in segment.counts.items():
                rows[table] += count.rows
                sizes[table] += count.bytes
        return tuple(TableCount(*both) for both in zip(rows, sizes, strict=True))


async def read_sketch(scan: Scan, tables: int) -> Sketch:
    """Return what a scan that was asked for a sketch of so many tables gives. Raises as iterating over it does."""
    segments: list[Segment] = []
    async for batch in scan:
        keys, which, rows, sizes = (column.to_pylist() for column in batch.columns)
        for key, *lists in zip(keys, which, rows, sizes, strict=True):
            counts = {t: TableCount(r, b) for t, r, b in zip(*lists, strict=True)}
            segments.append(Segment(key, counts))
    segments.sort(key=lambda segment: segment.key)
    return Sketch(tuple(segments), tables)
