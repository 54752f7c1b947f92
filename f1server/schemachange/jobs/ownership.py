"""Holding on to a job: its owner keeps the row fresh, obeys what is written there, and notices when it was replaced."""

import asyncio
import contextlib
import logging
from typing import Any

from msgspec.structs import replace

from f1common.errors import Code, F1Error
from f1server.schemachange.jobs.jobs import OWNER_LEASE_US, Job, JobRow, JobState, JobStore, Order
from spanstore.client.values import Precondition

__all__ = ["GaveUp", "Lost", "Outdated", "Owner", "Paused", "Turned"]

LOG = logging.getLogger(__name__)

_BEAT_S = OWNER_LEASE_US / 4 / 1e6


class Lost(Exception):
    """Somebody else carries the job on."""


class Paused(Exception):
    """Nobody carries the job on for the time being."""


class Turned(Exception):
    """The job goes back now."""


class Outdated(Exception):
    """Roles were changed meanwhile: what was planned before counts no more."""


class GaveUp(Exception):
    """The job cannot be brought to its goal, nor taken back."""


class _Overruled(Exception):
    """Somebody ordered something else meanwhile."""


class Owner:
    """The owner's hold on a job: the row as it was last written, and how it is kept."""

    def __init__(self, jobs: JobStore, row: JobRow) -> None:
        self._jobs = jobs
        self._lock = asyncio.Lock()
        self.row = row
        self.step = row.job.step
        self.rows = 0
        self.place = (0, 0)
        """Which of how many steps."""
        self.bytes = 0
        self.rows_total = 0
        self.left_ms = 0

    @property
    def job(self) -> Job:
        """The job as it was last written or read."""
        return self.row.job

    async def update(self, *, answers: Order | None = None, **changes: Any) -> None:
        """Change the row. What others ordered meanwhile is kept. Raises Lost.

        ``answers``: the order because of which it is changed. If there is another, nothing is: raises _Overruled.
        """
        async with self._lock:
            while True:
                if answers is not None and self.row.job.order is not answers:
                    raise _Overruled
                told = {"step": self.step, "owned_ts": 0, "joint": True, **self._place(), **self._work()}
                job = replace(self.row.job, **told, **changes)
                try:
                    self.row = await self._jobs.put(self.row, job)
                    return
                except F1Error as error:
                    if error.code is not Code.ABORTED:
                        raise
                await self._read()

    def _place(self) -> dict[str, int]:
        return {"step_number": self.place[0], "steps": self.place[1]}

    def _work(self) -> dict[str, int]:
        return {"rows": self.rows, "bytes": self.bytes, "rows_total": self.rows_total, "left_ms": self.left_ms}

    async def _read(self) -> None:
        found = await self._jobs.running(self.job.database)
        mine = self.job
        if found is None or (found.job.number, found.job.owner, found.job.epoch) != (
            mine.number,
            mine.owner,
            mine.epoch,
        ):
            raise Lost
        self.row = found

    async def look(self) -> Job:
        """Return the job as its row says it now. Raises Lost."""
        async with self._lock:
            await self._read()
            return self.job

    async def fence(self, planned: Job) -> Precondition:
        """Return what a version of the schema that is written for this job must expect.

        Raises Lost, and Outdated if it leads elsewhere than it did when that version was planned.
        """
        async with self._lock:
            await self._read()
            if not self.job.same_ends(planned):
                raise Outdated
            return self.row.unchanged

    async def beat(self) -> None:
        """Write the row again and again, until cancelled or lost."""
        while True:
            await asyncio.sleep(_BEAT_S)
            try:
                await self.update()
            except F1Error as error:
                LOG.info("schema change %d: its row was not written: %s", self.job.number, error)
            except Lost:
                return

    async def obey(self) -> None:
        """Do what was ordered. Raises Paused, Turned, Lost."""
        while (order := self.job.order) is not Order.NONE:
            with contextlib.suppress(_Overruled):
                await self._obey(order)

    async def _obey(self, order: Order) -> None:
        back = self.job.state is JobState.UNDOING
        if order is Order.PAUSE:
            await self.update(answers=order, order=Order.NONE, state=JobState.PAUSED, back=back, owner="")
            raise Paused
        if self.job.no_return or back:
            await self.update(answers=order, order=Order.NONE)
            return
        await self.update(answers=order, order=Order.NONE, state=JobState.UNDOING, reorganised=0)
        raise Turned

    async def pass_no_return(self) -> None:
        """From now on the job only goes on, unless an order came first. Raises as :meth:`obey`."""
        while not self.job.no_return:
            await self.obey()
            with contextlib.suppress(_Overruled):
                await self.update(answers=Order.NONE, no_return=True)
