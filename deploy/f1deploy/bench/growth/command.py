"""The command ``f1 bench growth``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from f1common.errors import Code, F1Error
from f1deploy.bench.growth import groups, participants, rows, servers, slaves, versions
from f1deploy.bench.growth.curves import Curve, Fit, Options, Point, Say, fit_of, rows_of
from f1deploy.bench.growth.show import drawn, show
from f1deploy.bench.report import Format
from spanstore.tools.bench import machine
from spanstore.tools.show import told

__all__ = ["CURVES", "Report", "command", "parse_curves"]

CURVES: Mapping[str, Callable[[Options, Say], Curve]] = {
    "rows": rows.measure,
    "groups": groups.measure,
    "clients": servers.measure_clients,
    "f1servers": servers.measure_f1servers,
    "participants": participants.measure,
    "slaves": slaves.measure,
    "versions": versions.measure,
}


class Report(msgspec.Struct, frozen=True):
    """What ``--format json`` prints: all points, and the power law of each line."""

    machine: str
    rows: list[Point]
    fits: list[Fit]


def command(
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(CURVES)}. [default: all]", metavar="NAME,...")] = "",
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Length of each window.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Windows at each size.")] = 3,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that make the load, from 16 clients.")] = 4,
    most_rows: Annotated[int, typer.Option(min=100, max=10_000_000, help="Largest table of the rows.")] = 1_000_000,
    most_groups: Annotated[int, typer.Option(min=4, max=64, help="Most groups, and most participants.")] = 64,
    svg: Annotated[Path | None, typer.Option(help="A folder for growth-NAME.svg of each curve.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Measure how costs grow with rows, groups, clients, servers, participants, slaves and versions.

    Each curve starts clusters of its own.
    """
    names = parse_curves(only)
    if svg is not None and not svg.is_dir():
        raise F1Error(Code.NOT_FOUND, f"--svg takes a folder that is there, not {svg}")
    options = Options(seconds, rounds, processes, most_rows, most_groups)
    report = Report(machine(), [], [])
    for name in names:
        with told("starting") as say:
            curve = CURVES[name](options, say)
        fits = [fit_of(curve, line) for line in curve.lines]
        report.rows.extend(rows_of(curve))
        report.fits.extend(fits)
        # At once: what a later curve runs into takes nothing away from this one.
        if svg is not None:
            (svg / f"growth-{name}.svg").write_text(drawn(report.machine, curve), encoding="utf-8")
        if form is Format.table:
            show(report.machine, curve, fits)
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


def parse_curves(text: str) -> list[str]:
    """Split ``--only``, in the order of :data:`CURVES`; nothing is all. Raises F1Error INVALID_ARGUMENT."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    unknown = sorted(names - set(CURVES))
    if unknown:
        what = f"--only takes some of {', '.join(CURVES)}, not {', '.join(unknown)}"
        raise F1Error(Code.INVALID_ARGUMENT, what)
    return [name for name in CURVES if name in names or not names]
