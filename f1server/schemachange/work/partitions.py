"""How the rows of a table are divided for a walk (pure): into parts that are seconds of work each, at full pace."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1server.catalog.schema import Schema, Table
from f1server.rows.layout import layout
from spanstore.client import Sketch, TableCount

__all__ = ["Partition", "at_roots", "cuts_in", "divided", "path_of"]

MOST = 2_000
"""Partitions of a table, at most: how far each is stands in one row."""
_BYTES = 16 << 20
_LOT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Partition:
    """The rows of a table from ``start`` to before ``end``; ``rows`` is about how many there are."""

    start: bytes
    end: bytes
    rows: int = 0


def path_of(schema: Schema, table: Table) -> tuple[tuple[int, int], ...]:
    """Return the path of a table as sketches take it: (table id, elements of its own part of the key) from the root."""
    return tuple((table_id, end - first) for table_id, first, end in layout(schema, table).steps)


def divided(
    span: tuple[bytes, bytes], borders: Iterable[bytes], sketch: Sketch, rows_each: int, most: int = MOST
) -> list[Partition]:
    """Divide ``span`` where the only table of ``sketch`` has so many rows, and at ``borders``, those of groups.

    Together the partitions are ``span``, whatever the sketch says: it is an estimate.
    """
    start, end = span
    total = sketch.totals[0]
    each = max(rows_each, -(-total.rows // most), 1)
    size_each = max(_BYTES, -(-total.bytes // most))
    found: list[Partition] = []
    low, rows, size = start, 0, 0
    for key, segment_rows, segment_bytes in _cuts(span, borders, sketch):
        # A border of groups is a cut in any case, unless next to nothing lies before it.
        if key > low and (segment_rows < 0 or rows >= each or size >= size_each):
            found.append(Partition(low, key, rows))
            low, rows, size = key, 0, 0
        rows += max(segment_rows, 0)
        size += segment_bytes
    found.append(Partition(low, end, rows))
    return found


def cuts_in(sketch: Sketch, rows_each: int) -> list[bytes]:
    """Return keys between any two of which the only table of ``sketch`` has about so many rows, or large ones.

    The segments of a sketch are the smaller the nearer they are to its beginning.
    """
    found: list[bytes] = []
    rows = size = 0
    for segment in sketch.segments:
        if rows >= rows_each or size >= _LOT_BYTES:
            found.append(segment.key)
            rows = size = 0
        count = segment.counts.get(0, TableCount())
        rows, size = rows + count.rows, size + count.bytes
    return found


def at_roots(schema: Schema, parts: Sequence[Partition]) -> list[Partition]:
    """Return partitions whose borders do not lie within what belongs to one row of a root table.

    A border within it goes to its beginning; where that makes a partition empty, it is part of the next one.
    """
    found: list[Partition] = []
    start, rows = parts[0].start, 0
    for part in parts[:-1]:
        rows += part.rows
        end = _root_of(schema, part.end)
        if end > start:
            found.append(Partition(start, end, rows))
            start, rows = end, 0
    found.append(Partition(start, parts[-1].end, rows + parts[-1].rows))
    return found


def _root_of(schema: Schema, key: bytes) -> bytes:
    """Return the key of the row of a root table that a key lies below; the key itself if there is none."""
    try:
        elements = tuples.decode(key)
    except F1Error:
        return key
    root = schema.by_id.get(elements[0]) if elements and type(elements[0]) is int else None
    return key if root is None else tuples.encode(elements[: 1 + len(root.key_column_ids)])


def _cuts(span: tuple[bytes, bytes], borders: Iterable[bytes], sketch: Sketch) -> Sequence[tuple[bytes, int, int]]:
    """Return (key, rows, bytes) of each segment, in order; rows -1: a border of groups."""
    start, end = span
    cuts = [(key, -1, 0) for key in borders if start < key < end]
    for segment in sketch.segments:
        count = segment.counts.get(0)
        cuts.append((segment.key, count.rows if count else 0, count.bytes if count else 0))
    return sorted(cut for cut in cuts if cut[0] < end)
