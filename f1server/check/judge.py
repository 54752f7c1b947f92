"""Judges batches of keys as of one timestamp: reads what the pure parts ask for.

A schema change judges what it has filled and validated by the same code as ``f1 check``
(:mod:`f1server.schemachange.work.verification`).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

from f1common.errors import F1Error
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.check.entries import EntryBatch, StoredKey
from f1server.check.findings import Example, Finding, Kind
from f1server.check.rows import CheckedRow, RowBatch
from f1server.rows.planner import CheckEvaluator
from spanstore.client import STORED_COLUMNS, KeyRange, SpanClient, Version

__all__ = ["Judge"]

T = TypeVar("T")

_READ_AT_ONCE = 1_000
_READ_S = 30.0


class Judge:
    """Says what is wrong with keys; nothing is kept from one batch to the next."""

    def __init__(
        self,
        client: SpanClient,
        evaluate: Callable[[Schema], CheckEvaluator],
        executor: ThreadPoolExecutor | None = None,
        *,
        in_bulk: bool = False,
    ) -> None:
        """``evaluate`` gives the evaluator of CHECK constraints; ``executor``: where rows are decoded, None: here.

        ``in_bulk``: keys are looked up by the processes that scan for the client, not by the spanservers themselves.
        """
        self._client = client
        self._evaluate = evaluate
        self._executor = executor
        self._look_up = self._scanned if in_bulk else self._versions

    async def rows(
        self, schema: Schema, root: Table, lineage: list[bytes], keys: Sequence[StoredKey], timestamp: int
    ) -> tuple[RowBatch, list[Finding]]:
        """Say what is wrong with some keys of a hierarchy, in their order; ``lineage`` goes on to the next ones."""
        batch = RowBatch(schema, root, lineage)
        await self.beside(lambda: _add_all(batch, keys))
        return batch, await self.verdict(schema, batch, timestamp)

    async def verdict(self, schema: Schema, batch: RowBatch, timestamp: int) -> list[Finding]:
        """Say what is wrong with a batch of rows that has been taken in."""
        found = await self.versions(batch.wanted, timestamp)
        found |= await self.versions(batch.disputed(found) - found.keys(), timestamp)
        return [*batch.verdict(found), *self._checks(schema, batch)]

    async def entries(self, batch: EntryBatch, timestamp: int) -> list[Finding]:
        """Say what is wrong with a batch of entries."""
        return [*batch.findings, *batch.verdict(await self.versions(batch.wanted, timestamp))]

    def _checks(self, schema: Schema, batch: RowBatch) -> list[Finding]:
        """Return the rows for which a public CHECK is false."""
        findings: list[Finding] = []
        for table_id, rows in batch.rows.items():
            table = schema.by_id[table_id]
            public = {check.name: check.sql for check in table.checks if check.state is ElementState.PUBLIC}
            for row, name, text in self._false(schema, table, rows) if public else ():
                if name in public or not name:
                    example = Example(row.shown, text or f"CHECK ({public[name]}) is false")
                    findings.append(Finding(Kind.CHECK, table.name, name, example))
        return findings

    def _false(self, schema: Schema, table: Table, rows: Sequence[CheckedRow]) -> list[tuple[CheckedRow, str, str]]:
        """Return (row, name of the check that is false, or empty, and why it cannot be evaluated)."""
        evaluate = self._evaluate(schema)
        try:
            return [(rows[position], name, "") for position, name in evaluate(table, [row.row for row in rows])]
        except F1Error as error:
            if len(rows) == 1:
                return [(rows[0], "", f"the checks cannot be evaluated: {error.message}")]
        middle = len(rows) // 2
        return self._false(schema, table, rows[:middle]) + self._false(schema, table, rows[middle:])

    async def versions(self, keys: Iterable[bytes], timestamp: int) -> dict[bytes, Version | None]:
        """Return what is there under some keys."""
        wanted = sorted(keys)
        found: dict[bytes, Version | None] = {}
        for start in range(0, len(wanted), _READ_AT_ONCE):
            found |= await self._look_up(wanted[start : start + _READ_AT_ONCE], timestamp)
        return found

    async def _versions(self, keys: list[bytes], timestamp: int) -> dict[bytes, Version | None]:
        result = await self._client.read(keys, timestamp=timestamp, anywhere=True, timeout_s=_READ_S)
        return dict(zip(keys, result.versions, strict=True))

    async def _scanned(self, keys: list[bytes], timestamp: int) -> dict[bytes, Version | None]:
        found: dict[bytes, Version | None] = dict.fromkeys(keys)
        scan = self._client.scan(
            [KeyRange(key, key + b"\x00") for key in keys],
            STORED_COLUMNS,
            timestamp=timestamp,
            anywhere=True,
            timeout_s=_READ_S,
        )
        async with aclosing(aiter(scan)) as batches:
            async for batch in batches:
                columns = (column.to_pylist() for column in batch.columns)
                found.update((key, Version(ts, value)) for key, ts, value in zip(*columns, strict=True))
        return found

    async def beside(self, work: Callable[[], T]) -> T:
        """Do what takes time without keeping requests waiting."""
        if self._executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _add_all(batch: RowBatch, keys: Sequence[StoredKey]) -> None:
    for stored in keys:
        batch.add(stored)
