"""Schema changes as users ask for them: DDL statements, or sources that describe a whole database.

Each change is a few schema writes (:mod:`f1server.catalog.diff`). After each of them every server that still uses an
older version is told, and waited for at most until its lease ends; then indexes are filled and data of what was dropped
is deleted by functions that the transaction tier gives. DDL returns when all of it is done. A server that dies in the
middle leaves an element in an intermediate state behind, which DROP removes; jobs that go on by themselves come later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1server.catalog import ddl, diff
from f1server.catalog.compile import compile_sources, compile_statements
from f1server.catalog.diff import Step
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.schema import Index, Schema, Table
from f1server.catalog.statements import (
    CreateDatabase,
    DdlStatement,
    DropDatabase,
    DropIndex,
    SchemaStatement,
)
from f1server.catalog.store import DEFAULT_DATABASE, LeaseRow, SchemaStore, Sleep, Stored
from f1server.catalog.tables import NewId

__all__ = ["Applied", "DataWork", "Nudge", "SchemaChanges"]

LOG = logging.getLogger(__name__)

Nudge = Callable[[str, str, int], Awaitable[object]]
"""``await nudge(address, database, version)``: RefreshSchema at another server. Errors are ignored: its lease ends."""

_POLL_S = 0.01
_LONGEST_POLL_S = 0.2
_FORGET_LEASES = 100


class DataWork(Protocol):
    """What the tiers above do with rows for a schema change. All of it may be called again after a failure."""

    async def has_rows(self, schema: Schema, table: Table) -> bool:
        """Is there any row of ``table``?"""

    async def backfill(self, schema: Schema, table: Table, index: Index) -> None:
        """Write the entries of all rows that are there now. Raises ALREADY_EXISTS if a unique index cannot be."""

    async def purge(self, before: Schema, tables: Sequence[Table], indexes: Sequence[tuple[Table, Index]]) -> None:
        """Delete all rows, entries and history of elements that ``before`` had and no server uses any more."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a change did, or would do."""

    schema: Schema
    steps: tuple[Step, ...]


class SchemaChanges:
    """Makes changes, for one server."""

    def __init__(
        self,
        store: SchemaStore,
        leases: SchemaLeases,
        clock: Clock,
        *,
        work: DataWork,
        nudge: Nudge,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Take the parts; ``sleep`` as :func:`asyncio.sleep`."""
        self._store = store
        self._leases = leases
        self._clock = clock
        self._work = work
        self._nudge = nudge
        self._sleep = sleep

    async def apply_ddl(self, database: str, statements: Sequence[DdlStatement]) -> Applied:
        """Execute statements; neighbours that concern one schema are one change.

        Raises F1Error with the place in the source: ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION;
        and what storage raises.
        """
        done = Applied(Schema(database), ())
        batch: list[SchemaStatement] = []
        for statement in statements:
            if isinstance(statement, CreateDatabase | DropDatabase):
                done = await self._statements(database, batch, done)
                batch = []
                await self._database_statement(statement)
            else:
                batch.append(statement)
        return await self._statements(database, batch, done)

    async def _statements(self, database: str, batch: Sequence[SchemaStatement], done: Applied) -> Applied:
        if not batch:
            return done
        now = await self._change(database, lambda schema, new_id: compile_statements(schema, batch, new_id))
        return Applied(now.schema, (*done.steps, *now.steps))

    async def apply_sources(
        self,
        database: str,
        sql_files: Sequence[tuple[str, str]],
        proto_files: Sequence[tuple[str, str]],
        *,
        dry_run: bool = False,
        allow_data_loss: bool = False,
    ) -> Applied:
        """Make the database what (name, text) sources say, and drop what they lack; ``dry_run``: only say how.

        Raises as :meth:`apply_ddl`, FAILED_PRECONDITION also if rows would be lost without ``allow_data_loss``.
        """
        statements = _source_statements(sql_files)

        def compiled(schema: Schema, new_id: NewId) -> Schema:
            draft = _Draft()
            wanted = compile_sources(database, statements, proto_files, draft)
            return diff.adopt_ids(schema, wanted, new_id)

        current = (await self._store.load(database)).schema
        planned = diff.plan_steps(current, compiled(current, _Draft(1 << 30)))
        if dry_run:
            return Applied(current, tuple(planned))
        losing = [table for step in planned for table in step.purge_tables]
        if not allow_data_loss:
            await self._refuse_loss(current, losing)
        allowed = None if allow_data_loss else {table.id for table in losing}
        return await self._change(database, compiled, may_drop=allowed)

    async def _refuse_loss(self, schema: Schema, losing: Sequence[Table]) -> None:
        full = [table.name for table in losing if await self._work.has_rows(schema, table)]
        if full:
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"the sources lack tables that have rows: {', '.join(full)}; --allow-data-loss drops them",
            )

    # ------------------------------------------------------------------ databases

    async def _database_statement(self, statement: CreateDatabase | DropDatabase) -> None:
        if isinstance(statement, CreateDatabase):
            await self._store.create_database(statement.name, exists_ok=statement.if_not_exists)
            return
        if statement.name == DEFAULT_DATABASE:
            raise statement.at.error(Code.INVALID_ARGUMENT, f"the database {DEFAULT_DATABASE} always exists")
        self._leases.release_task()
        try:
            before = await self._store.drop_database(statement.name)
        except F1Error as error:
            if error.code is Code.NOT_FOUND and statement.if_exists:
                return
            raise
        await self._converge(statement.name, before.version + 1)
        await self._purge(before, before.tables, ())

    # ------------------------------------------------------------------ one change

    async def _change(
        self,
        database: str,
        compiled: Callable[[Schema, NewId], Schema],
        *,
        may_drop: set[int] | None = None,
    ) -> Applied:
        self._leases.release_task()
        before = (await self._store.load(database)).schema
        steps: list[Step] = []

        def first(schema: Schema, new_id: NewId) -> Schema | None:
            nonlocal before
            before = schema
            steps[:] = diff.plan_steps(schema, compiled(schema, new_id))
            dropped = {table.id for step in steps for table in step.purge_tables}
            if may_drop is not None and not dropped <= may_drop:
                raise F1Error(Code.ABORTED, "tables were created at the same time; retry")
            return diff.advance(schema, steps[0]) if steps else None

        stored, written = await self._store.write(database, first)
        if not written:
            return Applied(stored.schema, ())
        for step in steps:
            if step is not steps[0]:
                stored = await self._next(database, step)
            await self._converge(database, stored.schema.version)
            await self._backfill(database, stored.schema, step)
            await self._purge(before, step.purge_tables, step.purge_indexes)
        return Applied(stored.schema, tuple(steps))

    async def _next(self, database: str, step: Step) -> Stored:
        def next_schema(schema: Schema, _: NewId) -> Schema:
            now_us = self._clock.sample().tt.latest
            return diff.readable_from(schema, diff.advance(schema, step), now_us)

        stored, _ = await self._store.write(database, next_schema)
        return stored

    async def _backfill(self, database: str, schema: Schema, step: Step) -> None:
        for table_id, index_id in step.backfill:
            table = schema.by_id.get(table_id)
            index = next((i for i in table.indexes if i.id == index_id), None) if table else None
            if table is None or index is None:
                continue
            try:
                await self._work.backfill(schema, table, index)
            except F1Error as error:
                LOG.warning("the index %s is removed again: %s", index.name, error)
                names = [i.name for t in schema.tables for i in t.indexes if (t.id, i.id) in step.backfill]
                undo = DropIndex(tuple(names), if_exists=True, cascade=True)
                await self._statements(database, [undo], Applied(schema, ()))
                raise

    async def _purge(self, before: Schema, tables: Sequence[Table], indexes: Sequence[tuple[Table, Index]]) -> None:
        if not tables and not indexes:
            return
        try:
            await self._work.purge(before, tables, indexes)
        except F1Error as error:
            # Ids are never used again: what is left takes space, and nothing else.
            LOG.warning("data of dropped tables or indexes was left behind: %s", error)

    async def _converge(self, database: str, version: int) -> None:
        """Wait until nobody can commit under a version below ``version`` any more."""
        pause = _POLL_S
        telling: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                rows = await self._store.leases(database)
                now = self._clock.sample().tt.earliest
                behind = [row for row in rows if row.end_below(version) >= now]
                if not behind:
                    break
                for row in behind:
                    task = telling.get(row.server)
                    if row.version < version and (task is None or task.done()):
                        telling[row.server] = asyncio.create_task(self._tell(row, database, version))
                if telling:
                    await asyncio.wait(telling.values(), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if pause > _POLL_S or not telling:
                    await self._sleep(pause)
                pause = min(pause * 1.5, _LONGEST_POLL_S)
        finally:
            for task in telling.values():
                task.cancel()
        await self._forget(database, rows, now)

    async def _forget(self, database: str, rows: Sequence[LeaseRow], now: int) -> None:
        """Remove the rows of servers that are gone for long."""
        age = max((row.lease_us for row in rows), default=0) * _FORGET_LEASES
        if any(row.ts + age < now for row in rows):
            await self._store.remove_expired(database, now - age)

    async def _tell(self, row: LeaseRow, database: str, version: int) -> None:
        try:
            if row.server == self._leases.server:
                await self._leases.catch_up(database, version)
            else:
                await self._nudge(row.address, database, version)
        except Exception as error:
            LOG.info("%s did not take version %d of the schema of %s: %s", row.server, version, database, error)


class _Draft:
    """Ids for a schema that is not stored."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def __call__(self) -> int:
        self._next += 1
        return self._next - 1


def _source_statements(sql_files: Sequence[tuple[str, str]]) -> list[SchemaStatement]:
    statements: list[SchemaStatement] = []
    for name, text in sql_files:
        for statement in ddl.parse_ddl(text, name):
            if isinstance(statement, CreateDatabase | DropDatabase):
                raise statement.at.error(Code.INVALID_ARGUMENT, "sources describe one database, which is named apart")
            statements.append(statement)
    return statements
