"""Checks over rows that are there: which row is said to break one, where another row cannot be evaluated."""

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ColumnType, Kind, Schema, Table
from f1server.rows.keys import row_key
from f1server.schemachange.work.changes import Stored
from f1server.schemachange.work.validation import _failed

TABLE = Table(1, "T", 0, columns=(Column(11, "Id", ColumnType(Kind.INT64)),), key_column_ids=(11,))
SCHEMA = Schema("db", tables=(TABLE,))


def failed(broken: set[int], odd: set[int], rows: int = 8) -> list[tuple[int, str]]:
    def evaluate(_, some):
        if odd & {row[11] for row in some}:
            raise F1Error(Code.INVALID_ARGUMENT, "division by zero")
        return [(i, "C") for i, row in enumerate(some) if row[11] in broken]

    stored = [Stored(row_key(SCHEMA, TABLE, (i,)), (i,), b"", 7, {}) for i in range(rows)]
    return list(_failed(evaluate, TABLE, stored, [{11: i} for i in range(rows)]))


def test_rows_that_break_a_check_are_told_by_their_places() -> None:
    assert failed({2, 5}, set()) == [(2, "C"), (5, "C")]
    assert failed(set(), set()) == []


def test_a_row_that_breaks_a_check_before_one_that_cannot_be_evaluated_is_the_one_that_is_told() -> None:
    assert failed({6}, {7}) == [(6, "C")]
    assert failed({5}, {7}) == [(5, "C")]
    assert failed({3}, {7}) == [(3, "C")]


def test_the_first_row_that_cannot_be_evaluated_is_named() -> None:
    with pytest.raises(
        F1Error, match=r"cannot be evaluated for the row with \(Id\) = \(3\): division by zero; nothing"
    ):
        failed({6}, {3, 7})
