"""Makes parts and exchanges: what closes an open query and lets its rows move."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from f1server.catalog.schema import Kind
from f1server.plan.parts import Spread, Workers
from f1server.plan.spread.relation import (
    ANY,
    COPY,
    ONE,
    Dist,
    Draft,
    Exchange,
    Placement,
    Ref,
    Rel,
    column_of,
    table,
)
from f1server.plan.types import SqlType, infer

_CASTS = {
    Kind.BOOL: "BOOLEAN",
    Kind.INT64: "HUGEINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.NUMERIC: "DECIMAL(38, 9)",
    Kind.STRING: "TEXT",
    Kind.BYTES: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
}
_NUMBERS = (Kind.INT64, Kind.NUMERIC, Kind.DOUBLE)


def hash_cast(left: SqlType, right: SqlType) -> str | None:
    """Return the DuckDB type in which values of two types are hashed so that equal ones meet; None: there is none.

    Values that a comparison finds equal are equal in that type; rounding may only add to what meets.
    """
    if left.lists or right.lists or left.kind is None or right.kind is None:
        return None
    if left.kind is right.kind:
        return _CASTS.get(left.kind)
    if left.kind in _NUMBERS and right.kind in _NUMBERS:
        return "DOUBLE" if Kind.DOUBLE in (left.kind, right.kind) else _CASTS[Kind.NUMERIC]
    return None


@dataclass(slots=True, eq=False)
class Key:
    """A part of a key to be spread by: an expression over columns of the statement, and the type it is hashed in."""

    value: exp.Expr
    cast: str = ""

    @property
    def ref(self) -> Ref | None:
        """The column that it is, if it is one."""
        return (self.value.table, self.value.name) if isinstance(self.value, exp.Column) else None


@dataclass(slots=True, eq=False)
class Builder:
    """Numbers parts and exchanges of one statement."""

    drafts: list[Draft] = field(default_factory=list)
    exchanges: int = 0
    queries: int = 0

    def draft(self, rel: Rel, select: exp.Expr) -> Draft:
        """Make an open query a part whose rows ``select`` gives."""
        alone = rel.dist.placement in (Placement.ONE, Placement.COPY)
        workers = Workers.ONE if alone else Workers.ALL
        draft = Draft(len(self.drafts) + 1, select, workers, list(rel.scans), list(rel.inputs), list(rel.operators))
        for exchange in draft.inputs:
            exchange.consumer = draft
        self.drafts.append(draft)
        return draft

    def exchange(self, producer: Draft, spread: Spread, keys: Sequence[exp.Expr] = ()) -> Exchange:
        """Let the rows of a part move; the consumer is known when the query that reads them is closed."""
        found = Exchange(f"f1_x{self.exchanges}", producer, spread, tuple(keys))
        self.exchanges += 1
        producer.outputs.append(found)
        return found

    def close(self, rel: Rel, keep: Iterable[Ref], spread: Spread, keys: Sequence[Key] = ()) -> Rel:
        """End a part here, and return the relation of its rows after they have moved; ``keep``: of these columns."""
        kept = sorted({ref for ref in keep if ref in rel.map})
        names = {ref: f"c{i}" for i, ref in enumerate(kept)}
        columns = [exp.alias_(rel.map[ref].copy(), name, quoted=True) for ref, name in names.items()]
        hashed: list[exp.Expr] = []
        refs: list[Ref] = []
        for i, key in enumerate(keys):
            ref = key.ref
            if ref is None or ref not in names:
                ref = (f"k{self.exchanges}", f"k{i}") if ref is None else ref
                names[ref] = f"k{i}"
                columns.append(exp.alias_(rel.written(key.value), f"k{i}", quoted=True))
            column: exp.Expr = exp.column(names[ref], quoted=True)
            hashed.append(exp.cast(column, exp.DataType.build(key.cast, dialect="duckdb")) if key.cast else column)
            refs.append(ref)
        if not columns:
            columns = [exp.alias_(exp.Literal.number(1), "c0", quoted=True)]
        draft = self.draft(rel, rel.select(columns))
        exchange = self.exchange(draft, spread, hashed)
        places: dict[Ref, exp.Expr] = {
            ref: column_of(exchange.relation, name, rel.map[ref] if ref in rel.map else keys[int(name[1:])].value)
            for ref, name in names.items()
        }
        found = Rel([table(exchange.relation)], places, _after(spread, refs, keys), rel.rows, inputs=[exchange])
        found.operators.append(read_operator(exchange))
        return found

    def query_alias(self) -> str:
        """Return a new alias for a query in FROM."""
        self.queries += 1
        return f"q{self.queries}"


def read_operator(exchange: Exchange) -> dict[str, object]:
    """Describe the reading of an exchange for EXPLAIN."""
    found: dict[str, object] = {"operator": "receive", "part": exchange.producer.number, "spread": exchange.spread}
    if exchange.keys:
        found["keys"] = [_shown(key, exchange.producer) for key in exchange.keys]
    return found


def _shown(key: exp.Expr, producer: Draft) -> str:
    """Write a key with what the producer's columns are, as far as that is short."""
    names = {e.alias: e.this for e in producer.select.expressions if isinstance(e, exp.Alias)}
    column = key.find(exp.Column)
    inner = names.get(column.name) if column is not None else None
    text = str(inner.sql("duckdb")) if inner is not None else str(key.sql("duckdb"))
    return text if len(text) <= 60 else text[:57] + "..."


def _after(spread: Spread, refs: Sequence[Ref], keys: Sequence[Key]) -> Dist:
    match spread:
        case Spread.HASH:
            held = tuple(frozenset({ref}) for ref in refs)
            return Dist(Placement.HASH, held, tuple(key.cast for key in keys))
        case Spread.BROADCAST:
            return COPY
        case Spread.GATHER:
            return ONE
        case _:
            return ANY


def own_cast(value: exp.Expr) -> str:
    """Return the type in which an expression is hashed when it meets only itself."""
    kind = infer(value)
    return hash_cast(kind, kind) or ""
