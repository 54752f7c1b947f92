"""Rows become Arrow without loss: every type, NULLs, whatever the calendar or the scale (DESIGN: rows, scans)."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from f1common.encoding.row import THIS_VERSION, Cell, Date, Timestamp, encode_row
from f1common.errors import Code, F1Error
from spanstore.scan.plan import Column, ColumnType, Operator, Predicate, Source
from tests.unit.scan.store import VALUES, engine_with, expected, key, physical, plan, steps_of, table_of

KINDS = list(ColumnType)


@st.composite
def stored_rows(draw: st.DrawFn) -> list[dict[int, Cell]]:
    """Rows with a cell of each type, NULL or missing here and there; the column id is the type's position."""
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        cells: dict[int, Cell] = {}
        for number, kind in enumerate(KINDS):
            if draw(st.integers(0, 5)):
                cells[number] = draw(st.one_of(st.none(), VALUES[kind]))
        rows.append(cells)
    return rows


@given(stored_rows(), st.integers(0, 3))
def test_cells_of_all_types_come_as_they_are_stored(rows: list[dict[int, Cell]], batch_rows: int) -> None:
    engine = engine_with((key(1, i), 10 + i, encode_row(cells)) for i, cells in enumerate(rows))
    columns = [Column(kind.value, kind, Source.CELL, number) for number, kind in enumerate(KINDS)]
    table = table_of(steps_of(engine, plan(columns, batch_rows=batch_rows)))
    assert table.num_rows == len(rows)
    for number, kind in enumerate(KINDS):
        assert physical(table.column(number), kind) == [expected(cells.get(number), kind) for cells in rows]


@given(st.data())
def test_key_parts_of_all_types_come_canonical(data: st.DataObject) -> None:
    kinds = [kind for kind in KINDS if kind is not ColumnType.PROTO]
    parts = [data.draw(st.one_of(st.none(), VALUES[kind])) for kind in kinds]
    engine = engine_with([(key(*parts), 10, b"\x80")])  # type: ignore[arg-type]
    columns = [Column(kind.value, kind, Source.KEY_PART, position) for position, kind in enumerate(kinds)]
    columns.append(Column("beyond", ColumnType.INT64, Source.KEY_PART, len(kinds)))
    table = table_of(steps_of(engine, plan(columns)))
    for position, kind in enumerate(kinds):
        # Keys know no negative zero.
        part = 0.0 if parts[position] == 0.0 and kind is ColumnType.DOUBLE else parts[position]
        assert physical(table.column(position), kind) == [expected(part, kind)]
    assert table.column("beyond").to_pylist() == [None]


def test_the_arrow_types_are_those_that_are_promised() -> None:
    columns = [Column(kind.value, kind, Source.CELL, number) for number, kind in enumerate(KINDS)]
    schema = table_of(steps_of(engine_with([]), plan(columns))).schema
    assert {field.name: str(field.type) for field in schema} == {
        "BOOL": "bool",
        "INT64": "int64",
        "DOUBLE": "double",
        "NUMERIC": "decimal128(38, 9)",
        "STRING": "string",
        "BYTES": "binary",
        "DATE": "date32[day]",
        "TIMESTAMP": "timestamp[us, tz=UTC]",
        "PROTO": "binary",
    }


def test_this_versions_timestamp_is_filled_in_and_other_stamps_are_kept() -> None:
    rows: list[Cell] = [THIS_VERSION, Timestamp(-5), None, THIS_VERSION]
    engine = engine_with((key(i), 100 + i, encode_row({7: cell})) for i, cell in enumerate(rows))
    columns = [
        Column("lock", ColumnType.TIMESTAMP, Source.CELL, 7),
        Column("v", ColumnType.TIMESTAMP, Source.VERSION_TS),
    ]
    table = table_of(steps_of(engine, plan(columns)))
    assert physical(table.column("lock"), ColumnType.TIMESTAMP) == [100, -5, None, 103]
    assert physical(table.column("v"), ColumnType.TIMESTAMP) == [100, 101, 102, 103]


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (ColumnType.INT64, True),
        (ColumnType.BOOL, 1),
        (ColumnType.DOUBLE, 1),
        (ColumnType.NUMERIC, 1),
        (ColumnType.INT64, Decimal(1)),
        (ColumnType.STRING, b"x"),
        (ColumnType.BYTES, "x"),
        (ColumnType.DATE, Timestamp(1)),
        (ColumnType.TIMESTAMP, Date(1)),
        (ColumnType.INT64, THIS_VERSION),
    ],
)
def test_a_cell_of_another_type_is_refused_and_named(kind: ColumnType, cell: Cell) -> None:
    engine = engine_with([(key(1), 10, encode_row({4: None})), (key(2), 10, encode_row({4: cell}))])
    with pytest.raises(F1Error) as caught:
        steps_of(engine, plan([Column("c", kind, Source.CELL, 4)]))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert key(2).hex() in caught.value.message


def test_a_value_that_is_no_row_is_refused_but_only_for_who_looks_into_it() -> None:
    engine = engine_with([(key(1), 10, b"no row")])
    with pytest.raises(F1Error) as caught:
        steps_of(engine, plan([Column("c", ColumnType.INT64, Source.CELL, 4)]))
    assert caught.value.code is Code.INVALID_ARGUMENT
    raw = table_of(steps_of(engine, plan([Column("v", ColumnType.BYTES, Source.RAW_VALUE)])))
    assert raw.to_pydict() == {"v": [b"no row"]}


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (ColumnType.NUMERIC, Ext(2, b"\x0a\x01")),
        (ColumnType.DATE, Ext(3, b"\x01")),
        (ColumnType.TIMESTAMP, Ext(4, b"\x7f" + b"\xff" * 7)),
        (ColumnType.INT64, Ext(2, b"")),
    ],
)
def test_a_cell_that_cannot_be_read_is_refused_but_only_for_who_looks_at_it(kind: ColumnType, cell: Cell) -> None:
    engine = engine_with([(key(1), 10, encode_row({4: cell, 5: 7}))])
    with pytest.raises(F1Error) as caught:
        steps_of(engine, plan([Column("c", kind, Source.CELL, 4)]))
    assert caught.value.code is Code.INVALID_ARGUMENT
    beside = table_of(steps_of(engine, plan([Column("d", ColumnType.INT64, Source.CELL, 5)])))
    assert beside.to_pydict() == {"d": [7]}


def test_rows_are_counted_even_without_columns() -> None:
    engine = engine_with((key(i), 10, encode_row({1: i})) for i in range(5))
    assert [step.rows for step in steps_of(engine, plan([], batch_rows=2))] == [0, 2, 2, 1]


def test_where_no_row_is_selected_no_column_has_values() -> None:
    moment, number = Timestamp(5), Decimal(5)
    engine = engine_with((key(i, moment), 10, encode_row({1: i, 2: number, 3: moment})) for i in range(5))
    columns = [
        Column("tested", ColumnType.INT64, Source.CELL, 1),
        Column("part", ColumnType.INT64, Source.KEY_PART, 0),
        Column("moment", ColumnType.TIMESTAMP, Source.KEY_PART, 1),
        Column("number", ColumnType.NUMERIC, Source.CELL, 2),
        Column("cell", ColumnType.TIMESTAMP, Source.CELL, 3),
    ]
    steps = steps_of(engine, plan(columns, predicates=(Predicate(0, Operator.GT, (key(9),)),)))
    assert [step.rows for step in steps] == [0, 0]
    assert steps[-1].last


def test_columns_that_are_not_tested_are_built_for_the_selected_rows_alone() -> None:
    # The cell of the row that is not selected has the wrong type, and nobody minds.
    rows: list[tuple[int, Cell]] = [(1, "good"), (2, 5), (3, "fine")]
    engine = engine_with((key(i), 10, encode_row({1: i, 2: cell})) for i, cell in rows)
    columns = [Column("i", ColumnType.INT64, Source.CELL, 1), Column("s", ColumnType.STRING, Source.CELL, 2)]
    wanted = plan(columns, predicates=(Predicate(0, Operator.NE, (key(2),)),))
    assert table_of(steps_of(engine, wanted)).to_pydict() == {"i": [1, 3], "s": ["good", "fine"]}


def test_columns_may_share_a_name_and_a_source() -> None:
    engine = engine_with([(key(1), 10, encode_row({1: 5}))])
    columns = [Column("x", ColumnType.INT64, Source.CELL, 1), Column("x", ColumnType.INT64, Source.KEY_PART, 0)]
    table = table_of(steps_of(engine, plan(columns)))
    assert [table.column(0).to_pylist(), table.column(1).to_pylist()] == [[5], [1]]
    assert isinstance(table, pa.Table)
