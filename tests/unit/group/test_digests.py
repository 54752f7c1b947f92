"""Digests of ranges: as of one entry, equal on equal replicas, different for any difference; and who is wrong."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from spanstore.engine import keyspace
from spanstore.engine.base import WriteBatch
from spanstore.engine.memory import MemoryEngine
from spanstore.group.digests import END, FIRST, Pacer, RangeDigest, digest_of, next_range
from spanstore.mvcc.versions import put_version
from spanstore.runtime.comparing import Comparison
from tests.amounts import examples

Change = tuple[int, int, int]


def put(batch: WriteBatch, change: Change) -> None:
    kind, key, value = change
    row = b"k%d" % key
    match kind:
        case 0:
            put_version(batch, 1, row, value + 1, b"v%d" % value)
        case 1:
            batch.put(keyspace.outcome_key(1, row), b"%d" % value)
        case 2:
            batch.delete(keyspace.outcome_key(1, row))
        case _:
            low, high = sorted((key, value))
            batch.delete_range(keyspace.data_prefix(1) + b"k%d" % low, keyspace.data_prefix(1) + b"k%d" % high)


def digest_after(changes: list[Change], cuts: set[int]) -> RangeDigest:
    """Apply changes in turns that end at ``cuts`` and compute the digest in the last turn, before it is on disk."""

    async def body() -> RangeDigest:
        engine = MemoryEngine()
        batch = WriteBatch()
        for position, change in enumerate(changes):
            if position in cuts:
                await engine.commit(batch)
                batch = WriteBatch()
            put(batch, change)
        with engine.snapshot() as reader:
            return digest_of(reader, batch, 1, 9, FIRST, END)

    return asyncio.run(body())


CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=12)


@settings(max_examples=examples(150))
@given(CHANGES, st.sets(st.integers(0, 12)))
def test_a_digest_is_as_of_its_entry_however_turns_are_cut(changes: list[Change], cuts: set[int]) -> None:
    assert digest_after(changes, cuts) == digest_after(changes, set())


def test_any_difference_shows() -> None:
    changes: list[Change] = [(0, i, i) for i in range(4)] + [(1, 1, 1)]
    digests = {digest_after(changes[:i] + changes[i + 1 :], set()).digest for i in range(len(changes))}
    digests |= {digest_after(changes, set()).digest, digest_after([*changes, (0, 4, 4)], set()).digest}
    assert len(digests) == len(changes) + 2


def test_pieces_cover_everything_once_and_begin_again() -> None:
    async def body() -> None:
        engine = MemoryEngine()
        batch = WriteBatch()
        for i in range(2_500):
            put_version(batch, 1, b"key%05d" % i, 5, bytes(100))
        put_version(batch, 2, b"other", 5, b"x")
        await engine.commit(batch)
        with engine.snapshot() as reader:
            start, seen, pieces = FIRST, 0, 0
            while start < END:
                end = next_range(reader, 1, start)
                seen += digest_of(reader, WriteBatch(), 1, 1, start, end).records
                start, pieces = end, pieces + 1
            assert seen == 2_500 and pieces == 3
            pacer = Pacer(1_000)
            found = [pacer.due(reader, 1, now) for now in range(5_000, 10_000, 500)]
            logged = [command for command in found if command is not None]
            assert [command.start for command in logged[:4:3]] == [FIRST, FIRST]
            assert logged[0].end == logged[1].start
            assert Pacer(0).due(reader, 1, 1 << 50) is None

    asyncio.run(body())


def digest(opinion: bytes) -> RangeDigest:
    return RangeDigest(5, b"a", b"b", 1, opinion)


VOTERS = ("a", "b", "c")


@given(st.permutations([("a", b"1"), ("b", b"1"), ("c", b"2")]))
def test_whoever_differs_from_a_majority_is_wrong_in_whatever_order_they_speak(told: list[tuple[str, bytes]]) -> None:
    comparison = Comparison()
    wrong = [comparison.heard(1, member, digest(opinion), VOTERS) for member, opinion in told]
    assert set().union(*wrong) == {"c"} and sum(map(len, wrong)) == 1
    assert len(comparison.findings) == 1 and "c differs" in comparison.findings[0].text
    assert not comparison.heard(1, "c", digest(b"2"), VOTERS)


def test_without_a_majority_nobody_is_wrong() -> None:
    comparison = Comparison()
    assert not any(comparison.heard(1, m, digest(m.encode()), VOTERS) for m in VOTERS)
    # Readers have no voice, but may be wrong.
    other = Comparison()
    assert not other.heard(1, "reader", digest(b"2"), VOTERS)
    assert not other.heard(1, "reader2", digest(b"2"), VOTERS)
    assert not other.heard(1, "a", digest(b"1"), VOTERS)
    assert other.heard(1, "b", digest(b"1"), VOTERS) == {"reader", "reader2"}
    # A damaged replica has no opinion.
    third = Comparison()
    assert not third.heard(1, "a", digest(b""), VOTERS)
    assert not third.heard(1, "b", digest(b""), VOTERS)
    assert not third.heard(1, "c", digest(b"1"), VOTERS)
