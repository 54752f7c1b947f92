"""``f1 schema plan``: what the rows of a snapshot say to a change before it is made."""

from collections.abc import Mapping
from typing import Any

import pytest

from f1.planning import ChangePlan, plan_change
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.schemachange.preview import planner, survey
from f1server.testing.database import Database, with_database

BASE = "A INT64 NOT NULL, V INT64, S STRING, PRIMARY KEY (A)"
MOVED = "A INT64 NOT NULL, V INT64 NOT NULL, S STRING, PRIMARY KEY (V, A)"
OTHER = "CREATE TABLE Other (K INT64 NOT NULL, Name STRING, PRIMARY KEY (K))"


def sources(columns: str, *more: str) -> dict[str, str]:
    return {"schema.sql": ";\n".join((f"CREATE TABLE R ({columns})", OTHER, *more))}


def planned(columns: str, *more: str, rows: int = 4, **options: Any) -> ChangePlan:
    """Plan a change of R, which has rows with V 1, NULL, 3, 3, 3 ... and S 'x' * A."""

    async def body(db: Database) -> ChangePlan:
        await db.conn.insert("Other", [{"K": 1, "Name": "one"}])
        values = {1: 1, 2: None}
        await db.conn.insert("R", [{"A": a, "V": values.get(a, 3), "S": "x" * a} for a in range(1, rows + 1)])
        plan = await plan_change(db.conn.session, sources(columns, *more), **options)
        version = (await db.conn.session.show_schema()).version
        assert plan.schema_version == version, "nothing was changed"
        if plan.timestamp:
            await refused_iff_violated(db, sources(columns, *more), plan)
        return plan

    return with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


async def refused_iff_violated(db: Database, files: Mapping[str, str], plan: ChangePlan) -> None:
    """The change itself fails exactly if the plan says so."""
    if plan.violations:
        with pytest.raises(F1Error):
            await db.conn.apply_schema(files, allow_data_loss=True)
    else:
        await db.conn.apply_schema(files, allow_data_loss=True)


def found(plan: ChangePlan) -> list[tuple[str, str, int]]:
    return [(group.kind, group.element, group.count) for group in plan.violations]


VIOLATED: list[tuple[str, str, tuple[str, str, int], tuple[str, str]]] = [
    (
        "A INT64 NOT NULL, V INT64 NOT NULL, S STRING, PRIMARY KEY (A)",
        "",
        ("null", "V", 1),
        ("(A) = (2)", "the column is NOT NULL"),
    ),
    (f"{BASE}, W INT64 NOT NULL", "", ("null", "W", 4), ("(A) = (1)", "the column is NOT NULL")),
    (f"{BASE}, CONSTRAINT Small CHECK (V < 2)", "", ("check", "Small", 2), ("(A) = (3)", "CHECK (V < 2) is false")),
    (
        f"{BASE}, CONSTRAINT Known FOREIGN KEY (V) REFERENCES Other (K)",
        "",
        ("dangling reference", "Known", 2),
        ("(A) = (3)", "Other has no row for (V) = (3)"),
    ),
    (f"{BASE}, UNIQUE (V)", "", ("duplicate", "R_V_key", 2), ("(A) = (3) and (A) = (4)", "both have (V) = (3)")),
    (
        f"{BASE}, W INT64 NOT NULL DEFAULT 7, UNIQUE (W)",
        "",
        ("duplicate", "R_W_key", 4),
        ("(A) = (1) and (A) = (2)", "both have (W) = (7)"),
    ),
    (
        f"{BASE}, W INT64 DEFAULT 7, CONSTRAINT Small CHECK (W < 7)",
        "",
        ("check", "Small", 4),
        ("(A) = (1)", "CHECK (W < 7) is false"),
    ),
    (f"{BASE}, W INT64 NOT NULL DEFAULT NULL", "", ("unreadable", "W", 1), ("", "its default does not fit")),
]


@pytest.mark.parametrize(("columns", "more", "expected", "example"), VIOLATED)
def test_rows_that_stand_against_a_change_are_named(
    columns: str, more: str, expected: tuple[str, str, int], example: tuple[str, str]
) -> None:
    plan = planned(columns.replace(", PRIMARY KEY (A)", "") + ", PRIMARY KEY (A)", *([more] if more else []))
    assert found(plan) == [expected]
    (group,) = plan.violations
    key, message = group.examples[0]
    assert key == example[0]
    assert message.startswith(example[1])


def test_what_the_rows_allow_has_no_violations_and_exact_figures() -> None:
    plan = planned(f"{BASE}, UNIQUE (S), W INT64 DEFAULT 7, CHECK (V < 4)", rows=30, examples=2)
    assert found(plan) == []
    (work,) = [work for step in plan.steps for work in step.work]
    assert (work.table, work.rows, work.exact) == ("R", 30, True)
    assert work.bytes > 30 * 10
    assert work.counts == {"column R.W": 30, "index R_S_key": 30}
    assert sorted(work.elements) == [("check R_check", "validate"), ("column R.W", "fill"), ("index R_S_key", "fill")]


@pytest.mark.parametrize(("key", "group", "fails"), [(295, 185, True), (230, 230, True), (200, 100, False)])
def test_a_row_that_cannot_move_is_named(key: int, group: int, fails: bool) -> None:
    """Its key, or that of an entry in an index that moves with its table, would be too long."""

    async def body(db: Database) -> None:
        await db.conn.insert("P", {"G": "g" * group})
        await db.conn.insert("M", [{"Id": "L" * key, "G": "g" * group}, {"Id": "s", "G": "g" * group}])
        files = {
            "s.sql": "CREATE TABLE P (G STRING PRIMARY KEY); CREATE TABLE M (Id STRING, G STRING NOT NULL, "
            "PRIMARY KEY (G, Id)) INTERLEAVE IN PARENT P; CREATE INDEX MG ON M (G)"
        }
        plan = await plan_change(db.conn.session, files)
        assert [group.count for group in plan.violations] == ([1] if fails else [])
        await refused_iff_violated(db, files, plan)
        if fails:
            assert "the row cannot move: the key of" in plan.violations[0].examples[0][1]

    tables = "CREATE TABLE P (G STRING PRIMARY KEY)", "CREATE TABLE M (Id STRING PRIMARY KEY, G STRING NOT NULL)"
    with_database(body, *tables, "CREATE INDEX MG ON M (G)")


def test_the_states_of_each_element_are_told() -> None:
    plan = planned(BASE, "CREATE INDEX ByV ON R (V)", data=False)
    assert [(step.moves, step.at_once) for step in plan.steps] == [
        ([("index ByV", "absent", "delete-only")], []),
        ([("index ByV", "delete-only", "write-only")], []),
        ([("index ByV", "write-only", "public")], []),
    ]
    assert [work.elements for step in plan.steps for work in step.work] == [[("index ByV", "fill")]]
    assert plan.versions == 3
    assert plan.wait_at_most_ms == 3 * 2_000
    assert plan.timestamp == 0
    assert not plan.violations


def test_dropped_columns_and_tables_are_counted() -> None:
    async def body(db: Database) -> ChangePlan:
        await db.conn.insert("R", [{"A": a, "V": a if a < 3 else None} for a in range(5)])
        await db.conn.insert("Other", [{"K": 1}, {"K": 2}])
        return await plan_change(
            db.conn.session, {"s.sql": "CREATE TABLE R (A INT64 NOT NULL, S STRING, PRIMARY KEY (A))"}
        )

    plan = with_database(body, f"CREATE TABLE R ({BASE})", OTHER)
    assert sorted(plan.losses) == [("column R.V", 3), ("table Other", 2)]
    assert not plan.violations


def test_a_reference_to_what_only_a_new_index_makes_unique() -> None:
    async def body(db: Database) -> ChangePlan:
        await db.conn.insert("Other", [{"K": 1, "Name": "a"}, {"K": 2, "Name": "b"}])
        await db.conn.insert("R", [{"A": a, "S": s} for a, s in enumerate(["a", "b", "c", None, "c"])])
        files = {
            "s.sql": f"CREATE TABLE R ({BASE}, CONSTRAINT Named FOREIGN KEY (S) REFERENCES Other (Name));"
            "CREATE TABLE Other (K INT64 NOT NULL, Name STRING, PRIMARY KEY (K), UNIQUE (Name))"
        }
        plan = await plan_change(db.conn.session, files)
        await refused_iff_violated(db, files, plan)
        await db.conn.execute("DELETE FROM R WHERE S = 'c'")
        await refused_iff_violated(db, files, await plan_change(db.conn.session, files))
        return plan

    plan = with_database(body, f"CREATE TABLE R ({BASE})", OTHER)
    assert found(plan) == [("dangling reference", "Named", 2)]
    assert plan.violations[0].examples[0] == ("(A) = (2)", "Other has no row for (S) = ('c')")


def test_a_renamed_column_keeps_its_values_and_its_new_constraints_see_them() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(1, 4)])
        wanted = "A INT64 NOT NULL, W INT64 NOT NULL RENAMED FROM V, S STRING, PRIMARY KEY (A), CHECK (W < 3)"
        plan = await plan_change(db.conn.session, sources(wanted))
        assert plan.steps[0].at_once == ["rename column R.V to W"]
        assert not plan.losses
        assert found(plan) == [("check", "R_check", 1)]
        assert plan.violations[0].examples == [("(A) = (3)", "CHECK (W < 3) is false")]
        await db.conn.execute("UPDATE R SET V = 0 WHERE A = 3")
        await refused_iff_violated(db, sources(wanted), await plan_change(db.conn.session, sources(wanted)))
        assert await db.rows("SELECT A, W FROM R ORDER BY A") == [(1, 1), (2, 2), (3, 0)]
        assert not (await plan_change(db.conn.session, sources(wanted))).steps

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_rows_are_held_against_a_change_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Duplicates may be in different parts; NULLs are none."""
    monkeypatch.setattr(planner, "_KEYS_PER_PART", 4)
    monkeypatch.setattr(planner, "_KEYS_PER_SEGMENT", 2)

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": None if a % 2 else a % 30} for a in range(60)])
        files = sources(f"{BASE}, UNIQUE (V), CONSTRAINT Small CHECK (V < 28)")
        seen: list[tuple[int, int]] = []
        plan = await plan_change(db.conn.session, files, on_progress=lambda *both: seen.append(both), examples=3)
        assert len(seen) > 10, "there are many parts"
        assert seen[-1][0] == seen[-1][1] >= 60
        assert found(plan) == [("duplicate", "R_V_key", 30), ("check", "Small", 2)]
        assert {key for key, _ in plan.violations[1].examples} == {"(A) = (28)", "(A) = (58)"}
        assert len(plan.violations[0].examples) == 3
        for key, message in plan.violations[0].examples:
            first, second = (int(part.rpartition("(")[2].rstrip(")")) for part in key.split(" and "))
            assert (second - first, message) == (30, f"both have (V) = ({first})")
        (work,) = [work for step in plan.steps for work in step.work]
        assert (work.rows, work.counts) == (60, {"index R_V_key": 60})
        assert await db.storage.pins.list() == []
        await refused_iff_violated(db, files, plan)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_keys_with_one_fingerprint_are_no_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "fingerprint_of", lambda key: bytes(8))
    assert found(planned(f"{BASE}, UNIQUE (S)")) == []


def test_an_entry_that_is_too_long_for_a_key_is_named() -> None:
    plan = planned(BASE, "CREATE INDEX ByS ON R (S)", rows=600)
    assert [(kind, element) for kind, element, _ in found(plan)] == [("unreadable", "ByS")]
    assert plan.violations[0].count > 100
    assert "the row can have no entry" in plan.violations[0].examples[0][1]


def test_rows_below_others_are_looked_at_with_those_of_their_table_only() -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("P", [{"A": a, "V": None} for a in range(5)])
        await db.conn.insert("C", [{"A": a, "K": k, "V": k or None} for a in range(5) for k in range(3)])
        child = "CREATE TABLE C (A INT64, K INT64, V INT64{}, PRIMARY KEY (A, K)) INTERLEAVE IN PARENT P"
        files = {"s.sql": f"CREATE TABLE P (A INT64 PRIMARY KEY, V INT64); {child.format(' NOT NULL')}"}
        plan = await plan_change(db.conn.session, files, examples=2)
        assert found(plan) == [("null", "V", 5)]
        assert plan.violations[0].table == "C"
        assert plan.violations[0].examples[0][0] == "(A, K) = (0, 0)"
        (work,) = [work for step in plan.steps for work in step.work]
        assert (work.table, work.rows) == ("C", 15)
        await refused_iff_violated(db, files, plan)

    child = "CREATE TABLE C (A INT64, K INT64, V INT64, PRIMARY KEY (A, K)) INTERLEAVE IN PARENT P"
    with_database(body, "CREATE TABLE P (A INT64 PRIMARY KEY, V INT64)", child)


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (pb.PlanSchema(part=pb.CheckPart(start=b"a", end=b"a")), Code.INVALID_ARGUMENT, "start < end"),
        (pb.PlanSchema(part=pb.CheckPart(start=b"a", end=b"b", timestamp=-1)), Code.INVALID_ARGUMENT, "timestamp"),
        (pb.PlanSchema(part=pb.CheckPart(start=b"a", end=b"b")), Code.INVALID_ARGUMENT, "timestamp"),
        (
            pb.PlanSchema(
                part=pb.CheckPart(start=b"a", end=b"b", timestamp=1), only=[pb.Fingerprints(fingerprints=b"abc")]
            ),
            Code.INVALID_ARGUMENT,
            "8 bytes each",
        ),
        (pb.PlanSchema(files=[pb.SourceFile(name="a.sql", text="CREATE")]), Code.INVALID_ARGUMENT, "a.sql"),
        (
            pb.PlanSchema(
                files=[pb.SourceFile(name="a.sql", text="CREATE TABLE R (A STRING, PRIMARY KEY (A))")], data=True
            ),
            Code.FAILED_PRECONDITION,
            "types only become wider",
        ),
    ],
)
def test_bad_requests_are_refused(request_: pb.PlanSchema, code: Code, words: str) -> None:
    async def body(db: Database) -> None:
        with pytest.raises(F1Error, match=words) as caught:
            await db.conn.session.plan_schema(request_, 10)
        assert caught.value.code is code
        assert await db.storage.pins.list() == []

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


def test_a_part_of_another_schema_is_refused() -> None:
    async def body(db: Database) -> None:
        now = db.storage.strong_timestamp()
        part = pb.CheckPart(start=b"a", end=b"b", timestamp=now, table_id=900_000)
        files = [pb.SourceFile(name=name, text=text) for name, text in sources(f"{BASE}, CHECK (V < 3)").items()]
        with pytest.raises(F1Error, match="plan the change anew") as caught:
            await db.conn.session.plan_schema(pb.PlanSchema(files=files, part=part), 10)
        assert caught.value.code is Code.INVALID_ARGUMENT

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        (BASE, ("CREATE INDEX ByV ON R (V)",)),
        (BASE, ("CREATE INDEX ByV ON R (V)", "CREATE INDEX ByS ON R (S)")),
        (f"{BASE}, W INT64 NOT NULL DEFAULT 5", ()),
        (f"{BASE}, CONSTRAINT Small CHECK (V < 20)", ()),
        (MOVED, ()),
        (MOVED, ("CREATE INDEX ByS ON R (S)", "CREATE INDEX ByVS ON R (V, S)")),
    ],
    ids=["index", "two indexes", "column", "check", "move", "move with indexes"],
)
def test_the_work_that_is_planned_is_the_work_that_is_done(columns: str, more: tuple[str, ...]) -> None:
    """What estimates of time rest on: rows are counted as they are when the change says how many it works on."""

    async def body(db: Database) -> None:
        if columns == MOVED:
            await db.conn.apply_schema(sources(MOVED.replace("KEY (V, A)", "KEY (A)"), *more))
        await db.conn.insert("R", [{"A": a, "V": a % 7, "S": f"s{a}"} for a in range(40)])
        for data in (False, True):
            plan = await plan_change(db.conn.session, sources(columns, *more), data=data)
            works = [work for step in plan.steps for work in step.work]
            assert works and {(work.table, work.rows) for work in works} == {("R", 40)}
        await db.conn.apply_schema(sources(columns, *more))
        answer = await db.conn.session.schema_jobs(pb.SchemaJobs(order=pb.SchemaJobs.LIST))
        done = answer.jobs[-1].worked_rows
        assert 0.75 * done <= sum(work.rows * work.passes for work in works) <= 1.25 * done, (done, works)

    with_database(body, f"CREATE TABLE R ({BASE})", OTHER)
