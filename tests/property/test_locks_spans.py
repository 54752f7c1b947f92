"""The span index against an oracle that enumerates points and the gaps between them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spanstore.txn import spans
from spanstore.txn.spans import Span, SpanIndex

KEYS = [bytes([letter]) for letter in b"abcdefg"]
OWNERS = ["t1", "t2", "t3", "t4"]


def places(span: Span) -> frozenset[float]:
    """Key number n is place n; between it and the next lies place n + 0.5, so a range is more than its known keys."""
    first = KEYS.index(span.start)
    if span.end is None:
        return frozenset([float(first)])
    return frozenset(first + step / 2 for step in range(2 * (KEYS.index(span.end) - first)))


points = st.sampled_from(KEYS).map(Span)
ranges = st.lists(st.sampled_from(KEYS), min_size=2, max_size=2, unique=True).map(lambda ends: Span(*sorted(ends)))
any_span = st.one_of(points, ranges)
bits_of = st.sampled_from([1, 2, 4])
step = st.one_of(
    st.tuples(
        st.just("add all"),
        st.lists(st.tuples(any_span, bits_of), max_size=8),
        st.sampled_from(OWNERS),
        st.just(0),
    ),
    st.tuples(st.just("add"), any_span, st.sampled_from(OWNERS), st.sampled_from([1, 2, 4])),
    st.tuples(st.just("remove"), any_span, st.sampled_from(OWNERS), st.just(0)),
    st.tuples(st.just("ask"), any_span, st.sampled_from(OWNERS), st.sampled_from([1, 2, 4, 3, 6])),
)


Step = tuple[str, Any, str, int]


@given(st.lists(step, max_size=60), st.sampled_from([1, 4096]), st.sampled_from([1, 3, 64]))
def test_index_agrees_with_enumeration(steps: list[Step], keep_sorted_for: int, many: int) -> None:
    usual = spans._KEEP_SORTED_FOR, spans.MANY
    spans._KEEP_SORTED_FOR, spans.MANY = keep_sorted_for, many
    try:
        run(steps)
    finally:
        spans._KEEP_SORTED_FOR, spans.MANY = usual


def run(steps: list[Step]) -> None:
    index: SpanIndex[str] = SpanIndex()
    model: dict[str, list[tuple[Span, int]]] = {owner: [] for owner in OWNERS}
    for what, span, owner, bits in steps:
        match what:
            case "add":
                index.add(span, owner, bits)
                model[owner].append((span, bits))
            case "add all":
                index.add_all(owner, span)
                model[owner] += span
            case "remove":
                index.remove(owner, dict.fromkeys(held for held, _ in model[owner]))
                model[owner] = []
            case _:
                check_answers(index, model, span, owner, bits)
    for owner in OWNERS:
        index.remove(owner, dict.fromkeys(held for held, _ in model[owner]))
    assert not index._points and not index._segments and not index._borders, (
        "an index whose owners are all gone is empty"
    )


def check_answers(
    index: SpanIndex[str], model: dict[str, list[tuple[Span, int]]], span: Span, owner: str, bits: int
) -> None:
    expected: dict[str, int] = {}
    for other, marks in model.items():
        for held, mark in marks:
            if places(held) & places(span):
                expected[other] = expected.get(other, 0) | mark
            assert held.overlaps(span) == span.overlaps(held) == bool(places(held) & places(span))
    found: dict[str, int] = {}
    for owners in index.overlapping(span):
        for other, mark in owners.items():
            found[other] = found.get(other, 0) | mark
    assert found == expected
    covered = {place for held, mark in model[owner] if mark & bits for place in places(held)}
    assert index.covers(span, owner, bits) == (places(span) <= covered)


def test_short_ranges_inside_a_long_one_leave_no_borders() -> None:
    index: SpanIndex[str] = SpanIndex()
    index.add(Span(b"a", b"z"), "long", 1)
    for number in range(100):
        span = Span(b"k%03d" % number, b"k%03d~" % number)
        index.add(span, "short", 1)
        index.remove("short", [span])
    assert index._borders == [b"a", b"z"]


def test_many_ranges_of_one_transaction_leave_no_borders() -> None:
    index: SpanIndex[str] = SpanIndex()
    index.add(Span(b"a", b"z"), "long", 1)
    many = [(Span(b"k%05d" % number, b"k%05d~" % number), 1) for number in range(spans.MANY * 3)]
    index.add_all("many", many)
    assert len(index._borders) == 2 + 2 * len(many)
    index.remove("many", dict(many))
    assert index._borders == [b"a", b"z"]
    assert index.overlapping(Span(b"k00001")) == [{"long": 1}]
