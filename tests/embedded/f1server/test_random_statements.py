"""Statements drawn at random give what DuckDB gives over the same rows, on every way that they can go.

A statement is asked for by itself, again (what is prepared has ways of its own), and in transactions of each kind.
"""

from collections import Counter
from typing import Any

import pytest

from f1server.testing.database import Database, with_database
from tests.amounts import some
from tests.embedded.f1server.drawn_oracle import Oracle, plain, wrong_with
from tests.embedded.f1server.drawn_statements import COLUMNS, DDL, KEYS, Drawing, Drawn


async def _filled(db: Database, drawing: Drawing, oracle: Oracle) -> None:
    for table, rows in oracle.filled(drawing).items():
        await db.conn.insert(table, rows)


async def _same_tables(db: Any, oracle: Oracle, what: str) -> None:
    for table, names in COLUMNS.items():
        text = f"SELECT {', '.join(names)} FROM {table}"
        ours = Counter(plain(row) for row in await (await db.execute(text)).fetchall())
        assert ours == Counter(plain(row) for row in oracle.rows(text)), f"{table} after {what}"


async def _asked(db: Database, drawn: Drawn, oracle: Oracle, kind: str, *, spread: bool) -> None:
    told = f"{drawn.sql} with {drawn.params!r}"
    for again in ("", "again: "):
        found = await db.rows(drawn.sql, *drawn.params)
        assert not (wrong := wrong_with(drawn, found, oracle)), f"{again}{told}: {wrong}"
    timestamp = db.storage.strong_timestamp() if kind == "snapshot" else 0
    async with db.conn.transaction(kind, timestamp=timestamp) as tx:
        found = await (await tx.execute(drawn.sql, drawn.params)).fetchall()
    assert not (wrong := wrong_with(drawn, found, oracle)), f"{kind}: {told}: {wrong}"
    if spread:
        found = await db.rows(f"{drawn.sql} /*+ DISTRIBUTED */", *drawn.params)
        assert not (wrong := wrong_with(drawn, found, oracle)), f"distributed: {told}: {wrong}"


@pytest.mark.parametrize("seed", some(range(3), range(3, 40)))
def test_queries(seed: int) -> None:
    async def body(db: Database) -> None:
        drawing, oracle = Drawing(seed), Oracle()
        await _filled(db, drawing, oracle)
        for _ in range(120):
            kind = drawing.rng.choice(("optimistic", "pessimistic", "snapshot"))
            await _asked(db, drawing.query(), oracle, kind, spread=drawing.rng.random() < 0.2)

    with_database(body, *DDL, slaves=1)


FOUND = (
    Drawn(
        "SELECT * FROM A WHERE EXISTS (SELECT 1 FROM K WHERE K.Id = A.Id AND K.Name IS NOT NULL) AND A.Id = NULL", ()
    ),
    Drawn("SELECT Id, Sub FROM K WHERE Id = $1 AND Name > ''", (1,)),
    Drawn("SELECT V FROM K WHERE Id = 1 AND Sub = $1 AND Sub = $2", (1, 2)),
    Drawn("SELECT Id FROM A WHERE Id >= 0 ORDER BY Id LIMIT 0", (), (0,)),
)
"""What was answered wrongly once."""


def test_what_was_wrong_once() -> None:
    async def body(db: Database) -> None:
        oracle = Oracle()
        await _filled(db, Drawing(1), oracle)
        for drawn in FOUND:
            await _asked(db, drawn, oracle, "optimistic", spread=True)

    with_database(body, *DDL, slaves=1)


async def _changed(connection: Any, drawing: Drawing, oracle: Oracle) -> str:
    """Change rows on both sides, and return what was done."""
    table = drawing.rng.choice(list(KEYS))
    match drawing.rng.randrange(4):
        case 0:
            drawn = drawing.deletion()
        case 1 | 2:
            drawn = drawing.update()
        case _:
            row = drawing.row(table)
            key = [row[name] for name in KEYS[table]]
            test = " AND ".join(f"{name} = ?" for name in KEYS[table])
            there = oracle.rows(f"SELECT 1 FROM {table} WHERE {test}", key)
            orphan = table == "K" and not oracle.rows("SELECT 1 FROM A WHERE Id = ?", key[:1])
            if there or orphan:
                return ""
            oracle.insert(table, row)
            marks = ", ".join("?" for _ in row)
            await connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
            return f"INSERT of {row}"
    told = f"{drawn.sql} with {drawn.params!r}"
    cursor = await connection.execute(drawn.sql, drawn.params)
    returned = await cursor.fetchall() if "RETURNING" in drawn.sql else []
    count, rows = oracle.change(drawn)
    assert cursor.rowcount == count, told
    assert Counter(map(plain, returned)) == Counter(map(plain, rows)), told
    return told


@pytest.mark.parametrize("seed", some(range(100, 103), range(103, 140)))
def test_queries_over_own_writes(seed: int) -> None:
    async def body(db: Database) -> None:
        drawing, oracle = Drawing(seed), Oracle()
        await _filled(db, drawing, oracle)
        for _ in range(12):
            tx = await db.conn.begin(drawing.rng.choice(("optimistic", "pessimistic")))
            oracle.duck.execute("BEGIN")
            done = []
            for _ in range(drawing.rng.randint(1, 6)):
                done.append(await _changed(tx, drawing, oracle))
                drawn = drawing.query()
                found = await (await tx.execute(drawn.sql, drawn.params)).fetchall()
                wrong = wrong_with(drawn, found, oracle)
                assert not wrong, f"{drawn.sql} with {drawn.params!r} after {done}: {wrong}"
            await _same_tables(tx, oracle, str(done))
            if drawing.rng.random() < 0.5:
                await db.conn.commit()
                oracle.duck.execute("COMMIT")
            else:
                await db.conn.rollback()
                oracle.duck.execute("ROLLBACK")
            await _same_tables(db.conn, oracle, f"the end of {done}")

    with_database(body, *DDL)


@pytest.mark.parametrize("seed", some(range(200, 203), range(203, 240)))
def test_changes(seed: int) -> None:
    async def body(db: Database) -> None:
        drawing, oracle = Drawing(seed), Oracle()
        await _filled(db, drawing, oracle)
        for _ in range(60):
            await _same_tables(db.conn, oracle, await _changed(db.conn, drawing, oracle))

    with_database(body, *DDL)
