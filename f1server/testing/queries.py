"""Random queries whose answers are determined: whoever runs them, over rows in any order, must find the same.

Whatever depends on the order of rows is asked with a total order only; sums of doubles stand in the select list of the
whole query only, where they can be compared with a tolerance.
"""

import datetime
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from f1common.encoding.values import Date, Timestamp
from f1server.catalog.schema import Kind
from f1server.testing.worlds import KINDS, Column, RandomTable, World, quoted, random_value

_NUMBERS = frozenset({Kind.INT64, Kind.NUMERIC, Kind.DOUBLE})
_COMPARISONS = ("=", "=", "=", "<>", "<", "<=", ">", ">=")
_MOST_ROWS = 20_000
_PARAMETER = re.compile("\x01(\\d+)\x01")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class RandomQuery:
    """A query. ``ordered``: its rows come in one order only. ``exact``: no result is a sum or mean of doubles."""

    sql: str
    params: tuple[object, ...]
    ordered: bool
    exact: bool


@dataclass(frozen=True, slots=True)
class _Field:
    """A column in reach: how it is written, and whether a key begins with it."""

    text: str
    kind: Kind
    name: str
    key: bool = False


@dataclass(frozen=True, slots=True)
class _Relation:
    """Something to select from. ``rows``: about how many."""

    text: str
    columns: tuple[Column, ...]
    rows: int
    key: int = 0


@dataclass(frozen=True, slots=True)
class _From:
    text: str
    fields: tuple[_Field, ...]
    rows: int


def random_query(rng: random.Random, world: World) -> RandomQuery:
    """Return a query over the tables of a world."""
    return _Maker(rng, world).whole()


class _Maker:
    """Makes one query. ``depth`` in its methods: how deep queries may still be nested."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self.rng = rng
        self.world = world
        self.aliases = 0
        self.params: list[object] = []
        self.shared: list[_Relation] = []
        self.exact = True
        self.final = False
        self.hidden: list[str] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # ------------------------------------------------------------------ queries

    def whole(self) -> RandomQuery:
        """Make the query, WITH and ORDER BY included."""
        head = ""
        if self.chance(0.25):
            made = []
            for i in range(self.rng.randint(1, 2)):
                text, columns, rows = self.query(1)
                made.append(f"w{i} AS ({text})")
                self.shared.append(_Relation(f"w{i}", columns, rows))
            head = f"WITH {', '.join(made)} "
        self.final = True
        text, columns, _ = self.query(2)
        ordered = False
        if self.exact and columns and self.chance(0.4):
            text, ordered = self.ordered(text, columns, self.hidden), True
        params: list[object] = []

        def place(match: re.Match[str]) -> str:
            params.append(self.params[int(match[1])])
            return "?"

        sql = _PARAMETER.sub(place, head + text)
        return RandomQuery(sql, tuple(params), ordered, self.exact)

    def ordered(self, text: str, columns: Sequence[Column], hidden: Sequence[str] = ()) -> str:
        """Give a query a total order, and perhaps a limit. ``hidden``: what it may be sorted by besides."""
        parts = [f"{i + 1}{self.direction()}" for i in range(len(columns))]
        self.rng.shuffle(parts)
        if hidden and self.chance(0.3):
            parts.insert(0, f"{self.rng.choice(hidden)}{self.direction()}")
        if self.chance(0.1):
            self.params.append(self.rng.randint(0, 9))
            return f"{text} ORDER BY {', '.join(parts)} LIMIT \x01{len(self.params) - 1}\x01"
        limit = (
            " LIMIT 0"
            if self.chance(0.03)
            else self.rng.choice(("", "", " LIMIT 3", " LIMIT 7", " LIMIT 5 OFFSET 2", " OFFSET 1"))
        )
        return f"{text} ORDER BY {', '.join(parts)}{limit}"

    def direction(self) -> str:
        return self.rng.choice(("", " ASC NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST"))

    def query(
        self, depth: int, outer: Sequence[_Field] = (), kinds: Sequence[Kind] | None = None
    ) -> tuple[str, tuple[Column, ...], int]:
        """Return a query, its columns and about how many rows it has; ``kinds``: of its columns, if that matters."""
        final, self.final = self.final, False
        if depth > 0 and not outer and not final and self.chance(0.06):
            return self.with_own(depth, kinds)
        if self.chance(0.12):
            return self.set_operation(depth, outer, kinds)
        self.final = final
        text, columns, rows = self.select(depth, outer, kinds)
        if not final and columns and self.chance(0.08):
            return self.ordered(text, columns), columns, min(rows, 5)
        return text, columns, rows

    def with_own(self, depth: int, kinds: Sequence[Kind] | None) -> tuple[str, tuple[Column, ...], int]:
        """Return a query with a WITH of its own, which may hide one further outside."""
        known = list(self.shared)
        text, columns, rows = self.query(depth - 1)
        self.shared = [r for r in known if r.text != "w0"] + [_Relation("w0", columns, rows)]
        inner, found, more = self.select(depth - 1, (), kinds)
        self.shared = known
        return f"WITH w0 AS ({text}) {inner}", found, more

    def set_operation(
        self, depth: int, outer: Sequence[_Field], kinds: Sequence[Kind] | None
    ) -> tuple[str, tuple[Column, ...], int]:
        wanted = list(kinds) if kinds is not None else [self.rng.choice(KINDS) for _ in range(self.rng.randint(1, 3))]
        left, columns, rows = self.select(depth - 1, outer, wanted)
        right, _, more = self.select(depth - 1, outer, wanted)
        kind = self.rng.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL"))
        return f"{left} {kind} {right}", columns, rows + more

    def select(
        self, depth: int, outer: Sequence[_Field], kinds: Sequence[Kind] | None
    ) -> tuple[str, tuple[Column, ...], int]:
        final, self.final = self.final, False
        source = self.source(depth)
        where = ""
        if self.chance(0.45) or (outer and self.chance(0.8)):
            where = f" WHERE {self.where(source.fields, depth, outer)}"
        self.final = final
        if final and kinds is None and self.chance(0.05):
            star = (
                self.rng.choice(("*", "*", source.fields[0].text.split(".")[0] + ".*"))
                if "." in source.fields[0].text
                else "*"
            )
            # Which columns that are, the caller need not know.
            return f"SELECT {star} FROM {source.text}{where}", (), source.rows
        if self.chance(0.35):
            return self.grouped(source, where, depth, kinds, final)
        return self.plain(source, where, depth, outer, kinds, final)

    def plain(
        self,
        source: _From,
        where: str,
        depth: int,
        outer: Sequence[_Field],
        kinds: Sequence[Kind] | None,
        final: bool,
    ) -> tuple[str, tuple[Column, ...], int]:
        self.final = False
        wanted = list(kinds) if kinds is not None else [self.rng.choice(KINDS) for _ in range(self.rng.randint(1, 4))]
        items = [self.value(kind, source.fields, depth, outer) for kind in wanted]
        if kinds is None and self.chance(0.15):
            items.append(self.window(source.fields))
            wanted.append(Kind.INT64)
        distinct = "DISTINCT " if self.chance(0.12) else ""
        columns = tuple(Column(f"c{i}", kind) for i, kind in enumerate(wanted))
        names = [f"{item} AS {c.name}" for item, c in zip(items, columns, strict=True)]
        if final and not distinct:
            self.hidden = [field.text for field in source.fields]
        if final and self.chance(0.2):
            names = items
        return f"SELECT {distinct}{', '.join(names)} FROM {source.text}{where}", columns, source.rows

    def window(self, fields: Sequence[_Field]) -> str:
        """Return a window function that gives a number; its order is total, or peers are alike to it."""
        part = f"PARTITION BY {self.rng.choice(fields).text} " if self.chance(0.6) else ""
        total = "ORDER BY " + ", ".join(f.text for f in fields)
        some = f"ORDER BY {self.rng.choice(fields).text}"
        text = self.rng.choice(fields).text
        return self.rng.choice(
            (
                f"row_number() OVER ({part}{total})",
                f"rank() OVER ({part}{some})",
                f"dense_rank() OVER ({part}{some})",
                f"count(*) OVER ({part})",
                f"count({text}) OVER ({part}{some})",
            )
        )

    # ------------------------------------------------------------------ groups

    def grouped(
        self, source: _From, where: str, depth: int, kinds: Sequence[Kind] | None, final: bool
    ) -> tuple[str, tuple[Column, ...], int]:
        fields = source.fields
        keys = [self.rng.choice(fields) for _ in range(self.rng.choice((0, 1, 1, 2, 3)))]
        computed = [_Field(self.value(k.kind, [k], 0, ()), k.kind, k.name) for k in keys if self.chance(0.1)]
        keys = [*keys[: len(keys) - len(computed)], *computed]
        items: list[tuple[str, Kind]] = []
        for kind in kinds if kinds is not None else [None] * self.rng.randint(1, 4):
            items.append(self.group_item(fields, keys, kind, final and kinds is None))
        if kinds is None and self.chance(0.1):
            items.append((self.group_window(keys), Kind.INT64))
        having = f" HAVING {self.having(fields, keys, depth)}" if self.chance(0.3) else ""
        columns = tuple(Column(f"c{i}", kind) for i, (_, kind) in enumerate(items))
        names = ", ".join(f"{text} AS {c.name}" for (text, _), c in zip(items, columns, strict=True))
        at = {text: str(i + 1) for i, (text, _) in enumerate(items)}
        by = [at[k.text] if k.text in at and self.chance(0.2) else k.text for k in keys]
        group = f" GROUP BY {', '.join(by)}" if keys else ""
        return f"SELECT {names} FROM {source.text}{where}{group}{having}", columns, source.rows if keys else 1

    def group_window(self, keys: Sequence[_Field]) -> str:
        """Return a window function over groups that gives a number."""
        part = f"PARTITION BY {self.rng.choice(keys).text} " if keys and self.chance(0.6) else ""
        return self.rng.choice((f"rank() OVER ({part}ORDER BY count(*))", f"sum(count(*)) OVER ({part})"))

    def group_item(
        self, fields: Sequence[_Field], keys: Sequence[_Field], kind: Kind | None, inexact: bool
    ) -> tuple[str, Kind]:
        fitting = [k for k in keys if kind is None or k.kind is kind]
        if fitting and self.chance(0.5):
            chosen = self.rng.choice(fitting)
            return chosen.text, chosen.kind
        if inexact and self.chance(0.25):
            numbers = [f for f in fields if f.kind in _NUMBERS]
            if numbers:
                self.exact = False
                number = self.rng.choice(numbers)
                name = self.rng.choice(
                    ("sum", "avg", "avg") if number.kind is Kind.DOUBLE else ("avg", "stddev", "sum")
                )
                return f"{name}({number.text}){self.filter(fields)}", Kind.DOUBLE
        return self.aggregate(fields, kind)

    def aggregate(self, fields: Sequence[_Field], kind: Kind | None) -> tuple[str, Kind]:
        """Return an aggregate that is the same in whatever order."""
        field = self.rng.choice([f for f in fields if kind is None or f.kind is kind] or list(fields))
        if kind is Kind.INT64 or (kind is None and self.chance(0.4)):
            text = self.rng.choice(("count(*)", f"count({field.text})", f"count(DISTINCT {field.text})"))
            return text + self.filter(fields), Kind.INT64
        if kind in (None, Kind.STRING) and field.kind is Kind.STRING and self.chance(0.4):
            distinct = self.rng.choice(("", "DISTINCT "))
            return f"string_agg({distinct}{field.text}, '-' ORDER BY {field.text})", Kind.STRING
        if kind in (None, Kind.BOOL) and field.kind is Kind.BOOL:
            return f"{self.rng.choice(('bool_and', 'bool_or'))}({field.text}){self.filter(fields)}", Kind.BOOL
        if kind in (None, Kind.NUMERIC) and field.kind in (Kind.INT64, Kind.NUMERIC) and self.chance(0.6):
            return f"sum({self.rng.choice(('', '', 'DISTINCT '))}{field.text}){self.filter(fields)}", Kind.NUMERIC
        if kind is not None and field.kind is not kind:
            return f"max({self.literal(kind, typed=True)})", kind
        return f"{self.rng.choice(('min', 'max'))}({field.text}){self.filter(fields)}", field.kind

    def filter(self, fields: Sequence[_Field]) -> str:
        return f" FILTER (WHERE {self.condition(fields, 0, ())})" if self.chance(0.12) else ""

    def having(self, fields: Sequence[_Field], keys: Sequence[_Field], depth: int) -> str:
        text, kind = self.aggregate(fields, self.rng.choice((None, Kind.INT64)))
        condition = f"{text} {self.rng.choice(_COMPARISONS)} {self.literal(kind)}"
        if depth > 0 and self.chance(0.3):
            made = _Field(text, kind, "")
            condition = self.subquery_condition([made, *keys], depth, keys)
        return f"{condition} OR {self.condition(keys, 0, ())}" if keys and self.chance(0.3) else condition

    # ------------------------------------------------------------------ FROM

    def source(self, depth: int) -> _From:
        """Return a FROM of one to five relations."""
        count = self.rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5)) if depth > 1 else self.rng.choice((1, 1, 1, 2, 2, 3))
        found = self.relation(depth)
        joined = 1
        while joined < count:
            other = self.relation(depth)
            found = self.joined(found, other, depth, using=count == 2)
            joined += 1
        return found

    def relation(self, depth: int) -> _From:
        alias = f"x{self.aliases}"
        self.aliases += 1
        if self.shared and self.chance(0.35):
            chosen = self.rng.choice(self.shared)
        elif depth > 0 and self.chance(0.13):
            text, columns, rows = self.starred() if self.chance(0.2) else self.query(depth - 1)
            names = ""
            if not text.startswith("SELECT *") and self.chance(0.2):
                columns = tuple(Column(f"n{i}", c.kind) for i, c in enumerate(columns))
                names = f"({', '.join(c.name for c in columns)})"
            fields = tuple(_Field(f"{alias}.{quoted(c.name)}", c.kind, c.name) for c in columns)
            return _From(f"({text}) AS {alias}{names}", fields, rows)
        else:
            chosen = self.table(self.rng.choice(self.world.tables))
        fields = tuple(
            _Field(f"{self.cased(alias)}.{self.cased(quoted(c.name))}", c.kind, c.name, i < chosen.key)
            for i, c in enumerate(chosen.columns)
        )
        return _From(f"{self.cased(chosen.text)} AS {alias}", fields, chosen.rows)

    def starred(self) -> tuple[str, tuple[Column, ...], int]:
        """Return a query for all columns, and those of them whose names are theirs alone."""
        source = self.source(0)
        names = Counter(f.name.lower() for f in source.fields)
        columns = tuple(Column(f.name, f.kind) for f in source.fields if names[f.name.lower()] == 1)
        if not columns or " USING " in source.text:
            return self.query(0)
        return f"SELECT * FROM {source.text}", columns, source.rows

    @staticmethod
    def table(table: RandomTable) -> _Relation:
        return _Relation(table.name, table.columns, len(table.rows), table.key)

    def cased(self, name: str) -> str:
        return name.swapcase() if not name.startswith('"') and self.chance(0.1) else name

    def joined(self, left: _From, right: _From, depth: int, *, using: bool) -> _From:
        product = max(1, left.rows) * max(1, right.rows)
        pairs = self.pairs(left.fields, right.fields)
        side = self.rng.choice(("", "", "", "LEFT ", "LEFT ", "RIGHT ", "FULL "))
        if not pairs or (product < 500 and self.chance(0.1)):
            if product > _MOST_ROWS:
                return left
            if side in ("", "FULL "):
                return _From(f"{left.text} CROSS JOIN {right.text}", (*left.fields, *right.fields), product)
            condition = self.condition((*left.fields, *right.fields), 0, ())
            return _From(f"{left.text} {side}JOIN {right.text} ON {condition}", (*left.fields, *right.fields), product)
        rows = max(left.rows, right.rows) * max(1, min(left.rows, right.rows) // 5)
        if rows > _MOST_ROWS:
            return left
        same = [p for p in pairs if p[0].name == p[1].name]
        fields = (*left.fields, *right.fields)
        if using and same and self.chance(0.3):
            names = list(
                dict.fromkeys(quoted(a.name) for a, _ in self.rng.sample(same, self.rng.randint(1, len(same))))
            )
            merged = tuple(
                _Field(quoted(a.name), a.kind, a.name) for a, b in same if quoted(a.name) in names and a.kind is b.kind
            )
            return _From(f"{left.text} {side}JOIN {right.text} USING ({', '.join(names)})", (*merged, *fields), rows)
        return _From(
            f"{left.text} {side}JOIN {right.text} ON {self.on(pairs, same, fields, side, depth)}", fields, rows
        )

    def on(
        self,
        pairs: Sequence[tuple[_Field, _Field]],
        same: Sequence[tuple[_Field, _Field]],
        fields: Sequence[_Field],
        side: str,
        depth: int,
    ) -> str:
        keys = [p for p in same if p[0].key and p[1].key]
        mixed = [p for p in pairs if p[0].kind is not p[1].kind]
        if keys and self.chance(0.45):
            chosen = list(keys)
        elif mixed and self.chance(0.35):
            chosen = [self.rng.choice(mixed)]
        else:
            chosen = [self.rng.choice(same if same and self.chance(0.5) else pairs)]
        if self.chance(0.15):
            chosen.append(self.rng.choice(pairs))
        conditions = [f"{a.text} = {b.text}" if self.chance(0.5) else f"{b.text} = {a.text}" for a, b in chosen]
        if self.chance(0.4 if side else 0.2):
            conditions.append(self.condition(fields, depth - 1 if not side and self.chance(0.2) else 0, ()))
        return " AND ".join(conditions)

    @staticmethod
    def pairs(left: Sequence[_Field], right: Sequence[_Field]) -> list[tuple[_Field, _Field]]:
        """Return the fields that may be compared; BOOL is left out, which joins too much."""
        alike = [(a, b) for a in left for b in right if a.kind is b.kind and a.kind is not Kind.BOOL]
        mixed = [(a, b) for a in left for b in right if a.kind is not b.kind and {a.kind, b.kind} <= _NUMBERS]
        return alike + mixed

    # ------------------------------------------------------------------ conditions

    def where(self, fields: Sequence[_Field], depth: int, outer: Sequence[_Field]) -> str:
        conditions = [self.condition(fields, depth, outer) for _ in range(self.rng.choice((1, 1, 1, 2)))]
        if outer and self.chance(0.85):
            pairs = self.pairs(fields, outer)
            if pairs:
                mine, theirs = self.rng.choice(pairs)
                comparison = "=" if self.chance(0.8) else self.rng.choice(_COMPARISONS)
                conditions[0] = f"{mine.text} {comparison} {theirs.text}"
        return " AND ".join(conditions)

    def condition(self, fields: Sequence[_Field], depth: int, outer: Sequence[_Field]) -> str:
        if depth > 0 and self.chance(0.35):
            return self.subquery_condition(fields, depth, fields)
        choice = self.rng.random()
        if choice < 0.12:
            word = self.rng.choice((" AND ", " OR ", " OR "))
            return f"({self.condition(fields, depth - 1, outer)}{word}{self.condition(fields, 0, outer)})"
        if choice < 0.18:
            return f"NOT ({self.condition(fields, 0, outer)})"
        if choice < 0.23:
            inner = self.condition(fields, 0, outer)
            return (
                f"CASE WHEN {inner} THEN {self.condition(fields, 0, ())} ELSE {self.rng.choice(('TRUE', 'NULL'))} END"
            )
        return self.simple(self.key_or_any(fields), fields)

    def key_or_any(self, fields: Sequence[_Field]) -> _Field:
        keys = [f for f in fields if f.key]
        return self.rng.choice(keys) if keys and self.chance(0.3) else self.rng.choice(fields)

    def simple(self, field: _Field, fields: Sequence[_Field]) -> str:
        """Return a condition about a field without queries."""
        text, kind = field.text, field.kind
        choice = self.rng.random()
        if choice < 0.12:
            return f"{text} IS {self.rng.choice(('', 'NOT '))}NULL"
        if choice < 0.25:
            values = [self.literal(kind) for _ in range(self.rng.randint(1, 4))] + ["NULL"] * self.chance(0.15)
            return f"{text} {self.rng.choice(('', '', 'NOT '))}IN ({', '.join(values)})"
        if choice < 0.35:
            return f"{text} {self.rng.choice(('', '', 'NOT '))}BETWEEN {self.literal(kind)} AND {self.literal(kind)}"
        if choice < 0.45 and kind is Kind.STRING:
            pattern = self.rng.choice(("a%", "%1", "_2%", "%", "b_"))
            return f"{text} {self.rng.choice(('', 'NOT '))}LIKE '{pattern}'"
        if choice < 0.5 and kind is Kind.BOOL:
            return text
        others = [f for f in fields if f.kind is kind and f is not field]
        other = self.rng.choice(others).text if others and self.chance(0.3) else self.literal(kind)
        if choice < 0.6:
            return f"{text} IS {self.rng.choice(('', 'NOT '))}DISTINCT FROM {other}"
        return f"{text} {self.rng.choice(_COMPARISONS)} {other}"

    def subquery_condition(self, fields: Sequence[_Field], depth: int, outer: Sequence[_Field]) -> str:
        # A name that USING merged may mean something else inside.
        around = [f for f in outer if "." in f.text] if self.chance(0.6) else []
        field = self.rng.choice(fields)
        if self.chance(0.4):
            text, _, _ = self.select(depth - 1, around, None)
            return f"{self.rng.choice(('', 'NOT '))}EXISTS ({text})"
        choice = self.rng.random()
        if choice < 0.1:
            other = self.rng.choice(fields)
            text, _, _ = self.select(depth - 1, (), [field.kind, other.kind])  # DuckDB has no correlated ones
            return f"({field.text}, {other.text}) {self.rng.choice(('', 'NOT '))}IN ({text})"
        if choice < 0.5:
            text, _, _ = self.query(depth - 1, around, [field.kind])
            return f"{field.text} {self.rng.choice(('', 'NOT '))}IN ({text})"
        if choice < 0.7:
            text, _, _ = self.query(depth - 1, around, [field.kind])
            return f"{field.text} {self.rng.choice(_COMPARISONS)} {self.rng.choice(('ANY', 'ALL'))} ({text})"
        return f"{field.text} {self.rng.choice(_COMPARISONS)} ({self.scalar(field.kind, depth, around)})"

    def scalar(self, kind: Kind, depth: int, outer: Sequence[_Field]) -> str:
        """Return a query that gives one value."""
        source = self.source(min(depth - 1, 1))
        text, _ = self.aggregate(source.fields, kind)
        where = f" WHERE {self.where(source.fields, depth - 1, outer)}" if outer or self.chance(0.5) else ""
        return f"SELECT {text} FROM {source.text}{where}"

    # ------------------------------------------------------------------ values

    def value(self, kind: Kind, fields: Sequence[_Field], depth: int, outer: Sequence[_Field]) -> str:
        """Return an expression of a type."""
        fitting = [f for f in fields if f.kind is kind]
        choice = self.rng.random()
        if depth > 0 and choice < 0.05:
            return f"({self.scalar(kind, depth, fields if self.chance(0.6) else ())})"
        if kind is Kind.BOOL and choice < 0.4:
            return f"({self.condition(fields, depth, outer)})"
        if not fitting:
            if choice < 0.5:
                return f"CASE WHEN {self.condition(fields, 0, ())} THEN {self.literal(kind, typed=True)} END"
            return self.literal(kind, typed=True)
        text = self.rng.choice(fitting).text
        if choice < 0.65:
            return text
        if choice < 0.75:
            return f"CASE WHEN {self.condition(fields, 0, ())} THEN {text} ELSE {self.rng.choice(fitting).text} END"
        if choice < 0.85:
            return f"coalesce({text}, {self.rng.choice(fitting).text}, {self.literal(kind, typed=True)})"
        if choice < 0.9:
            return f"nullif({text}, {self.literal(kind, typed=True)})"
        return self.computed(kind, text)

    def computed(self, kind: Kind, text: str) -> str:
        if kind in _NUMBERS:
            return f"({text} + {self.rng.randint(1, 3)})"
        if kind is Kind.STRING:
            return self.rng.choice((f"upper({text})", f"({text} || 'x')"))
        return f"({text})"

    def literal(self, kind: Kind, *, typed: bool = False) -> str:
        """Return a constant, perhaps a parameter; ``typed``: of just that type, wherever it stands."""
        value: Any = random_value(self.rng, kind, 8)
        if not typed and kind in (Kind.INT64, Kind.STRING) and self.chance(0.12):
            self.params.append(value)
            return f"\x01{len(self.params) - 1}\x01"
        return _written(value)


def _written(value: Any) -> str:
    """Return a value as a constant of SQL, ours and DuckDB's."""
    match value:
        case bool() | int():
            return str(value).upper() if isinstance(value, bool) or value < 1 << 31 else f"CAST({value} AS BIGINT)"
        case Decimal():
            return f"CAST({value:f} AS DECIMAL(38, 9))"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return "'" + value + "'"
        case bytes():
            return f"CAST('{value.decode('latin-1') if value.isalnum() and value.isascii() else 'z'}' AS BYTEA)"
        case Date():
            return f"DATE '{value.to_date().isoformat()}'"
        case Timestamp():
            moment = _EPOCH + datetime.timedelta(microseconds=value.us)
            return f"TIMESTAMPTZ '{moment.isoformat(sep=' ')}'"
        case _:
            return "NULL"
