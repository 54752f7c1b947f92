"""A server that generated ``add_XServicer_to_server`` functions take for a ``grpc.aio`` server."""

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, NoReturn

import grpc
from grpc import aio

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

_LOG = logging.getLogger(__name__)
_MICROS = 1_000_000
_MAX_CANCEL_DELAY_US = 300
_EOF: Any = aio.EOF  # type: ignore[attr-defined]

MetadataTuple = tuple[tuple[str, str | bytes], ...]


class _CallDetails(grpc.HandlerCallDetails):
    """What an interceptor or a generic handler learns of a call."""

    def __init__(self, method: str, invocation_metadata: MetadataTuple) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


class SimServer:
    """The server of one process: handlers, addresses and the calls in progress."""

    def __init__(self, net: Network, domain: Domain, interceptors: Sequence[Any] = ()) -> None:
        self.net = net
        self.domain = domain
        self.calls: dict[SimServicerContext, None] = {}
        self._interceptors = tuple(interceptors)
        self._methods: dict[str, Any] = {}
        self._generic: list[Any] = []
        self._addresses: list[str] = []
        self._started = False
        self._stopping = False
        self._connections: dict[Connection, None] = {}
        self._stopped: asyncio.Future[None] | None = None

    # -- what generated code and the server's bootstrap call --

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[Any]) -> None:
        """Add handlers that are asked for each method."""
        self._generic.extend(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: dict[str, Any]) -> None:
        """Add handlers of named methods."""
        for name, handler in method_handlers.items():
            self._methods[f"/{service_name}/{name}"] = handler

    def add_insecure_port(self, address: str) -> int:
        """Listen at ``address`` once started; a wildcard host means the node's name. Returns the port."""
        host, _, port_text = address.rpartition(":")
        port = int(port_text)
        if host in ("", "0.0.0.0", "[::]", "*"):
            host = self.domain.name
        if port == 0:
            port = 20_000 + len(self.net.listeners) + len(self._addresses)
            while f"{host}:{port}" in self.net.listeners:
                port += 1
        self._addresses.append(f"{host}:{port}")
        if f"{host}:{port}" in self.net.listeners:
            raise RuntimeError(f"Failed to bind to address {address}; the address is already in use")
        return port

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Listen at ``address``; the simulation has no secrets."""
        return self.add_insecure_port(address)

    async def start(self) -> None:
        """Begin to accept connections."""
        self._started = True
        for address in self._addresses:
            if not self.net.listen(address, self):
                raise RuntimeError(f"address {address} is already in use")

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, wait ``grace`` seconds for those in progress, cancel the rest."""
        if not self._stopping:
            self._stopping = True
            for address in self._addresses:
                if self.net.listeners.get(address) is self:
                    del self.net.listeners[address]
        tasks = [call.task for call in self.calls if call.task is not None]
        if tasks and grace:
            await asyncio.wait(tasks, timeout=grace)
        for call in list(self.calls):
            call.terminate("UNAVAILABLE", "the server is shutting down")
        for connection in list(self._connections):
            if connection.server_open:
                connection.reset_by(self.domain, "the server is shutting down")
        self._connections.clear()
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; True if ``timeout`` seconds passed before."""
        if self._stopped is None:
            self._stopped = self.net.loop.create_future()
        done, _ = await asyncio.wait([self._stopped], timeout=timeout)
        return not done

    # -- what the network calls --

    def accept(self, connection: Connection) -> None:
        """Take a connection."""
        self._connections = {c: None for c in self._connections if c.server_open}
        self._connections[connection] = None

    def open_stream(self, stream: Stream, opening: Opening) -> None:
        """Begin a call."""
        context = SimServicerContext(self, stream, opening)
        stream.up.receiver = context.receive
        if self._stopping:
            context.finish("UNAVAILABLE", "the server is shutting down")
            return
        self.calls[context] = None
        context.task = self.net.loop.create_task(self._serve(context), name=f"handler {stream.method}")

    async def _serve(self, context: "SimServicerContext") -> None:
        try:
            handler = await self._find(_CallDetails(context.method, context.metadata))
            if handler is None:
                context.finish("UNIMPLEMENTED", "Method not found!")
            else:
                await context.run(handler)
                context.finish_as_set()
        except aio.AbortError:
            context.finish("UNKNOWN", "aborted")
        except asyncio.CancelledError:
            context.finish("CANCELLED", "the handler was cancelled")
        except Exception as error:
            if not context.is_lost:
                _LOG.exception("%s raised in %s", type(error).__name__, context.method)
            context.finish("UNKNOWN", f"Unexpected {type(error)}: {error}")
        finally:
            self.calls.pop(context, None)

    async def _find(self, details: _CallDetails) -> Any:
        async def innermost(asked: Any) -> Any:
            handler = self._methods.get(asked.method)
            if handler is not None:
                return handler
            for generic in self._generic:
                handler = generic.service(asked)
                if handler is not None:
                    return handler
            return None

        find: Callable[[Any], Awaitable[Any]] = innermost
        for interceptor in reversed(self._interceptors):
            find = _wrap(interceptor, find)
        return await find(details)


def _wrap(interceptor: Any, inner: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    async def outer(details: Any) -> Any:
        return await interceptor.intercept_service(inner, details)

    return outer


class SimServicerContext:
    """The server's half of a call, and what its handler gets as ``context``."""

    def __init__(self, server: SimServer, stream: Stream, opening: Opening) -> None:
        self.server = server
        self.method = stream.method
        self.metadata = opening.metadata
        self.task: asyncio.Task[None] | None = None
        self._loop: VirtualLoop = server.net.loop
        self._stream = stream
        self._deserialize: Callable[[bytes], Any] = _same
        self._serialize: Callable[[Any], bytes] = _same
        self._inbox: deque[bytes] = deque()
        self._half_closed = False
        self.is_lost = False
        self._gone = False
        self._finished = False
        self._headers_sent = False
        self._reader: asyncio.Future[None] | None = None
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: MetadataTuple = ()
        self._callbacks: list[Callable[[Any], None]] = []
        self._deadline_us: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        if opening.timeout_us is not None:
            self._deadline_us = self._loop.now_us + opening.timeout_us
            self._timer = self._loop.call_at_us(self._deadline_us, self._abandon)

    # -- frames --

    def receive(self, frame: Frame) -> None:
        """Take a frame from the client."""
        match frame:
            case Message(data):
                self._inbox.append(data)
            case HalfClose():
                self._half_closed = True
            case Reset():
                self._abandon()
                return
            case _:
                return
        self._wake()

    def _abandon(self) -> None:
        """The client is gone, or its time has run out.

        As in grpc.aio, a handler that waits for a request is cancelled, or first sees an end of the stream like any
        other and is cancelled a moment later.
        """
        if self.is_lost or self._finished:
            return
        self.is_lost = True
        rng = self.server.net.rng
        if rng.random() < 0.5:
            self._cancel()
        else:
            self._wake()
            self._loop.call_at_us(self._loop.now_us + rng.randrange(_MAX_CANCEL_DELAY_US), self._cancel)

    def _cancel(self) -> None:
        if self._gone or self._finished:
            return
        self._gone = True
        self._stream.down.send(Status("CANCELLED", "the client is gone"))
        self._close()
        if self.task is not None:
            self.task.cancel()

    def terminate(self, code: str, details: str) -> None:
        """End the call from the server's side: the client hears why, the handler is cancelled."""
        self.finish(code, details)
        if self.task is not None:
            self.task.cancel()

    def finish(self, code: str, details: str, trailing: MetadataTuple = ()) -> None:
        """Send the final status, unless the call is over."""
        if self._finished or self._gone:
            return
        self._finished = True
        self._stream.down.send(Status(code, details, trailing))
        self._close()

    def finish_as_set(self) -> None:
        """Send the status that the handler set, OK if it set none."""
        code = self._code or grpc.StatusCode.OK
        self.finish(code.name, self._details, self._trailing)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stream.end_server()
        self._stream.down.release_writers()
        self._wake()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # -- running a handler --

    async def run(self, handler: Any) -> None:
        """Run a method handler of any of the four shapes."""
        self._deserialize = handler.request_deserializer or _same
        self._serialize = stable(handler.response_serializer) or _same
        argument: Any
        if handler.request_streaming:
            argument = self._requests()
            function = handler.stream_stream if handler.response_streaming else handler.stream_unary
        else:
            argument = await self.read()
            if argument is _EOF:
                self.finish("INTERNAL", "the request is missing")
                return
            function = handler.unary_stream if handler.response_streaming else handler.unary_unary
        if handler.response_streaming and inspect.isasyncgenfunction(function):
            async with contextlib.aclosing(function(argument, self)) as responses:
                async for response in responses:
                    await self.write(response)
            return
        result = function(argument, self)
        if not inspect.isawaitable(result):
            raise TypeError(f"{self.method}: the simulator runs only asynchronous handlers")
        response = await result
        if not handler.response_streaming and (self._code is None or self._code is grpc.StatusCode.OK):
            await self.write(response)

    async def _requests(self) -> AsyncIterator[Any]:
        while True:
            request = await self.read()
            if request is _EOF:
                return
            yield request

    # -- grpc.aio.ServicerContext --

    async def read(self) -> Any:
        """Return the next request, or ``grpc.aio.EOF``."""
        while not self._inbox:
            if self._half_closed or self.is_lost or self._finished:
                return _EOF
            self._reader = self._loop.create_future()
            await self._reader
        data = self._inbox.popleft()
        self._stream.up.consumed(len(data))
        return self._deserialize(data)

    async def write(self, message: Any) -> None:
        """Send a response; waits while the client reads too slowly."""
        if self._finished:
            raise aio.UsageError("RPC already finished.")
        if self.is_lost:
            raise aio.InternalError("the client is gone")
        await self.send_initial_metadata(())
        self._stream.down.send(Message(self._serialize(message)))
        await self._stream.down.room()

    async def send_initial_metadata(self, initial_metadata: Iterable[Any]) -> None:
        """Send the initial metadata, once."""
        if not self._headers_sent:
            self._headers_sent = True
            self._stream.down.send(Headers(_tuple(initial_metadata)))

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Iterable[Any] = (),
    ) -> NoReturn:
        """End the call with an error. Always raises."""
        if code is grpc.StatusCode.OK:
            raise aio.UsageError("abort with OK makes no sense")
        self._code = code
        self.finish(code.name, details, _tuple(trailing_metadata) or self._trailing)
        raise aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: Any) -> NoReturn:
        """End the call with a rich status. Always raises."""
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def set_trailing_metadata(self, trailing_metadata: Iterable[Any]) -> None:
        """Set what the final status carries."""
        self._trailing = _tuple(trailing_metadata)

    def invocation_metadata(self) -> MetadataTuple:
        """Return the client's metadata."""
        return self.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the code of the final status."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text of the final status."""
        self._details = details

    def code(self) -> grpc.StatusCode | None:
        """Return the code that was set."""
        return self._code

    def details(self) -> str:
        """Return the text that was set."""
        return self._details

    def trailing_metadata(self) -> MetadataTuple:
        """Return the metadata that was set."""
        return self._trailing

    def set_compression(self, compression: grpc.Compression) -> None:
        """Nothing is compressed here."""

    def disable_next_message_compression(self) -> None:
        """Nothing is compressed here."""

    def peer(self) -> str:
        """Return who calls."""
        return f"sim:{self._stream.connection.client.name}"

    def peer_identities(self) -> None:
        """Nobody is authenticated."""
        return

    def peer_identity_key(self) -> None:
        """Nobody is authenticated."""
        return

    def auth_context(self) -> dict[str, Any]:
        """Nobody is authenticated."""
        return {}

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, None if there is none."""
        if self._deadline_us is None:
            return None
        return max(0, self._deadline_us - self._loop.now_us) / _MICROS

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call ``callback`` with this context when the call is over."""
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def cancelled(self) -> bool:
        """Tell whether the client is gone."""
        return self._gone

    def done(self) -> bool:
        """Tell whether the call is over."""
        return self._gone or self._finished


def _same(value: Any) -> Any:
    return value


def _tuple(metadata: Iterable[Any]) -> MetadataTuple:
    return tuple((key, value) for key, value in metadata or ())
