"""Rows on their way into a query's connection: in memory while they are few, through a table that may spill if not."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from f1server.exec.duck import Connection

T = TypeVar("T")

__all__ = ["Collector", "Evaluator"]


class Evaluator(Protocol):
    """Who does work on connections, one thing at a time on each."""

    async def inline(self, work: Callable[[], T], connection: Connection | None = None) -> T:
        """Do something that takes time."""
        ...

    def brief(self, work: Callable[[], T], connection: Connection) -> Awaitable[T]:
        """Do something that takes no time."""
        ...


class Collector:
    """Takes over the rows of one relation of a query. Any number of tasks may add to it."""

    def __init__(
        self, evaluator: Evaluator, connection: Connection, relation: str, schema: Any, spool_bytes: int
    ) -> None:
        """``schema``: of all batches; more than ``spool_bytes`` of them go through a temporary table."""
        self.relation = relation
        self.schema = schema
        self.rows = 0
        self.bytes = 0
        self.spooled = False
        """Whether there is a temporary table."""
        self._evaluator = evaluator
        self._connection = connection
        self._spool_bytes = spool_bytes
        self._kept: list[Any] = []
        self._kept_bytes = 0

    async def add(self, batch: Any) -> None:
        """Take a batch over; returns once there is room for more. Raises F1Error."""
        self._kept.append(batch)
        self._kept_bytes += batch.nbytes
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        if self._kept_bytes > self._spool_bytes:
            await self._spool()

    async def finish(self) -> Any:
        """Let the query read the rows, and return them; None if they are in a temporary table. Raises F1Error."""
        if self.spooled:
            if self._kept:
                await self._spool()
            return None
        rows = pa.Table.from_batches(self._kept, schema=self.schema)
        self._kept = []
        await self._evaluator.brief(lambda: self._connection.register(self.relation, rows), self._connection)
        return rows

    async def _spool(self) -> None:
        # What is noted before the wait decides: work on a connection is done in the order in which it was asked for.
        rows, create = pa.Table.from_batches(self._kept, schema=self.schema), not self.spooled
        self._kept, self._kept_bytes, self.spooled = [], 0, True
        await self._evaluator.inline(lambda: self._connection.spool(self.relation, rows, create), self._connection)
