"""Tables in memory as a :class:`~f1server.exec.source.Source`: for tests and measures of SQL without a cluster.

Spans and predicates are taken at their word, so that a plan which limits too much loses rows and a test sees it.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import Index, Kind, Schema, Table
from f1server.exec.arrow_types import type_of
from f1server.exec.source import FieldWanted, KeySpan, PredicateOp, SimplePredicate, TableScan
from f1server.rows.keys import row_key
from f1server.rows.values import Row, Value


class MemoryTables:
    """The rows of a database, by table and encoded primary key."""

    def __init__(self, batch_rows: int = 1024) -> None:
        self._rows: dict[int, dict[bytes, Row]] = {}
        self._schema: Schema | None = None
        self.batch_rows = batch_rows
        self.scans: list[TableScan] = []

    def source(self, schema: Schema) -> "MemoryTables":
        """Return this as a source for statements bound under ``schema``."""
        self._schema = schema
        return self

    def put(self, table: Table, rows: Iterable[Mapping[int, Value]], replace: bool = False) -> None:
        """Insert rows. Raises F1Error ALREADY_EXISTS for a key that is there, unless ``replace``."""
        known = self._rows.setdefault(table.id, {})
        for row in rows:
            key = self._key(table, row)
            if key in known and not replace:
                raise F1Error(Code.ALREADY_EXISTS, f"duplicate key in {table.name}")
            known[key] = dict(row)

    def delete(self, table: Table, key: Sequence[Value]) -> bool:
        """Delete the row with a primary key; tell whether it was there."""
        return self._rows.get(table.id, {}).pop(tuples.encode(key), None) is not None

    def get(self, table: Table, key: Sequence[Value]) -> Row | None:
        """Return the row with a primary key."""
        return self._rows.get(table.id, {}).get(tuples.encode(key))

    def rows(self, table: Table) -> list[Row]:
        """Return all rows of a table by key."""
        return [row for _, row in sorted(self._rows.get(table.id, {}).items())]

    def drop(self, table: Table) -> None:
        """Forget all rows of a table."""
        self._rows.pop(table.id, None)

    @staticmethod
    def _key(table: Table, row: Mapping[int, Value]) -> bytes:
        return tuples.encode([row.get(i) for i in table.key_column_ids])

    async def scan(self, scans: Sequence[TableScan]) -> list[AsyncIterator[Any]]:
        """See :class:`Source`."""
        self.scans += scans
        return [self._scan(scan) for scan in scans]

    async def _scan(self, scan: TableScan) -> AsyncIterator[Any]:
        schema = self._schema
        if schema is None:
            raise F1Error(Code.INTERNAL, "a memory source needs a schema")
        found = list(self._matching(schema, scan))
        if scan.in_key_order < 0:
            found.reverse()
        if scan.limit is not None:
            found = found[: scan.limit]
        for start in range(0, len(found), self.batch_rows):
            part = found[start : start + self.batch_rows]
            arrays = [self._column(schema, scan.table, wanted, part) for wanted in scan.columns]
            yield pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])

    def _matching(self, schema: Schema, scan: TableScan) -> Iterable[Row]:
        spans, index_spans = _Spans(scan.spans), _Spans(scan.index_spans)
        for key, row in sorted(self._rows.get(scan.table.id, {}).items()):
            if scan.spans and not spans.hold(key):
                continue
            if scan.clip is not None and not self._clipped(schema, scan.table, row, scan.clip):
                continue
            if scan.index is not None and not self._in_index(schema, scan.table, scan.index, row, index_spans):
                continue
            if all(_passes(row.get(p.column.column_id), p) for p in scan.predicates):
                yield row

    @staticmethod
    def _clipped(schema: Schema, table: Table, row: Row, clip: tuple[bytes, bytes]) -> bool:
        return clip[0] <= row_key(schema, table, [row.get(i) for i in table.key_column_ids]) < clip[1]

    def _in_index(self, schema: Schema, table: Table, index: Index, row: Row, spans: "_Spans") -> bool:
        values = [
            self._read(schema, table, FieldWanted(part.column_id, part.path), row.get(part.column_id))
            for part in index.parts
        ]
        return spans.hold(tuples.encode(values))

    def _column(self, schema: Schema, table: Table, wanted: FieldWanted, rows: Sequence[Row]) -> Any:
        values = [self._read(schema, table, wanted, row.get(wanted.column_id)) for row in rows]
        return to_arrow(values, type_of(schema, table, wanted))

    @staticmethod
    def _read(schema: Schema, table: Table, wanted: FieldWanted, value: Value) -> Any:
        if not wanted.path or value is None:
            return value
        projection = registry_of(schema).projection(table.by_id[wanted.column_id].type.proto, [".".join(wanted.path)])
        return projection.extract(value)[0] if isinstance(value, bytes) else None


def to_arrow(values: Sequence[Any], kind: Any) -> Any:
    """Return values as an Arrow array."""
    if pa.types.is_date32(kind):
        return pa.array([v.days if isinstance(v, Date) else None for v in values], pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array([v.us if isinstance(v, Timestamp) else None for v in values], pa.int64()).cast(kind)
    return pa.array(values, kind)


class _Spans:
    """Ranges of encoded keys."""

    def __init__(self, spans: Sequence[KeySpan]) -> None:
        encoded = sorted(span.encoded() for span in spans)
        self._starts = [start for start, _ in encoded]
        # How far the spans up to each one reach: they may overlap.
        self._ends = list(accumulate((end for _, end in encoded), max))

    def hold(self, key: bytes) -> bool:
        """Is a key in any of them?"""
        at = bisect_right(self._starts, key)
        return at > 0 and key < self._ends[at - 1]


def _passes(value: Value, predicate: SimplePredicate) -> bool:
    if predicate.op in (PredicateOp.IS_NULL, PredicateOp.IS_NOT_NULL):
        return (value is None) == (predicate.op is PredicateOp.IS_NULL)
    if value is None:
        return False
    mine = tuples.encode((value,))
    theirs = [tuples.encode((v,)) for v in predicate.values]
    match predicate.op:
        case PredicateOp.EQ | PredicateOp.IN:
            return mine in theirs
        case PredicateOp.NE:
            return mine not in theirs
        case PredicateOp.LT:
            return mine < theirs[0]
        case PredicateOp.LE:
            return mine <= theirs[0]
        case PredicateOp.GT:
            return mine > theirs[0]
        case _:
            return mine >= theirs[0]


def kinds_of(table: Table) -> dict[int, Kind]:
    """Return the types of a table's columns by id."""
    return {c.id: c.type.kind for c in table.columns}
