"""Checksums of records: put on by every batch, verified by every view, so that no caller can forget them.

A row version and a log entry carry checksums in formats of their own (:mod:`spanstore.mvcc.versions`,
:mod:`spanstore.group.storage`), which travel with them. Every other record (hard state, applied record, prepared
transactions, outcomes, META ...) is *sealed* here: four bytes of CRC-32 over key and value stand before the value.
The key is part of it because a damaged page may show a record under another key.

CRC-32 finds every flip of one bit and every burst of up to 32; it is no defence against an adversary. A record that is
missing because an index page is damaged has no checksum to be wrong: that is for the scrubber
(:mod:`spanstore.scrub`) to find.
"""

from zlib import crc32

from f1common.errors import Code, F1Error
from spanstore.engine.keyspace import PREFIX_BYTES, Subspace

_SEAL_BYTES = 4
_OWN = (bytes((Subspace.LOG,)), bytes((Subspace.DATA,)))
"""The byte at position 2 of keys whose values carry checksums of their own."""


def is_sealed(key: bytes) -> bool:
    """Tell whether the value of ``key`` is stored behind a seal."""
    return key[2:PREFIX_BYTES] not in _OWN


def any_sealed(start: bytes, end: bytes) -> bool:
    """Tell whether ``[start, end)`` may have sealed records."""
    return is_sealed(start) or end > start[:2] + bytes((start[2] + 1,))


def seal(key: bytes, value: bytes) -> bytes:
    """Return the stored form of a record."""
    return crc32(value, crc32(key)).to_bytes(_SEAL_BYTES, "big") + value


def unseal(key: bytes, data: bytes) -> bytes:
    """Return the record in its stored form ``data``. Raises F1Error DATA_CORRUPTION."""
    value = data[_SEAL_BYTES:]
    if len(data) < _SEAL_BYTES or int.from_bytes(data[:_SEAL_BYTES], "big") != crc32(value, crc32(key)):
        raise F1Error(
            Code.DATA_CORRUPTION,
            f"the record {key.hex()} is damaged on disk: discard this replica and let it be rebuilt",
            details={"key": key.hex()},
        )
    return value
