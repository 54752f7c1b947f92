"""Aggregates in two steps: partial ones where the rows are, final ones where the groups meet (F1 section 8.2).

What cannot be taken apart (DISTINCT, ordered aggregates, medians) is computed from the rows themselves, once those of a
group have met.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from f1server.catalog.schema import Kind
from f1server.plan.dialect import function_name
from f1server.plan.grouping import AGGREGATES
from f1server.plan.spread.normal import Unspreadable
from f1server.plan.types import META, infer

_ORDERED = frozenset({"list", "array_agg", "string_agg", "first", "last", "json_group_array", "json_group_object"})
_WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls)
_NUMBERS = (Kind.INT64, Kind.NUMERIC, Kind.DOUBLE)
_SAME = frozenset({"min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "any_value", "sum", "every"})
_NAMES: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Min, "min"),
    (exp.Max, "max"),
    (exp.Sum, "sum"),
    (exp.LogicalAnd, "bool_and"),
    (exp.LogicalOr, "bool_or"),
    (exp.AnyValue, "any_value"),
    (exp.BitwiseAndAgg, "bit_and"),
    (exp.BitwiseOrAgg, "bit_or"),
    (exp.BitwiseXorAgg, "bit_xor"),
)


def is_aggregate(node: exp.Expr) -> bool:
    """Is this the call of an aggregate function?"""
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and function_name(node) in AGGREGATES)


def calls_of(root: exp.Expr) -> list[exp.Expr]:
    """Return the aggregate calls of an expression with their FILTER, outside windows and nested queries."""
    found: list[exp.Expr] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, exp.Query):
            continue
        if isinstance(node, exp.Window):
            # The function of a window is none of the groups; what it is computed from may be.
            inner = node.this
            while isinstance(inner, _WRAPPERS):
                inner = inner.this
            todo += list(inner.iter_expressions())
            todo += [n for key, n in _children(node) if key != "this"]
            continue
        if is_aggregate(node) or (isinstance(node, _WRAPPERS) and is_aggregate(node.this)):
            found.append(node)
            continue
        todo += list(node.iter_expressions())
    return found


def _children(node: exp.Expr) -> list[tuple[str, exp.Expr]]:
    found = []
    for key, value in node.args.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expr):
                found.append((key, item))
    return found


@dataclass(frozen=True, slots=True)
class Split:
    """An aggregate taken apart: what workers compute first, and how that is put together, given its columns."""

    partial: tuple[exp.Expr, ...]
    final: Callable[[Sequence[exp.Expr]], exp.Expr]


def split(call: exp.Expr) -> Split | None:
    """Take an aggregate apart; None: it needs all rows of a group."""
    inner = call.this if isinstance(call, exp.Filter) else call
    arguments = inner.expressions
    if isinstance(inner, _WRAPPERS) or inner.find(exp.Order) or isinstance(inner.this, exp.Distinct):
        return None
    if len(arguments) != (1 if isinstance(inner, exp.Anonymous) else 0) or inner.find(exp.Query):
        return None
    if isinstance(inner, exp.Count):
        return Split((call,), lambda parts: _cast(_call("sum", parts[0]), "BIGINT"))
    if isinstance(inner, exp.Avg):
        return _average(call, inner)
    name = next((text for kind, text in _NAMES if isinstance(inner, kind)), None)
    if name is None and isinstance(inner, exp.Anonymous) and function_name(inner) in _SAME:
        name = function_name(inner)
    if name is None:
        return None
    argument = arguments[0] if isinstance(inner, exp.Anonymous) else inner.this
    if name == "sum" and infer(argument).kind not in _NUMBERS:
        return None
    return Split((call,), lambda parts: _call(name, parts[0]))


def _average(call: exp.Expr, inner: exp.Expr) -> Split | None:
    if infer(inner.this).kind not in _NUMBERS:
        return None
    total, count = call.copy(), call.copy()
    for copy, kind in ((total, exp.Sum), (count, exp.Count)):
        at = copy.this if isinstance(copy, exp.Filter) else copy
        new = kind(this=at.this.copy())
        if isinstance(copy, exp.Filter):
            copy.set("this", new)
    total = total if isinstance(call, exp.Filter) else exp.Sum(this=inner.this.copy())
    count = count if isinstance(call, exp.Filter) else exp.Count(this=inner.this.copy())

    def final(parts: Sequence[exp.Expr]) -> exp.Expr:
        quotient = exp.Div(this=_cast(_call("sum", parts[0]), "DOUBLE"), expression=_call("sum", parts[1]))
        none = exp.EQ(this=_call("sum", parts[1]), expression=exp.Literal.number(0))
        return exp.Case(ifs=[exp.If(this=exp.Not(this=exp.Paren(this=none)), true=quotient)])

    return Split((total, count), final)


def _call(name: str, value: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[value.copy()])


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(kind, dialect="duckdb"))


def substituted(root: exp.Expr, found: Sequence[tuple[exp.Expr, exp.Expr]]) -> exp.Expr:
    """Return a copy of an expression in which the first of each pair is replaced by the second, outermost first.

    Inside a nested query, what names no columns (``count(*)``) is that query's own.
    """
    known = dict(found)
    holder = exp.Paren(this=root.copy())
    todo: list[tuple[exp.Expr, bool]] = [(holder.this, False)]
    while todo:
        node, nested = todo.pop()
        if isinstance(node, exp.Literal | exp.Identifier | exp.DataType):
            continue
        nested = nested or isinstance(node, exp.Query)
        other = known.get(node) if not isinstance(node, exp.Query) else None
        if other is not None and not (nested and node.find(exp.Column) is None):
            new = other.copy()
            new.meta[META] = infer(node)
            node.replace(new)
            continue
        todo += [(child, nested) for child in node.iter_expressions()]
    inner: exp.Expr = holder.this
    inner.pop()
    return inner


def is_ordered(call: exp.Expr) -> bool:
    """Does the result of an aggregate depend on the order of the rows?"""
    inner = call.this if isinstance(call, exp.Filter) else call
    ordered = (exp.ArrayAgg, exp.GroupConcat, exp.JSONArrayAgg, exp.JSONObjectAgg, exp.First, exp.Last)
    return isinstance(inner, ordered) or function_name(inner) in _ORDERED


def check_plain(calls: Sequence[exp.Expr]) -> None:
    """Raise Unspreadable for aggregates that look at the grouping itself."""
    for call in calls:
        if function_name(call) in ("grouping", "grouping_id"):
            raise Unspreadable("GROUPING()")
