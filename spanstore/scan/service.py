"""The gRPC call ``Scan``: settle the timestamp, have the rows read, pass the chunks on."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc.aio
import msgspec

from f1common.clock import Clock
from f1common.errors import Code, F1Error, InvariantViolation
from f1common.pb import spanstore_pb2 as pb
from spanstore.group.outbox import Ticket, elsewhere
from spanstore.group.requests import Answer, RangeRead, Settle, SettleReply
from spanstore.scan.frames import Chunk
from spanstore.scan.plan import Column, ColumnType, KeyShape, Operator, Predicate, ScanPlan, Sketch, check_plan
from spanstore.scan.plan import Source as ColumnSource
from spanstore.scan.source import Source

_log = logging.getLogger(__name__)

# What a context raises when its client is gone.
_CLIENT_GONE = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, ConnectionError)

_DEFAULT_TIMEOUT_MS = 10_000
_LONGEST_TIMEOUT_MS = 600_000
_MAX_SCANS = 128


class ScanService:
    """Answers ``Scan`` for the groups that ``submit`` reaches."""

    def __init__(
        self,
        submit: Callable[[int, Ticket, int], None],
        clock: Clock,
        source: Source,
        on_damaged: Callable[[int, str], None] | None = None,
    ) -> None:
        """``submit`` takes (group, ticket, size), as the server's driver does; all in one event loop.

        ``on_damaged`` is told (group, what) when a scan runs into a damaged row.
        """
        self._on_damaged = on_damaged
        self._submit = submit
        self._clock = clock
        self._source = source
        self._scans = 0

    async def scan(self, request: pb.ScanRequest, context: Any) -> None:
        """Write the chunks of a scan to a servicer's ``context``; cancelled with the call, it ends the scan.

        Raises INVALID_ARGUMENT, NOT_LEADER, WRONG_RANGE, CLOCK_SKEW, DEADLINE_EXCEEDED (the timestamp did not become
        readable in time), UNAVAILABLE, OVERLOADED, DATA_CORRUPTION.
        """
        plan = plan_from_pb(request)
        check_plan(plan)
        if self._scans >= _MAX_SCANS:
            raise F1Error(Code.OVERLOADED, f"{_MAX_SCANS} scans are running here; retry later or elsewhere")
        self._scans += 1
        try:
            settled = await self._settle(plan, request)
            run = await self._source.open(
                msgspec.structs.replace(
                    plan,
                    timestamp=settled.timestamp,
                    min_index=settled.applied_index,
                    range_epoch=settled.range_epoch,
                )
            )
            try:
                chunk = await run.next()
                listening = await _send(context, chunk, settled.timestamp)
                while listening and not chunk.last:
                    chunk = await run.next()
                    listening = await _send(context, chunk)
            finally:
                run.close()
        except F1Error as error:
            if error.code is not Code.DATA_CORRUPTION or error.retryable or self._on_damaged is None:
                raise
            self._on_damaged(plan.group, error.message)
            raise elsewhere(error) from error
        finally:
            self._scans -= 1

    async def _settle(self, plan: ScanPlan, request: pb.ScanRequest) -> SettleReply:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def reply(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        timeout_ms = min(request.timeout_ms or _DEFAULT_TIMEOUT_MS, _LONGEST_TIMEOUT_MS)
        deadline_us = self._clock.sample().boot_us + timeout_ms * 1000
        ranges = tuple(RangeRead(start, end) for start, end in plan.ranges)
        self._submit(plan.group, Ticket(Settle(plan.timestamp, ranges), reply, deadline_us), request.ByteSize())
        answer = await answered
        if isinstance(answer, F1Error):
            raise answer
        if not isinstance(answer, SettleReply):
            raise InvariantViolation("a Settle was answered by something else")
        return answer


async def _send(context: Any, chunk: Chunk, timestamp: int = 0) -> bool:
    """Send a chunk, waiting while the client is slow; False if it is gone."""
    message = pb.ScanChunk(
        ipc=chunk.ipc,
        timestamp=timestamp,
        rows=chunk.rows,
        range=chunk.range,
        resume=chunk.resume,
        last=chunk.last,
    )
    try:
        await context.write(message)
    except _CLIENT_GONE as error:
        _log.debug("the client of a scan is gone: %s", error)
        return False
    return True


def plan_from_pb(request: pb.ScanRequest) -> ScanPlan:
    """Return what a request asks for, not yet checked. Raises INVALID_ARGUMENT for unknown names and numbers."""
    try:
        columns = tuple(
            Column(c.name, ColumnType(c.type), ColumnSource(pb.ScanColumn.Source.Name(c.source)), c.number)
            for c in request.columns
        )
        predicates = tuple(
            Predicate(
                p.column,
                Operator(pb.ScanPredicate.Operator.Name(p.operator)),
                tuple(item.value for item in p.literals),
            )
            for p in request.predicates
        )
    except ValueError as error:
        raise F1Error(Code.INVALID_ARGUMENT, f"a column or predicate of an unknown kind: {error}") from error
    return ScanPlan(
        group=request.group,
        timestamp=request.timestamp,
        ranges=tuple((r.start, r.end) for r in request.ranges),
        columns=columns,
        predicates=predicates,
        shape=KeyShape(
            request.key_elements,
            request.table_element,
            request.table_position,
            tuple((item.position, item.element) for item in request.more_elements),
        ),
        limit=request.limit,
        batch_rows=request.batch_rows,
        sketch=_sketch_from_pb(request.sketch) if request.HasField("sketch") else None,
        background=request.background,
    )


def _sketch_from_pb(sketch: pb.ScanSketch) -> Sketch:
    tables = tuple(tuple((step.element, step.own) for step in table.steps) for table in sketch.tables)
    return Sketch(tables, sketch.every, sketch.max_keys)
