"""Texts become statements; what is wrong is said with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1server.catalog.statements import CreateTable
from f1server.plan.statements import (
    BeginStatement,
    CommitStatement,
    DmlStatement,
    ExplainStatement,
    PlacementStatement,
    QueryStatement,
    RollbackStatement,
    SchemaChangeStatement,
    SetStatement,
    ShowStatement,
    parse,
)


def test_several_statements() -> None:
    found = parse("SELECT 1; ;\nINSERT INTO t VALUES (1); -- done\n CREATE TABLE t (a INT64 PRIMARY KEY);")
    assert [type(s) for s in found] == [QueryStatement, DmlStatement, SchemaChangeStatement]
    assert [s.tag for s in found] == ["SELECT", "INSERT", "CREATE TABLE"]
    assert parse(" ; ") == []


def test_semicolons_inside_texts_separate_nothing() -> None:
    assert len(parse("SELECT ';', \"a;b\" /* ; */ FROM t -- ;")) == 1


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("BEGIN", ""),
        ("BEGIN PESSIMISTIC", "pessimistic"),
        ("START TRANSACTION READ ONLY", "snapshot"),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE", "pessimistic"),
        ("begin optimistic", "optimistic"),
    ],
)
def test_begin(sql: str, kind: str) -> None:
    assert parse(sql) == [BeginStatement(kind)]


def test_ends_and_settings() -> None:
    assert parse("COMMIT; END; ROLLBACK; ABORT") == [
        CommitStatement(),
        CommitStatement(),
        RollbackStatement(),
        RollbackStatement(),
    ]
    assert parse("SET a.b = 'c d'; RESET x; SET y TO DEFAULT") == [
        SetStatement("a.b", "c d"),
        SetStatement("x", None, "RESET"),
        SetStatement("y", None),
    ]
    assert parse("SHOW TABLES; DESCRIBE t; SHOW COLUMNS FROM public.t; SHOW CREATE TABLE t") == [
        ShowStatement("TABLES"),
        ShowStatement("COLUMNS", "t"),
        ShowStatement("COLUMNS", "t"),
        ShowStatement("CREATE", "t"),
    ]


def test_placement() -> None:
    assert parse(
        "ALTER TABLE public.t SET PLACEMENT (ZONES = 'a, b,c', LEADER_ZONE = 'a'); alter table T drop placement; "
        "ALTER TABLE \"SET\" SET PLACEMENT (LEADER_ZONE = 'x')"
    ) == [
        PlacementStatement("t", ("a", "b", "c"), "a"),
        PlacementStatement("T"),
        PlacementStatement("SET", (), "x"),
    ]
    (found,) = parse("ALTER TABLE t ADD COLUMN placement INT64")
    assert isinstance(found, SchemaChangeStatement)
    assert parse("SHOW PLACEMENT; SHOW PLACEMENT FROM t") == [
        ShowStatement("PLACEMENT"),
        ShowStatement("PLACEMENT", "t"),
    ]


def test_explain() -> None:
    (found,) = parse("EXPLAIN (FORMAT JSON, ANALYZE) DELETE FROM t")
    assert isinstance(found, ExplainStatement)
    assert (found.json, found.analyze, found.statement.tag) == (True, True, "DELETE")


@pytest.mark.parametrize(
    ("sql", "message", "line", "column"),
    [
        ("SELECT 1;\n SELEC 2", "there is no statement SELEC", "2", "2"),
        ("SELECT a,\n  FROM", "syntax error", "2", "3"),
        ("SELECT (1", "syntax error: expecting )", "1", "9"),
        ("SELECT 'abc", "has no closing '", "1", "8"),
        ("SELECT 1,\n  2, 'abc", "has no closing '", "2", "6"),
        ("SELECT 1;\nCREATE TABLE t (a INTX)", "there is no type INTX", "2", "19"),
        ("EXPLAIN (FORMAT XML) SELECT 1", "the formats are TEXT and JSON", "1", "17"),
        ("ALTER TABLE t SET PLACEMENT", "expected (ZONES", "1", "28"),
        ("ALTER TABLE t SET PLACEMENT ()", "expected ZONES = ", "1", "30"),
        ("ALTER TABLE t SET PLACEMENT (ZONES = a)", "the value of ZONES as a string", "1", "38"),
        ("ALTER TABLE t SET PLACEMENT (ZONES = 'a', ZONES = 'b')", "each at most once", "1", "43"),
        ("ALTER TABLE t SET PLACEMENT (ZONES = 'a') x", "expected (ZONES", "1", "43"),
        ("ALTER TABLE t DROP PLACEMENT CASCADE", "unexpected CASCADE", "1", "30"),
        ("COMMIT PREPARED 'x'", "unexpected PREPARED", "1", "8"),
        ("BEGIN QUICKLY", "expected OPTIMISTIC", "1", "7"),
        ("SELECT CAST(a AS PROTO<a b>)", "expected PROTO<the full name of a message>", "1", "27"),
    ],
)
def test_errors_point_at_the_place(sql: str, message: str, line: str, column: str) -> None:
    with pytest.raises(F1Error) as caught:
        parse(sql)
    assert message in caught.value.message
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t AS OF TIMESTAMP '2024-01-01' WHERE b = 1",
        "SELECT a FROM t WHERE b = 1 AS OF TIMESTAMP '2024-01-01'",
        "SELECT a FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01' WHERE b = 1",
        "SELECT a FROM t AS OF SYSTEM TIME TIMESTAMP '2024-01-01' WHERE b = 1",
        "SELECT a FROM t x AS OF TIMESTAMP '2024-01-01', u AS OF TIMESTAMP '2024-01-01'",
    ],
)
def test_as_of_stands_in_many_places(sql: str) -> None:
    (found,) = parse(sql)
    assert isinstance(found, QueryStatement)
    assert found.as_of is not None
    assert found.as_of.sql("postgres") == "CAST('2024-01-01' AS TIMESTAMP)"
    assert "OF" not in found.ast.sql("postgres")


def test_as_of_is_also_an_alias() -> None:
    (found,) = parse("SELECT a AS of FROM t")
    assert isinstance(found, QueryStatement)
    assert found.as_of is None


def test_two_times_in_one_statement_are_refused() -> None:
    with pytest.raises(F1Error, match="reads at one timestamp"):
        parse("SELECT 1 FROM t AS OF 1, u AS OF 2")


def test_parameters_are_numbered_in_the_order_of_the_text() -> None:
    (found,) = parse("SELECT ? FROM t WHERE a = ? LIMIT ?")
    assert isinstance(found, QueryStatement)
    assert found.ast.sql("postgres") == "SELECT $1 FROM t WHERE a = $2 LIMIT $3"


@pytest.mark.parametrize("end", ["''", "'a'''", '""', "$$x$$", "'a'", "b"])
def test_a_numbered_parameter_and_any_end_of_the_text(end: str) -> None:
    """The tokenizer took $1 for the beginning of a text, if what ends the statement is an escape."""
    for text in (f"SELECT a FROM t WHERE a = $1 AND b = {end}", f"SELECT $1, $2 FROM t WHERE a = {end}"):
        (found,) = parse(text)
        (spaced,) = parse(f"{text} ")
        assert isinstance(found, QueryStatement)
        assert isinstance(spaced, QueryStatement)
        assert found.ast == spaced.ast


def test_create_table_as_keeps_the_query() -> None:
    (found,) = parse("CREATE TABLE t AS SELECT 1 AS a")
    assert isinstance(found, SchemaChangeStatement)
    assert isinstance(found.ddl, CreateTable)
    assert found.ddl.as_query == "SELECT 1 AS a"


WORDS = st.sampled_from(
    [
        *("SELECT", "FROM", "WHERE", "a", "b", "t", "1", "'x'", "(", ")", ",", ".", "*", "="),
        *("+", "-", "AS", "OF", "PROTO", "JOIN", "LEFT", "ON", "GROUP", "BY", "ORDER", "LIMIT", "?", "UNION"),
        *(
            "CAST",
            "::",
            "<",
            ">",
            "PROTO<",
            "INSERT",
            "INTO",
            "VALUES",
            "UPDATE",
            "SET",
            "DELETE",
            "EXPLAIN",
            "WITH",
            "RECURSIVE",
        ),
        *("CASE", "WHEN", "END", "BETWEEN", "AND", "NOT", "IN", "IS", "NULL", "[", "]", ";", "$1"),
    ]
)


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_is_parsed_or_refused(sql: str) -> None:
    """Random SQL: no crash, no INTERNAL (issue 3, bad input)."""
    try:
        parse(sql)
    except F1Error as error:
        assert error.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION), error


def test_deep_nesting_is_refused_or_parsed() -> None:
    for text in ("(" * 3000 + "1" + ")" * 3000, "-" * 1 + "NOT " * 3000 + "true", "1" + "+1" * 3000):
        try:
            parse(f"SELECT {text}")
        except F1Error as error:
            assert error.code is Code.INVALID_ARGUMENT
