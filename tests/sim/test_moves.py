"""Whole clusters whose ranges split, merge and move all the time, under every workload and any faults."""

import pytest

from scripts.simulate import try_one
from spanstore.testing.scenarios import WORKLOADS, draw, run

EVERY_US = 250_000


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", [3_000, pytest.param(3_001, marks=pytest.mark.long)])
def test_seeds(workload: str, seed: int) -> None:
    verdict = try_one(draw(seed, workload).with_(moves_us=EVERY_US, run_us=3_000_000))
    assert not verdict.failure, f"seed {seed}: {verdict.failure}"


def test_ranges_do_move() -> None:
    scenario = draw(3_000, "register").with_(moves_us=100_000, faults=(), run_us=3_000_000, clock_bound_us=0)
    stats = run(scenario).value
    assert stats.moves > 5
    assert stats.ok > 50


@pytest.mark.parametrize("workload", ["bank", pytest.param("commits", marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", [3_100, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3_101, 3_140))])
def test_seeds_in_which_a_group_is_founded(workload: str, seed: int) -> None:
    verdict = try_one(draw(seed, workload).with_(moves_us=EVERY_US, founds=True, run_us=6_000_000))
    assert not verdict.failure, f"seed {seed}: {verdict.failure}"


def test_ranges_do_move_to_a_group_that_is_founded() -> None:
    changes = {"founds": True, "moves_us": 100_000, "faults": (), "run_us": 6_000_000, "clock_bound_us": 0}
    stats = run(draw(3_100, "register").with_(**changes, groups=1)).value
    assert stats.founded == 1
    assert stats.moves > 5
