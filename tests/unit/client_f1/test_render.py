"""Results as text (design section 7): tables, CSV, JSON."""

import csv
import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1.shell import render
from f1common.pb import f1_pb2 as pb
from f1common.pb import types_pb2

COLUMNS = [
    pb.ColumnInfo(name="n", type="INT64"),
    pb.ColumnInfo(name="text", type="STRING"),
]


def printed(write: Callable[..., Any], columns: list[pb.ColumnInfo], *pages: list[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    write(out.write, columns, pages)
    return out.getvalue()


def test_table() -> None:
    text = printed(render.write_table, COLUMNS, [(1, "one"), (20, None)], [(300, "été 日本")])
    assert text == (" n  | text\n----+------\n  1 | one\n 20 | NULL\n 300 | été 日本\n(3 rows)\n")


def test_table_is_as_wide_as_its_first_rows() -> None:
    text = printed(render.write_table, COLUMNS, [(1, "日本"), (2, "a")])
    assert text == " n | text\n---+------\n 1 | 日本\n 2 | a\n(2 rows)\n"


def test_empty_results() -> None:
    assert printed(render.write_table, COLUMNS) == " n | text\n---+------\n(0 rows)\n"
    assert printed(render.write_csv, COLUMNS) == "n,text\n"
    assert json.loads(printed(render.write_json, COLUMNS)) == []
    assert printed(render.write_expanded, COLUMNS) == "(0 rows)\n"


def test_a_terminal_takes_no_commands_from_data() -> None:
    text = printed(render.write_table, COLUMNS, [(1, "a\nb\x1b[2J\tc")])
    assert "a\\nb\\x1b[2J\\tc" in text
    assert "\x1b" not in text


def test_expanded() -> None:
    text = printed(render.write_expanded, COLUMNS, [(1, "one"), (2, None)])
    assert text == "-[ row 1 ]---\nn    | 1\ntext | one\n-[ row 2 ]---\nn    | 2\ntext | NULL\n(2 rows)\n"


def test_csv_tells_null_from_empty_text() -> None:
    text = printed(render.write_csv, COLUMNS, [(1, None), (2, ""), (3, 'a,"b"\n'), (4, " x")])
    assert text == 'n,text\n1,\n2,""\n3,"a,""b""\n"\n4," x"\n'


@given(st.lists(st.text(alphabet='a,"\n\r x'), min_size=1, max_size=3))
def test_csv_is_read_back(texts: list[str]) -> None:
    columns = [pb.ColumnInfo(name=f"c{i}", type="STRING") for i in range(len(texts))]
    text = printed(render.write_csv, columns, [tuple(texts)])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [[f"c{i}" for i in range(len(texts))], texts]


@pytest.mark.parametrize(
    ("value", "document", "text"),
    [
        (None, None, "NULL"),
        (True, True, "true"),
        (1 << 62, 1 << 62, str(1 << 62)),
        (Decimal("12.50"), "12.50", "12.50"),
        (Decimal("1E+3"), "1000", "1000"),
        (1.5, 1.5, "1.5"),
        (float("nan"), "NaN", "NaN"),
        (float("-inf"), "-Infinity", "-Infinity"),
        (b"\x00a", "AGE=", "\\x0061"),
        (datetime.date(2024, 2, 29), "2024-02-29", "2024-02-29"),
        (
            datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.UTC),
            "2024-02-29T01:02:03.000004Z",
            "2024-02-29 01:02:03.000004+00:00",
        ),
        ([1, Decimal("2")], [1, "2"], '[1, "2"]'),
        ({"a": b"x"}, {"a": "eA=="}, '{"a": "eA=="}'),
        (types_pb2.KeyRange(start=b"a"), {"start": "YQ=="}, '{"start": "YQ=="}'),
    ],
)
def test_values(value: Any, document: Any, text: str) -> None:
    columns = [pb.ColumnInfo(name="v", type="STRING")]
    assert json.loads(printed(render.write_json, columns, [(value,)])) == [{"v": document}]
    assert render.text_of(value) == text


def test_json_is_an_array_of_objects_with_each_name_once() -> None:
    columns = [*COLUMNS, COLUMNS[0]]
    rows = json.loads(printed(render.write_json, columns, [(1, "a", 2)], [(3, "b", 4)]))
    assert rows == [{"n": 1, "text": "a", "n_2": 2}, {"n": 3, "text": "b", "n_2": 4}]
