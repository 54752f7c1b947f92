"""A small echo service over real gRPC: messages built from a descriptor, a servicer, a server on a loopback port."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from f1common.rpc.batches import DEFAULT_LIMITS, StreamLimits
from f1common.rpc.channels import ChannelCache, insecure_channel_factory
from f1common.rpc.direct.dialling import direct_channel_factory
from f1common.rpc.direct.listening import DirectServer
from f1common.rpc.server import server_options
from f1common.rpc.status import maps_errors
from f1common.rpc.streams import OneWayStream, RequestStream

Field = descriptor_pb2.FieldDescriptorProto
_UINT64, _STRING, _BYTES, _MESSAGE = Field.TYPE_UINT64, Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE


def _field(
    name: str, number: int, kind: "Field.Type.ValueType", type_name: str = "", *, repeated: bool = False
) -> Field:
    label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    return Field(name=name, number=number, type=kind, type_name=type_name or None, label=label)


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="f1db_test_echo.proto", package="f1.test.echo", syntax="proto3")
    scalars = [_field("id", 1, _UINT64), _field("text", 2, _STRING), _field("body", 3, _BYTES)]
    file.message_type.add(name="Request").field.extend(scalars)
    file.message_type.add(name="Response").field.extend([*scalars, _field("error", 4, _STRING)])
    for batch, item in (("ClientBatch", "Request"), ("ServerBatch", "Response")):
        items = _field("items", 1, _MESSAGE, f".f1.test.echo.{item}", repeated=True)
        file.message_type.add(name=batch).field.extend([items, _field("version", 2, _UINT64)])
    service = file.service.add(name="Echo")
    service.method.add(
        name="Session",
        input_type=".f1.test.echo.ClientBatch",
        output_type=".f1.test.echo.ServerBatch",
        client_streaming=True,
        server_streaming=True,
    )
    service.method.add(name="Single", input_type=".f1.test.echo.Request", output_type=".f1.test.echo.Response")
    pool = descriptor_pool.Default()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"f1.test.echo.{name}"))
        for name in ("Request", "Response", "ClientBatch", "ServerBatch")
    }


_CLASSES = _build()
Request: Any = _CLASSES["Request"]
Response: Any = _CLASSES["Response"]
ClientBatch: Any = _CLASSES["ClientBatch"]
ServerBatch: Any = _CLASSES["ServerBatch"]

SERVICE = "f1.test.echo.Echo"
SESSION = f"/{SERVICE}/Session"
DIRECT, GRPC = "direct", "grpc"
transport = GRPC
"""What carries streams; the fixture ``transports`` runs a test with each."""
Behaviour = Callable[[Any, Any], Awaitable[None]]


def pack_requests(requests: list[Any]) -> Any:
    return ClientBatch(items=requests)


def pack_responses(responses: list[Any]) -> Any:
    return ServerBatch(items=responses)


def items_of(batch: Any) -> Iterable[Any]:
    return batch.items  # type: ignore[no-any-return]


def echo(request: Any) -> Any:
    return Response(id=request.id, text=request.text)


def add_echo(server: Any, session: Behaviour | None = None, single: Callable[[Any, Any], Any] | None = None) -> None:
    """Register the service: ``session(request_iterator, context)`` and ``single(request, context)``."""
    handlers: dict[str, Any] = {}
    if session is not None:
        handlers["Session"] = grpc.stream_stream_rpc_method_handler(
            maps_errors(session),
            request_deserializer=ClientBatch.FromString,
            response_serializer=ServerBatch.SerializeToString,
        )
    if single is not None:
        handlers["Single"] = grpc.unary_unary_rpc_method_handler(
            maps_errors(single), request_deserializer=Request.FromString, response_serializer=Response.SerializeToString
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def session_method(channel: Any) -> Any:
    return channel.stream_stream(
        SESSION,
        request_serializer=ClientBatch.SerializeToString,
        response_deserializer=ServerBatch.FromString,
    )


def single_method(channel: Any) -> Any:
    return channel.unary_unary(
        f"/{SERVICE}/Single", request_serializer=Request.SerializeToString, response_deserializer=Response.FromString
    )


async def start_server(
    session: Behaviour | None = None, single: Callable[[Any, Any], Any] | None = None, port: int = 0
) -> tuple[Any, int]:
    """Start a server on a loopback port; returns it and the port."""
    server: Any = grpc.aio.server(options=server_options())
    if transport == DIRECT:
        server = DirectServer(server, [SESSION])
    add_echo(server, session, single)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, bound


@asynccontextmanager
async def connected(
    session: Behaviour | None = None, single: Callable[[Any, Any], Any] | None = None
) -> AsyncIterator[Any]:
    """Serve and give a channel to the server; everything is closed at the end."""
    server, port = await start_server(session, single)
    channels = new_channels()
    try:
        yield channels.get(f"127.0.0.1:{port}")
    finally:
        await channels.close()
        await server.stop(None)


def new_channels() -> ChannelCache:
    """Return channels of the transport that the test is about."""
    factory = insecure_channel_factory()
    return ChannelCache(direct_channel_factory(factory, [SESSION]) if transport == DIRECT else factory)


def request_stream(channel: Any, limits: StreamLimits = DEFAULT_LIMITS, **options: Any) -> RequestStream[Any, Any]:
    method = session_method(channel)
    return RequestStream(method, pack_requests, items_of, rng=random.Random(1), limits=limits, **options)


def one_way_stream(channel: Any, **options: Any) -> OneWayStream[Any]:
    return OneWayStream(session_method(channel), pack_requests, rng=random.Random(1), **options)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds, which the test knows it will: the suite's own time-out is the bound."""
    while not condition():
        await asyncio.sleep(0.002)
