"""From the changes of many elements to the schema versions and the reorganisation that make them (figure 3, caption).

A pure function of what is wanted: no elements are looked at but through their class and state. The result is what the
executor runs: schema version, schema version, reorganisation, schema version, where any may be missing. Each version
may be written when every server has the one before; the reorganisation begins when every server has the one before it,
and the next version is written when it has ended (sections 3.3.2, 3.4 and 4.4).

A change that was cut short is planned again from the states that its elements have reached, to the same goal to go on,
or to where they came from to take it back. Two things do not come back. What a removal has deleted is gone, so that a
reorganisation does all that may fail (fills of unique indexes, validations) before it removes anything, and a change
is not taken back after that. And a constraint that was dropped in the second row may be violated by the time when it is
to return: then its validation fails, and the change has to go on.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from f1common.errors import Code, F1Error
from f1server.schemachange.steps.states import Coverage, ElementClass, ElementState, FigureRow, Path, State, Work, path

__all__ = ["Change", "Move", "Plan", "Reorganisation", "SchemaVersion", "Task", "plan"]

E = TypeVar("E", bound=Hashable)
"""What names an element: ids, for the planner they are opaque."""

_ENDS: frozenset[State] = frozenset({ElementState.ABSENT, ElementState.PUBLIC, Coverage.OLD, Coverage.NEW})


@dataclass(frozen=True, slots=True)
class Change(Generic[E]):
    """What is wanted of one element: from the state ``now`` to ``goal``, which is no intermediate state."""

    element: E
    kind: ElementClass
    now: State
    goal: State


@dataclass(frozen=True, slots=True)
class Move(Generic[E]):
    """One element's part in a schema version."""

    element: E
    before: State
    after: State


@dataclass(frozen=True, slots=True)
class SchemaVersion(Generic[E]):
    """A schema version to write: a row of the figure, with the transitions of all elements in it."""

    row: FigureRow
    moves: tuple[Move[E], ...]


@dataclass(frozen=True, slots=True)
class Task(Generic[E]):
    """One element's part in the reorganisation."""

    element: E
    work: Work


@dataclass(frozen=True, slots=True)
class Reorganisation(Generic[E]):
    """The work on data that all elements need. Removals stand last: they must not begin while the others may fail."""

    tasks: tuple[Task[E], ...]


Plan = tuple[SchemaVersion[E] | Reorganisation[E], ...]


def plan(changes: Iterable[Change[E]]) -> Plan[E]:
    """Return the steps that make all ``changes``, with the elements of each step in the order given.

    Raises F1Error INVALID_ARGUMENT for an element that is named twice, and for a state or goal that its class has not.
    """
    wanted = list(changes)
    ways = {change.element: _way(change) for change in wanted}
    if len(ways) != len(wanted):
        raise F1Error(Code.INVALID_ARGUMENT, "a plan changes each element once")
    steps: list[SchemaVersion[E] | Reorganisation[E]] = []
    for row in FigureRow:
        if row is FigureRow.THIRD:
            tasks = [Task(element, way.work) for element, way in ways.items() if way.work is not Work.NONE]
            if tasks:
                steps.append(Reorganisation(tuple(sorted(tasks, key=lambda task: task.work is Work.REMOVE))))
        moves = _moves(ways, row)
        if moves:
            steps.append(SchemaVersion(row, moves))
    return tuple(steps)


def _way(change: Change[E]) -> Path:
    if change.goal not in _ENDS:
        raise F1Error(Code.INVALID_ARGUMENT, f"{change.goal.name} is an intermediate state, no goal")
    return path(change.kind, change.now, change.goal)


def _moves(ways: dict[E, Path], row: FigureRow) -> tuple[Move[E], ...]:
    return tuple(
        Move(element, way.states[position], step.state)
        for element, way in ways.items()
        for position, step in enumerate(way.steps)
        if step.row is row
    )
