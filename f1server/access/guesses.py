"""How long a login waits after others that failed: one at a time for each name, and later and later.

Names are dealt out to a fixed number of places by a keyed hash, so that whoever tries many names fills nothing up and
nobody can tell which names share a place. A user whose name is attacked has to wait too, some seconds at most.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from f1common.errors import Code, F1Error

__all__ = ["Guesses", "delay_s"]

_PLACES = 1_024
_FREE = 3
_FIRST_S, _LONGEST_S = 0.25, 8.0
_FORGET_S = 300.0
_MOST_WAITING = 8


def delay_s(failures: int) -> float:
    """Return how long the next login waits, in seconds: nothing after few failures, then twice as long each time."""
    return 0.0 if failures < _FREE else min(_LONGEST_S, _FIRST_S * 2.0 ** min(failures - _FREE, 20))


@dataclass(slots=True)
class _Place:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    failures: int = 0
    last_s: float = 0.0


class Attempt:
    """One login on its way. Set ``failed`` if it was a wrong guess."""

    failed = False


class Guesses:
    """The logins of one server."""

    def __init__(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._places = [_Place() for _ in range(_PLACES)]
        self._sleep = sleep

    @asynccontextmanager
    async def attempt(self, name: str, secret: bytes) -> AsyncIterator[Attempt]:
        """Wait for one's turn at ``name``. Raises F1Error OVERLOADED if too many wait already."""
        digest = hashlib.blake2b(name.lower().encode("utf-8", "surrogatepass"), digest_size=4, key=secret[:64]).digest()
        place = self._places[int.from_bytes(digest, "big") % _PLACES]
        if place.waiting >= _MOST_WAITING:
            raise F1Error(Code.OVERLOADED, "many logins of this role wait already; try again later")
        place.waiting += 1
        try:
            async with place.lock:
                now_s = asyncio.get_running_loop().time()
                if now_s - place.last_s > _FORGET_S:
                    place.failures = 0
                if wait_s := delay_s(place.failures):
                    await self._sleep(wait_s)
                attempt = Attempt()
                yield attempt
                place.failures = place.failures + 1 if attempt.failed else 0
                place.last_s = asyncio.get_running_loop().time()
        finally:
            place.waiting -= 1
