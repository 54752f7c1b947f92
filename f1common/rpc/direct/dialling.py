"""The client's side of direct streams: a channel whose streams go directly where the server offers it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, NoReturn

import grpc
import grpc.aio

from f1common.observe.logs import get_logger
from f1common.pb import direct_pb2 as pb
from f1common.pb import direct_pb2_grpc as stubs
from f1common.rpc.channels import DEFAULT_MAX_MESSAGE_BYTES, ChannelFactory
from f1common.rpc.direct.connection import Connection
from f1common.rpc.direct.frames import Kind, Metadata, Open, Status, decode_status, encode, pack, unpack

_ASK_S = 5.0
_CONNECT_S = 1.0
_NOT_AGAIN_S = 60.0
"""For how long a server that offers nothing, or cannot be reached where it offers, is not asked again."""
_UNREACHABLE_AFTER = 2
"""A connection that fails once may have met a restart; a port that twice does not answer is behind a firewall."""

_log = get_logger(__name__)


def direct_channel_factory(
    factory: ChannelFactory, methods: Collection[str], max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> ChannelFactory:
    """Return a factory of the channels that ``factory`` makes, on which ``methods`` go directly if they can.

    These are full names of bidirectional methods, such as ``/f1.span.SpanServer/Peer``.
    """
    return lambda address: DirectChannel(factory(address), address, methods, max_message_bytes)


class DirectChannel:
    """A channel of ``grpc.aio`` to ``address``, but for the streams that the server there takes directly.

    A stream is offered by the server (``proto/direct.proto``), which is asked over gRPC before each one. Streams of a
    server that offers none, or that cannot be reached there, go over gRPC; it is asked again a minute later.
    """

    def __init__(self, channel: Any, address: str, methods: Collection[str], max_message_bytes: int) -> None:
        self._channel = channel
        self._host = address.rpartition(":")[0].strip("[]")
        self._methods = frozenset(methods)
        self._max_message_bytes = max_message_bytes
        self._direct = stubs.DirectStub(channel)
        self._not_before_s = 0.0
        self._failures = 0
        self._calls: set[DirectCall] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **options: Any,
    ) -> Callable[..., Any]:
        """Return what opens calls of ``method``, as ``grpc.aio`` does."""
        over_grpc = self._channel.stream_stream(method, request_serializer, response_deserializer, **options)

        if method not in self._methods:
            return over_grpc  # type: ignore[no-any-return]

        def open_call(*args: Any, metadata: Metadata = (), **kwargs: Any) -> Any:
            if args or kwargs or asyncio.get_running_loop().time() < self._not_before_s:
                return over_grpc(*args, metadata=metadata, **kwargs)
            return DirectCall(
                lambda: self._connect(method, metadata),
                lambda: over_grpc(metadata=metadata),
                request_serializer,
                response_deserializer,
                self._calls,
                self._max_message_bytes,
            )

        return open_call

    async def close(self, grace: float | None = None) -> None:
        """End all calls and close the channel."""
        for call in list(self._calls):
            call.cancel()
        await self._channel.close(grace)

    async def _connect(self, method: str, metadata: Metadata) -> Connection | None:
        """Return a connection on which ``method`` was opened, None if the call is to go over gRPC.

        Raises AioRpcError: what the server or the transport said instead of an offer, UNAVAILABLE if nobody listens.
        """
        offer = await self._ask()
        if method not in offer.methods or not offer.port:
            self._not_before_s = asyncio.get_running_loop().time() + _NOT_AGAIN_S
            return None
        loop = asyncio.get_running_loop()
        connection: Connection | None = None
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._max_message_bytes + 1), self._host, offer.port
                )
                await connection.send(Kind.OPEN, encode(Open(method, offer.secret, pack(tuple(metadata)))))
                await _accepted(connection)
        except (OSError, TimeoutError) as error:
            _give_up(connection)
            self._failures += 1
            if self._failures >= _UNREACHABLE_AFTER:
                _log.info("streams go over gRPC", peer=self._host, port=offer.port, reason=str(error) or "no answer")
                self._not_before_s = loop.time() + _NOT_AGAIN_S
                return None
            _fail(grpc.StatusCode.UNAVAILABLE, f"cannot connect to port {offer.port}: {error or 'no answer'}")
        except asyncio.CancelledError:
            _give_up(connection)
            raise
        self._failures = 0
        return connection

    async def _ask(self) -> pb.OfferReply:
        try:
            reply: pb.OfferReply = await self._direct.Offer(pb.OfferRequest(), timeout=_ASK_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            return pb.OfferReply()
        return reply


async def _accepted(connection: Connection) -> None:
    """Wait until the server has taken the call. Raises ConnectionError: something else listens there, or passes on."""
    frame = await connection.receive()
    if frame is None or frame[0] != Kind.ACCEPTED:
        raise ConnectionError(connection.lost or "what listens there is no server of ours")


def _give_up(connection: Connection | None) -> None:
    if connection is not None:
        connection.abort("it was not accepted")


class DirectCall:
    """The client's side of one call: directly, or over gRPC if the server offers nothing else."""

    def __init__(
        self,
        connect: Callable[[], Any],
        over_grpc: Callable[[], Any],
        serialize: Callable[[Any], bytes],
        deserialize: Callable[[bytes], Any],
        calls: "set[DirectCall]",
        max_message_bytes: int,
    ) -> None:
        """``connect`` returns the connection or None, ``over_grpc`` makes the call of gRPC; ``calls`` knows those that
        go on."""
        self._connect = connect
        self._over_grpc = over_grpc
        self._serialize = serialize
        self._deserialize = deserialize
        self._calls = calls
        self._max_message_bytes = max_message_bytes
        self._connection: Connection | None = None
        self._instead: Any = None
        self._status: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        calls.add(self)
        self._opening = asyncio.create_task(self._open(), name="open a direct stream")

    async def write(self, message: Any) -> None:
        """Send a message. Raises asyncio.InvalidStateError once the call is over; its status says why."""
        connection = await self._opened()
        if self._instead is not None:
            await self._instead.write(message)
            return
        if connection is None or self._status.done():
            raise asyncio.InvalidStateError("the call is over")
        data = self._serialize(message)
        if len(data) > self._max_message_bytes:
            text = f"a message of {len(data)} bytes exceeds the limit of {self._max_message_bytes} bytes"
            self._end(Status("RESOURCE_EXHAUSTED", text))
            raise asyncio.InvalidStateError(text)
        try:
            await connection.send(Kind.MESSAGE, data)
        except ConnectionError as error:
            raise asyncio.InvalidStateError(str(error)) from error

    async def done_writing(self) -> None:
        """End our half of the stream."""
        connection = await self._opened()
        if self._instead is not None:
            await self._instead.done_writing()
        elif connection is not None and not self._status.done():
            await connection.send(Kind.HALF_CLOSE)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield the server's messages. Raises AioRpcError unless the call ends as OK."""
        connection = await self._opened()
        if self._instead is not None:
            async for message in self._instead:
                yield message
            return
        while connection is not None and (frame := await connection.receive()) is not None:
            if frame[0] == Kind.MESSAGE:
                yield self._deserialize(frame[1])
            elif frame[0] == Kind.STATUS:
                self._end(decode_status(frame[1]))
                break
        if connection is not None:
            self._end(Status("UNAVAILABLE", connection.lost or "the call is over"))
        status = await self._status
        if status.code != "OK":
            raise _rpc_error(status)

    async def code(self) -> grpc.StatusCode:
        """Return the status that the call ended with, once it has."""
        await self._opened()
        if self._instead is not None:
            ended: grpc.StatusCode = await self._instead.code()
            return ended
        return grpc.StatusCode[(await asyncio.shield(self._status)).code]

    async def details(self) -> str | None:
        """Return the words to the status, once there is one."""
        await self._opened()
        if self._instead is not None:
            words: str | None = await self._instead.details()
            return words
        return (await asyncio.shield(self._status)).details

    def cancel(self) -> bool:
        """End the call at once; False if it is over."""
        self._opening.cancel()
        if self._instead is not None:
            self._calls.discard(self)
            cancelled: bool = self._instead.cancel()
            return cancelled
        if self._status.done():
            return False
        self._end(Status("CANCELLED", "cancelled here"))
        if self._connection is not None:
            self._connection.abort("cancelled here")
        return True

    async def _open(self) -> None:
        try:
            self._connection = await self._connect()
        except grpc.aio.AioRpcError as error:
            trailing: Any = error.trailing_metadata() or ()
            packed = pack(tuple((key, value) for key, value in trailing))
            self._end(Status(error.code().name, error.details() or "", packed))
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            self._end(Status("UNAVAILABLE", f"the channel is closed: {error}"))
        except Exception as error:  # a defect of ours: nobody is to wait for the call for ever
            _log.error("a direct stream was not opened", exc=error)
            self._end(Status("INTERNAL", f"unexpected {type(error).__name__}"))
        else:
            if self._connection is None:
                self._instead = self._over_grpc()
            else:
                self._connection.on_lost = self._lost
                if self._connection.lost is not None:
                    self._lost()

    async def _opened(self) -> Connection | None:
        if not self._opening.done():
            await asyncio.wait((self._opening,))
        return self._connection

    def _lost(self) -> None:
        """Without a reader (a one-way stream has none) nobody else notes the status that came last."""
        connection = self._connection
        if connection is None or self._status.done():
            return
        for kind, payload in connection.unread():
            if kind == Kind.STATUS:
                self._end(decode_status(payload))
        self._end(Status("UNAVAILABLE", connection.lost or "the connection broke"))

    def _end(self, status: Status) -> None:
        self._calls.discard(self)
        if not self._status.done():
            self._status.set_result(status)
        if self._connection is not None:
            self._connection.close()


def _rpc_error(status: Status) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    trailing = grpc.aio.Metadata(*unpack(status.trailing))
    return grpc.aio.AioRpcError(grpc.StatusCode[status.code], empty, trailing, status.details, "a direct stream")


def _fail(code: grpc.StatusCode, details: str) -> NoReturn:
    raise _rpc_error(Status(code.name, details))
