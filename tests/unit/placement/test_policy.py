"""Policies of groups and tables: what they mean, what is refused, and their rows."""

import pytest

from f1common.errors import Code, F1Error
from spanstore.placement.policy import (
    ANYWHERE,
    Policy,
    check_policy,
    decode_policies,
    encode_policy,
    group_policy_key,
    group_policy_range,
    leader_zones,
    table_policy_key,
    table_policy_range,
)

EAST = Policy(("a", "b", "a"), "a")


def test_a_group_is_a_place_for_a_table_with_the_same_zones_in_any_order() -> None:
    assert EAST.is_met_by(Policy(("a", "a", "b"), "a"))
    assert not EAST.is_met_by(Policy(("a", "b", "b"), "a"))
    assert not EAST.is_met_by(Policy(("a", "a", "b"), "b"))
    assert not EAST.is_met_by(ANYWHERE)
    assert Policy((), "a").is_met_by(EAST)
    assert ANYWHERE.is_met_by(EAST)


@pytest.mark.parametrize(
    ("policy", "voters", "text"),
    [
        (Policy(("a", "b", "z"), ""), 3, "no server is in zone z; there are a, b"),
        (Policy((), "z"), 3, "no server is in zone z"),
        (Policy(("a",), "b"), 3, "no voter would lie in the leader zone b"),
        (Policy(("a", "b", "b"), "b"), 5, "the group has 5 voters"),
        (Policy(("a", "b"), ""), 0, "1, 3 or 5 voters"),
    ],
)
def test_what_no_group_can_meet_is_refused(policy: Policy, voters: int, text: str) -> None:
    with pytest.raises(F1Error, match=text) as caught:
        check_policy(policy, ["a", "b", "b"], voters)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("policy", "voters", "text"),
    [
        (Policy(("a", "a", "b"), ""), 3, "2 voters are to be in zone a, which has 1 server:"),
        (Policy(("b", "b", "b"), ""), 0, "3 voters are to be in zone b, which has 2 servers:"),
    ],
)
def test_what_takes_more_servers_in_a_zone_is_refused_until_they_are_there(
    policy: Policy, voters: int, text: str
) -> None:
    with pytest.raises(F1Error, match=text) as caught:
        check_policy(policy, ["a", "b", "b"], voters)
    assert caught.value.code is Code.FAILED_PRECONDITION
    check_policy(policy, ["a", "b", "b", "a", "b"], voters)


def test_rows_are_read_back() -> None:
    rows = [(table_policy_key(5), encode_policy(EAST)), (table_policy_key(1 << 41), encode_policy(ANYWHERE))]
    assert decode_policies(rows) == {5: EAST, 1 << 41: ANYWHERE}
    assert all(table_policy_range()[0] <= key < table_policy_range()[1] for key, _ in rows)
    assert group_policy_range()[0] <= group_policy_key(3) < group_policy_range()[1]
    assert not table_policy_range()[0] <= group_policy_key(3) < table_policy_range()[1]
    with pytest.raises(F1Error) as caught:
        decode_policies([(table_policy_key(5), b"\xc1")])
    assert caught.value.code is Code.DATA_CORRUPTION


def test_a_group_is_led_as_its_policy_says_or_as_when_it_was_founded() -> None:
    assert leader_zones({1: "a", 2: "a"}, {2: Policy((), "b"), 3: ANYWHERE}) == {1: "a", 2: "b", 3: ""}
