"""Of which table the history is read by a name, and what followers of a table that was moved are told."""

from dataclasses import replace

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.readable import readable_from
from f1server.catalog.schema import Column, ColumnType, ElementState, Kind, Schema, Table
from f1server.history.reading import history_root

A, B = (Column(number, name, ColumnType(Kind.INT64)) for number, name in ((11, "A"), (12, "B")))
UP = Table(5, "Up", 0, (Column(6, "B", A.type),), (6,))
OLD = Table(10, "T", 0, (A, B), (11,), state=ElementState.WRITE_ONLY)
NEW = Table(20, "T", 5, (A, B), (12, 11), mirror_of=10, readable_from=700)
SWITCHED = Schema("default", 7, (UP, OLD, NEW))


def told(schema: Schema, after_ts: int = 0) -> str:
    with pytest.raises(F1Error) as caught:
        history_root(schema, "T", after_ts)
    assert caught.value.code is (Code.INVALID_ARGUMENT if schema.table("T").parent_id else Code.SNAPSHOT_TOO_OLD)
    return caught.value.message


def left(schema: Schema) -> Schema:
    """Return the schema in which nobody writes to the former form any more, from 900 on."""
    tables = tuple(replace(t, state=ElementState.DELETE_ONLY) if t.id == 10 else t for t in schema.tables)
    return readable_from(schema, replace(schema, tables=tables), 900)


def test_from_when_on_nothing_is_missing_is_said_once_it_is_known() -> None:
    assert told(SWITCHED) == "history is kept by root row; T lies in Up"
    assert "as of 900 or later, and go on with the history of Up" in told(left(SWITCHED))
    gone = replace(left(SWITCHED), tables=tuple(t for t in left(SWITCHED).tables if t.id != 10))
    assert "as of 900 or later" in told(gone)


def test_a_position_of_before_is_refused_and_none_is_not() -> None:
    root = replace(NEW, parent_id=0)
    schema = left(replace(SWITCHED, tables=(UP, OLD, root)))
    assert "as of 900 or later, and go on with the history of T" in told(schema, 899)
    assert [history_root(schema, "T", after_ts).id for after_ts in (0, 900, 901)] == [20, 20, 20]


def test_a_table_that_stays_under_its_root_keeps_its_history() -> None:
    schema = left(replace(SWITCHED, tables=(UP, replace(OLD, parent_id=5, key_column_ids=(12, 11)), NEW)))
    assert schema.table("T").history_from == 0
