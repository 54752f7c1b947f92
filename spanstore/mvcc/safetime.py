"""Safe time: up to which timestamp a replica has everything (Spanner, section 4.1.3).

A leader's safe time is a pair (index, ts): whoever has applied the log up to ``index`` has every commit at or below
``ts``, now and for ever. The leader may say so because it has given out a promise (no later timestamp at or below
``ts``) and because nothing undecided lies at or below it.
"""

import heapq
from collections import deque

from f1common.clock import TTInterval

_MAX_PAIRS = 1024


class LeaderSafeTime:
    """The timestamps that a leader gave to transactions whose end is not durable yet: they hold safe time back."""

    __slots__ = ("_heap", "_ts_of")

    def __init__(self) -> None:
        self._ts_of: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []

    def begin(self, txn: bytes, ts: int) -> None:
        """``txn`` prepares or commits at ``ts``, before its entry is proposed. The first timestamp counts."""
        if txn not in self._ts_of:
            self._ts_of[txn] = ts
            heapq.heappush(self._heap, (ts, txn))

    def end(self, txn: bytes) -> None:
        """``txn`` is decided and its rows are applied; harmless if it is not known."""
        self._ts_of.pop(txn, None)

    def held_ts(self, txn: bytes) -> int | None:
        """Return the lowest timestamp at which ``txn`` may come to lie, None if it is decided or not known.

        A read of its keys at or above that must wait.
        """
        return self._ts_of.get(txn)

    def oldest(self) -> tuple[int, bytes] | None:
        """Return (timestamp, transaction) of who holds safe time back the most."""
        heap = self._heap
        while heap and self._ts_of.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)  # ended meanwhile
        return heap[0] if heap else None

    def safe_ts(self, now: TTInterval, ceiling: int) -> int:
        """Return the highest timestamp that may be promised and called safe now; the caller then promises it."""
        ts = min(now.latest, ceiling)
        oldest = self.oldest()
        return ts if oldest is None else min(ts, oldest[0] - 1)

    def __len__(self) -> int:
        return len(self._ts_of)


class FollowerSafeTime:
    """What a replica may answer by itself: the leader's pairs, once what they rest on is applied.

    A pair of a deposed leader stays true: what its log lost was never chosen, and its successors start above the
    ceiling under which it promised.
    """

    __slots__ = ("_applied", "_pairs", "_safe_ts")

    def __init__(self) -> None:
        self._applied = 0
        self._safe_ts = 0
        self._pairs: deque[tuple[int, int]] = deque()

    @property
    def safe_ts(self) -> int:
        """Every commit at or below this is applied here; never goes back."""
        return self._safe_ts

    def learn(self, index: int, ts: int) -> None:
        """The leader says that ``ts`` is safe for whoever has applied ``index``."""
        if index <= self._applied:
            self._safe_ts = max(self._safe_ts, ts)
            return
        pairs = self._pairs
        if ts <= self._safe_ts or (pairs and ts <= pairs[-1][1]):
            return  # nothing new, or an old message
        while pairs and pairs[-1][0] >= index:
            pairs.pop()  # this pair promises more for less
        if len(pairs) >= _MAX_PAIRS:
            pairs.pop()  # far behind: coarser steps do
        pairs.append((index, ts))

    def applied(self, index: int) -> None:
        """The log up to ``index`` is applied and durable."""
        if index <= self._applied:
            return
        self._applied = index
        pairs = self._pairs
        while pairs and pairs[0][0] <= index:
            self._safe_ts = max(self._safe_ts, pairs.popleft()[1])
