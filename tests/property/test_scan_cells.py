"""Columns that are built many cells at a time are those that are built cell by cell, or are left to that."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from f1common.encoding.row import (
    THIS_VERSION,
    Date,
    StoredCell,
    Timestamp,
    decode_stored,
    encode_row,
    stored_days,
    stored_units,
    stored_us,
)
from spanstore.scan.arrow import dates, timestamps
from spanstore.scan.cells import numerics, stored_dates, stored_numerics, stored_timestamps
from tests.amounts import examples

digits = st.one_of(st.integers(-300, 300), st.integers(-(10**12), 10**12), st.integers(-(10**28), 10**28))
decimals = st.builds(lambda number, scale: Decimal(number).scaleb(-scale), digits, st.integers(0, 9))
whole = st.one_of(st.none(), decimals, st.builds(Date, st.integers(-700_000, 2_900_000)), st.just(THIS_VERSION))
moments = st.builds(Timestamp, st.integers(-(10**16), 10**17))
damaged = st.builds(Ext, st.integers(1, 5), st.binary(max_size=11))
mixed = st.one_of(whole, moments, damaged, st.sampled_from([1, "a", True]))
columns = st.one_of(
    st.lists(decimals, min_size=1, max_size=20),
    st.lists(st.one_of(st.none(), decimals), max_size=20),
    st.lists(st.one_of(st.none(), st.builds(Date, st.integers(-700_000, 2_900_000))), max_size=20),
    st.lists(st.one_of(st.none(), moments), max_size=20),
    st.lists(st.builds(Ext, st.just(2), st.binary(max_size=11)), max_size=5),
    st.lists(mixed, max_size=6),
)


def as_stored(cells: list[Any]) -> list[StoredCell]:
    return [row[1] for row in decode_stored([encode_row({1: cell}) for cell in cells])]


def cell_by_cell(build: Callable[[list[Any]], Any], read: Callable[[StoredCell], Any], cells: list[StoredCell]) -> Any:
    try:
        return build([read(cell) for cell in cells])
    except ValueError:
        return None


@settings(max_examples=examples(1000))
@given(columns)
@example([Decimal((1 << 63) - 1).scaleb(-9), Decimal(-(1 << 63)).scaleb(-9)])
@example([Decimal(9223372036), Decimal(-9223372036), None])
@example([Decimal(9223372037)])
@example([Ext(2, b"\x00\x80" + b"\x00" * 7)])
@example([Ext(2, b"\x0a\x01")])
@example([Ext(2, b"\x00"), Ext(2, b"\x00\x01")])
@example([Ext(4, b"\x7f" + b"\xff" * 7)])
def test_many_cells_at_a_time_are_what_they_are_one_by_one(cells: list[Any]) -> None:
    stored = as_stored(cells)
    at_once = [stored_numerics(stored), stored_dates(stored), stored_timestamps(stored)]
    one_by_one = [
        cell_by_cell(numerics, stored_units, stored),
        cell_by_cell(dates, stored_days, stored),
        cell_by_cell(timestamps, lambda cell: stored_us(cell, 7), stored),
    ]
    for found, expected in zip(at_once, one_by_one, strict=True):
        if found is not None:
            found.validate(full=True)
            assert expected is not None
            assert found.equals(expected)
    if cells and all(isinstance(cell, Decimal) and abs(cell) < 10**9 for cell in cells):
        assert at_once[0] is not None
    if cells and all(isinstance(cell, Date) for cell in cells):
        assert at_once[1] is not None
    if cells and all(isinstance(cell, Timestamp) for cell in cells):
        assert at_once[2] is not None
