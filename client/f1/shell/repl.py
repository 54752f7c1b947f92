"""The interactive shell: ``f1 sql`` at a terminal."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

import f1
from f1.metadata import Metadata
from f1.shell import backslash
from f1.shell.backslash import Leave, Shell
from f1.shell.editing import SqlCompleter, SqlLexer, is_complete
from f1.shell.render import Format
from f1.shell.runner import Runner, pointer, with_place
from f1.statements import Kind, kind_of, split_all, tokens
from f1common.clock import boot_us
from f1common.errors import F1Error

GREETING = "f1 {version} at {hosts}. \\? for help, \\q to leave.\n"


class Repl:
    """The loop of the shell. ``read`` returns the next input, given a prompt; it raises EOFError at the end."""

    def __init__(
        self,
        connect: Callable[[str | None], f1.Connection],
        database: str | None,
        form: Format,
        *,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._connect = connect
        self._write = write if write is not None else _to_stdout
        runner = Runner(connect(database), self._write, form)
        self._shell = Shell(runner, self._write, self._reconnect, self._run_file)
        self._metadata: Metadata | None = None
        self._look_at_schema()

    @property
    def metadata(self) -> Metadata | None:
        """What there is to complete."""
        return self._metadata

    def _look_at_schema(self) -> None:
        try:
            self._metadata = self._shell.runner.connection.metadata()
        except F1Error:
            self._metadata = None  # completion is a help, not a need

    def _reconnect(self, database: str) -> None:
        connection = self._connect(database)
        try:
            connection.metadata()  # there is such a database
        except F1Error:
            connection.close()
            raise
        self._shell.runner.connection.close()
        self._shell.runner.connection = connection
        self._look_at_schema()
        self._write(f"You are in database {database}.\n")

    def prompt(self) -> str:
        """Return the prompt: the database, and * in a transaction."""
        connection = self._shell.runner.connection
        return f"{connection.database}{'*' if connection.in_transaction else ''}> "

    def loop(self, read: Callable[[str], str]) -> None:
        """Read and run until the user leaves."""
        while True:
            try:
                text = read(self.prompt())
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            try:
                self.run(text)
            except Leave:
                break
        connection = self._shell.runner.connection
        if connection.in_transaction:
            self._write("The open transaction is rolled back.\n")
        connection.close()

    def run(self, text: str) -> None:
        """Run what was typed: a command or statements. Errors are printed. Raises Leave."""
        try:
            if text.strip().startswith("\\"):
                backslash.run(self._shell, text)
                return
            self._run_pieces(text, None)
        except F1Error as error:
            self._write(f"{error}\n")
        except KeyboardInterrupt as interrupt:
            self._write(f"{str(interrupt) or 'Cancelled.'}\n")

    def _run_pieces(self, text: str, name: str | None) -> None:
        for piece in split_all(text):
            started_us = boot_us()
            try:
                self._shell.runner.run(piece)
            except F1Error as error:
                if name is not None:
                    raise with_place(error, piece, name) from error
                self._write(f"{error}\n{pointer(error, piece)}")
                return
            if self._shell.timing:
                self._write(f"Time: {(boot_us() - started_us) / 1000:.1f} ms\n")
            if kind_of(piece.sql) is Kind.DDL:
                self._look_at_schema()

    def _run_file(self, text: str, name: str) -> None:
        self._run_pieces(text, name)


def _to_stdout(text: str) -> None:
    sys.stdout.write(text)


class WithoutPasswords(FileHistory):
    """A history that leaves out what may hold a password."""

    def store_string(self, string: str) -> None:
        """Write an input to the file."""
        if not any(token.kind == "word" and token.text.lower() == "password" for token in tokens(string)):
            super().store_string(string)


def _history() -> History:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    try:
        folder = state / "f1"
        folder.mkdir(parents=True, exist_ok=True)
        return WithoutPasswords(str(folder / "sql_history"))
    except OSError:
        return InMemoryHistory()


def run_shell(
    connect: Callable[[str | None], f1.Connection], database: str | None, form: Format, greeting: str
) -> None:
    """Run the shell at the terminal of this process. Raises F1Error if there is nobody to talk to."""
    repl = Repl(connect, database, form)

    def incomplete() -> bool:
        return not is_complete(session.default_buffer.text)

    session: PromptSession[str] = PromptSession(
        history=_history(),
        multiline=Condition(incomplete),
        completer=SqlCompleter(lambda: repl.metadata),
        complete_while_typing=False,
        lexer=SqlLexer(),
        enable_open_in_editor=True,
        prompt_continuation=_continuation,
    )

    def read(prompt: str) -> str:
        sys.stdout.flush()
        return session.prompt(prompt)

    sys.stdout.write(greeting)
    repl.loop(read)


def _continuation(width: int, line_number: int, is_soft_wrap: int) -> str:
    return "" if is_soft_wrap else "." * (width - 2) + "> "
