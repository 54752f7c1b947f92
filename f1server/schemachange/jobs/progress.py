"""How far the work on rows is: counted by the owner of a change, and shown in its row."""

from typing import Protocol

from f1common.clock import Clock
from f1server.schemachange.jobs.ownership import Owner

__all__ = ["Progress", "Watch"]


class Watch(Protocol):
    """Watches the work on data; called between batches."""

    @property
    def job(self) -> int:
        """Number of the schema change that the work is for; 0: none, so that nothing is remembered of it."""

    def expect(self, rows: int, *, done: int = 0, size: int = 0) -> None:
        """About so many more rows are worked on; ``done`` of them, with ``size`` bytes, have been before."""

    async def __call__(self, rows: int, size: int) -> None:
        """So many more rows, with so many bytes, are done (below 0: again to be done). Raises to stop the work."""


class Progress:
    """The :class:`Watch` of the owner of a change."""

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._clock = clock
        self._began_us = clock.sample().boot_us
        self._here = 0
        owner.rows = owner.bytes = owner.rows_total = owner.left_ms = 0

    @property
    def job(self) -> int:
        """Number of the change."""
        return self._owner.job.number

    @property
    def worked(self) -> int:
        """How many rows were worked on since this began."""
        return self._here

    def expect(self, rows: int, *, done: int = 0, size: int = 0) -> None:
        """About so many more rows are worked on; ``done`` of them, with ``size`` bytes, have been before."""
        self._owner.rows_total += rows
        self._owner.rows += done
        self._owner.bytes += size

    async def __call__(self, rows: int, size: int) -> None:
        """So many more rows are done. Raises what the owner obeys."""
        owner = self._owner
        self._here += rows
        owner.rows += rows
        owner.bytes += size
        took_us = self._clock.sample().boot_us - self._began_us
        left = max(owner.rows_total - owner.rows, 0)
        owner.left_ms = left * took_us // self._here // 1000 if self._here > 0 else 0
        await owner.obey()
