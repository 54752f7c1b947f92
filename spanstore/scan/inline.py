"""Scans in the server's own process, in steps short enough for the commits beside them: for the simulator and tests."""

import asyncio
from collections.abc import Callable

from f1common.clock import Clock
from spanstore.engine.base import Engine
from spanstore.scan.cursor import Step
from spanstore.scan.frames import Chunk
from spanstore.scan.plan import ScanPlan
from spanstore.scan.sketch import Cursor, open_cursor

_STEP_US = 5_000
_STEP_ROWS = 1_000


class InlineScan:
    """A scan that its reader executes, a step for each chunk."""

    def __init__(self, cursor: Cursor, step: Callable[[Cursor], Step]) -> None:
        self._cursor = cursor
        self._step = step
        self._begun = False

    async def next(self) -> Chunk:
        """Read on. Raises DATA_CORRUPTION, INVALID_ARGUMENT, UNAVAILABLE."""
        if not self._begun:
            self._begun = True
            found = self._cursor.schema()
        else:
            await asyncio.sleep(0)
            found = self._step(self._cursor)
        return Chunk(0, found.ipc, found.rows, found.range, found.resume, found.last)

    def close(self) -> None:
        """Do nothing: no view is open between steps."""


class InlineSource:
    """Executes scans on the engine that the server has open."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def open(self, plan: ScanPlan) -> InlineScan:
        """Begin a scan. Raises INVALID_ARGUMENT."""
        cursor = open_cursor(plan, lambda: self._clock.sample().boot_us, step_us=_STEP_US, max_rows=_STEP_ROWS)
        return InlineScan(cursor, self._one_step)

    def _one_step(self, cursor: Cursor) -> Step:
        with self._engine.snapshot() as reader:
            return cursor.step(reader)
