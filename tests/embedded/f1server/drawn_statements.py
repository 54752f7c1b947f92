"""Statements drawn at random over a few small tables, with what DuckDB needs to answer them as well.

Values come from small domains, so that conditions meet, contradict and repeat each other: what a planner takes for
settled by a key is right only if nothing else was said of it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

DDL = (
    "CREATE TABLE A (Id INT64 NOT NULL, V INT64, S STRING, N NUMERIC(10, 2), D DOUBLE, G BOOL, T DATE, "
    "PRIMARY KEY (Id))",
    "CREATE TABLE K (Id INT64 NOT NULL, Sub INT64 NOT NULL, Name STRING NOT NULL, V INT64, G BOOL, "
    "PRIMARY KEY (Id, Sub, Name)) INTERLEAVE IN PARENT A ON DELETE CASCADE",
    "CREATE TABLE M (S STRING NOT NULL, N NUMERIC(10, 2) NOT NULL, T DATE NOT NULL, V INT64, D DOUBLE, "
    "PRIMARY KEY (S, N, T))",
    "CREATE INDEX AByV ON A (V, S)",
    "CREATE INDEX AByT ON A (T) STORING (G)",
    "CREATE LOCAL INDEX KByV ON K (Id, V)",
    "CREATE INDEX KByName ON K (Name, V)",
    "CREATE INDEX MByV ON M (V)",
)

DUCK_DDL = (
    "CREATE TABLE A (Id BIGINT, V BIGINT, S VARCHAR, N DECIMAL(10, 2), D DOUBLE, G BOOLEAN, T DATE)",
    "CREATE TABLE K (Id BIGINT, Sub BIGINT, Name VARCHAR, V BIGINT, G BOOLEAN)",
    "CREATE TABLE M (S VARCHAR, N DECIMAL(10, 2), T DATE, V BIGINT, D DOUBLE)",
)

KEYS = {"A": ("Id",), "K": ("Id", "Sub", "Name"), "M": ("S", "N", "T")}
COLUMNS = {
    "A": ("Id", "V", "S", "N", "D", "G", "T"),
    "K": ("Id", "Sub", "Name", "V", "G"),
    "M": ("S", "N", "T", "V", "D"),
}

_DOMAINS: dict[str, Sequence[object]] = {
    "Id": (0, 1, 2, 3, 4, 5, -1, 2**62),
    "Sub": (0, 1, 2, 3),
    "Name": ("", "a", "b", "ab", "ä"),
    "V": (0, 1, 2, 3, -1),
    "S": ("", "a", "b", "ab", "B"),
    "N": (Decimal("0.00"), Decimal("1.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("3.00")),
    "D": (0.0, 1.0, 1.5, -2.0),
    "G": (True, False),
    "T": (date(2026, 1, 1), date(2026, 1, 2), date(1969, 12, 31)),
}
_NUMBERS = frozenset({"Id", "Sub", "V", "N", "D"})
_WHOLE = ("1.0", "1.5", "'2'", "CAST(2.5 AS DOUBLE)", "CAST(3 AS DOUBLE)", "-0.5", "1e0")
_OTHERS: dict[str, Sequence[str]] = {
    "Id": (*_WHOLE, "99999999999", "9223372036854775807"),
    "Sub": _WHOLE,
    "V": _WHOLE,
    "N": ("1", "1.501", "1.500", "'1.5'", "CAST(1.5 AS DOUBLE)", "100000000.001"),
    "D": ("1", "1.5", "0", "'1.5'"),
    "T": ("'2026-01-01'", "TIMESTAMP '2026-01-01 12:00:00+00'", "CAST('2026-01-02' AS DATE)"),
}
"""Written as other types than the column's."""
_PATTERNS = ("'a%'", "'%b'", "'_'", "''", "'a'", "'%'", "'a\\_'")
_COMPARISONS = ("=", "=", "=", "<", "<=", ">", ">=", "<>")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A statement. ``order``: the positions of the result columns that it is ordered by, in order.

    ``limited``: which rows it gives is open where rows are equal in these columns; ``all_rows`` is the same without a
    limit.
    """

    sql: str
    params: tuple[object, ...]
    order: tuple[int, ...] = ()
    limited: bool = False
    all_rows: str = ""
    all_params: tuple[object, ...] = ()


class Drawing:
    """Draws them from a seed."""

    def __init__(self, seed: int) -> None:
        """Each seed draws the same statements, in the same order."""
        self.rng = random.Random(seed)
        self._params: list[object] = []

    def row(self, table: str) -> dict[str, object]:
        """Return a row, whose key may be that of another one."""
        rng = self.rng
        null = 0.2
        return {
            name: None if name not in KEYS[table] and rng.random() < null else rng.choice(_DOMAINS[name])
            for name in COLUMNS[table]
        }

    def query(self) -> Drawn:
        """Draw a query."""
        self._params = []
        match self.rng.randrange(14):
            case 0:
                return self._grouped()
            case 1:
                return self._joined()
            case 2:
                return self._nested()
            case 3:
                return self._derived()
            case 4:
                return self._united()
            case 5:
                return self._chained()
            case _:
                return self._picked()

    def deletion(self) -> Drawn:
        """Draw a DELETE."""
        self._params = []
        rng, table = self.rng, self._table()
        text = f"DELETE FROM {table}{self._where(table, likely=0.97)}"
        if rng.random() < 0.2:
            self._params, table = [], "K"
            text = f"DELETE FROM K WHERE Id IN (SELECT Id FROM A{self._where('A')})"
            if rng.random() < 0.5:
                self._params = []
                text = f"DELETE FROM K USING A WHERE A.Id = K.Id AND {self._term('A', 'A')} AND {self._term('K', 'K')}"
        return self._returning(text, table)

    def update(self) -> Drawn:
        """Draw an UPDATE, which leaves the key as it is."""
        self._params = []
        rng, table = self.rng, self._table()
        if table == "K" and rng.random() < 0.2:
            terms = " AND ".join(["A.Id = K.Id", *(self._term("A", "A") for _ in range(rng.randint(0, 2)))])
            return self._returning(f"UPDATE K SET V = A.V, G = A.G FROM A WHERE {terms}", "K")
        free = [name for name in COLUMNS[table] if name not in KEYS[table]]
        parts = []
        for name in rng.sample(free, rng.choice((1, 1, 2))):
            if name in _NUMBERS and rng.random() < 0.5:
                parts.append(f"{name} = {name} {rng.choice('+-')} {self._value(name)}")
            else:
                parts.append(f"{name} = {self._value(name, null=0.2)}")
        return self._returning(f"UPDATE {table} SET {', '.join(parts)}{self._where(table, likely=0.97)}", table)

    def _returning(self, text: str, table: str) -> Drawn:
        if self.rng.random() < 0.4:
            names = self.rng.sample(COLUMNS[table], self.rng.randint(1, 3))
            text += f" RETURNING {', '.join(f'{table}.{name}' for name in names)}"
        return Drawn(text, tuple(self._params))

    def _table(self) -> str:
        return self.rng.choice(("A", "K", "K", "M"))

    # ------------------------------------------------------------------ queries

    def _picked(self) -> Drawn:
        """Columns of one table: what may be answered by its keys alone."""
        rng, table = self.rng, self._table()
        names = list(rng.sample(COLUMNS[table], rng.randint(1, len(COLUMNS[table]))))
        order = self._order(table)
        bounds = (order and rng.random() < 0.6) or rng.random() < 0.1
        if bounds:
            names += [name for name in order if name not in names]
        shown = ", ".join(name if rng.random() < 0.9 else f"{name} AS x{at}" for at, name in enumerate(names))
        if bounds is False and rng.random() < 0.1:
            shown, names = "*", list(COLUMNS[table])
        distinct = "DISTINCT " if not order and not bounds and rng.random() < 0.1 else ""
        head = f"SELECT {distinct}{shown} FROM {table}{self._where(table)}"
        way = rng.choice(("", " DESC"))
        mixed = rng.random() < 0.15
        by = ", ".join(name + (rng.choice(("", " DESC")) if mixed else way) for name in order)
        head += f" ORDER BY {by}" if order else ""
        before = tuple(self._params)
        tail = self._limit() if bounds else ""
        at = tuple(names.index(name) for name in order) if set(order) <= set(names) else ()
        return Drawn(head + tail, tuple(self._params), at, bool(tail), head if tail else "", before)

    def _order(self, table: str) -> tuple[str, ...]:
        rng, key = self.rng, KEYS[table]
        match rng.randrange(6):
            case 0 | 1:
                return key[: rng.randint(1, len(key))]
            case 2:
                return key[rng.randrange(len(key)) :]
            case 3:
                return tuple(rng.sample(COLUMNS[table], rng.randint(1, 2)))
            case _:
                return ()

    def _limit(self) -> str:
        rng = self.rng
        text = f" LIMIT {self._number(rng.choice((0, 1, 1, 2, 3, 5, 40)))}"
        return text + (f" OFFSET {self._number(rng.choice((0, 1, 3)))}" if rng.random() < 0.3 else "")

    def _grouped(self) -> Drawn:
        rng, table = self.rng, self._table()
        sums = ["count(*)", "sum(V)", "min(V)", "max(G)", "count(DISTINCT V)"]
        if table == "M":
            sums.remove("max(G)")
        shown = ", ".join(rng.sample(sums, rng.randint(1, 3)))
        by = rng.choice(COLUMNS[table])
        head, tail = (f"{by}, ", f" GROUP BY {by}") if rng.random() < 0.6 else ("", "")
        tail += f" HAVING count(*) {rng.choice(_COMPARISONS)} 1" if tail and rng.random() < 0.3 else ""
        return Drawn(f"SELECT {head}{shown} FROM {table}{self._where(table)}{tail}", tuple(self._params))

    def _joined(self) -> Drawn:
        rng = self.rng
        side = rng.choice(("", "LEFT ", "RIGHT ", "FULL "))
        left, right = rng.choice((("A", "K"), ("K", "A"), ("A", "M"), ("K", "K")))
        on = "l.S = r.S" if right == "M" else "l.Id = r.Id"
        on += (
            f" AND {self._term(rng.choice((left, right)), rng.choice('lr'), both=(left, right))}"
            if rng.random() < 0.4
            else ""
        )
        where = ""
        if rng.random() < 0.8:
            where = f" WHERE {self._term('', rng.choice('lr'), both=(left, right))}"
            where += f" AND {self._term('', rng.choice('lr'), both=(left, right))}" if rng.random() < 0.5 else ""
        return Drawn(f"SELECT l.*, r.V FROM {left} l {side}JOIN {right} r ON {on}{where}", tuple(self._params))

    def _nested(self) -> Drawn:
        rng = self.rng
        word = rng.choice(("IN", "NOT IN", "EXISTS", "NOT EXISTS"))
        if word.endswith("IN"):
            inner = f"{word} (SELECT Id FROM K{self._where('K')})"
            condition = f"Id {inner}"
        else:
            condition = f"{word} (SELECT 1 FROM K WHERE K.Id = A.Id AND {self._term('K', 'K')})"
        more = f" AND {self._term('A', 'A')}" if rng.random() < 0.5 else ""
        return Drawn(f"SELECT * FROM A WHERE {condition}{more}", tuple(self._params))

    def _derived(self) -> Drawn:
        """A query of a query: a view or CTE that conditions may move into, or must not."""
        rng, table = self.rng, self._table()
        cut = ""
        inner = f"SELECT * FROM {table}{self._where(table, likely=0.5)}"
        if rng.random() < 0.3:
            cut = f" ORDER BY {', '.join(KEYS[table])}{self._limit()}"
        inner += cut
        columns = ", ".join(rng.sample(COLUMNS[table], rng.randint(1, 3)))
        where = self._where(table)
        if rng.random() < 0.5:
            return Drawn(f"SELECT {columns} FROM ({inner}) q{where}", tuple(self._params))
        return Drawn(f"WITH q AS ({inner}) SELECT {columns} FROM q{where}", tuple(self._params))

    def _united(self) -> Drawn:
        rng = self.rng
        word = rng.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
        one, two = rng.choice(("A", "K")), rng.choice(("A", "K"))
        text = f"SELECT Id, V FROM {one}{self._where(one)} {word} SELECT Id, V FROM {two}{self._where(two)}"
        return Drawn(text, tuple(self._params))

    def _chained(self) -> Drawn:
        """Three tables on one path of ancestry, or beside it, limited in one of them."""
        rng = self.rng
        one = rng.choice(("", "LEFT "))
        two = rng.choice(("", "LEFT "))
        on = rng.choice(("K.Id = x.Id AND K.Sub = x.Sub", "K.Id = x.Id", "A.V = x.V", "A.Id = x.Id"))
        sides = {"A": "A", "K": "K", "x": "K"}
        terms = [self._term(sides[alias], alias) for alias in rng.choices(list(sides), k=rng.choice((1, 2, 3)))]
        text = f"FROM A {one}JOIN K ON A.Id = K.Id {two}JOIN K x ON {on} WHERE {' AND '.join(terms)}"
        return Drawn(f"SELECT A.Id, A.S, K.Sub, K.Name, x.V, x.Name {text}", tuple(self._params))

    # ------------------------------------------------------------------ conditions

    def _where(self, table: str, likely: float = 0.85) -> str:
        rng = self.rng
        if rng.random() > likely:
            return ""
        terms = []
        key = KEYS[table]
        if rng.random() < 0.6:
            # The first parts of the key, and perhaps something more about one of them.
            fixed = rng.randint(0, len(key))
            terms += [f"{name} = {self._constant(name)}" for name in key[:fixed]]
            if fixed < len(key) and rng.random() < 0.7:
                for _ in range(rng.choice((1, 1, 2))):
                    terms.append(f"{key[fixed]} {rng.choice(('<', '<=', '>', '>='))} {self._constant(key[fixed])}")
            if rng.random() < 0.2:
                name = rng.choice(key)
                terms.append(f"{name} {rng.choice(_COMPARISONS)} {self._constant(name, null=0.05)}")
        if not terms or rng.random() < 0.3:
            terms += [self._term(table, "") for _ in range(rng.choice((1, 1, 2)))]
        # No order of the terms tells which of them counts: parameters are numbered, not counted.
        rng.shuffle(terms)
        return " WHERE " + " AND ".join(terms)

    def _term(self, table: str, alias: str, both: tuple[str, str] | None = None) -> str:
        rng = self.rng
        if both is not None:
            table = both["lr".index(alias)]
        name = rng.choice(COLUMNS[table] if rng.random() < 0.5 else KEYS[table])
        column = f"{alias}.{name}" if alias else name
        match rng.randrange(12):
            case 0:
                return f"{column} IS {rng.choice(('', 'NOT '))}NULL"
            case 1:
                values = ", ".join(self._constant(name, null=0.05) for _ in range(rng.randint(1, 4)))
                return f"{column} {rng.choice(('', '', 'NOT '))}IN ({values})"
            case 2:
                return (
                    f"{column} {rng.choice(('', '', 'NOT '))}BETWEEN {self._constant(name)} AND {self._constant(name)}"
                )
            case 3:
                return f"NOT ({column} {rng.choice(_COMPARISONS)} {self._constant(name)})"
            case 4:
                one, two = (self._term(table, alias) for _ in range(2))
                return f"({one} OR {two})"
            case 5:
                return f"{self._constant(name)} {rng.choice(_COMPARISONS)} {column}"
            case 6 if name in _NUMBERS:
                return f"{column} + 0 {rng.choice(_COMPARISONS)} {self._constant(name)}"
            case 7:
                return self._term_of_two(table, alias)
            case 8 if name in ("S", "Name"):
                return f"{column} {rng.choice(('', 'NOT '))}LIKE {rng.choice(_PATTERNS)}"
            case 9:
                return f"COALESCE({column}, {self._constant(name)}) {rng.choice(_COMPARISONS)} {self._constant(name)}"
            case _:
                return f"{column} {rng.choice(_COMPARISONS)} {self._constant(name, null=0.04)}"

    def _term_of_two(self, table: str, alias: str) -> str:
        """Say something of two columns at once."""
        rng = self.rng
        dot = f"{alias}." if alias else ""
        if table == "A" or rng.random() < 0.3:
            one, two = ("Id", "V") if table != "M" else ("V", "D")
            return f"{dot}{one} {rng.choice(_COMPARISONS)} {dot}{two}"
        one, two = KEYS[table][:2]
        if rng.random() < 0.5:
            pairs = ", ".join(f"({self._value(one)}, {self._value(two)})" for _ in range(rng.randint(1, 3)))
            return f"({dot}{one}, {dot}{two}) IN ({pairs})"
        compared = rng.choice(("=", "<", ">", ">=", "<="))
        return f"({dot}{one}, {dot}{two}) {compared} ({self._value(one)}, {self._value(two)})"

    # ------------------------------------------------------------------ constants

    def _constant(self, name: str, null: float = 0.0) -> str:
        """What a column is compared with: now and then of another type, or with more digits than it has."""
        if name in _OTHERS and self.rng.random() < 0.12:
            return self.rng.choice(_OTHERS[name])
        return self._value(name, null)

    def _value(self, name: str, null: float = 0.0) -> str:
        rng = self.rng
        value = None if rng.random() < null else rng.choice(_DOMAINS[name])
        if rng.random() < 0.5 and value is not None:
            self._params.append(value)
            return f"${len(self._params)}"
        return _literal(value)

    def _number(self, number: int) -> str:
        if self.rng.random() < 0.5:
            self._params.append(number)
            return f"${len(self._params)}"
        return str(number)


def _literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return f"'{value}'"
        case float():
            return f"CAST({value} AS DOUBLE)"
        case _:
            return str(value)
