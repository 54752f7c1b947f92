"""`f1 schema apply` without --allow-data-loss drops what is empty when nobody can write it any more, and no more."""

import asyncio
from typing import Any

import pytest

import f1
from f1.checking import check_database
from f1common.errors import Code
from f1server.testing.changes import small_batches
from f1server.testing.database import Database, with_database

TABLE = "CREATE TABLE T (Id INT64 NOT NULL, V INT64, PRIMARY KEY (Id))"
ROWS = 60


async def findings(db: Database) -> list[Any]:
    return list((await check_database(db.conn.session, [], repair=False, examples=5)).findings)


async def busy(db: Database, sql: str) -> "asyncio.Task[object]":
    """Begin a change that takes a while, and return when it runs."""
    await db.conn.insert("T", [{"Id": i, "V": i} for i in range(ROWS)])
    before = len(await db.process(0)._changes.listed("default"))
    task = db.env.spawn((await db.at(0)).execute(sql))
    while len(await db.process(0)._changes.listed("default")) == before:
        await asyncio.sleep(0.001)
    return task


@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.05])
def test_a_column_that_came_while_it_waited(pause_s: float) -> None:
    async def body(db: Database) -> None:
        adding = await busy(db, "ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 5")
        await asyncio.sleep(pause_s)
        with pytest.raises(f1.Error) as caught:
            await (await db.at(1)).apply_schema({"a.sql": f"{TABLE}; CREATE INDEX TV ON T (V)"})
        assert caught.value.code in (Code.FAILED_PRECONDITION, Code.ABORTED)
        await adding
        assert await db.rows("SELECT X, count(*) FROM T GROUP BY X") == [(5, ROWS)]
        assert not await findings(db)

    with small_batches():
        with_database(body, TABLE)


def test_rows_of_a_table_that_was_empty_when_it_was_asked() -> None:
    """All of the change is taken back with it."""

    async def body(db: Database) -> None:
        await db.ddl("CREATE TABLE E (Id INT64 NOT NULL, N INT64, PRIMARY KEY (Id))", "CREATE INDEX EN ON E (N)")
        adding = await busy(db, "ALTER TABLE T ADD CHECK (V >= 0)")
        wanted = f"{TABLE[:-1]}, W INT64 DEFAULT 3, CHECK (V >= 0)); CREATE INDEX TV ON T (V)"
        applying = db.env.spawn((await db.at(1)).apply_schema({"a.sql": wanted}))
        await asyncio.sleep(0.05)
        await db.conn.insert("E", {"Id": 1, "N": 4})
        await adding
        with pytest.raises(f1.Error, match=r"table E.*--allow-data-loss") as caught:
            await applying
        assert caught.value.code is Code.FAILED_PRECONDITION
        assert await db.rows("SELECT N FROM E WHERE N = 4") == [(4,)]
        await db.conn.insert("E", {"Id": 2, "N": 4})
        shown = await db.conn.show_schema()
        assert "TV" not in str(shown) and "W INT64" not in str(shown)
        assert not await findings(db)
        await db.conn.apply_schema({"a.sql": wanted}, allow_data_loss=True)
        with pytest.raises(f1.Error):
            await db.rows("SELECT N FROM E")

    with small_batches():
        with_database(body, TABLE)


def test_values_of_a_column_that_was_empty_when_it_was_asked() -> None:
    """Those of rows whose keys change meanwhile, too."""

    async def body(db: Database) -> None:
        await db.ddl("ALTER TABLE T ADD COLUMN X INT64")
        adding = await busy(db, "ALTER TABLE T ADD CHECK (V >= 0)")
        wanted = f"{TABLE[:-1]}, CHECK (V >= 0)); CREATE INDEX TV ON T (V)"
        applying = db.env.spawn((await db.at(1)).apply_schema({"a.sql": wanted}))
        await asyncio.sleep(0.05)
        await db.conn.update("T", {"Id": 7, "X": 70})
        await adding
        writer = await db.at(0)
        while not applying.done():
            await writer.execute("UPDATE T SET Id = Id + 1000 WHERE V = 7 AND Id < 100000")
        with pytest.raises(f1.Error, match=r"column T\.X.*--allow-data-loss"):
            await applying
        assert await db.rows("SELECT V, X FROM T WHERE X IS NOT NULL") == [(7, 70)]
        assert not await findings(db)

    with small_batches():
        with_database(body, TABLE)


def test_what_is_empty_goes() -> None:
    async def body(db: Database) -> None:
        await db.ddl("CREATE TABLE E (Id INT64 NOT NULL, PRIMARY KEY (Id))", "ALTER TABLE T ADD COLUMN X INT64")
        await db.conn.insert("T", [{"Id": i, "V": i} for i in range(ROWS)])
        await db.conn.apply_schema({"a.sql": TABLE})
        for sql in ("SELECT Id FROM E", "SELECT X FROM T"):
            with pytest.raises(f1.Error):
                await db.rows(sql)
        assert await db.rows("SELECT count(*), sum(V) FROM T") == [(ROWS, sum(range(ROWS)))]

    with_database(body, TABLE)


@pytest.mark.parametrize("seed", range(4))
def test_a_table_that_another_made_of_a_query_gets_the_rows_once(seed: int) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("T", [{"Id": i, "V": i} for i in range(5)])
        sql = "CREATE TABLE IF NOT EXISTS X AS SELECT Id AS N FROM T"
        makers = [await db.at(i) for i in range(2)]
        done = await asyncio.gather(*(db.env.spawn(maker.execute(sql)) for maker in makers))
        assert sorted(cursor.rowcount for cursor in done) == [0, 5]
        assert sorted(await db.rows("SELECT N FROM X")) == [(i,) for i in range(5)]

    with_database(body, TABLE, seed=seed)
