"""The layout of engine keys: order, ranges and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import InvariantViolation
from spanstore.engine import keyspace
from spanstore.engine.keyspace import MAX_GROUP, Subspace

groups = st.integers(0, MAX_GROUP)


def test_examples_in_bytes() -> None:
    assert keyspace.log_key(1, 2).hex() == "000102" + "0000000000000002"
    assert keyspace.hard_state_key(0x1234).hex() == "123401"
    assert keyspace.applied_key(7).hex() == "000703"
    assert keyspace.data_prefix(1).hex() == "000110"
    assert keyspace.prepared_key(1, b"t").hex() == "00011174"
    assert keyspace.outcome_key(1, b"t", b"a").hex() == "000112610074"
    assert keyspace.finished_key(1, b"t").hex() == "00011374"
    assert keyspace.server_meta_key("x").hex() == "ffff0478"


@given(groups, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_log_keys_sort_as_their_indexes_and_give_them_back(group: int, one: int, two: int) -> None:
    assert keyspace.log_index(keyspace.log_key(group, one)) == one
    assert (keyspace.log_key(group, one) < keyspace.log_key(group, two)) == (one < two)


@given(groups, groups, st.sampled_from(Subspace), st.binary(max_size=20))
def test_a_group_is_one_range(group: int, other: int, subspace: Subspace, rest: bytes) -> None:
    key = keyspace.prefix(other, subspace) + rest
    start, end = keyspace.group_range(group)
    assert (start <= key < end) == (group == other)
    start, end = keyspace.subspace_range(group, Subspace.DATA)
    assert (start <= key < end) == (group == other and subspace is Subspace.DATA)


def test_the_log_range_ends_with_the_log() -> None:
    start, end = keyspace.log_range(3)
    assert start <= keyspace.log_key(3, 0) < keyspace.log_key(3, 2**64 - 1) < end <= keyspace.applied_key(3)
    start, end = keyspace.log_range(3, 5, 7)
    inside = [i for i in range(10) if start <= keyspace.log_key(3, i) < end]
    assert inside == [5, 6, 7]
    assert keyspace.log_range(3, 0, 2**64 - 1)[1] == keyspace.subspace_range(3, Subspace.LOG)[1]


def test_numbers_out_of_range_are_defects() -> None:
    for wrong in (
        lambda: keyspace.log_key(1, -1),
        lambda: keyspace.log_key(1, 2**64),
        lambda: keyspace.group_range(keyspace.SERVER),
        lambda: keyspace.prefix(1 << 16, Subspace.LOG),
        lambda: keyspace.log_index(keyspace.applied_key(1)),
    ):
        with pytest.raises(InvariantViolation):
            wrong()
