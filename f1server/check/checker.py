"""Checks of parts of a database as of one timestamp: reads what the pure parts ask for."""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass

import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1server.catalog.copies import all_even, mend_copies, odd_copies, read_copies
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.places import COPIES_SPAN
from f1server.catalog.schema import Index, Schema, Table
from f1server.catalog.store import SchemaStore
from f1server.check.entries import EntryBatch, StoredKey
from f1server.check.findings import Copies, Example, Finding, Kind, Report, Stray, Suspect
from f1server.check.judge import Judge
from f1server.check.parts import Part, PartKind, divided, of_schema, strays
from f1server.check.repair import Repairer
from f1server.check.strays import remove_strays, unknown_id
from f1server.rows.planner import CheckEvaluator
from f1server.rows.values import shown_all
from spanstore.client import KeyRange, ScanColumn, ScanSource, SpanClient

__all__ = ["CheckPlan", "Checker"]

_COLUMNS = (
    ScanColumn("key", "BYTES", ScanSource.RAW_KEY),
    ScanColumn("ts", "TIMESTAMP", ScanSource.VERSION_TS),
    ScanColumn("value", "BYTES", ScanSource.RAW_VALUE),
)
_BATCH = 500
_KEYS_PER_PART = 20_000
_KEYS_PER_SEGMENT = 10_000
_PIN_S = 600.0
_SCHEMAS_KEPT = 4


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """What a check is to do: its timestamp, the pin that keeps it readable, and the parts of the work."""

    timestamp: int
    pin: str
    schema_version: int
    parts: Sequence[Part]


class Checker:
    """Checks parts of databases, for one f1server; nothing is kept from one part to the next."""

    def __init__(
        self,
        client: SpanClient,
        store: SchemaStore,
        leases: SchemaLeases,
        rng: random.Random,
        evaluate: Callable[[Schema], CheckEvaluator],
        *,
        executor: ThreadPoolExecutor | None = None,
        keys_per_part: int = _KEYS_PER_PART,
    ) -> None:
        """``evaluate`` gives the evaluator of CHECK constraints; ``executor``: where rows are decoded, None: here."""
        self._keys_per_part = keys_per_part
        self._client = client
        self._store = store
        self._rng = rng
        self.judge = Judge(client, evaluate, executor)
        self._repairer = Repairer(client, leases, rng)
        self._schemas: dict[int, dict[str, Schema]] = {}

    # ------------------------------------------------------------------ the whole check

    async def plan(self, database: str, tables: Collection[str]) -> CheckPlan:
        """Fix a timestamp, pin it, and divide the work; no tables named: everything, strays included.

        Raises NOT_FOUND for the database or a table, and what the storage tier raises.
        """
        timestamp = self._client.strong_timestamp()
        schema = await self.schema_at(database, timestamp)
        chosen = {schema.table(name).id for name in tables}
        pin = f"check-{new_id(self._rng).hex()}"
        await self._client.pins.add(pin, timestamp, ttl_s=_PIN_S, owner=f"f1 check of {database}")
        try:
            parts = of_schema(schema, chosen)
            if parts:
                spans = [KeyRange(part.start, part.end) for part in parts]
                sketch = await self._client.sketch(spans, every=_KEYS_PER_SEGMENT)
                parts = divided(parts, sketch, self._keys_per_part)
            if not chosen:
                parts += strays(await self._known(timestamp))
                parts.append(Part(PartKind.COPIES, *COPIES_SPAN))
        except BaseException:
            await self.end(pin)
            raise
        return CheckPlan(timestamp, pin, schema.version, parts)

    async def keep(self, pin: str) -> None:
        """Let the timestamp stay readable for longer. Raises NOT_FOUND if the pin has expired."""
        await self._client.pins.refresh(pin, ttl_s=_PIN_S)

    async def end(self, pin: str) -> None:
        """Let go of the timestamp."""
        await self._client.pins.remove(pin)

    # ------------------------------------------------------------------ one part

    async def run(
        self, database: str, timestamp: int, part: Part, *, repair: bool = False, examples: int = 10
    ) -> Report:
        """Check one part of a plan, and repair entries at once if that is wanted; it may be run again.

        Raises SNAPSHOT_TOO_OLD if the pin was not kept, INVALID_ARGUMENT for a part of another schema, and what the
        storage tier raises.
        """
        if timestamp <= 0:
            raise F1Error(Code.INVALID_ARGUMENT, "a part of a check is looked at as of its plan's timestamp")
        schema = await self.schema_at(database, timestamp)
        report = Report(examples)
        match part.kind:
            case PartKind.ROWS:
                findings = self._rows(schema, _table(schema, part), timestamp, part, report)
            case PartKind.ENTRIES:
                findings = self._entries(schema, _index(schema, part), timestamp, part, report)
            case PartKind.STRAYS:
                findings = self._strays(timestamp, part)
            case PartKind.COPIES:
                findings = self._copies(database, timestamp)
        async with aclosing(findings):
            async for found in findings:
                await self._take(database, timestamp, report, found, repair=repair)
        return report

    async def _take(
        self, database: str, timestamp: int, report: Report, findings: Sequence[Finding], *, repair: bool
    ) -> None:
        suspects = [finding for finding in findings if finding.repair is not None] if repair else []
        report.add(finding for finding in findings if not repair or finding.repair is None)
        entries = [s.repair for s in suspects if isinstance(s.repair, Suspect)]
        keys = [s.repair for s in suspects if isinstance(s.repair, Stray)]
        databases = {s.repair.database for s in suspects if isinstance(s.repair, Copies)}
        done: dict[object, bool] = dict(zip(entries, await self._repairer.repair(database, entries), strict=True))
        done |= await self._sweep(keys, timestamp)
        done |= {Copies(name): await mend_copies(self._client, name) for name in sorted(databases)}
        for finding in suspects:
            report.add([finding], repaired=done.get(finding.repair, False))

    async def _sweep(self, found: Sequence[Stray], timestamp: int) -> dict[object, bool]:
        """Delete strays of which it is known that they belong to nothing; tell of these whether they are gone.

        While copies of a schema differ nobody knows: what one of them lacks would look like strays.
        """
        if not found or not await all_even(self._client, timestamp):
            return {}
        schemas = await self._known(timestamp)
        next_id = await self._store.next_id()
        safe = [stray for stray in found if 0 < unknown_id(stray.key, schemas) < next_id]
        return dict(zip(safe, await remove_strays(self._client, safe), strict=True))

    async def _rows(
        self, schema: Schema, root: Table, timestamp: int, part: Part, report: Report
    ) -> AsyncGenerator[list[Finding], None]:
        lineage: list[bytes] = []
        async for keys in self.scan(part, timestamp):
            batch, findings = await self.judge.rows(schema, root, lineage, keys, timestamp)
            report.rows += batch.row_count
            report.entries += batch.entry_count
            yield findings

    async def _entries(
        self, schema: Schema, index: tuple[Table, Index], timestamp: int, part: Part, report: Report
    ) -> AsyncGenerator[list[Finding], None]:
        async for keys in self.scan(part, timestamp):
            batch = EntryBatch(schema)
            for stored in keys:
                batch.add(*index, stored)
            report.entries += len(keys)
            yield await self.judge.entries(batch, timestamp)

    async def _strays(self, timestamp: int, part: Part) -> AsyncGenerator[list[Finding], None]:
        text = "a key of no table or index of any database: left over from one that was dropped, or is being dropped"
        async for keys in self.scan(part, timestamp):
            yield [
                Finding(Kind.NO_TABLE, "", "", Example(_shown(stored.key), text), Stray(stored.key, stored.ts))
                for stored in keys
            ]

    async def _copies(self, database: str, timestamp: int) -> AsyncGenerator[list[Finding], None]:
        copies = await read_copies(self._client, database, timestamp)
        yield [
            Finding(Kind.COPY, "", "", Example(odd.copy.name, odd.why), Copies(database)) for odd in odd_copies(copies)
        ]

    # ------------------------------------------------------------------ reading

    async def scan(self, part: Part, timestamp: int) -> AsyncIterator[list[StoredKey]]:
        """Yield the keys of a part in their order, some at a time. Raises as :meth:`run`."""
        scan = self._client.scan(
            [KeyRange(part.start, part.end)], _COLUMNS, timestamp=timestamp, batch_rows=_BATCH, anywhere=True
        )
        async with aclosing(aiter(scan)) as batches:
            async for batch in batches:
                yield _stored(batch)

    async def _all_schemas(self, timestamp: int) -> dict[str, Schema]:
        """Return the schemas of all databases as of the check's timestamp."""
        kept = self._schemas.pop(timestamp, None)
        self._schemas[timestamp] = kept if kept is not None else await self._store.schemas_at(timestamp)
        for oldest in list(self._schemas)[:-_SCHEMAS_KEPT]:
            del self._schemas[oldest]
        return self._schemas[timestamp]

    async def _known(self, timestamp: int) -> list[Schema]:
        """Return the schemas of all databases, those included that were dropped and whose rows are being removed."""
        gone = await self._store.dropped.listed(timestamp)
        return [*(await self._all_schemas(timestamp)).values(), *(row.schema for row in gone)]

    async def schema_at(self, database: str, timestamp: int) -> Schema:
        """Return the schema of a database as of a timestamp. Raises NOT_FOUND."""
        schema = (await self._all_schemas(timestamp)).get(database)
        if schema is None:
            raise F1Error(Code.NOT_FOUND, f"there is no database {database}; CREATE DATABASE {database} makes one")
        return schema


def _stored(batch: pa.RecordBatch) -> list[StoredKey]:
    keys, timestamps, values = (batch.column(i) for i in range(3))
    return [
        StoredKey(key, ts, value)
        for key, ts, value in zip(
            keys.to_pylist(), timestamps.cast(pa.int64()).to_pylist(), values.to_pylist(), strict=True
        )
    ]


def _table(schema: Schema, part: Part) -> Table:
    table = schema.by_id.get(part.table_id)
    if table is None or part.start >= part.end:
        raise F1Error(
            Code.INVALID_ARGUMENT, f"no part of {schema.database}: table {part.table_id}; plan the check anew"
        )
    return table


def _index(schema: Schema, part: Part) -> tuple[Table, Index]:
    table = _table(schema, part)
    for index in table.indexes:
        if index.id == part.index_id and not index.local:
            return table, index
    raise F1Error(Code.INVALID_ARGUMENT, f"{table.name} has no global index {part.index_id}; plan the check anew")


def _shown(key: bytes) -> str:
    try:
        return shown_all(tuples.decode(key))
    except F1Error:
        return key.hex()
