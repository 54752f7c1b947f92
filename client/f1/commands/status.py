"""``f1 status``: the f1servers, and through them the master, the slaves and the storage tier."""

import asyncio
import contextlib
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from f1.cli import build
from f1.commands.options import HostOption, addresses_in, hosts_of
from f1.commands.services import ask_services, places_in, places_told, services_table
from f1.servers import Servers, parse_hosts
from f1.shell.render import write_table
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.rpc.status import error_from_exception

DEFAULT_DIRECTORY = Path("f1-cluster")
STORAGE_GROUP = "f1.status"
"""Entry points of this group show the tier below: commands with the options --host, --dir and --format."""

_TIMEOUT_S = 3.0
_US = 1_000_000


class Format(Enum):
    """How the status is printed."""

    table = "table"
    json = "json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one address said: a status, that it is no f1server, or why it says nothing."""

    address: str
    reply: pb.StatusReply | None
    error: F1Error | None

    @property
    def is_other(self) -> bool:
        """Whether a server of another kind is there."""
        return self.error is not None and self.error.code is Code.VERSION_MISMATCH


def command(
    host: HostOption = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory of a local cluster. [default: f1-cluster if there is one]")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Show f1servers, slaves, the orchestrator's services, storage servers, and groups: leaders, leases, safe time."""
    if host is not None and directory is not None:
        raise F1Error(Code.INVALID_ARGUMENT, "--host and --dir both name the cluster; give one of them")
    if host is None and directory is None and DEFAULT_DIRECTORY.is_dir():
        directory = DEFAULT_DIRECTORY
    addresses = addresses_in(directory) if directory is not None else parse_hosts(hosts_of(host))
    answers = asked(addresses)
    services = ask_services(
        places_in(directory)
        if directory is not None
        else places_told([answer.reply for answer in answers if answer.reply is not None])
    )
    storage = _storage(answers, directory, form)
    if form is Format.json:
        document = json.loads(storage) if storage else {}
        servers = [_row(answer) for answer in answers if not answer.is_other]
        found = {**document, "f1servers": servers, "pool": pool_of(answers), "orchestrator": services}
        typer.echo(json.dumps(found, indent=2))
        return
    rows = [_row(answer) for answer in answers if not answer.is_other]
    if rows:
        _print(rows)
    pool = pool_of(answers)
    if pool is not None:
        _print_pool(pool)
    if services is not None:
        names, cells = services_table(services)
        _print_table(names, list(cells))
    typer.echo(storage, nl=False)


def asked(addresses: Sequence[str]) -> list[Answer]:
    """Ask all addresses at once."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_ask(addresses))


async def _ask(addresses: Sequence[str]) -> list[Answer]:
    if not addresses:
        return []
    servers = Servers(addresses, rng=random.Random(0))

    async def ask(address: str, stub: Any) -> Answer:
        try:
            reply: pb.StatusReply = await stub.Status(pb.StatusRequest(), timeout=_TIMEOUT_S)
            return Answer(address, reply, None)
        except Exception as error:
            return Answer(address, None, error_from_exception(error))

    try:
        return list(await asyncio.gather(*(ask(s.address, servers.stub(s)) for s in servers.all)))
    finally:
        await servers.close()


def _storage(answers: Sequence[Answer], directory: Path | None, form: Format) -> str:
    """Return what the storage tier's own command prints, empty if nobody tells where that tier is."""
    told = {address for answer in answers if answer.reply is not None for address in answer.reply.storage}
    hosts = sorted(told) or [answer.address for answer in answers if answer.is_other]
    if directory is None and not hosts:
        if all(answer.reply is None for answer in answers):
            reasons = "; ".join(f"{a.address}: {a.error.message.rsplit(': ', 1)[-1]}" for a in answers if a.error)
            raise F1Error(Code.UNAVAILABLE, f"nobody answers ({reasons}); is the cluster up?")
        return ""
    where = ["--dir", str(directory)] if directory is not None else ["--host", ",".join(hosts)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for point in entry_points(group=STORAGE_GROUP):
            arguments = [point.name, *where, "--format", form.value]
            build([point], arguments)(args=arguments, standalone_mode=False)
    return printed.getvalue()


def _row(answer: Answer) -> dict[str, Any]:
    reply = answer.reply if answer.reply is not None else pb.StatusReply()
    return {
        "name": reply.name,
        "zone": reply.zone,
        "address": answer.address,
        "version": reply.version,
        "databases": [
            {
                "database": item.database,
                "schema_version": item.schema_version,
                "lease_s": round((item.lease_end - reply.now) / _US, 3),
            }
            for item in reply.databases
        ],
        "open_cursors": reply.open_cursors,
        "open_transactions": reply.open_transactions,
        "error": str(answer.error) if answer.error is not None else "",
    }


def pool_of(answers: Sequence[Answer]) -> dict[str, Any] | None:
    """Return master and slaves as the f1server sees them that has the newest list; None if no server has a master."""
    pools = [a.reply.pool for a in answers if a.reply is not None and a.reply.HasField("pool")]
    if not pools:
        return None
    pool = max(pools, key=lambda item: (item.connected, item.epoch, item.version))
    slaves = [
        {
            "name": slave.name,
            "zone": slave.zone,
            "address": slave.address,
            "state": slave.state,
            "running": slave.running,
            "version": slave.version,
            "incarnation": f"{slave.incarnation:016x}",
            "reason": slave.reason,
        }
        for slave in pool.slaves
    ]
    state = "connected" if pool.connected else "away"
    return {
        "master": {"address": pool.master, "state": state, "epoch": pool.epoch, "version": pool.version},
        "slaves": slaves,
    }


def _print_pool(pool: dict[str, Any]) -> None:
    master = pool["master"]
    typer.echo(f"master {master['address']} {master['state']}, list {master['version']}\n")
    names = ("slave", "zone", "address", "state", "running", "reason")
    rows: list[tuple[Any, ...]] = [tuple(str(slave[key]) for key in ("name", *names[1:])) for slave in pool["slaves"]]
    if rows:
        _print_table(names, rows)


def _print(rows: Sequence[dict[str, Any]]) -> None:
    names = ("f1server", "zone", "address", "schemas", "cursors", "transactions", "error")
    cells: list[tuple[Any, ...]] = [
        (
            row["name"] or "?",
            row["zone"],
            row["address"],
            ", ".join(f"{item['database']} {item['schema_version']}" for item in row["databases"]),
            str(row["open_cursors"]),
            str(row["open_transactions"]),
            row["error"],
        )
        for row in rows
    ]
    _print_table(names, cells)


def _print_table(names: Sequence[str], cells: list[tuple[Any, ...]]) -> None:
    if not any(row[-1] for row in cells):
        # The last column says what is wrong.
        names, cells = names[:-1], [row[:-1] for row in cells]
    out = io.StringIO()
    write_table(out.write, [pb.ColumnInfo(name=name, type="STRING") for name in names], [cells])
    typer.echo(out.getvalue().rpartition("(")[0])
