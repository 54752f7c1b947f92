"""Channels to peers: one for each address, made once, with options that suit a cluster of long-lived streams."""

from collections.abc import Callable
from typing import Any

import grpc.aio

from f1common.errors import Code, F1Error, check

KEEPALIVE_MS = 2000
DEFAULT_MAX_MESSAGE_BYTES = 64 << 20

ChannelFactory = Callable[[str], Any]
"""Makes a channel of ``grpc.aio``, or an object with the same methods, to an address ``host:port``."""

Options = tuple[tuple[str, int], ...]


def transport_options(max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> Options:
    """Return the gRPC options that both sides of a connection need.

    Keepalive finds a peer that vanished, or stands still, without closing its connection within about four seconds;
    the time-out of a ping, which keepalive sends, is an option of its own and a minute by default. The metadata bound
    leaves room for errors with details.
    """
    check(max_message_bytes > 0, "a message has room for something")
    return (
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_metadata_size", 64 << 10),
        ("grpc.absolute_max_metadata_size", 64 << 10),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )


def channel_options(max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> Options:
    """Return the gRPC options of a client's channel.

    The transport's own reconnect back-off is kept as short as ours (its default grows to two minutes); a name is looked
    up again as often as a second (by default half a minute), since a container that is made anew has another address;
    proxies from the environment are ignored; a channel shares its connection with no other channel of the process.
    """
    return (
        *transport_options(max_message_bytes),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    )


def insecure_channel_factory(max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> ChannelFactory:
    """Return the factory of real channels without encryption."""
    options = channel_options(max_message_bytes)
    return lambda address: grpc.aio.insecure_channel(address, options=options)


class ChannelCache:
    """One channel for each address. Channels connect, and connect again, by themselves."""

    def __init__(self, channel_factory: ChannelFactory | None = None) -> None:
        self._factory = channel_factory if channel_factory is not None else insecure_channel_factory()
        self._channels: dict[str, Any] = {}
        self._closed = False

    def get(self, address: str) -> Any:
        """Return the channel to ``address`` (``host:port``). Raises F1Error CANCELLED after :meth:`close`."""
        if self._closed:
            raise F1Error(Code.CANCELLED, "the channels of this process are closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._factory(address)
        return channel

    async def forget(self, address: str) -> None:
        """Close the channel to ``address``, if there is one: that server is not coming back."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Close all channels; calls on them fail. Idempotent."""
        self._closed = True
        for _, channel in sorted(self._channels.items()):
            await channel.close()
        self._channels.clear()
