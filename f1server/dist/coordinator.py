"""Drives a distributed query from the f1server that took it: starts the parts at slaves, watches them, and runs the
root part (F1 section 8.2)."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1common.pb import slave_pb2_grpc as stubs
from f1common.rpc.backoff import Backoff
from f1common.rpc.channels import ChannelCache
from f1common.rpc.deadlines import NEVER, Deadline, within
from f1server.dist.attempt import WINDOW_BYTES, Attempt, Clips, Order
from f1server.dist.evaluation import PartEvaluation
from f1server.dist.scheduler import Scheduler, SchedulerLimits, Worker
from f1server.dist.stats import SERVER, RunStats
from f1server.dist.topology import check_parts
from f1server.exec.engine import Engine, QueryResult, cast_batch, result_columns
from f1server.exec.source import Source
from f1server.txn.readset import ReadSetEntry
from f1server.plan.parts import DistributedPlan
from f1server.txn.reader import RowReader
from f1server.txn.source import StorageSource
from spanstore.client import SpanClient

__all__ = ["Clips", "Coordinator", "DistributedResult", "Pool", "SlaveMember", "SpreadFailed"]


class SlaveMember(Protocol):
    """A slave that may be used."""

    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def address(self) -> str: ...


class Pool(Protocol):
    """Who may be used; what the coordinator asks of :mod:`f1server.dist.pool`."""

    def live(self) -> Sequence[SlaveMember]:
        """Return the slaves that work, by name."""
        ...

    def suspect(self, name: str, incarnation: int, reason: str) -> None:
        """Leave a slave out for a while: it broke off or fell silent."""
        ...


class SpreadFailed(F1Error):
    """The query cannot be run by slaves now; running it on the f1server may work, or tell what is wrong with it."""


class DistributedResult:
    """The result of the root part, which streams, and what the parts cost."""

    def __init__(
        self, result: QueryResult, slaves: RunStats, root: PartEvaluation, read_set: Sequence[ReadSetEntry] = ()
    ) -> None:
        self.result = result
        self.read_set = read_set
        """What slaves looked at, if that was collected; a row that several read is there several times."""
        self._slaves = slaves
        self._root = root

    @property
    def stats(self) -> RunStats:
        """What the parts cost so far: final for slaves, and for the root part once the result is read."""
        return replace(self._slaves, parts=(*self._slaves.parts, self._root.stats(SERVER)))


class Coordinator:
    """Runs distributed plans. One for each f1server."""

    def __init__(
        self,
        pool: Pool,
        engine: Engine,
        client: SpanClient,
        channels: ChannelCache,
        rng: random.Random,
        limits: SchedulerLimits | None = None,
        *,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """``engine`` evaluates root parts; ``client`` is for the scans that a root part may have; ``window_bytes``: how
        much may be on its way from one worker to another."""
        self._pool = pool
        self._engine = engine
        self._client = client
        self._channels = channels
        self._rng = rng
        self._limits = limits or SchedulerLimits()
        self._window_bytes = window_bytes

    async def run(
        self,
        plan: DistributedPlan,
        *,
        timestamp: int,
        deadline: Deadline = NEVER,
        clips: Clips | None = None,
        collect: bool = False,
    ) -> DistributedResult:
        """Run a plan at ``timestamp`` and return its result, whose rows stream from the root part.

        By then everything has ended at the slaves. A slave that dies or falls silent costs a new attempt without it;
        nobody sees that. ``clips`` deals out divided scans; without it the first worker reads all. ``collect`` the read
        set. Cancelling the coroutine, or closing the result, frees everything.

        Raises SpreadFailed, with the code of the cause, when the query cannot be run so: a part's evaluation failed,
        no slave is left (UNAVAILABLE), or four attempts failed; DEADLINE_EXCEEDED.
        """
        check_parts(plan.parts)
        order = Order(new_id(self._rng), plan, timestamp, deadline, clips, self._window_bytes, collect=collect)
        attempt = await within(deadline, self._succeed(order))
        try:
            result = await within(deadline, self._root(order, attempt.root))
        except F1Error as error:
            await attempt.root.close()
            raise error if error.code is Code.DEADLINE_EXCEEDED else _spread_failed(error) from error
        except BaseException:
            await attempt.root.close()
            raise
        return DistributedResult(result, attempt.stats(), attempt.root, attempt.read_set)

    async def _succeed(self, order: Order) -> Attempt:
        """Return the attempt that succeeded; its root part has all its inputs."""
        scheduler = Scheduler(self._limits)
        backoff = Backoff(10, 400, 3, self._rng)
        try:
            while True:
                live = [Worker(s.name, s.incarnation, s.address) for s in self._pool.live()]
                effects = scheduler.begin(live, _now_us())
                if effects.failed is not None:
                    raise _spread_failed(effects.failed)
                attempt = Attempt(order, scheduler, effects.start, self._engine, self._open_run, self._pool.suspect)
                error = await attempt.run()
                if error is not None:
                    raise _spread_failed(error)
                if scheduler.ended:
                    return attempt
                await asyncio.sleep(backoff.next_s())
        finally:
            scheduler.cancel()

    def _open_run(self, worker: Worker) -> Any:
        return stubs.SlaveStub(self._channels.get(worker.address)).Run()

    async def _root(self, order: Order, root: PartEvaluation) -> QueryResult:
        """Begin the root part, until its first rows: what is wrong with it mostly shows by then."""
        plan = order.plan
        reader = RowReader(self._client, plan.schema, timestamp=order.timestamp)
        source: Source = StorageSource(reader, self._client)
        await root.fill(plan.schema, [item.planned for item in root.part.scans], source)
        schema = await root.query(root.part.sql)
        columns, target = result_columns(schema, plan.columns)
        rows = self._engine.duck.config.batch_rows
        first = await root.next_batch(rows)

        async def batches() -> AsyncIterator[Any]:
            try:
                batch = first
                while batch is not None:
                    yield cast_batch(batch, target)
                    batch = await root.next_batch(rows)
            finally:
                await root.close()

        return QueryResult(columns, target, batches(), root.abandon)


def _now_us() -> int:
    return round(asyncio.get_running_loop().time() * 1_000_000)


def _spread_failed(error: F1Error) -> SpreadFailed:
    return SpreadFailed(
        error.code, error.message, retryable=error.retryable, ambiguous=error.ambiguous, details=error.details
    )
