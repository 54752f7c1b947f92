"""``f1 changes``: what committed transactions changed."""

import datetime
import json
import sys
import time
from enum import Enum
from typing import Annotated, Any

import typer

import f1
from f1.changes import Change, ChangeBatch
from f1.commands.options import DatabaseOption, DirOption, HostOption, host_in, open_connection
from f1.metadata import Table
from f1.shell.render import json_of, text_of
from f1common.errors import Code, F1Error

app = typer.Typer(help="Change history: what committed transactions changed.", no_args_is_help=True)

_POLL_S = 0.5
_PAGE = 500


class Format(Enum):
    """How batches are printed."""

    text = "text"
    json = "json"


@app.callback()
def _changes() -> None:
    """Change history: what committed transactions changed."""


@app.command()
def tail(
    table: Annotated[str, typer.Argument(help="A root table: history is kept by root row.")],
    key: Annotated[str | None, typer.Option(help="Only this root row: its key, parts separated by commas.")] = None,
    after: Annotated[int, typer.Option(help="Only after this commit timestamp (microseconds since 1970).")] = 0,
    last: Annotated[int, typer.Option("-n", "--last", min=0, help="How many of the batches that are there.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what commits from now on.")] = False,
    form: Annotated[Format, typer.Option("--format", help="Text, or one JSON object on each line.")] = Format.text,
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
) -> None:
    """Print the last batches of changes, oldest first: one batch for each transaction and root row."""
    with open_connection(host_in(host, directory), database) as connection:
        metadata = connection.metadata()
        root = None if key is None else parse_key(metadata.table(table), key)
        for name in sorted({c.proto for t in metadata.tables for c in t.columns if c.proto}):
            connection.message_class(name)
        batches, resolved = _read_all(connection, table, root, after)
        for batch in batches[-last:] if last else []:
            _print(batch, form)
        while follow:
            sys.stdout.flush()
            time.sleep(_POLL_S)
            # Never from the largest timestamp seen: only below the resolved one nothing is missing.
            batches, resolved = _read_all(connection, table, root, resolved)
            for batch in batches:
                _print(batch, form)


def _read_all(connection: f1.Connection, table: str, root: Any, after: int) -> tuple[list[ChangeBatch], int]:
    found: list[ChangeBatch] = []
    while True:
        batches, resolved = connection.read_changes(table, root, after_ts=after, limit=_PAGE)
        found += batches
        if len(batches) < _PAGE:
            return found, max(resolved, after)
        after = resolved


def parse_key(table: Table, text: str) -> tuple[Any, ...]:
    """Return the key that a person wrote. Raises F1Error INVALID_ARGUMENT."""
    parts = text.split(",") if len(table.key) > 1 else [text]
    values: list[Any] = []
    for column, part in zip(table.key, parts, strict=False):
        try:
            values.append(int(part) if column.kind == "INT64" else part)
        except ValueError:
            raise F1Error(Code.INVALID_ARGUMENT, f"{table.name}.{column.name} is INT64, and {part!r} is none") from None
    return tuple(values)


def _print(batch: ChangeBatch, form: Format) -> None:
    if form is Format.json:
        typer.echo(json.dumps(_document(batch), ensure_ascii=False))
        return
    moment = datetime.datetime.fromtimestamp(batch.commit_ts / 1e6, tz=datetime.UTC)
    also = f", and {batch.other_roots} other roots" if batch.other_roots else ""
    typer.echo(f"{moment:%Y-%m-%d %H:%M:%S.%f}  {batch.root_table} {_key(batch.root_key)}{also}")
    for change in batch.changes:
        typer.echo(f"    {change.kind} {change.table} {_key(change.key)}{_columns(change)}")


def _key(key: tuple[Any, ...]) -> str:
    return "(" + ", ".join(text_of(value) for value in key) + ")"


def _columns(change: Change) -> str:
    names = list(dict.fromkeys([*change.before, *change.after]))
    parts = []
    for name in names:
        before, after = text_of(change.before.get(name)), text_of(change.after.get(name))
        match change.kind:
            case "INSERT":
                parts.append(f"{name}={after}")
            case "DELETE":
                parts.append(f"{name}={before}")
            case _:
                parts.append(f"{name}: {before} -> {after}")
    return "  " + ", ".join(parts) if parts else ""


def _document(batch: ChangeBatch) -> dict[str, Any]:
    return {
        "commit_ts": batch.commit_ts,
        "commit_id": batch.commit_id.hex(),
        "root_table": batch.root_table,
        "root_key": json_of(batch.root_key),
        "changes": [
            {
                "kind": change.kind,
                "table": change.table,
                "key": json_of(change.key),
                "before": json_of(dict(change.before)),
                "after": json_of(dict(change.after)),
            }
            for change in batch.changes
        ],
        "other_roots": batch.other_roots,
    }
