"""Figures as tables for people."""

from collections.abc import Sequence

from rich.table import Table

from f1deploy.bench.database.figures import Figure
from spanstore.tools.show import wide_console

__all__ = ["show"]


def show(machine: str, figures: Sequence[Figure], notes: Sequence[str]) -> None:
    """Print medians with ranges, ratios and goals; then latencies and processor times; then what ran."""
    console = wide_console()
    console.print(machine, style="dim", highlight=False)
    rates = _table("work", "clients", "unit", "ours", "peer", "peer's", "ratio", "goal", "")
    for one in figures:
        met = "" if one.met is None else "met" if one.met else "not met"
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}{_range(one.ratio_range, 2)}"
        ours, peer = _value(one.ours, one.ours_range), _value(one.peer, one.peer_range)
        rates.add_row(one.work, str(one.clients), one.unit, ours, one.peer_name or "", peer, ratio, one.goal, met)
    console.print(rates)
    console.print()
    figures_of_ours = ("p50 ms", "p99 ms", "cpu us", "of which", "load us", "checked", "errors")
    spent = _table("work", "clients", *figures_of_ours, "peer's p50", "p99", "cpu us", "load us")
    shown: set[tuple[str, int, str | None]] = set()
    for one in figures:
        # A rate and a latency of the same measurement share a line.
        if (key := (one.work, one.clients, one.peer_name)) not in shown:
            shown.add(key)
            spent.add_row(one.work, str(one.clients), *_spent(one))
    console.print(spent)
    for line in dict.fromkeys(one.ran for one in figures):
        console.print(f"Ran: {line}.", highlight=False, markup=False, style="dim")
    for line in dict.fromkeys(one.first_error for one in figures if one.first_error):
        console.print(f"An error was: {line}", highlight=False, markup=False)
    for line in notes:
        console.print(f"{line}.", highlight=False, markup=False)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        left = heading in ("work", "peer", "of which")
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left)
    return table


def _value(value: float | None, reach: tuple[float, float] | None) -> str:
    if value is None:
        return ""
    digits = 2 if value < 100 else 0
    return f"{value:,.{digits}f}{_range(reach, digits)}"


def _range(reach: tuple[float, float] | None, digits: int) -> str:
    """Return the least and the most, if they differ as they are shown."""
    least, most = (f"{value:,.{digits}f}" for value in reach or (0.0, 0.0))
    return "" if least == most else f" ({least}..{most})"


def _spent(one: Figure) -> tuple[str, ...]:
    latencies = [_number(one.p50_ms, 2), _number(one.p99_ms, 2)]
    parts = ", ".join(f"{kind} {spent:,.0f}" for kind, spent in one.parts.items())
    ours = [_number(one.cpu_us, 0), parts, _number(one.load_cpu_us, 0), f"{one.checked:,}", str(one.errors or "")]
    peer = [_number(one.peer_p50_ms, 2), _number(one.peer_p99_ms, 2)]
    return (*latencies, *ours, *peer, _number(one.peer_cpu_us, 0), _number(one.peer_load_cpu_us, 0))


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
