"""Every value survives the edge of the process, and what is no value is refused there."""

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.group import requests as rq
from spanstore.mvcc.versions import Version
from spanstore.paxos import messages as px
from spanstore.runtime.wire import answer_to_pb, peer_from_pb, peer_to_pb, request_from_pb
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import ExpectAbsent, ExpectExists, ExpectUnchangedRange, ExpectVersion, NoNewer
from spanstore.txn.spans import Span

B, P = px.Ballot(7, "a"), px.Ballot(6, "b")
MESSAGES: list[px.Message] = [
    px.PreVote(B, 5, P),
    px.PreVoteReply(B, True, P),
    px.PreVoteReply(B, False, px.NO_BALLOT),
    px.Prepare(B, 5, P),
    px.Prepare(B, 0, px.NO_BALLOT, P),
    px.Promise(B, True, B, P, 1 << 60),
    px.Promise(B, False, P, px.NO_BALLOT, 0),
    px.Accept(B, 4, P, (px.LogEntry(5, P, b"x"), px.LogEntry(6, B, b"")), 3, 1 << 60, 9, 8, 2, 1 << 59, 1),
    px.Accept(B, 0, px.NO_BALLOT, (), 0, 0, 0, 0, 0, 0, 0),
    px.Accepted(B, B, True, 6, 0, 9, 1 << 60),
    px.Accepted(B, px.Ballot(8, "c"), False, 0, 2, 9, 0),
    px.TransferLeadership(B, 1 << 60),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_peer_message_survives(message: px.Message) -> None:
    wire = pb.PeerMessage.FromString(peer_to_pb(3, message).SerializeToString())
    assert wire.group == 3
    assert peer_from_pb(wire) == message


def test_peer_message_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(F1Error) as caught:
        peer_from_pb(pb.PeerMessage(group=1))
    assert caught.value.code is Code.INVALID_ARGUMENT


TXN = pb.TxnRef(anchor=b"k", unique=b"u", created_ts=5, attempt=2)
REF = TxnRef(b"k", b"u", 5, 2)
WORK = pb.TxnWork(
    txn=TXN,
    priority_ts=6,
    writes=[
        pb.Write(key=b"a", value=b"", key_offset=-1),
        pb.Write(key=b"b"),
        pb.Write(key=b"c" + bytes(8), value=bytes(8), key_offset=1, value_offsets=[0]),
    ],
    preconditions=[
        pb.Precondition(version=pb.ExpectVersion(key=b"v", ts=9)),
        pb.Precondition(exists=b"e"),
        pb.Precondition(absent=b"x"),
        pb.Precondition(unchanged=pb.ExpectUnchanged(start=b"s", end=b"t", since_ts=4)),
        pb.Precondition(no_newer=pb.NoNewer(since_ts=3, leave_out=True)),
    ],
    held=[pb.Lock(start=b"h", mode=pb.SHARED), pb.Lock(start=b"i", end=b"", mode=pb.EXCLUSIVE)],
    term=7,
    deadline=8,
    above=9,
)
VALUE = rq.TxnWork(
    REF,
    6,
    (Write(b"a", b""), Write(b"b", None), Write(b"c" + bytes(8), bytes(8), 1, (0,))),
    (
        ExpectVersion(b"v", 9),
        ExpectExists(b"e"),
        ExpectAbsent(b"x"),
        ExpectUnchangedRange(b"s", b"t", 4),
        NoNewer(3, True),
    ),
    ((Span(b"h"), LockMode.SHARED), (Span(b"i", b""), LockMode.EXCLUSIVE)),
    7,
    8,
    9,
)
RANGES = [pb.RangeRead(start=b"a", end=b"b", limit=3, reverse=True)]
RANGE = rq.RangeRead(b"a", b"b", 3, True)
REQUESTS: list[tuple[pb.Request, rq.Request]] = [
    (pb.Request(read=pb.Read(timestamp=4, keys=[b"k"], ranges=RANGES)), rq.Read(4, (b"k",), (RANGE,))),
    (
        pb.Request(
            lock_read=pb.LockRead(txn=TXN, priority_ts=3, mode=pb.EXCLUSIVE, keys=[b"k"], ranges=RANGES, term=2)
        ),
        rq.LockRead(REF, 3, LockMode.EXCLUSIVE, (b"k",), (RANGE,), 2),
    ),
    (
        pb.Request(commit=pb.Commit(work=WORK, participants=[pb.PreparedIn(group=2, prepare_ts=11)])),
        rq.Commit(VALUE, ((2, 11),)),
    ),
    (pb.Request(prepare=pb.Prepare(work=WORK, coordinator_group=5)), rq.Prepare(VALUE, 5)),
    (pb.Request(decide=pb.Decide(txn=TXN, commit=True, ts=12)), rq.Decide(REF, 12)),
    (pb.Request(decide=pb.Decide(txn=TXN, commit=False, ts=12)), rq.Decide(REF, None)),
    (pb.Request(outcome=pb.Outcome(txn=TXN, peek=True)), rq.Outcome(REF, True, False)),
    (pb.Request(outcome=pb.Outcome(txn=TXN, inquiry=True)), rq.Outcome(REF, False, True)),
    (pb.Request(release=pb.Release(txn=TXN)), rq.Release(REF)),
    (pb.Request(safe_time=pb.SafeTime()), rq.SafeTimeQuery()),
]


@pytest.mark.parametrize(("message", "value"), REQUESTS, ids=lambda r: type(r).__name__)
def test_request_survives(message: pb.Request, value: rq.Request) -> None:
    assert request_from_pb(pb.Request.FromString(message.SerializeToString())) == value


@pytest.mark.parametrize(
    "message",
    [
        pb.Request(),
        pb.Request(release=pb.Release(txn=pb.TxnRef(anchor=b"k", attempt=1))),
        pb.Request(lock_read=pb.LockRead(txn=TXN, keys=[b"k"])),
        pb.Request(lock_read=pb.LockRead(txn=TXN, keys=[b"k"], mode=pb.APPEND)),
        pb.Request(commit=pb.Commit(work=pb.TxnWork(txn=TXN, preconditions=[pb.Precondition()]))),
        pb.Request(commit=pb.Commit(work=pb.TxnWork(txn=TXN, held=[pb.Lock(start=b"k")]))),
    ],
)
def test_request_that_is_none_is_refused(message: pb.Request) -> None:
    with pytest.raises(F1Error) as caught:
        request_from_pb(message)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_versions_tell_never_written_deleted_and_empty_apart() -> None:
    rows = rq.RowSet([(b"k", Version(4, b""))], True, b"r")
    reply = rq.ReadReply(9, [None, Version(3, None), Version(2, b"")], [rows], 5)
    wire = answer_to_pb(1, reply).read
    assert [(v.ts, v.exists, v.value) for v in wire.versions] == [(0, False, b""), (3, False, b""), (2, True, b"")]
    (row_set,) = wire.ranges
    assert (row_set.rows[0].key, row_set.rows[0].ts, row_set.more, row_set.resume) == (b"k", 4, True, b"r")
    assert (wire.timestamp, wire.term) == (9, 5)


def test_answers_carry_the_id_of_their_request() -> None:
    answers: list[tuple[rq.Answer, str]] = [
        (rq.CommitReply(4), "commit"),
        (rq.PrepareReply(4), "prepare"),
        (rq.DecideReply(), "decide"),
        (rq.OutcomeReply(None, 0, 1), "outcome"),
        (rq.ReleaseReply(), "release"),
        (rq.SafeTimeReply(4), "safe_time"),
        (F1Error(Code.NOT_LEADER, "m", details={"leader": "b"}), "error"),
    ]
    for number, (answer, kind) in enumerate(answers, 1):
        wire = answer_to_pb(number, answer)
        assert wire.id == number and wire.WhichOneof("body") == kind
    states = {True: pb.COMMITTED, False: pb.ABORTED, None: pb.UNKNOWN}
    for committed, state in states.items():
        assert answer_to_pb(1, rq.OutcomeReply(committed, 3, 1)).outcome.state == state
    error = answer_to_pb(1, F1Error(Code.NOT_LEADER, "m", ambiguous=True, details={"leader": "b"})).error
    assert (error.code, error.retryable, error.ambiguous, error.details["leader"]) == ("NOT_LEADER", True, True, "b")
