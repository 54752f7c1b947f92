"""Reads by key of a snapshot see names, keys and forms of tables as they were then, as its queries do."""

import asyncio
from typing import Any

import pytest

import f1
from f1.transactions import Transaction
from f1server.testing.database import Database, with_database

TABLES = (
    "CREATE TABLE P (P INT64 PRIMARY KEY)",
    "CREATE TABLE T (Id INT64 PRIMARY KEY, P INT64 NOT NULL, A INT64, B INT64)",
    "CREATE TABLE V (Id INT64 PRIMARY KEY, P INT64, A INT64, B INT64)",
    "CREATE INDEX TA ON T (A)",
    "CREATE INDEX TP ON T (P)",
    "CREATE TABLE Pair (A INT64, B INT64, V STRING, PRIMARY KEY (A, B))",
)
CHANGES = {
    "table dropped": ("DROP TABLE T",),
    "table renamed": ("ALTER TABLE T RENAME TO T9",),
    "tables swapped": ("ALTER TABLE T RENAME TO T9", "ALTER TABLE V RENAME TO T", "ALTER TABLE T9 RENAME TO V"),
    "column dropped": ("ALTER TABLE T DROP COLUMN A CASCADE",),
    "column renamed": ("ALTER TABLE T RENAME COLUMN A TO Z",),
    "columns swapped": (
        "ALTER TABLE T RENAME COLUMN A TO Z",
        "ALTER TABLE T RENAME COLUMN B TO A",
        "ALTER TABLE T RENAME COLUMN Z TO B",
    ),
    "index dropped": ("DROP INDEX TA",),
    "index on another column": ("DROP INDEX TA", "CREATE INDEX TA ON T (B)"),
    "table moved": ("ALTER TABLE T SET PRIMARY KEY (P, Id) INTERLEAVE IN PARENT P",),
    "table with another key": ("DROP TABLE T", "CREATE TABLE T (Id STRING PRIMARY KEY, A BYTES)"),
    "key turned round": ("ALTER TABLE Pair SET PRIMARY KEY (B, A)",),
}


async def fill(db: Database) -> None:
    await db.conn.insert("P", {"P": 1})
    await db.conn.insert("T", {"Id": 1, "P": 1, "A": 10, "B": 20})
    await db.conn.insert("V", {"Id": 1, "P": 1, "A": -10, "B": -20})
    await db.conn.insert("Pair", [{"A": a, "B": b, "V": f"{a}, {b}"} for a, b in ((1, 2), (2, 1), (2, 7))])


async def seen(tx: Transaction) -> list[Any]:
    """Return what all ways to read give."""
    found: list[Any] = [
        await tx.read("T", keys=[1], columns=["Id", "A", "B"]),
        await tx.get("T", 1),
        await tx.read("T", index="TA", prefix=10, columns=["Id"]),
        await tx.get("Pair", (1, 2)),
        await tx.get("Pair", {"B": 2, "A": 1}),
        await tx.read("Pair", prefix=2),
        await tx.read("Pair", ranges=[((2,), None)]),
    ]
    for sql in ("SELECT Id, A, B FROM T WHERE Id = 1", "SELECT V FROM Pair WHERE A = 1 AND B = 2"):
        found.append(await (await tx.execute(sql)).fetchall())
    return found


WAS = [
    [{"Id": 1, "A": 10, "B": 20}],
    {"Id": 1, "P": 1, "A": 10, "B": 20},
    [{"Id": 1}],
    {"A": 1, "B": 2, "V": "1, 2"},
    {"A": 1, "B": 2, "V": "1, 2"},
    [{"A": 2, "B": 1, "V": "2, 1"}, {"A": 2, "B": 7, "V": "2, 7"}],
    [{"A": 2, "B": 1, "V": "2, 1"}, {"A": 2, "B": 7, "V": "2, 7"}],
    [(1, 10, 20)],
    [("1, 2",)],
]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_snapshot_goes_on_as_it_began(change: tuple[str, ...]) -> None:
    async def body(db: Database) -> None:
        await fill(db)
        other = await db.at(1)
        await other.get("T", 1)  # it knows the schema of before
        await asyncio.sleep(2.0)  # until a snapshot sees the rows
        async with db.conn.transaction(kind="snapshot") as tx:
            assert await seen(tx) == WAS
            await db.ddl(*change)
            assert await seen(tx) == WAS
            timestamp = tx.read_ts
        # The client of the changes knows the present schema, the other one that of before.
        await db.conn.metadata(fresh=True)
        for conn in (db.conn, other):
            async with conn.transaction(kind="snapshot", timestamp=timestamp) as tx:
                assert await seen(tx) == WAS

    with_database(body, *TABLES)


def test_a_snapshot_of_before_a_table_was_made_has_no_such_table() -> None:
    async def body(db: Database) -> None:
        await fill(db)
        await asyncio.sleep(2.0)
        async with db.conn.transaction(kind="snapshot") as tx:
            await tx.get("T", 1)
            await db.ddl("CREATE TABLE Late (K INT64 PRIMARY KEY)", "ALTER TABLE T ADD COLUMN C INT64")
            with pytest.raises(f1.ProgrammingError, match=r"no table Late") as caught:
                await tx.get("Late", 1)
            assert caught.value.code == "NOT_FOUND"
            with pytest.raises(f1.ProgrammingError, match=r"no column T\.C"):
                await tx.read("T", keys=[1], columns=["C"])

    with_database(body, *TABLES)


def test_a_snapshot_just_after_a_change_is_of_the_new_schema() -> None:
    """By a client that knows the former one only."""

    async def body(db: Database) -> None:
        await fill(db)
        other = await db.at(1)
        await other.get("Pair", (1, 2))
        await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (B, A)")
        await asyncio.sleep(2.0)
        async with other.transaction(kind="snapshot") as tx:
            assert await tx.get("Pair", (1, 2)) == {"A": 2, "B": 1, "V": "2, 1"}
            timestamp = tx.read_ts
        third = await db.at(0)
        async with third.transaction(kind="snapshot", timestamp=timestamp) as tx:
            assert await tx.get("Pair", (1, 2)) == {"A": 2, "B": 1, "V": "2, 1"}

    with_database(body, *TABLES)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_a_key_is_that_of_one_row_all_through_a_transaction(kind: str) -> None:
    """A tuple means another row after the change: the transaction is run again rather than to read both by one name."""

    async def body(db: Database) -> None:
        await fill(db)
        tries = 0

        async def work(tx: Transaction) -> tuple[Any, Any]:
            nonlocal tries
            tries += 1
            first = await tx.get("Pair", (1, 2))
            if tries == 1:
                await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (B, A)")
                await db.conn.metadata(fresh=True)
            return first, await tx.get("Pair", (1, 2))

        found = await db.conn.run(work, kind=kind)
        assert found == ({"A": 2, "B": 1, "V": "2, 1"},) * 2
        assert tries == 2

    with_database(body, *TABLES)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_so_it_is_if_it_deletes_by_it(kind: str) -> None:
    async def body(db: Database) -> None:
        await fill(db)
        with pytest.raises(f1.TransactionAborted, match="primary key of Pair") as caught:
            async with db.conn.transaction(kind=kind) as tx:
                assert await tx.get("Pair", (1, 2)) == {"A": 1, "B": 2, "V": "1, 2"}
                await db.ddl("ALTER TABLE Pair SET PRIMARY KEY (B, A)")
                await db.conn.metadata(fresh=True)
                await tx.delete("Pair", (1, 2))
        assert caught.value.retryable
        assert await db.rows("SELECT count(*) FROM Pair") == [(3,)]

    with_database(body, *TABLES)
