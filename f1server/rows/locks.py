"""Lock columns: which timestamp says when the columns of a row last changed (F1 section 5.1).

A row has a default lock, and may have more that cover some columns each. A lock's value is the commit timestamp of the
last change of what it covers. The default lock is cell 0, absent as long as it means the version's own timestamp, which
in a table without other locks is always. Cells of the other locks carry their column ids.

What can go wrong, and what the rules are
    A new version of a row has a new timestamp whatever was changed in it. So whoever writes one **must** replace the
    cell of each lock that it bumps and turn every "this version's" that it carries over, the implicit default
    included, into an absolute timestamp; otherwise a lock that was not touched seems bumped (a false conflict), or one
    that was not replaced hides a change (a lost update).

    A lock column that comes into being has no cells yet: its value is the default lock's, which covered the columns.
    While its state is below PUBLIC, the default lock goes on covering the same columns, because servers with the older
    schema validate against that one. A writer at DELETE_ONLY drops the cell of a lock whose columns it changes: the
    cell would be older than the change when the lock becomes PUBLIC. On the way out the lock's cells count as long as
    they are there (while it was PUBLIC, changes bumped nothing else), until the reorganiser has folded them into the
    default.

    Validation compares with the time of the read, not with the value that was read: coverage may have changed since,
    and the value of another lock that covers the same columns is another number without anything having happened.
"""

from collections.abc import Collection, Mapping

from f1common.encoding.row import COMMIT_TS, THIS_VERSION, Cell, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, LockColumn, Table

DEFAULT_LOCK = 0
"""Cell id of a row's default lock."""


def default_covers(table: Table) -> frozenset[int]:
    """Return the ids of the columns under the default lock: those under no public lock column."""
    special = {i for lock in table.locks if lock.state is ElementState.PUBLIC for i in lock.column_ids}
    return frozenset(table.by_id) - special


def covering(table: Table, column_ids: Collection[int] = ()) -> tuple[int, ...]:
    """Return the cell ids of the locks that cover any of the columns (none given: all columns), ascending."""
    if not table.locks:
        return (DEFAULT_LOCK,)
    wanted = frozenset(column_ids) or frozenset(table.by_id)
    found = [
        lock.id for lock in table.locks if lock.state > ElementState.ABSENT and not wanted.isdisjoint(lock.column_ids)
    ]
    if not wanted.isdisjoint(default_covers(table)):
        found.append(DEFAULT_LOCK)
    return tuple(sorted(found))


def lock_value(table: Table, cells: Mapping[int, Cell], version_ts: int, column_ids: Collection[int] = ()) -> int:
    """Return when any of the columns (none given: any column) last changed, in microseconds since the epoch.

    ``cells`` are all cells of the version committed at ``version_ts``, or at least those of :func:`covering`.
    """
    if not table.locks and DEFAULT_LOCK not in cells:
        return version_ts
    return max((_value(cells, lock, version_ts) for lock in covering(table, column_ids)), default=version_ts)


def changed_since(
    table: Table,
    cells: Mapping[int, Cell] | None,
    version_ts: int,
    column_ids: Collection[int],
    *,
    seen_ts: int,
    read_ts: int,
) -> bool:
    """Tell whether what a transaction saw at ``read_ts`` is no longer true of the newest version.

    ``cells`` None: there is no row now. ``seen_ts`` 0: there was none then; otherwise the lock's value then.
    """
    if cells is None or seen_ts == 0:
        return (cells is None) != (seen_ts == 0)
    return lock_value(table, cells, version_ts, column_ids) > max(read_ts, seen_ts)


def locks_of_insert(table: Table) -> dict[int, Cell]:
    """Return the lock cells of a new row: every lock has the commit timestamp."""
    return {lock.id: COMMIT_TS for lock in _enforced(table)}


def locks_of_update(
    table: Table, cells: Mapping[int, Cell], version_ts: int, assigned: Collection[int]
) -> tuple[dict[int, Cell], set[int]]:
    """Return the lock cells to set and those to drop when the ``assigned`` columns of a version change.

    Unknown cells that mean "this version's" are locks of another schema version: they are carried over too.
    """
    changes: dict[int, Cell] = {
        cell_id: Timestamp(version_ts) for cell_id, cell in cells.items() if cell is THIS_VERSION
    }
    drop: set[int] = set()
    if default_covers(table).isdisjoint(assigned):
        changes[DEFAULT_LOCK] = Timestamp(_value(cells, DEFAULT_LOCK, version_ts))
    else:
        changes.pop(DEFAULT_LOCK, None)
        drop.add(DEFAULT_LOCK)
    for lock in table.locks:
        bumped = not frozenset(lock.column_ids).isdisjoint(assigned)
        if lock.state >= ElementState.WRITE_ONLY:
            changes[lock.id] = COMMIT_TS if bumped else Timestamp(_value(cells, lock.id, version_ts))
        elif bumped:
            changes.pop(lock.id, None)
            drop.add(lock.id)
    return changes, drop & set(cells)


def locks_carried_over(table: Table, cells: Mapping[int, Cell], version_ts: int) -> tuple[dict[int, Cell], set[int]]:
    """Return the lock cells to set and to drop in a new version in which nothing changed: for the reorganiser.

    Locks on their way out are folded into the default lock.
    """
    changes: dict[int, Cell] = {
        cell_id: Timestamp(version_ts) for cell_id, cell in cells.items() if cell is THIS_VERSION
    }
    leaving = [lock.id for lock in table.locks if lock.state is ElementState.DELETE_ONLY]
    changes[DEFAULT_LOCK] = Timestamp(max(_value(cells, lock, version_ts) for lock in (DEFAULT_LOCK, *leaving)))
    for lock in _enforced(table):
        changes[lock.id] = Timestamp(_value(cells, lock.id, version_ts))
    for lock_id in leaving:
        changes.pop(lock_id, None)
    return changes, set(leaving) & set(cells)


def _enforced(table: Table) -> list[LockColumn]:
    return [lock for lock in table.locks if lock.state >= ElementState.WRITE_ONLY]


def _value(cells: Mapping[int, Cell], lock: int, version_ts: int) -> int:
    """Return a lock's timestamp; a lock column without a cell is as old as the default lock, which covered it."""
    cell = cells.get(lock)
    if cell is None:
        return version_ts if lock == DEFAULT_LOCK else _value(cells, DEFAULT_LOCK, version_ts)
    if cell is THIS_VERSION:
        return version_ts
    if isinstance(cell, Timestamp):
        return cell.us
    raise F1Error(Code.DATA_CORRUPTION, f"lock cell {lock} holds no timestamp")
