"""Removing the rows of dropped databases: by the server that dropped one, or by another if that one is gone.

Nobody uses these rows and their ids are never given out again, so it does no harm if two servers remove them at once;
the lease on the row of a dropped database only keeps that from being the rule.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1server.catalog.dropped import Dropped, DroppedDatabases
from f1server.schemachange.jobs.jobs import OWNER_LEASE_US

__all__ = ["Removals"]

LOG = logging.getLogger(__name__)

_BEAT_S = OWNER_LEASE_US / 4 / 1e6

Purge = Callable[[Dropped], Awaitable[None]]
"""Deletes all rows of a dropped database, once no server uses it any more."""


class Removals:
    """What one server removes."""

    def __init__(
        self,
        dropped: DroppedDatabases,
        server: str,
        clock: Clock,
        purge: Purge,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """``sleep`` as :func:`asyncio.sleep`."""
        self._dropped = dropped
        self._server = server
        self._clock = clock
        self._purge = purge
        self._sleep = sleep
        self._mine: dict[bytes, asyncio.Task[None]] = {}

    async def remove(self, database: str) -> None:
        """Remove what this server has just dropped. If the caller is cancelled, or it fails, others go on with it."""
        for row in await self._dropped.listed():
            if row.database == database and row.owner == self._server:
                await asyncio.shield(self._start(row))

    async def go_on(self) -> None:
        """Begin to remove what servers that are gone have left, or what failed here. Raises what storage raises."""
        for row in await self._dropped.listed():
            if row.key in self._mine or self._clock.sample().tt.earliest <= row.ts + OWNER_LEASE_US:
                continue
            try:
                taken = await self._dropped.take(row, self._server)
            except F1Error as error:
                if error.code is not Code.ABORTED:
                    raise
                continue  # another server was first
            LOG.info("the rows of the dropped database %s are removed here", row.database)
            self._start(taken)

    async def close(self) -> None:
        """Leave what is being removed here to others."""
        tasks = list(self._mine.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, row: Dropped) -> "asyncio.Task[None]":
        task = self._mine.get(row.key)
        if task is None:
            task = asyncio.create_task(self._remove(row), name=f"removing the database {row.database}")
            self._mine[row.key] = task
            task.add_done_callback(lambda _: self._mine.pop(row.key, None))
        return task

    async def _remove(self, row: Dropped) -> None:
        held = [row]
        beat = asyncio.create_task(self._beat(held), name="owner of a removal")
        try:
            await self._purge(row)
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
            await self._dropped.forget(held[0])
        except F1Error as error:
            LOG.warning("rows of the dropped database %s are still there: %s", row.database, error)
        finally:
            beat.cancel()

    async def _beat(self, held: list[Dropped]) -> None:
        """Write the row again and again, until cancelled or replaced."""
        while True:
            await self._sleep(_BEAT_S)
            try:
                # Cancelled in the middle, it may have been written or not: whoever looks next finds it and goes on.
                held[0] = await self._dropped.take(held[0], self._server)
            except F1Error as error:
                if error.code is Code.ABORTED:
                    return
                with contextlib.suppress(F1Error):
                    found = [row for row in await self._dropped.listed() if row.key == held[0].key]
                    if found and found[0].owner == self._server:
                        held[0] = found[0]  # it was written after all
