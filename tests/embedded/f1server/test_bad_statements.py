"""What bad statements get from a server: one line with a code that says what to do, never INTERNAL."""

import pytest

import f1
from f1server.testing.database import Database, with_database

DDL = ("CREATE TABLE T (A INT64 NOT NULL, PRIMARY KEY (A))",)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT A FROM T AS OF 0", "INVALID_ARGUMENT: AS OF needs a time after 1970"),
        ("SELECT A FROM T AS OF TIMESTAMP '1969-12-31 00:00:00+00'", "INVALID_ARGUMENT: AS OF needs a time after 1970"),
        ("SELECT A FROM T AS OF now() + INTERVAL '1' HOUR", "INVALID_ARGUMENT: AS OF reads the past"),
        ("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "INVALID_ARGUMENT: .*nested"),
        ("DELETE FROM T WHERE " + "NOT " * 5_000 + "A = 1", "INVALID_ARGUMENT: .*nested"),
        ("SELECT '\ud800'", "INVALID_ARGUMENT: a text has a lone surrogate"),
    ],
)
def test_bad_statements(sql: str, message: str) -> None:
    async def body(db: Database) -> None:
        with pytest.raises(f1.Error, match=message):
            await db.conn.execute(sql)
        assert await db.rows("SELECT count(*) FROM T") == [(0,)]

    with_database(body, *DDL)


@pytest.mark.parametrize(
    ("sql", "params", "has"),
    [
        ("SELECT A FROM T WHERE A = ?", (1, 2), "1 parameter, but 2 were"),
        ("SELECT A FROM T WHERE A = ?", (), "1 parameter, but 0 were"),
        ("SELECT 1", (1,), "no parameters, but 1 was"),
        ("SELECT A FROM T WHERE A = $2", (1,), "2 parameters, but 1 was"),
        ("SELECT A FROM T AS OF ?", (), "1 parameter, but 0 were"),
        ("UPDATE T SET V = ? WHERE A = ?", (1, 1, 1), "2 parameters, but 3 were"),
        ("UPDATE T SET V = $2 WHERE A = $1", (99,), "2 parameters, but 1 was"),
        ("DELETE FROM T WHERE A = ?", (99, 1), "1 parameter, but 2 were"),
        ("INSERT INTO T (A) VALUES (?)", (2, 3), "1 parameter, but 2 were"),
        ("INSERT INTO T (A) SELECT A + ? FROM T", (2, 3), "1 parameter, but 2 were"),
        ("UPSERT INTO T (A) VALUES (2)", (3,), "no parameters, but 1 was"),
        ("EXPLAIN SELECT A FROM T WHERE A = ?", (), "1 parameter, but 0 were"),
        ("SHOW TABLES", (1,), "no parameters, but 1 was"),
        ("CREATE TABLE S (A INT64 NOT NULL, PRIMARY KEY (A))", (1,), "no parameters, but 1 was"),
        ("SELECT A FROM T WHERE A = %s", (1,), "no parameters, but 1 was given; they are written [?] or [$]1"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_as_many_parameters_are_given_as_there_are(sql: str, params: tuple[object, ...], has: str, alone: bool) -> None:
    async def body(db: Database) -> None:
        await db.conn.execute("INSERT INTO T (A, V) VALUES (1, 1)")
        with pytest.raises(f1.Error, match=f"INVALID_ARGUMENT: the statement has {has}"):
            await (db.conn.execute(sql, params) if alone else db.conn.run(lambda tx: tx.execute(sql, params)))
        assert await db.rows("SELECT * FROM T") == [(1, 1)]

    with_database(body, "CREATE TABLE T (A INT64 NOT NULL, V INT64, PRIMARY KEY (A))")


def test_a_commit_that_is_too_large_says_so_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("f1server.txn.committer.MAX_COMMIT_BYTES", 10_000)

    async def body(db: Database) -> None:
        await db.conn.execute("INSERT INTO B VALUES (1, ?)", (b"x" * 100,))
        with pytest.raises(f1.Error, match=r"OUT_OF_RANGE: .* at most 10000 fit"):
            await db.conn.execute("INSERT INTO B VALUES (2, ?)", (b"x" * 10_000,))
        assert await db.rows("SELECT A FROM B") == [(1,)]

    with_database(body, "CREATE TABLE B (A INT64 NOT NULL, V BYTES, PRIMARY KEY (A))")
