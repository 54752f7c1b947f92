"""Medians, ranges, ratios and goals of what the rounds gave."""

import statistics
from collections.abc import Sequence

import msgspec

from f1deploy.bench.database.works import Goal
from f1deploy.bench.report import Row

__all__ = ["Figure", "Round", "figure"]


class Round(msgspec.Struct, frozen=True):
    """One contestant in one round.

    ``rate``: operations a second; ``cpu_us`` and ``load_us``: processor time of the system and of the load for one
    operation, in microseconds; ``parts``: the system's by kind of process.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    load_us: float
    errors: int = 0
    first_error: str = ""
    checked: int = 0
    parts: dict[str, float] = msgspec.field(default_factory=dict)


class Figure(Row, frozen=True):
    """One comparison: what is above, and how it came about.

    Latencies are in milliseconds, processor times in microseconds for one operation (for one row where rows are
    counted): ``cpu_us`` of all processes of the system, in ``parts`` by their kind, ``load_cpu_us`` of those that made
    the load. A ``*_range`` is
    the least and the most of the rounds. ``errors`` failed; ``checked`` rows were read afterwards and held what had
    been acknowledged. ``met`` is None where there is no goal. ``ran`` says what ran, and how.
    """

    ours_range: tuple[float, float] | None = None
    peer_range: tuple[float, float] | None = None
    ratio_range: tuple[float, float] | None = None
    p50_ms: float | None = None
    p50_range: tuple[float, float] | None = None
    p99_ms: float | None = None
    p99_range: tuple[float, float] | None = None
    peer_p50_ms: float | None = None
    peer_p50_range: tuple[float, float] | None = None
    peer_p99_ms: float | None = None
    peer_p99_range: tuple[float, float] | None = None
    parts: dict[str, float] = msgspec.field(default_factory=dict)
    load_cpu_us: float | None = None
    peer_cpu_us: float | None = None
    peer_load_cpu_us: float | None = None
    errors: int = 0
    peer_errors: int = 0
    first_error: str = ""
    checked: int = 0
    peer_checked: int = 0
    goal: str = ""
    met: bool | None = None
    rounds: int = 0
    ran: str = ""


def figure(
    work: str,
    clients: int,
    unit: str,
    ours: Sequence[Round],
    peer: Sequence[Round] | None,
    *,
    peer_name: str = "",
    goal: Goal | None = None,
    rows: int = 1,
    ran: str = "",
) -> Figure:
    """Compare rates, or, if the unit is ms, median latencies; the ratio is ours by the peer's.

    ``rows`` are how many one operation counts for; the rounds of both are pairs. At least one round.
    """
    latency = unit.startswith("ms")
    own = _values(ours, latency, rows)
    made = Figure(
        work=work,
        clients=clients,
        unit=unit,
        ours=_rounded(statistics.median(own)),
        cpu_us=_median([r.cpu_us / rows for r in ours]),
        ours_range=_range(own),
        p50_ms=_median([r.p50_ms for r in ours]),
        p50_range=_range([r.p50_ms for r in ours]),
        p99_ms=_median([r.p99_ms for r in ours]),
        p99_range=_range([r.p99_ms for r in ours]),
        parts={kind: _median([r.parts[kind] / rows for r in ours]) for kind in ours[0].parts},
        load_cpu_us=_median([r.load_us / rows for r in ours]),
        errors=sum(r.errors for r in ours),
        first_error=_first_error(ours) or _first_error(peer or ()),
        checked=sum(r.checked for r in ours),
        goal="" if goal is None else str(goal),
        rounds=len(ours),
        ran=ran,
    )
    if not peer:
        return made
    theirs = _values(peer, latency, rows)
    ratios = [a / b for a, b in zip(own, theirs, strict=True)]
    ratio = statistics.median(ratios)
    return msgspec.structs.replace(
        made,
        peer=_rounded(statistics.median(theirs)),
        peer_name=peer_name,
        ratio=round(ratio, 3),
        peer_range=_range(theirs),
        ratio_range=(round(min(ratios), 3), round(max(ratios), 3)),
        peer_p50_ms=_median([r.p50_ms for r in peer]),
        peer_p50_range=_range([r.p50_ms for r in peer]),
        peer_p99_ms=_median([r.p99_ms for r in peer]),
        peer_p99_range=_range([r.p99_ms for r in peer]),
        peer_cpu_us=_median([r.cpu_us / rows for r in peer]),
        peer_load_cpu_us=_median([r.load_us / rows for r in peer]),
        peer_errors=sum(r.errors for r in peer),
        peer_checked=sum(r.checked for r in peer),
        met=None if goal is None else goal.met(round(ratio, 3)),
    )


def _values(rounds: Sequence[Round], latency: bool, rows: int) -> list[float]:
    return [r.p50_ms for r in rounds] if latency else [r.rate * rows for r in rounds]


def _first_error(rounds: Sequence[Round]) -> str:
    return next((r.first_error for r in rounds if r.first_error), "")


def _median(values: Sequence[float]) -> float:
    return _rounded(statistics.median(values))


def _range(values: Sequence[float]) -> tuple[float, float]:
    return _rounded(min(values)), _rounded(max(values))


def _rounded(value: float) -> float:
    """Four significant digits, or all that are before the point."""
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)
