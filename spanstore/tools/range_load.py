"""``f1 range load``: what the ranges hold and how busy they are, as the load balancer sees it."""

from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from spanstore.client import SpanClient
from spanstore.client.surveying import Surveyor
from spanstore.placement.load_balance import View
from spanstore.placement.range_map import readable
from spanstore.tools.range_policy import Format, FormatOption
from spanstore.tools.show import wide_console
from spanstore.tools.target import DirOption, HostOption, resolve


class LoadRow(msgspec.Struct, frozen=True):
    """A range: borders in hexadecimal and as readable keys; estimates of its rows, bytes, and rows used a second."""

    start: str
    end: str
    group: int
    leader: str
    rows: int
    bytes: int
    rows_per_s: float
    automatic: bool
    first: str
    last: str


def command(
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
    everything: Annotated[bool, typer.Option("--all", help="Also the ranges that hold nothing.")] = False,
) -> None:
    """Show the ranges that hold something: rows, bytes, and the rows read and written a second.

    Rows and bytes are counted now, the rest is of the last ten to twenty seconds; all are estimates.
    """

    async def ask(client: SpanClient) -> View:
        return await Surveyor(client).view()

    rows = [row for row in load_rows(resolve(host, directory).run(ask)) if everything or row.rows or row.rows_per_s]
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    table = Table(box=None, pad_edge=False)
    for column in ("from", "to", "group", "leader", "rows", "MiB", "rows/s"):
        table.add_column(column, justify="left" if column in ("from", "to", "leader") else "right", no_wrap=True)
    for row in rows:
        numbers = (f"{row.rows:,}", f"{row.bytes / (1 << 20):,.1f}", f"{row.rows_per_s:,.0f}")
        table.add_row(escape(row.first), escape(row.last), str(row.group), row.leader or "[red]none[/]", *numbers)
    wide_console().print(table)


def load_rows(view: View) -> list[LoadRow]:
    """Return what is shown of each range."""
    return [
        LoadRow(
            item.start.hex(),
            item.end.hex(),
            item.group,
            view.groups[item.group].leader if item.group in view.groups else "",
            item.rows,
            item.bytes,
            round(item.rows_per_s, 1),
            item.start in view.borders,
            readable(item.start),
            readable(item.end),
        )
        for item in view.ranges
    ]
