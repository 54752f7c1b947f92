"""Names must mean the same to all statements of a transaction, whatever others rename meanwhile.

What a transaction has read, and the writes that it keeps, are of tables and columns by their ids, so that renames do
not disturb it. But a statement looks names up in the schema of its moment. If a name was another table's or column's
when an earlier statement ran, the transaction would be a mixture: of the one in what it has seen, of the other in what
it does. Where statements hold locks on their tables until the end of the transaction, renames wait for it instead;
here schema changes wait for nobody, so the transaction is run again.
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from f1common.errors import Code, F1Error
from f1server.catalog.rewrites import view_by_ids
from f1server.catalog.schema import Index, Schema, Table, View
from f1server.txn.readset import Conflict

__all__ = ["MOST_SCHEMAS", "SchemaHistory", "require_same_names"]

MOST_SCHEMAS = 32
"""A transaction that goes on through more versions of the schema is run again."""


class SchemaHistory(Protocol):
    """Who knows earlier versions of a schema."""

    async def at(self, present: Schema, timestamp: int) -> Schema:
        """Return the schema as it was at ``timestamp``."""


async def require_same_names(
    history: SchemaHistory, schema: Schema, ran_under: Collection[int], names: Iterable[str]
) -> None:
    """Raise Conflict if one of these tables, views and indexes, or a column of it, was something else to a statement.

    ``ran_under``: when the versions of the schema were committed under which the statements ran, in microseconds since
    1970. Names that were unknown to them may be anything. Raises INVALID_ARGUMENT for a time at which no version of
    the schema was committed, and what reading the schema raises.
    """
    others = {ts for ts in ran_under if ts != schema.commit_ts}
    if not others:
        return
    if len(others) > MOST_SCHEMAS:
        raise _conflict(f"the schema changed more than {MOST_SCHEMAS} times while the transaction was open")
    wanted = sorted({name.lower() for name in names})
    for ts in sorted(others):
        before = await _version(history, schema, ts)
        for name in wanted:
            if other := _other_meaning(before, schema, name):
                raise _conflict(f"{other} is not what it was when the transaction began")


async def _version(history: SchemaHistory, schema: Schema, ts: int) -> Schema:
    try:
        found = await history.at(schema, ts)
    except F1Error as error:
        if error.code is not Code.SNAPSHOT_TOO_OLD:
            raise
        raise _conflict("the schema changed since, and its version of then is not kept any more") from error
    if found.commit_ts != ts:
        raise F1Error(Code.INVALID_ARGUMENT, f"no version of the schema was committed at {ts}")
    return found


def _other_meaning(before: Schema, after: Schema, name: str) -> str:
    """Return the name of what has another meaning, of a table or view and its columns; empty: nothing has."""
    if name in before.views_by_name or name in after.views_by_name:
        return _other_view(before, after, name)
    one, other = before.by_name.get(name), after.by_name.get(name)
    if one is None or other is None:
        return _other_index(before, after, name)
    # A table that was moved has another id and the same columns: what that means to a transaction is looked at by row.
    if one.id != other.id and one.by_id.keys().isdisjoint(other.by_id):
        return f"table {other.name}"
    return _other_column(one, other)


def _other_column(one: Table, other: Table) -> str:
    for column_name, column in one.by_name.items():
        now = other.by_name.get(column_name)
        if now is not None and now.id != column.id:
            return f"{other.name}.{now.name}"
    return ""


def _other_index(before: Schema, after: Schema, name: str) -> str:
    """As :func:`_other_meaning`, of an index: one that was made anew over the same columns means the same."""
    one, other = _index(before, name), _index(after, name)
    return f"index {other.name}" if one is not None and other is not None and one.parts != other.parts else ""


def _index(schema: Schema, name: str) -> Index | None:
    indexes = (index for table in schema.by_name.values() for index in table.indexes)
    return next((index for index in indexes if index.name.lower() == name), None)


def _other_view(before: Schema, after: Schema, name: str) -> str:
    one, other = before.views_by_name.get(name), after.views_by_name.get(name)
    if one is not None and other is not None:
        return "" if _same_view(before, after, one, other) else f"view {other.name}"
    table = before.by_name.get(name) or after.by_name.get(name)
    return "" if table is None else table.name


def _same_view(before: Schema, after: Schema, one: View, other: View) -> bool:
    """Tell whether a view is still the same one, also if a table that it reads is called otherwise by now."""
    if one.sql == other.sql:
        return True
    pairs = ((before.by_id.get(table.id), table) for table in after.by_name.values())
    if any(_other_column(old, new) for old, new in pairs if old is not None and old.name != new.name):
        return False
    return view_by_ids(one.sql, _ids(before)) == view_by_ids(other.sql, _ids(after))


def _ids(schema: Schema) -> dict[str, int]:
    return {name: table.id for name, table in schema.by_name.items()}


def _conflict(what: str) -> Conflict:
    return Conflict(f"{what}; run it again", b"", "schema")
