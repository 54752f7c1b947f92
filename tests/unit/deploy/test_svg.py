"""Curves as SVG: well-formed, inside their frame, and in the right order."""

from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from f1deploy.bench.svg import Panel, Point, Series, chart, ticks

VALUES = st.floats(1e-3, 1e8)
POINTS = st.lists(st.builds(lambda x, y: Point(x, y, y / 2, y * 2), VALUES, VALUES), min_size=1, max_size=12)


def marks(document: str) -> list[tuple[float, float]]:
    found = ElementTree.fromstring(document).iter("{http://www.w3.org/2000/svg}circle")
    return [(float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in found]


@given(st.lists(POINTS, min_size=1, max_size=3))
def test_every_point_lies_within_its_panel(lines: Sequence[Sequence[Point]]) -> None:
    panel = Panel("t", "x", "y", [Series(f"s{n}", points, n) for n, points in enumerate(lines)])
    found = marks(chart("all", [panel]))
    assert len(found) == sum(len(points) for points in lines)
    assert all(62 <= x <= 442 and 34 <= y <= 256 for x, y in found)


def test_more_is_higher_and_further_right() -> None:
    points = [Point(float(n), n * 10.0, n * 10.0, n * 10.0) for n in (64, 1, 16)]
    for (x1, y1), (x2, y2) in pairwise(marks(chart("t", [Panel("p", "x", "y", [Series("s", points)])]))):
        assert x1 < x2 and y1 > y2


def test_texts_are_escaped_and_an_empty_panel_is_allowed() -> None:
    document = chart("a < b & c", [Panel("<p>", "x", "y", [])], notes=["<note>"])
    texts = [element.text for element in ElementTree.fromstring(document).iter()]
    assert {"a < b & c", "<p>", "<note>"} <= set(texts)


def test_panels_do_not_lie_on_each_other() -> None:
    panel = Panel("p", "x", "y", [Series("s", [Point(1, 1, 1, 1)])])
    document = ElementTree.fromstring(chart("t", [panel] * 5, columns=2))
    places = [g.attrib["transform"] for g in document.iter("{http://www.w3.org/2000/svg}g")]
    assert len(set(places)) == 5


@given(VALUES, st.floats(1.5, 1e6))
def test_ticks_are_round_and_inside(low: float, factor: float) -> None:
    found = ticks(low, low * factor)
    assert all(low <= tick <= low * factor for tick in found)
    assert all(f"{tick:.0e}"[0] in "125" for tick in found)


def test_one_line_for_each_power_of_ten_when_there_are_many() -> None:
    assert ticks(1, 1e6) == [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
    assert ticks(3, 40) == [5, 10, 20]
