"""The states of schema elements and the transitions between them: figure 3 of the schema-change paper, as a table.

The picture itself is lost in the copies of the paper that can be read; what it shows is said in the text:

============================ ============================================== ===========================================
what is done                 states                                         where the paper says it
============================ ============================================== ===========================================
add, optional structural     absent, delete-only, public                    3.3.1, display after claim 5
drop, optional structural    the reverse, removal before absent             3.3.1, the same and the paragraph after it
add, required structural     absent, delete-only, write-only, fill, public  3.3.2, display; theorem 1
drop, required structural    the reverse, removal before absent             3.3.2, the same parenthesis; theorem 1, end
add, constraint              absent, write-only, public                     3.3.3, display
drop, constraint             the reverse                                    3.3.3, the same parenthesis
add or drop a lock           as a required column                           3.3, introduction; 3.4, first paragraph
lock coverage                L1, both, propagation, L2                      3.4, dual coverage, and claim 9
============================ ============================================== ===========================================

Transitions of many elements in one row of the figure make one schema version, and a row without any is left out
(caption of figure 3). There are three rows, since the longest sequence, that of a required element, has three steps;
the reorganisation stands between the second and the third, because all that needs one needs it before its last step:
a fill before public, a removal before absent, a propagation before L2. So the last step of everything that has a
reorganisation is in the third row, its first step in the first row. The drop of a constraint has none and may end in
the second row; the addition of a constraint has one, since existing data must be seen to honour it before it is public
(Definition 4, clause 6).

Tables and columns that may be NULL are optional; indexes, NOT NULL columns and locks are required: for each row there
must be a pair (section 3.3.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType

from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState

__all__ = [
    "PATHS",
    "Coverage",
    "ElementClass",
    "ElementState",
    "FigureRow",
    "State",
    "Step",
    "Work",
    "neighbours",
    "path",
]


class Coverage(Enum):
    """Which locks cover a column whose coverage changes (section 3.4)."""

    OLD = "old"
    BOTH = "both"
    NEW = "new"


State = ElementState | Coverage


class ElementClass(StrEnum):
    """What the transitions of an element depend on (sections 3.3 and 3.4)."""

    OPTIONAL = "optional"
    REQUIRED = "required"
    CONSTRAINT = "constraint"
    COVERAGE = "coverage"


class FigureRow(IntEnum):
    """A row of figure 3: the first, second and third schema version that a change writes."""

    FIRST = 1
    SECOND = 2
    THIRD = 3


class Work(StrEnum):
    """What the reorganisation does for an element."""

    NONE = "none"
    FILL = "fill"
    """Write the pairs that old rows lack: index entries, default values, locks."""
    VALIDATE = "validate"
    """See that all rows honour a constraint; the change fails if they do not."""
    REMOVE = "remove"
    """Delete all pairs."""
    PROPAGATE = "propagate"
    """Set each new lock to the later of its own timestamp and that of the lock it takes over from."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transition of one element, and the row in which it happens."""

    row: FigureRow
    state: State


@dataclass(frozen=True, slots=True)
class Path:
    """All that happens to an element on its way from ``start``: the steps, and the work before the third row."""

    start: State
    steps: tuple[Step, ...]
    work: Work

    @property
    def states(self) -> tuple[State, ...]:
        """The states in order, the first and the last included."""
        return (self.start, *(step.state for step in self.steps))


_A, _D, _W, _P = ElementState.ABSENT, ElementState.DELETE_ONLY, ElementState.WRITE_ONLY, ElementState.PUBLIC
_OLD, _BOTH, _NEW = Coverage.OLD, Coverage.BOTH, Coverage.NEW
_1, _2, _3 = FigureRow.FIRST, FigureRow.SECOND, FigureRow.THIRD

PATHS: Mapping[tuple[ElementClass, State], Path] = MappingProxyType(
    {
        (ElementClass.OPTIONAL, _P): Path(_A, (Step(_1, _D), Step(_3, _P)), Work.NONE),
        (ElementClass.OPTIONAL, _A): Path(_P, (Step(_1, _D), Step(_3, _A)), Work.REMOVE),
        (ElementClass.REQUIRED, _P): Path(_A, (Step(_1, _D), Step(_2, _W), Step(_3, _P)), Work.FILL),
        (ElementClass.REQUIRED, _A): Path(_P, (Step(_1, _W), Step(_2, _D), Step(_3, _A)), Work.REMOVE),
        (ElementClass.CONSTRAINT, _P): Path(_A, (Step(_1, _W), Step(_3, _P)), Work.VALIDATE),
        (ElementClass.CONSTRAINT, _A): Path(_P, (Step(_1, _W), Step(_2, _A)), Work.NONE),
        (ElementClass.COVERAGE, _NEW): Path(_OLD, (Step(_1, _BOTH), Step(_3, _NEW)), Work.PROPAGATE),
        (ElementClass.COVERAGE, _OLD): Path(_NEW, (Step(_1, _BOTH), Step(_3, _OLD)), Work.PROPAGATE),
    }
)
"""By the class of an element and its goal."""


def path(kind: ElementClass, now: State, goal: State) -> Path:
    """Return the way of an element from the state ``now``, which may be an intermediate one, to ``goal``.

    The way from an intermediate state is the rest of the whole way, so that a change that was cut short goes on, or is
    taken back, with the same function. Raises F1Error INVALID_ARGUMENT for a state or goal that the class has not.
    """
    whole = PATHS.get((kind, goal))
    if whole is not None and now is goal:
        return Path(now, (), Work.NONE)
    if whole is None or now not in whole.states:
        raise F1Error(Code.INVALID_ARGUMENT, f"no {kind.value} element goes from {now.name} to {goal.name}")
    return Path(now, whole.steps[whole.states.index(now) :], whole.work)


def neighbours(kind: ElementClass, first: State, second: State) -> bool:
    """Tell whether servers may use ``first`` and ``second`` at the same time for an element of this class."""
    if first is second:
        return True
    return any(
        {first, second} == {before, after}
        for (of, _), way in PATHS.items()
        if of is kind
        for before, after in zip(way.states, way.states[1:], strict=False)
    )
