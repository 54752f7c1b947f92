"""Garbage: versions that no read at or above the garbage mark can see, and where they are.

A read at t sees of every key the newest version at or below t. So of the versions of a key at or below the mark, only
the newest can be seen from the mark on, and not even that one if it is a tombstone: without it a read finds nothing,
which means the same. Versions above the mark stay.

Two orders matter. A tombstone goes in the same step as everything below it, or after it: were it to go first, the row
that it deleted would be there again. And of a chain that is too long for one step, the newest garbage goes first, which
leaves what is seen from the mark on as it is.

What is kept and why a version goes rests on keys and flags on the disk; the version that hides others is therefore
verified by its checksum before anything under it is called garbage. Otherwise a flipped bit at one replica could remove
a row at all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from f1common.errors import F1Error
from spanstore.engine.base import Reader, WriteBatch
from spanstore.engine.keyspace import PREFIX_BYTES, data_range
from spanstore.mvcc.versions import decode_version, version_key

_INVERT = (1 << 64) - 1
_SUFFIX_BYTES = 9
_AFTER = b"\x01"
_TOMBSTONE = b"\x00"
_MAX_STEPS = 8
"""Versions above the mark that are walked over before seeking past them."""


class Garbage(NamedTuple):
    """The versions of ``key`` from ``oldest_ts`` to ``newest_ts``, both included."""

    key: bytes
    newest_ts: int
    oldest_ts: int


@dataclass(slots=True)
class Found:
    """What a step found: ``versions`` of ``size`` bytes in all, after a look at ``items`` engine items.

    ``position`` is the engine key at which the next step begins, empty when there is nothing after this one.
    ``damaged`` are keys whose versions were left alone, because one of them is damaged.
    """

    garbage: list[Garbage] = field(default_factory=list)
    versions: int = 0
    size: int = 0
    items: int = 0
    position: bytes = b""
    damaged: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Chain:
    """The versions of one key at or below the mark, as far as they were walked over."""

    stem: bytes
    of: Callable[[bytes], bool] | None
    keeper: tuple[bytes, bytes] | None = None
    newest: bytes = b""
    oldest: bytes = b""
    versions: int = 0
    size: int = 0
    above: int = 0

    def add(self, item: tuple[bytes, bytes]) -> None:
        if self.keeper is None:
            self.keeper = item
            return
        self.newest = self.newest or item[0]
        self.oldest = item[0]
        self.versions += 1
        self.size += len(item[0]) + len(item[1])

    def close(self, found: Found, *, whole: bool) -> bool:
        """Add to ``found`` what of the chain is garbage, and tell whether there was any.

        ``whole``: there are no older versions than those seen.
        """
        if self.keeper is None or not (self.versions or self.keeper[1][:1] == _TOMBSTONE):
            return False
        key = self.stem[PREFIX_BYTES:]
        if self.of is not None and not self.of(key):
            return False
        try:
            deleted = decode_version(*self.keeper).value is None
        except F1Error:
            found.damaged.append(key)
            return False
        if self.versions and not self.keeper[0] < self.newest <= self.oldest:
            found.damaged.append(key)  # keys out of order: a flipped bit in one of them
            return False
        if deleted and whole:
            self.newest = self.keeper[0]
            self.oldest = self.oldest or self.newest
            self.versions += 1
            self.size += len(self.keeper[0]) + len(self.keeper[1])
        if not self.versions:
            return False
        found.garbage.append(Garbage(key, _ts_of(self.newest), _ts_of(self.oldest)))
        found.versions += self.versions
        found.size += self.size
        return True


def find_garbage(
    reader: Reader,
    group: int,
    position: bytes,
    mark_ts: int,
    *,
    max_items: int,
    of: Callable[[bytes], bool] | None = None,
) -> Found:
    """Look for garbage of ``group`` from the engine key ``position`` on (empty: from the first one).

    ``of`` tells whether a key is of interest. Stops after about ``max_items`` items. Nothing at or below ``mark_ts``
    may be written any more once it is called. Damage is skipped and told of, never raised.
    """
    found = Found()
    start, end = data_range(group)
    suffix = b"\x00" + (_INVERT - mark_ts).to_bytes(8, "big")
    low = max(start, position)
    chain = _Chain(b"", of)
    while low:
        restart = b""
        for item in reader.scan(low, end):
            engine_key = item[0]
            stem = engine_key[:-_SUFFIX_BYTES]
            if stem != chain.stem:
                chain.close(found, whole=True)
                if found.items >= max_items:
                    found.position = stem
                    return found
                chain = _Chain(stem, of)
            found.items += 1
            if engine_key[-_SUFFIX_BYTES:] >= suffix:
                chain.add(item)
                if chain.versions >= max_items:
                    found.position = stem if chain.close(found, whole=False) else stem + _AFTER
                    return found
            else:
                chain.above += 1
                if chain.above == _MAX_STEPS:
                    restart = stem + suffix
                    break
        low = restart
    chain.close(found, whole=True)
    return found


def remove_versions(batch: WriteBatch, group: int, key: bytes, newest_ts: int, oldest_ts: int) -> None:
    """Remove the versions of ``key`` from ``oldest_ts`` to ``newest_ts``, both included, that there are."""
    newest = version_key(group, key, newest_ts)
    if newest_ts == oldest_ts:
        batch.delete(newest)
    else:
        batch.delete_range(newest, version_key(group, key, oldest_ts) + b"\x00")


def _ts_of(engine_key: bytes) -> int:
    return _INVERT - int.from_bytes(engine_key[-8:], "big")
