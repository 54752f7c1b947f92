"""``f1 cluster``: a cluster of processes on this machine, for trying things out and for tests."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from f1common.errors import Code, F1Error
from f1deploy.cluster import READY_TIMEOUT_S, Cluster, ProcessStatus, UpOptions
from f1deploy.directory import DEFAULT_DIRECTORY
from f1deploy.logtail import follow, show

app = typer.Typer(
    help="A local cluster: start it, stop it, kill and start its processes, read their logs.", no_args_is_help=True
)

DirOption = Annotated[Path, typer.Option("--dir", help="Directory of the cluster.", show_default=True)]
Name = Annotated[str, typer.Argument(help="Name of a process, as `f1 cluster status` shows it.")]

_COLOURS = {
    "running": "green",
    "starting": "yellow",
    "paused": "yellow",
    "restarting": "yellow",
    "failed": "red",
    "stopped": "dim",
}


class Format(Enum):
    """How ``status`` prints."""

    table = "table"
    json = "json"


def _cluster(path: Path) -> Cluster:
    return Cluster(path)


def _refuse_later(**counts: int) -> None:
    """Raise F1Error FAILED_PRECONDITION for processes that this version does not have."""
    for option, count in counts.items():
        if count:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"--{option} {count} comes with a later version, leave it out or set it to 0",
            )


@app.command()
def up(
    directory: DirOption = DEFAULT_DIRECTORY,
    port: Annotated[
        int | None,
        typer.Option(help="First of the ports that clients connect to; 0: any free ones. [default: 7400]"),
    ] = None,
    spanservers: Annotated[int | None, typer.Option(help="Storage servers. [default: 3]")] = None,
    f1servers: Annotated[int | None, typer.Option(help="SQL servers. [default: 2]")] = None,
    slaves: Annotated[
        int | None, typer.Option(help="Query workers; with any there is a master too. [default: 2]")
    ] = None,
    groups: Annotated[int | None, typer.Option(help="Paxos groups for data, beside group 0. [default: 4]")] = None,
    zones: Annotated[int | None, typer.Option(help="Zones that servers are dealt to. [default: 3]")] = None,
    readonly: Annotated[int, typer.Option(help="Replicas that do not vote (none in this version).")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A configuration key for all processes; repeatable."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until the cluster is ready.")] = READY_TIMEOUT_S,
) -> None:
    """Start a cluster, or one that was stopped, and return when it is ready.

    Clients connect to --port and those after it; other ports are chosen free. A supervisor restarts processes that
    exit by themselves, not those stopped by `f1 cluster kill`. Data stay in the directory when the cluster is down.
    """
    _refuse_later(readonly=readonly)
    cluster = _cluster(directory)
    options = UpOptions(port, spanservers, f1servers, slaves, groups, zones, tuple(settings or ()), timeout)
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("starting") as spinner:
            spec = cluster.up(options, spinner.update)
    else:
        spec = cluster.up(options)
    _print_table(cluster.status())
    voters = {len(group.voters) for group in spec.groups}
    typer.echo(
        f"{len(spec.groups)} groups of {max(voters)} replicas; stop it with `f1 cluster down{_dir_hint(directory)}`"
    )


def _dir_hint(directory: Path) -> str:
    return "" if directory == DEFAULT_DIRECTORY else f" --dir {directory}"


@app.command()
def status(
    directory: DirOption = DEFAULT_DIRECTORY,
    form: Annotated[Format, typer.Option("--format", help="Print a table or JSON.")] = Format.table,
) -> None:
    """Show the processes: name, kind, pid, address and state."""
    cluster = _cluster(directory)
    statuses = cluster.status()
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(statuses), indent=2).decode())
        return
    _print_table(statuses)
    if not cluster.supervised() and any(item.pid is not None for item in statuses):
        typer.echo("The supervisor is dead: nothing is restarted. `f1 cluster start NAME` brings it back.", err=True)


def _print_table(statuses: list[ProcessStatus]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("name", "kind", "pid", "address", "state"):
        table.add_column(column, justify="right" if column == "pid" else "left", no_wrap=True)
    for item in statuses:
        colour = _COLOURS[item.state]
        pid = "" if item.pid is None else str(item.pid)
        table.add_row(item.name, item.kind, pid, item.address, f"[{colour}]{item.state}[/]")
    Console().print(table)


@app.command()
def down(directory: DirOption = DEFAULT_DIRECTORY) -> None:
    """Stop all processes: SIGTERM, and SIGKILL for what does not end in time. Data stay."""
    ran = _cluster(directory).down()
    typer.echo("the cluster is down" if ran else "the cluster was down already")


@app.command()
def kill(name: Name, directory: DirOption = DEFAULT_DIRECTORY) -> None:
    """Kill a process with SIGKILL; it stays down until `f1 cluster start`."""
    _cluster(directory).kill(name)
    typer.echo(f"{name} is killed")


@app.command()
def start(name: Name, directory: DirOption = DEFAULT_DIRECTORY) -> None:
    """Start a process that was killed or has failed, and return when it serves."""
    _cluster(directory).start(name)
    typer.echo(f"{name} is running")


@app.command()
def pause(name: Name, directory: DirOption = DEFAULT_DIRECTORY) -> None:
    """Stop a process with SIGSTOP: it lives and does nothing."""
    _cluster(directory).pause(name)
    typer.echo(f"{name} is paused")


@app.command()
def resume(name: Name, directory: DirOption = DEFAULT_DIRECTORY) -> None:
    """Let a paused process go on."""
    _cluster(directory).resume(name)
    typer.echo(f"{name} goes on")


@app.command()
def logs(
    name: Annotated[str | None, typer.Argument(help="Name of a process, or `supervisor`; without it: all.")] = None,
    directory: DirOption = DEFAULT_DIRECTORY,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is written from now on.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="Lines of each log to begin with.")] = 100,
) -> None:
    """Print the end of the logs."""
    cluster = _cluster(directory)
    spec = cluster.spec()
    if name is None:
        names = [process.name for process in spec.processes]
    else:
        names = [name if name == "supervisor" else spec.process(name).name]
    files = {each: cluster.directory.log_path(each) for each in names}
    width = max(map(len, names))

    def emit(origin: str, line: str) -> None:
        typer.echo(line if name is not None else f"{origin:<{width}} | {line}")

    ends = show(files, lines, emit)
    if following:
        follow(files, ends, emit)
