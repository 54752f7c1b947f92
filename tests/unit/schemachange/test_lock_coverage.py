"""Claims 8 and 9 of the schema-change paper over every schedule of two transactions on one row (section 3.4)."""

import pytest

from f1server.schemachange.model.locks import COVERAGE, L1, L2, LockSchema, Phase, Rules, Schedule, lost_updates, phases
from f1server.schemachange.steps.plan import Change, plan
from f1server.schemachange.steps.states import Coverage, ElementClass, ElementState

ABSENT, PUBLIC = ElementState.ABSENT, ElementState.PUBLIC
BOTH_STAY = LockSchema()
L2_IS_ADDED = LockSchema(new=ABSENT)

MOVE = Change(COVERAGE, ElementClass.COVERAGE, Coverage.OLD, Coverage.NEW)
ADD = Change(L2, ElementClass.REQUIRED, ABSENT, PUBLIC)
DROP = Change(L1, ElementClass.REQUIRED, PUBLIC, ABSENT)

CHANGES = {
    "both locks stay": (BOTH_STAY, [MOVE]),
    "the new lock is added": (L2_IS_ADDED, [MOVE, ADD]),
    "the old lock is dropped": (BOTH_STAY, [MOVE, DROP]),
    "one lock replaces the other": (L2_IS_ADDED, [MOVE, ADD, DROP]),
}


def change(name: str) -> list[Phase]:
    start, wanted = CHANGES[name]
    return phases(start, plan(wanted))


def test_claim_8_coverage_that_changes_at_once_loses_updates() -> None:
    """The schedule of the proof is found: T1 reads under S1, T2 writes under S2, T1 writes under S1."""
    first, second = LockSchema(Coverage.OLD), LockSchema(Coverage.NEW)
    found = list(lost_updates([Phase((first,)), Phase((first, second)), Phase((second,))]))
    assert any(schedule.schemas == (first, second, first) for schedule in found)
    assert Schedule(((L1, 1), (L2, 1)), (1, 1, 1), (first, second, first)) in found


@pytest.mark.parametrize("name", CHANGES)
def test_claim_9_the_whole_sequence_loses_none(name: str) -> None:
    assert list(lost_updates(change(name))) == []


def test_dual_coverage_without_a_reorganisation_loses_updates() -> None:
    """The paper's second schedule: T1 reads under S1, T2 writes under S1, T1 writes under S3, equal timestamps."""
    found = list(lost_updates(change("both locks stay"), Rules(propagate=False)))
    begun_equal = [schedule for schedule in found if schedule.locks == ((L1, 1), (L2, 1))]
    covers = [tuple(schema.coverage for schema in schedule.schemas) for schedule in begun_equal]
    assert (Coverage.OLD, Coverage.OLD, Coverage.NEW) in covers
    assert all(last is Coverage.NEW for *_, last in covers)


@pytest.mark.parametrize("name", ["the old lock is dropped", "one lock replaces the other"])
def test_a_lock_that_is_delete_only_must_go_on_counting(name: str) -> None:
    """Merged as in figure 3, its pair is what tells of writes under the oldest schema until it is carried over."""
    assert list(lost_updates(change(name), Rules(count_delete_only=False)))


def test_the_phases_of_a_change_have_two_neighbouring_schemas_at_most() -> None:
    for name in CHANGES:
        stretches = change(name)
        assert all(len(phase.in_use) <= 2 for phase in stretches)
        assert sum(phase.propagates for phase in stretches) == 1
        assert stretches[-1].in_use[0].coverage is Coverage.NEW
