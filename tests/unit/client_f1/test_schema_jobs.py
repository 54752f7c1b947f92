"""How far a schema change is, in the words of `f1 schema jobs`."""

from typing import Any

import pytest

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
