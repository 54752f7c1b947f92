"""The engine: what DuckDB may reach, memory, cancellation, streams, and the TPC-H queries."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1deploy.samples import tpch
from f1server.catalog.compile import compile_sources
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import Schema
from f1server.exec.arrow_types import type_of
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine, QueryResult
from f1server.exec.source import TableScan
from f1server.plan.prepare import BoundQuery, prepare
from f1server.plan.statements import QueryStatement, parse
from f1server.testing.embedded import Connection, EmbeddedDatabase
from tests.amounts import some

SCALE = 0.005


class ArrowSource:
    """Whole Arrow tables, whatever a scan asks for."""

    def __init__(self, schema: Schema, tables: dict[str, Any], rows: int = 4096) -> None:
        self._schema = schema
        self._tables = tables
        self._rows = rows
        self.batches = 0

    async def scan(self, scans: Sequence[TableScan]) -> list[AsyncIterator[Any]]:
        return [self._one(scan) for scan in scans]

    async def _one(self, scan: TableScan) -> AsyncIterator[Any]:
        table = self._tables[scan.table.name.lower()]
        columns = [
            table.column(scan.table.by_id[w.column_id].name.lower()).cast(type_of(self._schema, scan.table, w))
            for w in scan.columns
        ]
        whole = pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))])
        for batch in whole.to_batches(max_chunksize=self._rows):
            self.batches += 1
            yield batch


def schema_of(ddl: str) -> Schema:
    ids = itertools.count(64)
    statements: list[Any] = list(parse_ddl(ddl))
    return compile_sources("d", statements, [], lambda: next(ids))


def bound(schema: Schema, sql: str, params: Sequence[object] = ()) -> BoundQuery:
    (statement,) = parse(sql)
    assert isinstance(statement, QueryStatement)
    return prepare(schema, sql, statement.ast.copy()).bind(params, 0)


async def rows_of(result: QueryResult) -> list[tuple[Any, ...]]:
    table = await result.table()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@cache
def database() -> EmbeddedDatabase:
    found = EmbeddedDatabase()
    found.apply("CREATE TABLE T (Id INT64 PRIMARY KEY, Name STRING)")
    Connection(found).cursor().execute("INSERT INTO T VALUES (1, 'a'), (2, 'b')")
    return found


def execute(sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    cursor = Connection(database()).cursor()
    return cursor.execute(sql, params).fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM duckdb_settings()",
        "SELECT getenv('HOME')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT current_setting('memory_limit')",
        "SELECT * FROM pg_class",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM f1_t0",
        "SELECT f1_octet_length('x')",
        "SELECT nextval('x')",
        "COPY T TO '/tmp/x'",
        "ATTACH 'x'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA database_list",
        "CALL pragma_version()",
    ],
)
def test_nothing_of_the_outside_is_in_reach(sql: str) -> None:
    with pytest.raises(F1Error) as caught:
        execute(sql)
    assert caught.value.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT)


def test_the_settings_are_locked() -> None:
    connection = database().engine.duck.connection()
    with pytest.raises(F1Error, match="locked"):
        connection.table("SET memory_limit = '1TB'")
    connection.close()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (-(2**63), -(2**63)),
        (1.5, 1.5),
        ("it's \x00 ö", "it's \x00 ö"),
        ("x" * 10_000, "x" * 10_000),
        (b"\x00'", b"\x00'"),
    ],
)
def test_parameters_arrive_as_they_are(value: object, shown: object) -> None:
    assert execute("SELECT ?", (value,)) == [(shown,)]


def test_a_missing_parameter_is_said() -> None:
    with pytest.raises(F1Error, match="has a parameter 2, but 1 were given"):
        execute("SELECT ?, ?", (1,))


@given(st.text(max_size=20))
def test_texts_are_never_sql(text: str) -> None:
    assert execute("SELECT ? || '', Name FROM T WHERE Id = 1", (text,)) == [(text, "a")]


def test_text_parameters_take_the_type_of_what_they_meet() -> None:
    assert execute("SELECT Name FROM T WHERE Id = ?", ("2",)) == [("b",)]
    assert execute("SELECT DATE '2024-01-02' = ?", ("2024-01-02",)) == [(True,)]


def test_a_result_streams_and_closes() -> None:
    async def run() -> int:
        schema = schema_of("CREATE TABLE N (Id INT64 PRIMARY KEY)")
        engine = Engine(Duck(DuckConfig(threads=1, batch_rows=1000)))
        result = await engine.run_query(
            bound(schema, "SELECT x FROM generate_series(1, 100000) x"), ArrowSource(schema, {})
        )
        async for batch in result.batches:
            result.close()
            return int(batch.num_rows)
        return 0

    assert 0 < asyncio.run(run()) <= 10_000


def test_many_rows_go_through_a_temporary_table() -> None:
    """Rows beyond the spool limit are DuckDB's to move to disk; the answer is the same."""
    schema = schema_of("CREATE TABLE N (Id INT64 PRIMARY KEY, V STRING)")
    data = pa.table({"id": list(range(20_000)), "v": [f"v{i % 7}" for i in range(20_000)]})
    query = bound(schema, "SELECT V, count(*), sum(Id) FROM N GROUP BY V ORDER BY V")
    answers = []
    for spool in (1 << 30, 1 << 12):
        engine = Engine(Duck(DuckConfig(threads=1, spool_bytes=spool)))
        result = asyncio.run(run_rows(engine, query, ArrowSource(schema, {"n": data}, 1000)))
        answers.append(result)
    assert answers[0] == answers[1]
    assert len(answers[0]) == 7


async def run_rows(engine: Engine, query: BoundQuery, source: ArrowSource) -> list[tuple[Any, ...]]:
    return await rows_of(await engine.run_query(query, source))


@pytest.mark.parametrize(("keys", "whole"), [(10, False), (1000, False), (1001, True)])
def test_lookups_of_too_many_keys_become_one_scan(keys: int, whole: bool) -> None:
    """Rule lookup_join: the inner table is read at the outer's keys, or whole if there are more than its limit."""
    found = EmbeddedDatabase(duck=database().engine.duck)
    found.apply("CREATE TABLE A (Id INT64 PRIMARY KEY, G INT64); CREATE INDEX ByG ON A (G)")
    found.apply("CREATE TABLE B (Id INT64 PRIMARY KEY)")
    cursor = Connection(found).cursor()
    cursor.execute(f"INSERT INTO A SELECT x, 1 FROM generate_series(1, {keys}) x")
    cursor.execute("INSERT INTO B SELECT x * 2 FROM generate_series(1, 2000) x")
    found.tables.scans.clear()
    text = "SELECT count(*) FROM A JOIN B ON A.Id = B.Id WHERE A.G = 1"
    assert cursor.execute(text).fetchall() == [(keys // 2,)]
    outer, inner = found.tables.scans
    assert (outer.table.name, inner.table.name) == ("A", "B")
    assert (inner.spans == ()) == whole


def test_too_little_memory_is_an_error_that_says_so(tmp_path: Path) -> None:
    schema = schema_of("CREATE TABLE N (Id INT64 PRIMARY KEY)")
    engine = Engine(Duck(DuckConfig(threads=1, memory_mb=20, temp_dir=str(tmp_path / "spill"))))
    text = "SELECT list(x || repeat('y', 1000)) FROM generate_series(1, 1000000) x"
    with pytest.raises(F1Error) as caught:
        asyncio.run(run_rows(engine, bound(schema, text), ArrowSource(schema, {})))
    assert caught.value.code is Code.OVERLOADED
    assert not caught.value.retryable


def test_many_queries_at_once() -> None:
    """Relations of the same names, on threads, each with its own rows."""
    schema = schema_of("CREATE TABLE N (Id INT64 PRIMARY KEY)")
    text = "SELECT count(*), sum(a.Id) FROM N a JOIN N b ON a.Id = b.Id WHERE a.Id % ? = 0"

    async def run() -> list[list[tuple[Any, ...]]]:
        with ThreadPoolExecutor(4) as executor:
            engine = Engine(Duck(DuckConfig(threads=2), executor))
            tables = [pa.table({"id": list(range(size))}) for size in range(1, 41)]
            queries = [
                run_rows(engine, bound(schema, text, (1 + size % 3,)), ArrowSource(schema, {"n": table}, 7))
                for size, table in enumerate(tables, 1)
            ]
            return await asyncio.gather(*queries)

    for size, found in enumerate(asyncio.run(run()), 1):
        kept = [i for i in range(size) if i % (1 + size % 3) == 0]
        assert found == [(len(kept), sum(kept))], size


def test_a_cancelled_query_stops() -> None:
    async def run() -> None:
        schema = schema_of("CREATE TABLE N (Id INT64 PRIMARY KEY)")
        with ThreadPoolExecutor(1) as executor:
            engine = Engine(Duck(DuckConfig(threads=1), executor))
            text = "SELECT sum(a.x * b.x) FROM generate_series(1, 10000000) a(x), generate_series(1, 10000000) b(x)"
            task = asyncio.create_task(run_rows(engine, bound(schema, text), ArrowSource(schema, {})))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_queries_at_once_do_not_share_their_functions() -> None:
    """Functions over messages are the whole process's in DuckDB: those of different schemas must not be mixed up."""

    def column(field: str) -> EmbeddedDatabase:
        found = EmbeddedDatabase(duck=database().engine.duck)
        proto = f'syntax = "proto3"; package p; message M {{ string a = {field}; }}'
        found.apply("CREATE TABLE T (Id INT64 PRIMARY KEY, M PROTO<p.M>)", [("m.proto", proto)])
        Connection(found).cursor().execute(f'INSERT INTO T VALUES (1, \'{{"a": "field {field}"}}\')')
        return found

    text = "SELECT d.M.a FROM (SELECT DISTINCT M FROM T) d"
    databases = [column("1"), column("2"), column("1")]

    async def run() -> list[list[tuple[Any, ...]]]:
        (statement,) = parse(text)
        results = [(await found.execute(statement))[0] for found in databases]
        return [await rows_of(result) for result in results if result is not None]

    assert asyncio.run(run()) == [[("field 1",)], [("field 2",)], [("field 1",)]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT Id FROM T WHERE Id = 1" + " OR Id = 1" * 3000,
        "SELECT Id FROM T WHERE Id = 1" + " AND Id < 5" * 3000,
        "SELECT 1 FROM T WHERE Id IN (" + ", ".join(map(str, range(1, 3000))) + ") AND Id = 1",
        "SELECT " + "(" * 150 + "1" + ")" * 150,
        "SELECT 1" + " + 0" * 300,
    ],
    ids=["or", "and", "in", "parentheses", "plus"],
)
def test_long_statements_are_answered(sql: str) -> None:
    assert execute(sql) == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 50_000 + "1" + ")" * 50_000,
        "SELECT * FROM " + "(SELECT * FROM " * 50_000 + "T" + ") x" * 50_000,
        "SELECT " + "NOT " * 50_000 + "true",
        "SELECT " + "- " * 50_000 + "1",
        "SELECT " + "CASE WHEN true THEN " * 50_000 + "1" + " END" * 50_000,
        "SELECT 1" + " + 1" * 5_000,
        "SELECT 1" + " UNION SELECT 1" * 5_000,
    ],
    ids=["parentheses", "queries", "not", "minus", "case", "plus", "union"],
)
def test_deep_statements_are_refused(sql: str) -> None:
    """The compiled parser would run out of stack, which no handler catches."""
    with pytest.raises(F1Error) as caught:
        execute(sql)
    assert caught.value.code is Code.INVALID_ARGUMENT


TEXTS = st.sampled_from(
    [
        *("SELECT", "FROM", "WHERE", "T", "Id", "Name", "t.Id", "1", "'x'", "(", ")", ",", "*", "="),
        *("+", "-", "<", "AS", "OF", "JOIN", "LEFT", "ON", "GROUP", "BY", "ORDER", "LIMIT", "UNION", "ALL"),
        *("CAST", "(", "Id", "AS", "STRING", ")", "COUNT(*)", "SUM(Id)", "x", "CASE", "WHEN", "THEN", "ELSE", "END"),
        *("BETWEEN", "AND", "NOT", "IN", "IS", "NULL", "EXISTS", "(SELECT", "1)", "DISTINCT", "OVER", "()", "WITH"),
    ]
)


@given(st.lists(TEXTS, max_size=14).map(lambda words: "SELECT " + " ".join(words)))
def test_any_query_is_answered_or_refused(sql: str) -> None:
    """Random SQL: no crash, no hang, no INTERNAL (issue 3, bad input)."""
    try:
        execute(sql)
    except F1Error as error:
        assert error.code is not Code.INTERNAL, (sql, error)


@cache
def tpch_tables(directory: Path) -> dict[str, Any]:
    return {name: pq.read_table(path) for name, path in tpch.generate(directory, scale=SCALE).items()}


def plain(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return [
        tuple(round(float(v), 4) if isinstance(v, float) or hasattr(v, "as_tuple") else v for v in row) for row in rows
    ]


@pytest.mark.parametrize("shape", some(["nested"], ["flat"]))
def test_tpch_answers_are_those_of_duckdb(shape: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp() / "tpch"
    directory.mkdir(exist_ok=True)
    tables = tpch_tables(directory)
    schema = schema_of(tpch.ddl(shape))
    reference = duckdb.connect()
    for name, table in tables.items():
        reference.register(name, table)
    engine = Engine(Duck(DuckConfig(threads=1)))
    for number, text in tpch.queries(SCALE).items():
        found = asyncio.run(run_rows(engine, bound(schema, text), ArrowSource(schema, tables)))
        assert plain(found) == plain(reference.execute(text).fetchall()), f"Q{number}"
