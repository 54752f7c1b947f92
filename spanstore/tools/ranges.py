"""``f1 range``: which group owns which keys, and who leads it; ranges are split, merged and moved."""

import csv
import io
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import SpanClient
from spanstore.client.placement import (
    cancel_move,
    merge_ranges,
    move_jobs,
    split_range,
    stored_map,
    submit_move,
    wait_for_move,
)
from spanstore.placement.jobs import JobState, MoveJob
from spanstore.placement.range_map import KEY_MAX, Range, RangeMap, readable
from spanstore.tools import range_load, range_policy
from spanstore.tools.keys import parse_key
from spanstore.tools.show import wide_console
from spanstore.tools.target import DirOption, HostOption, resolve

app = typer.Typer(help="The ranges of the key space and the groups that own them.", no_args_is_help=True)
app.add_typer(range_policy.app, name="policy")
app.command("load")(range_load.command)


class Format(Enum):
    """How ranges are printed."""

    table = "table"
    csv = "csv"
    json = "json"


class RangeRow(msgspec.Struct, frozen=True):
    """One range: borders in hexadecimal (``end`` of the last one ``ff``, above every key) and as readable keys."""

    start: str
    end: str
    group: int
    leader: str
    first: str
    last: str


class JobRow(msgspec.Struct, frozen=True):
    """One move: borders in hexadecimal and as readable keys; ``source`` -1: it has not begun."""

    job: int
    start: str
    end: str
    source: int
    target: int
    state: str
    rows: int
    owner: str
    message: str
    first: str
    last: str


FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]
KeyArgument = Annotated[
    str, typer.Argument(help="A key: its elements, such as 1/42/abc, or 0x and hexadecimal digits.")
]


@app.callback()
def _group() -> None:
    """The ranges of the key space and the groups that own them."""


@app.command("list")
def list_ranges(
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
    everything: Annotated[
        bool, typer.Option("--all", help="Every range, instead of neighbours of one group together.")
    ] = False,
) -> None:
    """List the ranges in key order: start (inclusive), end (exclusive), group, and the group's leader."""
    ranges, leaders = resolve(host, directory).run(_ask)
    rows = range_rows(ranges if everything else joined(ranges), leaders)
    match form:
        case Format.json:
            typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        case Format.csv:
            typer.echo(to_csv(rows), nl=False)
        case Format.table:
            _print_table(rows, ranges.version)


@app.command("split")
def split(
    key: KeyArgument,
    host: HostOption = None,
    directory: DirOption = None,
    fragment: Annotated[
        bool, typer.Option(help="Cut through a directory, where a row and what is below it lie.")
    ] = False,
) -> None:
    """Begin a new range at KEY."""
    border = parse_key(key)
    changed = resolve(host, directory).run(lambda client: split_range(client, border, fragment=fragment))
    typer.echo(f"split at {readable(border)}, range map version {changed.version}")


@app.command("merge")
def merge(key: KeyArgument, host: HostOption = None, directory: DirOption = None) -> None:
    """Join the two ranges that meet at KEY; one group must own both."""
    border = parse_key(key)
    changed = resolve(host, directory).run(lambda client: merge_ranges(client, border))
    typer.echo(f"merged at {readable(border)}, range map version {changed.version}")


@app.command("move")
def move(
    start: KeyArgument,
    to: Annotated[int, typer.Option("--to", help="The group that is to own it.")],
    end: Annotated[str, typer.Argument(help="Where it ends; by default where the range that holds START does.")] = "",
    host: HostOption = None,
    directory: DirOption = None,
    wait: Annotated[bool, typer.Option(help="Wait until it has moved.")] = True,
    timeout_s: Annotated[float, typer.Option("--timeout", help="How long to wait, in seconds.")] = 600.0,
) -> None:
    """Move the range that begins at START to another group, while it is read and written."""

    async def work(client: SpanClient) -> MoveJob:
        low = parse_key(start)
        ranges, _ = await stored_map(client)
        job = await submit_move(client, low, parse_key(end) if end else ranges.lookup(low).end, to)
        return await wait_for_move(client, job.number, timeout_s) if wait else job

    job = resolve(host, directory).run(work)
    if job.state in (JobState.CANCELLED, JobState.FAILED):
        said = "was cancelled" if job.state is JobState.CANCELLED else "failed, and all is as it was before"
        raise F1Error(Code.FAILED_PRECONDITION, f"job {job.number} {said}{': ' * bool(job.message)}{job.message}")
    typer.echo(f"job {job.number}: {job.state}")


@app.command("cancel")
def cancel(
    number: Annotated[int, typer.Argument(help="The number of the job.")],
    host: HostOption = None,
    directory: DirOption = None,
) -> None:
    """Give a move up, if the old group has not given its range up yet."""
    resolve(host, directory).run(lambda client: cancel_move(client, number))
    typer.echo(f"job {number} is being cancelled")


@app.command("jobs")
def jobs(host: HostOption = None, directory: DirOption = None, form: FormatOption = Format.table) -> None:
    """List the moves that wait or run, and the last that ended."""
    rows = [job_row(job) for job in resolve(host, directory).run(move_jobs)]
    match form:
        case Format.json:
            typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        case Format.csv:
            typer.echo(to_csv(rows, JobRow), nl=False)
        case Format.table:
            _print_jobs(rows)


def job_row(job: MoveJob) -> JobRow:
    """Return what is shown of a job."""
    first, last = readable(job.start), readable(job.end)
    return JobRow(
        job.number,
        job.start.hex(),
        job.end.hex(),
        job.source,
        job.target,
        str(job.state),
        job.rows,
        job.owner,
        job.message,
        first,
        last,
    )


def joined(ranges: RangeMap) -> RangeMap:
    """Return the map with neighbours of one group joined."""
    return RangeMap((Range(*piece) for piece in ranges.pieces(b"", KEY_MAX)), ranges.version)


async def _ask(client: SpanClient) -> tuple[RangeMap, dict[int, str]]:
    ranges = await client.range_map()
    return ranges, leaders_of(await client.status())


def leaders_of(answers: Mapping[str, pb.StatusReply | F1Error]) -> dict[int, str]:
    """Return the groups that have a leader with a lease, and its name."""
    return {
        group.group: answer.name
        for answer in answers.values()
        if isinstance(answer, pb.StatusReply)
        for group in answer.groups
        if group.role == "leader" and group.lease_valid
    }


def range_rows(ranges: RangeMap, leaders: Mapping[int, str]) -> list[RangeRow]:
    """Return what is shown of each range."""
    return [
        RangeRow(r.start.hex(), r.end.hex(), r.group, leaders.get(r.group, ""), readable(r.start), readable(r.end))
        for r in ranges.ranges
    ]


def to_csv(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct] = RangeRow) -> str:
    """Return the rows with a header, lines ending in a newline."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(kind.__struct_fields__)
    writer.writerows(msgspec.structs.astuple(row) for row in rows)
    return out.getvalue()


def _print_table(rows: list[RangeRow], version: int) -> None:
    table = Table(box=None, pad_edge=False, caption=f"range map version {version}", caption_justify="left")
    for column in ("from", "to", "group", "leader"):
        table.add_column(column, justify="right" if column == "group" else "left", no_wrap=True)
    for row in rows:
        table.add_row(escape(row.first), escape(row.last), str(row.group), row.leader or "[red]none[/]")
    wide_console().print(table)


def _print_jobs(rows: list[JobRow]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("job", "from", "to", "source", "target", "state", "rows", "message"):
        right = column in ("job", "source", "target", "rows")
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "message")
    for row in rows:
        source = str(row.source) if row.source >= 0 else ""
        numbers = (source, str(row.target), row.state, str(row.rows))
        table.add_row(str(row.job), escape(row.first), escape(row.last), *numbers, escape(row.message))
    wide_console().print(table)
