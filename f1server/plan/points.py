"""Queries for columns of the one row at a whole key: all but the values is worked out once, with the statement."""

from collections.abc import Sequence
from dataclasses import dataclass

from f1server.catalog.schema import Kind, Schema, Table
from f1server.history.table import is_history_table
from f1server.plan.conditions import Conditions
from f1server.plan.constants import Constant, Unfit, evaluate
from f1server.plan.names import BaseTable
from f1server.plan.planning import Shape, kind_of
from f1server.plan.scans import PredicateOp
from f1server.rows.keys import row_key
from f1server.rows.values import Value


@dataclass(frozen=True, slots=True)
class Point:
    """Where the row is: a constant or parameter for each part of the key, in order, with the part's type.

    ``picks`` are the names of the columns that are the result, as in :class:`~f1server.plan.prepare.BoundQuery`.
    """

    table: Table
    picks: tuple[str, ...]
    parts: tuple[tuple[Constant, Kind], ...]

    def values(self, params: Sequence[object], now_us: int) -> tuple[Value, ...] | None:
        """Return the primary key of the row; None if a value is NULL or none of its column's type."""
        values: list[Value] = []
        for part, kind in self.parts:
            value = evaluate(part, kind, params, now_us)
            if value is None or isinstance(value, Unfit):
                return None
            values.append(value)
        return tuple(values)

    def key(self, schema: Schema, params: Sequence[object], now_us: int) -> bytes | None:
        """Return the storage key of the row; None as :meth:`values`."""
        values = self.values(params, now_us)
        return None if values is None else row_key(schema, self.table, values)


def point_of(schema: Schema, tables: Sequence[BaseTable], conditions: Conditions, shape: Shape) -> Point | None:
    """Return what row a query is about; None unless its conditions are a value for each part of the key, once."""
    if not shape.simple or shape.picks is None or len(tables) != 1 or is_history_table(tables[0].table):
        return None
    table, comparisons = tables[0].table, conditions.of(tables[0].number)
    parts: dict[int, tuple[Constant, Kind]] = {}
    for comparison in comparisons:
        kind = kind_of(schema, table, comparison.field)
        if comparison.op is not PredicateOp.EQ or comparison.field.path or kind is None:
            return None
        parts[comparison.field.column_id] = (comparison.constants[0], kind)
    wanted = table.key_column_ids
    if not len(parts) == len(comparisons) == shape.conditions == len(wanted) or parts.keys() != set(wanted):
        return None
    return Point(table, shape.picks, tuple(parts[column_id] for column_id in wanted))
