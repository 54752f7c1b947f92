"""A transaction in which a name would mean two things is run again, whatever was renamed between its statements."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import f1
from f1.transactions import Transaction
from f1server.testing.database import Database, with_database

S1 = "CREATE TABLE S1 (K INT64 PRIMARY KEY, A INT64, B INT64)"
S2 = "CREATE TABLE S2 (K INT64 PRIMARY KEY, A INT64, B INT64)"
VIEW = "CREATE VIEW V AS SELECT K, A AS X FROM S1"

COLUMNS = [
    "ALTER TABLE S1 RENAME COLUMN A TO T",
    "ALTER TABLE S1 RENAME COLUMN B TO A",
    "ALTER TABLE S1 RENAME COLUMN T TO B",
]
TABLES = ["ALTER TABLE S1 RENAME TO S3", "ALTER TABLE S2 RENAME TO S1", "ALTER TABLE S3 RENAME TO S2"]
NEW_COLUMN = ["ALTER TABLE S1 DROP COLUMN A", "ALTER TABLE S1 ADD COLUMN A INT64"]
NEW_TABLE = ["DROP TABLE S1", S1, "INSERT INTO S1 VALUES (1, 7, 8)"]
INDEXES = ["ALTER INDEX I RENAME TO I3", "ALTER INDEX I2 RENAME TO I"]
NEW_VIEW = ["CREATE OR REPLACE VIEW V AS SELECT K, B AS X FROM S1"]
HARMLESS = [
    "ALTER TABLE S1 RENAME COLUMN B TO C",
    "ALTER TABLE S1 ADD COLUMN B INT64 DEFAULT 5",
    "ALTER TABLE S2 RENAME COLUMN A TO Z",
    "CREATE TABLE S4 (K INT64 PRIMARY KEY)",
]
KINDS = pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])

Work = Callable[[Transaction], Awaitable[object]]


async def _select(tx: Transaction) -> object:
    return await (await tx.execute("SELECT A FROM S1 WHERE K = 1")).fetchall()


async def _get(tx: Transaction) -> object:
    return await tx.get("S1", 1, ["A"])


async def _select_view(tx: Transaction) -> object:
    return await (await tx.execute("SELECT X FROM V WHERE K = 1")).fetchall()


async def _by_index(tx: Transaction) -> object:
    return await tx.read("S1", index="I", prefix=100)


async def _update(tx: Transaction) -> object:
    return await tx.execute("UPDATE S1 SET A = 101 WHERE K = 1")


async def _write(tx: Transaction) -> object:
    return await tx.update("S1", {"K": 1, "A": 101})


async def _insert(tx: Transaction) -> object:
    return await tx.execute("INSERT INTO S1 VALUES (5, 6, 7)")


async def _update_view(tx: Transaction) -> object:
    return await tx.execute("UPDATE S2 SET A = (SELECT X FROM V WHERE K = 1) WHERE K = 2")


async def _filled(db: Database) -> None:
    await db.conn.insert("S1", [{"K": 1, "A": 100, "B": 200}])
    await db.conn.insert("S2", [{"K": 1, "A": 300, "B": 400}, {"K": 2, "A": 0, "B": 0}])


async def _all(db: Database) -> list[object]:
    """Return all rows, whatever the columns are called."""
    return [await db.rows(f"SELECT * FROM {table} ORDER BY K") for table in ("S1", "S2")]


@KINDS
@pytest.mark.parametrize(
    ("first", "changes", "then"),
    [
        (_select, COLUMNS, _update),
        (_select, COLUMNS, _select),
        (_select, COLUMNS, _write),
        (_get, COLUMNS, _update),
        (_get, COLUMNS, _write),
        (_get, COLUMNS, _get),
        (_update, COLUMNS, _select),
        (_write, COLUMNS, _select),
        (_write, COLUMNS, _update),
        (_select, TABLES, _update),
        (_select, TABLES, _select),
        (_get, TABLES, _write),
        (_write, TABLES, _get),
        (_insert, TABLES, _select),
        (_select, NEW_COLUMN, _update),
        (_select, NEW_COLUMN, _write),
        (_select, NEW_TABLE, _insert),
        (_write, NEW_TABLE, _select),
        (_select_view, NEW_VIEW, _update_view),
        (_by_index, INDEXES, _by_index),
    ],
)
def test_what_would_be_a_mixture_is_run_again(kind: str, first: Work, changes: list[str], then: Work) -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        if changes is NEW_VIEW:
            await db.ddl(VIEW)
        if changes is INDEXES:
            await db.ddl("CREATE INDEX I ON S1 (A)", "CREATE INDEX I2 ON S1 (B)")
        other = await db.at(1)
        before: list[object] = []
        with pytest.raises(f1.TransactionAborted) as caught:
            async with other.transaction(kind=kind) as tx:
                await first(tx)
                await db.ddl(*changes)
                before += await _all(db)
                await then(tx)
        assert caught.value.retryable
        assert await _all(db) == before

    with_database(body, S1, S2)


@KINDS
@pytest.mark.parametrize("then", [_update, _write, _select, _get])
def test_other_changes_do_not_disturb_it(kind: str, then: Work) -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        async with db.conn.transaction(kind=kind) as tx:
            await _select(tx)
            await db.ddl(*HARMLESS[:1])
            await then(tx)
            await db.ddl(*HARMLESS[2:])
            await then(tx)
        ((_, a, _),) = await db.rows("SELECT K, A, C FROM S1")
        assert a == (101 if then in (_update, _write) else 100)

    with_database(body, S1, S2)


@KINDS
def test_a_view_over_what_is_called_otherwise_is_the_same_view(kind: str) -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        await db.ddl(VIEW)
        async with db.conn.transaction(kind=kind) as tx:
            assert await _select_view(tx) == [(100,)]
            await db.ddl("ALTER TABLE S1 RENAME TO S9")
            assert await _select_view(tx) == [(100,)]
            await _update_view(tx)
        assert await db.rows("SELECT A FROM S2 WHERE K = 2") == [(100,)]

    with_database(body, S1, S2)


@KINDS
def test_a_name_that_a_later_statement_was_the_first_to_use(kind: str) -> None:
    """It was unknown to the first statement, and meant two things to the others."""

    async def body(db: Database) -> None:
        await _filled(db)
        with pytest.raises(f1.TransactionAborted, match=r"S1\.N is not what it was"):
            async with db.conn.transaction(kind=kind) as tx:
                await _select(tx)
                await db.ddl("ALTER TABLE S1 RENAME COLUMN A TO N")
                await tx.execute("SELECT N FROM S1 WHERE K = 1")
                await db.ddl("ALTER TABLE S1 RENAME COLUMN N TO O", "ALTER TABLE S1 RENAME COLUMN B TO N")
                await tx.execute("UPDATE S1 SET N = 1 WHERE K = 1")

    with_database(body, S1, S2)


@KINDS
def test_run_again_it_sees_and_writes_the_same_column(kind: str) -> None:
    async def body(db: Database) -> None:
        await _filled(db)
        tries = 0

        async def work(tx: Transaction) -> None:
            nonlocal tries
            tries += 1
            ((a,),) = await (await tx.execute("SELECT A FROM S1 WHERE K = 1")).fetchall()
            if tries == 1:
                await db.ddl(*COLUMNS)
            await tx.execute("UPDATE S1 SET A = ? WHERE K = 1", (a + 1,))

        await db.conn.run(work, kind=kind)
        assert tries == 2
        assert await db.rows("SELECT A, B FROM S1") == [(201, 100)]

    with_database(body, S1, S2)


def test_the_past_has_the_names_of_the_past() -> None:
    """Statements AS OF a time, and snapshots, have nothing to do with what names mean now."""

    async def body(db: Database) -> None:
        await _filled(db)
        await asyncio.sleep(1)
        async with db.conn.transaction(kind="snapshot") as past, db.conn.transaction() as tx:
            assert await _select(past) == [(100,)]
            ((now,),) = await (await tx.execute("SELECT CAST(epoch_us(now()) AS BIGINT)")).fetchall()
            await db.ddl(*COLUMNS)
            assert await _select(past) == [(100,)]
            before = await tx.execute("SELECT A FROM S1 AS OF ? WHERE K = 1", (now,))
            assert await before.fetchall() == [(100,)]

    with_database(body, S1, S2)
