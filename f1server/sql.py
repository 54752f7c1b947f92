"""Running SQL statements in the transaction that they belong to."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from f1common.aside import aside
from f1common.clock import Clock
from f1common.config import F1ServerSection
from f1common.errors import Code, F1Error
from f1common.ids import new_id, secret_bytes
from f1server import placing
from f1server.access.needs import require_dml, require_query, require_writes
from f1server.access.rights import Rights, rights_of
from f1server.answers import Query, Ran, SqlAnswer, SqlRequest, check_as_of, column_type, info, with_locks
from f1server.autocommit import Named, OwnTransactions, may_name
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.catalog.readable import readable_at
from f1server.catalog.render import quoted
from f1server.catalog.rolestatements import SALT_BYTES, holds_password, with_verifier
from f1server.catalog.schema import Schema
from f1server.catalog.statements import CreateTable, with_query_columns
from f1server.catalog.store import SchemaStore
from f1server.dist.measures import add_measures
from f1server.dist.queries import Choice, DistributedQueries
from f1server.exec.dml import DmlResult, Fill, run_dml, run_keyed, said_write
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine, QueryResult, given
from f1server.exec.rowwise import RowEvaluator
from f1server.exec.show import show, text_result
from f1server.exec.spill import spill_folder
from f1server.exec.trial import ExpressionTrial
from f1server.history.table import with_history
from f1server.plan.dml import PreparedDml, prepare_dml
from f1server.plan.explain import as_text, explain, explain_distributed
from f1server.plan.prepare import PlanCache, Prepared, prepare, read_timestamp
from f1server.plan.statements import (
    DmlStatement,
    ExplainStatement,
    PlacementStatement,
    QueryStatement,
    SchemaChangeStatement,
    SetStatement,
    ShowStatement,
    Statement,
    parse,
    require_parameters,
)
from f1server.points import PointQueries
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite
from f1server.schemachange.executor import SchemaChanges
from f1server.txn.committer import CommitName, Committer, Evaluators
from f1server.txn.pessimistic import PessimisticTransactions
from f1server.txn.reader import ReadRow, RowReader
from f1server.txn.source import StorageSource
from f1server.txn.together import ReadsTogether, Seen
from spanstore.client import SpanClient

T = TypeVar("T")

_LONG_TEXT = 2_000
"""Characters from which on a statement may take long to parse and to plan: it does so beside the event loop."""


class SqlRunner:
    """Runs the SQL of one f1server."""

    def __init__(
        self,
        client: SpanClient,
        leases: SchemaLeases,
        changes: SchemaChanges,
        store: SchemaStore,
        clock: Clock,
        rng: random.Random,
        config: F1ServerSection,
        *,
        inline: bool = False,
    ) -> None:
        """``inline``: evaluate in place instead of on threads, as the simulator must."""
        # The simulator has to draw the same numbers each time; elsewhere nobody may guess them.
        self._random_bytes = rng.randbytes if inline else secret_bytes
        self._client = client
        self.together = ReadsTogether(client)
        """What reads single rows outside of transactions."""
        self._leases = leases
        self._changes = changes
        self._store = store
        self._clock = clock
        self._rng = rng
        self._executor = None if inline else ThreadPoolExecutor(config.query_threads, thread_name_prefix="query")
        spill = spill_folder()
        duck = DuckConfig(
            memory_mb=config.query_memory_mib, threads=1 if inline else config.query_threads, temp_dir=spill
        )
        self._engine = Engine(Duck(duck, self._executor))
        self._rowwise = RowEvaluator(self._engine.duck, clock)
        self._plans = PlanCache()
        self._points = PointQueries(client, leases, self.together, self._plans, clock)
        self._dist: DistributedQueries | None = None
        self._committer: Committer | None = None
        self._pessimistic: PessimisticTransactions | None = None
        self._own: OwnTransactions | None = None

    @property
    def engine(self) -> Engine:
        """What evaluates queries."""
        return self._engine

    @property
    def executor(self) -> ThreadPoolExecutor | None:
        """Where what takes time is done; None: in place."""
        return self._executor

    def connect(
        self,
        committer: Committer,
        pessimistic: PessimisticTransactions,
        distributed: DistributedQueries | None = None,
    ) -> None:
        """Take the parts that are made after this one. ``distributed``: what knows the slaves."""
        self._dist = distributed
        self._committer = committer
        self._pessimistic = pessimistic
        self._own = OwnTransactions(
            self._change, self._prepared_dml, self._store, committer, pessimistic, self._clock, self._rng
        )

    def try_expressions(self, old: Schema, new: Schema) -> None:
        """Raise INVALID_ARGUMENT for what ``new`` has beyond ``old`` and nobody could evaluate."""
        ExpressionTrial(self._rowwise)(old, new)

    def evaluators(self) -> Evaluators:
        """Return what commits need of SQL."""
        return Evaluators(defaults=self._rowwise.defaults, checks=self._rowwise.checks)

    async def close(self) -> None:
        """End everything that still runs."""
        await self.together.close()
        if self._dist is not None:
            await self._dist.close()
        self._engine.duck.close()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ statements

    async def run(self, request: SqlRequest) -> SqlAnswer:
        """Run one statement. Raises F1Error, with the place in the text where there is one."""
        if request.kind == "PESSIMISTIC":
            with self._pessimistic_.find(request.handle, request.database, request.caller).working():
                return await self._run_one(request)
        return await self._run_one(request)

    async def _run_one(self, request: SqlRequest) -> SqlAnswer:
        statements = await self._beside(request.sql, lambda: parse(request.sql))
        if len(statements) != 1:
            count = "no" if not statements else f"{len(statements)}"
            raise F1Error(Code.INVALID_ARGUMENT, f"one statement at a time: this text has {count} statements")
        (statement,) = statements
        require_parameters(statement, len(request.params))
        try:
            return await self._run_statement(request, statement)
        except RecursionError:
            raise F1Error(Code.INVALID_ARGUMENT, "the statement is nested too deeply") from None

    async def _beside(self, text: str, work: Callable[[], T]) -> T:
        """Do ``work`` on a statement without keeping all other requests waiting if its ``text`` is long."""
        return work() if len(text) < _LONG_TEXT else await self._aside(work)

    async def _aside(self, work: Callable[[], T]) -> T:
        """Do ``work`` without keeping all other requests waiting."""
        if self._executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _run_statement(self, request: SqlRequest, statement: Statement) -> SqlAnswer:
        match statement:
            case QueryStatement():
                return await self._query(request, statement)
            case DmlStatement():
                return await self._dml(request, statement)
            case SchemaChangeStatement():
                return await self._schema_change(request, statement)
            case PlacementStatement():
                return await self._place(request, statement)
            case ExplainStatement():
                return await self._explain(request, statement)
            case ShowStatement():
                return await self._show(request, statement)
            case SetStatement():
                # Settings of other databases' sessions are accepted, so that scripts run; none changes anything here.
                return SqlAnswer(tag=statement.tag)
            case _:
                raise F1Error(
                    Code.FAILED_PRECONDITION,
                    f"{statement.tag} belongs to the session: use the connection's methods, or `f1 sql`",
                )

    # ------------------------------------------------------------------ queries

    async def _query(self, request: SqlRequest, statement: QueryStatement) -> SqlAnswer:
        if not self._forced(statement.sql) and (answer := await self._points.run(request, statement)) is not None:
            return answer
        schema, reader, ran = await self._started(request, statement)
        result = ran.result
        return SqlAnswer(
            tag=statement.tag,
            columns=tuple(info(c) for c in result.columns),
            schema=result.arrow_schema,
            batches=result.batches,
            read_ts=reader.timestamp,
            read_set=list(reader.read_set.values()),
            schema_version=schema.version,
            schema_ts=schema.commit_ts if reader.collects else 0,
            cells=result.cells,
        )

    async def _started(self, request: SqlRequest, statement: QueryStatement) -> tuple[Schema, RowReader, Ran]:
        """Start a query in its transaction, as of its moment."""
        leased = await self._leases.current(request.database)
        now_us = self._clock.sample().tt.latest
        snapshot_ts = request.read_ts if request.kind == "SNAPSHOT" else 0
        past_ts = read_timestamp(statement.as_of, request.params, now_us) or snapshot_ts
        present = leased.schema
        if 0 < past_ts < present.commit_ts:
            leased = replace(leased, schema=await self._store.at(present, past_ts))
        schema = leased.schema
        query = await self._bind(schema, statement, request.params, now_us, keep=schema is present)
        # The past is read with the rights of the present.
        rights = rights_of(present, request.caller)
        require_query(rights, query.prepared)
        reader = await self._reader(request, leased, query.prepared.names, rights, query.bound.as_of)
        if (readable := readable_at(schema, reader.timestamp)) is not schema:
            query = await self._bind(readable, statement, request.params, now_us, keep=False)
        elif request.kind == "AUTOCOMMIT" and query.bound.picks is not None and not request.read_ts:
            reader.of_now = self._of_now(leased) if query.bound.as_of is None else None
        try:
            return schema, reader, await self._run(request, query, reader)
        except F1Error:
            await self._failed(request)
            raise

    async def _run(self, request: SqlRequest, query: Query, reader: RowReader) -> Ran:
        bound = query.bound
        if request.kind == "OPTIMISTIC":
            bound = with_locks(bound)
        source = StorageSource(reader, self._client, locking=bound.locking)
        if not request.writes and not self._forced(query.text):
            # Before anybody counts the table: most such queries find their few rows.
            found = await (self._engine.run_few if request.few_as_rows else self._engine.run_direct)(bound, source)
            if found is None and request.few_as_rows:
                found = await self._engine.run_point(bound, source)
            if found is not None:
                return Ran(bound, found, "a few rows in the order of the key: there is nothing to evaluate")
        bound = replace(bound, direct=None)
        choice = await self._choose(request, query)
        if not isinstance(choice, str) and self._dist is not None:
            done = await self._dist.run(choice, reader.timestamp, collect=reader.collects)
            if done is not None:
                reader.note_all(done.read_set)
                return Ran(query.bound, done.result, choice, done)
            choice = "slaves could not run it: the log says why"
        timestamp_open = reader.of_now is not None
        result = await self._engine.run_query(bound, source)
        if bound.picks is not None and (timestamp_open or request.kind in ("OPTIMISTIC", "PESSIMISTIC")):
            # A point read streams from storage; read set and timestamp must be known before it is answered.
            batches = [batch async for batch in result.batches]
            result.batches = given(batches)
        return Ran(bound, result, choice)

    def _forced(self, text: str) -> bool:
        return self._dist is not None and self._dist.forced(text)

    async def _choose(self, request: SqlRequest, query: Query) -> Choice:
        """Return the plan of a query for slaves, or why it runs here."""
        if self._dist is None:
            return "this server knows of no slaves"
        if request.kind == "PESSIMISTIC":
            return "its transaction locks what it reads"
        if request.writes:
            return "its transaction has written"
        return await self._dist.choose(query.text, query.prepared, query.bound, request.params, query.bound.now_us)

    async def _bind(
        self, schema: Schema, statement: QueryStatement, params: Sequence[Value], now_us: int, *, keep: bool = True
    ) -> Query:
        shown = with_history(schema)
        kept = self._plans.get(shown, statement.sql) if keep else None

        def prepared() -> Prepared:
            as_of = statement.as_of.copy() if statement.as_of is not None else None
            return prepare(shown, statement.sql, statement.ast.copy(), as_of)

        plan = kept if isinstance(kept, Prepared) else await self._beside(statement.sql, prepared)
        if keep and plan is not kept:
            self._plans.put(shown, statement.sql, plan)
        bound = await self._beside(statement.sql, lambda: plan.bind(params, now_us))
        return Query(statement.sql, plan, bound)

    async def _reader(
        self, request: SqlRequest, leased: Leased, names: set[str], rights: Rights, as_of: int | None = None
    ) -> RowReader:
        """Return what reads these tables and views for a statement, in its transaction."""
        schema = leased.schema
        require_writes(rights, schema, request.writes)
        writes = self._committer_.overlay(schema, request.writes, request.read_ts)
        names = names.union(write.table for write in request.writes)
        sees = None if rights.unlimited else rights.sees
        if request.kind == "PESSIMISTIC":
            if as_of is not None:
                raise F1Error(Code.FAILED_PRECONDITION, "AS OF reads the past, which locks cannot hold; use a snapshot")
            tx = await self._pessimistic_.reads(request.handle, request.database, request.caller, leased, names)
            return RowReader(self._client, schema, timestamp=0, filled=writes, tx=tx, sees=sees)
        if as_of is not None and request.writes:
            raise F1Error(Code.FAILED_PRECONDITION, "AS OF does not see what the transaction has written; commit first")
        if as_of is not None:
            check_as_of(as_of, self._clock.sample().tt.latest)
        timestamp = as_of or request.read_ts
        if not timestamp:
            snapshot = request.kind == "SNAPSHOT"
            timestamp = await self._client.safe_time() if snapshot else self._client.strong_timestamp()
            timestamp = leased.checked(timestamp)
        if collect := request.kind == "OPTIMISTIC" and as_of is None:
            await self._committer_.require_same_names(schema, request.schemas, names)
        return RowReader(self._client, schema, timestamp=timestamp, filled=writes, collect=collect, sees=sees)

    def _of_now(self, leased: Leased) -> ReadRow:
        """Return what reads a row as it is now, together with what others ask for at the same time."""

        async def read(key: bytes) -> Seen:
            seen = await self.together.read(key)
            leased.checked(seen[0])
            return seen

        return read

    async def _failed(self, request: SqlRequest) -> None:
        """A statement that lost locks ends its transaction."""
        if request.kind == "PESSIMISTIC":
            await self._pessimistic_.failed(request.handle)

    @property
    def _committer_(self) -> Committer:
        if self._committer is None:
            raise F1Error(Code.INTERNAL, "the runner was used before it was connected")
        return self._committer

    @property
    def _pessimistic_(self) -> PessimisticTransactions:
        if self._pessimistic is None:
            raise F1Error(Code.INTERNAL, "the runner was used before it was connected")
        return self._pessimistic

    @property
    def _own_(self) -> OwnTransactions:
        if self._own is None:
            raise F1Error(Code.INTERNAL, "the runner was used before it was connected")
        return self._own

    # ------------------------------------------------------------------ statements that write

    async def _dml(self, request: SqlRequest, statement: DmlStatement) -> SqlAnswer:
        if request.kind == "SNAPSHOT":
            raise F1Error(
                Code.FAILED_PRECONDITION, f"{statement.tag} in a snapshot transaction: it reads the past only"
            )
        if request.kind == "AUTOCOMMIT":
            return await self._own_.run(request, statement)
        if request.commit is not None:
            return await self._own_.run_named(request, statement, request.commit)
        return await self._change(request, statement)

    async def named(self, newest: Schema, request: SqlRequest, name: CommitName) -> Named | None:
        """See :meth:`f1server.autocommit.OwnTransactions.named`."""
        return await self._own_.named(newest, request.sql, request.params, name)

    async def _change(self, request: SqlRequest, statement: DmlStatement) -> SqlAnswer:
        """Work out what a statement writes, in its transaction; nothing is written yet."""
        leased = await self._leases.current(request.database)
        schema = leased.schema
        plan = await self._prepared_dml(schema, statement)
        rights = rights_of(schema, request.caller)
        require_dml(rights, statement, plan)
        reader = await self._reader(request, leased, plan.names, rights)
        if (readable := readable_at(schema, reader.timestamp)) is not schema:
            plan = await self._beside(statement.sql, lambda: prepare_dml(with_history(readable), statement))
        source = StorageSource(reader, self._client, locking=request.kind == "PESSIMISTIC")
        unique, created_ts = new_id(self._rng), self._clock.sample().tt.latest

        def fill(writes: Sequence[LogicalWrite]) -> Sequence[LogicalWrite]:
            return self._committer_.fill(schema, writes, unique, created_ts)

        try:
            done = await self._written(request, statement, plan, source, fill)
        except F1Error:
            await self._failed(request)
            raise
        answer = SqlAnswer(
            tag=statement.tag,
            rows_affected=done.rows_affected,
            read_ts=reader.timestamp,
            read_set=list(reader.read_set.values()),
            writes=await aside(len(done.writes), lambda: list(fill(done.writes))),
            schema_version=schema.version,
            schema_ts=schema.commit_ts,
        )
        if request.commit is not None and len(answer.writes) == 1 and may_name(schema, request.commit, created_ts):
            with suppress(F1Error):
                said = said_write(plan, request.params, request.commit.created_ts)
                anchor = self._committer_.anchor
                answer.says_row = said is not None and anchor(schema, said) == anchor(schema, answer.writes[0])
        if done.returning is not None:
            result = done.returning
            answer.columns = tuple(info(c) for c in result.columns)
            answer.schema = result.arrow_schema
            answer.batches = given([batch async for batch in result.batches])
        return answer

    async def _prepared_dml(self, schema: Schema, statement: DmlStatement) -> PreparedDml:
        key = f"dml {statement.upsert} {statement.sql}"
        shown = with_history(schema)
        kept = self._plans.get(shown, key)
        if isinstance(kept, PreparedDml):
            return kept
        plan = await self._beside(statement.sql, lambda: prepare_dml(shown, statement))
        self._plans.put(shown, key, plan)
        return plan

    async def _written(
        self, request: SqlRequest, statement: DmlStatement, plan: PreparedDml, source: StorageSource, fill: Fill
    ) -> DmlResult:
        """Return what a statement writes: at a key without the evaluator if that is possible."""
        now_us = self._clock.sample().tt.latest
        done = await run_keyed(plan, request.params, now_us, source)
        if done is not None:
            return done
        bound = await self._beside(statement.sql, lambda: plan.bind(request.params, now_us))
        if request.kind == "OPTIMISTIC":
            bound = replace(
                bound,
                query=None if bound.query is None else with_locks(bound.query),
                update=None if bound.update is None else with_locks(bound.update),
            )
        if request.writes and bound.query is not None:
            # A few rows of many cannot be read alone where some of them are the transaction's own.
            bound = replace(bound, query=replace(bound.query, direct=None))
        return await run_dml(self._engine, bound, source, fill, with_locks=request.kind == "OPTIMISTIC")

    # ------------------------------------------------------------------ the rest

    async def _explain(self, request: SqlRequest, statement: ExplainStatement) -> SqlAnswer:
        schema = (await self._leases.current(request.database)).schema
        inner = statement.statement
        if statement.analyze:
            plan = await self._analyze(request, inner)
        elif isinstance(inner, DmlStatement):
            now_us = self._clock.sample().tt.latest
            prepared = prepare_dml(with_history(schema), inner)
            require_dml(rights_of(schema, request.caller), inner, prepared)
            plan = explain(prepared.bind(request.params, now_us))
        else:
            query = await self._bind(schema, inner, request.params, self._clock.sample().tt.latest)
            require_query(rights_of(schema, request.caller), query.prepared)
            choice = await self._choose(request, query)
            if isinstance(choice, str):
                plan = explain(query.bound, choice)
            else:
                plan = explain_distributed(choice, self._dist.workers() if self._dist is not None else 0)
        return self._planned(statement, schema, plan)

    async def _analyze(self, request: SqlRequest, inner: QueryStatement | DmlStatement) -> dict[str, object]:
        """Run a query, keep nothing of its result, and return its plan with what it cost."""
        if isinstance(inner, DmlStatement):
            text = f"EXPLAIN ANALYZE {inner.tag} would write: use EXPLAIN, or analyze the query that it begins with"
            raise F1Error(Code.INVALID_ARGUMENT, text)
        began_us = self._clock.sample().boot_us
        _, _, ran = await self._started(replace(request, few_as_rows=False), inner)
        rows = 0
        try:
            async for batch in ran.result.batches:
                rows += batch.num_rows
        finally:
            ran.result.close()
        took_us = self._clock.sample().boot_us - began_us
        if ran.done is None or isinstance(ran.choice, str):
            plan = explain(ran.bound, ran.choice if isinstance(ran.choice, str) else "")
        else:
            plan = explain_distributed(ran.choice, len(ran.done.stats.workers))
            add_measures(plan, ran.done.stats)
        return plan | {"measured": {"rows": rows, "ms": round(took_us / 1000, 1)}}

    def _planned(self, statement: ExplainStatement, schema: Schema, plan: dict[str, object]) -> SqlAnswer:
        lines = [json.dumps(plan)] if statement.json else as_text(plan)
        return self._shown(statement.tag, schema, text_result(["plan"], [(line,) for line in lines]))

    async def _show(self, request: SqlRequest, statement: ShowStatement) -> SqlAnswer:
        schema = (await self._leases.current(request.database)).schema
        if statement.what in ("PLACEMENT", "PLACEMENTS"):
            rows = await placing.placements(self._client, schema, statement.name)
            return self._shown(statement.tag, schema, text_result(placing.COLUMNS, rows))
        databases = await self._store.databases() if statement.what == "DATABASES" else ()
        unlimited = rights_of(schema, request.caller).unlimited
        return self._shown(statement.tag, schema, show(schema, statement, databases, passwords=unlimited))

    @staticmethod
    def _shown(tag: str, schema: Schema, result: QueryResult) -> SqlAnswer:
        return SqlAnswer(
            tag=tag,
            columns=tuple(info(c) for c in result.columns),
            schema=result.arrow_schema,
            batches=result.batches,
            schema_version=schema.version,
        )

    async def _place(self, request: SqlRequest, statement: PlacementStatement) -> SqlAnswer:
        if request.kind != "AUTOCOMMIT":
            text = "SET PLACEMENT cannot run inside a transaction: it is about where rows lie, not about rows"
            raise F1Error(Code.FAILED_PRECONDITION, text)
        schema = (await self._leases.current(request.database)).schema
        rights_of(schema, request.caller).require_create("to place a table")
        rows = await placing.place(self._client, schema, statement)
        return self._shown(statement.tag, schema, text_result(placing.COLUMNS, rows))

    async def _schema_change(self, request: SqlRequest, statement: SchemaChangeStatement) -> SqlAnswer:
        if request.kind != "AUTOCOMMIT":
            raise F1Error(
                Code.FAILED_PRECONDITION,
                f"{statement.tag} cannot run inside a transaction: schema changes are transactions of their own",
            )
        ddl = statement.ddl
        if isinstance(ddl, CreateTable) and ddl.as_query:
            return await self._create_as(request, statement.tag, ddl)
        if holds_password(ddl):
            salt = self._random_bytes(SALT_BYTES)
            ddl = await self._aside(lambda: with_verifier(statement.ddl, salt))
        done = await self._changes.apply_ddl(request.database, [ddl], request.caller, change_id=request.change_id)
        await placing.follow(self._client, done.schema)
        return SqlAnswer(tag=statement.tag, schema_version=done.schema.version)

    async def _create_as(self, request: SqlRequest, tag: str, ddl: CreateTable) -> SqlAnswer:
        """CREATE TABLE AS: the table first, then its rows by INSERT, which is a transaction of its own."""
        (query,) = parse(ddl.as_query)
        if not isinstance(query, QueryStatement):
            raise ddl.at.error(Code.INVALID_ARGUMENT, "CREATE TABLE AS needs a query")
        schema = (await self._leases.current(request.database)).schema
        if ddl.if_not_exists and ddl.name.lower() in schema.by_name:
            return SqlAnswer(tag=tag, schema_version=schema.version)
        empty = replace(query, sql=f"SELECT * FROM ({query.sql}) AS q LIMIT 0")
        (limited,) = parse(empty.sql)
        if not isinstance(limited, QueryStatement):
            raise ddl.at.error(Code.INVALID_ARGUMENT, "CREATE TABLE AS needs a query")
        answer = await self._query(replace(request, sql=limited.sql), limited)
        result = [(column.name, column_type(ddl, column)) for column in answer.columns]
        made = await self._changes.apply_ddl(request.database, [with_query_columns(ddl, result)], request.caller)
        if not made.steps:  # IF NOT EXISTS, and somebody else was quicker: their table is left alone
            return SqlAnswer(tag=tag, schema_version=made.schema.version)
        (insert,) = parse(f"INSERT INTO {quoted(ddl.name)} {ddl.as_query}")
        if not isinstance(insert, DmlStatement):
            raise ddl.at.error(Code.INVALID_ARGUMENT, "CREATE TABLE AS needs a query")
        try:
            done = await self._dml(replace(request, sql=insert.sql), insert)
        except F1Error as error:
            if error.ambiguous:
                raise
            text = f"{error.message}; the table {ddl.name} was created, without rows: drop it before the next try"
            raise F1Error(error.code, text, retryable=False, details=error.details) from error
        done.tag = tag
        return done
