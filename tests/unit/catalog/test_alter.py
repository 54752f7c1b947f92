"""ALTER in the schema compiler: what becomes of the schema, and what is refused."""

# ruff: noqa: E501 - statements stay on one line, so that places are easy to see

from dataclasses import replace

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.compile import compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.render import render_schema, render_table
from f1server.catalog.schema import ElementState, Schema
from f1server.catalog.statements import AlterTable
from tests.unit.catalog.samples import adwords, after, ids

ADS = adwords()


def shown(schema, table):
    return render_table(schema, schema.table(table)).split("\n")


def elements(schema):
    """Every element's id, by kind, table id and name."""
    found = {}
    for table in schema.tables:
        found["table", table.name] = table.id
        for kind in ("columns", "indexes", "checks", "foreign_keys", "locks"):
            found.update({(kind, table.id, item.name): item.id for item in getattr(table, kind)})
    return found


def changed(before, sql):
    """Return what of the elements is new and what is gone, and the schema."""
    schema = after(before, sql)
    old, new = elements(before), elements(schema)
    assert all(new[key] == old[key] for key in old.keys() & new.keys())
    return (
        sorted(key[-1] for key in new.keys() - old.keys()),
        sorted(key[-1] for key in old.keys() - new.keys()),
        schema,
    )


def test_a_column_is_added_at_the_end_with_its_constraints():
    new, gone, schema = changed(
        ADS, "ALTER TABLE keyword ADD COLUMN Bid DECIMAL(9, 2) DEFAULT 1 NOT NULL CHECK (Bid > 0) UNIQUE NOT TRACKED"
    )
    assert (new, gone) == (["Bid", "Keyword_Bid_key", "Keyword_check"], [])
    assert shown(schema, "Keyword")[1:] == [
        "  KeywordId INT64 NOT NULL,",
        "  Text STRING DEFAULT 'a''b',",
        "  Bid DECIMAL(9, 2) NOT NULL DEFAULT 1 NOT TRACKED,",
        "  PRIMARY KEY (KeywordId),",
        "  CONSTRAINT Keyword_check CHECK (Bid > 0)",
        ");",
    ]
    assert all(element >= 1000 for key, element in elements(schema).items() if key[-1] in new)


def test_a_required_column_without_default_is_for_the_executor_to_judge():
    assert after(ADS, "ALTER TABLE Keyword ADD a INT NOT NULL").table("Keyword").column("a").not_null


def test_a_column_that_is_there_is_not_added_again_nor_its_constraints():
    assert after(ADS, "ALTER TABLE Keyword ADD COLUMN IF NOT EXISTS text TEXT UNIQUE CHECK (text > '')") == ADS
    assert after(ADS, "ALTER TABLE Keyword DROP COLUMN IF EXISTS b, DROP CONSTRAINT IF EXISTS c") == ADS
    assert (
        after(
            ADS,
            "ALTER TABLE IF EXISTS t ADD a INT; ALTER INDEX IF EXISTS i RENAME TO j; ALTER VIEW IF EXISTS v RENAME TO w",
        )
        == ADS
    )


def test_a_column_dropped_and_added_again_is_another_column():
    schema = after(ADS, "ALTER TABLE Customer DROP COLUMN Name, ADD COLUMN Name STRING")
    assert schema.table("Customer").column("Name").id == 1000


def test_a_foreign_key_is_added_with_its_index():
    new, _, schema = changed(ADS, "ALTER TABLE Customer ADD COLUMN k INT REFERENCES Keyword")
    assert new == ["Customer_k_fkey", "Customer_k_fkey_idx", "k"]
    _, _, same = changed(ADS, "ALTER TABLE Customer ADD k INT, ADD FOREIGN KEY (k) REFERENCES keyword (KeywordId)")
    assert render_schema(same) == render_schema(schema)


def test_foreign_keys_may_refer_to_later_tables_and_are_seen_by_later_alters():
    schema = after(
        Schema("d"),
        "CREATE TABLE a (x INT, y INT, z INT); ALTER TABLE a ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES b; CREATE TABLE b (k INT PRIMARY KEY);"
        "ALTER TABLE a DROP COLUMN x CASCADE, ADD FOREIGN KEY (y) REFERENCES b; ALTER TABLE a RENAME COLUMN y TO yy",
    )
    assert [key.name for key in schema.table("a").foreign_keys] == ["a_y_fkey"]
    with pytest.raises(F1Error, match="there is no table c"):
        after(schema, "ALTER TABLE a ADD FOREIGN KEY (z) REFERENCES c")


def test_what_a_column_becomes():
    table = after(
        ADS,
        "ALTER TABLE Campaign ALTER Name TYPE VARCHAR(41), ALTER Name SET NOT NULL, ALTER Budget DROP NOT NULL,"
        "ALTER Budget SET DEFAULT 7, ALTER Created DROP DEFAULT, ALTER Created SET TRACKED, ALTER Name SET NOT TRACKED",
    ).table("Campaign")
    assert (table.column("Name").type.sql(), table.column("Name").not_null) == ("VARCHAR(41)", True)
    assert (table.column("Budget").not_null, table.column("Budget").default_sql) == (False, "7")
    assert (table.column("Created").default_sql, table.column("Created").untracked) == ("", False)
    assert table.column("Name").untracked


TYPES = [
    "INT64",
    "DOUBLE",
    "STRING",
    "VARCHAR(9)",
    "VARCHAR(10)",
    "NUMERIC",
    "DECIMAL(9, 2)",
    "DECIMAL(10, 2)",
    "DECIMAL(10, 3)",
    "BYTES",
    "DATE",
]
WIDER = {
    ("VARCHAR(9)", "VARCHAR(10)"),
    ("VARCHAR(9)", "STRING"),
    ("VARCHAR(10)", "STRING"),
    ("DECIMAL(9, 2)", "DECIMAL(10, 2)"),
}


@pytest.mark.parametrize("old", TYPES)
def test_types_only_widen(old):
    schema = after(ADS, f"CREATE TABLE t (k INT PRIMARY KEY, a {old})")
    for new in TYPES:
        sql = f"ALTER TABLE t ALTER COLUMN a TYPE {new}"
        if old == new or (old, new) in WIDER:
            assert after(schema, sql).table("t").column("a").type.sql() == new
        else:
            with pytest.raises(F1Error, match="does not become") as caught:
                after(schema, sql)
            assert caught.value.code is Code.FAILED_PRECONDITION


def test_the_type_of_a_key_changes_in_all_tables_that_hold_it():
    schema = after(
        Schema("d"),
        "CREATE TABLE a (k VARCHAR(3) PRIMARY KEY); CREATE TABLE b (l VARCHAR(3), m VARCHAR(3), PRIMARY KEY (l, m)) INTERLEAVE IN PARENT a (l);"
        "CREATE TABLE c (l VARCHAR(3), m VARCHAR(3), PRIMARY KEY (l, m)) INTERLEAVE IN PARENT b",
    )
    wider = after(schema, "ALTER TABLE a ALTER k TYPE TEXT; ALTER TABLE b ALTER m TYPE VARCHAR(5)")
    assert [[c.type.sql() for c in t.columns] for t in wider.tables] == [
        ["STRING"],
        ["STRING", "VARCHAR(5)"],
        ["STRING", "VARCHAR(5)"],
    ]
    with pytest.raises(F1Error, match="holds a part of the key of b: alter it in a"):
        after(schema, "ALTER TABLE c ALTER l TYPE TEXT")


def test_options():
    schema = after(ADS, "ALTER TABLE Campaign SET ON DELETE NO ACTION, SET (change_history = false)")
    assert (schema.table("Campaign").cascade, schema.table("Campaign").untracked) == (False, True)
    schema = after(schema, "ALTER TABLE Campaign SET ON DELETE CASCADE; ALTER TABLE Click SET (change_history = true)")
    assert (schema.table("Campaign").cascade, schema.table("Click").untracked) == (True, False)


def test_a_lock_takes_columns_from_others_and_leaves_its_own():
    _, _, schema = changed(ADS, "ALTER TABLE campaign ADD LOCK l (Name), ALTER LOCK budgetlock (Created, Budget)")
    campaign = schema.table("Campaign")
    ids_of = {lock.name: [campaign.by_id[i].name for i in lock.column_ids] for lock in campaign.locks}
    assert ids_of == {"BudgetLock": ["Budget", "Created"], "l": ["Name"]}
    assert campaign.locks[0].id == ADS.table("Campaign").locks[0].id
    moved = after(schema, "ALTER TABLE campaign ALTER LOCK l (Name, Created), ALTER LOCK budgetlock (Budget)").table(
        "Campaign"
    )
    assert [[moved.by_id[i].name for i in lock.column_ids] for lock in moved.locks] == [["Budget"], ["Name", "Created"]]
    half = replace(campaign, locks=tuple(replace(lock, state=ElementState.WRITE_ONLY) for lock in campaign.locks))
    with pytest.raises(F1Error, match="the lock BudgetLock is being created or dropped"):
        after(replace(schema, tables=(half,)), "ALTER TABLE campaign ALTER LOCK budgetlock (Name)")


def test_constraints_and_locks_come_and_go():
    new, gone, schema = changed(
        ADS,
        "ALTER TABLE Campaign ADD CHECK (Name <> 'x'), ADD CONSTRAINT u UNIQUE (CustomerId, Created), ADD LOCK l (Name, Created),"
        "DROP CONSTRAINT positive, DROP CONSTRAINT campaign_keywordid_fkey, DROP CONSTRAINT Campaign_Name_key, DROP CONSTRAINT budgetlock",
    )
    assert new == ["Campaign_check", "l", "u"]
    assert gone == ["BudgetLock", "Campaign_KeywordId_fkey", "Campaign_Name_key", "Positive"]
    assert schema.table("Campaign").index("u").local


def test_a_dropped_column_takes_what_uses_it():
    new, gone, schema = changed(ADS, "ALTER TABLE Campaign DROP COLUMN Name CASCADE")
    assert (new, gone) == ([], ["CampaignByName", "Campaign_Name_key", "Name", "Positive"])
    new, gone, schema = changed(ADS, "ALTER TABLE Campaign DROP COLUMN KeywordId CASCADE, DROP COLUMN Budget CASCADE")
    assert gone == [
        "Budget",
        "BudgetLock",
        "CampaignByName",
        "Campaign_KeywordId_fkey",
        "Campaign_KeywordId_fkey_idx",
        "KeywordId",
        "Positive",
    ]
    assert after(ADS, "ALTER TABLE Keyword DROP COLUMN Text CASCADE").views == ()
    schema = after(ADS, "CREATE VIEW more AS SELECT KeywordId FROM words")
    assert after(schema, "ALTER TABLE Keyword DROP COLUMN Text CASCADE").views == ()


def test_a_dropped_column_takes_foreign_keys_to_it():
    schema = after(ADS, "CREATE TABLE t (a INT, b TEXT UNIQUE); CREATE TABLE u (c TEXT REFERENCES t (b))")
    with pytest.raises(
        F1Error, match=r"t\.b is used by the index t_b_key, the foreign key u_c_fkey of u; DROP COLUMN b CASCADE"
    ):
        after(schema, "ALTER TABLE t DROP COLUMN b")
    assert after(schema, "ALTER TABLE t DROP COLUMN b CASCADE").table("u").foreign_keys == ()
    # A unique index that stores the column goes, and so does what refers to it.
    schema = after(
        ADS,
        "CREATE TABLE t (a INT, b TEXT); CREATE UNIQUE INDEX i ON t (b) STORING (a); CREATE TABLE u (c TEXT REFERENCES t (b))",
    )
    assert after(schema, "ALTER TABLE t DROP COLUMN a CASCADE").table("u").foreign_keys == ()


def test_a_foreign_key_whose_index_goes_with_a_column_gets_another_index():
    schema = after(
        ADS,
        "CREATE TABLE t (a INT, b INT); CREATE INDEX i ON t (a, b); ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES keyword",
    )
    new, gone, _ = changed(schema, "ALTER TABLE t DROP COLUMN b CASCADE")
    assert (new, gone) == (["t_a_fkey_idx"], ["b", "i"])


def test_renames_keep_ids():
    schema = after(
        ADS,
        "ALTER TABLE Campaign RENAME COLUMN CustomerId TO C; ALTER TABLE Campaign RENAME Name TO Title; ALTER TABLE Campaign RENAME TO Camp;"
        "ALTER INDEX CampaignByName RENAME TO CampByTitle; ALTER TABLE Camp RENAME COLUMN title TO TITLE; ALTER TABLE camp RENAME TO CAMP",
    )
    assert [t.id for t in schema.tables] == [t.id for t in ADS.tables]
    old, new = ADS.table("Campaign"), schema.table("Camp")
    assert [c.name for c in new.columns] == ["C", "CampaignId", "Budget", "TITLE", "Created", "KeywordId"]
    assert new == replace(old, name="CAMP", columns=new.columns, indexes=new.indexes, checks=new.checks)
    assert [replace(i, name="") for i in new.indexes] == [replace(i, name="") for i in old.indexes]
    assert [c.id for c in new.columns] == [c.id for c in old.columns]
    assert new.index("CampByTitle").id == old.index("CampaignByName").id
    assert [c.sql for c in new.checks] == ["""Budget >= -2 AND "CAMP"."TITLE" <> ''"""]
    # The children of a table whose key columns were renamed say which columns hold it.
    assert any("INTERLEAVE IN PARENT Customer (C)" in line for line in shown(schema, "Camp"))
    assert "former" not in after(schema, "ALTER TABLE camp RENAME TO former; ALTER TABLE former RENAME TO camp").dropped


def test_names_that_were_given_up_are_free():
    schema = after(
        ADS,
        "ALTER TABLE Keyword RENAME TO k; ALTER INDEX CampaignByName RENAME TO keyword; CREATE TABLE CampaignByName (a INT)",
    )
    assert [t.name for t in schema.tables][-1] == "CampaignByName"
    schema = after(ADS, "ALTER TABLE Customer RENAME Name TO a; ALTER TABLE Customer RENAME CustomerId TO Name")
    assert [c.name for c in schema.table("Customer").columns] == ["Name", "a", "Info"]


CHECKED = "CREATE TABLE t (k INT PRIMARY KEY, a INT, i PROTO<adwords.CustomerInfo>, CONSTRAINT c CHECK ({}))"


@pytest.mark.parametrize(
    ("check", "rename", "expected"),
    [
        ("a > 0 AND t.a < 9", "RENAME a TO b", '"b" > 0 AND t."b" < 9'),
        ("a > 0 -- a\n or A = 7", "RENAME a TO b", '"b" > 0 -- a\n or "b" = 7'),
        ("a::text <> 'a'", 'RENAME a TO "x ""y"', '"x ""y"::text <> \'a\''),
        (
            "i.main.name <> '' AND t.i.main.name = 'é' OR a > 0",
            "RENAME i TO info",
            "\"info\".main.name <> '' AND t.\"info\".main.name = 'é' OR a > 0",
        ),
        ("i.main.name <> ''", "RENAME a TO main", "i.main.name <> ''"),
        ("k > 0", "RENAME a TO b", "k > 0"),
        ("a > 0 AND T.a < 9", "RENAME TO u", 'a > 0 AND "u".a < 9'),
        ("t.i.main.name <> ''", "RENAME TO main", "\"main\".i.main.name <> ''"),
        ("\"a\" IN (1, 2) AND lower('a') = 'a'", "RENAME a TO b", "\"b\" IN (1, 2) AND lower('a') = 'a'"),
    ],
)
def test_checks_follow_renames(check, rename, expected):
    schema = after(after(ADS, CHECKED.format(check)), f"ALTER TABLE t {rename}")
    table = next(t for t in schema.tables if t.id == 1000)
    assert [c.sql for c in table.checks] == [expected]
    assert after(ADS, render_table(schema, table)).table(table.name).checks[0].sql == expected


@pytest.mark.parametrize(("check", "rename"), [("t.a > 0", "RENAME i TO t"), ("t.a > 0", "RENAME TO i")])
def test_checks_that_would_mean_something_else_refuse_renames(check, rename):
    with pytest.raises(F1Error, match="the check c of t would mean something else") as caught:
        after(after(ADS, CHECKED.format(check)), f"ALTER TABLE t {rename}")
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM t", 'SELECT a FROM "n" AS "t"'),
        (
            "SELECT T.a, x.a FROM public.T JOIN /* t */ t AS x ON true",
            'SELECT T.a, x.a FROM public."n" AS "T" JOIN /* t */ "n" AS x ON true',
        ),
        ("SELECT a FROM u WHERE a IN (SELECT t.a FROM t)", 'SELECT a FROM u WHERE a IN (SELECT t.a FROM "n" AS "t")'),
        (
            "WITH w AS (SELECT * FROM t) SELECT 't' FROM w, t z",
            'WITH w AS (SELECT * FROM "n" AS "t") SELECT \'t\' FROM w, "n" z',
        ),
        ("FROM t", 'FROM "n" AS "t"'),
        ("SELECT t FROM u", "SELECT t FROM u"),
    ],
)
def test_views_follow_renames_of_what_they_read(query, expected):
    schema = after(Schema("d"), f"CREATE TABLE t (a INT); CREATE TABLE u (a INT, t INT); CREATE VIEW v AS {query}")
    assert [v.sql for v in after(schema, "ALTER TABLE t RENAME TO n").views] == [expected]
    schema = after(
        Schema("d"), f"CREATE TABLE u (a INT, t INT); CREATE VIEW t AS SELECT a FROM u; CREATE VIEW v AS {query}"
    )
    assert [v.sql for v in after(schema, "ALTER VIEW t RENAME TO n").views] == ["SELECT a FROM u", expected]


@pytest.mark.parametrize(
    "query",
    [
        "WITH t AS (SELECT 1 AS a) SELECT a FROM t",
        "WITH n AS (SELECT 1 AS a) SELECT n.a FROM t, n",
        "SELECT public.t.a FROM t",
        "SELECT a FROM t PROTO JOIN (x) ON",
        "SELECT a FROM t PROTO JOIN t.p x",
    ],
)
def test_views_that_cannot_follow_refuse_renames(query):
    schema = after(Schema("d"), f"CREATE TABLE t (a INT); CREATE VIEW v AS {query}")
    with pytest.raises(F1Error, match="the view v reads from t in a way") as caught:
        after(schema, "ALTER TABLE t RENAME TO n")
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("query", "uses"),
    [
        ("SELECT a FROM t", True),
        ("SELECT x.A FROM t x", True),
        ("SELECT * FROM t", True),
        ("SELECT x.* FROM t x", True),
        ("FROM t", True),
        ("SELECT b FROM t NATURAL JOIN u", True),
        ("SELECT b FROM t JOIN u USING (a)", True),
        ("SELECT t FROM t", True),
        ("SELECT x FROM t x", True),
        ("SELECT COLUMNS('.*') FROM t", True),
        ("SELECT b FROM t PROTO JOIN (x) ON )", True),
        ("SELECT b, count(*) FROM t GROUP BY b", False),
        ("SELECT 'a' FROM t", False),
        ("SELECT a FROM u", False),
    ],
)
def test_views_and_the_columns_that_they_use(query, uses):
    schema = after(Schema("d"), f"CREATE TABLE t (a INT, b INT); CREATE TABLE u (a INT); CREATE VIEW v AS {query}")
    for sql in ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t RENAME a TO c"):
        if uses:
            with pytest.raises(F1Error, match=r"t\.a is used by the views? v") as caught:
                after(schema, sql)
            assert caught.value.code is Code.FAILED_PRECONDITION
        else:
            assert after(schema, sql).views == schema.views


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("ALTER TABLE custumer ADD a INT", Code.NOT_FOUND, "did you mean Customer?"),
        ("ALTER TABLE words ADD a INT", Code.INVALID_ARGUMENT, "words is a view: ALTER VIEW renames it"),
        ("ALTER TABLE customer ADD name TEXT", Code.ALREADY_EXISTS, "there is a column Customer.Name already"),
        ("ALTER TABLE campaign ADD budgetlock INT", Code.ALREADY_EXISTS, "has a lock budgetlock"),
        ("ALTER TABLE customer ADD f1_a INT", Code.INVALID_ARGUMENT, "reserved: f1_a"),
        ("ALTER TABLE customer ADD a INT DEFAULT 'x'", Code.INVALID_ARGUMENT, "the default of a is no INT64"),
        ("ALTER TABLE customer ADD a PROTO<adwords.CustomerInf>", Code.NOT_FOUND, "did you mean adwords.CustomerInfo?"),
        (
            "ALTER TABLE customer ADD a INT CHECK (b > 0)",
            Code.NOT_FOUND,
            "the CHECK uses b, which is no column of Customer",
        ),
        ("ALTER TABLE click ADD CHECK (f1_row_id > '')", Code.NOT_FOUND, "which is no column of Click"),
        ("ALTER TABLE click ADD LOCK l (f1_row_id)", Code.NOT_FOUND, "which is no column of Click"),
        ("ALTER TABLE customer ADD a INT REFERENCES keywords", Code.NOT_FOUND, "did you mean Keyword?"),
        (
            "ALTER TABLE campaign ADD CONSTRAINT positive CHECK (Budget > 0)",
            Code.ALREADY_EXISTS,
            "there is a constraint positive already",
        ),
        (
            "ALTER TABLE campaign ADD CONSTRAINT positive UNIQUE (Budget)",
            Code.ALREADY_EXISTS,
            "there is a constraint positive of Campaign",
        ),
        (
            "ALTER TABLE campaign ADD CONSTRAINT budgetlock FOREIGN KEY (keywordid) REFERENCES keyword",
            Code.ALREADY_EXISTS,
            "budgetlock already",
        ),
        ("ALTER TABLE campaign ADD LOCK positive (Name)", Code.ALREADY_EXISTS, "there is a constraint positive"),
        (
            "ALTER TABLE campaign ADD CONSTRAINT customer UNIQUE (Budget)",
            Code.ALREADY_EXISTS,
            "there is a table customer",
        ),
        ("ALTER TABLE campaign ADD LOCK l (Name, Budget)", Code.INVALID_ARGUMENT, "Budget not BudgetLock and l"),
        ("ALTER TABLE campaign ADD LOCK l (CampaignId)", Code.INVALID_ARGUMENT, "never changes"),
        ("ALTER TABLE campaign ALTER LOCK budgetlock (CampaignId)", Code.INVALID_ARGUMENT, "never changes"),
        ("ALTER TABLE campaign ALTER LOCK nope (Name)", Code.NOT_FOUND, "Campaign has no lock nope"),
        ("ALTER TABLE campaign ALTER LOCK budgetlock (Nope)", Code.NOT_FOUND, "which is no column of Campaign"),
        (
            "ALTER TABLE campaign ADD LOCK l (Name), ALTER LOCK l (Name, Budget)",
            Code.INVALID_ARGUMENT,
            "put DROP CONSTRAINT BudgetLock before",
        ),
        ("ALTER TABLE campaign ADD LOCK name (Name)", Code.INVALID_ARGUMENT, "has the name of a column"),
        ("ALTER TABLE campaign DROP COLUMN nam", Code.NOT_FOUND, "did you mean Name?"),
        (
            "ALTER TABLE campaign DROP COLUMN customerid CASCADE",
            Code.FAILED_PRECONDITION,
            "part of the primary key of Campaign, which stays",
        ),
        ("ALTER TABLE click DROP COLUMN f1_row_id CASCADE", Code.INVALID_ARGUMENT, "the key that the server makes"),
        (
            "ALTER TABLE campaign DROP COLUMN name",
            Code.FAILED_PRECONDITION,
            "Campaign.Name is used by the index Campaign_Name_key, the index CampaignByName, the check Positive; DROP COLUMN Name CASCADE",
        ),
        (
            "ALTER TABLE campaign DROP COLUMN budget",
            Code.FAILED_PRECONDITION,
            "the index CampaignByName, the check Positive, the lock BudgetLock",
        ),
        ("ALTER TABLE keyword DROP COLUMN text", Code.FAILED_PRECONDITION, "the view Words"),
        ("ALTER TABLE campaign DROP CONSTRAINT posituve", Code.NOT_FOUND, "did you mean Positive?"),
        (
            "ALTER TABLE campaign DROP CONSTRAINT campaignbyname",
            Code.INVALID_ARGUMENT,
            "is an index: DROP INDEX drops it",
        ),
        ("ALTER TABLE campaign ALTER customerid DROP NOT NULL", Code.FAILED_PRECONDITION, "part of the primary key"),
        ("ALTER TABLE click ALTER f1_row_id SET DEFAULT 'x'", Code.INVALID_ARGUMENT, "the key that the server makes"),
        ("ALTER TABLE campaign ALTER nam SET NOT NULL", Code.NOT_FOUND, "did you mean Name?"),
        (
            "ALTER TABLE campaign ALTER budget SET DEFAULT 'x'",
            Code.INVALID_ARGUMENT,
            "the default of Budget is no NUMERIC",
        ),
        ("ALTER TABLE customer ALTER info TYPE PROTO<adwords.Feature>", Code.FAILED_PRECONDITION, "does not become"),
        ("ALTER TABLE campaign ALTER customerid TYPE TEXT", Code.FAILED_PRECONDITION, "does not become STRING"),
        ("ALTER TABLE customer SET ON DELETE CASCADE", Code.INVALID_ARGUMENT, "is not interleaved"),
        ("ALTER TABLE customer RENAME TO keyword", Code.ALREADY_EXISTS, "there is a table keyword already"),
        ("ALTER TABLE customer RENAME TO f1_c", Code.INVALID_ARGUMENT, "reserved"),
        ("ALTER TABLE customer RENAME name TO info", Code.ALREADY_EXISTS, "there is a column Customer.Info already"),
        ("ALTER TABLE campaign RENAME name TO budgetlock", Code.ALREADY_EXISTS, "has a lock budgetlock"),
        ("ALTER TABLE customer RENAME name TO f1_c", Code.INVALID_ARGUMENT, "reserved"),
        ("ALTER TABLE click RENAME f1_row_id TO id", Code.INVALID_ARGUMENT, "the key that the server makes"),
        (
            "ALTER TABLE keyword RENAME text TO t",
            Code.FAILED_PRECONDITION,
            "is used by the views Words; drop them, rename",
        ),
        ("ALTER INDEX nothing RENAME TO x", Code.NOT_FOUND, "there is no index nothing"),
        ("ALTER INDEX campaignbyname RENAME TO words", Code.ALREADY_EXISTS, "there is a view words"),
        ("ALTER INDEX campaign_name_key RENAME TO positive", Code.ALREADY_EXISTS, "there is a constraint positive"),
        ("ALTER VIEW nothing RENAME TO x", Code.NOT_FOUND, "there is no view nothing"),
        ("ALTER VIEW customer RENAME TO x", Code.INVALID_ARGUMENT, "customer is a table: ALTER TABLE"),
        ("ALTER VIEW words RENAME TO customer", Code.ALREADY_EXISTS, "there is a table customer"),
    ],
)
def test_what_is_refused(sql, code, words):
    with pytest.raises(F1Error) as caught:
        after(ADS, sql)
    assert words in caught.value.message
    assert caught.value.code is code
    assert caught.value.details["line"] == "1", caught.value.message


def test_a_table_keeps_a_column():
    schema = after(Schema("d"), "CREATE TABLE t (a INT, b INT)")
    assert len(after(schema, "ALTER TABLE t DROP a, ADD c INT, DROP b").table("t").visible) == 1
    with pytest.raises(F1Error, match="b is the only column of t; DROP TABLE"):
        after(schema, "ALTER TABLE t DROP a, DROP b")


def test_tables_do_not_grow_too_wide():
    schema = after(Schema("d"), f"CREATE TABLE t ({', '.join(f'c{n} INT' for n in range(999))})")
    with pytest.raises(F1Error, match="at most 1000 columns"):
        after(schema, "ALTER TABLE t ADD x INT, ADD y INT")


def in_state(schema, table, name, state):
    """The schema with one element of a table, or the table itself, in a state."""
    found = schema.table(table)

    def moved(items):
        return tuple(replace(item, state=state) if item.name == name else item for item in items)

    other = replace(found, columns=moved(found.columns), indexes=moved(found.indexes))
    if name == table:
        other = replace(found, state=state)
    return replace(schema, tables=tuple(other if t.id == found.id else t for t in schema.tables))


@pytest.mark.parametrize("state", [ElementState.DELETE_ONLY, ElementState.WRITE_ONLY])
def test_what_is_not_public_is_not_altered_but_dropped(state):
    half = in_state(ADS, "Customer", "Name", state)
    for action in (
        "ALTER name SET NOT NULL",
        "RENAME name TO x",
        "RENAME info TO name",
        "ADD name INT",
        "ADD COLUMN IF NOT EXISTS name INT",
    ):
        with pytest.raises(F1Error, match="is being added or dropped by another schema change") as caught:
            after(half, f"ALTER TABLE customer {action}")
        assert caught.value.code is Code.FAILED_PRECONDITION
    assert [c.name for c in after(half, "ALTER TABLE customer DROP COLUMN name").table("customer").columns] == [
        "CustomerId",
        "Info",
    ]
    for schema, sql in (
        (in_state(ADS, "Keyword", "Keyword", state), "ALTER TABLE keyword ADD a INT"),
        (in_state(ADS, "Campaign", "CampaignByName", state), "ALTER INDEX campaignbyname RENAME TO x"),
    ):
        with pytest.raises(F1Error, match="is being created or dropped by another schema change") as caught:
            after(schema, sql)
        assert caught.value.code is Code.FAILED_PRECONDITION


def test_an_older_column_of_the_name_is_left_to_the_change_that_drops_it():
    table = ADS.table("Customer")
    older = replace(table.column("Name"), id=900, state=ElementState.DELETE_ONLY)
    half = replace(
        ADS, tables=tuple(replace(t, columns=(older, *t.columns)) if t.id == table.id else t for t in ADS.tables)
    )
    changed_columns = after(half, "ALTER TABLE customer ALTER name SET NOT NULL").table("customer").columns
    assert [(c.id, c.not_null) for c in changed_columns if c.name == "Name"] == [
        (900, False),
        (table.column("Name").id, True),
    ]


def test_nothing_is_changed_by_a_statement_that_is_refused():
    (statement,) = parse_ddl("ALTER TABLE Keyword ADD a INT, ADD a INT")
    assert isinstance(statement, AlterTable)
    with pytest.raises(F1Error):
        compile_statements(ADS, [statement], ids(1000))
    assert adwords() == ADS
