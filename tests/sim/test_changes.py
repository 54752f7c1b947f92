"""Databases by seed whose schema changes all the time: neighbouring versions, skewed clocks, late leases, dead servers.

Many more: ``python scripts/seeds.py --kinds changes``.
"""

import pytest

from f1server.testing.change_worlds import ChangeScenario, ChangeStats, draw, run
from scripts.quiet import quiet


def stats(scenario: ChangeScenario) -> ChangeStats:
    with quiet():
        return run(scenario).value


@pytest.mark.parametrize("seed", [9, 26, *(pytest.param(n, marks=pytest.mark.long) for n in range(50, 60))])
def test_seeds(seed: int) -> None:
    found = stats(draw(seed))
    assert found.checks > found.versions


def test_neighbouring_versions_are_at_work_while_changes_come_and_go() -> None:
    found = stats(draw(9).with_(faults=(), orders_ppm=0, run_us=5_000_000))
    assert found.behind > 5
    assert found.versions > 4


def test_same_seed_is_the_same_run() -> None:
    scenario = draw(26).with_(run_us=1_500_000)
    with quiet():
        assert len({run(scenario).trace_hash for _ in range(2)}) == 1
