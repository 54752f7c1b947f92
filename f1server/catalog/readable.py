"""From which timestamps on indexes can be read: entries of older rows are missing before."""

from dataclasses import replace

from f1server.catalog.schema import ElementState, Schema, Table

__all__ = ["forms_at", "read_since", "readable_at", "readable_from"]


def readable_from(before: Schema, after: Schema, now_us: int) -> Schema:
    """Return ``after`` with indexes that became public marked as readable from ``now_us`` on: when they were filled.

    At an older timestamp the entries of some rows are missing, and a query by the index would miss these rows. It is
    the same with rows of a table that was moved. Its changes are under its new root only from when nobody writes to its
    old form any more.
    """
    public = {i.id for table in before.tables for i in table.indexes if i.state is ElementState.PUBLIC}
    tables = []
    for table in after.tables:
        known = before.by_id.get(table.id)
        fresh = {i.id for i in table.indexes if i.state is ElementState.PUBLIC and i.id not in public}
        if fresh and known is not None:
            marked = tuple(replace(i, readable_from=now_us) if i.id in fresh else i for i in table.indexes)
            table = replace(table, indexes=marked)
        if known is not None and known.state < table.state is ElementState.PUBLIC and table.mirror_of in after.by_id:
            table = replace(table, readable_from=now_us)
        if _has_left(before, after, table):
            table = replace(table, history_from=now_us)
        tables.append(table)
    return replace(after, tables=tuple(tables))


def _has_left(before: Schema, after: Schema, table: Table) -> bool:
    """Tell whether the form that a table had under another root is no longer written to."""
    old, now = before.by_id.get(table.mirror_of), after.by_id.get(table.mirror_of)
    if old is None or now is None or not old.state > now.state is ElementState.DELETE_ONLY:
        return False
    return table.state is ElementState.PUBLIC and before.root(old).id != after.root(table).id


def readable_at(schema: Schema, timestamp: int) -> Schema:
    """Return the schema as a snapshot at ``timestamp`` is read: without indexes that were not filled then. 0: now.

    A table that was moved later is read in its old form as long as that is known, and then no more.
    """
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
    return forms_at(replace(schema, tables=tuple(tables)), timestamp)


def read_since(schema: Schema) -> int:
    """Return from when on snapshots are read with this schema, each table in the form that it has now."""
    return max([schema.commit_ts, *(table.readable_from for table in schema.tables)])


def forms_at(schema: Schema, timestamp: int) -> Schema:
    """Return the schema with each table that moves in the form in which a snapshot at ``timestamp`` has it. 0: now."""
    if not timestamp or all(table.readable_from <= timestamp for table in schema.tables):
        return schema
    return replace(schema, tables=tuple(_form_at(schema, table, timestamp) for table in schema.tables))


def _form_at(schema: Schema, table: Table, timestamp: int) -> Table:
    other = schema.forms.get(table.id)
    if table.state is ElementState.PUBLIC and table.readable_from > timestamp:
        return replace(table, state=ElementState.WRITE_ONLY)
    if other is not None and other.state is ElementState.PUBLIC and other.readable_from > timestamp:
        return replace(table, state=ElementState.PUBLIC)
    return table
