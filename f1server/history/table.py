"""Change history as SQL sees it: ``ChangeHistory_<Root>``, a read-only table with one row for each changed row.

======================= =============== ============================================================================
column                  type            what it is
======================= =============== ============================================================================
``commit_ts``           TIMESTAMP       when the transaction committed
``commit_id``           BYTES           which transaction: its batches under other roots have the same
the root key's columns  as in the root  the root row
``change``              INT64           position of the change in its batch
``table_name``          STRING          the table of the changed row
``kind``                STRING          INSERT, UPDATE or DELETE
``key``                 STRING          JSON object: primary key of the changed row
``before``, ``after``   STRING          JSON objects: the changed columns' values, NULL for INSERT and DELETE
======================= =============== ============================================================================

In the JSON, INT64 is a number, NUMERIC a string, BYTES base64, dates and timestamps ISO 8601, a message an object. A
column that is gone from the schema goes by ``#`` and its id.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from f1common.encoding.values import Date, Timestamp, numeric_from_units, numeric_units
from f1common.errors import F1Error
from f1server.catalog.schema import Column, ColumnType, Kind, Schema, Table
from f1server.rows import protofields
from f1server.rows.changes import Change, ChangeBatch, ChangeKind
from f1server.rows.layout import HISTORY_ID, layout, of_schema
from f1server.rows.values import Row, Value

PREFIX = "ChangeHistory_"

_FIRST = (("commit_ts", Kind.TIMESTAMP), ("commit_id", Kind.BYTES))
_LAST = (
    ("change", Kind.INT64),
    ("table_name", Kind.STRING),
    ("kind", Kind.STRING),
    ("key", Kind.STRING),
    ("before", Kind.STRING),
    ("after", Kind.STRING),
)


def history_table(root: Table) -> Table:
    """Return the table of the change history of ``root``. Its ids are its own, apart from those of all real tables."""
    base = HISTORY_ID + root.id * 1024
    columns = [Column(base + i, name, ColumnType(kind)) for i, (name, kind) in enumerate(_FIRST)]
    keys = [Column(base + 100 + i, c.name, c.type, not_null=True) for i, c in enumerate(root.key_columns)]
    last = [Column(base + 10 + i, name, ColumnType(kind)) for i, (name, kind) in enumerate(_LAST)]
    key = (*(c.id for c in keys), base, base + 1, base + 10)
    return Table(
        HISTORY_ID + root.id, PREFIX + root.name, 0, (*columns, *keys, *last), key_column_ids=key, untracked=True
    )


def is_history_table(table: Table) -> bool:
    """Tell whether a table is one of :func:`history_table`."""
    return table.id >= HISTORY_ID


def root_of_history(schema: Schema, table: Table) -> Table:
    """Return the root table whose history ``table`` is. Raises KeyError if it is none of the schema's."""
    return schema.by_id[table.id - HISTORY_ID]


def with_history(schema: Schema) -> Schema:
    """Return the schema as queries see it: with a history table for each root table that has none of that name."""

    def make() -> Schema:
        shown = [t for t in schema.tables if not layout(schema, t).is_mirror]
        roots = [t for t in shown if not t.parent_id and f"{PREFIX}{t.name}".lower() not in schema.by_name]
        return replace(schema, tables=(*schema.tables, *(history_table(root) for root in roots)))

    return of_schema(schema, "with history", make)


def history_rows(
    schema: Schema, batches: Iterable[ChangeBatch], sees: Callable[[int], bool] | None = None
) -> list[tuple[Value, ...]]:
    """Return the rows of ``ChangeHistory_<Root>`` for some batches of one root table, in the order of its columns.

    ``sees``: of which tables, by id, changes are shown; None: of all.
    """
    rows: list[tuple[Value, ...]] = []
    for batch in batches:
        for position, change in enumerate(batch.changes):
            if sees is not None and not sees(change.table_id):
                continue
            rows.append(
                (
                    Timestamp(batch.commit_ts),
                    batch.commit_id,
                    *batch.root_key,
                    position,
                    change.table,
                    change.kind.name,
                    _dump(_key(schema, change)),
                    None if change.kind is ChangeKind.INSERT else _dump(_values(schema, change, change.before)),
                    None if change.kind is ChangeKind.DELETE else _dump(_values(schema, change, change.after)),
                )
            )
    return rows


def _key(schema: Schema, change: Change) -> dict[str, Any]:
    table = schema.by_id.get(change.table_id)
    if table is None or len(table.key_column_ids) != len(change.key):
        return {f"#{i}": _json(value) for i, value in enumerate(change.key, 1)}
    return {column.name: _json(value) for column, value in zip(table.key_columns, change.key, strict=True)}


def _values(schema: Schema, change: Change, row: Row) -> dict[str, Any]:
    table = schema.by_id.get(change.table_id)
    columns: Mapping[int, Column] = table.by_id if table is not None else {}
    found: dict[str, Any] = {}
    for column_id in sorted(row):
        column, value = columns.get(column_id), row[column_id]
        if column is None:
            found[f"#{column_id}"] = _json(value)
        elif column.type.kind is Kind.PROTO and isinstance(value, bytes):
            found[column.name] = _message(schema, column.type.proto, value)
        else:
            found[column.name] = _json(value)
    return found


def _message(schema: Schema, name: str, data: bytes) -> Any:
    try:
        return json.loads(protofields.registry(schema).to_json(name, data))
    except F1Error:
        # The type has gone, or was changed so that these bytes are none of it any more.
        return _json(data)


def _json(value: Value) -> Any:
    match value:
        case Decimal():
            # Without the zeros that some clients write and others do not: as queries show it.
            return f"{numeric_from_units(numeric_units(value)):f}"
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Date():
            return _shown(value, lambda: value.to_date().isoformat())
        case Timestamp():
            return _shown(value, lambda: value.to_datetime().isoformat().replace("+00:00", "Z"))
        case _:
            return value


def _shown(value: Date | Timestamp, show: Callable[[], str]) -> str | int:
    try:
        return show()
    except F1Error:  # outside the years 1 to 9999
        return value.days if isinstance(value, Date) else value.us


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
