"""Broken guards of disks and clocks are caught by the checks that the sound code passes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from f1common.errors import F1Error
from spanstore.engine.keyspace import Subspace
from spanstore.testing import bitrot
from spanstore.testing.mutations import disks
from tests.sim import test_disks as checks
from tests.unit.group.test_digests import Change, digest_after
from tests.unit.scrub import test_scrub as scrubbing

Broken = Callable[[], AbstractContextManager[None]]

CAUGHT: dict[str, tuple[Broken, Callable[[], None]]] = {
    "checksum not verified": (
        disks.checksum_not_verified,
        lambda: checks.test_a_damaged_row_is_not_read(0),
    ),
    "clock check ignored": (
        disks.clock_check_ignored,
        lambda: checks.test_a_leader_whose_clock_is_wrong_leads_no_more_and_drags_nobody_along(0, checks.HOUR_US),
    ),
    "mark forgotten": (
        disks.mark_forgotten,
        lambda: checks.test_a_replica_that_differs_is_found_by_the_others_and_out(0, False, False),
    ),
    "full disk writes on": (
        disks.full_disk_writes_on,
        lambda: checks.test_leadership_leaves_a_server_without_room_and_all_without_refuse_writes(0),
    ),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_broken_guard_is_caught(name: str) -> None:
    broken, check = CAUGHT[name]
    check()
    with broken(), pytest.raises((AssertionError, F1Error, pytest.fail.Exception)):
        check()


@pytest.mark.parametrize("broken", [disks.scrubber_skips_records])
def test_a_scrubber_that_skips_is_caught(tmp_path: Path, broken: Broken) -> None:
    directory = tmp_path / "data"
    bitrot.make(directory, 1)
    scrubbing.test_a_damaged_record_of_any_kind_is_found_and_laid_to_its_group(directory, Subspace.DATA)
    with broken(), pytest.raises(AssertionError):
        scrubbing.test_a_damaged_record_of_any_kind_is_found_and_laid_to_its_group(directory, Subspace.DATA)


def test_pages_whose_order_is_not_checked_are_caught(tmp_path: Path) -> None:
    """A flip in a separator hides rows: the fuzz meets one, and only the order of the keys tells."""
    directory = tmp_path / "rot"
    bitrot.make(directory, 2)
    with disks.pages_not_checked_for_order():
        assert any(not verdict.acceptable for verdict in bitrot.try_flips(directory, 2, 150, only="branch"))


def test_a_digest_that_ignores_its_turn_is_caught() -> None:
    changes: list[Change] = [(0, 1, 1), (0, 2, 2), (3, 0, 1)]

    def differ() -> bool:
        return len({digest_after(changes, cuts).digest for cuts in (set[int](), {1}, {2})}) > 1

    assert not differ()
    with disks.digest_ignores_the_turn():
        assert differ()
