"""Rules of the Paxos core that scripts show badly: ordering of effects, hostile input, limits, configuration."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from f1common.clock import Now, TTInterval
from f1common.errors import Code, InvariantViolation
from spanstore.paxos import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Configuration,
    Effects,
    HardState,
    LogEntry,
    Message,
    PaxosConfig,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    Replica,
    Role,
    TransferLeadership,
)
from spanstore.testing.paxos_nodes import Disk

CONFIG = PaxosConfig(lease_us=1000, heartbeat_us=100, election_timeout_us=300, retry_us=400)


def at(us: int) -> Now:
    return Now(us, TTInterval(us, us))


def make(
    name: str = "a",
    *,
    voters: tuple[str, ...] = ("a", "b", "c"),
    config: PaxosConfig = CONFIG,
    disk: Disk | None = None,
    now: int = 0,
) -> tuple[Replica, Disk]:
    disk = disk or Disk()
    replica = Replica(
        group=7,
        me=name,
        configuration=Configuration(0, voters),
        config=config,
        log=disk,
        hard_state=disk.hard_state,
        applied_index=disk.applied,
        now=at(now),
        rng=random.Random(1),
    )
    return replica, disk


def turn(replica: Replica, disk: Disk, now: int) -> Effects:
    effects = replica.flush(at(now))
    chosen = replica.take_chosen(1 << 30)
    disk.write(effects, chosen[-1].index if chosen else 0)
    replica.synced(effects, at(now))
    replica.applied(disk.applied)
    return effects


def leader(config: PaxosConfig = CONFIG) -> tuple[Replica, Disk]:
    """Return a, just elected at time 2000 with the promise of b."""
    replica, disk = make(config=config)
    replica.tick(at(2000))
    question = next(m for _, m in turn(replica, disk, 2000).send_now if isinstance(m, PreVote))
    replica.step("b", PreVoteReply(question.ballot, True, NO_BALLOT), at(2000))
    turn(replica, disk, 2000)
    replica.step("b", Promise(question.ballot, True, question.ballot, NO_BALLOT, 0), at(2000))
    assert replica.role is Role.LEADER
    return replica, disk


def accepted(replica: Replica, match: int, sent: int, ceiling: int = 0) -> Accepted:
    return Accepted(replica.ballot, replica.ballot, True, match, 0, sent, ceiling)


def accept(ballot: Ballot, prev: LogEntry | None, *entries: LogEntry, chosen: int = 0, ceiling: int = 0) -> Accept:
    return Accept(
        ballot=ballot,
        prev_index=prev.index if prev else 0,
        prev_ballot=prev.ballot if prev else NO_BALLOT,
        entries=entries,
        chosen_index=chosen,
        ceiling=ceiling,
        sent_boot_us=0,
        lease_us=1000,
        safe_index=0,
        safe_ts=0,
        truncate_below=0,
    )


# Effects.


def test_what_a_crash_must_not_undo_is_never_sent_before_the_sync() -> None:
    replica, _ = make()
    replica.step("b", Prepare(Ballot(1, "b"), 0, NO_BALLOT), at(2000))
    effects = replica.flush(at(2000))
    assert effects.hard_state == HardState(Ballot(1, "b"), 0, 1000)
    assert [type(m) for _, m in effects.send_synced] == [Promise] and not effects.send_now
    replica.step("b", accept(Ballot(1, "b"), None, LogEntry(1, Ballot(1, "b"), b"x"), ceiling=9), at(2001))
    effects = replica.flush(at(2001))
    assert effects.hard_state is not None and effects.hard_state.ceiling == 9 and len(effects.append) == 1
    assert [type(m) for _, m in effects.send_synced] == [Accepted] and not effects.send_now


def test_a_candidate_does_not_count_itself_before_its_sync() -> None:
    replica, disk = make()
    replica.tick(at(2000))
    question = next(m for _, m in replica.flush(at(2000)).send_now if isinstance(m, PreVote))
    replica.step("b", PreVoteReply(question.ballot, True, NO_BALLOT), at(2000))
    effects = replica.flush(at(2000))
    assert [type(m) for _, m in effects.send_synced] == [Prepare, Prepare] and not effects.send_now
    replica.step("b", Promise(question.ballot, True, question.ballot, NO_BALLOT, 0), at(2000))
    assert not replica.flush(at(2000)).became_leader
    disk.write(effects, 0)
    replica.synced(effects, at(2000))
    assert replica.role is Role.LEADER
    assert replica.flush(at(2000)).became_leader


def test_the_first_write_of_a_start_remembers_a_longer_lease() -> None:
    replica, disk = make()
    assert turn(replica, disk, 0).hard_state == HardState(NO_BALLOT, 0, 1000)
    assert not turn(replica, disk, 0).writes()
    shorter = replace(CONFIG, lease_us=500)
    again, _ = make(config=shorter, disk=disk)
    again.step("b", Prepare(Ballot(1, "b"), 0, NO_BALLOT), at(999))
    assert [m.granted for _, m in again.flush(at(999)).send_now if isinstance(m, Promise)] == [False]
    again.step("b", Prepare(Ballot(1, "b"), 0, NO_BALLOT), at(1000))
    assert [m.granted for _, m in again.flush(at(1000)).send_synced if isinstance(m, Promise)] == [True]


def test_an_acceptor_remembers_the_longest_lease_that_a_leader_asked_for() -> None:
    replica, disk = make()
    turn(replica, disk, 0)
    replica.step("b", structs.replace(accept(Ballot(1, "b"), None), lease_us=5000), at(10))
    effects = turn(replica, disk, 10)
    assert effects.hard_state is not None and effects.hard_state.max_lease_us == 5000
    again, _ = make(disk=disk, now=100)
    again.step("c", Prepare(Ballot(2, "c"), 0, NO_BALLOT), at(5099))
    assert not again.flush(at(5099)).send_synced


def test_nothing_is_handed_out_before_the_flush_that_appends_it() -> None:
    replica, _ = make()
    ballot = Ballot(1, "b")
    replica.step("b", accept(ballot, None, LogEntry(1, ballot, b"x"), chosen=1), at(10))
    assert replica.chosen_index == 1
    assert replica.take_chosen(100) == []
    assert replica.flush(at(10)).append == replica.take_chosen(100)


def test_a_turn_answers_a_leader_once() -> None:
    replica, _ = make()
    ballot = Ballot(1, "b")
    entries = [LogEntry(i, ballot, b"x") for i in (1, 2, 3)]
    replica.step("b", accept(ballot, None, entries[0]), at(10))
    replica.step("b", accept(ballot, entries[1], entries[2]), at(10))
    replica.step("b", accept(ballot, entries[0], entries[1]), at(10))
    (answer,) = [m for _, m in replica.flush(at(10)).send_synced]
    assert isinstance(answer, Accepted) and answer.ok and answer.match_index == 2


def test_leadership_lost_in_the_turn_that_won_it_is_told_as_both() -> None:
    replica, _ = leader()
    replica.step("b", Accepted(replica.ballot, Ballot(9, "c"), False, 0, 0, 0, 0), at(2000))
    effects = replica.flush(at(2000))
    assert effects.became_leader and effects.lost_leadership


def test_take_chosen_keeps_to_its_size_but_gives_one() -> None:
    replica, disk = make(voters=("a",))
    replica.tick(at(0))
    turn(replica, disk, 0)
    for _ in range(10):
        replica.propose(b"x" * 100)
    effects = replica.flush(at(0))
    disk.write(effects, 0)
    replica.synced(effects, at(0))
    sizes = []
    while batch := replica.take_chosen(300):
        sizes.append(len(batch))
    assert sizes == [2, 2, 2, 2, 2]
    assert replica.propose(b"x" * 1000) == 11
    effects = replica.flush(at(0))
    replica.synced(effects, at(0))
    assert [entry.index for entry in replica.take_chosen(1)] == [11]


def test_a_follower_takes_no_proposals() -> None:
    replica, _ = make()
    assert replica.propose(b"x") is None
    assert not replica.flush(at(0)).append


def test_two_leaders_in_a_turn_leave_the_log_of_the_second_and_one_answer() -> None:
    replica, disk = make()
    old, new = Ballot(1, "b"), Ballot(2, "c")
    first = LogEntry(1, old, b"1")
    replica.step("b", accept(old, None, first), at(10))
    turn(replica, disk, 10)
    replica.step("b", accept(old, first, LogEntry(2, old, b"x"), LogEntry(3, old, b"x")), at(11))
    replica.step("c", accept(new, None, LogEntry(1, new, b"y"), chosen=1), at(11))
    assert replica.take_chosen(100) == [], "what is on disk at 1 is not what is chosen there"
    effects = turn(replica, disk, 11)
    assert effects.truncate_from == 1 and disk.log == [LogEntry(1, new, b"y")]
    assert effects.hard_state is not None and effects.hard_state.promised == new
    ((to, answer),) = effects.send_synced
    assert to == "c" and isinstance(answer, Accepted) and answer.ballot == new and answer.match_index == 1


# The acceptor's side.


def test_nothing_is_promised_below_a_promise() -> None:
    replica, disk = make()
    replica.step("c", Prepare(Ballot(2, "c"), 0, NO_BALLOT), at(2000))
    turn(replica, disk, 2000)
    replica.step("b", Prepare(Ballot(2, "b"), 0, NO_BALLOT), at(9000))
    effects = turn(replica, disk, 9000)
    assert not effects.send_synced
    assert effects.send_now == [("b", Promise(Ballot(2, "b"), False, Ballot(2, "c"), Ballot(2, "c"), 0))]


def test_a_repeated_prepare_is_promised_again() -> None:
    replica, disk = make()
    for _ in range(2):
        replica.step("c", Prepare(Ballot(2, "c"), 0, NO_BALLOT), at(2000))
        assert [m.granted for _, m in turn(replica, disk, 2000).send_synced if isinstance(m, Promise)] == [True]


def pre_voted(replica: Replica, disk: Disk, ballot: Ballot, now: int) -> bool:
    replica.step(ballot.replica, PreVote(ballot, 99, Ballot(9, "z")), at(now))
    (reply,) = [m for _, m in turn(replica, disk, now).send_now if isinstance(m, PreVoteReply)]
    return reply.granted


def test_a_fresh_promise_keeps_others_from_asking_for_an_election_timeout() -> None:
    replica, disk = make()
    replica.step("b", Prepare(Ballot(1, "b"), 0, NO_BALLOT), at(2000))
    assert not pre_voted(replica, disk, Ballot(5, "c"), 2299)
    assert pre_voted(replica, disk, Ballot(5, "c"), 2300)


def test_a_candidate_in_an_election_says_no_to_others() -> None:
    replica, disk = make()
    replica.tick(at(2000))
    (question, _) = [m for _, m in turn(replica, disk, 2000).send_now]
    assert pre_voted(replica, disk, Ballot(5, "c"), 2000), "asking costs nothing"
    replica.step("b", PreVoteReply(question.ballot, True, NO_BALLOT), at(2000))
    assert not pre_voted(replica, disk, Ballot(6, "c"), 2000)


def test_a_candidate_waits_for_the_grant_to_end_and_a_little_more() -> None:
    replica, disk = make()
    replica.step("b", accept(Ballot(1, "b"), None), at(2000))
    due = replica.next_wakeup(at(2000))
    assert 3000 < due < 3300
    replica._deadline = 0  # whatever becomes of the delay, the grant forbids it
    replica.tick(at(2999))
    assert not turn(replica, disk, 2999).send_now and replica.leader == "b"
    assert replica.next_wakeup(at(2999)) == due
    replica.tick(at(due))
    assert len(turn(replica, disk, due).send_now) == 2


def test_a_promise_restarts_the_election_timeout() -> None:
    replica, disk = make()
    replica.step("b", Prepare(Ballot(1, "b"), 0, NO_BALLOT), at(5000))
    turn(replica, disk, 5000)
    assert 5300 <= replica.next_wakeup(at(5000)) < 5600


# The leader's side.


def test_a_lease_runs_from_the_send_time_less_the_margin() -> None:
    replica, disk = leader()
    turn(replica, disk, 2000)
    assert not replica.lease_valid(2000)
    replica.step("b", accepted(replica, 0, 2000), at(2500))
    assert replica.lease_valid(2979) and not replica.lease_valid(2980)
    replica.step("b", accepted(replica, 0, 9_000_000), at(2500))
    assert not replica.lease_valid(2980), "an answer to what was never sent"


def test_a_usable_ceiling_is_durable_on_a_quorum_and_was_asked_for() -> None:
    replica, disk = leader()
    effects = replica.flush(at(2000))
    asked = effects.hard_state.ceiling if effects.hard_state else 0
    assert asked == 3000
    replica.step("b", accepted(replica, 0, 2000, ceiling=asked), at(2001))
    assert replica.usable_ceiling == 0, "the leader's own is not on disk yet"
    disk.write(effects, 0)
    replica.synced(effects, at(2001))
    assert replica.usable_ceiling == asked
    replica.step("b", accepted(replica, 0, 2000, ceiling=99_999), at(2001))
    replica.step("c", accepted(replica, 0, 2000, ceiling=99_999), at(2001))
    assert replica.usable_ceiling == asked


def test_nothing_is_safe_before_an_entry_of_the_own_ballot_is_chosen() -> None:
    replica, disk = leader()
    replica.set_safe(0, 2500)
    assert replica.safe == (0, 0)
    replica.propose(b"noop")
    turn(replica, disk, 2000)
    replica.set_safe(1, 2500)
    assert replica.safe == (0, 0)
    replica.step("b", accepted(replica, 1, 2000), at(2001))
    replica.set_safe(1, 2500)
    replica.set_safe(1, 2400)
    assert replica.safe == (1, 2500)


def test_bytes_in_flight_are_bounded_and_flow_again_when_answered() -> None:
    config = replace(CONFIG, max_accept_bytes=300, max_inflight_bytes=600)
    replica, disk = leader(config)
    for _ in range(20):
        replica.propose(b"x" * 100)
    sent = 0
    for _ in range(5):
        accepts = [m for to, m in turn(replica, disk, 2001).send_now if to == "b" and isinstance(m, Accept)]
        assert len(accepts) <= 1
        sent += sum(len(m.entries) for m in accepts)
    assert sent == 6
    replica.step("b", accepted(replica, 2, 2001), at(2002))
    (more,) = [m for to, m in turn(replica, disk, 2002).send_now if to == "b"]
    assert isinstance(more, Accept) and [entry.index for entry in more.entries] == [7, 8]


def test_an_acceptor_that_had_nothing_to_answer_is_not_silent() -> None:
    replica, disk = leader(replace(CONFIG, retry_us=100))
    replica.step("b", accepted(replica, 0, 2000), at(2001))
    turn(replica, disk, 2001)
    replica.propose(b"x")
    turn(replica, disk, 2100)
    replica.tick(at(2102))
    replica.propose(b"y")
    assert [len(m.entries) for _, m in turn(replica, disk, 2102).send_now if isinstance(m, Accept)] == [1, 1]


def test_an_old_gap_report_is_not_believed_twice() -> None:
    replica, disk = leader()
    replica.propose(b"x")
    turn(replica, disk, 2000)
    gap = Accepted(replica.ballot, replica.ballot, False, 0, 0, 2000, 0)
    replica.step("b", gap, at(2050))
    assert [to for to, _ in turn(replica, disk, 2050).send_now] == ["b"]
    replica.step("b", gap, at(2051))
    assert turn(replica, disk, 2051).send_now == []


def test_a_gap_report_without_progress_waits_for_the_heartbeat() -> None:
    replica, disk = leader(replace(CONFIG, max_accept_bytes=1, max_inflight_bytes=1))
    for _ in range(9):
        replica.propose(b"x")
    turn(replica, disk, 2000)
    replica.step("b", Accepted(replica.ballot, replica.ballot, False, 0, 99, 2000, 0), at(2050))
    assert turn(replica, disk, 2050).send_now == []
    assert len(turn(replica, disk, 2100).send_now) == 2


def test_an_answer_cannot_match_more_than_there_is() -> None:
    replica, disk = leader()
    replica.propose(b"x")
    turn(replica, disk, 2000)
    replica.step("b", accepted(replica, 10**6, 2000), at(2001))
    assert replica.match("b") == replica.chosen_index == 1
    replica.propose(b"y")
    assert [m.prev_index for _, m in turn(replica, disk, 2002).send_now if isinstance(m, Accept)] == [1, 1]


def test_a_log_cut_under_an_acceptor_that_went_back_starts_at_the_cut() -> None:
    disk = Disk()
    disk.log = [LogEntry(i, Ballot(1, "b"), b"x") for i in range(1, 6)]
    disk.hard_state = HardState(Ballot(1, "b"), 0, 1000)
    replica, _ = make(config=replace(CONFIG, log_keep_entries=0, max_accept_bytes=1, max_inflight_bytes=1), disk=disk)
    replica.step("b", structs.replace(accept(Ballot(1, "b"), disk.log[-1], chosen=5), truncate_below=3), at(0))
    replica.flush(at(0))
    replica.tick(at(3000))
    (question, _) = [m for _, m in replica.flush(at(3000)).send_now]
    replica.step("b", PreVoteReply(question.ballot, True, NO_BALLOT), at(3000))
    effects = replica.flush(at(3000))
    disk.write(effects, 0)
    replica.synced(effects, at(3000))
    replica.step("b", Promise(question.ballot, True, question.ballot, NO_BALLOT, 0), at(3000))
    replica.flush(at(3000))
    replica.step("c", Accepted(replica.ballot, replica.ballot, False, 0, 0, 3000, 0), at(3001))
    replica.applied(5)
    assert replica.flush(at(3001)).truncate_below == 3
    again = [m.prev_index for to, m in replica.flush(at(3200)).send_now if to == "c" and isinstance(m, Accept)]
    assert again == [3]


def test_a_transfer_is_refused_unless_the_heir_has_everything() -> None:
    replica, disk = leader()
    replica.propose(b"x")
    turn(replica, disk, 2000)
    assert not replica.transfer("b", 0, at(2001))
    assert not replica.transfer("stranger", 0, at(2001))
    replica.step("b", accepted(replica, 1, 2000), at(2001))
    assert replica.lease_valid(2001)
    assert replica.transfer("b", 2500, at(2001))
    assert not replica.lease_valid(2001)
    effects = replica.flush(at(2001))
    assert effects.lost_leadership and effects.send_synced == [("b", TransferLeadership(Ballot(1, "a"), 2500))]


def test_an_heir_is_told_no_less_than_the_floor() -> None:
    replica, disk = make()
    disk.hard_state = HardState(NO_BALLOT, 5000, 1000)
    replica, disk = make(disk=disk)
    replica.tick(at(2000))
    (question, _) = [m for _, m in turn(replica, disk, 2000).send_now]
    replica.step("b", PreVoteReply(question.ballot, True, NO_BALLOT), at(2000))
    turn(replica, disk, 2000)
    replica.step("b", Promise(question.ballot, True, question.ballot, NO_BALLOT, 7000), at(2000))
    assert replica.ceiling_floor == 7000
    turn(replica, disk, 2000)
    assert disk.hard_state.ceiling > 7000, "a ceiling at the floor leaves no timestamp to give"
    assert replica.transfer("b", 0, at(2001))
    assert [m.highest_ts for _, m in turn(replica, disk, 2001).send_synced if isinstance(m, TransferLeadership)] == [
        7000
    ]


def test_a_restarted_heir_does_not_take_over() -> None:
    """Its quarantine may hide a lease of another ballot than the released one."""
    replica, disk = make("b", now=1000)
    replica.step("a", accept(Ballot(1, "a"), None), at(1999))
    turn(replica, disk, 1999)
    replica.step("a", TransferLeadership(Ballot(1, "a"), 50), at(1999))
    assert replica.role is Role.FOLLOWER and not turn(replica, disk, 1999).send_synced
    replica.step("a", TransferLeadership(Ballot(1, "a"), 50), at(2000))
    assert len(turn(replica, disk, 2000).send_synced) == 2


def test_released_ceilings_count_if_a_leader_came_between() -> None:
    """The word of the one who gave up says nothing about a leader that some acceptor has promised since."""
    replica, disk = make("b")
    replica.step("a", accept(Ballot(1, "a"), None), at(2000))
    turn(replica, disk, 2000)
    replica.step("a", TransferLeadership(Ballot(1, "a"), 50), at(2001))
    turn(replica, disk, 2001)
    replica.step("c", Promise(Ballot(2, "b"), True, Ballot(2, "b"), Ballot(1, "c"), 777), at(2002))
    assert replica.role is Role.LEADER and replica.ceiling_floor == 777


def test_a_stale_transfer_starts_nothing() -> None:
    replica, disk = make("b")
    replica.step("a", accept(Ballot(3, "a"), None), at(2000))
    turn(replica, disk, 2000)
    for sender, ballot in (("a", Ballot(2, "a")), ("c", Ballot(3, "a")), ("a", Ballot(4, "a"))):
        replica.step(sender, TransferLeadership(ballot, 0), at(2001))
        assert replica.role is Role.FOLLOWER


def test_next_wakeup_is_never_past_what_is_due() -> None:
    replica, disk = leader()
    turn(replica, disk, 2000)
    assert replica.next_wakeup(at(2000)) == 2100
    replica.step("b", accepted(replica, 0, 2000), at(2050))
    turn(replica, disk, 2950)
    assert replica.next_wakeup(at(2950)) == 3000, "the lease for the acceptors ends before the next heartbeat"


# Hostile input.


def test_strangers_and_borrowed_names_are_ignored() -> None:
    replica, _ = make()
    replica.step("x", Prepare(Ballot(1, "x"), 9, Ballot(9, "x")), at(2000))
    replica.step("b", Prepare(Ballot(1, "c"), 9, Ballot(9, "x")), at(2000))
    replica.step("b", accept(Ballot(1, "c"), None), at(2000))
    replica.step("a", accept(Ballot(1, "a"), None), at(2000))
    effects = replica.flush(at(2000))
    assert not effects.send_now and not effects.send_synced and replica.ballot == NO_BALLOT


@pytest.mark.parametrize(
    "entries",
    [
        (LogEntry(2, Ballot(1, "b"), b""),),
        (LogEntry(1, Ballot(1, "b"), b""), LogEntry(3, Ballot(1, "b"), b"")),
        (LogEntry(1, Ballot(1, "b"), b""), LogEntry(2, Ballot(0, "b"), b"")),
        (LogEntry(1, Ballot(2, "b"), b""),),
    ],
)
def test_entries_that_do_not_follow_each_other_are_ignored(entries: tuple[LogEntry, ...]) -> None:
    replica, _ = make()
    replica.step("b", accept(Ballot(1, "b"), None, *entries), at(2000))
    assert replica.last_index == 0 and not replica.flush(at(2000)).send_synced


def test_overwriting_a_chosen_entry_is_a_defect_and_not_done() -> None:
    replica, disk = make()
    one = LogEntry(1, Ballot(1, "b"), b"x")
    replica.step("b", accept(Ballot(1, "b"), None, one, chosen=1), at(2000))
    turn(replica, disk, 2000)
    with pytest.raises(InvariantViolation) as caught:
        replica.step("c", accept(Ballot(2, "c"), None, LogEntry(1, Ballot(2, "c"), b"y")), at(9000))
    assert caught.value.code is Code.INTERNAL
    assert disk.log == [one]


ballots = st.builds(Ballot, st.integers(0, 4), st.sampled_from(["", "a", "b", "c", "x"]))
numbers = st.integers(-2, 12)
times = st.integers(-(10**6), 10**6)
entry_lists = st.lists(st.builds(LogEntry, numbers, ballots, st.binary(max_size=3)), max_size=4).map(tuple)
messages = st.one_of(
    st.builds(PreVote, ballots, numbers, ballots),
    st.builds(PreVoteReply, ballots, st.booleans(), ballots),
    st.builds(Prepare, ballots, numbers, ballots, ballots),
    st.builds(Promise, ballots, st.booleans(), ballots, ballots, times),
    st.builds(Accept, ballots, numbers, ballots, entry_lists, numbers, times, times, numbers, numbers, times, numbers),
    st.builds(Accepted, ballots, ballots, st.booleans(), numbers, numbers, times, times),
    st.builds(TransferLeadership, ballots, times),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "x"]), messages, st.integers(0, 700)), max_size=40))
def test_no_message_makes_a_replica_stumble(steps: list[tuple[str, Message, int]]) -> None:
    replica, disk = make()
    time = 1000
    promised = NO_BALLOT
    for sender, message, wait in steps:
        time += wait
        try:
            replica.step(sender, message, at(time))
        except InvariantViolation:
            return  # made-up leaders may well contradict each other
        replica.tick(at(time))
        replica.propose(b"p")
        turn(replica, disk, time)
        assert replica.ballot >= promised
        assert disk.hard_state.promised == replica.ballot
        assert replica.last_index == disk.last_index()
        assert replica.chosen_index <= replica.last_index
        assert replica.next_wakeup(at(time)) >= time
        promised = replica.ballot


# Starting.


@pytest.mark.parametrize(
    "change",
    [
        {"heartbeat_us": 0},
        {"election_timeout_us": 299},
        {"lease_us": 300},
        {"retry_us": 99},
        {"drift_margin_ppm": 0},
        {"max_accept_bytes": 0},
        {"cache_bytes": -1},
    ],
)
def test_settings_that_do_not_fit_together_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(InvariantViolation):
        replace(CONFIG, **change)


def test_a_replica_must_have_what_it_applied() -> None:
    disk = Disk()
    disk.applied = 3
    with pytest.raises(InvariantViolation):
        make(disk=disk)


def test_heartbeats_of_all_leaders_fall_on_the_same_moments() -> None:
    """Whenever entries were sent: one turn then makes the heartbeats of all groups that a server leads."""
    due = set()
    for sent_at in (2110, 2137, 2199):
        replica, disk = leader()
        sent = turn(replica, disk, sent_at)
        assert any(isinstance(message, Accept) for _, message in [*sent.send_now, *sent.send_synced])
        due.add(replica.next_wakeup(at(sent_at + 1)))
    assert due == {2200}
