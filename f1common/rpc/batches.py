"""What both ends of a batched stream share: the calls they use, the bounds, and how a batch is cut from a queue."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from f1common.errors import check

T = TypeVar("T")

END_OF_STREAM: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it
"""What ``read()`` returns once the other side has ended its half of the stream."""


class Identified(Protocol):
    """A protobuf message with a ``uint64 id`` that pairs requests with responses."""

    id: int

    def ByteSize(self) -> int:
        """Return the size of the encoded message in bytes."""
        ...


class BatchCall(Protocol):
    """What is used of the client's side of a stream call: of ``grpc.aio`` or of the simulator."""

    def __aiter__(self) -> AsyncIterator[Any]: ...
    def write(self, message: Any, /) -> Awaitable[None]: ...
    def cancel(self) -> bool: ...
    def code(self) -> Awaitable[grpc.StatusCode]: ...
    def details(self) -> Awaitable[str | None]: ...


class ServerCall(Protocol):
    """What is used of a servicer's context."""

    def read(self) -> Awaitable[Any]: ...
    def write(self, message: Any, /) -> Awaitable[None]: ...
    def set_code(self, code: Any, /) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one stream. ``max_message_bytes`` is what the transport takes, less room for the framing.

    ``max_unsent_bytes``: no more requests are taken while answers of so many bytes wait for a client that is slow.
    """

    max_in_flight: int = 4096
    max_batch_messages: int = 512
    max_batch_bytes: int = 1 << 20
    max_message_bytes: int = (64 << 20) - 1024
    max_unsent_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check(self.max_in_flight > 0 and self.max_batch_messages > 0, "a stream carries at least one message")
        check(0 < self.max_batch_bytes <= self.max_message_bytes, "a batch fits into a message")
        check(self.max_unsent_bytes > 0, "some answer may wait")


DEFAULT_LIMITS = StreamLimits()


def take(queue: "deque[tuple[T, int]]", max_messages: int, max_bytes: int) -> tuple[list[T], int]:
    """Take the oldest (item, size) pairs from ``queue``; return the items and the sum of their sizes.

    At most ``max_messages``, and within ``max_bytes`` except that one is always taken if there is any.
    """
    taken: list[T] = []
    taken_bytes = 0
    while queue and len(taken) < max_messages:
        item, size = queue[0]
        if taken and taken_bytes + size > max_bytes:
            break
        queue.popleft()
        taken.append(item)
        taken_bytes += size
    return taken, taken_bytes
