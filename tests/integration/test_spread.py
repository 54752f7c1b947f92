"""The query of F1 section 8.2 over slaves, as users meet it: SQL in, EXPLAIN ANALYZE out; with the master dead too."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import f1
from f1server.plan.explain import as_text
from tests.integration.database import Database, query, running

CLICKS_BY_CAMPAIGN = """
SELECT agcr.CampaignId, click.Region, cr.Language, SUM(click.Clicks) AS Clicks
FROM AdClick click
  JOIN AdGroupCreative agcr USING (AdGroupId, CreativeId)
  JOIN Creative cr USING (CustomerId, CreativeId)
WHERE click.Date = '2013-03-23'
GROUP BY agcr.CampaignId, click.Region, cr.Language
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A cluster with two slaves and the AdWords sample."""
    folder = tmp_path_factory.mktemp("spread")
    with running(folder, "--slaves", "2") as found:
        found.command("sample", "adwords", "--out", str(folder / "data"), "--clicks", "20000")
        files = sorted(str(p) for p in (folder / "data").iterdir() if p.suffix in (".sql", ".proto"))
        found.command("schema", "apply", "--yes", *files)
        for table in ("Customer", "Campaign", "AdGroup", "Creative", "AdGroupCreative", "AdClick"):
            found.command("load", table, str(folder / "data" / f"{table}.parquet"))
        yield found


@pytest.fixture
def conn(database: Database) -> Iterator[f1.Connection]:
    with database.connect() as connection:
        yield connection


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def analyzed(conn: f1.Connection, sql: str) -> dict[str, Any]:
    found = query(conn, f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}").column(0)[0].as_py()
    plan: dict[str, Any] = json.loads(found)
    return plan


def assert_repartitioned_twice(plan: dict[str, Any], final_rows: int) -> None:
    """Rows meet twice by hash, over the network both ways, and the f1server sees the final ones only."""
    assert plan["execution"] == "distributed", plan["reason"]
    (root,) = [part for part in plan["parts"] if part["where"] == "f1server"]
    assert root["operators"][0]["operator"] == "receive"
    assert [read["rows"] for one in root["measured"] for read in one["read"]] == [final_rows]
    text = "\n".join(as_text(plan))
    dealt = [
        p["id"]
        for p in plan["parts"]
        if any(o.get("spread") == "hash" for o in p["operators"] if o["operator"] == "send")
    ]
    consumers = {
        o["part"]
        for p in plan["parts"]
        for o in p["operators"]
        if o["operator"] == "send" and o.get("spread") == "hash"
    }
    assert len(consumers) >= 2, text
    for part in plan["parts"]:
        if part["id"] in dealt:
            ways = {(one["worker"], sent["to"]) for one in part["measured"] for sent in one["sent"] if sent["bytes"]}
            assert {("slave-1", "slave-2"), ("slave-2", "slave-1")} <= ways, text


def test_the_papers_query_is_repartitioned_twice(database: Database, conn: f1.Connection) -> None:
    central = rows(query(conn, f"/*+ CENTRAL */ {CLICKS_BY_CAMPAIGN}"))
    assert rows(query(conn, CLICKS_BY_CAMPAIGN)) == central
    assert_repartitioned_twice(analyzed(conn, CLICKS_BY_CAMPAIGN), len(central))
    database.command("cluster", "kill", "master", "--dir", str(database.directory))
    try:
        assert rows(query(conn, CLICKS_BY_CAMPAIGN)) == central
        assert_repartitioned_twice(analyzed(conn, CLICKS_BY_CAMPAIGN), len(central))
    finally:
        database.command("cluster", "start", "master", "--dir", str(database.directory))


def test_a_query_survives_a_slave_that_is_killed_and_one_that_hangs(database: Database, conn: f1.Connection) -> None:
    where = ("--dir", str(database.directory))
    central = rows(query(conn, f"/*+ CENTRAL */ {CLICKS_BY_CAMPAIGN}"))
    for command, undo in (("kill", "start"), ("pause", "resume")):
        database.command("cluster", command, "slave-2", *where)
        try:
            assert rows(query(conn, CLICKS_BY_CAMPAIGN)) == central
        finally:
            database.command("cluster", undo, "slave-2", *where)


def test_short_queries_and_transactions_stay_on_the_f1server(conn: f1.Connection) -> None:
    for sql, reason in (
        ("SELECT Name FROM Customer WHERE CustomerId = 1", "only keys"),
        ("SELECT count(*) FROM Campaign WHERE CustomerId = 1", "every table is read by key"),
        ("SELECT count(*) FROM Customer", "rows are examined: fewer"),
        ("SELECT 1", "no table is read"),
    ):
        plan = json.loads(query(conn, f"EXPLAIN (FORMAT JSON) {sql}").column(0)[0].as_py())
        assert plan["execution"] == "central"
        assert reason in plan["reason"], plan["reason"]
    with conn.transaction(kind="pessimistic") as tx:
        (text, *_) = [row[0] for row in tx.execute(f"EXPLAIN {CLICKS_BY_CAMPAIGN}").fetchall()]
        assert text == "central: its transaction locks what it reads"


BUDGETS = """
SELECT /*+ DISTRIBUTED */ c.Name, sum(k.Budget) FROM Customer c JOIN Campaign k USING (CustomerId) GROUP BY 1
"""
RAISE = "UPDATE Campaign SET Budget = Budget + 1 WHERE CustomerId = ? AND CampaignId = ?"


def test_optimistic_transactions_note_what_slaves_look_at(database: Database, conn: f1.Connection) -> None:
    """Also through the implicit transaction of a connection without autocommit."""
    ((mine, its), (theirs, other)) = conn.execute(
        "SELECT CustomerId, min(CampaignId) FROM Campaign GROUP BY CustomerId ORDER BY 1 LIMIT 2"
    ).fetchall()
    with f1.connect(database.hosts, timeout_s=60) as session:
        for changed in (False, True):
            cursor = session.cursor()
            ((text,),) = cursor.execute(f"EXPLAIN (FORMAT JSON) {BUDGETS}").fetchall()
            assert json.loads(text)["execution"] == "distributed"
            assert cursor.execute(BUDGETS).fetchall()
            cursor.execute(RAISE, (mine, its))
            if changed:
                conn.execute(RAISE, (theirs, other))
                with pytest.raises(f1.Error, match="was changed after the transaction read it"):
                    session.commit()
                session.rollback()
            else:
                session.commit()


def test_snapshots_and_the_past_are_spread(conn: f1.Connection) -> None:
    before = query(conn, "SELECT /*+ DISTRIBUTED */ count(*) AS n, sum(Clicks) AS s FROM AdClick").to_pylist()
    with conn.transaction(kind="snapshot") as tx:
        found = tx.execute("SELECT /*+ DISTRIBUTED */ count(*), sum(Clicks) FROM AdClick").fetchall()
    assert found == [tuple(before[0].values())]
    plan = analyzed(conn, "SELECT /*+ DISTRIBUTED */ count(*) FROM AdClick AS OF now() - INTERVAL '1' SECOND")
    assert plan["execution"] == "distributed"


def test_errors_are_those_of_a_central_run(database: Database, conn: f1.Connection) -> None:
    before = len(database.fallbacks())
    for sql in (
        "SELECT {} sum(1 / (Clicks - Clicks)) FROM AdClick",
        "SELECT {} CAST(Region AS INT64) AS r, count(*) FROM AdClick GROUP BY 1",
    ):
        said = []
        for hint in ("/*+ CENTRAL */", "/*+ DISTRIBUTED */"):
            with pytest.raises(f1.Error) as caught:
                query(conn, sql.format(hint))
            said.append((caught.value.code, str(caught.value)))
        assert said[0] == said[1]
    assert len(database.fallbacks()) == before + 2, "the f1server ran both itself, and said so"


def test_analyze_does_not_write(conn: f1.Connection) -> None:
    with pytest.raises(f1.Error, match="would write"):
        query(conn, "EXPLAIN ANALYZE DELETE FROM AdClick")
    assert query(conn, "SELECT count(*) AS n FROM AdClick").to_pylist() == [{"n": 20_000}]
