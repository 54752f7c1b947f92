"""Bad input at the master and at slaves: starts that are nearly right, strange rows; no crash, no hang, no leak."""

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from f1common.pb import f1_pb2, master_pb2, master_pb2_grpc, slave_pb2, slave_pb2_grpc
from f1common.rpc.batches import END_OF_STREAM
from tests.integration.fuzzing import Fuzz, Servers, with_deadline
from tests.integration.slave_fuzzing import Damage, Heard, Recorder, converse, exchange, recording, starts
from tests.integration.test_fuzz import METHOD_S, Raw, is_answer, with_servers

pytestmark = pytest.mark.timeout(600)

MASTER, SLAVE = master_pb2.DESCRIPTOR.services_by_name["Master"], slave_pb2.DESCRIPTOR.services_by_name["Slave"]

SEEDS = pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 12), *(pytest.param(seed, 60, marks=pytest.mark.long) for seed in range(1, 5))]
)

QUERIES = (
    "SELECT V, count(*), sum(R.A) FROM R JOIN Kid ON R.A = Kid.V GROUP BY V",
    "SELECT B, avg(F), min(D), count(DISTINCT N) FROM R WHERE A > 3 AND B LIKE 'x%' GROUP BY B",
    "SELECT K, row_number() OVER (PARTITION BY K ORDER BY V) FROM Kid WHERE V IN (SELECT A FROM R) ORDER BY 2 LIMIT 5",
    "SELECT R.B, Kid.K FROM R LEFT JOIN Kid ON R.A = Kid.A WHERE R.A BETWEEN 2 AND 30",
    "SELECT B, sum(V) FROM R JOIN Kid ON R.B = Kid.K GROUP BY B HAVING sum(V) > 0",
)


async def filled(given: Servers) -> None:
    rows = ", ".join(f"({i}, 'x{i % 5}', {i}.5, DATE '2020-01-01', {i}e-1)" for i in range(100, 160))
    for sql in (
        f"INSERT INTO R (A, B, N, D, F) VALUES {rows}",
        "INSERT INTO Kid (A, K, V) SELECT A, 'x' || (A % 3), A - 1 FROM R WHERE A >= 100",
    ):
        await given.f1.frontend.execute("default", f1_pb2.Execute(sql=sql))
    async with asyncio.timeout(20):
        while not given.f1.pool.live():
            await asyncio.sleep(0.05)


async def at_rest(given: Servers) -> None:
    """Nothing of any query is left at the slave, and it serves as before."""
    parts = given.slave.parts
    async with asyncio.timeout(20):
        while parts.running or parts._ducks._room._value != parts._ducks._most:
            await asyncio.sleep(0.05)
    for duck in parts._ducks._all:
        tables = duck.connection().table("SELECT table_name FROM duckdb_tables() WHERE NOT temporary")
        assert tables.num_rows == 0, tables
        assert duck.connection().table("SELECT * FROM duckdb_databases() WHERE NOT internal").num_rows == 1
    await first_list(given)
    sql = "EXPLAIN (ANALYZE, FORMAT JSON) SELECT /*+ DISTRIBUTED */ B, count(*) FROM R GROUP BY B"
    reply = await given.f1.frontend.execute("default", f1_pb2.Execute(sql=sql))
    assert b"slave-1" in reply.SerializeToString()


def judge(heard: Heard, what: object) -> None:
    for code, text in zip(heard.codes, heard.texts, strict=True):
        assert code not in ("INTERNAL", "UNKNOWN"), f"{code} {text}\nanswers {what}"


def test_bytes_and_messages(tmp_path: Path) -> None:
    async def body(given: Servers) -> None:
        await filled(given)
        fuzz = Fuzz(21)
        for address, service, module in (
            (given.master_address, MASTER, master_pb2),
            (given.slave_address, SLAVE, slave_pb2),
        ):
            raw = Raw(address)
            for method in service.methods:
                for number in range(80):
                    kind = getattr(module, method.input_type.name)
                    messages = [fuzz.bytes_() for _ in range(fuzz.rng.randrange(4))]
                    if number % 2:
                        messages = [fuzz.fill(kind()).SerializeToString() for _ in range(fuzz.rng.randrange(1, 3))]
                        messages = [fuzz.damaged(m) if fuzz.rng.random() < 0.2 else m for m in messages]
                    name = f"{service.name}.{method.name} with {messages!r}"
                    status, details = await with_deadline(name, METHOD_S, raw.send(service, method, messages))
                    assert is_answer(status, details), (name, status, details)
            await raw.channel.close(None)
        await at_rest(given)

    with_servers(tmp_path, body)


async def first_list(given: Servers) -> None:
    """The master still knows the slave, whatever strangers have told it."""
    async with grpc.aio.insecure_channel(given.master_address) as channel:
        stub: Any = master_pb2_grpc.MasterStub(channel)
        async with asyncio.timeout(10):
            while True:
                news = await stub.Watch(master_pb2.WatchRequest(server="f1-test")).read()
                assert news is not END_OF_STREAM
                found = {entry.slave.name: entry for entry in news.slaves}
                if "slave-1" in found and found["slave-1"].state == master_pb2.SlaveEntry.LIVE:
                    return


@SEEDS
def test_starts_that_are_nearly_right(tmp_path: Path, seed: int, rounds: int) -> None:
    async def body(given: Servers) -> None:
        await filled(given)
        fuzz = Fuzz(seed, ("R", "Kid", "x", "c0"), (6, 7, 8))
        damage = Damage(fuzz)
        async with grpc.aio.insecure_channel(given.slave_address) as channel, recording() as (_, other):
            stub: Any = slave_pb2_grpc.SlaveStub(channel)
            right = [await starts(given, sql, other, fuzz.rng) for sql in QUERIES]
            counts = {"failed": 0, "ready": 0}
            for _ in range(rounds):
                some = [damage.start(fuzz.rng.choice(right)) for _ in range(8)]
                credit = fuzz.rng.choice((None, None, 0, 1, (1 << 64) - 1))
                found = await with_deadline(
                    "starts", 60, asyncio.gather(*(converse(stub, s, (), credit) for s in some))
                )
                for start, heard in zip(some, found, strict=True):
                    judge(heard, start)
                    counts["failed"] += bool(heard.codes)
                    counts["ready"] += heard.ready
            assert counts["failed"] > 4 * rounds
            assert counts["ready"] > rounds
        await at_rest(given)

    with_servers(tmp_path, body)


def hello_of(start: slave_pb2.Start) -> slave_pb2.Hello:
    return slave_pb2.Hello(protocol_version=1, query=start.query, attempt=start.attempt, from_worker=1, to_worker=0)


async def as_they_are(
    given: Servers, stub: Any, sql: str, recorder: Recorder, other: str, fuzz: Fuzz
) -> tuple[slave_pb2.Start, list[slave_pb2.Rows]]:
    """Return a start and what the slave gives the other worker, which is like what it gets from there.

    With nothing damaged, the run comes to its end.
    """
    start = await starts(given, sql, other, fuzz.rng)
    rows: list[slave_pb2.Rows] = []
    taken: list[tuple[str, str]] = []

    async def send() -> None:
        taken.append(await exchange(stub, hello_of(start), [rows]))

    await converse(stub, start)
    # What a later part gives goes out only once all rows are there.
    for attempt in range(2, 5):
        rows[:] = recorder.rows[start.query, start.attempt]
        start.attempt = attempt
        heard = await converse(stub, start, [send], patience_s=3.0)
        if heard.done:
            break
    assert heard.done, (sql, heard, taken)
    assert set(taken) == {("OK", "")}
    return start, rows


@SEEDS
def test_rows_that_are_nearly_right(tmp_path: Path, seed: int, rounds: int) -> None:
    async def body(given: Servers) -> None:
        await filled(given)
        fuzz = Fuzz(seed)
        rng, damage = fuzz.rng, Damage(fuzz)
        async with grpc.aio.insecure_channel(given.slave_address) as channel, recording() as (recorder, other):
            stub: Any = slave_pb2_grpc.SlaveStub(channel)
            right = [await as_they_are(given, stub, sql, recorder, other, fuzz) for sql in QUERIES if "LEFT" not in sql]
            codes: dict[str, int] = {}

            async def one() -> None:
                example, rows = rng.choice(right)
                start = slave_pb2.Start()
                start.CopyFrom(example)
                start.query = rng.randbytes(16)
                hello = hello_of(start)
                if rng.random() < 0.15:
                    fuzz.fill(hello)
                messages = damage.rows(rows)

                async def send() -> None:
                    status, details = await exchange(stub, hello if rng.random() < 0.95 else None, messages)
                    assert is_answer(status, details), (status, details, messages)
                    codes[status] = codes.get(status, 0) + 1

                heard = await converse(stub, start, [send] * rng.choice((1, 1, 1, 2)))
                judge(heard, messages)
                for code in heard.codes:
                    codes[code] = codes.get(code, 0) + 1

            for _ in range(rounds):
                await with_deadline("rows", 60, asyncio.gather(*(one() for _ in range(6))))
            assert codes["INVALID_ARGUMENT"] > rounds, codes
        await at_rest(given)

    with_servers(tmp_path, body)
