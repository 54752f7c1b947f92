"""Groups: where their rows meet, in one step or in two (F1 section 8.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from f1server.plan.parts import Spread
from f1server.plan.spread import aggregates
from f1server.plan.spread.builder import Builder, Key, own_cast
from f1server.plan.spread.normal import Unspreadable
from f1server.plan.spread.relation import ANY, Dist, Placement, Ref, Rel, aliased, column_of, refs_of

__all__ = ["Grouper", "is_whole"]

_Piece = tuple[exp.Expr, list[exp.Expr], aggregates.Split | None]
"""An aggregate call, what it is computed from, and how, if it was taken apart."""


def is_whole(rel: Rel, group: Sequence[exp.Expr]) -> bool:
    """Are the rows of each group at one worker?"""
    if rel.dist.placement in (Placement.ONE, Placement.COPY):
        return True
    columns = {(g.table, g.name) for g in group if isinstance(g, exp.Column)}
    return rel.dist.keyed and all(key & columns for key in rel.dist.keys)


@dataclass(slots=True, eq=False)
class Grouper:
    """Groups the rows of relations of one statement."""

    builder: Builder

    def aggregate(
        self, rel: Rel, group: list[exp.Expr], calls: list[exp.Expr]
    ) -> tuple[Rel, list[tuple[exp.Expr, exp.Expr]]]:
        """Group the rows; return the relation of the groups, and where keys and aggregates are found in it."""
        aggregates.check_plain(calls)
        if any(aggregates.is_ordered(c) and not c.find(exp.Order) for c in calls):
            raise Unspreadable("an aggregate in the order of the rows")
        group = list(dict.fromkeys(group))
        calls = list(dict.fromkeys(calls))
        if any(e.find(exp.Query) for e in (*group, *calls)):
            raise Unspreadable("a query inside GROUP BY or an aggregate")
        missing = [r for e in (*group, *calls) for r in refs_of(e) if r not in rel.map]
        if missing:
            raise Unspreadable("an aggregate of something outside")
        rows = max(1.0, rel.rows / 10) if group else 1.0
        if is_whole(rel, group):
            return self._grouped(
                rel, group, [(c, [rel.written(c)], None) for c in calls], rows, rel.written, "aggregate"
            )
        splits = [aggregates.split(c) for c in calls]
        if all(s is not None for s in splits):
            return self._two_steps(rel, group, calls, [s for s in splits if s is not None], rows)
        keys = [Key(g, own_cast(g)) for g in group]
        keep = {r for e in (*group, *calls) for r in refs_of(e)}
        moved = self.builder.close(rel, keep, Spread.HASH if keys else Spread.GATHER, keys)
        parts: list[_Piece] = [(c, [moved.written(c)], None) for c in calls]
        return self._grouped(moved, group, parts, rows, moved.written, "aggregate")

    def _two_steps(
        self,
        rel: Rel,
        group: list[exp.Expr],
        calls: list[exp.Expr],
        splits: list[aggregates.Split],
        rows: float,
    ) -> tuple[Rel, list[tuple[exp.Expr, exp.Expr]]]:
        builder = self.builder
        names = builder.query_alias()
        columns = [exp.alias_(rel.written(g), f"g{i}", quoted=True) for i, g in enumerate(group)]
        wanted: list[exp.Expr] = list(dict.fromkeys(p for s in splits for p in s.partial))
        columns += [exp.alias_(rel.written(p), f"a{i}", quoted=True) for i, p in enumerate(wanted)]
        select = rel.select(columns)
        if group:
            select.set("group", exp.Group(expressions=[exp.Literal.number(i + 1) for i in range(len(group))]))
        places: dict[Ref, exp.Expr] = {}
        for name, value in [(f"g{i}", g) for i, g in enumerate(group)] + [(f"a{i}", p) for i, p in enumerate(wanted)]:
            places[(names, name)] = column_of(names, name, value)
        partial = Rel([aliased(select, names)], places, rel.dist if not rel.dist.keyed else ANY, rows)
        partial.take(rel)
        partial.operators.append(_aggregate_operator("partial aggregate", group, calls))
        keys = [Key(column_of(names, f"g{i}", g), own_cast(g)) for i, g in enumerate(group)]
        moved = builder.close(partial, places, Spread.HASH if keys else Spread.GATHER, keys)
        at: dict[exp.Expr, exp.Expr] = {p: moved.map[(names, f"a{i}")] for i, p in enumerate(wanted)}
        parts: list[_Piece] = [(c, [at[p] for p in s.partial], s) for c, s in zip(calls, splits, strict=True)]
        held = {g: moved.map[(names, f"g{i}")] for i, g in enumerate(group)}
        refs = {g: (names, f"g{i}") for i, g in enumerate(group)}
        return self._grouped(moved, group, parts, rows, lambda g: held[g].copy(), "final aggregate", refs)

    def _grouped(
        self,
        rel: Rel,
        group: list[exp.Expr],
        parts: list[_Piece],
        rows: float,
        written: Callable[[exp.Expr], exp.Expr],
        name: str,
        refs: "dict[exp.Expr, Ref] | None" = None,
    ) -> tuple[Rel, list[tuple[exp.Expr, exp.Expr]]]:
        """Return the relation of groups whose rows are together."""
        alias = self.builder.query_alias()
        columns = [exp.alias_(written(g), f"g{i}", quoted=True) for i, g in enumerate(group)]
        for i, (_, given, how) in enumerate(parts):
            value = how.final(given) if how is not None else given[0]
            columns.append(exp.alias_(value, f"a{i}", quoted=True))
        if not columns:
            columns = [exp.alias_(exp.Literal.number(1), "one", quoted=True)]
        select = rel.select(columns)
        if group:
            select.set("group", exp.Group(expressions=[exp.Literal.number(i + 1) for i in range(len(group))]))
        places: dict[Ref, exp.Expr] = {}
        found: list[tuple[exp.Expr, exp.Expr]] = []
        for column, value in [(f"g{i}", g) for i, g in enumerate(group)] + [
            (f"a{i}", c) for i, (c, _, _) in enumerate(parts)
        ]:
            place = column_of(alias, column, value)
            places[(alias, column)] = place
            found.append((value, place))
        dist = self._grouped_dist(rel, group, alias, refs)
        made = Rel([aliased(select, alias)], places, dist, rows)
        made.take(rel)
        made.operators.append(_aggregate_operator(name, group, [c for c, _, _ in parts]))
        return made, found

    @staticmethod
    def _grouped_dist(rel: Rel, group: Sequence[exp.Expr], alias: str, refs: "dict[exp.Expr, Ref] | None") -> Dist:
        """Groups lie where their keys do."""
        if not rel.dist.keyed:
            return rel.dist
        at: dict[Ref, Ref] = {}
        for i, g in enumerate(group):
            ref = refs[g] if refs is not None else Key(g).ref
            if ref is not None:
                at[ref] = (alias, f"g{i}")
        keys = tuple(frozenset(at[r] for r in key if r in at) for key in rel.dist.keys)
        return replace(rel.dist, keys=keys) if all(keys) else ANY


def _aggregate_operator(name: str, group: Sequence[exp.Expr], calls: Sequence[exp.Expr]) -> dict[str, object]:
    return {
        "operator": name,
        "by": [str(g.sql("duckdb")) for g in group],
        "of": [str(c.sql("duckdb"))[:80] for c in calls],
    }
