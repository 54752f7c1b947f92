"""Column types in Arrow, as DuckDB and clients expect them.

========= ======================= ==============================================
type      Arrow                   remarks
========= ======================= ==============================================
BOOL      bool
INT64     int64
DOUBLE    float64                 cells keep NaN and -0.0
NUMERIC   decimal128(38, 9)       the scale of a cell is not kept
STRING    string
BYTES     binary
DATE      date32
TIMESTAMP timestamp(us, UTC)
PROTO     binary                  the message as it is stored
========= ======================= ==============================================

Types are taken strictly: a value of another type than its column's is refused, never converted.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any

import pyarrow as pa

from f1common.encoding.values import Date, Timestamp
from spanstore.scan.plan import ColumnType

ARROW_TYPES: Mapping[ColumnType, Any] = {
    ColumnType.BOOL: pa.bool_(),
    ColumnType.INT64: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.NUMERIC: pa.decimal128(38, 9),
    ColumnType.STRING: pa.string(),
    ColumnType.BYTES: pa.binary(),
    ColumnType.DATE: pa.date32(),
    ColumnType.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnType.PROTO: pa.binary(),
}

PYTHON_TYPES: Mapping[ColumnType, frozenset[type]] = {
    ColumnType.BOOL: frozenset({bool, NoneType}),
    ColumnType.INT64: frozenset({int, NoneType}),
    ColumnType.DOUBLE: frozenset({float, NoneType}),
    ColumnType.NUMERIC: frozenset({Decimal, NoneType}),
    ColumnType.STRING: frozenset({str, NoneType}),
    ColumnType.BYTES: frozenset({bytes, NoneType}),
    ColumnType.DATE: frozenset({Date, NoneType}),
    ColumnType.TIMESTAMP: frozenset({Timestamp, NoneType}),
    ColumnType.PROTO: frozenset({bytes, NoneType}),
}
"""What the codecs give for each type."""


def dates(days: Sequence[int | None]) -> Any:
    """Return the DATE array of days since 1970-01-01."""
    return pa.array(days, pa.int32()).view(ARROW_TYPES[ColumnType.DATE])


def timestamps(stamps: Sequence[int | None]) -> Any:
    """Return the TIMESTAMP array of microseconds since the epoch."""
    return pa.array(stamps, pa.int64()).view(ARROW_TYPES[ColumnType.TIMESTAMP])


def to_array(kind: ColumnType, values: Sequence[Any]) -> Any:
    """Return the array of values that have the Python types of ``kind``."""
    match kind:
        case ColumnType.DATE:
            return dates([None if v is None else v.days for v in values])
        case ColumnType.TIMESTAMP:
            return timestamps([None if v is None else v.us for v in values])
        case _:
            return pa.array(values, ARROW_TYPES[kind])
