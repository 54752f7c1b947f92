"""Renames in sources: `New RENAMED FROM Old` of tables, columns and indexes."""

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.render import render_schema
from f1server.catalog.schema import Schema
from f1server.schemachange.steps import edits
from f1server.schemachange.steps.diff import plan_steps
from f1server.schemachange.steps.sources import Sources

OLD = """
CREATE TABLE Customer (Id INT64 PRIMARY KEY, Name STRING, Age INT64 CHECK (Age >= 0), UNIQUE (Name),
  CONSTRAINT Grown CHECK (Customer.Age > 17 OR Name IS NULL), LOCK Mine (Name));
CREATE TABLE Order_ (Id INT64, N INT64, Who STRING REFERENCES Customer (Name), PRIMARY KEY (Id, N))
  INTERLEAVE IN PARENT Customer;
CREATE INDEX ByAge ON Customer (Age) STORING (Name);
CREATE INDEX ON Customer (Age, Name);
CREATE VIEW Names AS SELECT Name FROM Customer;
"""
NEW = """
CREATE TABLE Client RENAMED FROM Customer (Id INT64 PRIMARY KEY, FullName STRING RENAMED FROM Name,
  Age INT64 CHECK (Age >= 0), UNIQUE (FullName), CONSTRAINT Grown CHECK (Client.Age > 17 OR FullName IS NULL),
  LOCK Mine (FullName));
CREATE TABLE Order_ (Id INT64, N INT64, Who STRING REFERENCES Client (FullName), PRIMARY KEY (Id, N))
  INTERLEAVE IN PARENT Client;
CREATE INDEX Ages RENAMED FROM ByAge ON Client (Age) STORING (FullName);
CREATE INDEX ON Client (Age, FullName);
CREATE VIEW Names AS SELECT FullName AS Name FROM Client;
"""


def sources(text: str) -> Sources:
    return Sources([("s.sql", text)], [])


def schema(text: str) -> Schema:
    return sources(text).draft(Schema("default"))


def after(old: Schema, text: str) -> tuple[Schema, list[str]]:
    """Return the schema that the sources make of ``old``, and what is done for it."""
    steps = plan_steps(old, sources(text).draft(old))
    for step in steps:
        old = edits.advance(old, step.edits)
    return old, [what for step in steps for what in step.what]


def test_everything_keeps_its_id_and_nothing_is_done_with_rows() -> None:
    old = schema(OLD)
    new = sources(NEW).draft(old)
    steps = plan_steps(old, new)
    assert len(steps) == 1
    assert not steps[0].tasks
    assert steps[0].what == (
        "rename table Customer to Client",
        "rename column Customer.Name to FullName",
        "rename index Customer_Name_key to Client_FullName_key",
        "rename index ByAge to Ages",
        "rename index Customer_Age_Name_idx to Client_Age_FullName_idx",
        "rename check Customer_check to Client_check",
        "alter check Grown",
        "create view Names",
    )
    assert {t.id for t in new.tables} == {t.id for t in old.tables}
    had, has = old.table("Customer"), new.table("Client")
    assert [c.id for c in has.columns] == [c.id for c in had.columns]
    for part in ("indexes", "checks", "locks", "foreign_keys"):
        assert {e.id for e in getattr(has, part)} == {e.id for e in getattr(had, part)}


def test_the_same_sources_again_change_nothing_and_nothing_is_new_in_an_empty_database() -> None:
    renamed, _ = after(schema(OLD), NEW)
    assert after(renamed, NEW)[1] == []
    assert after(renamed, NEW.replace("RENAMED FROM Customer", "").replace("RENAMED FROM Name", ""))[1] == []
    # Names in checks are quoted where they are rewritten.
    assert render_schema(schema(NEW)) == render_schema(renamed).replace('"', "")


def test_names_of_dropped_tables_are_forgotten_when_they_are_in_use_again_and_when_there_are_many() -> None:
    two, _ = after(schema(""), "CREATE TABLE One (k INT64 PRIMARY KEY); CREATE TABLE Two (k INT64 PRIMARY KEY);")
    none, _ = after(two, "")
    assert none.dropped == ("one", "two")
    again, _ = after(none, "CREATE TABLE One (k INT64 PRIMARY KEY);")
    assert again.dropped == ("two",)
    moved, _ = after(again, "CREATE TABLE Two RENAMED FROM One (k INT64 PRIMARY KEY);")
    assert moved.dropped == ()
    for number in range(edits.MOST_DROPPED + 5):
        moved, _ = after(after(moved, f"CREATE TABLE T{number} (k INT64 PRIMARY KEY);")[0], "")
    assert [moved.dropped[0], moved.dropped[-1], len(moved.dropped)] == ["t5", "t104", 100]


def test_sources_that_name_what_was_made_keep_it() -> None:
    shown = render_schema(schema("CREATE TABLE R (A INT64 PRIMARY KEY, V INT64, UNIQUE (V))"))
    assert "R_V_key" in shown
    renamed = shown.replace("  V INT64", "  W INT64 RENAMED FROM V").replace("R (V)", "R (W)")
    _, what = after(schema(shown), renamed)
    assert what == ["rename column R.V to W"]


def test_a_rename_goes_with_other_changes_of_the_same_table() -> None:
    old = schema("CREATE TABLE R (A INT64 PRIMARY KEY, V VARCHAR(10), X INT64)")
    new = "CREATE TABLE R (A INT64 PRIMARY KEY, W STRING RENAMED FROM V, Y INT64); CREATE INDEX ByW ON R (W)"
    reached, what = after(old, new)
    assert (what[0], what[-1]) == ("rename column R.V to W", "alter column R.W")
    assert "index ByW: public" in what
    assert "column R.X: dropped" in what
    assert [c.name for c in reached.table("R").columns] == ["A", "W", "Y"]
    assert after(reached, new)[1] == []


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            "CREATE TABLE R (A INT64 PRIMARY KEY, W INT64 RENAMED FROM V, V INT64)",
            Code.INVALID_ARGUMENT,
            "the sources have a column V too",
        ),
        (
            "CREATE TABLE R (A INT64 PRIMARY KEY, W INT64 RENAMED FROM V, U INT64 RENAMED FROM V)",
            Code.INVALID_ARGUMENT,
            "two columns are RENAMED FROM V",
        ),
        (
            "CREATE TABLE R (A INT64 PRIMARY KEY, V INT64 RENAMED FROM V)",
            Code.INVALID_ARGUMENT,
            "RENAMED FROM itself",
        ),
        (
            "CREATE TABLE R (A INT64 PRIMARY KEY, X INT64 RENAMED FROM V)",
            Code.FAILED_PRECONDITION,
            "the database has both: drop one of the two columns",
        ),
        (
            "CREATE TABLE S RENAMED FROM R (A INT64 PRIMARY KEY, V INT64, X INT64); CREATE TABLE R (A INT64)",
            Code.INVALID_ARGUMENT,
            "the sources have a table R too",
        ),
        (
            "CREATE TABLE Q RENAMED FROM R (A INT64 PRIMARY KEY, V INT64, X INT64)",
            Code.FAILED_PRECONDITION,
            "the database has both: drop one of the two tables",
        ),
        (
            "CREATE TABLE R (A INT64 PRIMARY KEY, V INT64, X INT64); CREATE INDEX I RENAMED FROM I ON R (V)",
            Code.INVALID_ARGUMENT,
            "RENAMED FROM itself",
        ),
    ],
)
def test_what_is_ambiguous_is_refused_with_its_place(text: str, code: Code, words: str) -> None:
    old = schema("CREATE TABLE R (A INT64 PRIMARY KEY, V INT64, X INT64); CREATE TABLE Q (A INT64 PRIMARY KEY)")
    with pytest.raises(F1Error, match=words) as caught:
        sources(text).draft(old)
    assert caught.value.code is code
    assert "s.sql" in caught.value.message


def test_checks_that_differ_in_their_writing_only_are_the_same() -> None:
    old = schema("CREATE TABLE R (A INT64 PRIMARY KEY, V STRING, CHECK (V <> 'a' AND A > 0))")
    assert after(old, "CREATE TABLE R (A INT64 PRIMARY KEY, V STRING, CHECK (\"v\"<>'a'  and a > 0))")[1] == []
    assert after(old, "CREATE TABLE R (A INT64 PRIMARY KEY, V STRING, CHECK (V <> 'A' AND A > 0))")[1] != []
