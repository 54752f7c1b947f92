"""Storage keys: the examples of docs/encoding.md, and ranges of them."""

import re
from pathlib import Path
from typing import Any

import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.values import TIMESTAMP_MAX
from f1common.errors import Code, F1Error
from f1server.history import read_batch, split_batch_key
from f1server.rows.changes import ChangeBatch, batch_write
from f1server.rows.keys import (
    MAX_KEY_BYTES,
    index_key,
    index_layout,
    index_prefix,
    index_span,
    row_key,
    row_prefix,
    row_span,
    split_index_key,
    split_row_key,
    table_span,
)
from spanstore.mvcc.placeholders import fill
from spanstore.mvcc.versions import MAX_USER_KEY_BYTES
from tests.unit.rows.schemas import CAMPAIGN, CUSTOMER, KEYWORD, SCHEMA

DOCUMENT = (Path(__file__).parents[3] / "docs" / "encoding.md").read_text()
BLOCK = DOCUMENT.split("<!-- row key examples -->\n\n")[1].partition("\n\n")[0]
EXAMPLES = [match.groups() for match in re.finditer(r"^\| `([a-z].*?)` \| `(.*)` \|$", BLOCK, re.MULTILINE)]


def row(name: str, *values: Any) -> bytes:
    return row_key(SCHEMA, SCHEMA.table(name), values)


def entry(name: str, *key_values: Any, **columns: Any) -> bytes:
    table = next(t for t in SCHEMA.tables if any(i.name == name for i in t.indexes))
    cells = dict(zip(table.key_column_ids, key_values, strict=True))
    cells |= {table.column(column).id: value for column, value in columns.items()}
    (key,) = index_key(SCHEMA, table, table.index(name), cells, key_values)
    return key


def batch(name: str, *root: Any, ts: int, id: bytes) -> bytes:
    table = SCHEMA.table(name)
    write = batch_write(row(name, *root), ChangeBatch(name, root, (), commit_id=id))
    key, value = fill(write.key, write.key_offset, write.value, write.value_offsets, ts)
    found = split_batch_key(SCHEMA, table, key)
    assert found is not None
    assert (found.root_key, found.commit_ts, found.commit_id) == (root, ts, id)
    assert read_batch(SCHEMA, table, key, value or b"") == ChangeBatch(name, root, (), (), ts, id)
    return key


def test_the_examples_were_found() -> None:
    assert len(EXAMPLES) == 8


@pytest.mark.parametrize(("text", "code"), EXAMPLES)
def test_a_key_has_the_bytes_that_the_document_says(text: str, code: str) -> None:
    names = {"row": row, "entry": entry, "batch": batch}
    key: bytes = eval(text, names)
    assert key.hex(" ") == code
    if text.startswith("row"):
        table, values = split_row_key(SCHEMA, key) or (None, ())
        assert table is not None
        assert text == f'row("{table.name}", {", ".join(map(str, values))})'
    else:
        assert split_row_key(SCHEMA, key) is None


def test_the_longest_key_is_what_the_storage_tier_takes() -> None:
    assert MAX_KEY_BYTES == MAX_USER_KEY_BYTES


def test_keys_of_unknown_tables_and_of_parts_of_rows_are_no_rows() -> None:
    for elements in [(9, 1), (1,), (1, 5, 2), (1, 5, 9, 1), (1, 5, "x"), ("x",), (2, 1, 1), ()]:
        assert split_row_key(SCHEMA, tuples.encode(elements)) is None
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        split_row_key(SCHEMA, b"\x19\xff")


def test_a_prefix_holds_the_rows_that_begin_with_the_values() -> None:
    assert row_prefix(SCHEMA, CAMPAIGN, ()) == tuples.encode((1,))
    assert row_prefix(SCHEMA, CAMPAIGN, (7,)) == tuples.encode((1, 7, 2))
    assert row_prefix(SCHEMA, CAMPAIGN, (7, 8)) == row("Campaign", 7, 8)
    assert row_prefix(SCHEMA, CUSTOMER, (7,)) == row("Customer", 7)
    with pytest.raises(F1Error, match="has 1 values, not 2"):
        row_prefix(SCHEMA, CUSTOMER, (1, 2))
    with pytest.raises(F1Error, match="has 2 values, not 1"):
        row_key(SCHEMA, CAMPAIGN, (1,))


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [
        ((), (), [(0, 0), (0, 255), (3, 9), (255, 255)]),
        ((0, 255), (), [(0, 255), (3, 9), (255, 255)]),
        ((3,), (255,), [(3, 9)]),
        ((0, 255), (255, 255), [(0, 255), (3, 9)]),
    ],
)
def test_a_range_of_encoded_keys_becomes_one_of_storage_keys(start: Any, end: Any, inside: list[Any]) -> None:
    rows = [(0, 0), (0, 255), (3, 9), (255, 255)]
    low, high = row_span(SCHEMA, CAMPAIGN, tuples.encode(start), tuples.encode(end))
    assert [values for values in rows if low <= row("Campaign", *values) < high] == inside


@pytest.mark.parametrize("stem", [(), (0,), (255,), (0, 255), (255, 255)])
def test_a_range_that_ends_after_a_prefix_holds_all_that_begins_with_it(stem: Any) -> None:
    rows = [(0, 0), (0, 255), (3, 9), (255, 255), (255, 256)]
    end = tuples.successor(tuples.encode(stem))
    low, high = row_span(SCHEMA, CAMPAIGN, b"", end)
    inside = [values for values in rows if low <= row("Campaign", *values) < high]
    assert inside == [values for values in rows if tuples.encode(values) < end]
    low, high = row_span(SCHEMA, CAMPAIGN, end, b"")
    assert [values for values in rows if low <= row("Campaign", *values) < high] == rows[len(inside) :]


def test_a_border_that_is_no_tuple_is_refused() -> None:
    with pytest.raises(F1Error, match="INVALID_ARGUMENT: a range of keys of Campaign"):
        row_span(SCHEMA, CAMPAIGN, b"\x00", b"")
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        row_span(SCHEMA, CAMPAIGN, b"", b"\x00\xff")


def test_entries_are_found_by_prefix_and_split_again() -> None:
    index = CAMPAIGN.index("CampaignByName")
    key = entry("CampaignByName", 1, 7, Name="x")
    value = index_layout(SCHEMA, CAMPAIGN, index).value({23: "x", 24: 5}, (1, 7))
    assert split_index_key(SCHEMA, CAMPAIGN, index, key, value) == ((1, "x"), (1, 7))
    for values in [(), (1,), (1, "x"), (1, "x", 7)]:
        assert key.startswith(index_prefix(SCHEMA, CAMPAIGN, index, values))
    assert not key.startswith(index_prefix(SCHEMA, CAMPAIGN, index, (1, "y")))
    by_text = KEYWORD.index("KeywordByText")
    for text in ("x", None):
        key = entry("KeywordByText", 5, Text=text)
        value = index_layout(SCHEMA, KEYWORD, by_text).value({32: text}, (5,))
        assert split_index_key(SCHEMA, KEYWORD, by_text, key, value) == ((text,), (5,))
    with pytest.raises(F1Error, match="DATA_CORRUPTION"):
        split_index_key(SCHEMA, KEYWORD, by_text, key, b"\x80")
    with pytest.raises(F1Error, match="is no entry of index KeywordByBid"):
        split_index_key(SCHEMA, KEYWORD, KEYWORD.index("KeywordByBid"), key, value)


def test_a_range_of_index_values_becomes_one_of_storage_keys() -> None:
    index = KEYWORD.index("KeywordByBid")
    bids = [None, -1, 0, 255, 256]
    keys = {bid: entry("KeywordByBid", 5, Bid=bid) for bid in bids}
    low, high = index_span(SCHEMA, KEYWORD, index, tuples.encode((0,)), tuples.successor(tuples.encode((255,))))
    assert [bid for bid in bids if low <= keys[bid] < high] == [0, 255]
    low, high = index_span(SCHEMA, KEYWORD, index, b"", b"")
    assert [bid for bid in bids if low <= keys[bid] < high] == bids
    assert not low <= entry("KeywordByText", 5, Text="x") < high
    low, high = index_span(SCHEMA, KEYWORD, index, tuples.encode((0,)), tuples.encode((256,)))
    assert [bid for bid in bids if low <= keys[bid] < high] == [0, 255]


def test_the_span_of_a_table_holds_its_hierarchy_and_no_other() -> None:
    low, high = table_span(SCHEMA, CAMPAIGN)
    for key in (row("Customer", 1), row("Campaign", 1, 1), batch("Customer", 1, ts=TIMESTAMP_MAX, id=b"")):
        assert low <= key < high
    for key in (row("Keyword", 1), entry("KeywordByBid", 1, Bid=1)):
        assert not low <= key < high


def test_a_key_that_is_too_long_is_refused_with_its_table() -> None:
    index = CAMPAIGN.index("CampaignByName")
    with pytest.raises(F1Error, match="an entry of index CampaignByName of Campaign") as raised:
        index_key(SCHEMA, CAMPAIGN, index, {23: "x" * 500}, (1, 1))
    assert raised.value.code is Code.KEY_TOO_LONG
