"""Streams without gRPC (ADR 13): what is on the wire, who is let in, what happens where they are not to be had."""

import asyncio
import random
import socket
from typing import Any

import grpc
import grpc.aio
import pytest

from f1common.errors import Code, F1Error
from f1common.pb import direct_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.channels import insecure_channel_factory
from f1common.rpc.direct import connection as connections
from f1common.rpc.direct import listening
from f1common.rpc.direct.connection import Connection
from f1common.rpc.direct.dialling import DirectChannel
from f1common.rpc.direct.frames import Kind, Open, encode
from f1common.rpc.streams import serve_requests
from tests.unit.rpc import echo
from tests.unit.rpc.direct import LIMIT, answer, frame, run, served
from tests.unit.rpc.echo import Request, items_of, pack_responses, request_stream, until


@pytest.mark.usefixtures("loops")
def test_a_stream_goes_directly() -> None:
    contexts = []

    async def session(_: Any, context: Any) -> None:
        contexts.append(context)
        await answer(_, context)

    async def scenario() -> None:
        async with served(session) as here:
            stream = request_stream(here.channel)
            assert (await stream.call(Request(text="hello"))).text == "hello"
            await stream.close()
        assert [type(context) for context in contexts] == [listening.DirectContext]

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_metadata_travels() -> None:
    shown = []

    async def session(_: Any, context: Any) -> None:
        shown.append(dict(context.invocation_metadata()))

    async def scenario() -> None:
        async with served(session) as here:
            call = echo.session_method(here.channel)(metadata=(("token-bin", b"\0\1"), ("name", "me")))
            assert await call.code() is grpc.StatusCode.OK
        assert shown == [{"token-bin": b"\0\1", "name": "me"}]

    run(scenario())


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize(
    "first",
    [
        frame(Kind.OPEN, encode(Open(echo.SESSION, b"guessed"))),
        frame(Kind.OPEN, b"\xc1"),
        frame(Kind.MESSAGE, b"hello"),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        frame(Kind.MESSAGE, bytes(100_000)),
    ],
)
def test_who_does_not_know_the_secret_is_not_let_in(first: bytes) -> None:
    began = []

    async def session(_: Any, context: Any) -> None:
        began.append(context)

    async def scenario() -> None:
        async with served(session) as here:
            reader, writer = await asyncio.open_connection("127.0.0.1", here.server.offer().port)
            writer.write(first)
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
            writer.close()
        assert not began

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_method_that_is_not_offered_is_not_to_be_had() -> None:
    async def scenario() -> None:
        async with served() as here:
            connection = await here.connect()
            await connection.send(Kind.OPEN, encode(Open("/f1.test.echo.Echo/Single", here.server.offer().secret)))
            assert await connection.receive() is None

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_who_says_nothing_is_shown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_OPEN_S", 0.05)

    async def scenario() -> None:
        async with served() as here:
            connection = await here.connect()
            assert await connection.receive() is None

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_server_that_offers_nothing_is_called_over_grpc() -> None:
    async def scenario() -> None:
        server, port = await echo.start_server(answer)
        address = f"127.0.0.1:{port}"
        channel = DirectChannel(insecure_channel_factory()(address), address, [echo.SESSION], LIMIT)
        stream = request_stream(channel)
        for text in ("first", "second"):
            assert (await stream.call(Request(text=text))).text == text
        await stream.close()
        await channel.close()
        await server.stop(None)

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_server_that_cannot_be_reached_where_it_offers_is_called_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = []

    async def session(_: Any, context: Any) -> None:
        contexts.append(context)
        await answer(_, context)

    async def scenario() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            offer = pb.OfferReply(port=nobody.getsockname()[1], secret=b"", methods=[echo.SESSION])
            async with served(session) as here:
                monkeypatch.setattr(here.server, "offer", lambda: offer)
                stream = request_stream(here.channel)
                with pytest.raises(F1Error) as caught:
                    await stream.call(Request(text="a restart"))
                assert (caught.value.code, caught.value.ambiguous) == (Code.UNAVAILABLE, False)
                assert (await stream.call(Request(text="a firewall"))).text == "a firewall"
                await stream.close()
        assert not isinstance(contexts[0], listening.DirectContext)

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_port_that_is_taken_leaves_grpc() -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            async with served(port=taken.getsockname()[1]) as here:
                assert here.server.offer() == pb.OfferReply()
                stream = request_stream(here.channel)
                assert (await stream.call(Request(text="hello"))).text == "hello"
                await stream.close()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_messages_of_any_length_arrive_whole_both_ways() -> None:
    async def session(_: Any, context: Any) -> None:
        def handle(request: Any, reply: Any) -> None:
            reply(echo.Response(id=request.id, body=request.body[::-1]))

        await serve_requests(context, items_of, pack_responses, handle)

    async def scenario() -> None:
        rng = random.Random(5)
        async with served(session) as here:
            stream = request_stream(here.channel)
            bodies = [rng.randbytes(rng.choice((0, 1, 100, 16_384, 70_000, 900_000))) for _ in range(60)]
            answers = await asyncio.gather(*(stream.call(Request(body=body)) for body in bodies))
            assert [answer.body for answer in answers] == [body[::-1] for body in bodies]
            await stream.close()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_message_over_the_limit_is_not_sent() -> None:
    async def scenario() -> None:
        async with served() as here:
            call = echo.session_method(here.channel)()
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(echo.ClientBatch(items=[Request(body=bytes(LIMIT))]))
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_server_that_does_not_read_holds_the_writer_up_and_not_the_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, only busy: the connection stands for longer than a silent peer's would."""
    monkeypatch.setattr(connections, "PING_S", 0.02)
    go_on = asyncio.Event()
    read = []

    async def session(_: Any, context: Any) -> None:
        await go_on.wait()
        while (batch := await context.read()) is not END_OF_STREAM:
            read.append(batch)

    async def scenario() -> None:
        async with served(session) as here:
            call = echo.session_method(here.channel)()
            batch = echo.ClientBatch(items=[Request(body=bytes(900_000))])
            written = 0

            async def write() -> None:
                nonlocal written
                for _ in range(60):
                    await call.write(batch)
                    written += 1
                await call.done_writing()

            writer = asyncio.create_task(write())
            await asyncio.sleep(0.5)
            assert 8 < written < 60
            go_on.set()
            await writer
            assert await call.code() is grpc.StatusCode.OK
        assert len(read) == 60

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_peer_that_is_silent_is_given_up_and_one_that_answers_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PING_S", 0.02)

    async def scenario() -> None:
        async with served() as here:
            connection = await here.connect()
            await connection.send(Kind.OPEN, encode(Open(echo.SESSION, here.server.offer().secret)))
            await asyncio.sleep(0.3)
            assert connection.lost is None
            connection.abort("enough")
        loop = asyncio.get_running_loop()
        silent = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        _, alone = await loop.create_connection(lambda: Connection(1000), "127.0.0.1", port)
        await until(lambda: alone.lost is not None)
        assert alone.lost == "the peer does not answer"
        assert await alone.receive() is None
        with pytest.raises(ConnectionError):
            await alone.send(Kind.MESSAGE, b"")
        silent.close()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_call_that_is_cancelled_ends_the_servers_handler() -> None:
    ended = asyncio.Event()

    async def session(_: Any, context: Any) -> None:
        try:
            await context.read()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def scenario() -> None:
        async with served(session) as here:
            call = echo.session_method(here.channel)()
            await call.write(echo.ClientBatch())
            assert call.cancel()
            assert await call.code() is grpc.StatusCode.CANCELLED
            assert not call.cancel()
            await ended.wait()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_stopping_server_gives_its_streams_the_grace() -> None:
    read = asyncio.Event()

    async def session(_: Any, context: Any) -> None:
        await context.read()
        read.set()
        await asyncio.sleep(0.05)
        await context.write(echo.ServerBatch(version=7))

    async def scenario() -> None:
        async with served(session) as here:
            patient = echo.session_method(here.channel)()
            await patient.write(echo.ClientBatch())
            await read.wait()
            await here.server.stop(5)
            assert [batch.version async for batch in patient] == [7]
            assert await patient.code() is grpc.StatusCode.OK
        read.clear()
        async with served(session) as here:
            cut_off = echo.session_method(here.channel)()
            await cut_off.write(echo.ClientBatch())
            await read.wait()
            await here.server.stop(None)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                assert [batch async for batch in cut_off] == []
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_defect_while_it_is_opened_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> Any:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with served() as here:
            monkeypatch.setattr(here.channel, "_ask", broken)
            call = echo.session_method(here.channel)()
            assert await call.code() is grpc.StatusCode.INTERNAL
            with pytest.raises(grpc.aio.AioRpcError):
                assert [batch async for batch in call] == []

    run(scenario())
