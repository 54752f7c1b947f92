"""Reads a table once for all places of a statement that read the same rows of it, with the columns of all of them."""

from dataclasses import replace

from f1server.plan.planning import Planning, TablePlan
from f1server.plan.scans import FieldWanted


def apply(planning: Planning) -> None:
    """Give places that read the same rows one scan."""
    groups: list[list[TablePlan]] = []
    for plan in planning.tables:
        if plan.lookup is not None or plan.scan.limit is not None:
            continue
        for group in groups:
            if _same_rows(group[0], plan):
                group.append(plan)
                break
        else:
            groups.append([plan])
    for number, group in enumerate(g for g in groups if len(g) > 1):
        columns: dict[FieldWanted, None] = {wanted: None for plan in group for wanted in plan.scan.columns}
        scan = replace(group[0].scan, columns=tuple(columns), covering=all(p.scan.covering for p in group))
        for plan in group:
            plan.shared = f"f1_s{number}"
            plan.own_columns = plan.scan.columns
            plan.scan = scan


def _same_rows(one: TablePlan, other: TablePlan) -> bool:
    a, b = one.scan, other.scan
    same_index = (a.index.id if a.index is not None else 0) == (b.index.id if b.index is not None else 0)
    return (
        a.table is b.table
        and same_index
        and (a.spans, a.index_spans, a.predicates, a.ancestry, a.empty)
        == (b.spans, b.index_spans, b.predicates, b.ancestry, b.empty)
    )
