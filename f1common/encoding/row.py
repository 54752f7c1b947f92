"""Row values: the cells of one row version, tagged by column id.

Purpose
    One value per row version, not one per column: a read fetches a row with one lookup. A cell is tagged by its
    column's id, which is never reused, because servers with two neighbouring versions of the schema read and write the
    same rows (online schema change, section 3): what a writer's schema does not know it must carry over untouched.

Format
    A msgpack map from column id to cell, ids ascending: a flat array of (id, cell) pairs behind a count. Cells of type
    BOOL, INT64, DOUBLE, STRING, BYTES and NULL are msgpack's own; the others are extensions:

    ===== ============= ==================================================================================
    code  cell          payload
    ===== ============= ==================================================================================
    1     THIS_VERSION  none: the lock's timestamp is the commit timestamp of the version that holds it
    2     NUMERIC       one byte of scale (0 to 9), then the digits as a big-endian two's complement integer
    3     DATE          4 bytes, big-endian two's complement days since 1970-01-01
    4     TIMESTAMP     8 bytes, big-endian two's complement microseconds since the Unix epoch
    ===== ============= ==================================================================================

    A value that starts with another byte than a msgpack map's is of a later format. Later types will be extensions too,
    and those are carried over by readers that do not know them.

Invariants
    * ``decode_row(encode_row(cells)) == cells``, with the originals: -0.0, NaN and the scale of decimals are kept
      (keys canonicalise them, cells do not). A zero NUMERIC has no sign.
    * The same cells have the same bytes, so replicas can compare digests.
    * A place for the commit timestamp has a fixed width and its offset is known, so that the leader fills it in after
      it has chosen the timestamp, without decoding the row or knowing the schema.
    * THIS_VERSION is recognisable without the schema: who copies a row into another version pins it to the old
      version's timestamp first (:func:`pin_this_version`), or the lock would seem to have been taken anew.

Left out
    Checksums and the timestamp of the version: the multi-version layer adds both. Deleted rows have no value.

References
    F1: A Distributed SQL Database That Scales, sections 3.1 (physical storage) and 5.2 (lock columns).
"""

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Annotated, Any

import msgspec
from msgspec import Raw
from msgspec.msgpack import Ext

from f1common.encoding.values import (
    DATE_MAX,
    DATE_MIN,
    INT64_MAX,
    INT64_MIN,
    NUMERIC_LIMIT,
    NUMERIC_SCALE,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    Date,
    Timestamp,
    numeric_units,
)
from f1common.errors import Code, F1Error

__all__ = [
    "COMMIT_TS",
    "COMMIT_TS_WIDTH",
    "MAX_COLUMN_ID",
    "THIS_VERSION",
    "Cell",
    "Date",
    "Marker",
    "StoredCell",
    "Timestamp",
    "decode_row",
    "decode_stored",
    "encode_row",
    "encode_row_with_placeholders",
    "fill_commit_ts",
    "patch_row",
    "patch_row_with_placeholders",
    "pin_this_version",
    "read_cell",
    "stored_days",
    "stored_units",
    "stored_us",
]


class Marker(Enum):
    """Cells that stand for a timestamp which is not written down."""

    THIS_VERSION = "this version's"
    COMMIT_TS = "the commit timestamp"


THIS_VERSION = Marker.THIS_VERSION
"""A lock cell that means the commit timestamp of the version that holds it."""
COMMIT_TS = Marker.COMMIT_TS
"""A cell to be filled with the commit timestamp before it is stored; becomes a :class:`Timestamp`."""

Cell = None | bool | int | float | Decimal | str | bytes | Date | Timestamp | Marker | Ext
"""The value of one column. An ``Ext`` is one of a type that a later version of this software wrote."""

COMMIT_TS_WIDTH = 8
"""Bytes at each reported offset: a big-endian two's complement integer."""
MAX_COLUMN_ID = (1 << 31) - 1

_EXT_THIS_VERSION = 1
EXT_NUMERIC = 2
EXT_DATE = 3
EXT_TIMESTAMP = 4

_POWERS_OF_TEN: list[int] = [10**exponent for exponent in range(NUMERIC_SCALE + 1)]
_UNFILLED = b"\x7f" + b"\xff" * 7
_COMMIT_TS_CELL = b"\xd7\x04" + _UNFILLED
_THIS_VERSION_EXT = Ext(_EXT_THIS_VERSION, b"")

_encode = msgspec.msgpack.Encoder().encode


def encode_row(cells: Mapping[int, Cell]) -> bytes:
    """Encode the cells of a row by column id.

    Raises F1Error INVALID_ARGUMENT for a column id or a type that a row cannot hold (COMMIT_TS included, see
    :func:`encode_row_with_placeholders`), OUT_OF_RANGE for a value that its type cannot hold.
    """
    wire = _to_wire(cells)
    if any(cell is COMMIT_TS for cell in wire.values()):
        raise F1Error(Code.INVALID_ARGUMENT, "a row with a commit timestamp to fill in needs its offsets reported")
    return _encode(wire)


def encode_row_with_placeholders(cells: Mapping[int, Cell]) -> tuple[bytes, tuple[int, ...]]:
    """Encode a row and return also the offsets, ascending, of the commit timestamps to fill in. Errors as above."""
    return _encode_pieces(_to_wire(cells))


def decode_row(data: bytes) -> dict[int, Cell]:
    """Decode a row. Raises F1Error DATA_CORRUPTION for bytes that are no row, or one that was not filled in."""
    try:
        cells: dict[int, Cell] = _decode_cells(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise _corrupt(data, str(error)) from error
    if not _CELL_TYPES.issuperset(map(type, cells.values())):
        raise _corrupt(data, "a cell has a type that no column has")
    return cells


StoredCell = None | bool | int | float | str | bytes | Ext
"""A cell as :func:`decode_stored` leaves it: cells that msgpack has no type for are still extensions."""


def decode_stored(values: Sequence[bytes], *, whole: bool = True) -> list[dict[int, StoredCell]]:
    """Decode rows for somebody who looks at few of their cells: extensions are left as they are stored.

    Read those with :func:`read_cell`, or many of one type with :func:`stored_units`, :func:`stored_days` and
    :func:`stored_us`. Raises F1Error DATA_CORRUPTION as :func:`decode_row`, but for what is inside of extensions, and
    unless ``whole`` for ids that no column has and cells of types that no column has: whoever asks for a cell has to
    look at its type.
    """
    decode = _decode_stored if whole else _decode_some
    try:
        rows: list[dict[int, StoredCell]] = [decode(value) for value in values]
    except (msgspec.MsgspecError, RecursionError, ValueError):
        for value in values:
            decode_row(value)  # says which row it was, and what is wrong with it
        raise
    for row, value in zip(rows, values, strict=True) if whole else ():
        if not _STORED_TYPES.issuperset(map(type, row.values())):
            raise _corrupt(value, "a cell has a type that no column has")
    return rows


def read_cell(cell: StoredCell) -> Cell:
    """Return the cell that is stored as ``cell``. Raises F1Error DATA_CORRUPTION."""
    if type(cell) is not Ext:
        return cell
    try:
        found: Cell = _decode_extension(cell.code, memoryview(cell.data))  # type: ignore[assignment]
        return found
    except ValueError as error:
        raise _corrupt(bytes(cell.data), str(error)) from error


def stored_units(cell: StoredCell) -> int | None:
    """Return a NUMERIC cell in units of 10**-9, None for NULL. Raises ValueError for another type, or damage."""
    if cell is None:
        return None
    if type(cell) is not Ext or cell.code != EXT_NUMERIC:
        raise ValueError("no NUMERIC")
    data = bytes(cell.data)
    scale = data[0] if len(data) > 1 else NUMERIC_SCALE + 1
    if scale > NUMERIC_SCALE:
        raise ValueError("no NUMERIC(38,9)")
    units: int = int.from_bytes(data[1:], "big", signed=True) * _POWERS_OF_TEN[NUMERIC_SCALE - scale]
    if abs(units) >= NUMERIC_LIMIT:
        raise ValueError("no NUMERIC(38,9)")
    return units


def stored_days(cell: StoredCell) -> int | None:
    """Return a DATE cell in days since 1970-01-01, None for NULL. Raises ValueError as :func:`stored_units`."""
    if cell is None:
        return None
    if type(cell) is not Ext or cell.code != EXT_DATE or len(data := bytes(cell.data)) != 4:
        raise ValueError("no DATE")
    return int.from_bytes(data, "big", signed=True)


def stored_us(cell: StoredCell, version_ts: int) -> int | None:
    """Return a TIMESTAMP cell in microseconds since the epoch, None for NULL; "this version's" is ``version_ts``.

    Raises ValueError as :func:`stored_units`.
    """
    if cell is None:
        return None
    if type(cell) is Ext:
        data = bytes(cell.data)
        if cell.code == EXT_TIMESTAMP and len(data) == COMMIT_TS_WIDTH and data != _UNFILLED:
            return int.from_bytes(data, "big", signed=True)
        if cell.code == _EXT_THIS_VERSION and not data:
            return version_ts
    raise ValueError("no TIMESTAMP")


def patch_row(data: bytes, changes: Mapping[int, Cell], drop: Collection[int] = ()) -> bytes:
    """Return the row ``data`` with the cells of ``changes`` replaced or added and those of ``drop`` removed.

    The other cells, unknown ones included, are copied byte by byte, undecoded. Errors as for :func:`encode_row` and
    :func:`decode_row`.
    """
    wire = _patched(data, changes, drop)
    if any(cell is COMMIT_TS for cell in wire.values()):
        raise F1Error(Code.INVALID_ARGUMENT, "a row with a commit timestamp to fill in needs its offsets reported")
    return _encode(wire)


def patch_row_with_placeholders(
    data: bytes, changes: Mapping[int, Cell], drop: Collection[int] = ()
) -> tuple[bytes, tuple[int, ...]]:
    """Do what :func:`patch_row` does, and return also the offsets of the commit timestamps to fill in."""
    return _encode_pieces(_patched(data, changes, drop))


def fill_commit_ts(data: bytes, offsets: Collection[int], ts: int) -> bytes:
    """Return ``data`` with the timestamp ``ts``, in microseconds, at each of the ``offsets`` that were reported for it.

    Raises F1Error INVALID_ARGUMENT if no unfilled place is at an offset, OUT_OF_RANGE for an impossible timestamp.
    """
    filled = bytearray(data)
    payload = _encode_timestamp(ts)
    for offset in offsets:
        if offset < 0 or filled[offset : offset + COMMIT_TS_WIDTH] != _UNFILLED:
            raise F1Error(Code.INVALID_ARGUMENT, f"no commit timestamp to fill in at offset {offset} of the row")
        filled[offset : offset + COMMIT_TS_WIDTH] = payload
    return bytes(filled)


def pin_this_version(cells: Mapping[int, Cell], version_ts: int) -> dict[int, Cell]:
    """Return the cells of the version committed at ``version_ts`` as they must be carried over into another version."""
    pinned = Timestamp(version_ts)
    return {column: pinned if cell is THIS_VERSION else cell for column, cell in cells.items()}


# To msgpack: cells that are not msgpack's own become extensions.


def _to_wire(cells: Mapping[int, Any]) -> dict[int, Any]:
    wire: dict[int, Any] = {}
    for column in sorted(cells):
        if not 0 <= column <= MAX_COLUMN_ID:
            raise F1Error(Code.INVALID_ARGUMENT, f"a column id is a number from 0 to {MAX_COLUMN_ID}, not {column}")
        cell = cells[column]
        kind = type(cell)
        if kind in _NATIVE:
            wire[column] = cell
        elif kind is int:
            if not INT64_MIN <= cell <= INT64_MAX:
                raise F1Error(Code.OUT_OF_RANGE, f"INT64 holds {INT64_MIN} to {INT64_MAX} (column {column})")
            wire[column] = cell
        else:
            wire[column] = _extension(column, cell)
    return wire


def _extension(column: int, cell: object) -> object:
    match cell:
        case Marker.THIS_VERSION:
            return _THIS_VERSION_EXT
        case Marker.COMMIT_TS:
            return cell
        case Timestamp():
            return Ext(EXT_TIMESTAMP, _encode_timestamp(cell.us))
        case Date():
            if not DATE_MIN <= cell.days <= DATE_MAX:
                raise F1Error(Code.OUT_OF_RANGE, f"a date has {DATE_MIN} to {DATE_MAX} days (column {column})")
            return Ext(EXT_DATE, cell.days.to_bytes(4, "big", signed=True))
        case Decimal():
            return Ext(EXT_NUMERIC, _encode_numeric(cell))
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, f"column {column}: a row holds no {type(cell).__name__}")


def _encode_timestamp(ts: int) -> bytes:
    if not TIMESTAMP_MIN <= ts <= TIMESTAMP_MAX:
        raise F1Error(Code.OUT_OF_RANGE, f"a timestamp has {TIMESTAMP_MIN} to {TIMESTAMP_MAX} microseconds")
    return ts.to_bytes(8, "big", signed=True)


def _encode_numeric(value: Decimal) -> bytes:
    units = numeric_units(value)
    exponent = value.as_tuple().exponent
    scale = min(max(-exponent, 0), NUMERIC_SCALE) if isinstance(exponent, int) else 0
    digits = units // _POWERS_OF_TEN[NUMERIC_SCALE - scale]
    return bytes([scale]) + digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)


def _encode_pieces(wire: Mapping[int, Any]) -> tuple[bytes, tuple[int, ...]]:
    """Encode cell by cell, because the offsets depend on the lengths of the cells before."""
    count = len(wire)
    if count < 16:
        head = bytes([0x80 | count])
    elif count <= 0xFFFF:
        head = b"\xde" + count.to_bytes(2, "big")
    else:
        head = b"\xdf" + count.to_bytes(4, "big")
    pieces = [head]
    offsets = []
    length = len(head)
    for column, cell in wire.items():
        tag = _encode(column)
        piece = _COMMIT_TS_CELL if cell is COMMIT_TS else _encode(cell)
        pieces += (tag, piece)
        length += len(tag) + len(piece)
        if cell is COMMIT_TS:
            offsets.append(length - COMMIT_TS_WIDTH)
    return b"".join(pieces), tuple(offsets)


def _patched(data: bytes, changes: Mapping[int, Cell], drop: Collection[int]) -> dict[int, Any]:
    try:
        old = _decode_raw(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise _corrupt(data, str(error)) from error
    kept: dict[int, Any] = {column: cell for column, cell in old.items() if column not in drop}
    kept.update(changes)
    return _to_wire(kept)


# From msgpack.


def _decode_extension(code: int, payload: memoryview) -> object:
    data = bytes(payload)
    match code:
        case 4 if len(data) == 8:
            if data == _UNFILLED:
                raise ValueError("a place for the commit timestamp was never filled in")
            return Timestamp(int.from_bytes(data, "big", signed=True))
        case 2 if len(data) >= 2:
            return _decode_numeric(data)
        case 3 if len(data) == 4:
            return Date(int.from_bytes(data, "big", signed=True))
        case 1 if not data:
            return THIS_VERSION
        case 1 | 2 | 3 | 4:
            raise ValueError(f"an extension of type {code} is not {len(data)} bytes long")
        case _:
            return Ext(code, data)


def _decode_numeric(data: bytes) -> Decimal:
    scale = data[0]
    digits = int.from_bytes(data[1:], "big", signed=True)
    if scale > NUMERIC_SCALE or abs(digits) * _POWERS_OF_TEN[NUMERIC_SCALE - scale] >= NUMERIC_LIMIT:
        raise ValueError("no NUMERIC(38,9)")
    # The constructor is exact; arithmetic would round to the precision of the caller's decimal context.
    return Decimal(f"{digits}E-{scale}")


def _corrupt(data: bytes, reason: str) -> F1Error:
    shown = data[:64].hex() + ("..." if len(data) > 64 else "")
    return F1Error(Code.DATA_CORRUPTION, f"no encoded row: {reason} (in {shown})")


_NATIVE = frozenset({NoneType, bool, float, str, bytes, Raw, Ext})
_CELL_TYPES = frozenset({NoneType, bool, int, float, str, bytes, Decimal, Date, Timestamp, Marker, Ext})
_STORED_TYPES = frozenset({NoneType, bool, int, float, str, bytes, Ext})
_ColumnId = Annotated[int, msgspec.Meta(ge=0, le=MAX_COLUMN_ID)]
_decode_stored = msgspec.msgpack.Decoder(dict[_ColumnId, Any]).decode
_decode_some = msgspec.msgpack.Decoder(dict[int, Any]).decode
_decode_cells = msgspec.msgpack.Decoder(dict[_ColumnId, Any], ext_hook=_decode_extension).decode
_decode_raw = msgspec.msgpack.Decoder(dict[_ColumnId, Raw]).decode
