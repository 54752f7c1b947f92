"""Answers a query that only picks columns of the rows at a key, or below a prefix of one, without DuckDB."""

from f1server.plan.planning import Planning
from f1server.plan.scans import PredicateOp


def apply(planning: Planning) -> None:
    """Note that the scan is the answer: one table, plain columns, and conditions that are exactly the first key
    parts."""
    shape = planning.shape
    if not shape.simple or shape.picks is None or len(planning.tables) != 1:
        return
    plan = planning.tables[0]
    scan = plan.scan
    equal = [c for c in plan.comparisons if c.op is PredicateOp.EQ]
    parts = set(plan.table.key_column_ids[: len(equal)])
    exact = len(equal) == shape.conditions and {c.field.column_id for c in equal} == parts and len(scan.spans) == 1
    if exact and not plan.skipped and not scan.empty and len(scan.spans[0].prefix) == len(equal):
        planning.point = True
