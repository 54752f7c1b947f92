"""Queries around SELECT while they are planned: unions, WITH, LIMIT, and the relations that FROM is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from f1server.plan.parts import PartScan, Spread
from f1server.plan.prepare import PlannedScan
from f1server.plan.spread.builder import Builder, read_operator
from f1server.plan.spread.estimates import scanned_rows
from f1server.plan.spread.joins import JoinOptions
from f1server.plan.spread.normal import OUTPUT, Item, Named, Normal, Unspreadable
from f1server.plan.spread.relation import (
    ANY,
    ONE,
    Dist,
    Draft,
    Placement,
    Ref,
    Rel,
    aliased,
    column_of,
    refs_of,
    rewritten,
    table,
)
from f1server.plan.statistics import Statistics
from f1server.plan.types import META, infer


@dataclass(slots=True, eq=False)
class Sealed:
    """A planned query: ``rel`` gives its columns under the references ``outputs``, and those that ORDER BY needs.

    ``order`` are references with their direction; ``limit`` and ``offset`` are still to be applied by whoever has all
    rows.
    """

    rel: Rel
    outputs: list[Ref]
    columns: tuple[Named, ...]
    order: list[exp.Ordered] = field(default_factory=list)
    limit: exp.Expr | None = None
    offset: exp.Expr | None = None

    @property
    def refs(self) -> set[Ref]:
        """All columns that it gives."""
        return {*self.outputs, *(r for o in self.order for r in refs_of(o))}


@dataclass(slots=True, eq=False)
class Planner:
    """Plans one statement. ``scans``: how each base table is read, by number; ``select`` plans one SELECT."""

    normal: Normal
    scans: dict[int, PlannedScan]
    statistics: Statistics
    options: JoinOptions
    select: Callable[["Planner", exp.Select], "Sealed"]
    builder: Builder = field(default_factory=Builder)
    kept: dict[int, tuple[Draft, Sealed]] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)

    # ------------------------------------------------------------------ queries

    def query(self, node: exp.Expr) -> Sealed:
        """Plan a query in normal form, with its ORDER BY and LIMIT. Raises Unspreadable."""
        while isinstance(node, exp.Subquery | exp.Paren):
            node = node.this
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node)
        if isinstance(node, exp.Select):
            return self.select(self, node)
        raise Unspreadable(f"{type(node).__name__.upper()} as a query")

    def finished(self, sealed: Sealed) -> Sealed:
        """Apply LIMIT to a query that is not the outermost; its order means nothing otherwise."""
        if sealed.limit is None and sealed.offset is None:
            return Sealed(sealed.rel, sealed.outputs, sealed.columns)
        rel = self.topped(sealed)
        if rel.dist.placement is not Placement.ONE:
            rel = self.builder.close(rel, sealed.refs, Spread.GATHER)
        select = rel.select(self._listed(rel, sealed.outputs))
        self.tail(select, rel, sealed, sealed.limit, sealed.offset)
        return Sealed(*self.wrapped(rel, select, len(sealed.outputs), rel.rows, sealed.columns), sealed.columns)

    def topped(self, sealed: Sealed) -> Rel:
        """Keep of each worker's rows what LIMIT can need (top-N)."""
        rel = sealed.rel
        limit = sealed.limit
        if rel.dist.placement is Placement.ONE or limit is None or not _is_count(limit):
            return rel
        if sealed.offset is not None:
            if not _is_count(sealed.offset):
                return rel
            limit = exp.Add(this=limit.copy(), expression=sealed.offset.copy())
        refs = sorted(sealed.refs)
        select = rel.select(self._listed(rel, refs))
        self.tail(select, rel, sealed, limit, None)
        alias = self.builder.query_alias()
        places: dict[Ref, exp.Expr] = {ref: column_of(alias, f"c{i}", rel.map[ref]) for i, ref in enumerate(refs)}
        found = Rel([aliased(select, alias)], places, rel.dist.only(refs), min(rel.rows, 10_000))
        found.take(rel)
        found.operators.append({"operator": "top-n" if sealed.order else "limit", "per": "worker"})
        return found

    @staticmethod
    def _listed(rel: Rel, refs: Sequence[Ref]) -> list[exp.Expr]:
        return [exp.alias_(rel.map[ref].copy(), f"c{i}", quoted=True) for i, ref in enumerate(refs)]

    @staticmethod
    def tail(select: exp.Select, rel: Rel, sealed: Sealed, limit: exp.Expr | None, offset: exp.Expr | None) -> None:
        if sealed.order:
            select.set("order", exp.Order(expressions=[rel.written(o) for o in sealed.order]))
        if limit is not None:
            select.set("limit", exp.Limit(expression=limit.copy()))
        if offset is not None:
            select.set("offset", exp.Offset(expression=offset.copy()))

    def wrapped(
        self, rel: Rel, select: exp.Expr, width: int, rows: float, columns: Sequence[Named]
    ) -> tuple[Rel, list[Ref]]:
        """Make a whole query whose columns are c0, c1, ... a relation; return it and the references of its columns."""
        alias = self.builder.query_alias()
        outputs = [(alias, f"c{i}") for i in range(width)]
        places: dict[Ref, exp.Expr] = {}
        for ref, column in zip(outputs, columns, strict=False):
            found = exp.column(ref[1], table=alias, quoted=True)
            found.meta[META] = column.type
            places[ref] = found
        made = Rel([aliased(select, alias)], places, rel.dist, rows)
        made.take(rel)
        return made, outputs

    def _set_operation(self, node: exp.SetOperation) -> Sealed:
        sides = [self.finished(self.query(side)) for side in (node.this, node.expression)]
        keep_all = isinstance(node, exp.Union) and not node.args.get("distinct")
        rels = [side.rel for side in sides]
        placements = [rel.dist.placement for rel in rels]
        alone = all(p in (Placement.ONE, Placement.COPY) for p in placements)
        spread = keep_all and not any(p in (Placement.ONE, Placement.COPY) for p in placements)
        if not spread and not alone:
            rels = [
                rel if rel.dist.placement is Placement.ONE else self.builder.close(rel, side.outputs, Spread.GATHER)
                for rel, side in zip(rels, sides, strict=True)
            ]
        dist = ANY if spread else ONE
        selects = [rel.select(self._listed(rel, side.outputs)) for rel, side in zip(rels, sides, strict=True)]
        kind = type(node)
        union = kind(this=selects[0], expression=selects[1], distinct=node.args.get("distinct"))
        first = Rel([], {}, dist, sum(rel.rows for rel in rels))
        for rel in rels:
            first.take(rel)
        first.operators.append({"operator": kind.__name__.lower(), "distinct": bool(node.args.get("distinct"))})
        columns = tuple(
            replace(a, type=a.type if a.type == b.type else Named("").type)
            for a, b in zip(sides[0].columns, sides[1].columns, strict=True)
        )
        made, outputs = self.wrapped(first, union, len(columns), first.rows, columns)
        order = _output_order(node, outputs)
        return Sealed(made, outputs, columns, order, limit_of(node, "limit"), limit_of(node, "offset"))

    # ------------------------------------------------------------------ relations of FROM

    def base(self, item: Item) -> Rel:
        """Return the relation of a base table."""
        number = item.table if item.table is not None else -1
        planned = self.scans[number]
        rows = scanned_rows(self.statistics, planned.scan)
        name = planned.relation
        source = table(name, item.alias)
        names = [c.name for c in item.columns]
        if tuple(names) != planned.names:
            source.args["alias"].set("columns", [exp.to_identifier(n, quoted=True) for n in names])
        places: dict[Ref, exp.Expr] = {}
        for column in item.columns:
            found = exp.column(column.name, table=item.alias, quoted=True)
            found.meta[META] = column.type
            places[(item.alias, column.name)] = found
        return Rel([source], places, self._range(item, planned), rows, scans=[PartScan(planned)])

    def _range(self, item: Item, planned: PlannedScan) -> Dist:
        """A table that is read by its own key is divided by ranges of its root's key."""
        scan = planned.scan
        if scan.index is not None:
            return ANY
        root = self.normal.schema.ancestors(scan.table)[0]
        place = {w.column_id: n.name for w, n in zip(scan.columns, item.columns, strict=True) if not w.path}
        ids = scan.table.key_column_ids[: len(root.key_column_ids)]
        # Without a column of the root's key nothing can be known to be equal to it.
        keys = tuple(frozenset({(item.alias, place[i])}) if i in place else frozenset[Ref]() for i in ids)
        return Dist(Placement.RANGE, keys, (), root.id) if all(keys) else ANY

    def cte(self, item: Item) -> Rel:
        """Return the relation of a query of WITH: planned in place if it is used once, else a part of its own."""
        number = item.cte if item.cte is not None else -1
        node, _ = self.normal.ctes[number]
        if self.uses.get(number, 0) <= 1:
            return self.derived(item, self.finished(self.query(node)))
        if number not in self.kept:
            sealed = self.finished(self.query(node))
            rel = sealed.rel
            draft = self.builder.draft(rel, rel.select(self._listed(rel, sealed.outputs)))
            self.kept[number] = (draft, sealed)
        draft, sealed = self.kept[number]
        exchange = self.builder.exchange(draft, Spread.KEEP)
        places: dict[Ref, exp.Expr] = {}
        refs: dict[Ref, Ref] = {}
        for i, (column, ref) in enumerate(zip(item.columns, sealed.outputs, strict=True)):
            places[(item.alias, column.name)] = column_of(exchange.relation, f"c{i}", sealed.rel.map[ref])
            refs[ref] = (item.alias, column.name)
        dist = sealed.rel.dist.only(sealed.outputs)
        if dist.placement is Placement.COPY:
            dist = ONE
        dist = replace(dist, keys=tuple(frozenset(refs[r] for r in key) for key in dist.keys))
        found = Rel([table(exchange.relation)], places, dist, sealed.rel.rows, inputs=[exchange])
        found.operators.append(read_operator(exchange))
        return found

    def derived(self, item: Item, sealed: Sealed) -> Rel:
        """Return a planned query under the names of a relation of FROM."""
        rel = sealed.rel
        refs = {ref: (item.alias, c.name) for ref, c in zip(sealed.outputs, item.columns, strict=True)}
        rel.map = {refs[ref]: rel.map[ref] for ref in sealed.outputs}
        dist = rel.dist.only(sealed.outputs)
        rel.dist = replace(dist, keys=tuple(frozenset(refs[r] for r in key if r in refs) for key in dist.keys))
        return rel


def _is_count(node: exp.Expr) -> bool:
    """Is this a plain number, or a parameter?"""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return isinstance(node, exp.Literal | exp.Var)


def limit_of(node: exp.Expr, key: str) -> exp.Expr | None:
    """Return the number of LIMIT or OFFSET (``key``) of a query. Raises Unspreadable for one that is computed."""
    part = node.args.get(key)
    found = part.expression if isinstance(part, exp.Limit | exp.Offset) else None
    if part is not None and found is None:
        raise Unspreadable(f"this form of {key.upper()}")
    if found is not None and found.find(exp.Query, exp.Column):
        raise Unspreadable(f"{key.upper()} with a query")
    return found


def by_outputs(node: exp.Select, projections: Sequence[exp.Expr]) -> list[exp.Ordered]:
    """Return what ORDER BY sorts by; what stands in the select list, too, is that column of the result."""
    order = node.args.get("order")
    found: list[exp.Ordered] = list(order.expressions) if order is not None else []
    for ordered in found:
        at = next((i for i, p in enumerate(projections) if p == ordered.this), None)
        if at is not None:
            column = exp.column(f"{OUTPUT}{at}", quoted=True)
            column.meta[META] = infer(ordered.this)
            ordered.this.replace(column)
    return found


def _output_order(node: exp.Expr, outputs: Sequence[Ref]) -> list[exp.Ordered]:
    order = node.args.get("order")
    places: dict[Ref, exp.Expr] = {
        ("", f"{OUTPUT}{i}"): exp.column(ref[1], table=ref[0], quoted=True) for i, ref in enumerate(outputs)
    }
    return [rewritten(o, places) for o in order.expressions] if order is not None else []  # type: ignore[misc]
