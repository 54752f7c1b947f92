"""Channels and servers as the configuration of a process says."""

from collections.abc import Callable
from typing import Any

import grpc.aio

from f1common.config import Config
from f1common.rpc.channels import ChannelCache, Options, insecure_channel_factory
from f1common.rpc.direct.dialling import direct_channel_factory
from f1common.rpc.direct.listening import DirectServer

DIRECT_METHODS = ("/f1.span.SpanServer/Session", "/f1.span.SpanServer/Peer")
"""The streams that go directly: requests to the storage tier and what its replicas say to each other, nearly all
messages of a cluster. All others, and those of a server that does not offer these, go over gRPC."""


def channels_of(config: Config) -> ChannelCache:
    """Return the channels of a process to the servers of its cluster."""
    limit = config.limits.max_message_bytes
    factory = insecure_channel_factory(limit)
    return ChannelCache(direct_channel_factory(factory, DIRECT_METHODS, limit) if config.streams.direct else factory)


def server_factory(config: Config) -> Callable[[Options], Any]:
    """Return what makes the process's server from gRPC options."""

    def make(options: Options) -> Any:
        server = grpc.aio.server(options=options)
        if not config.streams.direct:
            return server
        limit = config.limits.max_message_bytes
        return DirectServer(server, DIRECT_METHODS, port=config.streams.direct_port, max_message_bytes=limit)

    return make
