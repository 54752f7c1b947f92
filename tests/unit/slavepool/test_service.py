"""A slave among others: what it tells of itself, and how it ends."""

import asyncio

import pytest

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.dist.wire import parts_to_pb, schema_to_wire
from f1server.exec.duck import DuckConfig
from f1server.plan.parts import Output, Part, Spread, Workers
from f1server.testing.embedded import EmbeddedDatabase
from slavepool.assignment import SchemaCache, assignment_from_pb
from slavepool.ducks import Ducks
from tests.unit.dist.slaves import database, plan, running, scan

DDL = "CREATE TABLE One (Id INT64 NOT NULL, PRIMARY KEY (Id));"
ENDLESS = "SELECT sum(sqrt(a.range * b.range)) AS s FROM range(1000000) AS a(range), range(1000000) AS b(range)"


def db_of_one() -> EmbeddedDatabase:
    return database(DDL, One=[(1,)])


def parts(db: EmbeddedDatabase, sql: str = "SELECT * FROM One") -> tuple[Part, ...]:
    return (
        Part(1, sql, Workers.ALL, (scan(db.schema.table("One")),), outputs=(Output(2, "x", Spread.GATHER),)),
        Part(2, "SELECT * FROM x", Workers.SERVER, inputs={"x": 1}),
    )


def start(db: EmbeddedDatabase, **changes: object) -> pb.Start:
    fields = {
        "query": b"q" * 16,
        "attempt": 1,
        "workers": ["a:1", "b:1"],
        "worker": 1,
        "schema": schema_to_wire(db.schema),
        "timestamp": 7,
        "parts": parts_to_pb(parts(db)),
    }
    return pb.Start(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_a_slave_is_told() -> None:
    db = db_of_one()
    message = start(db)
    message.clips.add(part=1, relation="One").range.end = b""
    found = assignment_from_pb(message, SchemaCache())
    assert found.key == (b"q" * 16, 1)
    assert (found.position, found.workers, found.timestamp) == (1, ("a:1", "b:1"), 7)
    assert [part.id for part in found.own_parts] == [1]
    (planned,) = found.scans(found.own_parts[0])
    assert planned.scan.empty, "an empty share is read by nobody"


@pytest.mark.parametrize("changes", [{"query": b""}, {"attempt": 0}, {"worker": 2}, {"workers": []}, {"parts": []}])
def test_what_makes_no_sense(changes: dict[str, object]) -> None:
    with pytest.raises(F1Error) as caught:
        assignment_from_pb(start(db_of_one(), **changes), SchemaCache())
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_equal_schemas_are_read_once() -> None:
    data = schema_to_wire(db_of_one().schema)
    cache = SchemaCache(size=2)
    first = cache.get(data, 1)
    assert cache.get(data, 1) is first
    assert cache.get(data, 2) is not first
    assert cache.get(data, 3).commit_ts == 3
    assert cache.get(data, 1) is not first, "the least lately used is forgotten"


def test_what_it_tells_of_itself() -> None:
    db = db_of_one()

    async def go() -> None:
        async with running(db, 1) as pool:
            (service,) = pool.services.values()
            assert service.vitals().running == 0
            task = asyncio.create_task(pool.run(plan(db, *parts(db, ENDLESS))))
            async with asyncio.timeout(20):
                while service.vitals().running != 1:
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await pool.idle()
            assert service.vitals().running == 0

    asyncio.run(go())


def test_a_slave_that_is_closed_interrupts_what_runs() -> None:
    db = db_of_one()

    async def go() -> None:
        async with running(db, 1) as pool:
            (service,) = pool.services.values()
            task = asyncio.create_task(pool.run(plan(db, *parts(db, ENDLESS))))
            async with asyncio.timeout(20):
                while not service.running:
                    await asyncio.sleep(0.01)
                await service.close()
                with pytest.raises(F1Error) as caught:
                    await task
            assert caught.value.code is Code.UNAVAILABLE

    asyncio.run(go())


def test_ducks_are_lent_and_kept() -> None:
    async def go() -> None:
        ducks = Ducks(DuckConfig(threads=1), None, 2)
        async with ducks.one() as first:
            async with ducks.one() as second:
                assert first is not second
                with pytest.raises(F1Error) as caught:
                    async with ducks.one():
                        pass
                assert caught.value.code is Code.OVERLOADED
                assert caught.value.retryable
            async with ducks.one() as again:
                assert again is second
                ducks.condemn(again)
            async with ducks.one() as other:
                assert other is not second
        ducks.close()

    asyncio.run(go())
