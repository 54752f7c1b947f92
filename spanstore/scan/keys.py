"""Which keys within a hierarchy are rows of the table that is asked for, and how to get past those that are not."""

from f1common.encoding import tuple as tuples
from spanstore.scan.plan import KeyShape


class KeyFilter:
    """Recognises the keys of a :class:`~spanstore.scan.plan.KeyShape`."""

    __slots__ = ("_elements", "_more", "_position", "_table", "_value", "filters", "needs_parts")

    def __init__(self, shape: KeyShape) -> None:
        self._elements = shape.elements
        self._position = shape.position
        self._table = shape.table
        self._value = tuples.decode(shape.table)[0] if shape.table else None
        self._more = [(position, tuples.decode(element)[0]) for position, element in shape.more]
        self.filters = bool(shape.elements or shape.table or shape.more)
        self.needs_parts = bool(shape.table or shape.more)
        """Whether it takes more than :meth:`has_elements` to tell."""

    def matches(self, parts: tuple[tuples.Value, ...]) -> bool:
        """Tell whether a key with these elements belongs to the table."""
        if self._elements and len(parts) != self._elements:
            return False
        if self._table and not _equal(parts, self._position, self._value):
            return False
        return not self._more or all(_equal(parts, position, value) for position, value in self._more)

    def has_elements(self, key: bytes) -> bool:
        """Tell whether a key has as many elements as those of the table, without decoding it."""
        position, end = 0, len(key)
        for _ in range(self._elements):
            if position >= end:
                return False
            size = tuples.ELEMENT_BYTES[key[position]]
            position = position + size if size else key.find(b"\x00", position) + 1 or end + 1
        return position == end

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
