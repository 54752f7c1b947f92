"""What an absent value of a column means on each of its ways: a default that is missing, or a NULL."""

from dataclasses import replace

import pytest

from f1server.catalog.codec import decode_schema, encode_schema
from f1server.catalog.schema import Column, ColumnType, ElementState, Kind, Schema, Table
from f1server.schemachange.steps.edits import ElementTo, Part, advance

D, W, P = ElementState.DELETE_ONLY, ElementState.WRITE_ONLY, ElementState.PUBLIC
KEY = Column(2, "K", ColumnType(Kind.INT64))
X = Column(3, "X", ColumnType(Kind.INT64), default_sql="7")


def schema(column: Column) -> Schema:
    return Schema("default", 5, (Table(1, "T", 0, (KEY, column), (2,)),))


def moved(column: Column, *ways: tuple[ElementState, bool]) -> Column:
    """Return the column after it has gone to some states, each forwards or as its change is taken back."""
    now = schema(column)
    for state, back in ways:
        now = advance(now, (ElementTo(Part.COLUMN, 1, 3, "X", state),), back=back)
        now = decode_schema(encode_schema(now))
    return now.by_id[1].by_id[3]


@pytest.mark.parametrize(
    ("start", "ways", "fills", "returns"),
    [
        (P, [(W, False)], False, False),
        (P, [(W, False), (D, False)], False, True),
        (P, [(W, False), (D, False), (W, True)], False, False),
        (P, [(W, False), (D, False), (W, True), (P, True)], True, False),
        # Its change has brought it, and takes it back; then it goes on after all.
        (D, [(W, False)], True, False),
        (D, [(W, False), (P, False), (W, True)], True, False),
        (D, [(W, False), (P, False), (W, True), (D, True)], True, False),
        (D, [(W, False), (P, False), (W, True), (D, True), (W, False)], True, False),
    ],
)
def test_what_an_absence_means(
    start: ElementState, ways: list[tuple[ElementState, bool]], fills: bool, returns: bool
) -> None:
    now = moved(replace(X, state=start), *ways)
    assert (now.state, now.fills, now.returns) == (ways[-1][0], fills, returns)
    never_null = moved(replace(X, state=start, not_null=True), *ways)
    assert never_null.fills
    assert not moved(replace(X, state=start, default_sql=""), *ways).fills
