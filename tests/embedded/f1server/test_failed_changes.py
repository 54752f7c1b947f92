"""What is left of a change that fails or is cancelled: nothing that can be taken back, and what stays is said."""

import asyncio
import contextlib
from typing import Any

import pytest

import f1
from f1common.errors import Code
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import Schema
from f1server.catalog.store import Stored
from f1server.schemachange.executor import SchemaChanges
from f1server.testing.database import Database, with_database

PROTO = 'syntax = "proto3"; package q; message M { int64 a = 1; }'
MORE = PROTO.replace("}", "string b = 2; }")
OTHER = PROTO + "message X { int64 z = 1; }"
TABLE = "CREATE TABLE T (K INT64, U INT64, S VARCHAR(10) DEFAULT 'short', M PROTO<q.M>, PRIMARY KEY (K))"
UNIQUE = "CREATE UNIQUE INDEX TU ON T (U)"


async def _schema(db: Database) -> Schema:
    return (await db.process().leases.current("default")).schema


async def _apply(db: Database, proto: str, *tables: str) -> None:
    await db.conn.apply_schema({"q.proto": proto, "t.sql": ";".join(tables)})


async def _filled(db: Database) -> Schema:
    await _apply(db, PROTO, TABLE)
    m = (await db.conn.message_class("q.M"))(a=1)
    await db.conn.insert("T", [{"K": k, "U": k % 3, "S": "s", "M": m} for k in range(5)])
    return await _schema(db)


async def _same(db: Database, before: Schema) -> None:
    """See that the tables are as they were, whatever the .proto files are, and that the index can be made later."""
    assert (await _schema(db)).tables == before.tables
    await db.conn.insert("T", {"K": 9, "U": 0, "S": "s"})
    await db.ddl("UPDATE T SET U = K", UNIQUE)


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE T ALTER COLUMN S TYPE VARCHAR(20), ALTER COLUMN S SET DEFAULT 'a longer one', ADD UNIQUE (U)",
        "ALTER TABLE T ALTER COLUMN S TYPE STRING, ADD CONSTRAINT C CHECK (U < 2)",
        "ALTER TABLE T ALTER COLUMN S TYPE STRING, ADD COLUMN N INT64, ALTER COLUMN M SET NOT NULL, ADD CHECK (U < 2)",
    ],
)
def test_a_type_becomes_wider_with_the_last_version_only(ddl: str) -> None:
    async def body(db: Database) -> None:
        before = await _filled(db)
        with pytest.raises(f1.Error) as caught:
            await db.ddl(ddl)
        assert "taken back" not in str(caught.value)
        await _same(db, before)
        await db.ddl("ALTER TABLE T ALTER COLUMN S TYPE VARCHAR(20), ALTER COLUMN S SET DEFAULT 'a longer one'")
        await db.ddl("INSERT INTO T (K, U) VALUES (20, 20)")
        assert await db.rows("SELECT S FROM T WHERE K = 20") == [("a longer one",)]

    with_database(body)


@pytest.mark.parametrize(
    ("proto", "tables"),
    [
        (MORE, [TABLE, UNIQUE]),
        (MORE, [TABLE, UNIQUE, "CREATE INDEX TB ON T (M.b)"]),
        (MORE, [TABLE.replace("S VARCHAR(10)", "R STRING RENAMED FROM S"), UNIQUE]),
    ],
)
def test_fields_of_messages_stay_and_all_else_is_taken_back(proto: str, tables: list[str]) -> None:
    async def body(db: Database) -> None:
        before = await _filled(db)
        with pytest.raises(f1.Error) as caught:
            await _apply(db, proto, *tables)
        assert caught.value.code is Code.ALREADY_EXISTS
        assert "the .proto files stay as they were set" in str(caught.value)
        assert "with (K) = (" in str(caught.value) and "nothing was changed" not in str(caught.value)
        assert "the field q.M.b = 2 is gone" in str(caught.value)
        await _same(db, before)

    with_database(body)


def test_messages_that_nothing_used_go() -> None:
    async def body(db: Database) -> None:
        before = await _filled(db)
        with pytest.raises(f1.Error) as caught:
            await _apply(
                db, OTHER, TABLE.replace("M PROTO<", "X PROTO<q.X>, M PROTO<"), UNIQUE, "CREATE INDEX TX ON T (X.z)"
            )
        assert ".proto" not in str(caught.value)
        assert (await _schema(db)).proto_files == before.proto_files
        await _same(db, before)

    with_database(body)


def test_what_stays_of_a_cancelled_change_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled when its first version is written, and when its last one is."""
    write = SchemaChanges._write
    halt: list[str] = []
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def halting(self: SchemaChanges, *args: Any) -> Stored:
        stored = await write(self, *args)
        if halt and any(index.state.name == halt[0] for index in stored.schema.table("T").indexes):
            halt.clear()
            reached.set()
            await go_on.wait()
        return stored

    async def cancelled(db: Database, work: Any, state: str) -> pb.SchemaJob:
        halt[:] = [state]
        reached.clear()
        go_on.clear()
        changing = db.env.spawn(work)
        await reached.wait()
        jobs = await db.conn.session.schema_jobs(pb.SchemaJobs())
        number = jobs.jobs[-1].number
        await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.CANCEL, number=number))
        await asyncio.sleep(2)  # its owner looks at its row every 1.5 s
        go_on.set()
        with pytest.raises(f1.Error, match="was cancelled"):
            await changing
        return (await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs[-1]

    async def body(db: Database) -> None:
        before = await _filled(db)
        monkeypatch.setattr(SchemaChanges, "_write", halting)
        wide = TABLE.replace("VARCHAR(10)", "STRING")
        index = "CREATE INDEX TS ON T (S)"
        job = await cancelled(db, _apply(db, MORE, wide, index), "DELETE_ONLY")
        assert (job.state, "types" in job.error, ".proto" in job.error) == ("cancelled", False, True)
        assert (await _schema(db)).tables == before.tables
        job = await cancelled(db, _apply(db, MORE, wide, index), "PUBLIC")
        assert (job.state, job.error) == ("cancelled", "(T.S stays STRING: types only become wider)")
        assert not (await _schema(db)).table("T").indexes

    with_database(body)


WAS = "CREATE TABLE R (K INT64, U INT64, V INT64 NOT NULL, W INT64, PRIMARY KEY (K), CONSTRAINT C CHECK (W > 0)); "
WILL_BE = "CREATE TABLE R (K INT64, U INT64, V INT64, W INT64, PRIMARY KEY (K)); CREATE UNIQUE INDEX TU ON R (U)"


def _constraints(schema: Schema) -> list[str]:
    table = schema.table("R")
    named = [e.name for part in (table.checks, table.indexes) for e in part]
    return [*(f"{c.name} NOT NULL" for c in table.columns if c.not_null and c.name != "K"), *named]


@pytest.mark.parametrize("breaks", [{"V": None, "W": 1}, {"V": 1, "W": -1}])
def test_a_constraint_that_rows_break_by_now_stays_dropped(
    monkeypatch: pytest.MonkeyPatch, breaks: dict[str, object]
) -> None:
    """It was dropped by the change that failed for another reason, and keeps nothing else from being taken back."""
    write = SchemaChanges._write
    dropped, go_on = asyncio.Event(), asyncio.Event()

    async def halting(self: SchemaChanges, *args: Any) -> Stored:
        stored = await write(self, *args)
        if not stored.schema.table("R").checks and not dropped.is_set():
            dropped.set()
            await go_on.wait()
        return stored

    async def body(db: Database) -> None:
        await db.conn.apply_schema({"s.sql": WAS})
        await db.conn.insert("R", [{"K": k, "U": k % 3, "V": k, "W": 1} for k in range(5)])
        monkeypatch.setattr(SchemaChanges, "_write", halting)
        changing = db.env.spawn(db.conn.apply_schema({"s.sql": WILL_BE}))
        await dropped.wait()
        while not await db.rows("SELECT K FROM R WHERE K = 9"):
            with contextlib.suppress(f1.Error):  # until its server knows of the new version
                await db.conn.insert("R", {"K": 9, "U": 9, **breaks})
            await asyncio.sleep(0.1)
        go_on.set()
        with pytest.raises(f1.Error) as caught:
            await changing
        assert caught.value.code is Code.ALREADY_EXISTS
        assert "all but the following was taken back" in str(caught.value)
        assert "what it had dropped stays dropped, and need not be dropped again: " in str(caught.value)
        assert (await _schema(db)).table("R").indexes == ()
        assert _constraints(await _schema(db)) == []
        await db.conn.insert("R", {"K": 10, "U": 0, "V": None})
        await db.ddl("DELETE FROM R WHERE K >= 9")
        await db.conn.apply_schema({"s.sql": WAS})
        assert _constraints(await _schema(db)) == ["V NOT NULL", "C"]

    with_database(body)


OLD = "CREATE TABLE R (K INT64 PRIMARY KEY, U INT64, V INT64, LOCK L (V))"


@pytest.mark.parametrize(
    ("change", "dropped"),
    [
        ("ALTER TABLE R DROP COLUMN U, ADD COLUMN N INT64 NOT NULL", "U"),
        ("ALTER TABLE R DROP COLUMN U, ADD COLUMN U STRING NOT NULL", "U"),
        ("ALTER TABLE R DROP COLUMN V CASCADE, ADD COLUMN N INT64 NOT NULL, DROP COLUMN U", "V"),
        ("ALTER TABLE R DROP COLUMN U, ADD COLUMN N INT64 DEFAULT 7 REFERENCES P", "U"),
        ("ALTER TABLE R DROP COLUMN U CASCADE, ADD COLUMN N INT64, ADD CHECK (N IS NOT NULL)", "U"),
    ],
)
def test_nothing_is_removed_while_rows_may_stand_against_what_comes_last(change: str, dropped: str) -> None:
    """Constraints over new columns come in a round of their own, and so does what must not be done before."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"K": k, "U": k * 10, "V": k} for k in range(4)])
        before = await _schema(db)
        with pytest.raises(f1.Error, match="nothing was changed"):
            await db.ddl(change)
        assert (await _schema(db)).tables == before.tables
        assert await db.rows("SELECT K, U, V FROM R ORDER BY K") == [(k, k * 10, k) for k in range(4)]
        await db.ddl("DELETE FROM R", change)
        table = (await _schema(db)).table("R")
        assert len(table.columns) == len(table.by_name)
        assert before.table("R").column(dropped).id not in table.by_id

    with_database(body, "CREATE TABLE P (X INT64 PRIMARY KEY)", OLD)


def test_a_table_as_a_query_that_fails_is_there_and_the_error_says_so() -> None:
    async def body(db: Database) -> None:
        with pytest.raises(f1.Error, match="division by zero; the table T was created, without rows") as caught:
            await db.ddl("CREATE TABLE T AS SELECT 1 / (K - 1) AS X FROM (SELECT 1 AS K) AS Q")
        assert not caught.value.retryable
        assert await db.rows("SELECT * FROM T") == []
        await db.ddl("DROP TABLE T", "CREATE TABLE T AS SELECT 1 / (K + 1) AS X FROM (SELECT 1 AS K) AS Q")
        assert len(await db.rows("SELECT * FROM T")) == 1

    with_database(body)
