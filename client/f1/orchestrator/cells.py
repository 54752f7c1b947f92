"""Cells: what a transaction reads and writes, and the bytes by which stores and the lock service know them.

A *cell* is one column of one row of one table. Rows are text, bytes, whole numbers, or tuples of those; the rows of a
table are in the order of :mod:`f1common.encoding.tuple`, in which numbers come before text and text before bytes.
Values are whatever msgpack carries: None is no value but a delete.
"""

from typing import Any, NamedTuple

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error

__all__ = [
    "Cell",
    "Row",
    "Value",
    "cell_key",
    "decode_key",
    "decode_value",
    "encode_value",
    "row_prefix",
    "table_prefix",
]

Row = str | bytes | int | tuple[str | bytes | int, ...]
Value = Any
"""Text, bytes, a number, a truth value, or a list or a mapping of those, in which None may stand too.

A tuple is read back as a list.
"""

MAX_NAME = 255
MAX_KEY_BYTES = 400
"""A key and the timestamp of a version fit into the 511 bytes of a key of LMDB, in the storage tier too."""

MAX_VALUE_BYTES = 16 << 20
MAX_DEPTH = 100
_PLAIN = frozenset({str, bytes, bool, int, float})


class Cell(NamedTuple):
    """One column of one row of one table."""

    table: str
    row: Row
    column: str


def check_name(kind: str, name: object) -> str:
    """Return the name of a table or column. Raises F1Error INVALID_ARGUMENT."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        text = f"the name of a {kind} is text of 1 to {MAX_NAME} characters, not {str(name)[:60]!r}"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    return name


def _row_elements(row: Row) -> tuple[str | bytes | int, ...]:
    elements = row if isinstance(row, tuple) else (row,)
    plain = all(isinstance(element, str | bytes | int) and not isinstance(element, bool) for element in elements)
    if not elements or not plain:
        text = f"a row is text, bytes, a whole number or a tuple of those, not {str(row)[:60]!r}"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    return elements


def table_prefix(table: str) -> bytes:
    """Return what the keys of all cells of ``table`` begin with. Raises F1Error INVALID_ARGUMENT."""
    return tuples.encode((check_name("table", table),))


def row_prefix(table: str, row: Row) -> bytes:
    """Return what the keys of all cells of a row begin with: also the name of the row's lock.

    A row that is one element and a tuple of it are different rows. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG.
    """
    elements = _row_elements(row)
    inner: tuple[Any, ...] = (tuples.encode(elements),) if isinstance(row, tuple) else elements
    # The elements of a tuple are packed into one, so that the column cannot be taken for the last of them.
    return tuples.encode((check_name("table", table), isinstance(row, tuple), *inner))


def cell_key(table: str, row: Row, column: str) -> bytes:
    """Return the key of a cell. Raises F1Error INVALID_ARGUMENT, KEY_TOO_LONG."""
    key = row_prefix(table, row) + tuples.encode((check_name("column", column),))
    if len(key) > MAX_KEY_BYTES:
        text = f"the key of a cell of {table[:40]!r} has {len(key)} bytes, more than {MAX_KEY_BYTES}: shorten its parts"
        raise F1Error(Code.KEY_TOO_LONG, text)
    return key


def decode_key(key: bytes) -> Cell:
    """Return the cell of a key. Raises F1Error DATA_CORRUPTION."""
    match tuples.decode(key):
        case (str(table), bool(is_tuple), row, str(column)):
            found: Any = tuples.decode(row) if is_tuple and isinstance(row, bytes) else row
            return Cell(table, found, column)
        case _:
            raise F1Error(Code.DATA_CORRUPTION, f"{key.hex()} is no key of a cell")


def encode_value(value: Value) -> bytes:
    """Return the bytes of a value. Raises F1Error INVALID_ARGUMENT, OUT_OF_RANGE."""
    if value is None:
        raise F1Error(Code.INVALID_ARGUMENT, "None is no value: delete the cell instead")
    _check_value(value)
    try:
        data = msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError) as error:
        text = f"a value of type {type(value).__name__} cannot be stored: {error}"
        raise F1Error(Code.INVALID_ARGUMENT, text) from error
    if len(data) > MAX_VALUE_BYTES:
        raise F1Error(Code.OUT_OF_RANGE, f"a value has up to {MAX_VALUE_BYTES} bytes, not {len(data)}")
    return data


def _check_value(value: object, depth: int = 0) -> None:
    """Raise F1Error INVALID_ARGUMENT for what would be read back as something else, such as a Decimal as text."""
    if depth > MAX_DEPTH:
        raise F1Error(Code.INVALID_ARGUMENT, f"a value is nested up to {MAX_DEPTH} levels deep")
    match value:
        case str() | bytes() | bool() | int() | float() if type(value) in _PLAIN:
            return
        case None if depth:
            return
        case list() | tuple():
            for item in value:
                _check_value(item, depth + 1)
        case dict():
            for name, item in value.items():
                if type(name) not in _PLAIN:
                    raise F1Error(Code.INVALID_ARGUMENT, f"a key of a mapping cannot be a {type(name).__name__}")
                _check_value(item, depth + 1)
        case _:
            text = f"a value is text, bytes, a number, a truth value, a list or a mapping, not a {type(value).__name__}"
            raise F1Error(Code.INVALID_ARGUMENT, f"{text}: convert it")


def decode_value(data: bytes) -> Value:
    """Return the value of bytes. Raises F1Error DATA_CORRUPTION."""
    try:
        return msgspec.msgpack.decode(data)
    except msgspec.MsgspecError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the bytes of a value cannot be read: {error}") from error
