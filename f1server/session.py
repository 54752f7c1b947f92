"""What an f1server does with each kind of request: messages to values, the work, values to messages."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from f1common.aside import aside
from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server import placing
from f1server.access.needs import require_writes
from f1server.access.rights import EVERYBODY, Caller, rights_of
from f1server.answers import SqlAnswer, SqlRequest
from f1server.catalog.alterroles import without_secrets
from f1server.catalog.codec import encode_schema
from f1server.catalog.leases import Leased, SchemaLeases
from f1server.catalog.readable import forms_at, read_since
from f1server.catalog.render import render_schema
from f1server.catalog.roles import Privilege
from f1server.catalog.schema import Column, Schema, Table
from f1server.catalog.store import SchemaStore
from f1server.check.checker import Checker
from f1server.check.wire import part_from_pb, plan_to_pb, report_to_pb
from f1server.cursors import Cursors, arrow_stream, one_batch
from f1server.dist.pool import SlavePool
from f1server.exec.engine import FEW_ROWS
from f1server.history.reading import batch_to_pb, history_root, history_span, read_batch, seen_by
from f1server.outcomes import Outcomes
from f1server.rows.changes import ChangeBatch
from f1server.rows.columns import RowWrites, read_columns
from f1server.rows.keys import decode_key, table_span
from f1server.rows.writes import LogicalWrite
from f1server.schemachange.executor import Applied, SchemaChanges
from f1server.schemachange.jobs.jobs import Order
from f1server.schemachange.jobs.jobwire import job_to_pb
from f1server.schemachange.preview.planner import Files, SchemaPlanner
from f1server.schemachange.preview.planwire import only_from_pb, planned_to_pb, survey_to_pb
from f1server.sql import SqlRunner
from f1server.txn import nosql
from f1server.txn.committer import CommitRequest, Committer
from f1server.txn.pessimistic import PessimisticTransactions
from f1server.txn.reader import RowReader
from f1server.txn.readset import ReadSetEntry
from f1server.wire import (
    check_timestamp,
    commit_name_from_pb,
    is_point,
    params_from_pb,
    read_set_from_pb,
    read_set_to_pb,
    require_commit_name,
    table_read_from_pb,
    write_to_pb,
    writes_from_pb,
)
from spanstore.client import KeyRange, SpanClient

T = TypeVar("T")

DEFAULT_PAGE_BYTES = 1 << 20
_MAX_PAGE_BYTES = 16 << 20
_KINDS = frozenset(pb.TxnKind.values())
_MOST_INFOS = 10_000
_INFOS: dict[int, tuple[Column, pb.ColumnInfo]] = {}
"""By the identity of the column, which is kept with it."""
_CHANGES_PAGE = 1_000
_CHANGE_ID_BYTES = 16
_MAX_EXAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this server is."""

    name: str
    zone: str
    version: str
    storage: tuple[str, ...] = ()
    """Addresses of the spanservers that it works over."""
    timestamps: tuple[str, ...] = ()
    locks: str = ""
    """Addresses of the orchestrator's services, for those who ask where they are."""


class Frontend:
    """All requests of one f1server. Raises F1Error for whatever goes wrong; nothing else is expected to leave it."""

    def __init__(
        self,
        identity: Identity,
        *,
        client: SpanClient,
        leases: SchemaLeases,
        store: SchemaStore,
        changes: SchemaChanges,
        planner: SchemaPlanner,
        committer: Committer,
        pessimistic: PessimisticTransactions,
        sql: SqlRunner,
        checker: Checker,
        clock: Clock,
        rng: random.Random,
        pool: SlavePool,
    ) -> None:
        self._checker = checker
        self._identity = identity
        self._pool = pool
        self._client = client
        self._leases = leases
        self._store = store
        self._changes = changes
        self._planner = planner
        self._committer = committer
        self._pessimistic = pessimistic
        self._sql = sql
        self._clock = clock
        self._outcomes = Outcomes(sql, committer, leases, clock)
        self._cursors = Cursors(rng)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look after what clients leave behind."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._cursors.sweep(), name="idle cursors"),
            loop.create_task(self._pessimistic.sweep(), name="idle transactions"),
        ]

    async def close(self) -> None:
        """Give up everything that clients hold here."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cursors.close()
        await self._pessimistic.close()

    # ------------------------------------------------------------------ SQL

    async def execute(self, database: str, request: pb.Execute, caller: Caller = EVERYBODY) -> pb.ExecuteReply:
        """Run one SQL statement."""
        txn = request.txn
        writes = await aside(len(txn.writes), lambda: writes_from_pb(txn.writes))
        wanted = SqlRequest(
            database=database,
            sql=request.sql,
            caller=caller,
            params=tuple(params_from_pb(request.params)),
            kind=_kind_of(txn),
            read_ts=request.timestamp or txn.read_ts,
            writes=tuple(writes),
            schemas=txn.schemas,
            handle=txn.handle,
            change_id=_change_id(request.change_id),
            few_as_rows=request.few_as_rows,
            commit=commit_name_from_pb(request),
        )
        try:
            answer = await self._leases.fresh(database, lambda: self._sql.run(wanted))
        except RecursionError:
            raise F1Error(
                Code.INVALID_ARGUMENT, "the statement is nested too deeply, or has too many operators"
            ) from None
        return await self._answer(answer, request.max_bytes, caller)

    async def _answer(self, answer: SqlAnswer, max_bytes: int, caller: Caller) -> pb.ExecuteReply:
        reply = await aside(len(answer.writes) + len(answer.read_set), lambda: _reply(answer))
        if answer.schema is None or answer.batches is None:
            return reply
        reply.columns.extend(answer.columns)
        if answer.cells:
            reply.rows.extend(answer.cells)
        else:
            page = await self._cursors.start(answer.schema, answer.batches, _page(max_bytes), caller.role_id)
            reply.arrow = page.arrow
            reply.cursor = page.cursor
        return reply

    async def fetch(self, database: str, request: pb.Fetch, caller: Caller = EVERYBODY) -> pb.FetchReply:
        """Return the next part of a result."""
        page = await self._cursors.fetch(request.cursor, _page(request.max_bytes), caller.role_id)
        return pb.FetchReply(arrow=page.arrow, more=bool(page.cursor))

    async def close_cursor(
        self, database: str, request: pb.CloseCursor, caller: Caller = EVERYBODY
    ) -> pb.CloseCursorReply:
        """Give up a result."""
        await self._cursors.close_one(request.cursor, caller.role_id)
        return pb.CloseCursorReply()

    # ------------------------------------------------------------------ NoSQL

    async def read(self, database: str, request: pb.Read, caller: Caller = EVERYBODY) -> pb.ReadReply:
        """Read rows of any tables by key, prefix, range or index."""
        return await self._leases.fresh(database, lambda: self._read(database, request, caller))

    async def _read(self, database: str, request: pb.Read, caller: Caller) -> pb.ReadReply:
        reads = [table_read_from_pb(r) for r in request.reads]
        if is_point(request, reads):
            async with self._leases.use(database) as leased:
                # In the form that its table has now.
                since_ts = leased.schema.indexes_since
                if not since_ts or since_ts <= self._client.strong_timestamp():
                    return await self._read_point(leased, reads, request.few_as_rows, caller)
        leased = await self._leases.current(database)
        schema = leased.schema
        txn = request.txn
        _kind_of(txn)
        rights = rights_of(schema, caller)
        own = writes_from_pb(txn.writes)
        require_writes(rights, schema, own)
        writes = self._committer.overlay(schema, own, txn.read_ts)
        names = {name for wanted in reads for name in (wanted.table, wanted.index) if name}
        names.update(write.table for write in own)
        if txn.kind == pb.PESSIMISTIC:
            nosql.allow(rights, schema, reads)
            held = await self._pessimistic.reads(txn.handle, database, caller, leased, names)
            reader = RowReader(self._client, schema, timestamp=0, filled=writes, tx=held)
            try:
                with held.item.working():
                    results = await nosql.read(reader, reads)
            except F1Error:
                await self._pessimistic.failed(txn.handle)
                raise
            return pb.ReadReply(results=[_rows(r, request.few_as_rows) for r in results], schema_version=schema.version)
        collect = txn.kind == pb.OPTIMISTIC
        if collect and not request.timestamp:
            await self._committer.require_same_names(schema, txn.schemas, names)
        timestamp = request.timestamp or txn.read_ts
        if not timestamp:
            timestamp = leased.checked(await self.read_timestamp(txn.kind))
        of_the_past = request.timestamp or txn.kind == pb.SNAPSHOT
        schema = await self._schema_at(schema, timestamp) if of_the_past else forms_at(schema, timestamp)
        # The past is read with the rights of the present.
        nosql.allow(rights, schema, reads)
        reader = RowReader(self._client, schema, timestamp=timestamp, filled=writes, collect=collect)
        results = await nosql.read(reader, reads)
        return pb.ReadReply(
            results=[_rows(r, request.few_as_rows) for r in results],
            read_ts=timestamp,
            read_set=read_set_to_pb(reader.read_set.values()),
            schema_version=leased.schema.version,
            schema_ts=leased.schema.commit_ts if collect and not request.timestamp else 0,
        )

    async def _schema_at(self, schema: Schema, timestamp: int) -> Schema:
        """Return the schema as a snapshot at ``timestamp`` is read with it; ``schema`` is the present one."""
        if timestamp < schema.commit_ts:
            schema = await self._store.at(schema, timestamp)
        return forms_at(schema, timestamp)

    async def _read_point(
        self, leased: Leased, reads: Sequence[nosql.TableRead], few_as_rows: bool, caller: Caller
    ) -> pb.ReadReply:
        schema = leased.schema
        nosql.allow(rights_of(schema, caller), schema, reads)
        timestamp, found = await nosql.read_point(schema, reads[0], self._sql.together.read)
        leased.checked(timestamp)
        return pb.ReadReply(results=[_rows(found, few_as_rows)], read_ts=timestamp, schema_version=schema.version)

    async def read_timestamp(self, kind: int) -> int:
        """Return the timestamp for a transaction that has none yet."""
        if kind == pb.SNAPSHOT:
            return await self._client.safe_time()
        return self._client.strong_timestamp()

    async def commit(self, database: str, request: pb.Commit, caller: Caller = EVERYBODY) -> pb.CommitReply:
        """Commit the writes of an optimistic transaction."""
        writes = await aside(len(request.writes), lambda: writes_from_pb(request.writes))
        read_set = await aside(len(request.read_set), lambda: read_set_from_pb(request.read_set))
        return await self._commit(database, request, caller, writes, read_set, request.read_ts, request.schemas)

    async def insert_rows(self, database: str, request: pb.InsertRows, caller: Caller = EVERYBODY) -> pb.CommitReply:
        """Insert rows that come by columns, in a transaction of their own."""
        batch = read_columns(request.table, request.arrow, request.schema_version)
        return await self._commit(database, request, caller, RowWrites(batch))

    async def _commit(
        self,
        database: str,
        request: pb.Commit | pb.InsertRows,
        caller: Caller,
        writes: Sequence[LogicalWrite],
        read_set: Sequence[ReadSetEntry] = (),
        read_ts: int = 0,
        schemas: Sequence[int] = (),
    ) -> pb.CommitReply:
        """Commit under the name that the request has."""
        require_commit_name(request.commit_id, request.created_ts)
        wanted = CommitRequest(
            writes=writes,
            read_set=read_set,
            read_ts=read_ts,
            unique=request.commit_id,
            created_ts=request.created_ts,
            caller=caller,
            priority_ts=request.priority_ts,
            schemas=schemas,
        )
        done = await self._committer.commit(database, wanted)
        return pb.CommitReply(commit_ts=done.ts, rows_affected=done.rows_affected)

    async def outcome(self, database: str, request: pb.Outcome, caller: Caller = EVERYBODY) -> pb.OutcomeReply:
        """Tell whether a commit happened, and end it if it did not."""
        return await self._outcomes.tell(database, request, caller)

    async def begin(self, database: str, request: pb.Begin, caller: Caller = EVERYBODY) -> pb.BeginReply:
        """Begin a pessimistic transaction, or fix the timestamp of another."""
        if request.kind == pb.PESSIMISTIC:
            held = self._pessimistic.begin(database, caller, request.priority_ts)
            return pb.BeginReply(handle=held.handle, priority_ts=held.tx.priority_ts)
        _kind_of(pb.TxnContext(kind=request.kind))
        timestamp = await self.read_timestamp(request.kind)
        return pb.BeginReply(read_ts=timestamp, priority_ts=request.priority_ts or timestamp)

    async def end(self, database: str, request: pb.End, caller: Caller = EVERYBODY) -> pb.EndReply:
        """Commit or roll back a pessimistic transaction."""
        if not request.commit:
            await self._pessimistic.give_up(request.handle, caller)
            return pb.EndReply()
        done = await self._pessimistic.commit(request.handle, database, caller, writes_from_pb(request.writes))
        return pb.EndReply(commit_ts=done.ts)

    # ------------------------------------------------------------------ schema

    async def apply_schema(
        self, database: str, request: pb.ApplySchema, caller: Caller = EVERYBODY
    ) -> pb.ApplySchemaReply:
        """Make the database what the files say."""
        sql, protos = _files(request.files)
        done = await self._changes.apply_sources(
            database,
            sql,
            protos,
            dry_run=request.dry_run,
            allow_data_loss=request.allow_data_loss,
            change_id=_change_id(request.change_id),
            caller=caller,
        )
        if not request.dry_run:
            await placing.follow(self._client, done.schema)
        return pb.ApplySchemaReply(steps=_steps_to_pb(done), version=done.schema.version)

    async def plan_schema(
        self, database: str, request: pb.PlanSchema, caller: Caller = EVERYBODY
    ) -> pb.PlanSchemaReply:
        """Say what it takes to make the database what the files say, or what a part of its rows says to that."""
        # What it says of rows that are in the way is for whoever could change the schema.
        rights_of((await self._leases.current(database)).schema, caller).require_create("to plan a schema change")
        sql, protos = _files(request.files)
        if not request.HasField("part"):
            return planned_to_pb(await self._planner.plan(database, sql, protos, data=request.data))
        part, asked = part_from_pb(request.part), request.part
        check_timestamp(asked.timestamp)
        survey = await self._planner.survey(
            database,
            sql,
            protos,
            asked.timestamp,
            part,
            examples=min(asked.examples, _MAX_EXAMPLES),
            only=only_from_pb(request.only),
        )
        return survey_to_pb(survey)

    async def show_schema(
        self, database: str, request: pb.ShowSchema, caller: Caller = EVERYBODY
    ) -> pb.ShowSchemaReply:
        """Return the schema as DDL and as it is stored."""
        schema = (await self._leases.current(database)).schema
        if request.timestamp:
            check_timestamp(request.timestamp)
            schema = await self._schema_at(schema, request.timestamp)
        files = [pb.SourceFile(name=name, text=text) for name, text in schema.proto_files]
        return pb.ShowSchemaReply(
            ddl=render_schema(schema),
            version=schema.version,
            protos=files if request.with_protos else [],
            descriptor_set=schema.descriptor_set,
            schema=encode_schema(without_secrets(schema)),
            since=0 if request.timestamp else read_since(schema),
        )

    async def schema_jobs(
        self, database: str, request: pb.SchemaJobs, caller: Caller = EVERYBODY
    ) -> pb.SchemaJobsReply:
        """List the changes of the schema, follow one to its end, or pause, resume or cancel one."""
        changes = self._changes
        if request.order not in (pb.SchemaJobs.LIST, pb.SchemaJobs.FOLLOW):
            rights = rights_of((await self._leases.current(database)).schema, caller)
            rights.require_create("to give orders about schema changes")
        match request.order:
            case pb.SchemaJobs.LIST:
                jobs = await changes.listed(database)
            case pb.SchemaJobs.PAUSE:
                jobs = [await changes.order(database, request.number, Order.PAUSE)]
            case pb.SchemaJobs.CANCEL:
                jobs = [await changes.order(database, request.number, Order.CANCEL)]
            case pb.SchemaJobs.RESUME:
                jobs = [await changes.resume(database, request.number)]
            case pb.SchemaJobs.FOLLOW:
                job, done = await changes.follow(database, _change_id(request.change_id))
                await placing.follow(self._client, done.schema)
                steps, version = _steps_to_pb(done), done.schema.version
                return pb.SchemaJobsReply(jobs=[job_to_pb(job)], steps=steps, schema_version=version)
            case _:
                raise F1Error(Code.INVALID_ARGUMENT, "an order that this server does not know")
        return pb.SchemaJobsReply(jobs=[job_to_pb(job) for job in jobs])

    async def catch_up(self, database: str, version: int) -> int:
        """Use a new version of a schema, as another server asks."""
        return await self._leases.catch_up(database, version)

    # ------------------------------------------------------------------ history

    async def read_changes(
        self, database: str, request: pb.ReadChanges, caller: Caller = EVERYBODY
    ) -> pb.ReadChangesReply:
        """Return change batches of one root, or of all roots of a table, in commit order, up to a safe timestamp."""
        schema = (await self._leases.current(database)).schema
        root = history_root(schema, request.table, request.after_ts)
        rights = rights_of(schema, caller)
        rights.require(root, Privilege.SELECT)
        resolved = await self._client.safe_time()
        if request.root_key:
            key = list(decode_key(request.root_key, f"the key of a root of {root.name}"))
            span = history_span(schema, root, key, after_ts=request.after_ts, until_ts=resolved)
        else:
            span = table_span(schema, root)
        found = await self._batches(schema, root, span, request.after_ts, resolved)
        if not rights.unlimited:
            found = seen_by(found, rights.sees)
        found.sort(key=lambda batch: (batch.commit_ts, batch.commit_id, batch.root_key))
        limit = request.limit or _CHANGES_PAGE
        if len(found) > limit:
            # A timestamp is given whole or not at all, so that a client may go on after the last one it saw.
            last = found[limit - 1].commit_ts
            kept = [batch for batch in found if batch.commit_ts <= last]
            found, resolved = kept, last
        return pb.ReadChangesReply(batches=[batch_to_pb(batch) for batch in found], resolved_ts=resolved)

    async def _batches(
        self, schema: Schema, root: Table, span: tuple[bytes, bytes], after_ts: int, until_ts: int
    ) -> list[ChangeBatch]:
        result = await self._client.read(ranges=[KeyRange(*span)], timestamp=until_ts)
        found = []
        for row in result.ranges[0]:
            batch = read_batch(schema, root, row.key, row.value)
            if batch is not None and after_ts < batch.commit_ts <= until_ts:
                found.append(batch)
        return found

    # ------------------------------------------------------------------ checks

    async def check(self, database: str, request: pb.Check, caller: Caller = EVERYBODY) -> pb.CheckReply:
        """Do one step of a check of the database: its findings show keys and values of any table."""
        rights_of((await self._leases.current(database)).schema, caller).require_superuser("a check of the database")
        match request.WhichOneof("step"):
            case "plan":
                return plan_to_pb(await self._checker.plan(database, list(request.plan.tables)))
            case "part":
                asked = request.part
                part = part_from_pb(asked)
                check_timestamp(asked.timestamp)
                examples = min(asked.examples, _MAX_EXAMPLES)
                report = await self._checker.run(
                    database, asked.timestamp, part, repair=asked.repair, examples=examples
                )
                return report_to_pb(report)
            case "keep":
                await self._checker.keep(request.keep)
            case "end":
                await self._checker.end(request.end)
            case _:
                raise F1Error(Code.INVALID_ARGUMENT, "a step of a check that this server does not know")
        return pb.CheckReply()

    # ------------------------------------------------------------------ the server

    async def ping(self, database: str, request: pb.Ping, caller: Caller = EVERYBODY) -> pb.PingReply:
        """Answer."""
        identity = self._identity
        now = self._clock.sample().tt.latest
        return pb.PingReply(server=identity.name, zone=identity.zone, now=now, version=identity.version)

    def status(self) -> pb.StatusReply:
        """Return what operators want to see."""
        return pb.StatusReply(
            name=self._identity.name,
            zone=self._identity.zone,
            version=self._identity.version,
            databases=[
                pb.DatabaseStatus(database=name, schema_version=version, lease_end=end)
                for name, version, end in self._leases.status()
            ],
            now=self._clock.sample().tt.latest,
            open_cursors=len(self._cursors),
            open_transactions=len(self._pessimistic),
            storage=self._identity.storage,
            pool=self._pool.status(),
            timestamps=self._identity.timestamps,
            locks=self._identity.locks,
        )


def column_info(column: Column) -> pb.ColumnInfo:
    """Return what a client is told of a table's column; it is not to be changed."""
    # Every read tells it again, of columns that live as long as their schema.
    kept = _INFOS.get(id(column))
    if kept is not None and kept[0] is column:
        return kept[1]
    kind = column.type
    info = pb.ColumnInfo(name=column.name, type=kind.sql(), proto_type=kind.proto, nullable=not column.not_null)
    if len(_INFOS) >= _MOST_INFOS:
        _INFOS.clear()
    _INFOS[id(column)] = column, info
    return info


def _rows(result: nosql.TableRows, few_as_rows: bool) -> pb.TableRows:
    columns = [column_info(c) for c in result.columns]
    if few_as_rows and len(result.rows) <= FEW_ROWS:
        return pb.TableRows(columns=columns, rows=result.as_cells())
    return pb.TableRows(columns=columns, arrow=arrow_stream(result.as_batch()))


def _reply(answer: SqlAnswer) -> pb.ExecuteReply:
    """Return the message of an answer without its rows."""
    return pb.ExecuteReply(
        rows_affected=answer.rows_affected,
        tag=answer.tag,
        read_ts=answer.read_ts,
        read_set=read_set_to_pb(answer.read_set),
        writes=[write_to_pb(w) for w in answer.writes],
        commit_ts=answer.commit_ts,
        schema_version=answer.schema_version,
        schema_ts=answer.schema_ts,
    )


def _kind_of(txn: pb.TxnContext) -> str:
    if txn.kind not in _KINDS:
        raise F1Error(Code.INVALID_ARGUMENT, f"{txn.kind} is no kind of transaction; is the client newer?")
    check_timestamp(txn.read_ts)
    return pb.TxnKind.Name(txn.kind)


def _page(max_bytes: int) -> int:
    return min(max_bytes or DEFAULT_PAGE_BYTES, _MAX_PAGE_BYTES)


def batches_of(batch: pa.RecordBatch, columns: Sequence[pb.ColumnInfo]) -> SqlAnswer:
    """Return the answer that consists of one batch."""
    return SqlAnswer(tag="SELECT", columns=tuple(columns), schema=batch.schema, batches=one_batch(batch))


def _files(files: Iterable[pb.SourceFile]) -> tuple[Files, Files]:
    """Return (name, text) of the .sql files and of the .proto files."""
    both = [(f.name, f.text) for f in files]
    sql = tuple(pair for pair in both if not pair[0].endswith(".proto"))
    return sql, tuple(pair for pair in both if pair[0].endswith(".proto"))


def _change_id(given: bytes) -> bytes:
    """Return the name of a change; it may be empty. Raises INVALID_ARGUMENT."""
    if len(given) not in (0, _CHANGE_ID_BYTES):
        text = f"a change_id has {_CHANGE_ID_BYTES} bytes, not {len(given)}"
        raise F1Error(Code.INVALID_ARGUMENT, text)
    return given


def _steps_to_pb(done: Applied) -> list[pb.SchemaStep]:
    return [pb.SchemaStep(what="; ".join(s.what), loses_data=s.loses_data) for s in done.steps]
