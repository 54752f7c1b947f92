"""Parts of a check: which keys there are to look at, divided so that each part is short work (pure)."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from f1common.encoding import tuple as tuples
from f1common.orchestrator.spans import ORCHESTRATOR_SPAN
from f1server.catalog.places import COPIES_SPAN
from f1server.catalog.schema import ElementState, Index, Schema, Table
from f1server.rows.keys import index_prefix, table_span
from spanstore.client import Sketch

__all__ = ["Part", "PartKind", "Span", "divided", "of_schema", "strays"]

Span = tuple[bytes, bytes]

_FIRST_ID, _LAST_ID = 1, (1 << 63) - 1


class PartKind(IntEnum):
    """What the keys of a part are; numbered as f1.db.CheckPart.Kind."""

    ROWS = 0
    """Of the hierarchy of a root table: rows, entries of local indexes, change history."""
    ENTRIES = 1
    """Of a global index."""
    STRAYS = 2
    """Of no table and no index of any database: there should be none."""
    COPIES = 3
    """Of the copies of the schema of the database that is checked."""


@dataclass(frozen=True, slots=True)
class Part:
    """Keys from ``start`` to before ``end``; ``keys`` is about how many. ``table_id`` of a hierarchy is its root's."""

    kind: PartKind
    start: bytes
    end: bytes
    table_id: int = 0
    index_id: int = 0
    keys: int = 0


def of_schema(schema: Schema, tables: Collection[int]) -> list[Part]:
    """Return undivided parts that hold all data of these tables (ids); none given: of all tables.

    A hierarchy is taken as a whole if one of its tables is named.
    """
    chosen = [t for t in schema.tables if t.state > ElementState.ABSENT and (not tables or t.id in tables)]
    roots = sorted({schema.root(table).id for table in chosen})
    parts = [Part(PartKind.ROWS, *table_span(schema, schema.by_id[root]), root) for root in roots]
    for table, index in _global_indexes(schema, chosen):
        parts.append(Part(PartKind.ENTRIES, *_index_span(schema, table, index), table.id, index.id))
    return parts


def _global_indexes(schema: Schema, tables: Iterable[Table]) -> Iterator[tuple[Table, Index]]:
    for table in tables:
        for index in table.indexes:
            if not index.local and index.state > ElementState.ABSENT:
                yield table, index


def _index_span(schema: Schema, table: Table, index: Index) -> Span:
    prefix = index_prefix(schema, table, index, ())
    return prefix, tuples.successor(prefix)


def strays(schemas: Iterable[Schema]) -> list[Part]:
    """Return the parts of the key space that belong to no table and no global index of these schemas.

    Nor to the copies of schemas, nor to the transaction orchestrator.
    """
    known: list[Span] = [COPIES_SPAN, ORCHESTRATOR_SPAN]
    for schema in schemas:
        known += [(part.start, part.end) for part in of_schema(schema, ())]
    at = tuples.encode((_FIRST_ID,))
    parts = []
    for start, end in sorted(known):
        if at < start:
            parts.append(Part(PartKind.STRAYS, at, start))
        at = max(at, end)
    parts.append(Part(PartKind.STRAYS, at, tuples.successor(tuples.encode((_LAST_ID,)))))
    return parts


def divided(parts: Sequence[Part], sketch: Sketch, keys: int) -> list[Part]:
    """Cut parts at borders of a sketch of them, into pieces of about so many keys."""
    borders = [segment.key for segment in sketch.segments]
    counts = [sum(count.rows for count in segment.counts.values()) for segment in sketch.segments]
    return [piece for part in parts for piece in _cut(part, borders, counts, keys)]


def _cut(part: Part, borders: Sequence[bytes], counts: Sequence[int], keys: int) -> Iterator[Part]:
    # Segments begin where the ranges of the sketch do, or later, so that the first one within the part is its first.
    first, last = bisect_left(borders, part.start), bisect_left(borders, part.end)
    start, passed = part.start, 0
    for border, count in zip(borders[first:last], counts[first:last], strict=True):
        if passed >= keys:
            yield replace(part, start=start, end=border, keys=passed)
            start, passed = border, 0
        passed += count
    yield replace(part, start=start, keys=passed)
