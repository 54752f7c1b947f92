"""One-way streams for protocols that send again: never blocking, bounded, reconnecting."""

import asyncio
import itertools
import random
from typing import Any

import grpc
import pytest

from f1common.rpc.batches import StreamLimits
from f1common.rpc.streams import OneWayStream, serve_one_way
from tests.unit.rpc.echo import Request, connected, new_channels, one_way_stream, pack_requests, start_server, until
from tests.unit.rpc.test_request_stream import StuckCall

pytestmark = pytest.mark.usefixtures("transports")


class Receiver:
    def __init__(self, draining: asyncio.Event | None = None) -> None:
        self.batch_sizes: list[int] = []
        self.texts: list[str] = []
        self.draining = draining
        self.ended = 0

    def unpack(self, batch: Any) -> Any:
        self.batch_sizes.append(len(batch.items))
        return batch.items

    async def session(self, _: Any, context: Any) -> None:
        try:
            await serve_one_way(
                context, self.unpack, lambda message: self.texts.append(message.text), draining=self.draining
            )
        finally:
            self.ended += 1


def message(text: str) -> Any:
    return Request(text=text)


def test_messages_arrive_in_order_and_share_batches() -> None:
    async def scenario() -> None:
        receiver = Receiver()
        async with connected(receiver.session) as channel:
            stream = one_way_stream(channel, limits=StreamLimits(max_batch_messages=40))
            assert all(stream.send(message(str(number)), 10) for number in range(100))
            await until(lambda: len(receiver.texts) == 100)
            assert receiver.texts == [str(number) for number in range(100)]
            assert receiver.batch_sizes == [0, 40, 40, 20]
            assert stream.connected and stream.dropped == 0
            await stream.close()

    asyncio.run(scenario())


def test_full_queue_drops_its_oldest_messages() -> None:
    async def scenario() -> None:
        call = StuckCall()
        stream: OneWayStream[int] = OneWayStream(
            lambda: call, list, rng=random.Random(1), max_queued_messages=3, max_queued_bytes=100
        )
        for number in range(5):
            assert stream.send(number, 10)
        assert stream.dropped == 2
        assert stream.send(5, 95), "accepted, in place of all older ones"
        assert stream.dropped == 5
        call.over.set_result(None)
        await until(lambda: [5] in call.written)
        assert call.written == [[], [5]]
        await stream.close()

    asyncio.run(scenario())


def test_message_too_large_for_the_transport_is_refused() -> None:
    async def scenario() -> None:
        stream: OneWayStream[int] = OneWayStream(
            StuckCall, list, rng=random.Random(1), limits=StreamLimits(max_batch_bytes=10, max_message_bytes=100)
        )
        assert not stream.send(1, 101)
        assert stream.send(2, 100)
        await stream.close()
        assert not stream.send(3, 1), "closed"

    asyncio.run(scenario())


def test_peer_that_comes_back_hears_the_present() -> None:
    async def scenario() -> None:
        first = Receiver()
        server, port = await start_server(first.session)
        channels = new_channels()
        stream = one_way_stream(channels.get(f"127.0.0.1:{port}"))
        stream.send(message("before"), 10)
        await until(lambda: first.texts == ["before"])
        await server.stop(None)
        await until(lambda: not stream.connected)

        dropped = stream.dropped
        stream.send(message("while it was down"), 10)
        await until(lambda: stream.dropped == dropped + 1)

        second = Receiver()
        server, _ = await start_server(second.session, port=port)
        sent = 0
        while not second.texts:
            stream.send(message(f"after {sent}"), 10)
            sent += 1
            await asyncio.sleep(0.01)
        assert all(text.startswith("after") for text in second.texts)
        await stream.close()
        await channels.close()
        await server.stop(None)

    asyncio.run(scenario())


def test_idle_stream_to_a_restarted_peer_loses_no_message() -> None:
    async def scenario() -> None:
        receiver = Receiver()
        server, port = await start_server(receiver.session)
        channels = new_channels()
        stream = one_way_stream(channels.get(f"127.0.0.1:{port}"))
        stream.send(message("one"), 10)
        await until(lambda: receiver.texts == ["one"])
        await server.stop(None)
        server, _ = await start_server(receiver.session, port=port)
        await until(lambda: not stream.connected)
        await asyncio.sleep(0.7)  # the transport's own back-off before it connects again
        stream.send(message("two"), 10)
        await until(lambda: receiver.texts == ["one", "two"])
        await stream.close()
        await channels.close()
        await server.stop(None)

    asyncio.run(scenario())


def test_server_that_refuses_is_not_hammered() -> None:
    async def scenario() -> None:
        opened: list[float] = []

        class Refused(StuckCall):
            async def write(self, message: Any, /) -> None:
                if not self.over.done():
                    self.over.set_result(None)

            async def code(self) -> Any:
                await self.over
                return grpc.StatusCode.FAILED_PRECONDITION

        def open_call() -> Refused:
            opened.append(asyncio.get_running_loop().time())
            return Refused()

        stream: OneWayStream[Any] = OneWayStream(open_call, pack_requests, rng=random.Random(1))
        while len(opened) < 5:
            stream.send(message("x"), 1)
            await asyncio.sleep(0)
        pauses = [later - earlier for earlier, later in itertools.pairwise(opened)]
        for pause, least_s in zip(pauses, (0.010, 0.020, 0.040, 0.080), strict=True):
            assert pause >= least_s
        await stream.close()

    asyncio.run(scenario())


def test_receiver_ends_the_stream_when_it_drains() -> None:
    async def scenario() -> None:
        draining = asyncio.Event()
        receiver = Receiver(draining)
        async with connected(receiver.session) as channel:
            stream = one_way_stream(channel)
            stream.send(message("x"), 10)
            await until(lambda: receiver.texts == ["x"])
            draining.set()
            await until(lambda: receiver.ended == 1)
            await stream.close()

    asyncio.run(scenario())
