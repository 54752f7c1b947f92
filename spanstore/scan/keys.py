"""Which keys within a hierarchy are rows of the table that is asked for, and how to get past those that are not."""

from f1common.encoding import tuple as tuples
from spanstore.scan.plan import KeyShape


class KeyFilter:
    """Recognises the keys of a :class:`~spanstore.scan.plan.KeyShape`."""

    __slots__ = ("_elements", "_position", "_table", "_value", "filters")

    def __init__(self, shape: KeyShape) -> None:
        self._elements = shape.elements
        self._position = shape.position
        self._table = shape.table
        self._value = tuples.decode(shape.table)[0] if shape.table else None
        self.filters = bool(shape.elements or shape.table)

    def matches(self, parts: tuple[tuples.Value, ...]) -> bool:
        """Tell whether a key with these elements belongs to the table."""
        if self._elements and len(parts) != self._elements:
            return False
        if not self._table:
            return True
        if len(parts) <= self._position:
            return False
        found = parts[self._position]
        # Equality within one type: True is 1 to Python.
        return type(found) is type(self._value) and found == self._value

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
