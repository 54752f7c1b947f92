"""How many rows of each table there are, and where: what plans of queries need to know, without the rows.

The keys of the ranges are walked over once and counted in *segments*: from a key to the next segment's, so many rows of
each table with so many bytes of values. A segment has 16 keys at first and more the more keys there are, so that small
hierarchies can be divided as evenly as large ones. A row counts if its newest version is no deletion; neither the
timestamp nor checksums are looked at, the counts are for estimates.

Which table a key belongs to is found by walking down the tables' paths over the tags of the key's elements, which is
half as much work as decoding them. Keys of no table that was asked for (entries of indexes, say) are counted together.

After ``max_keys`` keys of a range only the first key of each of 64 equal parts of the rest is looked up, equal as
numbers, and each part with a key is taken to be as dense as what was walked over.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from f1common.encoding.tuple import ELEMENT_BYTES
from spanstore.engine.base import Reader
from spanstore.engine.keyspace import PREFIX_BYTES, data_prefix
from spanstore.scan.cursor import ScanCursor, Step, check_applied
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
_AFTER = b"\x01"
_MAX_STEPS = 8
_ITEMS_PER_CHECK = 512
_FEWEST_KEYS = 16
_SEGMENTS = 256
"""A segment has at most so manieth part of the keys before it: the number of segments grows with the logarithm."""
_PARTS = 64
_NUMBER_BYTES = 12
"""Bytes of a key, after what a range's borders have in common, that are taken for a number."""


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
    """Tells which table a key belongs to."""

    __slots__ = ("_others", "_roots")

    def __init__(self, tables: Sequence[tuple[tuple[bytes, int], ...]]) -> None:
        """Take paths as in :class:`~spanstore.scan.plan.Sketch`."""
        self._roots: dict[bytes, _Node] = {}
        self._others = len(tables)
        for number, path in enumerate(tables):
            children = self._roots
            for position, (table, own) in enumerate(path, 1):
                node = children.setdefault(table, _Node(own))
                if position == len(path):
                    node.number = number
                children = node.children

    def table(self, key: bytes) -> int:
        """Return the position of the key's table, or how many tables there are for a key of none of them."""
        sizes, children, end = ELEMENT_BYTES, self._roots, len(key)
        position = 0
        try:
            while True:
                start = position
                position += sizes[key[position]]
                node = children.get(key[start:position])
                if node is None:
                    return self._others
                for _ in range(node.own):
                    size = sizes[key[position]]
                    position = position + size if size else key.index(0, position + 1) + 1
                if position == end:
                    return node.number if node.number >= 0 else self._others
                children = node.children
        except (IndexError, ValueError):
            return self._others  # it ends too soon, or is no tuple


@dataclass(slots=True)
class _Segment:
    key: bytes
    rows: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Walked:
    """What was walked over of the current range."""

    start: bytes
    keys: int = 0
    rows: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)


class SketchCursor:
    """The position of a sketch and how to go on from it. As :class:`~spanstore.scan.cursor.ScanCursor`."""

    def __init__(
        self,
        plan: ScanPlan,
        boot_us: Callable[[], int],
        *,
        step_us: int = 100_000,
        items_per_check: int = _ITEMS_PER_CHECK,
    ) -> None:
        """Begin at the first range. A step takes about ``step_us`` at most. Raises F1Error INVALID_ARGUMENT."""
        check_plan(plan)
        self._plan = plan
        self._sketch = sketch = plan.sketch or Sketch()
        self._boot_us = boot_us
        self._step_us = step_us
        self._items_per_check = items_per_check
        self._tree = TableTree(sketch.tables)
        self._range = 0
        self._start = plan.ranges[0][0]
        self._walked = _Walked(self._start)
        self._done = False

    def schema(self) -> Step:
        """Return the schema as an IPC message, and the beginning as the position."""
        return Step(SCHEMA.serialize().to_pybytes(), 0, self._range, self._start, self._done)

    def step(self, reader: Reader) -> Step:
        """Count on from ``reader``. Raises F1Error UNAVAILABLE (the view lacks what the timestamp needs)."""
        plan = self._plan
        check_applied(reader, plan)
        until_us = self._boot_us() + self._step_us
        segments: list[_Segment] = []
        while not self._done and self._walk(reader, segments, until_us):
            self._range += 1
            self._done = self._range == len(plan.ranges)
            self._start = b"" if self._done else plan.ranges[self._range][0]
            self._walked = _Walked(self._start)
            if self._boot_us() >= until_us:
                break
        ipc = _batch(segments).serialize().to_pybytes() if segments else b""
        return Step(ipc, len(segments), self._range, self._start, self._done)

    def _walk(self, reader: Reader, segments: list[_Segment], until_us: int) -> bool:
        """Count keys of the current range; tell whether it came to its end before the time was over."""
        walked, table_of = self._walked, self._tree.table
        room = self._items_per_check
        segment = _Segment(b"")
        left = 0
        for key, alive in self._keys(reader):
            room -= 1
            if room < 0:
                if self._boot_us() >= until_us:
                    self._close(segment, segments)
                    return False
                room = self._items_per_check
            if not key:
                continue  # an older version
            self._start = key + _AFTER
            if alive < 0:
                continue
            if not left:
                self._close(segment, segments)
                if walked.keys >= self._sketch.max_keys:
                    self._extrapolate(reader, key, segments)
                    return True
                segment = _Segment(key)
                left = max(1, min(max(_FEWEST_KEYS, walked.keys // _SEGMENTS), self._sketch.every))
            left -= 1
            walked.keys += 1
            table = table_of(key)
            segment.rows[table] = segment.rows.get(table, 0) + 1
            segment.bytes[table] = segment.bytes.get(table, 0) + alive
        self._close(segment, segments)
        return True

    def _keys(self, reader: Reader) -> Iterator[tuple[bytes, int]]:
        """Yield the keys from the position to the range's end, each with the bytes of its newest value.

        The bytes of a deletion are negative; an older version is an empty key.
        """
        prefix = data_prefix(self._plan.group)
        low, high = prefix + self._start, prefix + self._plan.ranges[self._range][1]
        while low:
            found, steps, restart = b"", 0, b""
            for engine_key, data in reader.scan(low, high):
                here = engine_key[:-_SUFFIX_BYTES]
                if here != found:
                    found, steps = here, 0
                    yield here[PREFIX_BYTES:], len(data) - _HEAD_BYTES if data[:1] != b"\x00" else -1
                else:
                    steps += 1
                    yield b"", 0
                    if steps > _MAX_STEPS:
                        restart = found + _AFTER
                        break
            low = restart

    def _close(self, segment: _Segment, segments: list[_Segment]) -> None:
        if not segment.rows:
            return
        segments.append(segment)
        for table, rows in segment.rows.items():
            self._walked.rows[table] = self._walked.rows.get(table, 0) + rows
            self._walked.bytes[table] = self._walked.bytes.get(table, 0) + segment.bytes[table]

    def _extrapolate(self, reader: Reader, key: bytes, segments: list[_Segment]) -> None:
        """Add segments for what lies from ``key`` to the range's end, as dense as what was walked over."""
        group, (_, end) = self._plan.group, self._plan.ranges[self._range]
        prefix = data_prefix(group)
        first = reader.seek_first(prefix + self._walked.start, prefix + end)
        last = reader.seek_last(prefix + key, prefix + end)
        if first is None or last is None:
            return
        low, high = first[0][PREFIX_BYTES:-_SUFFIX_BYTES], last[0][PREFIX_BYTES:-_SUFFIX_BYTES]
        line = _Line(low, high)
        begin, stop = line.number(key), line.number(high)
        borders = [key, *(line.key(begin + (stop - begin) * i // _PARTS) for i in range(1, _PARTS)), end]
        factor = (stop - begin) / _PARTS / max(1, begin - line.number(low))
        for place, above in pairwise(borders):
            found = reader.seek_first(prefix + max(place, key), prefix + above)
            if found is not None:
                rows = {table: round(count * factor) for table, count in self._walked.rows.items()}
                sizes = {table: round(size * factor) for table, size in self._walked.bytes.items()}
                segments.append(_Segment(found[0][PREFIX_BYTES:-_SUFFIX_BYTES], rows, sizes))


class _Line:
    """Keys between two as numbers."""

    def __init__(self, low: bytes, high: bytes) -> None:
        common = 0
        while common < min(len(low), len(high)) and low[common] == high[common]:
            common += 1
        self._prefix = low[:common]

    def number(self, key: bytes) -> int:
        """Return the number of a key that is between the two."""
        part = key[len(self._prefix) : len(self._prefix) + _NUMBER_BYTES]
        return int.from_bytes(part.ljust(_NUMBER_BYTES, b"\x00"), "big")

    def key(self, number: int) -> bytes:
        """Return the lowest key with a number."""
        return self._prefix + number.to_bytes(_NUMBER_BYTES, "big")


def _batch(segments: Sequence[_Segment]) -> pa.RecordBatch:
    tables = [sorted(segment.rows) for segment in segments]
    columns = [
        pa.array([segment.key for segment in segments], SCHEMA.field(0).type),
        pa.array(tables, SCHEMA.field(1).type),
        pa.array([[s.rows[t] for t in ts] for s, ts in zip(segments, tables, strict=True)], SCHEMA.field(2).type),
        pa.array([[s.bytes[t] for t in ts] for s, ts in zip(segments, tables, strict=True)], SCHEMA.field(3).type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
