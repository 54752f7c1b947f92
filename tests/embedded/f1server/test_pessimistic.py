"""Pessimistic transactions at their f1server: what ends one, what does not, and who may use it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import f1
from f1.transactions import Transaction
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.pb import spanstore_pb2
from f1server.testing.database import Database, with_database

R = "CREATE TABLE R (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))"


async def code_of(work: Awaitable[Any]) -> Code | None:
    """Which error it was; None for a success."""
    try:
        await work
    except F1Error as error:
        return error.code
    return None


async def begin(db: Database) -> bytes:
    return (await db.frontend().begin("default", pb.Begin(kind=pb.PESSIMISTIC))).handle


def context(handle: bytes) -> pb.TxnContext:
    return pb.TxnContext(kind=pb.PESSIMISTIC, handle=handle)


async def run(db: Database, handle: bytes, sql: str, database: str = "default") -> pb.ExecuteReply:
    return await db.frontend().execute(database, pb.Execute(sql=sql, txn=context(handle)))


async def read(db: Database, handle: bytes, table: str, database: str = "default") -> pb.ReadReply:
    everything = pb.TableRead(table=table, keys=pb.KeySet(all=True))
    return await db.frontend().read(database, pb.Read(reads=[everything], txn=context(handle)))


async def end(db: Database, handle: bytes, database: str = "default") -> pb.EndReply:
    return await db.frontend().end(database, pb.End(handle=handle, commit=True))


def test_a_wrong_statement_does_not_end_a_transaction() -> None:
    """What is wrong with the names or values of one statement costs none of the locks."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 1})
        handle = await begin(db)
        await run(db, handle, "SELECT * FROM R FOR UPDATE")
        assert await code_of(read(db, handle, "Nope")) is Code.NOT_FOUND
        assert await code_of(run(db, handle, "SELECT * FROM Nope")) is Code.NOT_FOUND
        assert await code_of(run(db, handle, "SELECT V / 0 FROM R")) is Code.INVALID_ARGUMENT
        assert await code_of(run(db, handle, "SELEKT")) is Code.INVALID_ARGUMENT
        assert await code_of(run(db, handle, "CREATE TABLE S (A INT64, PRIMARY KEY (A))")) is Code.FAILED_PRECONDITION
        waiting = asyncio.create_task(db.conn.execute("UPDATE R SET V = 2"))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert (await end(db, handle)).commit_ts
        await waiting
        assert await code_of(end(db, handle)) is Code.ABORTED
        assert await code_of(run(db, handle, "SELECT 1")) is Code.ABORTED

    with_database(body, R)


def test_a_transaction_is_known_in_its_database_only() -> None:
    async def body(db: Database) -> None:
        await db.ddl("CREATE DATABASE other")
        handle = await begin(db)
        assert await code_of(run(db, handle, "SELECT 1", "other")) is Code.INVALID_ARGUMENT
        assert await code_of(read(db, handle, "R", "other")) is Code.INVALID_ARGUMENT
        assert await code_of(end(db, handle, "other")) is Code.INVALID_ARGUMENT
        assert await code_of(read(db, handle, "R")) is None

    with_database(body, R)


@pytest.mark.parametrize("delay_us", range(0, 2_000, 200))
def test_an_end_beside_a_running_statement(delay_us: int) -> None:
    """Either comes first, or the transaction is over; nobody is told of a defect."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 1})
        handle = await begin(db)

        async def later() -> Code | None:
            await db.world.sleep_us(delay_us)
            return await code_of(end(db, handle))

        statements = [code_of(run(db, handle, "SELECT * FROM R")), code_of(read(db, handle, "R"))]
        codes = await asyncio.gather(*statements, later())
        assert set(codes) <= {None, Code.ABORTED}
        assert len(db.frontend()._pessimistic) == 0
        await db.ddl("UPDATE R SET V = 3")

    with_database(body, R)


def test_idle_ones_are_killed_and_give_their_locks_back() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 1})
        handle = await begin(db)
        await run(db, handle, "SELECT * FROM R FOR UPDATE")
        # As long as there is something to do, it lives.
        for _ in range(4):
            await asyncio.sleep(4)
            await run(db, handle, "SELECT 1 FROM R")
        waiting = asyncio.create_task(db.conn.execute("UPDATE R SET V = 2"))
        await asyncio.sleep(4)
        assert not waiting.done()
        await asyncio.sleep(9)
        assert waiting.done()
        assert await code_of(run(db, handle, "SELECT 1")) is Code.ABORTED
        assert len(db.frontend()._pessimistic) == 0

    with_database(body, R)


def test_a_long_statement_is_not_idle() -> None:
    """It waits for one lock after the other, for longer in all than an idle transaction may live."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": 0} for a in range(3)])
        holders = [await db.at(1, autocommit=False) for _ in range(2)]
        for number, holder in enumerate(holders):
            await holder.begin("pessimistic")
            await holder.execute(f"UPDATE R SET V = 1 WHERE A = {number}")

        async def keep(conn: f1.aio.Connection, seconds: int) -> None:
            for _ in range(seconds):
                await asyncio.sleep(1)
                await conn.execute("SELECT 1 FROM R WHERE A = 2")
            await conn.commit()

        async def long() -> None:
            mine = await db.at(0, autocommit=False)
            async with mine.transaction("pessimistic") as tx:
                # A join reads its tables one after the other.
                await tx.execute("SELECT * FROM R AS X, R AS Y WHERE X.A = 0 AND Y.A = 1")
                await tx.execute("UPDATE R SET V = 2 WHERE A = 2")

        await asyncio.gather(keep(holders[0], 7), keep(holders[1], 14), long())
        assert await db.rows("SELECT V FROM R ORDER BY A") == [(1,), (1,), (2,)]

    with_database(body, R)


def test_a_restarted_server_knows_no_transactions() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 1})
        tries = 0

        async def work(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            await tx.execute("UPDATE R SET V = V + 1 WHERE A = 1")
            if tries == 1:
                for name in db.nodes.names:
                    db.world.crash(name)
                    db.world.restart(name)
                await asyncio.sleep(1)

        await db.conn.run(work, kind="pessimistic")
        assert tries > 1
        assert await db.rows("SELECT V FROM R") == [(2,)]

    with_database(body, R)


def test_a_commit_that_misses_its_schema_lease_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server makes no other attempt, for its locks are gone: its client has to be told that it may."""

    async def body(db: Database) -> None:
        conn = await db.at(0)
        await conn.insert("R", {"A": 1, "V": 1})
        router = db.process().client._router
        original = router.send
        late: list[str] = []
        tries: list[str] = []

        async def send(group: int, request: Callable[[], spanstore_pb2.Request], *args: Any, **kwargs: Any) -> Any:
            if tries and not late and request().WhichOneof("body") == "commit":
                late.append("commit")
                await asyncio.sleep(4.0)
            return await original(group, request, *args, **kwargs)

        async def work(tx: Transaction) -> None:
            tries.append("try")
            rows = await (await tx.execute("SELECT V FROM R WHERE A = 1 FOR UPDATE")).fetchall()
            await tx.update("R", {"A": 1, "V": rows[0][0] + 1})

        monkeypatch.setattr(router, "send", send)
        await conn.run(work, kind="pessimistic")
        assert (late, len(tries)) == (["commit"], 2)
        assert await db.rows("SELECT V FROM R") == [(2,)]

    with_database(body, R, f1servers=1)
