"""As much of SQL as the client sees: where statements end, their kinds, rows that may be repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1.shell.editing import is_complete
from f1.statements import Kind, Piece, is_open, kind_of, multiply_values, split, split_all, tokens

TEXTS = st.text(alphabet="ab1 \n;'\"()-/*$?,`\\E", max_size=40)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", Kind.QUERY),
        ("  -- note\n/* x */ select 1", Kind.QUERY),
        ("(SELECT 1)", Kind.QUERY),
        ("VALUES (1)", Kind.QUERY),
        ("EXPLAIN DELETE FROM t", Kind.QUERY),
        ("insert into t values (1)", Kind.DML),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Kind.QUERY),
        ("WITH x AS (SELECT 1), y(a) AS (DELETE FROM q) INSERT INTO t SELECT * FROM x", Kind.DML),
        ("WITH update_log AS (SELECT 1) TABLE update_log", Kind.QUERY),
        ("CREATE TABLE t (a INT64)", Kind.DDL),
        ("drop index i", Kind.DDL),
        ("BEGIN", Kind.BEGIN),
        ("START TRANSACTION", Kind.BEGIN),
        ("commit work", Kind.COMMIT),
        ("ROLLBACK;", Kind.ROLLBACK),
        ("", Kind.EMPTY),
        ("-- nothing", Kind.EMPTY),
        (";", Kind.EMPTY),
        ("'insert'", Kind.QUERY),
        ("? insert", Kind.QUERY),
    ],
)
def test_kinds(sql: str, kind: Kind) -> None:
    assert kind_of(sql) is kind


def test_statements_know_their_place() -> None:
    text = "SELECT 1;\n  -- then\n\n  SELECT ';' AS \"a;b\"; /* ; */ SELECT 3"
    assert split_all(text) == [
        Piece("SELECT 1", 1, 1),
        Piece("SELECT ';' AS \"a;b\"", 4, 3),
        Piece("SELECT 3", 4, 32),
    ]


def test_what_follows_the_last_semicolon_is_kept() -> None:
    assert split("a; b") == ([Piece("a", 1, 1)], "b")
    assert split("a;  \n") == ([Piece("a", 1, 1)], "")
    assert split(";;a;") == ([Piece("a", 1, 3)], "")


@pytest.mark.parametrize("text", ["'a", '"a', "/* /* */", "$$ a", "$x$ $$", "SELECT 'it''s"])
def test_open_strings_and_comments(text: str) -> None:
    assert is_open(text)
    assert split(text + ";")[0] == []


@pytest.mark.parametrize("text", ["'a''b'", '"a""b"', "/* /* */ */", "$$ ; $$", "$x$ $$ ; $x$", "E'a\\'b'", "-- 'a"])
def test_closed_strings_and_comments(text: str) -> None:
    assert not is_open(text)
    assert len(split(f"{text}\n;x;")[0]) <= 2


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d Customer", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; ", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT 1; -- done", True),
        ("-- nothing yet", False),
    ],
)
def test_enter_runs_what_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_rows_of_parameters_are_found() -> None:
    assert multiply_values("INSERT INTO t (a, b) VALUES (?, f(?, ')'))") == (
        "INSERT INTO t (a, b) VALUES ",
        "(?, f(?, ')'))",
        "",
    )
    for sql in (
        "INSERT INTO t VALUES (?), (?)",
        "INSERT INTO t VALUES (?) ON CONFLICT DO NOTHING",
        "INSERT INTO t VALUES (?) RETURNING a",
        "INSERT INTO t SELECT ?",
        "UPDATE t SET a = ?",
        "INSERT INTO t VALUES (?",
    ):
        assert multiply_values(sql) is None


@given(TEXTS)
def test_tokens_are_the_text(text: str) -> None:
    assert "".join(token.text for token in tokens(text)) == text


@given(st.lists(TEXTS, max_size=4))
def test_statements_are_pieces_of_the_text(parts: list[str]) -> None:
    text = ";".join(parts)
    lines = text.split("\n")
    for piece in split_all(text):
        assert piece.sql.strip()
        assert ("\n".join(lines[piece.line - 1 :])[piece.column - 1 :]).startswith(piece.sql)


@given(TEXTS)
def test_kinds_never_fail(text: str) -> None:
    assert kind_of(text) in Kind
    multiply_values(text)
