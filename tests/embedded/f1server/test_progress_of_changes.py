"""How far a change is, as it is shown: it never falls, and its end is known from the beginning."""

from typing import Any

import pytest

from f1common.pb import f1_pb2 as pb
from f1server.schemachange.jobs.progress import Progress
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
    shown: list[tuple[str, int, int]] = []
    show = Progress._show

    def slow(self: Reorganiser, *args: Any, options: ThrottleOptions, **more: Any) -> None:
        init(self, *args, options=ThrottleOptions(0.05, 50, 50), **more)
        self._walks.rows_each = rows_each

    def noted(self: Progress) -> None:
        show(self)
        shown.append((self._owner.step.split(":")[0], self._owner.rows, self._owner.rows_total))

    monkeypatch.setattr(Reorganiser, "__init__", slow)
    monkeypatch.setattr(Progress, "_show", noted)

    async def body(db: Database) -> None:
        for first in range(0, ROWS, 100):
            await db.conn.insert("R", [{"A": a, "V": a, "L": a} for a in range(first, first + 100)])
        await db.conn.execute(change)
        (job,) = await _jobs(db)
        counted = [(rows, total) for _, rows, total in shown]
        assert counted == sorted(counted) and len({total for _, total in counted}) == 1, shown
        assert all(rows <= total for rows, total in counted)
        assert (job.rows, job.rows_total) == counted[-1]
        seen: dict[str, set[int]] = {}
        for step, rows, _ in shown:
            seen.setdefault(step, set()).add(rows)
        worked = [step for step, found in seen.items() if len(found) > 1]
        assert any(step.startswith(("fills", "removes")) for step in worked), shown
        assert ("DROP" not in change) == any(step.startswith("verifies") for step in worked), shown

    with_database(body, BASE)


async def _jobs(db: Database) -> list[pb.SchemaJob]:
    answer = await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.LIST))
    return [job for job in answer.jobs if job.what != ""][-1:]
