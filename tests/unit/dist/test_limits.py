"""Large exchanges under small limits, slow consumers, and the end of queries that nobody wants any more."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from f1common.config import SlaveSection
from f1common.errors import Code, F1Error
from f1common.pb import slave_pb2 as pb
from f1common.pb import slave_pb2_grpc as stubs
from f1common.rpc.channels import insecure_channel_factory
from f1common.rpc.deadlines import Deadline
from f1common.rpc.status import error_from_rpc
from f1server.exec.duck import Duck
from f1server.plan.parts import DistributedPlan
from f1server.testing.embedded import EmbeddedDatabase
from tests.unit.dist.slaves import Output, Part, PoolOfSlaves, Spread, Workers, database, plan, running, scan

DDL = "CREATE TABLE One (Id INT64 NOT NULL, PRIMARY KEY (Id));"
SMALL = SlaveSection(memory_mib=128, query_memory_mib=32, threads=1)


def one() -> EmbeddedDatabase:
    return database(DDL, One=[(i,) for i in range(4)])


def many(db: EmbeddedDatabase, rows: int, *, root: str = "SELECT * FROM x", shuffled: bool = True) -> DistributedPlan:
    """Rows made of nothing at every worker, exchanged by hash or kept, then gathered."""
    made = f"SELECT range AS k, range * 7 AS v, repeat('x', 60) AS t FROM range({rows}) AS r(range)"
    spread = Output(2, "y", Spread.HASH, ("k",)) if shuffled else Output(2, "y", Spread.KEEP)
    return plan(
        db,
        Part(1, made, Workers.ALL, (scan(db.schema.table("One")),), outputs=(spread,)),
        Part(2, "SELECT k, v, t FROM y", Workers.ALL, inputs={"y": 1}, outputs=(Output(3, "x", Spread.GATHER),)),
        Part(3, root, Workers.SERVER, inputs={"x": 2}),
    )


def held(ducks: Iterable[Duck]) -> int:
    """Bytes that DuckDBs hold in memory or on disk."""
    total = 0
    for duck in ducks:
        connection = duck.connection()
        found = connection.table("SELECT sum(memory_usage_bytes + temporary_storage_bytes) AS n FROM duckdb_memory()")
        total += found.column(0).to_pylist()[0] or 0
        connection.close()
    return total


async def given_back(ducks: Iterable[Duck]) -> None:
    """Wait until DuckDBs hold nothing: they free what a query held a moment after it."""
    async with asyncio.timeout(20):
        while held(ducks) > 1 << 20:
            await asyncio.sleep(0.02)


def of_slaves(pool: PoolOfSlaves) -> list[Duck]:
    return [duck for service in pool.services.values() for duck in service._ducks._all]


def test_a_large_exchange_in_little_memory() -> None:
    """A million rows, about 80 MB of Arrow, through windows of 4 MiB into DuckDBs of 32 and 64 MiB, which spill."""
    db = one()

    async def go() -> None:
        async with running(db, 2, section=SMALL) as pool:
            sql = "SELECT count(*) AS n, count(DISTINCT k) AS d, sum(v) AS s FROM x"
            done = await pool.run(many(db, 500_000, root=sql))
            assert (await done.result.table()).to_pylist() == [
                {"n": 1_000_000, "d": 500_000, "s": 2 * 7 * sum(range(500_000))}
            ]
            reads = {(p.part, p.worker): p.reads for p in done.stats.parts}
            assert all(reads[2, w][0].spooled for w in done.stats.workers)
            assert sum(s.bytes for p in done.stats.parts for s in p.sent if s.destination not in (p.worker,)) > 40 << 20
            await pool.idle()
            await given_back(of_slaves(pool))

    asyncio.run(go())


def test_more_than_fits_is_an_error_of_the_query_alone() -> None:
    db = one()
    greedy = plan(
        db,
        Part(
            1,
            "SELECT list(range) AS l, list(repeat('x', 900) || range) AS t FROM range(500000) AS r(range)",
            Workers.ALL,
            (scan(db.schema.table("One")),),
            outputs=(Output(2, "x", Spread.GATHER),),
        ),
        Part(2, "SELECT len(l) AS n FROM x", Workers.SERVER, inputs={"x": 1}),
    )

    async def go() -> None:
        async with running(db, 2, section=SMALL) as pool:
            with pytest.raises(F1Error) as caught:
                await pool.run(greedy)
            assert caught.value.code is Code.OVERLOADED
            assert not caught.value.retryable
            await pool.idle()
            assert (await pool.table(many(db, 1000))).num_rows == 2000

    asyncio.run(go())


def test_a_row_that_no_message_holds() -> None:
    """It is the query's own error: nobody is at fault, and it is not tried again."""
    db = one()
    huge = plan(
        db,
        Part(
            1,
            "SELECT repeat('x', 66000000) AS t",
            Workers.ONE,
            (scan(db.schema.table("One")),),
            outputs=(Output(2, "x", Spread.GATHER),),
        ),
        Part(2, "SELECT length(t) AS n FROM x", Workers.SERVER, inputs={"x": 1}),
    )

    async def go() -> None:
        async with running(db, 2, section=SlaveSection(memory_mib=1024, query_memory_mib=1024, threads=1)) as pool:
            with pytest.raises(F1Error) as caught:
                await pool.run(huge)
            assert caught.value.code is Code.OUT_OF_RANGE
            assert not pool.suspected

    asyncio.run(go())


def test_a_slow_reader_of_the_result_holds_no_slave() -> None:
    db = one()

    async def go() -> None:
        async with running(db, 2) as pool:
            done = await pool.run(many(db, 100_000))
            await pool.idle()
            rows = 0
            async for batch in done.result.batches:
                rows += batch.num_rows
                await asyncio.sleep(0.01)
            assert rows == 200_000

    asyncio.run(go())


def endless(db: EmbeddedDatabase) -> DistributedPlan:
    """Work for minutes."""
    sql = "SELECT sum(sqrt(a.range * b.range)) AS s FROM range(1000000) AS a(range), range(1000000) AS b(range)"
    return plan(
        db,
        Part(
            1, "SELECT * FROM One", Workers.ALL, (scan(db.schema.table("One")),), outputs=(Output(2, "y", Spread.KEEP),)
        ),
        Part(2, sql, Workers.ALL, inputs={"y": 1}, outputs=(Output(3, "x", Spread.GATHER),)),
        Part(3, "SELECT * FROM x", Workers.SERVER, inputs={"x": 2}),
    )


async def until_running(pool: PoolOfSlaves) -> None:
    async with asyncio.timeout(20):
        while pool.running < len(pool.services):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("what", ["evaluation", "exchange"])
def test_cancelling_gives_everything_back(what: str) -> None:
    db = one()

    async def go() -> None:
        async with running(db, 2, section=SMALL) as pool:
            query = endless(db) if what == "evaluation" else many(db, 50_000_000)
            task = asyncio.create_task(pool.run(query))
            await until_running(pool)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await pool.idle()
            await given_back(of_slaves(pool))
            async with asyncio.timeout(20):  # the thread of an evaluation that was interrupted ends when it notices
                while any(len(s._ducks._idle) < len(s._ducks._all) for s in pool.services.values()):
                    await asyncio.sleep(0.01)
            assert (await pool.table(many(db, 1000))).num_rows == 2000

    asyncio.run(go())


def test_a_deadline_ends_a_query_everywhere() -> None:
    db = one()

    async def go() -> None:
        async with running(db, 2, section=SMALL) as pool:
            with pytest.raises(F1Error) as caught:
                await pool.run(endless(db), deadline=Deadline.after(1.0))
            assert caught.value.code is Code.DEADLINE_EXCEEDED
            await pool.idle()

    asyncio.run(go())


def test_closing_a_result_that_is_not_read() -> None:
    db = one()

    async def go() -> None:
        async with running(db, 2) as pool:
            done = await pool.run(many(db, 100_000))
            done.result.close()
            read = await pool.run(many(db, 100_000))
            assert (await anext(read.result.batches)).num_rows
            await read.result.batches.aclose()  # type: ignore[attr-defined]
            await given_back([pool.coordinator._engine.duck])

    asyncio.run(go())


def test_slaves_whose_f1server_is_gone_give_everything_back() -> None:
    """The stream breaks without a cancellation: the process that held it is dead."""
    db = one()

    async def go() -> None:
        async with running(db, 2, section=SMALL) as pool:
            task = asyncio.create_task(pool.run(endless(db)))
            await until_running(pool)
            for member in pool.members:
                await pool.coordinator._channels.forget(member.address)
            await pool.idle()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(go())


def test_a_slave_that_dies_in_the_middle_costs_an_attempt() -> None:
    db = one()

    async def go() -> None:
        async with running(db, 3, section=SMALL) as pool:
            sql = "SELECT count(*) AS n FROM x"
            task = asyncio.create_task(pool.run(many(db, 3_000_000, root=sql)))
            await until_running(pool)
            await pool.kill("slave-2")
            done = await task
            assert (await done.result.table()).to_pylist() == [{"n": 6_000_000}]
            assert done.stats.workers == ("slave-1", "slave-3")

    asyncio.run(go())


# ---------------------------------------------------------------- what strangers may say


async def said(pool: PoolOfSlaves, method: str, *messages: Any) -> F1Error:
    """The error that a slave answers a stream of messages with."""
    import grpc.aio

    channel = insecure_channel_factory()(pool.members[0].address)
    call = getattr(stubs.SlaveStub(channel), method)()
    try:
        for message in messages:
            await call.write(message)
        while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
            pass
        raise AssertionError("the slave found nothing wrong")
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error)
    finally:
        call.cancel()
        await channel.close()


def test_orphans_and_strangers_are_refused() -> None:
    db = one()

    async def go() -> None:
        async with running(db, 1) as pool:
            hello = pb.Hello(protocol_version=1, query=b"x" * 16, attempt=1)
            error = await said(pool, "Exchange", pb.ExchangeRequest(hello=hello))
            assert error.code is Code.NOT_FOUND
            error = await said(pool, "Exchange", pb.ExchangeRequest(hello=pb.Hello(protocol_version=9)))
            assert error.code is Code.VERSION_MISMATCH
            error = await said(pool, "Run", pb.RunRequest(start=pb.Start(protocol_version=9)))
            assert error.code is Code.VERSION_MISMATCH
            error = await said(pool, "Run", pb.RunRequest(start=pb.Start(protocol_version=1, query=b"short")))
            assert error.code is Code.INVALID_ARGUMENT
            assert pool.running == 0

    asyncio.run(go())
