"""Sums over entries (:mod:`f1server.schemachange.work.sums`), and the notes in which they are kept."""

from hypothesis import given
from hypothesis import strategies as st

from f1server.schemachange.work.sums import EntrySum, Sums, added, digest
from f1server.schemachange.work.walkstore import WalkState

Entries = list[tuple[bytes, bytes]]
ENTRIES = st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=12)


def sum_of(entries: Entries) -> EntrySum:
    return EntrySum().plus(digest(key, value) for key, value in entries)


@given(ENTRIES, st.integers(0, 12))
def test_neither_order_nor_parts_matter(entries: Entries, border: int) -> None:
    shuffled = entries[::-1]
    parts = added({1: sum_of(shuffled[:border])}, {1: sum_of(shuffled[border:])})
    assert parts == {1: sum_of(entries)}


@given(ENTRIES, ENTRIES)
def test_other_entries_have_another_sum(one: Entries, other: Entries) -> None:
    assert (sum_of(one) == sum_of(other)) == (sorted(one) == sorted(other))


def test_key_and_value_are_told_apart() -> None:
    assert len({digest(b"ab", b"c"), digest(b"a", b"bc"), digest(b"abc", b"")}) == 3


def test_sums_of_other_indexes_stand_beside_each_other() -> None:
    one: Sums = {1: EntrySum(1, 5)}
    assert added(one, {2: EntrySum(2, 7)}) == {1: EntrySum(1, 5), 2: EntrySum(2, 7)}
    assert added(one, {1: EntrySum(1, 2**64 - 1)}) == {1: EntrySum(2, 4)}


def state() -> WalkState:
    return WalkState(7, 3, 1, 1_000, "pin", (b"a", b"b", b"c"), (10, 10), b"\x00\x00")


def test_a_part_counts_once() -> None:
    once = state().with_done(1, 9, 90, {4: EntrySum(9, 2**64 - 1)})
    assert once.with_done(1, 9, 90, {4: EntrySum(9, 1)}) == once
    both = once.with_done(0, 8, 80, {4: EntrySum(8, 2)})
    assert both.summed == {4: EntrySum(17, 1)}
    assert (both.rows_done, both.bytes_done, both.left) == (17, 170, [])


def test_at_another_snapshot_nothing_is_done() -> None:
    again = state().with_done(1, 9, 90, {4: EntrySum(9, 3)}).begun_again(2_000)
    assert again.summed == {}
    assert (again.snapshot, again.left, again.rows_done, again.bytes_done) == (2_000, [0, 1], 0, 0)
