"""The range map: which group owns which keys.

Ranges are half open, cover the whole key space without gap or overlap, and begin and end at directory borders (F1
section 2.1: a directory is a root row and all below it). The map is ordinary data, one row in group 0 (the *meta*
group), so that it is replicated, versioned and read at a timestamp like everything else. Upper tiers cache it and are
corrected by the server that they ask for a range it does not own.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error

KEY_MIN = b""
KEY_MAX = b"\xff"
"""Above every key: no tuple element begins with 0xFF."""

META_GROUP = 0
SYSTEM_TABLE_ID = 0
"""Root table id of the system's own rows; everything below table id 1 belongs to the meta group."""

RANGE_MAP_KEY = tuples.encode((SYSTEM_TABLE_ID, "range_map"))

BORDERS_KEY = tuples.encode((SYSTEM_TABLE_ID, "automatic_borders"))
"""The row of the borders that nobody asked for: only these are taken away without being asked."""


def readable(key: bytes) -> str:
    """Return a key as the values it encodes, or in hexadecimal if it is none."""
    if key in (b"", KEY_MAX):
        return "-inf" if not key else "+inf"
    try:
        return "/".join(str(element) for element in tuples.decode(key))
    except F1Error:
        return f"0x{key.hex()}"


@dataclass(frozen=True, slots=True)
class Range:
    """Keys from ``start`` (inclusive) to ``end`` (exclusive), owned by ``group``."""

    start: bytes
    end: bytes
    group: int

    def contains(self, key: bytes) -> bool:
        """Tell whether the range owns ``key``."""
        return self.start <= key < self.end


class RangeMap:
    """An immutable, complete partition of the key space. Raises INVALID_ARGUMENT for one that is not."""

    __slots__ = ("_starts", "ranges", "version")

    def __init__(self, ranges: Iterable[Range], version: int = 1) -> None:
        self.ranges: tuple[Range, ...] = tuple(ranges)
        self.version = version
        self._starts = [r.start for r in self.ranges]
        expected = KEY_MIN
        for item in self.ranges:
            if item.start != expected or item.end <= item.start:
                raise F1Error(
                    Code.INVALID_ARGUMENT,
                    f"the range map has a gap, an overlap or an empty range at {item.start.hex() or 'the start'}",
                )
            expected = item.end
        if expected != KEY_MAX:
            raise F1Error(Code.INVALID_ARGUMENT, "the range map does not reach the end of the key space")

    @staticmethod
    def from_starts(starts: Sequence[tuple[bytes, int]], version: int = 1) -> "RangeMap":
        """Build the map from (start, group) pairs in ascending order, the first at the lowest key."""
        ends = [start for start, _ in starts[1:]] + [KEY_MAX]
        return RangeMap((Range(s, e, g) for (s, g), e in zip(starts, ends, strict=True)), version)

    def lookup(self, key: bytes) -> Range:
        """Return the range that owns ``key``."""
        return self.ranges[bisect_right(self._starts, key) - 1]

    def group_of(self, key: bytes) -> int:
        """Return the number of the group that owns ``key``."""
        return self.ranges[bisect_right(self._starts, key) - 1].group

    def pieces(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes, int]]:
        """Cut ``[start, end)`` at the borders: (start, end, group) in key order, neighbours of one group joined."""
        result: list[tuple[bytes, bytes, int]] = []
        position = max(bisect_right(self._starts, start) - 1, 0)
        for item in self.ranges[position:]:
            if item.start >= end:
                break
            low, high = max(start, item.start), min(end, item.end)
            if low >= high:
                continue
            if result and result[-1][2] == item.group and result[-1][1] == low:
                result[-1] = (result[-1][0], high, item.group)
            else:
                result.append((low, high, item.group))
        return result

    def split(self, key: bytes) -> "RangeMap":
        """Return the next map, with a border at ``key``. Raises ALREADY_EXISTS, INVALID_ARGUMENT."""
        found = self.lookup(key)
        if not KEY_MIN < key < KEY_MAX:
            raise F1Error(Code.INVALID_ARGUMENT, "a border lies between two keys")
        if found.start == key:
            raise F1Error(Code.ALREADY_EXISTS, f"a range begins at {readable(key)} already; see f1 range list --all")
        return self._with([Range(found.start, key, found.group), Range(key, found.end, found.group)])

    def merge(self, key: bytes) -> "RangeMap":
        """Return the next map, without the border at ``key``. Raises NOT_FOUND, FAILED_PRECONDITION."""
        right = self.lookup(key)
        position = self._starts.index(right.start)
        if right.start != key or not position:
            raise F1Error(Code.NOT_FOUND, f"no range begins at {readable(key)}; see f1 range list --all")
        left = self.ranges[position - 1]
        if left.group != right.group:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"group {left.group} owns what is left of the border, group {right.group} what is right of it: "
                "move one of them to the other group first, with f1 range move",
            )
        return self._with([Range(left.start, right.end, left.group)])

    def assign(self, start: bytes, end: bytes, group: int) -> "RangeMap":
        """Return the next map, in which ``group`` owns ``[start, end)``; borders inside of it stay."""
        changed: list[Range] = []
        for item in self.ranges:
            low, high = max(item.start, start), min(item.end, end)
            if low >= high:
                continue
            pieces = (Range(item.start, low, item.group), Range(low, high, group), Range(high, item.end, item.group))
            changed.extend(piece for piece in pieces if piece.start < piece.end)
        return self._with(changed)

    def _with(self, changed: Sequence[Range]) -> "RangeMap":
        """Return the next map, with ``changed``, which are neighbours, instead of what was there."""
        start, end = changed[0].start, changed[-1].end
        before = [r for r in self.ranges if r.end <= start]
        return RangeMap([*before, *changed, *(r for r in self.ranges if r.start >= end)], self.version + 1)

    def owned_by(self, group: int) -> tuple[Range, ...]:
        """Return the ranges of ``group`` in key order."""
        return tuple(r for r in self.ranges if r.group == group)

    def groups(self) -> list[int]:
        """Return the numbers of all groups that own something, ascending."""
        return sorted({r.group for r in self.ranges})

    def encode(self) -> bytes:
        """Return the row value under :data:`RANGE_MAP_KEY`."""
        return msgspec.msgpack.encode((self.version, [(r.start, r.end, r.group) for r in self.ranges]))

    @staticmethod
    def decode(data: bytes) -> "RangeMap":
        """Read what :meth:`encode` wrote. Raises DATA_CORRUPTION for anything else."""
        try:
            version, items = msgspec.msgpack.decode(data, type=tuple[int, list[tuple[bytes, bytes, int]]])
            return RangeMap((Range(s, e, g) for s, e, g in items), version)
        except (msgspec.DecodeError, UnicodeDecodeError, F1Error) as error:
            raise F1Error(Code.DATA_CORRUPTION, f"the stored range map cannot be read: {error}") from error


def encode_borders(borders: Iterable[bytes]) -> bytes:
    """Return the row value under :data:`BORDERS_KEY`."""
    return msgspec.msgpack.encode(sorted(borders))


def decode_borders(data: bytes | None) -> frozenset[bytes]:
    """Read what :func:`encode_borders` wrote; None: no border. Raises DATA_CORRUPTION."""
    if data is None:
        return frozenset()
    try:
        return frozenset(msgspec.msgpack.decode(data, type=list[bytes]))
    except msgspec.DecodeError as error:
        raise F1Error(Code.DATA_CORRUPTION, f"the stored borders of ranges cannot be read: {error}") from error


class OwnedRanges:
    """What one group owns, for quick checks on the path of every request."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._starts: list[bytes] = []
        self._ends: list[bytes] = []
        for item in sorted(ranges, key=lambda r: r.start):
            if self._ends and self._ends[-1] == item.start:
                self._ends[-1] = item.end
            else:
                self._starts.append(item.start)
                self._ends.append(item.end)

    def has_key(self, key: bytes) -> bool:
        """Tell whether the group owns ``key``."""
        position = bisect_right(self._starts, key) - 1
        return position >= 0 and key < self._ends[position]

    def has_range(self, start: bytes, end: bytes) -> bool:
        """Tell whether the group owns every key of ``[start, end)``."""
        position = bisect_right(self._starts, start) - 1
        return position >= 0 and end <= self._ends[position]


GLOBAL_INDEX_BASE = 1 << 40
"""Entries of global index n are keyed like a root table with the id ``GLOBAL_INDEX_BASE + n``."""

COPIES_BASE = 1 << 41
"""Rows that upper tiers keep in several groups are keyed like root tables from this id on; the second is apart."""


def spread_tables(groups: Sequence[int], tables: int = 256) -> RangeMap:
    """The first map of a new cluster: root tables and global indexes 1 to ``tables`` are dealt to ``groups`` in turn.

    What comes after the last table or index is with it, but what begins with ``COPIES_BASE + 1`` is in another group.
    Group 0 keeps everything below table 1; with no other group it owns everything.
    """
    data_groups = [g for g in groups if g != META_GROUP] or [META_GROUP]
    starts: list[tuple[bytes, int]] = [(KEY_MIN, META_GROUP)]
    for base in (0, GLOBAL_INDEX_BASE):
        for number in range(1, tables + 1):
            starts.append((tuples.encode((base + number,)), data_groups[(number - 1) % len(data_groups)]))
    if len(data_groups) > 1:
        starts.append((tuples.encode((COPIES_BASE + 1,)), data_groups[tables % len(data_groups)]))
    return RangeMap.from_starts(starts)
