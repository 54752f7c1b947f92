"""The commands of the shell that begin with a backslash."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from f1.metadata import Metadata, Table
from f1.shell.render import write_table
from f1.shell.runner import Runner
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb

HELP = """\
 \\d              tables and views
 \\d NAME         columns, key, indexes and place of a table
 \\dt             tables
 \\di [TABLE]     indexes
 \\l              databases
 \\c DATABASE     connect to another database
 \\i FILE         run the statements in a file
 \\timing [on|off] show how long statements take
 \\x [on|off]     show each row as lines of name and value
 \\?              this help
 \\q              leave (also Ctrl-D)

 A statement ends with ; and may have several lines. Ctrl-C cancels a statement that runs, or clears the input.
 BEGIN [OPTIMISTIC | PESSIMISTIC | SNAPSHOT] begins a transaction that COMMIT or ROLLBACK ends; outside of one each
 statement commits by itself.
"""


class Leave(Exception):
    """The user wants to leave."""


@dataclass(slots=True)
class Shell:
    """What the commands work on. ``reconnect`` changes the database, ``run_text`` runs the statements of a file."""

    runner: Runner
    write: Callable[[str], None]
    reconnect: Callable[[str], None]
    run_text: Callable[[str, str], None]
    timing: bool = False


def run(shell: Shell, line: str) -> None:
    """Run a command. Raises Leave, F1Error."""
    name, *arguments = line.strip().rstrip(";").split()
    command = _COMMANDS.get(name)
    if command is None:
        raise F1Error(Code.INVALID_ARGUMENT, f"there is no command {name}; \\? lists them")
    command(shell, arguments)


def _describe(shell: Shell, arguments: Sequence[str]) -> None:
    if not arguments:
        metadata = shell.runner.connection.metadata()
        _tables(shell, metadata)
        if metadata.views:
            _print(shell, ["view"], [[name] for name in metadata.views])
        return
    metadata = shell.runner.connection.metadata()
    for name in arguments:
        if name.lower() in {view.lower() for view in metadata.views}:
            ((definition,),) = shell.runner.connection.execute(f"SHOW CREATE {name}").fetchall()
            shell.write(f"{definition}\n")
        else:
            _table(shell, metadata.table(name))


def _list_tables(shell: Shell, _: Sequence[str]) -> None:
    _tables(shell, shell.runner.connection.metadata())


def _tables(shell: Shell, metadata: Metadata) -> None:
    rows = [[t.name, _key(t), t.parent] for t in sorted(metadata.tables, key=lambda t: t.name.lower())]
    _print(shell, ["table", "primary key", "interleaved in"], rows)


def _key(table: Table) -> str:
    return ", ".join(column.name for column in table.key if not column.hidden)


def _table(shell: Shell, table: Table) -> None:
    rows = [
        [c.name, c.type, "" if not c.not_null else "NOT NULL", c.default_sql] for c in table.columns if not c.hidden
    ]
    _print(shell, ["column", "type", "null", "default"], rows)
    lines = [f"Primary key: {_key(table) or '(generated)'}"]
    if table.parent:
        lines.append(f"Interleaved in: {table.parent}")
    for index in table.indexes:
        kind = ("unique " if index.unique else "") + ("local" if index.local else "global")
        lines.append(f"Index {index.name} ({', '.join(c.name for c in index.columns)}), {kind}")
    shell.write("\n".join(lines) + "\n")


def _indexes(shell: Shell, arguments: Sequence[str]) -> None:
    metadata = shell.runner.connection.metadata()
    tables = [metadata.table(name) for name in arguments] or sorted(metadata.tables, key=lambda t: t.name.lower())
    rows = [
        [
            index.name,
            table.name,
            ", ".join(column.name for column in index.columns),
            "yes" if index.unique else "no",
            "local" if index.local else "global",
        ]
        for table in tables
        for index in table.indexes
    ]
    _print(shell, ["index", "table", "columns", "unique", "kind"], rows)


def _databases(shell: Shell, _: Sequence[str]) -> None:
    rows = shell.runner.connection.execute("SHOW DATABASES").fetchall()
    _print(shell, ["database"], [[str(row[0])] for row in rows])


def _connect(shell: Shell, arguments: Sequence[str]) -> None:
    if len(arguments) != 1:
        raise F1Error(Code.INVALID_ARGUMENT, "\\c takes the name of a database")
    shell.reconnect(arguments[0])


def _include(shell: Shell, arguments: Sequence[str]) -> None:
    if len(arguments) != 1:
        raise F1Error(Code.INVALID_ARGUMENT, "\\i takes the name of a file")
    shell.run_text(read_text(Path(arguments[0])), arguments[0])


def read_text(path: Path) -> str:
    """Return the text of a file. Raises F1Error NOT_FOUND, INVALID_ARGUMENT."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"{path} is no text in UTF-8: {error}") from error
    except OSError as error:
        raise F1Error(Code.NOT_FOUND, f"cannot read {path}: {error.strerror}") from error


def _timing(shell: Shell, arguments: Sequence[str]) -> None:
    shell.timing = _switch(arguments, shell.timing)
    shell.write(f"Timing is {'on' if shell.timing else 'off'}.\n")


def _expanded(shell: Shell, arguments: Sequence[str]) -> None:
    shell.runner.expanded = _switch(arguments, shell.runner.expanded)
    shell.write(f"Rows are shown {'as lines' if shell.runner.expanded else 'as a table'}.\n")


def _switch(arguments: Sequence[str], now: bool) -> bool:
    match [argument.lower() for argument in arguments]:
        case []:
            return not now
        case ["on"]:
            return True
        case ["off"]:
            return False
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, "say on or off")


def _help(shell: Shell, _: Sequence[str]) -> None:
    shell.write(HELP)


def _leave(shell: Shell, _: Sequence[str]) -> None:
    raise Leave


def _print(shell: Shell, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    columns = [pb.ColumnInfo(name=name, type="STRING") for name in names]
    write_table(shell.write, columns, [[tuple(row) for row in rows]])


_COMMANDS: dict[str, Callable[[Shell, Sequence[str]], None]] = {
    "\\d": _describe,
    "\\dt": _list_tables,
    "\\di": _indexes,
    "\\l": _databases,
    "\\c": _connect,
    "\\i": _include,
    "\\timing": _timing,
    "\\x": _expanded,
    "\\?": _help,
    "\\h": _help,
    "\\q": _leave,
}
COMMANDS = tuple(_COMMANDS)
