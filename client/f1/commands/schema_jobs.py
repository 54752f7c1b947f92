"""``f1 schema jobs|pause|resume|cancel``: the changes of a schema, those that run and those that have ended."""

import asyncio
import json
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from f1 import aio
from f1.commands.options import DatabaseOption, DirOption, HostOption, hosts_of
from f1.interrupts import is_running
from f1common.pb import f1_pb2 as pb

__all__ = ["duration", "progress_of", "register"]


class Format(Enum):
    """How changes are printed."""

    table = "table"
    json = "json"


NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the change: see f1 schema jobs.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``f1 schema``."""
    app.command("jobs")(jobs)
    app.command("history")(history)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("cancel")(cancel)


def jobs(
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Show the change that runs: what it does or waits for, who carries it out, how many rows it has worked on."""
    running = [job for job in _ask(hosts_of(host, directory), database, pb.SchemaJobs()) if is_running(job)]
    show(running, form, "No schema change runs; `f1 schema history` shows those that have ended.")


def history(
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Show the last hundred changes, oldest first."""
    show(_ask(hosts_of(host, directory), database, pb.SchemaJobs()), form, "No schema change is remembered.")


def pause(
    number: NumberArgument, host: HostOption = None, directory: DirOption = None, database: DatabaseOption = None
) -> None:
    """Have a change stop where it is. The schema stays in between, which every server can work with."""
    _ask(hosts_of(host, directory), database, pb.SchemaJobs(order=pb.SchemaJobs.PAUSE, number=number))
    typer.echo(f"schema change {number} stops after its present batch; `f1 schema resume {number}` has it go on")


def resume(
    number: NumberArgument, host: HostOption = None, directory: DirOption = None, database: DatabaseOption = None
) -> None:
    """Have a paused change go on, at any server."""
    _ask(hosts_of(host, directory), database, pb.SchemaJobs(order=pb.SchemaJobs.RESUME, number=number))
    typer.echo(f"schema change {number} goes on")


def cancel(
    number: NumberArgument, host: HostOption = None, directory: DirOption = None, database: DatabaseOption = None
) -> None:
    """Take a change back, unless it removes data of dropped elements already."""
    _ask(hosts_of(host, directory), database, pb.SchemaJobs(order=pb.SchemaJobs.CANCEL, number=number))
    typer.echo(f"schema change {number} is taken back")


def _ask(hosts: str, database: str | None, order: pb.SchemaJobs) -> list[pb.SchemaJob]:
    async def work() -> list[pb.SchemaJob]:
        async with await aio.connect(hosts, database, autocommit=True) as connection:
            return list((await connection.session.schema_jobs(order)).jobs)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def show(found: list[pb.SchemaJob], form: Format, none: str) -> None:
    """Print changes; ``none`` if there are none."""
    if form is Format.json:
        typer.echo(json.dumps([_document(job) for job in found], indent=2))
        return
    if not found:
        typer.echo(none)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("change", "begun", "took", "state", "what", "rows", "at"):
        table.add_column(column, justify="right" if column in ("change", "took") else "left", overflow="fold")
    for job in found:
        begun = datetime.fromtimestamp(job.created_ts / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        took = duration((job.ended_ts - job.created_ts) / 1e6) if job.ended_ts else ""
        rows = progress_of(job) or (f"{job.worked_rows:,}" if job.worked_rows else "")
        table.add_row(*map(escape, (str(job.number), begun, took, job.state, job.what, rows, _at(job))))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)


def _at(job: pb.SchemaJob) -> str:
    """Return what a change does and where, or why it failed."""
    if not is_running(job):
        return job.error
    place = f"step {job.step_number} of {job.steps}: " if job.steps else ""
    by = f" (carried out by {job.owner})" if job.owner else ""
    failing = f", since: {job.error}" if job.error else ""
    return f"{place}{job.step or 'begins'}{by}{failing}"


def progress_of(job: pb.SchemaJob) -> str:
    """Return how far the work on rows is, such as ``12,000 of 40,000, 0:25 left``."""
    if not is_running(job):
        return ""
    text = f"{job.rows:,}"
    if job.rows_total:
        text += f" of {max(job.rows_total, job.rows):,}"
    if job.left_ms:
        minutes, seconds = divmod(-(-job.left_ms // 1000), 60)
        text += f", {minutes}:{seconds:02d} left"
    return text


def duration(seconds: float) -> str:
    """Return a time as people say it: 3 s, 4:05 min, 2:30 h."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours}:{minutes_left:02d} h" if hours else f"{minutes}:{rest:02d} min"


def _document(job: pb.SchemaJob) -> dict[str, Any]:
    return {field.name: getattr(job, field.name) for field in pb.SchemaJob.DESCRIPTOR.fields}
