"""Distributed plans run in this process, worker by worker, over tables in memory: what plans mean, without network."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1server.catalog.schema import Schema, Table
from f1server.dist.dealing import Dealer
from f1server.dist.topology import ROOT, runs_at
from f1server.exec.engine import Engine, QueryResult, cast_batch, result_columns
from f1server.exec.source import TableScan
from f1server.plan.parts import DistributedPlan, Part
from f1server.plan.statistics import TableStats
from f1server.rows.values import Row
from f1server.testing.memory import MemoryTables


@dataclass(frozen=True)
class MemoryStatistics:
    """The sizes of tables in memory. ``factor``: taken for so much larger."""

    tables: MemoryTables
    factor: int = 1

    def table(self, table: Table) -> TableStats | None:
        """See :class:`Statistics`."""
        return TableStats(len(self.tables.rows(table)) * self.factor, 100.0)


class Share(MemoryTables):
    """One worker's rows: those of some roots."""

    def __init__(self, schema: Schema, whole: MemoryTables, worker: int, workers: int, divided: set[int]) -> None:
        """``divided``: the identities of the scans that are divided."""
        super().__init__(whole.batch_rows)
        self._rows = whole._rows
        self._schema = schema
        self._worker, self._workers = worker, workers
        self._divided = divided

    def _matching(self, schema: Schema, scan: TableScan) -> list[Row]:
        found = list(super()._matching(schema, scan))
        if id(scan) not in self._divided:
            return found
        root = schema.ancestors(scan.table)[0]
        ids = scan.table.key_column_ids[: len(root.key_column_ids)]
        return [row for row in found if sum(tuples.encode([row.get(i) for i in ids])) % self._workers == self._worker]


@dataclass
class LocalRun:
    """One run of a plan. ``moved``: for each part, the rows that it gave."""

    engine: Engine
    tables: MemoryTables
    workers: int = 2
    batch_rows: int = 3
    received: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)

    async def run(self, plan: DistributedPlan) -> QueryResult:
        """Run all parts, producers first, and return the result of the root part."""
        table: Any = None
        for part in plan.parts:
            for position in range(ROOT, self.workers):
                if runs_at(part, position):
                    table = await self._part(plan, part, position)
        columns, target = result_columns(table.schema, plan.columns)

        async def batches() -> AsyncIterator[Any]:
            for batch in table.to_batches(self.batch_rows):
                if batch.num_rows:
                    yield cast_batch(batch, target)

        return QueryResult(columns, target, batches())

    async def _part(self, plan: DistributedPlan, part: Part, position: int) -> Any:
        connection = self.engine.duck.connection()
        try:
            divided = {id(scan.planned.scan) for scan in part.scans if scan.divided}
            share = Share(plan.schema, self.tables, position, self.workers, divided)
            scans = [scan.planned for scan in part.scans]
            await self.engine.feed(connection, plan.schema, scans, part.functions, share)
            for relation in part.inputs:
                connection.register(relation, pa.concat_tables(self.received[(relation, position)]))
            dealer = Dealer(part, plan.parts, self.workers, position)
            result = connection.table(dealer.sql, part.bound)
            self._deal(dealer, result)
            self.moved[part.id] = self.moved.get(part.id, 0) + result.num_rows
            return result
        finally:
            connection.close()

    def _deal(self, dealer: Dealer, rows: Any) -> None:
        schema = dealer.schema(rows.schema)
        for output, to in dealer.routes:
            for destination in to:
                self.received.setdefault((output.relation, destination), []).append(schema.empty_table())
        for batch in rows.to_batches(self.batch_rows):
            for share in dealer.deal(batch):
                table = pa.Table.from_batches([share.batch], schema=schema)
                self.received[(share.output.relation, share.destination)].append(table)
