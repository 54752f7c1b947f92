"""Protobuf of the moves of ranges: the requests of a mover to the values of the groups, and the answers back."""

from collections.abc import Iterable

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.group import move_requests as mv
from spanstore.txn.commands import CopyStage, Progress


def request_from_pb(request: pb.Request) -> mv.MoveRequest:
    """Return the request in a mover's message. Raises INVALID_ARGUMENT for what cannot be one."""
    match request.WhichOneof("body"):
        case "begin_move":
            b = request.begin_move
            return mv.BeginMove(b.move, b.start, b.end, b.source)
        case "move_export":
            e = request.move_export
            return mv.Export(e.move, e.start, e.end, stage_from_pb(e.stage), e.resume, e.since_ts, e.timestamp)
        case "move_stage":
            s = request.move_stage
            items = items_from_pb(s.items)
            return mv.Stage(s.move, s.seq, progress_from_pb(s.progress), items, s.checksum, s.clear)
        case "move_cede":
            c = request.move_cede
            return mv.Cede(c.move, c.start, c.end, c.heir)
        case "move_own":
            return mv.Own(request.move_own.move, request.move_own.floor_ts, request.move_own.mark_ts)
        case "move_clear":
            r = request.move_clear
            return mv.Clear(r.move, r.start, r.end)
        case "move_abandon":
            return mv.Abandon(request.move_abandon.move)
        case _:
            raise F1Error(Code.INVALID_ARGUMENT, "a request of an unknown kind")


def stage_from_pb(stage: int) -> CopyStage:
    """Return the stage of a number. Raises INVALID_ARGUMENT."""
    try:
        return CopyStage(stage)
    except ValueError as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"{stage} is no stage of a copy") from error


def progress_from_pb(m: pb.MoveProgress) -> Progress:
    """Return the progress in a message. Raises INVALID_ARGUMENT."""
    return Progress(
        stage=stage_from_pb(m.stage),
        resume=m.resume,
        since_ts=m.since_ts,
        until_ts=m.until_ts,
        outcomes_since_ts=m.outcomes_since_ts,
        outcomes_until_ts=m.outcomes_until_ts,
        passes=m.passes,
        rows=m.rows,
        last_rows=m.last_rows,
        total=m.total,
    )


def progress_to_pb(progress: Progress) -> pb.MoveProgress:
    """Return the message of a progress."""
    return pb.MoveProgress(
        stage=pb.MoveProgress.Stage.Name(progress.stage),
        resume=progress.resume,
        since_ts=progress.since_ts,
        until_ts=progress.until_ts,
        outcomes_since_ts=progress.outcomes_since_ts,
        outcomes_until_ts=progress.outcomes_until_ts,
        passes=progress.passes,
        rows=progress.rows,
        last_rows=progress.last_rows,
        total=progress.total,
    )


def items_from_pb(items: Iterable[pb.MoveItem]) -> tuple[mv.Item, ...]:
    """Return the items of a message."""
    return tuple((item.key, item.value) for item in items)


def items_to_pb(items: Iterable[mv.Item]) -> list[pb.MoveItem]:
    """Return the messages of items."""
    return [pb.MoveItem(key=key, value=value) for key, value in items]


def answer_to_pb(request_id: int, answer: mv.ExportReply | mv.MoveReply) -> pb.Response:
    """Return the message of a group's answer."""
    if isinstance(answer, mv.ExportReply):
        reply = pb.MoveExportReply(
            timestamp=answer.timestamp,
            items=items_to_pb(answer.items),
            resume=answer.resume,
            done=answer.done,
            checksum=answer.checksum,
        )
        return pb.Response(id=request_id, move_export=reply)
    move = pb.MoveReply(closed=answer.closed, done=answer.done)
    if answer.incoming is not None:
        move.incoming.seq = answer.incoming.seq
        move.incoming.progress.CopyFrom(progress_to_pb(answer.incoming.progress))
    if answer.ceded is not None:
        move.ceded.last_ts = answer.ceded.last_ts
        move.ceded.earliest_ts = answer.ceded.earliest_ts
        move.ceded.mark_ts = answer.mark_ts
    return pb.Response(id=request_id, move=move)
