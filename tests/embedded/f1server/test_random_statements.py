"""Statements drawn at random give what DuckDB gives over the same rows, on every way that they can go.

A statement is asked for by itself, again (what is prepared has ways of its own), and in transactions of each kind.
"""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from f1server.testing.database import Database, with_database
from tests.amounts import some
from tests.embedded.f1server.drawn_statements import COLUMNS, DDL, DUCK_DDL, KEYS, Drawing, Drawn

_ROWS = {"A": 8, "K": 60, "M": 45}


class Oracle:
    """The same rows in DuckDB."""

    def __init__(self) -> None:
        self.duck = duckdb.connect()
        self.duck.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
        for statement in DUCK_DDL:
            self.duck.execute(statement)

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self.duck.execute(sql, params).fetchall()

    def insert(self, table: str, row: dict[str, object]) -> None:
        marks = ", ".join("?" for _ in row)
        self.duck.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def change(self, drawn: Drawn) -> int:
        """Execute what is drawn, and delete the children of what it deletes; return how many rows it names."""
        ((count,),) = self.rows(drawn.sql, drawn.params)
        self.duck.execute("DELETE FROM K WHERE Id NOT IN (SELECT Id FROM A)")
        return int(count)


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """Values as both sides give them: of numbers that a DOUBLE can hold only the value counts."""
    return tuple(float(v) if _is_plain_number(v) else v for v in row)


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, Decimal) or (type(value) is int and abs(value) < 1 << 53)


def _wrong(drawn: Drawn, found: Sequence[Any], oracle: Oracle) -> str:
    """Say what is wrong with the rows found, or nothing."""
    expected = [_plain(row) for row in oracle.rows(drawn.sql, drawn.params)]
    rows = [_plain(row) for row in found]
    if len(rows) != len(expected):
        return f"{len(rows)} rows instead of {len(expected)}: {rows[:5]} instead of {expected[:5]}"
    if drawn.order and [[row[i] for i in drawn.order] for row in rows] != [
        [r[i] for i in drawn.order] for r in expected
    ]:
        return f"another order: {rows[:8]} instead of {expected[:8]}"
    allowed = Counter(expected)
    if drawn.limited:
        allowed = Counter(_plain(row) for row in oracle.rows(drawn.all_rows, drawn.all_params))
    if strange := Counter(rows) - allowed:
        return f"rows that it must not give: {list(strange)[:5]}"
    return ""


async def _filled(db: Database, drawing: Drawing, oracle: Oracle) -> None:
    for table, count in _ROWS.items():
        rows = {tuple(row[name] for name in KEYS[table]): row for row in (drawing.row(table) for _ in range(count))}
        if table == "K":
            roots = {id_ for (id_,) in oracle.rows("SELECT Id FROM A")}
            rows = {key: row for key, row in rows.items() if key[0] in roots}
        for row in rows.values():
            oracle.insert(table, row)
        await db.conn.insert(table, list(rows.values()))


async def _same_tables(db: Any, oracle: Oracle, what: str) -> None:
    for table, names in COLUMNS.items():
        text = f"SELECT {', '.join(names)} FROM {table}"
        ours = Counter(_plain(row) for row in await (await db.execute(text)).fetchall())
        assert ours == Counter(_plain(row) for row in oracle.rows(text)), f"{table} after {what}"


async def _asked(db: Database, drawn: Drawn, oracle: Oracle, kind: str) -> None:
    told = f"{drawn.sql} with {drawn.params!r}"
    for again in ("", "again: "):
        found = await db.rows(drawn.sql, *drawn.params)
        assert not (wrong := _wrong(drawn, found, oracle)), f"{again}{told}: {wrong}"
    timestamp = db.storage.strong_timestamp() if kind == "snapshot" else 0
    async with db.conn.transaction(kind, timestamp=timestamp) as tx:
        found = await (await tx.execute(drawn.sql, drawn.params)).fetchall()
    assert not (wrong := _wrong(drawn, found, oracle)), f"{kind}: {told}: {wrong}"


@pytest.mark.parametrize("seed", some(range(3), range(3, 40)))
def test_queries(seed: int) -> None:
    async def body(db: Database) -> None:
        drawing, oracle = Drawing(seed), Oracle()
        await _filled(db, drawing, oracle)
        for _ in range(120):
            await _asked(db, drawing.query(), oracle, drawing.rng.choice(("optimistic", "pessimistic", "snapshot")))

    with_database(body, *DDL)


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
    count = (await connection.execute(drawn.sql, drawn.params)).rowcount
    assert count == oracle.change(drawn), told
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
                wrong = _wrong(drawn, found, oracle)
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
