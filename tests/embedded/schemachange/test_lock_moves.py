"""Changes of lock coverage with the real planner and the real lock cells: no schedule loses an update (section 3.4).

The model (``test_lock_coverage``) has one column. Here are three, under the default lock or one of two lock columns,
which come and go with their columns. Every change from one arrangement to another is planned; one transaction changes a
column in some phase under one of the schemas that are in use then, and maybe another changes another column later. From
then on, under whatever schema is in use, a transaction that read before the first change must be refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from f1common.encoding.row import COMMIT_TS, THIS_VERSION, Cell
from f1server.catalog.schema import Column, ColumnType, ElementState, Kind, LockColumn, Schema, Table
from f1server.rows import locks
from f1server.schemachange.steps import diff, edits
from f1server.schemachange.steps.diff import Element, plan_steps
from f1server.schemachange.steps.plan import Task
from f1server.schemachange.steps.states import Work

C, D, E = 2, 3, 4
DEFAULT, L1, L2 = locks.DEFAULT_LOCK, 8, 9
Arrangement = tuple[int, int]
"""The locks of C and D. E is under the default lock."""
ARRANGEMENTS: list[Arrangement] = list(product((DEFAULT, L1, L2), (DEFAULT, L1, L2)))


def schema(arrangement: Arrangement, keep: bool = False) -> Schema:
    """A schema; ``keep``: both locks are there, each with a column of its own beside."""
    columns = [Column(i, f"c{i}", ColumnType(Kind.INT64)) for i in (1, C, D, E, *((5, 6) if keep else ()))]
    covered = {lock: tuple(c for c, by in zip((C, D), arrangement, strict=True) if by == lock) for lock in (L1, L2)}
    if keep:
        covered = {L1: (*covered[L1], 5), L2: (*covered[L2], 6)}
    found = [LockColumn(lock, f"lock{lock}", over) for lock, over in covered.items() if over]
    return Schema("d", 1, (Table(7, "T", 0, tuple(columns), (1,), locks=tuple(found)),))


@dataclass(frozen=True)
class Phase:
    """The tables that servers use at a time, or a step of the reorganisation under the one that all have."""

    in_use: tuple[Table, ...]
    tasks: tuple[Task[Element], ...] = ()


def phases(old: Schema, new: Schema, stop_after: int = 99) -> tuple[list[Phase], Schema]:
    """The phases of a change, planned anew before each version; the last schema."""
    now, found = old, [Phase(old.tables)]
    for _ in range(stop_after):
        steps = plan_steps(now, new)
        if steps and not steps[0].edits:
            for work in (False, True):
                tasks = tuple(t for t in steps[0].tasks if (t.work is Work.REMOVE) is work)
                found += [Phase(now.tables, tasks), Phase(now.tables)] if tasks else []
            steps = steps[1:]
        if not steps:
            break
        before, now = now, edits.advance(now, steps[0].edits)
        found += [Phase((before.tables[0], now.tables[0])), Phase(now.tables)]
    return found, now


class Row:
    """One row: its lock cells and the timestamp of its version."""

    def __init__(self, table: Table) -> None:
        self.ts = 100
        self.read_ts = 0
        self.cells: dict[int, Cell] = {}
        self._set(locks.locks_of_insert(table), set())

    def _set(self, changes: dict[int, Cell], drop: set[int]) -> None:
        merged = {**self.cells, **changes}
        self.cells = {i: THIS_VERSION if c is COMMIT_TS else c for i, c in merged.items() if i not in drop}

    def write(self, table: Table, column: int) -> None:
        self._set(*locks.locks_of_update(table, self.cells, self.ts, {column}))
        self.ts += 10

    def reorganise(self, table: Table, tasks: Sequence[Task[Element]]) -> None:
        """What the reorganiser does with the locks of a row."""
        moves = [(t.element.id, t.element.lock) for t in tasks if t.work is Work.PROPAGATE]
        coming = [t.element.id for t in tasks if t.element.kind == "lock" and t.work is Work.FILL]
        later = locks.raised(table, self.cells, self.ts, moves, coming)
        leaving = [t.element.id for t in tasks if t.element.kind == "lock" and t.work is Work.REMOVE]
        if later or any(lock in self.cells for lock in leaving):
            self._set(*locks.locks_carried_over(table, self.cells, self.ts, later))
            self.ts += 10

    def changed(self, table: Table, column: int, read_ts: int) -> bool:
        return locks.changed_since(table, self.cells, self.ts, [column], seen_ts=50, read_ts=read_ts)


Event = tuple[int, Table, int]
"""A write: in which phase, under which schema, of which column."""


def events(change: Sequence[Phase], first: int, columns: Sequence[int]) -> Iterator[Event]:
    for number in range(first, len(change)):
        if not change[number].tasks:
            yield from ((number, table, column) for table in change[number].in_use for column in columns)


def play(change: Sequence[Phase], written: Sequence[Event]) -> Iterator[tuple[int, Table, Row]]:
    """Yield (phase, table, row) for all that may validate after the first write. The row was inserted before all."""
    row = Row(change[0].in_use[0])
    for number, phase in enumerate(change):
        if phase.tasks:
            row.reorganise(phase.in_use[0], phase.tasks)
        for when, table, column in written:
            if when == number:
                row.write(table, column)
                if (when, table, column) == written[0]:
                    row.read_ts = row.ts - 1
        if number >= written[0][0]:
            for table in phase.in_use:
                yield number, table, row


def lost_updates(change: Sequence[Phase]) -> Iterator[tuple[Event, ...]]:
    """Yield the schedules in which a write of C or D is not seen by somebody who read the column before."""
    for first in events(change, 0, (C, D)):
        later = [(first,), *((first, second) for second in events(change, first[0], (C, D, E)))]
        for written in later:
            if any(not row.changed(table, first[2], row.read_ts) for _, table, row in play(change, written)):
                yield written


CHANGES = [(a, b) for a in ARRANGEMENTS for b in ARRANGEMENTS if a != b]


@pytest.mark.parametrize("keep", [True, False], ids=["both locks stay", "locks come and go"])
def test_no_change_of_coverage_loses_an_update(keep: bool) -> None:
    for old, new in CHANGES:
        change, end = phases(schema(old, keep), schema(new, keep))
        assert locks.coverage(end.tables[0]) == locks.coverage(schema(new, keep).tables[0])
        assert not end.tables[0].dual
        assert list(lost_updates(change)) == [], (old, new)


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.long)])
def test_a_change_that_is_taken_back_or_turned_loses_none(every: int) -> None:
    """Stopped after each version; then back, or to another arrangement."""
    for old, new, third in [(a, b, c) for a, b in CHANGES[::every] for c in (a, ARRANGEMENTS[4], ARRANGEMENTS[5])]:
        for keep, stop in product((True, False), (1, 2)):
            begun, half = phases(schema(old, keep), schema(new, keep), stop)
            rest, end = phases(half, schema(third, keep))
            assert list(lost_updates([*begun, *rest])) == [], (old, new, third, keep, stop)
            assert locks.coverage(end.tables[0]) == locks.coverage(schema(third, keep).tables[0])


MOVE = (schema((L1, L1), keep=True), schema((L2, L1), keep=True))
"""C goes from one lock to the other; both stay."""


def test_a_column_that_moves_is_covered_by_both_locks_in_between() -> None:
    (both, alone) = plan_steps(*MOVE)
    assert [(str(t.element), t.work, t.element.lock) for t in both.tasks] == [
        ("lock coverage of T.c2", Work.PROPAGATE, L2)
    ]
    assert (both.what, alone.what) == (
        ("lock coverage of T.c2: dual",),
        ("lock coverage of T.c2: by its new lock alone",),
    )
    change, _ = phases(*MOVE)
    covers = [[locks.coverage(table)[C] for table in phase.in_use] for phase in change if not phase.tasks]
    assert covers == [[(L1,)], [(L1,), (L1, L2)], [(L1, L2)], [(L1, L2)], [(L1, L2), (L2,)], [(L2,)]]


@pytest.mark.parametrize("old", [schema((L1, L1), keep=True), schema((L1, L1))], ids=["both stay", "replaced"])
def test_columns_under_other_locks_notice_nothing(old: Schema) -> None:
    """C moves, or both do and their locks with them: what is under the row's lock never conflicts with them.

    The row is inserted at 100; everything is read at 105, before anything else is written.
    """
    new = schema((L2, L2), keep=len(old.tables[0].locks) == 2)
    change, _ = phases(old, new)
    for event in events(change, 0, (C, D)):
        for _, table, row in play(change, (event,)):
            assert not row.changed(table, E, 105)
    for event in events(change, 0, (E,)):
        for _, table, row in play(change, (event,)):
            assert not row.changed(table, C, 105)


# ---------------------------------------------------------------- it fails where it should


def without_dual_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column goes to its new lock in the first version."""
    original = diff._Round._edit

    def edit(self: Any, move: Any) -> Any:
        made = original(self, move)
        if isinstance(made, edits.CoverageTo):
            return replace(made, locks=(move.element.lock,))
        return made

    monkeypatch.setattr(diff._Round, "_edit", edit)


def without_propagation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "raised", lambda *_: {})


def bumping_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer bumps the first of two locks."""
    original = locks.locks_of_update

    def update(table: Table, cells: Any, ts: int, assigned: Any) -> Any:
        first = {i: covers[:1] for i, covers in locks.coverage(table).items()}
        blind = replace(table)
        vars(blind)["_coverage"] = first
        return original(blind, cells, ts, assigned)

    monkeypatch.setattr(locks, "locks_of_update", update)


def comparing_one_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A validation looks at the last of two locks."""
    original = locks.covering
    monkeypatch.setattr(locks, "covering", lambda table, columns=(): original(table, columns)[-1:])


def dropping_the_cell_of_a_lock_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer drops the cell of a delete-only lock, which tells of the changes of its other columns."""
    original = locks.locks_of_update

    def update(table: Table, cells: Any, ts: int, assigned: Any) -> Any:
        changes, drop = original(table, cells, ts, assigned)
        for lock in table.locks:
            if lock.state is ElementState.DELETE_ONLY and lock.id in cells:
                changes.pop(lock.id, None)
                drop.add(lock.id)
        return changes, drop

    monkeypatch.setattr(locks, "locks_of_update", update)


@pytest.mark.parametrize(
    "defect",
    [
        without_dual_coverage,
        without_propagation,
        bumping_one_lock,
        comparing_one_lock,
        dropping_the_cell_of_a_lock_that_goes,
    ],
)
def test_a_defect_loses_updates(monkeypatch: pytest.MonkeyPatch, defect: Any) -> None:
    defect(monkeypatch)
    assert any(
        any(lost_updates(phases(schema(a, keep), schema(b, keep))[0])) for keep in (True, False) for a, b in CHANGES
    )
