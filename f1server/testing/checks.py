"""Checks of a whole database: index entries are those of the rows, history replays to the rows, `f1 check` is content.

The first looks at all index entries from the storage in the simplest way there is, which is also what the real check is
held against.
"""

from collections.abc import Mapping
from typing import Any

import f1
from f1.checking import check_database
from f1common.encoding import tuple as tuples
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.rows.keys import index_layout, split_row_key, table_span
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.rows.rowcodec import decode_row_value
from f1server.testing.kv import ROOTS
from spanstore.client import KeyRange, SpanClient
from spanstore.testing.checkers import Violation

CONSISTENCY = "consistency"
INDEXES = "indexes"
HISTORY = "history"

_PAGE = 7

Stored = dict[bytes, bytes]


async def stored(client: SpanClient, span: tuple[bytes, bytes], ts: int) -> Stored:
    """Return the storage rows of a range at ``ts``."""
    result = await client.read(ranges=[KeyRange(*span)], timestamp=ts)
    return {row.key: row.value for row in result.ranges[0] if row.value is not None}


async def check_indexes(client: SpanClient, schema: Schema, ts: int) -> list[Violation]:
    """Check that at ``ts`` every index has exactly the entries that follow from the rows.

    One that is not public, because it is being made or was left half made, may lack some, but has no wrong ones.
    """
    violations: list[Violation] = []
    for table in schema.tables:
        rows = await stored(client, table_span(schema, schema.root(table)), ts)
        for index in table.indexes:
            where = index_layout(schema, table, index)
            expected: Stored = {}
            for key, value in rows.items():
                split = split_row_key(schema, key)
                if split is not None and split[0].id == table.id:
                    row = decode_row_value(table, split[1], value)
                    entry = where.value(row, split[1])
                    expected |= dict.fromkeys(where.keys(row, split[1]), entry)
            if index.local:
                found = {k: v for k, v in rows.items() if _has_code(k, where.code)}
            else:
                found = await stored(client, _global_span(where.code), ts)
            if index.state is not ElementState.PUBLIC:
                expected = {key: value for key, value in expected.items() if key in found}
            elif ts < index.readable_from:
                continue
            violations += _compare(f"index {index.name}", expected, found)
    return violations


def _global_span(code: int) -> tuple[bytes, bytes]:
    prefix = tuples.encode((code,))
    return prefix, tuples.successor(prefix)


def _has_code(key: bytes, code: int) -> bool:
    return code > LOCAL_INDEX_BASE and code in [e for e in tuples.decode(key) if type(e) is int]


def _compare(what: str, expected: Stored, found: Stored) -> list[Violation]:
    missing = sorted(expected.keys() - found.keys())
    orphans = sorted(found.keys() - expected.keys())
    wrong = sorted(k for k in expected.keys() & found.keys() if expected[k] != found[k])
    if not (missing or orphans or wrong):
        return []
    message = f"{what} lacks {missing[:3]}, has {orphans[:3]} without rows and wrong values at {wrong[:3]}"
    return [Violation(INDEXES, message)]


async def check_consistency(conn: f1.aio.Connection) -> list[Violation]:
    """Check with ``f1 check`` that the database is consistent with its schema."""
    result = await check_database(conn.session, examples=3)
    return [
        Violation(CONSISTENCY, f"{g.count} times {g.kind} in {g.table} {g.element}, such as {g.examples}")
        for g in result.findings
    ]


State = dict[tuple[str, tuple[Any, ...]], dict[str, Any]]


async def check_history(conn: f1.aio.Connection, tables: Mapping[str, Table]) -> list[Violation]:
    """Check that the change history of every root table, read in pages, replays to the rows at its end."""
    violations: list[Violation] = []
    for root in ROOTS:
        state: State = {}
        after_ts = 0
        while True:
            batches, resolved = await conn.read_changes(root, after_ts=after_ts, limit=_PAGE)
            for batch in batches:
                if not after_ts < batch.commit_ts <= resolved:
                    violations.append(Violation(HISTORY, f"a batch of {batch.commit_ts} came after {after_ts}"))
                for change in batch.changes:
                    violations += _apply(state, change, tables[change.table])
            after_ts = resolved
            if not batches:
                break
        violations += await _against_rows(conn, root, state, tables, after_ts)
    return violations


def _apply(state: State, change: f1.Change, table: Table) -> list[Violation]:
    """Apply a change. What a schema change fills is no change of anybody's: columns that come and go are left out."""
    place = (change.table, change.key)
    before = state.get(place)
    lasting = {column.name for column in table.columns}
    wrong = (before is None) != (change.kind == "INSERT")
    if before is not None and any(before.get(n) != value for n, value in change.before.items() if n in lasting):
        wrong = True
    if change.kind == "DELETE":
        state.pop(place, None)
    else:
        state[place] = {**(before or {}), **{n: value for n, value in change.after.items() if n in lasting}}
    return [Violation(HISTORY, f"{change} does not follow {before}")] if wrong else []


async def _against_rows(
    conn: f1.aio.Connection, root: str, state: State, tables: Mapping[str, Table], ts: int
) -> list[Violation]:
    found: State = {}
    async with conn.transaction("snapshot", timestamp=ts) as tx:
        for name, table in tables.items():
            if name != root and not (table.parent_id and root == "Dir"):
                continue
            for row in await tx.read(name):
                key = tuple(row[c.name] for c in table.key_columns)
                rest = {k: v for k, v in row.items() if k not in {c.name for c in table.key_columns}}
                found[name, key] = {k: v for k, v in rest.items() if v is not None}
    replayed = {
        place: {k: v for k, v in row.items() if v is not None and k not in _key_names(tables[place[0]])}
        for place, row in state.items()
    }
    if replayed == found:
        return []
    differing = sorted(
        (place for place in replayed.keys() | found.keys() if replayed.get(place) != found.get(place)), key=repr
    )
    first = differing[0]
    message = f"at {ts} the history of {root} gives {replayed.get(first)} for {first}, there is {found.get(first)}"
    return [Violation(HISTORY, message)]


def _key_names(table: Table) -> set[str]:
    return {column.name for column in table.key_columns}
