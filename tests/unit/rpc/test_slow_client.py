"""A client that asks and does not read: what the server keeps for it has a bound."""

import asyncio
from typing import Any

from f1common.rpc.batches import END_OF_STREAM, StreamLimits
from f1common.rpc.serving import Owed, serve_requests
from tests.unit.rpc.echo import Request, Response, items_of, pack_requests, pack_responses, until


class SlowClient:
    """A context of a client that always has another request, and takes a message only when it may."""

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.taken = 0
        self.reads = asyncio.Event()

    async def read(self) -> Any:
        await asyncio.sleep(0)
        if not self.left:
            return END_OF_STREAM
        self.left -= 1
        return pack_requests([Request(id=self.left + 1)])

    async def write(self, message: Any) -> None:
        await self.reads.wait()
        self.taken += len(list(items_of(message)))

    def set_code(self, code: Any) -> None:
        raise AssertionError(f"the stream ended with {code}")


def test_requests_are_left_unread_while_their_answers_would_pile_up() -> None:
    async def scenario() -> None:
        client = SlowClient(1000)
        limits = StreamLimits(max_batch_bytes=2000, max_unsent_bytes=20_000)
        session = asyncio.create_task(
            serve_requests(
                client,
                items_of,
                pack_responses,
                lambda request, reply: reply(Response(id=request.id, body=bytes(1000))),
                limits=limits,
            )
        )
        await until(lambda: client.left < 990)
        for _ in range(5000):  # turns of the loop, in which it could read them all
            await asyncio.sleep(0)
        assert client.left > 970
        client.reads.set()
        await session
        assert (client.left, client.taken) == (0, 1000)

    asyncio.run(scenario())


class OneMessage(SlowClient):
    """Asks for everything at once."""

    async def read(self) -> Any:
        if not self.left:
            await asyncio.Event().wait()
        requests = [Request(id=number + 1) for number in range(self.left)]
        self.left = 0
        return pack_requests(requests)


def test_who_answers_is_told_that_answers_pile_up() -> None:
    """Requests that came in one message have been read already."""

    async def scenario() -> None:
        client = OneMessage(1000)
        limits = StreamLimits(max_batch_bytes=2000, max_unsent_bytes=20_000)
        owed: list[Owed[Request, Response]] = []
        session = asyncio.create_task(
            serve_requests(
                client,
                items_of,
                pack_responses,
                lambda request, reply: owed.append(reply),
                limits=limits,
            )
        )
        await until(lambda: len(owed) == 1000)
        answered = 0
        while not owed[answered].is_crowded():
            owed[answered](Response(id=answered + 1, body=bytes(1000)))
            answered += 1
        assert 15 <= answered <= 20
        client.reads.set()
        await until(lambda: client.taken >= answered)
        assert not owed[answered].is_crowded()
        session.cancel()

    asyncio.run(scenario())
