"""DDL refuses defaults, checks and views that nobody could evaluate: each INSERT, or query, would fail afterwards."""

import pytest

from f1.errors import Error
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.testing.database import Database, with_database

TABLE = "CREATE TABLE A (Id INT64 NOT NULL, V INT64, S VARCHAR(10), PRIMARY KEY (Id))"
CHECKS = {
    "nofunc(V) > 1": "there is no function nofunc",
    "V + S > 5": "cannot be evaluated",
    "V > 'abc'": "could not convert string 'abc' to INT64",
    "S ~ '['": "cannot be evaluated",
    "S": "not BOOL",
    "1": "not BOOL",
    "V > 1 AND length(V) > 1": "cannot be evaluated",
}
DEFAULTS = {
    "INT64 DEFAULT nofunc()": "there is no function nofunc",
    "DATE DEFAULT '2020-13-01'": "there is no day",
    "NUMERIC(3, 1) DEFAULT 1000": "out of range",
    "INT64 DEFAULT 1 / 0": "division by zero",
    "STRING(2) DEFAULT 'abc'": "too long",
    "VARCHAR(2) NOT NULL DEFAULT 'x' || 'yz'": "too long",
}
VIEWS = {
    "SELECT nofunc(V) AS X FROM A": "there is no function nofunc",
    "SELECT V + S AS X FROM A": "cannot be evaluated",
}
TAKEN = (
    "ALTER TABLE A ADD CONSTRAINT C1 CHECK (V IS NULL OR V > 0)",
    "ALTER TABLE A ADD CONSTRAINT C2 CHECK (length(S) < 9 AND V % 2 = 1)",
    "ALTER TABLE A ADD COLUMN At TIMESTAMP NOT NULL DEFAULT now()",
    "ALTER TABLE A ADD COLUMN R DOUBLE DEFAULT random()",
    "CREATE VIEW W AS SELECT Id, V * 2 AS Twice FROM A WHERE S LIKE 'a%'",
    "CREATE VIEW X AS SELECT kind, table_name, after FROM ChangeHistory_A",
    "CREATE VIEW Y AS SELECT Twice FROM W JOIN A USING (Id)",
)


async def refused(db: Database, statement: str, told: str) -> None:
    with pytest.raises((Error, F1Error), match=told) as raised:
        await db.ddl(statement)
    assert raised.value.code is Code.INVALID_ARGUMENT, statement


def test_what_nobody_could_evaluate_is_refused() -> None:
    async def body(db: Database) -> None:
        for condition, told in CHECKS.items():
            await refused(db, f"ALTER TABLE A ADD CONSTRAINT C CHECK ({condition})", told)
            await refused(
                db, f"CREATE TABLE B (Id INT64, V INT64, S STRING, PRIMARY KEY (Id), CHECK ({condition}))", told
            )
        for column, told in DEFAULTS.items():
            await refused(db, f"ALTER TABLE A ADD COLUMN X {column}", told)
            await refused(
                db, f"CREATE TABLE B (Id INT64, Y INT64 DEFAULT 3, X {column}, PRIMARY KEY (Id))", f"B.X.*{told}"
            )
        await refused(db, "ALTER TABLE A ALTER COLUMN V SET DEFAULT nofunc()", "A.V.*there is no function nofunc")
        for query, told in VIEWS.items():
            await refused(db, f"CREATE VIEW W AS {query}", told)
        files = {"s.sql": f"{TABLE[:-1]}, CHECK (nofunc(V)))"}
        plan = pb.PlanSchema(files=[pb.SourceFile(name="s.sql", text=files["s.sql"])])
        for asked in (
            db.frontend().plan_schema("default", plan),
            db.conn.apply_schema(files, dry_run=True),
            db.conn.apply_schema(files),
        ):
            with pytest.raises((Error, F1Error), match="there is no function nofunc"):
                await asked
        assert [row[0] for row in await db.rows("SHOW TABLES")] == ["A"]
        await db.conn.insert("A", {"Id": 1, "V": 5, "S": "abc"})

    with_database(body, TABLE)


def test_what_can_be_evaluated_is_taken() -> None:
    async def body(db: Database) -> None:
        await db.ddl(*TAKEN)
        await db.conn.insert("A", {"Id": 1, "V": 5, "S": "abc"})
        assert await db.rows("SELECT Twice FROM Y") == [(10,)]
        with pytest.raises(Error, match="violates check C2"):
            await db.conn.execute("INSERT INTO A (Id, V) VALUES (2, 4)")

    with_database(body, TABLE)
