"""Rows from columns: the bytes that :func:`f1common.encoding.row.encode_row` gives, made for many rows at a time.

A row is a map from column id to cell, so its bytes are a head that counts the cells, then the pieces of its columns,
id and cell, in order of the ids. Whoever has rows as Arrow columns makes the pieces column by column, where a value's
type need not be asked and many values occur again, and puts them together in the end. No row becomes a dictionary.

NULL is the absence of a cell: its piece is empty.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.msgpack import Ext

from f1common.encoding.row import COMMIT_TS_WIDTH, EXT_DATE, EXT_NUMERIC, EXT_TIMESTAMP, MAX_COLUMN_ID
from f1common.encoding.values import DATE_MAX, DATE_MIN, NUMERIC_SCALE, TIMESTAMP_MAX, TIMESTAMP_MIN
from f1common.errors import Code, F1Error

__all__ = ["MOST_CELLS", "MOST_ROWS", "join_rows", "pieces_of", "rows_of_cells", "units_of"]

_encode = msgspec.msgpack.Encoder().encode

_FIX_MAP = 16
_KEPT_DATES = 1 << 15
"""Ninety years of them: a load has the same dates again and again."""
_DECIMAL = 16
"""Bytes of a decimal128."""

MOST_ROWS = 1 << 18
"""Rows that one insert sends by columns at most: a server plans them at one go, and serves nobody else meanwhile."""
MOST_CELLS = 1 << 23
"""Rows times columns of such an insert, at most: cells of NULL and BOOL take a bit or two, until they are looked at."""


def pieces_of(column: int, array: pa.Array, scale: int = NUMERIC_SCALE) -> list[bytes]:
    """Return the pieces of a column, one for each value: ``encode_row({column: value})`` without its head.

    ``array`` is of Arrow's bool, int64, double, decimal128, string, binary, date32 or timestamp in microseconds.
    ``scale``: how many digits after the point NUMERIC cells keep. Raises F1Error INVALID_ARGUMENT for other arrays,
    for values that have more digits, and for column ids that no row has; OUT_OF_RANGE as :func:`encode_row`.
    """
    if not 0 <= column <= MAX_COLUMN_ID:
        raise F1Error(Code.INVALID_ARGUMENT, f"a column id is a number from 0 to {MAX_COLUMN_ID}, not {column}")
    tag = _encode(column)
    kind = array.type
    if pa.types.is_decimal128(kind):
        return _each(units_of(array, scale), lambda units: tag + _numeric(units, scale))
    if pa.types.is_date32(kind):
        days = array.cast(pa.int32())
        _check_bounds(days, DATE_MIN, DATE_MAX, "a date in days")
        return [b"" if value is None else tag + _date(value) for value in days.to_pylist()]
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        moments = array.cast(pa.int64())
        _check_bounds(moments, TIMESTAMP_MIN, TIMESTAMP_MAX, "a timestamp in microseconds")
        return _each(moments.to_pylist(), lambda value: tag + _timestamp(value))
    if kind in _PLAIN:
        if array.null_count:
            return [b"" if value is None else tag + _encode(value) for value in array.to_pylist()]
        return [tag + _encode(value) for value in array.to_pylist()]
    raise F1Error(Code.INVALID_ARGUMENT, f"no column is stored from an Arrow array of {kind}")


def join_rows(columns: Sequence[Sequence[bytes]], rows: int) -> list[bytes]:
    """Return ``rows`` encoded rows from the pieces of all their columns, in ascending order of the column ids."""
    if not columns:
        return [_head(0)] * rows
    heads = {count: _head(count) for count in range(len(columns) + 1)}
    whole = len(columns)
    return [heads[whole - row.count(b"")] + b"".join(row) for row in zip(*columns, strict=True)]


def rows_of_cells(column: int, cells: Sequence[bytes]) -> list[bytes]:
    """Return encoded rows of one cell of bytes each."""
    start = _head(1) + _encode(column)
    return [start + _encode(cell) for cell in cells]


def units_of(array: pa.Array, scale: int) -> list[int | None]:
    """Return decimals as integers, in units of ``10**-scale``.

    Raises INVALID_ARGUMENT if one has more digits after the point, OUT_OF_RANGE if it has more than 38 in all.
    """
    try:
        exact = array.cast(pa.decimal128(38, scale))
    except pa.ArrowInvalid as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"a NUMERIC has more than {scale} digits after the point") from error
    # A buffer may be longer than its values.
    data = memoryview(exact.buffers()[1])[_DECIMAL * exact.offset : _DECIMAL * (exact.offset + len(exact))]
    words = data.cast("q")
    low, high = words[::2].tolist(), words[1::2].tolist()
    # Two words in two's complement, the lower one first: where the upper one is only its sign, the lower one is all.
    units: list[int | None] = [
        one if two == one >> 63 else (two << 64) | (one & 0xFFFF_FFFF_FFFF_FFFF)
        for one, two in zip(low, high, strict=True)
    ]
    if exact.null_count:
        units = [one if valid else None for one, valid in zip(units, exact.is_valid().to_pylist(), strict=True)]
    # Arrow takes the least number of 128 bits for one of 38 digits.
    if -(1 << 127) in units:
        raise F1Error(Code.OUT_OF_RANGE, "a NUMERIC has at most 38 digits")
    return units


def _each(values: Iterable[Any], piece: Callable[[Any], bytes]) -> list[bytes]:
    """Make a piece of each value, and only once where values are equal."""
    made: dict[Any, bytes] = {None: b""}
    pieces = []
    for value in values:
        found = made.get(value)
        if found is None:
            found = made[value] = piece(value)
        pieces.append(found)
    return pieces


def _numeric(units: int, scale: int) -> bytes:
    digits = units.to_bytes(units.bit_length() // 8 + 1, "big", signed=True)
    return _encode(Ext(EXT_NUMERIC, bytes((scale,)) + digits))


@lru_cache(_KEPT_DATES)
def _date(days: int) -> bytes:
    return _encode(Ext(EXT_DATE, days.to_bytes(4, "big", signed=True)))


def _timestamp(us: int) -> bytes:
    return _encode(Ext(EXT_TIMESTAMP, us.to_bytes(COMMIT_TS_WIDTH, "big", signed=True)))


def _check_bounds(numbers: pa.Array, least: int, most: int, what: str) -> None:
    found = [value for value in numbers.to_pylist() if value is not None]
    if found and not least <= min(found) <= max(found) <= most:
        raise F1Error(Code.OUT_OF_RANGE, f"{what} lies between {least} and {most}")


def _head(cells: int) -> bytes:
    """Return how msgpack begins a map of so many entries."""
    if cells < _FIX_MAP:
        return bytes((0x80 | cells,))
    return b"\xde" + cells.to_bytes(2, "big") if cells <= 0xFFFF else b"\xdf" + cells.to_bytes(4, "big")


_PLAIN = frozenset({pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary()})
