"""Channels and servers as the configuration of a process says."""

import ipaddress
from collections.abc import Callable
from typing import Any

import grpc.aio

from f1common.config import Config
from f1common.rpc.channels import ChannelCache, Options, insecure_channel_factory
from f1common.rpc.direct.dialling import direct_channel_factory
from f1common.rpc.direct.listening import DirectServer
from f1common.rpc.direct.methods import CLIENT_METHODS, STORAGE_METHODS


def channels_of(config: Config) -> ChannelCache:
    """Return the channels of a process to the servers of its cluster."""
    limit = config.limits.max_message_bytes
    factory = insecure_channel_factory(limit)
    return ChannelCache(direct_channel_factory(factory, STORAGE_METHODS, limit) if config.streams.direct else factory)


def storage_server_factory(config: Config) -> Callable[[Options], Any]:
    """Return what makes a spanserver's server from gRPC options."""
    return _server_factory(config, STORAGE_METHODS, direct=config.streams.direct)


def f1server_factory(config: Config) -> Callable[[Options], Any]:
    """Return what makes an f1server's server from gRPC options.

    Clients are offered direct streams only where they can be expected to reach them: on this machine, or at a port that
    somebody has chosen. They may come through a balancer or a published port, and firewalls are made for known ports.
    """
    local = _is_loopback(config.server.host) and not config.server.advertise
    reachable = local or config.streams.direct_port > 0
    return _server_factory(config, CLIENT_METHODS, direct=config.streams.direct and reachable)


def _server_factory(config: Config, methods: tuple[str, ...], *, direct: bool) -> Callable[[Options], Any]:
    def make(options: Options) -> Any:
        server = grpc.aio.server(options=options)
        if not direct:
            return server
        limit = config.limits.max_message_bytes
        return DirectServer(server, methods, port=config.streams.direct_port, max_message_bytes=limit)

    return make


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
