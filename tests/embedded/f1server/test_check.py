"""Checks of a database in use: planted damage of every clause is found, repaired where that can be, nothing else is."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

import f1
from f1.checking import CheckResult, check_database
from f1common.encoding import tuple as tuples
from f1common.encoding.row import Timestamp, decode_row, encode_row
from f1common.errors import Code, F1Error
from f1common.orchestrator.spans import ORCHESTRATOR_SPAN
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.check.judge import Judge
from f1server.rows.keys import index_key, index_span, row_key
from f1server.rows.layout import LOCAL_INDEX_BASE
from f1server.testing.database import Database, with_database
from spanstore.client import KeyRange, Write

DDL = (
    "CREATE TABLE Place (P INT64, Name STRING, PRIMARY KEY (P))",
    "CREATE UNIQUE INDEX PlaceName ON Place (Name)",
    "CREATE TABLE R (A INT64, V INT64 NOT NULL, W STRING, Home INT64, L INT64, PRIMARY KEY (A), LOCK Mine (L),"
    " CONSTRAINT Positive CHECK (V > 0), CONSTRAINT Lives FOREIGN KEY (Home) REFERENCES Place (P))",
    "CREATE INDEX RV ON R (V) STORING (W)",
    "CREATE INDEX RHome ON R (Home)",
    "CREATE TABLE Kid (A INT64, B INT64, V INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT R",
    "CREATE LOCAL INDEX KidV ON Kid (A, V)",
    "CREATE TABLE Toy (A INT64, B INT64, C INT64, PRIMARY KEY (A, B, C)) INTERLEAVE IN PARENT Kid",
)


async def schema_of(db: Database) -> Schema:
    return (await db.process().leases.current("default")).schema


async def fill(db: Database) -> Schema:
    await db.conn.insert("Place", [{"P": p, "Name": f"n{p}"} for p in range(4)])
    await db.conn.insert("R", [{"A": a, "V": a + 1, "W": f"w{a}", "Home": a % 4 or None, "L": 1} for a in range(12)])
    await db.conn.insert("Kid", [{"A": a, "B": b, "V": 10 * a + b} for a in range(12) for b in range(3)])
    await db.conn.insert("Toy", [{"A": a, "B": 1, "C": 1} for a in range(12)])
    return await schema_of(db)


async def check(db: Database, *tables: str, repair: bool = False, examples: int = 5) -> CheckResult:
    return await check_database(db.conn.session, tables, repair=repair, examples=examples)


def found(result: CheckResult) -> list[tuple[int, str, str, str, int]]:
    return [(g.clause, g.kind, g.table, g.element, g.count) for g in result.findings]


def columns(table: Table) -> dict[str, int]:
    return {column.name: column.id for column in table.columns}


async def plant(db: Database, *writes: tuple[bytes, bytes | None]) -> None:
    await db.storage.commit([Write(key, value) for key, value in writes])


async def stored(db: Database, key: bytes) -> bytes:
    version = (await db.storage.read([key])).versions[0]
    assert version is not None and version.value is not None
    return version.value


async def edit(db: Database, table: Table, key: bytes, *, drop: int = 0, **values: object) -> None:
    """Give columns of a stored row other values, and nothing else; `drop` is the id of a cell to take away."""
    cells = dict(decode_row(await stored(db, key)))
    for name, value in values.items():
        cells[columns(table)[name]] = value  # type: ignore[assignment]
    cells = {i: c for i, c in cells.items() if c is not None and i != drop}
    await plant(db, (key, encode_row(cells)))


def entry(schema: Schema, table: str, index: str, key: tuple[int, ...], **values: object) -> bytes:
    """The key of the entry that a row with these values has."""
    of = schema.table(table)
    row = {columns(of)[name]: value for name, value in values.items()}
    row |= dict(zip(of.key_column_ids, key, strict=True))
    (found,) = index_key(schema, of, of.index(index), row, key)  # type: ignore[arg-type]
    return found


def run(body: Callable[[Database, Schema], object], *, seed: int = 1) -> None:
    async def main(db: Database) -> None:
        await body(db, await fill(db))  # type: ignore[misc]

    with_database(main, *DDL, seed=seed)


def test_a_database_in_order_has_no_findings_and_leaves_no_pin() -> None:
    async def body(db: Database, schema: Schema) -> None:
        result = await check(db)
        assert found(result) == []
        assert (result.rows, result.entries) == (4 + 12 + 36 + 12, 4 + 12 + 12 + 36)
        assert result.timestamp > 0 and result.schema_version == schema.version
        assert await db.storage.pins.list() == []
        some = await check(db, "Place", "Kid")
        assert (some.rows, some.entries) == (4 + 12 + 36 + 12, 4 + 36)

    run(body)


def test_many_small_parts_see_every_key_once() -> None:
    async def body(db: Database, schema: Schema) -> None:
        for number in range(2):
            db.frontend(number)._checker._keys_per_part = 1
        plan = await db.conn.session.check(pb.Check(plan=pb.CheckPlan()), 10)
        assert len(plan.parts) > 12
        spans = sorted([ORCHESTRATOR_SPAN, *((part.start, part.end) for part in plan.parts)])
        assert all(before[1] == after[0] for before, after in pairwise(spans)), "no gap and no overlap"
        result = await check(db)
        assert (found(result), result.rows, result.entries) == ([], 4 + 12 + 36 + 12, 4 + 12 + 12 + 36)

    run(body)


ALL_TYPES = """
CREATE TABLE Types (B BOOL, I INT64, D DOUBLE, N NUMERIC, S STRING, Y BYTES, Da DATE, T TIMESTAMP, P PROTO<x.M>,
  PRIMARY KEY (B, I, D, N, S, Y, Da, T));
CREATE UNIQUE INDEX TypesAll ON Types (D, N, P.name) STORING (P);
CREATE INDEX TypesTags ON Types (P.tags);
CREATE LOCAL INDEX TypesLocal ON Types (B, I, D, N, S, Y, Da, T, P.name);
CREATE TABLE NoKey (A INT64, Big NUMERIC);
CREATE INDEX NoKeyBig ON NoKey (Big);
"""
PROTO = 'syntax = "proto3"; package x; message M { string name = 1; repeated int64 tags = 2; }'


def test_keys_of_every_type_and_fields_of_messages() -> None:
    async def body(db: Database) -> None:
        await db.conn.apply_schema({"schema.sql": ALL_TYPES, "x.proto": PROTO})
        for i, (d, n, p) in enumerate(
            [("-0.0", "1.50", '{"name": "a", "tags": [1, 2, 1]}'), ("'NaN'", "-0.000", "{}")]
        ):
            await db.ddl(
                f"INSERT INTO Types VALUES (true, {i}, CAST({d} AS DOUBLE), {n}, 's', '\\x00ff', DATE '1960-01-01', "
                f"TIMESTAMP '2026-01-02 03:04:05.678', CAST('{p}' AS PROTO<x.M>))"
            )
        await db.ddl("INSERT INTO NoKey VALUES (1, 1.20), (NULL, NULL)")
        result = await check(db)
        assert (found(result), result.rows, result.entries) == ([], 4, 2 + 2 + 2 + 2)
        schema = await schema_of(db)
        tags = await db.storage.read(
            ranges=[
                KeyRange(*index_span(schema, schema.table("Types"), schema.table("Types").index("TypesTags"), b"", b""))
            ]
        )
        await plant(db, *((row.key, None) for row in tags.ranges[0]))
        repaired = await check(db, repair=True)
        assert found(repaired) == [(4, "missing entry", "Types", "TypesTags", 2)]
        assert found(await check(db)) == []

    with_database(body)


CHECKED = (
    "CREATE TABLE C (A INT64, M PROTO<x.M>, PRIMARY KEY (A), CONSTRAINT Named CHECK (M.name <> ''), "
    "CONSTRAINT Few CHECK (M.sub.level < 3 AND M.mood = 'GOOD'))"
)
CHECKED_PROTO = (
    'syntax = "proto3"; package x; enum Mood { GOOD = 0; BAD = 1; } message S { int64 level = 1; } '
    "message M { string name = 1; S sub = 2; Mood mood = 3; }"
)


def test_checks_over_fields_of_messages_are_enforced_and_checked() -> None:
    async def body(db: Database) -> None:
        await db.conn.apply_schema({"schema.sql": CHECKED, "x.proto": CHECKED_PROTO})
        good, unnamed, deep, bad = b"\x0a\x01n\x12\x02\x08\x01", b"", b"\x0a\x01n\x12\x02\x08\x07", b"\x0a\x01n\x18\x01"
        await db.conn.insert("C", [{"A": a, "M": good} for a in range(3)] + [{"A": 3, "M": None}])
        for message, name in ((unnamed, "Named"), (deep, "Few"), (bad, "Few")):
            with pytest.raises(F1Error, match=name):
                await db.conn.insert("C", {"A": 9, "M": message})
        assert found(await check(db)) == []
        table = (await schema_of(db)).table("C")
        await edit(db, table, row_key(await schema_of(db), table, (1,)), M=deep)
        await edit(db, table, row_key(await schema_of(db), table, (2,)), M=unnamed)
        await edit(db, table, row_key(await schema_of(db), table, (0,)), M=b"\xff")
        result = await check(db)
        assert found(result) == [(6, "check", "C", "", 1), (6, "check", "C", "Few", 1), (6, "check", "C", "Named", 1)]
        # It holds for rows that are there when it comes, too.
        await db.conn.execute("DELETE FROM C WHERE A < 2")
        await db.conn.execute("ALTER TABLE C DROP CONSTRAINT Named")
        with pytest.raises(F1Error, match="check Named fails"):
            await db.conn.execute("ALTER TABLE C ADD CONSTRAINT Named CHECK (M.name <> '')")

    with_database(body)


def test_an_empty_database_has_no_findings() -> None:
    async def body(db: Database) -> None:
        assert found(await check(db)) == []

    with_database(body)


def test_missing_entries_are_found_and_added() -> None:
    async def body(db: Database, schema: Schema) -> None:
        gone = [
            entry(schema, "R", "RV", (3,), V=4),
            entry(schema, "Kid", "KidV", (5, 1), V=51),
            entry(schema, "Place", "PlaceName", (2,), Name="n2"),
        ]
        before = [await stored(db, key) for key in gone]
        await plant(db, *((key, None) for key in gone))
        expected = [
            (4, "missing entry", "Kid", "KidV", 1),
            (4, "missing entry", "Place", "PlaceName", 1),
            (4, "missing entry", "R", "RV", 1),
        ]
        result = await check(db)
        assert found(result) == expected
        assert result.left == 3
        assert [g.examples[0] for g in result.findings if g.table == "R"] == [("(A) = (3)", "the row has no entry")]
        repaired = await check(db, repair=True)
        assert found(repaired) == expected
        assert repaired.left == 0
        assert found(await check(db)) == []
        assert [await stored(db, key) for key in gone] == before
        assert await db.rows("SELECT A FROM R WHERE V = 4") == [(3,)]

    run(body)


def test_orphan_entries_are_found_and_removed() -> None:
    async def body(db: Database, schema: Schema) -> None:
        r, place = schema.table("R"), schema.table("Place")
        orphan = entry(schema, "R", "RV", (99,), V=4)
        local = entry(schema, "Kid", "KidV", (5, 99), V=7)
        unique = entry(schema, "Place", "PlaceName", (99,), Name="nobody")
        await plant(
            db,
            (orphan, encode_row({})),
            (local, encode_row({})),
            (unique, encode_row({place.key_column_ids[0]: 99})),
        )
        result = await check(db, repair=True)
        assert found(result) == [
            (5, "orphan entry", "Kid", "KidV", 1),
            (5, "orphan entry", "Place", "PlaceName", 1),
            (5, "orphan entry", "R", "RV", 1),
        ]
        assert result.left == 0
        assert found(await check(db)) == []
        read = await db.storage.read([orphan, local, unique])
        assert read.values() == [None, None, None]
        assert r.state is ElementState.PUBLIC

    run(body)


def test_entries_with_wrong_values_are_found_and_made_right() -> None:
    """A stored column with another value, and an entry of values that the row no longer has."""

    async def body(db: Database, schema: Schema) -> None:
        r = schema.table("R")
        covering = entry(schema, "R", "RV", (3,), V=4)
        right = await stored(db, covering)
        stale = entry(schema, "R", "RV", (3,), V=77)
        await plant(db, (covering, encode_row({columns(r)["W"]: "other"})), (stale, right))
        result = await check(db, repair=True)
        assert found(result) == [(5, "wrong entry", "R", "RV", 2)]
        assert any(
            "it stores (W) = ('other'), the row has (W) = ('w3')" in text for _, text in result.findings[0].examples
        )
        assert result.left == 0
        assert await stored(db, covering) == right
        assert (await db.storage.read([stale])).values() == [None]
        assert found(await check(db)) == []

    run(body)


def test_a_unique_entry_that_names_another_row_is_made_right() -> None:
    async def body(db: Database, schema: Schema) -> None:
        place = schema.table("Place")
        key = entry(schema, "Place", "PlaceName", (2,), Name="n2")
        await plant(db, (key, encode_row({place.key_column_ids[0]: 3})))
        result = await check(db, repair=True)
        assert found(result) == [
            (4, "missing entry", "Place", "PlaceName", 1),
            (5, "wrong entry", "Place", "PlaceName", 1),
        ]
        assert result.left == 0
        assert found(await check(db)) == []

    run(body)


def test_duplicates_in_a_unique_index_are_reported_only() -> None:
    async def body(db: Database, schema: Schema) -> None:
        place = schema.table("Place")
        await edit(db, place, row_key(schema, place, (3,)), Name="n2")
        await plant(db, (entry(schema, "Place", "PlaceName", (3,), Name="n3"), None))
        for repair in (False, True):
            result = await check(db, repair=repair)
            assert found(result) == [(6, "duplicate", "Place", "PlaceName", 1)]
            assert result.findings[0].examples == [("(P) = (3)", "the row (P) = (2) has the same (Name) = ('n2')")]
            assert result.left == 1

    run(body)


def test_rows_below_a_missing_parent() -> None:
    async def body(db: Database, schema: Schema) -> None:
        r, kid = schema.table("R"), schema.table("Kid")
        await plant(
            db,
            (row_key(schema, r, (5,)), None),
            (entry(schema, "R", "RV", (5,), V=6), None),
            (entry(schema, "R", "RHome", (5,), Home=1), None),
            (row_key(schema, kid, (7, 1)), None),
            (entry(schema, "Kid", "KidV", (7, 1), V=71), None),
        )
        result = await check(db, repair=True)
        assert found(result) == [(1, "no parent", "Kid", "", 3), (1, "no parent", "Toy", "", 1)]
        assert result.findings[1].examples == [
            ("(A, B, C) = (7, 1, 1)", "its parent in Kid, (A, B) = (7, 1), is not there")
        ]
        assert result.left == 4

    run(body)


def test_a_part_may_begin_below_a_parent() -> None:
    """The parent of its first rows is then looked for by key."""

    async def body(db: Database, schema: Schema) -> None:
        kid, r = schema.table("Kid"), schema.table("R")
        plan = await db.conn.session.check(pb.Check(plan=pb.CheckPlan()), 10)
        start = row_key(schema, kid, (5, 1))
        part = pb.CheckPart(start=start, end=row_key(schema, r, (6,)), table_id=r.id, timestamp=plan.timestamp)
        reply = await db.conn.session.check(pb.Check(part=part), 10)
        assert (reply.rows, reply.entries, list(reply.findings)) == (3, 3, [])

    run(body)


def test_nulls_and_locks_and_checks_and_foreign_keys() -> None:
    async def body(db: Database, schema: Schema) -> None:
        r = schema.table("R")
        lock = r.locks[0].id

        async def breaks(expected: list[tuple[int, str, str, str, int]], *, drop: int = 0, **values: object) -> None:
            key = row_key(schema, r, (5,))
            before = await stored(db, key)
            await edit(db, r, key, drop=drop, **values)
            result = await check(db, "R", repair=True)
            assert [item for item in found(result) if item[0] not in (4, 5)] == expected
            assert result.left == len(expected)
            await plant(db, (key, before))
            assert (await check(db, "R", repair=True)).left == 0

        await breaks([(2, "null", "R", "V", 1)], V=None)
        await breaks([(2, "lock", "R", "Mine", 1)], drop=lock)
        await breaks([(6, "check", "R", "Positive", 1)], V=-3)
        await breaks([(6, "dangling reference", "R", "Lives", 1)], Home=77)
        await breaks([(7, "unreadable", "R", "W", 1)], W=5)

        late = encode_row({**decode_row(await stored(db, row_key(schema, r, (6,)))), lock: Timestamp(1 << 60)})
        await plant(db, (row_key(schema, r, (6,)), late))
        assert found(await check(db)) == [(2, "lock", "R", "Mine", 1)]

    run(body)


def test_what_belongs_to_nothing() -> None:
    """Rows of unknown tables, entries of unknown indexes, values of unknown columns, and no readable row at all."""

    async def body(db: Database, schema: Schema) -> None:
        r = schema.table("R")
        root = row_key(schema, r, (5,))
        unknown_index = LOCAL_INDEX_BASE + 900_000
        await plant(
            db,
            (root + tuples.encode((900_001, 1)), encode_row({})),
            (root + tuples.encode((unknown_index, 1)), encode_row({})),
            (tuples.encode((unknown_index, 1, 1)), encode_row({})),
            (tuples.encode((900_002, 1)), encode_row({})),
            (
                row_key(schema, r, (6,)),
                encode_row({**decode_row(await stored(db, row_key(schema, r, (6,)))), 900_003: 1}),
            ),
            (row_key(schema, r, (50,)), b"\xc1 no row"),
        )
        result = await check(db)
        assert found(result) == [
            (1, "no column", "R", "", 1),
            (1, "no table", "", "", 2),
            (1, "no table", "R", "", 1),
            (3, "no index", "R", "", 1),
            (7, "unreadable", "R", "", 1),
        ]
        assert "(900002, 1)" in [key for g in result.findings for key, _ in g.examples]

    run(body)


def test_rows_of_another_database_are_no_strays() -> None:
    async def body(db: Database, schema: Schema) -> None:
        await db.ddl("CREATE DATABASE other")
        other = await db.nodes.connect(db.env, autocommit=True)
        other.session.database = "other"
        await other.execute("CREATE TABLE X (A INT64, V INT64, PRIMARY KEY (A))")
        await other.execute("CREATE INDEX XV ON X (V)")
        await other.execute("INSERT INTO X VALUES (1, 1)")
        assert found(await check(db)) == []
        result = await check_database(other.session)
        assert (found(result), result.rows, result.entries) == ([], 1, 1)

    run(body)


def test_entries_of_an_index_that_is_not_public_may_be_missing_but_not_wrong() -> None:
    async def body(db: Database, schema: Schema) -> None:
        store = db.process()._store

        def half_built(current: Schema, _: object) -> Schema:
            r = current.table("R")
            indexes = tuple(replace(i, state=ElementState.WRITE_ONLY) if i.name == "RV" else i for i in r.indexes)
            tables = tuple(replace(r, indexes=indexes) if t.id == r.id else t for t in current.tables)
            return replace(current, tables=tables, version=current.version + 1)

        await store.write("default", half_built)
        await plant(
            db, (entry(schema, "R", "RV", (3,), V=4), None), (entry(schema, "R", "RV", (98,), V=4), encode_row({}))
        )
        assert found(await check(db)) == [(5, "orphan entry", "R", "RV", 1)]

    run(body)


def test_examples_are_bounded_and_counts_are_not() -> None:
    async def body(db: Database, schema: Schema) -> None:
        await plant(db, *((entry(schema, "R", "RV", (a,), V=a + 1), None) for a in range(12)))
        result = await check(db, examples=2)
        (group,) = result.findings
        assert (group.count, len(group.examples)) == (12, 2)
        assert (await check(db, examples=0)).findings[0].examples == []

    run(body)


class Writers:
    """Statements of all kinds on all tables, through both servers, while a test does something else."""

    def __init__(self, db: Database, *, pause_s: float = 0.01) -> None:
        self.db = db
        self.pause_s = pause_s
        self.stopped = False

    async def __aenter__(self) -> None:
        self.tasks = [asyncio.create_task(self.write(own)) for own in range(3)]

    async def __aexit__(self, *_: object) -> None:
        self.stopped = True
        assert min(await asyncio.gather(*self.tasks)) > 8

    async def write(self, own: int) -> int:
        done = 0
        conn = await self.db.at(own % 2)
        while not self.stopped:
            try:
                await self.one(conn, (own * 7 + done * 5) % 16, done)
            except F1Error as error:
                assert error.code in (Code.ALREADY_EXISTS, Code.FAILED_PRECONDITION, Code.ABORTED), error
            done += 1
            await asyncio.sleep(self.pause_s)
        return done

    async def one(self, conn: f1.aio.Connection, a: int, done: int) -> None:
        match done % 4:
            case 0:
                for table in ("Toy", "Kid", "R"):
                    await conn.execute(f"DELETE FROM {table} WHERE A = ?", (a,))
            case 1:
                await conn.execute("INSERT INTO R (A, V, Home) VALUES (?, ?, ?)", (a, a + 1, done % 4))
            case 2:
                await conn.execute("UPDATE R SET V = V + 1, W = ? WHERE A = ?", (f"x{done}", a))
            case _:
                await conn.execute("INSERT INTO Kid VALUES (?, 9, ?)", (a, done))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_false_findings_while_the_database_is_written_to(seed: int) -> None:
    async def body(db: Database, schema: Schema) -> None:
        async with Writers(db):
            for round_ in range(4):
                result = await check(db, repair=round_ % 2 == 1)
                assert found(result) == [], [g.examples for g in result.findings]
                await asyncio.sleep(0.05)
        assert found(await check(db)) == []

    run(body, seed=seed)


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_indexes_that_come_and_go_give_no_finding(seed: int) -> None:
    """Whatever state an index is in at the check's timestamp, the schema of that moment says what it must have."""

    async def body(db: Database, schema: Schema) -> None:
        done = False

        async def change() -> None:
            await db.ddl("CREATE INDEX Other ON R (W, V)", "DROP INDEX Other")

        async with Writers(db, pause_s=0.1):
            changing = asyncio.create_task(change())
            states: set[ElementState] = set()
            while not done:
                done = changing.done()
                result = await check(db)
                assert found(result) == [], [g.examples for g in result.findings]
                await asyncio.sleep(0.2)
                states |= {
                    i.state for t in (await schema_of(db)).tables for i in t.indexes if i.name in ("Other", "Near")
                }
            await changing
            assert len(states) > 1
        assert found(await check(db)) == []

    run(body, seed=seed)


def test_a_check_that_compared_different_moments_would_have_false_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test before looks for is there to be seen."""
    read = Judge.versions

    async def newest(self: Judge, keys: Iterable[bytes], timestamp: int) -> object:
        await asyncio.sleep(0.02)
        return await read(self, keys, 0)

    monkeypatch.setattr(Judge, "versions", newest)

    async def body(db: Database, schema: Schema) -> None:
        async with Writers(db):
            assert [found(await check(db)) for _ in range(4)] != [[]] * 4

    run(body)


def test_the_timestamp_stays_readable_until_the_check_ends() -> None:
    """Versions that are garbage otherwise, were the pin not there."""

    async def main(db: Database) -> None:
        schema = await fill(db)
        session = db.conn.session
        plan = await session.check(pb.Check(plan=pb.CheckPlan()), 10)

        async def rows() -> int:
            for part in plan.parts:
                part.timestamp = plan.timestamp
            return sum([(await session.check(pb.Check(part=part), 30)).rows for part in plan.parts])

        await db.conn.execute("UPDATE R SET V = V + 1 WHERE A >= 0")
        await asyncio.sleep(30)
        assert await rows() == 64
        await session.check(pb.Check(keep=plan.pin), 10)
        await session.check(pb.Check(end=plan.pin), 10)
        await db.conn.execute("UPDATE R SET V = V + 1 WHERE A >= 0")
        await asyncio.sleep(30)
        with pytest.raises(F1Error) as caught:
            await rows()
        assert caught.value.code is Code.SNAPSHOT_TOO_OLD
        assert schema.version == plan.schema_version

    with_database(main, *DDL, version_keep_ms=5_000)


def test_repairs_while_the_rows_concerned_are_written() -> None:
    """A repair looks again under locks: what writers made right, or wrong entries of rows that changed, end right."""

    async def body(db: Database, schema: Schema) -> None:
        for round_ in range(2):
            current = dict(await db.rows("SELECT A, V FROM R"))
            wrong = [(entry(schema, "R", "RV", (a,), V=v), None) for a, v in current.items() if a % 2 == round_ % 2]
            await plant(db, *wrong, (entry(schema, "R", "RV", (3,), V=500 + round_), encode_row({})))

            async def write() -> None:
                for a in range(12):
                    await db.conn.execute("UPDATE R SET V = V + 100 WHERE A = ?", (a,))

            writing = asyncio.create_task(write())
            result = await check(db, repair=True)
            assert result.left == 0
            await writing
            assert found(await check(db)) == []

    run(body)
