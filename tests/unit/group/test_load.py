"""What a replica is asked for: windows, and keys that stand for all of them."""

from itertools import pairwise

from spanstore.group.load import Load, LoadMeter
from spanstore.group.requests import Commit, RangeRead, Read, Release, TxnWork
from spanstore.txn.commands import TxnRef, Write

WINDOW_US = 10_000_000


def read(*numbers: int) -> Read:
    return Read(0, tuple(b"%06d" % number for number in numbers))


def test_a_window_counts_when_it_is_over() -> None:
    meter = LoadMeter(WINDOW_US)
    meter.count(read(1, 2, 3), 5)
    assert meter.reading(6) == Load()
    ended = meter.reading(5 + WINDOW_US)
    assert ended.rows_per_s == 0.3
    assert ended.keys == (b"000001", b"000002", b"000003")


def test_what_is_long_past_is_forgotten() -> None:
    meter = LoadMeter(WINDOW_US)
    meter.count(read(1), 5)
    assert meter.reading(5 + 2 * WINDOW_US) == Load()


def test_few_keys_are_kept_of_many_and_all_parts_of_the_window_have_some() -> None:
    meter = LoadMeter(WINDOW_US)
    for number in range(10_000):
        meter.count(read(number), 1 + number * 900)
    load = meter.reading(1 + WINDOW_US)
    numbers = [int(key) for key in load.keys]
    assert load.rows_per_s == 1000
    assert 32 <= len(numbers) < 64
    assert numbers == sorted(numbers)
    gaps = {b - a for a, b in pairwise(numbers)}
    assert len(gaps) == 1


def test_writes_and_ranges_count_and_other_requests_do_not() -> None:
    meter = LoadMeter(WINDOW_US)
    txn = TxnRef(b"k", b"i" * 16, 1, 1)
    meter.count(Commit(TxnWork(txn, 1, (Write(b"k", b"v"), Write(b"l", b"v")))), 1)
    meter.count(Read(0, (), (RangeRead(b"m", b"n"),)), 1)
    meter.count(Release(txn), 1)
    assert meter.reading(1 + WINDOW_US) == Load(0.3, (b"k", b"l", b"m"))


def test_it_makes_no_difference_how_many_rows_come_at_once() -> None:
    one, many = LoadMeter(WINDOW_US), LoadMeter(WINDOW_US)
    for number in range(5_000):
        one.count(read(number), 1)
    for number in range(0, 5_000, 250):
        many.count(read(*range(number, number + 250)), 1)
    assert one.reading(1 + WINDOW_US) == many.reading(1 + WINDOW_US)
