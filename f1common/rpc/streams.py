"""Long-lived bidirectional streams whose messages carry whatever is queued when the writer becomes free.

A gRPC message in Python costs about a tenth of a millisecond of processor at each end whatever it holds, so every
hop of the system keeps one stream open and shares its messages among all callers. There are no timers: under light
load a message carries one request and leaves at once; under heavy load the writer is busy, the queue fills, and the
next message carries all of it.

* :class:`RequestStream` and :func:`serve_requests`: requests with answers, matched by id, in any order.
* :class:`OneWayStream` and :func:`serve_one_way`: messages that may be lost, for protocols that send again (Paxos).

What a client may conclude from an error is exact. A stream of requests begins with a *hello* from the client, a
message without requests that may name a protocol version, and one from the server, which accepts it. Only then are
requests *handed over*, that is given to the transport. A stream that breaks fails the requests handed over as
ambiguous and all others as not: with a server that is down, or that refuses the stream, nothing is ambiguous. (The
hello has a second reason: a message that grpc.aio writes to a call which the server is just refusing replaces the
refusal's status by an internal error, so nothing is written until the server has accepted.)

Everything here runs on one event loop and takes time from it alone, so that it also runs in virtual time.
"""

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from f1common.errors import Code, F1Error, check
from f1common.observe.logs import get_logger
from f1common.rpc.backoff import Backoff
from f1common.rpc.batches import DEFAULT_LIMITS, BatchCall, Identified, StreamLimits, take
from f1common.rpc.deadlines import Expiries
from f1common.rpc.serving import serve_one_way, serve_requests
from f1common.rpc.status import carries_error, error_from_rpc

__all__ = [
    "RequestStream",
    "OneWayStream",
    "serve_requests",
    "serve_one_way",
    "BatchCall",
    "StreamLimits",
    "DEFAULT_LIMITS",
]

_log = get_logger(__name__)

_BACKOFF_INITIAL_MS = 20
_BACKOFF_CAP_MS = 500
_BACKOFF_MULTIPLIER = 2
# A failed write knows only that the call is over; its status follows at once where there is one.
_STATUS_WAIT_S = 1.0
# A call that took messages for so long worked; one that ended sooner may have been refused by the server.
_WORKED_S = 1.0


Req = TypeVar("Req", bound=Identified)
Resp = TypeVar("Resp", bound=Identified)
Msg = TypeVar("Msg")


def default_backoff(rng: random.Random) -> Backoff:
    """Return the back-off between attempts to open a stream: from 20 ms to 500 ms."""
    return Backoff(_BACKOFF_INITIAL_MS, _BACKOFF_CAP_MS, _BACKOFF_MULTIPLIER, rng)


# What a call raises when it is over; anything else that a writer raises is a defect of ours.
_CALL_OVER = (type(None), grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
_EXPECTED_ENDS = (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class _Pending(Generic[Req, Resp]):
    """A request that waits for its response."""

    __slots__ = ("future", "handed", "request", "size")

    def __init__(self, request: Req, size: int, future: "asyncio.Future[Resp]") -> None:
        self.request = request
        self.size = size
        self.future = future
        self.handed = False


class RequestStream(Generic[Req, Resp]):
    """The client's side of a stream of requests and responses, opened by the first call and again after it broke.

    Any number of tasks call :meth:`call` at once; their requests share messages. Idle streams stay open.
    """

    def __init__(
        self,
        open_call: Callable[[], BatchCall],
        pack: Callable[[list[Req]], Any],
        unpack: Callable[[Any], Iterable[Resp]],
        *,
        rng: random.Random,
        limits: StreamLimits = DEFAULT_LIMITS,
        hello: Callable[[], Any] | None = None,
        name: str = "peer",
    ) -> None:
        """Make a stream; nothing is sent before the first call.

        ``open_call`` starts a call of the stub's method; ``pack`` and ``unpack`` convert between requests or responses
        and batch messages. ``hello`` makes the first message of each call (a protocol version, say), by default
        ``pack([])``. ``rng`` jitters the back-off; ``name`` is the peer in error messages.
        """
        self._open_call = open_call
        self._pack = pack
        self._unpack = unpack
        self._hello = hello if hello is not None else lambda: pack([])
        self._limits = limits
        self._name = name
        self._backoff = default_backoff(rng)
        self._not_before_s = 0.0
        self._last_id = 0
        self._pending: dict[int, _Pending[Req, Resp]] = {}
        # Ordered by age; entries leave from the front when sent, from anywhere when their caller gives up.
        self._queue: OrderedDict[int, _Pending[Req, Resp]] = OrderedDict()
        self._queued = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._expiries: Expiries[_Pending[Req, Resp]] = Expiries(self._expire)
        self._closed = False

    @property
    def in_flight(self) -> int:
        """The number of requests without a response yet."""
        return len(self._pending)

    @property
    def queued(self) -> int:
        """The number of requests not handed over yet."""
        return len(self._queue)

    async def call(self, request: Req, timeout_s: float | None = None) -> Resp:
        """Send ``request`` and return its response. Sets ``request.id``; the message must not change meanwhile.

        Raises F1Error: OVERLOADED beyond ``max_in_flight`` (nothing was sent), OUT_OF_RANGE for a request too large for
        a message, DEADLINE_EXCEEDED after ``timeout_s`` seconds, UNAVAILABLE when the stream broke or cannot be
        opened, what the server ended the stream with (VERSION_MISMATCH, UNAUTHENTICATED, ...), CANCELLED when closed.
        Each is ambiguous exactly if the request was handed over, unless the server ended the stream in order, as when
        it drains: then it has answered all that it read. A response that comes too late is dropped.
        """
        pending = self._enqueue(request)
        if timeout_s is not None:
            self._expiries.add(pending, pending.future.get_loop().time() + max(timeout_s, 0.0))
        try:
            return await pending.future
        finally:
            if timeout_s is not None:
                self._expiries.discard(pending)
            self._pending.pop(request.id, None)
            self._queue.pop(request.id, None)

    def _enqueue(self, request: Req) -> _Pending[Req, Resp]:
        if self._closed:
            raise F1Error(Code.CANCELLED, f"the stream to {self._name} is closed")
        if len(self._pending) >= self._limits.max_in_flight:
            raise F1Error(Code.OVERLOADED, f"{len(self._pending)} requests wait for {self._name} already")
        self._last_id += 1
        request.id = self._last_id
        size = request.ByteSize()
        if size > self._limits.max_message_bytes:
            limit = self._limits.max_message_bytes
            raise F1Error(Code.OUT_OF_RANGE, f"a request of {size} bytes exceeds the limit of {limit} bytes")
        pending: _Pending[Req, Resp] = _Pending(request, size, asyncio.get_running_loop().create_future())
        self._pending[request.id] = self._queue[request.id] = pending
        self._queued.set()
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name=f"requests to {self._name}")
        return pending

    def _expire(self, pending: _Pending[Req, Resp]) -> None:
        if not pending.future.done():
            text = f"no response from {self._name} in time"
            pending.future.set_exception(F1Error(Code.DEADLINE_EXCEEDED, text, ambiguous=pending.handed))

    async def close(self) -> None:
        """End the stream; requests in flight fail with CANCELLED. Idempotent."""
        self._closed = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
            self._runner = None
        self._expiries.close()
        self._fail_all(F1Error(Code.CANCELLED, f"the stream to {self._name} was closed"))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._queued.wait()
            await asyncio.sleep(max(0.0, self._not_before_s - loop.time()))
            if not self._queue:
                self._queued.clear()  # the callers gave up meanwhile
                continue
            error, in_order = await self._converse()
            self._not_before_s = loop.time() + self._backoff.next_s()
            self._fail_all(error, unread=in_order)

    async def _converse(self) -> tuple[F1Error, bool]:
        """Run one call of the stream to its end; return why it ended, and whether the server ended it in order."""
        try:
            call = self._open_call()
        except Exception as error:
            return F1Error(Code.UNAVAILABLE, f"cannot call {self._name}: {error}"), False
        accepted = asyncio.Event()
        reader = asyncio.create_task(self._read(call, accepted))
        writer = asyncio.create_task(self._write(call, accepted))
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if not reader.done():
                await asyncio.wait((reader,), timeout=_STATUS_WAIT_S)
            in_order = reader.done() and not reader.cancelled() and reader.exception() is None
            return self._reason(reader, writer), in_order
        finally:
            reader.cancel()
            writer.cancel()
            call.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _read(self, call: BatchCall, accepted: asyncio.Event) -> None:
        async for batch in call:
            accepted.set()
            for response in self._unpack(batch):
                self._backoff.reset()
                pending = self._pending.pop(response.id, None)
                if pending is not None and not pending.future.done():
                    pending.future.set_result(response)

    async def _write(self, call: BatchCall, accepted: asyncio.Event) -> None:
        await call.write(self._hello())
        await accepted.wait()
        while True:
            await self._queued.wait()
            batch = self._take()
            if batch:
                await call.write(self._pack(batch))

    def _take(self) -> list[Req]:
        taken: list[Req] = []
        size = 0
        limits = self._limits
        while self._queue and len(taken) < limits.max_batch_messages:
            request_id, pending = self._queue.popitem(last=False)
            if taken and size + pending.size > limits.max_batch_bytes:
                self._queue[request_id] = pending
                self._queue.move_to_end(request_id, last=False)
                break
            if pending.future.done():
                continue  # its time ran out in this very turn of the loop: its caller was told that it was not sent
            pending.handed = True
            taken.append(pending.request)
            size += pending.size
        if not self._queue:
            self._queued.clear()
        return taken

    def _reason(self, reader: "asyncio.Task[None]", writer: "asyncio.Task[None]") -> F1Error:
        failure: BaseException | None = None
        for task in (reader, writer):
            if failure is None and task.done() and not task.cancelled():
                failure = task.exception()
        match failure:
            case F1Error():
                return failure
            case grpc.aio.AioRpcError() if carries_error(failure):
                return error_from_rpc(failure)
            case grpc.aio.AioRpcError() if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
                return error_from_rpc(failure)
            case grpc.aio.AioRpcError():
                text = f"{failure.code().name}: {failure.details() or 'no details'}"
            case None:
                text = "it ended the stream"
            case grpc.aio.UsageError() | asyncio.InvalidStateError():
                text = "the call or its channel is closed"
            case _:
                _log.error("a stream of requests failed", exc=failure, peer=self._name)
                text = f"{type(failure).__name__} in the stream"
        return F1Error(Code.UNAVAILABLE, f"the stream to {self._name} broke: {text}")

    def _fail_all(self, reason: F1Error, *, unread: bool = False) -> None:
        """Fail all requests; ``unread``: the server has certainly not read those without an answer."""
        failed = list(self._pending.values())
        self._pending.clear()
        self._queue.clear()
        self._queued.clear()
        for pending in failed:
            if not pending.future.done():
                # One error for each caller: a shared one would collect all their tracebacks.
                pending.future.set_exception(
                    F1Error(
                        reason.code,
                        reason.message,
                        retryable=reason.retryable,
                        ambiguous=pending.handed and not unread,
                        details=reason.details,
                    )
                )


class OneWayStream(Generic[Msg]):
    """A sender of messages that may be lost: it never blocks, and what it cannot send soon it drops.

    The queue is bounded; a full one drops its oldest messages, since protocols that send again mind stale messages
    more than lost ones. For the same reason a failed attempt to reach the peer drops what was queued, so that a peer
    that comes back hears the present, not a backlog.
    """

    def __init__(
        self,
        open_call: Callable[[], BatchCall],
        pack: Callable[[list[Msg]], Any],
        *,
        rng: random.Random,
        max_queued_messages: int = 1000,
        max_queued_bytes: int = 16 << 20,
        limits: StreamLimits = DEFAULT_LIMITS,
        name: str = "peer",
    ) -> None:
        """Make a sender; nothing is sent before the first message. Parameters as for :class:`RequestStream`."""
        check(max_queued_messages > 0 and max_queued_bytes > 0, "the queue has room for something")
        self._open_call = open_call
        self._pack = pack
        self._limits = limits
        self._max_queued_messages = max_queued_messages
        self._max_queued_bytes = max_queued_bytes
        self._name = name
        self._backoff = default_backoff(rng)
        self._queue: deque[tuple[Msg, int]] = deque()
        self._queued_bytes = 0
        self._queued = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._closed = False
        self.connected = False
        """Whether the present call has taken a message."""
        self.dropped = 0
        """How many messages were dropped before they were handed to the transport."""

    def send(self, message: Msg, size: int) -> bool:
        """Queue ``message`` of ``size`` bytes. Returns False if it can never be sent: too large, or closed.

        True promises nothing: it may still be dropped here or lost on the way.
        """
        if self._closed or size > self._limits.max_message_bytes:
            self.dropped += 1
            return False
        self._queue.append((message, size))
        self._queued_bytes += size
        while len(self._queue) > 1 and (
            len(self._queue) > self._max_queued_messages or self._queued_bytes > self._max_queued_bytes
        ):
            self._queued_bytes -= self._queue.popleft()[1]
            self.dropped += 1
        self._queued.set()
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name=f"messages to {self._name}")
        return True

    async def close(self) -> None:
        """End the stream and drop what is queued. Idempotent."""
        self._closed = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
            self._runner = None
        self._drop_queue()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._queued.wait()
            started_s = loop.time()
            await self._converse()
            worked = self.connected and loop.time() - started_s >= _WORKED_S
            self.connected = False
            if worked:
                # Most likely the peer was restarted, so reach for it at once before backing off.
                self._backoff.reset()
            else:
                self._drop_queue()
                await asyncio.sleep(self._backoff.next_s())

    async def _converse(self) -> None:
        """Run one call of the stream to its end."""
        try:
            call = self._open_call()
        except Exception as error:
            _log.debug("cannot call a peer", peer=self._name, reason=str(error))
            return
        # An idle sender learns from the status that the call is over; otherwise it would lose the next messages.
        watcher = asyncio.ensure_future(call.code())
        writer = asyncio.create_task(self._write(call))
        try:
            await asyncio.wait((watcher, writer), return_when=asyncio.FIRST_COMPLETED)
            if not watcher.done():
                await asyncio.wait((watcher,), timeout=_STATUS_WAIT_S)
            await self._explain(call, watcher, writer)
        finally:
            watcher.cancel()
            writer.cancel()
            call.cancel()
            await asyncio.gather(watcher, writer, return_exceptions=True)

    async def _explain(
        self, call: BatchCall, watcher: "asyncio.Future[grpc.StatusCode]", writer: "asyncio.Task[None]"
    ) -> None:
        failure = writer.exception() if writer.done() and not writer.cancelled() else None
        if not isinstance(failure, _CALL_OVER):
            _log.error("a one-way stream failed", exc=failure, peer=self._name)
        elif watcher.done() and not watcher.cancelled() and watcher.exception() is None:
            say = _log.debug if watcher.result() in _EXPECTED_ENDS else _log.warning
            say("a one-way stream ended", peer=self._name, status=watcher.result().name, details=await call.details())

    async def _write(self, call: BatchCall) -> None:
        await call.write(self._pack([]))
        self.connected = True
        while True:
            await self._queued.wait()
            batch = self._take()
            if batch:
                await call.write(self._pack(batch))

    def _take(self) -> list[Msg]:
        taken, taken_bytes = take(self._queue, self._limits.max_batch_messages, self._limits.max_batch_bytes)
        self._queued_bytes -= taken_bytes
        if not self._queue:
            self._queued.clear()
        return taken

    def _drop_queue(self) -> None:
        self.dropped += len(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._queued.clear()
