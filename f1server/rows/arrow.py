"""Columns of rows as Arrow arrays, and back: the one map between a column's type and Arrow's."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from f1common.encoding.values import Date, Timestamp
from f1server.catalog.schema import ColumnType, Kind
from f1server.rows.values import Value

_TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT64: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.NUMERIC: pa.decimal128(38, 9),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.PROTO: pa.binary(),
}


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column; a proto column is the bytes of its messages."""
    return _TYPES[column_type.kind]


def to_arrow(column_type: ColumnType, values: Sequence[Value]) -> pa.Array:
    """Return the values of a column as an Arrow array."""
    match column_type.kind:
        case Kind.DATE:
            days = [v.days if isinstance(v, Date) else None for v in values]
            return pa.array(days, pa.int32()).cast(pa.date32())
        case Kind.TIMESTAMP:
            micros = [v.us if isinstance(v, Timestamp) else None for v in values]
            return pa.array(micros, pa.int64()).cast(_TYPES[Kind.TIMESTAMP])
        case kind:
            return pa.array(values, _TYPES[kind])


def from_arrow(array: "pa.Array | pa.ChunkedArray") -> list[Value]:
    """Return the values of an Arrow array of any of the types above (or a narrower one) as column values."""
    kind = array.type
    if pa.types.is_date32(kind):
        return [None if v is None else Date(v) for v in array.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        micros = array.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()).to_pylist()
        return [None if v is None else Timestamp(v) for v in micros]
    found: list[Value] = array.to_pylist()
    return found


def batch_of(names: Iterable[str], arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """Put arrays of one length together."""
    return pa.RecordBatch.from_arrays(list(arrays), names=list(names))
