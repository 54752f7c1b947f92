"""The tuple codec against oracles: the documented order, its inverse, and bytes that nobody encoded."""

import math
import random
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from f1common.encoding.tuple import (
    TIMESTAMP_WIDTH,
    Date,
    Timestamp,
    Value,
    decode,
    decode_prefix,
    encode,
    fill_timestamp,
    successor,
    timestamp_placeholder,
)
from f1common.encoding.values import TIMESTAMP_MAX, TIMESTAMP_MIN
from f1common.errors import Code, F1Error
from tests.amounts import examples

Tuple = tuple[Value, ...]

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# Numbers around the powers of 2 and 256, where lengths change, are rare among uniform ones.
borders = st.builds(
    lambda sign, bits, off: sign * (1 << bits) + off, st.sampled_from([1, -1]), st.integers(0, 62), st.integers(-2, 2)
)
numerics = st.builds(
    lambda units, scale: Decimal(units).scaleb(-scale),
    st.one_of(st.integers(-(10**25), 10**25), borders),
    st.integers(0, 9),
)
doubles = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324]))
# Few letters, so that neighbours, prefixes and the escaped bytes are frequent.
texts = st.one_of(st.text("\0\1\2aé\U0001f600￿", max_size=6), st.text(max_size=6))
blobs = st.one_of(st.lists(st.sampled_from([0, 1, 2, 3, 254, 255]), max_size=6).map(bytes), st.binary(max_size=6))
values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    INT64,
    borders,
    st.integers(-2, 130),
    doubles,
    numerics,
    texts,
    blobs,
    st.integers(-(1 << 31), (1 << 31) - 1).map(Date),
    st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX).map(Timestamp),
)
tuples: st.SearchStrategy[Tuple] = st.lists(values, max_size=4).map(tuple)

TYPES = [type(None), bool, int, float, Decimal, str, bytes, Date, Timestamp]


def compare_values(a: Any, b: Any) -> int:
    """The order as documented, in terms of Python's own comparisons."""
    if type(a) is not type(b):
        return TYPES.index(type(a)) - TYPES.index(type(b))
    if a is None:
        return 0
    if isinstance(a, float) and (math.isnan(a) or math.isnan(b)):
        return math.isnan(a) - math.isnan(b)
    return int(a > b) - int(a < b)


def compare(a: Tuple, b: Tuple) -> int:
    for x, y in zip(a, b, strict=False):
        if order := compare_values(x, y):
            return order
    return len(a) - len(b)


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


@settings(max_examples=examples(1000))
@given(tuples, tuples)
@example((b"a",), (b"a\0",))
@example(("a", 1), ("a\0",))
@example((None,), ())
@example((0.0,), (-0.0,))
@example((math.nan,), (math.inf,))
def test_bytes_are_ordered_as_values_are(a: Tuple, b: Tuple) -> None:
    left, right = encode(a), encode(b)
    assert sign((left > right) - (left < right)) == sign(compare(a, b))


@settings(max_examples=examples(300))
@given(st.data())
def test_neighbours_of_one_type_are_ordered(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([INT64 | borders, doubles, numerics, texts, blobs]))
    drawn = [(value,) for value in data.draw(st.lists(kind, min_size=2, max_size=20))]
    in_order = sorted(drawn, key=cmp_to_key(compare))
    encoded = [encode(item) for item in in_order]
    assert encoded == sorted(encoded)


@settings(max_examples=examples(500))
@given(tuples)
def test_what_is_encoded_is_decoded(value: Tuple) -> None:
    decoded = decode(encode(value))
    assert [type(item) for item in decoded] == [type(item) for item in value]
    assert compare(decoded, value) == 0
    assert encode(decoded) == encode(value)


@given(tuples, tuples)
def test_encodings_of_parts_are_joined(a: Tuple, b: Tuple) -> None:
    assert encode(a + b) == encode(a) + encode(b)


@settings(max_examples=examples(500))
@given(tuples, tuples)
def test_one_encoding_begins_another_only_if_its_tuple_does(a: Tuple, b: Tuple) -> None:
    begins = len(a) <= len(b) and compare(a, b[: len(a)]) == 0
    assert encode(b).startswith(encode(a)) == begins


@given(tuples.filter(bool))
def test_no_element_starts_with_a_reserved_byte(value: Tuple) -> None:
    for item in value:
        assert encode((item,))[0] not in (0x00, 0xFF)


@settings(max_examples=examples(500))
@given(tuples, tuples)
def test_the_range_of_a_prefix_holds_its_extensions_and_versions_and_nothing_else(a: Tuple, b: Tuple) -> None:
    prefix, key = encode(a), encode(b)
    begins = len(a) <= len(b) and compare(a, b[: len(a)]) == 0
    assert (prefix <= key < successor(prefix)) == begins
    assert (prefix <= key + b"\x00" + b"\xff" * 8 < successor(prefix)) == begins


@given(tuples, values, st.binary(min_size=8, max_size=8))
def test_the_versions_of_a_row_sort_before_its_children(row: Tuple, child: Value, version: bytes) -> None:
    assert encode(row) < encode(row) + b"\x00" + version < encode((*row, child))


@given(tuples, st.binary(max_size=20), st.data())
def test_a_prefix_is_decoded_whatever_follows(value: Tuple, rest: bytes, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(value)))
    decoded, consumed = decode_prefix(encode(value) + rest, n)
    assert consumed == len(encode(value[:n]))
    assert encode(decoded) == encode(value[:n])


@settings(max_examples=examples(1000))
@given(
    st.one_of(
        st.binary(max_size=30),
        st.builds(lambda tag, rest: bytes([tag]) + rest, st.integers(0, 255), st.binary(max_size=20)),
    )
)
def test_bytes_are_canonical_or_refused(data: bytes) -> None:
    try:
        decoded = decode(data)
    except F1Error as error:
        assert error.code is Code.DATA_CORRUPTION
    else:
        assert encode(decoded) == data


@settings(max_examples=examples(500))
@given(tuples.filter(bool), st.data())
def test_damaged_encodings_are_canonical_or_refused(value: Tuple, data: st.DataObject) -> None:
    damaged = bytearray(encode(value))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for candidate in (bytes(damaged), cut):
        try:
            assert encode(decode(candidate)) == candidate
        except F1Error as error:
            assert error.code is Code.DATA_CORRUPTION


@settings(max_examples=examples(300))
@given(tuples, tuples, st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX))
def test_a_placeholder_becomes_the_timestamp_and_nothing_else_changes(before: Tuple, after: Tuple, ts: int) -> None:
    offset = len(encode(before))
    key = encode(before) + timestamp_placeholder() + encode(after)
    assert fill_timestamp(key, offset, ts) == encode((*before, Timestamp(ts), *after))
    assert encode((*before, Timestamp(ts))) < encode(before) + timestamp_placeholder() < successor(encode(before))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("98 7f", "shortest form"),
        ("99 00 ff", "shortest form"),
        ("9f 80 00 00 00 00 00 00 00", "no INT64"),
        ("17 ff", "shortest form"),
        ("16 ff fe", "shortest form"),
        ("10 7f ff ff ff ff ff ff fe", "no INT64"),
        ("c1 00", "shortest form"),
        ("bf ff", "shortest form"),
        ("c2 00 01", "shortest form"),
        ("9a 01 02", "cut off"),
        ("a8 80 00", "cut off"),
        ("a8 7f ff ff ff ff ff ff ff", "negative zero"),
        ("a8 ff f8 00 00 00 00 00 01", "NaN"),
        ("a8 00 07 ff ff ff ff ff ff", "NaN"),
        ("d8 61", "terminator is missing"),
        ("da 01 00", "followed by neither"),
        ("da 01 04 00", "followed by neither"),
        ("da 01 01 02 00", "followed by neither"),
        ("d8 ff 00", "no UTF-8"),
        ("d8 c0 80 00", "no UTF-8"),
        ("d8 ed a0 80 00", "no UTF-8"),
        ("18 00", "no element starts with 0x00"),
        ("18 ff", "no element starts with 0xff"),
    ],
)
def test_each_value_has_one_encoding_only(code: str, reason: str) -> None:
    with pytest.raises(F1Error, match=rf"DATA_CORRUPTION.*{reason}"):
        decode(bytes.fromhex(code))


def test_a_placeholder_that_was_not_filled_in_is_refused() -> None:
    placeholder = timestamp_placeholder()
    assert len(placeholder) == TIMESTAMP_WIDTH == len(encode((Timestamp(0),)))
    with pytest.raises(F1Error, match=r"DATA_CORRUPTION.*never filled in"):
        decode(placeholder)
    for key, offset in ((placeholder, 1), (placeholder[:-1], 0), (b"\x19" + placeholder, -TIMESTAMP_WIDTH)):
        with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
            fill_timestamp(key, offset, 0)


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        pytest.param(1 << 100_000, id="huge"),
        Decimal("1E+29"),
        Decimal("1E-10"),
        Decimal("1." + "0" * 80 + "1"),
        Decimal("1E+999999999"),
        Decimal("1E-999999999"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        Timestamp(TIMESTAMP_MAX + 1),
        Timestamp(TIMESTAMP_MIN - 1),
        Date(1 << 31),
        Date(-(1 << 31) - 1),
    ],
)
def test_what_a_type_cannot_hold_is_out_of_range(value: Value) -> None:
    with pytest.raises(F1Error) as caught:
        encode((value,))
    assert caught.value.code is Code.OUT_OF_RANGE
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("sign_of", ["", "-"])
def test_the_largest_numerics_fit(sign_of: str) -> None:
    largest = Decimal(sign_of + "9" * 29 + "." + "9" * 9)
    assert decode(encode((largest,))) == (largest,)
    beyond = int.from_bytes(encode((largest,))[1:], "big") + (-1 if sign_of else 1)
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        decode(encode((largest,))[:1] + beyond.to_bytes(16, "big"))


@pytest.mark.parametrize("value", [object(), [1], {}, bytearray(b"x"), "\ud800", 1j])
def test_what_is_no_value_is_an_invalid_argument(value: Any) -> None:
    with pytest.raises(F1Error) as caught:
        encode((value,))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_subclasses_are_encoded_as_what_they_are() -> None:
    class Name(str):
        pass

    assert encode((Name("a"), Code.ABORTED)) == encode(("a", "ABORTED"))


def test_a_prefix_with_too_few_elements_is_refused() -> None:
    with pytest.raises(F1Error, match=r"3 elements expected, 2 found"):
        decode_prefix(encode((1, 2)), 3)


def test_a_shuffled_hierarchy_sorts_in_pre_order() -> None:
    rows: list[Tuple] = []
    for customer in (1, 300, 70_000):
        rows.append((1, customer))
        for campaign in (None, 5, 1000):
            rows.append((1, customer, 2, campaign))
            rows += [(1, customer, 2, campaign, 3, name) for name in ("", "a", "ab", "b")]
    shuffled = rows.copy()
    random.Random(7).shuffle(shuffled)
    assert sorted(shuffled, key=encode) == rows
