"""Whether a query runs at slaves, and how: what the SQL layer asks.

A query that reads a few rows by key runs on the server that took it; one that examines many is spread, if there are
slaves and the planner can cut it into parts (F1 section 8.1). ``/*+ CENTRAL */`` and ``/*+ DISTRIBUTED */`` in a
statement decide for it.
"""

import asyncio
import logging
import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from f1common.config import F1ServerSection
from f1common.errors import Code, F1Error
from f1common.rpc.backoff import Backoff
from f1server.dist.coordinator import Coordinator, DistributedResult, Pool, SpreadFailed
from f1server.dist.statistics import StatisticsCache
from f1server.plan.parts import DistributedPlan, PartScan
from f1server.plan.prepare import BoundQuery, Prepared
from f1server.plan.spread import JoinOptions, Unspreadable, examined, is_short, spread

__all__ = ["Choice", "DistributedQueries"]

_log = logging.getLogger(__name__)
_PATIENCE_S = 30.0
"""How long a query waits for slaves that are busy."""
_HINT = re.compile(r"/\*\+\s*(CENTRAL|DISTRIBUTED)\s*\*/", re.IGNORECASE)
_FINAL = frozenset({Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.SNAPSHOT_TOO_OLD})
"""What a central run would only meet again."""

Choice = DistributedPlan | str
"""A plan for slaves, or why the query runs centrally."""


class DistributedQueries:
    """Chooses and runs, for one f1server."""

    def __init__(
        self,
        coordinator: Coordinator,
        pool: Pool,
        statistics: StatisticsCache,
        config: F1ServerSection,
        executor: Executor | None,
        rng: random.Random,
    ) -> None:
        """``executor``: where plans are made, beside the event loop; None: in place."""
        self._coordinator = coordinator
        self._pool = pool
        self._statistics = statistics
        self._mode = config.distribute
        self._force = "" if config.force_join == "none" else config.force_join
        self._broadcast_rows = config.broadcast_rows
        self._least_rows = config.distribute_rows
        self._executor = executor
        self._rng = rng

    async def choose(
        self, text: str, query: Prepared, bound: BoundQuery, params: Sequence[object], now_us: int
    ) -> Choice:
        """Return a distributed plan, or the reason for a central run. Raises F1Error as planning does."""
        if bound.picks is not None:
            return "only keys: there is nothing to evaluate"
        mode, hinted = self._mode_of(text)
        if mode == "off":
            return "the statement asks for it" if hinted else "distribution is turned off (f1server.distribute)"
        if not bound.scans:
            return "no table is read"
        if mode != "force" and is_short(bound):
            return "every table is read by key or index"
        workers = self.workers()
        if not workers:
            return "no slave is alive"
        statistics = await self._statistics.fresh(query.schema, [s.scan.table for s in bound.scans])
        rows = examined(bound, statistics)
        if mode != "force" and rows < self._least_rows:
            return f"about {rows:,.0f} rows are examined: fewer than {self._least_rows:,} (distribute_rows)"
        joins = JoinOptions(self._broadcast_rows, self._force, workers)

        def plan() -> Choice:
            try:
                return spread(query, params, now_us, statistics, joins)
            except Unspreadable as error:
                return f"the planner does not spread it: {error}"
            except RecursionError:
                return "the planner does not spread it: it is nested too deeply"

        found = await self._beside(plan)
        if isinstance(found, str):
            return found
        asked = "the statement asks for it" if hinted else f"about {rows:,.0f} rows are examined"
        return DistributedPlan(found.schema, found.parts, found.columns, asked)

    def _mode_of(self, text: str) -> tuple[str, bool]:
        """Return whether a statement is to be distributed, and whether it says so itself."""
        hint = _HINT.search(text)
        mode = {"central": "off", "distributed": "force"}.get(hint[1].lower(), "") if hint else self._mode
        return mode, hint is not None

    def forced(self, text: str) -> bool:
        """Tell whether a statement is to be distributed however little it reads."""
        return self._mode_of(text)[0] == "force"

    async def _beside(self, work: Callable[[], Choice]) -> Choice:
        if self._executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def workers(self) -> int:
        """Return how many slaves a query that began now would use."""
        return len(self._pool.live())

    async def run(self, plan: DistributedPlan, timestamp: int, *, collect: bool = False) -> DistributedResult | None:
        """Run a plan, and ``collect`` the read set; None: run the query centrally, which works or says what is wrong.

        Raises F1Error.
        """
        plan = with_locks(plan) if collect else plan
        division = await self._statistics.division(plan.schema, [s for part in plan.parts for s in part.scans])
        loop = asyncio.get_running_loop()
        patience = loop.time() + _PATIENCE_S
        backoff = Backoff(100, 1_000, 1.5, self._rng)
        while True:
            try:
                return await self._coordinator.run(plan, timestamp=timestamp, clips=division.clips, collect=collect)
            except SpreadFailed as error:
                if error.code in _FINAL:
                    raise F1Error(error.code, error.message, details=error.details) from error
                # Slaves that are busy are waited for: this server would be busy, too, with all of their work.
                if error.code is not Code.OVERLOADED or not error.retryable or loop.time() > patience:
                    _log.warning("a distributed query runs centrally: %s", error)
                    return None
            await asyncio.sleep(backoff.next_s())

    async def close(self) -> None:
        """End what runs in the background."""
        await self._statistics.close()


def with_locks(plan: DistributedPlan) -> DistributedPlan:
    """Let every row that a plan looks at be noted, rejected ones too."""

    def noted(item: PartScan) -> PartScan:
        scan = replace(item.planned.scan, with_locks=True)
        return replace(item, planned=replace(item.planned, scan=scan))

    parts = (replace(part, scans=tuple(noted(scan) for scan in part.scans)) for part in plan.parts)
    return replace(plan, parts=tuple(parts))
