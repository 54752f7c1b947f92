"""Whether names mean the same in two versions of a schema, and what is asked of the history of the schema."""

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.schema import Column, ColumnType, ElementState, Index, IndexPart, Kind, Schema, Table, View
from f1server.txn.names import MOST_SCHEMAS, require_same_names

A = Column(11, "A", ColumnType(Kind.INT64))
B = Column(12, "B", ColumnType(Kind.INT64))
TABLE = Table(10, "T", 0, (A, B), (11,))
OTHER = Table(20, "U", 0, (Column(21, "A", ColumnType(Kind.INT64)), Column(22, "C", ColumnType(Kind.INT64))), (21,))
BEFORE = Schema("default", 5, (TABLE, OTHER), (View("V", "SELECT A FROM T"),), commit_ts=500)


class History:
    """Knows one version, and counts how often it is asked."""

    def __init__(self, known: Schema | F1Error = BEFORE) -> None:
        self.known = known
        self.asked: list[int] = []

    async def at(self, present: Schema, timestamp: int) -> Schema:
        self.asked.append(timestamp)
        if isinstance(self.known, F1Error):
            raise self.known
        return self.known


def told(after: Schema, names: Collection[str], ran_under: Collection[int] = (500,), before: Schema = BEFORE) -> str:
    """Return what the transaction is told, empty if it may go on."""
    try:
        asyncio.run(require_same_names(History(before), replace(after, version=6, commit_ts=600), ran_under, names))
    except F1Error as error:
        assert (error.code, error.retryable, error.details["conflict"]) == (Code.ABORTED, True, "schema")
        return error.message
    return ""


def with_columns(*columns: Column) -> Schema:
    return replace(BEFORE, tables=(replace(TABLE, columns=columns), OTHER))


@pytest.mark.parametrize(
    ("after", "other"),
    [
        (with_columns(replace(A, name="B"), replace(B, name="a")), "T.a"),
        (with_columns(A, Column(13, "B", A.type)), "T.B"),
        (with_columns(A, B, Column(13, "C", A.type)), ""),
        (with_columns(A, replace(B, name="C")), ""),
        (with_columns(A), ""),
        (with_columns(A, B, replace(Column(13, "B", A.type), state=ElementState.WRITE_ONLY)), ""),
        (replace(BEFORE, tables=(replace(TABLE, name="U"), replace(OTHER, name="T"))), "table T"),
        (replace(BEFORE, tables=(replace(TABLE, name="W"), OTHER)), ""),
        (replace(BEFORE, tables=(OTHER,)), ""),
        (replace(BEFORE, tables=(replace(TABLE, id=30, mirror_of=10, key_column_ids=(12, 11)), OTHER)), ""),
    ],
)
def test_a_table_means_what_it_meant(after: Schema, other: str) -> None:
    assert told(after, ["T"]).partition(" is not")[0] == other
    assert told(after, ["nothing"]) == ""


def called(table: Table, sql: str) -> Schema:
    """Return the schema in which one of the tables is called W, with a view over it."""
    others = tuple(other for other in BEFORE.tables if other.id != table.id)
    return replace(BEFORE, tables=(replace(table, name="W"), *others), views=(View("V", sql),))


@pytest.mark.parametrize(
    ("after", "other"),
    [
        (BEFORE, ""),
        (replace(BEFORE, views=()), ""),
        (replace(BEFORE, views=(View("v", "SELECT B AS A FROM T"),)), "view v"),
        (replace(BEFORE, views=(), tables=(TABLE, replace(OTHER, name="V"))), "V"),
        (called(TABLE, 'SELECT A FROM "W" AS "T"'), ""),
        (called(replace(TABLE, columns=(A, replace(B, id=13))), 'SELECT A FROM "W" AS "T"'), "view V"),
        (called(OTHER, 'SELECT A FROM "W" AS "T"'), "view V"),
        (called(TABLE, 'SELECT B AS A FROM "W" AS "T"'), "view V"),
    ],
)
def test_a_view_means_what_it_meant(after: Schema, other: str) -> None:
    assert told(after, ["V", "T"]).partition(" is not")[0] == other


@pytest.mark.parametrize(
    ("parts", "other"), [((IndexPart(11), IndexPart(12)), ""), ((IndexPart(12),), "index I"), (None, "")]
)
def test_an_index_means_what_it_meant(parts: tuple[IndexPart, ...] | None, other: str) -> None:
    before = replace(BEFORE, tables=(replace(TABLE, indexes=(Index(14, "i", (IndexPart(11), IndexPart(12))),)), OTHER))
    indexes = () if parts is None else (Index(15, "I", parts),)
    after = replace(BEFORE, tables=(replace(TABLE, indexes=indexes), OTHER))
    assert told(after, ["T", "I"], before=before).partition(" is not")[0] == other


def test_nothing_is_read_while_the_schema_is_the_same() -> None:
    history = History()
    asyncio.run(require_same_names(history, BEFORE, (500, 500), ["T"]))
    assert history.asked == []


def test_a_version_that_never_was_is_no_version() -> None:
    with pytest.raises(F1Error, match="no version of the schema was committed at 499") as caught:
        asyncio.run(require_same_names(History(), replace(BEFORE, commit_ts=600), (499,), ["T"]))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_version_that_is_not_kept_any_more_ends_the_transaction() -> None:
    history = History(F1Error(Code.SNAPSHOT_TOO_OLD, "gone"))
    with pytest.raises(F1Error, match="not kept any more") as caught:
        asyncio.run(require_same_names(history, replace(BEFORE, commit_ts=600), (500,), ["T"]))
    assert (caught.value.code, caught.value.retryable) == (Code.ABORTED, True)


def test_so_do_too_many_versions() -> None:
    ran_under = range(1_000, 1_001 + MOST_SCHEMAS)
    assert "more than 32 times" in told(BEFORE, ["T"], ran_under)
