"""``f1 check``: is the database consistent with its schema? ``--repair`` makes right what follows from the rest."""

import asyncio
import datetime
import io
import json
from enum import Enum
from typing import Annotated, Any

import typer
import uvloop

from f1 import aio
from f1.checking import CheckResult, Findings, check_database
from f1.commands.options import DatabaseOption, DirOption, HostOption, hosts_of
from f1.commands.progress import keys_bar
from f1.shell.render import write_table
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb


class Format(Enum):
    """How the findings are printed."""

    table = "table"
    json = "json"


def command(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Only the hierarchies of these tables. [default: all, and keys that belong to no table]",
        ),
    ] = None,
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Make index entries and copies of the schema right, delete what was left over; report the rest.",
        ),
    ] = False,
    examples: Annotated[int, typer.Option(min=0, max=1000, help="Keys shown of each kind of finding.")] = 5,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Parts of the key space under way at a time.")] = 4,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Check rows, index entries and constraints of a database as of now, while it is used.

    The exit code is 1 if anything is wrong and was not repaired.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_check(hosts_of(host, directory), database, tables or [], repair, examples, parallel))
    typer.echo(json.dumps(document(result, database), indent=2) if form is Format.json else text(result))
    if result.left:
        raise F1Error(Code.DATA_CORRUPTION, _advice(result, repair))


async def _check(
    hosts: str, database: str | None, tables: list[str], repair: bool, examples: int, parallel: int
) -> CheckResult:
    async with await aio.connect(hosts, database, autocommit=True) as connection:
        with keys_bar() as bar:
            task = bar.add_task("check", total=None)
            return await check_database(
                connection.session,
                tables,
                repair=repair,
                examples=examples,
                parallel=parallel,
                on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            )


def text(result: CheckResult) -> str:
    """Return the findings for people: a table of counts, then examples."""
    moment = datetime.datetime.fromtimestamp(result.timestamp / 1e6, tz=datetime.UTC)
    looked = f"{result.rows:,} rows and {result.entries:,} index entries, as of {moment:%Y-%m-%d %H:%M:%S} UTC"
    if not result.findings:
        return f"Nothing is wrong with {looked}."
    names = ("clause", "finding", "table", "element", "count", "repaired")
    rows: list[tuple[Any, ...]] = [
        (str(g.clause), g.kind, g.table, g.element, f"{g.count:,}", f"{g.repaired:,}") for g in result.findings
    ]
    out = io.StringIO()
    write_table(out.write, [pb.ColumnInfo(name=name, type="STRING") for name in names], [rows])
    lines = [out.getvalue().rpartition("(")[0].rstrip("\n")]
    if any(group.examples for group in result.findings):
        lines.append("")
    for group in filter(lambda group: group.examples, result.findings):
        lines += [f"{group.kind} in {_place(group)}:", *(f"  {key}: {message}" for key, message in group.examples)]
        if group.count > len(group.examples):
            lines.append(f"  and {group.count - len(group.examples):,} more")
    return "\n".join([*lines, "", f"Looked at {looked}."])


def _place(group: Findings) -> str:
    return ".".join(name for name in (group.table, group.element) if name) or "no table"


def document(result: CheckResult, database: str | None) -> dict[str, Any]:
    """Return the findings for programs."""
    return {
        "database": database or "default",
        "timestamp": result.timestamp,
        "schema_version": result.schema_version,
        "consistent": not result.findings,
        "rows": result.rows,
        "entries": result.entries,
        "findings": [
            {
                "clause": group.clause,
                "kind": group.kind,
                "table": group.table,
                "element": group.element,
                "count": group.count,
                "repaired": group.repaired,
                "examples": [{"key": key, "message": message} for key, message in group.examples],
            }
            for group in result.findings
        ],
    }


_REPAIRED = {
    "missing entry": "index entries",
    "orphan entry": "index entries",
    "wrong entry": "index entries",
    "no table": "keys that were left over",
    "no index": "keys that were left over",
    "schema copy": "copies of the schema",
}
"""What ``--repair`` may put right, by the kind of finding."""


def _advice(result: CheckResult, repair: bool) -> str:
    counted = f"{result.left:,} findings"
    counts: dict[str, int] = {}
    for group in result.findings:
        if group.kind in _REPAIRED:
            what = _REPAIRED[group.kind]
            counts[what] = counts.get(what, 0) + group.count
    if repair or not counts:
        return f"{counted} need somebody who knows what is right: correct or delete the rows that are named"
    return f"{counted}; --repair may put right {' and '.join(f'{count:,} {what}' for what, count in counts.items())}"
