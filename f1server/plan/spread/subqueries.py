"""Queries inside expressions: what they read is brought to where the expression is computed.

A query that depends on nothing around it is planned like any other, and its result sent to all workers. One that
depends on the row (EXISTS, a correlated average) stays as it is, and DuckDB takes it apart; its tables are brought to
the workers: the largest by the hash of what it is correlated by, if there is an equality, so that each worker has the
rows that its own rows ask for; the others whole.
"""

from collections.abc import Iterable, Sequence

from sqlglot import exp

from f1server.plan.conditions import conjuncts
from f1server.plan.parts import Spread
from f1server.plan.spread.builder import Key
from f1server.plan.spread.joins import Pair, matching, pairs_of, together
from f1server.plan.spread.normal import OUTPUT, Unspreadable
from f1server.plan.spread.queries import Planner
from f1server.plan.spread.relation import ONE, Placement, Ref, Rel, aliased, free_refs, refs_of
from f1server.plan.types import META, infer

_MOST_ROWS = 2_000_000


def placed(planner: Planner, rel: Rel, node: exp.Expr, later: Iterable[exp.Expr]) -> tuple[Rel, exp.Expr]:
    """Write an expression for a relation, its queries included; return the relation, whose rows may have moved."""
    holder = exp.Paren(this=node.copy())
    keep = {ref for one in (*later, node) for ref in refs_of(one)}
    queries = [(query, free_refs(query)) for query in _queries(holder)]
    may_move = True
    for query, free in queries:
        if not free:
            continue
        if not rel.knows(free):
            raise Unspreadable("a query that depends on something further outside")
        rel = _correlated(planner, rel, query, keep, may_move)
        may_move = False
    # What is sent to all workers comes last: it has to arrive where the rows are in the end.
    for query, free in queries:
        if not free:
            rel, found = _independent(planner, rel, query)
            query.replace(found)
    inner: exp.Expr = holder.this
    inner.pop()
    if not rel.knows(free_refs(inner)):
        raise Unspreadable("a column that is neither grouped nor aggregated")
    return rel, rel.written(inner)


def _queries(root: exp.Expr) -> list[exp.Expr]:
    """Return the outermost queries in an expression."""
    found: list[exp.Expr] = []
    todo = [root]
    while todo:
        node = todo.pop()
        for child in node.iter_expressions():
            if isinstance(child, exp.Select | exp.SetOperation):
                found.append(child)
            else:
                todo.append(child)
    return found


def _independent(planner: Planner, rel: Rel, query: exp.Expr) -> tuple[Rel, exp.Expr]:
    sealed = planner.finished(planner.query(query))
    moved = planner.builder.close(sealed.rel, sealed.outputs, Spread.BROADCAST)
    if sealed.rel.rows > _MOST_ROWS:
        raise Unspreadable("the result of a subquery may be too large for every worker")
    rel.inputs += moved.inputs
    rel.operators += moved.operators
    select = moved.select(
        [exp.alias_(moved.map[ref].copy(), f"c{i}", quoted=True) for i, ref in enumerate(sealed.outputs)]
    )
    if len(sealed.outputs) == 1:
        select.meta[META] = infer(query) if isinstance(query, exp.Select) else sealed.columns[0].type
    return rel, select


def _correlated(planner: Planner, rel: Rel, query: exp.Expr, keep: set[Ref], may_move: bool) -> Rel:
    leaves = list(query.find_all(exp.Table))
    _number_outputs(query)
    large = _largest(planner, rel, query)
    if large is not None:
        node, inner, pairs = large
        rel, brought = _beside(planner, rel, inner, pairs, keep, may_move)
        leaves = [leaf for leaf in leaves if leaf is not node]
        _bring(rel, node, inner, brought)
    for leaf in leaves:
        inner = _leaf(planner, leaf)
        if inner.rows > _MOST_ROWS:
            raise Unspreadable(f"all of {leaf.alias} would have to go to every worker")
        _bring(rel, leaf, inner, _everywhere(planner, rel, inner))
    rel.operators.append({"operator": "apply", "query": str(query.sql("duckdb"))[:120]})
    return rel


def _number_outputs(query: exp.Expr) -> None:
    """Let ORDER BY name columns of the select list by number: what stays a query goes to DuckDB."""
    for ordered in query.find_all(exp.Ordered):
        part = ordered.this
        if isinstance(part, exp.Column) and not part.table and part.name.startswith(OUTPUT):
            part.replace(exp.Literal.number(int(part.name[len(OUTPUT) :]) + 1))


def _everywhere(planner: Planner, rel: Rel, inner: Rel) -> Rel:
    """Bring all rows of a table to where a relation is."""
    if rel.dist is ONE and inner.dist is ONE:
        return inner
    return planner.builder.close(inner, inner.map, Spread.BROADCAST)


def _leaf(planner: Planner, leaf: exp.Table) -> Rel:
    item = planner.normal.items[leaf.alias]
    return planner.base(item) if item.table is not None else planner.cte(item)


def _largest(planner: Planner, rel: Rel, query: exp.Expr) -> tuple[exp.Table, Rel, list[Pair]] | None:
    """Return the table of a correlated query that should meet the rows by hash, if one is large enough for that."""
    if not isinstance(query, exp.Select) or query.args.get("where") is None or query.args.get("from_") is None:
        return None
    if any(join.args.get("side") for join in query.args.get("joins") or ()):
        return None
    conditions = list(conjuncts(query.args["where"].this))
    nodes = [query.args["from_"].this, *(join.this for join in query.args.get("joins") or ())]
    found: list[tuple[float, exp.Table, Rel, list[Pair]]] = []
    for node in nodes:
        if not isinstance(node, exp.Table) or planner.normal.items[node.alias].table is None:
            continue
        rows = planner.base(planner.normal.items[node.alias]).rows
        inner = _leaf(planner, node)
        pairs = pairs_of(conditions, rel, inner)
        if pairs and (rows > planner.options.broadcast_rows or planner.options.force == "repartition"):
            found.append((rows, node, inner, pairs))
    if not found:
        return None
    _, node, inner, pairs = max(found, key=lambda f: f[0])
    local = [c for c in conditions if refs_of(c) and inner.knows(refs_of(c)) and not c.find(exp.Query)]
    inner.where += [inner.written(c) for c in local]
    return node, inner, pairs


def _beside(
    planner: Planner, rel: Rel, inner: Rel, pairs: Sequence[Pair], keep: set[Ref], may_move: bool
) -> tuple[Rel, Rel]:
    """Let rows of ``inner`` be where the rows are that ask for them."""
    builder = planner.builder
    if together(rel.dist, inner.dist, pairs):
        return rel, inner
    if (keys := matching(rel.dist, pairs)) is not None:
        return rel, builder.close(inner, inner.map, Spread.HASH, keys)
    if rel.dist.placement in (Placement.ONE, Placement.COPY) or not may_move:
        if inner.rows > _MOST_ROWS:
            raise Unspreadable("a table of a subquery would have to go to every worker")
        return rel, builder.close(inner, inner.map, Spread.BROADCAST)
    rel = builder.close(rel, keep, Spread.HASH, [Key(pair.left, pair.cast) for pair in pairs])
    return rel, builder.close(inner, inner.map, Spread.HASH, [Key(pair.right, pair.cast) for pair in pairs])


def _bring(rel: Rel, leaf: exp.Table, inner: Rel, brought: Rel) -> None:
    """Let a table inside a query be read from where its rows have been brought."""
    rel.scans += brought.scans
    rel.inputs += brought.inputs
    rel.operators += brought.operators
    refs = sorted(inner.map)
    columns = [exp.alias_(brought.map[ref].copy(), ref[1], quoted=True) for ref in refs]
    alias = leaf.alias
    replaced = aliased(brought.select(columns), alias)
    leaf.replace(replaced)


__all__ = ["placed"]
