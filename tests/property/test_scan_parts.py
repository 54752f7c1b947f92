"""Key parts that are read many at a time are those of each key decoded, or are left to that."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Date, Timestamp, Value
from f1common.encoding.values import DATE_MAX, DATE_MIN, INT64_MAX, INT64_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from spanstore.scan.arrow import PYTHON_TYPES, to_array
from spanstore.scan.parts import key_parts
from spanstore.scan.plan import ColumnType
from tests.amounts import examples

_bits = (0, 7, 8, 16, 24, 40, 56, 62)
borders = [sign * (1 << bits) + more for bits in _bits for sign in (1, -1) for more in (-1, 0, 1)]
integers = st.one_of(st.sampled_from([*borders, INT64_MIN, INT64_MAX]), st.integers(INT64_MIN, INT64_MAX))
dates = st.builds(Date, st.one_of(st.sampled_from([DATE_MIN, DATE_MAX]), st.integers(DATE_MIN, DATE_MAX)))
moments = st.builds(
    Timestamp, st.one_of(st.sampled_from([TIMESTAMP_MIN, TIMESTAMP_MAX]), st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX))
)
others: st.SearchStrategy[Value] = st.sampled_from([True, 1.5, "a", "", b"a\x00"])
anything = st.one_of(integers, dates, moments, st.none(), others)
fixed = st.one_of(integers, dates, moments, st.none())


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[tuple[Value, ...]], int]:
    """Keys of one table, mostly, and the position of a part."""
    before = draw(st.lists(st.sampled_from([integers, dates, moments, fixed, anything]), max_size=2))
    part = draw(st.sampled_from([integers, dates, moments, st.one_of(integers, st.none()), anything]))
    after = draw(st.lists(anything, max_size=2))
    row = st.tuples(*before, part, *map(st.just, after))
    return draw(st.lists(row, min_size=1, max_size=9)), draw(st.sampled_from([len(before)] * 4 + [0, 1, 2, 3]))


@settings(max_examples=examples(1200))
@given(columns())
@example(([(1, INT64_MIN), (2, -1), (3, -256), (4, None), (5, INT64_MAX)], 1))
def test_many_parts_at_a_time_are_what_they_are_one_by_one(found: tuple[list[tuple[Value, ...]], int]) -> None:
    rows, number = found
    keys = [tuples.encode(row) for row in rows]
    parts = [row[number] if number < len(row) else None for row in rows]
    for kind in (ColumnType.INT64, ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.STRING):
        array = key_parts(keys, number, kind)
        if array is not None:
            array.validate(full=True)
            assert PYTHON_TYPES[kind].issuperset(map(type, parts))
            assert array.equals(to_array(kind, parts))
        elif all(type(part) in PYTHON_TYPES[kind] for part in parts) and kind is not ColumnType.STRING:
            # It gives up where it must: behind text, and where there is no such part.
            assert any(len(row) <= number or any(type(e) in (str, bytes) for e in row[:number]) for row in rows)


@given(st.binary(min_size=1, max_size=12), st.integers(0, 2))
@example(b"\x98\x05", 0)
@example(b"\x99\x00\xff", 0)
@example(b"\x9f" + b"\xff" * 8, 0)
@example(b"\x10" + b"\x00" * 8, 0)
@example(b"\xde" + b"\xff" * 8, 0)
@example(b"\x99\x01", 0)
def test_what_is_not_as_it_would_be_encoded_is_left_to_who_says_so(key: bytes, number: int) -> None:
    array = key_parts([key], number, ColumnType.INT64)
    if array is not None:
        (value,) = array.to_pylist()
        begin = tuples.encode(tuple([0] * number))
        assert key_parts([begin + tuples.encode((value,))], number, ColumnType.INT64).to_pylist() == [value]
        assert tuples.encode((value,)) in key
    assert key_parts([key], number, ColumnType.BOOL) is None
