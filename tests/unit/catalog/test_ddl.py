"""The parser of DDL: what it reads, and where it says a mistake is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1server.catalog import statements as ast
from f1server.catalog.ddl import is_ddl, parse_ddl
from f1server.catalog.schema import ColumnType, Kind


def one(sql):
    (statement,) = parse_ddl(sql)
    return statement


def mistake(sql, file=""):
    with pytest.raises(F1Error) as caught:
        parse_ddl(sql, file)
    return caught.value


def test_every_type_and_alias():
    names = {
        "BOOL": ColumnType(Kind.BOOL),
        "boolean": ColumnType(Kind.BOOL),
        "INT64": ColumnType(Kind.INT64),
        "bigint": ColumnType(Kind.INT64),
        "int": ColumnType(Kind.INT64),
        "INTEGER": ColumnType(Kind.INT64),
        "SMALLINT": ColumnType(Kind.INT64),
        "DOUBLE": ColumnType(Kind.DOUBLE),
        "double  precision": ColumnType(Kind.DOUBLE),
        "FLOAT": ColumnType(Kind.DOUBLE),
        "float(24)": ColumnType(Kind.DOUBLE),
        "REAL": ColumnType(Kind.DOUBLE),
        "NUMERIC": ColumnType(Kind.NUMERIC),
        "DECIMAL(15, 2)": ColumnType(Kind.NUMERIC, precision=15, scale=2),
        "DECIMAL(7)": ColumnType(Kind.NUMERIC, precision=7),
        "STRING": ColumnType(Kind.STRING),
        "STRING(MAX)": ColumnType(Kind.STRING),
        "TEXT": ColumnType(Kind.STRING),
        "VARCHAR": ColumnType(Kind.STRING),
        "VARCHAR(25)": ColumnType(Kind.STRING, max_length=25),
        "CHARACTER VARYING(9)": ColumnType(Kind.STRING, max_length=9),
        "CHAR(1)": ColumnType(Kind.STRING, max_length=1),
        "BYTES": ColumnType(Kind.BYTES),
        "bytea": ColumnType(Kind.BYTES),
        "DATE": ColumnType(Kind.DATE),
        "TIMESTAMP": ColumnType(Kind.TIMESTAMP),
        "TIMESTAMP(6) WITH TIME ZONE": ColumnType(Kind.TIMESTAMP),
        "timestamptz": ColumnType(Kind.TIMESTAMP),
        "PROTO<a.b.Message>": ColumnType(Kind.PROTO, proto="a.b.Message"),
        "proto < Message >": ColumnType(Kind.PROTO, proto="Message"),
    }
    for name, expected in names.items():
        assert one(f"CREATE TABLE t (a {name} NOT NULL)").columns[0].type == expected, name


def test_a_table_with_everything():
    table = one("""
        create table if not exists "My ""Table" (
          a int64 primary key, -- a comment
          b text default 'x, )' not null unique check (b <> '('),
          c decimal(9, 2) constraint fk references other (x) on delete no action not tracked,
          d timestamp default (now() - 1) null,
          lock L (b, c),
          constraint u unique (c, d),
          constraint positive check (c > 0 and (d is not null)),
          foreign key (b, c) references third
        ), interleave in parent Parent on delete cascade with (change_history = false);
    """)
    assert (table.name, table.if_not_exists, table.key) == ('My "Table', True, ("a",))
    assert [c.name for c in table.columns] == ["a", "b", "c", "d"]
    assert [c.default_sql for c in table.columns] == ["", "'x, )'", "", "(now() - 1)"]
    assert [c.not_null for c in table.columns] == [False, True, False, False]
    assert [c.untracked for c in table.columns] == [False, False, True, False]
    assert table.uniques == (ast.UniqueDef(("b",)), ast.UniqueDef(("c", "d"), "u"))
    assert table.checks == (ast.CheckDef("b <> '('"), ast.CheckDef("c > 0 and (d is not null)", "positive"))
    assert table.foreign_keys == (
        ast.ForeignKeyDef(("c",), ast.Reference("other", ("x",)), "fk"),
        ast.ForeignKeyDef(("b", "c"), ast.Reference("third")),
    )
    assert table.locks == (ast.LockDef("L", ("b", "c")),)
    assert (table.parent, table.cascade, table.untracked) == ("Parent", True, True)


def test_primary_key_after_the_parentheses():
    table = one("CREATE TABLE t (a INT64, b INT64) PRIMARY KEY (a DESC, b), INTERLEAVE IN PARENT p ON DELETE NO ACTION")
    assert (table.key, table.parent, table.cascade) == (("a", "b"), "p", False)


def test_the_parents_key_may_have_other_names():
    table = one("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)) INTERLEAVE IN PARENT p (a) ON DELETE CASCADE")
    assert (table.parent, table.parent_key, table.cascade) == ("p", ("a",), True)


def test_words_of_ddl_are_names_too():
    table = one("CREATE TABLE index (key INT, lock TEXT, interleave VARCHAR(3), date DATE, proto INT, unique_ BOOL)")
    assert [c.name for c in table.columns] == ["key", "lock", "interleave", "date", "proto", "unique_"]
    assert one('CREATE TABLE t ("primary" INT, "check" INT)').columns[1].name == "check"


def test_the_default_ends_where_the_next_constraint_begins():
    table = one("CREATE TABLE t (a INT DEFAULT -1 NOT NULL, b BOOL DEFAULT NULL, c INT DEFAULT 1 + (2) CHECK (c > 0))")
    assert [c.default_sql for c in table.columns] == ["-1", "NULL", "1 + (2)"]
    assert table.columns[0].not_null


def test_tables_from_queries():
    assert one("CREATE TABLE t AS SELECT 1").as_query == "SELECT 1"
    named = one("create table t (a, b) as values (1, ';'), (2, 'x')")
    assert (named.as_names, named.as_query) == (("a", "b"), "values (1, ';'), (2, 'x')")
    typed = one("create table t (a int) as select 1 as a")
    assert (typed.columns[0].name, typed.as_query) == ("a", "select 1 as a")


def test_indexes():
    index = one("CREATE UNIQUE LOCAL INDEX i ON t USING btree (a DESC NULLS LAST, info.x.y, c) INCLUDE (d, e)")
    assert [c.path for c in index.columns] == [("a",), ("info", "x", "y"), ("c",)]
    assert (index.unique, index.local, index.storing) == (True, True, ("d", "e"))
    assert one("CREATE INDEX ON t (a, b.c)").name == "t_a_b_c_idx"
    assert one("CREATE INDEX IF NOT EXISTS public.i ON public.t (a) STORING (b)").storing == ("b",)


def test_views_databases_and_drops():
    view = one('CREATE OR REPLACE VIEW v (x, "y z") AS SELECT 1, 2 /* two */')
    assert view.or_replace
    assert view.sql == 'SELECT * FROM (\nSELECT 1, 2\n) AS f1_view("x", "y z")'
    statements = parse_ddl(
        "CREATE DATABASE IF NOT EXISTS d; DROP DATABASE d;; DROP TABLE IF EXISTS a, b CASCADE; DROP INDEX i RESTRICT;"
        "DROP VIEW v;"
    )
    assert statements == [
        ast.CreateDatabase("d", True),
        ast.DropDatabase("d"),
        ast.DropTable(("a", "b"), True, True),
        ast.DropIndex(("i",)),
        ast.DropView(("v",)),
    ]


def test_renames_are_read():
    table = one("CREATE TABLE New RENAMED FROM Old (b INT64 RENAMED FROM a NOT NULL)")
    assert (table.renamed_from, table.columns[0].renamed_from, table.columns[0].not_null) == ("Old", "a", True)


@pytest.mark.parametrize(
    ("sql", "line", "column", "words"),
    [
        ("CREATE TABLE t (\n  a INT64,,\n  b INT64)", 2, 11, "a column or a constraint, found ,"),
        ("CREATE TABLE t (a)", 1, 19, "expected AS and a query"),
        ("CREATE TABLE t (a INT64", 1, 24, "found the end"),
        ("CREATE TABLE t (a INTEGR)", 1, 19, "there is no type INTEGR; did you mean INTEGER?"),
        ("CREATE TABLE t (a INT64[])", 1, 24, "there are no arrays"),
        ("CREATE TABLE t (a ARRAY<INT64>)", 1, 19, "there are no arrays"),
        ("CREATE TABLE t (a VARCHAR(0))", 1, 19, "VARCHAR does not take (0)"),
        ("CREATE TABLE t (a VARCHAR('x'))", 1, 27, "expected a whole number, found the string 'x'"),
        ("CREATE TABLE t (a DECIMAL(40, 2))", 1, 19, "at most 9 digits after the point"),
        ("CREATE TABLE t (a DECIMAL(38, 0))", 1, 19, "29 before it"),
        ("CREATE TABLE t (a PROTO)", 1, 24, "expected <"),
        ("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64 PRIMARY KEY)", 1, 46, "one primary key"),
        ("CREATE TABLE t (a INT64 REFERENCES u ON DELETE CASCADE)", 1, 48, "NO ACTION"),
        ("CREATE TABLE t (a INT64 COLLATE de)", 1, 25, "collations are not supported"),
        ("CREATE TABLE t (a INT64 GENERATED ALWAYS AS (1))", 1, 25, "generated columns"),
        ("CREATE TABLE t (a INT64 DEFAULT)", 1, 32, "expected a value after DEFAULT"),
        ("CREATE TABLE t (a INT64 CHECK ())", 1, 32, "expected a condition"),
        ("CREATE TABLE t (a INT64) INTERLEAVE IN p", 1, 40, "expected PARENT"),
        ("CREATE TABLE t (a INT64) WITH (fillfactor = 70)", 1, 43, "no option fillfactor"),
        ("CREATE TABLE s.t (a INT64)", 1, 15, "no schema before it"),
        ("CREATE INDEX i ON t (lower(a))", 1, 27, "not over expressions"),
        ("CREATE INDEX i ON t (a) WHERE a > 1", 1, 25, "no WHERE"),
        ("CREATE VIEW v AS", 1, 17, "expected a query"),
        ("CREATE TEMP TABLE t (a INT64)", 1, 8, "expected TABLE, INDEX, VIEW, ROLE or DATABASE"),
        ("DROP COLUMN a", 1, 6, "expected TABLE, INDEX, VIEW, ROLE or DATABASE"),
        ("DROP TABLE t DROP TABLE u", 1, 14, "expected ; between statements"),
        ("SELECT 1", 1, 1, "expected CREATE, ALTER, DROP, GRANT or REVOKE"),
        ("CREATE TABLE t (a INT64 DEFAULT 'x)", 1, 33, "no closing '"),
        ('CREATE TABLE "t (a INT64)', 1, 14, 'no closing "'),
        ("CREATE TABLE t (\n  a INT64 DEFAULT 'x)", 2, 19, "no closing '"),
    ],
)
def test_mistakes_have_a_place(sql, line, column, words):
    error = mistake(sql)
    assert words in error.message
    assert error.code is Code.INVALID_ARGUMENT
    assert (error.details["line"], error.details["column"]) == (str(line), str(column)), error.message


def test_a_place_names_its_file():
    error = mistake("\n\nCREATE TABLE t (a INTEGR)", "schema/ads.sql")
    assert "(schema/ads.sql:3:19)" in error.message
    assert error.details["file"] == "schema/ads.sql"


def test_what_is_ddl():
    assert is_ddl("  -- c\n ;create table t (a int)")
    assert is_ddl("Drop table t")
    assert not is_ddl("SELECT 'create'")
    assert not is_ddl("")
    assert not is_ddl("'create")


WORDS = [
    *("CREATE", "TABLE", "INDEX", "VIEW", "DROP", "(", ")", ",", ";", "INT64", "t", "a", "b", "PRIMARY", "KEY", "NOT"),
    *("NULL", "DEFAULT", "1", "'x'", "CHECK", "REFERENCES", "UNIQUE", "INTERLEAVE", "IN", "PARENT", "ON", "DELETE"),
    *("CASCADE", "PROTO", "<", ">", ".", "LOCK", "AS", "SELECT", "WITH", "=", "[", "]", "{", "}", "--", "/*", "*/"),
    *('"', "'", "$$", "CONSTRAINT", "ALTER", "ADD", "COLUMN", "RENAME", "TO", "SET", "TYPE", "TRACKED", "IF", "EXISTS"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join))
def test_random_words_are_parsed_or_refused_with_a_place(sql):
    try:
        parse_ddl(sql)
    except F1Error as error:
        assert error.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION)
        lines = sql.split("\n")
        assert 1 <= int(error.details["line"]) <= len(lines)
        assert 1 <= int(error.details["column"]) <= len(lines[int(error.details["line"]) - 1]) + 1


@given(st.text(max_size=60))
def test_random_text_is_parsed_or_refused(text):
    for sql in (text, f"CREATE TABLE {text}", f"CREATE TABLE t (a {text})", f"CREATE VIEW v AS SELECT {text}"):
        try:
            parse_ddl(sql)
        except F1Error as error:
            assert error.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION)
