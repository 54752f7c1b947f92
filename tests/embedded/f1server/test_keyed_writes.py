"""UPDATE and DELETE by key write what the evaluator would have them write, errors included."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest

import f1
from f1server import sql as sql_module
from f1server.exec.dml import DmlResult, KeyedRows, run_keyed
from f1server.plan.dml import PreparedDml
from f1server.testing.database import Database, with_database
from tests.amounts import examples

COLUMNS = "(K INT64 NOT NULL, I INT64, N NUMERIC, D DOUBLE, S STRING, B BOOL, T TIMESTAMP, Y DATE, PRIMARY KEY (K))"
TABLES = ("Keyed", "General")
"""Of the same rows; statements on the second one are kept from going by key."""

ROWS: tuple[tuple[Any, ...], ...] = (
    (1, 5, "1.5", 0.5, "x", True),
    (2, (1 << 63) - 1, "99999999999999999999999999999.999999999", 1.7e308, "", False),
    (3, -(1 << 63), "-99999999999999999999999999999.999999999", -1.7e308, "y", None),
    (4, None, None, None, None, None),
    (5, 1 << 53, "123456789012345678.000000001", 0.1, "7", True),
)
SUMS = ("I + {}", "I - {}", "{} + I", "N + {}", "N - {}", "{} + N", "D + {}", "D - {}", "({} + D)", "t.N - {}")
CONSTANTS = ("1", "0", "-1", "1.25", "0.0000000001", "9223372036854775807", "1e3", "1.7e308", "NULL", "'2'", "true")
PARAMETERS: tuple[object, ...] = (
    *(1, -7, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 70, 0.25, 1e300, None, True),
    *(Decimal("2.5"), Decimal("0.000000001"), Decimal(10) ** 20, "3", "text", b"\x00"),
)
PLAIN = ("DATE '2024-02-29'", "TIMESTAMP '2024-02-29 12:00:00+00'", "CAST(? AS INT64)", "I", "S", "I * 2", "upper(S)")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each statement on the first table went by key."""
    found: list[bool] = []

    async def watched(plan: PreparedDml, params: Sequence[object], now_us: int, rows: KeyedRows) -> DmlResult | None:
        if plan.table.name == "General":
            return None
        done = await run_keyed(plan, params, now_us, rows)
        found.append(done is not None)
        return done

    monkeypatch.setattr(sql_module, "run_keyed", watched)
    yield found


async def filled(db: Database) -> None:
    for table in TABLES:
        await db.ddl(f"CREATE TABLE {table} {COLUMNS}")
        names = ("K", "I", "N", "D", "S", "B")
        await db.conn.insert(
            table, [dict(zip(names, (*row[:2], row[2] and Decimal(row[2]), *row[3:]), strict=True)) for row in ROWS]
        )


async def outcome(db: Database, text: str, params: Sequence[object]) -> tuple[Any, ...]:
    """Return how many rows a statement changed, or its error's code."""
    try:
        cursor = await db.conn.execute(text, params)
    except f1.Error as error:
        return ("error", error.code)
    return ("rows", cursor.rowcount)


def statement(rng: random.Random) -> tuple[str, tuple[object, ...]]:
    """Draw an UPDATE of a row by key."""
    target = rng.choice("INDSBTY")
    kind = rng.random()
    params: list[object] = []
    if kind < 0.15:
        value = rng.choice(PLAIN)
        if "?" in value:
            params.append(rng.choice(PARAMETERS))
    else:
        value = "{}" if kind < 0.4 else rng.choice(SUMS)
        if rng.random() < 0.5:
            params.append(rng.choice(PARAMETERS))
            value = value.format("?")
        else:
            value = value.format(rng.choice(CONSTANTS))
    key = rng.randrange(1, len(ROWS) + 2)
    return f"UPDATE {{}} AS t SET {target} = {value} WHERE K = ?", (*params, key)


def test_updates_do_what_the_evaluator_does(taken: list[bool]) -> None:
    async def body(db: Database) -> None:
        await filled(db)
        rng = random.Random(7)
        for _ in range(examples(1_000)):
            text, params = statement(rng)
            found = [await outcome(db, text.format(table), params) for table in TABLES]
            assert found[0] == found[1], (text, params)
            rows = [await db.rows(f"SELECT * FROM {table} ORDER BY K") for table in TABLES]
            assert str(rows[0]) == str(rows[1]), (text, params)

    with_database(body)
    assert taken.count(True) > len(taken) / 3
    assert taken.count(False) > len(taken) / 10


def test_deletes_and_what_they_tell(taken: list[bool]) -> None:
    async def body(db: Database) -> None:
        await filled(db)
        for text, params in (
            ("DELETE FROM {} WHERE K = ?", (1,)),
            ("DELETE FROM {} WHERE K = ?", (1,)),
            ("DELETE FROM {} WHERE K = 2 AND S = 'other'", ()),
            ("DELETE FROM {} WHERE K = ? OR K = 2", (3,)),
            ("DELETE FROM {} WHERE K = ?", ("4",)),
            ("DELETE FROM {} WHERE K = ?", (5.5,)),
            ("DELETE FROM {} WHERE K = ?", (None,)),
        ):
            found = [await outcome(db, text.format(table), params) for table in TABLES]
            assert found[0] == found[1], (text, params)
            rows = [await db.rows(f"SELECT K FROM {table} ORDER BY K") for table in TABLES]
            assert rows[0] == rows[1], (text, params)

    with_database(body)
    assert taken[:2] == [True, True]
    assert False in taken


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_transactions_see_their_own_writes(taken: list[bool], kind: str) -> None:
    async def body(db: Database) -> None:
        await filled(db)
        async with db.conn.transaction(kind) as tx:
            assert (await tx.execute("UPDATE Keyed SET I = I + 1 WHERE K = 1")).rowcount == 1
            assert (await tx.execute("UPDATE Keyed SET I = I + ? WHERE K = 1", (10,))).rowcount == 1
            assert (await tx.execute("INSERT INTO Keyed (K, I) VALUES (6, 1)")).rowcount == 1
            assert (await tx.execute("UPDATE Keyed SET I = 60 - 1, S = 'new' WHERE K = 6")).rowcount == 1
            assert (await tx.execute("UPDATE Keyed SET I = I - 1 WHERE K = 6")).rowcount == 1
            assert (await tx.execute("DELETE FROM Keyed WHERE K = 2")).rowcount == 1
            assert (await tx.execute("DELETE FROM Keyed WHERE K = 2")).rowcount == 0
            assert (await tx.execute("UPDATE Keyed SET I = 0 WHERE K = 2")).rowcount == 0
        found = await db.rows("SELECT K, I, S FROM Keyed WHERE K IN (1, 2, 6) ORDER BY K")
        assert found == [(1, 16, "x"), (6, 58, "new")]

    with_database(body)
    assert taken.count(True) == 6


def test_rows_looked_at_are_validated(taken: list[bool]) -> None:
    """Also a row that was not there, and whose absence a statement went by."""

    async def body(db: Database) -> None:
        await filled(db)
        other = await db.at(1)
        for text in ("UPDATE Keyed SET I = I + 1 WHERE K = 1", "DELETE FROM Keyed WHERE K = 9"):
            tx = await (await db.at(0)).begin("optimistic")
            await tx.execute(text)
            await tx.execute("INSERT INTO Keyed (K, I) VALUES (20, 1)")
            meanwhile = (
                "UPDATE Keyed SET I = 100 WHERE K = 1" if "K = 1" in text else "INSERT INTO Keyed (K) VALUES (9)"
            )
            await other.execute(meanwhile)
            with pytest.raises(f1.Error) as raised:
                await tx.commit()
            assert raised.value.code == "ABORTED"
        assert await db.rows("SELECT I FROM Keyed WHERE K IN (1, 20)") == [(100,)]

    with_database(body)
    assert taken.count(True) > 1


def test_counters_lose_nothing(taken: list[bool]) -> None:
    async def body(db: Database) -> None:
        await filled(db)
        await asyncio.gather(*(db.conn.execute("UPDATE Keyed SET I = I + 1 WHERE K = 1") for _ in range(20)))
        assert await db.rows("SELECT I FROM Keyed WHERE K = 1") == [(25,)]

    with_database(body)
    assert all(taken)


def test_cast_of_a_parameter_is_made_before_it_is_assigned(taken: list[bool]) -> None:
    """In INSERT as in UPDATE: a number cast to INT64 is rounded, though the column is text."""

    async def body(db: Database) -> None:
        await filled(db)
        await db.conn.execute("INSERT INTO Keyed (K, S) VALUES (7, CAST(? AS INT64))", ("2.7",))
        await db.conn.execute("UPDATE Keyed SET S = CAST(? AS INT64) WHERE K = 1", (2.7,))
        assert await db.rows("SELECT S FROM Keyed WHERE K IN (1, 7) ORDER BY K") == [("3",), ("3",)]

    with_database(body)
    assert taken == [False, False]
