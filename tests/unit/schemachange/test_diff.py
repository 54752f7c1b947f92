"""Steps between schemas: elements move by one state at a time (schema-change paper, section 3)."""

# ruff: noqa: E501 - statements stay on one line

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1server.catalog.adopt import adopt_ids
from f1server.catalog.compile import compile_sources
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.protos import compile_files, incompatibilities
from f1server.catalog.render import render_schema
from f1server.catalog.schema import ElementState, Schema
from f1server.schemachange.steps import edits
from f1server.schemachange.steps.diff import plan_steps
from f1server.schemachange.steps.states import Work
from tests.unit.catalog.samples import ADWORDS, PROTO, PROTOS, adwords, after, ids

ADS = adwords()
PUBLIC, WRITE_ONLY, DELETE_ONLY = ElementState.PUBLIC, ElementState.WRITE_ONLY, ElementState.DELETE_ONLY


ABSENT = ElementState.ABSENT


def parsed(sql):
    return parse_ddl(sql)


def advance(schema, step):
    return edits.advance(schema, step.edits)


def states(schema, *names):
    """The states of tables, their elements and NOT NULL (column!) by name; ABSENT if they are not there."""
    found = {}
    for table in schema.tables:
        found[table.name] = table.state
        for element in (*table.indexes, *table.foreign_keys, *table.checks, *table.locks, *table.columns):
            found[element.name] = element.state
        found |= {f"{c.name}!": c.not_null_state if c.not_null else ABSENT for c in table.columns}
    return [found.get(name, ABSENT) for name in names]


def tasks(old, new):
    """What is done with data, by version."""
    return [[(str(t.element), t.work) for t in step.tasks] for step in plan_steps(old, new)]


def walk(old, new):
    """All schemas from old to new."""
    schemas = [old]
    for step in plan_steps(old, new):
        if step.edits:
            schemas.append(advance(schemas[-1], step))
    return schemas


def reached(old, new):
    return replace(walk(old, new)[-1], version=new.version) == new


def test_nothing_to_do():
    assert plan_steps(ADS, ADS) == []


def test_plain_tables_come_and_go_in_one_step():
    new = after(
        ADS, "CREATE TABLE t (a INT PRIMARY KEY, b INT UNIQUE); CREATE TABLE u (a INT PRIMARY KEY REFERENCES t)"
    )
    (step,) = plan_steps(ADS, new)
    assert step.what == ("create table t", "create table u")
    assert not step.loses_data
    assert reached(ADS, new)
    assert [states(s, "t", "u") for s in walk(new, ADS)] == [[PUBLIC] * 2, [DELETE_ONLY] * 2, [ABSENT] * 2]
    assert tasks(new, ADS) == [[("table t", Work.REMOVE), ("table u", Work.REMOVE)], []]
    assert [step.loses_data for step in plan_steps(new, ADS)] == [True, False]


def test_children_of_tables_that_exist_are_known_before_they_are_written():
    new = after(ADS, "CREATE TABLE Note (CustomerId INT, Text STRING) INTERLEAVE IN PARENT Customer")
    assert [states(s, "Note") for s in walk(ADS, new)] == [[ElementState.ABSENT], [DELETE_ONLY], [PUBLIC]]
    assert reached(ADS, new)
    assert [states(s, "Note") for s in walk(new, ADS)] == [[PUBLIC], [DELETE_ONLY], [ElementState.ABSENT]]
    assert tasks(new, ADS) == [[("table Note", Work.REMOVE)], []]


def test_so_are_tables_that_refer_to_tables_that_exist_and_all_that_rely_on_those():
    new = after(
        ADS,
        "CREATE TABLE a (id INT PRIMARY KEY REFERENCES b); CREATE TABLE b (id INT PRIMARY KEY, k INT REFERENCES Keyword);"
        "CREATE TABLE c (id INT PRIMARY KEY) INTERLEAVE IN PARENT a; CREATE TABLE d (id INT PRIMARY KEY)",
    )
    assert [states(s, *"abcd") for s in walk(ADS, new)[1:]] == [[DELETE_ONLY] * 3 + [PUBLIC], [PUBLIC] * 4]


def test_indexes_on_tables_that_exist_pass_through_all_states():
    new = after(ADS, "CREATE INDEX i ON Customer (Name)")
    assert [states(s, "i")[0] for s in walk(ADS, new)] == [ElementState.ABSENT, DELETE_ONLY, WRITE_ONLY, PUBLIC]
    assert tasks(ADS, new) == [[], [("index i", Work.FILL)], []]
    assert reached(ADS, new)
    assert [states(s, "i")[0] for s in walk(new, ADS)] == [PUBLIC, WRITE_ONLY, DELETE_ONLY, ElementState.ABSENT]
    assert tasks(new, ADS) == [[], [("index i", Work.REMOVE)], []]
    assert not any(s.loses_data for s in plan_steps(new, ADS))


def test_a_table_that_refers_to_an_index_waits_for_it():
    new = after(
        ADS, "CREATE UNIQUE INDEX i ON Keyword (Text); CREATE TABLE t (a TEXT PRIMARY KEY REFERENCES Keyword (Text))"
    )
    for schema in walk(ADS, new):
        index, table = states(schema, "i", "t")
        assert table is not PUBLIC or index is PUBLIC
    assert reached(ADS, new)


def test_a_half_built_index_is_dropped_from_where_it_is():
    new = after(ADS, "CREATE INDEX i ON Customer (Name)")
    half = walk(ADS, new)[1]
    assert states(half, "i") == [DELETE_ONLY]
    without = after(half, "DROP INDEX i")
    assert [states(s, "i")[0] for s in walk(half, without)] == [DELETE_ONLY, ElementState.ABSENT]
    with pytest.raises(F1Error, match="is being built or dropped"):
        after(half, "CREATE INDEX i ON Customer (Name)")


def test_a_half_made_table_is_dropped_or_made_by_sources():
    new = after(ADS, "CREATE TABLE Note (CustomerId INT, Text STRING) INTERLEAVE IN PARENT Customer")
    half = walk(ADS, new)[1]
    gone = after(half, "DROP TABLE note")
    assert [states(s, "Note")[0] for s in walk(half, gone)] == [DELETE_ONLY, ElementState.ABSENT]
    made = adopt_ids(half, from_sources(render_schema(new)), ids(9000))
    assert [states(s, "Note")[0] for s in walk(half, made)] == [DELETE_ONLY, PUBLIC]


def test_dropping_a_referenced_table_drops_the_foreign_key():
    new = after(ADS, "DROP TABLE Keyword CASCADE")
    assert reached(replace(ADS, dropped=("keyword",)), new)
    assert walk(ADS, new)[1].table("Campaign").foreign_keys[0].state is WRITE_ONLY
    assert walk(ADS, new)[2].table("Campaign").foreign_keys == ()


def from_sources(sql, protos=PROTOS):
    return compile_sources("ads", parsed(sql), protos, ids())


def test_the_same_sources_keep_all_ids():
    draft = compile_sources("ads", parsed(ADWORDS), PROTOS, ids(777))
    assert adopt_ids(ADS, draft, ids(5000)) == ADS


def test_sources_add_and_drop():
    sql = ADWORDS.replace("CREATE LOCAL INDEX CampaignByName", "CREATE LOCAL INDEX Other")
    sql = sql.replace("CREATE VIEW Words", "CREATE TABLE t (a INT PRIMARY KEY); CREATE VIEW Words2")
    new = adopt_ids(ADS, from_sources(sql), ids(5000))
    assert new.table("t").id == 5000
    assert new.table("Campaign").id == ADS.table("Campaign").id
    what = [line for step in plan_steps(ADS, new) for line in step.what]
    assert what[0] == "create table t"
    assert "index Other: public" in what
    assert "index CampaignByName: dropped" in what
    assert "drop view words" in what
    assert "create view Words2" in what
    last = walk(ADS, new)[-1]
    assert states(last, "CampaignByName", "Other") == [ElementState.ABSENT, PUBLIC]


def test_an_index_with_another_definition_is_built_beside_the_old_one():
    new = adopt_ids(ADS, from_sources(ADWORDS.replace("STORING (Budget)", "STORING (Created)")), ids(5000))
    old_id = ADS.table("Campaign").index("CampaignByName").id
    for schema in walk(ADS, new)[1:-1]:
        both = [i for i in schema.table("Campaign").indexes if i.name == "CampaignByName"]
        assert len(both) == 2
    assert walk(ADS, new)[-1].table("Campaign").index("CampaignByName").id != old_id


def test_what_may_change_at_once():
    sql = ADWORDS.replace("ON DELETE CASCADE", "").replace("DEFAULT -1.5", "DEFAULT 3").replace(" NOT TRACKED", "")
    new = adopt_ids(ADS, from_sources(sql), ids(5000))
    (step,) = plan_steps(ADS, new)
    assert "alter table Campaign" in step.what
    assert "alter column Campaign.Budget" in step.what
    assert not step.tasks
    campaign = advance(ADS, step).table("Campaign")
    assert not campaign.cascade
    assert campaign.column("Budget").default_sql == "3"
    assert campaign.indexes == ADS.table("Campaign").indexes


def changed(old, new, sql=ADWORDS):
    """The sources with something replaced, compiled with the ids that the database has."""
    assert old in sql
    return adopt_ids(ADS, from_sources(sql.replace(old, new)), ids(5000))


def test_a_column_that_may_be_null_is_optional():
    new = changed("Name STRING, Info", "Name STRING, More INT64, Info")
    assert [states(s, "More")[0] for s in walk(ADS, new)] == [ABSENT, DELETE_ONLY, PUBLIC]
    assert tasks(ADS, new) == [[], []]
    assert [states(s, "More")[0] for s in walk(new, ADS)] == [PUBLIC, DELETE_ONLY, ABSENT]
    assert tasks(new, ADS) == [[("column Customer.More", Work.REMOVE)], []]
    assert [step.loses_data for step in plan_steps(new, ADS)] == [True, False]


@pytest.mark.parametrize("more", ["More INT64 DEFAULT 7", "More INT64 NOT NULL DEFAULT 7"])
def test_a_column_with_a_default_is_required(more):
    new = changed("Name STRING, Info", f"Name STRING, {more}, Info")
    assert [states(s, "More")[0] for s in walk(ADS, new)] == [ABSENT, DELETE_ONLY, WRITE_ONLY, PUBLIC]
    assert tasks(ADS, new) == [[], [("column Customer.More", Work.FILL)], []]
    assert [states(s, "More")[0] for s in walk(new, ADS)] == [PUBLIC, WRITE_ONLY, DELETE_ONLY, ABSENT]
    assert tasks(new, ADS) == [[], [("column Customer.More", Work.REMOVE)], []]


def test_not_null_without_a_default_comes_after_the_column_and_goes_before_it():
    new = changed("Name STRING, Info", "Name STRING, More INT64 NOT NULL, Info")
    assert [states(s, "More", "More!") for s in walk(ADS, new)] == [
        [ABSENT, ABSENT],
        [DELETE_ONLY, ABSENT],
        [PUBLIC, ABSENT],
        [PUBLIC, WRITE_ONLY],
        [PUBLIC, PUBLIC],
    ]
    assert tasks(ADS, new)[2] == [("NOT NULL of Customer.More", Work.VALIDATE)]
    assert [states(s, "More", "More!") for s in walk(new, ADS)] == [
        [PUBLIC, PUBLIC],
        [PUBLIC, WRITE_ONLY],
        [PUBLIC, ABSENT],
        [DELETE_ONLY, ABSENT],
        [ABSENT, ABSENT],
    ]


def test_not_null_of_a_column_is_a_constraint():
    new = changed("Url TEXT", "Url TEXT NOT NULL")
    assert [states(s, "Url", "Url!") for s in walk(ADS, new)] == [[PUBLIC, s] for s in (ABSENT, WRITE_ONLY, PUBLIC)]
    assert tasks(ADS, new) == [[("NOT NULL of Click.Url", Work.VALIDATE)], []]
    assert [states(s, "Url!")[0] for s in walk(new, ADS)] == [PUBLIC, WRITE_ONLY, ABSENT]
    assert tasks(new, ADS) == [[], []]


def test_checks_and_foreign_keys_are_constraints():
    new = changed("Url TEXT)", "Url TEXT, At INT64 REFERENCES Keyword, CONSTRAINT Short CHECK (Url <> ''))")
    constraints = [states(s, "At", "Click_At_fkey", "Short") for s in walk(ADS, new)]
    assert constraints == [
        [ABSENT, ABSENT, ABSENT],
        [DELETE_ONLY, ABSENT, WRITE_ONLY],
        [DELETE_ONLY, ABSENT, WRITE_ONLY],  # the index of the foreign key becomes write-only
        [PUBLIC, ABSENT, PUBLIC],
        [PUBLIC, WRITE_ONLY, PUBLIC],
        [PUBLIC, PUBLIC, PUBLIC],
    ]
    assert tasks(ADS, new) == [
        [],
        [("index Click_At_fkey_idx", Work.FILL), ("check Short", Work.VALIDATE)],
        [],
        [("foreign key Click_At_fkey", Work.VALIDATE)],
        [],
    ]
    gone = [states(s, "At", "Click_At_fkey", "Short") for s in walk(new, ADS)]
    assert gone == [
        [PUBLIC, PUBLIC, PUBLIC],
        [PUBLIC, WRITE_ONLY, PUBLIC],
        [PUBLIC, ABSENT, PUBLIC],
        [DELETE_ONLY, ABSENT, WRITE_ONLY],
        [DELETE_ONLY, ABSENT, ABSENT],
        [ABSENT, ABSENT, ABSENT],
    ]


def test_a_lock_of_another_name_comes_and_the_other_one_goes():
    new = changed("LOCK BudgetLock (Budget)", "LOCK NewLock (Budget)")
    assert [states(s, "NewLock", "BudgetLock") for s in walk(ADS, new)] == [
        [ABSENT, PUBLIC],
        [DELETE_ONLY, WRITE_ONLY],
        [WRITE_ONLY, DELETE_ONLY],
        [PUBLIC, ABSENT],
    ]
    assert [w for step in tasks(ADS, new) for w in step] == [
        ("lock Campaign.NewLock", Work.FILL),
        ("lock coverage of Campaign.Budget", Work.PROPAGATE),
        ("lock Campaign.BudgetLock", Work.REMOVE),
    ]


def test_a_lock_that_stays_gets_and_loses_columns_by_dual_coverage():
    new = changed("LOCK BudgetLock (Budget)", "LOCK BudgetLock (Created)")
    campaign = ADS.table("Campaign")
    both = walk(ADS, new)[1].table("Campaign")
    (lock,) = both.locks
    assert (lock.id, lock.state) == (campaign.locks[0].id, PUBLIC)
    ids = {campaign.column(name).id for name in ("Budget", "Created")}
    assert set(lock.column_ids) == set(both.dual) == ids
    assert [w for step in tasks(ADS, new) for w in step] == [
        ("lock coverage of Campaign.Budget", Work.PROPAGATE),
        ("lock coverage of Campaign.Created", Work.PROPAGATE),
    ]
    assert reached(ADS, new) and reached(new, ADS)


def test_a_lock_that_stays_covers_new_columns_at_once_and_dropped_ones_to_the_end():
    wide = changed("LOCK BudgetLock (Budget)", "More INT64, LOCK BudgetLock (Budget, More)")
    more = wide.table("Campaign").column("More").id
    assert {lock.column_ids[1:] for s in walk(ADS, wide)[1:] for lock in s.table("Campaign").locks} == {(more,)}
    assert not any(t for t in tasks(ADS, wide))
    covered = [[len(lock.column_ids) for lock in s.table("Campaign").locks] for s in walk(wide, ADS)]
    assert covered == [[2], [2], [1]]


def test_a_change_that_was_cut_short_goes_on_or_back_from_where_it_is():
    new = changed("Name STRING, Info", "Name STRING, More INT64 DEFAULT 7, Info")
    for half in walk(ADS, new)[1:-1]:
        assert in_order(walk(half, new)[-1]) == in_order(new)
        assert in_order(walk(half, ADS)[-1]) == in_order(ADS)


def in_order(schema):
    """The tables with their columns by id: a new column comes last, wherever the sources have it."""
    return [replace(table, columns=tuple(sorted(table.columns, key=lambda c: c.id))) for table in schema.tables]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Url TEXT", "Url INT64", "Click.Url is STRING, would be INT64"),
        ("Url TEXT", "Url VARCHAR(10)", "Click.Url is STRING, would be VARCHAR(10)"),
        ("KeywordId INT64 PRIMARY KEY, Text STRING", "KeywordId INT64, Text STRING PRIMARY KEY", "another primary key"),
        (") INTERLEAVE IN PARENT Customer WITH", ") WITH", "Click would have another parent"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_reasons(old, new, reason):
    sql = ADWORDS
    if "another primary key" in reason:
        sql = sql.replace("KeywordId INT64 REFERENCES Keyword,", "KeywordId INT64,")
    with pytest.raises(F1Error) as caught:
        plan_steps(ADS, changed(old, new, sql))
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert reason in caught.value.message


def test_protos_may_grow():
    grown = PROTO.replace("uint64 big = 6;", "uint64 big = 6; string more = 7; Fresh fresh = 8;") + "message Fresh {}"
    new = adopt_ids(ADS, from_sources(ADWORDS, [("adwords.proto", grown)]), ids(5000))
    (step,) = plan_steps(ADS, new)
    assert step.what == ("set the .proto files: adwords.proto",)
    assert reached(ADS, new)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("uint64 big = 6;", "", "the field adwords.CustomerInfo.big = 6 is gone"),
        ("uint64 big = 6;", "uint64 large = 6;", "the field adwords.CustomerInfo.big = 6 is gone"),
        ("uint64 big = 6;", "string big = 6;", "the field adwords.CustomerInfo.big has another type"),
        ("repeated int64 ids", "int64 ids", "the field adwords.CustomerInfo.ids has another type"),
        ("{ string name = 1;", "{ bytes name = 1;", "the field adwords.Feature.name has another type"),
        (
            "uint64 big = 6;",
            "optional uint64 big = 6;",
            "adwords.CustomerInfo.big would read as NULL where it is not set",
        ),
        ("uint64 big = 6;", "oneof o { uint64 big = 6; }", "adwords.CustomerInfo.big would read as NULL where"),
        ("BUYER = 1;", "", "the value BUYER = 1 of the enum adwords.Kind is gone"),
        ("BUYER = 1;", "CLIENT = 1;", "the value BUYER = 1 of the enum adwords.Kind is gone"),
        ("UNKNOWN = 0; BUYER = 1;", "UNKNOWN = 0; BUYER = 2;", "the value BUYER = 1 of the enum adwords.Kind is gone"),
    ],
)
def test_protos_in_use_change_compatibly(old, new, reason):
    assert old in PROTO
    wanted = adopt_ids(ADS, from_sources(ADWORDS, [("adwords.proto", PROTO.replace(old, new))]), ids(5000))
    with pytest.raises(F1Error) as caught:
        plan_steps(ADS, wanted)
    assert reason in caught.value.message


ALONE = "optional int64 a = 1; optional int64 b = 2;"
TOGETHER = "oneof o { int64 a = 1; int64 b = 2; }"
OTHERS = [f"the field M.{name} would have other alternatives" for name in "ab"]


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        (ALONE, TOGETHER, OTHERS),
        (TOGETHER, ALONE, OTHERS),
        (ALONE, "oneof o { int64 a = 1; } optional int64 b = 2;", []),
        (TOGETHER, "oneof o { int64 a = 1; int64 b = 2; int64 c = 3; }", []),
    ],
)
def test_alternatives_stay_alternatives(old, new, reasons):
    """Of several that are in the bytes the last one counts, if they are alternatives."""
    before, after = (
        compile_files([("m.proto", f'syntax = "proto3"; message M {{ {fields} }}')]) for fields in (old, new)
    )
    assert incompatibilities(before, after, ["M"]) == reasons


def test_steps_apply_to_what_others_did_meanwhile():
    new = after(ADS, "CREATE INDEX i ON Customer (Name)")
    first, second, third = plan_steps(ADS, new)
    schema = advance(ADS, first)
    schema = replace(after(schema, "CREATE TABLE t (a INT)", 2000), version=schema.version + 1)
    schema = advance(advance(schema, second), third)
    assert states(schema, "i", "t") == [PUBLIC, PUBLIC]
    assert schema.version == 4
    dropped = after(advance(ADS, first), "DROP INDEX i")
    with pytest.raises(F1Error) as caught:
        advance(dropped, second)
    assert caught.value.code is Code.ABORTED


PIECES = [
    "CREATE TABLE a (id INT PRIMARY KEY, x TEXT, y INT)",
    "CREATE TABLE b (id INT, n INT, PRIMARY KEY (id, n)) INTERLEAVE IN PARENT a",
    "CREATE TABLE c (id INT, n INT, m INT, PRIMARY KEY (id, n, m)) INTERLEAVE IN PARENT b ON DELETE CASCADE",
    "CREATE TABLE d (k INT PRIMARY KEY, y INT REFERENCES a)",
    "CREATE UNIQUE INDEX a_x ON a (x)",
    "CREATE TABLE e (k TEXT PRIMARY KEY REFERENCES a (x))",
    "CREATE LOCAL INDEX b_n ON b (id, n)",
    "CREATE INDEX d_y ON d (y)",
    "CREATE VIEW v AS SELECT * FROM a",
    "CREATE TABLE f (b_id INT, b_n INT, m INT, PRIMARY KEY (b_id, b_n, m)) INTERLEAVE IN PARENT b (b_id, b_n)",
]
NEEDS = {1: {0}, 2: {0, 1}, 3: {0}, 4: {0}, 5: {0, 4}, 6: {0, 1}, 7: {0, 3}, 8: {0}, 9: {0, 1}}


def closed(chosen):
    """The statements with what they need, in order."""
    wanted = set(chosen) | {n for c in chosen for n in NEEDS.get(c, ())}
    return ";".join(PIECES[n] for n in sorted(wanted))


SUBSETS = st.sets(st.integers(0, len(PIECES) - 1)).map(closed)


@given(SUBSETS, SUBSETS)
def test_any_two_schemas_are_connected_by_right_steps(first, second):
    old = compile_sources("d", parsed(first), [], ids())
    new = adopt_ids(old, compile_sources("d", parsed(second), [], ids()), ids(500))
    schemas = walk(old, new)
    assert render_schema(schemas[-1]) == render_schema(new)
    assert {t.id for t in schemas[-1].tables} == {t.id for t in new.tables}
    assert all(s is PUBLIC for t in schemas[-1].tables for s in (t.state, *(i.state for i in t.indexes)))
    for before, now in itertools.pairwise(schemas):
        assert now.version == before.version + 1
        check_neighbours(before, now)


def check_neighbours(before: Schema, now: Schema) -> None:
    """What two servers with neighbouring versions must not do to each other."""
    old_tables, new_tables = before.by_id, now.by_id
    for table_id in old_tables.keys() | new_tables.keys():
        was, is_ = old_tables.get(table_id), new_tables.get(table_id)
        indexes_were = {i.id: i.state for i in was.indexes} if was else {}
        indexes_are = {i.id: i.state for i in is_.indexes} if is_ else {}
        if was and is_:
            for index_id in indexes_were.keys() | indexes_are.keys():
                move = abs(indexes_were.get(index_id, 0) - indexes_are.get(index_id, 0))
                assert move <= 1, "an index moves by one state"
        # A writable table is known to all that delete rows of what it relies on.
        for here, there, schema in ((was, is_, now), (is_, was, before)):
            if here is not None and here.state is PUBLIC and there is None:
                relied = {here.parent_id} | {k.referenced_table_id for k in here.foreign_keys}
                assert relied.isdisjoint(schema.by_id.keys() - {here.id})
