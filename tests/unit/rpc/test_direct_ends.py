"""Direct streams: strangers, clients that do not read, and how calls and servers end."""

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio
import pytest

from f1common.errors import Code, F1Error
from f1common.pb import direct_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.direct import dialling
from f1common.rpc.direct.connection import Connection
from f1common.rpc.direct.frames import Kind, Open, decode_status, encode
from f1common.rpc.direct.listening import DirectServer
from tests.unit.rpc import echo
from tests.unit.rpc.direct import frame, run, served
from tests.unit.rpc.echo import Request, request_stream, until


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


class Pausable(asyncio.Transport):
    """A transport that notes whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def test_nothing_is_read_behind_a_first_frame_that_nobody_has_looked_at() -> None:
    async def scenario() -> None:
        transport = Pausable()
        connection = Connection(1 << 20, on_open=lambda _: None)
        connection.connection_made(transport)
        connection.data_received(frame(Kind.OPEN, b"x"))
        assert not transport.reads
        assert await connection.receive() == (Kind.OPEN, b"x")
        assert not transport.reads
        connection.trust()
        assert transport.reads

    asyncio.run(scenario())
