"""The server's side of direct streams: a server of ``grpc.aio`` that also takes some of its methods directly."""

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import grpc
import grpc.aio
import msgspec

from f1common.errors import Code, F1Error
from f1common.ids import secret_bytes
from f1common.observe.logs import get_logger
from f1common.pb import direct_pb2 as pb
from f1common.pb import direct_pb2_grpc as stubs
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.channels import DEFAULT_MAX_MESSAGE_BYTES
from f1common.rpc.direct.connection import Connection
from f1common.rpc.direct.frames import Kind, Metadata, Open, Status, decode_open, encode, pack, unpack
from f1common.rpc.status import maps_errors

_FAREWELL_S = 1.0
_SECRET_BYTES = 16
_OPEN_S = 5.0
"""How long a new connection may take to say what it wants."""

_log = get_logger(__name__)


class DirectServer:
    """A server of ``grpc.aio``, but for some methods of its services, which clients may also call directly.

    Generated code and :class:`f1common.rpc.server.ServerBootstrap` take it for one. What it offers
    (``proto/direct.proto``) is a port of the system's choice, or ``port``, on each host that it listens on.
    """

    def __init__(
        self,
        server: Any,
        methods: Collection[str],
        *,
        port: int = 0,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    ) -> None:
        """``methods`` are full names of bidirectional methods, such as ``/f1.span.SpanServer/Peer``."""
        self._server = server
        self._methods = frozenset(methods)
        self._port = port
        self._max_message_bytes = max_message_bytes
        self._handlers: dict[str, Any] = {}
        self._host = ""
        self._secret = secret_bytes(_SECRET_BYTES)
        self._listener: asyncio.Server | None = None
        self._stopping = False
        self._connections: set[Connection] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()
        self._calls: set[asyncio.Task[None]] = set()
        stubs.add_DirectServicer_to_server(_Offers(self), server)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[Any]) -> None:
        """Add handlers that are asked for each method."""
        for handler in generic_rpc_handlers:
            for method in self._methods:
                found = handler.service(_Asked(method))
                if found is not None:
                    self._handlers[method] = found
        self._server.add_generic_rpc_handlers(generic_rpc_handlers)

    def add_insecure_port(self, address: str) -> int:
        """Listen at ``address`` (``host:port``), directly on another port of the same host. Returns the port."""
        self._host = address.rpartition(":")[0].strip("[]")
        return int(self._server.add_insecure_port(address))

    async def start(self) -> None:
        """Begin to accept connections. Without a port for direct streams everything goes over gRPC."""
        if self._handlers:
            try:
                self._listener = await self._listen()
            except OSError as error:
                _log.warning("streams go over gRPC only", reason=str(error), port=self._port)
        await self._server.start()

    async def _listen(self) -> asyncio.Server:
        """Listen where gRPC does: at all addresses of a name, with one port; ``::`` means those of IPv4, too."""
        loop = asyncio.get_running_loop()
        if self._host == "::":
            both = socket.create_server(("::", self._port), family=socket.AF_INET6, dualstack_ipv6=True)
            return await loop.create_server(self._connection, sock=both)
        listener = await loop.create_server(self._connection, self._host or None, self._port)
        port, *others = (bound.getsockname()[1] for bound in listener.sockets)
        if set(others) <= {port}:
            return listener
        listener.close()
        return await loop.create_server(self._connection, self._host, port)

    async def stop(self, grace: float | None) -> None:
        """Accept no more calls, wait ``grace`` seconds for those in progress, cancel the rest."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await asyncio.gather(self._server.stop(grace), self._stop_calls(grace))

    def offer(self) -> pb.OfferReply:
        """Return what a client is offered. Raises F1Error UNAVAILABLE as the server stops: nothing would last."""
        if self._stopping:
            raise F1Error(Code.UNAVAILABLE, "the server is shutting down")
        if self._listener is None or not self._listener.sockets:
            return pb.OfferReply()
        port = self._listener.sockets[0].getsockname()[1]
        return pb.OfferReply(port=port, secret=self._secret, methods=sorted(self._handlers))

    async def _stop_calls(self, grace: float | None) -> None:
        if self._calls and grace:
            await asyncio.wait(self._calls, timeout=grace)
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        # Clients close their connections when they have read how their calls ended; some are gone, or read nothing.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none_left.wait(), max(_FAREWELL_S, grace or 0.0))
        for connection in list(self._connections):
            connection.abort("the server has stopped")

    def _connection(self) -> Connection:
        return Connection(self._max_message_bytes + 1, self._begin)

    def _begin(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._none_left.clear()
        task = asyncio.create_task(self._serve(connection), name="a direct stream")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        connection.on_lost = task.cancel  # as gRPC does with the handler of a client that is gone
        connection.on_closed = lambda: self._closed(connection)

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._none_left.set()

    async def _serve(self, connection: Connection) -> None:
        try:
            opened = await self._opened(connection)
            if opened is not None:
                connection.trust()
                await connection.send(Kind.ACCEPTED)
                handler = self._handlers[opened.method]
                context = DirectContext(connection, handler, unpack(opened.metadata), self._max_message_bytes)
                status = await _run(handler, context, opened.method)
                connection.on_lost = None
                connection.finish(encode(status))
        finally:
            connection.on_lost = None
            if connection.lost is None:  # whatever happened, nobody keeps a connection that nobody serves
                connection.abort("it did not begin as a direct stream does")

    async def _opened(self, connection: Connection) -> Open | None:
        """Return what the client opened, None if that is nothing of ours."""
        try:
            async with asyncio.timeout(_OPEN_S):
                frame = await connection.receive()
            opened = decode_open(frame[1]) if frame is not None and frame[0] == Kind.OPEN else None
        except (TimeoutError, msgspec.DecodeError, ConnectionError):
            return None
        if opened is None or not hmac.compare_digest(opened.secret, self._secret):
            return None
        return opened if opened.method in self._handlers else None


async def _run(handler: Any, context: "DirectContext", method: str) -> Status:
    """Run a servicer's method to its end; return the status that says how it ended."""
    try:
        await handler.stream_stream(None, context)
    except grpc.aio.AbortError:
        pass
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if context.lost is None and task is not None:
            task.uncancel()  # the server stops; the client is told
        return Status("UNAVAILABLE", "the server is shutting down")
    except ConnectionError as error:
        return Status("UNAVAILABLE", str(error))
    except Exception as error:
        _log.error("a direct stream failed", exc=error, method=method)
        return Status("UNKNOWN", f"unexpected {type(error).__name__} on the server")
    return context.status


class DirectContext:
    """What a servicer's method that reads and writes a stream gets as its context."""

    def __init__(self, connection: Connection, handler: Any, metadata: Metadata, max_message_bytes: int) -> None:
        self._connection = connection
        self._deserialize = handler.request_deserializer
        self._serialize = handler.response_serializer
        self._metadata = metadata
        self._max_message_bytes = max_message_bytes
        self._half_closed = False
        self.status = Status("OK")

    @property
    def lost(self) -> str | None:
        """Why the client is gone, None while it is there."""
        return self._connection.lost

    async def read(self) -> Any:
        """Return the client's next message, or the end of the stream. Raises ConnectionError when it is gone, F1Error
        INVALID_ARGUMENT for what is no message."""
        if self._half_closed:
            return END_OF_STREAM
        frame = await self._connection.receive()
        if frame is None:
            raise ConnectionError(self._connection.lost or "the connection is over")
        kind, payload = frame
        if kind == Kind.MESSAGE:
            return self._deserialize(payload)
        if kind == Kind.HALF_CLOSE:
            self._half_closed = True
            return END_OF_STREAM
        raise F1Error(Code.INVALID_ARGUMENT, f"a frame of kind {kind} inside a stream: is the sender one of ours?")

    async def write(self, message: Any) -> None:
        """Send a message. Raises ConnectionError when the client is gone."""
        data = self._serialize(message)
        if len(data) > self._max_message_bytes:
            text = f"a message of {len(data)} bytes exceeds the limit of {self._max_message_bytes} bytes"
            await self.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        await self._connection.send(Kind.MESSAGE, data)

    def set_code(self, code: grpc.StatusCode) -> None:
        """Let the call end with ``code``."""
        self.status = Status(code.name, self.status.details, self.status.trailing)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with a status. Raises AbortError."""
        self.status = Status(code.name, details, pack(tuple(trailing_metadata)))
        raise grpc.aio.AbortError(details)

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the client called with."""
        return self._metadata

    def peer(self) -> str:
        """Return where the client is."""
        return "direct"


class _Asked(grpc.HandlerCallDetails):
    """A question to a generic handler: what it has for a method."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class _Offers(stubs.DirectServicer):
    def __init__(self, server: DirectServer) -> None:
        self._server = server

    @maps_errors
    async def Offer(self, request: pb.OfferRequest, context: Any) -> pb.OfferReply:
        """Say where streams can go directly."""
        return self._server.offer()
