"""An echo server whose stream goes directly, and what speaks to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from f1common.rpc.channels import insecure_channel_factory
from f1common.rpc.direct.connection import Connection
from f1common.rpc.direct.dialling import DirectChannel
from f1common.rpc.direct.frames import Kind, header
from f1common.rpc.direct.listening import DirectServer
from f1common.rpc.server import server_options
from f1common.rpc.streams import serve_requests
from tests.unit.rpc import echo
from tests.unit.rpc.echo import items_of, pack_responses

LIMIT = 4 << 20


RUN: list[Callable[[Coroutine[Any, Any, None]], None]] = [asyncio.run]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    RUN[-1](scenario)


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    return header(kind, len(payload)) + payload


class Served:
    """An echo server that takes its stream directly, and a channel to it."""

    def __init__(self, server: DirectServer, channel: DirectChannel) -> None:
        self.server = server
        self.channel = channel

    async def connect(self) -> Connection:
        """Connect as a client does that has yet to say what it wants."""
        offer = self.server.offer()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(1 << 20), "127.0.0.1", offer.port)
        return connection


async def answer(_: Any, context: Any) -> None:
    await serve_requests(context, items_of, pack_responses, lambda request, reply: reply(echo.echo(request)))


@asynccontextmanager
async def served(session: echo.Behaviour = answer, host: str = "127.0.0.1", **options: Any) -> AsyncIterator[Served]:
    server = DirectServer(grpc.aio.server(options=server_options()), [echo.SESSION], **options)
    echo.add_echo(server, session)
    port = server.add_insecure_port(f"{host}:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    channel = DirectChannel(insecure_channel_factory()(address), address, [echo.SESSION], LIMIT)
    try:
        yield Served(server, channel)
    finally:
        await channel.close()
        await server.stop(None)
