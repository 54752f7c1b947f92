"""A server that stands still between a commit's plan and its message, while the schema goes on without it.

Random worlds seldom stop a server just there; here it happens in each run. What the server has read and planned under
version N it sends when N+2 or a later one is there, after its lease on N. That the storage tier refuses it is the fence
of the schema-change paper (write fencing, sections 4.1 and 4.3):
without it each of :data:`CASES_OF_LATE_COMMITS` leaves a row that the new schema does not allow.
"""

import asyncio
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import f1
from f1common.errors import Code, F1Error
from f1server.testing.change_worlds import VersionsAtWork
from f1server.testing.changes import CASES, COUNTER, LAYOUTS, PROTO, STATIC, Case, Layout
from f1server.testing.continuous import ContinuousCheck
from f1server.testing.database import Database, with_database
from spanstore.client import Transaction
from spanstore.testing.checkers import Violation

__all__ = ["CASES_OF_LATE_COMMITS", "late_commit"]

_LEASE_MS = 500
_PLAIN: Mapping[str, Any] = {"V": 1, "U": 5, "N": 0, "S": "short", "Z": 5}
_OTHER = "CREATE TABLE Other (K INT64 NOT NULL, Name STRING, PRIMARY KEY (K))"
_DROPPED: Mapping[str, Mapping[str, Any]] = {"drop column": {"W": 3}}
"""Values of what is there before only."""
_STOPPED = 1
"""The number of the server that stands still."""

CASES_OF_LATE_COMMITS: tuple[str, ...] = (
    "index",
    "drop index",
    "unique index",
    "required column",
    "drop column",
    "not null",
    "check",
    "foreign key",
    "another key",
    "another parent",
)
"""Names of :data:`f1server.testing.changes.CASES`: an insert under a version before them leaves something wrong."""


def late_commit(name: str, layout: str, seed: int) -> tuple[list[Violation], VersionsAtWork]:
    """Let one insert of a run stand still during a change; return what is wrong then, and the commits that happened.

    Raises AssertionError if the server did not stand still for the whole change.
    """
    noted = VersionsAtWork()
    case, where = CASES[name], LAYOUTS[layout]

    async def body(db: Database) -> list[Violation]:
        await _prepare(db, case, where)
        return await _play(db, case, where)

    with noted.installed():
        found = with_database(body, seed=seed, f1servers=2, lease_ms=_LEASE_MS)
    return found, noted


async def _prepare(db: Database, case: Case, layout: Layout) -> None:
    await db.conn.apply_schema({"s.sql": ";\n".join([*layout.tables, _OTHER]), "t.proto": PROTO})
    numbers = (1, STATIC, COUNTER)
    if len(layout.keys) > 1:
        await db.conn.insert("Root", [{"A": a} for a in range(2)])
        await db.conn.insert("Mid", [{"A": a, "B": 1} for a in range(2)])
    else:
        await db.conn.insert("Above", [{"A": number} for number in numbers])
    await db.conn.insert("Other", [{"K": k} for k in range(10)])
    await db.conn.insert("R", [{**layout.key(n), **_PLAIN, "U": n} for n in numbers[1:]])
    for text in case.before:
        await db.ddl(*layout.ddl(text).split("; "))


async def _play(db: Database, case: Case, layout: Layout) -> list[Violation]:
    stopped = db.nodes.names[_STOPPED]
    row = {**layout.key(1), **_PLAIN, **({} if case.moves else case.naughty), **_DROPPED.get(case.name, {})}
    with patch.object(db.frontend(_STOPPED)._committer, "carry_out", _stands_still(db)):
        late = db.env.spawn(_insert(await db.at(_STOPPED), row))
        while not db.world.nodes[stopped].paused and not late.done():
            await asyncio.sleep(0.001)
    other = await db.at(0)
    for statement in layout.ddl(case.change).split("; "):
        await other.execute(statement)
    if not db.world.nodes[stopped].paused or late.done():
        raise AssertionError("the server did not stand still for the whole change")
    db.world.resume(stopped)
    await late
    checks = db.process(0)._sql.evaluators().checks
    return await ContinuousCheck(db.storage, db.env.clock, db.env.rng, checks).versions()


def _stands_still(db: Database) -> Any:
    """Return how the server commits: it stops when it has read and planned everything, and is about to send."""
    carry_out = db.frontend(_STOPPED)._committer.carry_out

    async def stop() -> None:
        db.world.pause(db.nodes.names[_STOPPED])

    async def stops(tx: Transaction, *args: Any, **kwargs: Any) -> Any:
        commit = tx.commit

        async def late(**limits: Any) -> int:
            db.env.spawn(stop())
            await asyncio.sleep(0.001)
            return await commit(**limits)

        with patch.object(tx, "commit", late):
            return await carry_out(tx, *args, **kwargs)

    return stops


async def _insert(conn: f1.aio.Connection, row: dict[str, Any]) -> None:
    """Insert it. What the new schema forbids, or what nobody knows the outcome of, is part of the game."""
    try:
        await conn.insert("R", row)
    except F1Error as error:
        if error.code is Code.INTERNAL:
            raise
