"""A change that another server begins just when this one is about to is waited for; what it half did is no reason."""

from typing import Any

import pytest

import f1
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
