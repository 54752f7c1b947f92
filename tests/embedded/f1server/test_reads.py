"""Reads by key: limits count rows, whatever else lies between them."""

import pytest

from f1common.errors import Code, F1Error
from f1server.testing.database import Database, with_database

DDL = (
    "CREATE TABLE Root (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))",
    "CREATE TABLE Kid (A INT64 NOT NULL, B INT64 NOT NULL, V INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT Root",
    "CREATE TABLE Other (A INT64 NOT NULL, B INT64 NOT NULL, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT Root",
    "CREATE LOCAL INDEX KidByV ON Kid (A, V)",
)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_a_limit_counts_rows_of_the_table(kind: str) -> None:
    """Between rows of a root lie its history, entries of local indexes and rows of other tables."""

    async def body(db: Database) -> None:
        for a in range(6):
            await db.conn.insert("Root", {"A": a, "V": 0})
            for _ in range(3):
                await db.conn.update("Root", {"A": a, "V": a})
            await db.conn.insert("Kid", [{"A": a, "B": b, "V": -b} for b in range(4)])
            await db.conn.insert("Other", [{"A": a, "B": b} for b in range(a)])
        for limit in range(1, 8):
            for reverse in (False, True):
                async with db.conn.transaction(kind) as tx:
                    found = [row["A"] for row in await tx.read("Root", limit=limit, reverse=reverse)]
                    assert found == sorted(range(6), reverse=reverse)[:limit]
                    below = await tx.read("Kid", prefix=(2,), limit=limit, reverse=reverse)
                    assert [row["B"] for row in below] == sorted(range(4), reverse=reverse)[:limit]
                    some = await tx.read("Other", ranges=[((1,), (5,))], limit=limit, reverse=reverse)
                    pairs = [(a, b) for a in range(1, 5) for b in range(a)]
                    assert [(r["A"], r["B"]) for r in some] == sorted(pairs, reverse=reverse)[:limit]
                    sql = await (
                        await tx.execute(f"SELECT A FROM Root WHERE A >= 1 ORDER BY A LIMIT {limit}")
                    ).fetchall()
                    assert sql == [(a,) for a in range(1, 6)][:limit]

    with_database(body, *DDL)


def test_a_limited_read_depends_on_what_it_looked_at_only() -> None:
    """Rows behind the limit are no part of the read set: their changes are no conflicts."""

    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": a, "V": 0} for a in range(9)])
        async with db.conn.transaction() as tx:
            assert len(await tx.read("Root", limit=2)) == 2
            await tx.update("Root", {"A": 0, "V": 1})
            await db.conn.update("Root", {"A": 5, "V": 1})
        assert await db.rows("SELECT sum(V) FROM Root") == [(2,)]

    with_database(body, *DDL)


BAD = (
    "DELETE FROM , R",
    "SELECT " + "9" * 5_000,
    "SELECT " + " + ".join(["1"] * 2_000),
    "SELECT " + "(" * 400 + "1" + ")" * 400,
    "SELECT " + "CASE WHEN TRUE THEN " * 400 + "1" + " END" * 400,
)


@pytest.mark.parametrize("sql", BAD, ids=lambda sql: sql[:20])
def test_what_is_too_much_is_an_error_of_the_statement(sql: str) -> None:
    async def body(db: Database) -> None:
        with pytest.raises(F1Error) as caught:
            await db.rows(sql)
        assert caught.value.code in (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)

    with_database(body, *DDL)


def test_many_values_in_a_list() -> None:
    """They are compared with each other in passing only: thirty thousand of them took minutes once."""

    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": a, "V": 0} for a in range(5)])
        values = ", ".join(str(a) for a in range(3, 30_000))
        assert await db.rows(f"SELECT A FROM Root WHERE A IN ({values}) ORDER BY A") == [(3,), (4,)]

    with_database(body, *DDL)
