"""The log behind its cache is the log without one; leases and majorities are arithmetic with a dumb oracle."""

import random

from hypothesis import given
from hypothesis import strategies as st

from spanstore.paxos import NO_BALLOT, Ballot, LogEntry
from spanstore.paxos.lease import Granted, Held
from spanstore.paxos.log import ENTRY_OVERHEAD_BYTES, LogTail
from spanstore.paxos.progress import Progress
from spanstore.paxos.quorum import majority, reached_by
from spanstore.testing.paxos_nodes import Disk


class Writer:
    """A LogTail and its disk, where writes land some time after they are made, and the whole log as a plain list."""

    def __init__(self, cache_bytes: int) -> None:
        self.disk = Disk()
        self.tail = LogTail(self.disk, cache_bytes)
        self.log: list[LogEntry] = []
        self.jobs: list[tuple[int | None, list[LogEntry]]] = []
        self.round = 1

    def append(self, size: int) -> None:
        entry = LogEntry(len(self.log) + 1, Ballot(self.round, "a"), bytes(size))
        self.log.append(entry)
        self.tail.append(entry)
        self.jobs.append((None, [entry]))

    def truncate(self, first: int) -> None:
        self.round += 1
        del self.log[first - 1 :]
        self.tail.truncate(first)
        self.jobs.append((first, []))

    def sync(self) -> None:
        if not self.jobs:
            return
        first, entries = self.jobs.pop(0)
        if first is not None:
            del self.disk.log[first - 1 :]
        self.disk.log.extend(entries)
        if entries:
            self.tail.synced(entries[-1])

    def compare(self, first: int, last: int, max_bytes: int) -> None:
        tail = self.tail
        assert tail.last_index == len(self.log)
        assert tail.last_ballot == (self.log[-1].ballot if self.log else NO_BALLOT)
        for index in range(len(self.log) + 2):
            expected = NO_BALLOT if index == 0 else self.log[index - 1].ballot if index <= len(self.log) else None
            assert tail.ballot_at(index) == expected
        assert self.log[: tail.durable_index] == self.disk.log[: tail.durable_index]
        if first <= len(self.log) and last >= first:
            found, size = tail.entries(first, last, max_bytes)
            assert found == self.log[first - 1 : first - 1 + len(found)] and found
            assert found[-1].index <= last
            assert size == sum(len(entry.payload) + ENTRY_OVERHEAD_BYTES for entry in found)
            assert len(found) == 1 or sum(len(entry.payload) for entry in found) <= max_bytes
        else:
            assert tail.entries(first, last, max_bytes) == ([], 0)


@given(st.integers(0, 10**9), st.sampled_from([0, 100, 400, 10_000]))
def test_the_cached_log_is_the_log(seed: int, cache_bytes: int) -> None:
    rng = random.Random(seed)
    writer = Writer(cache_bytes)
    for _ in range(60):
        match rng.randrange(7):
            case 0 | 1 | 2:
                writer.append(rng.randrange(80))
            case 3 if writer.log:
                writer.truncate(rng.randint(max(1, len(writer.log) - 4), len(writer.log)))
            case _:
                writer.sync()
        first = rng.randint(1, len(writer.log) + 1)
        writer.compare(first, rng.randint(0, len(writer.log) + 2), rng.choice((0, 50, 200, 10**6)))


def test_an_entry_rewritten_before_its_sync_is_not_durable_by_the_old_write() -> None:
    writer = Writer(0)
    writer.append(1)
    writer.truncate(1)
    writer.append(1)
    writer.sync()
    assert writer.tail.durable_index == 0
    writer.sync()
    writer.sync()
    assert writer.tail.durable_index == 1


def test_durable_entries_leave_the_memory_and_are_read_from_disk() -> None:
    writer = Writer(cache_bytes=200)
    for _ in range(50):
        writer.append(10)
        writer.sync()
    assert len(writer.tail._entries) <= 8
    assert writer.tail.entries(1, 50, 10**6)[0] == writer.log[: writer.tail._first - 1]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=7))
def test_reached_by_a_majority(values: list[int]) -> None:
    quorum = majority(len(values))
    assert 2 * quorum > len(values)
    expected = max(value for value in values if sum(other >= value for other in values) >= quorum)
    assert reached_by(values, quorum) == expected


@given(
    st.lists(st.tuples(st.sampled_from("bcde"), st.integers(0, 50), st.integers(0, 9)), max_size=20), st.integers(0, 9)
)
def test_a_lease_is_held_when_a_quorum_granted_it(acks: list[tuple[str, int, int]], own: int) -> None:
    held = Held(held_us=10)
    held.count(("a", "b", "c", "d", "e"), "a")
    for acceptor, sent, ceiling in acks:
        held.ack(acceptor, sent, ceiling)
    for now in range(70):
        granting = {acceptor for acceptor, sent, _ in acks if now < sent + 10}
        assert held.valid(now) == (len(granting) >= 2)
    usable = held.usable_ceiling(own)
    assert sum(max((c for a, _, c in acks if a == name), default=0) >= usable for name in "bcde") + (own >= usable) >= 3


def test_a_group_of_one_needs_nobodys_lease() -> None:
    held = Held(held_us=10)
    held.count(("a",), "a")
    assert held.valid(10**9) and held.usable_ceiling(7) == 7


def test_a_grant_refuses_others_only_and_a_quarantine_everybody() -> None:
    granted = Granted(quarantine_until=100)
    assert granted.refuses("b", NO_BALLOT, 99) and not granted.refuses("b", NO_BALLOT, 100)
    granted.grant("b", Ballot(1, "b"), 500)
    assert granted.refuses("c", NO_BALLOT, 499) and not granted.refuses("c", NO_BALLOT, 500)
    assert not granted.refuses("b", NO_BALLOT, 100) and granted.refuses("b", NO_BALLOT, 99)
    assert not granted.refuses("c", Ballot(1, "b"), 100) and granted.refuses("c", Ballot(1, "b"), 99)
    assert granted.refuses("c", Ballot(2, "b"), 499)


def test_a_shorter_grant_does_not_shorten_an_earlier_one() -> None:
    granted = Granted(0)
    granted.grant("b", Ballot(1, "b"), 500)
    granted.grant("b", Ballot(1, "b"), 400)
    assert granted.refuses("c", NO_BALLOT, 499)


@given(st.lists(st.tuples(st.sampled_from(["send", "match", "back"]), st.integers(1, 6)), max_size=30))
def test_bytes_in_flight_are_those_sent_and_not_matched(steps: list[tuple[str, int]]) -> None:
    progress = Progress(1, 0)
    flying: list[tuple[int, int]] = []
    for kind, number in steps:
        match kind:
            case "send":
                end = progress.next_index + number - 1
                progress.sent(end, 10 * number, 0)
                flying.append((end, 10 * number))
            case "match":
                progress.matched(min(number, progress.next_index - 1))
                flying = [item for item in flying if item[0] > progress.match]
            case _:
                progress.fall_back(number, 0)
                flying = []
        assert progress.inflight_bytes == sum(size for _, size in flying)
        assert progress.next_index > progress.match


def test_a_late_answer_moves_on_an_acceptor_that_was_sent_back() -> None:
    progress = Progress(6, 0)
    progress.sent(9, 10, 0)
    progress.fall_back(1, 5)
    progress.matched(9)
    assert progress.next_index == 10 and not progress.probing
