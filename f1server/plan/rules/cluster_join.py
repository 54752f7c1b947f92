"""Serves tables on one ancestry path with one storage request (cluster join, F1 section 3.1).

A parent row is followed by the rows of its descendants, so tables that are joined by the whole key of the upper one are
read in one pass over the same range of keys.
"""

from dataclasses import replace

from f1server.plan.conditions import Place
from f1server.plan.planning import Planning, TablePlan
from f1server.plan.scans import FieldWanted


def apply(planning: Planning) -> None:
    """Number the scans that can share a request."""
    groups: list[list[TablePlan]] = []
    for plan in sorted(planning.tables, key=lambda p: len(p.table.key_column_ids)):
        if plan.scan.index is not None or plan.scan.empty or plan.scan.limit is not None or plan.lookup is not None:
            continue
        for group in groups:
            if all(_joined(planning, other, plan) for other in group):
                group.append(plan)
                break
        else:
            groups.append([plan])
    for number, group in enumerate(g for g in groups if len(g) > 1):
        for plan in group:
            plan.scan = replace(plan.scan, ancestry=number)


def _joined(planning: Planning, upper: TablePlan, lower: TablePlan) -> bool:
    """Is ``lower`` below ``upper``, joined by its whole key, and read at the same keys?"""
    path = planning.schema.ancestors(lower.table)
    if upper.table is lower.table or upper.table not in path[:-1] or upper.scan.spans != lower.scan.spans:
        return False
    for mine, theirs in zip(upper.table.key_column_ids, lower.table.key_column_ids, strict=False):
        if (lower.number, FieldWanted(theirs)) not in _equal_to(planning, (upper.number, FieldWanted(mine))):
            return False
    return True


def _equal_to(planning: Planning, start: Place) -> set[Place]:
    """Return the columns that equalities tie to one."""
    found = {start}
    size = 0
    while size != len(found):
        size = len(found)
        for equality in planning.equalities:
            if equality.left in found or equality.right in found:
                found |= {equality.left, equality.right}
    return found
