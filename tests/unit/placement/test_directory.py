"""The directory's rows: what is written is what is read, and a removed server never comes back."""

import pytest

from f1common.errors import Code, F1Error
from spanstore.paxos.configuration import Configuration
from spanstore.placement.directory import (
    Directory,
    Server,
    Standing,
    decode_directory,
    encode_group,
    encode_server,
    encode_standing,
    group_key,
    row_ranges,
    server_key,
    standing_key,
)

ROWS = [
    (server_key("a1"), encode_server(Server("a", "a1:7500"))),
    (server_key("b1"), encode_server(Server("b", "b1:7500"))),
    (group_key(1), encode_group(Configuration(3, ("a1", "b1#2"), ("c1#3",)))),
    (standing_key("b1"), encode_standing(Standing.DRAINING)),
]


def test_rows_are_read_as_they_were_written() -> None:
    found = decode_directory(ROWS)
    assert found.servers == {"a1": Server("a", "a1:7500"), "b1": Server("b", "b1:7500")}
    assert (found.voters(1), found.learners(1)) == (["a1", "b1"], ["c1"])
    assert (found.is_draining("a1"), found.is_draining("b1")) == (False, True)


def test_all_rows_lie_in_the_ranges() -> None:
    assert all(any(start <= key < end for start, end in row_ranges()) for key, _ in ROWS)


def test_a_removed_server_is_no_server_whatever_else_is_known_of_it() -> None:
    removed = decode_directory([*ROWS, (standing_key("b1"), encode_standing(Standing.REMOVED))])
    assert sorted(removed.servers) == ["a1"]
    older = decode_directory(ROWS)
    for merged in (older.merged(removed), removed.merged(older), removed.merged(older).merged(Directory())):
        assert sorted(merged.servers) == ["a1"]
        assert merged.is_removed("b1")


def test_draining_can_be_taken_back() -> None:
    draining = decode_directory(ROWS)
    assert not draining.merged(Directory(standing={"b1": Standing.SERVING})).is_draining("b1")
    assert draining.merged(Directory()).is_draining("b1")


@pytest.mark.parametrize("key", [server_key("a1"), group_key(1), standing_key("a1")])
def test_a_row_that_cannot_be_read_is_damage(key: bytes) -> None:
    with pytest.raises(F1Error) as raised:
        decode_directory([(key, b"\xc1")])
    assert raised.value.code is Code.DATA_CORRUPTION
