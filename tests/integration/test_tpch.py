"""TPC-H: data loaded by the command line, flat and as a hierarchy; all 22 queries answer what DuckDB answers."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from f1deploy.samples import tpch
from tests.amounts import some
from tests.integration.database import Database, query, running

SMALL, LARGE = 0.01, 0.1  # below, the generator makes rows of partsupp with equal keys
QUERIES = range(1, 23)


@dataclass(frozen=True)
class Oracle:
    """DuckDB over the generated files."""

    scale: float
    files: dict[str, Path]
    answers: dict[int, pa.Table]
    counts: dict[str, int]


def ask_duckdb(folder: Path, scale: float) -> Oracle:
    files = tpch.generate(folder, scale=scale)
    with duckdb.connect() as connection:
        for name, path in files.items():
            connection.from_parquet(str(path)).create_view(name)
        answers = {n: connection.sql(text).to_arrow_table() for n, text in tpch.queries(scale).items()}
        counts = {name: connection.table(name).count("*").fetchall()[0][0] for name in files}
    return Oracle(scale, files, answers, counts)


def load(database: Database, shape: str, oracle: Oracle) -> None:
    with database.connect() as connection:
        query_nothing(connection, f"CREATE DATABASE {shape}")
    ddl = database.directory.parent / f"{shape}.sql"
    ddl.write_text(tpch.ddl(shape))
    database.command("schema", "apply", "--yes", "--database", shape, str(ddl))
    for name in tpch.TABLES:
        said = database.command("load", name, str(oracle.files[name]), "--database", shape, timeout_s=3_600)
        assert f"{oracle.counts[name]:,} rows loaded into {name}" in said


def query_nothing(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def assert_same(got: pa.Table, wanted: pa.Table) -> None:
    """Numbers that are exact are equal exactly; averages and quotients are doubles, summed in another order."""
    assert [kind_of(t) for t in got.schema.types] == [kind_of(t) for t in wanted.schema.types]
    assert got.num_rows == wanted.num_rows
    for ours, theirs in zip(got.columns, wanted.columns, strict=True):
        for a, b in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
            assert same(a, b), (a, b)


def kind_of(column: pa.DataType) -> str:
    if pa.types.is_integer(column) or pa.types.is_decimal(column):
        return "exact number"  # SUM of integers is HUGEINT there, NUMERIC here
    if pa.types.is_string(column) or pa.types.is_large_string(column) or pa.types.is_string_view(column):
        return "text"
    return str(column)


def same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, int | Decimal) and isinstance(b, int | Decimal):
        return a == b
    return type(a) is type(b) and a == b


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return ask_duckdb(tmp_path_factory.mktemp("small"), SMALL)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, small: Oracle) -> Iterator[Database]:
    """A cluster that is empty at first."""
    with running(tmp_path_factory.mktemp("tpch"), "--slaves", "2") as database:
        yield database


@pytest.fixture(scope="module", params=some(["nested"], ["flat"]))
def shape(request: pytest.FixtureRequest, database: Database, small: Oracle) -> str:
    """A shape in which the cluster has the small data set, in a database of that name."""
    assert request.param in tpch.SHAPES
    load(database, request.param, small)
    return str(request.param)


HINTS = ("/*+ DISTRIBUTED */", "/*+ CENTRAL */")


@pytest.mark.parametrize("hint", HINTS)
def test_every_query_answers_what_duckdb_answers(database: Database, small: Oracle, shape: str, hint: str) -> None:
    texts = tpch.queries(small.scale)
    with database.connect(shape) as connection:
        for number in QUERIES:
            assert_same(query(connection, f"{hint} {texts[number]}"), small.answers[number])
    assert not database.fallbacks(), "slaves gave the answers, not the f1server in their stead"


def test_queries_are_spread_without_being_asked(database: Database, small: Oracle, shape: str) -> None:
    """At least 18 of the 22, and then no row of a table comes to the f1server."""
    texts = tpch.queries(small.scale)
    spread = []
    with database.connect(shape) as connection:
        for number in QUERIES:
            found = query(connection, f"EXPLAIN (FORMAT JSON) {texts[number]}")
            plan = json.loads(found.column(0)[0].as_py())
            if plan["execution"] != "distributed":
                continue
            (root,) = [part for part in plan["parts"] if part["where"] == "f1server"]
            assert not [o for o in root["operators"] if o["operator"] == "scan"]
            producers = [part for part in plan["parts"] if part["id"] in root["inputs"]]
            assert all(part["where"] == "slaves" for part in producers)
            spread.append(number)
    assert len(spread) >= 18, spread


@pytest.mark.parametrize("shape", ["nested"], indirect=True)
def test_loads_are_in_the_change_history(database: Database, small: Oracle, shape: str) -> None:
    with database.connect(shape) as connection:
        found = query(
            connection,
            "SELECT table_name, kind, count(*) FROM ChangeHistory_orders GROUP BY table_name, kind ORDER BY 1",
        )
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert rows == [(name, "INSERT", small.counts[name]) for name in ("lineitem", "orders")]


@pytest.mark.long
@pytest.mark.parametrize("shape", tpch.SHAPES)
def test_every_query_at_the_tenth_scale(tmp_path: Path, shape: str) -> None:
    oracle = ask_duckdb(tmp_path, LARGE)
    texts = tpch.queries(oracle.scale)
    with running(tmp_path, "--slaves", "2") as database:
        load(database, shape, oracle)
        with database.connect(shape) as connection:
            for number in QUERIES:
                for hint in HINTS:
                    assert_same(query(connection, f"{hint} {texts[number]}"), oracle.answers[number])
