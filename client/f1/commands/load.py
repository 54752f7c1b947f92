"""``f1 load``: a CSV or Parquet file into a table."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from f1 import aio
from f1.commands.options import DatabaseOption, DirOption, HostOption, hosts_of
from f1.loading.loader import IN_FLIGHT, ROWS_PER_TRANSACTION, Loader
from f1.loading.loader import Progress as Loaded
from f1.loading.readers import open_source
from f1common.clock import boot_us
from f1common.errors import Code, F1Error


def command(
    table: Annotated[str, typer.Argument(help="Name of the table.")],
    file: Annotated[Path, typer.Argument(help="A .csv file with a header, or a .parquet file.")],
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Update rows that are there already; so a load can be repeated.")
    ] = False,
    delimiter: Annotated[str, typer.Option(help="Between the fields of a CSV file.")] = ",",
    rows: Annotated[int, typer.Option(min=1, max=10_000, help="Rows of a transaction.")] = ROWS_PER_TRANSACTION,
    in_flight: Annotated[int, typer.Option(min=1, max=256, help="Transactions under way at once.")] = IN_FLIGHT,
) -> None:
    """Load a file into a table, in many transactions; each is kept whole or not at all.

    In CSV an empty field is NULL and "" an empty text; BYTES are written \\x0a0b, messages as JSON.
    """
    if len(delimiter) != 1:
        raise F1Error(Code.INVALID_ARGUMENT, f"--delimiter is one sign, not {delimiter!r}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_load(hosts_of(host, directory), database, table, file, upsert, delimiter, rows, in_flight))


async def _load(
    hosts: str, database: str | None, name: str, file: Path, upsert: bool, delimiter: str, rows: int, in_flight: int
) -> None:
    async with await aio.connect(hosts, database, autocommit=True) as connection:
        metadata = await connection.metadata()
        table = metadata.table(name)
        source = open_source(file, metadata, table, delimiter)
        started_us = boot_us()
        with _bar(source.total_rows, table.name) as bar:
            task = bar.add_task(table.name, total=source.total_rows, speed="")

            def show(progress: Loaded) -> None:
                seconds = max((boot_us() - started_us) / 1e6, 0.001)
                bar.update(task, completed=progress.rows, speed=f"{progress.rows / seconds:,.0f} rows/s")

            loader = Loader(
                connection.session,
                metadata,
                table,
                source,
                upsert=upsert,
                rows_per_transaction=rows,
                in_flight=in_flight,
                on_progress=show,
            )
            try:
                progress = await loader.run()
            except F1Error as error:
                raise _with_progress(error, loader.progress) from error
        seconds = max((boot_us() - started_us) / 1e6, 0.001)
        speed = f"{progress.rows / seconds:,.0f} rows/s"
        typer.echo(f"{progress.rows:,} rows loaded into {table.name} in {seconds:.1f} s ({speed})")


def _with_progress(error: F1Error, progress: Loaded) -> F1Error:
    """Return the error with what was loaded before it: exactly, as far as that is known."""
    if not progress.rows and not progress.uncertain:
        text = f"{error.message}; nothing was loaded"
    else:
        text = f"{error.message}; {progress.rows:,} rows were loaded, among them the first {progress.first_missing:,}"
        if progress.uncertain:
            text += f", and {progress.uncertain:,} more may have been"
        text += "; --upsert loads the file again over them"
    return F1Error(error.code, text, retryable=error.retryable, ambiguous=error.ambiguous, details=error.details)


def _bar(total: int | None, name: str) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *([TaskProgressColumn()] if total is not None else []),
        TextColumn("{task.completed:,} rows  {task.fields[speed]}"),
        *([TimeRemainingColumn()] if total is not None else [TimeElapsedColumn()]),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
