"""The benchmark of growth: power laws, what is allowed, and how curves are told and drawn."""

import asyncio
import math
import random
from collections.abc import Sequence
from typing import Any, cast
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import F1Error
from f1deploy.bench.database.load import Share, WrongAnswer
from f1deploy.bench.growth.clients import GrowthClient, id_of, name_of
from f1deploy.bench.growth.command import CURVES, parse_curves
from f1deploy.bench.growth.curves import TOLERANCE, Curve, Line, fit_of, places, rows_of, short
from f1deploy.bench.growth.fit import allowed, exponent_of, slope_of
from f1deploy.bench.growth.rows import sizes
from f1deploy.bench.growth.show import drawn
from f1deploy.bench.growth.slaves import balance

SIZES = (10.0, 100.0, 1_000.0, 10_000.0)


@given(st.floats(-3, 3), st.floats(1e-3, 1e3), st.lists(st.integers(1, 10**6), min_size=2, unique=True))
def test_the_exponent_of_a_power_law_is_found(exponent: float, factor: float, xs: Sequence[int]) -> None:
    points = [(float(x), factor * float(x) ** exponent) for x in xs]
    assert exponent_of(points) == pytest.approx(exponent, abs=1e-6)


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=2, max_size=6))
def test_no_other_line_is_nearer(points: Sequence[tuple[int, int]]) -> None:
    if len({x for x, _ in points}) < 2:
        with pytest.raises(ValueError, match="two places"):
            slope_of(points)
        return
    slope = slope_of(points)

    def distance(other: float) -> float:
        rest = [y - other * x for x, y in points]
        mean = sum(rest) / len(rest)
        return sum((value - mean) ** 2 for value in rest)

    assert all(distance(slope) <= distance(slope + step) + 1e-9 for step in (-1, -0.01, 0.01, 1))


def test_a_power_law_goes_through_values_above_0() -> None:
    with pytest.raises(ValueError, match="above 0"):
        exponent_of([(1, 0), (2, 1)])


def test_what_is_allowed_is_n_log_n_for_a_whole_cost_and_log_n_for_one_of_n() -> None:
    whole, one = allowed(SIZES, whole=True), allowed(SIZES, whole=False)
    assert whole == pytest.approx(one + 1) and 0 < one < 0.3
    assert allowed([1.0, 50.0], whole=True) == pytest.approx(1 + math.log(math.log2(51)) / math.log(50))


def line(grows: float, *, whole: bool) -> Line:
    return Line("a read", "us", places([(x, [x**grows, 2 * x**grows, 3 * x**grows]) for x in reversed(SIZES)]), whole)


@pytest.mark.parametrize(
    ("grows", "whole", "met"), [(0.0, False, True), (0.5, False, False), (1.1, True, True), (2.0, True, False)]
)
def test_a_cost_that_grows_faster_than_it_may_is_said(grows: float, whole: bool, met: bool) -> None:
    measured = line(grows, whole=whole)
    fit = fit_of(Curve("rows", "Rows", "rows", (measured,), "this"), measured)
    assert fit.exponent == pytest.approx(grows, abs=1e-3) and fit.met is met
    assert (fit.exponent <= fit.allowed + TOLERANCE) is met
    assert fit.statement.startswith("rows x 1,000 (10 to 10,000): a read x ")
    assert fit.statement.endswith("not faster" if met else "FASTER")


def test_points_have_the_public_keys_and_their_range() -> None:
    curve = Curve("rows", "Rows", "rows", (line(0.0, whole=False),), "this")
    first, *_ = rows = msgspec.json.decode(msgspec.json.encode(rows_of(curve)))
    assert len(rows) == len(SIZES)
    assert tuple(first)[:8] == ("work", "clients", "unit", "ours", "peer", "peer_name", "ratio", "cpu_us")
    assert (first["x"], first["x_name"], first["ours"], first["low"], first["high"]) == (10, "rows", 2, 1, 3)


def test_a_curve_is_drawn_with_a_panel_for_each_unit() -> None:
    lines = (line(0.0, whole=False), msgspec.structs.replace(line(1.0, whole=False), name="on the clock", unit="ms"))
    document = ElementTree.fromstring(drawn("a machine", Curve("rows", "Rows & more", "rows", lines, "this")))
    svg = "{http://www.w3.org/2000/svg}"
    assert len(list(document.iter(f"{svg}circle"))) == 2 * len(SIZES)
    assert len(list(document.iter(f"{svg}g"))) == 2
    assert {"Rows & more", "a machine", "on the clock"} <= {element.text for element in document.iter(f"{svg}text")}


def test_curves_are_picked_by_name_in_their_order() -> None:
    assert parse_curves("") == list(CURVES)
    assert parse_curves("versions, rows") == ["rows", "versions"]
    with pytest.raises(F1Error, match=r"--only takes some of rows, groups, .*, not tables"):
        parse_curves("tables")


def test_sizes_grow_tenfold_and_are_at_least_two() -> None:
    assert sizes(1_000_000) == [10_000, 100_000, 1_000_000]
    assert sizes(10_000_000)[-1] == 10_000_000
    assert sizes(10_000) == [1_000, 10_000] and sizes(100) == [10, 100]


def test_balance_is_the_busiest_by_the_mean() -> None:
    assert balance([1.0, 1.0, 1.0]) == 1
    assert balance([3.0, 0.0, 0.0]) == 3
    assert balance([0.0, 0.0]) == 1  # below a tick nobody can tell


def test_numbers_are_short() -> None:
    assert [short(value) for value in (0.01234, 9.876, 98.76, 123.4, 123456)] == [
        "0.0123",
        "9.88",
        "98.8",
        "123",
        "123,456",
    ]


@given(st.lists(st.integers(0, 10**7), unique=True, min_size=2))
def test_no_two_rows_have_one_name_or_one_id(numbers: Sequence[int]) -> None:
    assert len({name_of(number) for number in numbers}) == len(numbers)
    assert all(0 <= id_of(number) < 1 << 63 for number in numbers)


class Connection:
    """Has no rows but those of a table in which each holds the name of the next."""

    def __init__(self) -> None:
        self.inserted: list[int] = []

    async def get(self, table: str, key: int) -> dict[str, Any]:
        return {"Id": key, "Name": name_of((key >> 38) + 1)}

    async def insert(self, table: str, row: dict[str, Any]) -> int:
        self.inserted.append(row["Id"])
        return 1

    async def read(self, table: str, keys: object = None, **_: object) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize("work", ["point", "index"])
def test_what_is_read_is_compared(work: str) -> None:
    async def read() -> None:
        await GrowthClient(cast(Any, Connection()), 100).operation(work, Share(0, 1, 1), random.Random(1))()

    with pytest.raises(WrongAnswer):
        asyncio.run(read())


def test_inserts_are_looked_for_and_none_is_made_twice() -> None:
    connection = Connection()
    client = GrowthClient(cast(Any, connection), 3)

    async def insert() -> None:
        for run in (1, 2):
            for number in range(4):
                operation = client.operation("insert", Share(number, 4, run), random.Random(1))
                for _ in range(20):
                    await operation()
        await client.check(random.Random(1))

    with pytest.raises(WrongAnswer):  # none is there
        asyncio.run(insert())
    assert len(set(connection.inserted)) == len(connection.inserted) == 160
