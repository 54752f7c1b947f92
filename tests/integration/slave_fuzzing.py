"""Real starts of distributed queries and the rows that belong to them, and how they are damaged."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa

from f1common.pb import slave_pb2 as pb
from f1common.pb import slave_pb2_grpc as stubs
from f1common.rpc.batches import END_OF_STREAM
from f1common.rpc.deadlines import Deadline
from f1common.rpc.status import error_from_rpc
from f1server.dist.attempt import Order
from f1server.dist.scheduler import Worker
from f1server.plan.statements import QueryStatement, parse
from tests.integration.fuzzing import LOST_STATUS, Fuzz, Servers

PATIENCE_S = 0.4

BAD_SQL = (
    "",
    ";",
    "SELECT",
    "SELECT 1; SELECT 2",
    "SELECT 1) AS x; SELECT * FROM (SELECT 1",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT content FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('/*')",
    "COPY (SELECT 1) TO '/tmp/f1-fuzz-slave.csv'",
    "ATTACH '/tmp/f1-fuzz-slave.db' AS other",
    "ATTACH ':memory:' AS other",
    "PRAGMA database_list",
    "PRAGMA enable_external_access",
    "SET enable_external_access = true",
    "SET memory_limit = '100GB'",
    "RESET ALL",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CALL pragma_version()",
    "CREATE TABLE kept AS SELECT 1 AS a",
    "CREATE MACRO f1_kept(a) AS a",
    "DROP TABLE kept",
    "BEGIN",
    "CHECKPOINT",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPORT DATABASE '/tmp/f1-fuzz-slave'",
    "SELECT * FROM query('DROP TABLE kept')",
    "SELECT error('mine')",
    "SELECT 1 // 0 AS a",
    "SELECT CAST('x' AS BIGINT) AS a",
    "SELECT * FROM nothing_of_that_name",
    "SELECT $nobody AS a",
    "SELECT [1, 2] AS a, {'b': 1} AS c, NULL AS d, 1::HUGEINT AS e, uuid() AS f",
    "SELECT map {'a': 1} AS m, union_value(a := 1) AS u, INTERVAL 1 DAY AS i, '1'::BIT AS b",
    "SELECT 'a'::ENUM('a', 'b') AS e, TIME '12:00:00' AS t, 1::UBIGINT AS u, 'x'::BLOB AS y",
    "SELECT 1 AS a, 2 AS a",
    "SELECT repeat('x', 70000000) AS big",
    "SELECT count(*) AS n FROM range(100000000000) AS a",
    "SELECT " + "(" * 3_000 + "1" + ")" * 3_000,
)

Start = pb.Start


@dataclass(slots=True)
class Heard:
    """What a slave answered to one start."""

    codes: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    ready: bool = False
    done: bool = False

    def note(self, code: str, text: str) -> None:
        """Keep an answer, unless the transport has lost what it was (as in test_fuzz.Raw)."""
        if LOST_STATUS in text:
            return
        self.codes.append(code)
        self.texts.append(text)


class Recorder(stubs.SlaveServicer):
    """Takes the place of a second slave and keeps what the first one sends it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, int], list[pb.Rows]] = {}

    async def Exchange(self, request_iterator: Any, context: Any) -> None:
        """Take everything over."""
        hello = (await context.read()).hello
        kept = self.rows.setdefault((hello.query, hello.attempt), [])
        await context.write(pb.ExchangeReply())
        while (message := await context.read()) is not END_OF_STREAM:
            kept.extend(message.rows)
            await context.write(pb.ExchangeReply(credit_bytes=sum(r.ByteSize() for r in message.rows)))


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[Recorder, str]]:
    """Serve a recorder; gives it and its address."""
    recorder, server = Recorder(), grpc.aio.server()
    stubs.add_SlaveServicer_to_server(recorder, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield recorder, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def starts(given: Servers, sql: str, other: str, rng: random.Random) -> Start:
    """Return what the slave is told, as the first of two workers, to run a query."""
    runner = given.f1._sql
    (statement,) = parse(sql)
    assert isinstance(statement, QueryStatement)
    schema = (await given.f1.leases.current("default")).schema
    query = await runner._bind(schema, statement, (), given.f1.client.strong_timestamp())
    assert runner._dist is not None
    plan = await runner._dist.choose(
        "/*+ DISTRIBUTED */", query.prepared, query.bound, (), given.f1.client.strong_timestamp()
    )
    assert not isinstance(plan, str), plan
    order = Order(rng.randbytes(16), plan, given.f1.client.strong_timestamp(), Deadline.after(20), None)
    return order.starts(1, [Worker("slave-1", 1, given.slave_address), Worker("other", 2, other)])[0]


async def converse(
    stub: Any, start: Start, others: Sequence[Any] = (), credit: int | None = None, patience_s: float = PATIENCE_S
) -> Heard:
    """Start a run, let ``others`` (calls that take whether it is ready) happen, go, hear the end or have patience."""
    heard = Heard()
    call = stub.Run(timeout=15)
    loop = asyncio.get_running_loop()
    try:
        await call.write(pb.RunRequest(start=start))
        end_s = loop.time() + 8.0
        while loop.time() < end_s:
            try:
                async with asyncio.timeout(min(end_s - loop.time(), 2.0)):
                    reply = await call.read()
            except TimeoutError:
                continue
            if reply is END_OF_STREAM:
                heard.note((await call.code()).name, await call.details())
                break
            if reply.HasField("ready"):
                heard.ready = True
                for what in others:
                    await what()
                if credit is not None:
                    await call.write(pb.RunRequest(credit_bytes=credit))
                await call.write(pb.RunRequest(go=pb.Go()))
                end_s = loop.time() + patience_s
            if reply.rows:
                await call.write(pb.RunRequest(credit_bytes=sum(r.ByteSize() for r in reply.rows)))
            if reply.HasField("failed"):
                heard.note(reply.failed.error.code, reply.failed.error.message)
                break
            if reply.HasField("done"):
                heard.done = True
                break
    except grpc.aio.AioRpcError as error:
        said = error_from_rpc(error)
        heard.note(said.code.value, f"{error.code().name} {said.message}")
    except asyncio.InvalidStateError:
        heard.note((await call.code()).name, await call.details())
    finally:
        call.cancel()
    return heard


async def exchange(stub: Any, hello: pb.Hello | None, messages: Sequence[Sequence[pb.Rows]]) -> tuple[str, str]:
    """Send rows to a slave as another one would; returns the status, OK while it goes on."""
    call = stub.Exchange(timeout=10)
    try:
        await call.write(pb.ExchangeRequest(hello=hello))
        async with asyncio.timeout(PATIENCE_S):
            if await call.read() is END_OF_STREAM:
                return (await call.code()).name, await call.details()
            for rows in messages:
                await call.write(pb.ExchangeRequest(rows=rows))
                if await call.read() is END_OF_STREAM:
                    return (await call.code()).name, await call.details()
        return "OK", ""
    except TimeoutError:
        return "OK", "goes on"
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    except asyncio.InvalidStateError:
        return (await call.code()).name, await call.details()
    finally:
        # The rows are all there before the end of the stream: what comes of the end is the run's affair.
        asyncio.get_running_loop().call_later(PATIENCE_S, call.cancel)


class Damage:
    """Makes starts and rows nearly right."""

    def __init__(self, fuzz: Fuzz) -> None:
        self.fuzz = fuzz
        self.rng = fuzz.rng

    def start(self, right: Start) -> Start:
        """Return a damaged copy with ids of its own."""
        rng = self.rng
        start = pb.Start()
        start.CopyFrom(right)
        start.query = rng.randbytes(16)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            rng.choice(
                (self._numbers, self._parts, self._parts, self._scan, self._scan, self._sql, self._clips, self._schema)
            )(start)
        return start

    def _numbers(self, start: Start) -> None:
        rng = self.rng
        match rng.randrange(9):
            case 0:
                start.window_bytes = rng.choice((0, 1, (1 << 64) - 1))
            case 1:
                start.timeout_ms = rng.choice((1, 50, (1 << 64) - 1, 1 << 53))
            case 2:
                start.attempt = rng.choice((0, (1 << 32) - 1))
            case 3:
                start.worker = rng.choice((1, 2, (1 << 32) - 1))
            case 4:
                start.timestamp = rng.choice((0, -1, 1, -(1 << 63), (1 << 63) - 1, start.timestamp + 10**15))
            case 5:
                start.protocol_version = rng.choice((0, 2, 1 << 31))
            case 6:
                start.query = rng.randbytes(rng.choice((0, 1, 15, 17, 100)))
            case 7:
                del start.workers[:]
                start.workers.extend(rng.choice(([], [""], ["x" * 300] * 2, ["127.0.0.1:1"] * 300, ["ä:b", "[::"])))
            case _:
                start.collect = True
                start.schema_commit_ts = rng.choice((0, -1, 1 << 62))

    def _parts(self, start: Start) -> None:
        rng, parts = self.rng, start.parts
        part = rng.choice(parts)
        match rng.randrange(12):
            case 0:
                parts.remove(part)
            case 1:
                parts.add().CopyFrom(part)
            case 2:
                part.id = rng.choice((0, 1, 2, 3, 99, (1 << 32) - 1))
            case 3:
                part.workers = rng.choice((pb.Part.ALL, pb.Part.ONE, pb.Part.SERVER))
            case 4:
                part.inputs[rng.choice(("x", *part.inputs))] = rng.choice((0, 1, 2, 3, 99))
            case 5:
                part.inputs.clear()
            case 6 if part.outputs:
                rng.choice(part.outputs).consumer = rng.choice((0, 1, 2, 3, 99))
            case 7 if part.outputs:
                rng.choice(part.outputs).spread = rng.choice(
                    (pb.Output.HASH, pb.Output.BROADCAST, pb.Output.GATHER, pb.Output.KEEP)
                )
            case 8 if part.outputs:
                output = rng.choice(part.outputs)
                del output.keys[:]
                output.keys.extend(rng.choice(([], ["1) FROM x; SELECT (1"], ["nobody"], ["'a'", "NULL"], [""])))
            case 9 if part.outputs:
                rng.choice(part.outputs).relation = rng.choice(("", "x", 'a"b', "main.x", "t; DROP"))
            case 10:
                self.fuzz.fill(part.functions.add())
            case _:
                kept = list(parts)
                rng.shuffle(kept)
                del parts[:]
                parts.extend(kept)

    def _scan(self, start: Start) -> None:
        rng = self.rng
        scans = [scan for part in start.parts for scan in part.scans]
        if not scans:
            return
        item = rng.choice(scans)
        match rng.randrange(14):
            case 0:
                item.scan.table_id = rng.choice((0, 1, 2, 99, (1 << 64) - 1))
            case 1:
                item.scan.columns.add(column_id=rng.choice((0, 1, 99, (1 << 64) - 1)), path=["a"] * rng.randrange(2))
            case 2:
                item.names.append(rng.choice(("", "A", 'x"y')))
            case 3:
                self.fuzz.fill(item.scan.spans.add())
            case 4:
                self.fuzz.fill(item.scan.predicates.add())
            case 5:
                item.scan.predicates.add(
                    column=rng.choice(item.scan.columns or [pb.Field()]), op=rng.choice(("EQ", "IN", "LT"))
                )
            case 6:
                item.scan.index_id = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 99))
                self.fuzz.fill(item.scan.index_spans.add())
            case 7:
                item.scan.limit = rng.choice((0, 1, (1 << 64) - 1))
            case 8:
                item.relation = rng.choice(("", "x", 'a"b', "information_schema.tables", "a b", "t AS SELECT 1; --"))
            case 9:
                self.fuzz.fill(item.lookup)
                item.lookup.relation = rng.choice([s.relation for s in scans] + ["nobody"])
            case 10:
                item.views.add(relation=rng.choice(("v", "v; --", ""))).columns.add(there="A", here="B")
            case 11:
                item.scan.ancestry = rng.choice((0, 1))
            case 12:
                item.scan.covering = not item.scan.covering
                item.scan.with_locks = not item.scan.with_locks
            case _:
                rng.choice(scans).CopyFrom(item)

    def _sql(self, start: Start) -> None:
        rng = self.rng
        part = rng.choice(start.parts)
        if rng.random() < 0.8:
            part.sql = rng.choice(BAD_SQL)
        else:
            self.fuzz.fill(part.bound[rng.choice(("p1", "x", ""))])

    def _clips(self, start: Start) -> None:
        rng = self.rng
        for scan in [s for part in start.parts for s in part.scans][:2]:
            clip = start.clips.add(part=rng.choice((0, 1, 2)), relation=scan.relation)
            clip.range.start, clip.range.end = rng.choice(((b"\xff", b""), (b"", b"\xff"), (b"\x00", b"\x00")))
        for clip in start.clips:
            if rng.random() < 0.5:
                clip.range.start, clip.range.end = self.fuzz.bytes_(), self.fuzz.bytes_()

    def _schema(self, start: Start) -> None:
        start.schema = self.fuzz.damaged(start.schema) if self.rng.random() < 0.9 else self.fuzz.bytes_()

    # ------------------------------------------------------------------ rows

    def rows(self, right: Sequence[pb.Rows]) -> list[list[pb.Rows]]:
        """Return messages of damaged, doubled, late and strange rows."""
        rng = self.rng
        found = [pb.Rows.FromString(r.SerializeToString()) for r in right]
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(len(found))
            rows = found[at]
            match rng.randrange(9):
                case 0:
                    found.insert(rng.randrange(len(found) + 1), rows)
                case 1:
                    found.append(found.pop(at))
                case 2 if rows.batch:
                    rows.batch = self._bytes(rows.batch)
                case 3 if rows.schema:
                    rows.schema = self._bytes(rows.schema)
                case 4:
                    rows.consumer = rng.choice((0, 1, 2, 3, 99))
                case 5:
                    rows.relation = rng.choice(("", "nobody", *(r.relation for r in found)))
                case 6:
                    found[at + 1 : at + 1] = strange_rows(rows, rng)
                case 7:
                    rows.last = not rows.last
                case _:
                    rows.batch, rows.schema = rows.schema, rows.batch
        return [found] if rng.random() < 0.5 else [[rows] for rows in found]

    def _bytes(self, data: bytes) -> bytes:
        """Flip bits, most of them in the metadata or the offsets that follow it."""
        rng, out = self.rng, bytearray(data)
        for _ in range(rng.choice((1, 1, 3, 20))):
            at = rng.randrange(len(out)) if rng.random() < 0.5 else rng.randrange(min(len(out), 500))
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, out[at] ^ (1 << rng.randrange(8))))
        return bytes(out[: rng.randrange(len(out))] if rng.random() < 0.1 else out)


_OFFSETS, _FAR = struct.pack("<2i", 0, 2), struct.pack("<2i", 0, 1 << 30)


def _strange_tables() -> list[pa.Table]:
    bad_text = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\0\0\0\0\x02\0\0\0\x04\0\0\0"), pa.py_buffer(b"\xff\xfe\xff\xc0")
    )
    bad_offsets = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\0\0\0\0\xff\xff\xff\x7f\x04\0\0\0"), pa.py_buffer(b"abcd")
    )
    lists = pa.array([[1, 2]])
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["a", "b"])
    tables = [pa.table({"c0": column}) for column in (bad_text, bad_offsets, lists, dictionary)]
    tables.append(pa.table({"c0": pa.array([], pa.null())}))
    tables.append(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))
    for kind in (
        pa.decimal256(70, 1),
        pa.float16(),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.list_view(pa.int8()),
    ):
        tables.append(pa.table({"c0": pa.array([None], kind)}))
    uuid = pa.field("c0", pa.binary(3), metadata={"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""})
    huge = pa.field("c0", pa.binary(2), metadata={"ARROW:extension:name": "duckdb.hugeint"})
    marked = pa.field("c0", pa.string(), metadata={"duckdb": "BIGINT) AS a FROM f1_spooled; --"})
    cast = pa.field("c0", pa.string(), metadata={"duckdb": "HUGEINT"})
    tables.append(pa.Table.from_arrays([pa.array([b"abc"], pa.binary(3))], schema=pa.schema([uuid])))
    tables.append(pa.Table.from_arrays([pa.array([b"ab"], pa.binary(2))], schema=pa.schema([huge])))
    tables.append(pa.Table.from_arrays([pa.array(["x"])], schema=pa.schema([marked])))
    tables.append(pa.Table.from_arrays([pa.array(["x"])], schema=pa.schema([cast])))
    return tables


def strange_rows(like: pb.Rows, rng: random.Random) -> list[pb.Rows]:
    """Return rows whose values, offsets or types are not what workers send, under the name of others."""
    table = rng.choice(_strange_tables())
    found = [
        pb.Rows(consumer=like.consumer, relation=like.relation, schema=table.schema.serialize().to_pybytes()),
    ]
    for batch in table.to_batches():
        # Among others the offsets of lists, which Arrow does not write wrong itself.
        data = batch.serialize().to_pybytes().replace(_OFFSETS, rng.choice((_OFFSETS, _FAR)))
        found.append(pb.Rows(consumer=like.consumer, relation=like.relation, batch=data))
    return found
