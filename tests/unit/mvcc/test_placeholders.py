"""The commit timestamp in keys and values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding.tuple import decode, encode
from f1common.encoding.values import Timestamp
from f1common.errors import Code, F1Error
from spanstore.mvcc.placeholders import fill

timestamps = st.integers(0, 2**62)


def test_examples_in_bytes() -> None:
    key, value = fill(b"k" + bytes(8) + b"z", 1, b"v" + bytes(16), [1, 9], 0x0102)
    assert key.hex() == "6b" + "8000000000000102" + "7a"
    assert value is not None
    assert value.hex() == "76" + "0000000000000102" * 2


def test_nothing_to_fill_changes_nothing() -> None:
    assert fill(b"key", None, b"value", (), 5) == (b"key", b"value")
    assert fill(b"key", None, None, (), 5) == (b"key", None)
    assert fill(b"k" + bytes(8), 1, None, (), 0)[1] is None


@given(timestamps)
def test_a_filled_key_is_what_the_codec_makes(ts: int) -> None:
    limit = 253402300799999999
    blank = encode((1, Timestamp(0), "id"))
    offset = len(encode((1,))) + 1
    key, _ = fill(blank, offset, b"", (), min(ts, limit))
    assert decode(key) == (1, Timestamp(min(ts, limit)), "id")


@given(timestamps, timestamps)
def test_filled_keys_sort_as_their_timestamps(one: int, two: int) -> None:
    keys = [fill(b"k" + bytes(8), 1, b"", (), ts)[0] for ts in (one, two)]
    assert (keys[0] < keys[1]) == (one < two)


@pytest.mark.parametrize(
    ("key", "key_offset", "value", "value_offsets"),
    [
        (b"k" + bytes(8), 2, b"", ()),
        (b"k" + bytes(8), 0, b"", ()),
        (b"k" + bytes(8), -1, b"", ()),
        (b"k", 1, b"", ()),
        (b"k", None, bytes(8), (1,)),
        (b"k", None, bytes(8), (-1,)),
        (b"k", None, bytes(7), (0,)),
        (b"k", None, bytes(20), (0, 7)),
        (b"k", None, bytes(20), (3, 3)),
        (b"k", None, None, (0,)),
    ],
)
def test_places_outside_or_overlapping_are_refused(
    key: bytes, key_offset: int | None, value: bytes | None, value_offsets: tuple[int, ...]
) -> None:
    with pytest.raises(F1Error) as raised:
        fill(key, key_offset, value, value_offsets, 5)
    assert raised.value.code is Code.INVALID_ARGUMENT
