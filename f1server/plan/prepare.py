"""From a parsed query to one that can run: once for a text and a schema (:class:`Prepared`), then for each execution.

The first half looks up names, rewrites and collects conditions; the second fills in parameters and chooses access
paths.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from f1common.encoding.values import Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.protos import registry_of
from f1server.catalog.schema import ColumnType, Kind, Schema
from f1server.plan import duckdb_sql
from f1server.plan.conditions import Conditions, all_comparisons, collect, conjuncts
from f1server.plan.constants import Constant, Unfit, constant, evaluate, plain
from f1server.plan.names import COLUMN_META, BaseTable, OutColumn
from f1server.plan.planning import Planning, Shape, TablePlan, evaluated
from f1server.plan.points import Point, point_of
from f1server.plan.resolve import ProtoFunction, Resolver
from f1server.plan.rules import apply_rules
from f1server.plan.scans import Direct, Lookup, TableScan
from f1server.rows.coerce import coerce

_SIMPLE_KEYS = frozenset({"expressions", "from_", "where", "kind"})
_LIMIT_KEYS = _SIMPLE_KEYS - {"where"} | {"limit", "offset"}
_ORDER_KEYS = _SIMPLE_KEYS | {"limit", "offset", "order"}


@dataclass(frozen=True, slots=True)
class ScanView:
    """A relation of some columns of a scan: (name in the scan, name in the relation)."""

    relation: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedScan:
    """A scan, and what DuckDB calls its rows and their columns (``names``, in the order of ``scan.columns``).

    ``views``: the query reads these relations instead, several places one scan.
    """

    relation: str
    names: tuple[str, ...]
    scan: TableScan
    alias: str = ""
    lookup: Lookup | None = None
    views: tuple[ScanView, ...] = ()

    @property
    def relations(self) -> list[str]:
        """What the query calls the rows."""
        return [view.relation for view in self.views] or [self.relation]


@dataclass(frozen=True, slots=True, eq=False)
class BoundQuery:
    """A query ready to run.

    ``sql`` reads the relations of ``scans``; ``bound`` are values for its named parameters. ``columns``: names and
    types of the result, None if only DuckDB knows. ``picks``: the names of the columns of the one scan that are the
    result, in which case DuckDB is not needed (point read); ``direct``: likewise, if there are few rows. ``as_of``: the
    timestamp to read at, or None. ``locking``: SELECT ... FOR UPDATE. ``kept``: what whoever runs it has worked out
    about the form of its results, which is the same each time, by what it picks.
    """

    schema: Schema
    sql: str
    bound: dict[str, object]
    scans: tuple[PlannedScan, ...]
    functions: tuple[ProtoFunction, ...]
    columns: tuple[OutColumn, ...] | None
    picks: tuple[str, ...] | None = None
    as_of: int | None = None
    locking: bool = False
    now_us: int = 0
    direct: Direct | None = None
    kept: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A query whose names are looked up, for any parameters. ``tree`` is what ``template`` was written from; ``point``:
    the row that it is about, if it is about one."""

    schema: Schema
    tree: exp.Expr
    template: duckdb_sql.Template
    tables: tuple[BaseTable, ...]
    functions: tuple[ProtoFunction, ...]
    columns: tuple[OutColumn, ...] | None
    conditions: Conditions
    shape: Shape
    limit: tuple[Constant, Constant] | None = None
    as_of: Constant | None = None
    locking: bool = False
    views: tuple[str, ...] = ()
    point: Point | None = None
    kept: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False)

    @property
    def names(self) -> set[str]:
        """The tables and views that it reads."""
        return {*self.views, *(base.table.name for base in self.tables)}

    def bind(self, params: Sequence[object], now_us: int, rules_off: Collection[str] = ()) -> BoundQuery:
        """Fill in parameters and choose how tables are read. Raises F1Error INVALID_ARGUMENT."""
        planning = self.plan(params, now_us, rules_off)
        scans = planned_scans(planning.tables)
        sql, bound = self.template.fill(params, now_us, lambda name, value: message_bytes(self.schema, name, value))
        picks = self.shape.picks if planning.point else None
        as_of = None if self.as_of is None else _timestamp_of(self.as_of, params, now_us)
        return BoundQuery(
            self.schema,
            sql,
            bound,
            scans,
            self.functions,
            self.columns,
            picks,
            as_of,
            self.locking,
            now_us,
            planning.direct,
            self.kept,
        )

    def plan(self, params: Sequence[object], now_us: int, rules_off: Collection[str] = ()) -> Planning:
        """Choose how tables are read."""
        tables = []
        for base in self.tables:
            needed = base.in_order()
            scan = TableScan(base.table, tuple(needed))
            plan = TablePlan(base.number, base.relation, base.alias, base.table, tuple(needed.values()), scan)
            evaluated(self.schema, plan, self.conditions.of(base.number), params, now_us)
            tables.append(plan)
        limit = self._limit(params, now_us)
        # Of a LIMIT that is 0 or no number the evaluator says what it means: no rule may take it for none at all.
        shape = self.shape if limit or self.limit is None else Shape()
        planning = Planning(self.schema, tables, self.conditions.equalities, shape, limit or None)
        apply_rules(planning, rules_off)
        return planning

    def _limit(self, params: Sequence[object], now_us: int) -> int | None:
        if self.limit is None:
            return None
        values = [evaluate(part, Kind.INT64, params, now_us) for part in self.limit]
        numbers = [v for v in values if isinstance(v, int) and v >= 0]
        return sum(numbers) if len(numbers) == len(values) else None


def read_timestamp(as_of: exp.Expr | None, params: Sequence[object], now_us: int) -> int:
    """Return the timestamp that AS OF names, 0 without one. Raises F1Error INVALID_ARGUMENT."""
    if as_of is None:
        return 0
    time = constant(as_of.copy())
    if time is None:
        raise _bad_time()
    return _timestamp_of(time, params, now_us)


def _timestamp_of(time: Constant, params: Sequence[object], now_us: int) -> int:
    number = evaluate(time, Kind.INT64, params, now_us)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    value = evaluate(time, Kind.TIMESTAMP, params, now_us)
    if isinstance(value, Timestamp):
        return value.us
    raise _bad_time()


def planned_scans(tables: Sequence[TablePlan]) -> tuple[PlannedScan, ...]:
    """Return the scans that serve all tables, in order."""
    found: dict[str, PlannedScan] = {}
    for plan in tables:
        if not plan.shared:
            found[plan.relation] = PlannedScan(plan.relation, plan.names, plan.scan, plan.alias, plan.lookup)
            continue
        names = tuple(f"c{i}" for i in range(len(plan.scan.columns)))
        place = dict(zip(plan.scan.columns, names, strict=True))
        columns = tuple((place[w], name) for w, name in zip(plan.own_columns, plan.names, strict=True))
        view = ScanView(plan.relation, columns)
        first = found.get(plan.shared)
        alias = f"{first.alias}, {plan.alias}" if first is not None else plan.alias
        views = (*first.views, view) if first is not None else (view,)
        found[plan.shared] = PlannedScan(plan.shared, names, plan.scan, alias, None, views)
    return tuple(found.values())


def message_bytes(schema: Schema, name: str, value: object) -> object:
    """Return a parameter as the bytes of a message: bytes are checked, text is its JSON or text format.

    For :data:`f1server.plan.duckdb_sql.BYTES_GAP` text is read as it is for columns of BYTES.
    """
    if value is None:
        return None
    if name == duckdb_sql.BYTES_GAP:
        return coerce(ColumnType(Kind.BYTES), value) if isinstance(value, str) else value
    if not isinstance(value, str | bytes):
        raise F1Error(Code.INVALID_ARGUMENT, f"a {type(value).__name__} is no {name}: give bytes, JSON or text format")
    registry = registry_of(schema)
    if isinstance(value, bytes):
        registry.parse(name, value)
        return value
    return registry.from_json(name, value) if value.lstrip()[:1] == "{" else registry.from_text(name, value)


def _bad_time() -> F1Error:
    return F1Error(
        Code.INVALID_ARGUMENT,
        "AS OF needs a constant: TIMESTAMP '2024-01-31 12:00:00+00', now() - INTERVAL '10' SECOND, microseconds, or ?",
    )


def prepare(schema: Schema, text: str, query: exp.Expr, as_of: exp.Expr | None = None) -> Prepared:
    """Prepare a query, which is changed. Raises F1Error NOT_FOUND, INVALID_ARGUMENT with details ``line`` and
    ``column``."""
    try:
        return _prepare(schema, text, query, as_of)
    except RecursionError:
        raise F1Error(Code.INVALID_ARGUMENT, "the statement is nested too deeply") from None


def _prepare(schema: Schema, text: str, query: exp.Expr, as_of: exp.Expr | None) -> Prepared:
    resolver = Resolver(schema, text)
    # A parent for everything, so that any node can be replaced.
    root = exp.Subquery(this=_as_select(query))
    time = constant(as_of) if as_of is not None else None
    if as_of is not None and time is None:
        raise _bad_time()
    columns = resolver.query(root.this, None, {})
    resolver.finish()
    return finish(resolver, root.this, columns, time)


def finish(
    resolver: Resolver, query: exp.Expr, columns: tuple[OutColumn, ...] | None, as_of: Constant | None = None
) -> Prepared:
    """Collect conditions from a resolved query and rewrite it for DuckDB."""
    conditions = collect(select for select, _ in resolver.selects)
    shape, limit = _shape(resolver, query, columns)
    locking = bool(query.args.get("locks"))
    template = duckdb_sql.template(query)
    return Prepared(
        resolver.schema,
        query,
        template,
        tuple(resolver.tables),
        tuple(resolver.functions.values()),
        columns,
        conditions,
        shape,
        limit,
        as_of,
        locking,
        tuple(resolver.views),
        point_of(resolver.schema, resolver.tables, conditions, shape),
    )


def _as_select(query: exp.Expr) -> exp.Expr:
    """Turn VALUES as a whole query into SELECT * FROM (VALUES ...)."""
    if isinstance(query, exp.Values):
        return exp.Select(expressions=[exp.Star()], from_=exp.From(this=query))
    return query


def _shape(
    resolver: Resolver, query: exp.Expr, columns: tuple[OutColumn, ...] | None
) -> tuple[Shape, tuple[Constant, Constant] | None]:
    """Return what rules want to know of the query's form, and its limit if any rows would do."""
    if not isinstance(query, exp.Select) or len(resolver.tables) != 1 or len(resolver.selects) != 1 or columns is None:
        return Shape(), None
    used = {key for key, value in query.args.items() if value}
    if not isinstance(query.args["from_"].this, exp.Table) or resolver.functions or resolver.fields:
        return Shape(), None
    limit = _limit_of(query, used)
    picks = _picks(resolver.tables[0], query)
    if "order" in used and (limit is not None or used <= _SIMPLE_KEYS | {"order"}):
        return _ordered_shape(query, picks), limit
    if used <= _SIMPLE_KEYS and "where" in used:
        noted = all_comparisons(list(conjuncts(query.args["where"].this)))
        return Shape(noted is not None, limit is not None, len(noted or ()), picks), limit
    return Shape(limited=limit is not None), limit


def _limit_of(query: exp.Select, used: set[str]) -> tuple[Constant, Constant] | None:
    """Return LIMIT and OFFSET of a query whose rows are rows of its table: no grouping, no windows."""
    if "limit" not in used or not (used <= _LIMIT_KEYS or (used <= _ORDER_KEYS and "order" in used)):
        return None
    if any(e.find(exp.AggFunc, exp.Window, exp.Anonymous) for e in query.expressions):
        return None
    if {key for key, value in query.args["limit"].args.items() if value} != {"expression"}:
        return None  # a share of the rows, or another kind of limit
    count = constant(query.args["limit"].expression)
    offset = constant(query.args["offset"].expression if "offset" in used else exp.Literal.number(0))
    return (count, offset) if count is not None and offset is not None else None


def _ordered_shape(query: exp.Select, picks: tuple[str, ...] | None) -> Shape:
    """Return the shape of a query with ORDER BY: of columns in one direction, all rows by comparisons."""
    order: list[int] = []
    directions = set()
    for ordered in query.args["order"].expressions:
        node = ordered.this
        origin = node.meta.get(COLUMN_META) if isinstance(node, exp.Column) and node.meta else None
        if origin is None or origin.field.path:
            return Shape()
        order.append(origin.field.column_id)
        directions.add(bool(ordered.args.get("desc")))
    where = query.args.get("where")
    parts = list(conjuncts(where.this)) if where is not None else []
    noted = all_comparisons(parts)
    if len(directions) != 1 or noted is None:
        return Shape()
    return Shape(
        conditions=len(noted),
        picks=picks,
        order=tuple(order),
        descending=directions.pop(),
        offset="offset" in {key for key, value in query.args.items() if value},
    )


def _picks(base: BaseTable, query: exp.Select) -> tuple[str, ...] | None:
    """Return the columns that the select list consists of, or None if it computes anything."""
    picks: list[str] = []
    for projection in query.expressions:
        node = projection.this if isinstance(projection, exp.Alias) else projection
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            inner = node.this if isinstance(node, exp.Column) else node
            if any(inner.args.get(key) for key in ("replace", "rename", "except_")):
                return None
            picks += [column.name for column in base.table.visible]
            continue
        origin = node.meta.get(COLUMN_META) if isinstance(node, exp.Column) and node.meta else None
        if origin is None:
            return None
        picks.append(base.needed[origin.field])
    return tuple(picks)


@dataclass(slots=True)
class PlanCache:
    """Prepared statements by text and database, each for a version of its schema; the least lately used go first."""

    size: int = 512
    entries: dict[tuple[str, str], tuple[Schema, object]] = field(default_factory=dict)

    def get(self, schema: Schema, key: str) -> object | None:
        """Return what was kept, if the schema is still the same."""
        place = (schema.database, key)
        kept = self.entries.pop(place, None)
        if kept is None or kept[0] is not schema:
            return None
        self.entries[place] = kept
        return kept[1]

    def put(self, schema: Schema, key: str, value: object) -> None:
        """Keep something that was prepared under ``schema``."""
        if len(key) > 16_384:
            return
        while len(self.entries) >= self.size:
            del self.entries[next(iter(self.entries))]
        self.entries[(schema.database, key)] = (schema, value)


__all__ = ["BoundQuery", "PlanCache", "PlannedScan", "Prepared", "Unfit", "plain", "prepare"]
