"""SQL over rows that are at hand: defaults and checks. Synchronous, since commits evaluate them between two reads."""

import threading
from collections.abc import Callable, Sequence

import pyarrow as pa

from f1common.clock import Clock
from f1common.errors import Code, F1Error
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import ElementState, Schema, Table
from f1server.exec.arrow_types import narrowed, sql_type
from f1server.exec.duck import Duck
from f1server.exec.protos import arrow_function, duck_name
from f1server.plan.prepare import PlanCache, Prepared, prepare
from f1server.plan.rules import RULE_NAMES
from f1server.plan.scans import FieldWanted
from f1server.plan.statements import QueryStatement, parse
from f1server.rows.arrow import from_arrow, to_arrow
from f1server.rows.values import Row, Value


class RowEvaluator:
    """Evaluates defaults and check constraints."""

    def __init__(self, duck: Duck, clock: Clock) -> None:
        self._duck = duck
        self._clock = clock
        self._plans = PlanCache()
        self._lock = threading.Lock()
        """Over the plans: commits of many rows are planned on a thread."""

    def defaults(self, schema: Schema) -> Callable[[Sequence[str]], Sequence[Value]]:
        """Return an evaluator of SQL expressions over no row, all with one now()."""

        def evaluate(expressions: Sequence[str]) -> Sequence[Value]:
            table = self._run(schema, "SELECT " + ", ".join(f"({text})" for text in expressions), ())
            return [from_arrow(column)[0] for column in table.columns]

        return evaluate

    def checks(self, schema: Schema) -> Callable[[Table, list[Row]], Sequence[tuple[int, str]]]:
        """Return an evaluator of the enforced checks of a table: (position of the row, name) where one is false."""

        def evaluate(table: Table, rows: list[Row]) -> Sequence[tuple[int, str]]:
            enforced = [c for c in table.checks if c.state >= ElementState.WRITE_ONLY]
            text = ", ".join(f"(({c.sql}) IS FALSE)" for c in enforced)
            found = self._run(schema, f'SELECT {text} FROM "{table.name}"', rows)
            return [
                (position, check.name)
                for check, column in zip(enforced, found.columns, strict=True)
                for position, broken in enumerate(column.to_pylist())
                if broken
            ]

        return evaluate

    def result_schema(self, schema: Schema, query: str, rows: Sequence[Row] = ()) -> pa.Schema:
        """Return the columns of a query's result; every table that it reads has these rows. Raises as evaluation."""
        return self._run(schema, query, rows).schema

    def _run(self, schema: Schema, text: str, rows: Sequence[Row]) -> pa.Table:
        with self._lock:
            prepared = self._plans.get(schema, text)
        if not isinstance(prepared, Prepared):
            (statement,) = parse(text)
            if not isinstance(statement, QueryStatement):
                raise F1Error(Code.INTERNAL, f"{text} is no query")
            prepared = prepare(schema, text, statement.ast.copy())
            with self._lock:
                self._plans.put(schema, text, prepared)
        # All rows are at hand, so there is nothing to choose.
        bound = prepared.bind((), self._clock.sample().tt.latest, RULE_NAMES)
        for function in bound.functions:
            argument, call = arrow_function(registry_of(schema), function, named=True)
            self._duck.function(function.name, argument, duck_name(function.result), call)
        connection = self._duck.connection()
        try:
            for planned in bound.scans:
                arrays = []
                fields = []
                for name, wanted in zip(planned.names, planned.scan.columns, strict=True):
                    arrays.append(_column(schema, planned.scan.table, wanted, rows))
                    fields.append(pa.field(name, arrays[-1].type))
                connection.register(planned.relation, pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
            return connection.table(bound.sql, bound.bound)
        finally:
            connection.close()


def _column(schema: Schema, table: Table, wanted: FieldWanted, rows: Sequence[Row]) -> "pa.Array":
    """Return a column of rows, or a field of its messages.

    Raises DATA_CORRUPTION for what is no message, FAILED_PRECONDITION for a number of an enum that has no name: under a
    later name a check might be false.
    """
    column = table.by_id[wanted.column_id]
    target = narrowed(sql_type(schema, table, wanted))
    values = [row.get(wanted.column_id) for row in rows]
    if not wanted.path:
        return to_arrow(column.type, values).cast(target)
    projection = registry_of(schema).projection(column.type.proto, [".".join(wanted.path)], named=True)
    return pa.array([projection.extract(v)[0] if isinstance(v, bytes) else None for v in values], target)
