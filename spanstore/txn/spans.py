"""Which owners mark which keys and ranges with which bits: the index under the lock table.

Single keys live in a dictionary, because thousands of one-key commits a second touch nothing else. Ranges live in a
sorted map of borders, each with the owners of the segment from it to the next border, so that overlapping ranges cost
a binary search however many there are. Only a range that is asked for needs the keys in order; the sorted list of them
is built then and given up again when no range came for a while. Sorted means plain lists: what is locked at one time
is some thousands of spans, where moving the tail of a list costs less than the nodes of a tree.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from f1common.errors import Code, F1Error

_Owner = TypeVar("_Owner")

MANY = 64
"""So many ranges of one owner are added or removed in one pass over all borders: one by one, each moves the list's
tail, which is quadratic for a transaction on many thousands of rows."""

_KEEP_SORTED_FOR = 4096
"""Changes of single keys without any range in between after which keeping them sorted does not pay."""


class Span(NamedTuple):
    """What a lock covers: the key ``start`` if ``end`` is None, else every key k with ``start <= k < end``."""

    start: bytes
    end: bytes | None = None

    def overlaps(self, other: "Span") -> bool:
        """Tell whether some key lies in both."""
        if self.end is None:
            return self.start == other.start if other.end is None else other.start <= self.start < other.end
        if other.end is None:
            return self.start <= other.start < self.end
        return self.start < other.end and other.start < self.end


def check_span(span: Span) -> None:
    """Raise F1Error INVALID_ARGUMENT if ``span`` is a range without keys."""
    if span.end is not None and span.start >= span.end:
        raise F1Error(Code.INVALID_ARGUMENT, f"an empty range cannot be locked: {span.start!r} to {span.end!r}")


class SpanIndex(Generic[_Owner]):
    """Bits that owners have on spans. An owner's spans are removed all at once, never one of several."""

    __slots__ = ("_borders", "_keys", "_points", "_segments", "_unsorted_for")

    def __init__(self) -> None:
        self._points: dict[bytes, dict[_Owner, int]] = {}
        self._keys: list[bytes] | None = None  # the keys of _points in order, while ranges ask for them
        self._unsorted_for = 0
        self._borders: list[bytes] = []
        self._segments: dict[bytes, dict[_Owner, int]] = {}

    def add(self, span: Span, owner: _Owner, bits: int) -> None:
        """Mark ``span`` with ``bits`` of ``owner``, beside what the owner has there."""
        start, end = span
        if end is not None:
            self._add_range(start, end, owner, bits)
            return
        owners = self._points.get(start)
        if owners is None:
            self._points[start] = {owner: bits}
            if self._keys is not None:
                self._keep_sorted(self._keys, start)
        else:
            owners[owner] = owners.get(owner, 0) | bits

    def add_all(self, owner: _Owner, wanted: Sequence[tuple[Span, int]]) -> None:
        """Mark many spans of one owner: (span, bits)."""
        ranges = [item for item in wanted if item[0].end is not None]
        if len(ranges) < MANY:
            for span, bits in wanted:
                self.add(span, owner, bits)
            return
        for span, bits in wanted:
            if span.end is None:
                self.add(span, owner, bits)
        self._add_ranges(owner, [(start, end, bits) for (start, end), bits in ranges if end is not None])

    def remove(self, owner: _Owner, spans: Collection[Span]) -> None:
        """Remove all marks of ``owner``, which are on ``spans``."""
        many = len(spans) >= MANY and sum(1 for span in spans if span.end is not None) >= MANY
        if many:
            self._remove_between(0, len(self._borders), owner)
        if len(spans) > _KEEP_SORTED_FOR:
            self._keys = None
        for start, end in spans:
            if end is not None:
                if not many:
                    self._remove_range(start, end, owner)
                continue
            owners = self._points[start]
            del owners[owner]
            if not owners:
                del self._points[start]
                if self._keys is not None:
                    del self._keys[bisect_left(self._keys, start)]

    def overlapping(self, span: Span) -> list[dict[_Owner, int]]:
        """Return the owners and bits of everything that has a key in common with ``span``. Not to be changed."""
        start, end = span
        found: list[dict[_Owner, int]] = []
        if end is None:
            owners = self._points.get(start)
            if owners is not None:
                found.append(owners)
            if self._borders:
                found.append(self._segment_at(start))
            return found
        if start >= end:
            return found
        if self._borders:
            found.append(self._segment_at(start))
            inner = self._borders[bisect_right(self._borders, start) : bisect_left(self._borders, end)]
            found.extend(map(self._segments.__getitem__, inner))
        if self._points:
            keys = self._sorted_keys()
            inner = keys[bisect_left(keys, start) : bisect_left(keys, end)]
            found.extend(map(self._points.__getitem__, inner))
        return found

    def covers(self, span: Span, owner: _Owner, bits: int) -> bool:
        """Tell whether ``owner`` has one of ``bits`` on every key of ``span``."""
        start, end = span
        if end is None and start in self._points and self._points[start].get(owner, 0) & bits:
            return True
        if not self._borders or not self._segment_at(start).get(owner, 0) & bits:
            return False
        if end is None:
            return True
        inner = self._borders[bisect_right(self._borders, start) : bisect_left(self._borders, end)]
        return all(self._segments[at].get(owner, 0) & bits for at in inner)

    def _sorted_keys(self) -> list[bytes]:
        if self._keys is None:
            self._keys = sorted(self._points)
        self._unsorted_for = 0
        return self._keys

    def _keep_sorted(self, keys: list[bytes], key: bytes) -> None:
        self._unsorted_for += 1
        if self._unsorted_for > _KEEP_SORTED_FOR:
            self._keys = None
        else:
            insort(keys, key)

    def _segment_at(self, key: bytes) -> dict[_Owner, int]:
        position = bisect_right(self._borders, key)
        return self._segments[self._borders[position - 1]] if position else {}

    def _add_range(self, start: bytes, end: bytes, owner: _Owner, bits: int) -> None:
        for border in (start, end):
            if border not in self._segments:
                self._segments[border] = dict(self._segment_at(border))
                insort(self._borders, border)
        self._mark(start, end, owner, bits)

    def _add_ranges(self, owner: _Owner, ranges: Sequence[tuple[bytes, bytes, int]]) -> None:
        fresh = {border for start, end, _ in ranges for border in (start, end)} - self._segments.keys()
        if fresh:
            self._borders = sorted((*self._borders, *fresh))
            before: dict[_Owner, int] = {}
            for at in self._borders:
                if at in fresh:
                    self._segments[at] = dict(before)
                before = self._segments[at]
        for start, end, bits in ranges:
            self._mark(start, end, owner, bits)

    def _mark(self, start: bytes, end: bytes, owner: _Owner, bits: int) -> None:
        """Mark a range whose borders are there."""
        for at in self._borders[bisect_left(self._borders, start) : bisect_left(self._borders, end)]:
            owners = self._segments[at]
            owners[owner] = owners.get(owner, 0) | bits

    def _remove_range(self, start: bytes, end: bytes, owner: _Owner) -> None:
        self._remove_between(bisect_left(self._borders, start), bisect_right(self._borders, end), owner, but=end)

    def _remove_between(self, first: int, last: int, owner: _Owner, *, but: bytes | None = None) -> None:
        """Remove the owner from the segments of some borders, but not from that of ``but``.

        Borders that no longer separate anything go, or a long-held range would keep those of every short one in it.
        """
        before: dict[_Owner, int] = self._segments[self._borders[first - 1]] if first else {}
        kept = []
        for at in self._borders[first:last]:
            owners = self._segments[at]
            if at != but:
                owners.pop(owner, None)
            if owners == before:
                del self._segments[at]
            else:
                before = owners
                kept.append(at)
        self._borders[first:last] = kept
