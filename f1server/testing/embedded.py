"""A database in this process's memory, behind DB-API: SQL alone, without storage, transactions and servers.

It is for tests and measures of SQL. Each statement commits; constraints other than the primary key, NOT NULL and unique
indexes are not held.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from f1common.encoding import tuple as tuples
from f1common.encoding.values import Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.compile import compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import Schema, Table
from f1server.catalog.statements import CreateDatabase, CreateTable, DropDatabase
from f1server.exec.dml import run_dml
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.engine import Engine, QueryResult
from f1server.exec.show import show, text_result
from f1server.plan.dml import PreparedDml, prepare_dml
from f1server.plan.explain import as_text, explain
from f1server.plan.prepare import PlanCache, Prepared, prepare
from f1server.plan.spread import JoinOptions, Unspreadable, spread
from f1server.plan.statements import (
    DmlStatement,
    ExplainStatement,
    QueryStatement,
    SchemaChangeStatement,
    ShowStatement,
    Statement,
    parse,
)
from f1server.plan.statistics import Statistics
from f1server.rows.defaults import fill_defaults
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite, WriteKind
from f1server.testing.memory import MemoryTables
from f1server.testing.spread import LocalRun, MemoryStatistics

_START_US = 1_700_000_000_000_000


class EmbeddedDatabase:
    """Schema and rows of one database."""

    def __init__(
        self,
        *,
        duck: Duck | None = None,
        rules_off: Sequence[str] = (),
        batch_rows: int = 1024,
        joins: JoinOptions | None = None,
        workers: int = 3,
    ) -> None:
        """``joins``: every query that can be spread is, over ``workers``, with joins made so."""
        self.joins = joins
        self.workers = workers
        self.statistics: Statistics | None = None
        """What is taken for the sizes of tables; None: what they are."""
        self.spread = 0
        """How many queries were spread."""
        self.central: list[str] = []
        """Why the others that read tables were not."""
        self.schema = Schema("embedded")
        self.rules_off = tuple(rules_off)
        self.tables = MemoryTables(batch_rows)
        self.engine = Engine(duck or Duck(DuckConfig(threads=1)))
        self.now_us = _START_US
        self._ids = itertools.count(64)
        self._rows = itertools.count(1)
        self._plans = PlanCache()

    def apply(self, ddl: str, protos: Sequence[tuple[str, str]] = ()) -> None:
        """Apply DDL; ``protos`` replace the .proto files first."""
        if protos:
            from dataclasses import replace

            from f1server.catalog.protos import compile_files

            self.schema = replace(self.schema, proto_files=tuple(protos), descriptor_set=compile_files(tuple(protos)))
        for statement in parse_ddl(ddl):
            if not isinstance(statement, CreateDatabase | DropDatabase):
                self.schema = compile_statements(self.schema, [statement], lambda: next(self._ids))

    async def execute(self, statement: Statement, params: Sequence[object] = ()) -> tuple[QueryResult | None, int]:
        """Run a statement; return its result, if it has one, and the number of rows written."""
        self.now_us += 1
        match statement:
            case QueryStatement():
                return await self._query(statement, params), -1
            case DmlStatement():
                return await self._dml(statement, params)
            case SchemaChangeStatement():
                return None, await self._schema_change(statement)
            case ExplainStatement():
                return text_result(
                    ["plan"], [(line,) for line in as_text(explain(self._bound(statement.statement, params)))]
                ), -1
            case ShowStatement():
                return show(self.schema, statement), -1
            case _:
                return None, -1

    def _bound(self, statement: QueryStatement | DmlStatement, params: Sequence[object]) -> Any:
        if isinstance(statement, DmlStatement):
            return prepare_dml(self.schema, statement).bind(params, self.now_us, self.rules_off)
        return self._prepared(statement).bind(params, self.now_us, self.rules_off)

    def _prepared(self, statement: QueryStatement) -> Prepared:
        kept = self._plans.get(self.schema, f"{statement.start} {statement.sql}")
        if isinstance(kept, Prepared):
            return kept
        as_of = statement.as_of.copy() if statement.as_of is not None else None
        prepared = prepare(self.schema, statement.sql, statement.ast.copy(), as_of)
        self._plans.put(self.schema, f"{statement.start} {statement.sql}", prepared)
        return prepared

    async def _query(self, statement: QueryStatement, params: Sequence[object]) -> QueryResult:
        prepared = self._prepared(statement)
        source = self.tables.source(self.schema)
        if self.joins is not None and prepared.tables:
            statistics = self.statistics or MemoryStatistics(self.tables)
            try:
                plan = spread(prepared, params, self.now_us, statistics, self.joins, self.rules_off)
            except Unspreadable as error:
                self.central.append(f"{error}: {statement.sql}")
            else:
                self.spread += 1
                return await LocalRun(self.engine, source, self.workers, self.tables.batch_rows).run(plan)
        bound = prepared.bind(params, self.now_us, self.rules_off)
        return await self.engine.run_query(bound, source)

    async def _dml(self, statement: DmlStatement, params: Sequence[object]) -> tuple[QueryResult | None, int]:
        prepared: PreparedDml = prepare_dml(self.schema, statement)
        bound = prepared.bind(params, self.now_us, self.rules_off)
        result = await run_dml(self.engine, bound, self.tables.source(self.schema), self._fill)
        for write in self._fill(result.writes):
            self._write(self.schema.table(write.table), write)
        return result.returning, result.rows_affected

    def _fill(self, writes: Sequence[LogicalWrite]) -> list[LogicalWrite]:
        return fill_defaults(
            self.schema, writes, evaluate=self._defaults, new_id=lambda: next(self._rows).to_bytes(16, "big")
        )

    def _defaults(self, expressions: Sequence[str]) -> list[Value]:
        connection = self.engine.duck.connection()
        try:
            found: list[Value] = []
            for text in expressions:
                (statement,) = parse(f"SELECT ({text})")
                if isinstance(statement, QueryStatement):
                    bound = prepare(self.schema, statement.sql, statement.ast.copy()).bind((), self.now_us)
                    (value,) = connection.table(bound.sql, bound.bound).column(0).to_pylist()
                    found.append(Timestamp.of(value) if hasattr(value, "tzinfo") else value)
            return found
        finally:
            connection.close()

    def _write(self, table: Table, write: LogicalWrite) -> None:
        key = [write.key.get(i) for i in table.key_column_ids]
        if write.kind is WriteKind.DELETE:
            self.tables.delete(table, key)
            return
        old = self.tables.get(table, key)
        if write.kind is WriteKind.UPDATE and old is None:
            return
        base = dict(old) if old is not None and write.kind is not WriteKind.INSERT else dict(write.defaults)
        row = {**base, **write.key, **write.columns}
        for column in table.columns:
            if row.get(column.id) is None and column.not_null:
                raise F1Error(Code.INVALID_ARGUMENT, f"{table.name}.{column.name} must not be NULL")
        moved = [row.get(i) for i in table.key_column_ids]
        replace = write.kind is not WriteKind.INSERT
        if replace and tuples.encode(moved) != tuples.encode(key):
            self.tables.delete(table, key)
            replace = False
        self.tables.put(table, [row], replace=replace)

    async def _schema_change(self, statement: SchemaChangeStatement) -> int:
        ddl = statement.ddl
        if isinstance(ddl, CreateDatabase | DropDatabase):
            raise F1Error(Code.FAILED_PRECONDITION, "an embedded database has no others beside it")
        if isinstance(ddl, CreateTable) and ddl.as_query:
            return await self._create_as(ddl)
        self.schema = compile_statements(self.schema, [ddl], lambda: next(self._ids))
        return -1

    async def _create_as(self, ddl: CreateTable) -> int:
        (query,) = parse(ddl.as_query)
        if not isinstance(query, QueryStatement):
            raise F1Error(Code.INVALID_ARGUMENT, "CREATE TABLE AS needs a query")
        result = await self._query(query, ())
        names = [*ddl.as_names, *[c.name for c in result.columns][len(ddl.as_names) :]]
        columns = ", ".join(f'"{n}" {c.type}' for n, c in zip(names, result.columns, strict=True))
        if ddl.if_not_exists and ddl.name.lower() in self.schema.by_name:
            return 0
        self.apply(f'CREATE TABLE "{ddl.name}" ({columns})')
        (insert,) = parse(f'INSERT INTO "{ddl.name}" {ddl.as_query}')
        return (await self.execute(insert))[1]


class Cursor:
    """A DB-API cursor."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self._database = database
        self._rows: list[tuple[Any, ...]] = []
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1

    def execute(self, sql: str, params: Sequence[object] = ()) -> "Cursor":
        """Run one or more statements and keep the rows of the last."""
        for statement in parse(sql):
            asyncio.run(self._one(statement, params))
        return self

    async def _one(self, statement: Statement, params: Sequence[object]) -> None:
        self._rows, self.description = [], None
        result, self.rowcount = await self._database.execute(statement, params)
        if result is not None:
            table = await result.table()
            self.description = [(c.name, c.type, None, None, None, None, c.nullable) for c in result.columns]
            self._rows = [tuple(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """Do nothing."""


class Connection:
    """A DB-API connection."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self.database = database

    def cursor(self) -> Cursor:
        """Return a cursor."""
        return Cursor(self.database)

    def close(self) -> None:
        """Give the memory back."""
        self.database.engine.duck.close()


def connect() -> Connection:
    """Return a connection to an empty database."""
    return Connection(EmbeddedDatabase())
