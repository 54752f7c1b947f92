"""A small service of all four shapes, as generated code would add it to a server."""

import asyncio
from types import SimpleNamespace

import grpc
import pytest

SERVICE = "test.Echo"


class EchoServicer:
    """Answers, and notes what its handlers see."""

    def __init__(self):
        self.events = []
        self.contexts = []

    async def Upper(self, request, context):
        self.contexts.append(context)
        match request:
            case b"abort":
                context.set_trailing_metadata((("why", "asked"),))
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
            case b"boom":
                raise ValueError("boom")
            case b"code":
                context.set_code(grpc.StatusCode.DATA_LOSS)
                context.set_details("lost")
            case b"sleep":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    self.events.append(("cancelled", asyncio.get_running_loop().time()))
                    raise
            case _:
                await context.send_initial_metadata((("seen", "yes"),))
        return request.upper()

    async def Count(self, request, context):
        try:
            for i in range(int(request)):
                yield b"%d" % i
                await asyncio.sleep(0.001)
        finally:
            self.events.append("count over")

    async def Fails(self, request, context):
        async for item in self.Count(request, context):
            yield item
        await context.abort(grpc.StatusCode.DATA_LOSS, "lost")

    async def Join(self, requests, context):
        parts = [part async for part in requests]
        return b"".join(parts)

    async def Chat(self, requests, context):
        async for request in requests:
            self.events.append(request)
            yield request.upper()

    async def Raw(self, requests, context):
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                self.events.append(request)
                await context.write(request.upper())
            self.events.append("raw eof")
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.events.append("raw cancelled")
            raise

    async def Deaf(self, requests, context):
        await asyncio.sleep(3600)
        yield b""


def add(servicer, server):
    """Do what a generated add_EchoServicer_to_server does."""
    handlers = {
        "Upper": grpc.unary_unary_rpc_method_handler(servicer.Upper),
        "Count": grpc.unary_stream_rpc_method_handler(servicer.Count),
        "Fails": grpc.unary_stream_rpc_method_handler(servicer.Fails),
        "Join": grpc.stream_unary_rpc_method_handler(servicer.Join),
        "Chat": grpc.stream_stream_rpc_method_handler(servicer.Chat),
        "Raw": grpc.stream_stream_rpc_method_handler(servicer.Raw),
        "Deaf": grpc.stream_stream_rpc_method_handler(servicer.Deaf),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_registered_method_handlers(SERVICE, handlers)


def start(servicer):
    """Return the program of a node that serves ``servicer`` at port 1."""

    async def program(env):
        server = env.server()
        add(servicer, server)
        server.add_insecure_port(env.address(1))
        await server.start()

    return program


class EchoStub:
    """Do what a generated stub does."""

    def __init__(self, channel):
        self.Upper = channel.unary_unary(f"/{SERVICE}/Upper", _registered_method=True)
        self.Count = channel.unary_stream(f"/{SERVICE}/Count", _registered_method=True)
        self.Fails = channel.unary_stream(f"/{SERVICE}/Fails", _registered_method=True)
        self.Join = channel.stream_unary(f"/{SERVICE}/Join", _registered_method=True)
        self.Chat = channel.stream_stream(f"/{SERVICE}/Chat", _registered_method=True)
        self.Raw = channel.stream_stream(f"/{SERVICE}/Raw", _registered_method=True)
        self.Deaf = channel.stream_stream(f"/{SERVICE}/Deaf", _registered_method=True)
        self.Missing = channel.unary_unary(f"/{SERVICE}/Missing", _registered_method=True)


@pytest.fixture
def echo():
    """The service, its stub and how to serve it."""
    return SimpleNamespace(Servicer=EchoServicer, Stub=EchoStub, add=add, start=start)
