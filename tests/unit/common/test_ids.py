"""Names of transactions."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1common.ids import CommitId, new_id

commit_ids = st.builds(
    CommitId, st.binary(max_size=100), st.binary(min_size=16, max_size=16), st.integers(0, (1 << 63) - 1)
)


def test_ids_come_from_the_generator_that_is_given() -> None:
    assert new_id(random.Random(1)) == new_id(random.Random(1))
    rng = random.Random(1)
    assert len({new_id(rng) for _ in range(1000)}) == 1000
    assert len(new_id(rng)) == 16


@given(commit_ids)
def test_a_commit_id_comes_back_from_its_bytes(commit_id: CommitId) -> None:
    assert CommitId.from_bytes(commit_id.to_bytes()) == commit_id


@given(st.binary(max_size=60))
def test_bytes_are_a_commit_id_or_are_refused(data: bytes) -> None:
    try:
        assert CommitId.from_bytes(data).to_bytes() == data
    except F1Error as error:
        assert error.code is Code.DATA_CORRUPTION
        assert len(data) < 24 or data[0] >= 0x80


def test_commit_ids_are_ordered_by_anchor_first() -> None:
    ids = [CommitId(b"a", b"z" * 16, 9), CommitId(b"b", b"a" * 16, 1), CommitId(b"b", b"a" * 16, 2)]
    assert sorted([ids[2], ids[0], ids[1]]) == ids


@pytest.mark.parametrize(("unique", "created_ts"), [(b"short", 0), (b"x" * 16, -1), (b"x" * 16, 1 << 63)])
def test_parts_of_the_wrong_size_are_refused(unique: bytes, created_ts: int) -> None:
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        CommitId(b"", unique, created_ts)
