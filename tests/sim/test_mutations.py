"""Broken code is caught, by the checkers that should, at seeds that are known to show it; sound code passes them.

Here are the quickest; `scripts/mutations.py` hunts all of them, in `make test-long` too.
"""

import inspect

import pytest

from f1common.errors import InvariantViolation
from scripts import mutations as script
from spanstore.group.tenure import Tenure
from spanstore.testing.mutations import MUTATIONS
from spanstore.testing.mutations.mutation import replaced
from spanstore.testing.scenarios import ERROR

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}
QUICK = (
    ("entry_skipped", 0),
    ("entries_reversed", 0),
    ("promise_in_forgotten_lease", 0),
    ("lease_ignored", 0),
    ("fence_skipped", 1),
    ("commit_id_executed_twice", 0),
    ("tested_before_locked", 0),
    ("abort_not_logged", 0),
    ("bundled_over_locks", 0),
    ("bundled_untested", 2),
)
SLOWER = (("own_before_cede", 0), ("last_rows_forgotten", 0), ("outcomes_forgotten", 0), ("old_data_kept", 100))


@pytest.mark.parametrize(("name", "first"), [*QUICK, *(pytest.param(*item, marks=pytest.mark.long) for item in SLOWER)])
def test_quick_ones_are_caught(name: str, first: int) -> None:
    """Within five seeds, because code that has changed takes another course at the same seed."""
    found = script.hunt(name, first, 5)
    assert found.caught is not None
    assert found.caught.caught_by != ERROR, found.caught
    assert found.control is None


@pytest.mark.long
@pytest.mark.parametrize("name", BY_NAME)
def test_all_are_caught(name: str) -> None:
    found = script.hunt(name, 1_000, 500)
    assert found.caught is not None
    assert found.caught.caught_by != ERROR, found.caught
    assert found.control is None


def test_at_least_twelve_with_names_of_their_own() -> None:
    assert len(MUTATIONS) >= 12
    assert len(BY_NAME) == len(MUTATIONS)


def test_every_mutation_breaks_something_and_mends_it() -> None:
    """Outside of their time, mutations leave no trace: the code is the same object as before."""
    before = {name: value for name, value in vars(Tenure).items() if inspect.isfunction(value)}
    for mutation in MUTATIONS:
        with mutation.broken():
            pass
    assert {name: value for name, value in vars(Tenure).items() if inspect.isfunction(value)} == before


def test_mutation_of_code_that_has_moved_is_an_error() -> None:
    with pytest.raises(InvariantViolation, match="no_such_method"), replaced(Tenure, "no_such_method", lambda _: None):
        pass
