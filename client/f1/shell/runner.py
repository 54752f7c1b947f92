"""Runs statements and prints what comes of them: shared by ``f1 sql -c``, ``-f`` and the interactive shell."""

import re
from collections.abc import Iterator
from typing import Any

import f1
from f1.interrupts import GoesOn
from f1.shell import render
from f1.shell.render import Format, Write
from f1.statements import Kind, Piece, kind_of
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

_PAGE_ROWS = 5_000
# How servers name a place within a statement.
_PLACE = re.compile(r" \(line \d+, column \d+\)$")


class Runner:
    """One connection and how to print."""

    def __init__(self, connection: f1.Connection, write: Write, form: Format = Format.table) -> None:
        self.connection = connection
        self.form = form
        self.expanded = False
        self._write = write
        self._known: set[str] = set()

    def run(self, piece: Piece) -> None:
        """Run a statement and print its result. Raises F1Error, and GoesOn if the wait for DDL is interrupted."""
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(piece.sql)
            except KeyboardInterrupt:
                match kind_of(piece.sql):
                    case Kind.DDL:
                        raise GoesOn(self.connection.what_goes_on()) from None
                    case Kind.DML if not self.connection.in_transaction:
                        raise KeyboardInterrupt("Cancelled; it may have been committed just before.") from None
                raise
            if cursor.description is None:
                self._print_tag(cursor)
            else:
                self.print_rows(cursor.columns, self._pages(cursor))

    def _print_tag(self, cursor: f1.Cursor) -> None:
        if self.form is Format.table and cursor.tag:
            count = f" {cursor.rowcount}" if cursor.tag in ("INSERT", "UPDATE", "DELETE", "UPSERT") else ""
            self._write(f"{cursor.tag}{count}\n")

    def _pages(self, cursor: f1.Cursor) -> Iterator[list[tuple[Any, ...]]]:
        self._learn(cursor.columns)
        while page := cursor.fetchmany(_PAGE_ROWS):
            yield page

    def _learn(self, columns: list[pb.ColumnInfo]) -> None:
        """Get the classes of the messages in a result, so that they can be shown."""
        for column in columns:
            name = column.proto_type
            if name and name not in self._known:
                self._known.add(name)
                try:
                    self.connection.message_class(name)
                except F1Error:
                    continue  # shown as bytes

    def print_rows(self, columns: list[pb.ColumnInfo], pages: render.Pages) -> None:
        """Print a result in the chosen form."""
        match self.form:
            case Format.json:
                render.write_json(self._write, columns, pages)
            case Format.csv:
                render.write_csv(self._write, columns, pages)
            case Format.table if self.expanded:
                render.write_expanded(self._write, columns, pages)
            case Format.table:
                render.write_table(self._write, columns, pages)


def place_of(error: F1Error, piece: Piece) -> tuple[int, int] | None:
    """Return line and column, from 1, of an error within the statement, None if it has no place there."""
    try:
        line, column = int(error.details["line"]), int(error.details["column"])
    except (KeyError, ValueError):
        return None
    return (line, column) if 0 < line <= piece.sql.count("\n") + 1 and column > 0 else None


def with_place(error: F1Error, piece: Piece, name: str) -> F1Error:
    """Return the error with its place in the file ``name`` in the message, instead of that in the statement.

    ``name`` empty: a text that has no name. Where an error has no place, that of its statement is named.
    """
    place = place_of(error, piece)
    line, column = piece.line, piece.column
    if place is not None:
        line, column = piece.line + place[0] - 1, place[1] + (piece.column - 1 if place[0] == 1 else 0)
    elif not name:
        return error
    where = f"{name}:{line}:{column}" if name else f"line {line}, column {column}"
    return F1Error(
        error.code,
        f"{_PLACE.sub('', error.message)} ({where})",
        retryable=error.retryable,
        ambiguous=error.ambiguous,
        details=error.details,
    )


def pointer(error: F1Error, piece: Piece) -> str:
    """Return the line of the statement that an error is about, with a sign under the place; empty without one."""
    place = place_of(error, piece)
    if place is None:
        return ""
    line, column = place
    text = piece.sql.split("\n")[line - 1]
    head = f"  {line} | " if "\n" in piece.sql else "  "
    marks = "".join(sign if sign == "\t" else " " for sign in text[: column - 1])
    return f"{head}{text}\n{' ' * len(head)}{marks}^\n"


def finish(runner: Runner) -> None:
    """Roll back what was begun and never committed. Raises F1Error FAILED_PRECONDITION then."""
    if runner.connection.in_transaction:
        runner.connection.rollback()
        raise F1Error(Code.FAILED_PRECONDITION, "the transaction was never committed; it was rolled back")
