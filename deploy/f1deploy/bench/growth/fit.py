"""Power laws through points, by least squares over logarithms."""

import math
from collections.abc import Sequence

__all__ = ["allowed", "exponent_of", "slope_of"]


def exponent_of(points: Sequence[tuple[float, float]]) -> float:
    """Return ``k`` of the ``c * x ** k`` that fits best. Needs two different ``x``; everything above 0.

    Raises ValueError.
    """
    if any(x <= 0 or y <= 0 for x, y in points):
        raise ValueError("a power law goes through values above 0 only")
    return slope_of([(math.log(x), math.log(y)) for x, y in points])


def slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the straight line that fits best. Raises ValueError without two different ``x``."""
    if len({x for x, _ in points}) < 2:
        raise ValueError("a line needs points at two places")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    across = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return across / sum((x - mean_x) ** 2 for x, _ in points)


def allowed(xs: Sequence[float], *, whole: bool) -> float:
    """Return the exponent that the same fit gives for what is allowed over these ``xs``.

    ``whole``: of a whole cost, ``n log n``; else of one operation of n, ``log n``. One is 1 here, of which the
    logarithm is none.
    """
    return exponent_of([(x, (x if whole else 1.0) * math.log2(x + 1)) for x in xs])
