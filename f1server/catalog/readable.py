"""From which timestamps on indexes can be read: entries of older rows are missing before."""

from dataclasses import replace

from f1server.catalog.schema import ElementState, Schema

__all__ = ["readable_at", "readable_from"]


def readable_from(before: Schema, after: Schema, now_us: int) -> Schema:
    """Return ``after`` with indexes that became public marked as readable from ``now_us`` on: when they were filled.

    At an older timestamp the entries of some rows are missing, and a query by the index would miss these rows.
    """
    public = {i.id for table in before.tables for i in table.indexes if i.state is ElementState.PUBLIC}
    known = {table.id for table in before.tables}
    tables = []
    for table in after.tables:
        fresh = {i.id for i in table.indexes if i.state is ElementState.PUBLIC and i.id not in public}
        if fresh and table.id in known:
            marked = tuple(replace(i, readable_from=now_us) if i.id in fresh else i for i in table.indexes)
            table = replace(table, indexes=marked)
        tables.append(table)
    return replace(after, tables=tuple(tables))


def readable_at(schema: Schema, timestamp: int) -> Schema:
    """Return the schema as a snapshot at ``timestamp`` is read: without indexes that were not filled then. 0: now."""
    if not timestamp or schema.indexes_since <= timestamp:
        return schema
    tables = [
        replace(
            table,
            indexes=tuple(
                i if i.readable_from <= timestamp else replace(i, state=min(i.state, ElementState.WRITE_ONLY))
                for i in table.indexes
            ),
        )
        for table in schema.tables
    ]
    return replace(schema, tables=tuple(tables))
