"""Index entries of new rows that come by columns: those that :mod:`f1server.rows.entries` makes of them one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import pyarrow as pa

from f1common.encoding.columns import join_rows, pieces_of
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.rows.columnkeys import RowKeys, elements_of, joined
from f1server.rows.keys import IndexLayout, check_key_length, index_layout
from f1server.rows.layout import layout
from spanstore.client import Write

__all__ = ["NewEntries", "entries_by_columns", "plan_entries"]


@dataclass(slots=True)
class NewEntries:
    """``writes`` puts the entries; at the keys of ``alone`` there must be none, or another row has these values."""

    writes: list[Write] = field(default_factory=list)
    alone: list[bytes] = field(default_factory=list)


def entries_by_columns(schema: Schema, table: Table) -> bool:
    """Tell whether all entries of the table's rows can be made by columns: none is of a field of a message.

    An entry of a unique index names its row as keys give it back, which may be another number of digits.
    """
    where = layout(schema, table)
    return not any(
        any(part.path for part in index.parts) or (index.unique and where.inexact) for index in where.indexes
    )


def plan_entries(
    schema: Schema,
    table: Table,
    keys: RowKeys,
    columns: Mapping[int, pa.Array],
    pieces: Mapping[int, Sequence[bytes]],
) -> NewEntries | None:
    """Plan the entries of the rows of ``columns``; None if two rows have the same values in a unique index.

    ``pieces``: of the columns that are not in the key. Raises KEY_TOO_LONG.
    """
    found = NewEntries()
    elements = dict(zip(table.key_column_ids, keys.elements, strict=True))
    for index in layout(schema, table).indexes:
        where = index_layout(schema, table, index)
        if where.state is ElementState.DELETE_ONLY:
            continue
        for part in where.own_parts:
            if part.column_id not in elements:
                given = columns.get(part.column_id)
                elements[part.column_id] = keys.same(None) if given is None else elements_of(given)
        values = _values(where, keys, columns, pieces)
        contended = _contended(where, columns, keys.count)
        entry_keys = _keys(where, keys, elements, contended)
        check_key_length(max(entry_keys, key=len), f"an entry of index {index.name} of {table.name}")
        alone = list(compress(entry_keys, contended))
        if len(set(alone)) < len(alone):
            return None
        found.alone += alone
        found.writes += map(Write, entry_keys, values)
    return found


def _keys(
    where: IndexLayout, keys: RowKeys, elements: Mapping[int, Sequence[bytes]], contended: Sequence[bool]
) -> list[bytes]:
    """Return the keys of the entries: those that are contended end after the index values, the others with the row."""
    head = [keys.same(where.rows.root.id), *keys.elements[: where.shared]] if where.index.local else []
    stems = joined([*head, keys.same(where.code), *(elements[part.column_id] for part in where.own_parts)])
    if all(contended):
        return stems
    rest = keys.elements[where.shared :]
    tails = joined(rest) if rest else [b""] * keys.count
    return [stem if short else stem + tail for stem, tail, short in zip(stems, tails, contended, strict=True)]


def _contended(where: IndexLayout, columns: Mapping[int, pa.Array], rows: int) -> list[bool]:
    """Tell of each row whether another one may want the key of its entry."""
    if not where.index.unique:
        return [False] * rows
    whole = [True] * rows
    for part in where.own_parts:
        given = columns.get(part.column_id)
        if given is None:
            return [False] * rows
        if given.null_count:
            whole = [one and valid for one, valid in zip(whole, given.is_valid().to_pylist(), strict=True)]
    return whole


def _values(
    where: IndexLayout, keys: RowKeys, columns: Mapping[int, pa.Array], pieces: Mapping[int, Sequence[bytes]]
) -> list[bytes]:
    """Return the values of the entries: the columns that are stored with them, and in a unique index the row's key."""
    of_key = set(where.table.key_column_ids)
    stored = {i: pieces[i] for i in where.index.storing if i in pieces}
    for column_id in of_key if where.index.unique else of_key & set(where.index.storing):
        if where.rows.inexact:
            raise F1Error(Code.INVALID_ARGUMENT, "a key that is not stored as it was given is looked at by itself")
        stored[column_id] = pieces_of(column_id, columns[column_id])
    return join_rows([stored[i] for i in sorted(stored)], keys.count)
