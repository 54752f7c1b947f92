"""Carries constants over equalities: with ``a.k = b.k AND a.k = 5``, ``b`` is read at 5 only."""

from f1server.plan.planning import Evaluated, Planning, kind_of
from f1server.plan.scans import PredicateOp

_CARRIED = frozenset({PredicateOp.EQ, PredicateOp.IN, PredicateOp.LT, PredicateOp.LE, PredicateOp.GT, PredicateOp.GE})


def apply(planning: Planning) -> None:
    """Repeat until nothing new is found: equalities form chains."""
    tables = planning.by_number()
    pairs = [(e.left, e.right) for e in planning.equalities]
    pairs += [(e.right, e.left) for e in planning.equalities if e.both]
    changed = True
    while changed:
        changed = False
        for (from_table, from_field), (to_table, to_field) in pairs:
            source, target = tables.get(from_table), tables.get(to_table)
            if source is None or target is None or source is target:
                continue
            kind = kind_of(planning.schema, target.table, to_field)
            if kind is None or kind is not kind_of(planning.schema, source.table, from_field):
                continue
            for known in list(source.comparisons):
                carried = Evaluated(to_field, known.op, known.values)
                if known.field == from_field and known.op in _CARRIED and carried not in target.comparisons:
                    target.comparisons.append(carried)
                    target.empty = target.empty or not carried.values  # compared with NULL
                    changed = True
