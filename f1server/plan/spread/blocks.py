"""Plans one SELECT: its relations are joined, grouped, and what it selects is computed, each where the rows are."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from f1server.plan.conditions import comparisons, conjuncts
from f1server.plan.parts import Spread
from f1server.plan.spread import aggregates
from f1server.plan.spread.builder import Key, own_cast
from f1server.plan.spread.estimates import filtered
from f1server.plan.spread.groups import Grouper, is_whole
from f1server.plan.spread.joins import Joiner, Pair, pairs_of
from f1server.plan.spread.lookups import look_up
from f1server.plan.spread.normal import OUTPUT, Named, Unspreadable
from f1server.plan.spread.queries import Planner, Sealed, by_outputs, limit_of
from f1server.plan.spread.relation import (
    ANY,
    COPY,
    Dist,
    Placement,
    Ref,
    Rel,
    aliased,
    column_of,
    free_refs,
    refs_of,
    rewritten,
)
from f1server.plan.spread.subqueries import placed
from f1server.plan.types import META, infer


@dataclass(slots=True, eq=False)
class Block:
    """One SELECT while it is planned. ``later``: expressions that are still to be computed from its relations."""

    planner: Planner
    node: exp.Select
    later: list[exp.Expr] = field(default_factory=list)

    def plan(self) -> Sealed:
        node = self.node
        projections = [p.unalias() for p in node.expressions]
        order: list[exp.Expr] = [*by_outputs(node, projections)]
        having = list(conjuncts(node.args["having"].this)) if node.args.get("having") is not None else []
        group = list(node.args["group"].expressions) if node.args.get("group") is not None else []
        distinct = node.args.get("distinct") is not None
        self.later = [*projections, *order, *having, *group]
        rel = self._from_where()
        columns = tuple(Named(p.alias_or_name, infer(p)) for p in node.expressions)
        calls = [c for e in (*projections, *having, *order) for c in aggregates.calls_of(e)]
        if having and not group and not calls:
            calls = [exp.Count(this=exp.Star())]  # HAVING alone makes one group of all rows
        if group or calls or node.args.get("group") is not None:
            rel, places = Grouper(self.planner.builder).aggregate(rel, group, calls)
            projections = [aggregates.substituted(p, places) for p in projections]
            having = [aggregates.substituted(h, places) for h in having]
            order = [aggregates.substituted(o, places) for o in order]
            self.later = [*projections, *order, *having]
        for condition in having:
            rel, found = self._placed(rel, condition)
            rel.where.append(found)
        return self._project(rel, projections, order, columns, distinct)

    # ------------------------------------------------------------------ FROM and WHERE

    def _from_where(self) -> Rel:
        node = self.node
        pool = list(conjuncts(node.args["where"].this)) if node.args.get("where") is not None else []
        start = node.args.get("from_")
        if start is None:
            one = exp.select(exp.alias_(exp.Literal.number(1), "one"))
            return self._subqueries(Rel([aliased(one, self.planner.builder.query_alias())], {}, COPY, 1.0), pool)
        joins = list(node.args.get("joins") or ())
        whole = any(str(j.args.get("side") or "").upper() in ("RIGHT", "FULL") for j in joins)
        deferred, pool = (pool, []) if whole else ([], pool)
        deferred += [c for c in pool if c.find(exp.Query)]
        pool = [c for c in pool if not c.find(exp.Query)]
        items: list[Rel | exp.Expr] = [self._item(start.this)]
        for i, join in enumerate(joins):
            side = str(join.args.get("side") or "").upper()
            on = list(conjuncts(join.args["on"])) if join.args.get("on") is not None else []
            if not side:
                items.append(self._item(join.this))
                queries = [c for c in on if c.find(exp.Query)]
                if queries and whole:
                    raise Unspreadable("a query in ON beside a RIGHT or FULL JOIN")
                deferred += queries
                pool += [c for c in on if not c.find(exp.Query)]
                continue
            if any(c.find(exp.Query) for c in on):
                raise Unspreadable("a query in ON of an outer join")
            right = self._item(join.this)
            # What is kept of the rows so far has to serve the conditions of later joins too.
            pending = [*deferred, *(j.args["on"] for j in joins[i:] if j.args.get("on") is not None)]
            left = self._inner(items, pool, pending)
            items = [self._outer(left, right, side, on, [*pool, *pending])]
        rel = self._inner(items, pool, deferred)
        if pool:
            raise Unspreadable("a condition that refers to something outside")
        return self._subqueries(rel, deferred)

    def _outer(
        self, left: Rel, right: Rel | exp.Expr, side: str, on: Sequence[exp.Expr], pending: Sequence[exp.Expr]
    ) -> Rel:
        if not isinstance(right, Rel):
            if side != "LEFT":
                raise Unspreadable("a lateral join that is not LEFT")
            return self._dependent(left, right, "LEFT", on)
        local = [c for c in on if side == "LEFT" and refs_of(c) and right.knows(refs_of(c))]
        right.where += [right.written(c) for c in local]
        right.rows = filtered(right.rows, local)
        kept = [c for c in on if c not in local]
        return self._joiner.join(left, right, side, kept, [*self.later, *pending])

    @property
    def _joiner(self) -> Joiner:
        return Joiner(self.planner.builder, self.planner.options)

    def _item(self, node: exp.Expr) -> Rel | exp.Expr:
        """Return the relation of a thing in FROM, or the thing itself if it depends on others."""
        item = self.planner.normal.items[node.alias]
        if item.table is not None:
            return self.planner.base(item)
        if item.cte is not None:
            return self.planner.cte(item)
        inner = node.this.this if isinstance(node, exp.Lateral) else node.this
        if isinstance(node, exp.Lateral) or free_refs(inner):
            if any(True for _ in inner.find_all(exp.Table)):
                raise Unspreadable("LATERAL over tables")
            return node
        sealed = self.planner.query(inner)
        if sealed.order and sealed.limit is None and self._keeps_order():
            raise Unspreadable("an aggregate in the order of a subquery")
        return self.planner.derived(item, self.planner.finished(sealed))

    def _keeps_order(self) -> bool:
        return any(aggregates.is_ordered(c) for e in self.node.expressions for c in aggregates.calls_of(e))

    def _inner(self, items: Sequence[Rel | exp.Expr], pool: list[exp.Expr], pending: Sequence[exp.Expr]) -> Rel:
        """Join relations as the conditions in ``pool`` say, which are taken out of it as they are applied."""
        rels = [item for item in items if isinstance(item, Rel)]
        dependents = [item for item in items if not isinstance(item, Rel)]
        for rel in rels:
            self._apply(rel, pool)
        if not rels:
            raise Unspreadable("FROM begins with something that depends on the outside")
        rels = look_up(rels, pool, self.planner)
        start = max((r for r in rels), key=lambda r: (r.dist.placement is not Placement.COPY, r.rows))
        rels.remove(start)
        while rels:
            chosen = self._next(start, rels, pool)
            rels.remove(chosen)
            known = {*start.map, *chosen.map}
            on = [c for c in pool if refs_of(c) <= known]
            pool[:] = [c for c in pool if c not in on]
            start = self._joiner.join(start, chosen, "", on, [*self.later, *pool, *pending])
            self._apply(start, pool)
        for node in dependents:
            start = self._dependent(start, node, "", [])
            self._apply(start, pool)
        return start

    def _next(self, start: Rel, rels: Sequence[Rel], pool: Sequence[exp.Expr]) -> Rel:
        """Return what to join next: the smallest of those that are joined by their whole key, which multiplies no rows,
        or else the one with most equalities."""

        def cost(rel: Rel) -> tuple[bool, bool, int, float]:
            pairs = pairs_of(pool, start, rel)
            whole = self._by_key(rel, pairs)
            return not pairs, not whole, 0 if whole else -len(pairs), rel.rows

        return min(rels, key=cost)

    def _by_key(self, rel: Rel, pairs: Sequence[Pair]) -> bool:
        """Do the pairs name the whole primary key of a table?"""
        items = [self.planner.normal.items.get(alias) for alias in {ref[0] for ref in rel.map}]
        if len(items) != 1 or items[0] is None or items[0].table is None:
            return False
        base = self.planner.normal.tables[items[0].table]
        names = {c.name for i, c in zip(base.in_order(), items[0].columns, strict=True) if not i.path}
        held = {ref[1] for pair in pairs if (ref := pair.refs[1]) is not None}
        key = {base.table.by_id[i].name for i in base.table.key_column_ids}
        return key <= names and key <= held

    @staticmethod
    def _apply(rel: Rel, pool: list[exp.Expr]) -> None:
        """Let a relation test the conditions that are about it alone."""
        mine = [c for c in pool if rel.knows(refs_of(c))]
        rel.where += [rel.written(c) for c in mine]
        # Comparisons with constants are in the estimate of a scan already.
        rel.rows = filtered(rel.rows, [c for c in mine if not any(True for _ in comparisons(c))])
        pool[:] = [c for c in pool if not any(c is m for m in mine)]

    def _dependent(self, rel: Rel, node: exp.Expr, side: str, on: Sequence[exp.Expr]) -> Rel:
        """Join something that is computed from each row: a repeated field, a lateral query without tables."""
        inner = node.this.this if isinstance(node, exp.Lateral) else node.this
        if not rel.knows(free_refs(inner)):
            raise Unspreadable("LATERAL that depends on something that comes later")
        item = self.planner.normal.items[node.alias]
        written = rewritten(inner, rel.map)
        lateral = exp.Lateral(this=exp.Subquery(this=written), alias=node.args["alias"].copy())
        lateral.args["alias"].set("columns", [exp.to_identifier(c.name, quoted=True) for c in item.columns])
        for column in item.columns:
            found = exp.column(column.name, table=item.alias, quoted=True)
            found.meta[META] = column.type
            rel.map[(item.alias, column.name)] = found
        join = exp.Join(this=lateral, kind="" if side else "CROSS")
        if side:
            join.set("side", side)
            join.set("on", exp.and_(*[rel.written(c) for c in on]) if on else exp.true())
        rel.source.append(join)
        rel.operators.append({"operator": "unnest"})
        return rel

    def _subqueries(self, rel: Rel, conditions: Sequence[exp.Expr]) -> Rel:
        for i, condition in enumerate(conditions):
            rel, found = self._placed(rel, condition, conditions[i:])
            rel.where.append(found)
            rel.rows = filtered(rel.rows, [condition])
        return rel

    def _placed(self, rel: Rel, node: exp.Expr, pending: Sequence[exp.Expr] = ()) -> tuple[Rel, exp.Expr]:
        return placed(self.planner, rel, node, [*self.later, *pending])

    # ------------------------------------------------------------------ windows, select list

    def _windows(self, rel: Rel, nodes: Sequence[exp.Expr]) -> Rel:
        windows = [w for node in nodes for w in _own(node, exp.Window)]
        if not windows or rel.dist.placement in (Placement.ONE, Placement.COPY):
            return rel
        parts = [list(w.args.get("partition_by") or ()) for w in windows]
        shared = [p for p in parts[0] if all(p in other for other in parts[1:]) and not p.find(exp.Query)]
        keep = {r for node in self.later for r in refs_of(node)}
        if not shared:
            return self.planner.builder.close(rel, keep, Spread.GATHER)
        if is_whole(rel, shared):
            return rel
        return self.planner.builder.close(rel, keep, Spread.HASH, [Key(p, own_cast(p)) for p in shared])

    def _project(
        self,
        rel: Rel,
        projections: list[exp.Expr],
        order: Sequence[exp.Expr],
        columns: tuple[Named, ...],
        distinct: bool,
    ) -> Sealed:
        planner, node = self.planner, self.node
        hidden = [] if distinct else self._hidden(order)
        rel, nodes = self._computed(rel, [*projections, *hidden])
        # Windows come last: once the rows of a partition are together, they stay.
        rel = self._windows(rel, nodes)
        if any(not rel.knows(refs_of(n)) for n in nodes):
            raise Unspreadable("a column that is neither grouped nor aggregated")
        written = [rel.written(n) for n in nodes]
        projections = nodes[: len(projections)]
        select = rel.select([exp.alias_(w, f"c{i}", quoted=True) for i, w in enumerate(written)])
        if distinct:
            select.set("distinct", exp.Distinct())
        kinds = (*columns, *(Named("", infer(h)) for h in hidden))
        made, outputs = planner.wrapped(rel, select, len(written), rel.rows, kinds)
        made.dist = self._projected_dist(rel, projections, outputs)
        if distinct:
            made.operators.append({"operator": "distinct"})
            made = self._distinct(made, outputs)
        sealed = Sealed(made, outputs[: len(columns)], columns)
        sealed.order = self._final_order(order, hidden, outputs, len(columns))
        sealed.limit, sealed.offset = limit_of(node, "limit"), limit_of(node, "offset")
        return sealed

    def _computed(self, rel: Rel, nodes: list[exp.Expr]) -> tuple[Rel, list[exp.Expr]]:
        """Turn expressions with queries inside into columns: the next one may let the rows move again."""
        found = list(nodes)
        for i, node in enumerate(nodes):
            if not node.find(exp.Query):
                continue
            if _own(node, exp.Window):
                raise Unspreadable("a query and a window function in one expression")
            self.later = [n for n in found if n is not node]
            rel, value = self._placed(rel, node)
            ref = (self.planner.builder.query_alias(), "v")
            rel.map[ref] = value
            rel = self._joiner.nested(rel, {ref, *(r for n in self.later for r in refs_of(n))})
            found[i] = column_of(*ref, node)
        self.later = found
        return rel, found

    @staticmethod
    def _hidden(order: Sequence[exp.Expr]) -> list[exp.Expr]:
        """Return what ORDER BY sorts by that is not in the select list."""
        return [o.this for o in order if not (isinstance(o.this, exp.Column) and o.this.name.startswith(OUTPUT))]

    @staticmethod
    def _final_order(
        order: Sequence[exp.Expr], hidden: list[exp.Expr], outputs: Sequence[Ref], width: int
    ) -> list[exp.Ordered]:
        found: list[exp.Ordered] = []
        extra = width
        for ordered in order:
            part = ordered.this
            if isinstance(part, exp.Column) and part.name.startswith(OUTPUT) and not part.table:
                at = int(part.name[len(OUTPUT) :])
            elif hidden:
                at, extra = extra, extra + 1
            else:
                raise Unspreadable("SELECT DISTINCT ordered by something else")
            new = ordered.copy()
            new.set("this", exp.column(outputs[at][1], table=outputs[at][0], quoted=True))
            found.append(new)  # type: ignore[arg-type]
        return found

    @staticmethod
    def _projected_dist(rel: Rel, projections: Sequence[exp.Expr], outputs: Sequence[Ref]) -> Dist:
        if not rel.dist.keyed:
            return rel.dist
        at: dict[Ref, set[Ref]] = {}
        for projection, output in zip(projections, outputs, strict=False):
            if (ref := Key(projection).ref) is not None:
                at.setdefault(ref, set()).add(output)
        keys = tuple(frozenset(o for r in key for o in at.get(r, ())) for key in rel.dist.keys)
        return replace(rel.dist, keys=keys) if all(keys) else ANY

    def _distinct(self, rel: Rel, outputs: Sequence[Ref]) -> Rel:
        if rel.dist.placement in (Placement.ONE, Placement.COPY) or rel.dist.keyed:
            return rel
        keys = [Key(exp.column(ref[1], table=ref[0], quoted=True)) for ref in outputs]
        moved = self.planner.builder.close(rel, outputs, Spread.HASH, keys)
        alias = self.planner.builder.query_alias()
        select = moved.select([exp.alias_(moved.map[ref].copy(), ref[1], quoted=True) for ref in outputs])
        select.set("distinct", exp.Distinct())
        places: dict[Ref, exp.Expr] = {ref: column_of(alias, ref[1], moved.map[ref]) for ref in outputs}
        found = Rel([aliased(select, alias)], places, moved.dist, moved.rows)
        found.take(moved)
        found.operators.append({"operator": "distinct"})
        return found


def _own(root: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the parts of that kind outside nested queries."""
    found: list[exp.Expr] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, kind):
            found.append(node)
        todo += list(node.iter_expressions())
    return found


__all__ = ["Planner", "Sealed"]


def plan_select(planner: Planner, node: exp.Select) -> Sealed:
    """Plan one SELECT in normal form, up to its LIMIT. Raises Unspreadable."""
    return Block(planner, node).plan()
