"""How far a change is, as it is shown: it never falls, and its end is known from the beginning."""

import asyncio
from typing import Any

import pytest

from f1common.pb import f1_pb2 as pb
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.testing.database import Database, with_database

BASE = "CREATE TABLE R (A INT64 NOT NULL, V INT64, L INT64, PRIMARY KEY (A))"
ROWS = 300


@pytest.mark.parametrize("rows_each", [20, 30_000])
@pytest.mark.parametrize(
    "change",
    ["CREATE INDEX RV ON R (V)", "ALTER TABLE R ADD COLUMN W INT64 NOT NULL DEFAULT 5", "ALTER TABLE R DROP COLUMN L"],
)
def test_progress_never_falls(monkeypatch: pytest.MonkeyPatch, change: str, rows_each: int) -> None:
    init = Reorganiser.__init__

    def slow(self: Reorganiser, *args: Any, options: ThrottleOptions, **more: Any) -> None:
        init(self, *args, options=ThrottleOptions(0.05, 50, 50), **more)
        self._walks.rows_each = rows_each

    monkeypatch.setattr(Reorganiser, "__init__", slow)

    async def body(db: Database) -> None:
        for first in range(0, ROWS, 100):
            await db.conn.insert("R", [{"A": a, "V": a, "L": a} for a in range(first, first + 100)])
        changing = db.env.spawn(db.conn.execute(change))
        seen: dict[str, list[tuple[int, int]]] = {}
        while not changing.done():
            (job,) = await _jobs(db)
            if job.rows_total and job.state == "running":
                seen.setdefault(job.step.split(":")[0], []).append((job.rows, job.rows_total))
            await asyncio.sleep(0.1)
        await changing
        worked = {step: found for step, found in seen.items() if len({rows for rows, _ in found}) > 1}
        assert any(step.startswith(("fills", "removes")) for step in worked), seen
        assert ("DROP" not in change) == any(step.startswith("verifies") for step in worked), seen
        shown = [found for step in worked.values() for found in step]
        assert shown == sorted(shown) and len({total for _, total in shown}) == 1, seen
        assert all(rows <= total for rows, total in shown)

    with_database(body, BASE)


async def _jobs(db: Database) -> list[pb.SchemaJob]:
    answer = await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.LIST))
    return [job for job in answer.jobs if job.what != ""][-1:]
