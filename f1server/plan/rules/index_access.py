"""Reads a table through an index that conditions limit more than the primary key.

An index that does not hold all columns costs a lookup for each entry, so it must have an equality or two bounds; there
are no statistics. Unique indexes come first, then those with more equal parts, then covering ones.
"""

from dataclasses import replace

from f1server.plan.planning import Planning, access, covers, index_parts, key_parts, usable_indexes


def apply(planning: Planning) -> None:
    """Choose an index for each table, if one is better than what key_access found."""
    for plan in planning.tables:
        if plan.scan.empty or plan.scan.is_point:
            continue
        by_key = access(key_parts(plan.table), plan.comparisons) if plan.scan.spans else None
        best = None
        best_rank = (0, by_key.equal, 1, by_key.ranged) if by_key is not None else (0, 0, 0, 0)
        for index in usable_indexes(planning.schema, plan.table):
            found = access(index_parts(index), plan.comparisons)
            if found is None:
                continue
            covering = covers(plan.table, index, plan.scan.columns)
            if not covering and not found.equal and found.ranged < 2:
                continue
            whole = index.unique and found.equal == len(index.parts)
            rank = (int(whole), found.equal, int(covering), found.ranged)
            if rank > best_rank:
                best, best_rank = (index, found.spans, covering), rank
        if best is not None:
            index, spans, covering = best
            plan.scan = replace(plan.scan, spans=(), index=index, index_spans=spans, covering=covering)
