"""Columns of NUMERIC, DATE and TIMESTAMP from cells as they are stored, many at a time.

A scan that sums a column up spent more on its numbers, one after the other, than on anything else about a row: here
numpy takes the same byte of all of them at once. What is not plain goes the slow way, cell by cell: numbers that do not
fit in 64 bits in units of 10**-9, cells of another type than their column's, and what is damaged.
"""

from collections.abc import Sequence
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.msgpack import Ext

from f1common.encoding.row import EXT_DATE, EXT_NUMERIC, EXT_TIMESTAMP, StoredCell
from f1common.encoding.values import NUMERIC_SCALE
from spanstore.scan.arrow import ARROW_TYPES
from spanstore.scan.plan import ColumnType

__all__ = ["numerics", "stored_dates", "stored_numerics", "stored_timestamps"]

_BYTES: Final = 16
_NONE: Final = bytes(_BYTES)
_MOST_BYTES: Final = 1 + 8
"""A byte of scale and the digits."""
_ABSENT_NUMERIC: Final = b"\x00\x00"
"""A zero."""
_UNFILLED: Final = 2**63 - 1
"""No timestamp: the place of one that was never filled in."""
_POWERS: Final = np.array([10 ** (NUMERIC_SCALE - scale) for scale in range(NUMERIC_SCALE + 1)], np.int64)
_LIMITS: Final = (2**63 - 1) // _POWERS


def numerics(units: Sequence[int | None]) -> Any:
    """Return the NUMERIC array of numbers given in units of 10**-9."""
    data = b"".join([_NONE if unit is None else unit.to_bytes(_BYTES, "little", signed=True) for unit in units])
    valid = [unit is not None for unit in units] if None in units else None
    return _array(ARROW_TYPES[ColumnType.NUMERIC], len(units), data, valid)


def stored_numerics(cells: Sequence[StoredCell]) -> Any:
    """Return the NUMERIC array of stored cells, None if each has to be looked at: of large numbers, or damage."""
    found = _payloads(cells, EXT_NUMERIC, _ABSENT_NUMERIC)
    if found is None:
        return None
    data, valid = found
    lengths = np.fromiter(map(len, data), np.int64, len(data))
    if lengths.min() < len(_ABSENT_NUMERIC) or lengths.max() > _MOST_BYTES:
        return None
    units = _units(np.frombuffer(b"".join(data), np.uint8), lengths)
    if units is None:
        return None
    words = np.empty((len(data), 2), np.int64)
    words[:, 0] = units
    words[:, 1] = units >> 63
    return _array(ARROW_TYPES[ColumnType.NUMERIC], len(data), words, valid)


def stored_dates(cells: Sequence[StoredCell]) -> Any:
    """Return the DATE array of stored cells, None if it takes a look at each."""
    return _fixed(cells, EXT_DATE, ARROW_TYPES[ColumnType.DATE], ">i4")


def stored_timestamps(cells: Sequence[StoredCell]) -> Any:
    """Return the TIMESTAMP array of stored cells, None if it takes a look at each: some mean their version's."""
    return _fixed(cells, EXT_TIMESTAMP, ARROW_TYPES[ColumnType.TIMESTAMP], ">i8")


def _payloads(cells: Sequence[StoredCell], code: int, absent: bytes) -> tuple[list[Any], list[bool] | None] | None:
    """Return the payloads of extensions of one kind, ``absent`` for NULL, and which are there if not all are."""
    kinds = set(map(type, cells))
    if kinds == {Ext}:
        data = [cell.data for cell in cells if cell.code == code]  # type: ignore[union-attr]
        return (data, None) if len(data) == len(cells) else None
    if kinds == {Ext, NoneType}:
        codes = {cell.code for cell in cells if cell is not None}  # type: ignore[union-attr]
        data = [absent if cell is None else cell.data for cell in cells]  # type: ignore[union-attr]
        return (data, [cell is not None for cell in cells]) if codes == {code} else None
    return None


def _fixed(cells: Sequence[StoredCell], code: int, kind: Any, dtype: str) -> Any:
    """Return the array of integers of one size, big-endian as they are stored."""
    size = np.dtype(dtype).itemsize
    found = _payloads(cells, code, bytes(size))
    if found is None:
        return None
    data, valid = found
    if set(map(len, data)) != {size}:
        return None
    numbers = np.frombuffer(b"".join(data), dtype)
    if numbers.max() == _UNFILLED:
        return None
    return _array(kind, len(data), np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("="))), valid)


def _units(stored: Any, lengths: Any) -> Any:
    """Return what payloads, one after the other in ``stored``, say in units of 10**-9; None if 64 bits are too few."""
    ends = lengths.cumsum()
    begins = ends - lengths
    scales = stored[begins]
    if scales.max() > NUMERIC_SCALE:
        return None
    # The highest byte has the sign; the others follow it.
    digits = stored[begins + 1].view(np.int8).astype(np.int64)
    for position in range(2, int(lengths.max())):
        more = lengths > position
        bytes_there = stored[np.minimum(begins + position, ends - 1)]
        digits = np.where(more, digits << 8 | bytes_there, digits)
    if (np.abs(digits) > _LIMITS[scales]).any() or digits.min() == np.iinfo(np.int64).min:
        return None
    return digits * _POWERS[scales]


def _array(kind: Any, count: int, data: Any, valid: list[bool] | None) -> Any:
    """Return an array of values as Arrow lays them out, which has no constructor for decimals from integers."""
    validity = None if valid is None else pa.array(valid, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(data)])
