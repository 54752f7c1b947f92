"""Defaults and generated keys."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from f1common.encoding.values import Timestamp
from f1common.errors import F1Error
from f1server.catalog.schema import Column, ElementState, Kind, Schema, Table
from f1server.rows.defaults import fill_defaults, literal_value
from f1server.rows.images import prepare
from f1server.rows.planner import WritePlanner
from f1server.rows.values import Value
from f1server.rows.writes import LogicalWrite, WriteKind
from f1server.wire import write_to_pb, writes_from_pb
from tests.unit.rows.schemas import CUSTOMER, SCHEMA, changed, kind

INSERT, UPDATE, UPSERT = WriteKind.INSERT, WriteKind.UPDATE, WriteKind.UPSERT


class Evaluator:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, expressions: Sequence[str]) -> list[Value]:
        self.asked.append(list(expressions))
        return [Timestamp(100 + i) for i in range(len(expressions))]


def fill(writes: list[LogicalWrite], schema: Schema = SCHEMA, evaluate: Any = None) -> list[LogicalWrite]:
    return fill_defaults(schema, writes, evaluate=evaluate or Evaluator(), new_id=lambda: bytes(range(16)))


def test_an_insert_gets_what_it_leaves_out_and_expressions_are_evaluated_together() -> None:
    evaluate = Evaluator()
    writes = [
        LogicalWrite(INSERT, "Customer", {11: 1}),
        LogicalWrite(INSERT, "customer", {11: 2}, {14: None, 15: 7}),
        LogicalWrite(INSERT, "Customer", {11: 3}),
        LogicalWrite(UPDATE, "Customer", {11: 3}),
        LogicalWrite(WriteKind.DELETE, "Customer", {11: 3}),
    ]
    filled = fill(writes, evaluate=evaluate)
    assert [w.columns for w in filled] == [
        {15: 1, 14: Timestamp(100)},
        {14: None, 15: 7},
        {15: 1, 14: Timestamp(101)},
        {},
        {},
    ]
    assert evaluate.asked == [["now()", "now()"]]
    assert fill(filled, evaluate=evaluate) == filled
    assert len(evaluate.asked) == 1


def test_an_upsert_keeps_its_defaults_apart() -> None:
    (write,) = fill([LogicalWrite(UPSERT, "Customer", {11: 1}, {12: "x"})])
    assert (write.columns, write.defaults) == ({12: "x"}, {15: 1, 14: Timestamp(100)})
    assert fill([write]) == [write]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("INT64", 0x0001020304050607 >> 1), ("BYTES", bytes(range(16))), ("STRING", bytes(range(16)).hex())],
)
def test_a_hidden_key_is_generated(name: str, expected: Value) -> None:
    table = Table(4, "T", 0, (Column(42, "_id", kind(Kind(name)), hidden=True),), key_column_ids=(42,))
    schema = replace(SCHEMA, tables=(*SCHEMA.tables, table))
    (write,) = fill([LogicalWrite(INSERT, "T", {})], schema)
    assert write.key == {42: expected}
    assert fill([write], schema) == [write]
    assert WritePlanner(schema, [write]).needs().rows


def test_a_key_column_may_have_a_default() -> None:
    columns = (replace(CUSTOMER.columns[0], default_sql="9"), *CUSTOMER.columns[1:])
    (write,) = fill(
        [LogicalWrite(INSERT, "Customer", {}, {14: None})], changed(SCHEMA, replace(CUSTOMER, columns=columns))
    )
    assert (write.key, write.columns) == ({11: 9}, {14: None, 15: 1})


def test_a_column_that_nobody_may_write_gets_no_default() -> None:
    for state, expected in (
        (ElementState.DELETE_ONLY, {15: 1}),
        (ElementState.WRITE_ONLY, {15: 1, 14: Timestamp(100)}),
    ):
        columns = tuple(replace(c, state=state) if c.id == 14 else c for c in CUSTOMER.columns)
        (write,) = fill(
            [LogicalWrite(INSERT, "Customer", {11: 1})], changed(SCHEMA, replace(CUSTOMER, columns=columns))
        )
        assert write.columns == expected


@pytest.mark.parametrize("verb", [INSERT, UPSERT])
@pytest.mark.parametrize("state", [ElementState.DELETE_ONLY, None])
def test_a_default_of_a_column_that_is_dropped_before_the_commit_is_left_out(
    verb: WriteKind, state: ElementState | None
) -> None:
    (write,) = fill([LogicalWrite(verb, "Customer", {11: 1}, {14: None})])
    dropping = tuple(replace(c, state=state) if c.id == 15 and state else c for c in CUSTOMER.columns)
    columns = tuple(c for c in dropping if state or c.id != 15)
    schema = changed(SCHEMA, replace(CUSTOMER, columns=columns))
    (sent,) = writes_from_pb([write_to_pb(write)])
    prepared = prepare(schema, sent)
    assert 15 not in {**prepared.defaults, **prepared.columns}
    with pytest.raises(F1Error, match="NOT_FOUND"):  # a value that was given is not lost silently
        prepare(schema, LogicalWrite(verb, "Customer", {11: 1}, {15: 7}))


def test_a_default_that_is_no_value_of_its_column_names_it() -> None:
    columns = tuple(replace(c, default_sql="'x'") if c.id == 15 else c for c in CUSTOMER.columns)
    with pytest.raises(F1Error, match=r"INVALID_ARGUMENT: column Customer\.Level"):
        fill([LogicalWrite(INSERT, "Customer", {11: 1})], changed(SCHEMA, replace(CUSTOMER, columns=columns)))


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("NULL", (None,)),
        (" true ", (True,)),
        ("-5", (-5,)),
        ("1.50", (Decimal("1.50"),)),
        ("'it''s'", ("it's",)),
        ("''", ("",)),
        ("now()", None),
        ("9223372036854775808", None),
        ("1 + 1", None),
        ("'a' || 'b'", None),
        ("E'a'", None),
        (r"'a\b'", None),
    ],
)
def test_plain_literals_need_no_evaluation(sql: str, value: Any) -> None:
    assert literal_value(sql) == value
