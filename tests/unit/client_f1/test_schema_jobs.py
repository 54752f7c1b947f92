"""How far a schema change is, in the words of `f1 schema jobs`."""

from typing import Any

import pytest

from f1.commands import schema_jobs
from f1.commands.schema_jobs import progress_of
from f1common.pb import f1_pb2 as pb


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"rows": 1200}, "1,200"),
        ({"rows": 1200, "rows_total": 40_000}, "1,200 of 40,000"),
        ({"rows": 1200, "rows_total": 40_000, "left_ms": 84_001}, "1,200 of 40,000, 1:25 left"),
        # The total is an estimate: more rows than that are no mistake.
        ({"rows": 1200, "rows_total": 1100}, "1,200 of 1,200"),
    ],
)
def test_what_runs_says_how_far_it_is(fields: dict[str, Any], text: str) -> None:
    assert progress_of(pb.SchemaJob(state="running", **fields)) == text


def test_what_has_ended_has_no_progress() -> None:
    assert progress_of(pb.SchemaJob(state="done", rows=7, rows_total=7)) == ""


def test_what_runs_and_what_has_ended_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    noon_us = 1_795_780_800_000_000
    found = [
        pb.SchemaJob(number=6, what="CREATE INDEX I", state="done", created_ts=noon_us, ended_ts=noon_us + 65_000_000),
        pb.SchemaJob(number=7, what="sources: + check [x]", state="failed", created_ts=noon_us, error="check x fails"),
        pb.SchemaJob(number=8, what="DROP TABLE R", state="running", owner="f1-2", created_ts=noon_us, rows=7),
    ]
    found[0].worked_rows = 1000
    found[2].step, found[2].step_number, found[2].steps = "removes: table R", 2, 3
    schema_jobs.show(found, schema_jobs.Format.table, "none")
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "change begun took state what rows at",
        "6 2026-11-27 12:00:00Z 1:05 min done CREATE INDEX I 1,000",
        "7 2026-11-27 12:00:00Z failed sources: + check [x] check x fails",
        "8 2026-11-27 12:00:00Z running DROP TABLE R 7 step 2 of 3: removes: table R (carried out by f1-2)",
    ]
    schema_jobs.show([], schema_jobs.Format.table, "none")
    assert capsys.readouterr().out == "none\n"
