"""Lookup joins: a few rows of one table fetch the rows of another by its key (F1 section 8.2).

Each worker looks up what its own share of the outer table asks for, in batches; nothing moves.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from f1server.catalog.schema import Index
from f1server.plan.parts import PartScan
from f1server.plan.planning import covers, index_parts, key_parts, kind_of, usable_indexes
from f1server.plan.prepare import PlannedScan
from f1server.plan.scans import FieldWanted, Lookup
from f1server.plan.spread.estimates import table_rows
from f1server.plan.spread.joins import Pair, joined_dist, pairs_of
from f1server.plan.spread.relation import Rel

if TYPE_CHECKING:
    from f1server.plan.spread.queries import Planner

_FACTOR = 20
"""Looking a row up costs about as much as scanning so many."""
_MOST_KEYS = 20_000


def look_up(rels: Sequence[Rel], pool: list[exp.Expr], planner: "Planner") -> list[Rel]:
    """Merge relations that can be looked up into those that ask for them; conditions used are taken out of ``pool``."""
    found = list(rels)
    if planner.options.force:
        return found
    while (pair := _next(found, pool, planner)) is not None:
        outer, inner, lookup, pairs, rows = pair
        found.remove(inner)
        _merge(outer, inner, lookup, pool, pairs, rows)
    return found


def _next(
    rels: list[Rel], pool: list[exp.Expr], planner: "Planner"
) -> tuple[Rel, Rel, Lookup, list[Pair], float] | None:
    for outer in sorted(rels, key=lambda r: r.rows):
        if outer.inputs or not outer.scans or outer.rows > _MOST_KEYS:
            continue
        for inner in rels:
            if inner is outer or not _is_plain(inner):
                continue
            pairs = pairs_of(pool, outer, inner)
            lookup = _lookup(outer, inner, pairs, planner)
            if lookup is None:
                continue
            rows = outer.rows * _fanout(outer, inner, lookup, planner)
            if rows * _FACTOR <= table_rows(planner.statistics, inner.scans[0].planned.scan.table):
                return outer, inner, lookup, pairs, rows
    return None


def _fanout(outer: Rel, inner: Rel, lookup: Lookup, planner: "Planner") -> float:
    """Return about how many rows one key finds: if every row of the outer table asked, all would be found."""
    table = inner.scans[0].planned.scan.table
    if lookup.index is None and len(lookup.parts) == len(table.key_column_ids):
        return 1.0
    (asking,) = [s.planned.scan.table for s in outer.scans if s.planned.relation == lookup.relation]
    return max(1.0, table_rows(planner.statistics, table) / max(1.0, table_rows(planner.statistics, asking)))


def _is_plain(rel: Rel) -> bool:
    """Is this one table, read whole?"""
    if len(rel.scans) != 1 or rel.inputs or len(rel.source) != 1 or not isinstance(rel.source[0], exp.Table):
        return False
    planned = rel.scans[0].planned
    scan = planned.scan
    return planned.lookup is None and not scan.spans and scan.index is None and not scan.empty and scan.limit is None


def _lookup(outer: Rel, inner: Rel, pairs: Sequence[Pair], planner: "Planner") -> Lookup | None:
    planned = inner.scans[0].planned
    table = planned.scan.table
    choices: list[tuple[Index | None, Sequence[FieldWanted], bool]] = [(None, key_parts(table), False)]
    for usable in usable_indexes(planner.normal.schema, table):
        choices.append((usable, index_parts(usable), covers(table, usable, planned.scan.columns)))
    best: Lookup | None = None
    for index, key, covering in choices:
        for scan in outer.scans:
            given = _parts(scan.planned, planned, outer, inner, pairs, key, planner)
            if given and (best is None or len(given) > len(best.parts)):
                best = Lookup(scan.planned.relation, tuple(given), index, covering, _MOST_KEYS)
    return best


def _parts(
    outer: PlannedScan,
    inner: PlannedScan,
    outer_rel: Rel,
    inner_rel: Rel,
    pairs: Sequence[Pair],
    key: Sequence[FieldWanted],
    planner: "Planner",
) -> list[FieldWanted]:
    found: list[FieldWanted] = []
    schema = planner.normal.schema
    for part in key:
        kind = kind_of(schema, inner.scan.table, part)
        for pair in pairs:
            mine = _field(pair.left, outer, outer_rel)
            theirs = _field(pair.right, inner, inner_rel)
            if (
                mine is not None
                and theirs == part
                and kind is not None
                and kind is kind_of(schema, outer.scan.table, mine)
            ):
                found.append(mine)
                break
        else:
            break
    return found


def _field(node: exp.Expr, planned: PlannedScan, rel: Rel) -> FieldWanted | None:
    """Return which column of a scan an expression is."""
    if not isinstance(node, exp.Column):
        return None
    place = rel.map.get((node.table, node.name))
    alias = next(
        (s.alias for s in _tables(rel) if s.name == planned.relation),
        None,
    )
    if not isinstance(place, exp.Column) or place.table != alias or place.name not in planned.names:
        return None
    return planned.scan.columns[planned.names.index(place.name)]


def _tables(rel: Rel) -> list[exp.Table]:
    nodes = [s.this if isinstance(s, exp.Join) else s for s in rel.source]
    return [n for n in nodes if isinstance(n, exp.Table)]


def _merge(outer: Rel, inner: Rel, lookup: Lookup, pool: list[exp.Expr], pairs: list[Pair], rows: float) -> None:
    planned = replace(inner.scans[0].planned, lookup=lookup)
    outer.scans.append(PartScan(planned, divided=False))
    outer.map.update(inner.map)
    on = [c for c in pool if outer.knows({(x.table, x.name) for x in c.find_all(exp.Column)})]
    pool[:] = [c for c in pool if not any(c is o for o in on)]
    outer.where += inner.where
    join = exp.Join(this=inner.source[0], kind="INNER", on=exp.and_(*[outer.written(c) for c in on]))
    outer.source.append(join)
    outer.dist = joined_dist(outer.dist, outer.dist, "", pairs)
    outer.rows = rows
    outer.operators.append({"operator": "lookup join", "on": [str(c.sql("duckdb")) for c in on]})
