"""The NoSQL interface (F1 section 7.2): any tables, columns and key ranges in one request."""

import asyncio
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.errors import Code, F1Error
from f1server.access.rights import Rights
from f1server.catalog.roles import Privilege
from f1server.catalog.schema import Column, Index, Schema, Table
from f1server.rows.arrow import to_arrow
from f1server.rows.coerce import coerce_column
from f1server.rows.keys import decode_key, index_prefix, index_span, row_key, row_prefix, row_span, table_span
from f1server.rows.rowcodec import decode_row_value
from f1server.rows.values import Value
from f1server.txn.reader import FoundRow, ReadRow, RowReader, Span
from f1server.txn.readset import Conflict


class TableRead(msgspec.Struct, frozen=True, gc=False):
    """What to read of one table.

    ``keys`` and ``prefixes`` are encoded tuples of the first values of the primary key (or the index), ``ranges``
    half-open ranges of such tuples; ``everything``: the whole table. ``key_columns``: the primary key for which they
    were made; empty: that of the table.
    """

    table: str
    columns: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    prefixes: tuple[bytes, ...] = ()
    ranges: tuple[tuple[bytes, bytes], ...] = ()
    everything: bool = False
    index: str = ""
    limit: int = 0
    reverse: bool = False
    exclusive: bool = False
    key_columns: tuple[int, ...] = ()


class TableRows(msgspec.Struct, frozen=True, gc=False):
    """The rows of one table read."""

    columns: tuple[Column, ...]
    rows: Sequence[FoundRow]

    def as_cells(self) -> list[bytes]:
        """Return each row as cells by the positions of the columns, from 1."""
        places = [(position, column.id) for position, column in enumerate(self.columns, 1)]
        return [
            encode_row({place: value for place, i in places if (value := found.row.get(i)) is not None})
            for found in self.rows
        ]

    def as_batch(self) -> pa.RecordBatch:
        """Return the rows as an Arrow batch."""
        arrays = [to_arrow(c.type, [found.row.get(c.id) for found in self.rows]) for c in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in self.columns])


def allow(rights: Rights, schema: Schema, reads: Sequence[TableRead]) -> None:
    """Raise PERMISSION_DENIED unless the role may read these tables, and lock their rows where that is asked for."""
    if rights.unlimited:
        return
    for wanted in reads:
        table = schema.table(wanted.table)
        rights.require(table, Privilege.SELECT | Privilege.UPDATE if wanted.exclusive else Privilege.SELECT)


async def read(reader: RowReader, reads: Sequence[TableRead]) -> list[TableRows]:
    """Perform all reads at once. Raises NOT_FOUND for unknown names, INVALID_ARGUMENT for keys of other types."""
    if len(reads) == 1:
        return [await _read_table(reader, reads[0])]
    return list(await asyncio.gather(*(_read_table(reader, wanted) for wanted in reads)))


def is_point(wanted: TableRead) -> bool:
    """Tell whether this is about one row, named by its primary key, and not about its lock."""
    return len(wanted.keys) == 1 and not (
        wanted.index or wanted.prefixes or wanted.ranges or wanted.everything or wanted.exclusive
    )


async def read_point(schema: Schema, wanted: TableRead, read_row: ReadRow) -> tuple[int, TableRows]:
    """Read one row by its key, outside of any transaction; return also the timestamp. Raises as :func:`read`."""
    table = schema.table(wanted.table)
    columns = _columns(table, wanted)
    values = _values(schema, table, wanted, wanted.keys[0], whole=True)
    key = row_key(schema, table, values)
    timestamp, version = await read_row(key)
    if version is None or version.value is None:
        return timestamp, TableRows(columns, ())
    row = decode_row_value(table, values, version.value)  # a decoded key is canonical already
    return timestamp, TableRows(columns, (FoundRow(key, row),))


def _columns(table: Table, wanted: TableRead) -> tuple[Column, ...]:
    return tuple(table.column(name) for name in wanted.columns) or table.visible


async def _read_table(reader: RowReader, wanted: TableRead) -> TableRows:
    schema = reader.schema
    table = schema.table(wanted.table)
    columns = _columns(table, wanted)
    ids = [column.id for column in columns]
    if wanted.index:
        index = table.index(wanted.index)
        if reader.timestamp and reader.timestamp < index.readable_from:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"index {index.name} was made after the time that is read; read by key, or in a new transaction",
            )
        spans = _index_spans(schema, table, index, wanted)
        rows = await reader.rows_by_index(
            table,
            index,
            spans,
            limit=wanted.limit,
            reverse=wanted.reverse,
            exclusive=wanted.exclusive,
            columns=ids,
        )
    else:
        spans = _row_spans(schema, table, wanted)
        rows = await reader.rows(
            table, spans, limit=wanted.limit, reverse=wanted.reverse, exclusive=wanted.exclusive, columns=ids
        )
    return TableRows(columns, rows)


def _row_spans(schema: Schema, table: Table, wanted: TableRead) -> list[Span]:
    spans: list[Span] = []
    for key in wanted.keys:
        values = _values(schema, table, wanted, key, whole=True)
        spans.append((row_key(schema, table, values), b""))
    for prefix in wanted.prefixes:
        start = row_prefix(schema, table, _values(schema, table, wanted, prefix))
        spans.append((start, tuples.successor(start)))
    if wanted.ranges and _other_key(table, wanted):
        raise _moved(table)
    spans += [row_span(schema, table, start, end) for start, end in wanted.ranges]
    if wanted.everything:
        spans.append(table_span(schema, table))
    return [span for span in dict.fromkeys(spans) if not span[1] or span[0] < span[1]]


def _index_spans(schema: Schema, table: Table, index: Index, wanted: TableRead) -> list[Span]:
    spans: list[Span] = []
    for key in (*wanted.keys, *wanted.prefixes):
        start = index_prefix(schema, table, index, _index_values(schema, table, index, key))
        spans.append((start, tuples.successor(start)))
    spans += [index_span(schema, table, index, start, end) for start, end in wanted.ranges]
    if wanted.everything:
        spans.append(index_span(schema, table, index, b"", b""))
    return [span for span in dict.fromkeys(spans) if span[0] < span[1]]


def _values(schema: Schema, table: Table, wanted: TableRead, encoded: bytes, *, whole: bool = False) -> list[Value]:
    values = decode_key(encoded, f"a key of {table.name}")
    if _other_key(table, wanted):
        values = _reordered(table, wanted, values)
    columns = table.key_columns
    if len(values) > len(columns) or (whole and len(values) != len(columns)):
        names = ", ".join(column.name for column in columns)
        raise F1Error(Code.INVALID_ARGUMENT, f"the key of {table.name} is ({names}), not {len(values)} values")
    return [coerce_column(schema, table, column, value) for column, value in zip(columns, values, strict=False)]


def _other_key(table: Table, wanted: TableRead) -> bool:
    """Were keys made for another primary key? That of a table that was dropped and made again is taken as it comes."""
    given = wanted.key_columns
    return bool(given) and given != table.key_column_ids and all(i in table.by_id for i in given)


def _reordered(table: Table, wanted: TableRead, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values of a key in the order of the table's own. Raises Conflict if they are no beginning of that."""
    given = dict(zip(wanted.key_columns, values, strict=False))
    own = table.key_column_ids[: len(values)]
    if set(own) != set(given):
        raise _moved(table)
    return tuple(given[i] for i in own)


def _moved(table: Table) -> Conflict:
    text = f"the primary key of table {table.name} is, or was at the time that is read, another one; run it again"
    return Conflict(text, b"", "schema")


def _index_values(schema: Schema, table: Table, index: Index, encoded: bytes) -> list[Value]:
    values = decode_key(encoded, f"a key of index {index.name}")
    if len(values) > len(index.parts):
        raise F1Error(Code.INVALID_ARGUMENT, f"index {index.name} has {len(index.parts)} columns, not {len(values)}")
    typed: list[Value] = []
    for part, value in zip(index.parts, values, strict=False):
        column = table.by_id[part.column_id]
        typed.append(value if part.path else coerce_column(schema, table, column, value))
    return typed
