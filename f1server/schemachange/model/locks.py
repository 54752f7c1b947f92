"""Changing lock coverage: schedules of optimistic transactions over one row while a column changes its lock (3.4).

Column C is covered by lock L1 before the change and by L2 after it; either lock may itself be added or dropped by the
same change. A transaction reads C and gets the timestamp of the locks that cover it, under the schema of the server
that it reads from; its write, under the schema of another server perhaps, is refused if a lock that covers C *there* is
newer than that. A schedule is wrong if another write of C was committed in between: the first transaction then
overwrites what it has not seen (a lost update, which no serial order explains).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product

from f1server.schemachange.steps.plan import Plan, Reorganisation
from f1server.schemachange.steps.states import Coverage, ElementState, Work

__all__ = ["L1", "L2", "COVERAGE", "LockSchema", "Phase", "Rules", "Schedule", "lost_updates", "phases"]

L1, L2, COVERAGE = "L1", "L2", "coverage of C"


@dataclass(frozen=True, slots=True)
class LockSchema:
    """What a schema says of the column: which locks cover it, and the states of both."""

    coverage: Coverage = Coverage.OLD
    old: ElementState = ElementState.PUBLIC
    new: ElementState = ElementState.PUBLIC

    @property
    def covering(self) -> dict[str, ElementState]:
        """The locks that cover the column, with their states; one that is absent covers nothing."""
        both = {L1: self.old, L2: self.new}
        chosen = {Coverage.OLD: (L1,), Coverage.BOTH: (L1, L2), Coverage.NEW: (L2,)}[self.coverage]
        return {lock: both[lock] for lock in chosen if both[lock] is not ElementState.ABSENT}


@dataclass(frozen=True, slots=True)
class Rules:
    """What servers do; the defaults are right, the others are defects that must show."""

    propagate: bool = True
    """The reorganisation carries timestamps over."""
    count_delete_only: bool = True
    """The pair of a delete-only lock counts in validations as long as it is there."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the change: the schemas that servers use, or one atomic step of the reorganisation."""

    in_use: tuple[LockSchema, ...]
    propagates: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A lost update: T1 reads, T2 writes, T1 writes, each in a phase (by number) under a schema.

    ``locks`` are the timestamps in the beginning, by lock; one that has no pair is left out.
    """

    locks: tuple[tuple[str, int], ...]
    phases: tuple[int, int, int]
    schemas: tuple[LockSchema, LockSchema, LockSchema]


def phases(start: LockSchema, steps: Plan[str]) -> list[Phase]:
    """Return the phases of a change that runs by ``steps``, whose elements are L1, L2 and COVERAGE."""
    found = [Phase((start,))]
    schema = start
    for step in steps:
        if isinstance(step, Reorganisation):
            if any(task.work is Work.PROPAGATE for task in step.tasks):
                found += [Phase((schema,), propagates=True), Phase((schema,))]
            continue
        before = schema
        for move in step.moves:
            if isinstance(move.after, Coverage):
                schema = replace(schema, coverage=move.after)
            elif move.element == L1:
                schema = replace(schema, old=move.after)
            else:
                schema = replace(schema, new=move.after)
        found += [Phase((before, schema)), Phase((schema,))]
    return found


_READ, _FIRST_WRITE, _SECOND_WRITE = range(3)
_T2_TS = 10


def lost_updates(change: Sequence[Phase], rules: Rules = Rules()) -> Iterator[Schedule]:
    """Yield every schedule of T1 and T2 during a change in which the update of T2 is lost."""
    usable = [number for number, phase in enumerate(change) if not phase.propagates]
    for when in combinations_with_replacement(usable, 3):
        for used in product(*(change[number].in_use for number in when)):
            for locks in _beginnings(change[0].in_use[0]):
                schedule = Schedule(tuple(sorted(locks.items())), when, (used[0], used[1], used[2]))
                if _is_lost(change, schedule, rules):
                    yield schedule


def _beginnings(schema: LockSchema) -> Iterator[dict[str, int]]:
    """Yield timestamps that the locks may have: equal, as after an insert, or one later than the other."""
    there = [lock for lock, state in ((L1, schema.old), (L2, schema.new)) if state is not ElementState.ABSENT]
    for timestamps in product((1, 2), repeat=len(there)):
        yield dict(zip(there, timestamps, strict=True))


def _is_lost(change: Sequence[Phase], schedule: Schedule, rules: Rules) -> bool:
    locks = dict(schedule.locks)
    seen = 0
    for event in (_READ, _FIRST_WRITE, _SECOND_WRITE):
        begin = schedule.phases[event - 1] + 1 if event else 0
        for number in range(begin, schedule.phases[event]):
            if change[number].propagates and rules.propagate:
                _propagate(locks, change[number].in_use[0])
        schema = schedule.schemas[event]
        if event == _READ:
            seen = _newest(locks, schema, rules)
        elif event == _FIRST_WRITE:
            _write(locks, schema, _T2_TS)
    return _newest(locks, schedule.schemas[_SECOND_WRITE], rules) <= seen


def _newest(locks: dict[str, int], schema: LockSchema, rules: Rules) -> int:
    """Return the latest timestamp of the locks that cover the column, 0 if none has a pair."""
    least = ElementState.DELETE_ONLY if rules.count_delete_only else ElementState.WRITE_ONLY
    return max((locks[lock] for lock, state in schema.covering.items() if state >= least and lock in locks), default=0)


def _write(locks: dict[str, int], schema: LockSchema, ts: int) -> None:
    """Bump the locks that cover the column; what is delete-only can only be deleted (definition 1)."""
    for lock, state in schema.covering.items():
        if state >= ElementState.WRITE_ONLY:
            locks[lock] = ts
        else:
            locks.pop(lock, None)


def _propagate(locks: dict[str, int], schema: LockSchema) -> None:
    """Set the lock that takes over to the later of both (section 3.4), and remove one that is on its way out."""
    newest = max(locks.values(), default=0)
    for lock, state in ((L1, schema.old), (L2, schema.new)):
        if state >= ElementState.WRITE_ONLY:
            locks[lock] = newest if lock == L2 else locks.get(lock, newest)
        else:
            locks.pop(lock, None)
