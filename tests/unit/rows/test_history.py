"""Change history: what is recorded, where it lies, how it is read and shown."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.encoding.values import Date, Timestamp
from f1common.errors import F1Error
from f1server.catalog.schema import Kind, Schema
from f1server.history import (
    batch_from_pb,
    batch_to_pb,
    history_rows,
    history_shape,
    history_span,
    history_table,
    is_history_table,
    read_batch,
    root_of_history,
    split_batch_key,
    with_history,
)
from f1server.rows.changes import MAX_LINKS, Change, ChangeBatch, ChangeKind
from f1server.rows.coerce import coerce_column
from f1server.rows.keys import row_key
from f1server.rows.values import Row
from f1server.rows.writes import LogicalWrite, WriteKind
from tests.unit.rows.schemas import CAMPAIGN, CUSTOMER, SCHEMA, changed
from tests.unit.rows.store import Store

BARE = changed(SCHEMA, replace(CUSTOMER, checks=()))
INSERT, UPDATE, DELETE = WriteKind.INSERT, WriteKind.UPDATE, WriteKind.DELETE


def customer(number: int, kind: WriteKind = INSERT, **columns: Any) -> LogicalWrite:
    values = {CUSTOMER.column(n).id: v for n, v in columns.items()}
    return LogicalWrite(kind, "Customer", {11: number}, {15: 1, **values} if kind is INSERT else values)


def campaign(customer_id: int, number: int, kind: WriteKind = INSERT, **columns: Any) -> LogicalWrite:
    values = {CAMPAIGN.column(n).id: v for n, v in columns.items()}
    return LogicalWrite(kind, "Campaign", {21: customer_id, 22: number}, values)


def spanned(store: Store, schema: Schema, number: int, **bounds: Any) -> list[int]:
    start, end = history_span(schema, schema.table("Customer"), (number,), **bounds)
    found = [split_batch_key(schema, schema.table("Customer"), key) for key in sorted(store.data) if start <= key < end]
    return [ref.commit_ts for ref in found if ref is not None]


def test_a_transaction_leaves_a_batch_under_each_root_that_it_touches() -> None:
    store = Store()
    store.run(BARE, [customer(1, Name="a"), customer(2), campaign(1, 7, Name="x")], commit_id=b"one")
    keyword = LogicalWrite(INSERT, "Keyword", {31: 5}, {32: "t"})
    store.run(BARE, [customer(1, UPDATE, Name=None), campaign(1, 7, DELETE), keyword], commit_id=b"two")
    customer_1, customer_2 = (row_key(BARE, CUSTOMER, (i,)) for i in (1, 2))
    keyword_5 = tuples.encode((3, 5))
    batches = {(b.root_table, b.root_key, b.commit_id): b for b in store.batches(BARE)}
    assert len(batches) == 4
    first = batches["Customer", (1,), b"one"]
    assert first.commit_ts == 1010
    assert first.other_roots == (customer_2,)
    assert first.changes == (
        Change(ChangeKind.INSERT, "Customer", 1, (1,), {}, {12: "a", 15: 1}, ("Name", "Level")),
        Change(ChangeKind.INSERT, "Campaign", 2, (1, 7), {}, {23: "x"}, ("Name",)),
    )
    second = batches["Customer", (1,), b"two"]
    assert second.other_roots == (keyword_5,)
    assert second.changes == (
        Change(ChangeKind.UPDATE, "Customer", 1, (1,), {12: "a"}, {12: None}, ("Name",)),
        Change(ChangeKind.DELETE, "Campaign", 2, (1, 7), {23: "x"}, {}, ("Name",)),
    )
    assert batches["Keyword", (5,), b"two"].other_roots == (customer_1,)
    for batch in batches.values():
        assert batch_from_pb(batch_to_pb(batch)) == batch


def test_in_a_transaction_with_many_roots_the_first_batch_names_them_all() -> None:
    store = Store()
    last = MAX_LINKS + 2
    store.run(BARE, [customer(i, Name="a") for i in range(1, last + 1)])
    batches = {b.root_key[0]: b for b in store.batches(BARE)}
    keys = [row_key(BARE, CUSTOMER, (i,)) for i in range(1, last + 1)]
    assert batches[1].other_roots == tuple(keys[1:])
    assert {batches[i].other_roots for i in range(2, last + 1)} == {(keys[0],)}
    assert {b.roots for b in batches.values()} == {last}
    for batch in batches.values():
        assert batch_from_pb(batch_to_pb(batch)) == batch


def test_a_batch_holds_the_first_before_and_the_last_after() -> None:
    store = Store()
    store.run(BARE, [customer(1, Name="a")])
    store.run(
        BARE, [customer(1, UPDATE, Name="b"), customer(1, UPDATE, Name="c", Level=2), customer(1, UPDATE, Level=1)]
    )
    assert store.batches(BARE)[-1].changes == (
        Change(ChangeKind.UPDATE, "Customer", 1, (1,), {12: "a"}, {12: "c"}, ("Name",)),
    )
    store.run(BARE, [customer(1, DELETE), customer(1, Name="c", Level=4)])
    assert [(c.kind, c.before, c.after) for c in store.batches(BARE)[-1].changes] == [
        (ChangeKind.UPDATE, {15: 1}, {15: 4})
    ]
    before = len(store.batches(BARE))
    plan = store.run(BARE, [customer(9), customer(9, DELETE)])
    assert (plan.writes, plan.change_batches) == ([], [])
    # A version was written, and no value changed.
    assert len(store.run(BARE, [customer(1, UPDATE, Name="c")]).writes) == 1
    assert len(store.batches(BARE)) == before


def test_what_is_opted_out_leaves_no_trace() -> None:
    columns = tuple(replace(c, untracked=c.name == "Name") for c in CUSTOMER.columns)
    schema = changed(changed(BARE, replace(CUSTOMER, checks=(), columns=columns)), replace(CAMPAIGN, untracked=True))
    store = Store()
    store.run(schema, [customer(1, Name="a"), campaign(1, 7)])
    assert [(c.table, c.after) for b in store.batches(schema) for c in b.changes] == [("Customer", {15: 1})]
    store.run(schema, [customer(1, UPDATE, Name="b"), campaign(1, 7, UPDATE, Name="x")])
    assert len(store.batches(schema)) == 1


def test_history_outlives_its_root_and_is_read_between_timestamps() -> None:
    store = Store()
    for write in (customer(1), campaign(1, 7), customer(1, DELETE), customer(2), customer(1)):
        store.run(BARE, [write])
    times = [1010, 1020, 1030, 1050]
    assert spanned(store, BARE, 1) == times
    deleted = next(b for b in store.batches(BARE) if b.commit_ts == 1030)
    assert [(c.table, c.kind) for c in deleted.changes] == [
        ("Customer", ChangeKind.DELETE),
        ("Campaign", ChangeKind.DELETE),
    ]
    for ts in (0, 1009, 1010, 1011, 1020, 1030, 1049, 1050, 1051):
        assert spanned(store, BARE, 1, after_ts=ts) == [t for t in times if t > ts]
        assert spanned(store, BARE, 1, until_ts=ts) == [t for t in times if t <= ts]
    assert spanned(store, BARE, 3) == []


def test_a_scan_tells_batches_from_rows_by_their_shape() -> None:
    store = Store()
    store.run(BARE, [customer(1), campaign(1, 7, Name="x")])
    shape = history_shape(BARE, CUSTOMER)
    found = []
    for key, version in store.data.items():
        elements = tuples.decode(key)
        if len(elements) == shape.key_elements and tuples.encode(elements[shape.position :][:1]) == shape.element:
            found.append(read_batch(BARE, CUSTOMER, key, version.value or b""))
        else:
            assert read_batch(BARE, CUSTOMER, key, version.value or b"") is None
    assert found == store.batches(BARE)


def test_a_damaged_batch_is_reported() -> None:
    store = Store()
    store.run(BARE, [customer(1)])
    (key,) = (k for k in store.data if split_batch_key(BARE, CUSTOMER, k))
    for damaged in (encode_row({1: b"\xff"}), encode_row({}), encode_row({1: "x"}), b"\xc1"):
        with pytest.raises(F1Error, match="DATA_CORRUPTION"):
            read_batch(BARE, CUSTOMER, key, damaged)
    wrong = tuples.encode((1, 1, 1 << 41, "x", b""))
    with pytest.raises(F1Error, match="looks like a change batch's"):
        split_batch_key(BARE, CUSTOMER, wrong)


# ---------------------------------------------------------------- as SQL sees it


def test_each_root_has_a_table_of_its_history() -> None:
    schema = with_history(BARE)
    assert with_history(BARE) is schema
    table = schema.table("changehistory_customer")
    assert is_history_table(table)
    assert not any(is_history_table(t) for t in BARE.tables)
    assert root_of_history(BARE, table) == BARE.table("Customer")
    names = [c.name for c in table.visible]
    assert names == [
        *("commit_ts", "commit_id", "CustomerId", "change", "table_name", "kind", "key", "before", "after"),
    ]
    assert [c.name for c in table.key_columns] == ["CustomerId", "commit_ts", "commit_id", "change"]
    assert "changehistory_campaign" not in schema.by_name
    assert "changehistory_keyword" in schema.by_name
    assert len({c.id for c in table.columns}) == len(table.columns)
    own = replace(BARE, tables=(*BARE.tables, replace(CUSTOMER, id=9, name="ChangeHistory_Keyword")))
    assert with_history(own).table("ChangeHistory_Keyword").id == 9


def test_rows_of_the_history_table_show_keys_and_values_as_json() -> None:
    info = coerce_column(SCHEMA, CUSTOMER, CUSTOMER.column("Info"), 'country: "CH" feature: 3')
    store = Store()
    store.run(BARE, [customer(1, Name="é", Info=info, Created=Timestamp(1_500_000)), campaign(1, 7, Budget="1.5")])
    store.run(BARE, [customer(1, DELETE)])
    rows = history_rows(BARE, store.batches(BARE))
    width = len(history_table(CUSTOMER).columns)
    assert all(len(row) == width for row in rows)
    assert [row[:6] for row in rows] == [
        (Timestamp(1010), b"id", 1, 0, "Customer", "INSERT"),
        (Timestamp(1010), b"id", 1, 1, "Campaign", "INSERT"),
        (Timestamp(1020), b"id", 1, 0, "Customer", "DELETE"),
        (Timestamp(1020), b"id", 1, 1, "Campaign", "DELETE"),
    ]
    assert [json.loads(str(row[6])) for row in rows[:2]] == [{"CustomerId": 1}, {"CustomerId": 1, "CampaignId": 7}]
    after = {
        "Name": "é",
        "Info": {"country": "CH", "feature": ["3"]},
        "Created": "1970-01-01T00:00:01.500000Z",
        "Level": 1,
    }
    assert (rows[0][7], json.loads(str(rows[0][8]))) == (None, after)
    assert json.loads(str(rows[1][8])) == {"Budget": "1.5"}
    assert (json.loads(str(rows[2][7])), rows[2][8]) == (after, None)
    assert "é" in str(rows[0][8])


def test_history_of_what_has_gone_from_the_schema_is_still_shown() -> None:
    values: Row = {
        99: float("nan"),
        98: b"\x01",
        97: Date(1),
        96: Date(2**31 - 1),
        95: float("-inf"),
        94: Decimal("1E+2"),
        93: None,
    }
    change = Change(ChangeKind.UPDATE, "Gone", 77, (1, "x"), {}, values)
    (row,) = history_rows(BARE, [ChangeBatch("Customer", (1,), (change,), commit_ts=5)])
    assert json.loads(str(row[6])) == {"#1": 1, "#2": "x"}
    assert json.loads(str(row[8])) == {
        "#93": None,
        "#94": "100",
        "#95": "-Infinity",
        "#96": 2**31 - 1,
        "#97": "1970-01-02",
        "#98": "AQ==",
        "#99": "NaN",
    }
    broken = Change(ChangeKind.UPDATE, "Customer", 1, (1,), {13: b"\xff"}, {13: None})
    (row,) = history_rows(BARE, [ChangeBatch("Customer", (1,), (broken,), commit_ts=5)])
    assert json.loads(str(row[7])) == {"Info": "/w=="}
    assert CUSTOMER.column("Info").type.kind is Kind.PROTO
