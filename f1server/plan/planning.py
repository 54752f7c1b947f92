"""What rules work on: one statement about to run, its tables, and what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from f1server.catalog.protos import registry_of
from f1server.catalog.schema import ElementState, Index, Kind, Schema, Table
from f1server.plan.conditions import Comparison, Equality, Place
from f1server.plan.constants import Unfit, evaluate
from f1server.plan.scans import Bound, Direct, FieldWanted, KeySpan, Lookup, PredicateOp, TableScan
from f1server.plan.types import of_path
from f1server.rows.values import Value

MAX_SPANS = 1000
"""A condition that asks for more keys than this is left to a scan."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A comparison whose constants have values of the column's type."""

    field: FieldWanted
    op: PredicateOp
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a query's form rules ask for.

    ``limit``: (limit, offset) parameters or constants of a query that takes any rows of its one table. ``simple``:
    WHERE consists of comparisons that have all been collected. ``picks``: relation columns that the select list
    consists of. ``order``: the columns that ORDER BY consists of, with ``descending`` for all of them, in a
    query of one table whose rows are selected by ``conditions`` comparisons alone, all collected. ``offset``: it has
    OFFSET.
    """

    simple: bool = False
    limited: bool = False
    conditions: int = 0
    picks: tuple[str, ...] | None = None
    order: tuple[int, ...] = ()
    descending: bool = False
    offset: bool = False


@dataclass(slots=True, eq=False)
class TablePlan:
    """One place where a statement reads a table."""

    number: int
    relation: str
    alias: str
    table: Table
    names: tuple[str, ...]
    scan: TableScan
    comparisons: list[Evaluated] = field(default_factory=list)
    skipped: int = 0
    empty: bool = False
    lookup: Lookup | None = None
    shared: str = ""
    own_columns: tuple[FieldWanted, ...] = ()


@dataclass(slots=True, eq=False)
class Planning:
    """A statement while rules choose how its tables are read."""

    schema: Schema
    tables: list[TablePlan]
    equalities: Sequence[Equality]
    shape: Shape
    limit: int | None = None
    point: bool = False
    direct: Direct | None = None
    applied: list[str] = field(default_factory=list)

    def limiting(self, place: Place) -> set[Place]:
        """Return the columns whose values limit those of ``place``, over any number of equalities."""
        found = {place}
        todo = [place]
        while todo:
            at = todo.pop()
            for equality in self.equalities:
                sources = [equality.left] if equality.right == at else []
                sources += [equality.right] if equality.both and equality.left == at else []
                todo += [s for s in sources if s not in found]
                found.update(sources)
        return found - {place}

    def by_number(self) -> dict[int, TablePlan]:
        """Return the tables by number."""
        return {t.number: t for t in self.tables}


def kind_of(schema: Schema, table: Table, wanted: FieldWanted) -> Kind | None:
    """Return the type of a column or field; None for lists and messages, which compare with no constant."""
    column = table.by_id[wanted.column_id]
    if not wanted.path:
        return column.type.kind if column.type.kind is not Kind.PROTO else None
    found = of_path(registry_of(schema), column.type.proto, wanted.path)
    return None if found.lists or found.kind is Kind.PROTO else found.kind


def evaluated(
    schema: Schema, plan: TablePlan, comparisons: Sequence[Comparison], params: Sequence[object], now_us: int
) -> None:
    """Give a table the comparisons whose constants fit the column's type; note if no row can pass one of them."""
    for comparison in comparisons:
        kind = kind_of(schema, plan.table, comparison.field)
        values = [evaluate(c, kind, params, now_us) for c in comparison.constants] if kind is not None else []
        known = [v for v in values if not isinstance(v, Unfit)]
        unknown = kind is None or len(known) < len(values)
        if unknown and comparison.op not in (PredicateOp.IS_NULL, PredicateOp.IS_NOT_NULL):
            plan.skipped += 1
            continue
        if comparison.constants:
            known = [v for v in known if v is not None]
            if not known:
                plan.empty = True
        plan.comparisons.append(Evaluated(comparison.field, comparison.op, tuple(known)))


@dataclass(frozen=True, slots=True)
class Access:
    """Spans over the parts of a key or index: ``equal`` parts are fixed, ``ranged``: the next one has bounds (0, 1 or
    2)."""

    spans: tuple[KeySpan, ...]
    equal: int
    ranged: int


def access(parts: Sequence[FieldWanted], comparisons: Sequence[Evaluated]) -> Access | None:
    """Return the spans that comparisons leave of a key with these parts, or None if they leave all of it."""
    prefixes: list[tuple[Value, ...]] = [()]
    equal = 0
    for part in parts:
        values = _equal_values(part, comparisons)
        if values is None or len(prefixes) * len(values) > MAX_SPANS:
            break
        prefixes = [(*prefix, value) for prefix in prefixes for value in values]
        equal += 1
    bounds = KeySpan()
    if equal < len(parts):
        bounds = _bounds(parts[equal], comparisons)
    ranged = (bounds.lower is not None) + (bounds.upper is not None)
    if not equal and not ranged:
        return None
    return Access(tuple(KeySpan(p, bounds.lower, bounds.upper) for p in prefixes), equal, ranged)


def _equal_values(part: FieldWanted, comparisons: Sequence[Evaluated]) -> list[Value] | None:
    """Return the values that a part can have, once each, in the order of the text; None: any.

    A comparison with NULL leaves none, which :attr:`TablePlan.empty` says, not a span.
    """
    best: list[Value] | None = None
    for comparison in comparisons:
        if comparison.field != part or comparison.op not in (PredicateOp.EQ, PredicateOp.IN, PredicateOp.IS_NULL):
            continue
        given = (None,) if comparison.op is PredicateOp.IS_NULL else comparison.values
        values = list({(type(value), value): value for value in given}.values())
        if values and (best is None or len(values) < len(best)):
            best = values
    return best


def _bounds(part: FieldWanted, comparisons: Sequence[Evaluated]) -> KeySpan:
    lower: Bound | None = None
    upper: Bound | None = None
    for comparison in comparisons:
        if comparison.field != part or not comparison.values:
            continue
        bound = Bound(comparison.values[0], comparison.op in (PredicateOp.GE, PredicateOp.LE))
        if comparison.op in (PredicateOp.GT, PredicateOp.GE) and (lower is None or _after(bound, lower, 1)):
            lower = bound
        elif comparison.op in (PredicateOp.LT, PredicateOp.LE) and (upper is None or _after(bound, upper, -1)):
            upper = bound
    return KeySpan((), lower, upper)


def _after(bound: Bound, other: Bound, sign: int) -> bool:
    """Is a bound tighter than another one? NaN and the like are left alone."""
    a, b = bound.value, other.value
    if a == b:
        return other.inclusive and not bound.inclusive
    try:
        return bool(a > b) if sign > 0 else bool(a < b)  # type: ignore[operator]
    except TypeError:
        return False


def key_parts(table: Table) -> tuple[FieldWanted, ...]:
    """Return the parts of a table's primary key."""
    return tuple(FieldWanted(i) for i in table.key_column_ids)


def index_parts(index: Index) -> tuple[FieldWanted, ...]:
    """Return the parts of an index."""
    return tuple(FieldWanted(p.column_id, p.path) for p in index.parts)


def usable_indexes(schema: Schema, table: Table) -> list[Index]:
    """Return the indexes that may be read: public, and with one entry for each row."""
    found = []
    for index in table.indexes:
        if index.state is ElementState.PUBLIC and all(
            kind_of(schema, table, p) is not None for p in index_parts(index)
        ):
            found.append(index)
    return sorted(found, key=lambda i: i.id)


def covers(table: Table, index: Index, columns: Sequence[FieldWanted]) -> bool:
    """Do the entries of an index hold all of these? Keys hold equal values, not always the same: 1.50, -0.0."""
    held = {p for p in index_parts(index) if _kept_as_is(table, p)} | {FieldWanted(i) for i in index.storing}
    held |= set(key_parts(table))
    return all(c in held for c in columns)


def _kept_as_is(table: Table, part: FieldWanted) -> bool:
    return not part.path and table.by_id[part.column_id].type.kind not in (Kind.DOUBLE, Kind.NUMERIC)
