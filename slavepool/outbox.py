"""Rows that wait for one receiver: how many may be on their way, and what goes into the next message."""

import asyncio
from collections import deque

from f1common.errors import Code, F1Error, check
from f1common.pb import slave_pb2 as pb
from f1common.rpc.batches import take

__all__ = ["Outbox"]

_MAX_MESSAGES = 256
_MAX_BYTES = 1 << 20


class Outbox:
    """A window of bytes: what was put in and not yet taken over by the receiver never exceeds it, but for one item.

    Whoever puts rows in waits for room. The receiver returns room (:meth:`credit`) when it has taken rows over,
    not when they arrived, so that a slow consumer slows its producers down and nobody's memory.
    """

    def __init__(self, window_bytes: int, wake: asyncio.Event | None = None) -> None:
        """``wake`` is set when there is something to send."""
        check(window_bytes > 0, "a window has room for something")
        self._window = window_bytes
        self._outstanding = 0
        self._queue: deque[tuple[pb.Rows, int]] = deque()
        self._room = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._failure: F1Error | None = None
        self.wake = wake or asyncio.Event()

    @property
    def outstanding(self) -> int:
        """Bytes put in and not yet taken over."""
        return self._outstanding

    async def put(self, rows: pb.Rows) -> int:
        """Add rows once there is room and return their bytes. Raises what :meth:`fail` was told."""
        size = rows.ByteSize()
        while self._failure is None and self._outstanding and self._outstanding + size > self._window:
            self._room.clear()
            await self._room.wait()
        if self._failure is not None:
            raise self._failure
        self._outstanding += size
        self._drained.clear()
        self._queue.append((rows, size))
        self.wake.set()
        return size

    def credit(self, size: int) -> None:
        """The receiver has taken ``size`` bytes over. Raises F1Error INVALID_ARGUMENT if it was not sent so many."""
        if not 0 <= size <= self._outstanding:
            raise F1Error(Code.INVALID_ARGUMENT, "a receiver takes over no more than it was sent")
        self._outstanding -= size
        if not self._outstanding:
            self._drained.set()
        self._room.set()

    def take(self) -> list[pb.Rows]:
        """Return what the next message carries; nothing if nothing waits."""
        taken, _ = take(self._queue, _MAX_MESSAGES, _MAX_BYTES)
        return taken

    def __bool__(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._queue)

    async def drained(self) -> None:
        """Return once everything is taken over. Raises what :meth:`fail` was told."""
        await self._drained.wait()
        if self._failure is not None:
            raise self._failure

    def fail(self, error: F1Error) -> None:
        """Nobody takes anything any more: whoever waits gets ``error``."""
        self._failure = self._failure or error
        self._queue.clear()
        self._drained.set()
        self._room.set()
