"""Statements see what their transaction wrote, by every access path: against a dictionary."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from f1.transactions import Transaction
from f1server.testing.database import Database, with_database

DDL = (
    "CREATE TABLE R (A INT64 NOT NULL, PRIMARY KEY (A))",
    "CREATE TABLE T (A INT64 NOT NULL, B STRING NOT NULL, V INT64, U INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT R",
    "CREATE INDEX TV ON T (V)",
    "CREATE LOCAL INDEX TL ON T (A, V)",
    "CREATE UNIQUE INDEX TU ON T (U)",
    "CREATE TABLE C (A INT64 NOT NULL, B STRING NOT NULL, N INT64 NOT NULL, X INT64, PRIMARY KEY (A, B, N)) "
    "INTERLEAVE IN PARENT T ON DELETE CASCADE",
)

Key = tuple[int, str]
Rows = dict[Key, tuple[int | None, int | None]]


@dataclass
class Model:
    """What T holds as the transaction sees it."""

    rng: random.Random
    rows: Rows = field(default_factory=dict)
    children: dict[tuple[int, str, int], int] = field(default_factory=dict)
    uniques: int = 0

    def key(self) -> Key:
        return self.rng.randrange(4), self.rng.choice("abcd")

    def values(self) -> tuple[int | None, int | None]:
        self.uniques += 1
        v = self.rng.choice((None, *range(-2, 3)))
        return v, self.uniques if self.rng.random() < 0.7 else None

    def delete(self, key: Key) -> None:
        self.rows.pop(key, None)
        for child in [child for child in self.children if child[:2] == key]:
            del self.children[child]

    def ordered(self, test: Callable[[Key], bool] = lambda key: True) -> list[Key]:
        return sorted(key for key in self.rows if test(key))

    def by_value(self, test: Callable[[int | None], bool]) -> list[Key]:
        """In the order of an index on V: NULL is least."""
        found = [(v is not None, v or 0, key) for key, (v, _) in self.rows.items() if test(v)]
        return [key for _, _, key in sorted(found)]


async def write(tx: Transaction, model: Model) -> None:
    """One random write by one random way."""
    rng, key = model.rng, model.key()
    a, b = key
    v, u = model.values()
    sql = rng.random() < 0.5
    match rng.choice(("insert", "upsert", "update", "delete", "child", "move", "many")):
        case "insert" if key not in model.rows:
            if sql:
                await tx.execute("INSERT INTO T (A, B, V, U) VALUES (?, ?, ?, ?)", [a, b, v, u])
            else:
                await tx.insert("T", {"A": a, "B": b, "V": v, "U": u})
            model.rows[key] = (v, u)
        case "upsert":
            if sql:
                text = "INSERT INTO T (A, B, V, U) VALUES (?, ?, ?, ?) ON CONFLICT (A, B) DO UPDATE SET V = excluded.V"
                await tx.execute(text, [a, b, v, u])
                model.rows[key] = (v, model.rows[key][1] if key in model.rows else u)
            else:
                await tx.upsert("T", {"A": a, "B": b, "V": v})
                model.rows[key] = (v, model.rows.get(key, (None, None))[1])
        case "update" if key in model.rows:
            if sql:
                await tx.execute("UPDATE T SET V = ?, U = ? WHERE A = ? AND B = ?", [v, u, a, b])
            else:
                await tx.update("T", {"A": a, "B": b, "V": v, "U": u})
            model.rows[key] = (v, u)
        case "delete":
            if sql:
                await tx.execute("DELETE FROM T WHERE A = ? AND B = ?", [a, b])
            else:
                await tx.delete("T", [key])
            model.delete(key)
        case "child" if key in model.rows:
            n = rng.randrange(3)
            await tx.upsert("C", {"A": a, "B": b, "N": n, "X": model.uniques})
            model.children[a, b, n] = model.uniques
        case "move" if key in model.rows and not any(child[:2] == key for child in model.children):
            target = (a, b + "x")
            if target not in model.rows:
                await tx.execute("UPDATE T SET B = B || 'x' WHERE A = ? AND B = ?", [a, b])
                model.rows[target] = model.rows.pop(key)
        case "many":
            await tx.execute("UPDATE T SET V = V + 1 WHERE A = ?", [a])
            for other, (value, unique) in list(model.rows.items()):
                if other[0] == a and value is not None:
                    model.rows[other] = (value + 1, unique)
        case _:
            pass


async def look(tx: Transaction, model: Model) -> None:
    """Look by one random way, and compare."""
    rng = model.rng
    a, b = model.key()
    limit = rng.choice((0, 0, 1, 2, 3))
    reverse = rng.random() < 0.5
    v = rng.randrange(-2, 3)

    def keys(rows: Sequence[Mapping[str, Any]]) -> list[Key]:
        for row in rows:
            assert (row["V"], row["U"]) == model.rows[row["A"], row["B"]]
        return [(row["A"], row["B"]) for row in rows]

    def cut(expected: list[Key]) -> list[Key]:
        expected = expected[::-1] if reverse else expected
        return expected[:limit] if limit else expected

    async def sql(text: str, *params: object) -> list[Any]:
        return list(await (await tx.execute(text, params)).fetchall())

    match rng.randrange(14):
        case 0:
            row = await tx.get("T", (a, b))
            assert (None if row is None else (row["V"], row["U"])) == model.rows.get((a, b))
        case 1:
            found = keys(await tx.read("T", prefix=(a,), limit=limit, reverse=reverse))
            assert found == cut(model.ordered(lambda key: key[0] == a))
        case 2:
            found = keys(await tx.read("T", ranges=[((1, "b"), (3,))], limit=limit, reverse=reverse))
            assert found == cut(model.ordered(lambda key: (1, "b") <= key < (3, "")))
        case 3:
            found = keys(await tx.read("T", limit=limit, reverse=reverse))
            assert found == cut(model.ordered())
        case 4:
            found = keys(await tx.read("T", prefix=(v,), index="TV", limit=limit, reverse=reverse))
            assert found == cut(model.by_value(lambda value: value == v))
        case 5:
            found = keys(await tx.read("T", index="TV", limit=limit, reverse=reverse))
            assert found == cut(model.by_value(lambda value: True))
        case 6:
            found = keys(await tx.read("T", ranges=[((v,), None)], index="TV", limit=limit, reverse=reverse))
            assert found == cut(model.by_value(lambda value: value is not None and value >= v))
        case 7:
            found = keys(await tx.read("T", prefix=(a, v), index="TL", limit=limit, reverse=reverse))
            assert found == cut([key for key in model.by_value(lambda value: value == v) if key[0] == a])
        case 8:
            unique = rng.randrange(model.uniques + 1)
            found = keys(await tx.read("T", prefix=(unique,), index="TU"))
            assert found == [key for key, (_, u) in model.rows.items() if u == unique]
        case 9:
            assert await sql("SELECT A, B FROM T WHERE V = ? ORDER BY A, B", v) == sorted(
                model.by_value(lambda value: value == v)
            )
        case 10:
            total = sum(value for value, _ in model.rows.values() if value is not None)
            assert await sql("SELECT count(*), coalesce(sum(V), 0) FROM T") == [(len(model.rows), total)]
        case 11:
            text = f"SELECT A, B, V, U FROM T WHERE A = ? ORDER BY A, B LIMIT {limit or 9}"
            expected = model.ordered(lambda key: key[0] == a)[: limit or 9]
            assert await sql(text, a) == [(*key, *model.rows[key]) for key in expected]
        case 12:
            text = "SELECT T.A, T.B, N, X FROM T JOIN C ON T.A = C.A AND T.B = C.B WHERE T.A = ? ORDER BY 1, 2, 3"
            assert await sql(text, a) == [(*c, x) for c, x in sorted(model.children.items()) if c[0] == a]
        case _:
            text = "SELECT B FROM T WHERE A = ? AND B >= ? AND B < 'z' ORDER BY B"
            assert await sql(text, a, b) == [(k[1],) for k in model.ordered(lambda key: key[0] == a and key[1] >= b)]


async def play(db: Database, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    model = Model(rng)
    await db.conn.insert("R", [{"A": a} for a in range(4)])
    for _ in range(3):
        before = Model(rng, dict(model.rows), dict(model.children), model.uniques)
        async with db.conn.transaction(kind) as tx:
            for _ in range(12):
                await write(tx, model)
                await look(tx, model)
                await look(tx, model)
            if rng.random() < 0.25:
                await tx.rollback()
                model.rows, model.children = before.rows, before.children
        for other in ("optimistic", "pessimistic", "snapshot"):
            if other == "snapshot":
                await db.world.sleep_us(2_000_000)
            async with db.conn.transaction(other) as tx:
                for _ in range(8):
                    await look(tx, model)


@pytest.mark.parametrize("kind", ["optimistic", "pessimistic"])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 6))])
def test_against_a_dictionary(seed: int, kind: str) -> None:
    with_database(lambda db: play(db, seed, kind), *DDL, seed=seed)
