"""``f1 group``: the members of the Paxos groups, and how they are changed while the groups serve."""

from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from f1common.errors import F1Error
from spanstore.client import SpanClient
from spanstore.client.founding import create_group
from spanstore.client.groups import GroupAdmin, Members, read_directory
from spanstore.client.policies import place_group
from spanstore.client.servers import ServerAdmin
from spanstore.paxos.configuration import server_of
from spanstore.tools.range_policy import LeaderOption, ZonesOption, policy_of
from spanstore.tools.show import told, wide_console
from spanstore.tools.target import DirOption, HostOption, resolve

app = typer.Typer(help="The Paxos groups and the replicas that belong to them.", no_args_is_help=True)


class Format(Enum):
    """How groups are printed."""

    table = "table"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]
GroupArgument = Annotated[int, typer.Argument(metavar="GROUP", help="Number of the group.")]
ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="Name of a spanserver.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait for the new replica to catch up.")
]

LongTimeoutOption = Annotated[
    float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait for the replicas to move.")
]

Work = Callable[[GroupAdmin], Awaitable[Members]]


class MemberRow(msgspec.Struct, frozen=True):
    """One replica of a group. ``behind`` counts the log entries that the leader does not know it to hold.

    ``joining``: it is to become a voter, and does not vote yet; what neither votes nor joins is read-only.
    """

    member: str
    server: str
    votes: bool
    leads: bool
    behind: int | None
    joining: bool = False


class GroupRow(msgspec.Struct, frozen=True):
    """One group; ``version`` counts the changes of its members. One that was there from the beginning has no name."""

    group: int
    version: int
    leader: str
    members: list[MemberRow]
    name: str = ""


class ServerRow(msgspec.Struct, frozen=True):
    """What became of a server; ``groups`` are those whose replicas were moved or built."""

    server: str
    state: str
    groups: list[int]


@app.callback()
def _group() -> None:
    """The Paxos groups and the replicas that belong to them."""


@app.command("list")
def list_groups(host: HostOption = None, directory: DirOption = None, form: FormatOption = Format.table) -> None:
    """List all groups with their voters, read-only replicas and leaders."""

    async def ask(client: SpanClient) -> list[GroupRow]:
        admin = GroupAdmin(client)
        found = await admin.all_members()
        try:
            joining = {(row.group, row.server) for row in await admin.joining()}
            foundings = (await read_directory(client)).foundings
            names = {number: founding.name for number, founding in foundings.items()}
        except F1Error as error:
            typer.echo(f"names, and which replicas are joining, are not known: {error}", err=True)
            joining, names = set(), {}
        return [named(row_of(members, joining), names.get(members.group, "")) for members in found]

    _show(resolve(host, directory).run(ask), form)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it; the same name again founds nothing.")],
    zones: ZonesOption = "",
    leader_zone: LeaderOption = "",
    voters: Annotated[
        int, typer.Option("--voters", min=0, metavar="N", help="How many voters; as many as other groups have.")
    ] = 0,
    timeout: LongTimeoutOption = 60.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Found a group while the cluster runs, at servers with few replicas, in the zones named or in as many as possible.

    With --zones or --leader-zone it has a policy, as by `f1 group place`, and only tables that ask for it come into it
    by themselves; without, it takes its share of all others.
    """
    policy = policy_of(zones, leader_zone)

    async def work(client: SpanClient) -> GroupRow:
        with told("founding the group") as progress:
            number = await create_group(
                client, name, voters=voters, policy=policy, timeout_s=timeout, progress=progress
            )
            return named(row_of(await GroupAdmin(client, progress=progress).members(number)), name)

    _show([resolve(host, directory).run(work)], form)


@app.command()
def add(
    group: GroupArgument,
    server: ServerArgument,
    read_only: Annotated[bool, typer.Option("--read-only", help="It does not vote, and serves reads.")] = False,
    timeout: TimeoutOption = 300.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Give SERVER a replica: it fetches the state, and then it votes, unless --read-only."""

    def work(admin: GroupAdmin) -> Awaitable[Members]:
        return admin.add_reader(group, server) if read_only else admin.add_voter(group, server)

    _change(host, directory, form, timeout, work)


@app.command()
def demote(
    group: GroupArgument,
    server: ServerArgument,
    timeout: TimeoutOption = 60.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Make the voter at SERVER a read-only replica."""
    _change(host, directory, form, timeout, lambda admin: admin.demote(group, server))


@app.command()
def remove(
    group: GroupArgument,
    server: ServerArgument,
    timeout: TimeoutOption = 60.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Take the replica of SERVER out of the group. Refused while the others would have no majority."""
    _change(host, directory, form, timeout, lambda admin: admin.remove(group, server))


@app.command()
def replace(
    group: GroupArgument,
    old: Annotated[str, typer.Argument(metavar="OLD", help="Server whose replica goes, dead or alive.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Server whose replica comes.")],
    timeout: TimeoutOption = 300.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Put a voter at NEW in the place of the one at OLD, while the group serves."""
    _change(host, directory, form, timeout, lambda admin: admin.replace(group, old, new))


@app.command()
def rebuild(
    group: GroupArgument,
    server: ServerArgument,
    timeout: TimeoutOption = 300.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Discard the replica of SERVER, damaged or lost, and build it anew from the others."""
    _change(host, directory, form, timeout, lambda admin: admin.rebuild(group, server))


@app.command()
def transfer(
    group: GroupArgument,
    server: ServerArgument,
    timeout: TimeoutOption = 30.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Let the voter at SERVER lead the group."""
    _change(host, directory, form, timeout, lambda admin: admin.transfer(group, server))


@app.command()
def place(
    group: GroupArgument,
    zones: ZonesOption = "",
    leader_zone: LeaderOption = "",
    host: HostOption = None,
    directory: DirOption = None,
) -> None:
    """Say in which zones the group's voters lie and where it is led; without options, anywhere.

    Replicas and leadership then move by themselves. Tables come with `f1 range policy set`; those without a policy
    stay out of a group that has one.
    """
    policy = policy_of(zones, leader_zone)
    resolve(host, directory).run(lambda client: place_group(client, group, policy))
    typer.echo(f"group {group}: {policy}")


@app.command()
def drain(
    server: ServerArgument,
    any_zone: Annotated[
        bool, typer.Option("--any-zone", help="Groups may come to lie in fewer zones than now.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let it have replicas again.")] = False,
    timeout: LongTimeoutOption = 600.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Move all replicas of SERVER, dead or alive, to others; until --undo it gets no new ones."""

    async def work(admin: ServerAdmin) -> ServerRow:
        if undo:
            await admin.undrain(server)
            return ServerRow(server, "serving", [])
        return ServerRow(server, "drained", await admin.drain(server, any_zone=any_zone))

    _order(host, directory, form, timeout, work)


@app.command()
def forget(
    server: ServerArgument,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Strike SERVER off for ever. Refused while it has replicas: drain it first."""

    async def work(admin: ServerAdmin) -> ServerRow:
        await admin.remove(server)
        return ServerRow(server, "removed", [])

    _order(host, directory, form, 60.0, work)


@app.command("rebuild-all")
def rebuild_all(
    server: ServerArgument,
    timeout: LongTimeoutOption = 600.0,
    host: HostOption = None,
    directory: DirOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Discard all replicas of SERVER, as after the loss of its disk, and build them anew from the others."""

    async def work(admin: ServerAdmin) -> ServerRow:
        return ServerRow(server, "rebuilt", await admin.rebuild(server))

    _order(host, directory, form, timeout, work)


def _order(
    host: str | None,
    directory: Path | None,
    form: Format,
    timeout_s: float,
    work: Callable[[ServerAdmin], Awaitable[ServerRow]],
) -> None:
    async def run(client: SpanClient) -> ServerRow:
        with told("looking at the groups") as progress:
            return await work(ServerAdmin(client, timeout_s=timeout_s, progress=progress))

    row = resolve(host, directory).run(run)
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(row), indent=2).decode())
    else:
        groups = f" (groups {', '.join(map(str, row.groups))})" if row.groups else ""
        typer.echo(f"{row.server} is {row.state}{groups}")


def _change(host: str | None, directory: Path | None, form: Format, timeout_s: float, work: Work) -> None:
    async def run(client: SpanClient) -> Members:
        with told("changing the members") as progress:
            return await work(GroupAdmin(client, timeout_s=timeout_s, progress=progress))

    members = resolve(host, directory).run(run)
    _show([row_of(members)], form)
    if losses_stood(members) == 0:
        few = "1 voter" if len(members.voters) == 1 else f"{len(members.voters)} voters"
        typer.echo(
            f"warning: group {members.group} has {few}: it stops when one of them is lost, and with one voter its rows "
            f"are lost then; `f1 group add {members.group} SERVER` adds one",
            err=True,
        )


def losses_stood(members: Members) -> int:
    """Return how many voters may be lost at once while the group goes on."""
    return (len(members.voters) - 1) // 2


def row_of(members: Members, joining: Collection[tuple[int, str]] = ()) -> GroupRow:
    """Return what is shown of a group. ``joining`` are the groups and servers of learners that are to vote."""
    rows = [
        MemberRow(
            member=member,
            server=server_of(member),
            votes=member in members.voters,
            leads=bool(members.leader) and server_of(member) == members.leader,
            behind=members.last_index - members.matches.get(member, 0) if members.leader else None,
            joining=member in members.learners and (members.group, server_of(member)) in joining,
        )
        for member in members.voters + members.learners
    ]
    return GroupRow(members.group, members.version, members.leader, rows)


def named(row: GroupRow, name: str) -> GroupRow:
    """Return the row of a group with its name."""
    return msgspec.structs.replace(row, name=name)


def _show(rows: list[GroupRow], form: Format) -> None:
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    table = Table(box=None, pad_edge=False)
    for column in ("group", "name", "changes", "leader", "voters", "joining", "read-only", "behind"):
        table.add_column(column, justify="right" if column in ("group", "changes") else "left", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.group),
            escape(row.name),
            str(row.version),
            row.leader or "[red]none[/]",
            escape(" ".join(m.server for m in row.members if m.votes)),
            escape(" ".join(m.server for m in row.members if m.joining)),
            escape(" ".join(m.server for m in row.members if not m.votes and not m.joining)),
            escape(" ".join(f"{m.server}:{m.behind}" for m in row.members if m.behind)),
        )
    wide_console().print(table)
