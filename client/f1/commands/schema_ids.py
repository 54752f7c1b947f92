"""``f1 schema ids``: how the keys of each table and index begin, for commands about ranges of keys."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from f1 import aio
from f1.commands.options import DatabaseOption, DirOption, HostOption, hosts_of
from f1common.pb import schema_pb2

__all__ = ["command", "ids_of"]

_INDEX_BASE = 1 << 40
"""Entries of an index are marked with this plus the index's id (docs/encoding.md)."""


class Format(Enum):
    """How ids are printed."""

    table = "table"
    json = "json"


@dataclass(frozen=True, slots=True)
class Ids:
    """A table or index: its id, and how the keys of its rows or entries begin, as ``f1 range`` takes keys."""

    kind: str
    name: str
    id: int
    keys: str


def command(
    host: HostOption = None,
    directory: DirOption = None,
    database: DatabaseOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Show how the keys of each table and index begin: what `f1 range list` calls them."""

    async def work() -> schema_pb2.Schema:
        async with await aio.connect(hosts_of(host, directory), database, autocommit=True) as connection:
            return schema_pb2.Schema.FromString((await connection.session.show_schema()).schema)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = list(ids_of(runner.run(work())))
    if form is Format.json:
        typer.echo(json.dumps([asdict(item) for item in found], indent=2))
    else:
        _print(found)


def ids_of(schema: schema_pb2.Schema) -> Iterator[Ids]:
    """Yield tables and their indexes, hierarchies together."""
    tables = {table.id: table for table in schema.tables}

    def path(table: schema_pb2.Table) -> list[schema_pb2.Table]:
        above = path(tables[table.parent_id]) if table.parent_id in tables else []
        return [*above, table]

    for table in sorted(schema.tables, key=lambda t: [above.id for above in path(t)]):
        yield Ids("table", table.name, table.id, "/".join(_own(path(table))))
        root = path(table)[0]
        for index in sorted(table.indexes, key=lambda i: i.id):
            code = str(_INDEX_BASE + index.id)
            begin = "/".join([*_own([root]), code]) if index.local else code
            yield Ids("local index" if index.local else "index", index.name, index.id, begin)


def _own(path: list[schema_pb2.Table]) -> Iterator[str]:
    """Yield the elements of a key of the last table: each table's id and then the names of its own key columns."""
    shared = 0
    for table in path:
        yield str(table.id)
        names = {column.id: column.name for column in table.columns}
        yield from (names[i] for i in table.key_column_ids[shared:])
        shared = len(table.key_column_ids)


def _print(found: list[Ids]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "name", "id", "keys"):
        table.add_column(column, justify="right" if column == "id" else "left", no_wrap=True)
    for item in found:
        table.add_row(item.kind, escape(item.name), str(item.id), escape(item.keys))
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)
