"""Comparisons that become ranges of keys and of index entries, against the same comparisons computed here."""

import operator
from collections.abc import Callable

import pytest

from f1server.testing.database import Database, with_database

DDL = (
    "CREATE TABLE Root (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))",
    "CREATE TABLE Kid (A INT64 NOT NULL, B INT64 NOT NULL, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT Root",
    "CREATE INDEX RootByV ON Root (V)",
)
OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
# 255 and -1 are encoded with 0xFF at the end, as a border behind a key has it.
VALUES = (-257, -256, -1, 0, 5, 255, 256, 2**63 - 1)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
def test_ranges_hold_what_is_compared(kind: str) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": a, "V": a} for a in VALUES])
        await db.conn.insert("Kid", [{"A": 5, "B": b} for b in VALUES])
        async with db.conn.transaction(kind) as tx:
            for sign, compare in OPERATORS.items():
                for value in VALUES:
                    expected = [(v,) for v in VALUES if compare(v, value)]
                    for sql in (
                        f"SELECT A FROM Root WHERE A {sign} ? ORDER BY A",
                        f"SELECT B FROM Kid WHERE A = 5 AND B {sign} ? ORDER BY B",
                        f"SELECT V FROM Root WHERE V {sign} ? ORDER BY V",
                    ):
                        assert await (await tx.execute(sql, [value])).fetchall() == expected, (sql, value)

    with_database(body, *DDL)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("NOT (V IS NOT NULL)", [2]),
        ("NOT V IS NULL", [1]),
        ("NOT (NOT (V IS NULL))", [2]),
        ("(V IS NOT NULL) IS FALSE", [2]),
    ],
)
def test_negated_tests_for_null(condition: str, expected: list[int]) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("Root", [{"A": 1, "V": 1}, {"A": 2}])
        assert await db.rows(f"SELECT A FROM Root WHERE {condition}") == [(a,) for a in expected]

    with_database(body, *DDL)
