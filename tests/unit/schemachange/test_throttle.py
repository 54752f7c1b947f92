"""The pace of the reorganiser over a simulated plant: servers whose users wait the longer, the more is done."""

import asyncio
import random
from collections.abc import Callable
from itertools import takewhile
from typing import cast

import pytest

from f1common.config import F1ServerSection
from f1server.schemachange.work.pacing import Paced
from f1server.schemachange.work.throttle import Figures, Throttle, ThrottleOptions
from spanstore.client import SpanClient
from spanstore.client.foreground import ForegroundLoad

OPTIONS = ThrottleOptions(slowdown=0.05, min_rate=1_000, max_rate=40_000)
BATCH = 100
READS, COMMITS = 75.0, 25.0

Slowdown = Callable[[float, float], float]
"""By what factor users wait longer, from the time and the rows a second that are worked on."""


def test_the_bounds_without_a_configuration_are_those_of_the_configuration() -> None:
    section, options = F1ServerSection(), ThrottleOptions()
    assert options.min_rate == section.reorganise_min_rows_per_s
    assert options.max_rate == section.reorganise_max_rows_per_s
    assert options.slowdown == section.reorganise_slowdown_percent / 100


class Plant:
    """Servers and their users. Figures are averages over the last second or so, as the servers tell them."""

    def __init__(self, slowdown: Slowdown, *, users: float = 1.0, noise: float = 0.0) -> None:
        self.slowdown = slowdown
        self.users = users
        self.noise = noise
        self.rng = random.Random(1)
        self.now_s = 100.0
        self.done: list[tuple[float, int]] = []
        self.suffered: list[float] = []

    def rate(self, window_s: float = 0.7) -> float:
        newest_first = reversed(self.done)
        return sum(rows for _, rows in takewhile(lambda item: item[0] > self.now_s - window_s, newest_first)) / window_s

    def figures(self) -> Figures:
        factor = self.slowdown(self.now_s, self.rate()) * (1 + self.rng.uniform(-self.noise, self.noise))
        self.suffered.append(factor)
        return Figures(READS * self.users, 500 * factor, COMMITS * self.users, 4_000 * factor)

    def run(self, throttle: Throttle, seconds: float) -> float:
        """Work for a while; return the rows a second over all of it."""
        end_s, first = self.now_s + seconds, len(self.done)
        while self.now_s < end_s:
            self.now_s += throttle.wait_s(BATCH, self.figures(), self.now_s) + 0.001
            self.done.append((self.now_s, BATCH))
        return sum(rows for _, rows in self.done[first:]) / seconds


def linear(per_row: float) -> Slowdown:
    return lambda _, rate: 1 + per_row * rate


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_users_are_slowed_down_by_no_more_than_is_allowed(noise: float) -> None:
    """At 8,000 rows a second they wait 5 % longer: it settles around that, or below if the figures are uncertain."""
    plant = Plant(linear(0.05 / 8_000), noise=noise)
    throttle = Throttle(OPTIONS)
    plant.run(throttle, 120)
    plant.suffered.clear()
    rate = plant.run(throttle, 300)
    assert sum(plant.suffered) / len(plant.suffered) < 1.06
    assert (5_000 if not noise else 1_000) < rate < 9_000


def test_without_users_it_works_as_fast_as_it_may() -> None:
    plant = Plant(linear(1.0), users=0.0)
    throttle = Throttle(OPTIONS)
    plant.run(throttle, 20)
    assert throttle.rate == OPTIONS.max_rate


def test_it_ends_however_much_users_suffer() -> None:
    plant = Plant(linear(1.0))
    throttle = Throttle(OPTIONS)
    plant.run(throttle, 20)
    assert plant.run(throttle, 200) >= 0.97 * OPTIONS.min_rate


def test_it_gives_way_within_seconds_when_users_come() -> None:
    plant = Plant(linear(0.05 / 8_000), users=0.0)
    throttle = Throttle(OPTIONS)
    plant.run(throttle, 30)
    assert throttle.rate == OPTIONS.max_rate
    plant.users = 1.0
    plant.run(throttle, 30)
    assert plant.run(throttle, 60) < 9_000


def test_that_users_wait_longer_for_reasons_of_their_own_is_not_taken_for_its_doing() -> None:
    """At a time when everything takes twice as long, whatever is done, the figure at rest does so too."""
    plant = Plant(lambda now_s, rate: (2.0 if now_s > 200 else 1.0) * (1 + 0.05 / 8_000 * rate))
    throttle = Throttle(OPTIONS)
    plant.run(throttle, 160)
    assert plant.run(throttle, 300) > 5_000


def test_the_bounds_are_shared_among_workers() -> None:
    shared = OPTIONS.shared(4)
    assert (shared.min_rate, shared.max_rate, shared.slowdown) == (250, 10_000, 0.05)


def test_small_tables_are_left_more_time() -> None:
    base = ThrottleOptions(0.05, 3_000, 50_000)
    assert base.floor == base.over(0).floor == base.over(1_000_000).floor == base.over(10**9).floor == 3_000
    assert base.over(330_000).floor == 1_000
    assert base.over(1_000).floor == base.over(1).floor == 500
    for rows in (1, 200_000, 10**7):
        shared = base.over(rows).shared(4)
        assert shared.floor == base.over(rows).floor / 4
        assert (shared.min_rate, shared.max_rate) == (750, 12_500)


def test_a_small_table_yields_to_users_from_the_beginning() -> None:
    """Users suffer whatever is done: it begins with what a table of this size needs, and stays there."""
    plant = Plant(linear(0.05 / 50))
    throttle = Throttle(OPTIONS)
    throttle.adjust(OPTIONS.over(99_000))
    assert throttle.rate == 300
    assert plant.run(throttle, 15) < 1.2 * 300
    rate = plant.run(throttle, 230)
    assert 0.9 * 300 < rate < 1.2 * 300


def test_a_small_table_gropes_its_way_in_small_steps() -> None:
    """A tenth of its own lower bound, 30 rows, each second; a tenth of a large table's would be 100."""
    plant = Plant(linear(0.0))
    throttle = Throttle(OPTIONS.over(99_000))
    plant.run(throttle, 25)
    assert 400 < throttle.rate <= 300 + 25 * 30


def test_batches_are_as_large_as_a_tenth_of_a_second_allows() -> None:
    def rows(rate: float) -> int:
        async def nothing(_: float) -> None:
            pass

        options = ThrottleOptions(min_rate=rate, max_rate=50_000)
        return Paced(cast(SpanClient, None), options, lambda: 0.0, nothing).batch_rows()

    assert [rows(rate) for rate in (10, 600, 3_000, 50_000)] == [50, 60, 300, 5_000]


@pytest.mark.parametrize(("reads", "waits"), [(100.0, [0.05]), (1.0, [])])
def test_rows_that_are_written_later_are_read_little_by_little_where_there_are_users(
    reads: float, waits: list[float]
) -> None:
    class Client:
        async def foreground(self) -> ForegroundLoad:
            return ForegroundLoad(reads=reads, read_us=900.0)

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    options = ThrottleOptions(min_rate=1_000, max_rate=50_000)
    asyncio.run(Paced(cast(SpanClient, Client()), options, lambda: 100.0, sleep).ahead(500))
    assert slept == waits


def test_who_reads_ahead_for_long_is_at_work_and_keeps_what_was_found_out() -> None:
    throttle, users = Throttle(OPTIONS), Figures(reads=READS, read_us=900.0)
    for _ in range(20):
        throttle.wait_s(BATCH, Figures(), throttle._free_s + 1.5)
    found = throttle.rate
    assert found > OPTIONS.floor
    now_s = throttle._free_s
    for _ in range(10):
        now_s += 1.0
        assert throttle.ahead_s(500, users, now_s) == 500 / (found * 10)
    throttle.wait_s(BATCH, users, now_s + 0.5)
    assert throttle._at_rest.read_us is None
    assert throttle.ahead_s(500, users, now_s + 60) == 500 / (OPTIONS.floor * 10)


def test_what_was_found_out_is_kept_when_the_workers_become_fewer() -> None:
    plant = Plant(linear(0.05 / 8_000), users=0.0)
    throttle = Throttle(OPTIONS.shared(2))
    plant.run(throttle, 20)
    throttle.adjust(OPTIONS)
    assert throttle.rate == OPTIONS.max_rate / 2


def test_when_users_come_it_goes_back_to_the_floor_until_it_knows_how_they_are_served_without_it() -> None:
    plant = Plant(linear(0.05 / 50), users=0.0)
    throttle = Throttle(OPTIONS.over(99_000))
    plant.run(throttle, 20)
    assert throttle.rate == OPTIONS.max_rate
    plant.users = 1.0
    plant.run(throttle, 3)
    assert throttle.rate == 300


def test_the_next_change_does_not_begin_as_fast_as_the_last_one_ended() -> None:
    plant = Plant(linear(1.0), users=0.0)
    throttle = Throttle(OPTIONS)
    plant.run(throttle, 20)
    assert throttle.rate == OPTIONS.max_rate
    plant.now_s += 30
    plant.users, plant.slowdown = 1.0, linear(0.05 / 50)
    assert plant.run(throttle, 4) < 1.3 * OPTIONS.min_rate
