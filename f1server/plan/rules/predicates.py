"""Lets the storage tier test comparisons of columns with constants, so that fewer rows travel."""

from dataclasses import replace

from f1server.plan.planning import Planning
from f1server.plan.scans import PredicateOp, SimplePredicate


def apply(planning: Planning) -> None:
    """Push every comparison of a whole column; those of fields inside messages are tested by DuckDB."""
    for plan in planning.tables:
        pushed = tuple(
            SimplePredicate(c.field, c.op, c.values)
            for c in plan.comparisons
            if not c.field.path and (c.values or c.op in (PredicateOp.IS_NULL, PredicateOp.IS_NOT_NULL))
        )
        if pushed and not plan.scan.empty:
            plan.scan = replace(plan.scan, predicates=pushed)
