"""``f1 schema``: the database made what .sql and .proto files describe."""

from typing import Annotated

import typer

from f1.commands import schema_apply, schema_ids, schema_jobs, schema_plan
from f1.commands.options import (
    DatabaseOption,
    DirOption,
    FilesArgument,
    HostOption,
    host_in,
    hosts_of,
    open_connection,
    read_sources,
)

app = typer.Typer(help="The schema of a database: show it, plan changes, apply them.", no_args_is_help=True)
schema_jobs.register(app)
app.command("ids")(schema_ids.command)
app.command("plan")(schema_plan.command)
app.command("apply")(schema_apply.command)


@app.command()
def show(
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    protos: Annotated[bool, typer.Option("--protos", help="Also the .proto files.")] = False,
) -> None:
    """Print the DDL that describes the whole database."""
    with open_connection(host_in(host, directory), database) as connection:
        typer.echo(connection.show_schema().rstrip("\n"))
        if protos:
            for name, text in connection.show_protos().items():
                typer.echo(f"\n-- {name}\n{text.rstrip()}")


@app.command()
def diff(
    files: FilesArgument, host: HostOption = None, directory: DirOption = None, database: DatabaseOption = None
) -> None:
    """Show how the DDL of the database, and its .proto files, would differ if the files were applied."""
    plan = schema_plan.fetch_plan(hosts_of(host, directory), database, read_sources(files), data=False)
    typer.echo("\n".join(plan.diff()) or "The database is what the files describe.")
