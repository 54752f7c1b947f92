"""Changes of the range map and the course of copies, against dumb oracles; borders and jobs."""

import random

import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.tuple import Timestamp
from f1common.errors import Code, F1Error
from spanstore.placement import copying
from spanstore.placement.borders import FIRST_KEY, ancestors, check_border, check_interval
from spanstore.placement.jobs import JobState, MoveJob, decode_job, encode_job, source_of
from spanstore.placement.range_map import KEY_MAX, RangeMap, spread_tables
from spanstore.txn.commands import CopyStage, Progress

KEYS = [tuples.encode((table, k)) for table in range(1, 5) for k in range(6)]


@pytest.mark.parametrize("seed", range(20))
def test_splits_merges_and_assignments_do_what_a_dictionary_does(seed: int) -> None:
    rng = random.Random(seed)
    ranges = spread_tables([0, 1, 2], 4)
    owner = {key: ranges.group_of(key) for key in KEYS}
    borders = {r.start for r in ranges.ranges}
    for step in range(80):
        key = rng.choice(KEYS)
        before = ranges
        kind = rng.randrange(3)
        if kind == 0 and key not in borders:
            ranges = ranges.split(key)
            borders.add(key)
        elif kind == 1:
            border = ranges.lookup(key).start
            left = [r.group for r in ranges.ranges if r.end == border]
            if left == [ranges.group_of(border)]:
                ranges = ranges.merge(border)
                borders.discard(border)
        elif kind == 2:
            low, high = sorted(rng.sample(range(len(KEYS)), 2))
            group = rng.randrange(3)
            ranges = ranges.assign(KEYS[low], KEYS[high], group)
            owner.update(dict.fromkeys(KEYS[low:high], group))
            borders |= {KEYS[low], KEYS[high]}
        assert ranges.version == before.version + (ranges is not before), step
        assert {key: ranges.group_of(key) for key in KEYS} == owner
        assert {r.start for r in ranges.ranges} == borders
        assert RangeMap.decode(ranges.encode()).ranges == ranges.ranges


def test_what_cannot_be_split_or_merged_says_why() -> None:
    ranges = spread_tables([0, 1, 2], 4)
    border = tuples.encode((2,))
    for change, code in (
        (lambda: ranges.split(border), Code.ALREADY_EXISTS),
        (lambda: ranges.split(KEY_MAX), Code.INVALID_ARGUMENT),
        (lambda: ranges.merge(tuples.encode((2, 1))), Code.NOT_FOUND),
        (lambda: ranges.merge(b""), Code.NOT_FOUND),
        (lambda: ranges.merge(border), Code.FAILED_PRECONDITION),
    ):
        with pytest.raises(F1Error) as caught:
            change()
        assert caught.value.code is code


@pytest.mark.parametrize(
    "key",
    [
        b"",
        tuples.encode((0, "range_map")),
        tuples.encode((1, "abc"))[:-1],
        b"\xff",
        tuples.encode((1, 2, 77, Timestamp(5))),
    ],
)
def test_no_border_in_system_rows_in_the_middle_of_a_key_or_at_a_timestamp(key: bytes) -> None:
    with pytest.raises(F1Error) as caught:
        check_border(key)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_intervals_and_the_directories_that_a_border_may_lie_in() -> None:
    check_interval(FIRST_KEY, KEY_MAX)
    with pytest.raises(F1Error):
        check_interval(tuples.encode((2,)), tuples.encode((2,)))
    assert ancestors(tuples.encode((1, 5))) == []
    assert ancestors(tuples.encode((1, 5, 2, 7))) == [tuples.encode((1, 5)), tuples.encode((1, 5, 2))]


def test_the_source_of_a_move_is_one_group_and_the_target_exists() -> None:
    ranges = spread_tables([0, 1, 2], 4)
    first, second, third = (tuples.encode((table,)) for table in (1, 2, 3))
    assert source_of(ranges, {0, 1, 2}, first, second, 2) == 1
    for start, end, target, code in (
        (first, third, 2, Code.FAILED_PRECONDITION),
        (first, second, 9, Code.NOT_FOUND),
        (b"", second, 2, Code.INVALID_ARGUMENT),
    ):
        with pytest.raises(F1Error) as caught:
            source_of(ranges, {0, 1, 2}, start, end, target)
        assert caught.value.code is code


def test_jobs_are_read_as_they_were_written() -> None:
    job = MoveJob(7, b"a", b"b", 2, 99, state=JobState.CLEANING, message="m")
    assert decode_job(encode_job(job)) == job
    with pytest.raises(F1Error):
        decode_job(b"\x01")


@pytest.mark.parametrize("seed", range(40))
def test_a_copy_that_follows_the_rules_ends_with_everything(seed: int) -> None:
    """The old group is a list of (timestamp, row); between any two pieces it grows, until it is ceded."""
    rng = random.Random(seed)
    rows = {i: rng.randrange(1, 50) for i in range(rng.randrange(40))}
    now = 50
    shipped: dict[int, int] = {}
    progress = Progress(CopyStage.ROWS)
    ceded = False
    for _ in range(10_000):
        if progress.stage is CopyStage.READY:
            break
        if not ceded:
            for _ in range(rng.randrange(3)):
                now += 1
                rows[rng.randrange(60)] = now
            if copying.caught_up(progress) or rng.random() < 0.02:
                ceded = True
                progress = copying.begin_last(progress)
        want = copying.wanted(progress, ceded_ts=now)
        assert want.stage is progress.stage
        if want.stage in (CopyStage.ROWS, CopyStage.LAST_ROWS):
            start = int(want.resume or b"0")
            end = start + rng.randint(1, 30)
            piece = {k: ts for k, ts in rows.items() if start <= k < end and ts > want.since_ts}
            shipped.update(piece)
            settled = want.timestamp or now
            progress = copying.after_piece(progress, settled, len(piece), str(end).encode(), end >= 60)
        else:
            progress = copying.after_piece(progress, want.timestamp or now, 0, b"", True)
    assert progress.stage is CopyStage.READY
    assert shipped == rows
