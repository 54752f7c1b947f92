"""How long users wait, as a server remembers it."""

import pytest

from spanstore.runtime.foreground import ForegroundMeter

SECOND = 1_000_000


def test_reads_and_commits_are_told_apart_and_nothing_else_counts() -> None:
    meter = ForegroundMeter()
    for kind, took_us in (("read", 100), ("read", 300), ("commit", 5_000), ("prepare", 9), ("", 9)):
        meter.add(kind, took_us, SECOND)
    assert (meter.reads.count, meter.reads.mean_us) == (2, 200)
    assert (meter.commits.count, meter.commits.mean_us) == (1, 5_000)


def test_what_is_long_ago_hardly_counts() -> None:
    meter = ForegroundMeter()
    for n in range(100):
        meter.add("read", 100, SECOND + n)
    for n in range(100):
        meter.add("read", 1_000, 4 * SECOND + n)
    assert meter.reads.mean_us == pytest.approx(1_000, rel=0.02)
    meter.settle(8 * SECOND)
    assert meter.reads.count < 1 and meter.reads.mean_us == pytest.approx(1_000, rel=0.02)
    assert ForegroundMeter().commits.mean_us == 0
