"""A change that another server begins just when this one is about to is waited for; what it half did is no reason."""

import asyncio
from typing import Any

import pytest

import f1
from f1.planning import plan_change
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.testing.changes import small_batches
from f1server.testing.database import Database, with_database

TABLES = (
    "CREATE TABLE T (Id INT64 NOT NULL, G INT64 NOT NULL, PRIMARY KEY (Id))",
    "CREATE TABLE U (Id INT64 NOT NULL, G INT64 NOT NULL, PRIMARY KEY (Id))",
)
INDEX = "CREATE INDEX I ON T (G)"
COLUMN = "ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 5"


async def meet(db: Database, first: str, second: str) -> "f1.Error | None":
    """Have one server begin ``first`` when another has seen that nothing runs, and is about to begin ``second``."""
    await db.conn.insert("T", [{"Id": i, "G": i % 5} for i in range(60)])
    changes: Any = db.process(1)._changes
    begin = changes._store.begin
    begun: list[Any] = []

    async def late(*args: Any, **options: Any) -> Any:
        if not begun:
            one = db.env.spawn((await db.at(0)).execute(first))
            while (running := await changes._jobs.running("default")) is None:
                pass
            begun.append(one)
            schema = (await changes._store.load("default")).schema
            while await changes._jobs.running("default") is not None and schema.version == 1 + running.job.number:
                schema = (await changes._store.load("default")).schema
        return await begin(*args, **options)

    changes._store.begin = late
    failure = None
    try:
        await (await db.at(1)).execute(second)
    except f1.Error as error:
        failure = error
    assert await changes._jobs.running("default") is None
    await begun[0]
    return failure


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (INDEX, "CREATE INDEX IF NOT EXISTS I ON T (G)"),
        (INDEX, "ALTER TABLE T SET PRIMARY KEY (G, Id)"),
        (COLUMN, "ALTER TABLE T ADD COLUMN IF NOT EXISTS X INT64 NOT NULL DEFAULT 5"),
        (COLUMN, "CREATE INDEX TX ON T (X)"),
        ("ALTER TABLE T SET PRIMARY KEY (G, Id)", "ALTER TABLE U ADD COLUMN Y INT64"),
        ("DROP TABLE U", "CREATE TABLE U (A INT64, PRIMARY KEY (A))"),
        ("DROP TABLE U", "DROP TABLE IF EXISTS U"),
    ],
)
def test_it_is_made_when_the_other_one_has_ended(first: str, second: str) -> None:
    async def body(db: Database) -> None:
        assert await meet(db, first, second) is None

    with small_batches():
        with_database(body, *TABLES)


def test_a_reason_that_the_other_one_leaves_behind_is_told() -> None:
    async def body(db: Database) -> None:
        failure = await meet(db, INDEX, INDEX)
        assert failure is not None and "ALREADY_EXISTS" in str(failure)

    with small_batches():
        with_database(body, *TABLES)


FORMER = f"{TABLES[0]}; CREATE INDEX I ON T (G)"
MOVED = FORMER.replace("KEY (Id)", "KEY (G, Id)")


@pytest.mark.parametrize("wait_s", [0.05, 0.15, 0.3, 0.5])
def test_sources_wait_for_a_move_and_are_planned_on_what_it_leaves(wait_s: float) -> None:
    """They were planned on the half-made schema, and refused."""

    async def body(db: Database) -> None:
        await db.ddl(INDEX)
        await db.conn.insert("T", [{"Id": i, "G": i % 5} for i in range(200)])
        first = db.env.spawn((await db.at(0)).apply_schema({"a.sql": MOVED}))
        await asyncio.sleep(wait_s)
        second = await db.at(1)
        with pytest.raises(F1Error, match=r"schema change 3 of default .* is running: plan again") as caught:
            await plan_change(second.session, {"a.sql": MOVED}, data=False)
        assert caught.value.code is Code.FAILED_PRECONDITION
        assert not (await second.apply_schema({"a.sql": MOVED})).steps
        await first
        assert (await second.apply_schema({"a.sql": FORMER})).steps
        assert await db.rows("SELECT count(*), sum(Id) FROM T") == [(200, sum(range(200)))]

    with small_batches():
        with_database(body, TABLES[0])


def test_sources_do_not_wait_for_a_change_that_is_paused() -> None:
    async def body(db: Database) -> None:
        await db.ddl(INDEX)
        await db.conn.insert("T", [{"Id": i, "G": i % 5} for i in range(200)])
        first = db.env.spawn((await db.at(0)).apply_schema({"a.sql": MOVED}))
        await asyncio.sleep(0.15)
        await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.PAUSE, number=3))
        while (await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs[-1].state != "paused":
            await asyncio.sleep(0.01)
        with pytest.raises(f1.Error, match=r"f1 schema resume 3.*f1 schema cancel 3"):
            await (await db.at(1)).apply_schema({"a.sql": FORMER})
        await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.CANCEL, number=3))
        assert not (await (await db.at(1)).apply_schema({"a.sql": FORMER})).steps
        with pytest.raises(f1.Error, match="was cancelled"):
            await first

    with small_batches():
        with_database(body, TABLES[0])
