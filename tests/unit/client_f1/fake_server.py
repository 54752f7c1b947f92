"""F1servers for tests of the client: a few rows in a dictionary behind the real protocol, and faults on demand.

Several servers share one :class:`Store`, as real ones share the storage tier. SQL is what DuckDB makes of a SELECT over
the rows, plus INSERT ... VALUES, ``UPDATE Account SET Balance = Balance + ? WHERE Id = ?`` and DELETE by key.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import duckdb
import grpc
import grpc.aio
import pyarrow as pa

from f1.newrows import NewRows
from f1common.encoding import tuple as tuples
from f1common.encoding.row import decode_row, encode_row
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import f1_pb2_grpc, schema_pb2, types_pb2
from f1common.rpc.direct.listening import DirectServer
from f1common.rpc.direct.methods import CLIENT_METHODS
from f1common.rpc.server import server_options
from f1common.rpc.serving import serve_requests
from f1common.rpc.status import error_from_exception, error_to_wire, maps_errors

ID, BALANCE, NOTE = 11, 12, 13
NAMES = {ID: "Id", BALANCE: "Balance", NOTE: "Note"}
KINDS = {"Id": "INT64", "Balance": "INT64", "Note": "STRING"}
ARROW = pa.schema([("Id", pa.int64()), ("Balance", pa.int64()), ("Note", pa.string())])

Row = dict[int, Any]
Fault = Callable[["FakeServer", pb.Request], str | F1Error | None]
"""Looks at a request: an error to answer with, "die" before or "die after" it is done, "hang", or None.

"cut" and "cut after": as if it died and was back at once. "lost": it is done, and answered with UNKNOWN_OUTCOME.
"""


def schema_bytes(version: int = 3, extra: bool = False, ids: Mapping[int, int] = MappingProxyType({})) -> bytes:
    """The schema of the one table; ``ids`` renumbers columns, as dropping it and making it again does."""
    columns = [
        schema_pb2.Column(id=ids.get(i, i), name=n, type=schema_pb2.ColumnType(kind=KINDS[n]), state=schema_pb2.PUBLIC)
        for i, n in NAMES.items()
    ]
    if extra:
        kind = schema_pb2.ColumnType(kind="STRING")
        columns.append(schema_pb2.Column(id=14, name="Extra", type=kind, state=schema_pb2.PUBLIC))
    index = schema_pb2.Index(
        id=15,
        name="ByBalance",
        parts=[schema_pb2.IndexPart(column_id=ids.get(BALANCE, BALANCE))],
        state=schema_pb2.PUBLIC,
    )
    table = schema_pb2.Table(
        id=10, name="Account", columns=columns, key_column_ids=[ID], indexes=[index], state=schema_pb2.PUBLIC
    )
    return schema_pb2.Schema(database="default", version=version, tables=[table]).SerializeToString()


class Store:
    """What all servers of a fake cluster share."""

    def __init__(self) -> None:
        self.clock = 1_000
        self.rows: dict[int, tuple[int, Row]] = {}
        self.outcomes: dict[bytes, int | None] = {}
        self.schema = schema_bytes()
        self.schema_version = 3
        self.columns = {*NAMES, 14}
        self.lock = threading.Lock()

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def commit(self, commit: pb.Commit) -> pb.CommitReply:
        if self.outcomes.get(commit.commit_id, 0) is None:
            raise F1Error(Code.ABORTED, "its outcome was decided")
        for entry in commit.read_set:
            key: Any = tuples.decode(entry.key)[0]
            if self.version(key) != entry.ts:
                raise F1Error(Code.ABORTED, f"row {key} was changed", details={"key": entry.key.hex()})
        ts = self.apply_all(commit.writes)
        self.outcomes[commit.commit_id] = ts
        return pb.CommitReply(commit_ts=ts, rows_affected=len(commit.writes))

    def apply_all(self, writes: Iterable[pb.LogicalWrite]) -> int:
        """Apply all writes or none."""
        before, ts = dict(self.rows), self.tick()
        try:
            for write in writes:
                self.apply(write, ts)
        except F1Error:
            self.rows = before
            raise
        return ts

    def apply(self, write: pb.LogicalWrite, ts: int) -> None:
        key: Any = decode_row(write.key)[ID]
        columns = decode_row(write.columns) if write.columns else {}
        if unknown := columns.keys() - self.columns:
            text = f"table Account has no column {min(unknown)} any more; the schema has changed"
            raise F1Error(Code.NOT_FOUND, text, details={"column": str(min(unknown))})
        if write.kind == pb.LogicalWrite.INSERT and key in self.rows:
            raise duplicate(key)
        if write.kind == pb.LogicalWrite.UPDATE and key not in self.rows:
            raise F1Error(Code.NOT_FOUND, f"table Account has no row with (Id) = ({key})", details={"key": "x"})
        if write.kind == pb.LogicalWrite.DELETE:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (ts, {**self.rows.get(key, (0, {}))[1], ID: key, **columns})

    def version(self, key: int) -> int:
        return self.rows[key][0] if key in self.rows else 0

    def outcome(self, outcome: pb.Outcome) -> pb.OutcomeReply:
        ts = self.outcomes.setdefault(outcome.commit_id, None)
        return pb.OutcomeReply(committed=ts is not None, commit_ts=ts or 0)


class FakeServer:
    """One server. ``served`` is what it was asked, by kind."""

    def __init__(self, store: Store, name: str, *, direct: bool = True) -> None:
        """``direct``: clients are offered direct streams."""
        self.store = store
        self.name = name
        self.direct = direct
        self.commits_at_once = False
        """Whether a statement that comes with a commit is committed."""
        self.fault: Fault | None = None
        self.served: list[str] = []
        self.jobs: list[pb.SchemaJob] = []
        self.requests: list[pb.Request] = []
        self.sessions_ended = 0
        self.cut = asyncio.Event()
        """Set when all sessions break, as when the process is restarted at once."""
        self.page_rows = 1_000_000
        self.cursors: dict[bytes, list[pa.RecordBatch]] = {}
        self.handles: dict[bytes, dict[int, int]] = {}
        """Open pessimistic transactions, and the versions of the rows that they read: checked at the end."""
        self.server: Any = None
        self.port = 0

    async def start(self) -> None:
        over_grpc = grpc.aio.server(options=server_options())
        self.server = DirectServer(over_grpc, CLIENT_METHODS) if self.direct else over_grpc
        f1_pb2_grpc.add_F1ServerServicer_to_server(_Servicer(self), self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop(None)

    def handle(self, request: pb.Request, reply: Callable[[pb.Response], None]) -> None:
        kind = request.WhichOneof("body") or ""
        self.served.append(kind)
        self.requests.append(request)
        fault = self.fault(self, request) if self.fault else None
        if isinstance(fault, F1Error):
            reply(failed(request, fault))
            return
        if fault == "hang":
            return
        if fault in ("die", "cut"):
            self._die() if fault == "die" else self._cut()
            return
        try:
            with self.store.lock:
                answer = getattr(self, f"do_{kind}")(getattr(request, kind))
            response = pb.Response(id=request.id)
            getattr(response, kind).CopyFrom(answer)
        except Exception as error:
            response = failed(request, error_from_exception(error))
        if fault == "die after":
            self._die()
        elif fault == "cut after":
            self._cut()
        elif fault == "lost":
            reply(failed(request, F1Error(Code.UNKNOWN_OUTCOME, "lost touch with the leader")))
        else:
            reply(response)

    def _die(self) -> None:
        self._dying = asyncio.get_running_loop().create_task(self.stop())

    def _cut(self) -> None:
        self.cut.set()
        self.cut = asyncio.Event()

    # ------------------------------------------------------------------ requests

    def do_ping(self, _: pb.Ping) -> pb.PingReply:
        return pb.PingReply(server=self.name, zone="a", now=self.store.clock, version="test")

    def do_show_schema(self, _: pb.ShowSchema) -> pb.ShowSchemaReply:
        return pb.ShowSchemaReply(
            ddl="CREATE TABLE Account (...);", version=self.store.schema_version, schema=self.store.schema
        )

    def do_schema_jobs(self, asked: pb.SchemaJobs) -> pb.SchemaJobsReply:
        if asked.order == pb.SchemaJobs.FOLLOW:
            raise F1Error(Code.NOT_FOUND, "no schema change has this name")
        return pb.SchemaJobsReply(jobs=self.jobs)

    def do_plan_schema(self, _: pb.PlanSchema) -> pb.PlanSchemaReply:
        return pb.PlanSchemaReply(steps=[pb.PlannedStep(at_once=["something"])])

    def do_apply_schema(self, _: pb.ApplySchema) -> pb.ApplySchemaReply:
        return pb.ApplySchemaReply(version=self.store.schema_version + 1)

    def do_commit(self, commit: pb.Commit) -> pb.CommitReply:
        return self.store.commit(commit)

    def do_insert_rows(self, insert: pb.InsertRows) -> pb.CommitReply:
        commit = pb.Commit(commit_id=insert.commit_id, created_ts=insert.created_ts)
        with pa.ipc.open_stream(insert.arrow) as reader:
            batch = reader.read_next_batch()
        ids = [int(name) for name in batch.schema.names]
        new = NewRows(insert.table, [ID], ids, batch.columns, insert.schema_version)
        commit.writes.extend(new.writes())
        return self.store.commit(commit)

    def do_outcome(self, outcome: pb.Outcome) -> pb.OutcomeReply:
        return self.store.outcome(outcome)

    def do_begin(self, begin: pb.Begin) -> pb.BeginReply:
        handle = f"{self.name}-{len(self.served)}".encode()
        self.handles[handle] = {}
        return pb.BeginReply(handle=handle, priority_ts=begin.priority_ts)

    def do_end(self, end: pb.End) -> pb.EndReply:
        if end.handle not in self.handles:
            raise F1Error(Code.ABORTED, "this server holds no such transaction")
        seen = self.handles.pop(end.handle)
        if not end.commit:
            return pb.EndReply()
        if any(self.store.version(key) != ts for key, ts in seen.items()):
            raise F1Error(Code.ABORTED, "an older transaction took a lock")
        return pb.EndReply(commit_ts=self.store.apply_all(end.writes))

    def do_fetch(self, fetch: pb.Fetch) -> pb.FetchReply:
        batches = self.cursors.get(fetch.cursor)
        if batches is None:
            raise F1Error(Code.NOT_FOUND, "this server holds no such result")
        return pb.FetchReply(arrow=ipc(batches[0].schema, [batches.pop(0)]), more=bool(batches))

    def do_close_cursor(self, close: pb.CloseCursor) -> pb.CloseCursorReply:
        self.cursors.pop(close.cursor, None)
        return pb.CloseCursorReply()

    def do_read(self, read: pb.Read) -> pb.ReadReply:
        self._check_handle(read.txn)
        reply = pb.ReadReply(read_ts=read.txn.read_ts or self.store.clock)
        rows = self._visible(read.txn)
        for wanted in read.reads:
            keys = self._keys(wanted, rows)
            names = list(wanted.columns) or list(KINDS)
            found = [rows[key] for key in keys if key in rows]
            columns = [pa.array([r.get(i) for r in found], ARROW.field(NAMES[i]).type) for i in _ids(names)]
            batch = pa.RecordBatch.from_arrays(columns, names=names)
            infos = [pb.ColumnInfo(name=n, type=KINDS[n], nullable=True) for n in names]
            reply.results.append(pb.TableRows(columns=infos, arrow=ipc(batch.schema, [batch])))
            for key in keys if read.txn.kind == pb.PESSIMISTIC else ():
                self.handles[read.txn.handle].setdefault(key, self.store.version(key))
            if read.txn.kind == pb.OPTIMISTIC:
                reply.read_set.extend(self._entry(key) for key in keys)
        return reply

    def _keys(self, wanted: pb.TableRead, rows: dict[int, Row]) -> list[int]:
        spec = wanted.keys
        if spec.all:
            return sorted(rows)[: wanted.limit or None]
        keys = [int(str(tuples.decode(key)[0])) for key in spec.keys]
        for prefix in spec.prefixes:
            column = BALANCE if wanted.index else ID
            keys += [k for k in sorted(rows) if (rows[k].get(column),) == tuples.decode(prefix)]
        for span in spec.ranges:
            keys += [k for k in sorted(rows) if span.start <= tuples.encode((k,)) < span.end]
        return keys[: wanted.limit or None]

    def do_execute(self, execute: pb.Execute) -> pb.ExecuteReply:
        self._check_handle(execute.txn)
        rows = self._visible(execute.txn)
        params: list[Any] = list(decode_row(execute.params).values()) if execute.params else []
        word = execute.sql.split()[0].upper()
        reply = pb.ExecuteReply(tag=word, read_ts=execute.txn.read_ts or self.store.clock, schema_version=3)
        match word:
            case "INSERT":
                width = execute.sql.partition("VALUES")[2].partition(")")[0].count("?")
                for start in range(0, len(params), width):
                    self._insert(reply, rows, params[start : start + width])
            case "UPDATE":
                amount, key = params
                if key in rows:
                    columns = {BALANCE: rows[key][BALANCE] + amount}
                    reply.writes.append(write(pb.LogicalWrite.UPDATE, key, columns))
                if execute.txn.kind == pb.OPTIMISTIC:
                    reply.read_set.append(self._entry(key))
                if execute.txn.kind == pb.PESSIMISTIC:
                    self.handles[execute.txn.handle].setdefault(key, self.store.version(key))
            case "DELETE":
                reply.writes.append(write(pb.LogicalWrite.DELETE, params[0], {}))
            case "CREATE" | "DROP":
                self.store.schema_version += 1
            case "SELECT":
                self._select(execute.sql, params, rows, reply)
            case _:
                details = {"line": "1", "column": "1"}
                raise F1Error(Code.INVALID_ARGUMENT, f"syntax error at {word}", details=details)
        reply.rows_affected = len(reply.writes)
        if self.commits_at_once and execute.commit_id and reply.writes:
            commit = pb.Commit(commit_id=execute.commit_id, writes=reply.writes, read_set=reply.read_set)
            reply.commit_ts = self.store.commit(commit).commit_ts
            del reply.writes[:], reply.read_set[:]
        return reply

    def _insert(self, reply: pb.ExecuteReply, rows: dict[int, Row], values: list[Any]) -> None:
        if values[0] in rows:
            raise duplicate(values[0])
        columns = dict(zip((BALANCE, NOTE), values[1:], strict=False))
        reply.writes.append(write(pb.LogicalWrite.INSERT, values[0], columns))

    def _select(self, sql: str, params: list[Any], rows: dict[int, Row], reply: pb.ExecuteReply) -> None:
        data = {NAMES[i]: [rows[k].get(i) for k in sorted(rows)] for i in NAMES}
        account = pa.table(data, schema=ARROW)
        with duckdb.connect() as connection:
            connection.register("Account", account)
            try:
                table = connection.sql(sql, params=params).to_arrow_table()
            except duckdb.Error as error:
                raise F1Error(Code.INVALID_ARGUMENT, str(error), details={"line": "1", "column": "8"}) from error
        types = {pa.int64(): "INT64", pa.string(): "STRING", pa.float64(): "DOUBLE", pa.int32(): "INT64"}
        for field in table.schema:
            kind = types.get(field.type, "NUMERIC" if pa.types.is_decimal(field.type) else str(field.type))
            reply.columns.add(name=field.name, type=kind, nullable=True)
        batches = table.to_batches(max_chunksize=self.page_rows)
        reply.arrow = ipc(table.schema, batches[:1])
        if len(batches) > 1:
            reply.cursor = f"{self.name}-{len(self.served)}".encode()
            self.cursors[reply.cursor] = batches[1:]

    def _check_handle(self, txn: pb.TxnContext) -> None:
        if txn.kind == pb.PESSIMISTIC and txn.handle not in self.handles:
            raise F1Error(Code.ABORTED, "this server holds no such transaction")

    def _visible(self, txn: pb.TxnContext) -> dict[int, Row]:
        overlay = Store()
        overlay.columns = self.store.columns
        overlay.rows = dict(self.store.rows)
        for item in txn.writes:
            overlay.apply(item, 0)
        return {key: row for key, (_, row) in overlay.rows.items()}

    def _entry(self, key: int) -> pb.ReadSetEntry:
        return pb.ReadSetEntry(key=tuples.encode((key,)), ts=self.store.version(key), table="Account")


class _Servicer(f1_pb2_grpc.F1ServerServicer):
    def __init__(self, owner: FakeServer) -> None:
        self._owner = owner

    @maps_errors
    async def Session(self, _: Any, context: Any) -> None:
        serving = asyncio.create_task(
            serve_requests(
                context,
                lambda batch: batch.requests,
                lambda responses: pb.ServerBatch(responses=responses),
                self._owner.handle,
                fail=failed,
            )
        )
        cut = asyncio.create_task(self._owner.cut.wait())
        try:
            await asyncio.wait((serving, cut), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the server is gone")
        finally:
            for task in (serving, cut):
                task.cancel()
            await asyncio.gather(serving, cut, return_exceptions=True)
            self._owner.sessions_ended += 1

    @maps_errors
    async def Status(self, _: pb.StatusRequest, context: Any) -> pb.StatusReply:
        databases = [pb.DatabaseStatus(database="default", schema_version=self._owner.store.schema_version)]
        return pb.StatusReply(name=self._owner.name, zone="a", version="test", databases=databases)


def duplicate(key: object) -> F1Error:
    text = f"table Account has a row with (Id) = ({key}) already"
    return F1Error(Code.ALREADY_EXISTS, text, details={"key": "x"})


def failed(request: pb.Request, error: F1Error) -> pb.Response:
    return pb.Response(id=request.id, error=types_pb2.Error(**error_to_wire(error)._asdict()))


def write(kind: Any, key: int, columns: Row) -> pb.LogicalWrite:
    return pb.LogicalWrite(
        kind=kind, table="Account", key=encode_row({ID: key}), columns=encode_row(columns), schema_version=3
    )


def _ids(names: list[str]) -> list[int]:
    return [next(i for i, n in NAMES.items() if n == name) for name in names]


def ipc(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


class FakeCluster:
    """Servers on an event loop in a thread of their own."""

    def __init__(self, count: int, *, direct: bool) -> None:
        self.store = Store()
        self.servers = [FakeServer(self.store, f"f1-{i + 1}", direct=direct) for i in range(count)]
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="fake f1servers", daemon=True)

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def balances(self) -> dict[int, int]:
        with self.store.lock:
            return {key: row[BALANCE] for key, (_, row) in sorted(self.store.rows.items())}

    def put(self, balances: dict[int, int]) -> None:
        with self.store.lock:
            for key, balance in balances.items():
                self.store.rows[key] = (self.store.tick(), {ID: key, BALANCE: balance, NOTE: None})

    def set_fault(self, fault: Fault | None) -> None:
        for server in self.servers:
            server.fault = fault

    def served(self, kind: str) -> int:
        return sum(server.served.count(kind) for server in self.servers)

    def requests(self, kind: str) -> list[Any]:
        return [getattr(r, kind) for s in self.servers for r in s.requests if r.WhichOneof("body") == kind]


async def _end_the_rest() -> None:
    """End what the servers left: a task that the collector finds on a closed loop complains in somebody else's test."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


@contextmanager
def fake_cluster(count: int = 2, *, direct: bool = True) -> Iterator[FakeCluster]:
    """Run a fake cluster."""
    cluster = FakeCluster(count, direct=direct)
    cluster._thread.start()
    try:
        for server in cluster.servers:
            cluster.do(server.start())
        yield cluster
    finally:
        for server in cluster.servers:
            cluster.do(server.stop())
        cluster.do(_end_the_rest())
        cluster.loop.call_soon_threadsafe(cluster.loop.stop)
        cluster._thread.join(5)
        cluster.loop.close()


def once(fault: str | F1Error, kind: str) -> Fault:
    """Return a fault that happens to the first request of a kind, at whatever server it is."""
    done = threading.Event()

    def look(_: FakeServer, request: pb.Request) -> str | F1Error | None:
        if request.WhichOneof("body") == kind and not done.is_set():
            done.set()
            return fault
        return None

    return look
