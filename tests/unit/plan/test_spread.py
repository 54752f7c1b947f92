"""Queries that a distributed plan once answered wrongly, or might: each is found centrally and spread, in every way."""

from functools import cache

import pytest

from f1server.catalog.schema import Table
from f1server.exec.duck import Duck, DuckConfig
from f1server.plan.spread.joins import JoinOptions
from f1server.plan.statistics import TableStats
from f1server.testing.embedded import Connection, EmbeddedDatabase
from tests.amounts import some

JOINS = {
    "small": JoinOptions(broadcast_rows=3),
    "broadcast": JoinOptions(force="broadcast"),
    "repartition": JoinOptions(broadcast_rows=0, force="repartition"),
    "lookup": JoinOptions(broadcast_rows=3),
}


class OneLarge:
    """Taken for so large that what is joined with A is looked up, where that can be."""

    def table(self, table: Table) -> TableStats | None:
        return TableStats(1 if table.name == "A" else 5000, 100.0)


TABLES = """
CREATE TABLE A (Id INT64, n INT64, s STRING, d DOUBLE, PRIMARY KEY (Id));
CREATE TABLE B (Id INT64, n INT64, s STRING, d DOUBLE, PRIMARY KEY (Id));
CREATE TABLE C (Id INT64, Part INT64, n INT64, PRIMARY KEY (Id, Part)) INTERLEAVE IN PARENT A;
"""

ROWS = """
INSERT INTO A VALUES (1, 1, 'x', 1), (2, 2, NULL, 0.5), (3, NULL, 'x', NULL), (4, 2, 'y', -0.0), (5, 7, 'y', 'NaN'),
  (9007199254740992, 0, 'z', 2), (9007199254740993, 0, 'z', 3);
INSERT INTO B VALUES (1, 2, 'x', 1), (2, NULL, 'y', 9007199254740992), (3, 3, NULL, 0), (4, 2, 'y', NULL),
  (6, 1, 'q', 'NaN');
INSERT INTO C VALUES (1, 1, 1), (1, 2, 2), (2, 1, NULL), (4, 1, 2), (4, 2, 2), (5, 1, 9);
"""

QUERIES = {
    "a later join needs a column of the first relation": """
        SELECT b.Id, c.n FROM A a RIGHT JOIN B b ON a.Id = b.Id LEFT JOIN C c ON c.Part = a.n""",
    "conditions of a later full join": """
        SELECT a.s, b.s, c.n FROM A a LEFT JOIN B b ON a.Id = b.n FULL JOIN C c ON c.n = a.n AND b.d IS NULL""",
    "a correlated query with ORDER BY and LIMIT": """
        SELECT a.Id FROM A a WHERE a.n IN (SELECT b.n FROM B b WHERE b.s = a.s ORDER BY 1 LIMIT 1)""",
    "rows of a window's partition stay together": """
        SELECT a.Id, (SELECT max(b.n) FROM B b WHERE b.n = a.n), row_number() OVER (PARTITION BY a.s ORDER BY a.Id)
        FROM A a""",
    "two integers that equal one double": """
        SELECT b.d, count(*) FROM A a JOIN B b ON a.Id = b.d GROUP BY b.d""",
    "an aggregate of a query in HAVING is its own": """
        SELECT a.s, count(*) FROM A a GROUP BY a.s HAVING count(*) <> (SELECT count(*) FROM B b WHERE b.s = a.s)""",
    "a window function of a query in HAVING": """
        SELECT count(*) FROM A a HAVING EXISTS (SELECT count(*) OVER (PARTITION BY b.s) FROM B b)""",
    "columns of one name in FROM": """
        SELECT x.* FROM (SELECT a.n, b.N FROM A a JOIN B b ON a.Id = b.Id) x LEFT JOIN C c ON c.Id = 1""",
    "columns of one name of WITH, used twice": """
        WITH w AS (SELECT a.n, b.n FROM A a JOIN B b ON a.Id = b.Id) SELECT * FROM w UNION ALL SELECT * FROM w""",
    "columns of one name in a correlated query": """
        SELECT a.n FROM A a WHERE EXISTS (SELECT * FROM (SELECT * FROM B b JOIN C c ON b.Id = c.Id) x WHERE x.s = a.s)
        """,
    "DISTINCT ordered by what it selects": "SELECT DISTINCT a.n + 1 FROM A a ORDER BY a.n + 1 LIMIT 2",
    "rows that are looked up": """
        SELECT a.s, c.n, count(*) FROM A a JOIN C c ON c.Id = a.Id JOIN B b ON b.Id = a.n LEFT JOIN C d ON d.Id = b.n
        GROUP BY a.s, c.n""",
    "HAVING alone makes one group": "SELECT 1 AS one FROM A HAVING TRUE",
}


@cache
def duck() -> Duck:
    return Duck(DuckConfig(threads=1))


@cache
def database() -> EmbeddedDatabase:
    """The rows, which no query changes."""
    filled = EmbeddedDatabase(duck=duck(), batch_rows=2)
    filled.apply(TABLES)
    Connection(filled).cursor().execute(ROWS)
    return filled


def answer(query: str, joins: JoinOptions | None, workers: int = 1, statistics: OneLarge | None = None) -> list[str]:
    database().joins, database().workers, database().statistics = joins, workers, statistics
    cursor = Connection(database()).cursor().execute(query)
    return sorted(map(repr, cursor.fetchall()))


@cache
def central(query: str) -> list[str]:
    before = database().spread
    found = answer(query, None)
    assert database().spread == before
    return found


@pytest.mark.parametrize("workers", some([3], [2, 4]))
@pytest.mark.parametrize("joins", JOINS)
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_spread_and_central_queries_answer_alike(query: str, joins: str, workers: int) -> None:
    expected = central(query)
    before = database().spread
    assert answer(query, JOINS[joins], workers, OneLarge() if joins == "lookup" else None) == expected
    assert database().spread == before + 1, database().central
