"""`f1 schema plan`, `apply`, `diff`, `history` on a real cluster, as from a shell."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.database import Database, running

ROWS = 3_000
BEFORE = """
CREATE TABLE Customer (C INT64 PRIMARY KEY, Name STRING, Age INT64);
CREATE TABLE Campaign (C INT64, K INT64, Budget INT64, PRIMARY KEY (C, K)) INTERLEAVE IN PARENT Customer;
"""
AFTER = """
CREATE TABLE Customer (C INT64 PRIMARY KEY, Name STRING NOT NULL, UNIQUE (Name));
CREATE TABLE Campaign (C INT64, K INT64, Budget INT64 CHECK (Budget >= 0), PRIMARY KEY (C, K))
  INTERLEAVE IN PARENT Customer;
CREATE INDEX ByBudget ON Campaign (Budget);
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("schema")
    with running(folder, "--groups", "3") as started:
        (folder / "before.sql").write_text(BEFORE)
        (folder / "after.sql").write_text(AFTER)
        started.command("schema", "apply", "before.sql")
        lines = ["C,Name,Age", *(f"{c},customer {c},{c % 90 if c % 3 else ''}" for c in range(ROWS))]
        (folder / "customers.csv").write_text("\n".join(lines))
        lines = ["C,K,Budget", *(f"{c},1,{c}" for c in range(ROWS))]
        (folder / "campaigns.csv").write_text("\n".join(lines))
        started.command("load", "Customer", "customers.csv")
        started.command("load", "Campaign", "campaigns.csv")
        yield started


def schema(database: Database, *arguments: str) -> tuple[int, str, str]:
    """Run a command of f1 schema; return its exit code, output and error output."""
    done = subprocess.run(
        [sys.executable, "-m", "f1", "schema", *arguments],
        cwd=database.directory.parent,
        env={**os.environ, "F1_HOST": database.hosts},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_rows_stand_against_a_change_until_they_are_corrected(database: Database) -> None:
    with database.connect() as conn:
        conn.execute("UPDATE Customer SET Name = NULL WHERE C IN (7, 8)")
        conn.execute("UPDATE Customer SET Name = 'customer 5' WHERE C = 2999")
        conn.execute("UPDATE Campaign SET Budget = -1 WHERE C = 11")
        conn.execute("INSERT INTO Campaign VALUES (7, 2, NULL)")
    code, out, err = schema(database, "plan", "--format", "json", "after.sql", "--examples", "1")
    assert code == 2, err
    plan = json.loads(out)
    assert plan["can_be_applied"] is False
    assert [(v["kind"], v["table"], v["element"], v["count"], v["examples"][0]) for v in plan["violations"]] == [
        (
            "check",
            "Campaign",
            "Campaign_check",
            1,
            {"key": "(C, K) = (11, 1)", "message": "CHECK (Budget >= 0) is false"},
        ),
        (
            "duplicate",
            "Customer",
            "Customer_Name_key",
            2,
            {"key": "(C) = (5) and (C) = (2999)", "message": "both have (Name) = ('customer 5')"},
        ),
        ("null", "Customer", "Name", 2, {"key": "(C) = (7)", "message": "the column is NOT NULL"}),
    ]
    assert plan["losses"] == [{"element": "column Customer.Age", "count": ROWS * 2 // 3}]
    work = {w["table"]: w for step in plan["steps"] for w in step["work"]}
    assert (work["Customer"]["rows"], work["Campaign"]["rows"]) == (ROWS, ROWS + 1)
    assert all(w["exact"] and w["bytes"] > 10 * ROWS for w in work.values())
    assert {"element": "index ByBudget", "work": "fill", "count": ROWS + 1} in work["Campaign"]["elements"]
    # What the plan says is so: the change fails, and everything is as before.
    code, _, err = schema(database, "apply", "--yes", "--allow-data-loss", "after.sql")
    assert code == 1
    assert "nothing was changed" in err or "cannot be unique" in err
    with database.connect() as conn:
        conn.execute("UPDATE Customer SET Name = 'seven' WHERE C = 7")
        conn.execute("UPDATE Customer SET Name = 'eight' WHERE C = 8")
        conn.execute("UPDATE Customer SET Name = 'last' WHERE C = 2999")
        conn.execute("UPDATE Campaign SET Budget = 1 WHERE C = 11")
    code, out, err = schema(database, "plan", "after.sql")
    assert code == 2, "a column with values would be dropped"
    assert "The column Customer.Age is dropped with its 2,000 values; --allow-data-loss" in out
    assert "No row stands against it" in out
    code, out, err = schema(database, "plan", "--allow-data-loss", "--no-data", "after.sql")
    assert code == 0, err
    assert "     index ByBudget: absent -> delete-only" in out


def test_a_change_is_applied_and_remembered(database: Database) -> None:
    code, out, _ = schema(database, "diff", "after.sql")
    assert code == 0
    assert "+  Name STRING NOT NULL," in out
    assert "-  Age INT64," in out
    code, _, err = schema(database, "apply", "--allow-data-loss", "after.sql")
    assert code == 1, "nobody can be asked"
    assert "this drops column Customer.Age; --yes says that this is meant" in err
    code, out, err = schema(database, "apply", "--yes", "--allow-data-loss", "after.sql")
    assert code == 0, err
    assert "Applied; the schema is at version" in out
    for command in ("plan", "diff"):
        code, out, _ = schema(database, command, "after.sql")
        assert (code, out.strip()) == (0, "The database is what the files describe.")
    code, out, _ = schema(database, "history", "--format", "json")
    assert code == 0
    assert [job["state"] for job in json.loads(out)][-2:] == ["failed", "done"]
    assert "Nothing is wrong" in database.command("check")


def test_sources_with_errors_are_refused_with_the_place(database: Database) -> None:
    (database.directory.parent / "bad.sql").write_text("CREATE TABLE Customer (C INT64 PRIMARY KEY,\n  Name FOO);\n")
    code, out, err = schema(database, "plan", "bad.sql")
    assert (code, out) == (1, "")
    assert err.startswith("INVALID_ARGUMENT: ")
    assert "bad.sql" in err
