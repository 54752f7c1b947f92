"""Tests of one column against constants, on whole Arrow arrays.

Equality and order are those of the tuple codec, so that a test here and a key range agree: -0.0 equals 0.0, NaN equals
itself and is the greatest number, FALSE sorts before TRUE, text and bytes compare as bytes (for UTF-8 that is the order
of code points), 1.50 equals 1.5. NULL matches nothing but IS NULL. The tests are exact: they select neither more nor
less.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error
from spanstore.scan.arrow import PYTHON_TYPES, to_array
from spanstore.scan.plan import Column, ColumnType, Operator, Predicate, literal

Test = Callable[[Any], Any]
"""Takes the column's array, gives a mask without nulls."""

_COMPARISONS: Mapping[Operator, Callable[[Any, Any], Any]] = {
    Operator.EQ: pc.equal,
    Operator.NE: pc.not_equal,
    Operator.LT: pc.less,
    Operator.LE: pc.less_equal,
    Operator.GT: pc.greater,
    Operator.GE: pc.greater_equal,
}


def compile_predicate(column: Column, predicate: Predicate) -> Test:
    """Return the test of ``column`` that ``predicate`` describes. Raises F1Error INVALID_ARGUMENT."""
    operator = predicate.operator
    if operator in (Operator.IS_NULL, Operator.IS_NOT_NULL):
        if predicate.literals:
            raise _invalid(column, f"{operator} takes no literal")
        return _is_null if operator is Operator.IS_NULL else _is_valid
    if column.type is ColumnType.PROTO:
        raise _invalid(column, "messages compare to nothing; test one of their fields")
    values = [literal(encoded) for encoded in predicate.literals]
    for value in values:
        if type(value) not in PYTHON_TYPES[column.type]:
            raise _invalid(column, f"a {column.type} is not compared to a {type(value).__name__}")
    known = [value for value in values if value is not None]
    if operator is Operator.IN:
        return _is_in(column.type, known)
    if len(values) != 1:
        raise _invalid(column, f"{operator} takes one literal, not {len(values)}")
    if not known:
        return _nothing
    value = known[0]
    if isinstance(value, float) and math.isnan(value):
        return _with_nan(operator)
    compare = _COMPARISONS[operator]
    scalar = to_array(column.type, known)[0]
    if column.type is ColumnType.DOUBLE and operator in (Operator.GT, Operator.GE):
        # Arrow finds a NaN neither greater nor less than anything.
        return lambda array: pc.fill_null(pc.or_(compare(array, scalar), pc.is_nan(array)), False)
    return lambda array: pc.fill_null(compare(array, scalar), False)


def _with_nan(operator: Operator) -> Test:
    """Comparisons with NaN, which is the greatest number and equal to itself."""
    match operator:
        case Operator.EQ | Operator.GE:
            return _is_nan
        case Operator.NE | Operator.LT:
            return lambda array: pc.fill_null(pc.invert(pc.is_nan(array)), False)
        case Operator.LE:
            return _is_valid
        case _:
            return _nothing


def _is_in(kind: ColumnType, values: Sequence[Value]) -> Test:
    if kind is not ColumnType.DOUBLE:
        options = to_array(kind, values)
        return lambda array: pc.is_in(array, value_set=options)
    numbers = [value for value in values if isinstance(value, float)]
    wanted = to_array(kind, [number for number in numbers if not math.isnan(number)])
    nan_too = len(wanted) < len(numbers)

    def is_in(array: Any) -> Any:
        # Adding 0.0 makes 0.0 of -0.0: what hashing takes for equal is not left to chance.
        found = pc.is_in(pc.add(array, 0.0), value_set=wanted)
        return pc.or_(found, _is_nan(array)) if nan_too else found

    return is_in


def _is_null(array: Any) -> Any:
    return pc.is_null(array)


def _is_valid(array: Any) -> Any:
    return pc.is_valid(array)


def _is_nan(array: Any) -> Any:
    return pc.fill_null(pc.is_nan(array), False)


def _nothing(array: Any) -> Any:
    return pa.repeat(pa.scalar(False), len(array))


def _invalid(column: Column, message: str) -> F1Error:
    return F1Error(Code.INVALID_ARGUMENT, f"predicate on column {column.name}: {message}")
