"""Statements on many rows: nothing of them that takes long is done where everybody else is served."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import pytest

from f1common.aside import MANY_ROWS
from f1server import session
from f1server.exec import dml
from f1server.rows.planner import WritePlanner
from f1server.testing.database import Database, with_database
from f1server.txn import committer, unlocked
from spanstore.client import twophase
from spanstore.testing.sim.loop import VirtualLoop

ROWS = MANY_ROWS + 200
LONG = (
    (WritePlanner, "__init__"),
    (WritePlanner, "needs"),
    (WritePlanner, "plan"),
    (committer, "fill_defaults"),
    (committer, "validate"),
    (unlocked, "validate"),
    (dml, "_updates"),
    (dml, "_deletes"),
    (session, "_reply"),
    (session, "writes_from_pb"),
    (twophase, "made"),
)
"""What goes over all rows."""


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, set[bool]]]:
    """Where each step was done: True is beside the loop. Only statements on many rows are watched."""
    found: dict[str, set[bool]] = {}
    beside = [False]
    really = VirtualLoop.run_in_executor

    def run_in_executor(
        self: VirtualLoop, executor: Executor | None, work: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        beside[0] = True
        try:
            return really(self, executor, work, *args)
        finally:
            beside[0] = False

    monkeypatch.setattr(VirtualLoop, "run_in_executor", run_in_executor)
    for owner, name in LONG:
        _watch(monkeypatch, owner, name, found, beside)
    yield found


def _watch(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, found: dict[str, set[bool]], beside: list[bool]
) -> None:
    step = getattr(owner, name)

    def watched(*args: Any, **options: Any) -> Any:
        found.setdefault(name, set()).add(beside[0])
        return step(*args, **options)

    monkeypatch.setattr(owner, name, watched)


async def table_of(db: Database, rows: int) -> None:
    await db.ddl("CREATE TABLE Many (Id INT64 NOT NULL, V INT64 DEFAULT (7), PRIMARY KEY (Id))")
    await db.ddl("CREATE INDEX ManyByV ON Many (V)")
    await db.conn.insert("Many", [{"Id": i, "V": i} for i in range(rows)])


def test_statements_on_many_rows_work_beside_the_loop(places: dict[str, set[bool]]) -> None:
    async def run(db: Database) -> None:
        await table_of(db, ROWS)
        for text, steps in (
            ("UPDATE Many SET V = V + 1", {"_updates", "needs", "plan", "validate", "_reply", "made"}),
            ("INSERT INTO Many (Id) SELECT Id + 100000 FROM Many", {"needs", "plan", "fill_defaults", "_reply"}),
            ("DELETE FROM Many WHERE Id < 100000", {"_deletes", "needs", "plan", "validate", "_reply", "made"}),
        ):
            places.clear()
            cursor = await db.conn.execute(text)
            assert cursor.rowcount == ROWS
            assert steps <= places.keys(), text
            assert {step: places[step] for step in steps} == {step: {True} for step in steps}, text
        rows = await (await db.conn.execute("SELECT count(*), sum(V), min(Id) FROM Many")).fetchall()
        assert rows == [(ROWS, 7 * ROWS, 100000)]

    with_database(run)


def test_statements_on_few_rows_do_not_leave_the_loop(places: dict[str, set[bool]]) -> None:
    async def run(db: Database) -> None:
        await table_of(db, 20)
        places.clear()
        assert (await db.conn.execute("UPDATE Many SET V = V + 1")).rowcount == 20
        assert places["plan"] == {False}

    with_database(run)
