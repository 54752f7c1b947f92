"""Protobuf at the edge of the process: messages to the values that the cores use, and back."""

from collections.abc import Iterable
from typing import assert_never

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import types_pb2
from f1common.rpc.status import error_to_wire
from spanstore.group import requests as rq
from spanstore.group.digests import RangeDigest
from spanstore.group.members import Step
from spanstore.group.move_requests import ExportReply, MoveReply
from spanstore.mvcc.versions import Version
from spanstore.paxos import messages as px
from spanstore.runtime import move_wire
from spanstore.runtime.clockwatch import ClockReport
from spanstore.runtime.supervision import ServerReport
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import (
    ExpectAbsent,
    ExpectExists,
    ExpectUnchangedRange,
    ExpectVersion,
    NoNewer,
    Precondition,
    WrittenAbsent,
)
from spanstore.txn.spans import Span

_UNDERSTOOD = 2
"""What ``Precondition.understands`` may ask for (proto/spanstore.proto)."""

# ---------------------------------------------------------------------- replicas


def ballot_to_pb(ballot: px.Ballot) -> pb.Ballot:
    """Return the message of a ballot."""
    return pb.Ballot(round=ballot.round, replica=ballot.replica)


def ballot_from_pb(message: pb.Ballot) -> px.Ballot:
    """Return the ballot in a message."""
    return px.Ballot(message.round, message.replica)


def peer_to_pb(group: int, message: px.Message) -> pb.PeerMessage:
    """Return the message of a Paxos message of ``group``."""
    out = pb.PeerMessage(group=group, ballot=ballot_to_pb(message.ballot))
    match message:
        case px.Accept():
            out.accept.CopyFrom(_accept_to_pb(message))
        case px.Accepted():
            out.accepted.promised.CopyFrom(ballot_to_pb(message.promised))
            out.accepted.ok = message.ok
            out.accepted.match_index = message.match_index
            out.accepted.hint = max(message.hint, 0)
            out.accepted.newcomer = message.hint < 0
            out.accepted.sent_boot_us = message.sent_boot_us
            out.accepted.ceiling = message.ceiling
        case px.PreVote():
            out.pre_vote.last_index = message.last_index
            out.pre_vote.last_ballot.CopyFrom(ballot_to_pb(message.last_ballot))
        case px.PreVoteReply():
            out.pre_vote_reply.granted = message.granted
            out.pre_vote_reply.promised.CopyFrom(ballot_to_pb(message.promised))
        case px.Prepare():
            out.prepare.last_index = message.last_index
            out.prepare.last_ballot.CopyFrom(ballot_to_pb(message.last_ballot))
            out.prepare.released.CopyFrom(ballot_to_pb(message.released))
        case px.Promise():
            out.promise.granted = message.granted
            out.promise.promised.CopyFrom(ballot_to_pb(message.promised))
            out.promise.previous.CopyFrom(ballot_to_pb(message.previous))
            out.promise.ceiling = message.ceiling
        case px.TransferLeadership():
            out.transfer.highest_ts = message.highest_ts
        case px.OfferState():
            out.offer_state.first_index = message.first_index
        case px.Removed():
            out.removed.version = message.version
        case _:
            assert_never(message)
    return out


def _accept_to_pb(message: px.Accept) -> pb.Accept:
    return pb.Accept(
        prev_index=message.prev_index,
        prev_ballot=ballot_to_pb(message.prev_ballot),
        entries=[pb.LogEntry(index=e.index, ballot=ballot_to_pb(e.ballot), payload=e.payload) for e in message.entries],
        chosen_index=message.chosen_index,
        ceiling=message.ceiling,
        sent_boot_us=message.sent_boot_us,
        lease_us=message.lease_us,
        safe_index=message.safe_index,
        safe_ts=message.safe_ts,
        truncate_below=message.truncate_below,
    )


def peer_from_pb(message: pb.PeerMessage) -> px.Message:
    """Return the Paxos message in a peer message. Raises INVALID_ARGUMENT for an unknown kind."""
    ballot = ballot_from_pb(message.ballot)
    kind = message.WhichOneof("body")
    match kind:
        case "accept":
            return _accept_from_pb(ballot, message.accept)
        case "accepted":
            m = message.accepted
            hint = -1 if m.newcomer else m.hint
            promised = ballot_from_pb(m.promised)
            return px.Accepted(ballot, promised, m.ok, m.match_index, hint, m.sent_boot_us, m.ceiling)
        case "pre_vote":
            return px.PreVote(ballot, message.pre_vote.last_index, ballot_from_pb(message.pre_vote.last_ballot))
        case "pre_vote_reply":
            reply = message.pre_vote_reply
            return px.PreVoteReply(ballot, reply.granted, ballot_from_pb(reply.promised))
        case "prepare":
            p = message.prepare
            return px.Prepare(ballot, p.last_index, ballot_from_pb(p.last_ballot), ballot_from_pb(p.released))
        case "promise":
            q = message.promise
            return px.Promise(ballot, q.granted, ballot_from_pb(q.promised), ballot_from_pb(q.previous), q.ceiling)
        case "transfer":
            return px.TransferLeadership(ballot, message.transfer.highest_ts)
        case "offer_state":
            return px.OfferState(ballot, message.offer_state.first_index)
        case "removed":
            return px.Removed(ballot, message.removed.version)
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, "a peer message of an unknown kind")


def _accept_from_pb(ballot: px.Ballot, m: pb.Accept) -> px.Accept:
    entries = tuple(px.LogEntry(e.index, ballot_from_pb(e.ballot), e.payload) for e in m.entries)
    return px.Accept(
        ballot=ballot,
        prev_index=m.prev_index,
        prev_ballot=ballot_from_pb(m.prev_ballot),
        entries=entries,
        chosen_index=m.chosen_index,
        ceiling=m.ceiling,
        sent_boot_us=m.sent_boot_us,
        lease_us=m.lease_us,
        safe_index=m.safe_index,
        safe_ts=m.safe_ts,
        truncate_below=m.truncate_below,
    )


def report_to_pb(report: ServerReport) -> pb.ServerReport:
    """Return the message of what a server tells of itself."""
    clock = report.clock
    return pb.ServerReport(
        incarnation=clock.incarnation,
        boot_us=clock.boot_us,
        earliest=clock.earliest,
        latest=clock.latest,
        echo_boot_us=clock.echo_boot_us,
        held_us=clock.held_us,
        unfit=report.unfit,
        full=report.full,
    )


def report_from_pb(m: pb.ServerReport) -> ServerReport:
    """Return what a server tells of itself."""
    clock = ClockReport(m.incarnation, m.boot_us, m.earliest, m.latest, m.echo_boot_us, m.held_us)
    return ServerReport(clock, m.unfit, m.full)


def digest_to_pb(digest: RangeDigest) -> pb.RangeDigest:
    """Return the message of what a replica has in a range."""
    return pb.RangeDigest(
        index=digest.index, start=digest.start, end=digest.end, records=digest.records, digest=digest.digest
    )


def digest_from_pb(m: pb.RangeDigest) -> RangeDigest:
    """Return what a replica has in a range."""
    return RangeDigest(m.index, m.start, m.end, m.records, m.digest)


# ---------------------------------------------------------------------- clients


def request_from_pb(request: pb.Request) -> rq.Request:
    """Return the group request in a client's message. Raises INVALID_ARGUMENT for what cannot be one."""
    match request.WhichOneof("body"):
        case "read":
            read = request.read
            return rq.Read(read.timestamp, tuple(read.keys), _ranges(read.ranges), read.apart)
        case "lock_read":
            m = request.lock_read
            return rq.LockRead(_txn(m.txn), m.priority_ts, _mode(m.mode), tuple(m.keys), _ranges(m.ranges), m.term)
        case "commit":
            participants = tuple((p.group, p.prepare_ts) for p in request.commit.participants)
            return rq.Commit(_work(request.commit.work), participants)
        case "bundle":
            return rq.Bundle(tuple(map(_work, request.bundle.works)))
        case "prepare":
            return rq.Prepare(_work(request.prepare.work), request.prepare.coordinator_group)
        case "decide":
            return rq.Decide(_txn(request.decide.txn), request.decide.ts if request.decide.commit else None)
        case "outcome":
            return rq.Outcome(_txn(request.outcome.txn), request.outcome.peek, request.outcome.inquiry)
        case "release":
            return rq.Release(_txn(request.release.txn))
        case "safe_time":
            return rq.SafeTimeQuery()
        case "change_members":
            change = request.change_members
            if change.step not in _STEPS:
                raise F1Error(Code.INVALID_ARGUMENT, f"{change.step} is no step that changes members")
            version = change.version if change.HasField("version") else -1
            return rq.ChangeMembers(_STEPS[change.step], change.name, version, change.home)
        case "oldest_prepared":
            return rq.OldestPrepared()
        case _:
            return move_wire.request_from_pb(request)


_STEPS = {
    pb.ChangeMembers.ADD: Step.ADD,
    pb.ChangeMembers.PROMOTE: Step.PROMOTE,
    pb.ChangeMembers.DEMOTE: Step.DEMOTE,
    pb.ChangeMembers.REMOVE: Step.REMOVE,
    pb.ChangeMembers.TRANSFER: Step.TRANSFER,
}


def _txn(m: pb.TxnRef) -> TxnRef:
    if not m.unique:
        raise F1Error(Code.INVALID_ARGUMENT, "a transaction needs a unique id")
    return TxnRef(m.anchor, m.unique, m.created_ts, m.attempt)


def _ranges(ranges: Iterable[pb.RangeRead]) -> tuple[rq.RangeRead, ...]:
    return tuple(rq.RangeRead(r.start, r.end, r.limit, r.reverse) for r in ranges)


def _mode(mode: int) -> LockMode:
    match mode:
        case pb.SHARED:
            return LockMode.SHARED
        case pb.EXCLUSIVE:
            return LockMode.EXCLUSIVE
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, f"{mode} is no mode in which a reader can lock")


def _work(m: pb.TxnWork) -> rq.TxnWork:
    writes = [
        Write(
            w.key,
            w.value if w.HasField("value") else None,
            w.key_offset if w.key_offset > 0 else -1,
            tuple(w.value_offsets),
        )
        for w in m.writes
    ]
    tests = [test for p in m.preconditions if (test := _precondition(p)) is not None]
    for puts in m.puts:
        keys = tuple(puts.keys)
        if len(keys) != len(puts.values):
            raise F1Error(Code.INVALID_ARGUMENT, f"{len(keys)} keys are to get {len(puts.values)} values")
        back = puts.stamp_before_end
        if back:
            writes += [Write(key, value, len(key) - back) for key, value in zip(keys, puts.values, strict=True)]
        else:
            writes += map(Write, keys, puts.values)
        if puts.absent:
            tests.append(WrittenAbsent(keys))
    return rq.TxnWork(
        txn=_txn(m.txn),
        priority_ts=m.priority_ts,
        writes=tuple(writes),
        preconditions=tuple(tests),
        held=tuple((Span(k.start, k.end if k.HasField("end") else None), _mode(k.mode)) for k in m.held),
        term=m.term,
        deadline=m.deadline,
        above=m.above,
    )


def _precondition(m: pb.Precondition) -> Precondition | None:
    """Return a precondition; None if it only asked whether this server knows what else is in the message."""
    match m.WhichOneof("test"):
        case "version":
            return ExpectVersion(m.version.key, m.version.ts)
        case "exists":
            return ExpectExists(m.exists)
        case "absent":
            return ExpectAbsent(m.absent)
        case "unchanged":
            return ExpectUnchangedRange(m.unchanged.start, m.unchanged.end, m.unchanged.since_ts)
        case "no_newer":
            return NoNewer(m.no_newer.since_ts, m.no_newer.leave_out)
        case "understands" if m.understands <= _UNDERSTOOD:
            return None
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, "a precondition of an unknown kind")


def error_to_pb(error: F1Error) -> types_pb2.Error:
    """Return the message of an error that answers one request of a stream."""
    return types_pb2.Error(**error_to_wire(error)._asdict())


def answer_to_pb(request_id: int, answer: rq.Answer) -> pb.Response:
    """Return the message of a group's answer."""
    match answer:
        case F1Error():
            return pb.Response(id=request_id, error=error_to_pb(answer))
        case rq.ReadReply():
            return pb.Response(id=request_id, read=_read_reply(answer))
        case rq.CommitReply():
            return pb.Response(id=request_id, commit=pb.CommitReply(ts=answer.ts))
        case rq.BundleReply():
            bundle = pb.BundleReply(ts=answer.ts, left_out=answer.left_out)
            return pb.Response(id=request_id, bundle=bundle)
        case rq.PrepareReply():
            return pb.Response(id=request_id, prepare=pb.PrepareReply(prepare_ts=answer.prepare_ts))
        case rq.DecideReply():
            return pb.Response(id=request_id, decide=pb.DecideReply())
        case rq.OutcomeReply():
            state = {True: pb.COMMITTED, False: pb.ABORTED, None: pb.UNKNOWN}[answer.committed]
            outcome = pb.OutcomeReply(state=state, ts=answer.ts, attempt=answer.attempt)
            return pb.Response(id=request_id, outcome=outcome)
        case rq.ReleaseReply():
            return pb.Response(id=request_id, release=pb.ReleaseReply())
        case rq.SettleReply() | rq.CollectReply():
            raise F1Error(Code.INTERNAL, "what a server asks of its own groups never leaves its process")
        case rq.OldestPreparedReply():
            reply = pb.OldestPreparedReply(created_ts=answer.created_ts)
            return pb.Response(id=request_id, oldest_prepared=reply)
        case rq.SafeTimeReply():
            told = pb.SafeTimeReply(safe_ts=answer.safe_ts, groups=answer.groups)
            return pb.Response(id=request_id, safe_time=told)
        case rq.MembersReply():
            version, voters, learners = answer.configuration
            members = pb.MembersReply(version=version, voters=voters, learners=learners)
            return pb.Response(id=request_id, members=members)
        case ExportReply() | MoveReply():
            return move_wire.answer_to_pb(request_id, answer)
        case _:
            assert_never(answer)


def _read_reply(answer: rq.ReadReply) -> pb.ReadReply:
    return pb.ReadReply(
        timestamp=answer.timestamp,
        versions=[_version(v) for v in answer.versions],
        ranges=[
            pb.RowSet(
                rows=[pb.Row(key=key, ts=v.ts, value=v.value or b"") for key, v in row_set.rows],
                more=row_set.more,
                resume=row_set.resume,
            )
            for row_set in answer.ranges
        ],
        term=answer.term,
        leader=answer.leader,
        left_out=answer.left_out,
    )


def _version(version: Version | None) -> pb.Version:
    if version is None:
        return pb.Version()
    if version.value is None:
        return pb.Version(ts=version.ts)
    return pb.Version(exists=True, ts=version.ts, value=version.value)
