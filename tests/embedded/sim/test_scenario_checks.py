"""The checks of whole-cluster runs find what they are for, on logs and histories made by hand."""

from collections.abc import Sequence

from spanstore.testing.checkers import Applied
from spanstore.testing.history import Op, Read, Status
from spanstore.testing.history import Write as Wrote
from spanstore.testing.scenarios.checks import check_decisions
from spanstore.testing.scenarios.commits import LOCKED, check_locked_reads
from spanstore.txn.commands import (
    AbortCmd,
    Command,
    CommitCmd,
    DecideCmd,
    PrepareCmd,
    TxnRef,
    Write,
    encode_command,
)
from spanstore.txn.locks import Priority

TXN = TxnRef(b"a", b"t1", 1, 1)
PREPARE = PrepareCmd(TXN, 10, Priority(1, b"t1"), (Write(b"b", b"v"),), (), 1, 100)


def commit(ts: int, participants: tuple[int, ...] = (), deadline: int = 0, txn: TxnRef = TXN) -> CommitCmd:
    return CommitCmd(txn, ts, (Write(b"a", b"v"),), participants, deadline)


def judged(**logs: Sequence[Command]) -> list[str]:
    events = [
        Applied("n", 1, int(group[1:]), index, encode_command(command))
        for group, log in logs.items()
        for index, command in enumerate(log, 1)
    ]
    return [violation.message for violation in check_decisions(events)]


def test_commit_in_two_groups_is_in_order() -> None:
    assert judged(g1=[commit(20, (2,))], g2=[PREPARE, DecideCmd(TXN, 20)]) == []


def test_participant_that_ends_otherwise_than_its_coordinator() -> None:
    assert len(judged(g1=[commit(20, (2,))], g2=[PREPARE, DecideCmd(TXN, None)])) == 1
    assert len(judged(g1=[commit(20, (2,))], g2=[PREPARE, DecideCmd(TXN, 21)])) == 1
    assert len(judged(g1=[AbortCmd(TXN, "why", 15)], g2=[PREPARE, DecideCmd(TXN, 20)])) == 1
    assert judged(g1=[AbortCmd(TXN, "why", 15)], g2=[PREPARE, DecideCmd(TXN, None)]) == []


def test_commit_of_what_was_not_prepared_below_it() -> None:
    assert len(judged(g1=[commit(20, (2,))], g2=[])) == 1
    assert len(judged(g1=[commit(10, (2,))], g2=[PREPARE])) == 1


def test_commit_past_its_fence() -> None:
    assert judged(g1=[commit(20, deadline=20)]) == []
    assert len(judged(g1=[commit(21, deadline=20)])) == 1


def test_timestamps_of_a_key_rise_along_the_log() -> None:
    other = TxnRef(b"a", b"t2", 1, 1)
    assert judged(g1=[commit(20), commit(21, txn=other)]) == []
    assert len(judged(g1=[commit(20), commit(20, txn=other)])) == 1


def test_what_the_replicas_ignore_is_ignored() -> None:
    again = TxnRef(b"a", b"t1", 1, 2)
    assert judged(g1=[commit(20), commit(15, txn=again)]) == []
    assert judged(g1=[AbortCmd(again, "why", 5), commit(15)]) == []


def wrote(value: bytes, ts: int, span: tuple[int, int]) -> Op:
    steps = (Wrote(b"k", value),)
    return Op(process=1, kind="w", invoke_us=span[0], return_us=span[1], status=Status.OK, steps=steps, ts=ts)


def locked(value: bytes, span: tuple[int, int]) -> Op:
    steps = (Read(b"k", value),)
    return Op(process=2, kind=LOCKED, invoke_us=span[0], return_us=span[1], status=Status.OK, steps=steps)


def test_locked_read_sees_what_had_returned() -> None:
    history = [wrote(b"1", 10, (0, 12)), wrote(b"2", 20, (13, 22))]
    assert check_locked_reads([*history, locked(b"2", (23, 24))]) == []
    assert check_locked_reads([*history, locked(b"1", (21, 24))]) == []  # it began before the second had returned
    assert len(check_locked_reads([*history, locked(b"1", (23, 24))])) == 1
