"""UPDATE and DELETE of the row at a key, when what is assigned needs no evaluator: constants, and numbers added to a
column or taken from it.

Such statements are most of what applications write. DuckDB takes longer to be asked than the row takes to be read and
written. What does not fit here exactly as DuckDB would do it (other types, results out of range) is
:class:`NotKeyed`, and goes the general way, where it also gets its error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from f1common.encoding.values import INT64_MAX, INT64_MIN, NUMERIC_SCALE, numeric_from_units, numeric_units
from f1common.errors import F1Error
from f1server.catalog.schema import Column, Kind, Table
from f1server.plan.constants import Constant, assignable, assigned
from f1server.plan.points import Point, point_of
from f1server.plan.prepare import Prepared, planned_scans
from f1server.plan.scans import KeySpan, TableScan
from f1server.rows.values import Row, Value

_EXACT_IN_DOUBLE = 1 << 53
_LARGE = 10**18
"""NUMERIC values and what is added to them are smaller than this: far from where a DECIMAL overflows."""


class NotKeyed(Exception):
    """What is assigned has to be worked out by the evaluator after all."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A number added to a column of the row (``sign`` 1) or taken from it (-1)."""

    column: Column
    sign: int
    number: Constant


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """The row at a key, and what is assigned to it.

    ``query`` finds the row; ``point`` says where it is, if that needs no plan.
    """

    query: Prepared
    assigned: tuple[tuple[Column, Constant | Sum], ...]
    point: Point | None

    def scan(self, params: Sequence[object], now_us: int) -> TableScan | None:
        """Return the scan of that row, or None if the condition is no whole key, given these parameters."""
        if self.point is not None and (values := self.point.values(params, now_us)) is not None:
            return TableScan(self.point.table, tuple(self.query.tables[0].in_order()), (KeySpan(values),))
        planning = self.query.plan(params, now_us)
        if not planning.point:
            return None
        (planned,) = planned_scans(planning.tables)
        return planned.scan if planned.scan.is_point else None

    def values(self, row: Row, params: Sequence[object], now_us: int) -> dict[int, Value]:
        """Return what is assigned, by column, before it is converted to the columns' types.

        Raises NotKeyed; F1Error INVALID_ARGUMENT for parameters that are missing or no values.
        """
        return {
            column.id: _sum(row.get(what.column.id), what, params, now_us)
            if isinstance(what, Sum)
            else assigned(what, params, now_us)
            for column, what in self.assigned
        }


def keyed(query: Prepared, assignments: Sequence[tuple[Column, Constant | Sum | None]]) -> Keyed | None:
    """Return how a statement goes by key, None if it does not. ``query`` is the one for the rows that it changes."""
    if not query.shape.simple or any(what is None for _, what in assignments):
        return None
    # The rows are all that is asked of the query: its select list is of no interest to the rules.
    rows = replace(query, shape=replace(query.shape, picks=()))
    point = point_of(rows.schema, rows.tables, rows.conditions, rows.shape)
    return Keyed(rows, tuple((column, what) for column, what in assignments if what is not None), point)


def computation(table: Table, alias: str, node: exp.Expr) -> Constant | Sum | None:
    """Return what of this kind an assigned expression is, or None. Its names are not looked up yet."""
    found = assignable(node)
    if found is not None:
        return found
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    left, right = node.this, node.expression
    if isinstance(node, exp.Add) and isinstance(right, exp.Column):
        left, right = right, left
    column, number = _own_column(table, alias, left), assignable(right)
    if column is None or number is None:
        return None
    return Sum(column, -1 if isinstance(node, exp.Sub) else 1, number)


def _own_column(table: Table, alias: str, node: exp.Expr) -> Column | None:
    if not isinstance(node, exp.Column) or node.args.get("db") or isinstance(node.this, exp.Star):
        return None
    if node.table and node.table.lower() != alias.lower():
        return None
    column = table.by_name.get(node.name.lower())
    fits = column is not None and column.type.kind in (Kind.INT64, Kind.NUMERIC, Kind.DOUBLE)
    return column if fits else None


def _sum(value: Value, what: Sum, params: Sequence[object], now_us: int) -> Value:
    number = assigned(what.number, params, now_us)
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal | None):
        raise NotKeyed
    if value is None or number is None:
        return None
    match what.column.type.kind:
        case Kind.INT64 if isinstance(value, int) and isinstance(number, int):
            return _whole(value, what.sign * number)
        case Kind.NUMERIC if isinstance(value, Decimal) and isinstance(number, int | Decimal):
            return _scaled(value, what.sign, number)
        case Kind.DOUBLE if isinstance(value, float) and isinstance(number, int | float):
            return _double(value, what.sign, number)
    raise NotKeyed


def _whole(value: int, number: int) -> int:
    if INT64_MIN <= value + number <= INT64_MAX and abs(number) <= INT64_MAX:
        return value + number
    raise NotKeyed


def _scaled(value: Decimal, sign: int, number: int | Decimal) -> Decimal:
    exact = Decimal(number)
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -NUMERIC_SCALE or abs(exact) >= _LARGE or abs(value) >= _LARGE:
        raise NotKeyed
    try:
        # In units, because a Decimal's own sum is rounded to the digits of its context.
        return numeric_from_units(numeric_units(value) + sign * numeric_units(exact))
    except F1Error as error:
        raise NotKeyed from error


def _double(value: float, sign: int, number: float) -> float:
    if isinstance(number, int) and abs(number) > _EXACT_IN_DOUBLE:
        raise NotKeyed
    total = value + sign * float(number)
    if not math.isfinite(total):
        raise NotKeyed
    return total
