"""A single write is planned, or refused, as the write planner does; a blind one leaves what the planner would leave."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import structs

from f1common.encoding.row import Cell, Marker, decode_row, encode_row
from f1common.encoding.values import Timestamp
from f1common.errors import F1Error
from f1server.catalog.schema import (
    Check,
    Column,
    ColumnType,
    ElementState,
    ForeignKey,
    Index,
    IndexPart,
    Kind,
    LockColumn,
    Schema,
    Table,
)
from f1server.rows.keys import row_key
from f1server.rows.locks import lock_value
from f1server.rows.planner import Plan, WritePlanner
from f1server.rows.single import single_write
from f1server.rows.writes import LogicalWrite, WriteKind
from spanstore.client import Version
from spanstore.mvcc.placeholders import fill
from tests.amounts import examples

OLD_TS, NEW_TS = 1_000, 2_000
STATES = [ElementState.PUBLIC] * 12 + [ElementState.WRITE_ONLY, ElementState.DELETE_ONLY]
INTS, TEXTS = st.integers(-3, 300), st.sampled_from(["", "a", "é", "long enough"])


def column(number: int, kind: Kind = Kind.INT64, **more: Any) -> Column:
    return Column(number, f"C{number}", ColumnType(kind), **more)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = [column(11, not_null=True)]
    for number in range(12, 12 + draw(st.integers(0, 3))):
        kind = draw(st.sampled_from([Kind.INT64, Kind.STRING]))
        more = {"state": draw(st.sampled_from(STATES)), "untracked": draw(st.booleans())}
        columns.append(column(number, kind, not_null=draw(st.integers(0, 4)) == 4, **more))
    ids = [c.id for c in columns[1:]]
    locks: tuple[LockColumn, ...] = ()
    if ids and draw(st.integers(0, 3)) == 0:
        locks = (LockColumn(19, "L", tuple(ids[:1]), draw(st.sampled_from(STATES))),)
    return Table(1, "Root", 0, tuple(columns), (11,), locks=locks, untracked=draw(st.booleans()))


def value(kind: Kind) -> st.SearchStrategy[Any]:
    return st.none() | (TEXTS if kind is Kind.STRING else INTS)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, LogicalWrite, Version | None]:
    root = draw(tables())
    below = Table(2, "Below", 1, (column(21, not_null=True), column(22, not_null=True), column(23)), (21, 22))
    schema = Schema("default", 1, (root, below) if draw(st.booleans()) else (root,))
    table, key = (below, {21: 1, 22: 5}) if len(schema.tables) > 1 and draw(st.booleans()) else (root, {11: 1})
    columns = {
        c.id: draw(value(c.type.kind)) for c in table.columns if c.id not in key and draw(st.sampled_from([1, 1, 1, 0]))
    }
    write = LogicalWrite(
        draw(st.sampled_from([*WriteKind, WriteKind.UPSERT, WriteKind.UPSERT])),
        table.name,
        key,
        columns,
        must_exist=draw(st.booleans()),
    )
    return schema, write, draw(versions(table))


@st.composite
def versions(draw: st.DrawFn, table: Table) -> Version | None:
    if draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from([None, Version(OLD_TS, None)]))
    cells: dict[int, Cell] = {}
    for c in table.columns:
        if c.id not in table.key_column_ids and (found := draw(value(c.type.kind))) is not None:
            cells[c.id] = found
    if table.locks:
        for lock in (0, 19):
            stamps = st.sampled_from([None, Timestamp(500), Marker.THIS_VERSION])
            if (stamp := draw(stamps)) is not None:
                cells[lock] = stamp
    return Version(OLD_TS, encode_row(cells))


def by_planner(schema: Schema, write: LogicalWrite, version: Version | None) -> Plan:
    planner = WritePlanner(schema, [write])
    parent = row_key(schema, schema.table("Root"), (1,))
    while needs := planner.needs():
        found = dict.fromkeys(needs.rows | needs.shared_rows, version)
        planner.give(
            {**found, **({parent: Version(OLD_TS, b"\x80")} if parent in needs.shared_rows else {})},
            dict.fromkeys(needs.ranges, ()),
        )
    return planner.plan(b"id")


def outcome(work: Any, *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except F1Error as error:
        return error.code, error.message, dict(error.details)


@settings(max_examples=examples(600), deadline=None)
@given(cases())
def test_it_plans_what_the_planner_plans(case: tuple[Schema, LogicalWrite, Version | None]) -> None:
    schema, write, version = case
    expected = outcome(by_planner, schema, write, version)
    single = outcome(single_write, schema, [write])
    if isinstance(single, tuple):
        assert single == expected
        event("refused before anything was read")
        return
    if single is None:
        assert write.kind is WriteKind.DELETE and len(schema.tables) > 1
        return
    found = outcome(single.plan, version, b"id")
    if found is None:
        assert write.table == "Below" and write.kind in (WriteKind.INSERT, WriteKind.UPSERT)
        return
    if not single.is_blind:
        assert found == expected
        return
    event("blind")
    assert after(schema, write, found) == after(schema, write, expected)
    assert not found.change_batches and not expected.change_batches


def after(schema: Schema, write: LogicalWrite, plan: Plan) -> tuple[Any, int, int]:
    """Return the cells that a reader finds, when the row changed last, and how many rows were affected."""
    table = schema.table(write.table)
    (only,) = plan.writes
    _, data = fill(only.key, None, only.value, only.value_offsets, NEW_TS)
    cells = decode_row(data or b"")
    return {i: cells[i] for i in cells if i in table.by_id}, lock_value(table, cells, NEW_TS), plan.rows_affected


PLAIN = Table(1, "Root", 0, (column(11, not_null=True), column(12), column(13)), (11,), untracked=True)
OTHER = Table(2, "Other", 0, (column(21, not_null=True), column(22)), (21,))


def upsert(**columns: Any) -> LogicalWrite:
    return LogicalWrite(WriteKind.UPSERT, "Root", {11: 1}, {int(name[1:]): v for name, v in columns.items()})


def test_what_gives_all_columns_of_a_table_without_history_is_blind() -> None:
    def blind(table: Table, write: LogicalWrite) -> bool:
        single = single_write(Schema("default", 1, (table,)), [write])
        return single is not None and single.is_blind

    assert blind(PLAIN, upsert(C12=1, C13=None))
    assert not blind(PLAIN, upsert(C12=1))
    assert not blind(replace(PLAIN, columns=PLAIN.columns[:1]), upsert())
    assert not blind(PLAIN, structs.replace(upsert(C12=1, C13=1), kind=WriteKind.UPDATE))
    assert not blind(replace(PLAIN, untracked=False), upsert(C12=1, C13=1))
    assert not blind(replace(PLAIN, locks=(LockColumn(19, "L", (12,)),)), upsert(C12=1, C13=1))
    leaving = (*PLAIN.columns[:2], replace(PLAIN.columns[2], state=ElementState.WRITE_ONLY))
    assert not blind(replace(PLAIN, columns=leaving), upsert(C12=1, C13=1))


@pytest.mark.parametrize(
    "others",
    [
        (replace(PLAIN, indexes=(Index(9, "I", (IndexPart(12),), state=ElementState.DELETE_ONLY),)), OTHER),
        (replace(PLAIN, foreign_keys=(ForeignKey(9, "F", (12,), 2, (21,)),)), OTHER),
        (PLAIN, replace(OTHER, foreign_keys=(ForeignKey(9, "F", (22,), 1, (11,)),))),
        (replace(PLAIN, checks=(Check(9, "P", "C12 > 0"),)), OTHER),
        (PLAIN, replace(OTHER, mirror_of=1)),
    ],
)
def test_what_other_rows_depend_on_is_for_the_planner(others: Sequence[Table]) -> None:
    assert single_write(Schema("default", 1, (PLAIN, OTHER)), [upsert(C12=1)]) is not None
    assert single_write(Schema("default", 1, tuple(others)), [upsert(C12=1)]) is None
    assert single_write(Schema("default", 1, (PLAIN, OTHER)), [upsert(C12=1)] * 2) is None
