"""Which keys within a hierarchy are rows of the table that is asked for, and how to get past those that are not."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from f1common.encoding import tuple as tuples
from spanstore.scan.plan import KeyShape

_MOST_SHAPES: Final = 4
"""Sizes of elements among the keys of a page: with more of them each key is looked at."""

_SIZES: Final = bytes(tuples.ELEMENT_BYTES)
"""The size of an element by its tag, for all bytes of a key at once: those that are no tags are not looked at."""

_Shape = tuple[int, Callable[[bytes], object], object, Callable[[bytes], object], object]
"""How long a key is; what takes the size of each element from the sizes of all bytes, and what that gives; what takes
the elements that tell the table from the key, and what that gives."""


class KeyFilter:
    """Recognises the keys of a :class:`~spanstore.scan.plan.KeyShape`."""

    __slots__ = ("_alike", "_elements", "_more", "_position", "_table", "_value", "_values", "filters", "needs_parts")

    def __init__(self, shape: KeyShape) -> None:
        self._elements = shape.elements
        self._alike: _Shape | None = None
        self._position = shape.position
        self._table = shape.table
        self._value = tuples.decode(shape.table)[0] if shape.table else None
        self._more = list(shape.more)
        self._values = [(position, tuples.decode(element)[0]) for position, element in shape.more]
        self.filters = bool(shape.elements or shape.table or shape.more)
        self.needs_parts = bool(shape.table or shape.more)
        """Whether it takes more than :meth:`has_elements` to tell."""

    def matches(self, parts: tuple[tuples.Value, ...]) -> bool:
        """Tell whether a key with these elements belongs to the table."""
        if self._elements and len(parts) != self._elements:
            return False
        if self._table and not _equal(parts, self._position, self._value):
            return False
        return not self._values or all(_equal(parts, position, value) for position, value in self._values)

    def has_elements(self, key: bytes) -> bool:
        """Tell whether a key has as many elements as those of the table, without decoding it."""
        position, end = 0, len(key)
        for _ in range(self._elements):
            if position >= end:
                return False
            size = tuples.ELEMENT_BYTES[key[position]]
            position = position + size if size else key.find(b"\x00", position) + 1 or end + 1
        return position == end

    def all_match(self, keys: Sequence[bytes]) -> bool:
        """Tell whether all keys belong to the table, without decoding them; where False, some may.

        Neighbours mostly are alike: as long, with elements of the same sizes. Who is like one that was looked at needs
        no look but at the elements that tell the table.
        """
        rest = keys
        for _ in range(_MOST_SHAPES):
            alike = self._alike
            if alike is not None:
                length, at_tags, sizes, at_marks, marks = alike
                rest = [
                    key
                    for key in rest
                    if len(key) != length or at_tags(key.translate(_SIZES)) != sizes or at_marks(key) != marks
                ]
            if not rest:
                return True
            self._alike = self._shape_of(rest[0])
            if self._alike is None:
                return False
        return False

    def _shape_of(self, key: bytes) -> _Shape | None:
        """Return the shape of a key; None if it is of another table, or has elements whose end has to be sought."""
        places, position = [0], 0
        while position < len(key) and len(places) <= self._elements:
            size = tuples.ELEMENT_BYTES[key[position]]
            position = position + size if size else len(key) + 1
            places.append(position)
        if len(places) != self._elements + 1 or position != len(key):
            return None
        wanted = [*self._more, (self._position, self._table)] if self._table else self._more
        if any(at >= self._elements for at, _ in wanted):
            return None
        slices = [slice(*places[at : at + 2]) for at, _ in wanted]
        if [key[where] for where in slices] != [element for _, element in wanted]:
            return None
        at_tags = itemgetter(*places[:-1])
        at_marks = itemgetter(*slices) if slices else len
        return len(key), at_tags, at_tags(key.translate(_SIZES)), at_marks, at_marks(key)

    def next_candidate(self, key: bytes) -> bytes:
        """Return a key above ``key``, which does not match, such that nothing between the two matches."""
        parts = len(tuples.decode(key))
        if self._table and parts > self._position:
            _, begin = tuples.decode_prefix(key, self._position)
            _, end = tuples.decode_prefix(key, self._position + 1)
            element = key[begin:end]
            if element < self._table:
                return key[:begin] + self._table
            if element > self._table:
                return tuples.successor(key[:begin])
        if self._elements and parts > self._elements:
            # Descendants of a row of the table, or of one at its level.
            _, end = tuples.decode_prefix(key, self._elements)
            return tuples.successor(key[:end])
        return key + b"\x00"


def _equal(parts: tuple[tuples.Value, ...], position: int, value: tuples.Value) -> bool:
    """Compare one element within one type: True is 1 to Python."""
    return len(parts) > position and type(parts[position]) is type(value) and parts[position] == value
