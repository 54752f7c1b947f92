"""A channel that generated stubs take for a ``grpc.aio`` channel.

The client's half of a call is grpc's own: the classes of ``grpc.aio`` that applications hold (``UnaryUnaryCall`` and
its siblings) run here unmodified, over a :class:`_CoreCall` in the place of the compiled core. So styles of use,
cancellation, what is raised and when are those of production, by construction.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import aio
from grpc._cython import cygrpc
from grpc.aio import _call as aio_call

from spanstore.testing.sim.loop import Domain, VirtualLoop
from spanstore.testing.sim.net import (
    Connection,
    Frame,
    HalfClose,
    Headers,
    Message,
    Network,
    Opening,
    Reset,
    Status,
    Stream,
    stable,
)

_MICROS = 1_000_000
_CORE_CODES: dict[str, Any] = {code.name: getattr(cygrpc.StatusCode, code.name.lower()) for code in grpc.StatusCode}

MetadataTuple = tuple[tuple[str, str | bytes], ...]
Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


class _CoreStatus:
    """What the calls of ``grpc.aio`` ask of a status."""

    __slots__ = ("_code", "_details", "_trailing")

    def __init__(self, code: str, details: str, trailing: MetadataTuple) -> None:
        self._code = code
        self._details = details
        self._trailing = trailing

    def code(self) -> Any:
        return _CORE_CODES[self._code]

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> MetadataTuple:
        return self._trailing

    def debug_error_string(self) -> str:
        return f"simulated: {self._code}: {self._details}"


class _CoreCall:
    """What the compiled core does for one call: frames out, frames in, one final status."""

    def __init__(self, channel: "SimChannel", method: str, deadline_us: int | None, wait_for_ready: bool) -> None:
        self._channel = channel
        self._loop = channel.loop
        self._method = method
        self._deadline_us = deadline_us
        self._wait_for_ready = wait_for_ready
        self._stream: Stream | None = None
        self._inbox: deque[bytes] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._status: _CoreStatus | None = None
        self._streams_responses = False
        self._ending: Status | None = None
        """The server's status, while messages that came before it are unread: the core tells it after them."""
        self._initial_metadata: MetadataTuple | None = None
        self._locally_cancelled = False
        self._callbacks: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        channel.calls[self] = None
        if deadline_us is not None:
            self._timer = self._loop.call_at_us(deadline_us, self._out_of_time)

    # -- what the classes of grpc.aio call --

    def done(self) -> bool:
        return self._status is not None

    def cancelled(self) -> bool:
        return self._status is not None and self._status.code() == _CORE_CODES["CANCELLED"]

    def is_ok(self) -> bool:
        return self._status is not None and self._status.code() == _CORE_CODES["OK"]

    def is_locally_cancelled(self) -> bool:
        return self._locally_cancelled

    def cancel(self, details: str) -> None:
        if self._status is None:
            self._locally_cancelled = True
            self._give_up("CANCELLED", details)

    def set_internal_error(self, details: str) -> None:
        if self._status is None:
            self._give_up("INTERNAL", details)

    def time_remaining(self) -> float | None:
        if self._deadline_us is None:
            return None
        return max(0, self._deadline_us - self._loop.now_us) / _MICROS

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        if self._status is not None:
            callback()
        else:
            self._callbacks.append(callback)

    async def status(self) -> _CoreStatus:
        while self._status is None:
            await self._change()
        return self._status

    async def initial_metadata(self) -> MetadataTuple:
        while self._initial_metadata is None and self._status is None:
            await self._change()
        return self._initial_metadata or ()

    async def unary_unary(self, request: bytes, metadata: Iterable[Any], _census: object) -> bytes | None:
        if await self._open(metadata):
            self._send_all(request)
        return await self._only_response()

    async def initiate_unary_stream(self, request: bytes, metadata: Iterable[Any], _census: object) -> None:
        self._streams_responses = True
        if await self._open(metadata):
            self._send_all(request)
        await self.initial_metadata()

    async def stream_unary(self, metadata: Iterable[Any], sent: Callable[[], None], _census: object) -> bytes | None:
        await self._open(metadata)
        sent()
        return await self._only_response()

    async def initiate_stream_stream(self, metadata: Iterable[Any], sent: Callable[[], None], _census: object) -> None:
        self._streams_responses = True
        await self._open(metadata)
        sent()
        await self.initial_metadata()

    async def send_serialized_message(self, message: bytes) -> None:
        if self._status is not None or self._stream is None:
            raise cygrpc.InternalError("the call has ended")
        self._stream.up.send(Message(message))
        await self._stream.up.room()
        if self.done() and not self.is_ok():
            raise cygrpc.InternalError("the call has ended")

    async def send_receive_close(self) -> None:
        if self._status is None and self._stream is not None:
            self._stream.up.send(HalfClose())

    async def receive_serialized_message(self) -> Any:
        while not self._inbox:
            if self._status is not None:
                return cygrpc.EOF
            await self._change()
        message = self._inbox.popleft()
        if self._stream is not None:
            self._stream.down.consumed(len(message))
        if self._ending is not None and not self._inbox:
            self._finish(self._ending)
        return message

    # -- inside --

    async def _open(self, metadata: Iterable[Any]) -> bool:
        """Get a connection and send the opening. False: the call has ended instead."""
        connection = await self._channel.connected(self._wait_for_ready, self.done, self._deadline_us)
        if self._status is not None:
            return False
        if connection is None or not connection.client_open:
            self._finish(Status("UNAVAILABLE", f"failed to connect to {self._channel.target}"))
            return False
        self._stream = stream = connection.open(self._method)
        stream.down.receiver = self._receive
        left_us = None if self._deadline_us is None else max(0, self._deadline_us - self._loop.now_us)
        stream.up.send(Opening(tuple((key, value) for key, value in metadata), left_us))
        return True

    def _send_all(self, request: bytes) -> None:
        if self._stream is not None:
            self._stream.up.send(Message(request))
            self._stream.up.send(HalfClose())

    async def _only_response(self) -> bytes | None:
        await self.status()
        return self._inbox[0] if self.is_ok() and self._inbox else None

    def _receive(self, frame: Frame) -> None:
        if self._status is not None:
            return
        match frame:
            case Headers(metadata):
                self._initial_metadata = metadata
                self._wake()
            case Message(data):
                self._inbox.append(data)
                self._wake()
            case Status() if self._streams_responses and self._inbox:
                self._ending = frame
            case Status():
                self._finish(frame)
            case Reset(reason):
                self._finish(Status("UNAVAILABLE", reason))
            case _:
                pass

    def _out_of_time(self) -> None:
        if self._status is None:
            self._give_up("DEADLINE_EXCEEDED", "Deadline Exceeded")

    def _give_up(self, code: str, details: str) -> None:
        if self._stream is not None:
            self._stream.up.send(Reset(details))
        self._inbox.clear()
        self._finish(Status(code, details))

    def _finish(self, status: Status) -> None:
        if self._status is not None:
            return
        self._status = _CoreStatus(status.code, status.details, status.trailing)
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.end_client()
            self._stream.up.release_writers()
        self._channel.calls.pop(self, None)
        self._wake()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class _MultiCallable:
    """One method of a channel, whatever its shape."""

    __slots__ = ("_channel", "_deserializer", "_kind", "_method", "_serializer")

    def __init__(
        self,
        channel: "SimChannel",
        kind: str,
        method: str,
        serializer: Serializer | None,
        deserializer: Deserializer | None,
    ) -> None:
        self._channel = channel
        self._kind = kind
        self._method = method
        self._serializer = stable(serializer)
        self._deserializer = deserializer

    def __call__(
        self,
        request: Any = None,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
        request_iterator: Any = None,
    ) -> Any:
        """Start a call."""
        channel = self._channel
        if channel.is_closed:
            raise cygrpc.UsageError("Channel is closed.")
        pairs = aio.Metadata(*metadata) if metadata else aio.Metadata()
        deadline_us = None if timeout is None else channel.loop.now_us + max(0, round(timeout * _MICROS))
        core = _CoreFactory(channel, deadline_us, bool(wait_for_ready))
        call_class = getattr(aio_call, self._kind)
        if self._kind in ("UnaryUnaryCall", "UnaryStreamCall"):
            body = request
        else:
            body = request if request is not None else request_iterator
        return call_class(
            body,
            None,
            pairs,
            None,
            wait_for_ready,
            core,
            self._method,
            self._serializer,
            self._deserializer,
            channel.loop,
        )


class _CoreFactory:
    """Stands where the calls of ``grpc.aio`` expect the compiled channel."""

    __slots__ = ("_channel", "_deadline_us", "_wait_for_ready")

    def __init__(self, channel: "SimChannel", deadline_us: int | None, wait_for_ready: bool) -> None:
        self._channel = channel
        self._deadline_us = deadline_us
        self._wait_for_ready = wait_for_ready

    def call(self, method: str, *_rest: object) -> _CoreCall:
        return _CoreCall(self._channel, method, self._deadline_us, self._wait_for_ready)


class SimChannel:
    """A channel from one process to one address. It connects when first used, and again after a loss."""

    def __init__(self, net: Network, domain: Domain, target: str) -> None:
        self.net = net
        self.loop: VirtualLoop = net.loop
        self.domain = domain
        self.target = target
        self.is_closed = False
        self.calls: dict[_CoreCall, None] = {}
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._state = grpc.ChannelConnectivity.IDLE
        self._state_waiters: list[asyncio.Future[None]] = []
        self._no_attempt_before_us = 0

    # -- methods --

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = False,
    ) -> _MultiCallable:
        """Return a callable for a method with one request and one response."""
        return _MultiCallable(self, "UnaryUnaryCall", method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = False,
    ) -> _MultiCallable:
        """Return a callable for a method with one request and many responses."""
        return _MultiCallable(self, "UnaryStreamCall", method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = False,
    ) -> _MultiCallable:
        """Return a callable for a method with many requests and one response."""
        return _MultiCallable(self, "StreamUnaryCall", method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = False,
    ) -> _MultiCallable:
        """Return a callable for a method with many requests and many responses."""
        return _MultiCallable(self, "StreamStreamCall", method, request_serializer, response_deserializer)

    # -- life --

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Cancel the calls, after ``grace`` seconds for them to end by themselves, and let the connection go."""
        if self.is_closed:
            return
        self.is_closed = True
        if grace:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle(), grace)
        for call in list(self.calls):
            call.cancel("Channel closed!")
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None and self._connection.client_open:
            self._connection.on_lost = None
            self._connection.reset_by(self.domain, "channel closed by the client")
        self._connection = None
        self._set_state(grpc.ChannelConnectivity.SHUTDOWN)

    async def _idle(self) -> None:
        while self.calls:
            await next(iter(self.calls)).status()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the connectivity, and start to connect if asked to."""
        if try_to_connect and self._state is grpc.ChannelConnectivity.IDLE:
            self._connect_once()
        return self._state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the connectivity is another one."""
        while self._state is last_observed_state:
            waiter = self.loop.create_future()
            self._state_waiters.append(waiter)
            await waiter

    async def channel_ready(self) -> None:
        """Wait until there is a connection, however many attempts that takes."""
        await self.connected(wait=True, ended=lambda: False, deadline_us=None)

    async def connected(
        self,
        wait: bool,
        ended: Callable[[], bool],
        deadline_us: int | None,
    ) -> Connection | None:
        """Return the connection, or None when an attempt failed or ``ended`` became true; ``wait``: try for ever."""
        while not ended() and not self.is_closed:
            if self._connection is not None and self._connection.client_open:
                return self._connection
            if self._connecting is None:
                if self.loop.now_us < self._no_attempt_before_us and not wait:
                    await asyncio.sleep(0)
                    return None
                self._connect_once()
            attempt = self._connecting
            if attempt is None:
                continue
            left = None if deadline_us is None else max(0, deadline_us - self.loop.now_us) / _MICROS
            await asyncio.wait([attempt], timeout=left)
            if self._connection is None and not wait:
                return None
        return None

    def _connect_once(self) -> None:
        if self._connecting is None:
            self._connecting = self.loop.create_task(self._connect(), context=self.domain.context.copy())
            self._connecting.add_done_callback(self._attempt_over)

    def _attempt_over(self, _task: asyncio.Task[None]) -> None:
        self._connecting = None

    async def _connect(self) -> None:
        """Try to connect: a round trip, and the server's process has to take part."""
        net, loop = self.net, self.loop
        self._set_state(grpc.ChannelConnectivity.CONNECTING)
        if loop.now_us < self._no_attempt_before_us:
            await asyncio.sleep((self._no_attempt_before_us - loop.now_us) / _MICROS)
        answer: asyncio.Future[Connection | None] = loop.create_future()
        timeout = loop.call_at_us(loop.now_us + net.config.connect_timeout_us, _answer, answer, None)
        net.knock(self.domain, self.target, partial(_answer, answer))
        connection = await answer
        timeout.cancel()
        if connection is None or not connection.client_open:
            backoff_us = net.config.reconnect_backoff_us
            self._no_attempt_before_us = loop.now_us + backoff_us // 2 + net.rng.randrange(backoff_us + 1)
            self._set_state(grpc.ChannelConnectivity.TRANSIENT_FAILURE)
            return
        self._connection = connection
        connection.on_lost = partial(self._lost, connection)
        self._set_state(grpc.ChannelConnectivity.READY)

    def _lost(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._set_state(grpc.ChannelConnectivity.IDLE)

    def _set_state(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state
        waiters, self._state_waiters = self._state_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _answer(future: "asyncio.Future[Connection | None]", connection: Connection | None) -> None:
    if not future.done():
        future.set_result(connection)
    elif connection is not None:
        connection.reset_by(connection.client, "nobody waits for this connection any more")
