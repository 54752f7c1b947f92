"""Answers a query that only picks columns of the rows at a key, below a prefix of one, or in a range of keys, without
DuckDB, which takes longer to be asked than a few rows take to be read."""

from f1server.history.table import is_history_table
from f1server.plan.planning import Planning, TablePlan
from f1server.plan.rules.limit import is_key_order
from f1server.plan.scans import Direct, PredicateOp


def apply(planning: Planning) -> None:
    """Note that the scan is the answer: one table, plain columns, and conditions that are exactly the first key
    parts; or, if it gives few rows, with bounds of the next one, in the order of the key."""
    shape = planning.shape
    if shape.picks is None or len(planning.tables) != 1:
        return
    plan = planning.tables[0]
    if is_history_table(plan.table):
        return  # its rows are made of what whole roots have seen, and come in no order: conditions are tested again
    if shape.simple and _is_prefix(planning, plan):
        planning.point = True
    elif _is_range(planning, plan):
        planning.direct = Direct(shape.picks, -1 if shape.descending else 1)


def _is_prefix(planning: Planning, plan: TablePlan) -> bool:
    scan = plan.scan
    equal = [c for c in plan.comparisons if c.op is PredicateOp.EQ]
    parts = set(plan.table.key_column_ids[: len(equal)])
    exact = len(equal) == planning.shape.conditions and {c.field.column_id for c in equal} == parts
    if not exact or len(scan.spans) != 1 or plan.skipped or scan.empty:
        return False
    return len(scan.spans[0].prefix) == len(equal)


def _is_range(planning: Planning, plan: TablePlan) -> bool:
    shape = planning.shape
    if not (shape.simple or shape.order) or shape.offset or not is_key_order(planning, plan):
        return False
    if planning.limit is not None:
        return bool(plan.scan.in_key_order) and planning.limit <= Direct.MOST_ROWS
    return bool(plan.scan.spans)
