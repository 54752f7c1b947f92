"""A server that stands still as it sends a commit, for longer than its lease, while the schema changes without it."""

from unittest.mock import patch

import pytest

from f1server.catalog.leases import Leased
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.testing.changes import LAYOUTS
from f1server.testing.late_commits import CASES_OF_LATE_COMMITS, late_commit
from scripts.quiet import quiet
from tests.amounts import some

QUICK = ["index, flat", "another parent, interleaved"]
CASES = [f"{name}, {layout}" for name in CASES_OF_LATE_COMMITS for layout in LAYOUTS]
EACH = some(QUICK, [case for case in CASES if case not in QUICK])


def forgets_its_fence(self: Leased) -> int:
    """Whatever the lease says, its commits are good for ever."""
    return 1 << 60


async def unverified(*_: object) -> None:
    """Believe that all went well."""


@pytest.mark.parametrize("case", EACH)
def test_the_fence_refuses_it(case: str) -> None:
    name, layout = case.split(", ")
    with quiet():
        found, noted = late_commit(name, layout, seed=1)
    assert not found
    assert noted.fenced


@pytest.mark.parametrize("case", EACH)
def test_a_server_that_ignores_its_fence_is_caught(case: str) -> None:
    """By the seven clauses, whatever the change is, by one seed."""
    name, layout = case.split(", ")
    with quiet(), patch.object(Leased, "deadline", forgets_its_fence), patch.object(Reorganiser, "verify", unverified):
        found, noted = late_commit(name, layout, seed=1)
    assert found and not noted.fenced
