"""Links to the other spanservers: one one-way stream each, shared by all groups."""

import random
from collections.abc import Mapping

from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.streams import OneWayStream
from spanstore.paxos.messages import Message
from spanstore.runtime.wire import peer_to_pb

PROTOCOL_VERSION = 1


class PeerLinks:
    """Sends Paxos messages; what cannot be sent now is dropped, since Paxos sends again."""

    def __init__(
        self, me: str, cluster_id: str, addresses: Mapping[str, str], channels: ChannelCache, rng: random.Random
    ) -> None:
        self._me = me
        self._cluster_id = cluster_id
        self._streams: dict[str, OneWayStream[pb.PeerMessage]] = {}
        for name in sorted(addresses):
            if name != me:
                self._streams[name] = self._open(name, addresses[name], channels, random.Random(rng.random()))

    def _open(
        self, name: str, address: str, channels: ChannelCache, rng: random.Random
    ) -> OneWayStream[pb.PeerMessage]:
        stub = stubs.SpanServerStub(channels.get(address))
        return OneWayStream(lambda: stub.Peer(), self._pack, rng=rng, name=name)

    def _pack(self, messages: list[pb.PeerMessage]) -> pb.PeerBatch:
        return pb.PeerBatch(
            sender=self._me, cluster_id=self._cluster_id, protocol_version=PROTOCOL_VERSION, messages=messages
        )

    def send(self, group: int, to: str, message: Message) -> None:
        """Queue ``message`` for ``to``."""
        stream = self._streams.get(to)
        if stream is not None:
            wire = peer_to_pb(group, message)
            stream.send(wire, wire.ByteSize())

    async def close(self) -> None:
        """End all streams."""
        for name in sorted(self._streams):
            await self._streams[name].close()
