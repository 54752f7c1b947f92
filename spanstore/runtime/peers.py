"""Links to the other spanservers: one one-way stream each, shared by all groups."""

import random
from collections.abc import Callable

from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.streams import OneWayStream
from spanstore.paxos.configuration import server_of
from spanstore.paxos.messages import Message
from spanstore.runtime.wire import peer_to_pb

PROTOCOL_VERSION = 1


class PeerLinks:
    """Sends Paxos messages; what cannot be sent now is dropped, since Paxos sends again."""

    def __init__(
        self,
        me: str,
        cluster_id: str,
        address_of: Callable[[str], str | None],
        channels: ChannelCache,
        rng: random.Random,
    ) -> None:
        """``address_of`` returns the address of a server, None while it is not known."""
        self._me = me
        self._cluster_id = cluster_id
        self._address_of = address_of
        self._channels = channels
        self._rng = random.Random(rng.random())
        self._streams: dict[str, OneWayStream[pb.PeerMessage]] = {}

    def _open(
        self, name: str, address: str, channels: ChannelCache, rng: random.Random
    ) -> OneWayStream[pb.PeerMessage]:
        stub = stubs.SpanServerStub(channels.get(address))
        return OneWayStream(lambda: stub.Peer(), self._pack, rng=rng, name=name)

    def _pack(self, messages: list[pb.PeerMessage]) -> pb.PeerBatch:
        return pb.PeerBatch(
            sender=self._me, cluster_id=self._cluster_id, protocol_version=PROTOCOL_VERSION, messages=messages
        )

    def send(self, group: int, sender: str, to: str, message: Message) -> None:
        """Queue what the replica ``sender`` of ``group`` says to the replica ``to``."""
        server = server_of(to)
        stream = self._streams.get(server) or self._find(server)
        if stream is not None:
            wire = peer_to_pb(group, message)
            if sender != self._me:
                wire.sender = sender
            if to != server:
                wire.receiver = to
            stream.send(wire, wire.ByteSize())

    def _find(self, server: str) -> OneWayStream[pb.PeerMessage] | None:
        """Open a link to a server that has joined the cluster, once its address is known."""
        address = self._address_of(server)
        if address is None or server == self._me:
            return None
        rng = random.Random(self._rng.random())
        stream = self._streams[server] = self._open(server, address, self._channels, rng)
        return stream

    async def close(self) -> None:
        """End all streams."""
        for name in sorted(self._streams):
            await self._streams[name].close()
