"""Replicas that were away until the logs went on without them fetch the state, while everything dies and breaks off."""

import pytest

from scripts import mutations as script
from spanstore.testing.scenarios import ERROR, WORKLOADS, draw, run
from spanstore.testing.scenarios.aims import absences

SEEDS = (2, 3, 5, 8)


def test_absent_replicas_fetch_the_state_whatever_dies() -> None:
    done = [run(absences(draw(seed, WORKLOADS[seed % len(WORKLOADS)]))).value for seed in SEEDS]
    assert sum(stats.transfers for stats in done) >= 3, done


@pytest.mark.long
def test_outcomes_newer_than_rows_are_caught() -> None:
    """The property test of copies catches them at once; here a whole run does."""
    found = script.hunt("outcomes_after_rows", 1_000, 60)
    assert found.caught is not None
    assert found.caught.caught_by != ERROR, found.caught
    assert found.control is None


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 1_200, 20))
def test_more_seeds(first: int) -> None:
    done = []
    for seed in range(first, first + 20):
        done.append(run(absences(draw(seed, WORKLOADS[seed % len(WORKLOADS)]))).value)
    assert sum(stats.transfers for stats in done) >= 10, done
    assert sum(stats.resumed for stats in done) >= 1, done
