"""The lock service: leases in the memory of one process."""

import asyncio
from typing import Any

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.orchestrator.lock_desk import LockDesk
from f1common.orchestrator.lock_table import LockTable, Mode, Token, WantedLock
from f1common.pb import orchestrator_pb2 as pb
from f1common.pb import orchestrator_pb2_grpc as stubs
from f1common.pb import types_pb2
from f1common.rpc.serving import Reply, serve_requests
from f1common.rpc.status import error_to_wire, maps_errors
from f1common.rpc.versions import check_version
from txservices.identity import Identity

__all__ = ["PROTOCOL_VERSION", "SERVICE_NAME", "LockServicer"]

PROTOCOL_VERSION = 1
SERVICE_NAME = "f1.orchestrator.Locks"

_MODES: dict[int, Mode] = {pb.WantedLock.READ: Mode.READ, pb.WantedLock.WRITE: Mode.WRITE}


class LockServicer(stubs.LocksServicer):
    """Implements ``f1.orchestrator.Locks``."""

    def __init__(
        self, table: LockTable, clock: Clock, lease_ms: int, metrics: Metrics, identity: Identity | None = None
    ) -> None:
        """``table`` is new: nothing is known of leases of an earlier process."""
        self._identity = identity or Identity()
        self.desk = LockDesk(table, lambda: clock.sample().boot_us)
        self._lease_ms = lease_ms
        self.draining = asyncio.Event()
        self._requests = metrics.counter("lock_requests", "Requests to the lock service.", ("kind",))
        self._leases = metrics.gauge("lock_leases", "Leases that are held.")
        self._waiters = metrics.gauge("lock_waiters", "Requests that wait for locks.")

    @maps_errors
    async def Session(self, request_iterator: Any, context: Any) -> None:
        """Serve one client; what waits when it is gone is withdrawn."""
        waiting: set[bytes] = set()

        def handle(request: pb.LockRequest, reply: Reply[pb.LockReply]) -> None:
            self._handle(request, reply, waiting)

        try:
            await serve_requests(
                context,
                _unpack,
                lambda replies: pb.LockReplies(replies=replies),
                handle,
                fail=_refused,
                draining=self.draining,
            )
        finally:
            for request in sorted(waiting):
                self.desk.withdraw(request)

    @maps_errors
    async def Status(self, request: pb.ServiceStatusRequest, context: Any) -> pb.LocksStatus:
        """Tell how much is held."""
        leases, waiting = self.desk.table.counts
        incarnation = self.desk.table.incarnation
        return pb.LocksStatus(**self._identity._asdict(), incarnation=incarnation, leases=leases, waiting=waiting)

    def _handle(self, request: pb.LockRequest, reply: Reply[pb.LockReply], waiting: set[bytes]) -> None:
        kind = request.WhichOneof("body")
        self._requests.labels(kind=kind or "none").inc()
        answer = pb.LockReply(id=request.id, lease_ms=self._lease_ms)
        match kind:
            case "acquire":
                self._acquire(request.acquire, answer, reply, waiting)
                return
            case "withdraw":
                self.desk.withdraw(request.withdraw.request)
            case "refresh":
                answer.alive.extend(self.desk.refresh(_tokens(request.refresh)))
            case "validate":
                answer.alive.extend(self.desk.validate(_tokens(request.validate)))
            case "release":
                answer.alive.extend(self.desk.release(_tokens(request.release)))
            case "oldest_bound":
                oldest = self.desk.oldest_bound()
                if oldest is not None:
                    answer.bound = oldest
            case _:
                raise F1Error(Code.INVALID_ARGUMENT, "a request to the lock service says what it wants")
        self._count()
        reply(answer)

    def _acquire(
        self, body: pb.AcquireLocks, answer: pb.LockReply, reply: Reply[pb.LockReply], waiting: set[bytes]
    ) -> None:
        name = body.request
        locks = [WantedLock(lock.name, _mode(lock.mode)) for lock in body.locks]
        bound = body.bound if body.HasField("bound") else None

        def done(token: Token | None) -> None:
            waiting.discard(name)
            if token is not None:
                answer.token.incarnation, answer.token.number = token
            self._count()
            reply(answer)

        waiting.add(name)
        try:
            self.desk.acquire(name, locks, bound, body.wait_ms * 1000, done)
        except F1Error:
            waiting.discard(name)
            raise

    def _count(self) -> None:
        leases, waiters = self.desk.table.counts
        self._leases.set(leases)
        self._waiters.set(waiters)


def _mode(mode: int) -> Mode:
    found = _MODES.get(mode)
    if found is None:
        raise F1Error(Code.INVALID_ARGUMENT, "a lock is wanted for reading or writing")
    return found


def _tokens(body: pb.LockTokens) -> list[Token]:
    return [Token(token.incarnation, token.number) for token in body.tokens]


def _unpack(batch: pb.LockRequests) -> Any:
    if batch.protocol_version:
        check_version("the client", batch.protocol_version, PROTOCOL_VERSION)
    return batch.requests


def _refused(request: pb.LockRequest, error: F1Error) -> pb.LockReply:
    return pb.LockReply(id=request.id, error=types_pb2.Error(**error_to_wire(error)._asdict()))
