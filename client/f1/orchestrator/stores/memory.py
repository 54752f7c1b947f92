"""A store in memory, for tests and for data that ends with the process."""

from bisect import bisect_left, insort
from collections.abc import Sequence

from sortedcontainers import SortedDict

from f1.orchestrator.steps import Version, Write
from f1.orchestrator.stores.base import check_keys
from f1common.errors import check

__all__ = ["MemoryStore"]


class _Cell:
    """The versions of one cell: timestamps ascending, and the values by timestamp."""

    __slots__ = ("stamps", "values")

    def __init__(self) -> None:
        self.stamps: list[int] = []
        self.values: dict[int, bytes | None] = {}

    def put(self, ts: int, value: bytes | None) -> None:
        if ts not in self.values:
            insort(self.stamps, ts)
        self.values[ts] = value

    def newest(self, below: int) -> Version | None:
        place = bisect_left(self.stamps, below)
        return Version(self.stamps[place - 1], self.values[self.stamps[place - 1]]) if place else None


class MemoryStore:
    """Implements :class:`~f1.orchestrator.stores.base.Store`; may be shared by orchestrators of one event loop."""

    def __init__(self) -> None:
        """Start empty."""
        self._cells: SortedDict[bytes, _Cell] = SortedDict()

    async def get_versions(self, asked: Sequence[tuple[bytes, int]]) -> list[Version | None]:
        """Return the newest versions below the timestamps."""
        found = []
        for key, below in asked:
            cell = self._cells.get(key)
            found.append(None if cell is None else cell.newest(below))
        return found

    async def put(self, writes: Sequence[Write]) -> None:
        """Write versions. Raises F1Error KEY_TOO_LONG."""
        check_keys([write.key for write in writes])
        for write in writes:
            self._cell(write.key).put(write.ts, write.value)

    async def put_if_absent(self, write: Write) -> bytes:
        """Write a version unless there is one; return what is there. Raises F1Error KEY_TOO_LONG."""
        check_keys([write.key])
        cell = self._cell(write.key)
        if write.ts not in cell.values:
            cell.put(write.ts, write.value)
        found = cell.values[write.ts]
        check(found is not None, "what is put if absent has a value")
        return found or b""

    def _cell(self, key: bytes) -> _Cell:
        cell: _Cell | None = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        return cell

    async def range(
        self, start: bytes, end: bytes, below: int, limit: int, *, every: bool = False
    ) -> list[tuple[bytes, list[Version]]]:
        """Return cells in the order of their keys."""
        page: list[tuple[bytes, list[Version]]] = []
        for key in self._cells.irange(start, end, inclusive=(True, False)):
            if len(page) == limit:
                break
            cell = self._cells[key]
            place = bisect_left(cell.stamps, below)
            stamps = cell.stamps[:place][::-1] if every else cell.stamps[max(place - 1, 0) : place]
            if stamps:
                page.append((key, [Version(ts, cell.values[ts]) for ts in stamps]))
        return page

    async def delete(self, versions: Sequence[tuple[bytes, int]]) -> None:
        """Remove versions."""
        for key, ts in versions:
            cell = self._cells.get(key)
            if cell is not None and ts in cell.values:
                del cell.values[ts]
                cell.stamps.remove(ts)
                if not cell.stamps:
                    del self._cells[key]

    async def close(self) -> None:
        """Keep everything: whoever still has this store may go on."""
