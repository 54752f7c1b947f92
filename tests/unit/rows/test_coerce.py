"""What becomes of a value that is given for a column."""

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ColumnType, Kind
from f1server.rows.calendars import days_of, parse_date, parse_timestamp
from f1server.rows.coerce import coerce, coerce_column, coerce_row
from f1server.rows.protofields import registry
from f1server.rows.values import same
from tests.unit.rows.schemas import CUSTOMER, SCHEMA

DECIMAL = ColumnType(Kind.NUMERIC, precision=5, scale=2)
WHOLE = ColumnType(Kind.NUMERIC, precision=3, scale=0)
SHORT = ColumnType(Kind.STRING, max_length=3)
UTC = datetime.UTC
CET = datetime.timezone(datetime.timedelta(hours=1))


def kind(name: str) -> ColumnType:
    return {"DECIMAL(5,2)": DECIMAL, "DECIMAL(3)": WHOLE, "VARCHAR(3)": SHORT}.get(name) or ColumnType(Kind(name))


GOOD: list[tuple[str, Any, Any]] = [
    ("BOOL", True, True),
    ("BOOL", " Yes", True),
    ("BOOL", "off", False),
    ("INT64", 5, 5),
    ("INT64", " -12 ", -12),
    ("INT64", 2.5, 2),
    ("INT64", 3.5, 4),
    ("INT64", Decimal("2.5"), 3),
    ("INT64", Decimal("-2.5"), -3),
    ("INT64", Decimal("1E+3"), 1000),
    ("INT64", 2**63 - 1, 2**63 - 1),
    ("DOUBLE", 1, 1.0),
    ("DOUBLE", "-0", -0.0),
    ("DOUBLE", "1e3", 1000.0),
    ("DOUBLE", "NaN", math.nan),
    ("DOUBLE", "-Infinity", -math.inf),
    ("DOUBLE", Decimal("0.1"), 0.1),
    ("NUMERIC", 7, Decimal(7)),
    ("NUMERIC", Decimal("1.50"), Decimal("1.50")),
    ("NUMERIC", Decimal("0.0000000005"), Decimal("0.000000001")),
    ("NUMERIC", Decimal("-0.0000000005"), Decimal("-0.000000001")),
    ("NUMERIC", 0.1, Decimal("0.1")),
    ("NUMERIC", " 1.25 ", Decimal("1.25")),
    ("NUMERIC", Decimal(10**29 - 1), Decimal(10**29 - 1)),
    ("DECIMAL(5,2)", Decimal("1.005"), Decimal("1.01")),
    ("DECIMAL(5,2)", Decimal("-1.005"), Decimal("-1.01")),
    ("DECIMAL(5,2)", 999, Decimal("999.00")),
    ("DECIMAL(3)", Decimal("1.5"), Decimal("2")),
    ("STRING", "x", "x"),
    ("STRING", 5, "5"),
    ("STRING", True, "true"),
    ("STRING", Decimal("1.50"), "1.50"),
    ("STRING", Decimal("1E+3"), "1000"),
    ("STRING", 1.0, "1"),
    ("STRING", Date(0), "1970-01-01"),
    ("STRING", Timestamp(1_500_000), "1970-01-01 00:00:01.500000+00"),
    ("VARCHAR(3)", "abc", "abc"),
    ("VARCHAR(3)", "äöü  ", "äöü"),
    ("BYTES", b"\x00", b"\x00"),
    ("BYTES", bytearray(b"x"), b"x"),
    ("BYTES", "\\x00fF", b"\x00\xff"),
    ("BYTES", "a\\\\b\\001", b"a\\b\x01"),
    ("BYTES", "é", "é".encode()),
    ("DATE", datetime.date(1969, 12, 31), Date(-1)),
    ("DATE", "2024-02-29", Date(19782)),
    ("DATE", "2024-2-9", Date(19762)),
    ("DATE", "20240229", Date(19782)),
    ("DATE", "0001-01-01 BC", Date(-719528)),
    ("DATE", "2024-02-29 23:59:59", Date(19782)),
    ("DATE", Timestamp(-1), Date(-1)),
    ("DATE", datetime.datetime(2024, 2, 29, 0, 30, tzinfo=CET), Date(19781)),
    ("TIMESTAMP", Timestamp(5), Timestamp(5)),
    ("TIMESTAMP", datetime.datetime.fromisoformat("1970-01-01T00:00:01"), Timestamp(1_000_000)),
    ("TIMESTAMP", datetime.datetime(1970, 1, 1, 1, tzinfo=CET), Timestamp(0)),
    ("TIMESTAMP", datetime.date(1970, 1, 2), Timestamp(86_400_000_000)),
    ("TIMESTAMP", Date(-1), Timestamp(-86_400_000_000)),
    ("TIMESTAMP", "1970-01-01T00:00:01.5Z", Timestamp(1_500_000)),
    ("TIMESTAMP", "1970-01-01 01:00+01", Timestamp(0)),
    ("TIMESTAMP", "1970-01-01 00:00:00.0000005 -0130", Timestamp(5_400_000_000)),
    ("TIMESTAMP", "1970-01-01 24:00", Timestamp(86_400_000_000)),
    ("TIMESTAMP", "1970-01-02", Timestamp(86_400_000_000)),
]
BAD: list[tuple[str, Any, Code, str]] = [
    ("BOOL", 1, Code.INVALID_ARGUMENT, "1 (int) is no BOOL"),
    ("BOOL", "maybe", Code.INVALID_ARGUMENT, "'maybe' (str) is no BOOL"),
    ("INT64", True, Code.INVALID_ARGUMENT, "True (bool) is no INT64"),
    ("INT64", "x", Code.INVALID_ARGUMENT, "is no INT64"),
    ("INT64", "1.5", Code.INVALID_ARGUMENT, "is no INT64"),
    ("INT64", 2**63, Code.OUT_OF_RANGE, "is out of range of INT64"),
    ("INT64", 2**1000, Code.OUT_OF_RANGE, "a number of 1001 bits is out of range"),
    ("INT64", "9" * 30, Code.OUT_OF_RANGE, "is out of range"),
    ("INT64", math.nan, Code.OUT_OF_RANGE, "nan is out of range"),
    ("INT64", 1e300, Code.OUT_OF_RANGE, "1e+300 is out of range"),
    ("INT64", Decimal("1E+999999"), Code.OUT_OF_RANGE, "is out of range"),
    ("INT64", Decimal("sNaN"), Code.OUT_OF_RANGE, "is out of range"),
    ("DOUBLE", True, Code.INVALID_ARGUMENT, "is no DOUBLE"),
    ("DOUBLE", "1e999", Code.OUT_OF_RANGE, "is out of range of DOUBLE"),
    ("DOUBLE", 10**400, Code.OUT_OF_RANGE, "is out of range of DOUBLE"),
    ("DOUBLE", "0x10", Code.INVALID_ARGUMENT, "is no DOUBLE"),
    ("NUMERIC", Decimal(10**29), Code.OUT_OF_RANGE, "is out of range of NUMERIC"),
    ("NUMERIC", Decimal("NaN"), Code.OUT_OF_RANGE, "NaN is out of range"),
    ("NUMERIC", math.inf, Code.OUT_OF_RANGE, "inf is out of range"),
    ("NUMERIC", "nan", Code.OUT_OF_RANGE, "is out of range"),
    ("NUMERIC", "1,5", Code.INVALID_ARGUMENT, "is no NUMERIC"),
    ("NUMERIC", "1e999999999", Code.OUT_OF_RANGE, "is out of range"),
    ("NUMERIC", b"1", Code.INVALID_ARGUMENT, "(bytes) is no NUMERIC"),
    ("DECIMAL(5,2)", Decimal("999.995"), Code.OUT_OF_RANGE, "999.995 is out of range of DECIMAL(5, 2)"),
    ("DECIMAL(3)", 1000, Code.OUT_OF_RANGE, "1000 is out of range"),
    ("STRING", b"x", Code.INVALID_ARGUMENT, "(bytes) is no STRING"),
    ("STRING", "\ud800", Code.INVALID_ARGUMENT, "lone surrogate"),
    ("VARCHAR(3)", "abcd", Code.OUT_OF_RANGE, "is too long: 4 characters, VARCHAR(3) holds 3"),
    ("BYTES", "\\x0", Code.INVALID_ARGUMENT, "no hexadecimal form"),
    ("BYTES", "a\\q", Code.INVALID_ARGUMENT, "is no BYTES"),
    ("BYTES", 5, Code.INVALID_ARGUMENT, "5 (int) is no BYTES"),
    ("DATE", "2023-02-29", Code.OUT_OF_RANGE, "there is no day '2023-02-29'"),
    ("DATE", "0000-01-01", Code.OUT_OF_RANGE, "there is no day"),
    ("DATE", "9999999-01-01", Code.OUT_OF_RANGE, "is out of range"),
    ("DATE", "yesterday", Code.INVALID_ARGUMENT, "'yesterday' is no date"),
    ("DATE", 5, Code.INVALID_ARGUMENT, "5 (int) is no DATE"),
    ("TIMESTAMP", "1970-01-01 25:00", Code.OUT_OF_RANGE, "there is no time of day"),
    ("TIMESTAMP", "1970-01-01 00:60", Code.OUT_OF_RANGE, "there is no time of day"),
    ("TIMESTAMP", "1970-01-01 noon", Code.INVALID_ARGUMENT, "is no timestamp"),
    ("TIMESTAMP", "999999-01-01", Code.OUT_OF_RANGE, "is out of range"),
    ("TIMESTAMP", Date(2**31 - 1), Code.OUT_OF_RANGE, "is out of range"),
    ("TIMESTAMP", 5, Code.INVALID_ARGUMENT, "5 (int) is no TIMESTAMP"),
]


@pytest.mark.parametrize(("name", "value", "expected"), GOOD)
def test_what_postgresql_assigns_is_converted(name: str, value: Any, expected: Any) -> None:
    assert same(coerce(kind(name), value), expected)


@pytest.mark.parametrize(("name", "value", "code", "text"), BAD)
def test_what_does_not_fit_is_an_error_that_shows_the_value(name: str, value: Any, code: Code, text: str) -> None:
    with pytest.raises(F1Error) as raised:
        coerce(kind(name), value)
    assert raised.value.code is code
    assert text in raised.value.message
    assert len(raised.value.message) < 200


@pytest.mark.parametrize("name", [k.value for k in Kind])
def test_null_is_a_value_of_every_type(name: str) -> None:
    assert coerce(kind(name), None) is None


@given(st.dates())
def test_every_day_is_read_and_shown_as_the_standard_library_does(day: datetime.date) -> None:
    assert days_of(day.year, day.month, day.day) == Date.of(day).days
    assert parse_date(day.isoformat()) == Date.of(day)
    assert coerce(ColumnType(Kind.STRING), Date.of(day)) == day.isoformat()


offsets = st.integers(-15 * 60, 15 * 60).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m)))
naive = datetime.datetime.fromisoformat
moments = st.datetimes(naive("0002-01-01"), naive("9999-12-30"), timezones=st.just(UTC) | offsets)


@given(moments, st.sampled_from(" T"))
def test_every_moment_is_read_as_the_standard_library_writes_it(moment: datetime.datetime, separator: str) -> None:
    assert parse_timestamp(moment.isoformat(separator)) == Timestamp.of(moment)
    assert coerce(ColumnType(Kind.TIMESTAMP), coerce(ColumnType(Kind.STRING), moment)) == Timestamp.of(moment)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12))
def test_decimals_are_rounded_half_away_from_zero(value: Decimal) -> None:
    units = abs(value) * 100
    expected = int(units) + (1 if units - int(units) >= Decimal("0.5") else 0)
    wide = ColumnType(Kind.NUMERIC, precision=20, scale=2)
    found = coerce(wide, value)
    assert isinstance(found, Decimal)
    assert found.copy_abs() * 100 == expected
    assert found.as_tuple().exponent == -2


@given(st.text() | st.integers() | st.floats() | st.decimals() | st.binary() | st.booleans() | st.dates())
def test_whatever_is_given_becomes_a_value_or_one_of_two_errors(value: Any) -> None:
    for name in ("BOOL", "INT64", "DOUBLE", "DECIMAL(5,2)", "NUMERIC", "VARCHAR(3)", "BYTES", "DATE", "TIMESTAMP"):
        try:
            first = coerce(kind(name), value)
        except F1Error as error:
            assert error.code in (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)
        else:
            assert same(coerce(kind(name), first), first)


def test_an_error_names_the_column() -> None:
    with pytest.raises(F1Error, match=r"INVALID_ARGUMENT: column Customer.Level: 'x' \(str\) is no INT64") as raised:
        coerce_column(SCHEMA, CUSTOMER, CUSTOMER.column("level"), "x")
    assert dict(raised.value.details) == {"table": "Customer", "column": "Level"}
    with pytest.raises(F1Error, match="NOT_FOUND: the schema has changed: a column of table Customer"):
        coerce_row(SCHEMA, CUSTOMER, {99: 1})


def test_messages_come_as_bytes_json_or_text_and_are_checked() -> None:
    column = CUSTOMER.column("info")
    from_json = coerce_column(SCHEMA, CUSTOMER, column, '{"country": "CH", "feature": ["1", 2]}')
    from_text = coerce_column(SCHEMA, CUSTOMER, column, 'country: "CH" feature: 1 feature: 2')
    assert from_json == from_text == coerce_column(SCHEMA, CUSTOMER, column, from_json)
    assert isinstance(from_json, bytes)
    assert registry(SCHEMA).to_json("ads.Info", from_json) == '{"country":"CH","feature":["1","2"]}'
    for wrong in (b"\xff", '{"nothing": 1}', "nothing: 1", 5):
        with pytest.raises(F1Error, match=r"INVALID_ARGUMENT: column Customer\.Info"):
            coerce_column(SCHEMA, CUSTOMER, column, wrong)
