"""``f1 range policy``: in which zones the rows of a table lie, and where their groups are led."""

from enum import Enum
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from spanstore.client.policies import TablePlace, place_table, table_places
from spanstore.placement.policy import ANYWHERE, Policy
from spanstore.tools.show import wide_console
from spanstore.tools.target import DirOption, HostOption, resolve

app = typer.Typer(help="Where the rows of tables lie and are led.", no_args_is_help=True)


class Format(Enum):
    """How policies are printed."""

    table = "table"
    json = "json"


class PolicyRow(msgspec.Struct, frozen=True):
    """A table's policy, the groups that hold its rows, those that meet the policy, and what is still to be done."""

    table: int
    zones: list[str]
    leader_zone: str
    groups: list[int]
    fit: list[int]
    note: str


TableArgument = Annotated[
    int, typer.Argument(metavar="TABLE", min=1, help="Number of a root table or global index: how its keys begin.")
]
ZonesOption = Annotated[str, typer.Option("--zones", metavar="A,B,C", help="Zones of the voters, one for each.")]
LeaderOption = Annotated[str, typer.Option("--leader-zone", metavar="ZONE", help="Zone where leadership belongs.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]


def policy_of(zones: str, leader_zone: str) -> Policy:
    """Return the policy that options name."""
    return Policy(tuple(zone.strip() for zone in zones.split(",") if zone.strip()), leader_zone.strip())


@app.callback()
def _policy() -> None:
    """Where the rows of tables lie and are led."""


@app.command("set")
def set_policy(
    table: TableArgument,
    zones: ZonesOption = "",
    leader_zone: LeaderOption = "",
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Have the rows of TABLE, and of all tables below it, in groups that meet the policy; `f1 group place` makes them.

    They move by themselves. Tables without a policy stay out of groups that have one.
    """
    policy = policy_of(zones, leader_zone)
    if policy == ANYWHERE:
        raise typer.BadParameter("name --zones, --leader-zone or both; `f1 range policy remove` takes a policy away")
    _show([resolve(host, directory).run(lambda client: place_table(client, table, policy))], form)


@app.command("remove")
def remove_policy(table: TableArgument, host: HostOption = None, directory: DirOption = None) -> None:
    """Let the rows of TABLE be anywhere. They stay where they are until size or load moves them."""
    resolve(host, directory).run(lambda client: place_table(client, table, ANYWHERE))
    typer.echo(f"table {table} has no policy")


@app.command("list")
def list_policies(host: HostOption = None, directory: DirOption = None, form: FormatOption = Format.table) -> None:
    """List the tables that have a policy."""
    _show(resolve(host, directory).run(table_places), form)


def _show(places: list[TablePlace], form: Format) -> None:
    rows = [
        PolicyRow(p.table, list(p.policy.zones), p.policy.leader_zone, list(p.groups), list(p.fit), p.note)
        for p in places
    ]
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    table = Table(box=None, pad_edge=False)
    for column in ("table", "policy", "groups", "met by", ""):
        table.add_column(column, justify="right" if column == "table" else "left")
    for place in places:
        held, fit = (", ".join(map(str, groups)) for groups in (place.groups, place.fit))
        table.add_row(str(place.table), escape(str(place.policy)), held, fit or "none", escape(place.note))
    wide_console().print(table)
