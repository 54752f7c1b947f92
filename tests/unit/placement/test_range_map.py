"""The range map against the dumbest oracle: look at every range."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from spanstore.placement.range_map import KEY_MAX, KEY_MIN, RANGE_MAP_KEY, OwnedRanges, Range, RangeMap, spread_tables

KEY = st.binary(max_size=2).filter(lambda key: key < KEY_MAX)


@st.composite
def maps(draw: st.DrawFn) -> RangeMap:
    starts = sorted({b"", *draw(st.lists(KEY, max_size=8))})
    groups = [draw(st.integers(0, 3)) for _ in starts]
    return RangeMap.from_starts(list(zip(starts, groups, strict=True)), draw(st.integers(1, 9)))


@given(maps(), KEY)
def test_every_key_has_the_owner_that_a_search_of_all_ranges_finds(ranges: RangeMap, key: bytes) -> None:
    (found,) = [r for r in ranges.ranges if r.start <= key < r.end]
    assert ranges.lookup(key) == found and ranges.group_of(key) == found.group and found.contains(key)


@given(maps(), KEY, st.one_of(KEY, st.just(KEY_MAX)))
def test_pieces_cover_the_range_once_in_order_each_owned_by_its_group(
    ranges: RangeMap, start: bytes, end: bytes
) -> None:
    pieces = ranges.pieces(start, end)
    if start >= end:
        assert pieces == []
        return
    assert pieces[0][0] == start and pieces[-1][1] == end
    for (_, before, one), (after, _, other) in itertools.pairwise(pieces):
        assert before == after and one != other
    for low, high, group in pieces:
        assert low < high
        assert OwnedRanges(ranges.owned_by(group)).has_range(low, high)


@given(maps(), KEY, KEY)
def test_owner_knows_its_keys_and_ranges(ranges: RangeMap, start: bytes, end: bytes) -> None:
    for group in range(4):
        owned = OwnedRanges(ranges.owned_by(group))
        assert owned.has_key(start) == (ranges.group_of(start) == group)
        if start < end:
            covered = {g for _, _, g in ranges.pieces(start, end)}
            assert owned.has_range(start, end) == (covered == {group})


@given(maps())
def test_stored_map_is_read_back(ranges: RangeMap) -> None:
    again = RangeMap.decode(ranges.encode())
    assert again.ranges == ranges.ranges and again.version == ranges.version
    assert again.groups() == sorted({r.group for r in ranges.ranges})


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [Range(b"a", KEY_MAX, 1)],
        [Range(KEY_MIN, b"m", 1)],
        [Range(KEY_MIN, b"m", 1), Range(b"n", KEY_MAX, 1)],
        [Range(KEY_MIN, b"m", 1), Range(b"l", KEY_MAX, 1)],
        [Range(KEY_MIN, b"m", 1), Range(b"m", b"m", 2), Range(b"m", KEY_MAX, 1)],
    ],
)
def test_map_with_a_gap_an_overlap_or_an_end_is_refused(ranges: list[Range]) -> None:
    with pytest.raises(F1Error) as caught:
        RangeMap(ranges)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xc0", b"\x92\x01\x90", b"\x92\x01\x91\x93\xc4\x00\xc4\x01a\x01"])
def test_damaged_map_is_refused(data: bytes) -> None:
    with pytest.raises(F1Error) as caught:
        RangeMap.decode(data)
    assert caught.value.code is Code.DATA_CORRUPTION


def test_owner_of_nothing_owns_nothing() -> None:
    owned = OwnedRanges([])
    assert not owned.has_key(b"k") and not owned.has_range(b"", KEY_MAX)


@pytest.mark.parametrize("groups", [[0], [0, 1], [0, 1, 2, 3]])
def test_first_map_deals_tables_whole_and_keeps_the_systems_own_rows_in_the_meta_group(groups: list[int]) -> None:
    ranges = spread_tables(groups, 16)
    assert ranges.group_of(RANGE_MAP_KEY) == 0 and ranges.group_of(KEY_MIN) == 0
    rng = random.Random(1)
    owners = set()
    for table in range(1, 40):
        start, end = tuples.encode((table,)), tuples.encode((table + 1,))
        ((_, _, group),) = ranges.pieces(start, end)
        owners.add(group)
        for _ in range(5):
            assert ranges.group_of(tuples.encode((table, rng.randrange(1 << 40), "x"))) == group
    assert owners == set(groups) - {0} or owners == {0}


def test_errors_name_a_border_as_people_write_it() -> None:
    ranges = RangeMap.from_starts([(b"", 1), (tuples.encode((22, 5)), 1)], 1)
    with pytest.raises(F1Error, match="a range begins at 22/5 already"):
        ranges.split(tuples.encode((22, 5)))
    with pytest.raises(F1Error, match="no range begins at 22/abc;"):
        ranges.merge(tuples.encode((22, "abc")))
