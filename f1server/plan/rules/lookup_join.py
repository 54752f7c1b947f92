"""Reads a table at the keys that another table, which is read first, asks for.

With ``c.Name = 'ann' AND k.CustomerId = c.CustomerId``, the few customers of that name are read through the index, and
then only their campaigns. The outer table must be limited itself; if it asks for too many keys all the same, the inner
one is read whole (:class:`~f1server.plan.scans.Lookup`). Valid as carrying constants is: rows that are left out join
nothing.
"""

from collections.abc import Sequence

from f1server.plan.planning import Planning, TablePlan, covers, index_parts, key_parts, kind_of, usable_indexes
from f1server.plan.scans import FieldWanted, Lookup, PredicateOp
from f1server.rows.values import Value

Part = FieldWanted | tuple[Value]


def apply(planning: Planning) -> None:
    """Find lookups until there are no more: one may feed the next."""
    changed = True
    while changed:
        changed = False
        for plan in planning.tables:
            if not _is_whole(plan):
                continue
            plan.lookup = _best(planning, plan)
            changed = changed or plan.lookup is not None


def _is_whole(plan: TablePlan) -> bool:
    scan = plan.scan
    return not scan.spans and scan.index is None and not scan.empty and plan.lookup is None


def _is_limited(plan: TablePlan) -> bool:
    scan = plan.scan
    return bool(scan.spans) or scan.index is not None or scan.empty or plan.lookup is not None


def _best(planning: Planning, plan: TablePlan) -> Lookup | None:
    """Return the lookup with most parts: by the primary key, or else by an index."""
    outers = [o for o in planning.tables if o is not plan and _is_limited(o) and not _depends(planning, o, plan)]
    best: Lookup | None = None
    for outer in outers:
        parts = _parts(planning, plan, outer, key_parts(plan.table))
        if parts and (best is None or len(parts) > len(best.parts)):
            best = Lookup(outer.relation, tuple(parts))
    if best is not None:
        return best
    for outer in outers:
        for index in usable_indexes(planning.schema, plan.table):
            parts = _parts(planning, plan, outer, index_parts(index))
            if parts and (best is None or len(parts) > len(best.parts)):
                covering = covers(plan.table, index, plan.scan.columns)
                best = Lookup(outer.relation, tuple(parts), index, covering)
    return best


def _parts(planning: Planning, plan: TablePlan, outer: TablePlan, key: Sequence[FieldWanted]) -> list[Part]:
    """Return what gives the first parts of a key: columns of ``outer``, at least one, and constants."""
    parts: list[Part] = []
    for part in key:
        found: Part | None = _outer_column(planning, plan, outer, part) or _constant(plan, part)
        if found is None:
            break
        parts.append(found)
    return parts if any(isinstance(p, FieldWanted) for p in parts) else []


def _outer_column(planning: Planning, plan: TablePlan, outer: TablePlan, part: FieldWanted) -> FieldWanted | None:
    kind = kind_of(planning.schema, plan.table, part)
    for number, field in sorted(
        planning.limiting((plan.number, part)), key=lambda p: (p[0], p[1].column_id, p[1].path)
    ):
        fits = number == outer.number and field in outer.scan.columns
        if fits and kind is not None and kind is kind_of(planning.schema, outer.table, field):
            return field
    return None


def _constant(plan: TablePlan, part: FieldWanted) -> tuple[Value] | None:
    for comparison in plan.comparisons:
        if comparison.field == part and comparison.op is PredicateOp.EQ and len(comparison.values) == 1:
            return (comparison.values[0],)
    return None


def _depends(planning: Planning, plan: TablePlan, on: TablePlan) -> bool:
    """Is ``plan`` itself looked up by what ``on`` gives?"""
    by_relation = {t.relation: t for t in planning.tables}
    at: TablePlan | None = plan
    while at is not None and at.lookup is not None:
        at = by_relation.get(at.lookup.relation)
        if at is on:
            return True
    return False
