"""Curves as sentences and tables for people, and as SVG."""

from collections.abc import Sequence

from rich.table import Table

from f1deploy.bench.growth.curves import Curve, Fit, short
from f1deploy.bench.svg import Panel, Point, Series, chart
from spanstore.tools.show import wide_console

__all__ = ["drawn", "show"]


def show(machine: str, curve: Curve, fits: Sequence[Fit]) -> None:
    """Print a curve's points, and what they say."""
    console = wide_console()
    console.print(f"{curve.title}. {curve.ran}; {machine}", highlight=False, markup=False, style="bold")
    table = Table(box=None, pad_edge=False)
    table.add_column("cost")
    table.add_column("unit")
    for place in curve.lines[0].places:
        table.add_column(f"{place.x:,.0f}", justify="right", no_wrap=True)
    table.add_column("exponent", justify="right", no_wrap=True)
    for line, fit in zip(curve.lines, fits, strict=True):
        cells = [short(place.median) for place in line.places]
        table.add_row(line.name, line.unit, *cells, f"{fit.exponent:.2f}")
    console.print(table)
    for fit in fits:
        console.print(f"{fit.statement}.", highlight=False, markup=False, style="" if fit.met else "red")
    console.print()


def drawn(machine: str, curve: Curve) -> str:
    """Return a curve as an SVG document: a panel for each unit."""
    units = dict.fromkeys(line.unit for line in curve.lines)
    panels = [
        Panel(
            unit,
            curve.x,
            unit,
            [
                Series(line.name, [Point(p.x, p.median, min(p.values), max(p.values)) for p in line.places], colour)
                for colour, line in enumerate([line for line in curve.lines if line.unit == unit])
            ],
        )
        for unit in units
    ]
    return chart(curve.title, panels, notes=[machine, curve.ran, "Medians of the rounds, with their ranges."])
