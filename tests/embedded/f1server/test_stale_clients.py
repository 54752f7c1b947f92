"""Clients that know an older schema, and only read and write by key: what they name is what it is called now.

Names become ids, and keys tuples, in the client. So a client that has not heard of a change must be told, or it would
go on for ever with the column that had the name before.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import f1
from f1.transactions import Transaction
from f1server.testing.database import Database, with_database

PAIR = "CREATE TABLE Pair (K INT64, J INT64, A INT64, PRIMARY KEY (K, J))"
NAMED = "CREATE TABLE Named (K INT64 PRIMARY KEY, A INT64, B INT64)"
MANY = 40
"""So many rows are inserted by columns."""


async def stale(db: Database) -> f1.aio.Connection:
    """Return a connection that knows the schema, and has a row in Named."""
    other = await db.at(1)
    await other.insert("Named", {"K": 1, "A": 10, "B": 20})
    return other


SWAP = ("ALTER TABLE Named RENAME COLUMN A TO C", "ALTER TABLE Named RENAME COLUMN B TO A")
REPLACE = ("ALTER TABLE Named RENAME COLUMN A TO C", "ALTER TABLE Named ADD COLUMN A INT64")


@pytest.mark.parametrize(("ddl", "now"), [(SWAP, 20), (REPLACE, None)])
def test_a_name_that_another_column_has_by_now_is_that_column(ddl: tuple[str, ...], now: int | None) -> None:
    async def body(db: Database) -> None:
        other = await stale(db)
        await db.ddl(*ddl)
        assert await db.rows("SELECT C, A FROM Named") == [(10, now)]
        await other.update("Named", {"K": 1, "A": 77})
        assert await db.rows("SELECT C, A FROM Named") == [(10, 77)]
        await other.upsert("Named", {"K": 1, "A": 78})
        assert await db.rows("SELECT C, A FROM Named") == [(10, 78)]

    with_database(body, NAMED)


def test_so_it_is_where_rows_come_by_columns() -> None:
    async def body(db: Database) -> None:
        other = await stale(db)
        await db.ddl(*SWAP)
        await other.insert("Named", [{"K": 100 + i, "A": i} for i in range(MANY)])
        assert await db.rows("SELECT count(*), count(C), sum(A) FROM Named WHERE K >= 100") == [
            (MANY, 0, sum(range(MANY)))
        ]

    with_database(body, NAMED)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_a_transaction_that_has_written_before_is_run_again(kind: str) -> None:
    async def body(db: Database) -> None:
        other = await stale(db)
        with pytest.raises(f1.TransactionAborted) as caught:
            async with other.transaction(kind=kind) as tx:
                await tx.update("Named", {"K": 1, "A": 77})
                await db.ddl(*SWAP)
        assert caught.value.retryable
        assert "another column" in str(caught.value)
        assert await db.rows("SELECT C, A FROM Named") == [(10, 20)]
        await other.run(lambda tx: tx.update("Named", {"K": 1, "A": 77}), kind=kind)
        assert await db.rows("SELECT C, A FROM Named") == [(10, 77)]

    with_database(body, NAMED)


@pytest.mark.parametrize("ddl", [("DROP TABLE Named", NAMED), ("ALTER TABLE Named DROP COLUMN B",)])
def test_a_transaction_that_wrote_to_what_is_gone_may_be_run_again(ddl: tuple[str, ...]) -> None:
    """The table may have been made anew; if it was not, the client finds so when it asks for the column by its name."""

    async def body(db: Database) -> None:
        other = await stale(db)
        await db.ddl(*ddl)

        async def insert() -> None:
            async with other.transaction() as tx:
                await tx.insert("Named", {"K": 5, "A": 50, "B": 51})

        with pytest.raises(f1.TransactionAborted, match="is another, or lost a column, since") as caught:
            await insert()
        assert caught.value.retryable
        if len(ddl) == 2:
            await insert()
            assert await db.rows("SELECT K, A, B FROM Named") == [(5, 50, 51)]
        else:
            with pytest.raises(f1.Error, match=r"there is no column Named\.B"):
                await insert()

    with_database(body, NAMED)


def test_a_rename_alone_disturbs_nobody() -> None:
    async def body(db: Database) -> None:
        other = await stale(db)
        async with other.transaction() as tx:
            await tx.update("Named", {"K": 1, "A": 77})
            await db.ddl("ALTER TABLE Named RENAME COLUMN A TO C", "ALTER TABLE Named ADD COLUMN D INT64 DEFAULT 1")
        assert await db.rows("SELECT C FROM Named") == [(77,)]

    with_database(body, NAMED)


def test_keys_by_name_are_in_the_order_of_the_key_as_it_is() -> None:
    async def body(db: Database) -> None:
        other = await db.at(1)
        await other.insert("Pair", [{"K": 1, "J": 2, "A": 12}, {"K": 2, "J": 1, "A": 21}, {"K": 3, "J": 4, "A": 34}])
        await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (J, K)")
        row = await other.get("Pair", {"K": 1, "J": 2})
        assert row is not None
        assert row["A"] == 12

    with_database(body, PAIR)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic", "snapshot"])
def test_so_they_are_in_transactions(kind: str) -> None:
    async def body(db: Database) -> None:
        other = await db.at(1)
        await other.insert("Pair", [{"K": 1, "J": 2, "A": 12}, {"K": 2, "J": 1, "A": 21}])
        await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (J, K)")
        async with other.transaction(kind=kind) as tx:
            row = await tx.get("Pair", {"K": 1, "J": 2})
        assert row is not None
        assert row["A"] == 12

    with_database(body, PAIR)


@pytest.mark.parametrize("key", ["J, K", "J"])
def test_the_past_is_read_by_keys_as_they_were_then(key: str) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("Pair", [{"K": 1, "J": 2, "A": 12}, {"K": 2, "J": 1, "A": 21}])
        await asyncio.sleep(2)
        async with db.conn.transaction(kind="snapshot") as past:
            assert len(await past.read("Pair")) == 2
            await db.ddl(f"ALTER TABLE Pair SET PRIMARY KEY ({key})")
            then = {"K": 1, "J": 2}
            row = await db.conn.get("Pair", then if "K" in key else {"J": 2})
            assert row is not None and row["A"] == 12
            assert await past.get("Pair", then) == row
            with pytest.raises(f1.Error, match=r"a key of Pair is \(K, J\)"):
                await past.get("Pair", {"J": 2})

    with_database(body, PAIR)


def test_keys_of_an_index_that_was_made_anew_are_in_its_order() -> None:
    async def body(db: Database) -> None:
        other = await stale(db)
        await db.ddl("CREATE INDEX Both ON Named (A, B)", "INSERT INTO Named VALUES (2, 20, 10)")
        key = {"A": 10, "B": 20}
        assert [row["K"] for row in await other.read("Named", index="Both", keys=[key])] == [1]
        await db.ddl("DROP INDEX Both", "CREATE INDEX Both ON Named (B, A)")
        assert [row["K"] for row in await other.read("Named", index="Both", keys=[key])] == [1]

    with_database(body, NAMED)


INTO = "ALTER TABLE Kid SET PRIMARY KEY (P, K) INTERLEAVE IN PARENT Par"
OUT = "ALTER TABLE Kid SET PRIMARY KEY (K)"
WAYS: dict[str, Callable[[f1.aio.Connection | Transaction, bool], Awaitable[object]]] = {
    "insert": lambda to, _: to.insert("Kid", {"K": 7, "P": 1, "V": 77}),
    "update": lambda to, _: to.update("Kid", {"K": 2, "P": 1, "V": 77}),
    "upsert": lambda to, _: to.upsert("Kid", {"K": 2, "P": 1, "V": 77}),
    "columns": lambda to, _: to.insert("Kid", [{"K": 100 + i, "P": 1, "V": 77} for i in range(MANY)]),
    "delete": lambda to, inside: to.delete("Kid", {"P": 1, "K": 2} if inside else {"K": 2}),
    "get": lambda to, inside: to.get("Kid", {"P": 1, "K": 2} if inside else {"K": 2}),
}


@pytest.mark.parametrize("kind", ["", "optimistic", "pessimistic"])
@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_knows_the_table_as_it_was_before_it_moved(way: str, into: bool, kind: str) -> None:
    """All that it does is by the new primary key when it is done again, at the latest."""

    async def body(db: Database) -> None:
        await db.conn.insert("Par", {"P": 1})
        await db.ddl(*(() if into else (INTO,)))
        other = await db.at(1)
        await other.insert("Kid", [{"K": k, "P": 1, "V": k} for k in range(4)])
        await db.ddl(INTO if into else OUT)
        if kind:
            await other.run(lambda tx: WAYS[way](tx, into), kind=kind)
        else:
            await WAYS[way](other, into)
        rows = dict(await db.rows("SELECT K, V FROM Kid"))
        after = {"insert": {7: 77}, "columns": {100 + i: 77 for i in range(MANY)}, "delete": {}, "get": {}}
        expected = {0: 0, 1: 1, 2: 2, 3: 3} | after.get(way, {2: 77})
        assert rows == {k: v for k, v in expected.items() if (way, k) != ("delete", 2)}

    with_database(
        body,
        "CREATE TABLE Par (P INT64 PRIMARY KEY)",
        "CREATE TABLE Kid (K INT64 PRIMARY KEY, P INT64 NOT NULL, V INT64)",
        "CREATE INDEX KidByPar ON Kid (P)",
    )


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("then", ["SELECT A FROM Named", "UPDATE Named SET A = A + 1 WHERE K = 2"])
def test_a_statement_after_a_write_by_an_older_schema_has_it_read_anew(then: str, kind: str) -> None:
    async def body(db: Database) -> None:
        other = await stale(db)
        await db.ddl(*SWAP)

        async def work(tx: Transaction) -> None:
            await tx.update("Named", {"K": 1, "A": 77})
            await tx.execute(then)

        await other.run(work, kind=kind)
        assert await db.rows("SELECT C, A FROM Named") == [(10, 77)]

    with_database(body, NAMED)


@pytest.mark.parametrize("kind", ["", "optimistic", "pessimistic"])
def test_a_row_is_deleted_by_the_key_by_which_it_would_be_read(kind: str) -> None:
    async def body(db: Database) -> None:
        other = await db.at(1)
        await other.insert("Pair", [{"K": 1, "J": 2}, {"K": 2, "J": 1}, {"K": 3, "J": 4}, {"K": 4, "J": 3}])
        await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (J, K)")
        await (other.run(lambda tx: tx.delete("Pair", [(1, 2)]), kind=kind) if kind else other.delete("Pair", (1, 2)))
        await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (K, J)")
        await other.delete("Pair", {"K": 3, "J": 4})
        assert await db.rows("SELECT K, J FROM Pair ORDER BY K") == [(1, 2), (4, 3)]

    with_database(body, PAIR)
