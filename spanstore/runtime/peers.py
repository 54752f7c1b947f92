"""Links to the other spanservers: one one-way stream each, shared by all groups."""

import asyncio
import random
from collections.abc import Callable

from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.streams import OneWayStream
from spanstore.group.digests import RangeDigest
from spanstore.paxos.configuration import server_of
from spanstore.paxos.messages import Message
from spanstore.runtime.supervision import ServerReport
from spanstore.runtime.wire import digest_to_pb, peer_to_pb, report_to_pb

PROTOCOL_VERSION = 4
"""What each version brought to the log: :mod:`spanstore.txn.kinds`."""
VERSION_REACH = 1
"""Servers are upgraded one after the other: how far apart the versions of two of them may be."""
CLIENT_REACH = 2
"""How far a client's may be apart from a server's: f1servers are upgraded after the spanservers, or before."""


class PeerLinks:
    """Sends Paxos messages; what cannot be sent now is dropped, since Paxos sends again."""

    def __init__(
        self,
        me: str,
        cluster_id: str,
        address_of: Callable[[str], str | None],
        channels: ChannelCache,
        rng: random.Random,
        version: int = PROTOCOL_VERSION,
    ) -> None:
        """``address_of`` returns the address of a server, None while it is not known."""
        self._me = me
        self._version = version
        self._cluster_id = cluster_id
        self._address_of = address_of
        self._channels = channels
        self._rng = random.Random(rng.random())
        self._streams: dict[str, tuple[str, OneWayStream[pb.PeerMessage]]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def _open(
        self, name: str, address: str, channels: ChannelCache, rng: random.Random
    ) -> OneWayStream[pb.PeerMessage]:
        stub = stubs.SpanServerStub(channels.get(address))
        return OneWayStream(lambda: stub.Peer(), self._pack, rng=rng, name=name)

    def _pack(self, messages: list[pb.PeerMessage]) -> pb.PeerBatch:
        return pb.PeerBatch(
            sender=self._me, cluster_id=self._cluster_id, protocol_version=self._version, messages=messages
        )

    def send(self, group: int, sender: str, to: str, message: Message) -> None:
        """Queue what the replica ``sender`` of ``group`` says to the replica ``to``."""
        server = server_of(to)
        stream = self._stream(server)
        if stream is not None:
            wire = peer_to_pb(group, message)
            if sender != self._me:
                wire.sender = sender
            if to != server:
                wire.receiver = to
            stream.send(wire, wire.ByteSize())

    def _stream(self, server: str) -> OneWayStream[pb.PeerMessage] | None:
        """Return the link to a server, a new one if it is reached elsewhere now; None while no address is known."""
        address = self._address_of(server)
        known = self._streams.get(server)
        if known is not None and known[0] == address:
            return known[1]
        if address is None or server == self._me:
            return None
        if known is not None:
            task = asyncio.create_task(known[1].close(), name=f"old link to {server}")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        stream = self._open(server, address, self._channels, random.Random(self._rng.random()))
        self._streams[server] = (address, stream)
        return stream

    def report(self, to: str, report: ServerReport) -> None:
        """Queue what this server tells ``to`` of itself."""
        stream = self._stream(to)
        if stream is not None:
            wire = pb.PeerMessage(report=report_to_pb(report))
            stream.send(wire, wire.ByteSize())

    def digest(self, group: int, sender: str, to: str, digest: RangeDigest) -> None:
        """Queue what the replica ``sender`` has in a range for the server ``to``."""
        stream = self._stream(to)
        if stream is not None:
            wire = pb.PeerMessage(group=group, sender=sender, digest=digest_to_pb(digest))
            stream.send(wire, wire.ByteSize())

    async def close(self) -> None:
        """End all streams."""
        for server in sorted(self._streams):
            await self._streams[server][1].close()
        await asyncio.gather(*self._ending, return_exceptions=True)
