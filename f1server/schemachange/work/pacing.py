"""The pace of walks: a batch waits as long as the throttle says, by how the storage tier serves users just now."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from f1server.schemachange.work.throttle import Figures, Throttle, ThrottleOptions
from spanstore.client import SpanClient

__all__ = ["Paced"]

_BATCH_S = 0.1
_LOT_S = 1.0
"""So much work is done again at most when a walk is interrupted. Entries are written in the order of their keys within
a lot: the more they are, the more of them share pages, which counts where there are no users, and lots are large."""
_LEAST_ROWS = 50
"""A commit by itself costs all servers together as much as about 200 rows do, and on busy processors users wait for
what it costs as much as behind it: with batches of half, of this and of double the size their 99th percentile was the
same within what measurements differ by."""
_ASK_S = 0.25
"""The servers that users read from may not be those that the work writes to, so they are asked."""


class Paced:
    """A :class:`f1server.schemachange.work.walk.Pace` for all walks of one process together."""

    def __init__(
        self,
        client: SpanClient,
        options: ThrottleOptions,
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """``client``: the one that the walks use, which must work in the background. ``now_s``: since the epoch."""
        self._client = client
        self._throttle = Throttle(options)
        self._figures = Figures()
        self._asked_s = self._heard_s = 0.0
        self._now_s = now_s
        self._sleep = sleep

    def adjust(self, options: ThrottleOptions) -> None:
        """Go by other bounds from now on."""
        self._throttle.adjust(options)

    async def begin(self, rows: int) -> None:
        """Wait until a batch of so many rows or entries may begin."""
        await self._hear()
        now_s = self._now_s()
        figures = replace(self._figures, age_s=now_s - self._heard_s)
        wait_s = self._throttle.wait_s(rows, figures, now_s)
        if wait_s > 0:
            await self._sleep(wait_s)

    async def _hear(self) -> None:
        """Ask how users are served, if that was some time ago."""
        now_s = self._now_s()
        if now_s >= self._asked_s + _ASK_S:
            self._asked_s = now_s
            load = await self._client.foreground()
            self._heard_s = self._now_s() - load.age_s
            self._figures = Figures(load.reads, load.read_us, load.commits, load.commit_us)

    def end(self, rows: int) -> None:
        """The batch has ended."""

    async def ahead(self, rows: int) -> None:
        """Wait a little if there are users: tens of thousands of rows at once keep a processor busy for a second."""
        await self._hear()
        wait_s = self._throttle.ahead_s(rows, self._figures, self._now_s())
        if wait_s > 0:
            await self._sleep(wait_s)

    def batch_rows(self) -> int:
        """Return how many rows a batch should have: some ten batches a second, as long as they are not tiny."""
        return max(_LEAST_ROWS, int(self._throttle.rate * _BATCH_S))

    async def lot_rows(self) -> int:
        """Return how many rows are worked on within a second or so."""
        await self._hear()
        return int(self._throttle.rate_now(self._figures) * _LOT_S)
