"""``f1 sql``: statements from the command line, a file, a pipe or a person."""

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

import f1
from f1.commands.options import (
    DatabaseOption,
    DirOption,
    HostOption,
    UserOption,
    host_in,
    hosts_of,
    open_connection,
    password_of,
)
from f1.shell.backslash import read_text
from f1.shell.render import Format
from f1.shell.runner import Runner, finish, with_place
from f1.statements import split_all
from f1common.errors import Code, F1Error


def command(
    host: HostOption = None,
    database: DatabaseOption = None,
    statements: Annotated[
        str | None, typer.Option("-c", "--command", metavar="SQL", help="Run these statements and end.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Run the statements in a file; - is stdin.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How results are printed.")] = Format.table,
    directory: DirOption = None,
    user: UserOption = None,
) -> None:
    """Run SQL; without -c or -f at a terminal: the interactive shell."""
    host = host_in(host, directory)
    password = password_of(user)

    def connect(name: str | None) -> f1.Connection:
        return open_connection(host, name, user=user, password=password)

    if statements is not None and file is not None:
        raise F1Error(Code.INVALID_ARGUMENT, "-c and -f both give statements; use one of them")
    if statements is not None:
        _run(lambda: connect(database), form, statements, "")
    elif file is not None and str(file) != "-":
        _run(lambda: connect(database), form, read_text(file), str(file))
    elif file is not None or not sys.stdin.isatty():
        _run(lambda: connect(database), form, sys.stdin.read(), "stdin")
    else:
        # The line editor is slow to load, and only people need it.
        from f1.shell.repl import GREETING, run_shell

        greeting = GREETING.format(version=version("f1db"), hosts=hosts_of(host))
        run_shell(connect, database, form, greeting)


def _run(opened: Callable[[], f1.Connection], form: Format, text: str, name: str) -> None:
    """Run statements up to the first error."""
    with opened() as connection:
        runner = Runner(connection, sys.stdout.write, form)
        for piece in split_all(text):
            try:
                runner.run(piece)
            except F1Error as error:
                sys.stdout.flush()
                raise with_place(error, piece, name) from error
        finish(runner)
