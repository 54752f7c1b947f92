"""Throughput and latencies over the number of clients, as curves."""

from collections.abc import Sequence

from f1deploy.bench.database.figures import Figure
from f1deploy.bench.svg import Panel, Point, Series, chart

__all__ = ["plot"]

_GROUPS = (("Writes", "writes/s"), ("Reads", "reads/s"))
_X = "clients"


def plot(machine: str, figures: Sequence[Figure]) -> str:
    """Return an SVG document: for writes and for reads a panel of throughput and one of p50 and p99."""
    panels: list[Panel] = []
    for title, unit in _GROUPS:
        chosen = [one for one in figures if one.unit == unit]
        if chosen:
            panels.append(Panel(f"{title}: throughput", _X, unit, _rates(chosen)))
            panels.append(Panel(f"{title}: latency, p50 and (dashed) p99", _X, "ms", _latencies(chosen)))
    ran = dict.fromkeys(one.ran for one in figures if one.unit in {unit for _, unit in _GROUPS})
    notes = [machine, *ran, "Medians of the rounds, with their ranges."]
    return chart("f1 bench database", panels, notes=notes)


def _works(figures: Sequence[Figure]) -> list[tuple[str, list[Figure]]]:
    names = dict.fromkeys(one.work for one in figures)
    return [(name, [one for one in figures if one.work == name]) for name in names]


def _peer(figures: Sequence[Figure]) -> list[Figure]:
    """Return one figure of the peer for each number of clients: works that share a peer share its figures."""
    return list({one.clients: one for one in figures if one.peer is not None}.values())


def _rates(figures: Sequence[Figure]) -> list[Series]:
    made = [
        Series(name, [_point(one.clients, one.ours, one.ours_range) for one in of], colour)
        for colour, (name, of) in enumerate(_works(figures))
    ]
    if theirs := _peer(figures):
        points = [_point(one.clients, one.peer or 0.0, one.peer_range) for one in theirs]
        made.append(Series(theirs[0].peer_name or "", points, len(made)))
    return made


def _latencies(figures: Sequence[Figure]) -> list[Series]:
    made: list[Series] = []
    works = _works(figures)
    for colour, (name, of) in enumerate(works):
        p50s = [_point(one.clients, one.p50_ms or 0.0, one.p50_range) for one in of]
        p99s = [_point(one.clients, one.p99_ms or 0.0, one.p99_range) for one in of]
        made += [Series(f"{name}, p50", p50s, colour), Series(f"{name}, p99", p99s, colour, dashed=True)]
    if theirs := _peer(figures):
        name, colour = theirs[0].peer_name or "", len(works)
        p50s = [_point(one.clients, one.peer_p50_ms or 0.0, one.peer_p50_range) for one in theirs]
        p99s = [_point(one.clients, one.peer_p99_ms or 0.0, one.peer_p99_range) for one in theirs]
        made += [Series(f"{name}, p50", p50s, colour), Series(f"{name}, p99", p99s, colour, dashed=True)]
    return made


def _point(clients: int, value: float, reach: tuple[float, float] | None) -> Point:
    low, high = reach or (value, value)
    return Point(float(clients), value, low, high)
