"""One part at one worker: what it needs comes in, DuckDB evaluates it.

The same code runs at slaves and, for the root part, at the f1server.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema
from f1server.dist.stats import PartStats, ReadStats
from f1server.exec.collect import Collector
from f1server.exec.duck import Connection
from f1server.exec.engine import Engine
from f1server.exec.source import Source
from f1server.plan.parts import Part
from f1server.plan.prepare import PlannedScan

__all__ = ["PartEvaluation"]


class PartEvaluation:
    """Runs a part once. Inputs are taken from the moment it is open, whatever the part does meanwhile."""

    def __init__(self, engine: Engine, part: Part, givers: Mapping[str, frozenset[int]]) -> None:
        """``givers``: for each input who gives rows, as :func:`f1server.dist.topology.givers` says."""
        self.part = part
        self.scan_us = 0
        self.input_us = 0
        self.evaluate_us = 0
        self.rows_out = 0
        self._engine = engine
        self._connection: Connection | None = None
        self._awaited = {relation: set(who) for relation, who in givers.items()}
        self._inputs: dict[str, Collector] = {}
        self._scans: list[Collector] = []
        self._complete = asyncio.Event()
        self._complete_s = 0.0
        self._began_s = 0.0
        self._results: Iterator[Any] | None = None

    async def open(self) -> None:
        """Get ready to take inputs."""
        connection = await self._engine.inline(self._engine.duck.connection)
        self._connection = connection
        self._began_s = self._complete_s = asyncio.get_running_loop().time()
        if not self._awaited:
            self._complete.set()

    async def take(self, relation: str, giver: int, schema: Any, batch: Any, last: bool) -> None:
        """Take what ``giver`` gives for an input: its schema, rows (or None), whether that was all.

        Returns once it is taken over. Raises F1Error; INVALID_ARGUMENT for what nobody asked for.
        """
        if giver not in self._awaited.get(relation, ()):
            raise F1Error(Code.INVALID_ARGUMENT, f"worker {giver} has no rows to give for {relation!r}")
        collector = self._inputs.get(relation)
        if collector is None:
            collector = self._inputs[relation] = self._engine.collector(self._open, relation, schema)
        if batch is not None and batch.num_rows:
            if not batch.schema.equals(collector.schema):
                raise F1Error(Code.INVALID_ARGUMENT, f"the rows of worker {giver} for {relation!r} are of other types")
            await collector.add(batch)
        if last:
            await self._ended(relation, giver, collector)

    async def _ended(self, relation: str, giver: int, collector: Collector) -> None:
        self._awaited[relation].discard(giver)
        if not self._awaited[relation]:
            await collector.finish()
            del self._awaited[relation]
        if not self._awaited:
            self._complete_s = asyncio.get_running_loop().time()
            self._complete.set()

    def awaits(self, giver: int) -> bool:
        """Tell whether ``giver`` still has rows to give."""
        return any(giver in who for who in self._awaited.values())

    @property
    def complete(self) -> bool:
        """Whether all inputs are there."""
        return self._complete.is_set()

    async def fill(self, schema: Schema, scans: Sequence[PlannedScan], source: Source) -> None:
        """Read the scans and wait for the inputs. Raises F1Error."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._scans = await self._engine.feed(self._open, schema, scans, self.part.functions, source, together=True)
        self.scan_us = _us(loop.time() - began_s) if scans else 0
        await self._complete.wait()
        self.input_us = _us(self._complete_s - self._began_s) if self.part.inputs else 0

    async def query(self, sql: str) -> Any:
        """Begin the part's query, as ``sql``, and return the Arrow schema of its result. Raises F1Error."""
        began_s = asyncio.get_running_loop().time()
        connection = self._open

        def start() -> tuple[Any, Iterator[Any]]:
            connection.require_query(sql)
            return connection.query(sql, self.part.bound)

        schema, self._results = await self._engine.inline(start, connection)
        self._evaluated(began_s)
        return schema

    async def next_batch(self, rows: int) -> Any:
        """Return the next batch of the result, of about ``rows`` rows if there are so many; None: that was all."""
        results = self._results
        if results is None:
            raise F1Error(Code.CANCELLED, f"part {self.part.id} is not running here any more")
        began_s = asyncio.get_running_loop().time()
        batch = await self._engine.inline(partial(_pull, results, rows), self._open)
        self._evaluated(began_s)
        self.rows_out += batch.num_rows if batch is not None else 0
        return batch

    def _evaluated(self, began_s: float) -> None:
        self.evaluate_us += _us(asyncio.get_running_loop().time() - began_s)

    @property
    def _open(self) -> Connection:
        if self._connection is None:
            raise F1Error(Code.CANCELLED, f"part {self.part.id} is not running here any more")
        return self._connection

    def stats(self, worker: str) -> PartStats:
        """Return what the part cost here so far; what it sent is added by whoever sent it."""
        reads = [_read(collector, True) for collector in self._scans]
        reads += [_read(collector, False) for _, collector in sorted(self._inputs.items())]
        return PartStats(
            self.part.id,
            worker,
            tuple(reads),
            rows_out=self.rows_out,
            scan_us=self.scan_us,
            input_us=self.input_us,
            evaluate_us=self.evaluate_us,
        )

    def abandon(self) -> None:
        """Give everything back at once: nobody works on the part now."""
        connection, self._connection = self._connection, None
        self._results = None
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Give everything back. Whoever still works on the part gets CANCELLED."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.interrupt()
        async with connection.turn:
            self._results = None
            connection.close()


def _pull(results: Iterator[Any], rows: int) -> Any:
    """Return several small batches as one: each costs the same whatever its size."""
    batches: list[Any] = []
    found = 0
    while found < rows and (batch := next(results, None)) is not None:
        if batch.num_rows:
            batches.append(batch)
            found += batch.num_rows
    if len(batches) > 1:
        return pa.concat_batches(batches)
    return batches[0] if batches else None


def _read(collector: Collector, scan: bool) -> ReadStats:
    return ReadStats(collector.relation, scan, collector.rows, collector.bytes, collector.spooled)


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
