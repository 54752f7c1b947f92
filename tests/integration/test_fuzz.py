"""Bad input at every gRPC method and at the parser: no crash, no hang, no INTERNAL, and the servers go on serving."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from f1common.errors import Code
from f1common.pb import f1_pb2, f1_pb2_grpc, spanstore_pb2, spanstore_pb2_grpc
from f1common.rpc.batches import END_OF_STREAM
from tests.amounts import some
from tests.integration.fuzzing import LOST_STATUS, SPECIAL_SQL, Fuzz, Servers, servers, sql_mutations, with_deadline

pytestmark = pytest.mark.timeout(600)

METHOD_S = 20.0
ENDLESS = ("Watch",)
SPAN, F1 = spanstore_pb2.DESCRIPTOR.services_by_name["SpanServer"], f1_pb2.DESCRIPTOR.services_by_name["F1Server"]

SCHEMA = (
    "CREATE TABLE R (A INT64 NOT NULL, B STRING, N NUMERIC, D DATE, T TIMESTAMP, F DOUBLE, Y BYTES, G BOOL, "
    "PRIMARY KEY (A))",
    "CREATE TABLE Kid (A INT64 NOT NULL, K STRING NOT NULL, V INT64 DEFAULT 3, PRIMARY KEY (A, K)) "
    "INTERLEAVE IN PARENT R",
    "CREATE TABLE Heap (X STRING, At TIMESTAMP DEFAULT now())",
    "CREATE INDEX RB ON R (B)",
    "CREATE LOCAL INDEX KV ON Kid (A, V)",
    "CREATE UNIQUE INDEX KU ON Kid (V, K)",
)

VALID_SQL = (
    "SELECT A, B, N FROM R WHERE A >= 1 AND B LIKE 'x%' ORDER BY A DESC LIMIT 3",
    "SELECT R.A, count(*), sum(V) FROM R LEFT JOIN Kid ON R.A = Kid.A GROUP BY R.A HAVING count(*) > 0",
    "SELECT * FROM R WHERE D BETWEEN DATE '2020-01-01' AND DATE '2021-01-01' OR T < now()",
    "SELECT A, (SELECT max(V) FROM Kid WHERE Kid.A = R.A) FROM R",
    "WITH q AS (SELECT A FROM R) SELECT * FROM q UNION SELECT A FROM Kid EXCEPT SELECT 3",
    "SELECT CAST(N AS STRING), CAST(B AS INT64), F / 0.5, A / 2, A % 3, coalesce(Y, B'ab') FROM R",
    "SELECT row_number() OVER (PARTITION BY G ORDER BY A) FROM R",
    "INSERT INTO R (A, B, N) VALUES (7, 'x', 1.5), (8, NULL, -2)",
    "INSERT INTO Kid (A, K) SELECT A, 'k' || A FROM R ON CONFLICT (A, K) DO UPDATE SET V = excluded.V RETURNING *",
    "UPDATE R SET B = B || 'x', N = N + 1 WHERE A = 7 RETURNING A",
    "UPDATE Kid SET V = R.A FROM R WHERE Kid.A = R.A",
    "DELETE FROM Kid WHERE V IN (SELECT A FROM R) RETURNING K",
    "EXPLAIN SELECT * FROM R WHERE B = 'x'",
    "SHOW TABLES",
    "SELECT * FROM ChangeHistory_R WHERE A = 1",
    "SELECT array_agg(A), string_agg(B, ','), date_trunc('month', T), extract(year FROM D) FROM R GROUP BY T, D",
)


class Raw:
    """A channel on which any bytes can be sent to any method."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)

    async def send(self, service: Any, method: Any, messages: Sequence[bytes]) -> tuple[str, str]:
        """Call a method with these messages; returns the server's status and details.

        grpc.aio overwrites a status that arrives while a message is being written (grpc issue 36066). Then the call is
        made again, until what the server said is known.
        """
        for _ in range(10):
            status, details = await self._send(service, method, messages)
            if details != LOST_STATUS:
                break
        return status, details

    async def _send(self, service: Any, method: Any, messages: Sequence[bytes]) -> tuple[str, str]:
        path = f"/{service.full_name}/{method.name}"
        sides = (method.client_streaming, method.server_streaming)
        make = getattr(self.channel, "_".join("stream" if streams else "unary" for streams in sides))
        call = make(path, request_serializer=None, response_deserializer=None)
        try:
            if method.client_streaming:
                stream = call(timeout=METHOD_S / 2)
                for message in messages:
                    await stream.write(message)
                await stream.done_writing()
            else:
                stream = call(messages[0] if messages else b"", timeout=METHOD_S / 2)
            if method.server_streaming:
                if method.name in ENDLESS and await stream.read() is not END_OF_STREAM:
                    # Its first answer is all that is to be had in the time of a test.
                    stream.cancel()
                    return "OK", ""
                while await stream.read() is not END_OF_STREAM:
                    pass
                return (await stream.code()).name, await stream.details()
            await stream
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            if isinstance(error, grpc.aio.AioRpcError):
                return error.code().name, error.details() or ""
            return (await stream.code()).name, await stream.details()
        return "OK", ""


def is_answer(status: str, details: str) -> bool:
    """Neither a defect nor a hang; gRPC itself refuses a single message that cannot be read, with UNKNOWN."""
    return status not in ("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED") or "DecodeError" in details


async def still_serves(given: Servers) -> None:
    """A statement that reads and writes works as before."""
    frontend = given.f1.frontend
    for sql in (
        "INSERT INTO Alive (A, N) VALUES (1, 1) ON CONFLICT (A) DO UPDATE SET N = Alive.N + 1",
        "SELECT N FROM Alive",
    ):
        reply = await asyncio.wait_for(frontend.execute("default", f1_pb2.Execute(sql=sql)), 20)
        assert reply.tag


async def prepared(given: Servers) -> None:
    ddl = ";\n".join((*SCHEMA, "CREATE TABLE Alive (A INT64 NOT NULL, N INT64, PRIMARY KEY (A))"))
    await given.f1.frontend.apply_schema(
        "default", f1_pb2.ApplySchema(files=[f1_pb2.SourceFile(name="s.sql", text=ddl)])
    )
    for sql in VALID_SQL[7:9]:
        await given.f1.frontend.execute("default", f1_pb2.Execute(sql=sql))


def with_servers(tmp_path: Path, body: Callable[[Servers], Awaitable[None]]) -> None:
    logging.disable(logging.CRITICAL)

    async def main() -> None:
        async with servers(tmp_path) as given:
            await prepared(given)
            await body(given)
            await still_serves(given)

    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


def test_bytes_at_every_method(tmp_path: Path) -> None:
    async def body(given: Servers) -> None:
        fuzz = Fuzz(1)
        for address, service in ((given.span_address, SPAN), (given.f1_address, F1)):
            raw = Raw(address)
            for method in service.methods:
                for _ in range(40):
                    messages = [fuzz.bytes_() for _ in range(fuzz.rng.randrange(4))]
                    name = f"{service.name}.{method.name} with {messages!r}"
                    status, details = await with_deadline(name, METHOD_S, raw.send(service, method, messages))
                    assert is_answer(status, details), (name, status, details)
            await raw.channel.close(None)

    with_servers(tmp_path, body)


async def session(stub: Any, module: Any, requests: Sequence[Any], seconds: float) -> list[Any]:
    """Send requests on one stream and return their responses, in any order. Raises if some are missing."""
    call = stub.Session()
    await call.write(module.ClientBatch())
    responses: list[Any] = []

    async def read() -> None:
        while len(responses) < len(requests):
            batch = await call.read()
            assert batch is not END_OF_STREAM, f"the stream ended: {await call.code()} {await call.details()}"
            responses.extend(batch.responses)

    for start in range(0, len(requests), 10):
        await call.write(module.ClientBatch(requests=requests[start : start + 10]))
    try:
        await asyncio.wait_for(read(), seconds)
    except TimeoutError:
        answered = {response.id for response in responses}
        missing = [request for request in requests if request.id not in answered]
        raise AssertionError(f"no answer to {missing[:3]}") from None
    await call.done_writing()
    return responses


def judged(requests: Sequence[Any], responses: Sequence[Any]) -> dict[str, int]:
    """Check the answers and count their codes."""
    by_id = {request.id: request for request in requests}
    codes: dict[str, int] = {}
    for response in responses:
        request = by_id.pop(response.id)
        code = response.error.code if response.WhichOneof("body") == "error" else "OK"
        assert code != Code.INTERNAL, f"{response.error.message}\nanswers {request}"
        assert code == "OK" or response.error.message, request
        codes[code] = codes.get(code, 0) + 1
    assert not by_id
    return codes


@pytest.mark.parametrize("seed", some([0], range(1, 5)))
def test_messages_at_the_f1server(tmp_path: Path, seed: int) -> None:
    async def body(given: Servers) -> None:
        sql = [*VALID_SQL, "BEGIN", "nonsense"]
        schema = (await given.f1.leases.current("default")).schema
        ids = [e for table in schema.tables for e in (table.id, *table.by_id)]
        names = [t.name for t in schema.tables] + ["A", "K", "V", "B", "RB", "KV", "KU"]
        fuzz = Fuzz(seed, [*sql, *names, *names], ids)
        async with grpc.aio.insecure_channel(given.f1_address) as channel:
            stub: Any = f1_pb2_grpc.F1ServerStub(channel)
            codes: dict[str, int] = {}
            for _ in range(10):
                requests = []
                for number in range(60):
                    request = f1_pb2.Request(id=number + 1, timeout_ms=3_000)
                    request.database = fuzz.rng.choice(("", "", "", "", "", "default", "nope"))
                    if fuzz.body(request) == "apply_schema":
                        request.apply_schema.dry_run = True
                    requests.append(request)
                responses = await session(stub, f1_pb2, requests, 60)
                for code, count in judged(requests, responses).items():
                    codes[code] = codes.get(code, 0) + count
                fuzz.seen += [handle for r in responses for handle in (r.begin.handle, r.execute.cursor) if handle]
                fuzz.seen += [entry.key for r in responses for entry in r.execute.read_set[:2]]
                del fuzz.seen[:-40]
            assert codes["OK"] > 100

    with_servers(tmp_path, body)


@pytest.mark.parametrize("seed", some([0], range(1, 5)))
def test_messages_at_the_spanserver(tmp_path: Path, seed: int) -> None:
    async def body(given: Servers) -> None:
        fuzz = Fuzz(seed, (), (1_800_000_000_000_000,))
        async with grpc.aio.insecure_channel(given.span_address) as channel:
            stub: Any = spanstore_pb2_grpc.SpanServerStub(channel)
            codes: dict[str, int] = {}
            for _ in range(8):
                requests = []
                for number in range(60):
                    request = spanstore_pb2.Request(id=number + 1, timeout_ms=1_500)
                    request.group = fuzz.rng.choice((1, 1, 2, 2, 2, 9))
                    fuzz.body(request)
                    requests.append(request)
                for code, count in judged(requests, await session(stub, spanstore_pb2, requests, 60)).items():
                    codes[code] = codes.get(code, 0) + count

    with_servers(tmp_path, body)


def test_messages_at_the_other_methods(tmp_path: Path) -> None:
    """Among them what replicas say to each other: a stranger must not stop them."""

    async def body(given: Servers) -> None:
        fuzz = Fuzz(5)
        for address, service in ((given.span_address, SPAN), (given.f1_address, F1)):
            raw = Raw(address)
            for method in service.methods:
                for _ in range(40):
                    kind = getattr(spanstore_pb2 if service is SPAN else f1_pb2, method.input_type.name)
                    messages = [fuzz.fill(kind()).SerializeToString() for _ in range(fuzz.rng.randrange(1, 3))]
                    messages = [fuzz.damaged(m) if fuzz.rng.random() < 0.2 else m for m in messages]
                    name = f"{service.name}.{method.name} with {messages!r}"
                    if method.name == "Session":
                        continue
                    status, details = await with_deadline(name, METHOD_S, raw.send(service, method, messages))
                    assert is_answer(status, details), (name, status, details)
            await raw.channel.close(None)

    with_servers(tmp_path, body)


def test_sql(tmp_path: Path) -> None:
    async def body(given: Servers) -> None:
        rng = random.Random(11)
        texts = [*SPECIAL_SQL, *VALID_SQL, *sql_mutations(rng, (*VALID_SQL, *SCHEMA[3:5]), 400)]
        requests = []
        for number, text in enumerate(texts):
            request = f1_pb2.Request(id=number + 1, timeout_ms=5_000)
            request.execute.sql = text
            request.execute.txn.kind = rng.choice((f1_pb2.AUTOCOMMIT, f1_pb2.OPTIMISTIC, f1_pb2.SNAPSHOT))
            requests.append(request)
        async with grpc.aio.insecure_channel(given.f1_address) as channel:
            stub: Any = f1_pb2_grpc.F1ServerStub(channel)
            codes: dict[str, int] = {}
            for start in range(0, len(requests), 20):
                some = requests[start : start + 20]
                for code, count in judged(some, await session(stub, f1_pb2, some, 60)).items():
                    codes[code] = codes.get(code, 0) + count
            assert codes["OK"] > 50
            assert codes["INVALID_ARGUMENT"] > 100

    with_servers(tmp_path, body)
