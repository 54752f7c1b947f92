"""``f1 schema``: the database made what .sql and .proto files describe."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from f1.commands import schema_ids, schema_jobs
from f1.commands.options import DatabaseOption, HostOption, open_connection
from f1.shell.backslash import read_text
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

app = typer.Typer(help="The schema of a database: show it, plan changes, apply them.", no_args_is_help=True)
schema_jobs.register(app)
app.command("ids")(schema_ids.command)

Files = Annotated[
    list[Path],
    typer.Argument(help=".sql and .proto files that together describe the whole database.", metavar="FILE..."),
]
DataLossOption = Annotated[
    bool, typer.Option("--allow-data-loss", help="Drop tables and columns that hold data and that the files lack.")
]


@app.command()
def show(
    host: HostOption = None,
    database: DatabaseOption = None,
    protos: Annotated[bool, typer.Option("--protos", help="Also the .proto files.")] = False,
) -> None:
    """Print the DDL that describes the whole database."""
    with open_connection(host, database) as connection:
        typer.echo(connection.show_schema().rstrip("\n"))
        if protos:
            for name, text in connection.show_protos().items():
                typer.echo(f"\n-- {name}\n{text.rstrip()}")


@app.command()
def plan(
    files: Files,
    host: HostOption = None,
    database: DatabaseOption = None,
    allow_data_loss: DataLossOption = False,
) -> None:
    """Show what would be done to make the database what the files describe. Nothing is changed."""
    sources = read_sources(files)
    with open_connection(host, database) as connection:
        reply = connection.apply_schema(sources, dry_run=True, allow_data_loss=allow_data_loss)
        _print_steps(reply)


@app.command()
def diff(
    files: Files,
    host: HostOption = None,
    database: DatabaseOption = None,
    allow_data_loss: DataLossOption = False,
) -> None:
    """Show how the database differs from what the files describe; the same as plan."""
    plan(files, host, database, allow_data_loss)


@app.command()
def apply(
    files: Files,
    host: HostOption = None,
    database: DatabaseOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    allow_data_loss: DataLossOption = False,
) -> None:
    """Make the database what the files describe. What they lack is dropped."""
    sources = read_sources(files)
    with open_connection(host, database) as connection:
        planned = connection.apply_schema(sources, dry_run=True, allow_data_loss=allow_data_loss)
        _print_steps(planned)
        if not planned.steps:
            return
        losses = [step.what for step in planned.steps if step.loses_data]
        if losses and not yes:
            _ask(len(losses))
        done = connection.apply_schema(sources, allow_data_loss=allow_data_loss)
        for warning in done.warnings:
            typer.echo(f"warning: {warning}", err=True)
        typer.echo(f"Applied; the schema is at version {done.version}.")


def _ask(losses: int) -> None:
    if not sys.stdin.isatty():
        raise F1Error(Code.FAILED_PRECONDITION, f"{losses} of the steps lose data; --yes says that this is meant")
    typer.confirm(f"{losses} of the steps lose data. Apply them?", abort=True)


def _print_steps(reply: pb.ApplySchemaReply) -> None:
    if not reply.steps:
        typer.echo("The database is what the files describe.")
    for number, step in enumerate(reply.steps, 1):
        typer.echo(f"{number}. {step.what}{'  (loses data)' if step.loses_data else ''}")
    for warning in reply.warnings:
        typer.echo(f"warning: {warning}", err=True)


def read_sources(files: Sequence[Path]) -> dict[str, str]:
    """Return the texts of the files by name; .proto files have the names under which they import each other.

    Raises F1Error NOT_FOUND, INVALID_ARGUMENT.
    """
    for path in files:
        if path.suffix not in (".sql", ".proto"):
            raise F1Error(Code.INVALID_ARGUMENT, f"{path}: a schema is described by .sql and .proto files")
    protos = [path.resolve() for path in files if path.suffix == ".proto"]
    base = Path(os.path.commonpath([path.parent for path in protos])) if protos else Path()
    sources: dict[str, str] = {}
    for path in files:
        name = path.resolve().relative_to(base).as_posix() if path.suffix == ".proto" else str(path)
        sources[name] = read_text(path)
    return sources
