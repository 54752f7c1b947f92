"""Five data centres: what a commit costs between them, and what may be lost."""

import pytest

from spanstore.testing.sim.world import WorldConfig, run_sim
from spanstore.testing.sites import Report, measure, second_nearest_us
from tests.amounts import some

CLOCK_BOUND_US = 2_000


@pytest.fixture(scope="module", params=some([1], [2, 3]))
def report(request: pytest.FixtureRequest) -> Report:
    return run_sim(measure, request.param, WorldConfig(clock_bound_us=CLOCK_BOUND_US, max_drift_ppm=100))


def test_leaders_go_where_they_are_wanted(report: Report) -> None:
    assert set(report.leaders.values()) == {"span-a"}


def test_a_commit_takes_the_round_trip_to_the_second_nearest_voter(report: Report) -> None:
    nearest = second_nearest_us()
    assert nearest <= report.kinds["commit, one group"].p50_us <= 1.2 * nearest


def test_two_groups_take_about_twice_as_long_as_one(report: Report) -> None:
    one, two = (report.kinds[f"commit, {groups}"].p50_us for groups in ("one group", "two groups"))
    assert 1.5 * one < two <= 2.2 * one


def test_reads_beside_the_leader_cross_no_continent(report: Report) -> None:
    assert report.kinds["strong read in the east"].p50_us < second_nearest_us() / 4


def test_a_site_and_one_machine_elsewhere_may_be_lost(report: Report) -> None:
    assert report.writes_after_loss == 60


def test_the_site_that_leads_and_one_machine_elsewhere_may_be_lost(report: Report) -> None:
    assert report.writes_without_leaders == 60
