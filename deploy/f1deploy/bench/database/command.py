"""The command ``f1 bench database``."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop

from f1common.errors import Code, F1Error
from f1deploy.bench.database.figures import Figure
from f1deploy.bench.database.first import first_version, require_checkout
from f1deploy.bench.database.lines import measure_lines
from f1deploy.bench.database.plot import plot
from f1deploy.bench.database.rounds import Rounds
from f1deploy.bench.database.show import show
from f1deploy.bench.database.systems import check_accounts, running
from f1deploy.bench.database.works import NAMES, chosen, parse_names
from f1deploy.bench.report import Format
from spanstore.tools.bench import load_processes, machine, parse_clients
from spanstore.tools.show import told

__all__ = ["Report", "command"]

Say = Callable[[str], object]


class Report(msgspec.Struct, frozen=True):
    """What ``--format json`` prints; ``notes`` say which peer is missing."""

    machine: str
    rows: list[Figure]
    notes: list[str]


def command(
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(NAMES)}. [default: all]", metavar="NAME,...")] = "",
    clients: Annotated[str, typer.Option(help="Numbers of clients that write and read rows.")] = "1,16,64,256",
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Length of each window.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Windows of each contestant.")] = 3,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that make the load, from 16 clients.")] = 4,
    f1servers: Annotated[int, typer.Option(min=1, max=16, help="SQL servers.")] = 2,
    scale: Annotated[float, typer.Option(min=0.001, max=1000, help="Scale of TPC-H for lineitem.")] = 0.01,
    peer: Annotated[bool, typer.Option(help="Measure etcd and PostgreSQL beside it, if they are installed.")] = True,
    first: Annotated[
        Path | None, typer.Option("--first-version", help="A checkout of an early revision, for scans beside ours.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="A file for the curves over numbers of clients, as SVG.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Measure the database through its client beside etcd, PostgreSQL and DuckDB, on a cluster of its own."""
    names, counts = parse_names(only), parse_clients(clients)
    if svg is not None and not svg.absolute().parent.is_dir():
        raise F1Error(Code.NOT_FOUND, f"--svg takes a file in a folder that is there, not {svg}")
    if first is not None:
        require_checkout(first)
    with told("starting") as say:
        peers = _peers(names) if peer else frozenset()
        with running(peers, f1servers, say) as up, load_processes(processes) as pool:
            turns = Rounds(pool, up.systems, seconds=seconds, rounds=rounds, processes=processes, say=say)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(_contests(turns, names, counts))
            if "transfer" in names:
                check_accounts(up.cluster.hosts)
            with nullcontext() if first is None or "scan" not in names else first_version(first) as early:
                figures += measure_lines(up, names, scale=scale, rounds=rounds, first=early, say=say)
            notes = [] if peer else ["No peer was asked for"]
            report = Report(machine(), figures, [*notes, *up.missing])
    if svg is not None:
        svg.write_text(plot(report.machine, report.rows), encoding="utf-8")
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        show(report.machine, report.rows, report.notes)


def _peers(names: frozenset[str]) -> frozenset[str]:
    """Return the peers that these works are compared with: others are not started."""
    peers = {comparison.peer.system for contest in chosen(names) for comparison in contest} - {"f1db"}
    return frozenset(peers | ({"PostgreSQL"} if names & {"load", "load-plain"} else set()))


async def _contests(turns: Rounds, names: frozenset[str], counts: tuple[int, ...]) -> list[Figure]:
    figures: list[Figure] = []
    for contest in chosen(names):
        for clients in contest[0].clients or counts:
            figures += await turns.contest(contest, clients)
    return figures
