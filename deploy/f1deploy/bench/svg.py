"""Curves as SVG: panels side by side, both axes logarithmic, so that a power law is a straight line.

Written as text: what is needed of a drawing library is one function, and results are to be the same text for the same
figures, so that they can be kept under version control.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Panel", "Point", "Series", "chart", "ticks"]

_WIDTH, _HEIGHT = 460, 300
"""Of one panel with its labels, without its legend, in pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 34, 44
_LEGEND = 18
_HEAD, _FOOT = 46, 12
_NOTE = 16
_COLOURS = ("#0b62a4", "#d1603d", "#3a8a4c", "#7d4f9e", "#8a6d00", "#5b6770")
_INK, _FAINT = "#22262a", "#dfe3e6"


@dataclass(frozen=True, slots=True)
class Point:
    """One value over ``x``, and between what it lay; all above 0."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """One line. Those of one ``colour`` belong together; a ``dashed`` one is the lesser of them."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. Without any point it stays empty."""

    title: str
    x: str
    y: str
    series: Sequence[Series]


def chart(title: str, panels: Sequence[Panel], *, columns: int = 2, notes: Sequence[str] = ()) -> str:
    """Return an SVG document with a heading, the panels in rows, and notes below them."""
    columns = min(columns, max(len(panels), 1))
    rows = [panels[at : at + columns] for at in range(0, len(panels), columns)]
    heights = [_HEIGHT + _LEGEND * max(len(panel.series) for panel in row) for row in rows]
    width, height = columns * _WIDTH, _HEAD + sum(heights) + _NOTE * len(notes) + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{_INK}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="28" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    top = _HEAD
    for row, tall in zip(rows, heights, strict=True):
        for column, panel in enumerate(row):
            parts += [f'<g transform="translate({column * _WIDTH} {top})">', *_panel(panel), "</g>"]
        top += tall
    for number, note in enumerate(notes):
        parts.append(f'<text x="16" y="{top + 12 + _NOTE * number}" font-size="11">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(panel.title)}</text>'
    points = [point for series in panel.series for point in series.points]
    if not points:
        return
    across = _Axis([point.x for point in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([value for point in points for value in (point.low, point.high)], _HEIGHT - _BOTTOM, _TOP)
    # Where few values were measured each is named; a power of ten a line otherwise.
    values = sorted({point.x for point in points})
    yield from _grid(across, up, values if len(values) <= 8 else ticks(across.low, across.high))
    centre = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{centre:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(panel.x)}</text>'
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    yield f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">{escape(panel.y)}</text>'
    for number, series in enumerate(panel.series):
        yield from _line(series, across, up)
        yield from _legend(series, _HEIGHT + 6 + _LEGEND * number)


class _Axis:
    """A logarithmic axis over some values, with a little room at both ends, drawn from one pixel to another."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        least, most = min(values), max(values)
        room = 1.08 if most > least else 2.0
        self.low, self.high = least / room, most * room
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self._begin + share * (self._end - self._begin)


def ticks(low: float, high: float) -> list[float]:
    """Return round values from ``low`` to ``high``: powers of ten, with 2 and 5 between them if they are few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = math.log10(high / low) < 3
    found = [step * 10.0**exponent for exponent in exponents for step in ((1, 2, 5) if few else (1,))]
    return [value for value in found if low <= value <= high]


def _grid(across: _Axis, up: _Axis, values: Sequence[float]) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in values:
        x = across.at(value)
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{_FAINT}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" font-size="11">{_short(value)}</text>'
    for value in ticks(up.low, up.high):
        y = up.at(value)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{_FAINT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" font-size="11">{_short(value)}</text>'
    yield f'<path d="M{_LEFT} {_TOP} V{bottom} H{right}" fill="none" stroke="{_INK}"/>'


def _line(series: Series, across: _Axis, up: _Axis) -> Iterator[str]:
    colour = _COLOURS[series.colour % len(_COLOURS)]
    ordered = sorted(series.points, key=lambda point: point.x)
    places = " ".join(f"{across.at(point.x):.1f},{up.at(point.y):.1f}" for point in ordered)
    yield f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{_dashes(series)}/>'
    for point in ordered:
        x, y = across.at(point.x), up.at(point.y)
        if point.high > point.low:
            low, high = up.at(point.low), up.at(point.high)
            yield f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _legend(series: Series, y: float) -> Iterator[str]:
    colour = _COLOURS[series.colour % len(_COLOURS)]
    yield f'<path d="M{_LEFT} {y} h24" stroke="{colour}" stroke-width="2"{_dashes(series)}/>'
    yield f'<text x="{_LEFT + 30}" y="{y + 4}" font-size="11">{escape(series.name)}</text>'


def _dashes(series: Series) -> str:
    return ' stroke-dasharray="5 4"' if series.dashed else ""


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
