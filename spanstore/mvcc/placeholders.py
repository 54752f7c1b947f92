"""The commit timestamp in keys and values: filled in when it is known, by every replica alike.

A transaction does not know its timestamp while it makes its writes. It leaves 8 bytes for it, and says where:

* in keys, the tuple codec's form of a timestamp after its tag: big-endian with the sign bit flipped, so that byte
  order is order in time (a change history is keyed by root key, timestamp, id);
* in values, msgpack's form of a 64-bit integer after its tag: plain big-endian.
"""

import struct
from collections.abc import Sequence

from f1common.errors import Code, F1Error

TIMESTAMP_BYTES = 8
"""Length of a placeholder."""

_SIGNED = struct.Struct(">q")
_UNSIGNED = struct.Struct(">Q")
_SIGN_BIT = 1 << 63


def check_places(key: bytes, key_offset: int | None, value: bytes | None, value_offsets: Sequence[int]) -> None:
    """Refuse places outside the key or the value, or overlapping. Raises F1Error INVALID_ARGUMENT."""
    if key_offset is not None and not 0 < key_offset <= len(key) - TIMESTAMP_BYTES:
        raise F1Error(
            Code.INVALID_ARGUMENT,
            f"no room for a timestamp at {key_offset} of a key of {len(key)} bytes, or none before",
        )
    if value is None:
        if value_offsets:
            raise F1Error(Code.INVALID_ARGUMENT, "a deletion has no value to put a timestamp into")
        return
    free = 0
    for offset in sorted(value_offsets):
        if not free <= offset <= len(value) - TIMESTAMP_BYTES:
            raise F1Error(
                Code.INVALID_ARGUMENT, f"no room for a timestamp at {offset} of a value of {len(value)} bytes"
            )
        free = offset + TIMESTAMP_BYTES


def key_stamp(ts: int) -> bytes:
    """Return what stands for ``ts`` in a key."""
    return _UNSIGNED.pack(ts + _SIGN_BIT)


def fill(
    key: bytes, key_offset: int | None, value: bytes | None, value_offsets: Sequence[int], ts: int
) -> tuple[bytes, bytes | None]:
    """Return key and value with ``ts`` in its places. Raises F1Error INVALID_ARGUMENT as :func:`check_places`."""
    check_places(key, key_offset, value, value_offsets)
    if key_offset is not None:
        key = key[:key_offset] + key_stamp(ts) + key[key_offset + TIMESTAMP_BYTES :]
    if value is not None and value_offsets:
        filled = bytearray(value)
        for offset in value_offsets:
            _SIGNED.pack_into(filled, offset, ts)
        value = bytes(filled)
    return key, value
