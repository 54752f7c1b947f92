"""``f1 range``: which group owns which keys, and who leads it."""

import csv
import io
from collections.abc import Mapping
from enum import Enum
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import SpanClient
from spanstore.placement.range_map import KEY_MAX, RangeMap
from spanstore.tools.show import wide_console
from spanstore.tools.target import DirOption, HostOption, resolve

app = typer.Typer(help="The ranges of the key space and the groups that own them.", no_args_is_help=True)


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


@app.callback()
def _group() -> None:
    """The ranges of the key space and the groups that own them."""


@app.command("list")
def list_ranges(
    host: HostOption = None,
    directory: DirOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """List all ranges in key order: start (inclusive), end (exclusive), group, and the group's leader."""
    ranges, leaders = resolve(host, directory).run(_ask)
    rows = range_rows(ranges, leaders)
    match form:
        case Format.json:
            typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        case Format.csv:
            typer.echo(to_csv(rows), nl=False)
        case Format.table:
            _print_table(rows, ranges.version)


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


def readable(key: bytes) -> str:
    """Return a key as the values it encodes, or in hexadecimal if it is none."""
    if key in (b"", KEY_MAX):
        return "-inf" if not key else "+inf"
    try:
        return "/".join(str(element) for element in tuples.decode(key))
    except F1Error:
        return f"0x{key.hex()}"


def to_csv(rows: list[RangeRow]) -> str:
    """Return the rows with a header, lines ending in a newline."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(RangeRow.__struct_fields__)
    writer.writerows(msgspec.structs.astuple(row) for row in rows)
    return out.getvalue()


def _print_table(rows: list[RangeRow], version: int) -> None:
    table = Table(box=None, pad_edge=False, caption=f"range map version {version}", caption_justify="left")
    for column in ("from", "to", "group", "leader"):
        table.add_column(column, justify="right" if column == "group" else "left", no_wrap=True)
    for row in rows:
        table.add_row(escape(row.first), escape(row.last), str(row.group), row.leader or "[red]none[/]")
    wide_console().print(table)
