"""Strong reads of single rows that arrive together go to storage together.

A read by key outside of a transaction may have any timestamp that is not below the moment at which it was asked for.
So those that many clients ask for in one turn of the event loop can have the same one, taken after the last of them
arrived, and become one request to each group: a message costs as much as dozens of keys in it.

Nobody waits for what is in another's way: the rows of each group travel by themselves, a row that an undecided
transaction has locked is left out of the answer and read again by itself, and so is every row of a request that fails.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from f1common.errors import F1Error
from spanstore.client import SpanClient, Version

__all__ = ["ReadsTogether", "Seen"]

MAX_KEYS = 256
"""Of one request: more do not make it cheaper."""

_FEW = 4
"""Rows of one reader up to which they travel with those of others."""

_TOGETHER_S = 5.0
"""After that long each reader tries by himself."""

Seen = tuple[int, Version | None]
"""A timestamp, and the version of a row there."""
_Future = asyncio.Future[Seen | None]


@dataclass(slots=True)
class _Turn:
    """What was asked for in one turn, of one group: who waits for each key."""

    waiting: dict[bytes, list[_Future]] = field(default_factory=dict)


class ReadsTogether:
    """For all requests of one f1server. Lives on one event loop."""

    def __init__(self, client: SpanClient) -> None:
        self._client = client
        self._turns: dict[int, _Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, key: bytes) -> Seen:
        """Read a row at a timestamp at which every commit acknowledged before this call can be seen.

        Raises what :meth:`SpanClient.read` raises for this key alone.
        """
        group = self._client.group_of(key)
        if group is not None:
            seen = await self._joined(group, key)
            if seen is not None:
                return seen
        result = await self._client.read([key], timestamp=self._client.strong_timestamp())
        return result.timestamp, result.versions[0]

    async def read_all(self, keys: Sequence[bytes]) -> Mapping[bytes, Version | None] | None:
        """Look at rows without waiting for anybody; None if some of them cannot be seen so.

        Each version is the newest as of some moment after this call, not all as of the same one.
        """
        by_group: dict[int, list[bytes]] = {}
        for key in keys:
            group = self._client.group_of(key)
            if group is None:
                return None
            by_group.setdefault(group, []).append(key)
        if len(keys) <= _FEW:
            waiting = [(key, self._joined(group, key)) for group, mine in by_group.items() for key in mine]
            seen = {key: await one for key, one in waiting}
            found = {key: one[1] for key, one in seen.items() if one is not None}
        else:
            strong_ts = self._client.strong_timestamp()
            reads = [self._client.read_apart(mine, strong_ts, _TOGETHER_S) for mine in by_group.values()]
            found = {key: version for _, part in await asyncio.gather(*reads) for key, version in part.items()}
        return found if len(found) == len(keys) else None

    def _joined(self, group: int, key: bytes) -> _Future:
        """Ask for a key with the others of this turn; None will come if it has to be read by itself."""
        loop = asyncio.get_running_loop()
        turn = self._turns.get(group)
        if turn is None or len(turn.waiting) >= MAX_KEYS:
            turn = self._turns[group] = _Turn()
            loop.call_soon(self._send, group, turn)
        future: _Future = loop.create_future()
        turn.waiting.setdefault(key, []).append(future)
        return future

    def _send(self, group: int, turn: _Turn) -> None:
        """Close the turn: whoever asks from now on belongs to the next one."""
        if self._turns.get(group) is turn:
            del self._turns[group]
        task = asyncio.get_running_loop().create_task(self._read(turn), name="reads of one turn")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, turn: _Turn) -> None:
        found: Mapping[bytes, Version | None] = {}
        timestamp = 0
        try:
            strong_ts = self._client.strong_timestamp()
            timestamp, found = await self._client.read_apart(list(turn.waiting), strong_ts, _TOGETHER_S)
        except F1Error:
            found = {}  # whose fault it is, each will see by himself
        finally:
            for key, futures in turn.waiting.items():
                seen = (timestamp, found[key]) if key in found else None
                for future in futures:
                    if not future.done():
                        future.set_result(seen)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
