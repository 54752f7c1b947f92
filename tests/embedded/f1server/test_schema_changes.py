"""Schema changes and transactions through several servers: what is read, written and left over."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

import f1
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.places import COPIES_SPAN
from f1server.catalog.schema import Schema
from f1server.catalog.store import Stored
from f1server.schemachange.executor import SchemaChanges
from f1server.testing.checks import check_indexes, stored
from f1server.testing.database import Database, with_database
from tests.amounts import some

R = "CREATE TABLE R (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))"
KID = "CREATE TABLE Kid (A INT64 NOT NULL, B INT64 NOT NULL, V INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT R"


async def schema_of(db: Database, server: int = 0) -> Schema:
    return (await db.process(server).leases.current("default")).schema


async def check(db: Database) -> None:
    assert not await check_indexes(db.storage, await schema_of(db), db.storage.strong_timestamp())


async def everything(db: Database) -> dict[bytes, bytes]:
    """All that is stored for users' tables."""
    span = (tuples.encode((1,)), COPIES_SPAN[0])
    return await stored(db.storage, span, db.storage.strong_timestamp())


@pytest.mark.parametrize("kind", ["optimistic", "snapshot"])
def test_a_new_index_is_not_used_to_read_what_is_older(kind: str) -> None:
    """The entries of old rows are written when the index is made: there are none at a timestamp before."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(3)])
        await asyncio.sleep(3)
        async with db.conn.transaction(kind) as tx:
            assert len(await tx.read("R")) == 3
            await db.ddl("CREATE INDEX RV ON R (V)", "CREATE INDEX RVA ON R (V, A)")
            assert await (await tx.execute("SELECT A FROM R WHERE V = 1")).fetchall() == [(1,)]
            assert await (await tx.execute("SELECT A FROM R WHERE V >= 1 ORDER BY A")).fetchall() == [(1,), (2,)]
            with pytest.raises(F1Error) as caught:
                await tx.read("R", prefix=(1,), index="RV")
            # A snapshot has the schema of its moment, in which there is no such index.
            missing = Code.NOT_FOUND if kind == "snapshot" else Code.FAILED_PRECONDITION
            assert caught.value.code is missing
        assert await db.rows("SELECT A FROM R WHERE V = 1") == [(1,)]
        assert len(await db.conn.read("R", prefix=(1,), index="RV")) == 1

    with_database(body, R)


def test_ddl_is_no_part_of_a_transaction() -> None:
    async def body(db: Database) -> None:
        for kind in ("optimistic", "pessimistic", "snapshot"):
            async with db.conn.transaction(kind) as tx:
                with pytest.raises(F1Error) as caught:
                    await tx.execute("CREATE TABLE S (A INT64, PRIMARY KEY (A))")
                assert caught.value.code is Code.FAILED_PRECONDITION
        assert [table.name for table in (await schema_of(db)).tables] == ["R"]

    with_database(body, R)


def test_changes_through_two_servers_at_once() -> None:
    """Both make tables and indexes; all of it is there at the end, each thing once, in what both servers see."""

    async def body(db: Database) -> None:
        first, second = await db.at(0), await db.at(1)

        async def change(conn: f1.aio.Connection, own: str, order: int) -> list[Code]:
            failed = []
            for name in (f"T{own}", "Both"):
                try:
                    await conn.execute(f"CREATE TABLE {name} (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))")
                except F1Error as error:
                    failed.append(error.code)
            await conn.execute(f"CREATE INDEX R{own} ON R (V)")
            return failed

        failed = await asyncio.gather(change(first, "x", 0), change(second, "y", 1))
        assert sorted(failed) == [[], [Code.ALREADY_EXISTS]]
        for server in (0, 1):
            schema = await schema_of(db, server)
            assert sorted(t.name for t in schema.tables) == ["Both", "R", "Tx", "Ty"]
            assert sorted(i.name for i in schema.table("R").indexes) == ["Rx", "Ry"]
            ids = [e for t in schema.tables for e in (t.id, *t.by_id, *(i.id for i in t.indexes))]
            assert len(set(ids)) == len(ids)
        await second.insert("R", {"A": 1, "V": 1})
        await check(db)

    with_database(body, R)


def test_dropped_tables_leave_nothing() -> None:
    """Rows, entries of local and global indexes, history: a table in a hierarchy, then all of it."""

    async def body(db: Database) -> None:
        await db.ddl("CREATE TABLE Stays (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))")
        await db.ddl("CREATE INDEX StaysByV ON Stays (V)")
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(40)])
        await db.conn.insert("Kid", [{"A": a, "B": b, "V": b} for a in range(40) for b in range(5)])
        await db.conn.insert("Stays", [{"A": a, "V": a} for a in range(10)])
        kept = await everything(db)
        await db.ddl("DROP INDEX KidLocal")
        assert len(kept) - len(await everything(db)) == 200
        await db.ddl("DROP TABLE Kid")
        assert len(kept) - len(await everything(db)) == 600
        assert await db.rows("SELECT count(*), sum(V) FROM R") == [(40, 780)]
        await check(db)
        await db.ddl("DROP TABLE R")
        left = await everything(db)
        # Ten rows, their entries, and their histories.
        assert len(left) == 30
        await check(db)
        with pytest.raises(F1Error) as caught:
            await db.rows("SELECT * FROM R")
        assert caught.value.code is Code.NOT_FOUND
        await db.ddl(R)
        assert await db.rows("SELECT * FROM R") == []

    indexes = ("LOCAL INDEX KidLocal ON Kid (A, V)", "INDEX KidGlobal ON Kid (V)", "INDEX RV ON R (V)")
    with_database(body, R, KID, *(f"CREATE {index}" for index in indexes))


def test_a_unique_index_with_duplicates_fails_and_leaves_nothing() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a % 7} for a in range(10)])
        before = await everything(db)
        with pytest.raises(F1Error) as caught:
            await db.ddl("CREATE UNIQUE INDEX RU ON R (V)")
        assert caught.value.code is Code.ALREADY_EXISTS
        assert "RU" in caught.value.message
        assert await everything(db) == before
        assert (await schema_of(db)).table("R").indexes == ()
        # Writes go on as if there had never been one, and after the repair it can be made.
        await db.conn.insert("R", {"A": 10, "V": 0})
        await db.ddl("UPDATE R SET V = A")
        await db.ddl("CREATE UNIQUE INDEX RU ON R (V)")
        await check(db)
        with pytest.raises(F1Error) as caught:
            await db.conn.insert("R", {"A": 11, "V": 3})
        assert caught.value.code is Code.ALREADY_EXISTS

    with_database(body, R)


@pytest.mark.parametrize("seed", some([0], range(1, 6)))
def test_indexes_are_made_while_others_write(seed: int) -> None:
    """Inserts, updates that move entries, deletes and re-inserts through both servers; queries use what is public."""

    async def body(db: Database) -> None:
        rng = random.Random(seed)
        await db.conn.insert("R", [{"A": a, "V": a % 5} for a in range(60)])
        done = asyncio.Event()
        writes = 0

        async def write(number: int) -> None:
            nonlocal writes
            conn = await db.at(number % 2)
            while not done.is_set():
                a = rng.randrange(80)
                match rng.randrange(4):
                    case 0:
                        await conn.execute("DELETE FROM R WHERE A = ?", [a])
                    case 1:
                        await conn.upsert("R", {"A": a, "V": rng.randrange(5)})
                    case 2:
                        await conn.execute("UPDATE R SET V = V + 1 WHERE A = ?", [a])
                    case _:
                        found = await (await conn.execute("SELECT A FROM R WHERE V = ?", [rng.randrange(5)])).fetchall()
                        assert len({a for (a,) in found}) == len(found)
                writes += 1
                await asyncio.sleep(rng.random() * 0.1)

        writers = [asyncio.create_task(write(number)) for number in range(2)]
        for name in ("One", "Two"):
            await db.ddl(f"CREATE INDEX {name} ON R (V)")
            await check(db)
        await db.ddl("DROP INDEX One")
        done.set()
        await asyncio.gather(*writers)
        assert writes > 50
        await check(db)
        by_index = sorted(await db.rows("SELECT A, V FROM R WHERE V >= 0"))
        assert by_index == sorted(await db.rows("SELECT A, V FROM R"))

    with_database(body, R, seed=seed)


def test_a_transaction_over_a_schema_change() -> None:
    """It commits if all that it names is there, and fails cleanly if something is gone."""

    async def body(db: Database) -> None:
        await db.ddl("CREATE TABLE Gone (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))")
        await db.conn.insert("R", {"A": 1, "V": 1})
        await db.conn.insert("Gone", {"A": 1, "V": 1})
        for kind in ("optimistic", "pessimistic"):
            async with db.conn.transaction(kind) as tx:
                await tx.execute("UPDATE R SET V = V + 1 WHERE A = 1")
                await db.ddl(f"CREATE TABLE New{kind} (A INT64, PRIMARY KEY (A))")
                if kind == "optimistic":  # with the row locked an index would wait for it
                    await db.ddl("CREATE INDEX RV ON R (V)")
                await tx.execute(f"INSERT INTO New{kind} VALUES (1)")
            await check(db)
        assert await db.rows("SELECT V FROM R") == [(3,)]
        tx = await db.conn.begin()
        await tx.execute("UPDATE Gone SET V = 2 WHERE A = 1")
        await tx.execute("UPDATE R SET V = 9 WHERE A = 1")
        other = await db.at(1)
        await other.execute("DROP TABLE Gone")
        await other.execute("CREATE TABLE Gone (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))")
        with pytest.raises(F1Error) as caught:
            await db.conn.commit()
        assert caught.value.code is Code.ABORTED
        assert caught.value.retryable  # what it named is there again, and another one
        assert await db.rows("SELECT V FROM R") == [(3,)]
        assert await db.rows("SELECT V FROM Gone") == []

    with_database(body, R)


def test_a_locked_read_by_an_index_that_is_gone_meanwhile() -> None:
    """The statement is planned; then its server does not reach the storage until the index and its entries are gone."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(5)])
        first, second = await db.at(0), await db.at(1)
        tx = await first.begin("pessimistic")
        await tx.execute("SELECT A FROM R WHERE A = 1")
        db.world.partition(["f1-a"], db.cluster.names)
        late = asyncio.create_task(tx.execute("SELECT A FROM R WHERE V = 3"))
        await asyncio.sleep(0.01)
        await second.execute("DROP INDEX RV")
        db.world.heal_links()
        with pytest.raises(F1Error) as caught:
            await late
        assert caught.value.code is Code.ABORTED
        assert await db.rows("SELECT A FROM R WHERE V = 3") == [(3,)]

    with_database(body, R, "CREATE INDEX RV ON R (V)")


def test_a_dropped_constraint_that_cannot_return_goes_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled when NULL is allowed already, and there."""
    dropped, go_on = asyncio.Event(), asyncio.Event()
    write = SchemaChanges._write

    async def halting(self: SchemaChanges, *args: Any) -> Stored:
        stored = await write(self, *args)
        if not stored.schema.table("R").column("V").not_null and not dropped.is_set():
            dropped.set()
            await go_on.wait()
        return stored

    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 1})
        monkeypatch.setattr(SchemaChanges, "_write", halting)
        dropping = db.env.spawn(
            db.conn.apply_schema(
                {"s.sql": "CREATE TABLE R (A INT64, V INT64, PRIMARY KEY (A)); CREATE INDEX RV ON R (V)"}
            )
        )
        await dropped.wait()
        while not await db.rows("SELECT A FROM R WHERE A = 2"):
            with contextlib.suppress(F1Error, f1.Error):  # until its server knows of the new version
                await db.conn.insert("R", {"A": 2, "V": None})
            await asyncio.sleep(0.1)
        (job,) = [job for job in (await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs if job.state == "running"]
        await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.CANCEL, number=job.number))
        go_on.set()
        await dropping
        (ended,) = [j for j in (await db.conn.session.schema_jobs(pb.SchemaJobs())).jobs if j.number == job.number]
        assert ended.state == "done" and "could not be taken back, so it went on" in ended.error
        table = (await db.process().leases.current("default")).schema.table("R")
        assert not table.column("V").not_null and [index.name for index in table.indexes] == ["RV"]
        assert await db.rows("SELECT A FROM R WHERE V IS NULL") == [(2,)]

    with_database(body, "CREATE TABLE R (A INT64, V INT64 NOT NULL, PRIMARY KEY (A))")
