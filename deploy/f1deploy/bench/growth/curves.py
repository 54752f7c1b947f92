"""What a curve is: costs over a size, with the power law through them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from f1deploy.bench.growth.fit import allowed, exponent_of
from f1deploy.bench.report import Row

__all__ = ["TOLERANCE", "Curve", "Fit", "Line", "Options", "Place", "Point", "Say", "fit_of", "rows_of"]

TOLERANCE = 0.1
"""By how much the exponent of measured costs may lie above what is allowed: repeated measurements differ by as much."""

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Options:
    """How long and how often each cost is measured, and the largest sizes."""

    seconds: float
    rounds: int
    processes: int
    most_rows: int
    most_groups: int


class Place(msgspec.Struct, frozen=True):
    """What was measured at one size, once a round."""

    x: float
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """What counts."""
        return statistics.median(self.values)


class Line(msgspec.Struct, frozen=True):
    """One cost over the sizes. ``whole``: all of it, of which the size says how much there is to do; else that of one
    operation. ``note`` is a sentence that the power law does not say."""

    name: str
    unit: str
    places: tuple[Place, ...]
    whole: bool
    note: str = ""


class Curve(msgspec.Struct, frozen=True):
    """Costs over one size; ``name`` is what ``--only`` takes, ``x`` the size, ``ran`` what ran."""

    name: str
    title: str
    x: str
    lines: tuple[Line, ...]
    ran: str


class Point(Row, frozen=True):
    """One point for programs: ``x`` is its size, ``low`` and ``high`` the range of the rounds."""

    curve: str = ""
    x: float = 0.0
    x_name: str = ""
    low: float = 0.0
    high: float = 0.0


class Fit(msgspec.Struct, frozen=True):
    """The power law of one line: ``exponent`` against the one that is allowed, and the same as a sentence."""

    curve: str
    work: str
    exponent: float
    allowed: float
    met: bool
    statement: str


def rows_of(curve: Curve) -> list[Point]:
    """Return all points of a curve."""
    return [
        Point(
            work=f"{curve.title}: {line.name}",
            clients=0,
            unit=line.unit,
            ours=float(f"{place.median:.4g}"),
            curve=curve.name,
            x=place.x,
            x_name=curve.x,
            low=float(f"{min(place.values):.4g}"),
            high=float(f"{max(place.values):.4g}"),
        )
        for line in curve.lines
        for place in line.places
    ]


def fit_of(curve: Curve, line: Line) -> Fit:
    """Hold a line against what is allowed. Raises ValueError for a line with less than two sizes."""
    found = exponent_of([(place.x, place.median) for place in line.places])
    bound = allowed([place.x for place in line.places], whole=line.whole)
    met = found <= bound + TOLERANCE
    law = "n log n" if line.whole else "log n"
    first, last = line.places[0], line.places[-1]
    text = (
        f"{curve.x} x {last.x / first.x:,.0f} ({first.x:,.0f} to {last.x:,.0f}): {line.name} x "
        f"{last.median / first.median:.2f} ({short(first.median)} to {short(last.median)} {line.unit}), "
        f"as n^{found:.2f}; {law} would be n^{bound:.2f} here: {'not faster' if met else 'FASTER'}"
    )
    statement = f"{text}. {line.note}" if line.note else text
    return Fit(curve.name, line.name, round(found, 3), round(bound, 3), met, statement)


def short(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def places(found: Sequence[tuple[float, Sequence[float]]]) -> tuple[Place, ...]:
    """Return measurements as places, in order of their sizes."""
    return tuple(Place(x, tuple(values)) for x, values in sorted(found))
