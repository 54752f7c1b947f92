"""Lots of a walk: together they are all of it, and what is left after each is the rest."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from f1server.schemachange.work.sums import EntrySum
from f1server.schemachange.work.walking import SEGMENT_ROWS, Rest, Walk, WalkKind, divided
from f1server.schemachange.work.walkstore import WalkState

NOTHING = cast(Any, None)


def walk(kind: WalkKind, cuts: list[int]) -> Walk:
    return Walk(NOTHING, NOTHING, bytes([0]), bytes([200]), 1, kind, cuts=tuple(bytes([c]) for c in cuts))


@given(
    st.sampled_from(WalkKind),
    st.lists(st.integers(1, 199), unique=True, max_size=30).map(sorted),
    st.lists(st.integers(0, 5 * SEGMENT_ROWS), min_size=1, max_size=9),
)
def test_lots_are_all_of_a_walk_one_after_the_other(kind: WalkKind, cuts: list[int], sizes: list[int]) -> None:
    whole = walk(kind, cuts)
    left: Walk | None = whole
    count = 0
    while left is not None:
        before = left
        lot, left = divided(before, sizes[count % len(sizes)])
        count += 1
        assert lot.start < lot.end and all(lot.start < cut < lot.end for cut in lot.cuts)
        assert left is None or left.start < left.end
        if left is None:
            assert (lot.start, lot.end) == (before.start, before.end)
        elif kind is WalkKind.PURGE:
            assert (left.start, left.end, lot.end) == (before.start, lot.start, before.end)
        else:
            assert (lot.start, left.start, left.end) == (before.start, lot.end, before.end)
    assert count <= len(cuts) + 1


def test_a_lot_has_as_many_rows_as_it_should_or_those_between_two_cuts() -> None:
    whole = walk(WalkKind.CHANGE, [10, 20, 30, 40])
    for rows, end in ((0, 10), (SEGMENT_ROWS, 10), (2 * SEGMENT_ROWS + 5, 20), (4 * SEGMENT_ROWS, 40)):
        lot, left = divided(whole, rows)
        assert lot.end == bytes([end]) and left == whole.within(lot.end, whole.end)
    assert divided(whole, 5 * SEGMENT_ROWS) == (whole, None)


def state() -> WalkState:
    return WalkState(1, 1, 1, 1, "pin", (b"a", b"e", b"z"), (9, 9), bytes(2))


def test_what_is_left_only_gets_less() -> None:
    first = Rest(b"b", b"e", 1, 10, {7: EntrySum(1, 5)})
    found = state().with_rests({0: first})
    assert found.rests == {0: first} and found.worked == (1, 10) and found.left == [0, 1]
    further = Rest(b"c", b"e", 2, 20, {7: EntrySum(2, 9)})
    assert found.with_rests({0: further}).rests == {0: further}
    assert found.with_rests({0: further}).with_rests({0: first}).rests == {0: further}
    assert found.with_rests({0: Rest(b"b", b"d", 3)}).rests[0].end == b"d"


def test_a_partition_that_is_done_has_no_rest() -> None:
    rest = Rest(b"f", b"z", 4, 40, {7: EntrySum(4, 1)})
    found = state().with_rests({0: Rest(b"b", b"e", 1, 10), 1: rest}).with_done(0, 9, 90, {7: EntrySum(9, 2)})
    assert found.rests == {1: rest} and found.worked == (13, 130) and found.sums == {7: (9, 2)}
    assert found.with_rests({0: Rest(b"d", b"e", 3)}) == found
    assert found.begun_again(5).worked == (0, 0)


def test_rests_follow_each_other() -> None:
    then = Rest(b"b", b"e", 1, 10, {7: EntrySum(1, 5)}).then(Rest(b"c", b"e", 2, 20, {7: EntrySum(2, 2**64 - 1)}))
    assert then == Rest(b"c", b"e", 3, 30, {7: EntrySum(3, 4)})
