"""``f1 status``: the servers of the storage tier, their groups, leaders and leases, and how far safe time lags."""

from collections.abc import Mapping
from enum import Enum
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from f1common.errors import F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import SpanClient
from spanstore.client.groups import read_directory
from spanstore.paxos.configuration import server_of
from spanstore.placement.directory import Standing
from spanstore.tools.show import wide_console
from spanstore.tools.target import DirOption, HostOption, resolve

_MIB = 1 << 20
_DIRECTORY_S = 2.0


class Format(Enum):
    """How the status is printed."""

    table = "table"
    json = "json"


class ServerRow(msgspec.Struct, frozen=True):
    """One spanserver; ``error`` tells why it does not answer, and the rest is empty then.

    ``installing`` says of each replica that fetches its state from another server how far it has come.
    """

    name: str
    zone: str
    address: str
    version: str
    leads: int
    replicas: int
    commits: int
    disk_used_bytes: int
    installing: tuple[str, ...]
    error: str
    conditions: tuple[str, ...] = ()
    """What is wrong there: damaged replicas, a full or slow disk, a clock that is out of its bound."""
    damaged_groups: tuple[int, ...] = ()
    sync_ms: float = 0.0
    disk_room_bytes: int = -1
    """What the data may still grow by; -1: not known."""
    scrub_passes: int = 0
    scrub_findings: tuple[str, ...] = ()
    standing: str = Standing.SERVING.value
    """What an operator wants of it: serving, draining or removed."""


class GroupRow(msgspec.Struct, frozen=True):
    """One group, as its leader sees it, or its most advanced replica while it has none (``leader`` empty).

    ``safe_lag_ms`` is how far the safe timestamp is behind now; ``safe_holder`` the transaction that holds it back, and
    ``safe_holder_age_ms`` for how long by now. ``behind`` are the replicas that have not applied all that is chosen,
    and by how many entries.

    ``mark_ts`` is the garbage mark (microseconds since the epoch): nobody reads below it, ``mark_age_ms`` before now.
    ``removed_versions`` and ``removed_bytes`` of rows and ``forgotten_outcomes`` count what was collected since the
    group began, in ``collecting_passes``, the last of which ended at ``last_pass_ts`` (0: none has). ``damaged_keys``
    are left uncollected, because one of their versions is damaged.

    ``voters`` is empty without a leader; ``remark`` says what is wrong with how many there are.
    """

    group: int
    leader: str
    lease_valid: bool
    ballot: int
    chosen: int
    replicas: tuple[str, ...]
    behind: dict[str, int]
    safe_lag_ms: float
    safe_holder: str
    safe_holder_age_ms: float
    prepared: int
    locked: int
    mark_ts: int
    mark_age_ms: float
    removed_versions: int
    removed_bytes: int
    forgotten_outcomes: int
    collecting_passes: int
    last_pass_ts: int
    damaged_keys: int
    voters: tuple[str, ...] = ()
    remark: str = ""


class Status(msgspec.Struct, frozen=True):
    """What ``f1 status --format json`` prints. ``safe_lag_ms`` is the largest of all groups, None without any.

    ``safe_group`` is the group that it is of: the one that holds the global safe timestamp back.
    """

    cluster_id: str
    safe_lag_ms: float | None
    safe_group: int | None
    servers: list[ServerRow]
    groups: list[GroupRow]


def command(
    host: HostOption = None,
    directory: DirOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Show the storage servers and the groups: leaders, leases, safe time."""
    status = summarise(*resolve(host, directory).run(_ask))
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(status), indent=2).decode())
    else:
        _print_tables(status)


async def _ask(client: SpanClient) -> tuple[dict[str, pb.StatusReply | F1Error], Mapping[str, Standing]]:
    answers = await client.status()
    try:
        return answers, (await read_directory(client, timeout_s=_DIRECTORY_S)).standing
    except F1Error:
        return answers, {}  # group 0 has no leader, as the tables show


def summarise(
    answers: Mapping[str, pb.StatusReply | F1Error], standing: Mapping[str, Standing] | None = None
) -> Status:
    """Put the servers' answers together, servers by name and groups by number.

    ``standing`` is what operators want of servers that are not merely to serve; removed ones are shown to be so.
    """
    ordered = standing or {}
    replies = [answer for answer in answers.values() if isinstance(answer, pb.StatusReply)]
    rows = [_server_row(address, answer, ordered) for address, answer in answers.items()]
    known = {row.name for row in rows}
    gone = [name for name, said in ordered.items() if said is Standing.REMOVED and name not in known]
    rows += [ServerRow(name, "", "", "", 0, 0, 0, 0, (), "", standing=Standing.REMOVED.value) for name in gone]
    servers = sorted(rows, key=lambda row: row.name)
    numbers = sorted({group.group for reply in replies for group in reply.groups})
    groups = [_group_row(number, replies) for number in numbers]
    slowest = max(groups, key=lambda group: group.safe_lag_ms, default=None)
    return Status(
        cluster_id=replies[0].cluster_id if replies else "",
        safe_lag_ms=slowest.safe_lag_ms if slowest else None,
        safe_group=slowest.group if slowest else None,
        servers=servers,
        groups=groups,
    )


def _server_row(address: str, answer: pb.StatusReply | F1Error, standing: Mapping[str, Standing]) -> ServerRow:
    if isinstance(answer, F1Error):
        return ServerRow("", "", address, "", 0, 0, 0, 0, (), str(answer))
    return ServerRow(
        name=answer.name,
        zone=answer.zone,
        address=address,
        version=answer.version,
        leads=sum(_leads(group) for group in answer.groups),
        replicas=len(answer.groups),
        commits=answer.commits,
        disk_used_bytes=answer.disk_used_bytes,
        installing=tuple(_installing(item) for item in answer.installing),
        error="",
        conditions=tuple(answer.conditions),
        damaged_groups=tuple(answer.damaged_groups),
        sync_ms=answer.sync_us / 1000,
        disk_room_bytes=answer.disk_room_bytes,
        scrub_passes=answer.scrub.passes,
        scrub_findings=tuple(answer.scrub.findings),
        standing=standing.get(answer.name, Standing.SERVING).value,
    )


def _installing(item: pb.InstallingStatus) -> str:
    text = f"group {item.group} fetches its state from {item.source}: {item.received_bytes / _MIB:.1f} MiB so far"
    return f"{text} ({item.note})" if item.note else text


def _leads(group: pb.GroupStatus) -> bool:
    return group.role == "leader" and group.lease_valid


def _group_row(number: int, replies: list[pb.StatusReply]) -> GroupRow:
    views = [(reply, group) for reply in replies for group in reply.groups if group.group == number]
    reply, best = max(views, key=lambda view: (_leads(view[1]), view[1].chosen_index, view[1].safe_ts))
    lags = {r.name: int(best.chosen_index - view.applied_index) for r, view in views}
    return GroupRow(
        group=number,
        leader=reply.name if _leads(best) else "",
        lease_valid=best.lease_valid,
        ballot=best.ballot_round,
        chosen=best.chosen_index,
        replicas=tuple(sorted(r.name for r, _ in views)),
        behind={name: lag for name, lag in sorted(lags.items()) if lag > 0},
        safe_lag_ms=max(reply.now_latest - best.safe_ts, 0) / 1000,
        safe_holder=best.safe_holder,
        safe_holder_age_ms=max(reply.now_latest - best.safe_holder_ts, 0) / 1000 if best.safe_holder else 0,
        prepared=best.prepared,
        locked=best.locked_transactions,
        mark_ts=best.mark_ts,
        mark_age_ms=max(reply.now_latest - best.mark_ts, 0) / 1000 if best.mark_ts else 0,
        removed_versions=best.removed_versions,
        removed_bytes=best.removed_bytes,
        forgotten_outcomes=best.forgotten_outcomes,
        collecting_passes=best.collecting_passes,
        last_pass_ts=best.last_pass_ts,
        damaged_keys=best.damaged_keys,
        voters=tuple(map(server_of, best.voters)),
        remark=_remark(best),
    )


def _remarks_on(row: ServerRow) -> list[str]:
    standing = {Standing.DRAINING.value: "is being drained", Standing.REMOVED.value: "was removed from the cluster"}
    said = [standing[row.standing]] if row.standing in standing else []
    return [*([row.error] if row.error else []), *said, *row.installing]


def _remark(view: pb.GroupStatus) -> str:
    """Say so if a group has an even number of voters: it tolerates no more than with one fewer."""
    count = len(view.voters)
    if not _leads(view) or count % 2:
        return ""
    text = f"{count} voters, where there should be {count - 1} or {count + 1}: see f1 group list"
    return f"{text}; if no change is under way, f1 group add or remove one"


def _print_tables(status: Status) -> None:
    console = wide_console()
    remarks = any(_remarks_on(row) for row in status.servers)
    servers = _table(f"cluster {status.cluster_id}", "server", "zone", "address", "leads", "commits", "MiB used")
    if remarks:
        servers.add_column("remark")
    for row in status.servers:
        used = f"{row.disk_used_bytes / _MIB:.1f}"
        numbers = (
            ("", "", "") if row.error or not row.address else (f"{row.leads}/{row.replicas}", str(row.commits), used)
        )
        remark = f"[red]{escape(row.error)}[/]" if row.error else escape("; ".join(_remarks_on(row)))
        servers.add_row(row.name, row.zone, row.address, *numbers, *((remark,) if remarks else ()))
    groups = _table(
        "", "group", "leader", "ballot", "chosen", "safe lag ms", "prepared", "locked", "readable s", "held back by"
    )
    for group in status.groups:
        groups.add_row(
            str(group.group),
            group.leader or "[red]none[/]",
            str(group.ballot),
            str(group.chosen),
            f"{group.safe_lag_ms:.0f}",
            str(group.prepared),
            str(group.locked),
            f"{group.mark_age_ms / 1000:.0f}" if group.mark_ts else "all",
            holder_text(group),
        )
    console.print(servers)
    for row in status.servers:
        for text in (*row.conditions, *(f"scrubbing found: {found}" for found in row.scrub_findings)):
            console.print(f"[red]{escape(row.name)}: {escape(text)}[/]")
    console.print(groups)
    for group in status.groups:
        if group.remark:
            console.print(f"[yellow]group {group.group}: {group.remark}[/]")


def holder_text(group: GroupRow) -> str:
    """Return who holds the safe time of a group back, and for how long; nothing if nobody does."""
    if not group.safe_holder:
        return ""
    return f"{escape(group.safe_holder)} ({group.safe_holder_age_ms / 1000:.1f} s)"


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    words = {"server", "zone", "address", "leader", "held back by"}
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right", no_wrap=True)
    return table
