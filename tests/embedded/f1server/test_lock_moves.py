"""Columns that come under other locks while optimistic transactions use them, on servers on neighbouring versions."""

import asyncio
import random
from typing import Any

import pytest

import f1
from f1.checking import check_database
from f1common.errors import F1Error
from f1server.schemachange.steps import diff, edits
from f1server.schemachange.work import changes
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.testing.database import Database, with_database
from tests.embedded.f1server.test_live_changes import deaf

COLUMNS = "A INT64 NOT NULL, C INT64, D INT64, E INT64, X INT64, Y INT64"
TABLE = f"CREATE TABLE R ({COLUMNS}, PRIMARY KEY (A), LOCK One (X, C), LOCK Two (Y, D))"
MOVES = (
    "ALTER TABLE R ALTER LOCK Two (Y, D, C)",
    "ALTER TABLE R ALTER LOCK One (X, C), ALTER LOCK Two (Y)",
    "ALTER TABLE R ALTER LOCK One (X), ADD LOCK Three (C, D)",
    "ALTER TABLE R DROP CONSTRAINT Three, ALTER LOCK One (X, C), ALTER LOCK Two (Y, D)",
)


async def check(db: Database) -> None:
    result = await check_database(db.conn.session, [], repair=False, examples=5)
    assert not result.findings, result.findings


def without_dual_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    original = diff._Round._edit

    def edit(self: Any, move: Any) -> Any:
        made = original(self, move)
        if isinstance(made, edits.CoverageTo):
            return edits.CoverageTo(made.table_id, made.column_id, made.name, (move.element.lock,))
        return made

    monkeypatch.setattr(diff._Round, "_edit", edit)


def without_propagation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unverified(*_: Any) -> None:
        """What this breaks would be found before it is public."""

    monkeypatch.setattr(changes, "raised", lambda *_: {})
    monkeypatch.setattr(Reorganiser, "verify", unverified)


@pytest.mark.parametrize("defect", [None, without_propagation])
def test_a_transaction_that_is_older_than_the_move_is_refused_after_it(
    monkeypatch: pytest.MonkeyPatch, defect: Any
) -> None:
    """It read before somebody else wrote, both under the old lock; it commits when the new lock is alone."""
    lost = []

    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "C": 0, "D": 0, "E": 0})
        for move in MOVES:
            for column in ("C", "D"):
                async with db.conn.transaction("optimistic") as tx:
                    seen = await tx.get("R", 1, [column])
                    other = await tx.get("R", 1, ["E"])
                    assert seen is not None and other is not None
                    await db.conn.execute(f"UPDATE R SET {column} = {column} + 1 WHERE A = 1")
                    if column == "C":
                        await db.conn.execute(move)
                    await tx.update("R", {"A": 1, column: seen[column] + 1})
                    try:
                        await tx.commit()
                        lost.append((move, column))
                    except f1.TransactionAborted:
                        pass
            await check(db)

    if defect is not None:
        defect(monkeypatch)
    with_database(body, TABLE)
    assert bool(lost) is (defect is not None), lost


def test_a_transaction_on_columns_that_stay_notices_nothing() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "C": 0, "D": 0, "E": 0, "X": 0})
        async with db.conn.transaction("optimistic") as tx:
            assert await tx.get("R", 1, ["E", "X"]) is not None
            await db.conn.execute(MOVES[0])
            await db.conn.execute("UPDATE R SET C = 5, D = 5 WHERE A = 1")
            await tx.update("R", {"A": 1, "E": 1})
        assert await db.rows("SELECT C, E FROM R") == [(5, 1)]

    with_database(body, TABLE)


async def count_up(conn: f1.aio.Connection, rng: random.Random, ended: asyncio.Event, counts: dict[str, int]) -> None:
    """Increment counters of one row, each in an optimistic transaction that takes its time."""
    while not ended.is_set():
        column = rng.choice("CCDE")
        try:
            async with conn.transaction("optimistic") as tx:
                row = await tx.get("R", 1, [column])
                assert row is not None
                await asyncio.sleep(rng.random() * 0.2)
                await tx.update("R", {"A": 1, column: row[column] + 1})
        except F1Error as error:
            assert not error.ambiguous, error
        else:
            counts[column] += 1
        await asyncio.sleep(rng.random() * 0.02)


def counted(seed: int, moves: int) -> tuple[dict[str, int], dict[str, int]]:
    """Count in both servers while columns move; return what was acknowledged and what the row says."""
    counts = dict.fromkeys("CDE", 0)
    found: dict[str, int] = {}

    async def body(db: Database) -> None:
        deaf(db)
        await db.conn.insert("R", {"A": 1, "C": 0, "D": 0, "E": 0})
        ended = asyncio.Event()
        tasks = [
            asyncio.create_task(count_up(await db.at(n % 2), random.Random(f"{seed}/{n}"), ended, counts))
            for n in range(4)
        ]
        for move in MOVES[:moves]:
            await asyncio.sleep(0.3)
            await db.conn.execute(move)
        ended.set()
        await asyncio.gather(*tasks)
        (row,) = await db.rows("SELECT C, D, E FROM R")
        found.update(zip("CDE", row, strict=True))
        await check(db)

    with_database(body, TABLE, seed=seed)
    return counts, found


@pytest.mark.parametrize("seed", range(2))
def test_counters_are_exact_while_their_columns_move_between_locks(seed: int) -> None:
    counts, found = counted(seed, len(MOVES))
    assert counts == found
    assert min(counts.values()) > 10


def test_without_dual_coverage_increments_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    without_dual_coverage(monkeypatch)
    counts, found = counted(0, 2)
    assert counts["C"] > found["C"]
