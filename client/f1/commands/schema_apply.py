"""``f1 schema apply``: the database made what files describe, with a view of how far the change is."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Annotated

import typer
import uvloop
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from f1 import aio
from f1.commands.options import (
    DatabaseOption,
    DataLossOption,
    DirOption,
    FilesArgument,
    HostOption,
    hosts_of,
    read_sources,
)
from f1.commands.schema_jobs import progress_of
from f1.commands.schema_plan import text
from f1.interrupts import is_running, what_goes_on
from f1.planning import ChangePlan, plan_change
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

__all__ = ["Display", "command", "line_of"]

_LOOK_S = 0.3


def command(
    files: FilesArgument,
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    allow_data_loss: DataLossOption = False,
) -> None:
    """Make the database what the files describe. What they lack is dropped.

    It shows what the change does or waits for. If this command ends early the change goes on: see `f1 schema jobs`.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        hosts = hosts_of(host, directory)
        runner.run(_apply(hosts, database, read_sources(files), yes=yes, allow_data_loss=allow_data_loss))


async def _apply(
    hosts: str, database: str | None, sources: Mapping[str, str], *, yes: bool, allow_data_loss: bool
) -> None:
    async with await aio.connect(hosts, database, autocommit=True, timeout_s=600.0) as connection:
        plan = await plan_change(connection.session, sources, data=False)
        typer.echo(text(plan, allow_data_loss=allow_data_loss))
        if not plan.steps:
            return
        if plan.losses and not yes:
            _ask(plan)
        with Display() as display:
            looking = asyncio.create_task(_look(connection, display), name="look at the change")
            try:
                done = await connection.apply_schema(sources, allow_data_loss=allow_data_loss)
            except asyncio.CancelledError:
                typer.echo(await what_goes_on(connection.session), err=True)
                raise
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
        typer.echo(f"Applied; the schema is at version {done.version}.")


def _ask(plan: ChangePlan) -> None:
    names = ", ".join(element for element, _ in plan.losses)
    if not sys.stdin.isatty():
        text = f"this drops {names}; --yes says that this is meant, and --allow-data-loss also if they hold data"
        raise F1Error(Code.FAILED_PRECONDITION, text)
    typer.confirm(f"This drops {names}. Apply it?", abort=True)


async def _look(connection: aio.Connection, display: "Display") -> None:
    """Show the change that runs, again and again."""
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            jobs = (await connection.session.schema_jobs(pb.SchemaJobs())).jobs
        except F1Error:
            continue  # whoever carries it out says what is wrong, if anything is
        display.show([job for job in jobs if is_running(job)])


def line_of(job: pb.SchemaJob) -> str:
    """Return what a change is at, in one line."""
    rows = _rows_of(job)
    return f"schema change {job.number} {_state_of(job)}" + (f" ({rows})" if rows else "")


def _state_of(job: pb.SchemaJob) -> str:
    place = f"step {job.step_number} of {job.steps}: " if job.steps else ""
    taken_back = "is taken back: " if job.state == "undoing" else ""
    return "is paused" if job.state == "paused" else f"{taken_back}{place}{job.step or 'begins'}"


def _rows_of(job: pb.SchemaJob) -> str:
    rows, comma, left = progress_of(job).partition(", ") if job.rows else ("", "", "")
    return f"{rows} rows{comma}{left}" if rows else ""


class Display:
    """What a change is at: on a terminal a text and a bar that change, else a line on stderr for each new thing."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._shown = (0, "")
        self._bar = Progress(
            SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.description}"), TimeElapsedColumn()
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(console=self._console, transient=True) if self._console.is_terminal else None

    def __enter__(self) -> "Display":
        """Begin."""
        if self._live is not None:
            self._live.start()
            self._live.update(self._group("the change begins"))
        return self

    def __exit__(self, *error: object) -> None:
        """End; what was shown on a terminal goes away."""
        if self._live is not None:
            self._live.stop()

    def show(self, jobs: list[pb.SchemaJob]) -> None:
        """Show the change that runs, if there is one."""
        for job in jobs[:1]:
            if self._live is not None:
                total = max(job.rows_total, job.rows) or None
                self._bar.update(self._task, description=_rows_of(job), completed=job.rows, total=total)
                self._live.update(self._group(f"schema change {job.number} {_state_of(job)}"))
            elif (job.number, job.step) != self._shown:
                self._shown = (job.number, job.step)
                self._console.print(line_of(job), markup=False, highlight=False, soft_wrap=True)

    def _group(self, text: str) -> Group:
        return Group(Text(text), self._bar)
