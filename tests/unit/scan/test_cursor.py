"""A scan in steps sees the rows of one timestamp, each once, however the steps are cut and wherever they go on."""

import asyncio
import itertools
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.encoding.tuple import Value
from f1common.errors import Code, F1Error
from spanstore.engine.base import WriteBatch
from spanstore.engine.keyspace import data_prefix, meta_key
from spanstore.group.garbage import Collected, put_collected
from spanstore.group.holding import HOLDINGS
from spanstore.mvcc.versions import put_version, scan_versions, version_key
from spanstore.placement.holdings import Holdings, encode_holdings
from spanstore.scan.cursor import ScanCursor, Step
from spanstore.scan.plan import Column, ColumnType, KeyShape, Operator, Predicate, ScanPlan, Source
from spanstore.testing.mutations.garbage import scan_below_the_mark
from tests.unit.scan.store import (
    GROUP,
    RAW,
    StoredVersion,
    engine_with,
    key,
    plan,
    rows_of,
    steps_of,
    table_of,
)

elements: st.SearchStrategy[Value] = st.sampled_from([1, 2, 300, "", "a", b"\x00"])
keys = st.lists(elements, min_size=1, max_size=3).map(lambda parts: key(*parts))
histories = st.lists(
    st.tuples(keys, st.integers(1, 30), st.one_of(st.none(), st.binary(max_size=3))),
    max_size=60,
    unique_by=lambda version: version[:2],
)
borders = st.one_of(keys, keys.map(lambda border: border + b"\x00"), keys.map(lambda border: border + b"\xff"))
ranges = st.lists(
    st.tuples(borders, borders).map(lambda pair: tuple(sorted(pair))).filter(lambda pair: pair[0] < pair[1]),
    min_size=1,
    max_size=3,
).map(tuple)


def alive(versions: list[StoredVersion], wanted: ScanPlan) -> list[tuple[bytes, int, bytes]]:
    """The rows of a plan by the definition: the newest version at or below the timestamp, unless it is a tombstone."""
    newest: dict[bytes, tuple[int, bytes | None]] = {}
    for row, ts, value in sorted(versions, key=lambda version: version[1]):
        if ts <= wanted.timestamp:
            newest[row] = (ts, value)
    return [
        (row, ts, value)
        for start, end in wanted.ranges
        for row, (ts, value) in sorted(newest.items())
        if start <= row < end and value is not None
    ]


@given(histories, st.integers(1, 3), st.sampled_from([32, 512]))
def test_rows_among_others_keep_their_own_timestamps_and_values(
    versions: list[StoredVersion], count: int, items: int
) -> None:
    """Rows of tables above and below, which the scan passes over, stand between them."""
    wanted = plan(shape=KeyShape(count))
    expected = [row for row in alive(versions, wanted) if len(tuples.decode(row[0])) == count]
    assert rows_of(steps_of(engine_with(versions), wanted, items=items)) == expected


@pytest.mark.parametrize("timestamp", [1, 5, 12, 20, 40])
@pytest.mark.parametrize("batch_rows", [0, 1, 3])
def test_steps_that_end_among_long_chains_of_versions_leave_no_row_out(timestamp: int, batch_rows: int) -> None:
    """Chains that are sought past stand beside short ones, and time is over after every page."""
    versions: list[StoredVersion] = []
    for row in range(40):
        for ts in range(1, 41 if row % 3 == 0 else 3 + row % 2):
            versions.append((key(row), ts, None if (row + ts) % 11 == 0 else b"%d" % ts))
    ticks = itertools.count(0, 1_000)
    wanted = plan(timestamp=timestamp, batch_rows=batch_rows)
    for items in (32, 33, 40, 64, 512):
        steps = steps_of(engine_with(versions), wanted, lambda: next(ticks), items)
        assert rows_of(steps) == alive(versions, wanted)


@given(histories, ranges, st.integers(0, 31), st.integers(0, 3), st.integers(32, 40))
def test_steps_give_the_rows_of_the_timestamp_in_order(
    versions: list[StoredVersion], wanted: tuple[tuple[bytes, bytes], ...], timestamp: int, batch_rows: int, items: int
) -> None:
    engine = engine_with(versions)
    scan = plan(timestamp=timestamp, ranges=wanted, batch_rows=batch_rows)
    # Time runs so fast that every step ends at its first look at the clock.
    ticks = itertools.count(0, 1_000)
    steps = steps_of(engine, scan, lambda: next(ticks), items)
    assert rows_of(steps) == alive(versions, scan)
    assert rows_of(steps_of(engine, scan)) == alive(versions, scan)


@pytest.mark.parametrize("items", range(32, 45))
def test_a_step_that_ends_among_the_older_versions_of_a_row_does_not_repeat_it(items: int) -> None:
    versions: list[StoredVersion] = [(key(i), ts, bytes([ts])) for i in range(40) for ts in range(1, 8)]
    ticks = itertools.count(0, 1_000)
    steps = steps_of(engine_with(versions), plan(timestamp=5), lambda: next(ticks), items)
    assert rows_of(steps) == [(key(i), 5, b"\x05") for i in range(40)]
    assert len(steps) > 4


@given(histories, ranges, st.integers(0, 31), st.integers(1, 3))
def test_another_scan_goes_on_after_any_step(
    versions: list[StoredVersion], wanted: tuple[tuple[bytes, bytes], ...], timestamp: int, batch_rows: int
) -> None:
    engine = engine_with(versions)
    scan = plan(timestamp=timestamp, ranges=wanted, batch_rows=batch_rows)
    steps = steps_of(engine, scan)
    for count in range(1, len(steps)):
        at = steps[count - 1]
        start, end = wanted[at.range]
        assert start <= at.resume
        rest = tuple(pair for pair in ((at.resume, end), *wanted[at.range + 1 :]) if pair[0] < pair[1])
        again = rows_of(steps_of(engine, plan(timestamp=timestamp, ranges=rest))) if rest else []
        assert rows_of(steps[:count]) + again == rows_of(steps)


@given(histories, st.integers(1, 5), st.integers(0, 2), st.booleans())
def test_the_limit_counts_selected_rows(
    versions: list[StoredVersion], limit: int, batch_rows: int, selecting: bool
) -> None:
    engine = engine_with(versions)
    some = (Predicate(2, Operator.GE, (key(b"\x80"),)),) if selecting else ()
    rows = rows_of(steps_of(engine, plan(predicates=some)))
    assert all(value >= b"\x80" for _, _, value in rows) or not selecting
    limited = steps_of(engine, plan(predicates=some, limit=limit, batch_rows=batch_rows))
    assert rows_of(limited) == rows[:limit]
    assert [step.last for step in limited] == [False] * (len(limited) - 1) + [True]


def test_a_limit_reads_no_more_than_it_needs() -> None:
    engine = engine_with([(key(1), 10, b"x"), (key(2), 10, b"x"), (key(3), 10, b"x")])
    damaged = WriteBatch()
    damaged.put(version_key(GROUP, key(3), 10), b"damaged")
    asyncio.run(engine.commit(damaged))
    assert [row for row, _, _ in rows_of(steps_of(engine, plan(limit=2)))] == [key(1), key(2)]


def test_a_damaged_version_ends_the_scan_and_is_named() -> None:
    engine = engine_with((key(i), 10, b"x") for i in range(20))
    damaged = WriteBatch()
    damaged.put(version_key(GROUP, key(17), 10), b"\x01\x00\x00\x00\x00x")
    asyncio.run(engine.commit(damaged))
    cursor = ScanCursor(plan(batch_rows=10), lambda: 0)
    with engine.snapshot() as reader:
        assert cursor.step(reader).rows == 10
        with pytest.raises(F1Error) as caught:
            cursor.step(reader)
    assert caught.value.code is Code.DATA_CORRUPTION
    assert key(17).hex() in caught.value.message


@pytest.mark.parametrize(
    ("strange", "value", "column"),
    [
        pytest.param(key(17), b"x", Column("a", ColumnType.INT64, Source.CELL, 1), id="the value is no row"),
        pytest.param(
            key(17), encode_row({1: True})[:-1] + b"\xc1", Column("a", ColumnType.INT64, Source.CELL, 1), id="nor this"
        ),
        pytest.param(b"\xfex", encode_row({1: 1}), Column("a", ColumnType.INT64, Source.KEY_PART, 0), id="nor its key"),
    ],
)
def test_what_was_written_so_is_no_damage(strange: bytes, value: bytes, column: Column) -> None:
    """Its checksum holds, so all replicas have it: as damage it would take out one after the other, for ever."""
    engine = engine_with([(key(1), 10, encode_row({1: 1})), (strange, 10, value)])
    with pytest.raises(F1Error) as caught:
        steps_of(engine, plan((column,)))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert strange.hex() in caught.value.message
    assert len(rows_of(steps_of(engine, plan()))) == 2


def test_a_view_that_lacks_what_was_settled_is_refused() -> None:
    engine = engine_with([(key(1), 10, b"x")], applied=7)
    assert len(rows_of(steps_of(engine, plan(min_index=7)))) == 1
    with pytest.raises(F1Error) as caught:
        steps_of(engine, plan(min_index=8))
    assert caught.value.code is Code.UNAVAILABLE
    assert caught.value.retryable


def test_rows_of_other_groups_are_not_seen() -> None:
    engine = engine_with([(key(1), 10, b"ours")])
    batch = WriteBatch()
    put_version(batch, GROUP + 1, key(2), 10, b"theirs")
    put_version(batch, GROUP - 1, key(2), 10, b"theirs")
    asyncio.run(engine.commit(batch))
    assert [value for _, _, value in rows_of(steps_of(engine, plan()))] == [b"ours"]


def test_what_is_committed_between_two_steps_above_the_timestamp_is_not_seen() -> None:
    engine = engine_with((key(i), 10, b"old") for i in range(4))
    cursor = ScanCursor(plan(timestamp=10, batch_rows=2), lambda: 0)
    steps = [cursor.schema()]
    while not steps[-1].last:
        with engine.snapshot() as reader:
            steps.append(cursor.step(reader))
        batch = WriteBatch()
        for i in range(4):
            put_version(batch, GROUP, key(i), 11, None if i % 2 else b"new")
        put_version(batch, GROUP, key(9), 11, b"new")
        asyncio.run(engine.commit(batch))
    assert rows_of(steps) == [(key(i), 10, b"old") for i in range(4)]


def test_a_step_ends_when_its_time_is_over_even_where_nothing_is_alive() -> None:
    # Ten thousand tombstones, one row behind them: no step passes more than a few items.
    versions: list[StoredVersion] = [(key(1, i), 10, None) for i in range(10_000)]
    engine = engine_with([*versions, (key(2), 10, b"x")])
    now = 0

    def boot_us() -> int:
        nonlocal now
        now += 60  # two looks at the clock and the time of a step is over
        return now

    steps = steps_of(engine, plan(), boot_us, items=100)
    assert rows_of(steps) == [(key(2), 10, b"x")]
    assert len(steps) > 30
    positions = [step.resume for step in steps[:-1]]
    assert positions == sorted(set(positions))


def test_a_step_ends_between_many_ranges_with_nothing_in_them() -> None:
    engine = engine_with([(key(5000), 10, b"x")])
    points = tuple((key(i), key(i) + b"\x00") for i in range(10_000))
    ticks = itertools.count(0, 10)
    steps = steps_of(engine, plan(ranges=points), lambda: next(ticks))
    assert rows_of(steps) == [(key(5000), 10, b"x")]
    assert len(steps) > 500


def test_a_batch_is_bounded_in_bytes() -> None:
    engine = engine_with((key(i), 10, b"x" * 400_000) for i in range(10))
    steps = steps_of(engine, plan())
    assert [step.rows for step in steps] == [0, 3, 3, 3, 1]


def test_a_batch_is_bounded_in_rows_whatever_is_asked_for() -> None:
    engine = engine_with((key(i), 10, b"") for i in range(9_000))
    assert [step.rows for step in steps_of(engine, plan(batch_rows=1 << 31))] == [0, 8192, 808]


@pytest.mark.parametrize(
    "wrong",
    [
        plan(ranges=()),
        plan(ranges=((b"\x20", b"\x20"),)),
        plan(group=-1),
        plan(group=0xFFFF),
        plan([Column("k", ColumnType.STRING, Source.RAW_KEY)]),
        plan([Column("k", ColumnType.DATE, Source.VERSION_TS)]),
        plan(predicates=(Predicate(len(RAW), Operator.IS_NULL),)),
        plan(predicates=(Predicate(0, Operator.EQ, (key(1),)),)),
    ],
)
def test_plans_that_cannot_be(wrong: ScanPlan) -> None:
    with pytest.raises(F1Error) as caught:
        ScanCursor(wrong, lambda: 0)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_scan_agrees_with_a_range_read() -> None:
    versions: list[StoredVersion] = [
        (key(1, i), ts, None if (i + ts) % 5 == 0 else encode_row({1: i * ts}))
        for i in range(200)
        for ts in range(1, 20)
    ]
    engine = engine_with(versions)
    columns = [Column("i", ColumnType.INT64, Source.KEY_PART, 1), Column("v", ColumnType.INT64, Source.CELL, 1)]
    for ts in (0, 1, 7, 19, 30):
        with engine.snapshot() as reader:
            read = [k for k, _ in scan_versions(reader, GROUP, b"\x01", b"\xff", ts)]
        table = table_of(steps_of(engine, plan(columns, timestamp=ts, batch_rows=7)))
        assert [key(1, i) for i in table.column("i").to_pylist()] == read
    assert data_prefix(GROUP) == b"\x00\x03\x10"


@pytest.mark.parametrize("broken", [False, True])
def test_a_step_in_a_view_whose_mark_has_passed_the_timestamp_is_refused(broken: bool) -> None:
    """Between two steps the rest of the rows is collected: without a look at the mark they would just be missing."""
    versions = [(key(n), ts, b"%d" % ts) for n in range(10) for ts in (5, 8)]
    engine = engine_with(versions)
    cursor = ScanCursor(plan(timestamp=5), lambda: 0, max_rows=4)
    with engine.snapshot() as reader:
        assert cursor.step(reader).rows == 4
    batch = WriteBatch()
    for n in range(4, 10):
        batch.delete(version_key(GROUP, key(n), 5))
    put_collected(batch, GROUP, Collected(mark_ts=8))
    asyncio.run(engine.commit(batch))
    with scan_below_the_mark() if broken else nullcontext(), engine.snapshot() as reader:
        if broken:
            assert cursor.step(reader).rows == 0
            return
        with pytest.raises(F1Error) as caught:
            cursor.step(reader)
    assert caught.value.code is Code.SNAPSHOT_TOO_OLD
    assert caught.value.details["mark"] == "8"


def test_a_scan_goes_on_while_its_ranges_are_owned_and_ends_once_they_are_given_away() -> None:
    """Steps have views of their own: in a later one, rows of a range that moved may have been removed."""
    engine = engine_with([(key(1, number), 5, b"x") for number in range(4)])
    scan = plan(ranges=((key(1), key(2)),), batch_rows=1, range_epoch=1)
    cursor = ScanCursor(scan, lambda: 0)

    def step_after(epoch: int, *owned: tuple[bytes, bytes]) -> Step:
        batch = WriteBatch()
        batch.put(meta_key(GROUP, HOLDINGS), encode_holdings(Holdings(epoch, owned)))
        asyncio.run(engine.commit(batch))
        with engine.snapshot() as reader:
            return cursor.step(reader)

    assert step_after(1).rows == 1, "what was owned when the timestamp was settled is not looked at again"
    assert step_after(2, (key(1), key(2))).rows == 1, "it gave something else away"
    for owned in ((), ((key(1), key(1, 3)),), ((key(1, 1), key(9)),)):
        with pytest.raises(F1Error) as caught:
            step_after(3, *owned)
        assert caught.value.code is Code.WRONG_RANGE and caught.value.retryable
