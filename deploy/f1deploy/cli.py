"""``f1 cluster``: a cluster of processes on this machine, for trying things out and for tests."""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from f1deploy import growth
from f1deploy.cluster import READY_TIMEOUT_S, Cluster, ProcessStatus, UpOptions
from f1deploy.directory import DEFAULT_DIRECTORY
from f1deploy.logtail import follow, show
from f1deploy.passwords import FIRST_ROLE, SETTING, make_first_role, take_password
from f1deploy.spec import Kind

app = typer.Typer(
    help="A local cluster: start it, stop it, let it grow and shrink, kill and start processes, read their logs.",
    no_args_is_help=True,
)

T = TypeVar("T")

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
    voters: Annotated[
        int | None, typer.Option(help="Voters of each group: 1, 3 or 5. [default: 3, or 1 with fewer spanservers]")
    ] = None,
    readonly: Annotated[
        int | None, typer.Option(help="Read-only replicas of each group, which do not vote. [default: 0]")
    ] = None,
    orchestrator: Annotated[
        bool | None,
        typer.Option(help="Run the orchestrator's timestamp and lock services. [default: where there are f1servers]"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A configuration key for all processes; repeatable."),
    ] = None,
    password: Annotated[
        bool,
        typer.Option(
            "--password",
            help="Have clients log in: make the superuser f1, whose password is $F1_PASSWORD or asked for.",
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until the cluster is ready.")] = READY_TIMEOUT_S,
) -> None:
    """Start a cluster, or one that was stopped, and return when it is ready.

    Clients connect to --port and those after it; other ports are chosen free. A supervisor restarts processes that
    exit by themselves, not those stopped by `f1 cluster kill`. Data stay in the directory when the cluster is down.
    """
    cluster = _cluster(directory)
    overrides = tuple(settings or ())
    secret = take_password(_ask_password) if password else ""
    options = UpOptions(
        port, spanservers, f1servers, slaves, groups, zones, voters, readonly, orchestrator, overrides, timeout
    )
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("starting") as spinner:
            spec = cluster.up(options, spinner.update)
    else:
        spec = cluster.up(options, _lines_on_stderr())
    if secret and SETTING not in spec.overrides:
        spec = make_first_role(cluster, spec, secret)
    _print_table(cluster.status())
    size = max(len(group.voters) + len(group.readers) for group in spec.groups)
    stop = f"`f1 cluster down{_dir_hint(directory)}`"
    typer.echo(f"founded with {len(spec.groups)} groups of {size} replicas; stop it with {stop}")


def _ask_password() -> str:
    return str(typer.prompt(f"Password of {FIRST_ROLE}", hide_input=True, confirmation_prompt=True))


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


class AddedKind(Enum):
    """What can be added."""

    spanserver = "spanserver"
    f1server = "f1server"
    slave = "slave"
    timestamps = "timestamps"
    locks = "locks"


class ServerRow(msgspec.Struct, frozen=True):
    """What became of a process; ``groups`` are those whose replicas were moved or built."""

    server: str
    state: str
    groups: list[int] = []


FormatOption = Annotated[Format, typer.Option("--format", help="Print a table or JSON.")]
WaitOption = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for replicas to move.")]
_KINDS: dict[AddedKind, Kind] = {
    AddedKind.spanserver: "spanserver",
    AddedKind.f1server: "f1server",
    AddedKind.slave: "slave",
    AddedKind.timestamps: "timestamps",
    AddedKind.locks: "locks",
}


def _lines_on_stderr() -> growth.Progress:
    """Return what prints a line for each news: there is no terminal on which one line could change."""
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            typer.echo(text, err=True)
        last = text

    return tell


def _with_progress(work: Callable[[growth.Progress], T]) -> T:
    console = Console(stderr=True)
    if not console.is_terminal:
        return work(_lines_on_stderr())
    with console.status("looking at the cluster") as spinner:
        return work(lambda text: spinner.update(escape(text)))


def _show_server(row: ServerRow, form: Format) -> None:
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(row), indent=2).decode())
        return
    groups = f" (groups {', '.join(map(str, row.groups))})" if row.groups else ""
    typer.echo(f"{row.server} is {row.state}{groups}")


@app.command()
def add(
    directory: DirOption = DEFAULT_DIRECTORY,
    kind: Annotated[AddedKind, typer.Option(help="What to add.")] = AddedKind.spanserver,
    zone: Annotated[str | None, typer.Option(help="Zone of the new ones. [default: the one with the fewest]")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 1,
    form: FormatOption = Format.table,
) -> None:
    """Add processes to the cluster, which may be running: then they are started, and serve when this returns.

    A new spanserver gets its share of the replicas by itself, unless placement.rebalance is off.
    """
    cluster = _cluster(directory)
    new = _with_progress(lambda progress: growth.add(cluster, _KINDS[kind], count, zone, progress))
    names = {process.name for process in new}
    statuses = [item for item in cluster.status() if item.name in names]
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(statuses), indent=2).decode())
    else:
        _print_table(statuses)


@app.command()
def drain(
    name: Name,
    directory: DirOption = DEFAULT_DIRECTORY,
    any_zone: Annotated[bool, typer.Option("--any-zone", help="Groups may come to lie in fewer zones.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let it have replicas again.")] = False,
    timeout: WaitOption = 600.0,
    form: FormatOption = Format.table,
) -> None:
    """Move all replicas of a spanserver to others; until --undo it gets no new ones."""
    cluster = _cluster(directory)
    if undo:
        growth.undrain(cluster, name)
        _show_server(ServerRow(name, "serving"), form)
        return
    groups = _with_progress(
        lambda progress: growth.drain(cluster, name, any_zone=any_zone, timeout_s=timeout, progress=progress)
    )
    _show_server(ServerRow(name, "drained", groups), form)


@app.command()
def remove(
    name: Name,
    directory: DirOption = DEFAULT_DIRECTORY,
    force: Annotated[
        bool, typer.Option("--force", help="Of a dead spanserver: first build its replicas elsewhere.")
    ] = False,
    timeout: WaitOption = 600.0,
    form: FormatOption = Format.table,
) -> None:
    """Take a process out of the cluster for ever: a drained spanserver, an f1server or a slave. Its data stay."""
    cluster = _cluster(directory)
    _with_progress(lambda progress: growth.remove(cluster, name, force=force, timeout_s=timeout, progress=progress))
    _show_server(ServerRow(name, "removed"), form)


@app.command()
def rebuild(
    name: Name,
    directory: DirOption = DEFAULT_DIRECTORY,
    timeout: WaitOption = 600.0,
    form: FormatOption = Format.table,
) -> None:
    """Build all replicas of a spanserver anew from the others, as after the loss of its disk."""
    cluster = _cluster(directory)
    groups = _with_progress(lambda progress: growth.rebuild(cluster, name, timeout_s=timeout, progress=progress))
    _show_server(ServerRow(name, "rebuilt", groups), form)


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
