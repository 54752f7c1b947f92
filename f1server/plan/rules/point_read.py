"""Answers a query that only picks columns of rows by their whole keys without DuckDB."""

from f1server.plan.planning import Planning
from f1server.plan.scans import PredicateOp


def apply(planning: Planning) -> None:
    """Note that the scan is the answer: one table, plain columns, and conditions that are exactly its keys."""
    shape = planning.shape
    if not shape.simple or shape.picks is None or len(planning.tables) != 1:
        return
    plan = planning.tables[0]
    equal = [c for c in plan.comparisons if c.op is PredicateOp.EQ]
    keys = plan.table.key_column_ids
    exact = len(equal) == shape.conditions == len(keys) and {c.field.column_id for c in equal} == set(keys)
    if exact and plan.scan.is_point and len(plan.scan.spans) == 1 and not plan.skipped and not plan.scan.empty:
        planning.point = True
