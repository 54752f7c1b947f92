"""How two relations are joined: where their rows meet, and what has to move for that.

A join is local when equal keys are at one worker already, or one side is at all of them. Otherwise the smaller side is
broadcast if it is small, or both are dealt out by the hash of the join key (F1 sections 8.2 and 8.3).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from f1server.plan.parts import Spread
from f1server.plan.spread.builder import Builder, Key, hash_cast
from f1server.plan.spread.normal import Unspreadable
from f1server.plan.spread.relation import ANY, COPY, ONE, Dist, Placement, Ref, Rel, aliased, refs_of
from f1server.plan.types import infer

_BIG_BROADCAST = 2_000_000


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """``broadcast_rows``: a side of no more rows may be sent to all workers. ``force``: broadcast or repartition
    wherever that is right, for tests. ``workers``: how many there will be, about."""

    broadcast_rows: int = 10_000
    force: str = ""
    workers: int = 2


@dataclass(frozen=True, slots=True)
class Pair:
    """Two expressions that a join compares: of the left and of the right side."""

    left: exp.Expr
    right: exp.Expr
    cast: str

    @property
    def refs(self) -> tuple[Ref | None, Ref | None]:
        """The columns that they are, if they are."""
        return Key(self.left).ref, Key(self.right).ref


def pairs_of(conjuncts: Iterable[exp.Expr], left: Rel, right: Rel) -> list[Pair]:
    """Return the equalities between two relations by which rows can be dealt out."""
    found: list[Pair] = []
    for conjunct in conjuncts:
        node = conjunct.unnest()
        if not isinstance(node, exp.EQ) or node.find(exp.Query):
            continue
        for a, b in ((node.this, node.expression), (node.expression, node.this)):
            mine, theirs = refs_of(a), refs_of(b)
            if mine and theirs and left.knows(mine) and right.knows(theirs):
                a, b = a.unnest(), b.unnest()
                cast = hash_cast(infer(a), infer(b))
                if cast is not None:
                    found.append(Pair(a, b, cast))
                break
    return found


def together(left: Dist, right: Dist, pairs: Sequence[Pair]) -> bool:
    """Do rows that the pairs join lie at one worker already?"""
    if not left.keyed or left.placement is not right.placement or len(left.keys) != len(right.keys):
        return False
    if left.casts != right.casts or left.root != right.root:
        return False
    columns = [pair.refs for pair in pairs]
    return all(
        any(a in mine and b in theirs for a, b in columns) for mine, theirs in zip(left.keys, right.keys, strict=True)
    )


def matching(dist: Dist, pairs: Sequence[Pair], *, flip: bool = False) -> list[Key] | None:
    """Return the keys by which the other side has to be dealt out to meet ``dist``; None: the pairs do not tell."""
    if dist.placement is not Placement.HASH:
        return None
    keys: list[Key] = []
    for held, cast in zip(dist.keys, dist.casts, strict=True):
        for pair in pairs:
            a, b = (pair.right, pair.left) if flip else (pair.left, pair.right)
            if Key(a).ref in held and pair.cast == cast:
                keys.append(Key(b, cast))
                break
        else:
            return None
    return keys


@dataclass(slots=True, eq=False)
class Joiner:
    """Joins relations of one statement."""

    builder: Builder
    options: JoinOptions = field(default_factory=JoinOptions)

    def join(self, left: Rel, right: Rel, side: str, on: Sequence[exp.Expr], later: Iterable[exp.Expr]) -> Rel:
        """Join two relations; ``later``: what will still be asked of their columns. Raises Unspreadable."""
        keep = {ref for node in (*later, *on) for ref in refs_of(node)}
        pairs = pairs_of(on, left, right)
        left, right = self._meet(left, right, side, pairs, keep)
        return self._merged(left, right, side, on, pairs, keep)

    def _meet(self, left: Rel, right: Rel, side: str, pairs: Sequence[Pair], keep: set[Ref]) -> tuple[Rel, Rel]:
        """Let rows that join be at one worker."""
        if self._is_local(left, right, side, pairs):
            return left, right
        stays = matching(left.dist, pairs) is not None
        if self._may_broadcast(right, left, side in ("", "LEFT"), pairs, stays):
            return left, self._broadcast(right, keep)
        stays = matching(right.dist, pairs, flip=True) is not None
        if self._may_broadcast(left, right, side in ("", "RIGHT"), pairs, stays):
            return self._broadcast(left, keep), right
        if not pairs:
            return self._gather(left, keep), self._gather(right, keep)
        return self._repartition(left, right, pairs, keep)

    @staticmethod
    def _is_local(left: Rel, right: Rel, side: str, pairs: Sequence[Pair]) -> bool:
        one, copy = Placement.ONE, Placement.COPY
        a, b = left.dist.placement, right.dist.placement
        if (a is one and b is one) or (a is copy and b is copy):
            return True
        if (b is copy and side in ("", "LEFT")) or (a is copy and side in ("", "RIGHT")):
            return True
        return together(left.dist, right.dist, pairs)

    def _may_broadcast(self, small: Rel, other: Rel, right: bool, pairs: Sequence[Pair], stays: bool) -> bool:
        """``right``: would the answer be right? ``stays``: need the other side's rows not move for a repartition?"""
        if not right or other.dist.placement in (Placement.ONE, Placement.COPY):
            return False
        if not pairs:
            if small.rows > _BIG_BROADCAST:
                raise Unspreadable("a join without equalities of large relations")
            return True
        if self.options.force:
            return self.options.force == "broadcast"
        moved = small.rows + (0.0 if stays else other.rows)
        # Each copy of a row is sent, and put into a hash table: that counts twice.
        return small.rows <= self.options.broadcast_rows and 2 * small.rows * self.options.workers <= moved

    def _broadcast(self, rel: Rel, keep: set[Ref]) -> Rel:
        return rel if rel.dist.placement is Placement.COPY else self.builder.close(rel, keep, Spread.BROADCAST)

    def _gather(self, rel: Rel, keep: set[Ref]) -> Rel:
        if rel.dist.placement is Placement.ONE:
            return rel
        return self.builder.close(rel, keep, Spread.GATHER)

    def _repartition(self, left: Rel, right: Rel, pairs: Sequence[Pair], keep: set[Ref]) -> tuple[Rel, Rel]:
        if (keys := matching(left.dist, pairs)) is not None:
            return left, self.builder.close(right, keep, Spread.HASH, keys)
        if (keys := matching(right.dist, pairs, flip=True)) is not None:
            return self.builder.close(left, keep, Spread.HASH, keys), right
        mine = [Key(pair.left, pair.cast) for pair in pairs]
        theirs = [Key(pair.right, pair.cast) for pair in pairs]
        closed = self.builder.close(left, keep, Spread.HASH, mine)
        return closed, self.builder.close(right, keep, Spread.HASH, theirs)

    def _merged(
        self, left: Rel, right: Rel, side: str, on: Sequence[exp.Expr], pairs: Sequence[Pair], keep: set[Ref]
    ) -> Rel:
        """Put two relations that meet into one part."""
        if side in ("RIGHT", "FULL") and (left.where or len(left.source) > 1):
            left = self.nested(left, keep)
        if (side and (right.where or len(right.source) > 1)) or len(right.source) > 1:
            right = self.nested(right, keep)
        left.map.update(right.map)
        left.where += right.where
        dist = joined_dist(left.dist, right.dist, side, pairs)
        left.rows = _joined_rows(left.rows, right.rows, side, pairs)
        left.operators += right.operators
        left.scans += right.scans
        left.inputs += right.inputs
        condition = [left.written(node) for node in on]
        join = exp.Join(this=right.source[0])
        if side:
            join.set("side", side)
        else:
            join.set("kind", "INNER" if condition else "CROSS")
        if condition or side:
            join.set("on", exp.and_(*condition) if condition else exp.true())
        left.source.append(join)
        name = f"{side.lower() or 'inner'} join" if pairs or on else "cross join"
        left.operators.append({"operator": name, "on": [str(node.sql("duckdb")) for node in on]})
        left.dist = dist
        return left

    def nested(self, rel: Rel, keep: set[Ref]) -> Rel:
        """Return an open query as one relation of FROM, so that what is joined comes after its WHERE."""
        alias = self.builder.query_alias()
        kept = sorted(ref for ref in rel.map if ref in keep)
        columns = [exp.alias_(rel.map[ref].copy(), f"c{i}", quoted=True) for i, ref in enumerate(kept)]
        if not columns:
            columns = [exp.alias_(exp.Literal.number(1), "c0", quoted=True)]
        places: dict[Ref, exp.Expr] = {}
        for i, ref in enumerate(kept):
            places[ref] = exp.column(f"c{i}", table=alias, quoted=True)
            places[ref].meta.update(rel.map[ref].meta)
        found = Rel([aliased(rel.select(columns), alias)], places, rel.dist, rel.rows)
        found.take(rel)
        return found


def joined_dist(left: Dist, right: Dist, side: str, pairs: Sequence[Pair]) -> Dist:
    """Return how the rows of a join are spread, both sides having met."""
    a, b = left.placement, right.placement
    if a is Placement.COPY or b is Placement.COPY:
        found = right if a is Placement.COPY else left
        if a is Placement.COPY and b is Placement.COPY:
            return COPY
    elif a is Placement.ONE:
        return ONE
    else:
        found = {"": left, "LEFT": left, "RIGHT": right}.get(side, ANY)
    if not side:
        for pair in pairs:
            mine, theirs = pair.refs
            if mine is not None and theirs is not None:
                alike = infer(pair.left).kind is infer(pair.right).kind
                found = found.equal(mine, theirs, "" if alike else pair.cast)
    return found


def _joined_rows(left: float, right: float, side: str, pairs: Sequence[Pair]) -> float:
    if not pairs and not side:
        return left * right
    return max(left, right) if side else max(1.0, max(left, right))
