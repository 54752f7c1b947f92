"""The timestamp service: one of several processes leads and gives out timestamps from memory."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics
from f1common.orchestrator.allocation import MAX_COUNT, AllocationConfig, Candidacy, Tenure
from f1common.pb import orchestrator_pb2 as pb
from f1common.pb import orchestrator_pb2_grpc as stubs
from f1common.pb import types_pb2
from f1common.rpc.serving import serve_requests
from f1common.rpc.status import error_to_wire, maps_errors
from f1common.rpc.versions import check_version
from txservices.identity import Identity
from txservices.records import RecordStore

__all__ = ["PROTOCOL_VERSION", "SERVICE_NAME", "TimestampServicer"]

PROTOCOL_VERSION = 1
SERVICE_NAME = "f1.orchestrator.Timestamps"

_MAX_WAITING = 10_000

_log = get_logger(__name__)

_Reply = Callable[[pb.TimestampReply], None]


class TimestampServicer(stubs.TimestampsServicer):
    """Implements ``f1.orchestrator.Timestamps``, and takes part in who leads."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        config: AllocationConfig,
        metrics: Metrics,
        identity: Identity | None = None,
    ) -> None:
        self._identity = identity or Identity()
        self._records = records
        self._clock = clock
        self._config = config
        self._tenure: Tenure | None = None
        self._version = 0
        self._candidacy = Candidacy(config)
        self._waiting: deque[tuple[pb.TimestampRequest, _Reply]] = deque()
        self._wake = asyncio.Event()
        self.draining = asyncio.Event()
        self._given = metrics.counter("timestamps_given", "Timestamps given out.")
        self._leads = metrics.gauge("timestamps_leader", "1 while this process leads the timestamp service.")

    @property
    def leading(self) -> bool:
        """Whether this process gives out timestamps now."""
        return self._tenure is not None and self._tenure.is_leased(self._clock.sample().boot_us)

    @maps_errors
    async def Session(self, request_iterator: Any, context: Any) -> None:
        """Serve one client."""
        await serve_requests(
            context,
            _unpack,
            lambda replies: pb.TimestampReplies(replies=replies),
            self._handle,
            fail=_refused,
            draining=self.draining,
        )

    @maps_errors
    async def Status(self, request: pb.ServiceStatusRequest, context: Any) -> pb.TimestampsStatus:
        """Tell whether this process leads."""
        status = pb.TimestampsStatus(**self._identity._asdict())
        if self._tenure is not None and self.leading:
            status.leads, status.term, status.last = True, self._tenure.record.term, self._tenure.last
        return status

    def _handle(self, request: pb.TimestampRequest, reply: _Reply) -> None:
        if not 0 < request.count <= MAX_COUNT:
            raise F1Error(Code.INVALID_ARGUMENT, f"a request takes 1 to {MAX_COUNT} timestamps, not {request.count}")
        if self._tenure is None:
            raise _not_leader()
        if self._waiting or not self._give(request, reply):
            if len(self._waiting) >= _MAX_WAITING:
                raise F1Error(Code.OVERLOADED, "too many requests wait for timestamps")
            self._waiting.append((request, reply))
            self._wake.set()

    def _give(self, request: pb.TimestampRequest, reply: _Reply) -> bool:
        """Answer from memory; False: the bound has to rise first. Raises F1Error NOT_LEADER."""
        tenure = self._tenure
        if tenure is None:
            raise _not_leader()
        first = tenure.take(request.count)
        if first is None:
            return False
        # A sample from after the taking: this process may have stood still before it.
        if not tenure.is_leased(self._clock.sample().boot_us):
            self._step_down("its lease is over")
            raise _not_leader()
        self._given.inc(request.count)
        reply(pb.TimestampReply(id=request.id, first=first))
        return True

    # ------------------------------------------------------------------ leading

    async def run(self) -> None:
        """Lead whenever nobody else does, until cancelled."""
        pause_s = self._config.lease_us / 4_000_000
        while True:
            try:
                if self._tenure is None:
                    await self._stand()
                else:
                    await self._raise()
            except F1Error as error:
                _log.warning("the record of the timestamp service cannot be used", reason=str(error))
                self._step_down(str(error))
            if not (self._waiting and self._tenure):
                self._wake.clear()
                try:
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _stand(self) -> None:
        record, version = await self._records.read()
        claim = self._candidacy.observe(record, version, self._clock.sample().boot_us)
        if claim is None or self.draining.is_set():
            return
        sent_us = self._clock.sample().boot_us
        written = await self._records.write(claim, version)
        if written is None:
            return
        self._tenure, self._version = Tenure(self._config, claim, sent_us), written
        self._leads.set(1)
        _log.info("this process gives out timestamps", term=claim.term, above=claim.bound)
        await self._raise()

    async def _raise(self) -> None:
        """Prolong the lease, raise the bound if it is near, and answer who waits."""
        tenure = self._tenure
        if tenure is None:
            return
        wanted = sum(request.count for request, _ in self._waiting)
        record = tenure.raised(wanted)
        sent_us = self._clock.sample().boot_us
        written = await self._records.write(record, self._version)
        if written is None:
            self._step_down("another process has taken over")
            return
        tenure.wrote(record, sent_us)
        self._version = written
        while self._waiting:
            request, reply = self._waiting[0]
            try:
                if not self._give(request, reply):
                    return
            except F1Error as error:
                self._step_down(error.message)
                return
            self._waiting.popleft()

    def _step_down(self, why: str) -> None:
        if self._tenure is not None:
            _log.info("this process gives out no more timestamps", term=self._tenure.record.term, why=why)
        self._tenure = None
        self._candidacy = Candidacy(self._config)
        self._leads.set(0)
        while self._waiting:
            request, reply = self._waiting.popleft()
            reply(_refused(request, _not_leader()))

    async def resign(self) -> None:
        """Give out no more, and let the next one lead at once."""
        self.draining.set()
        tenure, version = self._tenure, self._version
        self._step_down("it ends")
        if tenure is not None:
            await self._records.write(tenure.resignation(), version)


def _unpack(batch: pb.TimestampRequests) -> Any:
    if batch.protocol_version:
        check_version("the client", batch.protocol_version, PROTOCOL_VERSION)
    return batch.requests


def _refused(request: pb.TimestampRequest, error: F1Error) -> pb.TimestampReply:
    return pb.TimestampReply(id=request.id, error=types_pb2.Error(**error_to_wire(error)._asdict()))


def _not_leader() -> F1Error:
    return F1Error(Code.NOT_LEADER, "another process gives out timestamps, or none does yet: ask the others")
