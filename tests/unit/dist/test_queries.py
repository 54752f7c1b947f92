"""Which queries run at slaves, and what becomes of runs that fail."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from f1common.config import F1ServerSection
from f1common.errors import Code, F1Error
from f1server.dist.coordinator import SpreadFailed
from f1server.dist.queries import Choice, DistributedQueries
from f1server.plan.parts import DistributedPlan
from f1server.plan.prepare import prepare
from f1server.plan.statements import QueryStatement, parse
from f1server.testing.embedded import EmbeddedDatabase
from f1server.testing.spread import MemoryStatistics

DDL = "CREATE TABLE T (A INT64 NOT NULL, B STRING, PRIMARY KEY (A));"


@dataclass
class Slaves:
    """A coordinator, a pool and statistics, all of them made up. `answers`: what runs raise, None: they succeed."""

    database: EmbeddedDatabase
    members: Sequence[Any] = ("one", "two")
    factor: int = 1
    answers: list[F1Error | None] = field(default_factory=list)
    runs: int = 0

    def live(self) -> Sequence[Any]:
        return self.members

    def suspect(self, name: str, incarnation: int, reason: str) -> None:
        raise AssertionError("nobody is suspected here")

    async def fresh(self, schema: Any, tables: Iterable[Any]) -> MemoryStatistics:
        return MemoryStatistics(self.database.tables, self.factor)

    async def division(self, schema: Any, scans: Iterable[Any]) -> Any:
        return self

    def clips(self, scan: Any, workers: int) -> Sequence[tuple[bytes, bytes]]:
        return ()

    async def run(self, plan: DistributedPlan, **_: Any) -> Any:
        self.runs += 1
        error = self.answers.pop(0)
        if error is not None:
            raise error
        return "done"


def slaves(**options: Any) -> Slaves:
    database = EmbeddedDatabase()
    database.apply(DDL)
    table = database.schema.table("T")
    ids = [table.column(name).id for name in ("A", "B")]
    database.tables.put(table, [dict(zip(ids, (i, "x"), strict=True)) for i in range(10)])
    return Slaves(database, **options)


def queries(given: Slaves, **config: Any) -> DistributedQueries:
    made: Any = given
    return DistributedQueries(made, made, made, F1ServerSection(**config), None, random.Random(1))


def choose(given: Slaves, sql: str, **config: Any) -> Choice:
    (statement,) = parse(sql)
    assert isinstance(statement, QueryStatement)
    prepared = prepare(given.database.schema, statement.sql, statement.ast.copy())
    return asyncio.run(queries(given, **config).choose(sql, prepared, prepared.bind((), 0), (), 0))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT B FROM T WHERE A = 1", "only keys: there is nothing to evaluate"),
        ("SELECT upper(B) FROM T WHERE A = 1", "every table is read by key or index"),
        ("SELECT count(*) FROM T", "about 10 rows are examined: fewer than 5,000 (distribute_rows)"),
        ("SELECT 1", "no table is read"),
        ("/*+ CENTRAL */ SELECT count(*) FROM T", "the statement asks for it"),
        (
            "SELECT /*+ distributed */ A, grouping(A) FROM T GROUP BY ROLLUP (A)",
            "the planner does not spread it: GROUPING",
        ),
    ],
)
def test_central(sql: str, reason: str) -> None:
    found = choose(slaves(), sql)
    assert isinstance(found, str)
    assert found.startswith(reason)


def test_no_slaves_and_turned_off() -> None:
    assert choose(slaves(members=()), "SELECT /*+ DISTRIBUTED */ count(*) FROM T") == "no slave is alive"
    found = choose(slaves(factor=10_000), "SELECT count(*) FROM T", distribute="off")
    assert found == "distribution is turned off (f1server.distribute)"


@pytest.mark.parametrize(
    ("sql", "factor", "config"),
    [
        ("SELECT count(*) FROM T", 10_000, {}),
        ("SELECT count(*) FROM T", 1, {"distribute_rows": 10}),
        ("SELECT count(*) FROM T", 1, {"distribute": "force"}),
        ("SELECT /*+ DISTRIBUTED */ count(*) FROM T", 1, {"distribute": "off"}),
        ("EXPLAIN /*+ DISTRIBUTED */ SELECT upper(B) FROM T WHERE A = 1"[8:], 1, {}),
    ],
)
def test_distributed(sql: str, factor: int, config: dict[str, Any]) -> None:
    found = choose(slaves(factor=factor), sql, **config)
    assert isinstance(found, DistributedPlan), found


def run(given: Slaves) -> Any:
    plan = choose(given, "SELECT /*+ DISTRIBUTED */ count(*) FROM T")
    assert isinstance(plan, DistributedPlan)
    return asyncio.run(queries(given).run(plan, 1))


def test_busy_slaves_are_waited_for() -> None:
    busy = SpreadFailed(Code.OVERLOADED, "this slave runs 4 queries", retryable=True)
    given = slaves(answers=[busy, busy, None])
    assert run(given) == "done"
    assert given.runs == 3


@pytest.mark.parametrize(
    "error",
    [
        SpreadFailed(Code.INVALID_ARGUMENT, "division by zero"),
        SpreadFailed(Code.UNAVAILABLE, "no slave is left", retryable=True),
        SpreadFailed(Code.OVERLOADED, "the query needs more memory than it may use", retryable=False),
    ],
)
def test_what_slaves_cannot_do_is_done_centrally(error: SpreadFailed) -> None:
    given = slaves(answers=[error])
    assert run(given) is None
    assert given.runs == 1


def test_what_would_only_happen_again_is_told() -> None:
    with pytest.raises(F1Error) as caught:
        run(slaves(answers=[SpreadFailed(Code.SNAPSHOT_TOO_OLD, "gone")]))
    assert caught.value.code is Code.SNAPSHOT_TOO_OLD
    assert not isinstance(caught.value, SpreadFailed)
