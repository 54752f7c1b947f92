"""Values that arrive from anywhere become values of a column's type, or a clear error.

What is converted is what PostgreSQL converts when it assigns to a column: numbers to each other (rounding; half away
from zero to NUMERIC and from it, half to even from DOUBLE), anything to text, text in the type's input format to
anything. A value that does not fit is OUT_OF_RANGE, one that means nothing INVALID_ARGUMENT. All is in UTC.
"""

import datetime
import decimal
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from f1common.encoding.values import INT64_MAX, INT64_MIN, NUMERIC_LIMIT, NUMERIC_SCALE, Date, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ColumnType, Kind, Schema, Table
from f1server.rows import protofields
from f1server.rows.calendars import parse_date, parse_timestamp
from f1server.rows.values import Row, Value

_CONTEXT = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])
_TRUE = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
_FALSE = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,9})?", re.IGNORECASE)
_DOUBLES = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}
_BYTEA_ESCAPE = re.compile(rb"\\(\\|[0-3][0-7]{2})?")
_DAY_US = 86_400_000_000

_EXACT: dict[Kind, type] = {
    Kind.BOOL: bool,
    Kind.DOUBLE: float,
    Kind.BYTES: bytes,
    Kind.DATE: Date,
    Kind.TIMESTAMP: Timestamp,
}


def coerce_row(schema: Schema, table: Table, values: Mapping[int, object]) -> Row:
    """Convert values by column id. Raises NOT_FOUND for an id the table does not have; as :func:`coerce_column`."""
    row: Row = {}
    for column_id, value in values.items():
        column = table.by_id.get(column_id)
        if column is None:
            raise F1Error(
                Code.NOT_FOUND,
                f"the schema has changed: a column of table {table.name} that the transaction wrote is there no more",
            )
        row[column_id] = coerce_column(schema, table, column, value)
    return row


def coerce_column(schema: Schema, table: Table, column: Column, value: object) -> Value:
    """Convert a value for a column. Raises INVALID_ARGUMENT, OUT_OF_RANGE, naming the column and the value.

    ``value`` is of any of the types of :data:`Value`, or of the standard library's date and datetime (UTC if naive).
    """
    if value is None:
        return None
    kind = column.type.kind
    given = type(value)
    if given is _EXACT.get(kind):
        return value  # type: ignore[return-value]
    # Most values are what they should be already.
    if given is int and kind is Kind.INT64 and INT64_MIN <= value <= INT64_MAX:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    if given is str and kind is Kind.STRING and not column.type.max_length and value.isascii():  # type: ignore[attr-defined]
        return value  # type: ignore[return-value]
    try:
        if kind is Kind.PROTO:
            return _proto(schema, column.type.proto, value)
        return coerce(column.type, value)
    except F1Error as error:
        code = Code.INVALID_ARGUMENT if error.code is Code.DATA_CORRUPTION else error.code
        raise F1Error(
            code,
            f"column {table.name}.{column.name}: {error.message}",
            details={"table": table.name, "column": column.name},
        ) from error


def coerce(kind: ColumnType, value: object) -> Value:
    """Convert a value to a type other than PROTO. Raises INVALID_ARGUMENT, OUT_OF_RANGE."""
    if value is None:
        return None
    result: Value = _CONVERTERS[kind.kind](value, kind)
    return result


def _bool(value: object, _: ColumnType) -> Value:
    match value:
        case bool():
            return value
        case str():
            word = value.strip().lower()
            if word in _TRUE or word in _FALSE:
                return word in _TRUE
        case _:
            pass
    raise _wrong(value, "BOOL")


def _int(value: object, _: ColumnType) -> Value:
    match value:
        case bool():
            raise _wrong(value, "INT64")
        case int():
            number = value
        case float() if math.isfinite(value):
            number = round(value)
        case Decimal() if value.is_finite():
            number = _rounded_to_int(value)
        case str() if _INTEGER.fullmatch(value.strip()) and len(value) <= 1000:
            number = int(value)
        case float() | Decimal():
            raise _out_of_range(value, "INT64")
        case _:
            raise _wrong(value, "INT64")
    if not INT64_MIN <= number <= INT64_MAX:
        raise _out_of_range(value, "INT64")
    return number


def _rounded_to_int(value: Decimal) -> int:
    if value and value.adjusted() > 30:  # 1E+999999999 is not multiplied out
        raise _out_of_range(value, "INT64")
    return int(value.to_integral_value(context=_CONTEXT, rounding=decimal.ROUND_HALF_UP))


def _double(value: object, _: ColumnType) -> Value:
    match value:
        case bool():
            raise _wrong(value, "DOUBLE")
        case float():
            return value
        case int() | Decimal():
            try:
                number = float(value)
            except (OverflowError, ValueError):
                raise _out_of_range(value, "DOUBLE") from None
        case str():
            word = value.strip().lower().removeprefix("+")
            if word in _DOUBLES:
                return _DOUBLES[word]
            if not _NUMBER.fullmatch(word):
                raise _wrong(value, "DOUBLE")
            number = float(word)
        case _:
            raise _wrong(value, "DOUBLE")
    if math.isinf(number):
        raise _out_of_range(value, "DOUBLE")
    return number


def _numeric(value: object, kind: ColumnType) -> Value:
    match value:
        case bool():
            raise _wrong(value, kind.sql())
        case Decimal():
            number = value
        case int():
            if value.bit_length() > 200:
                raise _out_of_range(value, kind.sql())
            number = Decimal(value)
        case float():
            # PostgreSQL goes by the 15 digits that a DOUBLE is certain to have.
            number = Decimal(f"{value:.15g}")
        case str() if _NUMBER.fullmatch(value.strip()) and len(value) <= 1000:
            number = Decimal(value.strip())
        case str() if value.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
            raise _out_of_range(value, kind.sql())
        case _:
            raise _wrong(value, kind.sql())
    scale = kind.scale if kind.precision else NUMERIC_SCALE
    if not number.is_finite() or (number and number.adjusted() > 38):
        raise _out_of_range(value, kind.sql())
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and (-exponent > scale or kind.precision):
        number = number.quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)
    limit = Decimal(10) ** (kind.precision - scale) if kind.precision else Decimal(NUMERIC_LIMIT).scaleb(-NUMERIC_SCALE)
    if number.copy_abs() >= limit:
        raise _out_of_range(value, kind.sql())
    return number


def _string(value: object, kind: ColumnType) -> Value:
    text = text_of(value, kind)
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        raise F1Error(Code.INVALID_ARGUMENT, "the text is no valid Unicode (a lone surrogate)") from None
    if kind.max_length and len(text) > kind.max_length:
        if text[kind.max_length :].strip(" "):
            raise F1Error(
                Code.OUT_OF_RANGE,
                f"{_shown(text)} is too long: {len(text)} characters, {kind.sql()} holds {kind.max_length}",
            )
        text = text[: kind.max_length]
    return text


def text_of(value: object, kind: ColumnType) -> str:
    """Return the text form of a value, as a cast to STRING gives it. Raises INVALID_ARGUMENT for bytes and the like."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case float():
            if math.isnan(value) or math.isinf(value):
                return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            text = repr(value)
            return text.removesuffix(".0")
        case Date():
            return value.to_date().isoformat()
        case Timestamp():
            return str(value.to_datetime()).removesuffix(":00")
        case datetime.datetime():
            return str(Timestamp.of(value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).to_datetime())[:-3]
        case datetime.date():
            return value.isoformat()
        case _:
            pass
    raise _wrong(value, kind.sql())


def _bytes(value: object, _: ColumnType) -> Value:
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case str() if value.startswith("\\x"):
            try:
                return bytes.fromhex(value[2:])
            except ValueError:
                raise F1Error(Code.INVALID_ARGUMENT, f"{_shown(value)} is no hexadecimal form of BYTES") from None
        case str():
            data = value.encode(errors="surrogatepass")
            if any(not match[1] for match in _BYTEA_ESCAPE.finditer(data)):
                raise F1Error(
                    Code.INVALID_ARGUMENT, f"{_shown(value)} is no BYTES: a backslash is written \\\\ or \\ooo"
                )
            return _BYTEA_ESCAPE.sub(lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 8)]), data)
        case _:
            pass
    raise _wrong(value, "BYTES")


def _date(value: object, _: ColumnType) -> Value:
    match value:
        case Date():
            return value
        case Timestamp():
            return Date(value.us // _DAY_US)
        case datetime.datetime():
            return Date.of((value.astimezone(datetime.UTC) if value.tzinfo else value).date())
        case datetime.date():
            return Date.of(value)
        case str():
            try:
                return parse_date(value)
            except F1Error as error:
                if error.code is Code.OUT_OF_RANGE or ":" not in value:
                    raise
                return Date(parse_timestamp(value).us // _DAY_US)
        case _:
            pass
    raise _wrong(value, "DATE")


def _timestamp(value: object, _: ColumnType) -> Value:
    match value:
        case Timestamp():
            return value
        case datetime.datetime():
            return Timestamp.of(value if value.tzinfo else value.replace(tzinfo=datetime.UTC))
        case Date() | datetime.date():
            day = value if isinstance(value, Date) else Date.of(value)
            us = day.days * _DAY_US
            if not INT64_MIN <= us < INT64_MAX:
                raise F1Error(Code.OUT_OF_RANGE, f"the day {day.days} is out of range of TIMESTAMP")
            return Timestamp(us)
        case str():
            return parse_timestamp(value)
        case _:
            pass
    raise _wrong(value, "TIMESTAMP")


def _proto(schema: Schema, name: str, value: object) -> bytes:
    """Return a message's bytes, from bytes (which are checked), or from its JSON or text form."""
    known = protofields.registry(schema)
    match value:
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            known.parse(name, data)
            return data
        case str():
            return known.from_json(name, value) if value.lstrip().startswith("{") else known.from_text(name, value)
        case _:
            pass
    raise _wrong(value, f"PROTO<{name}>")


def _no_scalar(value: object, kind: ColumnType) -> Value:
    raise _wrong(value, kind.sql())


_CONVERTERS: dict[Kind, Callable[[object, ColumnType], Value]] = {
    Kind.BOOL: _bool,
    Kind.INT64: _int,
    Kind.DOUBLE: _double,
    Kind.NUMERIC: _numeric,
    Kind.STRING: _string,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIMESTAMP: _timestamp,
    Kind.PROTO: _no_scalar,
}


def _wrong(value: object, kind: str) -> F1Error:
    return F1Error(Code.INVALID_ARGUMENT, f"{_shown(value)} ({type(value).__name__}) is no {kind}")


def _out_of_range(value: object, kind: str) -> F1Error:
    return F1Error(Code.OUT_OF_RANGE, f"{_shown(value)} is out of range of {kind}")


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
