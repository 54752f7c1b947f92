"""The requests of a mover to the leaders of the two groups, sent until they are answered."""

from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.router import Router
from spanstore.group.move_requests import ExportReply, checksum_of
from spanstore.placement.copying import Copy, Wanted
from spanstore.placement.jobs import MoveJob
from spanstore.runtime.move_wire import items_from_pb, items_to_pb, progress_from_pb, progress_to_pb
from spanstore.txn.commands import Progress

_ASK_S = 5.0


class MoveCalls:
    """All of them may be repeated. Raise what the group answers, or that it did not in time."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def begin(self, job: MoveJob) -> Copy | None:
        """Announce the range; None if the move has ended there."""
        message = pb.BeginMove(move=job.number, start=job.start, end=job.end, source=job.source)
        return _copy(await self._send(job.target, pb.Request(begin_move=message)))

    async def export(self, job: MoveJob, wanted: Wanted) -> ExportReply:
        """Ask for the next piece. Raises DATA_CORRUPTION if it was damaged on its way."""
        message = pb.MoveExport(
            move=job.number,
            start=job.start,
            end=job.end,
            stage=pb.MoveProgress.Stage.Name(wanted.stage),
            resume=wanted.resume,
            since_ts=wanted.since_ts,
            timestamp=wanted.timestamp,
        )
        reply = (await self._router.send(job.source, lambda: pb.Request(move_export=message), _ASK_S)).move_export
        items = items_from_pb(reply.items)
        if checksum_of(items) != reply.checksum:
            raise F1Error(Code.DATA_CORRUPTION, f"a piece of a range was damaged on its way from group {job.source}")
        return ExportReply(reply.timestamp, items, reply.resume, reply.done, reply.checksum)

    async def stage(
        self, job: MoveJob, copy: Copy, progress: Progress, piece: ExportReply | None = None
    ) -> Copy | None:
        """Have the next piece logged; returns how far the copy is then, by whomever. None: the move has ended there."""
        message = pb.MoveStage(move=job.number, seq=copy.seq + 1, progress=progress_to_pb(progress))
        if piece is not None:
            message.items.extend(items_to_pb(piece.items))
            message.checksum = piece.checksum
        return _copy(await self._send(job.target, pb.Request(move_stage=message)))

    async def clear_before(self, job: MoveJob, copy: Copy) -> Copy | None:
        """Have some of what an earlier move left in the new group removed."""
        message = pb.MoveStage(move=job.number, seq=copy.seq + 1, clear=True)
        return _copy(await self._send(job.target, pb.Request(move_stage=message)))

    async def cede(self, job: MoveJob) -> tuple[int, int, int]:
        """Have the range given up; returns its last timestamp, the clock's earlier edge then, and the garbage mark.

        Raises ABORTED while transactions in it do not end, FAILED_PRECONDITION if the move was abandoned there.
        """
        message = pb.MoveCede(move=job.number, start=job.start, end=job.end, heir=job.target)
        reply = await self._send(job.source, pb.Request(move_cede=message))
        if not reply.HasField("ceded"):
            raise F1Error(Code.FAILED_PRECONDITION, f"group {job.source} has ended move {job.number} without ceding")
        return reply.ceded.last_ts, reply.ceded.earliest_ts, reply.ceded.mark_ts

    async def own(self, job: MoveJob, floor_ts: int, mark_ts: int) -> None:
        """Have the new group own the range. Raises FAILED_PRECONDITION."""
        message = pb.MoveOwn(move=job.number, floor_ts=floor_ts, mark_ts=mark_ts)
        reply = await self._send(job.target, pb.Request(move_own=message))
        if reply.closed < job.number or reply.HasField("incoming"):
            raise F1Error(Code.FAILED_PRECONDITION, f"group {job.target} lacks something of what it is to own")

    async def clear_after(self, job: MoveJob, group: int) -> bool:
        """Have some of what the move left in ``group`` removed; tell whether nothing is left."""
        message = pb.MoveClear(move=job.number, start=job.start, end=job.end)
        return bool((await self._send(group, pb.Request(move_clear=message))).done)

    async def abandon(self, job: MoveJob, group: int) -> bool:
        """Have ``group`` end the move; False if it has ceded the range for it already."""
        reply = await self._send(group, pb.Request(move_abandon=pb.MoveAbandon(move=job.number)))
        return not reply.HasField("ceded")

    async def _send(self, group: int, request: pb.Request) -> pb.MoveReply:
        return (await self._router.send(group, lambda: request, _ASK_S)).move


def _copy(reply: pb.MoveReply) -> Copy | None:
    if not reply.HasField("incoming"):
        return None
    return Copy(reply.incoming.seq, progress_from_pb(reply.incoming.progress))
