"""Sums over index entries, by which two walks are compared that have nothing else in common.

One walk adds up the entries that the rows should have, another one those that are there, both as of one snapshot. If an
entry is missing, left over or different, then the sums differ, but for one case in 2**64; and they can be taken part by
part and in any order, without looking up a single key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["EntrySum", "Sums", "added", "digest"]

_BITS = 64
_MASK = (1 << _BITS) - 1


@dataclass(frozen=True, slots=True)
class EntrySum:
    """How many entries, and the sum of their digests modulo 2**64."""

    count: int = 0
    total: int = 0

    def __add__(self, other: "EntrySum") -> "EntrySum":
        return EntrySum(self.count + other.count, (self.total + other.total) & _MASK)

    def plus(self, digests: Iterable[int]) -> "EntrySum":
        """Return the sum with some more entries."""
        more = list(digests)
        return EntrySum(self.count + len(more), (self.total + sum(more)) & _MASK)


Sums = Mapping[int, EntrySum]
"""By id of the index."""


def digest(key: bytes, told: bytes) -> int:
    """Return the 64 bits that stand for an entry and for what its row has it say."""
    hashed = blake2b(len(key).to_bytes(4, "big") + key + told, digest_size=_BITS // 8)
    return int.from_bytes(hashed.digest(), "big")


def added(first: Sums, second: Sums) -> Sums:
    """Return the sums of both."""
    return {i: first.get(i, EntrySum()) + second.get(i, EntrySum()) for i in first.keys() | second.keys()}
