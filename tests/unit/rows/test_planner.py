"""What the write planner asks for, says and refuses, one rule at a time."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from f1common.encoding.row import decode_row
from f1common.encoding.values import Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ElementState, ForeignKey, Index, Kind, Table
from f1server.rows.images import prepare
from f1server.rows.keys import row_key
from f1server.rows.planner import WritePlanner
from f1server.rows.rowcodec import decode_row_value, encode_row_value
from f1server.rows.values import Row
from f1server.rows.writes import LogicalWrite, WriteKind
from spanstore.client import Version
from tests.unit.rows.schemas import CAMPAIGN, CUSTOMER, KEYWORD, SCHEMA, changed, kind, parts, with_index
from tests.unit.rows.store import Store

INSERT, UPDATE, DELETE, UPSERT = WriteKind.INSERT, WriteKind.UPDATE, WriteKind.DELETE, WriteKind.UPSERT


def write(what: WriteKind, table: str, *key: Any, must_exist: bool = False, **columns: Any) -> LogicalWrite:
    found = SCHEMA.table(table)
    return LogicalWrite(
        what,
        table,
        dict(zip(found.key_column_ids, key, strict=True)),
        {found.column(name).id: value for name, value in columns.items()},
        must_exist=must_exist,
    )


def customer(number: int, **columns: Any) -> LogicalWrite:
    return write(INSERT, "Customer", number, **{"Level": 1, **columns})


def all_good(table: Table, rows: list[Row]) -> list[tuple[int, str]]:
    return [(i, "PositiveLevel") for i, row in enumerate(rows) if (row[15] or 0) <= 0]  # type: ignore[operator]


def run(store: Store, *writes: LogicalWrite, schema: Any = SCHEMA) -> Any:
    return store.run(schema, writes, all_good)


def refused(store: Store, code: Code, text: str, *writes: LogicalWrite, schema: Any = SCHEMA) -> F1Error:
    before = dict(store.data)
    with pytest.raises(F1Error) as raised:
        run(store, *writes, schema=schema)
    assert raised.value.code is code
    assert text in raised.value.message
    assert store.data == before
    return raised.value


@pytest.fixture
def store() -> Store:
    return Store()


# ---------------------------------------------------------------- rounds of reads


def test_an_insert_needs_one_round(store: Store) -> None:
    run(store, customer(1), write(INSERT, "Campaign", 1, 7, Name="x"))
    assert len(store.rounds) == 1
    run(store, write(INSERT, "Keyword", 5, Text="x", CustomerId=1))
    (needs,) = store.rounds
    assert needs.rows == {row_key(SCHEMA, KEYWORD, (5,))}
    assert needs.shared_rows == {row_key(SCHEMA, CUSTOMER, (1,))}
    assert len(needs.unique) == 1
    assert not needs.ranges


def test_an_update_of_plain_columns_needs_its_row_only(store: Store) -> None:
    run(store, customer(1))
    run(store, write(UPDATE, "Customer", 1, Name="x"))
    (needs,) = store.rounds
    assert needs.rows == {row_key(SCHEMA, CUSTOMER, (1,))}
    assert not (needs.shared_rows or needs.unique or needs.ranges)


def test_a_range_is_asked_for_with_as_few_rows_as_decide(store: Store) -> None:
    strict = changed(SCHEMA, replace(CAMPAIGN, cascade=False))
    run(store, customer(1), *(write(INSERT, "Campaign", 1, i) for i in range(9)))
    refused(store, Code.FAILED_PRECONDITION, "rows of Campaign", write(DELETE, "Customer", 1), schema=strict)
    assert list(store.rounds[-1].limits.values()) == [1]
    deletes = [write(DELETE, "Campaign", 1, i) for i in range(8)]
    refused(store, Code.FAILED_PRECONDITION, "below it", *deletes, write(DELETE, "Customer", 1), schema=strict)
    assert list(store.rounds[-1].limits.values()) == [9]
    run(store, *deletes, write(DELETE, "Campaign", 1, 8), write(DELETE, "Customer", 1), schema=strict)
    assert store.rows(SCHEMA)["Campaign"] == {}


def test_a_planner_without_its_rows_refuses_to_plan() -> None:
    planner = WritePlanner(SCHEMA, [customer(1)])
    with pytest.raises(F1Error, match="before it was given"):
        planner.plan(b"id")
    with pytest.raises(F1Error, match="before it was given the rows"):
        planner.images()


def test_a_deleted_version_is_no_row() -> None:
    planner = WritePlanner(SCHEMA, [write(INSERT, "Campaign", 1, 7)])
    needs = planner.needs()
    planner.give({key: Version(5, None) for key in needs.rows})
    planner.give({key: Version(5, None) for key in needs.shared_rows})
    with pytest.raises(F1Error, match="Customer has no row with"):
        planner.plan(b"id")


def test_images_are_what_the_transaction_itself_sees(store: Store) -> None:
    run(store, customer(1), write(INSERT, "Campaign", 1, 7))
    planner = WritePlanner(SCHEMA, [write(DELETE, "Customer", 1), customer(2, Name="new")])
    store.read(planner.needs(), planner)
    seen = {image.key: image.now for image in planner.images().all()}
    assert seen[row_key(SCHEMA, CUSTOMER, (1,))] is None
    assert seen[row_key(SCHEMA, CAMPAIGN, (1, 7))] is None
    assert (seen[row_key(SCHEMA, CUSTOMER, (2,))] or {})[12] == "new"


# ---------------------------------------------------------------- errors


def test_errors_name_table_columns_and_key(store: Store) -> None:
    run(store, customer(1), write(INSERT, "Keyword", 5, Text="x", CustomerId=1))
    error = refused(store, Code.ALREADY_EXISTS, "table Customer has a row with (CustomerId) = (1) already", customer(1))
    assert dict(error.details) == {"table": "Customer", "key": "(CustomerId) = (1)"}
    error = refused(
        store,
        Code.ALREADY_EXISTS,
        "table Keyword has a row with (Text) = ('x') already, and index KeywordByText is unique",
        write(INSERT, "Keyword", 6, Text="x"),
    )
    assert error.details["index"] == "KeywordByText"
    refused(
        store,
        Code.NOT_FOUND,
        "table Campaign has no row with (CustomerId, CampaignId) = (1, 2)",
        write(UPDATE, "Campaign", 1, 2, Name="x", must_exist=True),
    )
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "a row of Campaign needs its parent: Customer has no row with (CustomerId) = (9); insert that first",
        write(INSERT, "Campaign", 9, 1),
    )
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "foreign key KeywordCustomer of Keyword: Customer has no row for (CustomerId) = (9)",
        write(INSERT, "Keyword", 6, CustomerId=9),
    )
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "rows of Keyword still reference Customer (CustomerId) = (1) (foreign key KeywordCustomer)",
        write(DELETE, "Customer", 1),
    )
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "the row of Customer with (CustomerId) = (1) violates check PositiveLevel",
        write(UPDATE, "Customer", 1, Level=0),
    )
    refused(
        store,
        Code.INVALID_ARGUMENT,
        "column Customer.Level is NOT NULL and needs a value",
        write(UPDATE, "Customer", 1, Level=None),
    )
    refused(store, Code.INVALID_ARGUMENT, "column Customer.Level is NOT NULL", write(INSERT, "Customer", 2))
    refused(store, Code.INVALID_ARGUMENT, "Customer.CustomerId is NOT NULL", write(INSERT, "Customer", None, Level=1))
    refused(store, Code.INVALID_ARGUMENT, "Campaign.Budget: 'x'", write(INSERT, "Campaign", 1, 1, Budget="x"))
    refused(store, Code.OUT_OF_RANGE, "Campaign.Budget", write(INSERT, "Campaign", 1, 1, Budget=10**9))
    refused(store, Code.OUT_OF_RANGE, "Customer.Name", customer(3, Name="x" * 21))


def test_names_that_are_gone_are_not_found(store: Store) -> None:
    refused(store, Code.NOT_FOUND, "no table Custom", LogicalWrite(INSERT, "Custom", {}))
    refused(store, Code.NOT_FOUND, "the schema has changed", LogicalWrite(INSERT, "Customer", {11: 1}, {99: 1}))
    columns = tuple(replace(c, state=ElementState.DELETE_ONLY) if c.id == 12 else c for c in CUSTOMER.columns)
    leaving = changed(SCHEMA, replace(CUSTOMER, columns=columns))
    refused(store, Code.NOT_FOUND, "column Customer.Name is not there", customer(1, Name="x"), schema=leaving)
    gone = changed(SCHEMA, replace(CUSTOMER, state=ElementState.DELETE_ONLY))
    refused(store, Code.NOT_FOUND, "no table Customer", customer(1), schema=gone)


def test_a_long_key_is_refused_before_anything_is_read() -> None:
    table = Table(4, "T", 0, (Column(42, "K", kind(Kind.STRING)),), key_column_ids=(42,))
    schema = replace(SCHEMA, tables=(*SCHEMA.tables, table))
    with pytest.raises(F1Error, match="KEY_TOO_LONG: the key of a row of T has 503 bytes, at most 491 fit"):
        WritePlanner(schema, [LogicalWrite(INSERT, "T", {42: "x" * 500})])
    # The row's key fits, that of its change does not.
    with pytest.raises(F1Error, match="KEY_TOO_LONG: the key of a change of T, the transaction's id included, has"):
        Store().run(schema, [LogicalWrite(INSERT, "T", {42: "x" * 480})])


def test_whether_a_change_fits_does_not_depend_on_the_id_that_was_drawn() -> None:
    """A zero byte takes two in a key, most others one."""
    table = Table(4, "T", 0, (Column(42, "K", kind(Kind.STRING)),), key_column_ids=(42,))
    schema = replace(SCHEMA, tables=(*SCHEMA.tables, table))

    def fits(size: int, unique: bytes) -> bool:
        planner = WritePlanner(schema, [LogicalWrite(INSERT, "T", {42: "x" * size})])
        planner.give(dict.fromkeys(planner.needs().rows))
        try:
            return bool(planner.plan(unique).writes)
        except F1Error as error:
            assert error.code is Code.KEY_TOO_LONG
            return False

    fitting = {unique: [size for size in range(400, 488) if fits(size, unique)] for unique in (bytes(16), b"x" * 16)}
    assert fitting[bytes(16)] == fitting[b"x" * 16]
    assert 30 < len(fitting[bytes(16)]) < 60


def test_inserts_are_refused_as_soon_as_their_sum_is_too_large() -> None:
    sizes: list[int] = []

    def told(size: int) -> None:
        sizes.append(size)
        if size > 500:
            raise F1Error(Code.OUT_OF_RANGE, "too large")

    rows = [customer(number, Name="x" * 20) for number in range(1_000)]
    with pytest.raises(F1Error, match="too large"):
        WritePlanner(SCHEMA, rows, new_rows=told)
    key = row_key(SCHEMA, CUSTOMER, (0,))
    assert sizes[0] == len(key) + 20 < len(key) + len(encode_row_value(CUSTOMER, {12: "x" * 20, 15: 1}))
    assert 500 < sizes[-1] < 550


def test_what_may_become_less_is_not_refused_before_it_is_planned() -> None:
    def told(size: int) -> None:
        raise F1Error(Code.OUT_OF_RANGE, "too large")

    WritePlanner(SCHEMA, [customer(1, Name="x" * 20), write(DELETE, "Customer", 1)], new_rows=told)
    WritePlanner(SCHEMA, [write(UPSERT, "Customer", 1, Level=1, Name="x" * 20)] * 2, new_rows=told)


# ---------------------------------------------------------------- what writes do


def test_effects_are_the_images_at_the_time_of_each_write(store: Store) -> None:
    plan = run(
        store,
        customer(1, Name="a"),
        write(UPDATE, "Customer", 1, Name="b"),
        write(UPSERT, "Customer", 1, Name="c", Level=1),
        write(DELETE, "Customer", 1),
        write(DELETE, "Customer", 1),
        write(UPSERT, "Customer", 1, Name="d", Level=1),
    )
    names = [tuple(row and row[12] for row in (effect.before, effect.after)) for effect in plan.effects]
    assert names == [(None, "a"), ("a", "b"), ("b", "c"), ("c", None), (None, None), (None, "d")]
    assert plan.rows_affected == 5
    assert [w.key for w in plan.writes] == sorted(w.key for w in plan.writes)


def test_an_upsert_takes_its_defaults_only_when_it_inserts(store: Store) -> None:
    upsert = structs.replace(write(UPSERT, "Customer", 1, Name="a"), defaults={15: 3, 14: Timestamp(7)})
    run(store, upsert)
    assert store.rows(SCHEMA)["Customer"][1,][15] == 3
    run(store, write(UPDATE, "Customer", 1, Level=9))
    run(store, structs.replace(upsert, columns={12: "b"}))
    row = store.rows(SCHEMA)["Customer"][1,]
    assert (row[12], row[15], row[14]) == ("b", 9, Timestamp(7))
    refused(store, Code.INVALID_ARGUMENT, "Level is NOT NULL", write(UPSERT, "Customer", 2, Name="x"))


def test_a_key_is_changed_by_moving_the_row_and_not_over_another_or_away_from_children(store: Store) -> None:
    run(store, customer(1, Name="a"), customer(2))
    run(store, write(UPDATE, "Customer", 1, CustomerId=3, Level=5))
    assert {key: row[15] for key, row in store.rows(SCHEMA)["Customer"].items()} == {(2,): 1, (3,): 5}
    assert store.rows(SCHEMA)["Customer"][3,][12] == "a"
    refused(store, Code.ALREADY_EXISTS, "(CustomerId) = (2)", write(UPDATE, "Customer", 3, CustomerId=2))
    run(store, write(INSERT, "Campaign", 3, 1))
    refused(store, Code.FAILED_PRECONDITION, "rows of Campaign below", write(UPDATE, "Customer", 3, CustomerId=4))
    run(store, write(UPDATE, "Customer", 3, CustomerId=3, Level=6))
    assert store.rows(SCHEMA)["Customer"][3,][15] == 6


def test_cells_that_the_schema_does_not_know_survive_an_update_and_no_deletion(store: Store) -> None:
    columns = (*CUSTOMER.columns, Column(19, "Later", kind(Kind.STRING)))
    later = changed(SCHEMA, replace(CUSTOMER, columns=columns))
    store.run(later, [LogicalWrite(INSERT, "Customer", {11: 1}, {15: 1, 19: "kept"})], all_good)
    run(store, write(UPDATE, "Customer", 1, Name="x"))
    assert store.rows(later)["Customer"][1,][19] == "kept"
    run(store, write(DELETE, "Customer", 1), customer(1))
    assert store.rows(later)["Customer"][1,][19] is None


def test_values_are_as_their_column_says(store: Store) -> None:
    run(store, customer(1), write(INSERT, "Campaign", 1, 7, Budget=Decimal("1.005")))
    assert str(store.rows(SCHEMA)["Campaign"][1, 7][24]) == "1.01"


def test_a_row_value_holds_neither_key_nor_null() -> None:
    row: Row = {11: 1, 12: None, 13: None, 14: None, 15: 3}
    data = encode_row_value(CUSTOMER, row)
    assert decode_row(data) == {15: 3}
    assert decode_row_value(CUSTOMER, (1,), data) == row
    assert prepare(SCHEMA, customer(1)).key == row_key(SCHEMA, CUSTOMER, (1,))


def test_a_wrong_unique_index_of_a_foreign_key_is_a_clear_error(store: Store) -> None:
    foreign = ForeignKey(52, "ByName", (32,), 1, (12,))
    schema = changed(SCHEMA, replace(KEYWORD, foreign_keys=(foreign,)))
    refused(
        store, Code.FAILED_PRECONDITION, "lost the unique index", write(INSERT, "Keyword", 1, Text="x"), schema=schema
    )
    schema = with_index(schema, "Customer", Index(13, "ByName", parts(12), unique=True))
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "has no row for (Text) = ('x')",
        write(INSERT, "Keyword", 1, Text="x"),
        schema=schema,
    )
    run(store, customer(1, Name="x"), write(INSERT, "Keyword", 1, Text="x"), schema=schema)
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "still reference Customer (Name) = ('x')",
        write(UPDATE, "Customer", 1, Name="y"),
        schema=schema,
    )
    run(store, write(UPDATE, "Customer", 1, Name="y"), customer(2, Name="x"), schema=schema)


def test_own_writes_count_for_foreign_keys_in_both_directions(store: Store) -> None:
    by_customer = Index(14, "KeywordByCustomer", parts(34))
    schema = with_index(SCHEMA, "Keyword", by_customer)
    keywords = [write(INSERT, "Keyword", i, Text=f"{i}", CustomerId=1) for i in range(4)]
    run(store, *keywords, customer(1), customer(2), schema=schema)
    move = [write(UPDATE, "Keyword", i, CustomerId=2) for i in range(3)]
    gone = write(DELETE, "Customer", 1)
    refused(store, Code.FAILED_PRECONDITION, "still reference", gone, *move, schema=schema)
    assert list(store.rounds[-1].limits.values()) == [4]
    new = write(INSERT, "Keyword", 9, CustomerId=1)
    rest = write(DELETE, "Keyword", 3)
    refused(store, Code.FAILED_PRECONDITION, "Customer has no row for", gone, *move, rest, new, schema=schema)
    run(store, gone, *move, rest, schema=schema)
    # Without an index the whole table is looked through.
    refused(store, Code.FAILED_PRECONDITION, "still reference", write(DELETE, "Customer", 2))
    assert not store.rounds[-1].limits
    run(store, write(DELETE, "Customer", 2), *(write(UPDATE, "Keyword", i, CustomerId=None) for i in range(3)))


def test_a_reference_to_a_value_that_the_transaction_takes_away_is_refused(store: Store) -> None:
    foreign = ForeignKey(52, "ByName", (32,), 1, (12,))
    schema = changed(SCHEMA, replace(KEYWORD, foreign_keys=(foreign,)))
    schema = with_index(schema, "Customer", Index(13, "ByName", parts(12), unique=True))
    run(store, customer(1, Name="x"), schema=schema)
    rename, refer = write(UPDATE, "Customer", 1, Name="y"), write(INSERT, "Keyword", 1, Text="x")
    refused(store, Code.FAILED_PRECONDITION, "has no row for (Text) = ('x')", rename, refer, schema=schema)
    run(store, rename, write(INSERT, "Keyword", 1, Text="y"), schema=schema)


def test_a_unique_index_sees_all_rows_of_the_transaction(store: Store) -> None:
    pair = [write(INSERT, "Keyword", i, Text="x") for i in (1, 2)]
    refused(store, Code.ALREADY_EXISTS, "(Text) = ('x')", *pair)
    run(store, pair[0], write(INSERT, "Keyword", 2, Text="y"), write(INSERT, "Keyword", 3), write(INSERT, "Keyword", 4))
    # The order does not matter: the values are exchanged.
    run(store, write(UPDATE, "Keyword", 1, Text="y"), write(UPDATE, "Keyword", 2, Text="x"))
    assert {key: row[32] for key, row in store.rows(SCHEMA)["Keyword"].items()} == {
        (1,): "y",
        (2,): "x",
        (3,): None,
        (4,): None,
    }
    refused(store, Code.ALREADY_EXISTS, "(Text) = ('x')", write(UPDATE, "Keyword", 3, Text="x"))
    refused(
        store,
        Code.ALREADY_EXISTS,
        "(Text) = ('x')",
        write(UPDATE, "Keyword", 2, Bid=7),
        write(UPDATE, "Keyword", 3, Text="x"),
    )
    refused(
        store,
        Code.ALREADY_EXISTS,
        "(Text) = ('x')",
        write(UPDATE, "Keyword", 2, Text="x"),
        write(UPDATE, "Keyword", 3, Text="x"),
    )


def test_a_cascade_stops_at_a_table_that_does_not_cascade(store: Store) -> None:
    columns = tuple(
        Column(61 + i, name, kind(Kind.INT64)) for i, name in enumerate(("CustomerId", "CampaignId", "AdId"))
    )
    ad = Table(6, "Ad", 2, columns, key_column_ids=(61, 62, 63))
    schema = replace(SCHEMA, tables=(*SCHEMA.tables, ad))
    run(store, customer(1), write(INSERT, "Campaign", 1, 7), schema=schema)
    an_ad = LogicalWrite(INSERT, "Ad", {61: 1, 62: 7, 63: 3})
    run(store, an_ad, schema=schema)
    gone = write(DELETE, "Customer", 1)
    refused(
        store,
        Code.FAILED_PRECONDITION,
        "Campaign with (CustomerId, CampaignId) = (1, 7) has rows of Ad",
        gone,
        schema=schema,
    )
    run(store, structs.replace(an_ad, kind=DELETE), gone, schema=schema)
    assert not any(store.rows(schema).values())
    cascading = changed(schema, replace(ad, cascade=True))
    run(store, customer(1), write(INSERT, "Campaign", 1, 7), an_ad, schema=cascading)
    plan = run(store, gone, schema=cascading)
    assert [change.table for change in plan.change_batches[0].changes] == ["Customer", "Campaign", "Ad"]
    assert not any(store.rows(schema).values())


def test_rows_of_a_dropped_table_neither_block_nor_hide_what_does(store: Store) -> None:
    columns = tuple(
        Column(61 + i, name, kind(Kind.INT64)) for i, name in enumerate(("CustomerId", "CampaignId", "AdId"))
    )
    before = changed(SCHEMA, replace(CAMPAIGN, cascade=False))
    with_ads = replace(before, tables=(*before.tables, Table(6, "Ad", 2, columns, key_column_ids=(61, 62, 63))))
    run(store, customer(1), *(write(INSERT, "Campaign", 1, i) for i in (1, 2)), schema=with_ads)
    run(store, *(LogicalWrite(INSERT, "Ad", {61: 1, 62: 1, 63: i}) for i in range(5)), schema=with_ads)
    first, second = (write(DELETE, "Campaign", 1, i) for i in (1, 2))
    gone = write(DELETE, "Customer", 1)
    # The table is dropped, its rows are still there.
    refused(store, Code.FAILED_PRECONDITION, "rows of Campaign", first, gone, schema=before)
    assert [list(needs.limits.values()) for needs in store.rounds[1:]] == [[2], []]
    run(store, first, schema=before)
    refused(store, Code.FAILED_PRECONDITION, "rows of Campaign", gone, schema=before)
    run(store, second, gone, schema=before)
    assert not any(store.rows(before).values())


def test_hidden_keys_are_not_shown(store: Store) -> None:
    table = Table(4, "T", 0, (Column(42, "_id", kind(Kind.INT64), hidden=True),), key_column_ids=(42,))
    schema = replace(SCHEMA, tables=(*SCHEMA.tables, table))
    store.run(schema, [LogicalWrite(INSERT, "T", {42: 5})])
    with pytest.raises(F1Error, match="table T has a row with a generated key already"):
        store.run(schema, [LogicalWrite(INSERT, "T", {42: 5})])
