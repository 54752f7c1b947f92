"""Which conditions of a query hold for every row of a table that can matter: what a scan of it may be limited by.

A condition in WHERE limits every table that it compares with a constant, also on the inner side of an outer join,
because a row of NULLs does not pass a comparison (IS NULL it does pass: that one only limits tables that no outer join
can pad). A condition in ON limits the tables on the side that the join does not keep. Equalities between columns carry
constants over (rule *transitive*).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from f1server.plan.constants import Constant, constant
from f1server.plan.names import COLUMN_META, Origin
from f1server.plan.relations import USING_META
from f1server.plan.scans import FieldWanted, PredicateOp

Place = tuple[int, FieldWanted]
"""A column of a base table: the table's number, and what of it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with constants."""

    field: FieldWanted
    op: PredicateOp
    constants: tuple[Constant, ...] = ()
    derived: bool = False


@dataclass(frozen=True, slots=True)
class Equality:
    """Two columns that are equal in every row that matters; constants go from ``left`` to ``right``, and back if
    ``both``."""

    left: Place
    right: Place
    both: bool = True


@dataclass(slots=True)
class Conditions:
    """What is known of each base table of a statement, by its number."""

    comparisons: dict[int, list[Comparison]] = field(default_factory=dict)
    equalities: list[Equality] = field(default_factory=list)

    def of(self, number: int) -> list[Comparison]:
        """Return the comparisons that limit a table."""
        return self.comparisons.get(number, [])

    def add(self, number: int, comparison: Comparison) -> None:
        """Note a comparison once."""
        known = self.comparisons.setdefault(number, [])
        if comparison not in known:
            known.append(comparison)


def collect(selects: Iterable[exp.Select]) -> Conditions:
    """Return the conditions of all SELECTs of a resolved, not yet rewritten statement."""
    found = Conditions()
    for select in selects:
        _select(select, found)
    return found


def _select(select: exp.Select, found: Conditions) -> None:
    padded: set[int] = set()
    kept: set[int] = set()
    start = select.args.get("from_")
    if start is not None:
        kept = _item(start.this, found, padded)
    for join in select.args.get("joins") or ():
        kept = _join(join, kept, found, padded)
    if (where := select.args.get("where")) is not None:
        _note(where.this, kept, padded, found, both=True)


def _item(node: exp.Expr, found: Conditions, padded: set[int]) -> set[int]:
    """Return the tables in one thing of FROM, and note what its own joins say."""
    numbers = table_numbers(node, joins=False)
    inner = node.this if isinstance(node, exp.Subquery) else node
    if inner is not node and not isinstance(inner, exp.Query | exp.Values):
        numbers |= _item(inner, found, padded)
    for join in node.args.get("joins") or ():
        numbers = _join(join, numbers, found, padded)
    return numbers


def table_numbers(node: exp.Expr, joins: bool = True) -> set[int]:
    """Return the numbers of the base tables inside a tree."""
    if isinstance(node, exp.Table) and not joins:
        return _number(node)
    return {n for table in node.find_all(exp.Table) for n in _number(table)}


def _number(node: exp.Table) -> set[int]:
    name = node.name
    return {int(name[4:])} if name.startswith("f1_t") and name[4:].isdecimal() else set()


def _join(join: exp.Join, left: set[int], found: Conditions, padded: set[int]) -> set[int]:
    right = _item(join.this, found, padded)
    side = str(join.args.get("side") or "").upper()
    limited = {"LEFT": right, "RIGHT": left, "FULL": set[int]()}.get(side, left | right)
    if side in ("LEFT", "FULL"):
        padded |= right
    if side in ("RIGHT", "FULL"):
        padded |= left
    if (on := join.args.get("on")) is not None:
        _note(on, limited, padded, found, both=not side)
    for origins in join.meta.get(USING_META, ()) if join.meta else ():
        for one in origins[1:]:
            _equal(((origins[0].number, origins[0].field), (one.number, one.field)), limited, found, both=not side)
    return left | right


def _note(condition: exp.Expr, limited: set[int], padded: set[int], found: Conditions, both: bool) -> None:
    for part in conjuncts(condition):
        if (pair := _column_pair(part)) is not None:
            _equal(pair, limited, found, both)
            continue
        for number, comparison in comparisons(part):
            if number in limited and not (
                comparison.op is PredicateOp.IS_NULL and (number in padded or _through(part))
            ):
                found.add(number, comparison)


def _equal(pair: tuple[Place, Place], limited: set[int], found: Conditions, both: bool) -> None:
    left, right = pair
    if both and left[0] in limited and right[0] in limited:
        found.equalities.append(Equality(left, right))
    elif right[0] in limited and left[0] not in limited:
        found.equalities.append(Equality(left, right, both=False))
    elif left[0] in limited and right[0] not in limited:
        found.equalities.append(Equality(right, left, both=False))


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that all must hold."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    else:
        yield node


def place_of(node: exp.Expr | None) -> Place | None:
    """Return which column of a base table an expression is."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Column) or not node.meta:
        return None
    found = node.meta.get(COLUMN_META)
    return (found.number, found.field) if isinstance(found, Origin) else None


def _through(node: exp.Expr) -> bool:
    """Is this about a column of a query in FROM? That one may have padded it with NULLs."""
    origins = [c.meta.get(COLUMN_META) for c in node.find_all(exp.Column) if c.meta]
    return any(isinstance(o, Origin) and o.through for o in origins)


def _column_pair(node: exp.Expr) -> tuple[Place, Place] | None:
    if not isinstance(node, exp.EQ):
        return None
    left, right = place_of(node.this), place_of(node.expression)
    return (left, right) if left is not None and right is not None else None


_OPS: Mapping[type[exp.Expr], PredicateOp] = {
    exp.EQ: PredicateOp.EQ,
    exp.LT: PredicateOp.LT,
    exp.LTE: PredicateOp.LE,
    exp.GT: PredicateOp.GT,
    exp.GTE: PredicateOp.GE,
    exp.NEQ: PredicateOp.NE,
}
_MIRRORED = {
    PredicateOp.LT: PredicateOp.GT,
    PredicateOp.LE: PredicateOp.GE,
    PredicateOp.GT: PredicateOp.LT,
    PredicateOp.GE: PredicateOp.LE,
}


def all_comparisons(parts: Sequence[exp.Expr]) -> list[Comparison] | None:
    """Return the comparisons that conditions consist of, None if some of them say more than comparisons do."""
    found: list[Comparison] = []
    for part in parts:
        noted = [comparison for _, comparison in comparisons(part)]
        if len(noted) != (2 if isinstance(part, exp.Between) else 1) or _is_of_tuples(part):
            return None
        found += noted
    return found


def _is_of_tuples(node: exp.Expr) -> bool:
    """Of ``(a, b) = (1, c)`` only a part may have been noted."""
    return isinstance(node, exp.Binary) and isinstance(node.this, exp.Tuple)


def comparisons(node: exp.Expr) -> Iterator[tuple[int, Comparison]]:
    """Yield what a condition says of columns and constants: nothing, one comparison, or two for BETWEEN."""
    op = _OPS.get(type(node))
    if op is not None:
        yield from _binary(node, op)
    elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
        place = place_of(node.this)
        for key, bound in (("low", PredicateOp.GE), ("high", PredicateOp.LE)):
            value = constant(node.args.get(key))
            if place is not None and value is not None:
                yield place[0], Comparison(place[1], bound, (value,))
    elif isinstance(node, exp.In):
        yield from _in(node)
    elif isinstance(node, exp.Is) and (place := place_of(node.this)) is not None:
        if isinstance(node.expression, exp.Null):
            negated = bool(node.args.get("negate"))
            yield place[0], Comparison(place[1], PredicateOp.IS_NOT_NULL if negated else PredicateOp.IS_NULL)
        elif isinstance(node.expression, exp.Not) and isinstance(node.expression.this, exp.Null):
            yield place[0], Comparison(place[1], PredicateOp.IS_NOT_NULL)
    elif isinstance(node, exp.Not):
        inner = node.this.unnest()
        if (
            isinstance(inner, exp.Is)
            and isinstance(inner.expression, exp.Null)
            and (place := place_of(inner.this)) is not None
        ):
            negated = bool(inner.args.get("negate"))
            yield place[0], Comparison(place[1], PredicateOp.IS_NULL if negated else PredicateOp.IS_NOT_NULL)


def _binary(node: exp.Expr, op: PredicateOp) -> Iterator[tuple[int, Comparison]]:
    if isinstance(node.this, exp.Tuple) and isinstance(node.expression, exp.Tuple) and op is PredicateOp.EQ:
        if len(node.this.expressions) == len(node.expression.expressions):
            for left, right in zip(node.this.expressions, node.expression.expressions, strict=True):
                yield from _binary(exp.EQ(this=left.copy(), expression=right.copy()), op)
        return
    place, value = place_of(node.this), constant(node.expression)
    if place is None or value is None:
        place, value, op = place_of(node.expression), constant(node.this), _MIRRORED.get(op, op)
    if place is not None and value is not None:
        yield place[0], Comparison(place[1], op, (value,))


def _in(node: exp.In) -> Iterator[tuple[int, Comparison]]:
    place = place_of(node.this)
    values = [constant(item) for item in node.expressions]
    if place is None or not values or node.args.get("query") is not None or node.args.get("unnest") is not None:
        return
    known = [v for v in values if v is not None]
    if len(known) == len(values):
        yield place[0], Comparison(place[1], PredicateOp.IN, tuple(known))
