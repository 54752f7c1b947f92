"""The order-preserving tuple codec: every key of the storage tier is an encoded tuple.

Purpose
    A row's key is its path in the hierarchy: root table id, root key, child table id, child key, and so on. Keys are
    compared as bytes by LMDB, by the range map and by the lock table, so the order of the bytes must be the order of
    the values, and a parent's key must be a prefix of its children's, which makes one range read return a hierarchy
    in pre-order (F1, section 3.1).

Why the naive way fails
    Joining elements with a separator confuses ``("a|b",)`` with ``("a", "b")``. Length prefixes sort by length. Fixed
    width numbers waste most of the 511 bytes that LMDB allows. Text of a number sorts 10 before 9.

Invariants, each held by a property test
    1. ``encode(a) < encode(b)`` if and only if ``a < b``: element by element, and a tuple before its extensions.
       Between elements: NULL, FALSE, TRUE, INT64, DOUBLE, NUMERIC, STRING, BYTES, DATE, TIMESTAMP.
    2. ``encode(a + b) == encode(a) + encode(b)``.
    3. No element's encoding is a prefix of another element's (it delimits itself), so ``encode(a)`` is a prefix of
       ``encode(b)`` if and only if ``a`` is one of ``b``.
    4. No element starts with 0x00 or 0xFF, NULL included. The version suffix of the storage tier starts with 0x00, so
       that the versions of a row sort before its children; ``prefix + 0xFF`` ends the range of all extensions.
    5. Equal values have equal bytes, and each value has one encoding only: decode refuses all others. Equality is that
       of SQL: -0.0 is 0.0, NaN is itself and the greatest double, 1.50 is 1.5, text is compared by code point.

Format
    ``docs/encoding.md`` has the table of tags and examples, which run as tests. An element is a tag and a payload:

    * INT64: 0 to 127 is one byte; otherwise the tag tells sign and number of bytes, big-endian without leading zero
      bytes, negative numbers as ones' complement.
    * DOUBLE: 8 bytes of IEEE 754, the sign bit inverted for positive numbers and all bits for negative ones.
    * NUMERIC: like INT64, up to 16 bytes, in units of 10**-9.
    * STRING (UTF-8) and BYTES: 0x00 becomes 01 02, 0x01 becomes 01 03, and 0x00 ends it. The terminator is the lowest
      byte, so "a" sorts before "a" followed by anything, and is one byte long. After the escape, 0x01 stands for
      nothing but itself, so both directions are plain replacements.
    * DATE: 4 bytes, TIMESTAMP: 8 bytes, big-endian with the sign bit inverted. A timestamp has a fixed width, so that a
      commit timestamp can be filled into a key whose length and prefix were fixed, and locked, before.

Left out
    Descending elements (local indexes are read backwards), collations other than binary, nested tuples.

References
    F1: A Distributed SQL Database That Scales, section 3.1; Spanner, section 2.3 (directories); the tuple layer of
    FoundationDB for the idea of variable-length integers whose tag carries sign and length.
"""

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from types import NoneType

from f1common.encoding.values import (
    DATE_MAX,
    DATE_MIN,
    INT64_MAX,
    INT64_MIN,
    NUMERIC_LIMIT,
    TIMESTAMP_MAX,
    TIMESTAMP_MIN,
    Date,
    Timestamp,
    numeric_from_units,
    numeric_units,
)
from f1common.errors import Code, F1Error

__all__ = [
    "ELEMENT_BYTES",
    "TIMESTAMP_WIDTH",
    "Date",
    "Timestamp",
    "Value",
    "decode",
    "decode_prefix",
    "encode",
    "fill_timestamp",
    "split",
    "successor",
    "timestamp_placeholder",
]

Value = None | bool | int | float | Decimal | str | bytes | Date | Timestamp
"""An element of a tuple."""

_NULL = 0x02
_FALSE = 0x04
_TRUE = 0x05
_INT_NEGATIVE = 0x18  # less the number of bytes, 1 to 8
_INT_SMALL = 0x18  # plus the number, 0 to 127
_SMALL_COUNT = 128
_INT_POSITIVE = 0x97  # plus the number of bytes, 1 to 8
_DOUBLE = 0xA8
_NUMERIC_ZERO = 0xC0  # less or plus the number of bytes, 1 to 16
_STRING = 0xD8
_BYTES = 0xDA
_DATE = 0xDC
_TIMESTAMP = 0xDE
_END = 0xFF

TIMESTAMP_WIDTH = 9
"""Bytes of an encoded TIMESTAMP element, its tag included."""

_SIGN = 1 << 63
_SIGN32 = 1 << 31
_ALL_ONES = (1 << 64) - 1
_NAN_BITS = 0x7FF8_0000_0000_0000
_PLACEHOLDER = bytes([_TIMESTAMP]) + b"\xff" * 8

_MASKS = [(1 << (8 * n)) - 1 for n in range(17)]
_TAG_BYTES = [bytes([tag]) for tag in range(256)]
_SMALL_INTS = [bytes([_INT_SMALL + n]) for n in range(_SMALL_COUNT)]
_pack_double = struct.Struct(">d").pack
_unpack_double = struct.Struct(">d").unpack


def encode(values: Sequence[Value]) -> bytes:
    """Encode a tuple.

    Raises F1Error INVALID_ARGUMENT for a value of another type or text that is no Unicode, OUT_OF_RANGE for a value
    that its type cannot hold.
    """
    encoders = _ENCODERS
    try:
        return b"".join([encoders[type(value)](value) for value in values])
    except KeyError:
        return b"".join([_encoder_of(value)(value) for value in values])


def decode(data: bytes) -> tuple[Value, ...]:
    """Decode a whole tuple. Raises F1Error DATA_CORRUPTION for anything that :func:`encode` does not write."""
    values: list[Value] = []
    append = values.append
    decoders = _DECODERS
    position = 0
    end = len(data)
    while position < end:
        tag = data[position]
        if 0x18 <= tag < 0x98:
            append(tag - 0x18)
            position += 1
        else:
            value, position = decoders[tag](data, position)
            append(value)
    return tuple(values)


def decode_prefix(data: bytes, n: int) -> tuple[tuple[Value, ...], int]:
    """Decode the first ``n`` elements and return them with the number of bytes that they occupy; the rest is not read.

    Raises F1Error DATA_CORRUPTION if fewer elements, or malformed ones, are there.
    """
    values: list[Value] = []
    position = 0
    for _ in range(n):
        if position >= len(data):
            raise _corrupt(data, position, f"{n} elements expected, {len(values)} found")
        value, position = _DECODERS[data[position]](data, position)
        values.append(value)
    return tuple(values), position


def split(data: bytes) -> list[bytes]:
    """Cut an encoded tuple into its elements, each as it is encoded; joined again, some of them are a tuple, too.

    They are not decoded: nothing is said about whether :func:`encode` writes such elements. Raises F1Error
    DATA_CORRUPTION if the last one is cut off.
    """
    found: list[bytes] = []
    position, end = 0, len(data)
    while position < end:
        size = ELEMENT_BYTES[data[position]]
        after = position + size if size else data.find(b"\x00", position) + 1 or end + 1
        found.append(data[position:after])
        position = after
    if position > end:
        raise _corrupt(data, end, "the last element is cut off")
    return found


def successor(prefix: bytes) -> bytes:
    """Return the exclusive end of the range of ``prefix`` and all its extensions, versions included."""
    return prefix + b"\xff"


def timestamp_placeholder() -> bytes:
    """Return the element that stands for a commit timestamp until :func:`fill_timestamp` replaces it.

    It sorts after every timestamp and decode refuses it: a key that was not filled in cannot be taken for a row's.
    """
    return _PLACEHOLDER


def fill_timestamp(key: bytes, offset: int, ts: int) -> bytes:
    """Return ``key`` with the placeholder element at ``offset`` replaced by the timestamp ``ts``, in microseconds.

    Raises F1Error INVALID_ARGUMENT if no placeholder is there, OUT_OF_RANGE for an impossible timestamp.
    """
    if key[offset : offset + TIMESTAMP_WIDTH] != _PLACEHOLDER or offset < 0:
        raise F1Error(Code.INVALID_ARGUMENT, f"no timestamp placeholder at offset {offset} of key {key.hex()}")
    return key[:offset] + _encode_timestamp(Timestamp(ts)) + key[offset + TIMESTAMP_WIDTH :]


# Encoders, one per type. They take Any because the table below fixes which type each of them gets.


def _encode_null(_: object) -> bytes:
    return b"\x02"


def _encode_bool(value: bool) -> bytes:
    return b"\x05" if value else b"\x04"


def _encode_int(value: int) -> bytes:
    if 0 <= value < _SMALL_COUNT:
        return _SMALL_INTS[value]
    if not INT64_MIN <= value <= INT64_MAX:
        raise F1Error(Code.OUT_OF_RANGE, f"INT64 holds {INT64_MIN} to {INT64_MAX}, not {_shorten(value)}")
    size = (value.bit_length() + 7) >> 3  # bit_length ignores the sign
    if value > 0:
        return _TAG_BYTES[_INT_POSITIVE + size] + value.to_bytes(size, "big")
    return _TAG_BYTES[_INT_NEGATIVE - size] + (value + _MASKS[size]).to_bytes(size, "big")


def _encode_float(value: float) -> bytes:
    if value > 0.0:
        bits = int.from_bytes(_pack_double(value), "big") | _SIGN
    elif value < 0.0:
        bits = int.from_bytes(_pack_double(value), "big") ^ _ALL_ONES
    elif value == 0.0:
        bits = _SIGN
    else:
        bits = _NAN_BITS | _SIGN
    return b"\xa8" + bits.to_bytes(8, "big")


def _encode_decimal(value: Decimal) -> bytes:
    units = numeric_units(value)
    size = (units.bit_length() + 7) >> 3
    if units >= 0:
        return _TAG_BYTES[_NUMERIC_ZERO + size] + units.to_bytes(size, "big")
    return _TAG_BYTES[_NUMERIC_ZERO - size] + (units + _MASKS[size]).to_bytes(size, "big")


def _encode_str(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"text is no valid Unicode: {error}") from error
    return b"\xd8" + _escape(data) + b"\x00"


def _encode_bytes(value: bytes) -> bytes:
    return b"\xda" + _escape(value) + b"\x00"


def _escape(data: bytes) -> bytes:
    if b"\x01" in data:
        data = data.replace(b"\x01", b"\x01\x03")
    if b"\x00" in data:
        data = data.replace(b"\x00", b"\x01\x02")
    return data


def _encode_date(value: Date) -> bytes:
    if not DATE_MIN <= value.days <= DATE_MAX:
        raise F1Error(Code.OUT_OF_RANGE, f"a date has {DATE_MIN} to {DATE_MAX} days, not {_shorten(value.days)}")
    return b"\xdc" + (value.days + _SIGN32).to_bytes(4, "big")


def _encode_timestamp(value: Timestamp) -> bytes:
    if not TIMESTAMP_MIN <= value.us <= TIMESTAMP_MAX:
        raise F1Error(
            Code.OUT_OF_RANGE,
            f"a timestamp has {TIMESTAMP_MIN} to {TIMESTAMP_MAX} microseconds, not {_shorten(value.us)}",
        )
    return b"\xde" + (value.us + _SIGN).to_bytes(8, "big")


def _encoder_of(value: object) -> Callable[..., bytes]:
    """Find the encoder for an instance of a subclass (an enum, say) of a type that has one."""
    for kind in type(value).__mro__:
        if (encoder := _ENCODERS.get(kind)) is not None:
            return encoder
    raise F1Error(Code.INVALID_ARGUMENT, f"a key holds no {type(value).__name__}")


_ENCODERS: dict[type, Callable[..., bytes]] = {
    NoneType: _encode_null,
    bool: _encode_bool,
    int: _encode_int,
    float: _encode_float,
    Decimal: _encode_decimal,
    str: _encode_str,
    bytes: _encode_bytes,
    Date: _encode_date,
    Timestamp: _encode_timestamp,
}


# Decoders, one per tag: the element of ``data`` at ``position`` and the position after it.

_Decoder = Callable[[bytes, int], tuple[Value, int]]


def _decode_unassigned(data: bytes, position: int) -> tuple[Value, int]:
    raise _corrupt(data, position, f"no element starts with 0x{data[position]:02x}")


def _decode_constant(value: Value) -> _Decoder:
    def decode_constant(_: bytes, position: int) -> tuple[Value, int]:
        return value, position + 1

    return decode_constant


def _payload(data: bytes, position: int, size: int) -> tuple[int, int]:
    """Return the ``size`` bytes after the tag as an unsigned number, and the position after them."""
    end = position + 1 + size
    if end > len(data):
        raise _corrupt(data, position, "the last element is cut off")
    return int.from_bytes(data[position + 1 : end], "big"), end


def _decode_positive_int(size: int) -> _Decoder:
    lowest = max(_SMALL_COUNT, _MASKS[size - 1] + 1)

    def decode_positive_int(data: bytes, position: int) -> tuple[Value, int]:
        value, end = _payload(data, position, size)
        if not lowest <= value <= INT64_MAX:
            raise _corrupt(data, position, "the integer is not in its shortest form or no INT64")
        return value, end

    return decode_positive_int


def _decode_negative_int(size: int) -> _Decoder:
    highest = -(_MASKS[size - 1] + 1) if size > 1 else -1

    def decode_negative_int(data: bytes, position: int) -> tuple[Value, int]:
        payload, end = _payload(data, position, size)
        value = payload - _MASKS[size]
        if not INT64_MIN <= value <= highest:
            raise _corrupt(data, position, "the integer is not in its shortest form or no INT64")
        return value, end

    return decode_negative_int


def _decode_numeric(size: int, sign: int) -> _Decoder:
    lowest = _MASKS[size - 1] + 1 if size > 1 else 1

    def decode_numeric(data: bytes, position: int) -> tuple[Value, int]:
        payload, end = _payload(data, position, size)
        magnitude = payload if sign > 0 else _MASKS[size] - payload
        if not lowest <= magnitude < NUMERIC_LIMIT:
            raise _corrupt(data, position, "the number is not in its shortest form or no NUMERIC(38,9)")
        return numeric_from_units(sign * magnitude), end

    return decode_numeric


def _decode_double(data: bytes, position: int) -> tuple[Value, int]:
    payload, end = _payload(data, position, 8)
    bits = payload ^ _SIGN if payload & _SIGN else payload ^ _ALL_ONES
    value: float = _unpack_double(bits.to_bytes(8, "big"))[0]
    if (value != value and bits != _NAN_BITS) or bits == _SIGN:
        raise _corrupt(data, position, "a negative zero or a NaN that is not the canonical one")
    return value, end


def _unescape(data: bytes, position: int) -> tuple[bytes, int]:
    end = data.find(0, position + 1)
    if end < 0:
        raise _corrupt(data, position, "the terminator is missing")
    content = data[position + 1 : end]
    if escapes := content.count(1):
        if content.count(b"\x01\x02") + content.count(b"\x01\x03") != escapes:
            raise _corrupt(data, position, "0x01 is followed by neither 0x02 nor 0x03")
        content = content.replace(b"\x01\x02", b"\x00").replace(b"\x01\x03", b"\x01")
    return content, end + 1


def _decode_str(data: bytes, position: int) -> tuple[Value, int]:
    content, end = _unescape(data, position)
    try:
        return content.decode(), end
    except UnicodeDecodeError as error:
        raise _corrupt(data, position, f"the text is no UTF-8 ({error.reason})") from error


def _decode_bytes(data: bytes, position: int) -> tuple[Value, int]:
    return _unescape(data, position)


def _decode_date(data: bytes, position: int) -> tuple[Value, int]:
    payload, end = _payload(data, position, 4)
    return Date(payload - _SIGN32), end


def _decode_timestamp(data: bytes, position: int) -> tuple[Value, int]:
    payload, end = _payload(data, position, 8)
    if payload == _ALL_ONES:
        raise _corrupt(data, position, "a placeholder for a commit timestamp was never filled in")
    return Timestamp(payload - _SIGN), end


def _corrupt(data: bytes, position: int, reason: str) -> F1Error:
    shown = data[:64].hex() + ("..." if len(data) > 64 else "")
    return F1Error(Code.DATA_CORRUPTION, f"no encoded tuple: {reason} (at byte {position} of {shown})")


def _shorten(number: int) -> str:
    # Python refuses to print integers of more than some thousand digits.
    return str(number) if number.bit_length() < 256 else f"a number of {number.bit_length()} bits"


def _decoder_table() -> list[_Decoder]:
    table: list[_Decoder] = [_decode_unassigned] * 256
    table[_NULL] = _decode_constant(None)
    table[_FALSE] = _decode_constant(False)
    table[_TRUE] = _decode_constant(True)
    for number in range(_SMALL_COUNT):
        table[_INT_SMALL + number] = _decode_constant(number)
    for size in range(1, 9):
        table[_INT_POSITIVE + size] = _decode_positive_int(size)
        table[_INT_NEGATIVE - size] = _decode_negative_int(size)
    table[_DOUBLE] = _decode_double
    table[_NUMERIC_ZERO] = _decode_constant(Decimal(0))
    for size in range(1, 17):
        table[_NUMERIC_ZERO + size] = _decode_numeric(size, 1)
        table[_NUMERIC_ZERO - size] = _decode_numeric(size, -1)
    table[_STRING] = _decode_str
    table[_BYTES] = _decode_bytes
    table[_DATE] = _decode_date
    table[_TIMESTAMP] = _decode_timestamp
    return table


_DECODERS = _decoder_table()


def _element_bytes() -> tuple[int, ...]:
    table = [0] * 256
    for tag in (_NULL, _FALSE, _TRUE, *range(_INT_SMALL, _INT_SMALL + _SMALL_COUNT)):
        table[tag] = 1
    for size in range(1, 9):
        table[_INT_POSITIVE + size] = table[_INT_NEGATIVE - size] = 1 + size
    for size in range(17):
        table[_NUMERIC_ZERO + size] = table[_NUMERIC_ZERO - size] = 1 + size
    table[_DOUBLE] = table[_TIMESTAMP] = 9
    table[_DATE] = 5
    return tuple(table)


ELEMENT_BYTES = _element_bytes()
"""Bytes of an element by its tag, the tag included; 0 for STRING and BYTES, which end at the first 0x00, and for what
is no tag. For walking over keys that were encoded here without decoding them."""
