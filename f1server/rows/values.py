"""Values of columns between the parts of the server, and when two of them are the same."""

import math
from collections.abc import Iterable
from decimal import Decimal

from f1common.encoding.values import Date, Timestamp
from f1common.errors import F1Error

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


def shown(value: object, most: int = 80) -> str:
    """Return a value as messages show it: as SQL writes it, and not longer than so many characters."""
    text = _text(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def shown_all(values: Iterable[object]) -> str:
    """Return the values of a key as messages show them."""
    return f"({', '.join(map(shown, values))})"


def _text(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'" if value.isprintable() else repr(value)
        case bytes():
            return "\\x" + value.hex()
        case Decimal():
            return f"{value:f}"
        case Date() | Timestamp():
            return _moment(value)
        case _:
            return str(value)


def _moment(value: Date | Timestamp) -> str:
    try:
        if isinstance(value, Date):
            return f"'{value.to_date().isoformat()}'"
        return f"'{value.to_datetime().isoformat(sep=' ')}'"
    except F1Error:  # outside the years 1 to 9999
        return f"{value.days} days after 1970-01-01" if isinstance(value, Date) else f"{value.us} us after 1970"
