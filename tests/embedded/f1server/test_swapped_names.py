"""Transactions beside columns and tables that keep taking each other's names: every transaction means one of them.

One column holds even numbers and the other odd ones, in either table; one table holds numbers below a thousand, and the
other ones above. A transaction reads a number by a name and writes by that name a number of the same kind. If the name
meant one column to what it read, and another one to what it wrote, some column holds a number that does not belong.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

import f1
from f1.transactions import Transaction
from f1server.testing.database import Database, with_database
from f1server.txn import committer
from tests.amounts import some

S1 = "CREATE TABLE S1 (K INT64 PRIMARY KEY, A INT64, B INT64)"
S2 = "CREATE TABLE S2 (K INT64 PRIMARY KEY, A INT64, B INT64)"
ROWS = 3
LARGE = 1_000

SWAPS = {
    "columns of S1": ("ALTER TABLE S1 RENAME COLUMN {}", "A", "B", "C"),
    "columns of S2": ("ALTER TABLE S2 RENAME COLUMN {}", "A", "B", "C"),
    "tables": ("ALTER TABLE {}", "S1", "S2", "S3"),
}
SEEDS = some(range(3), range(3, 40))


class Worlds:
    """Clients and a changer, for some swaps."""

    def __init__(self, db: Database, seed: int) -> None:
        self._db = db
        self._rng = random.Random(seed)
        self.swaps = 0
        self.done = 0
        self.again = 0

    async def change(self) -> None:
        for _ in range(4):
            text, one, other, free = SWAPS[self._rng.choice(sorted(SWAPS))]
            for old, new in ((one, free), (other, one), (free, other)):
                statement = text.format(f"{old} TO {new}" if "COLUMN" in text else f"{old} RENAME TO {new}")
                await self._db.conn.execute(statement)
                await asyncio.sleep(self._rng.random() / 50)
            self.swaps += 1

    async def work(self, conn: f1.aio.Connection, changing: "asyncio.Task[None]") -> None:
        while not changing.done():
            rng = random.Random(self._rng.random())
            tries = 0

            async def once(tx: Transaction, rng: random.Random = rng) -> None:
                nonlocal tries
                tries += 1
                await _step(tx, rng)

            try:
                await conn.run(once, kind=rng.choice(["optimistic", "pessimistic"]))
                self.done += 1
            except f1.ProgrammingError:
                pass  # a name is nobody's in the middle of a swap
            self.again += tries - 1


async def _step(tx: Transaction, rng: random.Random) -> None:
    """Read a number and write another one of its kind."""
    table, column, key = rng.choice(["S1", "S2"]), rng.choice("AB"), rng.randrange(ROWS)
    reads: list[Callable[[], Awaitable[int]]] = [
        lambda: _select(tx, table, column, key),
        lambda: _get(tx, table, column, key),
    ]
    number = await rng.choice(reads)()
    await asyncio.sleep(rng.random() / 20)
    large = number >= LARGE
    new = number % 2 + 2 * rng.randrange(LARGE // 2) + (LARGE if large else 0)
    if rng.random() < 0.5:
        await tx.execute(f"UPDATE {table} SET {column} = ? WHERE K = ?", (new, key))
    else:
        await tx.update(table, {"K": key, column: new})
    await asyncio.sleep(rng.random() / 20)


async def _select(tx: Transaction, table: str, column: str, key: int) -> int:
    ((number,),) = await (await tx.execute(f"SELECT {column} FROM {table} WHERE K = ?", (key,))).fetchall()
    return int(number)


async def _get(tx: Transaction, table: str, column: str, key: int) -> int:
    row = await tx.get(table, key, [column])
    assert row is not None
    return int(row[column])


async def _body(db: Database, seed: int) -> Worlds:
    for table, least in (("S1", 0), ("S2", LARGE)):
        await db.conn.insert(table, [{"K": k, "A": least, "B": least + 1} for k in range(ROWS)])
    worlds = Worlds(db, seed)
    conns = [await db.at(i % 2) for i in range(4)]
    changing = asyncio.ensure_future(worlds.change())
    await asyncio.gather(changing, *(worlds.work(conn, changing) for conn in conns))
    for table in ("S1", "S2"):
        columns = list(zip(*await db.rows(f"SELECT A, B FROM {table}"), strict=True))
        kinds = [{(number % 2, number >= LARGE) for number in column} for column in columns]
        assert all(len(kind) == 1 for kind in kinds), columns
        assert kinds[0] != kinds[1]
    return worlds


@pytest.mark.parametrize("seed", SEEDS)
def test_no_transaction_takes_two_columns_for_one(seed: int) -> None:
    async def body(db: Database) -> None:
        worlds = await _body(db, seed)
        assert worlds.swaps == 4 and worlds.done > 4

    with_database(body, S1, S2, seed=seed)


def test_without_looking_at_names_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker above, seen failing."""

    async def nothing(*_: object) -> None:
        """Take names for what they are."""

    monkeypatch.setattr(committer, "require_same_names", nothing)

    def fails(seed: int) -> bool:
        try:
            with_database(lambda db: _body(db, seed), S1, S2, seed=seed)
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in range(12))
