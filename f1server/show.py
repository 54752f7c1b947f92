"""SHOW: the schema as rows, for people and shells."""

from collections.abc import Sequence

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.render import public_indexes, render_index, render_schema, render_table, render_view
from f1server.catalog.schema import Schema
from f1server.plan.statements import ShowStatement

Rows = list[tuple[str, ...]]


def show(
    statement: ShowStatement, schema: Schema, databases: Sequence[str]
) -> tuple[list[pb.ColumnInfo], pa.RecordBatch]:
    """Return columns and rows. Raises NOT_FOUND for an unknown table, INVALID_ARGUMENT for what cannot be shown."""
    names, rows = _rows(statement, schema, databases)
    arrays = [pa.array([row[i] for row in rows], pa.string()) for i in range(len(names))]
    infos = [pb.ColumnInfo(name=name, type="STRING", nullable=True) for name in names]
    return infos, pa.RecordBatch.from_arrays(arrays, names=list(names))


def _rows(statement: ShowStatement, schema: Schema, databases: Sequence[str]) -> tuple[tuple[str, ...], Rows]:
    match statement.what:
        case "TABLES":
            return ("table", "parent", "primary_key"), _tables(schema)
        case "COLUMNS":
            return ("column", "type", "nullable", "default", "key"), _columns(schema, statement.name)
        case "INDEXES":
            return ("index", "table", "definition"), _indexes(schema, statement.name)
        case "VIEWS":
            return ("view", "definition"), [(v.name, v.sql) for v in schema.views]
        case "DATABASES":
            return ("database",), [(name,) for name in databases]
        case "CREATE":
            return ("definition",), [(_create(schema, statement.name),)]
        case "SCHEMA":
            return ("definition",), [(render_schema(schema),)]
        case other:
            raise F1Error(
                Code.INVALID_ARGUMENT,
                f"SHOW {other} is not known; there are TABLES, COLUMNS FROM table, INDEXES [FROM table], VIEWS, "
                "DATABASES, CREATE table and SCHEMA",
            )


def _tables(schema: Schema) -> Rows:
    rows: Rows = []
    for table in sorted(schema.by_name.values(), key=lambda t: t.name.lower()):
        parent = schema.by_id[table.parent_id].name if table.parent_id else ""
        key = ", ".join(c.name for c in table.key_columns if not c.hidden)
        rows.append((table.name, parent, key))
    return rows


def _columns(schema: Schema, name: str) -> Rows:
    table = schema.table(name)
    keys = set(table.key_column_ids)
    return [
        (c.name, c.type.sql(), "NO" if c.not_null else "YES", c.default_sql, "PRIMARY KEY" if c.id in keys else "")
        for c in table.visible
    ]


def _indexes(schema: Schema, name: str) -> Rows:
    tables = [schema.table(name)] if name else sorted(schema.by_name.values(), key=lambda t: t.name.lower())
    return [(i.name, t.name, render_index(t, i)) for t in tables for i in public_indexes(t)]


def _create(schema: Schema, name: str) -> str:
    view = schema.views_by_name.get(name.lower())
    if view is not None:
        return render_view(view.name, view.sql)
    table = schema.table(name)
    return "\n".join([render_table(schema, table), *(render_index(table, i) for i in public_indexes(table))])
