"""Tables that change while they are used: columns, defaults, NOT NULL, checks, foreign keys, locks, indexes.

Two servers write all the time, each with the version of the schema that it has; after every change the whole database
is checked, and in the seeds the server that carries a change out dies in the middle of it.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

import f1
from f1.checking import check_database
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, Schema
from f1server.exec.trial import ExpressionTrial
from f1server.schemachange.jobs.jobs import Order
from f1server.schemachange.work.walk import Walker
from f1server.testing.database import Database, with_database
from tests.amounts import some

BASE = "A INT64 NOT NULL, V INT64, PRIMARY KEY (A)"
OTHER = "CREATE TABLE Other (K INT64 NOT NULL, Name STRING, PRIMARY KEY (K))"


def sources(columns: str, *more: str) -> dict[str, str]:
    return {"schema.sql": ";\n".join((f"CREATE TABLE R ({columns})", OTHER, *more))}


async def schema_of(db: Database, server: int = 0) -> Schema:
    return (await db.process(server).leases.current("default")).schema


async def check(db: Database) -> None:
    result = await check_database(db.conn.session, [], repair=False, examples=5)
    assert not result.findings, result.findings


async def rows(db: Database, sql: str) -> list[tuple[object, ...]]:
    return await db.rows(sql)


def test_a_column_with_a_default_is_filled_and_its_index_too() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(450)])
        await db.conn.apply_schema(
            sources(
                "A INT64 NOT NULL, V INT64, W INT64 NOT NULL DEFAULT 7, PRIMARY KEY (A)", "CREATE INDEX RW ON R (W, V)"
            )
        )
        assert await rows(db, "SELECT count(*), min(W), max(W) FROM R") == [(450, 7, 7)]
        assert await rows(db, "SELECT count(*) FROM R WHERE W = 7 AND V < 10") == [(10,)]
        await db.conn.insert("R", {"A": 900, "V": 1})
        assert await rows(db, "SELECT W FROM R WHERE A = 900") == [(7,)]
        await check(db)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_a_default_that_is_an_expression_is_evaluated_for_old_rows() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(3)])
        await db.conn.apply_schema(
            sources(
                "A INT64 NOT NULL, V INT64, At TIMESTAMP DEFAULT CURRENT_TIMESTAMP, S STRING DEFAULT 'x' || 'y',"
                " PRIMARY KEY (A)"
            )
        )
        assert await rows(db, "SELECT count(At), min(S), max(S) FROM R") == [(3, "xy", "xy")]
        await check(db)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_large_defaults_do_not_make_large_commits() -> None:
    """24 rows of 3 MB each: all in one commit would be refused, as larger than a request may be."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a} for a in range(24)])
        await db.conn.execute("ALTER TABLE R ADD COLUMN W STRING DEFAULT repeat('w', 3000000)")
        for a in range(24):
            assert await rows(db, f"SELECT length(W) FROM R WHERE A = {a}") == [(3_000_000,)]

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("ADD COLUMN W INT64 DEFAULT (1 / 0)", "the default of column R.W cannot be evaluated .*; nothing was changed"),
        ("ADD CONSTRAINT C CHECK (V / 0 > 1)", "a check of table R cannot be evaluated .*; nothing was changed"),
    ],
)
def test_what_cannot_be_evaluated_is_named(monkeypatch: pytest.MonkeyPatch, change: str, text: str) -> None:
    """It is refused before the change begins, but for one that a server of an older version has begun."""
    monkeypatch.setattr(ExpressionTrial, "__call__", lambda *_: None)

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": 1, "V": 1}])
        before = await schema_of(db)
        with pytest.raises(F1Error, match=text):
            await db.conn.execute(f"ALTER TABLE R {change}")
        assert (await schema_of(db)).table("R") == before.table("R")
        await check(db)
        listed = await db.process()._changes.listed("default")
        with pytest.raises(F1Error, match="has ended: it is failed"):
            await db.process()._changes.order("default", listed[-1].number, Order.CANCEL)
        with pytest.raises(F1Error, match="999 of default is not known"):
            await db.process()._changes.resume("default", 999)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


BROKEN: list[tuple[str, str, Code]] = [
    ("A INT64 NOT NULL, V INT64 NOT NULL, PRIMARY KEY (A)", "cannot be NOT NULL", Code.FAILED_PRECONDITION),
    ("A INT64 NOT NULL, V INT64, W INT64 NOT NULL, PRIMARY KEY (A)", "cannot be NOT NULL", Code.FAILED_PRECONDITION),
    (
        "A INT64 NOT NULL, V INT64, W INT64 NOT NULL DEFAULT NULL, PRIMARY KEY (A)",
        "cannot be NOT NULL",
        Code.FAILED_PRECONDITION,
    ),
    (
        "A INT64 NOT NULL, V INT64, W INT64 NOT NULL DEFAULT nullif(1, 1), PRIMARY KEY (A)",
        "cannot be NOT NULL",
        Code.FAILED_PRECONDITION,
    ),
    (f"{BASE}, CONSTRAINT Small CHECK (V < 2)", "check Small fails", Code.FAILED_PRECONDITION),
    (f"{BASE}, CONSTRAINT Known FOREIGN KEY (V) REFERENCES Other (K)", "Other has no row", Code.FAILED_PRECONDITION),
    (f"{BASE}, UNIQUE (V)", "cannot be unique", Code.ALREADY_EXISTS),
    (
        "A INT64 NOT NULL, V INT64, W INT64 NOT NULL DEFAULT 7, PRIMARY KEY (A), UNIQUE (W)",
        "cannot be unique",
        Code.ALREADY_EXISTS,
    ),
]


@pytest.mark.parametrize(("columns", "text", "code"), BROKEN)
def test_a_change_that_the_rows_do_not_allow_is_taken_back(columns: str, text: str, code: Code) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("Other", [{"K": 1}])
        await db.conn.insert("R", [{"A": 1, "V": 1}, {"A": 2, "V": None}, {"A": 3, "V": 3}, {"A": 4, "V": 3}])
        before = await schema_of(db)
        with pytest.raises(F1Error, match=text) as caught:
            await db.conn.apply_schema(sources(columns))
        assert caught.value.code is code
        after = await schema_of(db)
        assert after.table("R") == before.table("R")
        assert await rows(db, "SELECT * FROM R ORDER BY A") == [(1, 1), (2, None), (3, 3), (4, 3)]
        await check(db)
        # What was in the way goes, and then it can be done.
        await db.conn.execute("DELETE FROM R WHERE A > 1")
        if "W INT64 NOT NULL" in columns and "DEFAULT 7" not in columns:
            await db.conn.execute("DELETE FROM R")
        await db.conn.apply_schema(sources(columns))
        await check(db)
        assert all(c.state is ElementState.PUBLIC for c in (await schema_of(db)).table("R").columns)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_what_is_enforced_from_then_on() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("Other", [{"K": 1}, {"K": 10}])
        await db.conn.insert("R", [{"A": 1, "V": 1}])
        columns = "A INT64 NOT NULL, V INT64 NOT NULL, PRIMARY KEY (A), CONSTRAINT Small CHECK (V < 9), "
        await db.conn.apply_schema(sources(columns + "FOREIGN KEY (V) REFERENCES Other (K)"))
        for value, text in ((None, "NOT NULL"), (10, "Small"), (2, "Other")):
            with pytest.raises(F1Error, match=text):
                await db.conn.insert("R", {"A": 5, "V": value})
        with pytest.raises(F1Error, match="R"):
            await db.conn.execute("DELETE FROM Other WHERE K = 1")
        await db.conn.apply_schema(sources(BASE))
        await db.conn.insert("R", {"A": 5, "V": None})
        await db.conn.execute("DELETE FROM Other WHERE K = 1")
        await check(db)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_a_dropped_column_leaves_nothing_and_may_come_again() -> None:
    wide = "A INT64 NOT NULL, V INT64, W STRING DEFAULT 'first', PRIMARY KEY (A)"

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a, "W": f"w{a}"} for a in range(10)])
        with pytest.raises(F1Error, match="allow-data-loss"):
            await db.conn.apply_schema(sources(BASE))
        await db.conn.apply_schema(sources(BASE), allow_data_loss=True)
        assert await rows(db, "SELECT * FROM R WHERE A = 1") == [(1, 1)]
        await check(db)
        await db.conn.apply_schema(sources(wide.replace("first", "second")))
        assert await rows(db, "SELECT DISTINCT W FROM R") == [("second",)]
        await check(db)

    with_database(body, f"CREATE TABLE R ({wide})", OTHER)


def test_locks_come_and_go_without_conflicts_that_are_none() -> None:
    """The reorganiser writes rows anew, and nobody who has read them finds that they have changed."""
    plain = "A INT64 NOT NULL, V INT64, W INT64, PRIMARY KEY (A)"

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a, "W": 0} for a in range(5)])
        for columns in (f"{plain}, LOCK Apart (W)", plain):
            async with db.conn.transaction("optimistic") as tx:
                assert len(await (await tx.execute("SELECT A, V, W FROM R")).fetchall()) == 5
                await db.conn.apply_schema(sources(columns))
                await tx.execute("UPDATE R SET V = V + 1 WHERE A = 1")
            await check(db)
        assert await rows(db, "SELECT V FROM R WHERE A = 1") == [(3,)]

    with_database(body, f"CREATE TABLE R ({plain})", OTHER)


SHAPES: list[tuple[str, tuple[str, ...]]] = [
    ("", ()),
    ("W INT64,", ()),
    ("Z INT64 NOT NULL DEFAULT 5,", ("CREATE INDEX RZ ON R (Z)",)),
    (
        "W INT64 DEFAULT 5, X STRING DEFAULT 'x',",
        ("CREATE INDEX RXV ON R (X, V)", "CREATE INDEX RV ON R (V) STORING (W)"),
    ),
    ("X STRING DEFAULT 'x', CONSTRAINT Sane CHECK (V >= 0),", ()),
    ("W INT64, CONSTRAINT Ref FOREIGN KEY (W) REFERENCES Other (K),", ("CREATE INDEX RV ON R (V)",)),
    ("W INT64, LOCK Apart (W),", ("CREATE LOCAL INDEX RL ON R (A, V)",)),
    ("Y STRING, UNIQUE (Y, A),", ()),
]


def shape(number: int) -> dict[str, str]:
    extra, more = SHAPES[number]
    return sources(f"A INT64 NOT NULL, V INT64, {extra} PRIMARY KEY (A)", *more)


async def writer(conn: f1.aio.Connection, rng: random.Random, ended: asyncio.Event, sums: dict[int, int]) -> None:
    """Insert, update and delete rows of its own; what was acknowledged is noted."""
    base = rng.randrange(1, 1_000) * 1_000
    while not ended.is_set():
        key = base + rng.randrange(30)
        value = rng.randrange(100)
        try:
            if key not in sums:
                await conn.insert("R", {"A": key, "V": value})
                sums[key] = value
            elif rng.random() < 0.3:
                await conn.execute("DELETE FROM R WHERE A = ?", (key,))
                del sums[key]
            else:
                await conn.execute("UPDATE R SET V = ? WHERE A = ?", (value, key))
                sums[key] = value
        except F1Error as error:
            if error.ambiguous:
                sums.pop(key, None)
                await asyncio.sleep(0.5)
                await _settle(conn, key, sums)
        await asyncio.sleep(rng.random() * 0.05)


async def _settle(conn: f1.aio.Connection, key: int, sums: dict[int, int]) -> None:
    """Find out what became of a write without an answer: nobody else writes this row."""
    while True:
        try:
            found = await (await conn.execute("SELECT V FROM R WHERE A = ?", (key,))).fetchall()
        except F1Error:
            await asyncio.sleep(0.2)
            continue
        if found:
            sums[key] = found[0][0]
        return


async def expect_rows(db: Database, noted: list[dict[int, int]]) -> None:
    expected: Mapping[int, int] = {key: value for sums in noted for key, value in sums.items()}
    found = dict(await db.rows("SELECT A, V FROM R"))
    assert found == expected


def deaf(db: Database) -> None:
    """Nobody tells the servers of a new version: they find out when they renew their leases, a second later."""

    async def lost(address: str, database: str, version: int) -> object:
        raise F1Error(Code.UNAVAILABLE, "the message was lost")

    for number in (0, 1):
        db.process(number)._changes._nudge = lost


@pytest.mark.parametrize("seed", some([0], range(1, 6)))
def test_any_change_under_load(seed: int) -> None:
    """From shape to shape, while both servers write under neighbouring versions; then all is as it should be."""

    async def body(db: Database) -> None:
        rng = random.Random(seed)
        deaf(db)
        order = rng.sample(range(len(SHAPES)), 4)
        for number in order:
            ended = asyncio.Event()
            noted: list[dict[int, int]] = [{}, {}]
            await db.conn.execute("DELETE FROM R")
            conns = [await db.at(0), await db.at(1)]
            writers = [
                asyncio.create_task(writer(conn, random.Random(f"{seed}/{number}/{n}"), ended, noted[n]))
                for n, conn in enumerate(conns)
            ]
            await asyncio.sleep(0.5)
            await db.conn.apply_schema(shape(number), allow_data_loss=True)
            ended.set()
            await asyncio.gather(*writers)
            await expect_rows(db, noted)
            await check(db)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER, seed=seed)


@pytest.mark.parametrize("seed", some([0], range(1, 6)))
def test_a_change_whose_server_dies_is_finished_by_the_other(seed: int) -> None:
    async def body(db: Database) -> None:
        rng = random.Random(seed)
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(300)])
        for number in rng.sample(range(1, len(SHAPES)), 3):
            one = await db.at(0)
            change = asyncio.create_task(one.apply_schema(shape(number), allow_data_loss=True))
            await asyncio.sleep(rng.random() * 1.5)
            name = db.nodes.names[0]
            db.world.crash(name)
            await asyncio.gather(change, return_exceptions=True)
            other = await db.at(1)
            await other.apply_schema(shape(number), allow_data_loss=True)
            db.world.restart(name)
            await asyncio.sleep(3)
            await check(db)
            assert await rows(db, "SELECT count(*), sum(V) FROM R") == [(300, 300 * 299 // 2)]

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER, seed=seed)


def test_a_snapshot_is_read_with_the_schema_that_it_had() -> None:
    wide = "A INT64 NOT NULL, V INT64, W STRING, PRIMARY KEY (A)"

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a, "W": f"w{a}"} for a in range(3)])
        await asyncio.sleep(1)
        then = db.storage.strong_timestamp()
        async with db.conn.transaction("snapshot") as tx:
            assert len(await (await tx.execute("SELECT * FROM R")).fetchall()) == 3
            columns = "A INT64 NOT NULL, V INT64, N INT64 DEFAULT 5, PRIMARY KEY (A)"
            await db.conn.apply_schema({"s.sql": f"CREATE TABLE R ({columns})"}, allow_data_loss=True)
            found = await (await tx.execute("SELECT * FROM R ORDER BY A")).fetchall()
            assert found == [(0, 0, "w0"), (1, 1, "w1"), (2, 2, "w2")]
            assert [row["W"] for row in await tx.read("R")] == ["w0", "w1", "w2"]
            assert await (await tx.execute("SELECT count(*) FROM Other")).fetchall() == [(0,)]
        assert await rows(db, f"SELECT W FROM R AS OF {then} WHERE A = 1") == [("w1",)]
        assert await rows(db, "SELECT * FROM R WHERE A = 1") == [(1, 1, 5)]
        with pytest.raises(F1Error, match="W"):
            await rows(db, "SELECT W FROM R")
        with pytest.raises(F1Error, match="N"):
            await rows(db, f"SELECT N FROM R AS OF {then}")

    with_database(body, f"CREATE TABLE R ({wide})", OTHER)


ALTERS: list[tuple[str, str, list[tuple[object, ...]]]] = [
    (
        "ALTER TABLE R ADD COLUMN W STRING NOT NULL DEFAULT 'w', ADD COLUMN X INT64",
        "SELECT W, X FROM R",
        [("w", None)] * 3,
    ),
    ("ALTER TABLE R ALTER COLUMN V SET NOT NULL", "SELECT count(V) FROM R", [(3,)]),
    ("ALTER TABLE R ADD CONSTRAINT Small CHECK (V < 100)", "SELECT max(V) FROM R", [(2,)]),
    ("ALTER TABLE R RENAME COLUMN V TO Value", "SELECT max(Value) FROM R", [(2,)]),
    ("ALTER TABLE R ALTER COLUMN Value DROP NOT NULL", "SELECT count(*) FROM R", [(3,)]),
    ("ALTER TABLE R DROP CONSTRAINT Small", "SELECT count(*) FROM R", [(3,)]),
    ("ALTER TABLE R RENAME TO S", "SELECT count(*) FROM S", [(3,)]),
    ("ALTER TABLE S ADD CONSTRAINT One UNIQUE (Value)", "SELECT A FROM S WHERE Value = 1", [(1,)]),
    ("ALTER TABLE S DROP COLUMN W, DROP COLUMN X", "SELECT * FROM S WHERE A = 2", [(2, 2)]),
    ("ALTER TABLE S ADD LOCK Apart (Value)", "SELECT count(*) FROM S", [(3,)]),
]


def test_alter_by_alter() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(3)])
        for statement, query, expected in ALTERS:
            await db.conn.execute(statement)
            assert await rows(db, query) == expected, statement
            await check(db)
        with pytest.raises(F1Error, match="Nope") as caught:
            await db.conn.execute("ALTER TABLE S DROP COLUMN Nope")
        assert caught.value.code is Code.NOT_FOUND

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_a_row_that_is_updated_between_snapshot_and_batch_is_filled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is newer than the snapshot, and still lacks the column: updates of others do not write it."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(5)])
        batch = Walker._rewrite

        async def late(self: Walker, *arguments: Any) -> None:
            await db.env.spawn(db.conn.execute("UPDATE R SET V = 100 WHERE A = 1"))
            await batch(self, *arguments)

        monkeypatch.setattr(Walker, "_rewrite", late)
        columns = "A INT64 NOT NULL, V INT64, W INT64 NOT NULL DEFAULT 7, PRIMARY KEY (A)"
        await db.conn.apply_schema(sources(columns, "CREATE INDEX RW ON R (W, V)"))
        assert await rows(db, "SELECT V, W FROM R WHERE A = 1") == [(100, 7)]
        assert await rows(db, "SELECT A FROM R WHERE W = 7 AND V = 100") == [(1,)]
        await check(db)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)
