"""Applying the log: whatever lies in it, the first decision about an id stands, and every replica does the same."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group.state import Done, ReplicatedState
from spanstore.mvcc.versions import latest
from spanstore.paxos.messages import Ballot, LogEntry
from spanstore.txn.commands import (
    AbortCmd,
    Command,
    CommitCmd,
    DecideCmd,
    LockRecord,
    NewLeader,
    PrepareCmd,
    TxnRef,
    Write,
    encode_command,
)
from spanstore.txn.locks import LockMode, Priority
from spanstore.txn.outcomes import OutcomeState, decode_finished, decode_outcome

GROUP = 1
BALLOT = Ballot(1, "a")


class Disk:
    """A state with its engine."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.runner = asyncio.Runner()
        self.load()

    def load(self) -> None:
        with self.engine.snapshot() as reader:
            self.state = ReplicatedState(GROUP, reader)

    def apply(self, *commands: Command) -> list[Done]:
        first = self.state.applied.index + 1
        entries = [LogEntry(first + n, BALLOT, encode_command(c)) for n, c in enumerate(commands)]
        batch = WriteBatch()
        with self.engine.snapshot() as reader:
            done = self.state.apply(entries, batch, reader)
        if batch:
            self.runner.run(self.engine.commit(batch))
        self.state.durable()
        return done

    def get(self, key: bytes) -> bytes | None:
        with self.engine.snapshot() as reader:
            version = latest(reader, GROUP, key)
        return None if version is None else version.value

    def raw(self, key: bytes) -> bytes | None:
        with self.engine.snapshot() as reader:
            return reader.get(key)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.runner.close()


def ref(attempt: int = 1, name: bytes = b"u") -> TxnRef:
    return TxnRef(b"k", name, 5, attempt)


def commit(ts: int, value: bytes, attempt: int = 1) -> CommitCmd:
    return CommitCmd(ref(attempt), ts, (Write(b"k", value),), (), 0)


def prepare(ts: int, value: bytes, attempt: int = 1) -> PrepareCmd:
    lock = LockRecord(b"k", None, LockMode.EXCLUSIVE)
    return PrepareCmd(ref(attempt), ts, Priority(1, b"u"), (Write(b"k", value),), (lock,), 7, 1_000)


@pytest.mark.parametrize("one_turn", [True, False])
@pytest.mark.parametrize(
    ("commands", "value", "outcome"),
    [
        ([commit(10, b"1"), commit(11, b"2")], b"1", (1, OutcomeState.COMMITTED, 10)),
        ([commit(10, b"1"), commit(11, b"2", 2)], b"1", (1, OutcomeState.COMMITTED, 10)),
        ([AbortCmd(ref(), "x", 9), commit(10, b"1")], None, (1, OutcomeState.ABORTED, 0)),
        ([AbortCmd(ref(2), "x", 9), commit(10, b"1")], None, (2, OutcomeState.ABORTED, 0)),
        ([AbortCmd(ref(), "x", 9), commit(10, b"1", 2)], b"1", (2, OutcomeState.COMMITTED, 10)),
        ([commit(10, b"1"), AbortCmd(ref(), "x", 11)], b"1", (1, OutcomeState.COMMITTED, 10)),
        ([commit(10, b"1"), AbortCmd(ref(5), "x", 11)], b"1", (1, OutcomeState.COMMITTED, 10)),
    ],
)
def test_first_decision_in_the_log_stands(
    disk: Disk, one_turn: bool, commands: list[Command], value: bytes | None, outcome: tuple[int, OutcomeState, int]
) -> None:
    if one_turn:
        disk.apply(*commands)
    else:
        for command in commands:
            disk.apply(command)
            disk.load()
    assert disk.get(b"k") == value
    data = disk.raw(keyspace.outcome_key(GROUP, b"u", b"k"))
    assert data is not None
    record = decode_outcome(data)
    assert (record.attempt, record.state, record.ts) == outcome


@pytest.mark.parametrize("one_turn", [True, False])
def test_decision_ends_exactly_the_attempt_that_it_names(disk: Disk, one_turn: bool) -> None:
    commands: list[Command] = [
        prepare(10, b"2", 2),
        DecideCmd(ref(1), None, 500),
        DecideCmd(ref(2), 13),
        DecideCmd(ref(2), 14),
        DecideCmd(ref(2), None),
    ]
    done = disk.apply(*commands) if one_turn else [d for c in commands for d in disk.apply(c)]
    assert [d.prepared is not None for d in done] == [False, False, True, False, False]
    assert disk.get(b"k") == b"2"
    disk.load()
    assert not disk.state.prepared and disk.state.max_ts == 13
    data = disk.raw(keyspace.finished_key(GROUP, b"u"))
    assert data is not None
    record = decode_finished(data)
    assert (record.attempt, record.ts, record.deadline) == (2, 13, 1_000)


def test_prepared_transactions_survive_a_restart_with_their_locks(disk: Disk) -> None:
    disk.apply(prepare(10, b"1"))
    before = dict(disk.state.prepared)
    disk.load()
    assert disk.state.prepared == before and disk.get(b"k") is None
    disk.apply(DecideCmd(ref(), None))
    disk.load()
    assert not disk.state.prepared and disk.get(b"k") is None


def test_placeholders_take_the_commit_timestamp_in_both_kinds_of_commits(disk: Disk) -> None:
    write = Write(b"h" + bytes(8) + b"t", b"<" + bytes(8) + b">", 1, (1,))
    disk.apply(CommitCmd(ref(), 258, (write,), (), 0))
    disk.apply(PrepareCmd(ref(1, b"w"), 300, Priority(1, b"w"), (write,), (), 7, 1_000), DecideCmd(ref(1, b"w"), 513))
    for ts in (258, 513):
        key = b"h\x80" + ts.to_bytes(7, "big") + b"t"
        assert disk.get(key) == b"<" + ts.to_bytes(8, "big") + b">"


def test_entries_that_do_not_follow_each_other_are_a_defect(disk: Disk) -> None:
    with disk.engine.snapshot() as reader, pytest.raises(InvariantViolation):
        disk.state.apply([LogEntry(2, BALLOT, encode_command(commit(1, b"")))], WriteBatch(), reader)


def test_entry_that_is_no_command_is_corruption(disk: Disk) -> None:
    with disk.engine.snapshot() as reader, pytest.raises(F1Error) as caught:
        disk.state.apply([LogEntry(1, BALLOT, b"\xc1")], WriteBatch(), reader)
    assert caught.value.code is Code.DATA_CORRUPTION


@pytest.mark.parametrize("seed", range(10))
def test_the_same_log_cut_into_any_turns_gives_the_same_rows(seed: int) -> None:
    rng = random.Random(seed)
    log: list[Command] = []
    for ts in range(10, 200, 3):
        name = b"u%d" % rng.randrange(8)
        attempt = rng.randrange(1, 4)
        writes = (Write(b"k%d" % rng.randrange(3), rng.choice((None, b"%d" % ts))),)
        log.append(
            rng.choice(
                (
                    CommitCmd(ref(attempt, name), ts, writes, (), 0),
                    AbortCmd(ref(attempt, name), "x", ts),
                    PrepareCmd(ref(attempt, name), ts, Priority(1, name), writes, (), 7, 1_000),
                    DecideCmd(ref(attempt, name), rng.choice((None, ts + 1)), rng.choice((0, 900))),
                    NewLeader(1, "a", ts),
                )
            )
        )
    contents = []
    for cuts in (1, 2, 5, len(log)):
        disk = Disk()
        for at in range(0, len(log), cuts):
            disk.apply(*log[at : at + cuts])
            if rng.random() < 0.3:
                disk.load()
        with disk.engine.snapshot() as reader:
            contents.append(list(reader.scan(*keyspace.group_range(GROUP))))
        disk.runner.close()
    assert all(content == contents[0] for content in contents)
