"""The log as a replica sees it: a tail in memory before the durable log of the engine."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from f1common.errors import check
from spanstore.paxos.messages import NO_BALLOT, Ballot, LogEntry

ENTRY_OVERHEAD_BYTES = 32
"""What an entry costs besides its payload, in messages and in memory, roughly."""


class LogReader(Protocol):
    """The durable log. Reads see every write that ``Replica.synced`` was told of; later ones may show or not.

    A log that was truncated below index T has ``first_index() == T``; one never truncated has 1.
    """

    def first_index(self) -> int:
        """Return the lowest index that is kept."""
        ...

    def last_index(self) -> int:
        """Return the highest index that is kept, ``first_index() - 1`` if there is none."""
        ...

    def ballot_at(self, index: int) -> Ballot | None:
        """Return the ballot of the entry at ``index``, None if it is not kept."""
        ...

    def entries(self, first: int, max_bytes: int) -> list[LogEntry]:
        """Return entries from ``first`` on, in order, payloads of at most ``max_bytes`` but one entry at least.

        Empty if ``first`` is not kept.
        """
        ...


_MARK_BYTES = 1 << 18


class LogSizes:
    """About how many bytes the newest part of a log has: a mark for every quarter of a mebibyte since the start."""

    __slots__ = ("_bytes", "_low", "_marks")

    def __init__(self) -> None:
        self._bytes = 0
        self._low = 0
        self._marks: deque[tuple[int, int]] = deque()

    def appended(self, index: int, size: int) -> None:
        """Note an entry of ``size`` bytes."""
        self._bytes += size
        if not self._marks or self._bytes - self._marks[-1][1] >= _MARK_BYTES:
            self._marks.append((index, self._bytes))

    def truncated(self, first: int, size: int) -> None:
        """Note that the entries from ``first`` on, ``size`` bytes as far as known, are gone."""
        self._bytes -= size
        while self._marks and self._marks[-1][0] >= first:
            self._marks.pop()
        self._low = min(self._low, first - 1)

    def newest(self, size: int) -> int:
        """Return an index above which the log has about ``size`` bytes, 0 if it never had so many."""
        while self._marks and self._bytes - self._marks[0][1] > size:
            self._low, _ = self._marks.popleft()
        return self._low


class LogTail:
    """The whole log: its newest entries in memory, the others read through a :class:`LogReader`.

    In memory are at least all entries that are not known to be durable, so the durable log is never asked for
    something that a write in flight may change.
    """

    __slots__ = (
        "_cache_bytes",
        "_ends",
        "_entries",
        "_first",
        "_reader",
        "_sizes",
        "durable_index",
        "first_index",
        "last_ballot",
        "last_index",
    )

    def __init__(self, reader: LogReader, cache_bytes: int) -> None:
        """``cache_bytes`` bounds the durable entries kept in memory, roughly."""
        self._reader = reader
        self._cache_bytes = cache_bytes
        self._entries: list[LogEntry] = []
        self._sizes = LogSizes()
        # _ends[i]: bytes of all entries ever appended up to and including _entries[i]; only differences mean anything.
        self._ends: list[int] = []
        # Lowest index kept, as decided: the durable log may still have more.
        self.first_index = reader.first_index()
        self.last_index = reader.last_index()
        self._first = self.last_index + 1
        self.durable_index = self.last_index
        self.last_ballot = self._required(self.last_index)

    def _required(self, index: int) -> Ballot:
        ballot = self.ballot_at(index)
        check(ballot is not None, f"the log lacks entry {index}, its last")
        return ballot or NO_BALLOT

    def ballot_at(self, index: int) -> Ballot | None:
        """Return the ballot of the entry at ``index``, NO_BALLOT for index 0, None if it is not kept."""
        if index >= self._first:
            at = index - self._first
            return self._entries[at].ballot if at < len(self._entries) else None
        return self._reader.ballot_at(index) if index > 0 else NO_BALLOT

    def append(self, entry: LogEntry) -> None:
        """Add the next entry."""
        size = len(entry.payload) + ENTRY_OVERHEAD_BYTES
        self._ends.append((self._ends[-1] if self._ends else 0) + size)
        self._sizes.appended(entry.index, size)
        self._entries.append(entry)
        self.last_index = entry.index
        self.last_ballot = entry.ballot

    def all_from(self, first: int) -> Iterator[LogEntry]:
        """Yield the entries from ``first`` on, a mebibyte at a time."""
        while found := self.entries(first, self.last_index, 1 << 20)[0]:
            yield from found
            first = found[-1].index + 1

    def newest(self, entries: int, size: int) -> int:
        """Return the index above which lie the newest ``entries``, or about ``size`` bytes if those are fewer."""
        return max(self.last_index - entries, self._sizes.newest(size))

    def truncate(self, first: int) -> None:
        """Drop the entries from ``first`` on."""
        at = max(first - self._first, 0)
        if at < len(self._ends):
            before = self._ends[at] - len(self._entries[at].payload) - ENTRY_OVERHEAD_BYTES
            self._sizes.truncated(first, self._ends[-1] - before)
        else:
            self._sizes.truncated(first, 0)
        del self._entries[at:]
        del self._ends[at:]
        if first < self._first:
            self._first = first
        self.last_index = first - 1
        self.durable_index = min(self.durable_index, self.last_index)
        self.last_ballot = self._required(self.last_index)

    def synced(self, entry: LogEntry) -> None:
        """Take in that ``entry`` and all before it were written, unless the log has another entry there by now."""
        if entry.index > self.durable_index and self.ballot_at(entry.index) == entry.ballot:
            # Same index and ballot: same entry and same log before it, all of it on disk.
            self.durable_index = entry.index
            self._evict()

    def _evict(self) -> None:
        if not self._ends:
            return
        base = self._ends[0] - len(self._entries[0].payload) - ENTRY_OVERHEAD_BYTES
        excess = self._ends[-1] - base - self._cache_bytes
        if excess <= self._cache_bytes // 4:
            return  # in steps, since removing from the front of a list moves all that follows
        drop = min(bisect_right(self._ends, base + excess), self.durable_index - self._first + 1)
        del self._entries[:drop]
        del self._ends[:drop]
        self._first += drop

    def entries(self, first: int, last: int, max_bytes: int) -> tuple[list[LogEntry], int]:
        """Return entries ``first`` to at most ``last`` and their size: ``max_bytes`` at most, but one at least.

        Fewer may come than would fit (at the border between disk and memory); none if ``first`` is not kept.
        """
        last = min(last, self.last_index)
        if first > last:
            return [], 0
        at = first - self._first
        if at >= 0:
            ends = self._ends
            base = ends[at] - len(self._entries[at].payload) - ENTRY_OVERHEAD_BYTES
            stop = last - self._first + 1
            if ends[stop - 1] - base > max_bytes:
                stop = max(bisect_right(ends, base + max_bytes, at, stop), at + 1)
            return self._entries[at:stop], ends[stop - 1] - base
        found = self._reader.entries(first, max_bytes)
        if not found or found[0].index != first:
            return [], 0
        found = found[: min(last, self._first - 1) - first + 1]
        return found, sum(len(entry.payload) + ENTRY_OVERHEAD_BYTES for entry in found)
