"""Constants in conditions: values that are known before a query runs, and what of a column's type they are."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from f1common.encoding.values import INT64_MAX, INT64_MIN, Date, Timestamp, numeric_units
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ColumnType, Kind
from f1server.plan.types import of_data_type
from f1server.rows.calendars import days_of, parse_date, parse_timestamp
from f1server.rows.coerce import coerce
from f1server.rows.values import Value

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Known:
    """A constant of the text. ``untyped``: a text literal, which takes the type of what it is compared with."""

    value: Value
    untyped: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A parameter, by its number from 1; ``kind``: what it is cast to."""

    number: int
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the statement."""


@dataclass(frozen=True, slots=True)
class Shifted:
    """A date or time and an interval in months and microseconds."""

    start: "Constant"
    months: int
    us: int


Constant = Known | Given | Now | Shifted


def constant(node: exp.Expr | None) -> Constant | None:
    """Return the constant that an expression is, or None."""
    match node:
        case exp.Paren():
            return constant(node.this)
        case exp.Literal():
            return _literal(node)
        case exp.Boolean():
            return Known(bool(node.this))
        case exp.Null():
            return Known(None)
        case exp.Neg():
            inner = constant(node.this)
            if (
                isinstance(inner, Known)
                and isinstance(inner.value, int | float | Decimal)
                and not isinstance(inner.value, bool)
            ):
                return Known(-inner.value)
            return None
        case exp.Parameter() if isinstance(node.this, exp.Literal) and node.name.isdecimal():
            return Given(int(node.name))
        case exp.CurrentTimestamp():
            return Now()
        case exp.TryCast():
            return None
        case exp.Cast():
            return _cast(node)
        case exp.Add() | exp.Sub():
            return _shifted(node)
        case _:
            return None


def _literal(node: exp.Literal) -> Known | None:
    text = str(node.this)
    if node.is_string:
        return Known(text, untyped=True)
    if text.isdecimal():
        return Known(int(text)) if len(text) < 40 else None
    try:
        return Known(float(text) if "e" in text.lower() else Decimal(text))
    except (ValueError, ArithmeticError):
        return None


def _cast(node: exp.Cast) -> Constant | None:
    inner = constant(node.this)
    target = of_data_type(node.args.get("to"))
    if target.kind in (None, Kind.PROTO) or target.lists or inner is None or node.args["to"].expressions:
        return None
    if isinstance(inner, Given):
        return Given(inner.number, target.kind) if inner.kind is None else None
    if not isinstance(inner, Known):
        return None
    value = converted(inner.value, target.kind)
    return Known(value) if value is not None or inner.value is None else None


def _shifted(node: exp.Expr) -> Constant | None:
    start = constant(node.this)
    interval = node.expression
    if not isinstance(interval, exp.Interval) or start is None or not isinstance(interval.this, exp.Literal):
        return None
    unit = interval.text("unit").upper().rstrip("S")
    if not str(interval.this.name).isdecimal() or unit not in _UNITS:
        return None
    months, us = _UNITS[unit]
    count = int(interval.this.name) * (-1 if isinstance(node, exp.Sub) else 1)
    return Shifted(start, months * count, us * count) if abs(count) < 1_000_000 else None


_UNITS = {
    "YEAR": (12, 0),
    "MONTH": (1, 0),
    "WEEK": (0, 7 * _DAY_US),
    "DAY": (0, _DAY_US),
    "HOUR": (0, 3_600_000_000),
    "MINUTE": (0, 60_000_000),
    "SECOND": (0, 1_000_000),
}


def converted(value: Value, kind: Kind | None) -> Value:
    """Convert as a cast does; None if that is not possible here."""
    if kind is None or value is None:
        return value
    try:
        return coerce(ColumnType(kind), value)
    except F1Error:
        return None


@dataclass(frozen=True, slots=True)
class Unfit:
    """A constant that cannot be turned into a value of the column's type without changing the comparison."""


UNFIT = Unfit()


def evaluate(found: Constant, kind: Kind, params: Sequence[object], now_us: int) -> Value | Unfit:
    """Return the value of a constant that is compared with a column of type ``kind``, exactly, or UNFIT."""
    value, untyped = _value(found, params, now_us)
    return value if isinstance(value, Unfit) else exact(value, kind, untyped)


def _value(found: Constant, params: Sequence[object], now_us: int) -> tuple[Value | Unfit, bool]:
    match found:
        case Known():
            return found.value, found.untyped
        case Now():
            return Timestamp(now_us), False
        case Given():
            if found.number > len(params):
                return UNFIT, False
            value = plain(params[found.number - 1])
            if isinstance(value, Unfit) or found.kind is None:
                return value, isinstance(value, str)
            after = converted(value, found.kind)
            return (UNFIT if after is None and value is not None else after), False
        case Shifted():
            start, untyped = _value(found.start, params, now_us)
            return (UNFIT if untyped or isinstance(start, Unfit) else _shift(start, found.months, found.us)), False


def _shift(start: Value, months: int, us: int) -> Value | Unfit:
    if isinstance(start, Date):
        start = Timestamp(start.days * _DAY_US)
    if not isinstance(start, Timestamp):
        return UNFIT
    try:
        if months:
            moment = start.to_datetime()
            total = moment.year * 12 + moment.month - 1 + months
            year, month = total // 12, total % 12 + 1
            length = days_of(year + month // 12, month % 12 + 1, 1) - days_of(year, month, 1)
            moved = moment.replace(year=year, month=month, day=min(moment.day, length))
            start = Timestamp.of(moved)
    except (F1Error, ValueError):
        return UNFIT
    return Timestamp(start.us + us)


def assignable(node: exp.Expr) -> Constant | None:
    """Return the constant that an assigned expression is, or None: what a parameter becomes by a cast is the
    evaluator's to say."""
    found = constant(node)
    return None if isinstance(found, Given) and found.kind is not None else found


def assigned(found: Constant, params: Sequence[object], now_us: int) -> Value:
    """Return the value of an :func:`assignable` constant, not yet converted to the column's type.

    Raises F1Error INVALID_ARGUMENT for a parameter that is missing or no value.
    """
    if isinstance(found, Known):
        return found.value
    if isinstance(found, Given):
        if found.number > len(params):
            message = f"the statement has a parameter {found.number}, but {len(params)} were given"
            raise F1Error(Code.INVALID_ARGUMENT, message)
        value = plain(params[found.number - 1])
        if isinstance(value, Unfit):
            kind = type(params[found.number - 1]).__name__
            raise F1Error(Code.INVALID_ARGUMENT, f"a parameter is no {kind}")
        return value
    moment = evaluate(found, Kind.TIMESTAMP, params, now_us)
    if isinstance(moment, Unfit):
        raise F1Error(Code.INVALID_ARGUMENT, "a date or time with an interval is out of range")
    return moment


def plain(value: object) -> Value | Unfit:
    """Return a parameter as one of our values."""
    match value:
        case None | bool() | int() | float() | Decimal() | str() | bytes() | Date() | Timestamp():
            return value
        case datetime.datetime():
            return Timestamp.of(value if value.tzinfo else value.replace(tzinfo=datetime.UTC))
        case datetime.date():
            return Date.of(value)
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return UNFIT


def exact(value: Value, kind: Kind, untyped: bool = False) -> Value | Unfit:
    """Return the value of type ``kind`` that compares with every value of that type as ``value`` does, or UNFIT."""
    if value is None:
        return None
    if isinstance(value, str) and (untyped or kind is Kind.STRING):
        return _from_text(value, kind)
    match kind, value:
        case (Kind.BOOL, bool()) | (Kind.BYTES, bytes()) | (Kind.DATE, Date()) | (Kind.TIMESTAMP, Timestamp()):
            return value
        case Kind.TIMESTAMP, Date():
            return Timestamp(value.days * _DAY_US)
        case Kind.DATE, Timestamp() if value.us % _DAY_US == 0:
            return Date(value.us // _DAY_US)
        case ((Kind.INT64 | Kind.DOUBLE | Kind.NUMERIC), (int() | float() | Decimal())) if not isinstance(value, bool):
            return _number(value, kind)
    return UNFIT


def _number(value: float | Decimal, kind: Kind) -> Value | Unfit:
    try:
        match kind:
            case Kind.INT64:
                whole = int(value)
                if isinstance(value, float) and abs(whole) >= 1 << 53:
                    return UNFIT  # compared as DOUBLE, in which neighbours are equal
                return whole if whole == value and INT64_MIN <= whole <= INT64_MAX else UNFIT
            case Kind.DOUBLE:
                # DuckDB compares DECIMAL with DOUBLE as DOUBLE; few digits are converted the same way everywhere.
                if isinstance(value, Decimal) and len(value.as_tuple().digits) > 15:
                    return UNFIT
                double = float(value)
                return double if double == value or isinstance(value, Decimal) else UNFIT
            case _:
                if isinstance(value, float):
                    return UNFIT
                number = Decimal(value)
                numeric_units(number)
                return number
    except (F1Error, ArithmeticError, ValueError):
        return UNFIT


def _from_text(value: str, kind: Kind) -> Value | Unfit:
    try:
        match kind:
            case Kind.STRING:
                return value
            case Kind.DATE:
                return parse_date(value)
            case Kind.TIMESTAMP:
                return parse_timestamp(value)
            case Kind.INT64 | Kind.NUMERIC | Kind.BOOL | Kind.BYTES:
                return coerce(ColumnType(kind), value)
            case _:
                return UNFIT
    except F1Error:
        return UNFIT
