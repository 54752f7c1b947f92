"""Reads no more rows than LIMIT asks for, where any rows will do: one table, no conditions, no order."""

from dataclasses import replace

from f1server.plan.planning import Planning


def apply(planning: Planning) -> None:
    """Push the limit into the only scan of a query without WHERE, ORDER BY, grouping and the like."""
    if planning.shape.limited and planning.limit is not None and len(planning.tables) == 1:
        plan = planning.tables[0]
        plan.scan = replace(plan.scan, limit=planning.limit)
