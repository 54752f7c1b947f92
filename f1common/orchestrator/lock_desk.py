"""A lock table with callers, who wait for its answers, and with time, which passes."""

import asyncio
from collections.abc import Callable, Sequence

from f1common.orchestrator.lock_table import Done, LockTable, Token, WantedLock

__all__ = ["LockDesk"]

Answer = Callable[[Token | None], None]
"""Told the token of what was granted, or None: not within the time, or withdrawn."""


class LockDesk:
    """The driver of one :class:`LockTable`. Everything happens on one event loop."""

    def __init__(self, table: LockTable, now_us: Callable[[], int]) -> None:
        """``now_us`` is a monotonic clock in microseconds."""
        self.table = table
        self._now_us = now_us
        self._answers: dict[bytes, list[Answer]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_us = 0

    def acquire(
        self, request: bytes, locks: Sequence[WantedLock], bound: int | None, wait_us: int, answer: Answer
    ) -> None:
        """Answer once all is granted, or when that has taken ``wait_us``. Raises F1Error INVALID_ARGUMENT."""
        now_us = self._now_us()
        done = self.table.acquire(request, locks, bound, now_us, now_us + wait_us)
        self._answers.setdefault(request, []).append(answer)
        self._settle(done)

    def withdraw(self, request: bytes) -> None:
        """End a request and what it was granted; whoever waits for it is answered with None."""
        done = self.table.withdraw(request, self._now_us())
        self._settle([Done(request, None), *done])

    def refresh(self, tokens: Sequence[Token]) -> list[bool]:
        """Prolong leases; whether each was alive."""
        alive, done = self.table.refresh(tokens, self._now_us())
        self._settle(done)
        return alive

    def validate(self, tokens: Sequence[Token]) -> list[bool]:
        """Tell whether each lease has been held all the time."""
        alive, done = self.table.validate(tokens, self._now_us())
        self._settle(done)
        return alive

    def release(self, tokens: Sequence[Token]) -> list[bool]:
        """End leases; whether each was alive."""
        alive, done = self.table.release(tokens, self._now_us())
        self._settle(done)
        return alive

    def oldest_bound(self) -> int | None:
        """Return the lowest bound of all leases."""
        oldest, done = self.table.oldest_bound(self._now_us())
        self._settle(done)
        return oldest

    def close(self) -> None:
        """Answer everybody with None and let no more time pass. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._settle_answers([Done(request, None) for request in sorted(self._answers)])

    def _settle(self, done: Sequence[Done]) -> None:
        """Answer, and see to it that a tick comes when something is due; one that comes too early looks again."""
        self._settle_answers(done)
        next_us = self.table.next_us()
        if next_us is None or (self._timer is not None and self._due_us <= next_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_us = next_us
        wait_s = max(next_us - self._now_us(), 1_000) / 1_000_000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _settle_answers(self, done: Sequence[Done]) -> None:
        for item in done:
            for answer in self._answers.pop(item.request, ()):
                answer(item.token)

    def _tick(self) -> None:
        self._timer = None
        self._settle(self.table.tick(self._now_us()))
