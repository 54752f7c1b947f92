"""``f1 schema plan``: what a change would take, and what the rows say to it. Nothing is changed."""

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1server.catalog.schema import Schema, Table
from f1server.catalog.store import LeaseRow, SchemaStore
from f1server.check.checker import Checker
from f1server.check.parts import Part, PartKind, divided
from f1server.rows.keys import table_span
from f1server.rows.layout import layout
from f1server.schemachange.jobs.jobs import Job, JobStore
from f1server.schemachange.jobs.wording import under_way
from f1server.schemachange.preview.advice import advice
from f1server.schemachange.preview.survey import Only, Probe, Survey, Surveyor, probe_of
from f1server.schemachange.steps.diff import Element, Step, plan_steps
from f1server.schemachange.steps.edits import advance
from f1server.schemachange.steps.moves import FORM
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.sources import Sources
from f1server.schemachange.steps.states import Work
from f1server.schemachange.work.verification import is_verified
from spanstore.client import KeyRange, SpanClient

__all__ = ["Files", "PlannedChange", "SchemaPlanner", "Size", "rows_per_s"]

_KEYS_PER_PART = 20_000
_KEYS_PER_SEGMENT = 10_000
_PIN_S = 600.0
_KEPT = 4
_ROWS_PER_S = 4_000
"""Rows a second that a change works on, where nobody has seen one at work."""
_ENOUGH_ROWS, _LAST = 1_000, 3

Files = tuple[tuple[str, str], ...]
"""(name, text) of sources."""


def rows_per_s(ended: Sequence[Job]) -> int:
    """Return how many rows a second the last changes of a database have worked on, those that took a while."""
    known = [job for job in ended if job.worked_rows >= _ENOUGH_ROWS and job.worked_ms > 0][-_LAST:]
    rows, taken_ms = sum(job.worked_rows for job in known), sum(job.worked_ms for job in known)
    return max(1, rows * 1000 // taken_ms) if taken_ms else _ROWS_PER_S


@dataclass(frozen=True, slots=True)
class Size:
    """About how many rows a table has, and how many bytes those take."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The steps, the sizes of the tables that they work on (by id), and who has a lease on the schema."""

    schema: Schema
    after: Schema
    """What the schema will be."""
    steps: tuple[Step, ...]
    sizes: dict[int, Size] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    holders: tuple[LeaseRow, ...] = ()
    rows_per_s: int = _ROWS_PER_S
    """How many rows work on data gets through in a second, as far as it is known."""
    timestamp: int = 0
    pin: str = ""
    parts: tuple[Part, ...] = ()
    """With a timestamp: the rows that are to be looked at, divided."""
    origins: dict[int, int] = field(default_factory=dict)
    """The tables whose rows the forms have that tables get, by the id of the form."""

    @property
    def names(self) -> dict[int, str]:
        """The tables that there are, by id."""
        return {table.id: table.name for table in self.schema.tables}


def _origins(versions: Sequence[Schema]) -> dict[int, int]:
    """Return, by id, of which table that there is before each new form of one has the rows."""
    known = versions[0].by_id.keys()
    pairs = {(table.id, table.mirror_of) for schema in versions for table in schema.tables if table.mirror_of}
    # The form that a table leaves is a mirror of the new one, until it is gone.
    return {new: old for one in pairs for new, old in (one, one[::-1]) if new not in known and old in known}


def passes_of(tasks: Sequence[Task[Element]]) -> int:
    """Return how often work on a table counts each of its rows: to change it, and to verify rows and entries."""
    changes = any(not (task.work is Work.REMOVE and task.element.kind == "index") for task in tasks)
    verified = any(is_verified(task) for task in tasks)
    entries = [task for task in tasks if task.element.kind in ("index", FORM)]
    added_up = [task for task in entries if task.work is Work.REMOVE or verified]
    return changes + verified + len(added_up)


def _holders(rows: Sequence[LeaseRow], timestamp: int) -> tuple[LeaseRow, ...]:
    """Return, by server, its newest lease that has not ended at ``timestamp``: it may have had one beside each copy."""
    newest = {row.server: row for row in sorted(rows, key=lambda row: row.ts) if row.ts + row.lease_us > timestamp}
    return tuple(newest[server] for server in sorted(newest))


class SchemaPlanner:
    """Plans changes, for one server."""

    def __init__(
        self,
        client: SpanClient,
        store: SchemaStore,
        jobs: JobStore,
        checker: Checker,
        surveyor: Surveyor,
        rng: random.Random,
        try_expressions: Callable[[Schema, Schema], None],
    ) -> None:
        """``try_expressions`` raises for what of the second schema nobody could evaluate."""
        self._client = client
        self._store = store
        self._jobs = jobs
        self._checker = checker
        self._surveyor = surveyor
        self._rng = rng
        self._try = try_expressions
        self._probes: OrderedDict[tuple[str, int, Files, Files], Probe] = OrderedDict()

    async def plan(self, database: str, sql: Files, protos: Files, *, data: bool) -> PlannedChange:
        """Say what it takes to make the database what sources describe; ``data``: and fix what rows to look at.

        Raises F1Error as :meth:`f1server.schemachange.executor.SchemaChanges.apply_sources`.
        """
        sources = Sources(sql, protos)
        timestamp = self._client.strong_timestamp()
        if not data:
            return (await self._plan(database, sources, timestamp))[0]
        # The pin first: dividing the rows of large tables takes a while, and versions are not kept for ever.
        pin = f"plan-{new_id(self._rng).hex()}"
        await self._client.pins.add(pin, timestamp, ttl_s=_PIN_S, owner=f"f1 schema plan of {database}")
        parts: list[Part] = []
        try:
            planned, parts = await self._plan(database, sources, timestamp)
        finally:
            if not parts:
                await self._client.pins.remove(pin)
        return replace(planned, timestamp=timestamp, pin=pin, parts=tuple(parts)) if parts else planned

    async def _plan(self, database: str, sources: Sources, timestamp: int) -> tuple[PlannedChange, list[Part]]:
        schema = await self._checker.schema_at(database, timestamp)
        try:
            new = sources.draft(schema)
            self._try(schema, new)
            steps = tuple(plan_steps(schema, new))
        except F1Error as error:
            if (running := await self._jobs.running(database)) is not None:
                raise under_way(running.job, error) from None
            raise
        versions = list(accumulate(steps, lambda before, step: advance(before, step.edits), initial=schema))
        probe = probe_of(schema, new, steps)
        parts = [Part(PartKind.ROWS, *table_span(probe.schema, root), root.id) for root in probe.roots()]
        tables = [probe.schema.by_id[table_id] for table_id in sorted(probe.concerns)]
        sizes, parts = await self._measured(probe.schema, tables, parts)
        warnings = advice(schema, new, {i: size.rows for i, size in sizes.items()})
        running = await self._jobs.running(database)
        if running is not None:
            number, state = running.job.number, running.job.state
            warnings.append(
                f"schema change {number} is {state}: another one has to wait for it, and is planned anew then"
            )
        holders = _holders(await self._store.leases(database), timestamp)
        rate = rows_per_s(await self._jobs.log(database))
        planned = PlannedChange(schema, versions[-1], steps, sizes, tuple(warnings), holders, rate)
        return replace(planned, origins=_origins(versions)), parts

    async def _measured(
        self, schema: Schema, tables: Sequence[Table], parts: Sequence[Part]
    ) -> tuple[dict[int, Size], list[Part]]:
        """Return the sizes of the tables, by a sketch, and the parts divided by it."""
        if not parts:
            return {}, []
        paths = [tuple((i, end - first) for i, first, end in layout(schema, table).steps) for table in tables]
        spans = [KeyRange(part.start, part.end) for part in parts]
        sketch = await self._client.sketch(spans, tables=paths, every=_KEYS_PER_SEGMENT)
        sizes = {table.id: Size(n.rows, n.bytes) for table, n in zip(tables, sketch.totals, strict=False)}
        return sizes, divided(parts, sketch, _KEYS_PER_PART)

    async def survey(
        self, database: str, sql: Files, protos: Files, timestamp: int, part: Part, *, examples: int, only: Only = None
    ) -> Survey:
        """Look at a part of what :meth:`plan` has fixed, with the same sources; it may be done again.

        Raises as :meth:`plan`, INVALID_ARGUMENT for a part of another plan, SNAPSHOT_TOO_OLD if the pin was not kept.
        """
        if timestamp <= 0:
            raise F1Error(Code.INVALID_ARGUMENT, "a part of a plan is looked at as of the plan's timestamp")
        probe = await self._probe(database, sql, protos, timestamp)
        if part.table_id not in {root.id for root in probe.roots()}:
            raise F1Error(Code.INVALID_ARGUMENT, "a part that this change has nothing to do with; plan the change anew")
        return await self._surveyor.look(probe, part, timestamp, examples=examples, only=only)

    async def _probe(self, database: str, sql: Files, protos: Files, timestamp: int) -> Probe:
        key = (database, timestamp, sql, protos)
        kept = self._probes.pop(key, None)
        if kept is None:
            schema = await self._checker.schema_at(database, timestamp)
            new = Sources(sql, protos).draft(schema)
            kept = probe_of(schema, new, plan_steps(schema, new))
        self._probes[key] = kept
        while len(self._probes) > _KEPT:
            self._probes.popitem(last=False)
        return kept
