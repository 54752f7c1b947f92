"""Predicates agree with the tuple codec's equality and order, value by value: neither more rows nor fewer."""

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.row import Cell
from f1common.errors import Code, F1Error
from spanstore.scan.arrow import to_array
from spanstore.scan.plan import Column, ColumnType, Operator, Predicate
from spanstore.scan.predicates import compile_predicate
from tests.unit.scan.store import VALUES

COMPARISONS: dict[Operator, Callable[[bytes, bytes], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}
COMPARABLE = [kind for kind in ColumnType if kind is not ColumnType.PROTO]


def encoded(value: Cell) -> bytes:
    return tuples.encode((value,))  # type: ignore[arg-type]


def oracle(test: Operator, cell: Cell, literals: list[Cell]) -> bool:
    """Said in words of the codec, one value at a time."""
    if test is Operator.IS_NULL:
        return cell is None
    if cell is None:
        return False
    known = [encoded(literal) for literal in literals if literal is not None]
    if test is Operator.IS_NOT_NULL:
        return True
    if test is Operator.IN:
        return encoded(cell) in known
    return bool(known) and COMPARISONS[test](encoded(cell), known[0])


@st.composite
def cases(draw: st.DrawFn) -> tuple[ColumnType, list[Cell], Operator, list[Cell]]:
    kind = draw(st.sampled_from(COMPARABLE))
    test = draw(st.sampled_from(list(Operator)))
    value = st.one_of(st.none(), VALUES[kind])
    count = {Operator.IS_NULL: (0, 0), Operator.IS_NOT_NULL: (0, 0), Operator.IN: (0, 4)}.get(test, (1, 1))
    literals = draw(st.lists(value, min_size=count[0], max_size=count[1]))
    # The constants themselves are among the values, or equality would never be seen.
    values = draw(st.lists(st.one_of(value, *(st.just(literal) for literal in literals)), max_size=12))
    return kind, values, test, literals


@given(cases())
def test_masks_are_those_of_the_codec(case: tuple[ColumnType, list[Cell], Operator, list[Cell]]) -> None:
    kind, values, test, literals = case
    predicate = Predicate(0, test, tuple(encoded(literal) for literal in literals))
    mask = compile_predicate(Column("c", kind), predicate)(to_array(kind, values))
    assert mask.null_count == 0
    assert mask.to_pylist() == [oracle(test, value, literals) for value in values]


@pytest.mark.parametrize("test", [*COMPARISONS, Operator.IN])
@pytest.mark.parametrize("literal", [0.0, -0.0, float("nan"), float("-nan"), float("inf"), 1.5])
def test_zeros_and_nans(test: Operator, literal: float) -> None:
    values: list[Cell] = [None, -0.0, 0.0, float("nan"), float("-nan"), float("inf"), float("-inf"), 1.5]
    predicate = Predicate(0, test, (encoded(literal),))
    mask = compile_predicate(Column("c", ColumnType.DOUBLE), predicate)(to_array(ColumnType.DOUBLE, values))
    assert mask.to_pylist() == [oracle(test, value, [literal]) for value in values]


@pytest.mark.parametrize(
    ("kind", "predicate", "words"),
    [
        (ColumnType.INT64, Predicate(0, Operator.EQ, (encoded(1.0),)), "not compared to a float"),
        (ColumnType.INT64, Predicate(0, Operator.EQ, (encoded(True),)), "not compared to a bool"),
        (ColumnType.BOOL, Predicate(0, Operator.IN, (encoded(1),)), "not compared to a int"),
        (ColumnType.STRING, Predicate(0, Operator.LT, (encoded(b"x"),)), "not compared to a bytes"),
        (ColumnType.PROTO, Predicate(0, Operator.EQ, (encoded(b"x"),)), "messages compare to nothing"),
        (ColumnType.INT64, Predicate(0, Operator.EQ, ()), "one literal, not 0"),
        (ColumnType.INT64, Predicate(0, Operator.LT, (encoded(1), encoded(2))), "one literal, not 2"),
        (ColumnType.INT64, Predicate(0, Operator.IS_NULL, (encoded(1),)), "takes no literal"),
        (ColumnType.INT64, Predicate(0, Operator.EQ, (encoded(1) + encoded(2),)), "one tuple element, not 2"),
        (ColumnType.INT64, Predicate(0, Operator.EQ, (b"\x00",)), "cannot be read"),
    ],
)
def test_what_cannot_be_tested_is_refused(kind: ColumnType, predicate: Predicate, words: str) -> None:
    with pytest.raises(F1Error, match=words) as caught:
        compile_predicate(Column("c", kind), predicate)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("test", [Operator.IS_NULL, Operator.IS_NOT_NULL])
def test_messages_are_null_or_not(test: Operator) -> None:
    values: list[Cell] = [None, b"", b"x"]
    mask = compile_predicate(Column("c", ColumnType.PROTO), Predicate(0, test))(to_array(ColumnType.PROTO, values))
    assert mask.to_pylist() == [oracle(test, value, []) for value in values]
