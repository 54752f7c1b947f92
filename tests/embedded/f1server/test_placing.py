"""Where tables lie, said by their names: policies outlive renames, and what lies within a table goes with it."""

import asyncio
from typing import Any

import pytest

from f1common.errors import Code
from f1server.testing.database import Database, with_database
from spanstore.client.founding import create_group
from spanstore.client.groups import read_directory
from spanstore.client.policies import table_places
from spanstore.placement.policy import Policy

DDL = (
    "CREATE TABLE Customer (Id INT64 NOT NULL, Name STRING, PRIMARY KEY (Id))",
    "CREATE TABLE Campaign (Id INT64 NOT NULL, CampaignId INT64 NOT NULL, Title STRING, PRIMARY KEY (Id, CampaignId)) "
    "INTERLEAVE IN PARENT Customer",
    "CREATE INDEX ByName ON Customer (Name)",
    "CREATE INDEX ByTitle ON Campaign (Title)",
    "CREATE LOCAL INDEX ByIdAndTitle ON Campaign (Id, Title)",
    "CREATE TABLE Other (Id INT64 NOT NULL, PRIMARY KEY (Id))",
)
SET = "ALTER TABLE Customer SET PLACEMENT (ZONES = 'b, a,c', LEADER_ZONE = 'b')"


async def refusal(db: Database, sql: str) -> tuple[Code, str]:
    with pytest.raises(Exception) as caught:
        await db.rows(sql)
    return Code[caught.value.code], str(caught.value)  # type: ignore[attr-defined]


async def with_all_servers(db: Database) -> None:
    """Wait until the cluster, which has just begun, knows the zones of its servers."""
    while len((await read_directory(db.storage)).servers) < len(db.cluster.names):
        await asyncio.sleep(0.1)


def test_a_policy_is_of_the_table_its_children_and_its_indexes_whatever_it_is_called() -> None:
    async def body(db: Database) -> None:
        await with_all_servers(db)
        await db.conn.insert("Customer", [{"Id": 1, "Name": "one"}])
        await db.conn.insert("Campaign", [{"Id": 1, "CampaignId": 2, "Title": "two"}])
        rows = await db.rows(SET)
        assert [row[:4] for row in rows] == [
            ("Customer", "table", "b, a, c", "b"),
            ("ByName", "index", "b, a, c", "b"),
            ("ByTitle", "index", "b, a, c", "b"),
        ]
        assert all("f1 group create NAME --zones b,a,c --leader-zone b" in row[5] for row in rows)
        number = await create_group(db.storage, "near", policy=Policy(("a", "b", "c"), "b"))
        await db.conn.execute("ALTER TABLE Customer RENAME TO Client")
        first, *_ = await db.rows("SHOW PLACEMENT FROM Client")
        assert (first[0], first[5]) == ("Client", "its ranges move")
        await db.conn.execute("CREATE INDEX ByIdDescending ON Campaign (CampaignId, Id)")
        everything = await db.rows("SHOW PLACEMENT")
        assert [row[0] for row in everything] == ["Client", "ByName", "ByTitle", "ByIdDescending", "Other"]
        assert everything[3][2:4] == ("b, a, c", "b"), "it was created later, and belongs where its table does"
        assert everything[-1][2:4] == (None, None) and everything[-1][5] is None
        assert {place.fit for place in await table_places(db.storage)} == {(number,)}
        await db.rows("ALTER TABLE Client DROP PLACEMENT")
        assert await table_places(db.storage) == []
        assert await db.rows("SELECT c.Name, d.Title FROM Client c JOIN Campaign d USING (Id)") == [("one", "two")]

    with_database(body, *DDL, spanservers=3, groups=2)


def test_a_table_with_another_primary_key_stays_where_it_was() -> None:
    async def body(db: Database) -> None:
        await with_all_servers(db)
        await db.conn.insert("Pair", [{"A": 1, "B": 2, "V": "one"}])
        await db.rows("ALTER TABLE Pair SET PLACEMENT (LEADER_ZONE = 'b')")
        for key in ("B, A", "A, B"):
            await db.ddl(f"ALTER TABLE Pair SET PRIMARY KEY ({key})")
            assert [(row[0], row[3]) for row in await db.rows("SHOW PLACEMENT")] == [("Pair", "b"), ("ByV", "b")]
        await db.rows("ALTER TABLE Pair DROP PLACEMENT")
        await db.ddl("ALTER TABLE Pair ADD COLUMN W INT64")
        assert [(row[0], row[3]) for row in await db.rows("SHOW PLACEMENT")] == [("Pair", None), ("ByV", None)]

    ddl = "CREATE TABLE Pair (A INT64 NOT NULL, B INT64 NOT NULL, V STRING, PRIMARY KEY (A, B))"
    with_database(body, ddl, "CREATE INDEX ByV ON Pair (V)", spanservers=3, groups=2)


def test_what_makes_no_sense_is_refused_with_what_to_do() -> None:
    async def body(db: Database) -> None:
        await with_all_servers(db)

        async def code(sql: str, text: str) -> Code:
            found, message = await refusal(db, sql)
            assert text in message
            return found

        zones = "(ZONES = 'a,b,c')"
        child = await code(f"ALTER TABLE Campaign SET PLACEMENT {zones}", "ALTER TABLE Customer SET PLACEMENT")
        assert child is Code.FAILED_PRECONDITION
        assert await code(f"ALTER TABLE Custommer SET PLACEMENT {zones}", "Custommer") is Code.NOT_FOUND
        for options, text in (
            ("(ZONES = 'a,b,z')", "no server is in zone z; there are a, b, c"),
            ("(ZONES = 'a,b')", "1, 3 or 5"),
            ("(ZONES = 'a,a,a', LEADER_ZONE = 'b')", "no voter would lie in the leader zone b"),
        ):
            assert await code(f"ALTER TABLE Customer SET PLACEMENT {options}", text) is Code.INVALID_ARGUMENT
        few = await code("ALTER TABLE Customer SET PLACEMENT (ZONES = 'a,a,b')", "2 voters are to be in zone a")
        assert few is Code.FAILED_PRECONDITION
        assert await table_places(db.storage) == []
        async with db.conn.transaction("optimistic") as tx:
            with pytest.raises(Exception, match="cannot run inside a transaction"):
                await tx.execute(SET)

    with_database(body, *DDL, spanservers=3, groups=2)


def test_ranges_go_to_the_group_that_meets_the_policy() -> None:
    async def body(db: Database) -> None:
        await with_all_servers(db)
        await db.conn.insert("Customer", [{"Id": i, "Name": f"n{i}"} for i in range(20)])
        number = await create_group(db.storage, "near", policy=Policy((), "c"))
        await db.rows("ALTER TABLE Customer SET PLACEMENT (LEADER_ZONE = 'c')")

        async def held() -> set[Any]:
            return {(row[4], row[5]) for row in await db.rows("SHOW PLACEMENT FROM Customer")}

        for _ in range(300):
            if await held() == {(str(number), None)}:
                break
            await asyncio.sleep(1)
        assert await held() == {(str(number), None)}
        assert len(await db.rows("SELECT Id FROM Customer WHERE Name >= 'n'")) == 20

    with_database(body, *DDL, spanservers=3, groups=2, balance=True)
