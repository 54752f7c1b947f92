"""``f1 sql``: statements from the command line, a file, a pipe or a person."""

import sys
from collections.abc import Callable, Sequence
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
from f1.interrupts import GoesOn
from f1.shell.backslash import read_text
from f1.shell.render import Format
from f1.shell.runner import Runner, finish, with_place
from f1.statements import split_all
from f1common.errors import Code, F1Error


def command(
    host: HostOption = None,
    database: DatabaseOption = None,
    statements: Annotated[
        list[str] | None,
        typer.Option("-c", "--command", metavar="SQL", help="Run these statements and end; repeatable."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("-f", "--file", metavar="FILE", help="Run the statements in a file; - is stdin; repeatable."),
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

    if statements and files:
        raise F1Error(Code.INVALID_ARGUMENT, "-c and -f both give statements; use one of them")
    if statements:
        _run(lambda: connect(database), form, [(text, "") for text in statements])
    elif files:
        _run(lambda: connect(database), form, [_read(file) for file in files])
    elif not sys.stdin.isatty():
        _run(lambda: connect(database), form, [_read(Path("-"))])
    else:
        # The line editor is slow to load, and only people need it.
        from f1.shell.repl import GREETING, run_shell

        greeting = GREETING.format(version=version("f1db"), hosts=hosts_of(host))
        run_shell(connect, database, form, greeting)


def _read(file: Path) -> tuple[str, str]:
    """Return the text of a file, and its name for errors."""
    return (sys.stdin.read(), "stdin") if str(file) == "-" else (read_text(file), str(file))


def _run(opened: Callable[[], f1.Connection], form: Format, texts: Sequence[tuple[str, str]]) -> None:
    """Run the statements of texts, which have names, in one session, up to the first error."""
    with opened() as connection:
        runner = Runner(connection, sys.stdout.write, form)
        for text, name in texts:
            for piece in split_all(text):
                try:
                    runner.run(piece)
                except F1Error as error:
                    sys.stdout.flush()
                    raise with_place(error, piece, name) from error
                except GoesOn as interrupt:
                    typer.echo(str(interrupt), err=True)
                    raise
        finish(runner)
