"""Groups that are founded while the cluster runs: who is chosen, and the rows."""

import pytest

from f1common.errors import Code, F1Error
from spanstore.paxos.configuration import Configuration, home_of, joined_at, server_of
from spanstore.placement.directory import Directory, decode_directory, group_range, row_ranges
from spanstore.placement.founding import (
    Founding,
    choose_founders,
    decode_foundings,
    decode_name,
    encode_founding,
    encode_name,
    founding_key,
    founding_range,
    name_key,
)

ZONES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}
HOMES = {server: f"disk-of-{server}" for server in ZONES}


def chosen(voters: int, load: dict[str, int], *wanted: str, homes: dict[str, str] = HOMES) -> list[str]:
    return [server_of(member) for member in choose_founders(homes, ZONES, load, voters, wanted).voters]


def test_as_many_zones_as_possible_and_servers_with_few_replicas_first() -> None:
    assert chosen(3, {"a1": 2, "a2": 1, "b1": 0, "b2": 1, "c1": 9}) == ["a2", "b1", "c1"]
    assert chosen(5, {}) == ["a1", "a2", "b1", "b2", "c1"]
    assert chosen(1, {"a1": 1, "a2": 1, "b1": 1, "b2": 0, "c1": 1}) == ["b2"]


def test_the_zones_that_are_wanted_and_no_others() -> None:
    assert chosen(3, {}, "b", "a", "b") == ["a1", "b1", "b2"]
    with pytest.raises(F1Error, match="another server in zone c, c") as caught:
        chosen(3, {}, "c", "c", "c", homes={"a1": "x"})
    assert caught.value.code is Code.FAILED_PRECONDITION
    with pytest.raises(F1Error, match="in zone c that is up"):
        chosen(3, {}, "a", "b", "c", homes={name: HOMES[name] for name in ("a1", "a2", "b1", "b2")})


@pytest.mark.parametrize("voters", [0, 2, 4, 17, -1])
def test_only_some_numbers_of_voters_make_a_group(voters: int) -> None:
    with pytest.raises(F1Error, match="odd number of voters"):
        chosen(voters, {})


def test_founders_are_first_members_that_live_in_one_directory_only() -> None:
    founding = choose_founders(HOMES, ZONES, {}, 3, ())
    assert founding.configuration() == Configuration(0, founding.voters)
    for member in founding.voters:
        assert (joined_at(member), home_of(member)) == (0, HOMES[server_of(member)])


def test_rows_are_read_back() -> None:
    founding = Founding("east", ("a1#0-x", "b1#0-y", "c1#0-z"))
    rows = [(founding_key(7), encode_founding(founding))]
    assert decode_foundings(rows) == {7: founding}
    assert decode_directory(rows).foundings == {7: founding}
    assert decode_directory(rows).groups == {}
    assert Directory().merged(decode_directory(rows)).merged(Directory()).foundings == {7: founding}
    assert founding_range() in row_ranges() and group_range() in row_ranges()
    assert founding_range()[0] <= founding_key(7) < founding_range()[1]
    assert not founding_range()[0] <= name_key("east") < founding_range()[1]
    assert decode_name(encode_name(7)) == 7


def test_rows_that_cannot_be_read_are_damage() -> None:
    for read in (lambda: decode_foundings([(founding_key(7), b"\xc1")]), lambda: decode_name(b"\xc1")):
        with pytest.raises(F1Error) as caught:
            read()
        assert caught.value.code is Code.DATA_CORRUPTION
