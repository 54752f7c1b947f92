"""The bounded inbox of a state machine's owner task: producers never wait, a full inbox refuses."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from f1common.errors import check
from f1common.rpc.batches import take

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue of messages bounded in count and bytes, filled by any task and drained by one owner in turns.

    Full means that :meth:`put` returns False, and the producer drops the message (peers, who send again) or answers
    OVERLOADED (clients): waiting would only move the queue to where nobody counts it. Not for use across threads.
    """

    __slots__ = ("_aside", "_bytes", "_items", "_max_bytes", "_max_messages", "_nonempty", "refused")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        check(max_messages > 0 and max_bytes > 0, "an inbox has room for something")
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._items: deque[tuple[T, int]] = deque()
        self._aside: list[tuple[T, int]] = []
        self._bytes = 0
        self._nonempty = asyncio.Event()
        self.refused = 0
        """How many messages found the inbox full."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size_bytes(self) -> int:
        """The bytes that wait, aside or not."""
        return self._bytes

    def put(self, item: T, size: int) -> bool:
        """Add ``item`` of ``size`` bytes and return True, or return False if the inbox is full.

        An empty inbox takes one item of any size: one that could never enter would never make progress.
        """
        waiting = len(self._items) + len(self._aside)
        if waiting and (waiting >= self._max_messages or self._bytes + size > self._max_bytes):
            self.refused += 1
            return False
        self._items.append((item, size))
        self._bytes += size
        self._nonempty.set()
        return True

    def drain(self, max_messages: int, max_bytes: int) -> list[T]:
        """Take the oldest items, at most ``max_messages``, and within ``max_bytes`` except that one is always taken."""
        taken, taken_bytes = take(self._items, max_messages, max_bytes)
        self._bytes -= taken_bytes
        if not self._items:
            self._nonempty.clear()
        return taken

    def put_back(self, items: Iterable[tuple[T, int]]) -> None:
        """Let items with their sizes, which were the oldest ones, be the oldest again; there is room for them."""
        returned = list(items)
        self._items.extendleft(reversed(returned))
        self._bytes += sum(size for _, size in returned)
        if self._items:
            self._nonempty.set()

    def put_aside(self, item: T, size: int) -> None:
        """Let an item that was drained wait where nobody drains it; it counts as before."""
        self._aside.append((item, size))
        self._bytes += size

    def take_up(self) -> None:
        """Let what was put aside be the oldest again."""
        aside, self._aside = self._aside, []
        self._bytes -= sum(size for _, size in aside)
        self.put_back(aside)

    async def wait(self) -> None:
        """Return once there is something to drain, at once if there is already."""
        await self._nonempty.wait()
