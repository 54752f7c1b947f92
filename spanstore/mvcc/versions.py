"""Versions of rows in the engine: how they are laid out, written, and read as of a timestamp.

Layout (the package docstring says why)::

    key    gg gg 10 | user key | 00 | 8 bytes: 2^64 - 1 - ts      newest first, before the keys that the user key begins
    value  1 byte: 1 value, 0 tombstone | 4 bytes: CRC-32 | payload

The checksum covers the user key, the timestamp, the flag and the payload, but not the group, so that a range can be
handed to another group as it is. It is verified at every read: a mismatch is DATA_CORRUPTION, never a wrong row.

Ranges are half open and in user keys. ``key + b"\\x00"`` is understood as the successor of ``key``, as everywhere in
bytewise order, although on the disk the versions of ``key`` sort above it.
"""

import struct
from collections.abc import Iterable, Iterator
from zlib import crc32

import msgspec

from f1common.errors import Code, F1Error
from spanstore.engine.base import MAX_KEY_BYTES, Reader, WriteBatch
from spanstore.engine.keyspace import PREFIX_BYTES, data_prefix

MAX_TS = (1 << 63) - 1
"""The greatest timestamp: reading at it sees the newest version."""

_SUFFIX = struct.Struct(">BQ")
_HEAD = struct.Struct(">BI")
SUFFIX_BYTES = _SUFFIX.size
"""How the key of a version is longer than the row's."""
HEAD_BYTES = _HEAD.size
_INVERT = (1 << 64) - 1
_TOMBSTONE = 0
VALUE_FLAG = 1
pack_suffix = _SUFFIX.pack
_pack_head = _HEAD.pack
unpack_head = _HEAD.unpack_from

_OUTCOME_SUFFIX_BYTES = 17

MAX_USER_KEY_BYTES = MAX_KEY_BYTES - PREFIX_BYTES - max(SUFFIX_BYTES, _OUTCOME_SUFFIX_BYTES)
"""What LMDB's limit leaves for the key of a row, which must also fit as the anchor of an outcome record."""

AFTER_VERSIONS = b"\x01"
"""Ends the versions of a key: they go on with 0x00, and no tuple element begins with 0x00, so nothing lies between."""

_MAX_STEPS = 8
"""Versions that a scan walks over before it seeks: a seek costs about as much as so many steps."""


class Version(msgspec.Struct, frozen=True, gc=False):
    """One version of a row: its commit timestamp, and its value or None for a tombstone."""

    ts: int
    value: bytes | None


def check_key(key: bytes) -> None:
    """Refuse what cannot be the key of a row. Raises F1Error KEY_TOO_LONG, INVALID_ARGUMENT."""
    if not key or key[0] == 0x00 or key[0] == 0xFF:
        raise F1Error(
            Code.INVALID_ARGUMENT, f"a row's key is not empty and begins with 01 to fe, not {key[:8].hex()!r}"
        )
    if len(key) > MAX_USER_KEY_BYTES:
        raise F1Error(
            Code.KEY_TOO_LONG,
            f"the encoded key has {len(key)} bytes, {MAX_USER_KEY_BYTES} at most fit: shorten its columns' values",
            details={"limit": str(MAX_USER_KEY_BYTES)},
        )


def version_key(group: int, key: bytes, ts: int) -> bytes:
    """Return the engine key of a version."""
    return data_prefix(group) + key + pack_suffix(0, _INVERT - ts)


def split_version_key(engine_key: bytes) -> tuple[bytes, int]:
    """Return (user key, timestamp) of an engine key. Raises F1Error DATA_CORRUPTION if it is no version's."""
    if len(engine_key) <= PREFIX_BYTES + SUFFIX_BYTES or engine_key[-SUFFIX_BYTES] != 0:
        raise F1Error(Code.DATA_CORRUPTION, f"engine key {engine_key.hex()} is no key of a version")
    return engine_key[PREFIX_BYTES:-SUFFIX_BYTES], _INVERT - int.from_bytes(engine_key[-8:], "big")


def put_version(batch: WriteBatch, group: int, key: bytes, ts: int, value: bytes | None) -> None:
    """Write the version of ``key`` at ``ts``; a ``value`` of None is a deletion. The key was checked before."""
    put_versions(batch, group, ((key, value),), ts)


def put_versions(batch: WriteBatch, group: int, rows: Iterable[tuple[bytes, bytes | None]], ts: int) -> None:
    """Write versions at ``ts``, (key, value) each, as :func:`put_version` does."""
    prefix, suffix = data_prefix(group), pack_suffix(0, _INVERT - ts)
    puts: list[tuple[bytes, bytes]] = []
    for key, value in rows:
        stem = key + suffix
        if value is None:
            data = _pack_head(_TOMBSTONE, crc32(stem, _TOMBSTONE))
        else:
            data = _pack_head(VALUE_FLAG, crc32(value, crc32(stem, VALUE_FLAG))) + value
        puts.append((prefix + stem, data))
    batch.put_all(puts)


def decode_version(engine_key: bytes, data: bytes) -> Version:
    """Return the version that an engine's key and value hold. Raises F1Error DATA_CORRUPTION."""
    if len(data) >= HEAD_BYTES:
        flag, checksum = unpack_head(data)
        stem = engine_key[PREFIX_BYTES:]
        if flag == VALUE_FLAG:
            value = data[HEAD_BYTES:]
            if crc32(value, crc32(stem, VALUE_FLAG)) == checksum:
                return Version(_INVERT - int.from_bytes(engine_key[-8:], "big"), value)
        elif flag == _TOMBSTONE and len(data) == HEAD_BYTES and crc32(stem, _TOMBSTONE) == checksum:
            return Version(_INVERT - int.from_bytes(engine_key[-8:], "big"), None)
    key, ts = split_version_key(engine_key)
    raise F1Error(
        Code.DATA_CORRUPTION,
        f"the version of key {key.hex()} at {ts} is damaged: discard this replica and let it be rebuilt",
        details={"key": key.hex(), "ts": str(ts)},
    )


def read_version(reader: Reader, group: int, key: bytes, ts: int) -> Version | None:
    """Return the newest version at or below ``ts``, a tombstone included; None if there is none.

    Raises F1Error DATA_CORRUPTION.
    """
    stem = data_prefix(group) + key
    found = reader.seek_first(stem + pack_suffix(0, _INVERT - ts), stem + AFTER_VERSIONS)
    return None if found is None else decode_version(*found)


def latest(reader: Reader, group: int, key: bytes) -> Version | None:
    """Return the newest version of ``key``, a tombstone included. Raises F1Error DATA_CORRUPTION."""
    return read_version(reader, group, key, MAX_TS)


def has_no_version(reader: Reader, group: int, first: bytes, last: bytes) -> bool:
    """Tell whether neither ``first`` nor ``last``, nor any key between them, has any version."""
    prefix = data_prefix(group)
    return reader.seek_first(prefix + first, prefix + last + AFTER_VERSIONS) is None


def scan_versions(
    reader: Reader,
    group: int,
    start: bytes,
    end: bytes,
    ts: int,
    *,
    limit: int | None = None,
    reverse: bool = False,
    max_bytes: int | None = None,
) -> Iterator[tuple[bytes, Version]]:
    """Yield (key, version) of the rows in ``[start, end)`` that are alive at ``ts``, in order of the keys.

    Stops after ``limit`` rows, or after the row that reaches ``max_bytes`` of keys and values. Raises F1Error
    DATA_CORRUPTION for a damaged version that it would return.
    """
    if limit is not None and limit <= 0:
        return
    walk = _walk_down if reverse else _walk_up
    count = size = 0
    for engine_key, data in walk(reader, group, start, end, _INVERT - ts):
        version = decode_version(engine_key, data)
        if version.value is None:
            continue
        key = engine_key[PREFIX_BYTES:-SUFFIX_BYTES]
        yield key, version
        count += 1
        if count == limit:
            return
        if max_bytes is not None:
            size += len(key) + len(version.value)
            if size >= max_bytes:
                return


def latest_in_range_ts(reader: Reader, group: int, start: bytes, end: bytes) -> int:
    """Return the timestamp of the newest version of any key in ``[start, end)``, tombstones included; 0 if none.

    Raises F1Error DATA_CORRUPTION.
    """
    newest = 0
    for item in _walk_up(reader, group, start, end, _INVERT - MAX_TS):
        newest = max(newest, decode_version(*item).ts)
    return newest


def _walk_up(reader: Reader, group: int, start: bytes, end: bytes, inverted: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the engine's item of each key's newest version whose inverted timestamp is at least ``inverted``."""
    prefix = data_prefix(group)
    suffix = pack_suffix(0, inverted)
    low, high = low_border(reader, prefix, start), prefix + end
    while low:
        found = b""  # the key whose version was yielded: its older ones are passed over
        above = b""  # the key whose versions so far are too new
        steps = 0
        restart = b""
        for item in reader.scan(low, high):
            engine_key = item[0]
            here = engine_key[:-SUFFIX_BYTES]
            if here == found:
                steps += 1
                if steps > _MAX_STEPS:
                    restart = found + AFTER_VERSIONS
                    break
            elif engine_key[-SUFFIX_BYTES:] >= suffix:
                found = here
                steps = 0
                yield item
            elif here == above:
                steps += 1
                if steps > _MAX_STEPS:
                    restart = here + suffix
                    break
            else:
                above = here
                steps = 0
        low = restart
    last = successors_key(reader, prefix, start, end, suffix)
    if last is not None:
        yield last


def _walk_down(reader: Reader, group: int, start: bytes, end: bytes, inverted: int) -> Iterator[tuple[bytes, bytes]]:
    """As :func:`_walk_up`, from the last key to the first: every key's versions come oldest first."""
    prefix = data_prefix(group)
    suffix = pack_suffix(0, inverted)
    last = successors_key(reader, prefix, start, end, suffix)
    if last is not None:
        yield last
    low, high = low_border(reader, prefix, start), prefix + end
    while high:
        here = b""
        steps = 0
        best: tuple[bytes, bytes] | None = None
        restart = b""
        for item in reader.scan(low, high, reverse=True):
            engine_key = item[0]
            if engine_key[:-SUFFIX_BYTES] != here:
                if best is not None:
                    yield best
                    best = None
                here = engine_key[:-SUFFIX_BYTES]
                steps = 0
            if engine_key[-SUFFIX_BYTES:] >= suffix:
                best = item
            steps += 1
            if steps > _MAX_STEPS:
                best = reader.seek_first(here + suffix, here + AFTER_VERSIONS)
                restart = here
                break
        if best is not None:
            yield best
        high = restart


def low_border(reader: Reader, prefix: bytes, start: bytes) -> bytes:
    """Return where the engine's range begins: if ``start`` is a key's successor, above that key's versions."""
    low = prefix + start
    if not start.endswith(b"\x00"):
        return low
    after = low[:-1] + AFTER_VERSIONS
    item = reader.seek_first(low, after)
    return after if item is not None and len(item[0]) == len(low) - 1 + SUFFIX_BYTES else low


def successors_key(
    reader: Reader, prefix: bytes, start: bytes, end: bytes, suffix: bytes
) -> tuple[bytes, bytes] | None:
    """Return the visible item of the key whose successor ``end`` is: it is the last of the range.

    A border that ends in 0x00 is a key's successor or itself a key (a string's), never both, because no element
    begins with 0x00. Versions of the former are as much shorter than those of the latter as to tell them apart.
    """
    if not end.endswith(b"\x00") or end[:-1] < start:
        return None
    key = prefix + end[:-1]
    item = reader.seek_first(key + suffix, key + AFTER_VERSIONS)
    return item if item is not None and len(item[0]) == len(key) + SUFFIX_BYTES else None
