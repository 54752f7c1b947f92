"""The grammar of ALTER: what is read, and where it says a mistake is."""

# ruff: noqa: E501 - statements stay on one line, so that places are easy to see

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog import statements as ast
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.schema import ColumnType, Kind
from f1server.plan.statements import SchemaChangeStatement, parse


def one(sql):
    (statement,) = parse_ddl(sql)
    return statement


def actions(sql):
    return one(f"ALTER TABLE t {sql}").actions


INT = ColumnType(Kind.INT64)


def test_columns_are_added_with_all_that_create_table_takes():
    (added,) = actions(
        "ADD COLUMN IF NOT EXISTS a INT64 DEFAULT 1 + (2) NOT NULL UNIQUE CHECK (a > 0) REFERENCES u NOT TRACKED"
    )
    assert added == ast.AddColumn(
        ast.ColumnDef("a", INT, not_null=True, default_sql="1 + (2)", untracked=True),
        (ast.UniqueDef(("a",)),),
        (ast.CheckDef("a > 0"),),
        (ast.ForeignKeyDef(("a",), ast.Reference("u")),),
        if_not_exists=True,
    )


def test_several_actions_in_one_statement():
    statement = one(
        'alter table if exists "T t" add a int, drop column if exists b cascade, drop c restrict, add d int;'
    )
    assert statement == ast.AlterTable(
        "T t",
        (
            ast.AddColumn(ast.ColumnDef("a", INT)),
            ast.DropColumn("b", if_exists=True, cascade=True),
            ast.DropColumn("c"),
            ast.AddColumn(ast.ColumnDef("d", INT)),
        ),
        if_exists=True,
    )


def test_constraints_and_locks():
    assert actions(
        "ADD CHECK (a > 0), ADD CONSTRAINT c CHECK (b), ADD UNIQUE (a, b), ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (x),"
        "ADD LOCK l (a, b), ALTER LOCK l (a), ALTER lock SET NOT NULL, DROP CONSTRAINT IF EXISTS c, DROP CONSTRAINT d CASCADE"
    ) == (
        ast.AddCheck(ast.CheckDef("a > 0")),
        ast.AddCheck(ast.CheckDef("b", "c")),
        ast.AddUnique(ast.UniqueDef(("a", "b"))),
        ast.AddForeignKey(ast.ForeignKeyDef(("a",), ast.Reference("u", ("x",)), "f")),
        ast.AddLock(ast.LockDef("l", ("a", "b"))),
        ast.AlterLock(ast.LockDef("l", ("a",))),
        ast.SetNotNull("lock"),
        ast.DropConstraint("c", if_exists=True),
        ast.DropConstraint("d", cascade=True),
    )


def test_what_a_column_may_become():
    assert actions(
        "ALTER a TYPE VARCHAR(9), ALTER COLUMN b SET DATA TYPE DECIMAL(9, 2), ALTER c SET NOT NULL, ALTER c DROP NOT NULL,"
        "ALTER d SET DEFAULT coalesce(1, 2), ALTER d DROP DEFAULT, ALTER e SET NOT TRACKED, ALTER e SET TRACKED"
    ) == (
        ast.AlterColumnType("a", ColumnType(Kind.STRING, max_length=9)),
        ast.AlterColumnType("b", ColumnType(Kind.NUMERIC, precision=9, scale=2)),
        ast.SetNotNull("c"),
        ast.DropNotNull("c"),
        ast.SetDefault("d", "coalesce(1, 2)"),
        ast.DropDefault("d"),
        ast.SetTracked("e", untracked=True),
        ast.SetTracked("e", untracked=False),
    )


def test_options():
    assert actions("SET (change_history = false), SET ON DELETE CASCADE, SET ON DELETE NO ACTION") == (
        ast.SetOptions(untracked=True),
        ast.SetOptions(cascade=True),
        ast.SetOptions(cascade=False),
    )
    assert actions("SET (change_history = TRUE)") == (ast.SetOptions(untracked=False),)


def test_renames():
    assert actions("RENAME TO u") == (ast.RenameTable("u"),)
    assert actions("RENAME a TO b") == actions("RENAME COLUMN a TO b") == (ast.RenameColumn("a", "b"),)
    assert one("ALTER INDEX IF EXISTS public.i RENAME TO j") == ast.AlterIndex("i", "j", if_exists=True)
    assert one("ALTER VIEW v RENAME TO w") == ast.AlterView("v", "w")


def test_words_of_alter_are_names_too():
    assert actions("ADD COLUMN lock INT, ADD type INT, DROP COLUMN add, ALTER set TYPE INT") == (
        ast.AddColumn(ast.ColumnDef("lock", INT)),
        ast.AddColumn(ast.ColumnDef("type", INT)),
        ast.DropColumn("add"),
        ast.AlterColumnType("set", INT),
    )


@pytest.mark.parametrize(
    ("sql", "column", "words"),
    [
        ("ALTER t ADD a INT", 7, "expected TABLE, INDEX, VIEW or ROLE after ALTER"),
        ("ALTER TABLE t", 14, "expected ADD, DROP, ALTER, RENAME or SET, found the end"),
        ("ALTER TABLE t ADD a", 20, "expected the type of a"),
        ("ALTER TABLE t ADD a INT,", 25, "expected ADD, DROP, ALTER, RENAME or SET"),
        ("ALTER TABLE t ADD a INT)", 24, "expected ; between statements"),
        ("ALTER TABLE t ADD a INTEGR", 21, "did you mean INTEGER?"),
        ("ALTER TABLE t ADD b INT RENAMED FROM a", 19, "RENAME COLUMN a TO b"),
        ("ALTER TABLE t DROP", 19, "expected the name of a column, or CONSTRAINT"),
        ("ALTER TABLE t ALTER a", 22, "expected TYPE, SET or DROP after the name of the column a"),
        ("ALTER TABLE t ALTER a SET", 26, "expected NOT NULL, DEFAULT, [NOT] TRACKED or DATA TYPE"),
        ("ALTER TABLE t ALTER a SET NOT", 30, "expected NULL or TRACKED"),
        ("ALTER TABLE t ALTER a SET DEFAULT", 34, "expected a value after DEFAULT"),
        ("ALTER TABLE t ALTER a DROP TYPE", 28, "expected NOT NULL, or DEFAULT"),
        ("ALTER TABLE t ALTER a TYPE TEXT USING b", 33, "there is no USING"),
        ("ALTER TABLE t SET (fillfactor = 70)", 31, "the one option is change_history"),
        ("ALTER TABLE t SET ON UPDATE CASCADE", 22, "expected DELETE"),
        ("ALTER TABLE t RENAME a b", 24, "expected TO and the new name"),
        ("ALTER TABLE t RENAME a TO b, ADD c INT", 28, "RENAME stands alone"),
        ("ALTER TABLE t ADD c INT, RENAME a TO b", 26, "RENAME stands alone"),
        ("ALTER TABLE t RENAME CONSTRAINT a TO b", 22, "constraints keep their names"),
        ("ALTER INDEX i SET x", 15, "expected RENAME TO: an index can be renamed, or dropped"),
        ("ALTER VIEW v AS SELECT 1", 14, "expected RENAME TO: a view"),
    ],
)
def test_mistakes_have_a_place(sql, column, words):
    with pytest.raises(F1Error) as caught:
        parse_ddl(sql)
    assert words in caught.value.message
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert (caught.value.details["line"], caught.value.details["column"]) == ("1", str(column)), caught.value.message


@pytest.mark.parametrize(
    "sql", ["ADD PRIMARY KEY (a)", "ADD COLUMN a INT PRIMARY KEY", "ADD CONSTRAINT k PRIMARY KEY (a)"]
)
def test_primary_keys_stay(sql):
    with pytest.raises(F1Error) as caught:
        actions(sql)
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert "keeps the primary key" in caught.value.message


@pytest.mark.parametrize("what", ["TABLE t ADD a INT", "INDEX i RENAME TO j", "VIEW v RENAME TO w"])
def test_sessions_read_alter_with_its_tag(what):
    (statement,) = parse(f"alter {what}")
    assert isinstance(statement, SchemaChangeStatement)
    assert statement.tag == "ALTER " + what.split()[0]
