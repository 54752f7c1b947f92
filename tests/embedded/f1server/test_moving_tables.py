"""Tables move into a hierarchy, out of it and to another primary key while they are used (docs/adr/0005)."""

import asyncio
import re
from unittest.mock import patch

import pytest

import f1
from f1.checking import check_database
from f1.planning import plan_change
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import ElementState, Schema
from f1server.catalog.store import SchemaStore
from f1server.rows.keys import row_key
from f1server.testing.database import Database, with_database
from f1server.txn.readset import Conflict, ReadSetEntry, validate

CUSTOMER = "CREATE TABLE Customer (CustomerId INT64, Name STRING, PRIMARY KEY (CustomerId))"
FLAT = """CREATE TABLE Campaign (CampaignId INT64, CustomerId INT64, Title STRING, Budget INT64,
    PRIMARY KEY (CampaignId), LOCK Money (Budget))"""
BY_CUSTOMER = "CREATE INDEX ByCustomer ON Campaign (CustomerId)"
BY_TITLE = "CREATE UNIQUE INDEX ByTitle ON Campaign (Title) STORING (Budget)"
INTO = "ALTER TABLE Campaign SET PRIMARY KEY (CustomerId, CampaignId) INTERLEAVE IN PARENT Customer ON DELETE CASCADE"
OUT = "ALTER TABLE Campaign SET PRIMARY KEY (CampaignId)"
FLAT_DDL = (CUSTOMER, FLAT, BY_CUSTOMER, BY_TITLE)


async def schema_of(db: Database, server: int = 0) -> Schema:
    return (await db.process(server).leases.current("default")).schema


async def check(db: Database) -> None:
    result = await check_database(db.conn.session, [], repair=False, examples=5)
    assert not result.findings, result.findings


async def fill(db: Database, customers: int = 5, each: int = 20) -> list[tuple[object, ...]]:
    await db.conn.insert("Customer", [{"CustomerId": c, "Name": f"c{c}"} for c in range(customers)])
    rows = [(c * 1000 + n, c, f"t{c}-{n}", n) for c in range(customers) for n in range(each)]
    names = ("CampaignId", "CustomerId", "Title", "Budget")
    await db.conn.insert("Campaign", [dict(zip(names, row, strict=True)) for row in rows])
    return sorted(rows)


async def campaigns(db: Database) -> list[tuple[object, ...]]:
    return await db.rows("SELECT CampaignId, CustomerId, Title, Budget FROM Campaign ORDER BY CampaignId")


def test_a_flat_table_moves_into_a_hierarchy_and_out_again() -> None:
    async def body(db: Database) -> None:
        expected = await fill(db)
        await db.conn.execute(INTO)
        schema = await schema_of(db)
        table = schema.table("Campaign")
        assert [c.name for c in table.key_columns] == ["CustomerId", "CampaignId"]
        assert schema.by_id[table.parent_id].name == "Customer"
        assert len(schema.tables) == 2
        assert not table.foreign_keys
        assert await campaigns(db) == expected
        await check(db)
        assert await db.rows("SELECT CampaignId FROM Campaign WHERE Title = 't3-4'") == [(3004,)]
        with pytest.raises(F1Error, match="needs its parent"):
            await db.conn.insert("Campaign", {"CampaignId": 1, "CustomerId": 99})
        await db.conn.execute("DELETE FROM Customer WHERE CustomerId = 2")
        expected = [row for row in expected if row[1] != 2]
        assert await campaigns(db) == expected
        await db.conn.execute(OUT)
        assert not (await schema_of(db)).table("Campaign").parent_id
        assert await campaigns(db) == expected
        await db.conn.execute("DELETE FROM Customer WHERE CustomerId = 3")
        assert await campaigns(db) == expected
        await check(db)

    with_database(body, *FLAT_DDL)


def test_a_table_gets_another_primary_key_and_its_columns_keep_what_they_hold() -> None:
    async def body(db: Database) -> None:
        expected = await fill(db)
        await db.conn.execute("ALTER TABLE Campaign SET PRIMARY KEY (Title)")
        assert await campaigns(db) == expected
        await db.conn.execute("UPDATE Campaign SET CampaignId = 7 WHERE Title = 't1-1'")
        with pytest.raises(F1Error) as caught:
            await db.conn.insert("Campaign", {"Title": "t1-1", "CampaignId": 8, "CustomerId": 1})
        assert caught.value.code is Code.ALREADY_EXISTS
        await check(db)

    with_database(body, *FLAT_DDL)


def test_rows_that_cannot_move_are_named_and_nothing_is_left() -> None:
    async def body(db: Database) -> None:
        await fill(db, 2, 3)
        before = await schema_of(db)
        for row, statement, text in (
            ({"CampaignId": 99, "CustomerId": 77}, INTO, "Customer has no row"),
            ({"CampaignId": 99, "CustomerId": None}, INTO, "cannot be NOT NULL"),
            (
                {"CampaignId": 99, "CustomerId": 1, "Budget": 2},
                "ALTER TABLE Campaign SET PRIMARY KEY (Budget)",
                "Budget",
            ),
        ):
            await db.conn.insert("Campaign", row)
            expected = await campaigns(db)
            with pytest.raises(F1Error, match=text):
                await db.conn.execute(statement)
            after = await schema_of(db)
            assert (after.tables, after.views) == (before.tables, before.views)
            assert await campaigns(db) == expected
            await check(db)
            await db.conn.delete("Campaign", (99,))

    with_database(body, CUSTOMER, FLAT.replace(", LOCK Money (Budget)", ""), BY_CUSTOMER, BY_TITLE)


REFUSED = [
    ((*FLAT_DDL[:2], BY_TITLE), INTO, r"needs an index that begins with \(CustomerId\)"),
    (FLAT_DDL, "ALTER TABLE Campaign SET PRIMARY KEY (Budget)", "the lock Money covers"),
    (
        (
            *FLAT_DDL,
            "CREATE TABLE X (CampaignId INT64, Y INT64, PRIMARY KEY (CampaignId, Y)) INTERLEAVE IN PARENT Campaign",
        ),
        INTO,
        "X is interleaved in it: move that out first",
    ),
    (
        (*FLAT_DDL, "CREATE TABLE X (Y INT64, PRIMARY KEY (Y), FOREIGN KEY (Y) REFERENCES Campaign (CampaignId))"),
        INTO,
        "of X refers to it: drop that first",
    ),
    (FLAT_DDL, INTO + ", ADD COLUMN More INT64", "moved: the column More would change .* apply the move alone"),
    (FLAT_DDL, "ALTER TABLE Campaign SET PRIMARY KEY (CampaignId) INTERLEAVE IN PARENT Customer", "must begin with"),
]


@pytest.mark.parametrize(("ddl", "statement", "text"), REFUSED)
def test_what_cannot_be_moved_is_refused_at_once(ddl: tuple[str, ...], statement: str, text: str) -> None:
    async def body(db: Database) -> None:
        before = (await schema_of(db)).version
        with pytest.raises(F1Error, match=text):
            await db.conn.execute(statement)
        assert (await schema_of(db)).version == before

    with_database(body, *ddl)


BELOW = (
    FLAT.replace("PRIMARY KEY (CampaignId)", "PRIMARY KEY (CustomerId, CampaignId)")
    + " INTERLEAVE IN PARENT Customer ON DELETE CASCADE"
)
KID = """CREATE TABLE Kid (CustomerId INT64, CampaignId INT64, K INT64, PRIMARY KEY ({}, K))
    INTERLEAVE IN PARENT Campaign"""
MOVE_ALONE = "would change at the same time: apply the move alone, and the rest before or after it$"
SOURCES = [
    (FLAT_DDL, (CUSTOMER, BELOW.replace("Title", "More INT64, Title"), BY_CUSTOMER, BY_TITLE), "the column More would"),
    (
        FLAT_DDL,
        (CUSTOMER, BELOW.replace("Title STRING", "Title STRING NOT NULL"), BY_CUSTOMER, BY_TITLE),
        "the column Title",
    ),
    (FLAT_DDL, (CUSTOMER, BELOW, BY_CUSTOMER), "the index ByTitle would"),
    (FLAT_DDL, (CUSTOMER.replace("Name", "N"), BELOW, BY_CUSTOMER, BY_TITLE), "the table Customer would"),
    (
        FLAT_DDL,
        (CUSTOMER, BELOW, BY_CUSTOMER, BY_TITLE, "CREATE VIEW W AS SELECT Title FROM Campaign"),
        f"moved: the view W {MOVE_ALONE}",
    ),
    (
        FLAT_DDL,
        (
            CUSTOMER,
            BELOW.replace("Campaign (", "Camp RENAMED FROM Campaign ("),
            BY_CUSTOMER.replace("Campaign", "Camp"),
        ),
        f"Camp would .* moved: its name, the index ByTitle {MOVE_ALONE}",
    ),
    (
        (FLAT, BY_CUSTOMER, BY_TITLE),
        (CUSTOMER, BELOW, BY_CUSTOMER, BY_TITLE),
        "moved: its new parent is not there yet: create that first$",
    ),
    (
        FLAT_DDL,
        (CUSTOMER, BELOW, BY_CUSTOMER, BY_TITLE, KID.format("CustomerId, CampaignId")),
        "moved: Kid is to be interleaved in it: create that afterwards$",
    ),
    (
        (*FLAT_DDL, KID.format("CampaignId")),
        (CUSTOMER, BELOW, BY_CUSTOMER, BY_TITLE, KID.format("CustomerId, CampaignId")),
        "Kid is interleaved in it: move that out first, [a-z ]*; Kid moves, too",
    ),
]


@pytest.mark.parametrize(("ddl", "source", "text"), SOURCES)
def test_a_source_that_moves_a_table_and_changes_more_is_refused_with_what_that_is(
    ddl: tuple[str, ...], source: tuple[str, ...], text: str
) -> None:
    """Before anything is written, by the plan as well."""
    files = {"s.sql": ";\n".join(source)}

    async def body(db: Database) -> None:
        before = (await schema_of(db)).version
        for work in (plan_change(db.conn.session, files), db.conn.apply_schema(files, allow_data_loss=True)):
            with pytest.raises(F1Error, match=text) as caught:
                await work
            assert caught.value.code is Code.FAILED_PRECONDITION
        assert (await schema_of(db)).version == before

    with_database(body, *ddl)


def test_what_a_refusal_says_can_be_done() -> None:
    """A table with rows below it and references to it moves after these, which are put back afterwards."""

    async def body(db: Database) -> None:
        expected = await fill(db, 3, 4)
        kids = [{"CustomerId": row[1], "CampaignId": row[0], "K": k} for row in expected for k in range(2)]
        await db.conn.insert("Kid", kids)
        await db.conn.insert("X", [{"Y": row[0], "C": row[1]} for row in expected])
        await db.ddl(
            "ALTER TABLE Kid SET PRIMARY KEY (CampaignId, K)",
            "ALTER TABLE X DROP CONSTRAINT ToCampaign",
            INTO,
            "CREATE INDEX ByParent ON Kid (CustomerId, CampaignId)",
            "ALTER TABLE Kid SET PRIMARY KEY (CustomerId, CampaignId, K) INTERLEAVE IN PARENT Campaign",
            "ALTER TABLE X ADD CONSTRAINT ToCampaign FOREIGN KEY (C, Y) REFERENCES Campaign (CustomerId, CampaignId)",
        )
        assert await campaigns(db) == expected
        assert await db.rows("SELECT count(*) FROM Kid") == [(len(kids),)]
        with pytest.raises(F1Error, match="Kid"):
            await db.conn.execute("DELETE FROM Campaign WHERE CampaignId = 1001")
        await check(db)

    references = (
        "CREATE TABLE X (Y INT64, C INT64, PRIMARY KEY (Y), CONSTRAINT ToCampaign FOREIGN KEY (Y) REFERENCES {})"
    )
    with_database(body, *FLAT_DDL, KID.format("CampaignId"), references.format("Campaign (CampaignId)"))


def test_a_plan_names_the_rows_that_cannot_move() -> None:
    moved = FLAT.replace("PRIMARY KEY (CampaignId)", "PRIMARY KEY (CustomerId, Budget)").replace(
        ", LOCK Money (Budget)", ""
    )
    files = {"s.sql": ";\n".join((CUSTOMER, f"{moved} INTERLEAVE IN PARENT Customer", BY_CUSTOMER, BY_TITLE))}

    async def body(db: Database) -> None:
        await fill(db, 2, 3)
        version = (await schema_of(db)).version
        rows = [(90, 77, 1), (91, None, 2), (92, 1, None), (93, 1, 2)]
        await db.conn.insert("Campaign", [{"CampaignId": a, "CustomerId": b, "Budget": c} for a, b, c in rows])
        plan = await plan_change(db.conn.session, files)
        assert (await schema_of(db)).version == version
        found = sorted((group.kind, group.element, group.count) for group in plan.violations)
        assert found == [
            ("dangling reference", "Campaign_moves", 1),
            ("duplicate", "Campaign_new_key", 2),
            ("null", "Budget", 1),
            ("null", "CustomerId", 1),
        ], found
        with pytest.raises(F1Error):
            await db.conn.apply_schema(files)
        await db.conn.execute("DELETE FROM Campaign WHERE CampaignId BETWEEN 90 AND 93")
        assert not (await plan_change(db.conn.session, files)).violations
        await db.conn.apply_schema(files)
        assert not (await plan_change(db.conn.session, files)).steps
        await check(db)

    with_database(body, CUSTOMER, FLAT.replace(", LOCK Money (Budget)", ""), BY_CUSTOMER, BY_TITLE)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_who_has_read_the_old_form_is_told_to_run_again(kind: str) -> None:
    """They saw that there is no such row; the new form has it, and the old one says nothing any more."""

    async def body(db: Database) -> None:
        await fill(db)
        tx = await db.at(1)
        await tx.begin(kind)
        assert await tx.get("Campaign", (77,)) is None
        await db.conn.execute(INTO)
        await db.conn.insert("Campaign", {"CampaignId": 77, "CustomerId": 1, "Title": "new"})
        with pytest.raises(F1Error) as caught:
            await tx.insert("Customer", {"CustomerId": 70})
            await tx.commit()
        assert caught.value.code is Code.ABORTED
        assert await db.rows("SELECT count(*) FROM Customer WHERE CustomerId = 70") == [(0,)]

    with_database(body, *FLAT_DDL)


def test_what_was_read_of_the_old_form_counts_only_while_that_is_public() -> None:
    """On the version where the forms have changed places, servers on the next one enter rows in the new form alone."""

    async def body(db: Database) -> None:
        await fill(db, 2, 2)
        seen: list[ElementState] = []
        original = SchemaStore.write

        async def write(self: SchemaStore, *args: object, **kwargs: object) -> object:
            written = await original(self, *args, **kwargs)  # type: ignore[arg-type]
            schema = written[0].schema
            table = next((t for t in schema.tables if t.name == "Campaign" and not t.mirror_of), None)
            if table is None:
                return written
            entry = ReadSetEntry(row_key(schema, table, (77,)), 0, "Campaign")
            seen.append(table.state)
            if table.state is ElementState.PUBLIC:
                validate(schema, [entry], 1, lambda _: None)
            else:
                with pytest.raises(Conflict):
                    validate(schema, [entry], 1, lambda _: None)
            return written

        with patch.object(SchemaStore, "write", write):
            await db.conn.execute(INTO)
        assert {ElementState.PUBLIC, ElementState.WRITE_ONLY, ElementState.DELETE_ONLY} <= set(seen)

    with_database(body, *FLAT_DDL)


@pytest.mark.parametrize("key", ["Title", "CustomerId, CampaignId"])
def test_whoever_follows_the_changes_of_a_table_that_moves_is_told_to_begin_anew(key: str) -> None:
    """Its former history is gone, and with it what was not read of it yet: that is not to be passed over in silence."""

    async def body(db: Database) -> None:
        await fill(db, 1, 3)
        _, seen_ts = await db.conn.read_changes("Campaign")
        await db.conn.execute("UPDATE Campaign SET Budget = 100 WHERE CampaignId = 1")
        await db.conn.execute(f"ALTER TABLE Campaign SET PRIMARY KEY ({key})")
        with pytest.raises(f1.Error, match="was moved, and its changes of before went") as caught:
            await db.conn.read_changes("Campaign", after_ts=seen_ts)
        assert caught.value.code is Code.SNAPSHOT_TOO_OLD
        again = re.search(r"as of (\d+) or later", str(caught.value))
        assert again is not None
        from_ts = int(again.group(1))
        assert await db.rows(f"SELECT Budget FROM Campaign AS OF {from_ts} WHERE CampaignId = 1") == [(100,)]
        await db.conn.execute("UPDATE Campaign SET Budget = 101 WHERE CampaignId = 1")
        await asyncio.sleep(1)
        batches, resolved_ts = await db.conn.read_changes("Campaign", after_ts=from_ts)
        assert [dict(change.after) for batch in batches for change in batch.changes] == [{"Budget": 101}]
        assert await db.conn.read_changes("Campaign", after_ts=resolved_ts)
        await db.conn.read_changes("Campaign")

    with_database(body, *FLAT_DDL)


def test_and_so_is_who_follows_a_table_that_moves_into_another_and_out_again() -> None:
    async def body(db: Database) -> None:
        await fill(db, 1, 3)
        stale = await db.at(1)
        _, seen_ts = await stale.read_changes("Campaign")
        _, above_ts = await stale.read_changes("Customer")
        await db.conn.execute(INTO)
        with pytest.raises(F1Error, match="Campaign lies in Customer since it was moved") as caught:
            await db.on(1, db.frontend(1).read_changes("default", pb.ReadChanges(table="Campaign")))
        assert caught.value.code is Code.INVALID_ARGUMENT
        for conn in (stale, db.conn):
            with pytest.raises(f1.Error, match="history is kept by root row"):
                await conn.read_changes("Campaign", after_ts=seen_ts)
        await db.conn.execute("UPDATE Campaign SET Budget = 101 WHERE CampaignId = 1")
        await asyncio.sleep(1)
        batches, _ = await stale.read_changes("Customer", after_ts=above_ts)
        assert [dict(change.after) for batch in batches for change in batch.changes] == [{"Budget": 101}]
        await db.conn.execute(OUT)
        with pytest.raises(f1.Error, match="go on with the history of Campaign from there"):
            await stale.read_changes("Campaign", after_ts=seen_ts)
        await stale.read_changes("Customer", after_ts=above_ts)

    with_database(body, *FLAT_DDL)
