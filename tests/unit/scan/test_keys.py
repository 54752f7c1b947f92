"""Rows of one table are found within a hierarchy, and seeking past the others never jumps over one."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error
from spanstore.engine.base import Reader
from spanstore.scan.cursor import ScanCursor
from spanstore.scan.keys import KeyFilter
from spanstore.scan.plan import KeyShape
from tests.unit.scan.store import engine_with, key, plan, rows_of, steps_of

# Few values, so that tables meet; text whose end is a zero byte, numbers of several lengths, TRUE beside 1.
elements: st.SearchStrategy[Value] = st.sampled_from([None, 1, 2, 3, 300, True, "", "a", "b", b"a"])
keys = st.lists(elements, min_size=1, max_size=5).map(tuple)
shapes = st.builds(
    lambda count, table, position: KeyShape(
        count, b"" if table is None else key(table), min(position, count - 1) if count else position
    ),
    st.integers(0, 5),
    elements,
    st.integers(0, 4),
)


def belongs(shape: KeyShape, parts: tuple[Value, ...]) -> bool:
    """Said in words of encoded elements."""
    if shape.elements and len(parts) != shape.elements:
        return False
    return not shape.table or (len(parts) > shape.position and key(parts[shape.position]) == shape.table)


@given(shapes, st.sets(keys, max_size=40))
def test_exactly_the_rows_of_the_table_match(shape: KeyShape, found: set[tuple[Value, ...]]) -> None:
    keys_of = KeyFilter(shape)
    assert keys_of.filters == bool(shape.elements or shape.table)
    for parts in found:
        assert keys_of.matches(tuples.encode(parts)) == belongs(shape, parts)


@pytest.mark.parametrize("broken", [b"\xd8a", b"\x9a\x01", b"\x99\x01" * 3])
def test_what_is_no_tuple_belongs_to_no_table(broken: bytes) -> None:
    """A text that never ends, and a number that breaks off: no element tells the table, or it is said."""
    assert not KeyFilter(KeyShape(1)).matches(broken)
    assert not KeyFilter(KeyShape(2)).matches(key(1) + broken)
    with pytest.raises(F1Error) as caught:
        KeyFilter(KeyShape(2, key(1), 0)).matches(key(1) + broken)
    assert caught.value.code is Code.INVALID_ARGUMENT


@given(shapes, st.lists(st.sets(keys, min_size=1, max_size=4), max_size=6))
def test_pages_of_keys_match_as_each_key_does(shape: KeyShape, pages: list[set[tuple[Value, ...]]]) -> None:
    keys_of = KeyFilter(shape)
    if keys_of.filters:
        for page in pages:
            if keys_of.all_match([tuples.encode(parts) for parts in page]):
                assert all(belongs(shape, parts) for parts in page)


def test_neighbours_are_recognised_by_their_sizes() -> None:
    shapes_of_three = [KeyShape(3), KeyShape(3, key(7), 0), KeyShape(3, more=((0, key(7)),))]
    for shape in shapes_of_three:
        keys_of = KeyFilter(shape)
        pages = [[key(7, at, line) for at in range(start, start + 90) for line in (1, 127)] for start in (200, 65_500)]
        assert all(map(keys_of.all_match, pages))
        assert not keys_of.all_match([*pages[0], key(7, 1)])
        assert not keys_of.all_match([*pages[0], key(7, 1, 2, 3)])
        assert not keys_of.all_match([*pages[0], key(7, 300, 2)[:-1]])
        assert keys_of.all_match([*pages[0], key(8, 300, 2)]) == (shape == shapes_of_three[0])
        assert keys_of.all_match(pages[0])


@given(shapes, st.lists(keys, min_size=1, max_size=60))
def test_a_seek_goes_forward_and_jumps_over_no_row(shape: KeyShape, found: list[tuple[Value, ...]]) -> None:
    keys_of = KeyFilter(shape)
    rows = sorted(set(map(tuples.encode, found)))
    for position, row in enumerate(rows):
        if keys_of.matches(row):
            continue
        candidate = keys_of.next_candidate(row)
        assert candidate > row
        for jumped in rows[position + 1 : bisect_right(rows, candidate)]:
            assert jumped == candidate or not keys_of.matches(jumped)


@given(shapes, st.sets(keys, max_size=60), st.integers(0, 5))
def test_a_scan_gives_the_rows_of_the_table(shape: KeyShape, found: set[tuple[Value, ...]], batch_rows: int) -> None:
    rows = {tuples.encode(parts): parts for parts in found}
    engine = engine_with((row, 10, b"x") for row in rows)
    got = [row for row, _, _ in rows_of(steps_of(engine, plan(shape=shape, batch_rows=batch_rows)))]
    assert got == sorted(row for row, parts in rows.items() if belongs(shape, parts))


class CountingReader:
    """A view that counts the items it gave."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.items = 0

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for item in self._reader.scan(start, end, reverse=reverse):
            self.items += 1
            yield item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


def test_many_rows_of_other_tables_are_passed_by_seeking() -> None:
    # Three customers with a thousand campaigns each, of which a scan of customers looks at a few.
    versions = [(key(1, customer), 10, b"x") for customer in range(3)]
    versions += [(key(1, customer, 2, campaign), 10, b"x") for customer in range(3) for campaign in range(1000)]
    engine = engine_with(versions)
    cursor = ScanCursor(plan(shape=KeyShape(2, key(1), 0)), lambda: 0)
    with engine.snapshot() as reader:
        counting = CountingReader(reader)
        step = cursor.step(cast(Reader, counting))
    assert step.rows == 3
    assert counting.items < 50


@pytest.mark.parametrize("shape", [KeyShape(2, key(1, 2), 0), KeyShape(2, b"\x00", 0), KeyShape(2, key(1), 2)])
def test_shapes_that_cannot_be(shape: KeyShape) -> None:
    with pytest.raises(F1Error) as caught:
        steps_of(engine_with([]), plan(shape=shape))
    assert caught.value.code is Code.INVALID_ARGUMENT
