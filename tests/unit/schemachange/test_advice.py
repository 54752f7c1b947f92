"""Warnings about changes that can be made."""

import pytest

from f1server.catalog.schema import Schema
from f1server.schemachange.jobs.jobs import Job
from f1server.schemachange.preview.advice import advice
from f1server.schemachange.preview.planner import rows_per_s
from f1server.schemachange.steps.sources import Sources
from tests.unit.catalog.samples import after

R = "CREATE TABLE R (A INT64 PRIMARY KEY, V INT64, S STRING, At TIMESTAMP DEFAULT now(), Day DATE)"
P = "CREATE TABLE P (A INT64, K INT64, W INT64, PRIMARY KEY (A, K)) INTERLEAVE IN PARENT R"


def warnings(*wanted: str, rows: int = 10) -> list[str]:
    old = after(Schema("default"), f"{R}; {P}; CREATE INDEX ByVS ON R (V, S)")
    new = Sources([("s.sql", ";".join(wanted))], []).draft(old)
    return advice(old, new, {table.id: rows for table in old.tables})


KEPT = (R, P, "CREATE INDEX ByVS ON R (V, S)")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("CREATE INDEX I ON R (At)", "entries of I begin with At, whose values grow"),
        ("CREATE INDEX I ON R (Day, V)", "entries of I begin with Day, whose values grow"),
        ("CREATE INDEX I ON P (K, W)", "entries of I begin with K, the id of the rows of P"),
        ("CREATE INDEX I ON R (V)", "the index I has nothing that ByVS has not"),
        ("CREATE INDEX I ON R (V, S)", "the index I has nothing that ByVS has not"),
        ("CREATE LOCAL INDEX I ON P (A, K)", "the index I begins as the primary key of P does"),
        ("CREATE TABLE Log (At TIMESTAMP, K INT64, PRIMARY KEY (At, K))", "the keys of the table Log begin with At"),
        ("CREATE VIEW View AS SELECT Nothing FROM R", "the view View cannot be read any more"),
    ],
)
def test_what_may_be_regretted(statement: str, text: str) -> None:
    found = warnings(*KEPT, statement)
    assert len(found) == 1, found
    assert text in found[0]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX I ON R (S)",
        "CREATE INDEX I ON R (S, At)",
        "CREATE LOCAL INDEX I ON R (A, At)",
        "CREATE UNIQUE INDEX I ON R (V)",
        "CREATE INDEX I ON R (V) STORING (Day)",
        "CREATE VIEW View AS SELECT V FROM R",
        "CREATE TABLE T (K STRING PRIMARY KEY, At TIMESTAMP)",
    ],
)
def test_what_is_fine(statement: str) -> None:
    assert warnings(*KEPT, statement) == []


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("CAST(M AS STRING) NOT LIKE '%w%'", "M"),
        ("CAST(C.M.sub AS STRING) <> ''", "M.sub"),
        ("M.name <> '' AND V > 0", ""),
        ("M.sub.z > 0", ""),
    ],
)
def test_a_check_that_reads_a_whole_message_is_named_when_its_proto_changes(check: str, told: str) -> None:
    proto = 'syntax = "proto3"; package x; message S { int64 z = 1; } message M { string name = 1; S sub = 2; %s}'
    table = f"CREATE TABLE C (A INT64 PRIMARY KEY, V INT64, M PROTO<x.M>, CONSTRAINT K CHECK ({check}))"
    old = Sources([("s.sql", table)], [("x.proto", proto % "")]).draft(Schema("default"))
    assert advice(old, Sources([("s.sql", table)], [("x.proto", proto % "")]).draft(old), {}) == []
    found = advice(old, Sources([("s.sql", table)], [("x.proto", proto % "int64 w = 3; ")]).draft(old), {})
    assert len(found) == bool(told)
    assert not told or f"the check K of C reads {told} as a whole" in found[0]


def test_an_index_that_a_foreign_key_needs_is_told() -> None:
    found = warnings(*KEPT, "CREATE TABLE Q (K INT64 PRIMARY KEY, A INT64 REFERENCES R)")
    assert found == []  # of a table that is new as a whole it is no news
    columns = "A INT64, K INT64, W INT64 REFERENCES R, PRIMARY KEY (A, K)"
    found = warnings(R, f"CREATE TABLE P ({columns}) INTERLEAVE IN PARENT R", KEPT[2])
    assert found == [
        "the foreign key P_W_fkey needs an index of P that begins with (W), and there is none: P_W_fkey_idx is made "
        "for it"
    ]


def test_a_new_column_that_old_rows_cannot_have() -> None:
    wider = R.replace("V INT64", "V INT64, W INT64 NOT NULL")
    (found,) = warnings(wider, P, KEPT[2])
    assert "R.W is NOT NULL and has no default, and R has about 10 rows" in found
    assert warnings(wider, P, KEPT[2], rows=0) == []
    assert warnings(wider.replace("W INT64 NOT NULL", "W INT64 NOT NULL DEFAULT 1"), P, KEPT[2]) == []


def test_a_view_over_a_column_that_goes() -> None:
    (found,) = warnings(R.replace(" Day DATE", " Night DATE"), P, KEPT[2], "CREATE VIEW View AS SELECT Day FROM R")
    assert "View cannot be read any more" in found
    assert "Day" in found


def test_rows_per_second_are_those_of_the_last_changes_that_took_a_while() -> None:
    def job(number: int, rows: int, taken_ms: int) -> Job:
        return Job(number, "default", "", b"", b"", 0, worked_rows=rows, worked_ms=taken_ms)

    assert rows_per_s([]) == rows_per_s([job(1, 10, 1000)]) == 4_000
    slow, fast = job(1, 1_000_000, 1_000_000), [job(n, 10_000, 1_000) for n in (2, 3, 4)]
    assert rows_per_s([slow]) == 1_000
    assert rows_per_s([slow, *fast, job(5, 3, 1)]) == 10_000
