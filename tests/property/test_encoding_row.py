"""The row codec: cells come back as they were, whoever writes them and whatever else is in the row."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from f1common.encoding.row import (
    COMMIT_TS,
    COMMIT_TS_WIDTH,
    MAX_COLUMN_ID,
    THIS_VERSION,
    Cell,
    Date,
    StoredCell,
    Timestamp,
    decode_row,
    decode_stored,
    encode_row,
    encode_row_with_placeholders,
    fill_commit_ts,
    patch_row,
    patch_row_with_placeholders,
    pin_this_version,
    read_cell,
    stored_days,
    stored_units,
    stored_us,
)
from f1common.encoding.values import TIMESTAMP_MAX, TIMESTAMP_MIN, numeric_units
from f1common.errors import Code, F1Error
from tests.amounts import examples

Row = dict[int, Cell]

columns = st.one_of(st.integers(0, 40), st.integers(0, MAX_COLUMN_ID))
timestamps = st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX)
cells: st.SearchStrategy[Cell] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.decimals(min_value=-(10**28), max_value=10**28, places=9),
    st.builds(lambda n, scale: Decimal(n).scaleb(-scale), st.integers(-(10**20), 10**20), st.integers(0, 9)),
    st.text(max_size=40),
    st.binary(max_size=300),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Date),
    timestamps.map(Timestamp),
    st.just(THIS_VERSION),
)
rows: st.SearchStrategy[Row] = st.dictionaries(columns, cells, max_size=20)


def exact(cell: Cell) -> tuple[str, object]:
    """A form in which cells are equal only if nothing of them was lost."""
    match cell:
        case float():
            return "float", "nan" if math.isnan(cell) else cell.hex()
        case Decimal():
            return "decimal", "0" if not cell else str(cell.as_tuple())
        case Ext():
            return "ext", (cell.code, bytes(cell.data))
        case _:
            return type(cell).__name__, cell


WRONG = "another type"


def quickly(read: Callable[[StoredCell], int | None], cell: StoredCell) -> int | str | None:
    try:
        return read(cell)
    except ValueError:
        return WRONG


def read_all(row: dict[int, StoredCell]) -> Row:
    return {column: read_cell(cell) for column, cell in row.items()}


def same(a: Row, b: Row) -> bool:
    return {column: exact(cell) for column, cell in a.items()} == {column: exact(cell) for column, cell in b.items()}


@settings(max_examples=examples(500))
@given(rows)
def test_cells_come_back_exactly(row: Row) -> None:
    assert same(decode_row(encode_row(row)), row)


@settings(max_examples=examples(500))
@given(st.lists(rows, max_size=4), timestamps)
def test_cells_that_are_read_one_by_one_are_those_of_the_whole_row(several: list[Row], ts: int) -> None:
    for row, stored in zip(several, decode_stored([encode_row(row) for row in several]), strict=True):
        assert same(read_all(stored), row)
        for column, cell in stored.items():
            whole = row[column]
            other = None if whole is None else WRONG
            units = numeric_units(whole) if isinstance(whole, Decimal) else other
            days = whole.days if isinstance(whole, Date) else other
            us = ts if whole is THIS_VERSION else whole.us if isinstance(whole, Timestamp) else other
            assert [quickly(stored_units, cell), quickly(stored_days, cell)] == [units, days]
            assert quickly(lambda found: stored_us(found, ts), cell) == us


@given(rows)
def test_the_order_in_which_cells_were_set_leaves_no_trace(row: Row) -> None:
    assert encode_row(dict(reversed(row.items()))) == encode_row(row)


@settings(max_examples=examples(500))
@given(rows, rows, st.sets(columns))
def test_a_patch_is_a_decode_a_change_and_an_encode(row: Row, changes: Row, drop: set[int]) -> None:
    expected = {column: cell for column, cell in row.items() if column not in drop} | changes
    assert patch_row(encode_row(row), changes, drop) == encode_row(expected)


@given(rows, st.integers(5, 127), st.binary(max_size=40))
def test_cells_of_later_types_survive_readers_and_writers_that_do_not_know_them(
    row: Row, code: int, payload: bytes
) -> None:
    row[7] = Ext(code, payload)
    data = encode_row(row)
    decoded = decode_row(data)
    assert same(decoded, row)
    assert encode_row(decoded) == data
    assert exact(decode_row(patch_row(data, {8: 1}))[7]) == ("ext", (code, payload))


@settings(max_examples=examples(300))
@given(rows, st.sets(columns, min_size=1, max_size=4), timestamps, st.integers(0, 70_000))
def test_places_for_the_commit_timestamp_are_where_they_are_said_to_be(
    row: Row, places: set[int], ts: int, size: int
) -> None:
    row[0] = b"\xd7\x04\x7f\xff\xff\xff\xff\xff\xff\xff" + bytes(size)  # looks like such a place and is none
    for column in places - {0}:
        row[column] = COMMIT_TS
    expected = {column: Timestamp(ts) if cell is COMMIT_TS else cell for column, cell in row.items()}
    data, offsets = encode_row_with_placeholders(row)
    assert len(offsets) == len(places - {0})
    assert fill_commit_ts(data, offsets, ts) == encode_row(expected)
    by_hand = bytearray(data)
    for offset in offsets:
        by_hand[offset : offset + COMMIT_TS_WIDTH] = ts.to_bytes(8, "big", signed=True)
    assert bytes(by_hand) == encode_row(expected)


@given(rows, rows, st.sets(columns, min_size=1, max_size=3))
def test_a_patch_reports_places_too(row: Row, changes: Row, places: set[int]) -> None:
    changes |= dict.fromkeys(places, COMMIT_TS)
    patched = patch_row_with_placeholders(encode_row(row), changes)
    assert patched == encode_row_with_placeholders(row | changes)


@pytest.mark.parametrize("count", [0, 15, 16, 0xFFFF, 0x10000])
def test_rows_of_any_number_of_cells_are_framed_alike(count: int) -> None:
    row: Row = dict.fromkeys(range(count), True)
    assert encode_row_with_placeholders(row) == (encode_row(row), ())


def test_places_cannot_be_forgotten() -> None:
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        encode_row({1: COMMIT_TS})
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        patch_row(b"\x80", {1: COMMIT_TS})
    data, offsets = encode_row_with_placeholders({1: COMMIT_TS})
    with pytest.raises(F1Error, match=r"DATA_CORRUPTION.*never filled in"):
        decode_row(data)
    filled = fill_commit_ts(data, offsets, 5)
    assert decode_row(filled) == {1: Timestamp(5)}
    for bytes_of_row, offset in ((filled, offsets[0]), (data, 0), (data, 99), (data, -8)):
        with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
            fill_commit_ts(bytes_of_row, [offset], 5)
    with pytest.raises(F1Error, match="OUT_OF_RANGE"):
        fill_commit_ts(data, offsets, TIMESTAMP_MAX + 1)


@given(rows, timestamps)
def test_this_versions_locks_are_pinned_when_a_row_is_carried_over(row: Row, ts: int) -> None:
    pinned = pin_this_version(decode_row(encode_row(row)), ts)
    assert same(pinned, {column: Timestamp(ts) if cell is THIS_VERSION else cell for column, cell in row.items()})


@settings(max_examples=examples(500))
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_data_corruption(data: bytes) -> None:
    for read in (decode_row, lambda row: patch_row(row, {1: 2}), lambda row: [*map(read_all, decode_stored([row]))]):
        try:
            read(data)
        except F1Error as error:
            assert error.code is Code.DATA_CORRUPTION


@settings(max_examples=examples(500))
@given(rows.filter(bool), st.data())
def test_a_damaged_row_decodes_to_cells_or_is_refused(row: Row, data: st.DataObject) -> None:
    damaged = bytearray(encode_row(row))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_row(bytes(damaged))
    except F1Error as error:
        assert error.code is Code.DATA_CORRUPTION
    else:
        for cell in decoded.values():
            assert cell is None or isinstance(
                cell, bool | int | float | str | bytes | Decimal | Date | Timestamp | Ext | type(THIS_VERSION)
            )


@pytest.mark.parametrize(
    "wire",
    [
        {1: [1]},
        {1: {}},
        {-1: 1},
        {MAX_COLUMN_ID + 1: 1},
        {"a": 1},
        [1],
        5,
        {1: Ext(1, b"x")},
        {1: Ext(2, b"\x00")},
        {1: Ext(2, b"\x0a\x01")},
        {1: Ext(2, b"\x00" + (10**29).to_bytes(16, "big"))},
        {1: Ext(3, b"\x00")},
        {1: Ext(4, b"\x00" * 7)},
        {1: Ext(-1, b"\x00" * 4)},
    ],
)
def test_msgpack_that_is_no_row_is_refused(wire: object) -> None:
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        decode_row(msgspec.msgpack.encode(wire))


def test_deep_nesting_is_refused() -> None:
    for read in (decode_row, lambda row: patch_row(row, {})):
        with pytest.raises(F1Error, match="DATA_CORRUPTION"):
            read(b"\x81\x01" + b"\x91" * 100_000)


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        (1 << 63, Code.OUT_OF_RANGE),
        (-(1 << 63) - 1, Code.OUT_OF_RANGE),
        (Decimal("1E+29"), Code.OUT_OF_RANGE),
        (Decimal("0.0000000001"), Code.OUT_OF_RANGE),
        (Decimal("NaN"), Code.OUT_OF_RANGE),
        (Date(1 << 31), Code.OUT_OF_RANGE),
        (Timestamp(TIMESTAMP_MAX + 1), Code.OUT_OF_RANGE),
        ([1], Code.INVALID_ARGUMENT),
        ({}, Code.INVALID_ARGUMENT),
        (object(), Code.INVALID_ARGUMENT),
    ],
)
def test_what_no_cell_can_hold_is_refused(cell: Any, code: Code) -> None:
    with pytest.raises(F1Error) as caught:
        encode_row({1: cell})
    assert caught.value.code is code


@pytest.mark.parametrize("column", [-1, MAX_COLUMN_ID + 1])
def test_column_ids_have_a_range(column: int) -> None:
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        encode_row({column: 1})


def test_a_decimal_keeps_its_scale_but_no_exponent_and_no_sign_of_zero() -> None:
    row = decode_row(
        encode_row({1: Decimal("1.50"), 2: Decimal("1E+3"), 3: Decimal("-0.00"), 4: Decimal("1.0000000000")})
    )
    assert [str(cell) for cell in row.values()] == ["1.50", "1000", "0.00", "1.000000000"]
