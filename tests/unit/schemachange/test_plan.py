"""Figure 3: the states of each class of elements, and the changes of many elements put into its rows."""

from itertools import pairwise

import pytest

from f1common.errors import Code, F1Error
from f1server.schemachange.steps.plan import Change, Move, Reorganisation, SchemaVersion, Task, plan
from f1server.schemachange.steps.states import (
    PATHS,
    Coverage,
    ElementClass,
    ElementState,
    FigureRow,
    Work,
    neighbours,
    path,
)

A, D, W, P = ElementState.ABSENT, ElementState.DELETE_ONLY, ElementState.WRITE_ONLY, ElementState.PUBLIC
OLD, BOTH, NEW = Coverage
OPTIONAL, REQUIRED, CONSTRAINT, COVERAGE = ElementClass
FIRST, SECOND, THIRD = FigureRow


@pytest.mark.parametrize(
    ("kind", "goal", "states", "rows", "work"),
    [
        (OPTIONAL, P, (A, D, P), (FIRST, THIRD), Work.NONE),
        (OPTIONAL, A, (P, D, A), (FIRST, THIRD), Work.REMOVE),
        (REQUIRED, P, (A, D, W, P), (FIRST, SECOND, THIRD), Work.FILL),
        (REQUIRED, A, (P, W, D, A), (FIRST, SECOND, THIRD), Work.REMOVE),
        (CONSTRAINT, P, (A, W, P), (FIRST, THIRD), Work.VALIDATE),
        (CONSTRAINT, A, (P, W, A), (FIRST, SECOND), Work.NONE),
        (COVERAGE, NEW, (OLD, BOTH, NEW), (FIRST, THIRD), Work.PROPAGATE),
        (COVERAGE, OLD, (NEW, BOTH, OLD), (FIRST, THIRD), Work.PROPAGATE),
    ],
)
def test_the_way_of_each_class(kind, goal, states, rows, work) -> None:
    way = path(kind, states[0], goal)
    assert (way.states, tuple(step.row for step in way.steps), way.work) == (states, rows, work)


def test_drops_are_the_reverse_of_additions() -> None:
    """Sections 3.3.1 to 3.3.3: the order of states is reversed; claim 1 is why."""
    for kind, up, down in ((OPTIONAL, P, A), (REQUIRED, P, A), (CONSTRAINT, P, A), (COVERAGE, NEW, OLD)):
        assert PATHS[kind, up].states == PATHS[kind, down].states[::-1]


def test_neighbours_are_one_step_apart() -> None:
    assert neighbours(REQUIRED, A, D) and neighbours(REQUIRED, P, W) and neighbours(REQUIRED, D, D)
    assert not neighbours(REQUIRED, A, W) and not neighbours(REQUIRED, D, P)
    assert neighbours(OPTIONAL, D, P) and not neighbours(OPTIONAL, W, P)
    assert neighbours(CONSTRAINT, A, W) and not neighbours(CONSTRAINT, A, P)
    assert neighbours(COVERAGE, OLD, BOTH) and not neighbours(COVERAGE, OLD, NEW)


def test_steps_of_one_row_are_one_schema_version() -> None:
    steps = plan(
        [
            Change("index", REQUIRED, A, P),
            Change("column", OPTIONAL, A, P),
            Change("foreign key", CONSTRAINT, P, A),
            Change("old column", OPTIONAL, P, A),
        ]
    )
    assert steps == (
        SchemaVersion(
            FIRST,
            (
                Move("index", A, D),
                Move("column", A, D),
                Move("foreign key", P, W),
                Move("old column", P, D),
            ),
        ),
        SchemaVersion(SECOND, (Move("index", D, W), Move("foreign key", W, A))),
        Reorganisation((Task("index", Work.FILL), Task("old column", Work.REMOVE))),
        SchemaVersion(THIRD, (Move("index", W, P), Move("column", D, P), Move("old column", D, A))),
    )


def test_rows_without_steps_are_skipped() -> None:
    assert [step.row for step in plan([Change("c", OPTIONAL, A, P)]) if isinstance(step, SchemaVersion)] == [
        FIRST,
        THIRD,
    ]
    assert len(plan([Change("c", OPTIONAL, A, P)])) == 2
    assert plan([Change("k", CONSTRAINT, P, A)]) == (
        SchemaVersion(FIRST, (Move("k", P, W),)),
        SchemaVersion(SECOND, (Move("k", W, A),)),
    )
    assert plan([]) == ()
    assert plan([Change("i", REQUIRED, P, P)]) == ()


def test_a_hundred_changes_take_the_steps_of_the_longest() -> None:
    many = [Change(f"index {n}", REQUIRED, A, P) for n in range(50)]
    many += [Change(f"column {n}", OPTIONAL, P, A) for n in range(50)]
    assert [type(step) for step in plan(many)] == [SchemaVersion, SchemaVersion, Reorganisation, SchemaVersion]


@pytest.mark.parametrize(
    ("kind", "now", "goal", "states", "work"),
    [
        (REQUIRED, D, A, (D, A), Work.REMOVE),
        (REQUIRED, W, A, (W, D, A), Work.REMOVE),
        (REQUIRED, W, P, (W, P), Work.FILL),
        (REQUIRED, D, P, (D, W, P), Work.FILL),
        (OPTIONAL, D, A, (D, A), Work.REMOVE),
        (OPTIONAL, D, P, (D, P), Work.NONE),
        (CONSTRAINT, W, A, (W, A), Work.NONE),
        (CONSTRAINT, W, P, (W, P), Work.VALIDATE),
        (COVERAGE, BOTH, OLD, (BOTH, OLD), Work.PROPAGATE),
    ],
)
def test_a_change_that_was_cut_short_goes_on_or_back(kind, now, goal, states, work) -> None:
    way = path(kind, now, goal)
    assert (way.states, way.work) == (states, work)


def test_from_every_state_of_a_way_both_ends_are_reached_by_neighbouring_states() -> None:
    for (kind, goal), whole in PATHS.items():
        for now in whole.states:
            for end in (goal, whole.start):
                way = path(kind, now, end)
                assert way.states[-1] is end
                assert all(neighbours(kind, a, b) for a, b in pairwise(way.states))
                assert [step.row for step in way.steps] == sorted({step.row for step in way.steps})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("c", OPTIONAL, W, P), "no optional element goes from WRITE_ONLY to PUBLIC"),
        (Change("c", CONSTRAINT, D, A), "no constraint element goes from DELETE_ONLY to ABSENT"),
        (Change("c", COVERAGE, A, P), "no coverage element goes from ABSENT to PUBLIC"),
        (Change("c", REQUIRED, A, W), "WRITE_ONLY is an intermediate state, no goal"),
        (Change("c", REQUIRED, W, W), "WRITE_ONLY is an intermediate state, no goal"),
    ],
)
def test_what_is_no_change_is_refused(change, words) -> None:
    with pytest.raises(F1Error, match=words) as caught:
        plan([change])
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_an_element_changes_once() -> None:
    with pytest.raises(F1Error, match="each element once"):
        plan([Change("c", OPTIONAL, A, P), Change("c", OPTIONAL, P, A)])
