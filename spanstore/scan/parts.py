"""Columns of key parts, from many keys at once.

A table within a hierarchy has the keys of its ancestors in its own, and most queries want some of them. Decoding a key
took as long as decoding all cells of its row. Here numpy walks over an element of all keys at a time. What is not a
whole number, a date or a timestamp, and keys with text before the part, are decoded one by one.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Date, Timestamp, Value
from f1common.encoding.values import DATE_MAX, DATE_MIN, INT64_MAX, INT64_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from f1common.errors import check
from spanstore.scan.arrow import ARROW_TYPES
from spanstore.scan.plan import ColumnType

__all__ = ["key_parts"]

_LONGEST: Final = 8
"""Bytes of an element after its tag."""
_SIZES: Final = np.array(tuples.ELEMENT_BYTES, np.int64)
_NULL: Final = tuples.encode((None,))[0]


class _Elements:
    """Elements of a type, by their tags: which payloads are valid, and what is added to one to have the value."""

    def __init__(self, borders: Sequence[tuple[Value, Value, int, int]], kind: ColumnType) -> None:
        """``borders``: the first and the last value that share a tag, and these as whole numbers."""
        self.kind = ARROW_TYPES[kind]
        self.dtype = np.int32 if kind is ColumnType.DATE else np.int64
        self.least = np.ones(256, np.uint64)
        self.most = np.zeros(256, np.uint64)
        self.more = np.zeros(256, np.int64)
        self.least[_NULL] = 0
        for first, last, low, high in borders:
            begin, end = tuples.encode((first,)), tuples.encode((last,))
            least, most = int.from_bytes(begin[1:], "big"), int.from_bytes(end[1:], "big")
            check(begin[0] == end[0] and most - least == high - low, "values with one tag ascend as their payloads do")
            self.least[begin[0]], self.most[begin[0]] = least, most
            self.more[begin[0]] = np.uint64((low - least) % (1 << 64)).astype(np.int64)
        self.most_bytes = int(_SIZES[self.least <= self.most].max()) - 1


def _integers() -> list[tuple[Value, Value, int, int]]:
    found: list[tuple[int, int]] = [(number, number) for number in range(128)]
    for size in range(1, _LONGEST + 1):
        below, above = 1 << 8 * (size - 1), (1 << 8 * size) - 1
        found.append((max(128, below), min(above, INT64_MAX)))
        found.append((max(-above, INT64_MIN), -below))
    return [(first, last, first, last) for first, last in found]


_TYPES: Final = {
    ColumnType.INT64: _Elements(_integers(), ColumnType.INT64),
    ColumnType.DATE: _Elements([(Date(DATE_MIN), Date(DATE_MAX), DATE_MIN, DATE_MAX)], ColumnType.DATE),
    ColumnType.TIMESTAMP: _Elements(
        [(Timestamp(TIMESTAMP_MIN), Timestamp(TIMESTAMP_MAX), TIMESTAMP_MIN, TIMESTAMP_MAX)], ColumnType.TIMESTAMP
    ),
}


def key_parts(keys: Sequence[bytes], number: int, kind: ColumnType) -> Any:
    """Return the array of the elements at position ``number``; None if it takes a look at each key."""
    elements = _TYPES.get(kind)
    if elements is None or not keys:
        return None
    ends = np.fromiter(map(len, keys), np.int64, len(keys)).cumsum()
    at = np.concatenate(([0], ends[:-1]))
    # What follows the last key is read, and has no part in any value.
    data = np.frombuffer(b"".join(keys) + bytes(1 + _LONGEST), np.uint8)
    for _ in range(number):
        if (at >= ends).any():
            return None
        sizes = _SIZES[data[at]]
        if not sizes.all():
            return None
        at = at + sizes
    if (at >= ends).any():
        return None
    tags = data[at]
    sizes = _SIZES[tags]
    if (at + sizes > ends).any():
        return None
    payload = np.zeros(len(keys), np.uint64)
    for position in range(1, elements.most_bytes + 1):
        payload = np.where(sizes > position, payload << np.uint64(8) | data[at + position], payload)
    if ((payload < elements.least[tags]) | (payload > elements.most[tags])).any():
        return None
    values = payload.view(np.int64) + elements.more[tags]
    missing = tags == _NULL
    found = pa.array(values.astype(elements.dtype), mask=missing if missing.any() else None)
    return found.view(elements.kind)
