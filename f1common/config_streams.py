"""The sections of the configuration that concern messages between processes."""

from typing import Annotated

from msgspec import Meta, Struct

_KIB = 1 << 10
_MIB = 1 << 20


class StreamsSection(Struct, frozen=True, kw_only=True):
    """How streams between servers and of clients travel. gRPC is the way wherever a direct one is not to be had."""

    direct: Annotated[
        bool,
        Meta(
            description="Offer, and use where offered, connections of their own for the streams that carry most "
            "messages, without gRPC."
        ),
    ] = True
    direct_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Port for direct streams; 0: a free one, which an f1server offers clients on loopback only.",
        ),
    ] = 0


class LimitsSection(Struct, frozen=True, kw_only=True):
    """Bounds of queues and messages. What is over a bound is refused or dropped, never kept in memory."""

    inbox_messages: Annotated[
        int, Meta(ge=16, le=10_000_000, description="Messages waiting for a state machine, at most.")
    ] = 10_000
    max_message_bytes: Annotated[
        int, Meta(ge=64 * _KIB, le=(1 << 31) - 1, description="Size of one message, at most.")
    ] = 64 * _MIB
