"""DDL returns when its change has ended, however long that takes; who cannot wait is told its number."""

import asyncio
from typing import Any

import pytest

import f1
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.schemachange.executor import SchemaChanges
from f1server.schemachange.jobs import patience
from f1server.testing.database import Database, with_database

TABLE = "CREATE TABLE T (Id INT64 NOT NULL, PRIMARY KEY (Id))"
WORK_S = 60.0


@pytest.fixture(autouse=True)
def slow_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work on rows takes a minute, and clients wait for two seconds."""
    reorganise = SchemaChanges._reorganise

    async def slow(self: SchemaChanges, *args: Any) -> None:
        await asyncio.sleep(WORK_S)
        await reorganise(self, *args)

    monkeypatch.setattr(SchemaChanges, "_reorganise", slow)
    monkeypatch.setattr("f1.aio._DDL_TIMEOUT_S", 2.0)


async def impatient(db: Database, number: int = 0) -> f1.aio.Connection:
    client = await db.nodes.connect(db.env, hosts=db.nodes.host(db.nodes.names[number]), autocommit=True)
    client.session.timeout_s = 2.0
    return client


async def jobs(db: Database) -> list[pb.SchemaJob]:
    return list((await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs)


def test_statements_and_sources_return_when_it_has_ended() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("T", {"Id": 1})
        client = await impatient(db)
        await client.execute("ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 5")
        assert await db.rows("SELECT X FROM T") == [(5,)]
        wanted = f"{TABLE[:-1]}, X INT64 NOT NULL DEFAULT 5); CREATE INDEX TX ON T (X)"
        done = await client.apply_schema({"a.sql": wanted})
        assert "TX" in str(done.steps)
        assert [job.state for job in (await jobs(db))[-2:]] == ["done", "done"]

    with_database(body, TABLE)


def test_what_may_wait_behind_another_says_so() -> None:
    """Its server gives up with its client, but perhaps not before it has begun."""

    async def body(db: Database) -> None:
        await db.conn.insert("T", {"Id": 1})
        first = db.env.spawn((await impatient(db)).execute("ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 5"))
        await asyncio.sleep(1.0)
        number = (await jobs(db))[-1].number
        with pytest.raises(f1.Error, match=f"may wait behind schema change {number}, which runs") as caught:
            await (await impatient(db, 1)).execute("ALTER TABLE T ADD COLUMN Y INT64 NOT NULL DEFAULT 6")
        assert caught.value.code is Code.UNKNOWN_OUTCOME
        await first

    with_database(body, TABLE)


@pytest.mark.parametrize("sources", [False, True])
def test_one_waits_behind_another_however_long_that_runs(monkeypatch: pytest.MonkeyPatch, sources: bool) -> None:
    """Whoever waits is told in time that nothing was begun, and asks again."""
    monkeypatch.setattr(patience, "_BEHIND_S", 0.3)
    told: list[str] = []
    behind = patience.Patience.behind

    async def noted(*args: Any) -> Any:
        try:
            return await behind(*args)
        except F1Error as error:
            told.append(error.details["waits_behind"])
            raise

    monkeypatch.setattr(patience.Patience, "behind", noted)

    async def body(db: Database) -> None:
        await db.conn.insert("T", {"Id": 1})
        first = db.env.spawn((await impatient(db)).execute("ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 5"))
        await asyncio.sleep(1.0)
        number = (await jobs(db))[-1].number
        client = await impatient(db)
        if sources:
            await client.apply_schema(
                {"a.sql": f"{TABLE[:-1]}, X INT64 NOT NULL DEFAULT 5, Y INT64 NOT NULL DEFAULT 6)"}
            )
        else:
            await client.execute("ALTER TABLE T ADD COLUMN Y INT64 NOT NULL DEFAULT 6")
        await first
        assert await db.rows("SELECT X, Y FROM T") == [(5, 6)]
        assert len(told) > 2 and set(told) == {str(number)}

    with_database(body, TABLE)


def test_a_change_that_fails_late_says_why() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("T", {"Id": -1})
        with pytest.raises(f1.Error, match=r"\(-1\)|\(-1,\)|CHECK|check") as caught:
            await (await impatient(db)).execute("ALTER TABLE T ADD CHECK (Id > 0)")
        assert caught.value.code is Code.FAILED_PRECONDITION and not caught.value.ambiguous

    with_database(body, TABLE)


def test_one_that_is_paused_is_named() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("T", {"Id": 1})
        asked = db.env.spawn((await impatient(db)).execute("ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 5"))
        await asyncio.sleep(1.0)
        number = (await jobs(db))[-1].number
        await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.PAUSE, number=number))
        with pytest.raises(f1.Error, match=f"schema change {number} is paused.*f1 schema resume {number}") as caught:
            await asked
        assert caught.value.code is Code.DEADLINE_EXCEEDED and caught.value.ambiguous
        await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.RESUME, number=number))
        while (await jobs(db))[-1].state != "done":
            await asyncio.sleep(5.0)
        assert await db.rows("SELECT X FROM T") == [(5,)]

    with_database(body, TABLE)
