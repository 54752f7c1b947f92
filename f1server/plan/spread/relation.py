"""Relations whose rows are spread over workers, and the parts under construction that produce them.

A :class:`Rel` is an open query: FROM and WHERE of a part that is still growing. It is closed when its rows have to
move; what comes after is another part that reads the exchange.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlglot import exp

from f1server.plan.parts import PartScan, Spread, Workers
from f1server.plan.types import META, infer

Ref = tuple[str, str]
"""A column: the alias of its relation and its name, as :mod:`f1server.plan.spread.normal` writes them."""


class Placement(StrEnum):
    """Which worker holds which rows of a relation."""

    ANY = "any"
    """Each row at one worker, whichever."""
    HASH = "hash"
    """By the hash of the keys."""
    RANGE = "range"
    """By the range of root keys: as the scans of one root table are divided."""
    ONE = "one"
    """All at the first worker; there are no others."""
    COPY = "copy"
    """Every worker has all rows."""


@dataclass(frozen=True, slots=True)
class Dist:
    """How a relation is spread. ``keys``: for each part of the key the columns that hold it; ``casts``: the types in
    which it is hashed; ``root``: the root table whose ranges divide it."""

    placement: Placement
    keys: tuple[frozenset[Ref], ...] = ()
    casts: tuple[str, ...] = ()
    root: int = 0

    @property
    def keyed(self) -> bool:
        """Do equal keys meet at one worker?"""
        return self.placement in (Placement.HASH, Placement.RANGE)

    def equal(self, a: Ref, b: Ref, cast: str = "") -> "Dist":
        """Return the distribution when two columns are known to be equal in every row.

        ``cast``: the type in which they were compared, if it is not that of both. Different integers may equal one
        double: by those, rows meet only where they were dealt out as doubles.
        """
        keys: list[frozenset[Ref]] = []
        for key, held in zip(self.keys, self.casts or ("",) * len(self.keys), strict=True):
            alike = cast in ("", held) or "DOUBLE" not in (cast, held)
            keys.append(key | {a, b} if alike and (a in key or b in key) else key)
        return Dist(self.placement, tuple(keys), self.casts, self.root)

    def only(self, refs: Iterable[Ref]) -> "Dist":
        """Return the distribution if only these columns are kept."""
        kept = set(refs)
        keys = tuple(k & kept for k in self.keys)
        return self if not self.keyed else ANY if not all(keys) else Dist(self.placement, keys, self.casts, self.root)


ANY = Dist(Placement.ANY)
ONE = Dist(Placement.ONE)
COPY = Dist(Placement.COPY)


@dataclass(slots=True, eq=False)
class Exchange:
    """Rows on their way from one part to another, where they are called ``relation``."""

    relation: str
    producer: "Draft"
    spread: Spread
    keys: tuple[exp.Expr, ...] = ()
    consumer: "Draft | None" = None


@dataclass(slots=True, eq=False)
class Draft:
    """A part: its query, complete, and where its rows go."""

    number: int
    select: exp.Expr
    workers: Workers
    scans: list[PartScan]
    inputs: list[Exchange]
    operators: list[dict[str, object]]
    outputs: list[Exchange] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Rel:
    """An open query.

    ``source`` is its FROM: the first relation, then joins. ``map`` says how columns of the statement's relations are
    written in it. ``rows`` is an estimate. ``looked``: scans whose rows others are looked up by, so that they cannot be
    looked up themselves.
    """

    source: list[exp.Expr]
    map: dict[Ref, exp.Expr]
    dist: Dist
    rows: float
    where: list[exp.Expr] = field(default_factory=list)
    scans: list[PartScan] = field(default_factory=list)
    inputs: list[Exchange] = field(default_factory=list)
    operators: list[dict[str, object]] = field(default_factory=list)

    def knows(self, refs: Iterable[Ref]) -> bool:
        """Are these columns of it?"""
        return all(ref in self.map for ref in refs)

    def written(self, node: exp.Expr) -> exp.Expr:
        """Return an expression as it is written in this query."""
        return rewritten(node, self.map)

    def select(self, columns: Sequence[exp.Expr]) -> exp.Select:
        """Return the query with a select list."""
        first, *joins = self.source
        found = exp.Select(expressions=list(columns))
        found.set("from_", exp.From(this=first.copy()))
        if joins:
            found.set("joins", [join.copy() for join in joins])
        if self.where:
            found.set("where", exp.Where(this=exp.and_(*[w.copy() for w in self.where])))
        return found

    def take(self, other: "Rel") -> None:
        """Read in the same part what ``other`` reads."""
        self.scans += other.scans
        self.inputs += other.inputs
        self.operators += other.operators


def refs_of(node: exp.Expr) -> set[Ref]:
    """Return the columns in an expression, those inside its queries included."""
    return {(c.table, c.name) for c in node.find_all(exp.Column) if c.table}


def free_refs(query: exp.Expr) -> set[Ref]:
    """Return the columns that a query takes from around it."""
    inside = {node.alias for node in query.find_all(exp.Table, exp.Subquery, exp.Lateral) if node.alias}
    return {ref for ref in refs_of(query) if ref[0] not in inside}


def rewritten(node: exp.Expr, places: Mapping[Ref, exp.Expr]) -> exp.Expr:
    """Return a copy of an expression with columns replaced; those that are not in ``places`` stay."""
    root = exp.Paren(this=node.copy())
    for column in list(root.find_all(exp.Column)):
        found = places.get((column.table, column.name))
        if found is not None:
            new = found.copy()
            new.meta.setdefault(META, infer(column))
            column.replace(new)
    inner: exp.Expr = root.this
    inner.pop()
    return inner


def column_of(relation: str, name: str, like: exp.Expr) -> exp.Column:
    """Return a column of a relation, of the type of an expression."""
    found = exp.column(name, table=relation, quoted=True)
    found.meta[META] = infer(like)
    return found


def aliased(query: exp.Expr, alias: str) -> exp.Expr:
    """Return a query as a relation of FROM."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def table(relation: str, alias: str = "") -> exp.Table:
    """Return a relation of FROM."""
    found = exp.Table(this=exp.to_identifier(relation))
    found.set("alias", exp.TableAlias(this=exp.to_identifier(alias or relation, quoted=True)))
    return found
