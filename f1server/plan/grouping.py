"""GROUP BY the primary key: the other columns of that table depend on it and may be selected (SQL:1999, PostgreSQL)."""

from sqlglot import exp

from f1server.plan.dialect import function_name
from f1server.plan.names import COLUMN_META, Origin, Scope
from f1server.plan.scans import FieldWanted
from f1server.plan.types import META

AGGREGATES = frozenset(
    {
        *("any_value", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "stddev", "stddev_samp"),
        *("stddev_pop", "variance", "var_samp", "var_pop", "corr", "covar_pop", "covar_samp", "median", "mode"),
        *("percentile_cont", "percentile_disc", "json_agg", "jsonb_agg", "json_object_agg", "first", "last", "arg_max"),
        *("arg_min", "max_by", "min_by", "product", "list", "histogram", "approx_count_distinct", "regr_slope"),
        *("regr_intercept", "regr_r2", "regr_count", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy"),
        *("string_agg", "array_agg", "quantile", "quantile_cont", "quantile_disc", "grouping", "entropy", "kurtosis"),
    }
)


def admit_dependent_columns(node: exp.Select, scope: Scope) -> None:
    """Let a resolved SELECT use columns of tables whose whole key it groups by: any value of a group is the value."""
    group = node.args.get("group")
    if group is None or any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets", "all")):
        return
    listed = [p for e in group.expressions if (p := _listed(e, node)) is not None]
    grouped = {o for e in (*group.expressions, *(p.unalias() for p in listed)) if (o := _origin(e)) is not None}
    whole: set[int] = set()
    for relation in scope.relations:
        base = relation.base
        if base is not None and all(Origin(base.number, FieldWanted(i)) in grouped for i in base.table.key_column_ids):
            whole.add(base.number)
    if not whole:
        return
    items = [p for p in node.expressions if not any(p is named for named in listed)]
    parts = [*items, *(node.args[key] for key in ("having", "order", "qualify") if node.args.get(key))]
    for part in parts:
        for column in list(part.find_all(exp.Column)):
            origin = _origin(column)
            if origin is not None and origin.number in whole and origin not in grouped and _is_bare(column, node):
                call = exp.Anonymous(this="any_value")
                call.meta[META] = column.meta.get(META)
                # A column of the select list keeps its name.
                item = column.parent is node and column.arg_key == "expressions"
                named = exp.Alias(this=call, alias=exp.to_identifier(column.name, quoted=True))
                column.replace(named if item else call)
                call.set("expressions", [column])


def _listed(part: exp.Expr, node: exp.Select) -> exp.Expr | None:
    """Return the item of the select list that a part of GROUP BY names, by number or alias."""
    if isinstance(part, exp.Literal) and not part.is_string:
        number = int(part.name)
        return node.expressions[number - 1] if 1 <= number <= len(node.expressions) else None
    if not isinstance(part, exp.Column) or part.table:
        return None
    named = [p for p in node.expressions if isinstance(p, exp.Alias) and p.alias.lower() == part.name.lower()]
    return named[0] if len(named) == 1 else None


def _origin(node: exp.Expr) -> Origin | None:
    found = node.meta.get(COLUMN_META) if isinstance(node, exp.Column) and node.meta else None
    return found if isinstance(found, Origin) else None


def _is_bare(column: exp.Expr, select: exp.Select) -> bool:
    """Does a column stand outside all aggregates, in this SELECT itself?"""
    at = column.parent
    while at is not None and at is not select:
        # What an aggregate filters and sorts by are the rows, too.
        if isinstance(at, exp.AggFunc | exp.Query | exp.Filter | exp.WithinGroup) or function_name(at) in AGGREGATES:
            return False
        at = at.parent
    return True
