"""One part at one worker: what it takes, what it refuses, and what is left when it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1server.catalog.schema import Kind, Schema
from f1server.dist.evaluation import PartEvaluation
from f1server.dist.rows import RowsReader, batch_rows, last_rows, schema_rows
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine
from f1server.plan.parts import Output, Part, Spread, Workers
from f1server.plan.resolve import ProtoFunction, function_name
from f1server.plan.types import SqlType
from f1server.testing.embedded import EmbeddedDatabase
from f1server.testing.memory import MemoryTables
from tests.unit.dist.slaves import plan, running, scan

SCHEMA = pa.schema([("k", pa.int64())])
BATCH = pa.record_batch({"k": pa.array([1, 2])})
PART = Part(7, "SELECT CAST(sum(k) AS BIGINT) AS s FROM x", Workers.ALL, inputs={"x": 1})
TO_PART = Output(7, "x", Spread.HASH, ("k",))


def evaluated(test: Callable[[PartEvaluation], Awaitable[None]], spool_bytes: int = 1 << 20) -> None:
    """Run a test of the part, to which workers 0 and 2 give rows."""

    async def go() -> None:
        duck = Duck(DuckConfig(threads=1, spool_bytes=spool_bytes))
        evaluation = PartEvaluation(Engine(duck), PART, {"x": frozenset({0, 2})})
        await evaluation.open()
        await test(evaluation)
        await evaluation.close()
        duck.close()

    asyncio.run(go())


@pytest.mark.parametrize("spool_bytes", [1 << 20, 1])
def test_it_is_complete_when_everyone_has_given_all(spool_bytes: int) -> None:
    async def test(part: PartEvaluation) -> None:
        await part.take("x", 0, SCHEMA, None, False)
        await part.take("x", 2, SCHEMA, BATCH, False)
        await part.take("x", 0, SCHEMA, BATCH, True)
        assert [part.awaits(giver) for giver in (0, 1, 2)] == [False, False, True]
        await part.take("x", 2, SCHEMA, None, True)
        assert part.complete
        await part.fill(Schema("d"), [], MemoryTables())
        assert (await part.query(PART.sql)).names == ["s"]
        batch = await part.next_batch(100)
        assert batch.to_pylist() == [{"s": 6}]
        assert await part.next_batch(100) is None
        (read,) = part.stats("w").reads
        assert (read.relation, read.rows, read.scan, read.spooled) == ("x", 4, False, spool_bytes == 1)
        assert part.stats("w").rows_out == 1

    evaluated(test, spool_bytes=spool_bytes)


@pytest.mark.parametrize(("relation", "giver"), [("x", 1), ("y", 0), ("x", -1)])
def test_rows_that_nobody_asked_for(relation: str, giver: int) -> None:
    async def test(part: PartEvaluation) -> None:
        with pytest.raises(F1Error) as caught:
            await part.take(relation, giver, SCHEMA, BATCH, False)
        assert caught.value.code is Code.INVALID_ARGUMENT

    evaluated(test)


def test_rows_after_the_last() -> None:
    async def test(part: PartEvaluation) -> None:
        await part.take("x", 0, SCHEMA, None, True)
        with pytest.raises(F1Error):
            await part.take("x", 0, SCHEMA, BATCH, False)

    evaluated(test)


def test_rows_of_another_type() -> None:
    async def test(part: PartEvaluation) -> None:
        await part.take("x", 0, SCHEMA, None, False)
        with pytest.raises(F1Error, match="of other types"):
            await part.take("x", 2, SCHEMA, pa.record_batch({"k": pa.array(["a"])}), False)

    evaluated(test)


def test_a_part_that_is_closed_takes_nothing() -> None:
    async def test(part: PartEvaluation) -> None:
        await part.close()
        await part.close()
        with pytest.raises(F1Error) as caught:
            await part.take("x", 0, SCHEMA, BATCH, False)
        assert caught.value.code is Code.CANCELLED
        with pytest.raises(F1Error):
            await part.next_batch(1)

    evaluated(test)


def test_rows_as_messages() -> None:
    async def test(part: PartEvaluation) -> None:
        def consumer(number: int) -> PartEvaluation:
            assert number == 7
            return part

        for giver in (0, 2):
            reader = RowsReader(giver, consumer)
            for rows in (schema_rows(TO_PART, SCHEMA), batch_rows(TO_PART, BATCH), last_rows(TO_PART)):
                await reader.take(pb.Rows.FromString(rows.SerializeToString()))
        assert part.complete

    evaluated(test)


@pytest.mark.parametrize(
    "rows",
    [
        pb.Rows(consumer=7, relation="x", batch=b"garbage"),
        pb.Rows(consumer=7, relation="x", schema=b"garbage"),
        batch_rows(TO_PART, BATCH),
        last_rows(TO_PART),
    ],
    ids=["no batch", "no schema", "rows before their schema", "an end before the schema"],
)
def test_messages_that_make_no_sense(rows: Any) -> None:
    async def test(part: PartEvaluation) -> None:
        with pytest.raises(F1Error) as caught:
            await RowsReader(0, lambda _: part).take(rows)
        assert caught.value.code is Code.INVALID_ARGUMENT

    evaluated(test)


def test_functions_over_messages_work_at_slaves() -> None:
    db = EmbeddedDatabase()
    db.apply(
        "CREATE TABLE A (K INT64 NOT NULL, M PROTO<p.M>, PRIMARY KEY (K));",
        protos=[("p.proto", 'syntax = "proto3"; package p; message M { string s = 1; }')],
    )
    table = db.schema.table("A")
    # The bytes of M { s: "hi" }.
    db.tables.put(table, [{table.column("K").id: 1, table.column("M").id: b"\x0a\x02hi"}])
    name = function_name(db.schema, "path", "p.M", ("s",))
    function = ProtoFunction(name, "path", "p.M", ("s",), SqlType(Kind.STRING))
    query = plan(
        db,
        Part(
            1,
            f'SELECT {name}("M") AS s FROM A',
            Workers.ALL,
            (scan(table),),
            outputs=(Output(2, "x", Spread.GATHER),),
            functions=(function,),
        ),
        Part(2, "SELECT s FROM x", Workers.SERVER, inputs={"x": 1}),
    )

    async def go() -> None:
        async with running(db, 2) as pool:
            assert (await pool.table(query)).to_pylist() == [{"s": "hi"}]

    asyncio.run(go())
