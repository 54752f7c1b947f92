"""Constraints that come while writers make violations and mend them: either they hold, or a row is named and nothing is
left of them; and no write is lost or half done in either case."""

import asyncio
import random
from typing import Any

import pytest

import f1
from f1.checking import check_database
from f1server.testing.changes import small_batches
from f1server.testing.database import Database, with_database

TABLES = (
    "CREATE TABLE R (K INT64 NOT NULL, PRIMARY KEY (K))",
    "CREATE TABLE T (Id INT64 NOT NULL, U INT64, P INT64, V INT64, PRIMARY KEY (Id))",
)
ROWS, PARENTS = 150, 20
Rows = dict[int, dict[str, Any]]


def _unique(rows: Rows) -> bool:
    values = [row["U"] for row in rows.values()]
    return len(set(values)) == len(values)


CHANGES = {
    "CREATE UNIQUE INDEX C ON T (U)": _unique,
    "ALTER TABLE T ADD CONSTRAINT C UNIQUE (U)": _unique,
    "ALTER TABLE T ADD CONSTRAINT C FOREIGN KEY (P) REFERENCES R (K)": lambda rows: all(
        row["P"] in range(PARENTS) for row in rows.values()
    ),
    "ALTER TABLE T ADD CONSTRAINT C CHECK (V >= 0)": lambda rows: all(
        row["V"] is None or row["V"] >= 0 for row in rows.values()
    ),
    "ALTER TABLE T ALTER COLUMN V SET NOT NULL": lambda rows: all(row["V"] is not None for row in rows.values()),
}


def good(i: int) -> dict[str, Any]:
    return {"Id": i, "U": 1_000 + i, "P": i % PARENTS, "V": i}


class Writer:
    """Writes rows of its own, and keeps what was acknowledged."""

    def __init__(self, client: f1.aio.Connection, rows: Rows, ids: range, rng: random.Random, breaks: float) -> None:
        self.client, self.rows, self.ids, self.rng, self.breaks = client, rows, ids, rng, breaks
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            try:
                await self._write(self.rng.choice(self.ids))
            except f1.Error as error:
                assert not error.ambiguous  # refused: by the constraint, while it is enforced
            await asyncio.sleep(self.rng.random() * 0.02)

    async def _write(self, i: int) -> None:
        row = good(i)
        if self.rng.random() < self.breaks:
            row |= self.rng.choice(
                [{"U": 1_000 + self.rng.randrange(ROWS)}, {"P": 99}, {"V": self.rng.choice([None, -1])}]
            )
        if i not in self.rows:
            await self.client.insert("T", row)
        elif self.rng.random() < 0.1:
            await self.client.delete("T", (i,))
            del self.rows[i]
            return
        else:
            await self.client.update("T", row)
        self.rows[i] = row


@pytest.mark.parametrize("breaks", [0.02, 0.5], ids=["seldom", "often"])
@pytest.mark.parametrize(("seed", "change"), list(enumerate(CHANGES)))
def test_it_holds_or_leaves_nothing(seed: int, change: str, breaks: float) -> None:
    async def body(db: Database) -> None:
        rng = random.Random(seed)
        await db.conn.insert("R", [{"K": k} for k in range(PARENTS)])
        rows: Rows = {i: good(i) for i in range(ROWS)}
        await db.conn.insert("T", list(rows.values()))
        shown = await db.conn.show_schema()
        halves = range(ROWS // 2), range(ROWS // 2, ROWS)
        writers = [
            Writer(await db.at(n), rows, ids, random.Random(f"{seed} {n}"), breaks) for n, ids in enumerate(halves)
        ]
        tasks = [db.env.spawn(writer.run()) for writer in writers]
        await asyncio.sleep(1.0 + rng.random())
        failure: f1.Error | None = None
        try:
            await (await db.at(seed % 2)).execute(change)
        except f1.Error as error:
            failure = error
        await asyncio.sleep(0.05)
        for writer in writers:
            writer.stopped = True
        await asyncio.gather(*tasks)
        found = {row[0]: dict(zip(("Id", "U", "P", "V"), row, strict=True)) for row in await db.rows("SELECT * FROM T")}
        assert found == rows
        assert not (await check_database(db.conn.session, [], repair=False, examples=5)).findings
        if failure is None:
            assert CHANGES[change](rows)
        else:
            assert "(" in str(failure)  # a row
            assert await db.conn.show_schema() == shown

    with small_batches():
        with_database(body, *TABLES, seed=seed)
