"""Whether rows honour what is new, and what columns that are filled are to have (schema-change paper, section 4.3)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ForeignKey, Schema, Table
from f1server.rows.coerce import coerce_column
from f1server.rows.constraints import reference_of
from f1server.rows.defaults import literal_value
from f1server.rows.images import Image, describe_key
from f1server.rows.rowcodec import row_of
from f1server.rows.values import Row, Value
from f1server.schemachange.work.changes import Stored
from f1server.schemachange.work.tablework import TableWork
from spanstore.client import SpanClient

__all__ = ["RowEvaluators", "filled_value", "fills_of", "validate"]


class RowEvaluators(Protocol):
    """SQL over rows that are at hand (:class:`f1server.exec.rowwise.RowEvaluator`)."""

    def defaults(self, schema: Schema) -> Callable[[Sequence[str]], Sequence[Value]]:
        """Return an evaluator of expressions over no row."""

    def checks(self, schema: Schema) -> Callable[[Table, list[Row]], Sequence[tuple[int, str]]]:
        """Return an evaluator of the enforced checks of a table: (position of the row, name) where one is false."""


def fills_of(
    evaluators: Callable[[], RowEvaluators], schema: Schema, work: TableWork, rows: Iterable[Stored]
) -> dict[bytes, dict[int, Value]]:
    """Return, for the key of each row, what the filled columns are to have; expressions are evaluated for each row."""
    wanted: dict[bytes, dict[int, Value]] = {row.key: {} for row in rows}
    for column in work.columns:
        literal = literal_value(column.default_sql)
        if literal is not None:
            values: Sequence[Value] = [literal[0]] * len(wanted)
        else:
            try:
                values = evaluators().defaults(schema)([column.default_sql] * len(wanted))
            except F1Error as error:
                raise _not_evaluated(error, f"the default of column {work.table.name}.{column.name}") from error
        for fills, value in zip(wanted.values(), values, strict=True):
            fills[column.id] = filled_value(schema, work.table, column, value)
    return wanted


def filled_value(schema: Schema, table: Table, column: Column, default: Value) -> Value:
    """Return what a row gets in a new column whose default is ``default``.

    Raises F1Error as :func:`coerce_column`; FAILED_PRECONDITION if that is NULL and the column NOT NULL.
    """
    value = coerce_column(schema, table, column, default)
    if value is None and column.not_null:
        raise F1Error(
            Code.FAILED_PRECONDITION,
            f"column {table.name}.{column.name} cannot be NOT NULL: its default is NULL for rows that are there; "
            "give it another default",
            details={"table": table.name, "column": column.name},
        )
    return value


async def validate(
    client: SpanClient,
    evaluators: Callable[[], RowEvaluators],
    schema: Schema,
    work: TableWork,
    stored: Sequence[Stored],
    snapshot: int,
) -> None:
    """Raise FAILED_PRECONDITION with a row for example if rows of ``snapshot`` break a new constraint."""
    table = work.table
    rows = [row_of(table, item.primary, item.cells) for item in stored]
    for column in work.not_null:
        for item, row in zip(stored, rows, strict=True):
            if row[column.id] is None:
                what = f"column {table.name}.{column.name} cannot be NOT NULL: it is NULL in the row"
                raise _broken(what, table, item.primary)
    if work.checks:
        for position, name in _failed(evaluators().checks(schema), table, stored, rows):
            raise _broken(f"check {name} fails for the row of {table.name}", table, stored[position].primary)
    for foreign in work.foreign_keys:
        await _validate_references(client, schema, table, foreign, list(zip(stored, rows, strict=True)), snapshot)


def _failed(
    evaluate: Callable[[Table, list[Row]], Sequence[tuple[int, str]]],
    table: Table,
    stored: Sequence[Stored],
    rows: list[Row],
) -> Sequence[tuple[int, str]]:
    """Return which rows break which checks. Raises what the first of the rows does that cannot be evaluated."""
    try:
        return evaluate(table, rows)
    except F1Error as error:
        if len(rows) == 1:
            which = f"the row with {describe_key(table, stored[0].primary)}"
            raise _not_evaluated(error, f"a check of table {table.name}", which) from error
    middle = len(rows) // 2
    first = _failed(evaluate, table, stored[:middle], rows[:middle])
    return first or [(middle + i, name) for i, name in _failed(evaluate, table, stored[middle:], rows[middle:])]


def _not_evaluated(error: F1Error, what: str, which: str = "the rows that are there") -> F1Error:
    """Return an error of an expression with what it was evaluated for: the user has not sent it with this row."""
    text = f"{what} cannot be evaluated for {which}: {error.message}; nothing was changed"
    return F1Error(error.code, text, retryable=error.retryable, details=error.details)


async def _validate_references(
    client: SpanClient,
    schema: Schema,
    table: Table,
    foreign: ForeignKey,
    rows: list[tuple[Stored, Row]],
    snapshot: int,
) -> None:
    wanted: dict[bytes, tuple[Value, ...]] = {}
    for item, row in rows:
        reference = reference_of(schema, Image(table, item.primary, item.key, None, None, None, row), foreign)
        if reference is not None:
            wanted.setdefault(reference.key, item.primary)
    keys = sorted(wanted)
    found = (await client.read(keys, timestamp=snapshot)).versions if keys else []
    for key, version in zip(keys, found, strict=True):
        if version is None or version.value is None:
            target = schema.by_id[foreign.referenced_table_id]
            what = f"foreign key {foreign.name}: {target.name} has no row for the row of {table.name}"
            raise _broken(what, table, wanted[key])


def _broken(what: str, table: Table, primary: tuple[Value, ...]) -> F1Error:
    key = describe_key(table, primary)
    return F1Error(
        Code.FAILED_PRECONDITION,
        f"{what} with {key}; nothing was changed. Mend such rows, then try again",
        details={"table": table.name, "key": key},
    )
