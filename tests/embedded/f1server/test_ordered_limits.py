"""ORDER BY the primary key with LIMIT reads the first rows only, and the right ones; wide ranges go in bulk."""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import f1
from f1common.errors import Code, F1Error
from f1server.dist.queries import DistributedQueries
from f1server.dist.statistics import StatisticsCache
from f1server.exec import engine
from f1server.plan.scans import Direct
from f1server.testing.database import Database, with_database
from f1server.txn import source

DDL = (
    "CREATE TABLE Root (A INT64 NOT NULL, S STRING, V INT64, PRIMARY KEY (A))",
    "CREATE TABLE Kid (A INT64 NOT NULL, B STRING NOT NULL, N NUMERIC NOT NULL, V INT64, PRIMARY KEY (A, B, N))"
    " INTERLEAVE IN PARENT Root",
    "CREATE TABLE Num (N NUMERIC NOT NULL, V INT64, PRIMARY KEY (N))",
)
Numbers = tuple[int, str, int, int]


async def fill(db: Database, rng: random.Random) -> list[Numbers]:
    """Insert roots and kids; return the kids as (A, B, N, V)."""
    kids = sorted({(a, rng.choice("abcde"), rng.randrange(4), 0) for a in range(8) for _ in range(9)})
    kids = [(a, b, n, rng.randrange(5)) for a, b, n, _ in kids]
    await db.conn.insert("Root", [{"A": a, "S": f"s{a % 3}", "V": a % 4} for a in range(8)])
    await db.conn.insert("Kid", [{"A": a, "B": b, "N": n, "V": v} for a, b, n, v in kids])
    return kids


SHAPES: dict[str, tuple[str, Callable[[Numbers], bool], Callable[[Numbers], Any], bool]] = {
    "whole table": ("", lambda k: True, lambda k: k[:3], True),
    "open range": ("A >= 3", lambda k: k[0] >= 3, lambda k: k[:3], True),
    "two bounds": ("A > 1 AND A <= 6", lambda k: 1 < k[0] <= 6, lambda k: k[:3], True),
    "between": ("A BETWEEN 2 AND 5", lambda k: 2 <= k[0] <= 5, lambda k: k[:3], True),
    "fixed first part": ("A = 4 AND B >= 'b'", lambda k: k[0] == 4 and k[1] >= "b", lambda k: k[:3], True),
    "bound on a number with a scale": (
        "A = 4 AND B = 'b' AND N > 0",
        lambda k: k[:2] == (4, "b") and k[2] > 0,
        lambda k: k[:3],
        False,
    ),
    "another condition": ("A >= 3 AND V = 1", lambda k: k[0] >= 3 and k[3] == 1, lambda k: k[:3], False),
    "a condition that is no comparison": (
        "A >= 3 AND V % 2 = 1",
        lambda k: k[0] >= 3 and k[3] % 2 == 1,
        lambda k: k[:3],
        False,
    ),
    "not the leading part": ("A >= 3 AND B > 'b'", lambda k: k[0] >= 3 and k[1] > "b", lambda k: k[:3], False),
    "several keys": ("A IN (6, 2, 4)", lambda k: k[0] in (2, 4, 6), lambda k: k[:3], False),
}


def ordered(where: str, way: str) -> str:
    return f"{'WHERE ' + where if where else ''} ORDER BY A{way}, B{way}, N{way}"


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic", "snapshot", "writing"])
def test_the_first_rows_in_key_order(kind: str) -> None:
    async def body(db: Database) -> None:
        rng = random.Random(5)
        kids = await fill(db, rng)
        if kind == "snapshot":
            await asyncio.sleep(2)  # simulated: until the global safe time has passed the rows
        async with db.conn.transaction("optimistic" if kind == "writing" else kind) as tx:
            if kind == "writing":
                gone = rng.sample(kids, 8)
                await tx.delete("Kid", [{"A": a, "B": b, "N": n} for a, b, n, _ in gone])
                new = (4, "aa", 0, 3)
                await tx.insert("Kid", [dict(zip("ABNV", new, strict=True))])
                kids = sorted({*kids, new} - set(gone))
            for where, holds, by, _ in SHAPES.values():
                for way in ("", " DESC"):
                    wanted = sorted(filter(holds, kids), key=by, reverse=bool(way))
                    for limit, offset in ((0, 0), (1, 0), (5, 0), (5, 3), (1000, 0)):
                        sql = f"SELECT A, B, N, V FROM Kid {ordered(where, way)} LIMIT {limit} OFFSET {offset}"
                        found = await (await tx.execute(sql)).fetchall()
                        assert found == wanted[offset:][:limit], (where, way, limit, offset)

    with_database(body, *DDL)


@pytest.mark.parametrize(("most", "as_cells"), [(3, 32), (256, 32), (256, 2), (256, 256)])
@pytest.mark.parametrize("kind", ["optimistic", "pessimistic", "snapshot", "writing"])
def test_few_rows_in_a_range_of_keys_are_the_answer_as_they_are(
    kind: str, most: int, as_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DuckDB if they are few; the same rows in the same order as with it."""
    monkeypatch.setattr(Direct, "MOST_ROWS", most)
    monkeypatch.setattr(engine, "FEW_ROWS", as_cells)
    picked: list[bool] = []
    run_few = engine.Engine.run_few

    async def noted(self: engine.Engine, query: Any, source: Any) -> Any:
        found = await run_few(self, query, source)
        if query.direct is not None:
            picked.append(found is not None)
        return found

    monkeypatch.setattr(engine.Engine, "run_few", noted)

    async def body(db: Database) -> None:
        rng = random.Random(9)
        kids = await fill(db, rng)
        if kind == "snapshot":
            await asyncio.sleep(2)  # simulated: until the global safe time has passed the rows
        async with db.conn.transaction("optimistic" if kind == "writing" else kind) as tx:
            if kind == "writing":
                await tx.delete("Kid", [dict(zip("ABN", kids[0][:3], strict=True))])
                kids = kids[1:]
            for name, (where, holds, _, _) in SHAPES.items():
                wanted = sorted(filter(holds, kids), key=lambda k: k[:3])
                rows = f"SELECT N, A, V AS A2, B FROM Kid {'WHERE ' + where if where else ''}"
                shown = [(n, a, v, b) for a, b, n, v in wanted]
                assert sorted(await (await tx.execute(rows)).fetchall()) == sorted(shown), name
                assert await (await tx.execute(f"{rows} ORDER BY A, B, N")).fetchall() == shown, name
                assert await (await tx.execute(f"{rows} ORDER BY A DESC, B DESC, N DESC")).fetchall() == shown[::-1]
                assert await (await tx.execute(f"{rows} ORDER BY A, B, N LIMIT 3")).fetchall() == shown[:3], name
                by_b = await (await tx.execute(f"{rows} ORDER BY B DESC, A, N")).fetchall()
                assert [row[3] for row in by_b] == sorted((row[3] for row in shown), reverse=True), name
        assert set(picked) == (set() if kind == "writing" else {False, True} if most == 3 else {True})

    with_database(body, *DDL)


def test_few_rows_are_found_before_anybody_counts_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting reads all of the keys, and whoever comes first waits for it."""
    monkeypatch.setattr(Direct, "MOST_ROWS", 20)
    counted: list[str] = []
    fresh = StatisticsCache.fresh

    async def noted(self: StatisticsCache, schema: Any, tables: Any) -> Any:
        counted.extend(table.name for table in tables)
        return await fresh(self, schema, tables)

    monkeypatch.setattr(StatisticsCache, "fresh", noted)
    # Simulated servers with slaves have all queries distributed.
    hints = {True: ("force", True), False: ("auto", False)}
    monkeypatch.setattr(DistributedQueries, "_mode_of", lambda self, text: hints["DISTRIBUTED" in text])

    async def body(db: Database) -> None:
        kids = await fill(db, random.Random(9))
        few = await db.rows("SELECT A, B, N FROM Kid WHERE A >= 3 AND A < 5 ORDER BY A, B, N")
        assert few == sorted(k[:3] for k in kids if 3 <= k[0] < 5)
        assert counted == []
        many = await db.rows("SELECT A, B, N FROM Kid WHERE A >= 2 ORDER BY A, B, N")
        assert many == sorted(k[:3] for k in kids if k[0] >= 2)
        assert counted == ["Kid"]
        hinted = "SELECT /*+ DISTRIBUTED */ A, B, N FROM Kid WHERE A >= 3 AND A < 5"
        assert sorted(await db.rows(hinted)) == few
        assert counted == ["Kid", "Kid"]

    with_database(body, *DDL, slaves=1)


def test_only_as_many_rows_are_read_as_the_limit_asks_for() -> None:
    async def body(db: Database) -> None:
        await fill(db, random.Random(5))
        for name, (where, _, _, pushed) in SHAPES.items():
            for way, said in (("", "primary key"), (" DESC", "primary key, reversed")):
                sql = f"SELECT V FROM Kid {ordered(where, way)} LIMIT 2 OFFSET 1"
                ((text,),) = await db.rows(f"EXPLAIN (FORMAT JSON) {sql}")
                plan = json.dumps(json.loads(text))
                assert (f'"order": "{said}"' in plan and '"limit": 3' in plan) is pushed, (name, plan)
        for sql in (
            "SELECT DISTINCT A FROM Kid ORDER BY A LIMIT 2",
            "SELECT A, count(*) FROM Kid GROUP BY A ORDER BY A LIMIT 2",
            "SELECT -A AS A FROM Root ORDER BY A LIMIT 2",
            "SELECT A FROM Root ORDER BY A + 1 LIMIT 2",
            "SELECT A FROM Root ORDER BY A, S DESC LIMIT 2",
            "SELECT A FROM Kid ORDER BY B LIMIT 2",
            "SELECT A, row_number() OVER (ORDER BY V) FROM Root ORDER BY A LIMIT 2",
            "SELECT A FROM Root ORDER BY A LIMIT 100000",
        ):
            ((text,),) = await db.rows(f"EXPLAIN (FORMAT JSON) {sql}")
            assert '"order"' not in text.replace('"order_by"', ""), (sql, text)
        assert await db.rows("SELECT -A AS A FROM Root ORDER BY A LIMIT 2") == [(-7,), (-6,)]
        assert await db.rows("SELECT A AS V, V AS A FROM Root ORDER BY V DESC LIMIT 2") == [(7, 3), (6, 2)]

    with_database(body, *DDL)


def test_of_a_comparison_of_tuples_every_part_counts() -> None:
    """What is noted of it for access paths may be a part of what it says."""

    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": a, "S": "s", "V": 2 * a} for a in range(4)])
        assert await db.rows("SELECT A FROM Root WHERE (A, V) = (1, V + 1)") == []
        assert await db.rows("SELECT * FROM Root WHERE (A, V) = (1, A + 1)") == [(1, "s", 2)]
        assert await db.rows("SELECT * FROM Root WHERE (A, V) = (2, A + 1)") == []
        assert await db.rows("SELECT A FROM Root WHERE (A, V) = (2, A + 1) ORDER BY A LIMIT 1") == []

    with_database(body, *DDL)


def test_a_key_part_that_is_said_to_be_two_things_has_no_rows() -> None:
    async def body(db: Database) -> None:
        await fill(db, random.Random(5))
        await db.conn.insert("Root", [{"A": a, "S": "s", "V": a} for a in (101, 102)])
        before = await db.rows("SELECT * FROM Kid ORDER BY A, B, N")
        for where, params in (
            ("A = 101 AND A = 102", ()),
            ("A = ? AND A = ?", (101, 102)),
            ("A = 1 AND A = 2 AND B > 'a'", ()),
            ("A = 1 AND B = 'a' AND B = 'b'", ()),
            ("A = 1 AND B > 'b' AND B < 'b'", ()),
        ):
            table = "Root" if "101" in where or "?" in where else "Kid"
            for text in (
                f"SELECT * FROM {table} WHERE {where}",
                f"SELECT V FROM {table} WHERE {where} ORDER BY A LIMIT 3",
                f"SELECT V FROM {table} WHERE {where}",
            ):
                assert [await db.rows(text, *params) for _ in range(2)] == [[], []], text
            for text in (f"UPDATE {table} SET V = 0 WHERE {where}", f"DELETE FROM {table} WHERE {where}"):
                assert [(await db.conn.execute(text, params)).rowcount for _ in range(2)] == [0, 0], text
        assert await db.rows("SELECT * FROM Kid ORDER BY A, B, N") == before
        assert await db.rows("SELECT V FROM Root WHERE A > 100") == [(101,), (102,)]

    with_database(body, *DDL)


@pytest.mark.parametrize("order", ["", " ORDER BY A", " ORDER BY A DESC"])
def test_a_limit_that_is_no_number_of_rows_is_not_taken_for_none(order: str) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": a, "S": "s", "V": a} for a in range(5)])

        async def count(text: str, *params: object) -> int:
            return len(await db.rows(f"SELECT A FROM Root{text}{order} LIMIT {'?' if params else tail}", *params))

        for where in ("", " WHERE A >= 0"):
            for tail, rows in (("50%", 2), ("0", 0), ("1.5", 2), ("NULL", 5), ("2", 2)):
                assert await count(where) == rows, (where, tail)
            for value, rows in ((0, 0), (True, 1), (None, 5), ("2", 2), (3, 3)):
                assert await count(where, value) == rows, (where, value)
            with pytest.raises(F1Error, match="cannot be negative"):
                await count(where, -1)

    with_database(body, *DDL)


@pytest.mark.parametrize("few", [1, 3, 1000])
def test_a_wide_range_of_keys_goes_in_bulk_and_gives_the_same(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_FEW_ROWS", few)

    async def body(db: Database) -> None:
        kids = await fill(db, random.Random(7))
        for low in range(9):
            wanted = [k for k in kids if k[0] >= low]
            sql = f"SELECT A, B, N, V FROM Kid WHERE A >= {low} ORDER BY A, B, N"
            assert await db.rows(sql) == wanted
            async with db.conn.transaction() as tx:
                assert await (await tx.execute(sql)).fetchall() == wanted
                await tx.update("Root", {"A": 0, "V": low})
                if wanted:
                    a, b, n, v = wanted[0]
                    await tx.update("Kid", {"A": a, "B": b, "N": n, "V": v})
                assert await (await tx.execute(sql)).fetchall() == wanted

    with_database(body, *DDL)


def test_a_row_that_a_wide_range_looked_at_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_FEW_ROWS", 3)

    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": a, "S": "s", "V": 0} for a in range(9)])
        with pytest.raises(f1.Error) as lost:
            async with db.conn.transaction() as tx:
                assert await (await tx.execute("SELECT sum(V) FROM Root WHERE A >= 1")).fetchall() == [(0,)]
                await tx.update("Root", {"A": 0, "V": 1})
                await db.conn.update("Root", {"A": 8, "V": 1})
        assert lost.value.code is Code.ABORTED

    with_database(body, *DDL)


def test_conditions_on_the_change_history_are_tested_row_by_row() -> None:
    """Its rows are made from whole roots: a scan gives more of them than the spans of its key say, in no order."""

    async def body(db: Database) -> None:
        for v in range(4):
            await db.conn.execute(f"UPSERT INTO Root (A, S, V) VALUES (1, 's', {v})")
        history = "SELECT commit_ts, kind, A FROM ChangeHistory_Root"
        times = [row[0] for row in await db.rows(f"{history} ORDER BY A, commit_ts")]
        assert len(times) == 4 and times == sorted(times)
        for way, wanted in (("", times[2:]), (" DESC", times[:1:-1])):
            sql = f"{history} WHERE A = 1 AND commit_ts >= ? ORDER BY A{way}, commit_ts{way}"
            assert [row[0] for row in await db.rows(sql, times[2])] == wanted
        assert [row[0] for row in await db.rows(f"{history} WHERE A = 1 AND commit_ts = ?", times[1])] == [times[1]]
        assert [row[0] for row in await db.rows(f"{history} WHERE A = 1 ORDER BY A, commit_ts LIMIT 2")] == times[:2]

    with_database(body, *DDL)
