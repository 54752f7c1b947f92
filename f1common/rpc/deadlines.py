"""Deadlines: one absolute point in time that a request carries through every call made on its behalf.

A timeout given to each hop anew would let a request outlive its caller by the number of hops. A deadline is a
point on this process's event-loop clock; between processes it travels as the time that remains (``wire_ms``),
since two hosts share no clock that may be trusted for this.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from f1common.errors import Code, F1Error, check

T = TypeVar("T")
Item = TypeVar("Item", bound=Hashable)

_REST_S = 2e-6
"""How long nobody looks again for each item: some twenty times as long as the look at it took."""


class Deadline(msgspec.Struct, frozen=True, order=True, gc=False):
    """A point in time, in seconds of the running event loop's clock; infinite when there is none."""

    at_s: float

    @staticmethod
    def after(seconds: float | None) -> "Deadline":
        """Return the deadline ``seconds`` from now; None means never."""
        if seconds is None:
            return NEVER
        return Deadline(asyncio.get_running_loop().time() + max(seconds, 0.0))

    @staticmethod
    def from_wire_ms(remaining_ms: int) -> "Deadline":
        """Return the deadline that a peer sent as milliseconds that remain; 0 means never."""
        check(remaining_ms >= 0, "the time that remains is not negative on the wire")
        return NEVER if remaining_ms == 0 else Deadline.after(remaining_ms / 1000)

    def wire_ms(self) -> int:
        """Return the milliseconds that remain for a peer's message, at least 1; 0 means never.

        Raises F1Error DEADLINE_EXCEEDED if none remain.
        """
        if self.at_s == math.inf:
            return 0
        self.require()
        return max(1, round((self.at_s - asyncio.get_running_loop().time()) * 1000))

    def remaining_s(self) -> float | None:
        """Return the seconds that remain, at least 0; None when there is no deadline (what gRPC timeouts take)."""
        if self.at_s == math.inf:
            return None
        return max(0.0, self.at_s - asyncio.get_running_loop().time())

    def expired(self) -> bool:
        """Tell whether the deadline has passed."""
        return self.at_s <= asyncio.get_running_loop().time()

    def require(self, *, ambiguous: bool = False) -> None:
        """Raise F1Error DEADLINE_EXCEEDED if the deadline has passed."""
        if self.expired():
            raise F1Error(Code.DEADLINE_EXCEEDED, "the deadline of the request has passed", ambiguous=ambiguous)

    def left(self) -> tuple[float | None, int]:
        """Return :meth:`remaining_s` and :meth:`wire_ms` as of one moment. Raises as the latter."""
        if self.at_s == math.inf:
            return None, 0
        left_s = self.at_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            self.require()
        return left_s, max(1, round(left_s * 1000))

    def sooner(self, seconds: float | None) -> "Deadline":
        """Return the earlier of this deadline and ``seconds`` from now."""
        return min(self, Deadline.after(seconds))


NEVER = Deadline(math.inf)
"""The deadline of a request that has none."""


async def within(deadline: Deadline, work: Awaitable[T], *, ambiguous: bool = False) -> T:
    """Await ``work``, which is cancelled when the deadline passes.

    Raises F1Error DEADLINE_EXCEEDED then, ``ambiguous`` as the caller says: only it knows whether ``work`` may have
    had an effect by the time it was cancelled.
    """
    limit = None if deadline.at_s == math.inf else deadline.at_s
    scope = asyncio.timeout_at(limit)
    try:
        async with scope:
            return await work
    except TimeoutError as error:
        if not scope.expired():
            raise  # the work's own time-out, not this deadline
        raise F1Error(Code.DEADLINE_EXCEEDED, "the deadline of the request has passed", ambiguous=ambiguous) from error


class Expiries(Generic[Item]):
    """Tells whose time is over, of many items that nearly always end before: one timer does for all of them.

    It is set to the earliest end as of when it was set last, and looks for the next one then. With thousands of items
    it may come some milliseconds late. Lives on one event loop.
    """

    __slots__ = ("_at_s", "_ends", "_over", "_timer")

    def __init__(self, over: Callable[[Item], None]) -> None:
        """``over`` is called once for each item whose end comes before it is discarded; it is discarded by then."""
        self._over = over
        self._ends: dict[Item, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = math.inf

    def add(self, item: Item, at_s: float) -> None:
        """``item`` must end by ``at_s``, on the clock of the running loop."""
        self._ends[item] = at_s
        if at_s < self._at_s:
            self._set(at_s)

    def discard(self, item: Item) -> None:
        """``item`` has ended; harmless if it is not known."""
        self._ends.pop(item, None)

    def _set(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._look) if at_s < math.inf else None

    def _look(self) -> None:
        # A loop runs a timer that is due within the resolution of its clock, a little before the clock says so.
        now_s = max(asyncio.get_running_loop().time(), self._at_s)
        self._timer, self._at_s = None, math.inf
        for item in [item for item, at_s in self._ends.items() if at_s <= now_s]:
            if self._ends.get(item, math.inf) <= now_s:
                del self._ends[item]
                self._over(item)
        if not self._ends:
            return
        # Each look costs what there is: of thousands that end one after the other, those of a moment end together.
        earliest_s = max(min(self._ends.values()), now_s + len(self._ends) * _REST_S)
        if earliest_s < self._at_s:
            self._set(earliest_s)

    def close(self) -> None:
        """Forget all of them."""
        self._ends.clear()
        self._set(math.inf)
