"""Constants of conditions become values of a column's type exactly, or not at all; DuckDB is the oracle."""

from decimal import Decimal
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.values import Date, Timestamp
from f1server.catalog.schema import Kind
from f1server.exec.duck import Connection, Duck, DuckConfig
from f1server.plan.constants import UNFIT, Given, Known, Shifted, constant, evaluate, exact
from f1server.plan.dialect import parse_expression
from f1server.plan.scans import Bound, KeySpan
from f1server.rows.values import Value


@cache
def connection() -> Connection:
    return Duck(DuckConfig(threads=1)).connection()


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("- (1.50)", Decimal("-1.50")),
        ("1e3", 1000.0),
        ("'x'", "x"),
        ("true", True),
        ("NULL", None),
        ("DATE '1970-01-02'", Date(1)),
        ("TIMESTAMP '1970-01-01 00:00:01+00'", Timestamp(1_000_000)),
        ("CAST('7' AS INT64)", 7),
        ("CAST(2.5 AS INT64)", 3),
    ],
)
def test_constants_of_the_text(sql: str, value: Value) -> None:
    found = constant(parse_expression(sql))
    assert isinstance(found, Known)
    assert (found.value, type(found.value)) == (value, type(value))


@pytest.mark.parametrize(
    "sql", ["a", "1 + a", "lower('X')", "(SELECT 1)", "CAST('x' AS INT64)", "random()", "'a' || 'b'"]
)
def test_what_is_no_constant(sql: str) -> None:
    assert constant(parse_expression(sql)) is None


@pytest.mark.parametrize(
    ("sql", "day"),
    [
        ("DATE '2024-01-31' + INTERVAL '1' MONTH", "2024-02-29"),
        ("DATE '2023-12-31' + INTERVAL '2' MONTH", "2024-02-29"),
        ("DATE '2024-02-29' - INTERVAL '1' YEAR", "2023-02-28"),
        ("DATE '2024-03-01' - INTERVAL '1' DAY", "2024-02-29"),
        ("DATE '2024-03-31' - INTERVAL '3' MONTH", "2023-12-31"),
        ("DATE '1998-12-01' - INTERVAL '90' DAY", "1998-09-02"),
    ],
)
def test_intervals(sql: str, day: str) -> None:
    found = constant(parse_expression(sql))
    assert isinstance(found, Shifted)
    value = evaluate(found, Kind.DATE, (), 0)
    assert isinstance(value, Date)
    assert value.to_date().isoformat() == day
    assert str(connection().table(f"SELECT CAST({sql} AS DATE)").column(0).to_pylist()[0]) == day


def test_parameters() -> None:
    assert evaluate(Given(2), Kind.INT64, (1, 5), 0) == 5
    assert evaluate(Given(1, Kind.DATE), Kind.DATE, ("2024-01-01",), 0) == Date(19723)
    assert evaluate(Given(1), Kind.DATE, ("2024-01-01",), 0) == Date(19723)
    assert evaluate(Given(1), Kind.INT64, ([1],), 0) is UNFIT
    assert evaluate(Given(9), Kind.INT64, (), 0) is UNFIT


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(2**53 - 2, 2**53 + 2),
    st.decimals(-(10**15), 10**15, places=3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 0.5, Decimal("0.1"), 0.1, 1, Decimal("1.000000001"), 2**62]),
)
TYPES = {Kind.INT64: "BIGINT", Kind.DOUBLE: "DOUBLE", Kind.NUMERIC: "DECIMAL(38,9)"}


def literal(value: object) -> str:
    match value:
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            exponent = value.as_tuple().exponent
            assert isinstance(exponent, int)
            return f"CAST('{value:f}' AS DECIMAL(38,{max(0, -exponent)}))"
        case _:
            return f"CAST({value} AS BIGINT)" if value != -(2**63) else "CAST('-9223372036854775808' AS BIGINT)"


@given(NUMBERS, st.sampled_from(sorted(TYPES)), st.data())
def test_exact_numbers_compare_as_duckdb_compares(
    value: int | float | Decimal, kind: Kind, data: st.DataObject
) -> None:
    """Whatever a column holds, a scan by the converted value keeps the rows that DuckDB's comparison keeps."""
    found = exact(value, kind)
    if found is UNFIT:
        return
    near = [found]
    if kind is Kind.INT64:
        near += [found + 1, found - 1]  # type: ignore[operator]
    if kind is Kind.NUMERIC:
        near += [found + Decimal("0.000000001")]  # type: ignore[operator]
    row = data.draw(st.sampled_from(near))
    if isinstance(row, int) and not -(2**63) <= row < 2**63:
        return
    cell = f"CAST({literal(row)} AS {TYPES[kind]})"
    table = connection().table(f"SELECT {cell} = {literal(value)}, {cell} < {literal(value)}")
    equal, less = (column.to_pylist()[0] for column in table.columns)
    mine, theirs = tuples.encode((row,)), tuples.encode((found,))  # type: ignore[arg-type]
    assert not equal or mine == theirs
    assert not less or mine < theirs


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, Kind.INT64),
        (True, Kind.INT64),
        (1, Kind.BOOL),
        (1, Kind.STRING),
        ("x", Kind.INT64),
        (0.1, Kind.NUMERIC),
        (2**53 + 1, Kind.DOUBLE),
        (Decimal("1.0000000001"), Kind.NUMERIC),
        (Timestamp(1), Kind.DATE),
        (b"x", Kind.STRING),
    ],
)
def test_what_would_change_the_comparison_is_unfit(value: Value, kind: Kind) -> None:
    assert exact(value, kind, isinstance(value, str)) is UNFIT


KEYS = st.tuples(st.integers(-3, 3) | st.none(), st.integers(-3, 3) | st.none())


@given(
    KEYS,
    st.integers(-3, 3),
    st.integers(-3, 3) | st.none(),
    st.integers(-3, 3) | st.none(),
    st.booleans(),
    st.booleans(),
)
def test_spans_hold_the_keys_that_they_name(
    key: tuple[int | None, int | None], first: int, low: int | None, high: int | None, low_in: bool, high_in: bool
) -> None:
    span = KeySpan(
        (first,), None if low is None else Bound(low, low_in), None if high is None else Bound(high, high_in)
    )
    start, end = span.encoded()
    inside = start <= tuples.encode(key) < end
    second = key[1]
    wanted = key[0] == first
    if second is None:
        wanted = wanted and low is None  # NULL sorts first: below every lower bound
    else:
        wanted = wanted and (low is None or second > low or (low_in and second == low))
        wanted = wanted and (high is None or second < high or (high_in and second == high))
    assert inside == wanted
