"""SHOW: what there is, as small tables."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1server.catalog.render import render_index, render_schema, render_table, render_view
from f1server.catalog.roles import names_of
from f1server.catalog.schema import Schema, Table
from f1server.exec.engine import ColumnInfo, QueryResult
from f1server.plan.names import near_miss
from f1server.plan.statements import ShowStatement

_SETTINGS = {
    "APPLICATION_NAME": "",
    "CLIENT_ENCODING": "UTF8",
    "DATESTYLE": "ISO",
    "SEARCH_PATH": "public",
    "SERVER_ENCODING": "UTF8",
    "SERVER_VERSION": "15.0 (F1)",
    "STANDARD_CONFORMING_STRINGS": "on",
    "TIMEZONE": "UTC",
    "TRANSACTION_ISOLATION": "serializable",
}

_LISTS = ("TABLES", "COLUMNS", "INDEXES", "VIEWS", "ROLES", "GRANTS", "DATABASES", "SCHEMA", "PLACEMENT")

Rows = list[tuple[str | None, ...]]


def show(
    schema: Schema, statement: ShowStatement, databases: Sequence[str] = (), *, passwords: bool = False
) -> QueryResult:
    """Return what SHOW asks for; ``passwords``: also who has one. Raises F1Error NOT_FOUND, INVALID_ARGUMENT."""
    if statement.what == "ROLES":
        names, rows = _roles(schema, passwords)
    else:
        names, rows = _rows(schema, statement, databases)
    return text_result(names, rows)


def text_result(names: Sequence[str], rows: Rows) -> QueryResult:
    """Return rows of text as a result."""
    target = pa.schema([(name, pa.string()) for name in names])
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(names))]
    batch = pa.RecordBatch.from_arrays(columns, schema=target)

    async def batches() -> AsyncIterator[Any]:
        yield batch

    return QueryResult(tuple(ColumnInfo(name, "STRING") for name in names), target, batches())


def _rows(schema: Schema, statement: ShowStatement, databases: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    tables = sorted(schema.by_name.values(), key=lambda t: t.name.lower())
    match statement.what:
        case "TABLES":
            found: Rows = [(t.name, "table", schema.by_id[t.parent_id].name if t.parent_id else None) for t in tables]
            found += [(v.name, "view", None) for v in sorted(schema.views, key=lambda v: v.name.lower())]
            return ("name", "kind", "parent"), found
        case "COLUMNS":
            return ("column", "type", "nullable", "key", "default"), _columns(_table(schema, statement.name))
        case "INDEXES":
            chosen = [_table(schema, statement.name)] if statement.name else tables
            return ("table", "index", "kind", "columns", "storing"), [r for t in chosen for r in _indexes(t)]
        case "GRANTS":
            chosen = [_table(schema, statement.name)] if statement.name else tables
            return ("table", "role", "privileges"), [r for t in chosen for r in _grants(schema, t)]
        case "VIEWS":
            return ("name", "query"), [(v.name, v.sql) for v in sorted(schema.views, key=lambda v: v.name.lower())]
        case "DATABASES":
            return ("name",), [(name,) for name in sorted(databases or [schema.database])]
        case "SCHEMA" | "DATABASE":
            return ("ddl",), [(render_schema(schema),)]
        case "CREATE":
            return ("ddl",), [(_ddl(schema, statement.name),)]
        case _:
            return _setting(statement.what)


def _setting(what: str) -> tuple[tuple[str, ...], Rows]:
    if what in _SETTINGS:
        return (what.lower(),), [(_SETTINGS[what],)]
    known = [*_LISTS, "CREATE TABLE", *_SETTINGS]
    raise F1Error(Code.INVALID_ARGUMENT, f"there is nothing to show called {what}{near_miss(what, known)}")


def _roles(schema: Schema, passwords: bool) -> tuple[tuple[str, ...], Rows]:
    names = {role.id: role.name for role in schema.roles}
    rows: Rows = []
    for role in sorted(schema.roles, key=lambda r: r.name.lower()):
        flags = ["yes" if flag else "no" for flag in (role.login, role.superuser, role.create)]
        member_of = ", ".join(names[number] for number in role.member_of) or None
        # A verifier is masked but for how it was made.
        masked = role.verifier.partition(":")[0] + ":********" if role.verifier and passwords else None
        rows.append((role.name, *flags, member_of, masked))
    return ("role", "login", "superuser", "create", "member of", "password"), rows


def _grants(schema: Schema, table: Table) -> Rows:
    names = {role.id: role.name for role in schema.roles}
    return [(table.name, names[g.role_id], ", ".join(names_of(g.privileges))) for g in table.grants]


def _table(schema: Schema, name: str) -> Table:
    return schema.table(name)


def _columns(table: Table) -> Rows:
    keys = table.key_column_ids
    return [
        (
            column.name,
            column.type.sql(),
            "no" if column.not_null or column.id in keys else "yes",
            str(keys.index(column.id) + 1) if column.id in keys else None,
            column.default_sql or None,
        )
        for column in table.visible
    ]


def _indexes(table: Table) -> Rows:
    found: Rows = [(table.name, "primary key", "unique", ", ".join(c.name for c in table.key_columns), None)]
    for index in sorted(table.indexes, key=lambda i: i.name.lower()):
        parts = ", ".join(".".join((table.by_id[p.column_id].name, *p.path)) for p in index.parts)
        kind = ("unique " if index.unique else "") + ("local" if index.local else "global")
        found.append(
            (table.name, index.name, kind, parts, ", ".join(table.by_id[i].name for i in index.storing) or None)
        )
    return found


def _ddl(schema: Schema, name: str) -> str:
    kind, _, rest = name.partition(".")
    wanted = rest if kind.upper() == "VIEW" and rest else name
    view = schema.views_by_name.get(wanted.lower())
    if view is not None:
        return render_view(view.name, view.sql)
    table = schema.table(wanted)
    return "\n".join([render_table(schema, table), *(render_index(table, i) for i in table.indexes)])
