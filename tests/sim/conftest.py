"""What of some tests runs in `make test-long` only.

Simulated worlds are counted for the text of the files that they are made of (scripts/worlds.py), and these tests are
worlds: a mark in their files would let thousands of runs count no more.
"""

from pathlib import Path

import pytest

LONG = {
    "test_garbage.py": (
        "test_a_participant_is_down_for_longer_than_outcomes_are_kept[1-False]",
        "test_a_participant_is_down_for_longer_than_outcomes_are_kept[1-True]",
    ),
    "test_membership.py": (
        "test_a_dead_voter_is_replaced_while_writes_go_on[1]",
        "test_a_disk_that_is_lost_twice_is_made_up_for",
    ),
    "test_pool.py": tuple(f"test_pools_hold_the_slaves_that_work[{seed}]" for seed in range(8, 24)),
    "test_scans.py": ("test_same_seed_is_the_same_run", "test_scans_under_faults[101]"),
    "test_servers.py": (
        *(f"test_a_server_is_emptied_and_removed_while_clients_write[{seed}]" for seed in (1, 2)),
        *(f"test_a_dead_server_is_replaced_and_does_no_harm_when_it_comes_back[{seed}]" for seed in (1, 2)),
    ),
}
FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if item.path.parent == FOLDER and item.name in LONG.get(item.path.name, ()):
            item.add_marker(pytest.mark.long)
