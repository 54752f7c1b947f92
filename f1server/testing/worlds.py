"""Random schemas and rows: small domains so that joins meet, NULLs everywhere, skew, empty tables, hierarchies."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from f1common.encoding import tuple as tuples
from f1common.encoding.values import Date, Timestamp
from f1server.catalog.schema import Kind
from f1server.exec.arrow_types import type_of
from f1server.exec.duck import Connection, Duck
from f1server.exec.source import FieldWanted
from f1server.testing.embedded import EmbeddedDatabase
from f1server.testing.memory import to_arrow

_KEY_KINDS = (Kind.INT64, Kind.INT64, Kind.INT64, Kind.STRING, Kind.DATE, Kind.NUMERIC, Kind.DOUBLE)
KINDS = (
    Kind.INT64,
    Kind.INT64,
    Kind.STRING,
    Kind.DATE,
    Kind.NUMERIC,
    Kind.DOUBLE,
    Kind.BOOL,
    Kind.TIMESTAMP,
    Kind.BYTES,
)
_SIZES = (0, 1, 3, 8, 8, 8, 15, 15, 15, 15, 30, 30, 30, 60, 200)
_TYPES = {kind: kind.name for kind in Kind}
_FIRST_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or of a query's result."""

    name: str
    kind: Kind


@dataclass(slots=True, eq=False)
class RandomTable:
    """A table: its columns, the key first, and its rows as tuples. ``parent``: whose key its own begins with."""

    name: str
    columns: tuple[Column, ...]
    key: int
    parent: "RandomTable | None" = None
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)

    @property
    def ddl(self) -> str:
        """CREATE TABLE, and CREATE INDEX."""
        columns = ", ".join(f"{quoted(c.name)} {_TYPES[c.kind]}" for c in self.columns)
        keys = ", ".join(quoted(c.name) for c in self.columns[: self.key])
        below = f" INTERLEAVE IN PARENT {self.parent.name}" if self.parent is not None else ""
        return ";\n".join([f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({keys})){below}", *self.indexes]) + ";\n"


def quoted(name: str) -> str:
    """Return a name as SQL needs it."""
    return name if name.isalnum() else '"' + name + '"'


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The tables of a random database."""

    tables: tuple[RandomTable, ...]

    def load(self, database: EmbeddedDatabase) -> None:
        """Create the tables in an empty database and fill them."""
        for table in self.tables:
            database.apply(table.ddl)
            made = database.schema.table(table.name)
            ids = [made.column(c.name).id for c in table.columns]
            database.tables.put(made, (dict(zip(ids, row, strict=True)) for row in table.rows))

    def plain(self, database: EmbeddedDatabase, duck: Duck) -> Connection:
        """Return a connection of DuckDB that has the same tables under the same names, without anything of ours."""
        connection = duck.connection()
        for table in self.tables:
            made = database.schema.table(table.name)
            kinds = [type_of(database.schema, made, FieldWanted(made.column(c.name).id, ())) for c in table.columns]
            arrays = [to_arrow([row[i] for row in table.rows], kind) for i, kind in enumerate(kinds)]
            rows = pa.Table.from_arrays(arrays, names=[c.name for c in table.columns])
            connection.register(table.name, rows)
        return connection


def random_world(rng: random.Random, largest: int = 200) -> World:
    """Return two to five tables, some of them in hierarchies of up to three levels, of at most ``largest`` rows."""
    tables: list[RandomTable] = []
    wide = rng.choice((3, 5, 8, 20))
    shared = rng.choice(_KEY_KINDS)
    for i in range(rng.randint(2, 5)):
        above = [t for t in tables if t.key < 3]
        parent = rng.choice(above) if above and rng.random() < 0.5 else None
        tables.append(_random_table(rng, i, parent, shared, wide, largest))
    return World(tuple(tables))


def _random_table(
    rng: random.Random, number: int, parent: RandomTable | None, shared: Kind, wide: int, largest: int
) -> RandomTable:
    # Names that other tables have too, so that USING finds some; one needs quotes.
    key = [Column(c.name, c.kind) for c in parent.columns[: parent.key]] if parent is not None else []
    if not key or rng.random() < 0.9:
        names = [n for n in ("Id", "Part", "k3", "k4") if n not in {c.name for c in key}]
        kind = shared if not key and rng.random() < 0.6 else rng.choice(_KEY_KINDS)
        key.append(Column(names[0], kind))
        if parent is None and rng.random() < 0.3:
            key.append(Column(names[1], rng.choice(_KEY_KINDS)))
    values = [
        Column(n, rng.choice(KINDS)) for n in rng.sample(("a", "b", "c", "d", "e", "Some Name"), rng.randint(1, 5))
    ]
    values.append(Column("Ref", shared))
    table = RandomTable(f"T{number}", (*key, *values), len(key), parent)
    size = largest if rng.random() < 0.08 else min(largest, rng.choice(_SIZES))
    table.rows = _random_rows(rng, table, size, max(wide, size // 2))
    table.indexes = _random_indexes(rng, table, values)
    return table


def _random_indexes(rng: random.Random, table: RandomTable, values: Sequence[Column]) -> list[str]:
    found = []
    if rng.random() < 0.5:
        parts = ", ".join(quoted(c.name) for c in rng.sample(values, min(len(values), rng.randint(1, 2))))
        found.append(f"CREATE INDEX By{table.name} ON {table.name} ({parts})")
    if rng.random() < 0.25:
        root = table
        while root.parent is not None:
            root = root.parent
        parts = ", ".join(quoted(c.name) for c in (*table.columns[: root.key], rng.choice(values)))
        found.append(f"CREATE LOCAL INDEX Near{table.name} ON {table.name} ({parts})")
    return found


def _random_rows(rng: random.Random, table: RandomTable, size: int, wide: int) -> list[tuple[Any, ...]]:
    nulls = rng.choice((0.0, 0.0, 0.1, 0.1, 0.3, 0.6))
    found: dict[bytes, tuple[Any, ...]] = {}
    parents = table.parent.rows if table.parent is not None else []
    above = table.parent.key if table.parent is not None else 0
    if above and not parents:
        return []
    for _ in range(size):
        # Some parents have most of the children.
        start = parents[int(len(parents) * rng.random() ** 2)][:above] if above else ()
        key = (*start, *(random_value(rng, c.kind, wide) for c in table.columns[above : table.key]))
        values = (
            None if rng.random() < nulls else random_value(rng, c.kind, min(wide, 9))
            for c in table.columns[table.key :]
        )
        found.setdefault(tuples.encode(key), (*key, *values))
    return list(found.values())


def random_value(rng: random.Random, kind: Kind, wide: int) -> Any:
    """Return a value of a type, one of ``wide``, or now and then one at the edge of what the type can tell apart."""
    n = int(wide * rng.random() ** 1.5)
    edge = rng.random() < 0.1
    match kind:
        case Kind.INT64:
            return rng.choice((-1, (1 << 53) + 1, 1 << 53, (1 << 53) - 1)) if edge else n
        case Kind.NUMERIC:
            return (
                Decimal(rng.choice(("0.000000001", "-1.5", "9007199254740993", "1.000000001")))
                if edge
                else (Decimal(n) / 2 if n % 3 == 0 else Decimal(n))
            )
        case Kind.DOUBLE:
            edges = (-0.0, 0.0, float("nan"), float("inf"), -float("inf"), 9007199254740992.0)
            return rng.choice(edges) if edge else (n / 2 if n % 3 == 0 else float(n))
        case Kind.STRING:
            return rng.choice(("", "%", "A", "é")) if edge else f"{'abc'[n % 3]}{n}"
        case Kind.BYTES:
            return b"" if edge else bytes([n % 256])
        case Kind.DATE:
            return Date(19_700 + n)
        case Kind.TIMESTAMP:
            return Timestamp(_FIRST_US + n * 1_000_000)
        case _:
            return n % 2 == 0
