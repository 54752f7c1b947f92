"""How many rows a scan is taken to look at decides where a query runs: a few rows by key need no slaves."""

from typing import Any

import pytest

from f1server.catalog.compile import compile_sources
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import Table
from f1server.plan.prepare import prepare
from f1server.plan.spread import examined
from f1server.plan.statements import QueryStatement, parse
from f1server.plan.statistics import TableStats

DDL = """
CREATE TABLE Item (Id INT64 NOT NULL, V INT64, S STRING, PRIMARY KEY (Id));
CREATE TABLE Pair (A INT64 NOT NULL, B INT64 NOT NULL, V INT64, PRIMARY KEY (A, B));
CREATE INDEX ItemByV ON Item (V);
"""
MILLION = 1_000_000.0


class Large:
    """Every table has a million rows."""

    def table(self, table: Table) -> TableStats | None:
        return TableStats(int(MILLION), 100.0)


@pytest.mark.parametrize(
    ("sql", "least", "most"),
    [
        ("SELECT S FROM Item WHERE Id >= 7 AND Id < 27", 1, 21),
        ("SELECT S FROM Item WHERE Id BETWEEN 7 AND 26 ORDER BY V", 20, 20),
        ("SELECT S FROM Item WHERE Id BETWEEN 26 AND 7", 1, 1),
        ("SELECT S FROM Item WHERE Id >= 7 ORDER BY Id LIMIT 20", 20, 20),
        ("SELECT S FROM Item LIMIT 5 OFFSET 5", 10, 10),
        ("SELECT V FROM Pair WHERE A = 3 AND B BETWEEN 1 AND 4", 4, 4),
        ("SELECT V FROM Pair WHERE A BETWEEN 1 AND 4", 1000, 10_000),
        ("SELECT S FROM Item WHERE Id >= 7", MILLION / 10, MILLION),
        ("SELECT S FROM Item WHERE Id BETWEEN 0 AND 10000000", MILLION / 10, MILLION),
        ("SELECT S FROM Item WHERE S = 'x' LIMIT 5", MILLION, MILLION),
        ("SELECT S FROM Item WHERE S > 'x' ORDER BY Id LIMIT 5", MILLION, MILLION),
        ("SELECT count(*) FROM Item", MILLION, MILLION),
    ],
)
def test_bounds_and_limits_count(sql: str, least: float, most: float) -> None:
    ids = iter(range(64, 1000))
    statements: list[Any] = list(parse_ddl(DDL))
    schema = compile_sources("d", statements, [], lambda: next(ids))
    (statement,) = parse(sql)
    assert isinstance(statement, QueryStatement)
    bound = prepare(schema, statement.sql, statement.ast.copy(), None).bind((), 0)
    assert least <= examined(bound, Large()) <= most
