"""Waiting until all servers have a version of a schema: they are told of it, and leases end of the silent ones."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from f1common.clock import Clock
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.store import LeaseRow, SchemaStore, Sleep
from f1server.schemachange.jobs.ownership import Owner
from f1server.schemachange.jobs.wording import awaited_of

__all__ = ["LONGEST_POLL_S", "POLL_S", "Converge", "Nudge", "converge"]

LOG = logging.getLogger(__name__)

Nudge = Callable[[str, str, int], Awaitable[object]]
"""``await nudge(address, database, version)``: RefreshSchema at another server. Errors are ignored: its lease ends."""

Converge = Callable[[str, int], Awaitable[None]]
"""``await converge(database, version)``: wait until nobody can commit under an older version."""

POLL_S = 0.01
LONGEST_POLL_S = 0.2
_FORGET_LEASES = 100


async def converge(
    store: SchemaStore,
    leases: SchemaLeases,
    clock: Clock,
    nudge: Nudge,
    sleep: Sleep,
    *,
    database: str,
    version: int,
    owner: Owner | None = None,
) -> None:
    """Wait until nobody can commit under a version below ``version`` any more. Raises as ``owner`` obeys."""
    pause, told = POLL_S, False
    telling: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            rows = await store.leases(database)
            now = clock.sample().tt.earliest
            behind = [row for row in rows if row.end_below(version) >= now]
            if not behind:
                break
            if owner is not None:
                owner.step = f"waits until all servers have version {version}: {awaited_of(behind, version)}"
                await owner.obey()
                if pause == LONGEST_POLL_S and not told:
                    await owner.update()  # who looks at the job is to see whom it waits for
                    told = True
            for row in behind:
                task = telling.get(row.server)
                if row.version < version and (task is None or task.done()):
                    telling[row.server] = asyncio.create_task(_tell(leases, nudge, row, database, version))
            if telling:
                await asyncio.wait(telling.values(), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if pause > POLL_S or not telling:
                await sleep(pause)
            pause = min(pause * 1.5, LONGEST_POLL_S)
    finally:
        for task in telling.values():
            task.cancel()
    await _forget(store, database, rows, now)


async def _forget(store: SchemaStore, database: str, rows: Sequence[LeaseRow], now: int) -> None:
    """Remove the rows of servers that are gone for long."""
    age = max((row.lease_us for row in rows), default=0) * _FORGET_LEASES
    if any(row.ts + age < now for row in rows):
        await store.remove_expired(database, now - age)


async def _tell(leases: SchemaLeases, nudge: Nudge, row: LeaseRow, database: str, version: int) -> None:
    try:
        if row.server == leases.server:
            await leases.catch_up(database, version)
        else:
            await nudge(row.address, database, version)
    except Exception as error:
        LOG.info("%s did not take version %d of the schema of %s: %s", row.server, version, database, error)
