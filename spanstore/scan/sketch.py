"""How many rows of each table there are, and where: what plans of queries need to know, without the rows.

The keys of the ranges are walked over once and counted in *segments*: from a key to the next segment's, so many rows of
each table with so many bytes of keys and values. A segment has 16 keys at first and more the more keys there are, so
that small hierarchies can be divided as evenly as large ones. A row counts if its newest version is no deletion;
neither the timestamp nor checksums are looked at, the counts are for estimates.

Which table a key belongs to is found by walking down the tables' paths over the tags of the key's elements, which is
half as much work as decoding them. Keys of no table that was asked for (entries of indexes, say) are counted together.

After ``max_keys`` keys of a range only the first key of each of 64 equal parts of the rest is looked up, equal as
numbers, and what has keys is taken to be as dense as the second half of what was walked over. That is right for keys
that grow by a counter, and a guess for others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Protocol

import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import ELEMENT_BYTES
from f1common.errors import F1Error
from spanstore.engine.base import Reader
from spanstore.engine.keyspace import PREFIX_BYTES, data_prefix
from spanstore.scan.cursor import ScanCursor, Step, check_view
from spanstore.scan.plan import ScanPlan, Sketch, check_plan

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("table", pa.list_(pa.int32())),
        ("rows", pa.list_(pa.int64())),
        ("bytes", pa.list_(pa.int64())),
    ]
)

_SUFFIX_BYTES = 9  # of a version: 0x00 and the inverted timestamp
_HEAD_BYTES = 5  # of a version's value: its flag, 0 for a deletion, and a checksum
_TOMBSTONE = b"\x00"
_AFTER = b"\x01"
_MAX_STEPS = 8
"""Older versions that are walked over before seeking past them."""
_FEWEST_KEYS = 16
_SEGMENTS = 256
"""A segment has this part of the keys before it: the number of segments grows with their logarithm."""
_PARTS = 64
_NUMBER_BYTES = 12
"""Bytes of a key, after what a range's borders have in common, that are taken for a number."""


_Item = tuple[bytes, bytes]


class Cursor(Protocol):
    """Something that is read in steps, each from a view of its own."""

    def schema(self) -> Step:
        """Return the schema as an IPC message, and the beginning as the position."""
        ...

    def step(self, reader: Reader) -> Step:
        """Read on from ``reader``. Raises F1Error."""
        ...


def open_cursor(
    plan: ScanPlan, boot_us: Callable[[], int], *, step_us: int = 100_000, max_rows: int | None = None
) -> Cursor:
    """Return what executes ``plan``. Raises F1Error INVALID_ARGUMENT."""
    if plan.sketch is not None:
        return SketchCursor(plan, boot_us, step_us=step_us)
    if max_rows is None:
        return ScanCursor(plan, boot_us, step_us=step_us)
    return ScanCursor(plan, boot_us, step_us=step_us, max_rows=max_rows)


@dataclass(slots=True)
class _Node:
    """A table of the tree of paths; ``number`` is its position among those asked for, -1: it is only on the way."""

    own: int
    number: int = -1
    children: "dict[bytes, _Node]" = field(default_factory=dict)


class TableTree:
    """Tells which table a key belongs to; fastest for keys in their order, of which most begin as the one before."""

    __slots__ = ("_head", "_node", "_others", "_top")

    def __init__(self, tables: Sequence[tuple[tuple[bytes, int], ...]]) -> None:
        """Take paths as in :class:`~spanstore.scan.plan.Sketch`."""
        self._top = _Node(0)
        self._others = len(tables)
        for number, path in enumerate(tables):
            node = self._top
            for table, own in path:
                node = node.children.setdefault(table, _Node(own))
            node.number = number
        # The table of the key before, and what that key began with up to the table's id.
        self._node = self._top
        self._head = b""

    def table(self, key: bytes) -> int:
        """Return the position of the key's table, or how many tables there are for a key of none of them."""
        sizes, end = ELEMENT_BYTES, len(key)
        head = self._head
        node, position = (self._node, len(head)) if key.startswith(head) else (self._top, 0)
        moved = 0
        try:
            while True:
                for _ in range(node.own):
                    size = sizes[key[position]]
                    position = position + size if size else key.index(0, position + 1) + 1
                if position == end:
                    break
                start = position
                position += sizes[key[position]]
                below = node.children.get(key[start:position])
                if below is None:
                    return self._others
                node, moved = below, position
        except (IndexError, ValueError):
            return self._others  # it ends too soon, or is no tuple
        if moved:
            self._head, self._node = key[:moved], node
        return node.number if node.number >= 0 else self._others


@dataclass(slots=True)
class _Segment:
    """``rows`` and ``bytes``: of each table, and last of no table."""

    key: bytes
    rows: list[int]
    bytes: list[int]


class SketchCursor:
    """The position of a sketch and how to go on from it. As :class:`~spanstore.scan.cursor.ScanCursor`."""

    def __init__(self, plan: ScanPlan, boot_us: Callable[[], int], *, step_us: int = 100_000) -> None:
        """Begin at the first range. A step takes about ``step_us`` at most. Raises F1Error INVALID_ARGUMENT."""
        check_plan(plan)
        self._plan = plan
        self._sketch = sketch = plan.sketch or Sketch()
        self._boot_us = boot_us
        self._step_us = step_us
        self._tree = TableTree(sketch.tables)
        self._tables = len(sketch.tables) + 1
        self._range = 0
        self._start = plan.ranges[0][0]
        self._done = False
        self._keys = 0  # that were walked over in the current range
        self._sum = self._segment(self._start)  # of the current range
        self._half = self._segment(b"")  # as of about half the keys that may be walked over

    def schema(self) -> Step:
        """Return the schema as an IPC message, and the beginning as the position."""
        return Step(SCHEMA.serialize().to_pybytes(), 0, self._range, self._start, self._done)

    def step(self, reader: Reader) -> Step:
        """Count on from ``reader``. Raises F1Error UNAVAILABLE (the view lacks what the timestamp needs)."""
        plan = self._plan
        check_view(reader, plan)
        until_us = self._boot_us() + self._step_us
        segments: list[_Segment] = []
        while not self._done and self._walk(reader, segments, until_us):
            self._range += 1
            self._done = self._range == len(plan.ranges)
            self._start = b"" if self._done else plan.ranges[self._range][0]
            self._keys, self._sum, self._half = 0, self._segment(self._start), self._segment(b"")
            if self._boot_us() >= until_us:
                break
        ipc = _batch(segments).serialize().to_pybytes() if segments else b""
        return Step(ipc, len(segments), self._range, self._start, self._done)

    def _segment(self, key: bytes) -> _Segment:
        return _Segment(key, [0] * self._tables, [0] * self._tables)

    def _walk(self, reader: Reader, segments: list[_Segment], until_us: int) -> bool:
        """Count keys of the current range; tell whether it came to its end before the time was over."""
        prefix = data_prefix(self._plan.group)
        high = prefix + self._plan.ranges[self._range][1]
        items = reader.scan(prefix + self._start, high)
        item = next(items, None)
        while item is not None:
            key = item[0][PREFIX_BYTES:-_SUFFIX_BYTES]
            if self._keys >= self._sketch.max_keys:
                segments += self._extrapolated(reader, key)
                return True
            if self._keys < self._sketch.max_keys // 2 or not self._half.key:
                self._half = _Segment(key, self._sum.rows, self._sum.bytes)
            segment = self._segment(key)
            left = max(1, min(max(_FEWEST_KEYS, self._keys // _SEGMENTS), self._sketch.every))
            self._keys += left
            item, items = self._fill(segment, left, item, items, reader, high)
            if any(segment.rows):
                segments.append(segment)
                self._sum.rows = [a + b for a, b in zip(self._sum.rows, segment.rows, strict=True)]
                self._sum.bytes = [a + b for a, b in zip(self._sum.bytes, segment.bytes, strict=True)]
            if item is not None:
                self._start = item[0][PREFIX_BYTES:-_SUFFIX_BYTES]
                if self._boot_us() >= until_us:
                    return False
        return True

    def _fill(
        self, segment: _Segment, left: int, first: _Item, items: Iterator[_Item], reader: Reader, high: bytes
    ) -> tuple[_Item | None, Iterator[_Item]]:
        """Count ``left`` keys from ``first`` on, then ``items``; return the next key's item, and those after it."""
        table_of, rows, sizes = self._tree.table, segment.rows, segment.bytes
        source: Iterator[_Item] = chain((first,), items)
        last, older = b"", 0
        while True:
            for item in source:
                engine_key, data = item
                key = engine_key[PREFIX_BYTES:-_SUFFIX_BYTES]
                if key != last:
                    if not left:
                        return item, items
                    left -= 1
                    last, older = key, 0
                    if data[:1] != _TOMBSTONE:
                        table = table_of(key)
                        rows[table] += 1
                        sizes[table] += len(key) + len(data) - _HEAD_BYTES
                else:
                    older += 1
                    if older > _MAX_STEPS:
                        break
            else:
                return None, items
            source = items = reader.scan(data_prefix(self._plan.group) + last + _AFTER, high)

    def _extrapolated(self, reader: Reader, key: bytes) -> Iterator[_Segment]:
        """Yield segments for what lies from ``key`` to the range's end, as dense as what was walked over before it."""
        end = self._plan.ranges[self._range][1]
        prefix = data_prefix(self._plan.group)
        last = reader.seek_last(prefix + key, prefix + end)
        if last is None:
            return
        high = last[0][PREFIX_BYTES:-_SUFFIX_BYTES]
        line = _Line(self._half.key, high)
        begin, stop = line.number(key), line.number(high)
        borders = [key, *(line.key(begin + (stop - begin) * i // _PARTS) for i in range(1, _PARTS)), end]
        found = [reader.seek_first(prefix + max(a, key), prefix + b) for a, b in pairwise(borders)]
        keys = [item[0][PREFIX_BYTES:-_SUFFIX_BYTES] for item in found if item is not None]
        # Integers without keys are a gap; bytes without keys may only be no letters.
        parts = _PARTS if line.integers else len(keys)
        factor = (stop - begin) / max(1, begin - line.number(self._half.key)) / max(1, parts)
        rows = [round((a - b) * factor) for a, b in zip(self._sum.rows, self._half.rows, strict=True)]
        sizes = [round((a - b) * factor) for a, b in zip(self._sum.bytes, self._half.bytes, strict=True)]
        for first in keys:
            yield _Segment(first, rows, sizes)


class _Line:
    """Keys between two as numbers: the first element in which the two differ if it is an INT64, otherwise its bytes."""

    def __init__(self, low: bytes, high: bytes) -> None:
        start = end = 0
        while low[start:end] == high[start:end] and end < min(len(low), len(high)):
            start = end
            size = ELEMENT_BYTES[low[start]]
            end = start + size if size else low.find(0, start + 1) + 1 or len(low)
        self._prefix = low[:start]
        # What lies between two integers at this place can be nothing else.
        self.integers = self._integer(low) is not None and self._integer(high) is not None

    def _integer(self, key: bytes) -> int | None:
        try:
            (value,), _ = tuples.decode_prefix(key[len(self._prefix) :], 1)
        except F1Error:
            return None
        return value if type(value) is int else None

    def number(self, key: bytes) -> int:
        """Return the number of a key that is between the two."""
        if self.integers:
            return self._integer(key) or 0
        part = key[len(self._prefix) : len(self._prefix) + _NUMBER_BYTES]
        return int.from_bytes(part.ljust(_NUMBER_BYTES, b"\x00"), "big")

    def key(self, number: int) -> bytes:
        """Return the lowest key with a number."""
        if self.integers:
            return self._prefix + tuples.encode((number,))
        return self._prefix + number.to_bytes(_NUMBER_BYTES, "big")


def _batch(segments: Sequence[_Segment]) -> pa.RecordBatch:
    """Return segments as a record batch; tables without rows are left out."""
    tables = [[table for table, rows in enumerate(segment.rows) if rows] for segment in segments]
    both = list(zip(segments, tables, strict=True))
    columns = [
        pa.array([segment.key for segment in segments], SCHEMA.field(0).type),
        pa.array(tables, SCHEMA.field(1).type),
        pa.array([[segment.rows[t] for t in held] for segment, held in both], SCHEMA.field(2).type),
        pa.array([[segment.bytes[t] for t in held] for segment, held in both], SCHEMA.field(3).type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
