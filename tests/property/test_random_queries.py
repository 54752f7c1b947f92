"""Random queries over random tables answer alike on one server, spread over workers, and in plain DuckDB.

A seed is a world of tables and a query. It is run centrally; spread with two of three ways to join, over one to four
workers, in batches of one to five rows, now and then with rules off or with wrong ideas of the sizes of tables; and by
DuckDB over the same rows, with nothing of ours between. Planners broken on purpose show that the seeds notice.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Table
from f1server.exec.duck import Duck, DuckConfig
from f1server.plan.rules import RULE_NAMES
from f1server.plan.spread import joins
from f1server.plan.spread.builder import hash_cast
from f1server.plan.spread.joins import Joiner, JoinOptions, Pair
from f1server.plan.spread.relation import Dist, Placement, refs_of
from f1server.plan.statistics import TableStats
from f1server.plan.types import SqlType
from f1server.testing.embedded import Connection, EmbeddedDatabase
from f1server.testing.queries import RandomQuery, random_query
from f1server.testing.worlds import World, random_world
from tests.amounts import some

JOINS = {
    "small": JoinOptions(broadcast_rows=20),
    "broadcast": JoinOptions(force="broadcast"),
    "repartition": JoinOptions(broadcast_rows=0, force="repartition"),
}
CHUNK = 10
LEAST_SPREAD = 0.7

Answer = list[tuple[Any, ...]] | Code


@cache
def duck() -> Duck:
    return Duck(DuckConfig(threads=1))


@dataclass(frozen=True)
class Guesses:
    """Sizes of tables that are far from what they are: any plan must be right."""

    rows: Mapping[str, int]

    def table(self, table: Table) -> TableStats | None:
        return TableStats(self.rows[table.name], 100.0)


@dataclass
class Case:
    """What one seed makes: a database, and the query. It answers centrally until ``spread`` is called."""

    seed: int
    rng: random.Random = field(init=False)
    world: World = field(init=False)
    database: EmbeddedDatabase = field(init=False)
    query: RandomQuery = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.world = random_world(self.rng, self.rng.choice((60, 200, 200, 2000)))
        self.database = EmbeddedDatabase(duck=duck())
        self.world.load(self.database)
        self.query = random_query(self.rng, self.world)

    def spread(self, options: JoinOptions) -> None:
        """Let the database spread queries from now on, in a way that the seed chooses."""
        large = any(len(table.rows) > 200 for table in self.world.tables)
        self.database.joins = options
        self.database.workers = self.rng.randint(1, 4)
        self.database.tables.batch_rows = 64 if large else self.rng.randint(1, 5)
        off = [name for name in RULE_NAMES if self.rng.random() < 0.2] if self.rng.random() < 0.4 else []
        self.database.rules_off = tuple(off)
        guesses = Guesses({t.name: self.rng.choice((1, 10, 5000, 5000)) for t in self.world.tables})
        self.database.statistics = guesses if self.rng.random() < 0.6 else None

    def told(self, what: str, first: object, second: object) -> str:
        query = self.query
        return f"seed {self.seed}, {what}:\n{query.sql}\n{query.params}\n{str(first)[:1000]}\n{str(second)[:1000]}"


def comparable(rows: Sequence[tuple[Any, ...]], query: RandomQuery) -> list[tuple[Any, ...]]:
    """Return rows such that equal answers are equal: NaN is itself, -0.0 is 0.0, order counts if there is one."""
    found = [tuple("NaN" if v != v else v + 0.0 if isinstance(v, float) else v for v in row) for row in rows]
    return found if query.ordered else sorted(found, key=repr)


def answer(database: EmbeddedDatabase, query: RandomQuery) -> Answer:
    """Return the names and types of the result's columns, and its rows, or the code of the error."""
    try:
        cursor = Connection(database).cursor().execute(query.sql, query.params)
    except F1Error as error:
        return error.code
    names = tuple(tuple(column[:2]) for column in cursor.description or ())
    return [names, *comparable(cursor.fetchall(), query)]


def rows_of(found: Answer) -> Answer:
    return found if isinstance(found, Code) else found[1:]


def plain_answer(case: Case) -> Answer:
    names = iter(range(len(case.query.params)))
    sql = re.sub(r"\?", lambda _: f"$p{next(names)}", case.query.sql)
    connection = case.world.plain(case.database, duck())
    try:
        rows = connection.table(sql, {f"p{i}": value for i, value in enumerate(case.query.params)})
    except F1Error as error:
        return error.code
    finally:
        connection.close()
    return comparable(list(zip(*(column.to_pylist() for column in rows.columns), strict=True)), case.query)


def same(first: Answer, second: Answer, query: RandomQuery) -> bool:
    if first == second:
        return True
    if query.exact or isinstance(first, Code) or isinstance(second, Code) or len(first) != len(second):
        return False
    return all(near(a, b) for row, other in zip(first, second, strict=True) for a, b in zip(row, other, strict=True))


def near(a: Any, b: Any) -> bool:
    """Sums and means of doubles depend on the order in which they are computed."""
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6))


def check(seed: int, reasons: Counter[str]) -> int:
    """Check one seed; return how many of its runs were spread."""
    case = Case(seed)
    database, query = case.database, case.query
    expected = answer(database, query)
    plain = plain_answer(case)
    assert same(rows_of(expected), plain, query), case.told("central and plain DuckDB", expected, plain)
    for name in case.rng.sample(list(JOINS), 2):
        case.spread(JOINS[name])
        found = answer(database, query)
        what = f"central and {name}, {database.workers} workers, without {database.rules_off}"
        assert same(expected, found, query), case.told(what, expected, found)
    reasons.update(text.split(":")[0] for text in database.central)
    return database.spread


def check_chunk(chunk: int) -> None:
    reasons: Counter[str] = Counter()
    spread = sum(check(seed, reasons) for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(f"{spread} runs spread, others not: {dict(reasons)}")
    assert spread >= LEAST_SPREAD * 2 * CHUNK, reasons


@pytest.mark.parametrize("chunk", some(range(2), range(2, 135)))
def test_spread_queries_answer_like_central_ones(chunk: int) -> None:
    check_chunk(chunk)


# ---------------------------------------------------------------------- planners that are wrong


def left_like_inner(patch: pytest.MonkeyPatch) -> None:
    """The condition of a LEFT JOIN takes rows away from the left side."""
    right = Joiner.join

    def wrong(self: Joiner, left: Any, other: Any, side: str, on: Sequence[Any], later: Any) -> Any:
        if side == "LEFT":
            left.where += [left.written(c) for c in on if refs_of(c) and left.knows(refs_of(c))]
        return right(self, left, other, side, on, later)

    patch.setattr(Joiner, "join", wrong)


def own_types(patch: pytest.MonkeyPatch) -> None:
    """Each side of a join is dealt out by the hash of its own type."""

    def wrong(left: SqlType, right: SqlType) -> str | None:
        cast = hash_cast(left, right)
        return cast if left.kind is right.kind or cast is None else ""

    patch.setattr(joins, "hash_cast", wrong)


def always_together(patch: pytest.MonkeyPatch) -> None:
    """Rows that are spread are taken to be where those are that they join."""

    def wrong(left: Dist, right: Dist, _: Sequence[Pair]) -> bool:
        return not {left.placement, right.placement} & {Placement.ONE, Placement.COPY}

    patch.setattr(joins, "together", wrong)


def kept_side_everywhere(patch: pytest.MonkeyPatch) -> None:
    """The side of an outer join whose rows are kept goes to all workers, each of which keeps it."""
    right = Joiner._may_broadcast

    def wrong(self: Joiner, small: Any, other: Any, _: bool, *rest: Any) -> bool:
        return right(self, small, other, True, *rest)

    patch.setattr(Joiner, "_may_broadcast", wrong)


BROKEN = {left_like_inner: 48, own_types: 21, always_together: 15, kept_side_everywhere: 43}
"""Each with a seed that notices it; when queries change, one of those after it has to."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.__name__)
def test_seeds_notice_a_broken_planner(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    assert any(is_noticed(seed) for seed in range(BROKEN[broken], 15 * CHUNK))


def is_noticed(seed: int) -> bool:
    case = Case(seed)
    if " JOIN " not in case.query.sql:
        return False
    expected = answer(case.database, case.query)
    for options in JOINS.values():
        case.spread(options)
        if not same(expected, answer(case.database, case.query), case.query):
            return True
    return False
