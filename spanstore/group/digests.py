"""Digests of ranges of a replica's records, as of one entry of the log, by which replicas are compared.

A disk may return an older state of a page, sound in every respect, or have lost a write: no checksum knows. So the
leader logs now and then a command that names a range, and every replica computes the digest of what it has there *as
of that entry*: rows, prepared transactions, outcomes and finished records, which the log alone makes, so that sound
replicas agree to the byte. Nothing that comes later, collection of garbage included, can disturb the comparison. Ranges
are small (:data:`CHUNK_BYTES`), since the digest is computed in the middle of a turn.

Keys in a range are engine keys without the group's two bytes.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from f1common.errors import Code, F1Error
from spanstore.engine.base import DELETE_RANGE, PUT, Reader, WriteBatch
from spanstore.engine.keyspace import Subspace
from spanstore.engine.sealing import is_sealed, unseal
from spanstore.mvcc.versions import decode_version
from spanstore.txn.commands import DigestCmd

FIRST = bytes((Subspace.DATA,))
"""Where the records begin that the log alone makes."""
END = bytes((Subspace.FINISHED + 1,))
"""And where they end."""

CHUNK_BYTES = 128 << 10
_CHUNK_RECORDS = 1_000
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """What one replica has in ``[start, end)`` as of the log entry ``index``. ``digest`` is empty if it is damaged."""

    index: int
    start: bytes
    end: bytes
    records: int
    digest: bytes


class Pacer:
    """Which range a leader has compared next, and when: piece after piece, and then again from the beginning."""

    def __init__(self, every_us: int) -> None:
        """``every_us`` 0: never."""
        self._every_us = every_us
        self._due_us = 0
        self._start = FIRST

    def due(self, reader: Reader, group: int, boot_us: int) -> DigestCmd | None:
        """Return what to log now, if it is time."""
        if not self._due_us:
            self._due_us = boot_us + self._every_us
        if not self._every_us or boot_us < self._due_us:
            return None
        self._due_us = boot_us + self._every_us
        start, end = self._start, next_range(reader, group, self._start)
        self._start = FIRST if end >= END else end
        return DigestCmd(start, end)


def next_range(reader: Reader, group: int, start: bytes) -> bytes:
    """Return the end of the next piece from ``start`` on, :data:`END` when that is the last."""
    prefix = group.to_bytes(2, "big")
    size = 0
    for count, (key, value) in enumerate(reader.scan(prefix + start, prefix + END)):
        if size >= CHUNK_BYTES or count == _CHUNK_RECORDS:
            return key[2:]
        size += len(key) + len(value)
    return END


def digest_of(reader: Reader, batch: WriteBatch, group: int, index: int, start: bytes, end: bytes) -> RangeDigest:
    """Compute the digest of a range as ``reader`` shows it with the changes of ``batch``; each record is verified."""
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    records = 0
    prefix = group.to_bytes(2, "big")
    try:
        for key, value in _merged(reader, batch, prefix + start, prefix + end):
            if key[2] == Subspace.DATA:
                decode_version(key, value)
            records += 1
            hashed.update(len(key).to_bytes(2, "big") + key[2:] + len(value).to_bytes(4, "big") + value)
    except F1Error as error:
        if error.code is not Code.DATA_CORRUPTION:
            raise
        return RangeDigest(index, start, end, records, b"")
    return RangeDigest(index, start, end, records, hashed.digest())


def _merged(reader: Reader, batch: WriteBatch, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of a range in key order, those of the batch in place of what is on disk."""
    changed: dict[bytes, bytes | None] = {}
    removed: list[tuple[bytes, bytes]] = []
    for kind, key, value in batch.ops:
        if kind == DELETE_RANGE:
            removed.append((key, value))
            changed |= {known: None for known in changed if key <= known < value}
        elif start <= key < end:
            changed[key] = value if kind == PUT else None
    kept = {
        key: value
        for key, value in reader.scan(start, end)
        if key not in changed and not any(low <= key < high for low, high in removed)
    }
    written = {
        key: unseal(key, value) if is_sealed(key) else value for key, value in changed.items() if value is not None
    }
    yield from sorted((kept | written).items())
