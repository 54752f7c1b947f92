"""A value that is absent is a NULL or a default that was not filled in yet, and must not be taken for the other one."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import f1
from f1common.encoding import tuple as tuples
from f1common.encoding.row import decode_row
from f1server.catalog.schema import ElementState, Schema
from f1server.rows.keys import table_span
from f1server.rows.locks import DEFAULT_LOCK
from f1server.schemachange.jobs.jobs import JobStore
from f1server.testing.database import Database, with_database
from spanstore.client import KeyRange

PAIR = "CREATE TABLE T (Id INT64, G INT64, V STRING, PRIMARY KEY (Id, G)); CREATE INDEX TV ON T (V)"
ROWS = 120


async def filled(db: Database) -> None:
    await db.conn.insert("T", [{"Id": i, "G": 0, "V": f"v{i % 7}"} for i in range(ROWS)])


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("column", ["INT64 DEFAULT 7", "INT64 NOT NULL DEFAULT 7", "INT64 DEFAULT 3 + 4"])
def test_rows_get_the_default_though_their_keys_change_meanwhile(column: str, kind: str) -> None:
    async def body(db: Database) -> None:
        await filled(db)
        rng = random.Random(1)
        adding = db.env.spawn(db.conn.execute(f"ALTER TABLE T ADD COLUMN X {column}"))
        moved = 0
        writers = [await db.at(i, autocommit=True) for i in range(2)]
        while not adding.done():
            some = rng.sample(range(ROWS), 2)
            for writer, row in zip(writers, some, strict=True):
                sql = "UPDATE T SET G = G + 1 WHERE Id = ?"
                await writer.run(lambda tx, sql=sql, row=row: tx.execute(sql, (row,)), kind=kind)  # type: ignore[misc]
                moved += 1
        await adding
        assert moved > 10
        assert await db.rows("SELECT X, count(*) FROM T GROUP BY X") == [(7, ROWS)]
        assert await db.rows("SELECT sum(G) FROM T") == [(moved,)]

    with_database(body, PAIR)


DROPS = "ALTER TABLE T DROP COLUMN X"


@pytest.mark.parametrize("change", ["ADD CHECK (Id < 110)", "ADD UNIQUE (V)", "ADD COLUMN Z INT64 NOT NULL"])
def test_a_null_stays_one_if_its_column_was_to_be_dropped(change: str) -> None:
    """Also of a row whose key changes meanwhile, as long as the column is there."""

    async def body(db: Database) -> None:
        await db.ddl("ALTER TABLE T ADD COLUMN X INT64 DEFAULT 7")
        await db.conn.insert("T", [{"Id": i, "G": 0, "V": f"v{i % 7}", "X": i if i % 3 else None} for i in range(ROWS)])
        with pytest.raises(f1.Error):
            await db.ddl(f"{DROPS}, {change}")
        assert await db.rows("SELECT count(*), count(X), sum(X) FROM T") == [
            (ROWS, ROWS - ROWS // 3, sum(i for i in range(ROWS) if i % 3))
        ]
        await db.conn.insert("T", {"Id": ROWS, "G": 0})
        assert await db.rows("SELECT X FROM T WHERE Id = ?", ROWS) == [(7,)]  # it is a column as before

    with_database(body, PAIR)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("column", ["X INT64", "X INT64 NOT NULL", "X INT64 DEFAULT 7"])
def test_values_stay_with_rows_whose_keys_change_while_a_drop_fails(column: str, kind: str) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("S", [{"Id": i, "G": 0, "X": i} for i in range(ROWS)])
        moved = await _rekey_beside(db, "ALTER TABLE S DROP COLUMN X, ADD CHECK (Id < 119)", kind, fails=True)
        assert moved > 5
        assert await db.rows("SELECT count(*), count(X), sum(X), sum(G) FROM S") == [
            (ROWS, ROWS, sum(range(ROWS)), moved)
        ]
        assert await db.rows("SELECT count(*) FROM S WHERE X = Id") == [(ROWS,)]
        assert await _told_by_the_history(db) == await db.rows("SELECT Id, G, X FROM S ORDER BY Id")

    with_database(body, f"CREATE TABLE S (Id INT64, G INT64, {column}, PRIMARY KEY (Id, G))")


def test_nothing_is_left_of_a_column_whose_coming_is_taken_back() -> None:
    """It had been public for a while, and users had written values."""

    async def body(db: Database) -> None:
        await db.conn.insert("S", [{"Id": i, "G": 0, "V": i} for i in range(ROWS)])
        changing = db.env.spawn(db.conn.execute("ALTER TABLE S ADD COLUMN X INT64, ADD COLUMN Y INT64 NOT NULL"))
        rng, written = random.Random(1), 0
        writers = [await db.at(i % 2) for i in range(4)]

        async def write(writer: f1.aio.Connection) -> None:
            nonlocal written
            while not changing.done():
                row, other = rng.sample(range(ROWS), 2)
                with suppress(f1.Error):
                    await writer.execute(f"UPDATE S SET X = 1 WHERE Id = {row}")
                    written += 1
                with suppress(f1.Error):
                    await writer.execute(f"UPDATE S SET G = G + 1 WHERE Id = {other}")

        await asyncio.gather(*(db.env.spawn(write(writer)) for writer in writers))
        with pytest.raises(f1.Error):
            await changing
        assert written > 10
        await _is_clean(db)

    with_database(body, "CREATE TABLE S (Id INT64, G INT64, V INT64, PRIMARY KEY (Id, G))")


@pytest.mark.parametrize("column", ["X INT64", "X INT64 NOT NULL DEFAULT 7"])
def test_nothing_of_it_is_left_where_the_drop_succeeds(column: str) -> None:
    """Not with a row that got another key when its value had been removed, or was just to be."""

    async def body(db: Database) -> None:
        await db.conn.insert("S", [{"Id": i, "G": 0, "X": i} for i in range(ROWS)])
        assert await _rekey_beside(db, "ALTER TABLE S DROP COLUMN X", "optimistic", fails=False) > 5
        await _is_clean(db)

    with_database(body, f"CREATE TABLE S (Id INT64, G INT64, {column}, PRIMARY KEY (Id, G))")


def test_nor_if_the_last_moment_to_go_back_passes_before_the_commit() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("S", [{"Id": i, "G": 0, "X": i} for i in range(ROWS)])
        committer, jobs = db.frontend(0)._committer, JobStore(db.storage, db.env.clock)
        ask, send = committer._way_back, committer._send
        asked: list[tuple[Any, Any]] = []

        async def note(database: str) -> Any:
            asked.append(await ask(database))
            return asked[-1]

        async def late(*args: Any) -> int:
            """Commit when the row is locked, and the removal has looked for rows."""
            while len(asked) == 1 and (row := await jobs.running("default")) is not None and not row.job.rows:
                await asyncio.sleep(0.02)
            return await send(*args)

        committer._way_back, committer._send = note, late  # type: ignore[method-assign, assignment]
        other = await db.at(1)
        changing = db.env.spawn(other.execute("ALTER TABLE S DROP COLUMN X"))
        mover = await db.at(0)
        while not asked:
            await mover.execute("UPDATE S SET G = G + 1 WHERE Id = 110")
        await changing
        assert asked[0][0]
        assert not any(kept for kept, _ in asked[1:])  # it was tried again, without the value
        await _is_clean(db)

    with_database(body, "CREATE TABLE S (Id INT64, G INT64, X INT64, PRIMARY KEY (Id, G))")


async def _told_by_the_history(db: Database) -> list[tuple[Any, ...]]:
    """Make all that the change history says, in its order; return the rows."""
    rows: dict[Any, dict[str, Any]] = {}
    batches, until = [], 0
    while True:
        some, until = await db.conn.read_changes("S", after_ts=until)
        batches += some
        if not some:
            break
    for batch in sorted(batches, key=lambda b: b.commit_ts):
        for change in sorted(batch.changes, key=lambda c: c.kind != "DELETE"):
            if change.kind == "DELETE":
                del rows[change.key]
            else:
                rows.setdefault(change.key, {}).update(change.after)
    return sorted((*key, row.get("X")) for key, row in rows.items())


async def _is_clean(db: Database) -> None:
    """See that all rows are there, with cells of columns that are there."""
    schema = await _schema(db)
    (table,) = schema.tables
    rows = (await db.storage.read([], [KeyRange(*table_span(schema, table))])).ranges[0]
    stored = [decode_row(row.value) for row in rows if len(tuples.decode(row.key)) == 3]
    assert len(stored) == ROWS
    assert {i for cells in stored for i in cells} <= {DEFAULT_LOCK, *(c.id for c in table.columns)}


async def _schema(db: Database) -> Schema:
    return (await db.process(0).leases.current("default")).schema


async def _rekey_beside(db: Database, change: str, kind: str, *, fails: bool) -> int:
    """Give rows other keys through both servers while a change is made; return how often that was done."""
    rng = random.Random(1)
    changing = db.env.spawn(db.conn.execute(change))
    writers = [await db.at(i, autocommit=True) for i in range(2)]
    moved = 0
    while not changing.done():
        for writer, row in zip(writers, rng.sample(range(ROWS - 1), 2), strict=True):  # the last one fails
            sql = f"UPDATE S SET G = G + 1 WHERE Id = {row}"
            await writer.run(lambda tx, sql=sql: tx.execute(sql), kind=kind)  # type: ignore[misc]
            moved += 1
    if fails:
        with pytest.raises(f1.Error):
            await changing
    else:
        await changing
    return moved


def test_a_column_that_is_never_null_has_values_in_new_rows_as_well() -> None:
    """Rows that came while it was on its way out get the default."""

    async def body(db: Database) -> None:
        await filled(db)
        await db.ddl("ALTER TABLE T ADD COLUMN X INT64 NOT NULL DEFAULT 7", "UPDATE T SET X = Id")
        changing = db.env.spawn(db.conn.execute(f"{DROPS}, ADD CHECK (Id < 119)"))
        new = 0
        while not changing.done():
            await db.conn.insert("T", {"Id": -1 - new, "G": 0})
            new += 1
        with pytest.raises(f1.Error):
            await changing
        assert new > 3
        assert await db.rows("SELECT count(*), sum(X) FROM T WHERE Id >= 0") == [(ROWS, sum(range(ROWS)))]
        assert await db.rows("SELECT X, count(*) FROM T WHERE Id < 0 GROUP BY X") == [(7, new)]

    with_database(body, PAIR)


def test_a_null_that_the_next_version_has_written_is_no_missing_default() -> None:
    """One server still has the column as it was being filled, when another one has let a user write NULL into it."""

    async def body(db: Database) -> None:
        await filled(db)
        await db.ddl("ALTER TABLE T ADD COLUMN X INT64 DEFAULT 7")
        held = await db.process(0).leases.held("default")
        now = held.stored.schema
        (table,) = now.tables
        columns = (replace(c, state=ElementState.WRITE_ONLY) if c.name == "X" else c for c in table.columns)
        before = replace(now, tables=(replace(table, columns=tuple(columns)),), version=now.version - 1)
        await (await db.at(1)).execute("UPDATE T SET X = NULL WHERE Id = 5")
        # What it had the moment before; that this is the newest was last known then.
        held.stored = replace(held.stored, schema=before, schema_ts=held.stored.schema_ts - 1)
        held.newest = (before.version, 1)
        mover = await db.at(0)
        await mover.execute("UPDATE T SET G = 1 WHERE Id = 5")
        assert await db.rows("SELECT G, X FROM T WHERE Id = 5") == [(1, None)]

    with_database(body, PAIR)
