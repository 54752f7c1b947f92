"""Fault injection before and after every write of a schema change, for every kind of change, flat and interleaved.

`make test` runs one fault of some kinds; `make test-long` all of them, as the simulated worlds `change faults`.
"""

import pytest

from f1server.schemachange.jobs.jobs import JobState
from f1server.schemachange.steps import states
from f1server.schemachange.steps.states import ElementClass, ElementState, FigureRow, Path, Step, Work
from f1server.testing.change_faults import Mode, Strike, run_point
from f1server.testing.changes import CASES, LAYOUTS
from spanstore.testing.checkers import CheckFailed

_MODES = tuple(Mode)
_SHORT = ("rename column",)
"""These make four writes, the others five or more."""
SOME = [
    pytest.param(
        name,
        tuple(LAYOUTS)[number % 2],
        Strike(2 + number % (2 if name in _SHORT else 3), _MODES[number % len(_MODES)]),
        number % 3 == 0,
        marks=() if number % 5 == 0 else pytest.mark.long,
    )
    for number, name in enumerate(CASES)
]


@pytest.mark.parametrize(("name", "layout", "strike", "naughty"), SOME)
def test_a_change_ends_whatever_happens_at_a_write(name: str, layout: str, strike: Strike, naughty: bool) -> None:
    outcome = run_point(name, layout, strike, naughty=naughty)
    assert outcome.struck
    assert outcome.checks >= 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_not_begun_leaves_nothing(layout: str) -> None:
    outcome = run_point("index", layout, Strike(0, Mode.CRASH_BEFORE))
    assert outcome.state is None


def test_what_was_begun_is_finished_by_others() -> None:
    outcome = run_point("index", "flat", Strike(0, Mode.CRASH_AFTER))
    assert outcome.state is JobState.DONE


def test_an_owner_that_stood_still_finds_that_others_have_finished() -> None:
    outcome = run_point("many", "interleaved", Strike(12, Mode.FREEZE))
    assert outcome.state is JobState.DONE
    assert 6 < outcome.took_s < 13


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_users_write_meanwhile_may_make_a_change_fail(layout: str) -> None:
    """One of a few seeds has a writer that breaks the new constraint before its server knows of it."""
    assert any(
        run_point("unique index", layout, None, seed=seed, naughty=True).state is JobState.FAILED for seed in range(4)
    )


def test_an_index_that_is_never_delete_only_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One server enters a row in the index, another that does not know of the index deletes the row."""
    assert run_point("index", "flat", None, crossing=True).state is JobState.DONE
    leap = Path(
        ElementState.ABSENT,
        (Step(FigureRow.SECOND, ElementState.WRITE_ONLY), Step(FigureRow.THIRD, ElementState.PUBLIC)),
        Work.FILL,
    )
    broken = {**states.PATHS, (ElementClass.REQUIRED, ElementState.PUBLIC): leap}
    monkeypatch.setattr(states, "PATHS", broken)
    with pytest.raises(CheckFailed, match="orphan entry in R X"):
        run_point("index", "flat", None, crossing=True)
