"""Rows that are planned by columns get the plan, byte for byte, that the write planner makes of them one by one."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from f1common.encoding.columns import join_rows, pieces_of
from f1common.encoding.row import encode_row
from f1common.encoding.values import Date, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ColumnType, ElementState, Index, IndexPart, Kind, Schema, Table
from f1server.rows.arrow import to_arrow
from f1server.rows.columns import ColumnBatch, RowWrites, plan_rows
from f1server.rows.planner import WritePlanner
from f1server.rows.values import Value
from spanstore.client import Version, Write
from tests.amounts import examples

TYPES = {
    21: ColumnType(Kind.INT64),
    22: ColumnType(Kind.STRING),
    23: ColumnType(Kind.STRING, max_length=3),
    24: ColumnType(Kind.NUMERIC),
    25: ColumnType(Kind.NUMERIC, precision=5, scale=2),
    26: ColumnType(Kind.DOUBLE),
    27: ColumnType(Kind.BOOL),
    28: ColumnType(Kind.BYTES),
    29: ColumnType(Kind.DATE),
    30: ColumnType(Kind.TIMESTAMP),
    # With these a row has more cells than fit into the shortest head of a map.
    **{i: ColumnType(Kind.INT64) for i in range(31, 40)},
}
INTS = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1))
CENTS = st.one_of(st.integers(-(10**5), 10**5), st.integers(-(10**28), 10**28)).map(lambda n: Decimal(n).scaleb(-2))
VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    Kind.INT64: INTS,
    Kind.STRING: st.one_of(st.sampled_from(["", "a", "\0\1", "éé", "abc", "a  "]), st.text(max_size=5)),
    Kind.NUMERIC: st.one_of(CENTS, CENTS, st.just(Decimal("0.000000001"))),
    Kind.DOUBLE: st.one_of(st.sampled_from([0.0, -0.0, math.nan, math.inf]), st.floats()),
    Kind.BOOL: st.booleans(),
    Kind.BYTES: st.binary(max_size=40),
    Kind.DATE: st.integers(-(2**20), 2**20).map(Date),
    Kind.TIMESTAMP: st.integers(-(2**60), 2**60).map(Timestamp),
}
KEY_KINDS = [Kind.INT64, Kind.STRING, Kind.NUMERIC, Kind.DOUBLE, Kind.DATE, Kind.BYTES]


@st.composite
def indexes(draw: st.DrawFn, keys: tuple[Column, ...], columns: tuple[Column, ...]) -> tuple[Index, ...]:
    """Indexes of a table below a root with one key column; a local one begins with that."""
    found = []
    for number in range(draw(st.integers(0, 2))):
        local = len(keys) > 1 and draw(st.booleans())
        some = st.sampled_from([column.id for column in (*keys[local:], *columns)])
        parts = draw(st.lists(some, unique=True, min_size=0 if local else 1, max_size=3))
        found.append(
            Index(
                50 + number,
                f"I{number}",
                tuple(IndexPart(i) for i in ((keys[0].id,) if local else ()) + tuple(parts)),
                unique=draw(st.booleans()),
                local=local,
                storing=tuple(sorted(draw(st.lists(some, unique=True, max_size=2)))),
                state=draw(st.sampled_from([*[ElementState.PUBLIC] * 3, *list(ElementState)[1:]])),
            )
        )
    return tuple(found)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Table]:
    levels = draw(st.integers(1, 3))
    kinds = [draw(st.sampled_from(KEY_KINDS)) for _ in range(levels)]
    made: list[Table] = []
    for level in range(levels):
        keys = tuple(Column(11 + i, f"K{i}", ColumnType(kinds[i]), not_null=True) for i in range(level + 1))
        last = level == levels - 1
        chosen = draw(st.lists(st.sampled_from(sorted(TYPES)), unique=True)) if last else []
        rest = tuple(
            Column(i, f"C{i}", TYPES[i], not_null=draw(st.booleans()), untracked=draw(st.integers(0, 9)) == 0)
            for i in chosen
        )
        made.append(
            Table(
                level + 1,
                f"T{level}",
                level,
                columns=keys + rest,
                key_column_ids=tuple(c.id for c in keys),
                untracked=last and draw(st.integers(0, 4)) == 0,
                indexes=draw(indexes(keys, rest)) if last else (),
            )
        )
    return Schema("db", version=5, tables=tuple(made)), made[-1]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Schema, Table, ColumnBatch]:
    schema, table = draw(tables())
    count = draw(st.one_of(st.integers(1, 4), st.integers(18, 22)))
    arrays: dict[int, pa.Array] = {}
    for column in table.columns:
        if column.id not in table.key_column_ids and not column.not_null and draw(st.integers(0, 5)) == 0:
            continue  # not given
        of_kind = VALUES[column.type.kind]
        may_be_null = not column.not_null or draw(st.integers(0, 20)) == 0
        of_column = st.one_of(st.none(), of_kind) if may_be_null else of_kind
        values = draw(st.lists(of_column, min_size=count, max_size=count))
        arrays[column.id] = to_arrow(column.type, values)
    return schema, table, ColumnBatch(table.name, arrays, count, 5)


def one_by_one(schema: Schema, batch: ColumnBatch) -> list[Write]:
    """Return what the write planner makes of the rows; all parents are there, and none of the rows."""
    planner = WritePlanner(schema, list(RowWrites(batch)))
    while needs := planner.needs():
        found: dict[bytes, Version | None] = dict.fromkeys(needs.rows)
        found.update(dict.fromkeys(needs.shared_rows, Version(7, encode_row({}))))
        found.update(dict.fromkeys(needs.unique))
        planner.give(found)
    return planner.plan(b"commit id").writes


@settings(max_examples=examples(400), deadline=None)
@given(batches())
def test_the_plan_is_that_of_the_planner(made: tuple[Schema, Table, ColumnBatch]) -> None:
    schema, table, batch = made
    planned = plan_rows(schema, batch, b"commit id")
    event(f"{'by columns' if planned is not None else 'one by one'}, {'' if table.indexes else 'no '}index")
    if planned is None:
        return
    many = [planned.rows] if planned.history is None else [planned.rows, planned.history]
    writes = [*planned.entries.writes, *(write for puts in many for write in puts.writes())]
    assert sorted(writes, key=lambda write: write.key) == one_by_one(schema, batch)
    assert all(list(puts.keys) == sorted(puts.keys) for puts in many)
    assert [puts.absent for puts in many] == [True, False][: len(many)]
    planner = WritePlanner(schema, list(RowWrites(batch)))
    assert planned.parents == sorted(planner.needs().shared_rows)
    assert sorted(planned.entries.alone) == sorted(planner.needs().unique)


def plain(**more: Any) -> tuple[Schema, ColumnBatch]:
    """Return a table of two columns, with what is said of it, and three rows for it."""
    columns = more.pop("columns", (Column(11, "Id", TYPES[21], not_null=True), Column(25, "N", TYPES[25])))
    table = Table(1, "T", 0, columns=columns, key_column_ids=(11,), **more)
    arrays = {11: pa.array([3, 1, 2]), 25: to_arrow(TYPES[25], [Decimal("1.5"), None, Decimal("-999.99")])}
    return Schema("db", version=5, tables=(table,)), ColumnBatch("t", arrays, 3, 5)


def test_rows_of_a_plain_table_are_planned_by_columns() -> None:
    schema, batch = plain()
    planned = plan_rows(schema, batch, b"id")
    assert planned is not None
    assert planned.history is not None
    assert len(planned.rows) == len(planned.history) == 3


@pytest.mark.parametrize(
    "arrays",
    [
        {11: pa.array([3, 1, 3])},
        {11: pa.array([3, 1, None])},
        {25: to_arrow(TYPES[24], [Decimal("1.555"), None, None])},
        {25: to_arrow(TYPES[24], [Decimal(1000), None, None])},
        {25: pa.array(["1.5", None, None])},
        {25: pa.array([1, 2, 3])},
        {99: pa.array([1, 2, 3])},
    ],
    ids=["a key twice", "no key", "to be rounded", "too large", "a text", "a number of another type", "no such column"],
)
def test_what_must_be_looked_at_is_looked_at_one_by_one(arrays: dict[int, pa.Array]) -> None:
    schema, batch = plain()
    assert plan_rows(schema, ColumnBatch("T", {**batch.columns, **arrays}, 3, 5), b"id") is None


def test_columns_that_are_not_given_and_need_a_value() -> None:
    key = Column(11, "Id", TYPES[21], not_null=True)
    for missing in (
        Column(40, "M", TYPES[21], not_null=True),
        Column(40, "M", TYPES[21], default_sql="7"),
        Column(40, "M", TYPES[21], not_null=True, default_sql="7", state=ElementState.WRITE_ONLY),
    ):
        schema, batch = plain(columns=(key, Column(25, "N", TYPES[25]), missing))
        assert plan_rows(schema, batch, b"id") is None


def test_pieces_of_other_arrays_and_of_values_out_of_range_are_refused() -> None:
    for array in (pa.array([1], pa.int32()), pa.array([[1]]), pa.array([1], pa.timestamp("ns"))):
        with pytest.raises(F1Error) as refused:
            pieces_of(1, array)
        assert refused.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(F1Error) as refused:
        pieces_of(1, pa.array([2**63 - 1]).cast(pa.timestamp("us")))
    assert refused.value.code is Code.OUT_OF_RANGE
    with pytest.raises(F1Error):
        pieces_of(-1, pa.array([1]))
    assert join_rows([], 2) == [encode_row({})] * 2


@pytest.mark.parametrize(
    ("value", "by_columns"), [("1.55", True), ("-999.99", True), ("1.555", False), ("1000", False)]
)
@pytest.mark.parametrize("in_key", [False, True])
def test_numbers_that_do_not_fit_their_column_are_looked_at(value: str, by_columns: bool, in_key: bool) -> None:
    columns = (Column(11, "Id", TYPES[25] if in_key else TYPES[21], not_null=True), Column(25, "N", TYPES[25]))
    schema = Schema("db", version=5, tables=(Table(1, "T", 0, columns=columns, key_column_ids=(11,)),))
    number = to_arrow(TYPES[25], [Decimal(value)])
    arrays = {11: number if in_key else pa.array([1]), 25: to_arrow(TYPES[25], [None]) if in_key else number}
    planned = plan_rows(schema, ColumnBatch("T", arrays, 1, 5), b"id")
    assert (planned is not None) == (value in ("1.55", "-999.99"))
