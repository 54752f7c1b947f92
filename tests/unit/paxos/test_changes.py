"""Changes of the members at one replica: what is refused and when, who counts, who is believed, who stops."""

import random

import pytest

from f1common.clock import Now, TTInterval
from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.paxos import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Configuration,
    Effects,
    LogEntry,
    OfferState,
    PaxosConfig,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    Removed,
    Replica,
    Role,
    TransferLeadership,
)
from spanstore.testing.paxos_nodes import Disk

CONFIG = PaxosConfig(
    lease_us=1000, heartbeat_us=100, election_timeout_us=300, retry_us=400, promote_lag_entries=2, log_keep_entries=0
)
ABC = Configuration(0, ("a", "b", "c"))
ABCD = Configuration(1, ("a", "b", "c"), ("d#1",))


def at(us: int) -> Now:
    return Now(us, TTInterval(us, us))


class One:
    """One replica, its disk and the time."""

    def __init__(self, me: str = "a", configuration: Configuration | None = ABC, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.time = 0
        self.replica = Replica(
            group=7,
            me=me,
            configuration=configuration,
            config=CONFIG,
            log=self.disk,
            hard_state=self.disk.hard_state,
            applied_index=self.disk.applied,
            now=at(0),
            rng=random.Random(1),
        )

    def turn(self) -> Effects:
        effects = self.replica.flush(at(self.time))
        chosen = self.replica.take_chosen(1 << 30)
        self.disk.write(effects, chosen[-1].index if chosen else self.disk.applied)
        self.replica.synced(effects, at(self.time))
        self.replica.applied(self.disk.applied)
        return effects

    def say(self, sender: str, message: object) -> Effects:
        self.replica.step(sender, message, at(self.time))  # type: ignore[arg-type]
        return self.turn()

    def role(self) -> Role:
        return self.replica.role

    def offered(self) -> tuple[str, int] | None:
        return self.replica.offered_state

    def removed(self) -> bool:
        return self.replica.removed

    def elect(self, *voters: str) -> "One":
        """Become leader by the promises of ``voters``."""
        self.time += 2000
        self.replica.tick(at(self.time))
        self.turn()
        ballot = Ballot(self.replica.ballot.round + 1, self.replica.me)
        for voter in voters:
            self.replica.step(voter, PreVoteReply(ballot, True, NO_BALLOT), at(self.time))
        self.turn()
        for voter in voters:
            self.replica.step(voter, Promise(ballot, True, ballot, NO_BALLOT, 0), at(self.time))
        assert self.role() is Role.LEADER
        return self

    def answer(self, *members: str, match: int | None = None) -> None:
        index = self.replica.last_index if match is None else match
        for member in members:
            self.say(member, Accepted(self.replica.ballot, self.replica.ballot, True, index, 0, self.time, 0))

    def propose(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.replica.propose(payload)
        self.turn()

    def change(self, configuration: Configuration) -> None:
        self.replica.change(configuration, at(self.time))
        self.turn()

    def refused(self, configuration: Configuration) -> str:
        with pytest.raises(F1Error) as caught:
            self.replica.change(configuration, at(self.time))
        assert not self.replica.flush(at(self.time)).append
        if caught.value.code is Code.FAILED_PRECONDITION:
            assert caught.value.retryable
        return str(caught.value)


def leader(configuration: Configuration = ABC) -> One:
    """Return a, which leads with everybody's answers up to its first entry."""
    others = [member for member in configuration.members if member != "a"]
    one = One("a", configuration).elect(*others)
    one.propose(b"0")
    one.answer(*others)
    assert one.replica.why_no_change() == ""
    return one


def accept(ballot: Ballot, *entries: LogEntry, prev: LogEntry | None = None, chosen: int = 0) -> Accept:
    index, before = (prev.index, prev.ballot) if prev else (0, NO_BALLOT)
    return Accept(ballot, index, before, entries, chosen, 0, 0, 1000, 0, 0, 0)


# When a change is refused.


def test_a_follower_changes_nothing() -> None:
    one = One()
    assert one.replica.why_no_change() == "this replica does not lead"
    assert "does not lead" in one.refused(ABC.with_learner("d"))


def test_a_change_waits_for_an_own_entry() -> None:
    one = One().elect("b", "c")
    one.propose(b"0")
    assert "just been elected" in one.refused(ABC.with_learner("d"))
    one.answer("b")
    one.change(ABC.with_learner("d"))
    assert one.replica.configuration == ABCD and not one.replica.configuration_settled


def test_a_change_waits_for_the_one_before() -> None:
    one = leader()
    one.change(ABCD)
    assert "not chosen yet" in one.refused(ABCD.without("c"))
    one.answer("b", "c")
    one.change(ABCD.without("c"))
    assert one.replica.configuration.voters == ("a", "b")


def test_what_is_no_step_is_refused_first() -> None:
    assert "more than one voter" in leader().refused(Configuration(1, ("a",)))


def test_configurations_are_not_proposed_as_commands() -> None:
    with pytest.raises(InvariantViolation):
        leader().replica.propose(ABCD.encode())


def test_a_learner_votes_when_it_has_caught_up() -> None:
    one = leader()
    one.change(ABCD)
    one.answer("b", "c")
    assert "d#1 lacks too much" in one.refused(ABCD.with_voter("d#1"))
    one.propose(*[b"x"] * 6)
    one.answer("b", "c")
    one.answer("d#1", match=one.replica.last_index - 3)
    assert "d#1 lacks too much" in one.refused(ABCD.with_voter("d#1"))
    one.answer("d#1", match=one.replica.last_index - 2)
    one.change(ABCD.with_voter("d#1"))
    assert one.replica.configuration.voters == ("a", "b", "c", "d#1")


def test_a_newcomer_without_state_does_not_vote_though_the_log_is_short() -> None:
    one = leader()
    one.change(ABCD)
    one.answer("b", "c")
    one.say("d#1", Accepted(one.replica.ballot, one.replica.ballot, False, 0, -1, one.time, 0))
    assert one.replica.last_index == 2 and "d#1 lacks too much" in one.refused(ABCD.with_voter("d#1"))


def test_the_next_configuration_must_be_able_to_choose_at_once() -> None:
    one = leader()
    one.time += 500
    one.answer("b")
    one.time += 600
    assert "no majority at once, without c: add others first" in one.refused(ABC.without("b"))
    one.change(ABC.without("c"))


# Who counts.


def test_a_new_voter_counts_at_once_and_a_former_one_no_more() -> None:
    one = leader(Configuration(1, ("a", "b", "c"), ("d#1",)))
    one.change(one.replica.configuration.with_voter("d#1"))
    index = one.replica.last_index
    one.answer("b")
    assert one.replica.chosen_index == index - 1, "two of four"
    one.answer("d#1")
    assert one.replica.chosen_index == index
    one.change(one.replica.configuration.without("b"))
    one.answer("b")
    one.answer("d#1")
    assert one.replica.chosen_index == index + 1, "two of three"


def test_learners_choose_nothing_and_give_no_lease() -> None:
    one = One("a", ABCD).elect("b")
    one.propose(b"0")
    one.answer("d#1")
    assert one.replica.chosen_index == 0 and not one.replica.lease_valid(one.time)
    one.answer("c")
    assert one.replica.chosen_index == 1 and one.replica.lease_valid(one.time)


def test_learners_elect_nobody() -> None:
    one = One("a", ABCD)
    one.time = 2000
    one.replica.tick(at(2000))
    one.turn()
    ballot = Ballot(1, "a")
    assert not one.say("d#1", PreVoteReply(ballot, True, NO_BALLOT)).writes()
    one.say("b", PreVoteReply(ballot, True, NO_BALLOT))
    one.say("d#1", Promise(ballot, True, ballot, NO_BALLOT, 0))
    assert one.role() is Role.CANDIDATE
    one.say("b", Promise(ballot, True, ballot, NO_BALLOT, 0))
    assert one.role() is Role.LEADER


def test_a_group_grows_from_one_to_five_and_back() -> None:
    one = leader(Configuration(0, ("a",)))
    for server in "bcde":
        one.change(one.replica.configuration.with_learner(server))
        name = one.replica.configuration.learners[0]
        one.answer(*one.replica.configuration.members[1:])
        one.change(one.replica.configuration.with_voter(name))
        voters = one.replica.configuration.voters
        needed = len(voters) // 2
        index = one.replica.last_index
        one.answer(*voters[1:needed])
        assert one.replica.chosen_index < index
        one.answer(*voters[needed:])
        assert one.replica.chosen_index == index
    assert one.replica.configuration.voters == ("a", "b#1", "c#3", "d#5", "e#7")
    for name in one.replica.configuration.voters[:0:-1]:
        one.change(one.replica.configuration.without(name))
        one.answer(*one.replica.configuration.voters[1:])
        assert one.replica.configuration_settled
    assert one.replica.configuration == Configuration(12, ("a",)) and one.replica.lease_valid(10**9)


def test_a_leader_that_is_removed_leads_until_that_is_chosen() -> None:
    one = leader()
    one.change(ABC.without("a"))
    one.answer("b")
    one.replica.tick(at(one.time))
    assert one.role() is Role.LEADER, "its own copy is none of the two that it takes"
    one.answer("c")
    one.replica.tick(at(one.time))
    assert one.turn().lost_leadership and one.role() is Role.FOLLOWER
    one.time += 5000
    one.replica.tick(at(one.time))
    assert one.role() is Role.FOLLOWER, "and does not stand again"


def test_a_change_that_goes_with_the_log_counts_no_more() -> None:
    one = One("b")
    old, new = Ballot(1, "a"), Ballot(2, "c")
    one.say("a", accept(old, LogEntry(1, old, ABC.without("c").encode())))
    assert one.replica.configuration.voters == ("a", "b")
    one.say("c", accept(new, LogEntry(1, new, b"x")))
    assert one.replica.configuration == ABC


# Transfers, and who may stand.


def test_leadership_goes_to_voters_and_not_during_a_change() -> None:
    one = leader(ABCD)
    assert not one.replica.transfer("d#1", 0, at(one.time)), "a learner"
    assert not one.replica.transfer("x", 0, at(one.time)), "a stranger"
    one.change(ABCD.with_voter("d#1"))
    one.answer("b", match=one.replica.last_index)
    assert not one.replica.transfer("b", 0, at(one.time)), "not chosen"
    one.answer("c")
    assert one.replica.transfer("b", 0, at(one.time))


def test_whoever_may_not_lead_neither_stands_nor_takes_over_but_goes_on_if_it_does() -> None:
    one = One()
    one.replica.set_may_lead(False)
    one.time = 5000
    one.replica.tick(at(one.time))
    assert one.role() is Role.FOLLOWER
    one.say("b", accept(Ballot(1, "b")))
    one.say("b", TransferLeadership(Ballot(1, "b"), 0))
    assert one.role() is Role.FOLLOWER
    one.replica.set_may_lead(True)
    one.say("b", TransferLeadership(Ballot(1, "b"), 0))
    assert one.role() is Role.CANDIDATE
    leads = leader()
    leads.replica.set_may_lead(False)
    leads.replica.tick(at(leads.time))
    assert leads.role() is Role.LEADER


@pytest.mark.parametrize(("me", "configuration"), [("d#1", ABCD), ("d#1", None), ("x", ABC)])
def test_whoever_is_no_voter_never_stands(me: str, configuration: Configuration | None) -> None:
    one = One(me, configuration)
    one.time = 10_000
    one.replica.tick(at(one.time))
    effects = one.turn()
    assert one.role() is Role.FOLLOWER and one.replica.ballot == NO_BALLOT
    assert {m.ballot.round for _, m in effects.send_now if isinstance(m, PreVote)} <= {0}, "what nobody can grant"


def test_a_single_voter_of_a_group_that_never_changed_leads_at_once() -> None:
    one = One("a", Configuration(0, ("a",)))
    one.replica.tick(at(0))
    one.turn()
    assert one.role() is Role.LEADER


@pytest.mark.parametrize("learners", [(), ("d#1",)])
def test_the_last_voter_of_a_changed_group_waits_for_leases_that_it_may_have_granted(learners: tuple[str, ...]) -> None:
    """b led a and b and removed itself; it may not know that this is chosen, and hold a lease that a granted."""
    one = One("a", Configuration(3, ("a",), learners))
    one.replica.tick(at(999))
    one.turn()
    assert one.role() is Role.FOLLOWER
    one.time = 1500
    one.replica.tick(at(1500))
    one.turn()
    assert one.role() is Role.LEADER and one.replica.lease_valid(10**9)


# Strangers.


def prepare(name: str, round_number: int = 5) -> Prepare:
    return Prepare(Ballot(round_number, name), 99, Ballot(round_number - 1, "b"))


def test_a_removed_candidate_is_told_and_believes_it() -> None:
    one = One("b", Configuration(3, ("a", "b"), ()))
    one.time = 2000
    effects = one.say("c#2", PreVote(Ballot(5, "c#2"), 99, Ballot(4, "b")))
    assert effects.send_now == [("c#2", Removed(Ballot(5, "c#2"), 3))] and not effects.send_synced
    gone = One("c#2", Configuration(2, ("a", "b"), ("c#2",)))
    gone.say("b", Removed(Ballot(5, "c#2"), 1))
    assert not gone.removed(), "somebody who did not know it yet"
    gone.say("b", Removed(Ballot(5, "c#2"), 3))
    gone.time = 9000
    gone.replica.tick(at(9000))
    assert gone.removed() and gone.role() is Role.FOLLOWER
    assert {m.ballot.round for _, m in gone.turn().send_now if isinstance(m, PreVote)} == {0}, "it stands no more"


def test_whoever_joined_later_than_the_log_knows_is_no_stranger() -> None:
    one = One("b", Configuration(3, ("a", "b"), ()))
    one.time = 2000
    assert [type(m) for _, m in one.say("c#4", prepare("c#4")).send_synced] == [Promise]
    assert not one.say("c#3", prepare("c#3", 6)).send_synced


def test_a_change_that_is_not_chosen_proves_nothing_about_others() -> None:
    """b holds a change of version 1 that was never chosen. The one that was brought x#1, which leads by now."""
    one = One("b")
    old, new = Ballot(1, "a"), Ballot(9, "x#1")
    stray = LogEntry(1, old, ABC.with_learner("d").encode())
    one.say("a", accept(old, stray))
    one.time = 3000
    entry = LogEntry(1, Ballot(2, "c"), ABC.with_learner("x").encode())
    effects = one.say("x#1", accept(new, entry, chosen=1))
    assert [m.match_index for _, m in effects.send_synced if isinstance(m, Accepted)] == [1]
    assert one.replica.configuration == ABC.with_learner("x")


def test_the_members_of_the_configuration_before_count_until_the_change_is_chosen() -> None:
    one = One("b")
    ballot = Ballot(1, "a")
    change = LogEntry(1, ballot, ABC.without("c").encode())
    one.say("a", accept(ballot, change))
    one.time = 3000
    assert [type(m) for _, m in one.say("c", prepare("c")).send_synced] == [Promise]
    again = One("b")
    again.say("a", accept(ballot, change, chosen=1))
    again.time = 3000
    assert again.say("c", prepare("c")).send_now == [("c", Removed(Ballot(5, "c"), 1))]


# Newcomers and offers of the state.


def test_a_newcomer_fits_no_log_promises_nothing_and_asks_its_leader_whether_it_still_belongs() -> None:
    one = One("d#1", None)
    ballot = Ballot(3, "a")
    effects = one.say("a", accept(ballot, LogEntry(1, ballot, b"x")))
    (answer,) = [m for _, m in effects.send_synced if isinstance(m, Accepted)]
    assert not answer.ok and answer.hint == -1 and not effects.append
    one.time = 20_000
    assert not [m for _, m in one.say("b", prepare("b")).send_synced if isinstance(m, Promise)]
    one.replica.tick(at(one.time))
    assert [(to, type(m)) for to, m in one.turn().send_now] == [("a", PreVote)]
    one.say("a", Removed(Ballot(3, "d#1"), 2))
    assert one.removed()


def test_an_offer_is_taken_from_the_leader_alone_and_goes_when_the_log_fits() -> None:
    one = One("b")
    ballot = Ballot(2, "a")
    first = LogEntry(1, ballot, b"x")
    one.say("a", accept(ballot, first, chosen=1))
    for sender, offer in [
        ("c", OfferState(ballot, 9)),
        ("a", OfferState(Ballot(1, "a"), 9)),
        ("a", OfferState(ballot, 1)),
    ]:
        one.say(sender, offer)
        assert one.offered() is None
    one.say("a", OfferState(ballot, 9))
    assert one.offered() == ("a", 9)
    one.say("a", accept(ballot, prev=first))
    assert one.offered() is None
    one.say("a", OfferState(ballot, 9))
    one.replica.decline_state()
    assert one.offered() is None


def newcomer(one: One) -> Accepted:
    return Accepted(one.replica.ballot, one.replica.ballot, False, 0, -1, one.time, 0)


def test_a_learner_that_begins_anew_holds_nothing_any_more() -> None:
    one = leader(Configuration(1, ("a", "b", "c"), ("d#1",)))
    one.propose(b"1", b"2", b"3")
    one.answer("b", "c", "d#1")
    one.say("d#1", newcomer(one))
    assert one.replica.match("d#1") == 0
    assert "d#1 lacks too much" in one.refused(one.replica.configuration.with_voter("d#1"))


def test_a_voter_that_lost_its_state_gets_nothing_to_vote_with() -> None:
    one = leader(Configuration(2, ("a", "b", "d#1")))
    one.time += 985
    one.say("d#1", newcomer(one))
    assert not one.replica.lease_valid(one.time), "nor does its grant count"
    one.time += 10
    one.answer("b")
    sent = one.turn().send_now
    one.time += 100
    sent += one.turn().send_now
    assert [m.entries for to, m in sent if to == "d#1" and isinstance(m, Accept)] == [()]
    assert not [m for _, m in sent if isinstance(m, OfferState)]
    index = one.replica.propose(b"x")
    one.turn()
    assert index is not None and one.replica.chosen_index < index
    one.answer("b")
    assert one.replica.chosen_index == index, "a and b choose without it"


def test_a_log_that_went_on_offers_the_state_with_each_heartbeat() -> None:
    one = leader()
    one.change(ABCD)
    one.answer("b", "c")
    newcomer = Accepted(one.replica.ballot, one.replica.ballot, False, 0, -1, one.time, 0)
    one.say("d#1", newcomer)
    one.time += 100
    offers = [to for to, m in one.turn().send_now if isinstance(m, OfferState)]
    assert offers == ["d#1"]
    one.answer("d#1")
    one.time += 100
    assert not [to for to, m in one.turn().send_now if isinstance(m, OfferState)]
