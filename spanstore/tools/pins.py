"""``f1 pin``: timestamps that stay readable for longer than versions are kept."""

from enum import Enum
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from f1common.errors import Code, F1Error
from spanstore.client import Pin, SpanClient
from spanstore.tools.show import wide_console
from spanstore.tools.target import DirOption, HostOption, resolve

app = typer.Typer(help="Timestamps that stay readable for longer than versions are kept.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the pin.")]
TtlOption = Annotated[
    float, typer.Option("--ttl-s", min=0.001, max=31_536_000, help="Seconds until it expires, unless refreshed.")
]


class Format(Enum):
    """How pins are printed."""

    table = "table"
    json = "json"


class PinRow(msgspec.Struct, frozen=True):
    """One pin: the timestamp and when it expires, in microseconds since the epoch, and for whom it is."""

    name: str
    ts: int
    expires_ts: int
    owner: str


@app.command("list")
def list_pins(
    host: HostOption = None,
    directory: DirOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """List the pins that have not expired."""

    async def work(client: SpanClient) -> list[Pin]:
        return await client.pins.list()

    rows = [PinRow(pin.name, pin.ts, pin.expires_ts, pin.owner) for pin in resolve(host, directory).run(work)]
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    table = Table(box=None, pad_edge=False)
    for column in PinRow.__struct_fields__:
        table.add_column(column, justify="left" if column in ("name", "owner") else "right", no_wrap=True)
    for row in rows:
        table.add_row(escape(row.name), str(row.ts), str(row.expires_ts), escape(row.owner))
    wide_console().print(table)


@app.command("add")
def add(
    name: NameArgument,
    ts: Annotated[int, typer.Option("--ts", min=0, max=(1 << 62), help="Microseconds since the epoch; 0: now.")] = 0,
    ttl_s: TtlOption = 600.0,
    owner: Annotated[str, typer.Option(help="Whom it is for.")] = "",
    host: HostOption = None,
    directory: DirOption = None,
) -> None:
    """Pin a timestamp, by default the present one."""

    async def work(client: SpanClient) -> Pin:
        return await client.pins.add(name, ts or await client.safe_time(), ttl_s=ttl_s, owner=owner)

    _tell(resolve(host, directory).run(work))


@app.command("refresh")
def refresh(name: NameArgument, ttl_s: TtlOption = 600.0, host: HostOption = None, directory: DirOption = None) -> None:
    """Let a pin live on."""

    async def work(client: SpanClient) -> Pin:
        return await client.pins.refresh(name, ttl_s=ttl_s)

    _tell(resolve(host, directory).run(work))


@app.command("remove")
def remove(name: NameArgument, host: HostOption = None, directory: DirOption = None) -> None:
    """Remove a pin."""

    async def work(client: SpanClient) -> bool:
        return await client.pins.remove(name)

    if not resolve(host, directory).run(work):
        raise F1Error(Code.NOT_FOUND, f"there is no pin {name}; f1 pin list shows those that there are")
    typer.echo(f"removed {name}")


@app.command("keep")
def keep(
    seconds: Annotated[
        float | None, typer.Argument(metavar="[SECONDS]", help="How long from now on; without, only show it.")
    ] = None,
    host: HostOption = None,
    directory: DirOption = None,
) -> None:
    """Show or change how long old versions are kept, pins aside, in the whole cluster."""

    async def work(client: SpanClient) -> float:
        return await client.pins.keep(seconds)

    typer.echo(f"old versions are kept for {resolve(host, directory).run(work):g} s")


def _tell(pin: Pin) -> None:
    typer.echo(f"{pin.name} pins {pin.ts} until {pin.expires_ts}")
