"""How a table is divided for a walk."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1server.catalog.schema import Column, ColumnType, Kind, Schema, Table
from f1server.schemachange.work.partitions import Partition, at_roots, cuts_in, divided
from spanstore.client import Segment, Sketch, TableCount

SPAN = (b"\x10", b"\x20")
KEYS = st.binary(min_size=1, max_size=2).map(lambda tail: b"\x10" + tail)


def sketch(counts: dict[bytes, int], row_bytes: int = 100) -> Sketch:
    segments = (Segment(key, {0: TableCount(rows, rows * row_bytes)}) for key, rows in sorted(counts.items()))
    return Sketch(tuple(segments), 1)


@given(
    st.dictionaries(KEYS, st.integers(0, 5_000), max_size=60),
    st.lists(st.binary(max_size=3), max_size=5),
    st.integers(1, 20_000),
    st.integers(1, 50),
)
def test_partitions_are_the_whole_table_in_order(
    counts: dict[bytes, int], borders: list[bytes], each: int, most: int
) -> None:
    found = divided(SPAN, borders, sketch(counts), each, most)
    assert (found[0].start, found[-1].end) == SPAN
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(part.start < part.end for part in found)
    assert sum(part.rows for part in found) == sum(counts.values())
    inner = {border for border in borders if SPAN[0] < border < SPAN[1]}
    assert inner <= {part.start for part in found}
    # Each cut that is no border of groups follows enough rows; wide ones are cut by bytes.
    assert len(found) <= most + len(inner) + 1


def test_rows_are_cut_by_number_and_by_size() -> None:
    counts = {b"\x10" + bytes([n]): 1_000 for n in range(100)}
    assert [part.rows for part in divided(SPAN, [], sketch(counts), 10_000)] == [10_000] * 10
    assert len(divided(SPAN, [], sketch(counts, row_bytes=18_000), 10_000)) >= 90
    assert len(divided(SPAN, [], sketch(counts), 10_000, most=4)) == 4


@given(st.dictionaries(KEYS, st.integers(0, 400), max_size=60), st.integers(1, 1_000))
def test_cuts_have_rows_enough_between_them(counts: dict[bytes, int], each: int) -> None:
    cuts = cuts_in(sketch(counts), each)
    assert cuts == sorted(set(cuts)) and set(cuts) <= counts.keys()
    borders = [SPAN[0], *cuts, SPAN[1]]
    rows = [sum(n for key, n in counts.items() if start <= key < end) for start, end in pairwise(borders)]
    assert all(each <= n < each + 400 for n in rows[:-1]) and rows[-1] <= each + 400


def test_between_two_cuts_large_rows_are_fewer() -> None:
    counts = {b"\x10" + bytes([n]): 10 for n in range(100)}
    assert cuts_in(sketch(counts), 250) == [b"\x10" + bytes([n]) for n in (25, 50, 75)]
    assert len(cuts_in(sketch(counts, row_bytes=1 << 20), 250)) == 99


def test_an_empty_table_is_one_partition() -> None:
    (only,) = divided(SPAN, [], Sketch((), 1), 10_000)
    assert (only.start, only.end, only.rows) == (*SPAN, 0)


def test_what_is_deleted_is_not_cut_below_a_row_of_a_root() -> None:
    root = Table(7, "R", 0, (Column(1, "A", ColumnType(Kind.INT64)),), (1,))
    schema = Schema("default", tables=(root,))

    def key(*elements: int) -> bytes:
        return tuples.encode(elements)

    borders = [key(7), key(7, 1, 8, 5), key(7, 1, 8, 9), key(7, 2), key(7, 2, 8, 1), tuples.successor(key(7))]
    parts = [Partition(start, end, 10) for start, end in pairwise(borders)]
    assert at_roots(schema, parts) == [
        Partition(key(7), key(7, 1), 10),
        Partition(key(7, 1), key(7, 2), 20),
        Partition(key(7, 2), tuples.successor(key(7)), 20),
    ]
    of_index = [Partition(key(1 << 41, 1), key(1 << 41, 5), 10), Partition(key(1 << 41, 5), key(1 << 41, 9), 10)]
    assert at_roots(schema, of_index) == of_index
