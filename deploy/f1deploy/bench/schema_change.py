"""``f1 bench schema-change``: what users notice of a schema change (tables 2 and 3 of the schema-change paper).

An index is built on a table that users read and write at the same time. The load is a mix of three quarters queries and
one quarter writes (section 5 of the paper), open loop, at half of the capacity that the same mix has in a closed loop
in this run. The build is held up every other twenty seconds, and latencies without a change are those of these turns;
with ``--turns 0`` those of windows before and after it. With several rounds, between which the index is dropped, a
figure is the median of them. An index on another column is built before, with nobody there, and the same one by
PostgreSQL with CREATE INDEX CONCURRENTLY on the same rows. In the end `f1 check` sees that every row has its entries: a
benchmark of an index that lacks rows is worth nothing.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import typer
from rich.console import Console
from rich.table import Table

import f1
from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1deploy.bench.local import LocalCluster, local_cluster
from f1deploy.bench.mixed import CATEGORIES, DDL, GAP, TABLE, Load, MixSpec, Operations
from f1deploy.bench.postgres import find_postgres, postgres
from f1deploy.bench.report import Format, Row
from f1deploy.bench.turns import Window, hold_up_in_turns
from spanstore.tools.bench import machine, reason_of
from spanstore.tools.load import quantile_ms

__all__ = ["Goal", "Report", "command", "compare"]

_PERCENTILES = (0.5, 0.9, 0.99)
_CAPACITY_CLIENTS = 32
_CAPACITY_S = 15.0
_WARM_UP_S = 5.0
_BUILD_S = 600.0
_AT_REST = f"CREATE INDEX ItemByName ON {TABLE} (Name)"
_UNDER_LOAD = f"CREATE INDEX ItemByCategory ON {TABLE} (Category)"
_AGAIN = "DROP INDEX ItemByCategory"
_WITHOUT = "no schema change"

Say = Callable[[str], object]


class Goal(msgspec.Struct, frozen=True):
    """What was to be reached: ``value`` is not to exceed ``bound``."""

    goal: str
    value: float
    bound: float

    @property
    def met(self) -> bool:
        """Tell whether it was."""
        return self.value <= self.bound


class Report(msgspec.Struct, frozen=True):
    """What ``--format json`` prints: of latencies, ``ours`` is with the change running, ``peer`` without.

    ``rate`` operations arrived in a second; ``build_s`` is the build under load. Of several rounds figures are medians;
    ``ratios`` are those of each.
    """

    machine: str
    rows: list[Row]
    goals: list[Goal]
    table_rows: int
    rate: float
    build_s: float
    operations: int
    errors: int
    first_error: str = ""
    note: str = ""
    ratios: dict[str, list[float]] = {}


@dataclass(frozen=True, slots=True)
class Build:
    """How long an index took, in seconds, and the processor time of all processes meanwhile, in seconds."""

    took_s: float
    cpu_s: float


def command(
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of the table.")] = 1_000_000,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=3600, help="With --turns 0: seconds without a change, before and again after.")
    ] = 60.0,
    turns: Annotated[
        float, typer.Option(min=0.0, max=3600, help="Seconds that the build goes on and is held up in turns; 0: never.")
    ] = 20.0,
    rate: Annotated[
        float, typer.Option(min=0.0, max=100_000, help="Operations that arrive in a second; 0: half of the capacity.")
    ] = 0.0,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Builds, each beside windows of its own.")] = 1,
    slaves: Annotated[int, typer.Option(min=0, max=16, help="Slaves of the cluster.")] = 2,
    peer: Annotated[bool, typer.Option(help="Build the same index with PostgreSQL, if it is installed.")] = True,
    check: Annotated[bool, typer.Option(help="Run `f1 check` in the end.")] = True,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Measure latencies of users while an index is built, and how quick the build is; on a cluster of its own."""
    with _saying() as say:
        report = _measure(rows, _Load(seconds, turns, rate, rounds), slaves, peer, check, say)
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _print(report)


@contextmanager
def _saying() -> Iterator[Say]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting") as status:
        yield status.update


@dataclass(frozen=True, slots=True)
class _Load:
    """How long windows and turns are, in seconds, how many operations arrive in one (0: half of capacity), how many
    builds."""

    seconds: float
    turns: float
    rate: float
    rounds: int


def _measure(rows: int, load: _Load, slaves: int, peer: bool, check: bool, say: Say) -> Report:
    programs = find_postgres() if peer else None
    say("starting a cluster")
    with local_cluster("--slaves", str(slaves)) as cluster:
        files = _write_rows(cluster.folder, rows)
        say(f"loading {rows:,} rows")
        (cluster.folder / "item.sql").write_text(DDL)
        cluster.f1("schema", "apply", "--yes", "item.sql")
        cluster.f1("load", TABLE, str(files[0]), "--in-flight", "8")
        say("building an index with nobody there")
        at_rest = _build(cluster, _AT_REST)
        if not load.rate:
            say(f"measuring the capacity with {_CAPACITY_CLIENTS} clients")
            load = replace(load, rate=_capacity(cluster.hosts, rows) / 2)
        found = _under_load(cluster, rows, load, say)
        if check:
            say("f1 check")
            cluster.f1("check")
        theirs, note = None, "PostgreSQL is not installed" if peer else "no peer was asked for"
        if programs is not None:
            say("PostgreSQL: loading the same rows and building the same index")
            theirs, note = _peer(programs, files[1])
    return compare(rows, load.rate, at_rest, found, theirs, note)


def _peer(programs: Path, csv: Path) -> tuple[tuple[float, str] | None, str]:
    """Return the seconds that PostgreSQL takes, and its name, or why there are none."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgres(programs))
        except (F1Error, OSError) as error:
            return None, f"PostgreSQL could not start: {reason_of(error)}"
        server.run(_postgres_ddl())
        server.run(f"COPY {TABLE} FROM STDIN (FORMAT csv, HEADER)", stdin=csv)
        return (server.run(_AT_REST.replace("INDEX", "INDEX CONCURRENTLY")), server.version()), ""


def _write_rows(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write the rows as Parquet for us and as CSV for the peer. Every row has values in every column."""
    ids = [number * GAP for number in range(rows)]
    table = pa.table(
        {
            "Id": pa.array(ids, pa.int64()),
            "Category": pa.array([number * 7919 % CATEGORIES for number in range(rows)], pa.int64()),
            "Name": [f"item {number * 104_729 % (rows * 10)}" for number in range(rows)],
            "Price": pa.array([Decimal(number % 10_000) / 100 for number in range(rows)], pa.decimal128(38, 9)),
            "Note": [f"note of row {number} " + "n" * 30 for number in range(rows)],
        }
    )
    parquet, csv = folder / "item.parquet", folder / "item.csv"
    pyarrow.parquet.write_table(table, parquet)
    pyarrow.csv.write_csv(table, csv)
    return parquet, csv


def _postgres_ddl() -> str:
    return f"""CREATE TABLE {TABLE} (
        Id bigint NOT NULL, Category bigint, Name text, Price numeric(38, 9), Note text, PRIMARY KEY (Id))"""


def _build(cluster: LocalCluster, sql: str) -> Build:
    """Build an index, by a connection of its own."""
    before, began_us = cluster.cpu_s(), boot_us()
    with f1.connect(cluster.hosts, autocommit=True, timeout_s=3 * _BUILD_S) as connection:
        connection.execute(sql)
    took_s = (boot_us() - began_us) / 1e6
    return Build(took_s, (cluster.cpu_s() - before).total())


def _capacity(hosts: str, rows: int) -> float:
    """Return how many operations of the mix end in a second, in a closed loop."""
    with Load(MixSpec(hosts, rows, seed=1, clients=_CAPACITY_CLIENTS)) as load:
        time.sleep(_WARM_UP_S)
        start = boot_us()
        time.sleep(_CAPACITY_S)
        end = boot_us()
        done = load.stop()
    found = done.ended_within(start, end) / ((end - start) / 1e6)
    if not found:
        raise F1Error(Code.UNAVAILABLE, f"no operation succeeded: {done.first_error or 'none ended in time'}")
    return found


@dataclass(frozen=True, slots=True)
class Round:
    """The windows without a change, those of a build, and the build."""

    without: tuple[Window, ...]
    during: tuple[Window, ...]
    build: Build


@dataclass(frozen=True, slots=True)
class Observed:
    """Operations, and when they were what."""

    done: Operations
    rounds: tuple[Round, ...]


def _under_load(cluster: LocalCluster, rows: int, load: _Load, say: Say) -> Observed:
    with Load(MixSpec(cluster.hosts, rows, seed=2, rate=load.rate)) as users, ThreadPoolExecutor(1) as beside:
        rounds: list[Round] = []
        for number in range(1, load.rounds + 1):
            what = f"round {number} of {load.rounds}, {load.rate:,.0f} operations a second"
            if rounds:
                _build(cluster, _AGAIN)
            measure = _in_turns if load.turns else _before_and_after
            rounds.append(measure(cluster, load, beside, partial(_say_of, say, what)))
        return Observed(users.stop(), tuple(rounds))


def _say_of(say: Say, what: str, text: str) -> None:
    say(f"{what}, {text}")


def _in_turns(cluster: LocalCluster, load: _Load, beside: ThreadPoolExecutor, say: Say) -> Round:
    time.sleep(_WARM_UP_S)
    building = beside.submit(_build, cluster, _UNDER_LOAD)
    try:
        turns = hold_up_in_turns(cluster.hosts, load.turns, say)
    except F1Error:
        if building.done():
            building.result()  # it says more
        raise
    return Round(tuple(turns.held_up), tuple(turns.going_on), replace(building.result(), took_s=turns.took_s))


def _before_and_after(cluster: LocalCluster, load: _Load, beside: ThreadPoolExecutor, say: Say) -> Round:
    time.sleep(_WARM_UP_S)
    say("no schema change")
    before = _window(load.seconds)
    start = boot_us()
    building = beside.submit(_build, cluster, _UNDER_LOAD)
    while not building.done():
        time.sleep(0.1)
        say(f"an index is built: {(boot_us() - start) / 1e6:,.0f} s")
    during = (start, boot_us())
    build = building.result()
    say("no schema change again")
    time.sleep(_WARM_UP_S)
    return Round((before, _window(load.seconds)), (during,), build)


def _window(seconds: float) -> Window:
    start = boot_us()
    time.sleep(seconds)
    return start, boot_us()


def compare(
    rows: int,
    rate: float,
    at_rest: Build,
    found: Observed,
    theirs: tuple[float, str] | None,
    note: str = "",
) -> Report:
    """Return the report of what was observed; ``theirs``: seconds that the peer took, and its name."""
    measured = [_latency(kind, share, found) for kind in ("query", "write") for share in _PERCENTILES]
    latencies = [row for row, _ in measured]
    build_s = statistics.median(r.build.took_s for r in found.rounds)
    peer_rate = None if theirs is None else rows / theirs[0]
    builds = [
        Row(
            work="index build, nobody there",
            clients=0,
            unit="rows/s",
            ours=round(rows / at_rest.took_s, 1),
            peer=None if peer_rate is None else round(peer_rate, 1),
            peer_name=None if theirs is None else theirs[1],
            ratio=None if peer_rate is None else round(rows / at_rest.took_s / peer_rate, 4),
            cpu_us=round(at_rest.cpu_s * 1e6 / rows, 1),
        ),
        Row("index build under load", 0, "rows/s", round(rows / build_s, 1)),
    ]
    windows = tuple(window for r in found.rounds for window in (*r.without, *r.during))
    errors = found.done.failed(windows)
    return Report(
        machine=machine(),
        rows=[*latencies, *builds],
        goals=_goals(latencies, max(r.build.took_s for r in found.rounds), errors),
        table_rows=rows,
        rate=round(rate, 1),
        build_s=round(build_s, 1),
        operations=sum(len(found.done.latencies(windows, query=query)) for query in (True, False)),
        errors=errors,
        first_error=found.done.first_error if errors else "",
        note=note,
        ratios={row.work: ratios for row, ratios in measured},
    )


def _latency(kind: str, share: float, found: Observed) -> tuple[Row, list[float]]:
    """Return medians over the rounds, and the ratio of each."""
    query = kind == "query"

    def of(windows: Sequence[Window]) -> float:
        return quantile_ms(found.done.latencies(windows, query=query), share)

    both = [(of(r.during), of(r.without)) for r in found.rounds]
    ratios = [round(during / without, 3) for during, without in both if without]
    during, without = (statistics.median(side) for side in zip(*both, strict=True))
    ratio = round(statistics.median(ratios), 3) if ratios else None
    return Row(f"{kind} p{share * 100:.0f}", 0, "ms", round(during, 2), round(without, 2), _WITHOUT, ratio), ratios


def _goals(latencies: Sequence[Row], build_s: float, errors: int) -> list[Goal]:
    ratios = {row.work: row.ratio or float("inf") for row in latencies}
    return [
        Goal("query p50, with a change / without", ratios["query p50"], 1.05),
        Goal("query p99, with a change / without", ratios["query p99"], 1.05),
        Goal("write p50, with a change / without", ratios["write p50"], 1.20),
        Goal("seconds for the build under load", round(build_s, 1), _BUILD_S),
        Goal("operations that failed", float(errors), 0.0),
    ]


def _print(report: Report) -> None:
    console = Console()
    console.print(report.machine, style="dim", highlight=False)
    line = (
        f"{report.table_rows:,} rows; {report.rate:,.0f} operations arrived in a second, {report.operations:,} in all"
    )
    console.print(f"{line}; the build took {report.build_s:,.0f} s\n", highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("latency, ms", _WITHOUT, "schema change", "increase"):
        table.add_column(heading, justify="left" if heading.startswith("latency") else "right", no_wrap=True)
    for row in report.rows:
        if row.unit == "ms" and row.ratio is not None:
            ratios = report.ratios[row.work]
            each = f" ({min(ratios):.2f} to {max(ratios):.2f} times)" if len(ratios) > 1 else ""
            table.add_row(row.work, f"{row.peer:.2f}", f"{row.ours:.2f}", f"{(row.ratio - 1) * 100:+.1f} %{each}")
    console.print(table)
    console.print()
    for row in report.rows:
        if row.unit == "rows/s":
            beside = f"; {row.peer_name} {row.peer:,.0f}, ratio {row.ratio:.3f}" if row.peer else ""
            spent = f", {row.cpu_us:,.0f} us of processor time a row" if row.cpu_us else ""
            console.print(f"{row.work}: {row.ours:,.0f} rows/s{spent}{beside}", highlight=False)
    for goal in report.goals:
        console.print(f"{'met' if goal.met else 'not met'}: {goal.goal}: {goal.value:g} (at most {goal.bound:g})")
    if report.first_error:
        console.print(f"An error was: {report.first_error}", highlight=False, markup=False)
    if report.note:
        console.print(f"No peer: {report.note}.", highlight=False)
