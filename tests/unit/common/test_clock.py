"""Clocks: what each source promises. No test here depends on how fast it runs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from f1common import clock
from f1common.clock import BoundedClock, KernelClock, ManualClock, Now, SameHostClock, TTInterval, clock_from_config
from f1common.config import ClockSection
from f1common.errors import Code, F1Error, InvariantViolation

HOUR_US = 3_600_000_000


def test_after_and_before_are_strict_at_both_ends() -> None:
    interval = TTInterval(10, 20)
    assert [interval.after(ts) for ts in (9, 10, 20)] == [True, False, False]
    assert [interval.before(ts) for ts in (10, 20, 21)] == [False, False, True]


def test_two_same_host_clocks_agree_and_never_go_back() -> None:
    offset_us = clock.measure_same_host_offset_us()
    here, there = SameHostClock(offset_us), SameHostClock(offset_us)
    samples = [source.sample() for source in (here, there) * 50]
    assert samples == sorted(samples, key=lambda now: now.tt.earliest)
    assert all(now.tt == TTInterval(now.boot_us + offset_us, now.boot_us + offset_us) for now in samples)


def test_the_offset_is_measured_once_per_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "clock"
    measured = iter([111, 222, 333, 444])
    monkeypatch.setattr(clock, "measure_same_host_offset_us", lambda: next(measured))
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-1")
    assert [clock.same_host_offset_us(state) for _ in range(3)] == [111, 111, 111]
    monkeypatch.setattr(clock, "boot_id", lambda: "boot-2")
    assert [clock.same_host_offset_us(state) for _ in range(2)] == [222, 222]
    state.write_text("boot-2 half a num")
    assert clock.same_host_offset_us(state) == 333
    assert [path.name for path in tmp_path.iterdir()] == ["clock"]
    with pytest.raises(F1Error, match="BAD_DATA_DIR"):
        clock.same_host_offset_us(tmp_path / "absent" / "clock")


def test_the_boot_id_stays_the_same_until_the_next_boot() -> None:
    assert clock.boot_id() == clock.boot_id() != ""


def test_a_bounded_clock_is_as_wide_as_its_bound() -> None:
    tt = BoundedClock(250).sample().tt
    assert tt.latest - tt.earliest == 500
    with pytest.raises(F1Error, match="INVALID_ARGUMENT"):
        BoundedClock(-1)


def test_a_kernel_clock_takes_the_bound_of_each_reading() -> None:
    readings = iter([(0, 0, 5000, 10), (0, 0, 6000, 30), (0, 0x2000, 7000, 40)])
    source = KernelClock(lambda: next(readings))
    assert source.sample().tt == TTInterval(5970, 6030)
    assert source.sample().tt == TTInterval(6960, 7040)


@pytest.mark.parametrize(("state", "status"), [(5, 0), (0, 0x40), (5, 0x2040)])
def test_an_unsynchronised_kernel_clock_is_refused_at_once_and_later(state: int, status: int) -> None:
    with pytest.raises(F1Error, match="not synchronised; start an NTP daemon") as caught:
        KernelClock(lambda: (state, status, 0, 0))
    assert caught.value.code is Code.CLOCK_SKEW
    readings = iter([(0, 0, 5000, 10), (state, status, 6000, 16_000_000)])
    source = KernelClock(lambda: next(readings))
    with pytest.raises(F1Error, match="CLOCK_SKEW"):
        source.sample()


def test_the_kernel_answers_adjtimex() -> None:
    # Whether this machine is synchronised is not ours to say; that the structure is read rightly is.
    _, _, before, _ = clock._read_adjtimex()
    tt = BoundedClock(0).sample().tt
    _, _, after, error_us = clock._read_adjtimex()
    assert before <= tt.latest
    assert tt.earliest <= after
    assert error_us >= 0


@pytest.mark.parametrize(("status", "fraction"), [(0, 250_000), (0x2000, 250_000_999)])
def test_the_kernel_may_count_in_nanoseconds(status: int, fraction: int) -> None:
    timex = clock._Timex(status=status, maxerror=7, time=clock._Timeval(tv_sec=3, tv_usec=fraction))
    assert clock._reading(0, timex) == (0, status, 3_250_000, 7)


def test_a_manual_clock_moves_only_when_told() -> None:
    source = ManualClock(boot_us=5, tt_us=1000, bound_us=10)
    assert source.sample() == source.sample() == Now(5, TTInterval(990, 1010))
    source.advance(7)
    assert source.sample() == Now(12, TTInterval(997, 1017))
    source.set_bound(0)
    assert source.sample() == Now(12, TTInterval(1007, 1007))


def test_skew_and_jumps_do_not_touch_the_boot_clock() -> None:
    source = ManualClock(boot_us=5, tt_us=1000)
    source.set_skew(HOUR_US)
    assert source.sample() == Now(5, TTInterval(1000 + HOUR_US, 1000 + HOUR_US))
    source.set_skew(0)
    source.set_tt(1000 - HOUR_US)
    assert source.sample() == Now(5, TTInterval(1000 - HOUR_US, 1000 - HOUR_US))
    with pytest.raises(InvariantViolation):
        source.advance(-1)


@given(st.integers(0, 10 * HOUR_US), st.integers(-10_000, 10_000), st.integers(0, 1000), st.integers(0, HOUR_US))
def test_a_driven_clock_drifts_within_its_rate(virtual: int, ppm: int, bound_us: int, offset_us: int) -> None:
    source = ManualClock(lambda: virtual, offset_us, bound_us, drift_ppm=ppm)
    now = source.sample()
    assert abs(now.boot_us - virtual) <= virtual * abs(ppm) // 1_000_000 + 1
    assert now.tt == TTInterval(now.boot_us + offset_us - bound_us, now.boot_us + offset_us + bound_us)


def test_a_driven_clock_follows_its_source() -> None:
    time = [0]
    source = ManualClock(lambda: time[0], 100, 1, drift_ppm=1000)
    assert source.sample() == Now(0, TTInterval(99, 101))
    time[0] = 1_000_000
    assert source.sample() == Now(1_001_000, TTInterval(1_001_099, 1_001_101))
    source.set_tt(50)
    assert source.sample() == Now(1_001_000, TTInterval(49, 51))


def test_the_configuration_picks_the_source() -> None:
    assert isinstance(clock_from_config(ClockSection(source="bounded", bound_us=7)), BoundedClock)
    same_host = clock_from_config(ClockSection(offset_us=5))
    assert isinstance(same_host, SameHostClock)
    with pytest.raises(F1Error, match=r"needs clock\.offset_us"):
        clock_from_config(ClockSection())
