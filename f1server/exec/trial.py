"""Tries the expressions of a new schema, so that DDL refuses what would fail for whoever writes or reads afterwards."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Check, Column, Schema, Table
from f1server.exec.rowwise import RowEvaluator
from f1server.history.table import with_history
from f1server.rows.coerce import coerce_column

__all__ = ["ExpressionTrial"]

T = TypeVar("T")


class ExpressionTrial:
    """Evaluates defaults over no row, checks over a row of NULLs, and views over empty tables."""

    def __init__(self, evaluator: RowEvaluator) -> None:
        self._evaluator = evaluator

    def __call__(self, old: Schema, new: Schema) -> None:
        """Try what ``new`` has and ``old`` has not, or not so. Raises INVALID_ARGUMENT, naming what it is about."""
        tried = {_of_column(column) for table in old.tables for column in table.columns}
        held = {_of_check(check) for table in old.tables for check in table.checks}
        for table in new.tables:
            self._defaults(new, table, [c for c in table.columns if c.default_sql and _of_column(c) not in tried])
            self._checks(new, table, [c for c in table.checks if _of_check(c) not in held])
        views = {(view.name, view.sql) for view in old.views}
        for view in new.views:
            if (view.name, view.sql) not in views:
                query = f'SELECT * FROM "{view.name}"'
                _named(f"the view {view.name}", partial(self._evaluator.result_schema, with_history(new), query))

    def _defaults(self, schema: Schema, table: Table, columns: Sequence[Column]) -> None:
        def trial(some: Sequence[Column]) -> None:
            values = self._evaluator.defaults(schema)([column.default_sql for column in some])
            for column, value in zip(some, values, strict=True):
                coerce_column(schema, table, column, value)

        _together(columns, lambda column: f"the default of {table.name}.{column.name}", trial)

    def _checks(self, schema: Schema, table: Table, checks: Sequence[Check]) -> None:
        def trial(some: Sequence[Check]) -> None:
            query = f'SELECT {", ".join(f"({check.sql})" for check in some)} FROM "{table.name}"'
            kinds = self._evaluator.result_schema(schema, query, [{}]).types
            for check, kind in zip(some, kinds, strict=True):
                if not pa.types.is_boolean(kind):
                    raise F1Error(Code.INVALID_ARGUMENT, f"{check.sql} gives {kind}, not BOOL")

        _together(checks, lambda check: f"the CHECK {check.name} of {table.name}", trial)


def _together(items: Sequence[T], name: Callable[[T], str], trial: Callable[[Sequence[T]], None]) -> None:
    """Try all at once, since DuckDB takes longer to be asked than to answer; if that fails, one by one."""
    if not items:
        return
    try:
        trial(items)
    except F1Error:
        for item in items:
            _named(name(item), partial(trial, [item]))
        raise


def _of_column(column: Column) -> tuple[object, ...]:
    return column.id, column.default_sql, column.type


def _of_check(check: Check) -> tuple[object, ...]:
    return check.id, check.sql


def _named(what: str, trial: Callable[[], T]) -> T:
    try:
        return trial()
    except F1Error as error:
        if error.retryable:
            raise
        raise F1Error(Code.INVALID_ARGUMENT, f"{what} cannot be evaluated: {error.message}") from error
