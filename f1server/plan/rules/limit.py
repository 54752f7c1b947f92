"""Reads no more rows than LIMIT asks for: any rows of a table, or the first ones in the order of its primary key."""

from dataclasses import replace

from f1server.catalog.schema import Kind
from f1server.plan.planning import Planning, TablePlan
from f1server.plan.scans import FieldWanted, PredicateOp

_MOST_IN_ORDER = 10_000
"""More rows than these are read quicker in bulk, and sorted."""

_EXACT = frozenset({Kind.BOOL, Kind.INT64, Kind.STRING, Kind.BYTES, Kind.DATE, Kind.TIMESTAMP})
"""Types whose bounds in keys select just what the comparison does; numbers with a scale or NaN may select more."""

_BOUNDS = frozenset({PredicateOp.GT, PredicateOp.GE, PredicateOp.LT, PredicateOp.LE})


def apply(planning: Planning) -> None:
    """Push the limit into the only scan of a query without grouping and the like."""
    if planning.limit is None or len(planning.tables) != 1:
        return
    plan = planning.tables[0]
    if planning.shape.limited:
        plan.scan = replace(plan.scan, limit=planning.limit)
    elif planning.shape.order and planning.limit <= _MOST_IN_ORDER and is_key_order(planning, plan):
        way = -1 if planning.shape.descending else 1
        plan.scan = replace(plan.scan, limit=planning.limit, in_key_order=way, predicates=())


def is_key_order(planning: Planning, plan: TablePlan) -> bool:
    """Tell whether the rows wanted are those of one span of the primary key, or its first ones, in its order.

    That is so if equalities fix the first key parts, one each, bounds limit the next one, no other condition is there,
    and ORDER BY names the parts that follow those that are fixed.
    """
    if plan.skipped or plan.scan.empty or plan.scan.index is not None or plan.lookup is not None:
        return False
    if len(plan.comparisons) != planning.shape.conditions or len(plan.scan.spans) != bool(plan.comparisons):
        return False
    key = plan.table.key_column_ids
    fixed = len(plan.scan.spans[0].prefix) if plan.scan.spans else 0
    exact = {FieldWanted(i) for i in key[: fixed + 1] if plan.table.by_id[i].type.kind in _EXACT}
    equal = {FieldWanted(i) for i in key[:fixed]}
    ranged = {FieldWanted(i) for i in key[fixed : fixed + 1]}
    still_free = set(equal)
    for comparison in plan.comparisons:
        by_equality = comparison.field in still_free and comparison.op is PredicateOp.EQ
        still_free.discard(comparison.field)
        by_bound = comparison.field in ranged and comparison.op in _BOUNDS
        if comparison.field not in exact or not (by_equality or by_bound):
            return False
    order = tuple(i for i in planning.shape.order if FieldWanted(i) not in equal)
    return order == key[fixed : fixed + len(order)]
