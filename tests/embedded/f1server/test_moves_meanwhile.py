"""What users see of a table that moves: snapshots, both interfaces, indexes, foreign keys, history, orders to stop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from f1.checking import check_database
from f1common.encoding.row import Cell, encode_row
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Schema
from f1server.catalog.store import SchemaStore
from f1server.rows.mirrors import MirrorLayout
from f1server.rows.values import Value
from f1server.schemachange.jobs.jobs import JobState, JobStore, Order
from f1server.schemachange.work import reorganiser
from f1server.testing.continuous import ContinuousCheck
from f1server.testing.database import Database, with_database
from tests.amounts import some

DDL = (
    "CREATE TABLE Region (RegionId INT64, PRIMARY KEY (RegionId))",
    "CREATE TABLE Customer (CustomerId INT64, Name STRING, PRIMARY KEY (CustomerId))",
    """CREATE TABLE Campaign (CampaignId INT64, CustomerId INT64, Title STRING, Budget INT64, RegionId INT64,
    PRIMARY KEY (CampaignId), LOCK Money (Budget),
    CONSTRAINT InRegion FOREIGN KEY (RegionId) REFERENCES Region (RegionId))""",
    "CREATE INDEX ByCustomer ON Campaign (CustomerId)",
    "CREATE LOCAL INDEX ByBudget ON Campaign (CampaignId, Budget)",
    "CREATE UNIQUE INDEX ByTitle ON Campaign (Title) STORING (Budget)",
    "CREATE INDEX ByRegion ON Campaign (RegionId)",
)
INTO = "ALTER TABLE Campaign SET PRIMARY KEY (CustomerId, CampaignId) INTERLEAVE IN PARENT Customer ON DELETE CASCADE"
OUT = "ALTER TABLE Campaign SET PRIMARY KEY (CampaignId)"
ROWS = 12


async def fill(db: Database) -> None:
    await db.conn.insert("Region", [{"RegionId": r} for r in range(3)])
    await db.conn.insert("Customer", [{"CustomerId": c, "Name": f"c{c}"} for c in range(3)])
    rows = [
        {"CampaignId": n, "CustomerId": n % 3, "Title": f"t{n}", "Budget": n, "RegionId": n % 3} for n in range(ROWS)
    ]
    await db.conn.insert("Campaign", rows)
    for n in range(0, ROWS, 2):
        # The locks of these rows say different times; those of the others say none but the version's.
        await db.conn.execute("UPDATE Campaign SET Budget = Budget + 100 WHERE CampaignId = ?", (n,))


async def campaigns(db: Database) -> list[tuple[Any, ...]]:
    return await db.rows("SELECT CampaignId, CustomerId, Title, Budget, RegionId FROM Campaign ORDER BY CampaignId")


async def check(db: Database, since: int = 0) -> None:
    """Check the database now, and after ``since`` at the edges of all versions of its schema."""
    checker = ContinuousCheck(
        db.storage, db.env.clock, db.env.rng, lambda schema: db.process(1)._sql.evaluators().checks(schema)
    )
    found = await checker.versions(since) if since else await checker.at(db.storage.strong_timestamp())
    assert not found, found
    result = await check_database(db.conn.session, [], repair=False, examples=5)
    assert not result.findings, result.findings


@asynccontextmanager
async def at_each_version(work: Any) -> AsyncIterator[None]:
    """Await ``work(schema, number)`` after each version of the schema is written, before anybody hears of it."""
    original, count = SchemaStore.write, 0

    async def write(self: SchemaStore, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        written = await original(self, *args, **kwargs)
        if written[1]:
            count += 1
            await work(written[0].schema, count)
        return written

    with patch.object(SchemaStore, "write", write):
        yield


def test_snapshots_read_the_form_that_the_table_had() -> None:
    """Through SQL and by key, from before anything began, at each version and afterwards."""

    async def body(db: Database) -> None:
        await fill(db)
        await asyncio.sleep(1)
        expected = await campaigns(db)
        since = then = db.storage.strong_timestamp()
        seen: list[int] = []

        async def look(schema: Schema, number: int) -> None:
            async def read() -> None:
                seen.append(number)
                for at in (0, 1):
                    conn = await db.at(at)
                    sql = f"SELECT CampaignId, CustomerId, Title, Budget, RegionId FROM Campaign AS OF {then}"
                    assert sorted(await (await conn.execute(sql)).fetchall()) == expected
                    found = await (
                        await conn.execute(f"SELECT CampaignId FROM Campaign AS OF {then} WHERE Title = 't4'")
                    ).fetchall()
                    assert found == [(4,)]

            await db.env.spawn(read())

        async with db.conn.transaction("snapshot") as old:
            assert len(await old.read("Campaign")) == ROWS
            async with at_each_version(look):
                await db.conn.execute(INTO)
            await db.conn.execute("DELETE FROM Campaign WHERE CampaignId = 4")
            assert sorted(row["CampaignId"] for row in await old.read("Campaign")) == list(range(ROWS))
            found = await (await old.execute("SELECT Budget FROM Campaign WHERE Title = 't4'")).fetchall()
            assert found == [(104,)]
        assert len(seen) > 6
        assert len(await campaigns(db)) == ROWS - 1
        await check(db, since)

    with_database(body, *DDL)


@pytest.mark.parametrize("into", [True, False], ids=["into", "out"])
def test_indexes_foreign_keys_and_history_go_on(into: bool) -> None:
    async def body(db: Database) -> None:
        await fill(db)
        if not into:
            await db.conn.execute(INTO)
        await db.conn.execute(INTO if into else OUT)
        assert await db.rows("SELECT CampaignId FROM Campaign WHERE Title = 't4'") == [(4,)]
        assert await db.rows("SELECT count(*) FROM Campaign WHERE RegionId = 1") == [(4,)]
        assert await db.rows("SELECT count(*) FROM Campaign WHERE CustomerId = 2 AND Budget > 105") == [(1,)]
        with pytest.raises(F1Error, match="ByTitle"):
            await db.conn.execute("INSERT INTO Campaign VALUES (99, 1, 't4', 0, 0)")
        with pytest.raises(F1Error, match="InRegion"):
            await db.conn.execute("INSERT INTO Campaign VALUES (99, 1, 'new', 0, 77)")
        with pytest.raises(F1Error, match="InRegion"):
            await db.conn.execute("DELETE FROM Region WHERE RegionId = 1")
        await db.conn.execute("UPDATE Campaign SET Budget = 1 WHERE CampaignId = 5")
        root = "Customer" if into else "Campaign"
        found = await db.rows(f"SELECT count(*) FROM ChangeHistory_{root}")
        assert found[0][0] > 0
        await check(db)

    with_database(body, *DDL)


@pytest.mark.parametrize("into", some([True], [False]), ids=["into", "out"])
def test_a_move_is_cancelled_or_ended_at_every_version(into: bool) -> None:
    """Before the forms change places and right afterwards it is taken back; later it goes on. No row is lost."""

    async def body(db: Database) -> None:
        await fill(db)
        if not into:
            await db.conn.execute(INTO)
        expected, ends = await campaigns(db), []
        jobs = JobStore(db.storage, db.env.clock)
        for wanted in range(1, 30):
            since = db.storage.strong_timestamp()
            reached = 0

            async def cancel(schema: Schema, number: int, wanted: int = wanted) -> None:
                nonlocal reached
                reached = max(reached, number)
                running = await jobs.running("default")
                if number != wanted or running is None:
                    return
                try:
                    await db.on(1, db.process(1)._changes.order("default", running.job.number, Order.CANCEL))
                except F1Error as error:
                    assert error.code is Code.FAILED_PRECONDITION, error

            async with at_each_version(cancel):
                try:
                    await db.conn.execute(INTO if into else OUT)
                except F1Error as error:
                    assert "cancel" in error.message.lower(), error
            state = (await jobs.log("default"))[-1].state
            schema = (await db.process(0).leases.current("default")).schema
            assert len([t for t in schema.tables if t.name == "Campaign"]) == 1
            moved = schema.table("Campaign").parent_id != 0
            assert moved == (into == (state is JobState.DONE))
            assert await campaigns(db) == expected
            await check(db, since)
            ends.append(state)
            if state is JobState.DONE:
                break
        assert ends[-1] is JobState.DONE
        assert set(ends[:-1]) == {JobState.CANCELLED}
        assert len(ends) > 5

    with_database(body, *DDL, lease_ms=500)


def test_locks_that_are_not_carried_over_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is copied later than it was written would say that all of it has changed since."""

    def value_of(
        self: MirrorLayout, row: Mapping[int, Value], key_values: tuple[Value, ...], cells: Mapping[int, Cell], ts: int
    ) -> bytes:
        return encode_row(self._moved(cells, row))

    async def body(db: Database) -> None:
        await fill(db)
        since = db.storage.strong_timestamp()
        await db.conn.execute(INTO)
        await check(db, since)

    with_database(body, *DDL)
    monkeypatch.setattr(MirrorLayout, "value_of", value_of)
    with pytest.raises(F1Error, match="its locks and those of the row tell other times"):
        with_database(body, *DDL)
    monkeypatch.setattr(reorganiser, "is_verified", lambda _: False)
    with pytest.raises(AssertionError, match="times lock in Campaign"):
        with_database(body, *DDL)


def test_prepared_statements_and_open_transactions_live_through_a_move() -> None:
    async def body(db: Database) -> None:
        await fill(db)
        sql = "SELECT Title FROM Campaign WHERE CampaignId = ?"
        conn = await db.at(1)
        assert await (await conn.execute(sql, (4,))).fetchall() == [("t4",)]
        writer = await db.at(1)
        await writer.begin("optimistic")
        await writer.execute("UPDATE Campaign SET Title = 'other' WHERE CampaignId = 4")
        elsewhere = await db.at(1)
        await elsewhere.begin("optimistic")
        await elsewhere.execute("UPDATE Customer SET Name = 'other' WHERE CustomerId = 2")
        await db.conn.execute(INTO)
        assert await (await conn.execute(sql, (4,))).fetchall() == [("t4",)]
        with pytest.raises(F1Error) as caught:
            await writer.commit()
        assert caught.value.code is Code.ABORTED
        await elsewhere.commit()
        assert await db.rows("SELECT Name FROM Customer WHERE CustomerId = 2") == [("other",)]
        assert await db.rows("SELECT Title FROM Campaign WHERE CampaignId = 4") == [("t4",)]
        row = await conn.get("Campaign", (1, 4))
        assert row is not None
        assert row["Title"] == "t4"
        await check(db)

    with_database(body, *DDL)
