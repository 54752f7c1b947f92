"""The server's side of batched streams: requests with answers in any order, and one-way messages."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from f1common.errors import Code, F1Error, InvariantViolation, check
from f1common.observe.logs import get_logger
from f1common.rpc.batches import DEFAULT_LIMITS, END_OF_STREAM, Identified, ServerCall, StreamLimits, take
from f1common.rpc.status import error_from_exception

_LAST_MESSAGE_S = 1.0

_log = get_logger(__name__)

Req = TypeVar("Req", bound=Identified)
Resp = TypeVar("Resp", bound=Identified)
Msg = TypeVar("Msg")

# What a context raises when its client is gone; anything else is a defect of ours.
_CLIENT_GONE = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, ConnectionError)


Reply = Callable[[Resp], None]
"""What takes the answer of one request, on the event loop."""


class Owed(Generic[Req, Resp]):
    """The answer that one request waits for: called with it once, at any time, on the event loop."""

    __slots__ = ("_request", "_session", "given")

    def __init__(self, session: "_Session[Req, Resp]", request: Req) -> None:
        self._session = session
        self._request = request
        self.given = False

    def __call__(self, response: Resp) -> None:
        """Give it, once."""
        check(not self.given, "a request is answered once")
        self.given = True
        self._session.answer(self._request, response)

    def is_crowded(self) -> bool:
        """Tell whether as much as may wait for the client already does: answers that are large can be put off."""
        return self._session.is_crowded()


class _Session(Generic[Req, Resp]):
    """The server's side of one stream of requests."""

    def __init__(
        self,
        context: ServerCall,
        unpack: Callable[[Any], Iterable[Req]],
        pack: Callable[[list[Resp]], Any],
        handle: Callable[[Req, "Owed[Req, Resp]"], None],
        fail: Callable[[Req, F1Error], Resp] | None,
        limits: StreamLimits,
    ) -> None:
        self._context = context
        self._unpack = unpack
        self._pack = pack
        self._handle = handle
        self._fail = fail
        self._limits = limits
        self._unanswered = 0
        self._unsent_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._replies: deque[tuple[Resp, int]] = deque()
        self._wake = asyncio.Event()
        self._reading = True
        self._hello_due = False
        self.gone = False
        self.sending = asyncio.Lock()
        """Held while a message is with the transport, which takes nothing else meanwhile, not even an end."""

    async def read(self) -> None:
        """Read and handle requests until the client half-closes. The first message read is the client's hello."""
        greeted = False
        while True:
            await self._room.wait()
            batch = await self._context.read()
            if batch is END_OF_STREAM:
                return
            for request in self._unpack(batch):
                self._accept(request)
            if not greeted:
                greeted = self._hello_due = True
                self._wake.set()

    def _accept(self, request: Req) -> None:
        self._unanswered += 1
        self._look_for_room()
        reply = Owed(self, request)
        if self._fail is None:
            self._handle(request, reply)
            return
        try:
            self._handle(request, reply)
        except InvariantViolation:
            raise  # not to be answered and forgotten
        except Exception as exception:
            if reply.given:
                raise  # nobody would learn of it otherwise
            reply(self._fail(request, error_from_exception(exception)))

    def is_crowded(self) -> bool:
        """Tell whether so much waits to be sent that nothing more is read."""
        return self._unsent_bytes >= self._limits.max_unsent_bytes

    def answer(self, request: Req, response: Resp) -> None:
        """Queue the answer of a request."""
        self._unanswered -= 1
        if self.gone:
            return
        size = response.ByteSize()
        if size > self._limits.max_message_bytes and self._fail is not None:
            limit = f"the limit of {self._limits.max_message_bytes} bytes"
            text = f"a response of {size} bytes exceeds {limit}: ask for less at a time, or for large rows by a query"
            response = self._fail(request, F1Error(Code.OUT_OF_RANGE, text, ambiguous=True))
            size = response.ByteSize()
        self._replies.append((response, size))
        self._unsent_bytes += size
        self._look_for_room()
        self._wake.set()

    def _look_for_room(self) -> None:
        if self._unanswered < self._limits.max_in_flight and not self.is_crowded():
            self._room.set()
        else:
            self._room.clear()

    def finish(self) -> None:
        """Let :meth:`write` end once everything that was read is answered."""
        self._reading = False
        self._wake.set()

    async def write(self) -> None:
        """Send whatever answers are queued, until :meth:`finish` was called and none is owed."""
        while self._reading or self._unanswered or self._replies or self._hello_due:
            await self._wake.wait()
            batch, size = take(self._replies, self._limits.max_batch_messages, self._limits.max_batch_bytes)
            if not self._replies:
                self._wake.clear()
            if batch or self._hello_due:
                self._hello_due = False
                async with self.sending:
                    await self._context.write(self._pack(batch))
                self._unsent_bytes -= size
                self._look_for_room()


async def serve_requests(
    context: ServerCall,
    unpack: Callable[[Any], Iterable[Req]],
    pack: Callable[[list[Resp]], Any],
    handle: Callable[[Req, "Owed[Req, Resp]"], None],
    *,
    max_in_flight: int = DEFAULT_LIMITS.max_in_flight,
    limits: StreamLimits = DEFAULT_LIMITS,
    fail: Callable[[Req, F1Error], Resp] | None = None,
    draining: asyncio.Event | None = None,
) -> None:
    """Serve one stream until the client half-closes it, goes away or the server drains.

    The server's hello, a batch without responses, answers the client's once ``unpack`` has accepted it.
    ``handle(request, reply)`` is called for each request in order, without waiting for answers. The response that
    ``reply`` takes carries the request's id already. Reading stops while ``max_in_flight`` requests, or up to one batch
    more, are unanswered, or ``limits.max_unsent_bytes`` of answers wait for a client that does not read them. When
    ``draining`` is set, reading stops for good and the stream ends, in order, after the last
    answer: the client may rely on that what it has no answer to was not read. Answers for a client that is gone are
    dropped. ``fail`` makes a response of an error: with it an exception of ``handle`` answers its request alone;
    without it that ends the stream. An error of ``unpack`` always does. What ends the stream is raised, for
    :func:`f1common.rpc.status.maps_errors` to tell the client.
    """
    bounds = replace(limits, max_in_flight=max_in_flight)
    session: _Session[Req, Resp] = _Session(context, unpack, pack, handle, fail, bounds)
    reader = asyncio.create_task(session.read())
    writer = asyncio.create_task(session.write())
    drain = asyncio.create_task((draining or asyncio.Event()).wait())
    tasks = (reader, writer, drain)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if reader.done():
            reader.result()
        session.finish()
        reader.cancel()
        await asyncio.wait((writer,))
        try:
            writer.result()
        except _CLIENT_GONE as failure:
            _log.debug("a client's stream broke", reason=str(failure))
            # An end in order tells the client that what it has no answer to was not read; this is none.
            context.set_code(grpc.StatusCode.UNAVAILABLE)
    finally:
        session.gone = True
        await _quietly_stop(session, tasks)


async def _quietly_stop(session: _Session[Any, Any], tasks: tuple["asyncio.Task[Any]", ...]) -> None:
    """Cancel the tasks, the writer between two messages if that is possible within a moment."""
    try:
        async with asyncio.timeout(_LAST_MESSAGE_S), session.sending:
            for task in tasks:
                task.cancel()
    except TimeoutError:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def serve_one_way(
    context: ServerCall,
    unpack: Callable[[Any], Iterable[Msg]],
    handle: Callable[[Msg], None],
    *,
    draining: asyncio.Event | None = None,
) -> None:
    """Hand every message of a one-way stream to ``handle`` until the sender ends it or the server drains.

    ``handle`` puts into a bounded inbox that drops when it is full: the sender is never held up.
    """

    async def read() -> None:
        while (batch := await context.read()) is not END_OF_STREAM:
            for message in unpack(batch):
                handle(message)

    reader = asyncio.create_task(read())
    drain = asyncio.create_task((draining or asyncio.Event()).wait())
    try:
        await asyncio.wait((reader, drain), return_when=asyncio.FIRST_COMPLETED)
        if reader.done():
            reader.result()
    finally:
        reader.cancel()
        drain.cancel()
        await asyncio.gather(reader, drain, return_exceptions=True)
