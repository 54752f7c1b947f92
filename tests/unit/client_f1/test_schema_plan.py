"""`f1 schema plan` and `apply` as people and programs read them."""

import io

from rich.console import Console

from f1.checking import Findings
from f1.commands.schema_apply import Display, line_of
from f1.commands.schema_jobs import duration
from f1.commands.schema_plan import document, text
from f1.planning import ChangePlan, Step, TableWork
from f1common.pb import f1_pb2 as pb

NOON_US = 1_795_780_800_000_000  # 2026-11-27 12:00 UTC


def plan_of(steps: list[Step], **fields: object) -> ChangePlan:
    holders = [("f1-2", 12, 2000), ("f1-1", 12, 2000)]
    given = {"holders": holders, "warnings": [], "rows_per_s": 1000, "before": {}, "after": {}, **fields}
    return ChangePlan(12, steps, **given)  # type: ignore[arg-type]


def index_and_drop() -> list[Step]:
    fill = TableWork("R", [("index ByV", "fill")], 90_000, 4_300_000, True, {"index ByV": 90_000})
    gone = TableWork("Old", [("table Old", "remove")], 1, 20, True, {})
    moves = [("index ByV", "absent", "delete-only"), ("table Old", "public", "delete-only")]
    return [
        Step(moves, ["create table New"], []),
        Step([("index ByV", "delete-only", "write-only")], [], [fill, gone]),
        Step([("index ByV", "write-only", "public"), ("table Old", "delete-only", "absent")], [], []),
    ]


GOLDEN = """\
1. version 13 of the schema
     create table New
     index ByV: absent -> delete-only
     table Old: public -> delete-only
2. version 14 of the schema
     index ByV: delete-only -> write-only
   then, when all servers have it, 90,000 rows (4.3 MB) of R, some 1:30 min:
     fill index ByV: 90,000 entries
   then, when all servers have it, 1 row (20 bytes) of Old, some 1 s:
     remove table Old
3. version 15 of the schema
     index ByV: write-only -> public
     table Old: delete-only -> absent

3 versions to write. Each waits until f1-1, f1-2 have it: some milliseconds if they answer, else the 2 s of a lease, \
6 s for all.
The table Old is dropped with its 1 row; --allow-data-loss says that this is meant.
Warning: the entries of ByV begin with V.

These rows stand against it, as of 2026-11-27 12:00:00 UTC; correct or delete them first:
duplicate in R.ByV: 5 rows
  (A) = (3) and (A) = (4): both have (V) = (3)
null in R.W: 7 rows
  (A) = (1): the column is NOT NULL
  and 6 more"""


def golden_plan() -> ChangePlan:
    violations = [
        Findings(6, "duplicate", "R", "ByV", 5, 0, [("(A) = (3) and (A) = (4)", "both have (V) = (3)")]),
        Findings(2, "null", "R", "W", 7, 0, [("(A) = (1)", "the column is NOT NULL")]),
    ]
    warnings = ["the entries of ByV begin with V"]
    return plan_of(index_and_drop(), timestamp=NOON_US, violations=violations, warnings=warnings)


def test_a_plan_says_all_that_it_knows() -> None:
    assert text(golden_plan()) == GOLDEN


def test_a_plan_without_rows_estimates() -> None:
    work = TableWork("R", [("index ByV", "fill")], 90_000, 4_300_000)
    shown = text(plan_of([Step([("index ByV", "delete-only", "write-only")], [], [work])]))
    assert "about 90,000 rows (~4.3 MB) of R, some 1:30 min:\n     fill index ByV\n" in shown
    assert shown.endswith("No rows were read: whether any stand against it is not known.")
    drop = TableWork("R", [("column R.V", "remove")], 9, 80)
    shown = text(plan_of([Step([("column R.V", "public", "delete-only")], [], [drop])]))
    assert "The column R.V is dropped with what values it has; --allow-data-loss" in shown


def test_one_and_several_are_told_apart() -> None:
    one = [("f1-1", 3, 2_000)]
    add = Step([("index ByV", "absent", "public")], [], [])
    alone = "1 version to write. It waits until f1-1 has it: some milliseconds if it answers, else the 2 s of a lease."
    assert alone in text(plan_of([add], holders=one))
    assert "2 versions to write. Each waits until f1-1 has it: some milliseconds if it answers," in text(
        plan_of([add, add], holders=one)
    )
    work = TableWork("R", [("index ByV", "fill")], 9, 80)
    assert "\n0 versions to write.\n" in text(plan_of([Step([], [], [work])], holders=one))


def test_without_examples_there_is_no_rest_of_them() -> None:
    shown = text(plan_of(index_and_drop(), timestamp=NOON_US, violations=[Findings(2, "null", "R", "W", 7)]))
    assert shown.endswith("null in R.W: 7 rows")


def test_nothing_to_do_is_said() -> None:
    assert text(plan_of([])) == "The database is what the files describe."
    assert document(plan_of([]), None)["can_be_applied"] is True


def test_work_without_a_version_is_told_under_the_present_one() -> None:
    work = TableWork("R", [("index ByV", "fill")], 0, 0, True, {"index ByV": 0})
    lines = text(plan_of([Step([], [], [work])], timestamp=NOON_US)).splitlines()
    assert lines[:3] == [
        "1. under version 12",
        "   then, when all servers have it, no rows of R:",
        "     fill index ByV: 0 entries",
    ]


def test_programs_read_the_same() -> None:
    found = document(golden_plan(), "shop")
    assert found["database"] == "shop"
    assert found["can_be_applied"] is False
    assert found["steps"][1]["work"][0] == {
        "table": "R",
        "rows": 90_000,
        "bytes": 4_300_000,
        "exact": True,
        "estimated_ms": 90_000,
        "elements": [{"element": "index ByV", "work": "fill", "count": 90_000}],
    }
    assert found["losses"] == [{"element": "table Old", "count": 1}]
    assert [v["count"] for v in found["violations"]] == [5, 7]
    assert found["wait_at_most_ms"] == 6000


def test_a_loss_is_refused_unless_it_is_meant() -> None:
    plan = plan_of(index_and_drop(), timestamp=NOON_US)
    assert document(plan, None)["can_be_applied"] is False
    assert document(plan, None, allow_data_loss=True)["can_be_applied"] is True
    assert "--allow-data-loss" not in text(plan, allow_data_loss=True)


def test_durations() -> None:
    assert [duration(s) for s in (0.1, 59, 61, 3600 * 3 + 62)] == ["1 s", "59 s", "1:01 min", "3:01 h"]


def test_a_diff_is_one_of_the_ddl() -> None:
    before = {"schema.sql": "CREATE TABLE R (\n  A INT64\n);", "a.proto": "x"}
    after = {"schema.sql": "CREATE TABLE R (\n  A INT64,\n  B STRING\n);", "a.proto": "x"}
    lines = list(plan_of([], before=before, after=after).diff())
    assert lines[:2] == ["--- schema.sql (as it is)", "+++ schema.sql (wanted)"]
    assert lines[3:] == [" CREATE TABLE R (", "-  A INT64", "+  A INT64,", "+  B STRING", " );"]


def job(**fields: object) -> pb.SchemaJob:
    return pb.SchemaJob(number=7, **{"state": "running", **fields})  # type: ignore[arg-type]


def test_what_a_change_is_at_fits_into_a_line() -> None:
    assert line_of(job()) == "schema change 7 begins"
    waits = "waits until all servers have version 13: f1-2 (its lease ends 12:00:02 UTC)"
    assert line_of(job(step=waits, step_number=2, steps=3)) == f"schema change 7 step 2 of 3: {waits}"
    filling = job(step="fills index ByV", step_number=2, steps=3, rows=10, rows_total=40, left_ms=9000)
    assert line_of(filling) == "schema change 7 step 2 of 3: fills index ByV (10 of 40 rows, 0:09 left)"
    assert line_of(job(state="undoing", step="removes: index ByV")) == (
        "schema change 7 is taken back: removes: index ByV"
    )
    assert line_of(job(state="paused")) == "schema change 7 is paused"


def test_without_a_terminal_each_new_thing_is_one_line() -> None:
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=False, width=80)) as display:
        for rows in (1, 2, 3):
            display.show([job(step="fills [index] ByV", rows=rows)])
        display.show([job(step="writes version 15")])
        display.show([])
    assert out.getvalue().splitlines() == [
        "schema change 7 fills [index] ByV (1 rows)",
        "schema change 7 writes version 15",
    ]


def test_on_a_terminal_there_is_a_bar() -> None:
    out = io.StringIO()
    with Display(Console(file=out, force_terminal=True, width=200)) as display:
        display.show([job(step="fills [index] ByV", rows=10, rows_total=40)])
    assert "schema change 7 fills [index] ByV" in out.getvalue()
    assert "10 of 40 rows" in out.getvalue()
