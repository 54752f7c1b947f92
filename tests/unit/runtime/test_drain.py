"""Who is still heard while a spanserver drains: peers until leadership is handed over, clients no longer."""

import asyncio
from typing import Any, cast

import pytest

from f1common.clock import ManualClock
from f1common.config import StorageSection
from f1common.pb import spanstore_pb2 as pb
from f1common.rpc.batches import END_OF_STREAM
from spanstore.engine.memory import MemoryEngine
from spanstore.placement.directory import Directory
from spanstore.runtime.birth import Hello
from spanstore.runtime.peers import PROTOCOL_VERSION
from spanstore.runtime.service import SpanServicer
from spanstore.runtime.spanserver import SpanServer
from spanstore.runtime.state_source import StateSource
from spanstore.runtime.versions import PeerVersions


class Heard:
    """Stands in for the server: notes what peers say."""

    def __init__(self) -> None:
        self.name = "a"
        self.groups: list[int] = []

    def check_identity(self, sender: str, cluster_id: str) -> None:
        pass

    def receive(self, group: int, sender: str, receiver: str, message: object, size: int) -> None:
        self.groups.append(group)


class Line:
    """A stream whose other end is the test."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()

    def say(self, batch: object) -> None:
        self._waiting.put_nowait(batch)

    async def read(self) -> Any:
        return await self._waiting.get()

    async def write(self, batch: object) -> None:
        pass


def accepted(group: int) -> pb.PeerBatch:
    message = pb.PeerMessage(group=group, accepted=pb.Accepted())
    return pb.PeerBatch(sender="b", cluster_id="tea", protocol_version=PROTOCOL_VERSION, messages=[message])


def servicer(heard: Heard, draining: asyncio.Event, handed_over: asyncio.Event) -> SpanServicer:
    async def scan(request: pb.ScanRequest, context: object) -> None:
        raise AssertionError("nobody scans here")

    server = cast(SpanServer, heard)
    engine = MemoryEngine()
    return SpanServicer(
        server,
        engine,
        ManualClock(),
        scan,
        source=StateSource("a", "tea", engine, lambda group: False, StorageSection()),
        installing=list,
        directory=Directory,
        hello=lambda: Hello(b"", None),
        versions=PeerVersions("a", PROTOCOL_VERSION),
        draining=draining,
        handed_over=handed_over,
    )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_peers_are_heard_until_leadership_is_handed_over() -> None:
    heard, draining, handed_over, line = Heard(), asyncio.Event(), asyncio.Event(), Line()
    peer = asyncio.create_task(servicer(heard, draining, handed_over).Peer(None, line))
    line.say(accepted(1))
    await settled()
    draining.set()
    line.say(accepted(2))
    await settled()
    assert (heard.groups, peer.done()) == ([1, 2], False)
    handed_over.set()
    await peer


@pytest.mark.asyncio
async def test_clients_are_not_heard_any_more_once_the_server_drains() -> None:
    heard, draining, handed_over, line = Heard(), asyncio.Event(), asyncio.Event(), Line()
    client = asyncio.create_task(servicer(heard, draining, handed_over).Session(None, line))
    await settled()
    draining.set()
    await client
    assert not handed_over.is_set()


@pytest.mark.asyncio
async def test_a_peer_that_ends_its_stream_is_let_go() -> None:
    line = Line()
    peer = asyncio.create_task(servicer(Heard(), asyncio.Event(), asyncio.Event()).Peer(None, line))
    line.say(END_OF_STREAM)
    await peer
