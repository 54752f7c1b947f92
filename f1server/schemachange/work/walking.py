"""What all walks of a schema change have in common: what is walked over, in which lots, the pace, and the fence of its
commits."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from f1server.catalog.schema import Schema
from f1server.schemachange.work.sums import EntrySum, added
from f1server.schemachange.work.tablework import TableWork

__all__ = ["SEGMENT_ROWS", "Ended", "Fence", "Pace", "Rest", "Tell", "Walk", "WalkKind", "cut", "divided", "paced"]

Fence = Callable[[], AbstractAsyncContextManager[Callable[[], int]]]
"""Entered for each commit: gives what tells the latest timestamp that it may have. Raises ABORTED if it may not be."""

T = TypeVar("T")

SEGMENT_ROWS = 250
"""Rows between two cuts of a walk, about: the least lot. At the lowest pace a worker has 125 rows a second."""
_COMMIT_ROWS = 500
_COMMIT_BYTES = 1 << 20


class WalkKind(StrEnum):
    """What is done on a walk. The numbers of ``f1.slave.StartWalk.Kind`` follow the order here."""

    CHANGE = "change"
    """Rows of a table are filled and validated, or cells are removed from them."""
    VERIFY_ROWS = "verify rows"
    """Rows of a table are held against what was filled and validated."""
    VERIFY_ENTRIES = "verify entries"
    """Entries of an index that was filled are held against their rows."""
    PURGE = "purge"
    """Rows of tables and entries of indexes that are dropped are deleted."""
    SUM_ROWS = "sum rows"
    """Rows of a table are held against what was filled and validated, but for entries: those that they should have are
    added up."""
    SUM_ENTRIES = "sum entries"
    """Entries of an index that was filled are added up."""

    @property
    def sums(self) -> bool:
        """Does it come to sums, all of which must be of one snapshot?"""
        return self in (WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES)


class Pace(Protocol):
    """Keeps the work from disturbing others."""

    async def begin(self, rows: int) -> None:
        """Wait until a batch of so many rows or entries may begin."""

    def end(self, rows: int) -> None:
        """The batch has ended, one way or another."""

    async def ahead(self, rows: int) -> None:
        """Wait after so many rows were read that are written later, many together."""

    def batch_rows(self) -> int:
        """Return how many rows or entries a batch that begins now should have at most: all wait while it commits."""

    async def lot_rows(self) -> int:
        """Return how many rows a lot that begins now should have, about: when it has ended is noted."""


Tell = Callable[[int, int], Awaitable[None]]
"""Called between batches with the numbers of rows and bytes since the last call; raises to stop the work."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk over the rows of ``work``'s table within ``[start, end)`` as of ``snapshot``, under ``schema``.

    If ``kind`` says so it is one over the entries of the only index of ``work``, or over keys of any kind.
    ``table_rows``: how many there are about in all, of which this is a part; 0: nobody knows. ``cuts``: keys within it,
    in order, at which it may be divided into lots. ``earlier``: parts of it may have been done at earlier snapshots.
    """

    schema: Schema
    work: TableWork
    start: bytes
    end: bytes
    snapshot: int
    kind: WalkKind = WalkKind.CHANGE
    table_rows: int = 0
    cuts: tuple[bytes, ...] = ()
    earlier: bool = False

    def within(self, start: bytes, end: bytes) -> "Walk":
        """Return a part of it."""
        return replace(self, start=start, end=end, cuts=tuple(cut for cut in self.cuts if start < cut < end))


class Rest(msgspec.Struct, frozen=True, array_like=True):
    """What is left of a walk, or of a partition, when some lots of it are done: the keys of ``[start, end)``.

    So many rows and bytes are done, and ``sums`` is what was added up in them.
    """

    start: bytes
    end: bytes
    rows: int = 0
    size: int = 0
    sums: dict[int, EntrySum] = {}

    def then(self, later: "Rest") -> "Rest":
        """Return what is left when of a walk over what was left here ``later`` is."""
        sums = added(self.sums, later.sums)
        return Rest(later.start, later.end, self.rows + later.rows, self.size + later.size, dict(sums))


Ended = Callable[[Rest], None]
"""Called when a lot has ended that is not the last one."""


def divided(walk: Walk, rows: int) -> tuple[Walk, Walk | None]:
    """Return the first lot of a walk and what is left then.

    A lot has about so many rows, but no fewer than lie between two cuts. What is deleted goes from a row's last
    descendant to itself, so lots of that are taken from the end.
    """
    segments = max(rows // SEGMENT_ROWS, 1)
    if segments > len(walk.cuts):
        return walk, None
    if walk.kind is WalkKind.PURGE:
        cut = walk.cuts[-segments]
        return walk.within(cut, walk.end), walk.within(walk.start, cut)
    cut = walk.cuts[segments - 1]
    return walk.within(walk.start, cut), walk.within(cut, walk.end)


@asynccontextmanager
async def paced(pace: Pace, rows: int) -> AsyncGenerator[None, None]:
    """Wait until a batch of so many rows or entries may begin, and tell when it has ended."""
    await pace.begin(rows)
    try:
        yield
    finally:
        pace.end(rows)


def cut(
    items: Iterable[T], size_of: Callable[[T], int], most_rows: Callable[[], int] = lambda: _COMMIT_ROWS
) -> Iterator[list[T]]:
    """Cut what is written into batches of one commit: not too many, and not too large unless one alone is.

    ``most_rows`` is asked for each batch as it begins, which is when the one before it has been written.
    """
    batch: list[T] = []
    size = most = 0
    for item in items:
        size += size_of(item)
        if batch and (len(batch) == most or size > _COMMIT_BYTES):
            yield batch
            batch, size = [], size_of(item)
        if not batch:
            most = min(most_rows(), _COMMIT_ROWS)
        batch.append(item)
    if batch:
        yield batch
