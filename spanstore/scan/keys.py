"""Which keys within a hierarchy are rows of the table that is asked for, and how to get past those that are not."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
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

    __slots__ = ("_alike", "_elements", "_marks", "_position", "_table", "filters")

    def __init__(self, shape: KeyShape) -> None:
        self._elements = shape.elements
        self._alike: _Shape | None = None
        self._position = shape.position
        self._table = shape.table
        self._marks = dict(shape.more)
        if shape.table:
            self._marks[shape.position] = shape.table
        self.filters = bool(self._elements or self._marks)

    def matches(self, key: bytes) -> bool:
        """Tell whether a key belongs to the table, without decoding it.

        One that breaks off belongs to none; where elements tell the table, it raises F1Error INVALID_ARGUMENT.
        """
        position, count, end = 0, 0, len(key)
        marks, most = self._marks, self._elements
        while position < end and (not most or count <= most):
            size = tuples.ELEMENT_BYTES[key[position]]
            after = position + size if size else key.find(b"\x00", position) + 1 or end + 1
            if count in marks and key[position:after] != marks[count]:
                return False
            count, position = count + 1, after
        if position > end and marks:
            elements(key)
        return position == end and (not most or count == most) and all(mark < count for mark in marks)

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
        if any(at >= self._elements for at in self._marks):
            return None
        slices = [slice(*places[at : at + 2]) for at in self._marks]
        if [key[where] for where in slices] != list(self._marks.values()):
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


def elements(key: bytes) -> tuple[tuples.Value, ...]:
    """Return the elements of a key. Raises F1Error INVALID_ARGUMENT."""
    try:
        return tuples.decode(key)
    except F1Error as error:
        raise not_so_written(key, error) from error


def not_so_written(key: bytes, error: F1Error) -> F1Error:
    """Return the error of a version that is stored as it was written, by its checksum, and is no row of a table.

    It is none of a damaged disk: every replica has these bytes, and taking one after the other out of service because
    of them would leave nobody to rebuild them from.
    """
    return F1Error(
        Code.INVALID_ARGUMENT,
        f"what was written with the key {key.hex()} cannot be read as a row: {error.message}; scan keys and values as "
        "they are stored",
        details={"key": key.hex()},
    )
