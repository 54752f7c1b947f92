"""The schema compiler: what a description becomes, and what it refuses (F1 sections 3.1 to 3.3)."""

# ruff: noqa: E501 - statements stay on one line, so that places are easy to see

import itertools

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.compile import compile_sources, compile_statements
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.render import quoted, render_schema
from f1server.catalog.schema import ColumnType, ElementState, Kind, Schema
from f1server.catalog.statements import with_query_columns
from f1server.catalog.types import HIDDEN_KEY, hidden_key
from tests.unit.catalog.samples import ADWORDS, PROTOS, adwords, after, ids

ADS = adwords()


def names(table, column_ids):
    return [table.by_id[i].name for i in column_ids]


def test_the_sample_is_compiled():
    campaign = ADS.table("campaign")
    assert campaign.parent_id == ADS.table("Customer").id
    assert campaign.cascade
    assert names(campaign, campaign.key_column_ids) == ["CustomerId", "CampaignId"]
    assert [i.name for i in campaign.indexes] == ["Campaign_Name_key", "CampaignByName", "Campaign_KeywordId_fkey_idx"]
    unique, by_name, for_key = campaign.indexes
    assert (unique.unique, unique.local) == (True, False)
    assert (by_name.unique, by_name.local, names(campaign, by_name.storing)) == (False, True, ["Budget"])
    assert [p.column_id for p in for_key.parts] == [campaign.column("KeywordId").id]
    (key,) = campaign.foreign_keys
    assert key.referenced_table_id == ADS.table("Keyword").id
    assert key.referenced_column_ids == ADS.table("Keyword").key_column_ids
    assert [c.name for c in campaign.checks] == ["Positive"]
    assert names(campaign, campaign.locks[0].column_ids) == ["Budget"]
    assert campaign.column("created").untracked
    assert ADS.table("Click").untracked
    assert [v.name for v in ADS.views] == ["Words"]
    country = ADS.table("Customer").index("CustomerByCountry")
    assert [p.path for p in country.parts] == [("country_code",), ("features", "name")]
    assert all(t.state is ElementState.PUBLIC for t in ADS.tables)


def test_ids_are_all_different_and_tables_come_first_roots_before_children():
    drawn = [t.id for t in ADS.tables]
    assert [ADS.by_id[i].name for i in sorted(drawn)] == ["Customer", "Keyword", "Campaign", "Click"]
    assert sorted(drawn) == [1, 2, 3, 4]
    for table in ADS.tables:
        drawn += [x.id for x in (*table.columns, *table.indexes, *table.foreign_keys, *table.checks, *table.locks)]
    assert len(set(drawn)) == len(drawn)


def test_key_columns_are_not_null():
    assert after(ADS, "CREATE TABLE t (a INT PRIMARY KEY)").table("t").columns[0].not_null


def test_a_table_without_primary_key_gets_a_hidden_one():
    click = ADS.table("Click")
    assert names(click, click.key_column_ids) == ["CustomerId", HIDDEN_KEY]
    assert [c.name for c in click.visible] == ["CustomerId", "Url"]
    hidden = click.key_columns[1]
    assert (hidden.hidden, hidden.type.kind) == (True, Kind.BYTES)
    root = after(ADS, "CREATE TABLE t (a INT)").table("t")
    assert names(root, root.key_column_ids) == [HIDDEN_KEY]


def test_hidden_keys_sort_by_time_then_position():
    keys = [hidden_key(ts, n, b"\xff\x00\x01\x02\x03\x04") for ts in (1, 255, 256, 1 << 50) for n in (0, 1, 300)]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {16}


def test_schemas_survive_their_bytes():
    data = encode_schema(ADS)
    assert decode_schema(data, 7) == ADS
    assert decode_schema(data, 7).commit_ts == 7
    assert encode_schema(decode_schema(data)) == data
    with pytest.raises(F1Error) as caught:
        decode_schema(b"\xff\xff")
    assert caught.value.code is Code.DATA_CORRUPTION


def test_ddl_of_a_schema_compiles_to_the_same_schema():
    text = render_schema(ADS)
    again = compile_sources("ads", parse_ddl(text), PROTOS, ids())
    assert render_schema(again) == text
    assert [t.name for t in again.tables] == [t.name for t in ADS.tables]
    assert again.views == ADS.views


def test_strange_names_survive():
    sql = 'CREATE TABLE "a ""b" ("primary" INT PRIMARY KEY, "Ä x" TEXT, lock INT);CREATE INDEX "i;" ON "a ""b" ("Ä x")'
    schema = compile_sources("d", parse_ddl(sql), [], ids())
    again = compile_sources("d", parse_ddl(render_schema(schema)), [], ids())
    assert again == schema
    assert quoted("plain") == "plain"
    assert quoted("Table") == '"Table"'


def test_a_check_may_name_its_table_and_fields_of_protos():
    schema = after(ADS, "CREATE TABLE t (a INT, i PROTO<adwords.CustomerInfo>, CHECK (t.a > 0 AND i.main.name <> 'x'))")
    assert schema.table("t").checks[0].name == "t_check"


def test_foreign_keys_stand_in_the_order_of_what_they_refer_to():
    schema = after(
        Schema("d"),
        "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)); CREATE TABLE u (x INT, y INT, FOREIGN KEY (y, x) REFERENCES t (b, a))",
    )
    (key,) = schema.table("u").foreign_keys
    assert names(schema.table("u"), key.column_ids) == ["x", "y"]
    assert names(schema.table("t"), key.referenced_column_ids) == ["a", "b"]
    assert [i.name for i in schema.table("u").indexes] == ["u_x_y_fkey_idx"]


def test_foreign_keys_need_no_index_if_there_is_a_way_to_the_referrers():
    schema = after(
        Schema("d"),
        "CREATE TABLE t (a INT PRIMARY KEY, b TEXT UNIQUE);"
        "CREATE TABLE u (a INT PRIMARY KEY REFERENCES t, b TEXT REFERENCES t (b)); CREATE INDEX mine ON u (b, a);"
        "CREATE TABLE v (id INT PRIMARY KEY, me INT REFERENCES v)",
    )
    assert [i.name for i in schema.table("u").indexes] == ["mine"]
    assert [i.name for i in schema.table("v").indexes] == ["v_me_fkey_idx"]


def test_generated_names_avoid_what_is_there():
    schema = after(
        Schema("d"), "CREATE TABLE t_a_key (a INT); CREATE TABLE t (a INT UNIQUE, CHECK (a > 0), CHECK (a < 9))"
    )
    assert [i.name for i in schema.table("t").indexes] == ["t_a_key1"]
    assert [c.name for c in schema.table("t").checks] == ["t_check", "t_check1"]


def test_unique_constraints_within_a_root_are_local():
    schema = after(ADS, "CREATE TABLE t (CustomerId INT, a INT, UNIQUE (CustomerId, a)) INTERLEAVE IN PARENT Customer")
    assert schema.table("t").indexes[0].local


def test_if_not_exists_and_if_exists():
    counter = itertools.count(5000)
    same = compile_statements(
        ADS,
        parse_ddl(
            "CREATE TABLE IF NOT EXISTS customer (x INT); CREATE INDEX IF NOT EXISTS campaignbyname ON campaign (name);"
            "CREATE VIEW IF NOT EXISTS words AS SELECT 1; DROP TABLE IF EXISTS nothing; DROP INDEX IF EXISTS nothing;"
            "DROP VIEW IF EXISTS nothing"
        ),
        lambda: next(counter),
    )
    assert same == ADS
    assert next(counter) == 5000


def test_a_table_dropped_and_created_is_another_table():
    schema = after(ADS, "DROP TABLE Click; CREATE TABLE Click (a INT PRIMARY KEY)")
    assert schema.table("Click").id == 1000
    assert schema.dropped == ("click",)


def test_drop_cascades():
    schema = after(ADS, "DROP TABLE Customer CASCADE")
    assert [t.name for t in schema.tables] == ["Keyword"]
    schema = after(ADS, "DROP TABLE keyword CASCADE")
    assert schema.table("Campaign").foreign_keys == ()
    assert schema.views == ()
    schema = after(ADS, "DROP INDEX Campaign_KeywordId_fkey_idx CASCADE")
    assert schema.table("Campaign").foreign_keys == ()


def test_tables_from_queries_get_the_columns_of_the_query():
    result = [("x", ColumnType(Kind.INT64)), ("y", ColumnType(Kind.STRING))]

    def made(sql):
        (statement,) = parse_ddl(sql)
        return compile_statements(ADS, [with_query_columns(statement, result)], ids(900)).table("t")

    assert [(c.name, c.type.kind) for c in made("CREATE TABLE t AS SELECT 1").visible] == [
        ("x", "INT64"),
        ("y", "STRING"),
    ]
    assert [c.name for c in made("CREATE TABLE t (a, b) AS SELECT 1").visible] == ["a", "b"]
    typed = made("CREATE TABLE t (a DOUBLE PRIMARY KEY, b TEXT) AS SELECT 1")
    assert [(c.name, c.type.kind) for c in typed.key_columns] == [("a", "DOUBLE")]
    with pytest.raises(F1Error, match="t has 1 columns, its query has 2"):
        made("CREATE TABLE t (a) AS SELECT 1")


def test_views_are_replaced():
    schema = after(ADS, "CREATE OR REPLACE VIEW words AS SELECT 1; CREATE VIEW more AS SELECT * FROM words")
    assert [(v.name, v.sql) for v in schema.views] == [("more", "SELECT * FROM words"), ("words", "SELECT 1")]
    assert after(schema, "DROP VIEW words CASCADE").views == ()


INFO = "PROTO<adwords.CustomerInfo>"


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("CREATE TABLE customer (a INT)", Code.ALREADY_EXISTS, "there is a table customer already"),
        ("CREATE TABLE words (a INT)", Code.ALREADY_EXISTS, "there is a view words already"),
        ("CREATE VIEW CampaignByName AS SELECT 1", Code.ALREADY_EXISTS, "there is an index CampaignByName already"),
        ("CREATE INDEX customer ON customer (name)", Code.ALREADY_EXISTS, "there is a table customer already"),
        ("CREATE TABLE f1_x (a INT)", Code.INVALID_ARGUMENT, "reserved: f1_x"),
        ("CREATE TABLE t (F1_row_id INT)", Code.INVALID_ARGUMENT, "reserved: F1_row_id"),
        ("CREATE TABLE t ()", Code.INVALID_ARGUMENT, "has no columns"),
        ("CREATE TABLE t (a INT, A INT)", Code.INVALID_ARGUMENT, "two columns A"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b))", Code.NOT_FOUND, "the primary key names b"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a, A))", Code.INVALID_ARGUMENT, "two columns A in the primary key"),
        (f"CREATE TABLE t (a {INFO} PRIMARY KEY)", Code.INVALID_ARGUMENT, "cannot be part of the primary key"),
        ("CREATE TABLE t (a PROTO<adwords.CustomerInf>)", Code.NOT_FOUND, "did you mean adwords.CustomerInfo?"),
        ("CREATE TABLE t (a INT DEFAULT 'x')", Code.INVALID_ARGUMENT, "the default of a is no INT64: 'x'"),
        ("CREATE TABLE t (a INT DEFAULT 1.5)", Code.INVALID_ARGUMENT, "is no INT64"),
        ("CREATE TABLE t (a BOOL DEFAULT 1)", Code.INVALID_ARGUMENT, "is no BOOL"),
        ("CREATE TABLE t (a TEXT DEFAULT true)", Code.INVALID_ARGUMENT, "is no STRING"),
        ("CREATE TABLE t (a INT DEFAULT b)", Code.INVALID_ARGUMENT, "refers to the column b"),
        ("CREATE TABLE t (a INT DEFAULT (SELECT 1))", Code.INVALID_ARGUMENT, "contains a query"),
        ("CREATE TABLE t (a INT DEFAULT 1 +)", Code.INVALID_ARGUMENT, "the default of a is no expression"),
        ("CREATE TABLE t (a INT CHECK (b > 1))", Code.NOT_FOUND, "the CHECK uses b"),
        ("CREATE TABLE t (a INT CHECK (u.a > 1))", Code.NOT_FOUND, "the CHECK uses u.a"),
        ("CREATE TABLE t (a INT CHECK (a.b > 1))", Code.INVALID_ARGUMENT, "a is no proto column"),
        ("CREATE TABLE t (a INT CHECK (a > random()))", Code.INVALID_ARGUMENT, "whose value changes"),
        ("CREATE TABLE t (a TIMESTAMP CHECK (a < now()))", Code.INVALID_ARGUMENT, "whose value changes"),
        ("CREATE TABLE t (a DATE CHECK (a < current_date))", Code.INVALID_ARGUMENT, "whose value changes"),
        ("CREATE TABLE t (a INT CHECK (a > (SELECT 1)))", Code.INVALID_ARGUMENT, "contains a query"),
        ("CREATE TABLE t (a INT CHECK (sum(a) > 1))", Code.INVALID_ARGUMENT, "contains an aggregate"),
        ("CREATE TABLE t (a INT CHECK (a > ?))", Code.INVALID_ARGUMENT, "contains a parameter"),
        (
            "CREATE TABLE t (a INT, CONSTRAINT c CHECK (a>1), CONSTRAINT C CHECK (a>2))",
            Code.INVALID_ARGUMENT,
            "two constraints C",
        ),
        ("CREATE TABLE t (a INT, b INT, LOCK x (a), LOCK y (b, a))", Code.INVALID_ARGUMENT, "a column has one lock"),
        ("CREATE TABLE t (a INT PRIMARY KEY, LOCK x (a))", Code.INVALID_ARGUMENT, "never changes"),
        ("CREATE TABLE t (a INT) INTERLEAVE IN PARENT custumer", Code.NOT_FOUND, "did you mean Customer?"),
        ("CREATE TABLE t (a INT) INTERLEAVE IN PARENT customer", Code.INVALID_ARGUMENT, "needs the columns of its key"),
        (
            "CREATE TABLE t (a INT, customerid INT, PRIMARY KEY (a, customerid)) INTERLEAVE IN PARENT customer",
            Code.INVALID_ARGUMENT,
            "must begin with that of Customer",
        ),
        (
            "CREATE TABLE t (customerid TEXT PRIMARY KEY) INTERLEAVE IN PARENT customer",
            Code.INVALID_ARGUMENT,
            "is STRING, but INT64",
        ),
        (
            "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)) INTERLEAVE IN PARENT customer (a, b)",
            Code.INVALID_ARGUMENT,
            "names 2 columns, its key has 1 (CustomerId)",
        ),
        (
            "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b)) INTERLEAVE IN PARENT customer (b)",
            Code.INVALID_ARGUMENT,
            "must begin with that of Customer: (b, ...)",
        ),
        (
            "CREATE TABLE t (b INT) INTERLEAVE IN PARENT customer (a)",
            Code.INVALID_ARGUMENT,
            "needs the columns of its key: a",
        ),
        (
            "CREATE TABLE t (customerid INT, a INT) INTERLEAVE IN PARENT click",
            Code.INVALID_ARGUMENT,
            "needs the columns of its key: f1_row_id",
        ),
        ("CREATE INDEX i ON customers (name)", Code.NOT_FOUND, "did you mean Customer?"),
        ("CREATE INDEX i ON customer (nam)", Code.NOT_FOUND, "did you mean Name?"),
        ("CREATE INDEX i ON customer (name, NAME)", Code.INVALID_ARGUMENT, "a column twice"),
        ("CREATE INDEX i ON customer (info)", Code.INVALID_ARGUMENT, "a proto column is no part of an index"),
        ("CREATE INDEX i ON customer (info.main)", Code.INVALID_ARGUMENT, "is a message or a map"),
        ("CREATE INDEX i ON customer (info.main.weights)", Code.INVALID_ARGUMENT, "is a message or a map"),
        ("CREATE INDEX i ON customer (info.mian)", Code.NOT_FOUND, "did you mean main?"),
        ("CREATE INDEX i ON customer (name.x)", Code.INVALID_ARGUMENT, "it has no fields"),
        ("CREATE INDEX i ON customer (info.ids, info.features.name)", Code.INVALID_ARGUMENT, "one repeated field"),
        (
            "CREATE LOCAL INDEX i ON campaign (name)",
            Code.INVALID_ARGUMENT,
            "begins with the key of its root table: (CustomerId, ...)",
        ),
        ("CREATE INDEX i ON campaign (name) STORING (x)", Code.NOT_FOUND, "no column Campaign.x"),
        ("CREATE TABLE t (a INT REFERENCES u)", Code.NOT_FOUND, "there is no table u"),
        (
            "CREATE TABLE t (a TEXT REFERENCES customer)",
            Code.INVALID_ARGUMENT,
            "t.a is STRING, but Customer.CustomerId is INT64",
        ),
        ("CREATE TABLE t (a TEXT REFERENCES customer (name))", Code.INVALID_ARGUMENT, "neither the primary key"),
        (
            "CREATE TABLE t (a INT, b INT, FOREIGN KEY (a, b) REFERENCES customer)",
            Code.INVALID_ARGUMENT,
            "has 2 columns",
        ),
        ("CREATE TABLE t (a INT REFERENCES click)", Code.INVALID_ARGUMENT, "neither the primary key"),
        ("CREATE TABLE t AS SELECT 1", Code.FAILED_PRECONDITION, "CREATE TABLE AS"),
        ("CREATE TABLE t RENAMED FROM customer (a INT)", Code.FAILED_PRECONDITION, "ALTER TABLE ... RENAME"),
        ("CREATE TABLE t (b INT RENAMED FROM a)", Code.FAILED_PRECONDITION, "ALTER TABLE ... RENAME"),
        ("DROP TABLE customer", Code.FAILED_PRECONDITION, "Campaign is interleaved in Customer"),
        ("DROP TABLE keyword", Code.FAILED_PRECONDITION, "Campaign_KeywordId_fkey of Campaign refers to Keyword"),
        ("DROP TABLE words", Code.INVALID_ARGUMENT, "is a view"),
        ("DROP VIEW customer", Code.INVALID_ARGUMENT, "is a table"),
        ("DROP TABLE custome", Code.NOT_FOUND, "did you mean Customer?"),
        ("DROP INDEX nothing", Code.NOT_FOUND, "there is no index nothing"),
        ("DROP VIEW nothing", Code.NOT_FOUND, "there is no view nothing"),
        ("DROP INDEX Campaign_KeywordId_fkey_idx", Code.FAILED_PRECONDITION, "needs the index"),
    ],
)
def test_what_is_refused(sql, code, words):
    with pytest.raises(F1Error) as caught:
        after(ADS, sql)
    assert words in caught.value.message
    assert caught.value.code is code
    assert caught.value.details["line"] == "1", caught.value.message


def test_a_view_keeps_what_it_reads():
    schema = after(ADS, "CREATE TABLE plain (a INT); CREATE VIEW v AS SELECT a FROM plain JOIN keyword ON true")
    with pytest.raises(F1Error, match="the view v reads from it"):
        after(schema, "DROP TABLE plain")
    # Ours is more than the parser of views knows: then any mention counts.
    schema = after(ADS, "CREATE TABLE plain (a INT); CREATE VIEW v AS SELECT a FROM plain PROTO JOIN (x) ON")
    with pytest.raises(F1Error, match="the view v reads from it"):
        after(schema, "DROP TABLE plain")


def test_a_unique_index_keeps_foreign_keys_to_it():
    schema = after(ADS, "CREATE TABLE t (a INT, b TEXT UNIQUE); CREATE TABLE u (c TEXT REFERENCES t (b))")
    with pytest.raises(F1Error, match="u_c_fkey of u needs the index t_b_key"):
        after(schema, "DROP INDEX t_b_key")
    assert after(schema, "DROP INDEX t_b_key CASCADE").table("u").foreign_keys == ()


def test_defaults_that_are_fine():
    sql = (
        "CREATE TABLE t (a BOOL DEFAULT true, b NUMERIC DEFAULT 1.5, c DATE DEFAULT DATE '2020-01-01', d TEXT DEFAULT 'x',"
        "e INT DEFAULT -7, f TIMESTAMP DEFAULT current_timestamp, g TEXT DEFAULT gen_random_uuid()::text,"
        "h DATE DEFAULT current_date, i DOUBLE DEFAULT 1e3, j INT DEFAULT NULL, k INT DEFAULT '12', l BYTES DEFAULT 'a')"
    )
    assert len(after(ADS, sql).table("t").columns) == 13


def test_depth_and_width_have_limits():
    deep = ["CREATE TABLE t0 (k INT PRIMARY KEY)"]
    deep += [f"CREATE TABLE t{n} (k INT PRIMARY KEY) INTERLEAVE IN PARENT t{n - 1}" for n in range(1, 16)]
    schema = after(Schema("d"), ";".join(deep))
    assert len(schema.ancestors(schema.table("t15"))) == 16
    with pytest.raises(F1Error, match="at most 16 deep"):
        after(schema, "CREATE TABLE t16 (k INT PRIMARY KEY) INTERLEAVE IN PARENT t15")
    columns = ", ".join(f"c{n} INT" for n in range(1001))
    with pytest.raises(F1Error, match="at most 1000 columns"):
        after(schema, f"CREATE TABLE wide ({columns})")
    with pytest.raises(F1Error, match="at most 16 columns"):
        after(
            schema,
            f"CREATE TABLE w ({', '.join(f'c{n} INT' for n in range(17))}, PRIMARY KEY ({', '.join(f'c{n}' for n in range(17))}))",
        )


def test_mistakes_in_protos_have_a_place():
    with pytest.raises(F1Error, match=r"a\.proto:1:"):
        compile_sources("d", parse_ddl(ADWORDS), [("a.proto", "syntax = 'proto9';")], ids())
