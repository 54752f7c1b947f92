"""Plans made by hand, run by slaves over real gRPC, against what one DuckDB says (F1 section 8.2)."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from f1common.config import SlaveSection
from f1common.errors import Code
from f1server.dist.coordinator import SpreadFailed
from f1server.dist.stats import SERVER
from f1server.plan.parts import DistributedPlan
from f1server.plan.scans import FieldWanted, Lookup
from f1server.testing.embedded import EmbeddedDatabase
from tests.unit.dist.slaves import (
    Output,
    Part,
    Spread,
    Workers,
    database,
    plan,
    running,
    scan,
)

DDL = """
CREATE TABLE Item (Id INT64 NOT NULL, Kind STRING, Price NUMERIC, Weight DOUBLE, PRIMARY KEY (Id));
CREATE TABLE Sort (Kind STRING NOT NULL, Label STRING, PRIMARY KEY (Kind));
"""
NAN = float("nan")
ITEMS: list[tuple[Any, ...]] = [
    (
        i,
        None if i % 7 == 0 else f"k{i % 5}",
        None if i % 11 == 0 else Decimal(i) / 4,
        (0.0, -0.0, NAN, -NAN, None, 1.5)[i % 6],
    )
    for i in range(200)
]
SORTS = [(f"k{i}", f"label {i}") for i in range(4)]
TINY = SlaveSection(memory_mib=256, query_memory_mib=64, threads=1, batch_rows=5)


def items() -> EmbeddedDatabase:
    return database(DDL, Item=ITEMS, Sort=SORTS)


def hash_to(consumer: int, *keys: str, relation: str = "x") -> tuple[Output, ...]:
    return (Output(consumer, relation, Spread.HASH, keys),)


def gather(consumer: int, relation: str = "x") -> tuple[Output, ...]:
    return (Output(consumer, relation, Spread.GATHER),)


def aggregate(db: EmbeddedDatabase, key: str) -> DistributedPlan:
    """Scan, exchange by hash, aggregate, gather."""
    return plan(
        db,
        Part(1, "SELECT * FROM Item", Workers.ALL, (scan(db.schema.table("Item")),), outputs=hash_to(2, f'"{key}"')),
        Part(
            2,
            f'SELECT "{key}" AS k, count(*) AS n, sum("Price") AS s FROM x GROUP BY 1',
            Workers.ALL,
            inputs={"x": 1},
            outputs=gather(3),
        ),
        Part(3, "SELECT k, n, s FROM x ORDER BY n, s", Workers.SERVER, inputs={"x": 2}),
    )


def central(db: EmbeddedDatabase, sql: str) -> list[tuple[Any, ...]]:
    """What one DuckDB says of the same rows."""
    connection = db.engine.duck.connection()
    try:
        for name in ("Item", "Sort"):
            table = db.schema.table(name)
            (stream,) = asyncio.run(db.tables.source(db.schema).scan([scan(table).planned.scan]))

            async def rows(stream: Any = stream) -> list[Any]:
                return [batch async for batch in stream]

            import pyarrow as pa

            found = pa.Table.from_batches(asyncio.run(rows())).rename_columns([c.name for c in table.visible])
            connection.register(name, found)
        return ordered(connection.table(sql))
    finally:
        connection.close()


def ordered(table: Any) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, NaN as a word."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted((tuple("NaN" if v != v else v for v in row) for row in rows), key=repr)


def answer(db: EmbeddedDatabase, query: DistributedPlan, slaves: int = 2, **more: Any) -> list[tuple[Any, ...]]:
    async def go() -> list[tuple[Any, ...]]:
        async with running(db, slaves, **more) as pool:
            return ordered(await pool.table(query, borders=(60, 150)))

    return asyncio.run(go())


@pytest.mark.parametrize("slaves", [1, 2, 3])
@pytest.mark.parametrize("key", ["Kind", "Price", "Weight"])
@pytest.mark.parametrize("section", [None, TINY])
def test_groups_meet_at_one_worker(key: str, slaves: int, section: SlaveSection | None) -> None:
    db = items()
    expected = central(
        db, f'SELECT "{key}" AS k, count(*) AS n, CAST(sum("Price") AS DECIMAL(38,9)) FROM Item GROUP BY 1'
    )
    assert answer(db, aggregate(db, key), slaves, section=section) == expected


@pytest.mark.parametrize("section", [None, TINY])
def test_broadcast_join(section: SlaveSection | None) -> None:
    db = items()
    query = plan(
        db,
        Part(
            1,
            "SELECT * FROM Sort",
            Workers.ONE,
            (scan(db.schema.table("Sort")),),
            outputs=(Output(2, "s", Spread.BROADCAST),),
        ),
        Part(
            2,
            'SELECT "Id", "Label" FROM Item LEFT JOIN s USING ("Kind")',
            Workers.ALL,
            (scan(db.schema.table("Item")),),
            {"s": 1},
            gather(3),
        ),
        Part(3, "SELECT * FROM x", Workers.SERVER, inputs={"x": 2}),
    )
    expected = central(db, 'SELECT "Id", "Label" FROM Item LEFT JOIN Sort USING ("Kind")')
    assert answer(db, query, 3, section=section) == expected


def test_a_part_with_several_outputs_runs_once() -> None:
    db = items()
    query = plan(
        db,
        Part(
            1,
            "SELECT * FROM Item",
            Workers.ALL,
            (scan(db.schema.table("Item")),),
            outputs=(
                Output(2, "a", Spread.HASH, ('"Kind"',)),
                Output(3, "b", Spread.HASH, ('"Id" % 10', '"Kind"')),
                Output(4, "c", Spread.KEEP),
            ),
        ),
        Part(
            2,
            'SELECT "Kind" AS k, count(*) AS n FROM a GROUP BY 1',
            Workers.ALL,
            inputs={"a": 1},
            outputs=gather(5, "a"),
        ),
        Part(
            3,
            'SELECT "Kind" AS k, "Id" % 10 AS t, count(*) AS n FROM b GROUP BY 1, 2',
            Workers.ALL,
            inputs={"b": 1},
            outputs=gather(5, "b"),
        ),
        Part(4, "SELECT count(*) AS n FROM c", Workers.ALL, inputs={"c": 1}, outputs=gather(5, "c")),
        Part(
            5,
            """SELECT 'a' AS which, k, n FROM a
               UNION ALL SELECT 'b', k, n FROM b
               UNION ALL SELECT 'c', NULL, sum(n) FROM c""",
            Workers.SERVER,
            inputs={"a": 2, "b": 3, "c": 4},
        ),
    )
    expected = central(
        db,
        """SELECT 'a' AS which, "Kind" AS k, CAST(count(*) AS DECIMAL(38,0)) AS n FROM Item GROUP BY 2
           UNION ALL SELECT 'b', "Kind", count(*) FROM Item GROUP BY "Kind", "Id" % 10
           UNION ALL SELECT 'c', NULL, count(*) FROM Item""",
    )
    before = len(db.tables.scans)
    assert answer(db, query) == expected
    assert len(db.tables.scans) - before == 2  # one for each worker


@pytest.mark.parametrize("slaves", [1, 3])
def test_nothing_has_a_type_too(slaves: int) -> None:
    db = database(DDL)
    assert answer(db, aggregate(db, "Price"), slaves) == []

    async def go() -> Any:
        async with running(db, slaves) as pool:
            result = (await pool.run(aggregate(db, "Price"))).result
            return [(c.name, c.type) for c in result.columns], await result.table()

    columns, table = asyncio.run(go())
    assert columns == [("k", "NUMERIC"), ("n", "INT64"), ("s", "NUMERIC")]
    assert table.num_rows == 0


def test_each_worker_looks_up_what_its_own_rows_ask_for() -> None:
    db = items()
    item, sort = db.schema.table("Item"), db.schema.table("Sort")
    lookup = Lookup("Item", (FieldWanted(item.column("Kind").id),))
    query = plan(
        db,
        Part(
            1,
            'SELECT "Id", "Label" FROM Item JOIN Sort USING ("Kind")',
            Workers.ALL,
            (scan(item), scan(sort, divided=False, lookup=lookup)),
            outputs=gather(2),
        ),
        Part(2, "SELECT * FROM x", Workers.SERVER, inputs={"x": 1}),
    )
    expected = central(db, 'SELECT "Id", "Label" FROM Item JOIN Sort USING ("Kind")')
    db.tables.scans.clear()
    assert answer(db, query, 3) == expected
    assert [s.spans for s in db.tables.scans if s.table is sort].count(()) == 0


def test_what_one_worker_runs_it_reads_as_a_whole() -> None:
    db = items()
    query = plan(
        db,
        Part(1, 'SELECT "Id" FROM Item', Workers.ONE, (scan(db.schema.table("Item")),), outputs=gather(2)),
        Part(2, "SELECT count(*) AS n FROM x", Workers.ONE, inputs={"x": 1}, outputs=gather(3)),
        Part(3, "SELECT * FROM x", Workers.SERVER, inputs={"x": 2}),
    )
    assert answer(db, query, 2) == [(200,)]


def test_parameters_travel() -> None:
    db = items()
    text = "k1" * 3000
    query = plan(
        db,
        Part(
            1,
            'SELECT $p1 AS p, $p2 AS q, count(*) AS n FROM Item WHERE starts_with($p1, "Kind")',
            Workers.ALL,
            (scan(db.schema.table("Item")),),
            outputs=gather(2),
            bound={"p1": text, "p2": b"\x00\xff"},
        ),
        Part(2, "SELECT any_value(p), any_value(q), sum(n) FROM x", Workers.SERVER, inputs={"x": 1}),
    )
    ((p, q, n),) = answer(db, query)
    assert (p, q) == (text, b"\x00\xff")
    assert n == sum(1 for row in ITEMS if row[1] == "k1")


def test_figures_of_a_run() -> None:
    db = items()

    async def go() -> None:
        async with running(db) as pool:
            done = await pool.run(aggregate(db, "Kind"), borders=(60,))
            await done.result.table()
            stats = done.stats
            assert (stats.attempt, stats.workers) == (1, ("slave-1", "slave-2"))
            by_place = {(p.part, p.worker): p for p in stats.parts}
            assert sorted(by_place) == [(1, "slave-1"), (1, "slave-2"), (2, "slave-1"), (2, "slave-2"), (3, SERVER)]
            assert [by_place[1, w].reads[0].rows for w in stats.workers] == [60, 140]
            assert [by_place[1, w].rows_out for w in stats.workers] == [60, 140]
            for name, other in (("slave-1", "slave-2"), ("slave-2", "slave-1")):
                sent = {s.destination: s for s in by_place[1, name].sent}
                assert sent[other].bytes > 0
                assert sum(s.rows for s in sent.values()) == by_place[1, name].rows_out
                read = by_place[2, name].reads[0]
                assert not read.scan
                assert read.rows == sum(
                    s.rows for p in stats.parts for s in p.sent if (p.part, s.destination) == (1, name)
                )
            assert by_place[3, SERVER].rows_out == 6
            assert by_place[3, SERVER].reads[0].rows == 6

    asyncio.run(go())


# ---------------------------------------------------------------- errors


def dividing(db: EmbeddedDatabase, number: int = 0) -> DistributedPlan:
    sql = f'SELECT "Id" // ("Id" - {number}) AS y FROM Item'
    return plan(
        db,
        Part(1, sql, Workers.ALL, (scan(db.schema.table("Item")),), outputs=gather(2)),
        Part(2, "SELECT * FROM x", Workers.SERVER, inputs={"x": 1}),
    )


def test_an_error_of_evaluation_is_not_tried_again() -> None:
    db = items()
    query = plan(
        db,
        Part(
            1,
            """SELECT CAST("Kind" AS BIGINT) AS y FROM Item""",
            Workers.ALL,
            (scan(db.schema.table("Item")),),
            outputs=gather(2),
        ),
        Part(2, "SELECT * FROM x", Workers.SERVER, inputs={"x": 1}),
    )

    async def go() -> None:
        async with running(db) as pool:
            with pytest.raises(SpreadFailed) as caught:
                await pool.run(query, borders=(100,))
            assert caught.value.code is Code.INVALID_ARGUMENT
            assert not pool.suspected
            assert await pool.idle() < 1.0
            # Nothing is left that hinders the next one.
            assert (await pool.table(aggregate(db, "Kind"))).num_rows == 6

    asyncio.run(go())


def test_an_error_of_the_root_part_is_told_before_the_result() -> None:
    db = items()
    query = plan(
        db,
        Part(1, 'SELECT "Kind" FROM Item', Workers.ALL, (scan(db.schema.table("Item")),), outputs=gather(2)),
        Part(2, 'SELECT CAST("Kind" AS BIGINT) AS k FROM x ORDER BY 1', Workers.SERVER, inputs={"x": 1}),
    )

    async def go() -> None:
        async with running(db) as pool:
            with pytest.raises(SpreadFailed) as caught:
                await pool.run(query)
            assert caught.value.code is Code.INVALID_ARGUMENT

    asyncio.run(go())


def test_without_slaves() -> None:
    db = items()

    async def go() -> None:
        async with running(db, 0) as pool:
            with pytest.raises(SpreadFailed) as caught:
                await pool.run(aggregate(db, "Kind"))
            assert caught.value.code is Code.UNAVAILABLE

    asyncio.run(go())


def test_a_dead_slave_costs_an_attempt() -> None:
    db = items()

    async def go() -> None:
        async with running(db, 3) as pool:
            await pool.kill("slave-2")
            done = await pool.run(aggregate(db, "Kind"), borders=(60, 150))
            assert (await done.result.table()).num_rows == 6
            assert done.stats.workers == ("slave-1", "slave-3")
            assert pool.suspected == ["slave-2"]
            await pool.kill("slave-1")
            await pool.kill("slave-3")
            with pytest.raises(SpreadFailed) as caught:
                await pool.run(aggregate(db, "Kind"))
            assert caught.value.code is Code.UNAVAILABLE

    asyncio.run(go())


def test_a_slave_that_ends_soon_is_left_out_and_not_suspected() -> None:
    db = items()

    async def go() -> None:
        async with running(db, 2) as pool:
            await pool.services["slave-1"].drain()
            done = await pool.run(aggregate(db, "Kind"))
            assert done.stats.workers == ("slave-2",)
            assert done.stats.attempt == 2
            assert not pool.suspected
            await done.result.table()

    asyncio.run(go())


def test_no_more_queries_than_there_is_memory_for() -> None:
    db = items()

    async def go() -> None:
        section = SlaveSection(memory_mib=128, query_memory_mib=64, threads=1)
        async with running(db, 2, section=section) as pool:
            queries = (pool.table(aggregate(db, "Kind"), borders=(60,)) for _ in range(8))
            done = await asyncio.gather(*queries, return_exceptions=True)
            # Who does not get its turn in time is told so, and runs centrally.
            refused = [d for d in done if isinstance(d, SpreadFailed) and d.code is Code.OVERLOADED]
            tables = [d for d in done if not isinstance(d, BaseException)]
            assert len(refused) + len(tables) == 8
            assert {t.num_rows for t in tables} == {6}
            assert max(len(s._ducks._all) for s in pool.services.values()) <= 2

    asyncio.run(go())
