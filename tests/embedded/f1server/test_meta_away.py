"""The meta group is away: servers keep their schema leases by copies in other groups, and go on committing there."""

import asyncio

import pytest

import f1
from f1.checking import check_database
from f1.planning import plan_change
from f1server.catalog import store
from f1server.catalog.places import PLACES, SYSTEM_TABLE, schema_key
from f1server.rows.keys import table_span
from f1server.testing.database import Database, with_database

LEASE_MS = 1_000
WIDER = "CREATE TABLE R (A INT64, V INT64, W INT64 DEFAULT 7, PRIMARY KEY (A))"
APART = {0: (0,), 1: (1,), 2: (2,)}
"""Each group on a server of its own: one that is cut off takes its group away."""


async def count_up(conn: f1.aio.Connection, key: int, ended: asyncio.Event, acknowledged: list[int]) -> None:
    while not ended.is_set():
        await conn.execute("UPDATE R SET V = V + 1 WHERE A = ?", (key,))
        acknowledged[key] += 1
        await asyncio.sleep(0.05)


def commit_without_the_meta_group(seconds: float, *, alone: bool = False) -> None:
    """Cut groups off, write through both f1servers for some time, heal, and change the schema.

    ``alone``: only the group of the table is left, and the copy that is in it.
    """

    async def body(db: Database) -> None:
        ranges = await db.storage.range_map()
        copies = [ranges.group_of(schema_key("default", place)) for place in PLACES]
        assert sorted(copies) == [0, 1, 2] and copies[0] == 0
        schema = (await db.process(0).leases.current("default")).schema
        home = ranges.group_of(table_span(schema, schema.table("R"))[0])
        await db.conn.insert("R", [{"A": 0, "V": 0}, {"A": 1, "V": 0}])
        acknowledged, ended = [0, 0], asyncio.Event()
        tasks = [asyncio.create_task(count_up(await db.at(n), n, ended, acknowledged)) for n in (0, 1)]
        await asyncio.sleep(1)
        for group in {0, *((1, 2) if alone else ())} - {home}:
            db.world.partition([db.cluster.names[group]])
        begun = list(acknowledged)
        await asyncio.sleep(seconds)
        assert all(now - before > 3 * seconds for before, now in zip(begun, acknowledged, strict=True)), acknowledged
        db.world.heal_links()
        ended.set()
        await asyncio.gather(*tasks)
        plan = await plan_change(db.conn.session, {"schema.sql": WIDER}, data=False)
        servers = [server for server, _, _ in plan.holders]
        assert servers and len(set(servers)) == len(servers), servers
        await db.conn.execute("ALTER TABLE R ADD COLUMN W INT64 DEFAULT 7")
        assert await db.rows("SELECT A, V, W FROM R ORDER BY A") == [(n, acknowledged[n], 7) for n in (0, 1)]
        result = await check_database(db.conn.session, [], repair=False, examples=5)
        assert not result.findings, result.findings

    table = "CREATE TABLE R (A INT64, V INT64, PRIMARY KEY (A))"
    with_database(body, table, spanservers=3, voters=APART, lease_ms=LEASE_MS)


@pytest.mark.parametrize("alone", [False, True])
def test_commits_go_on_while_the_meta_group_is_away_for_many_leases(alone: bool) -> None:
    commit_without_the_meta_group(8 * LEASE_MS / 1000, alone=alone)


def test_without_copies_they_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PLACES", (SYSTEM_TABLE,))
    with pytest.raises(AssertionError):
        commit_without_the_meta_group(8 * LEASE_MS / 1000)
