"""The rows of a dropped database go, whatever becomes of the client and the server that dropped it."""

import asyncio

import f1
from f1common.errors import F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.dropped import Dropped, DroppedDatabases
from f1server.check.parts import of_schema
from f1server.schemachange.jobs.jobs import JobStore
from f1server.testing.database import Database, with_database
from spanstore.client import KeyRange

ROWS = 1_500
TABLES = (
    "CREATE TABLE T (Id INT64 PRIMARY KEY, V STRING); CREATE INDEX TV ON T (V); CREATE TABLE U (Id INT64 PRIMARY KEY)"
)


async def filled(db: Database) -> f1.aio.Connection:
    """Make a database with rows, and return a connection to it."""
    await db.conn.execute("CREATE DATABASE gone")
    conn = await db.nodes.connect(db.env, database="gone", autocommit=True)
    await conn.apply_schema({"gone.sql": TABLES})
    await conn.insert("T", [{"Id": i, "V": f"v{i % 10}"} for i in range(ROWS)])
    await conn.insert("U", [{"Id": i} for i in range(10)])
    return conn


async def dropped(db: Database) -> Dropped:
    """Wait until the database is no more and its rows are being removed."""
    while not (found := await DroppedDatabases(db.storage).listed()):
        await asyncio.sleep(0.002)
    return found[0]


async def all_gone(db: Database) -> None:
    while await DroppedDatabases(db.storage).listed():
        await asyncio.sleep(0.5)


def keys_of(db: Database, gone: Dropped) -> list[KeyRange]:
    return [KeyRange(part.start, part.end) for part in of_schema(gone.schema, ())]


async def count(db: Database, spans: list[KeyRange]) -> int:
    return sum(map(len, (await db.storage.read([], spans)).ranges))


def test_another_server_goes_on_if_the_first_one_dies() -> None:
    async def body(db: Database) -> None:
        await filled(db)
        asked = db.env.spawn(db.conn.execute("DROP DATABASE gone"))
        row = await dropped(db)
        spans = keys_of(db, row)
        before = await count(db, spans)
        assert before > ROWS
        db.world.crash(row.owner)
        assert await count(db, spans) > 0  # it died before it was through
        await asyncio.gather(asked, return_exceptions=True)
        await all_gone(db)
        assert await count(db, spans) == 0

    with_database(body)


def test_it_goes_on_if_the_client_goes_away() -> None:
    async def body(db: Database) -> None:
        await filled(db)
        asked = db.env.spawn(db.conn.execute("DROP DATABASE gone"))
        row = await dropped(db)
        spans = keys_of(db, row)
        asked.cancel()
        await db.conn.close()
        assert await count(db, spans) > 0
        await all_gone(db)
        assert await count(db, spans) == 0

    with_database(body)


def test_a_check_meanwhile_finds_nothing() -> None:
    async def body(db: Database) -> None:
        await filled(db)
        db.env.spawn(db.conn.execute("DROP DATABASE gone"))
        row = await dropped(db)
        assert await count(db, keys_of(db, row)) > 0
        frontend = db.frontend(0)
        plan = await frontend.check("default", pb.Check(plan=pb.CheckPlan()))
        assert [gone.database for gone in await DroppedDatabases(db.storage).listed(plan.timestamp)] == ["gone"]
        assert len(plan.parts) > 2
        for part in plan.parts:
            part.timestamp = plan.timestamp
            assert not (await frontend.check("default", pb.Check(part=part))).findings

    with_database(body)


def test_a_change_of_it_that_runs_ends_and_leaves_nothing() -> None:
    async def body(db: Database) -> None:
        conn = await filled(db)
        changing = db.env.spawn(conn.execute("CREATE INDEX Late ON T (V, Id)"))
        while not (await conn.session.schema_jobs(pb.SchemaJobs())).jobs[-1].rows:
            await asyncio.sleep(0.01)
        await db.conn.execute("DROP DATABASE gone")
        (ended,) = await asyncio.gather(changing, return_exceptions=True)
        assert isinstance(ended, f1.Error | F1Error)
        await all_gone(db)
        await asyncio.sleep(20)
        assert await JobStore(db.storage, db.env.clock).all_running() == []

    with_database(body)
