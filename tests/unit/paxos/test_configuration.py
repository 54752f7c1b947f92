"""Configurations: which steps are taken, what peers may send, and which one counts along a log."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from spanstore.paxos import Ballot, Configuration, LogEntry, joined_at, server_of
from spanstore.paxos.configuration import MAX_MEMBERS, check_step, decode_configuration, is_readable
from spanstore.paxos.lease import Held
from spanstore.paxos.log import LogSizes
from spanstore.paxos.membership import Membership
from spanstore.paxos.quorum import majority

THREE = Configuration(4, ("a", "b", "c"), ("d#3",))


@pytest.mark.parametrize(
    ("after", "voters", "learners"),
    [
        (THREE.with_learner("e"), "a b c", "d#3 e#5"),
        (THREE.with_voter("d#3"), "a b c d#3", ""),
        (THREE.with_demoted("b"), "a c", "d#3 b"),
        (THREE.without("b"), "a c", "d#3"),
        (THREE.without("d#3"), "a b c", ""),
    ],
)
def test_one_step_at_a_time(after: Configuration, voters: str, learners: str) -> None:
    check_step(THREE, after)
    assert after == Configuration(5, tuple(voters.split()), tuple(learners.split()))
    old, new = set(THREE.voters), set(after.voters)
    assert majority(len(old)) + majority(len(new)) > len(old | new), "all majorities meet"


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (THREE.without("b")._replace(version=6), "version 6 does not follow version 4"),
        (Configuration(5, ("a", "b", "c", "d#3"), ("d#3",)), "named twice"),
        (Configuration(5, (), ("d#3",)), "needs a voter"),
        (THREE.with_learner("a"), "two replicas"),
        (THREE.with_learner("d"), "two replicas"),
        (Configuration(5, ("a",), ("d#3",)), "more than one voter"),
        (Configuration(5, ("a", "b", "d#3"), ()), "more than one voter"),
        (Configuration(5, ("a", "b", "c", "e#5"), ("d#3",)), "a voter is a learner first"),
        (Configuration(5, ("a", "b", "c"), ("d#3", "e")), "e is not named for version 5"),
        (Configuration(5, ("a", "b", "c"), ("d#3", "e#4")), "e#4 is not named for version 5"),
        (THREE.with_learner("e#x"), "is not named for version 5"),
        (Configuration(5, ("a", "b", "c"), ()).with_learner("e")._replace(version=5), "not named for version 5"),
        (Configuration(5, ("a", "b"), ()), "2 members would change"),
        (THREE._replace(version=5), "0 members would change"),
    ],
)
def test_what_is_no_step_is_refused(after: Configuration, why: str) -> None:
    with pytest.raises(F1Error, match="not a step") as caught:
        check_step(THREE, after)
    assert caught.value.code is Code.INVALID_ARGUMENT and why in str(caught.value)


def test_a_group_has_a_largest_size() -> None:
    full = Configuration(1, ("a",), tuple(f"s{i}#1" for i in range(MAX_MEMBERS - 1)))
    with pytest.raises(F1Error, match="at most"):
        check_step(full, full.with_learner("z"))


def test_a_name_is_that_of_a_life_at_a_server() -> None:
    assert [server_of(name) for name in ("a", "d#3", "d#3#4")] == ["a", "d", "d"]
    assert [joined_at(name) for name in ("a", "d#3", "d#", "d#x", "d#-1", "d#²", "d#" + "9" * 5000)] == [0, 3] + [0] * 5


names = st.text(max_size=6)


@given(st.integers(0, 2**60), st.lists(names, max_size=5), st.lists(names, max_size=5))
def test_a_configuration_is_what_was_encoded(version: int, voters: list[str], learners: list[str]) -> None:
    configuration = Configuration(version, tuple(voters), tuple(learners))
    payload = configuration.encode()
    assert decode_configuration(payload) == configuration and is_readable(payload)


@given(st.binary(max_size=40))
def test_payloads_of_peers_are_read_or_refused(junk: bytes) -> None:
    assert is_readable(junk) or junk[:1] == b"\xc1"
    damaged = Configuration(5, ("a", "b"), ("c#5",)).encode()[: len(junk)] + junk
    for payload in (b"\xc1" + junk, damaged):
        try:
            decode_configuration(payload)
        except F1Error as error:
            assert error.code is Code.DATA_CORRUPTION and not is_readable(payload)


@pytest.mark.parametrize("payload", [b"", b"x", b"\xc0", b"\x93\x01\x90\x90"])
def test_commands_are_no_configurations(payload: bytes) -> None:
    assert decode_configuration(payload) is None and is_readable(payload)


@given(st.integers(0, 10**9))
def test_the_newest_configuration_of_the_log_counts(seed: int) -> None:
    """Against a plain list of (index, configuration); what is chosen is never truncated."""
    rng = random.Random(seed)
    first = Configuration(0, ("a",))
    membership = Membership(3, first)
    log: list[tuple[int, Configuration | None]] = []
    chosen = 3
    for step in range(40):
        match rng.randrange(5):
            case 0 | 1:
                configuration = Configuration(step + 1, (f"v{step}",)) if rng.random() < 0.5 else None
                index = 4 + len(log)
                log.append((index, configuration))
                payload = configuration.encode() if configuration else b"x"
                assert membership.appended(LogEntry(index, Ballot(1, "a"), payload)) == (configuration is not None)
            case 2 if log and chosen < log[-1][0]:
                cut = rng.randint(chosen + 1, log[-1][0])
                lost = any(c for i, c in log if i >= cut)
                log = [(i, c) for i, c in log if i < cut]
                assert membership.truncated(cut) == lost
            case 3:
                chosen = rng.randint(chosen, 3 + len(log))
                membership.settled(chosen)
            case _:
                pass
        found = [(3, first), *[(i, c) for i, c in log if c is not None]]
        assert (membership.index, membership.current) == found[-1]
        unsettled = [c for i, c in found if i > chosen]
        if unsettled:
            assert membership.previous == found[-2][1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 500_000)), max_size=60), st.integers(0, 3_000_000))
def test_the_newest_part_of_a_log_is_about_as_long_as_asked(steps: list[tuple[bool, int]], size: int) -> None:
    sizes, log, asked = LogSizes(), [0], 0
    for append, number in steps:
        if append or len(log) == 1:
            log.append(number)
            sizes.appended(len(log) - 1, number)
        else:
            first = max(1, len(log) - number % 5)
            sizes.truncated(first, sum(log[first:]))
            del log[first:]
        asked = sizes.newest(size)
        assert 0 <= asked <= len(log)
    # A mark stands at least every quarter of a mebibyte, and an entry has half a megabyte at most. What was asked
    # before a truncation may have forgotten marks: then more of the log stays than asked for.
    above = sum(log[asked + 1 :])
    assert above <= size + (1 << 18) + 500_000 or any(not append for append, _ in steps)
    assert asked == 0 or sum(log[asked:]) > size or any(not append for append, _ in steps)


@given(
    st.lists(st.tuples(st.sampled_from("bcde"), st.integers(0, 50), st.integers(0, 9)), max_size=20),
    st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=1, max_size=4),
    st.integers(0, 9),
)
def test_a_lease_is_counted_by_the_voters_there_are_now(
    acks: list[tuple[str, int, int]], changes: list[set[str]], own: int
) -> None:
    """Answers given as a learner, or before a change, count once their giver votes, and only as long as it does."""
    held = Held(held_us=10)
    held.count(("a", "b", "c"), "a")
    for at, voters in enumerate(changes):
        for acceptor, sent, ceiling in acks[at :: len(changes)]:
            held.ack(acceptor, sent, ceiling)
        held.count(tuple(sorted(voters)), "a")
    voters, quorum = changes[-1], majority(len(changes[-1]))
    assert held.alone == (voters == {"a"})
    for now in range(70):
        granting = {name for name, sent, _ in acks if now < sent + 10} | {"a"}
        assert held.valid(now) == (len(granting & voters) >= quorum)
    ceilings = {name: max(c for n, _, c in acks if n == name) for name, _, _ in acks} | {"a": own}
    ranked = sorted((ceilings.get(name, 0) for name in voters), reverse=True)
    assert held.usable_ceiling(own) == ranked[quorum - 1]
