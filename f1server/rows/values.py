"""Values of columns between the parts of the server, and when two of them are the same."""

import math
from decimal import Decimal

from f1common.encoding.values import Date, Timestamp

Value = None | bool | int | float | Decimal | str | bytes | Date | Timestamp
"""The value of a column: BOOL bool, INT64 int, DOUBLE float, NUMERIC Decimal, STRING str, BYTES and PROTO bytes, DATE
Date, TIMESTAMP Timestamp, NULL None."""

Row = dict[int, Value]
"""A row as all its columns' values by column id."""


def same(a: Value, b: Value) -> bool:
    """Tell whether two values are one and the same, not merely equal: 0.0 is not -0.0, 1.5 is not 1.50, NaN is NaN."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a.as_tuple() == b.as_tuple()
    return a == b
