"""Any rows through any exchange: random tables and plans, batches of 1 to 5 rows, windows that hold one of them."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from f1common.config import SlaveSection
from f1server.plan.parts import DistributedPlan
from f1server.testing.embedded import EmbeddedDatabase
from tests.unit.dist.slaves import Output, Part, Spread, Workers, database, plan, running, scan

DDL = """
CREATE TABLE L (Id INT64 NOT NULL, A INT64, B STRING, C DOUBLE, PRIMARY KEY (Id));
CREATE TABLE R (Id INT64 NOT NULL, A INT64, B STRING, C DOUBLE, PRIMARY KEY (Id));
"""
NAN = float("nan")


def made(rng: random.Random) -> EmbeddedDatabase:
    """Two tables full of NULLs and equal values."""

    def rows() -> list[tuple[Any, ...]]:
        return [
            (
                i,
                rng.choice((None, *range(4))),
                rng.choice((None, "", "a", "ä" * rng.randrange(40))),
                rng.choice((None, 0.0, -0.0, NAN, 1.5)),
            )
            for i in range(rng.choice((0, 1, 7, 90)))
        ]

    return database(DDL, L=rows(), R=rows())


def shuffled_join(db: EmbeddedDatabase, rng: random.Random) -> tuple[DistributedPlan, str]:
    """A join repartitioned on both sides, aggregated over another exchange, beside rows that are kept and broadcast."""
    key = rng.choice(("A", "B", "C"))
    how = rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
    on = f'l."{key}" = r."{key}"'
    by = rng.choice(('l."A"', 'r."B"', 'l."C"'))
    join = f'SELECT {by} AS g, count(*) AS n, count(l."Id") AS m FROM l {how} r ON {on} GROUP BY 1'

    def side(number: int, name: str) -> Part:
        table = db.schema.table(name.upper())
        outputs = [Output(3, name, Spread.HASH, (f'"{key}"',))]
        if name == "r":
            outputs.append(Output(4, "all_r", Spread.BROADCAST))
        else:
            outputs.append(Output(4, "own_l", Spread.KEEP))
        return Part(number, f"SELECT * FROM {table.name}", Workers.ALL, (scan(table),), outputs=tuple(outputs))

    query = plan(
        db,
        side(1, "l"),
        side(2, "r"),
        Part(3, join, Workers.ALL, inputs={"l": 1, "r": 2}, outputs=(Output(5, "p", Spread.HASH, ("g",)),)),
        Part(
            4,
            "SELECT count(*) AS n FROM own_l CROSS JOIN all_r",
            Workers.ALL,
            inputs={"own_l": 1, "all_r": 2},
            outputs=(Output(6, "c", Spread.GATHER),),
        ),
        Part(
            5,
            "SELECT g, CAST(sum(n) AS BIGINT) AS n, CAST(sum(m) AS BIGINT) AS m FROM p GROUP BY 1",
            Workers.ALL,
            inputs={"p": 3},
            outputs=(Output(6, "x", Spread.GATHER),),
        ),
        Part(
            6,
            "SELECT CAST(g AS VARCHAR) AS g, n, m FROM x UNION ALL SELECT 'crossed', CAST(sum(n) AS BIGINT), 0 FROM c",
            Workers.SERVER,
            inputs={"x": 5, "c": 4},
        ),
    )
    central = (
        f"SELECT CAST(g AS VARCHAR) AS g, n, m FROM ({join}) "
        "UNION ALL SELECT 'crossed', (SELECT count(*) FROM l) * (SELECT count(*) FROM r), 0"
    )
    return query, central


def counted(table: Any) -> Counter[tuple[Any, ...]]:
    # A group of 0.0 and -0.0 shows either.
    return Counter(
        tuple("0.0" if v == "-0.0" else v for v in row)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )


async def central_answer(db: EmbeddedDatabase, sql: str) -> Counter[tuple[Any, ...]]:
    """What one DuckDB says."""
    connection = db.engine.duck.connection()
    try:
        found = [scan(db.schema.table(name), name.lower()).planned for name in ("L", "R")]
        await db.engine.feed(connection, db.schema, found, (), db.tables.source(db.schema))
        return counted(connection.table(sql))
    finally:
        connection.close()


@pytest.mark.parametrize("seed", range(12))
def test_random_exchanges(seed: int) -> None:
    rng = random.Random(seed)
    db = made(rng)
    query, central = shuffled_join(db, rng)
    section = SlaveSection(memory_mib=256, query_memory_mib=64, threads=1, batch_rows=rng.randint(1, 5))
    window_bytes = rng.choice((1, 500, 4 << 20))
    borders = sorted(rng.sample(range(90), 2))

    async def go() -> None:
        expected = await central_answer(db, central)
        async with running(db, rng.randint(1, 3), section=section, window_bytes=window_bytes) as pool:
            assert counted(await pool.table(query, borders=borders)) == expected

    asyncio.run(go())
