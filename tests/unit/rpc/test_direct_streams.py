"""Streams without gRPC (ADR 13): what is on the wire, who is let in, what happens where they are not to be had."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1common.pb import direct_pb2 as pb
from f1common.pb import spanstore_pb2
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.channels import insecure_channel_factory
from f1common.rpc.configured import DIRECT_METHODS
from f1common.rpc.direct import connection as connections
from f1common.rpc.direct import dialling, listening
from f1common.rpc.direct.connection import Connection
from f1common.rpc.direct.dialling import DirectChannel
from f1common.rpc.direct.frames import FrameReader, Kind, Open, Status, decode_status, encode, header
from f1common.rpc.direct.listening import DirectServer
from f1common.rpc.server import server_options
from f1common.rpc.streams import serve_requests
from tests.unit.rpc import echo
from tests.unit.rpc.echo import Request, items_of, pack_responses, request_stream, until

_LIMIT = 4 << 20


_RUN: list[Callable[[Coroutine[Any, Any, None]], None]] = [asyncio.run]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test on asyncio's event loop and on that of our servers, whose transports are not quite the same."""
    _RUN.append(request.param)
    yield
    _RUN.pop()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    _RUN[-1](scenario)


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    return header(kind, len(payload)) + payload


@given(
    st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=300)), max_size=8),
    st.lists(st.integers(1, 400), max_size=40),
)
def test_frames_arrive_as_they_were_sent_however_they_are_cut(sent: list[tuple[Kind, bytes]], cuts: list[int]) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    reader = FrameReader(1000)
    got = []
    for size in cuts:
        if stream:
            got += reader.feed(stream[:size])
            stream = stream[size:]
    if stream:
        got += reader.feed(stream)
    assert got == sent


@pytest.mark.parametrize(
    "bad", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n", bytes(8), (1002).to_bytes(4, "big") + b"\2"]
)
def test_what_is_no_frame_is_refused(bad: bytes) -> None:
    with pytest.raises(F1Error) as caught:
        FrameReader(1000).feed(bad)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_status_that_cannot_be_read_is_internal() -> None:
    assert decode_status(b"\xff").code == "INTERNAL"
    assert decode_status(encode(Status("NO_SUCH"))).code == "INTERNAL"
    assert decode_status(encode(Status("ABORTED", "why", (("key-bin", b"1"),)))).trailing == (("key-bin", b"1"),)


def test_the_methods_that_go_directly_are_streams_of_the_storage_tier() -> None:
    service = spanstore_pb2.DESCRIPTOR.services_by_name["SpanServer"]
    for method in DIRECT_METHODS:
        _, name, short = method.split("/")
        assert name == service.full_name
        assert service.methods_by_name[short].client_streaming
        assert service.methods_by_name[short].server_streaming


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
    channel = DirectChannel(insecure_channel_factory()(address), address, [echo.SESSION], _LIMIT)
    try:
        yield Served(server, channel)
    finally:
        await channel.close()
        await server.stop(None)


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
        channel = DirectChannel(insecure_channel_factory()(address), address, [echo.SESSION], _LIMIT)
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
                await call.write(echo.ClientBatch(items=[Request(body=bytes(_LIMIT))]))
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
def test_what_follows_the_first_frame_at_once_may_be_long() -> None:
    """A busy server reads it together with the first frame, before anybody has looked at that."""
    got = []

    async def session(_: Any, context: Any) -> None:
        while (batch := await context.read()) is not END_OF_STREAM:
            got.append(len(batch.items[0].body))

    async def scenario() -> None:
        async with served(session) as here:
            _, writer = await asyncio.open_connection("127.0.0.1", here.server.offer().port)
            batch = echo.ClientBatch(items=[Request(body=bytes(200_000))]).SerializeToString()
            first = frame(Kind.OPEN, encode(Open(echo.SESSION, here.server.offer().secret)))
            writer.write(first + frame(Kind.MESSAGE, batch) + frame(Kind.HALF_CLOSE))
            await until(lambda: bool(got))
            writer.close()
        assert got == [200_000]

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_stranger_can_make_a_server_keep_no_more_than_a_first_frame() -> None:
    async def scenario() -> None:
        async with served() as here:
            _, writer = await asyncio.open_connection("127.0.0.1", here.server.offer().port)
            nested = b"\x93" + encode(echo.SESSION) + b"\xc4\x01x" + b"\x91" * 50_000 + b"\xc0"
            writer.write(frame(Kind.OPEN, nested) + frame(Kind.MESSAGE, bytes(4 << 20)))
            await until(lambda: not here.server._connections)
            writer.close()
        assert not here.server._calls

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_client_that_reads_nothing_does_not_keep_a_server_from_stopping() -> None:
    async def session(_: Any, context: Any) -> None:
        while True:
            await context.write(echo.ServerBatch(items=[echo.Response(body=bytes(500_000))]))

    async def scenario() -> None:
        async with served(session) as here:
            _, writer = await asyncio.open_connection("127.0.0.1", here.server.offer().port, limit=1000)
            transport: Any = writer.transport
            transport.pause_reading()
            writer.write(frame(Kind.OPEN, encode(Open(echo.SESSION, here.server.offer().secret))))
            await until(lambda: any(connection._full for connection in here.server._connections))
            await asyncio.wait_for(here.server.stop(0.05), 20)
            writer.close()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_answers_of_a_server_that_drains_arrive_though_it_reads_no_more() -> None:
    """A socket that is closed with something unread sends a reset, behind which the answers are lost."""
    reads_no_more: list[bool] = []

    async def session(_: Any, context: Any) -> None:
        await context.read()
        for _ in range(20):
            await context.write(echo.ServerBatch(items=[echo.Response(body=bytes(20_000))]))
        reads_no_more.append(True)

    async def scenario() -> None:
        reads_no_more.clear()
        async with served(session) as here:
            call = echo.session_method(here.channel)()

            async def write() -> None:
                with contextlib.suppress(asyncio.InvalidStateError):
                    while True:
                        await call.write(echo.ClientBatch(items=[Request(body=bytes(50_000))]))

            writing = asyncio.create_task(write())
            await until(lambda: bool(reads_no_more))
            assert len([batch async for batch in call]) == 20
            assert await call.code() is grpc.StatusCode.OK
            await writing

    for _ in range(5):
        run(scenario())


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("stranger", ["silent", "closes", "another server"])
def test_who_listens_where_it_was_offered_and_is_somebody_else_leaves_grpc(
    stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "_CONNECT_S", 0.1)

    class Closes(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(Closes if stranger == "closes" else asyncio.Protocol, "127.0.0.1", 0)
        async with served() as here, served() as other:
            port = listener.sockets[0].getsockname()[1]
            if stranger == "another server":
                port = other.server.offer().port
            offer = pb.OfferReply(port=port, secret=b"mine", methods=[echo.SESSION])
            monkeypatch.setattr(here.server, "offer", lambda: offer)
            stream = request_stream(here.channel)
            with pytest.raises(F1Error) as caught:
                await stream.call(Request(text="once"))
            assert (caught.value.code, caught.value.ambiguous) == (Code.UNAVAILABLE, False)
            assert (await stream.call(Request(text="hello"))).text == "hello"
            await stream.close()
        listener.close()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_server_that_stops_offers_nothing_that_a_client_would_remember() -> None:
    async def scenario() -> None:
        async with served() as here:
            here.server._stopping = True
            stream = request_stream(here.channel)
            with pytest.raises(F1Error) as caught:
                await stream.call(Request(text="too late"))
            assert (caught.value.code, caught.value.ambiguous) == (Code.UNAVAILABLE, False)
            here.server._stopping = False
            assert (await stream.call(Request(text="again"))).text == "again"
            assert here.server._calls
            await stream.close()

    run(scenario())


@pytest.mark.usefixtures("loops")
def test_a_client_that_sends_empty_messages_only_is_held_up_as_well() -> None:
    async def session(_: Any, context: Any) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with served(session) as here:
            _, writer = await asyncio.open_connection("127.0.0.1", here.server.offer().port)
            writer.write(frame(Kind.OPEN, encode(Open(echo.SESSION, here.server.offer().secret))))
            many = frame(Kind.MESSAGE) * 200_000
            writer.write(many)
            (connection,) = await until_one(here.server)
            await until(lambda: connection._reading_paused and connection._trusted)
            assert len(connection.unread()) < 150_000
            writer.close()

    run(scenario())


async def until_one(server: DirectServer) -> list[Connection]:
    await until(lambda: len(server._connections) == 1)
    return list(server._connections)


@pytest.mark.usefixtures("loops")
def test_a_frame_that_has_no_place_in_a_stream_is_an_error_of_the_sender() -> None:
    async def scenario() -> None:
        async with served() as here:
            connection = await here.connect()
            await connection.send(Kind.OPEN, encode(Open(echo.SESSION, here.server.offer().secret)))
            await connection.send(Kind.MESSAGE, echo.ClientBatch().SerializeToString())
            await connection.send(Kind.ACCEPTED)
            kinds = [await connection.receive() for _ in range(3)]
            assert kinds[0] == (Kind.ACCEPTED, b"")
            status = decode_status((kinds[-1] or (0, b""))[1])
            assert status.code == "INVALID_ARGUMENT"

    run(scenario())


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("host", ["[::]", "localhost", "0.0.0.0"])
def test_it_listens_wherever_grpc_does(host: str) -> None:
    async def scenario() -> None:
        async with served(host=host) as here:
            stream = request_stream(here.channel)
            assert (await stream.call(Request(text="hello"))).text == "hello"
            assert here.server._calls
            await stream.close()

    run(scenario())
