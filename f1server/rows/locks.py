"""Lock columns: which timestamp says when the columns of a row last changed (F1 section 5.1).

A row has a default lock, and may have more that cover some columns each. A lock's value is the commit timestamp of the
last change of what it covers. The default lock is cell 0, absent as long as it means the version's own timestamp, which
in a table without other locks is always. Cells of the other locks carry their column ids.

What can go wrong, and what the rules are
    A new version of a row has a new timestamp whatever was changed in it. So whoever writes one **must** replace the
    cell of each lock that it bumps and turn every "this version's" that it carries over, the implicit default
    included, into an absolute timestamp; otherwise a lock that was not touched seems bumped (a false conflict), or one
    that was not replaced hides a change (a lost update).

    Each column is covered by one lock. While that changes from L1 to L2 (schema-change paper, section 3.4; the default
    lock may be either, a lock column may come or go with it), it is covered by both: whoever changes it bumps both, and
    what was read of it is compared with the later of both. So servers with the schema before and servers with the one
    after tell each other. But L2 knows nothing of changes under the first schema: before it covers the column alone,
    the reorganiser raises it in every row to the later of both (:func:`raised`). Left out, a transaction that read
    before such a change and commits under L2 alone would overwrite it.

    A lock column below WRITE_ONLY is not written. The cell that it may have is older than what it covers, or gone, so
    it counts beside the other lock only: on its way in until it is raised, on its way out until it has been folded into
    the locks that take over. A lock column without a cell says nothing as long as another lock covers the column.

    Validation compares with the time of the read, not with the value that was read: coverage may have changed since,
    and the value of another lock that covers the same columns is another number without anything having happened.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from f1common.encoding.row import COMMIT_TS, THIS_VERSION, Cell, Timestamp
from f1common.errors import Code, F1Error
from f1server.catalog.schema import ElementState, LockColumn, Table

DEFAULT_LOCK = 0
"""Cell id of a row's default lock."""


def coverage(table: Table) -> Mapping[int, tuple[int, ...]]:
    """Return the cell ids of the locks that cover each column, ascending: two or more while its coverage changes.

    A lock column that is alone and not PUBLIC is on its way from or to the default lock, which covers the column too.
    """
    kept: dict[str, Mapping[int, tuple[int, ...]]] = vars(table)
    found = kept.get("_coverage")
    if found is None:
        found = {column_id: _locks_of(table, column_id) for column_id in table.by_id}
        kept["_coverage"] = found
    return found


def _locks_of(table: Table, column_id: int) -> tuple[int, ...]:
    locks = [lock for lock in table.locks if lock.state > ElementState.ABSENT and column_id in lock.column_ids]
    passing = len(locks) == 1 and locks[0].state is not ElementState.PUBLIC
    default = (DEFAULT_LOCK,) if not locks or passing or column_id in table.dual else ()
    return (*default, *sorted(lock.id for lock in locks))


def covering(table: Table, column_ids: Collection[int] = ()) -> tuple[int, ...]:
    """Return the cell ids of the locks that cover any of the columns (none given: all columns), ascending."""
    if not table.locks:
        return (DEFAULT_LOCK,)
    locks = coverage(table)
    return tuple(sorted({lock for column_id in column_ids or locks for lock in locks.get(column_id, ())}))


def lock_value(table: Table, cells: Mapping[int, Cell], version_ts: int, column_ids: Collection[int] = ()) -> int:
    """Return when any of the columns (none given: any column) last changed, in microseconds since the epoch.

    ``cells`` are all cells of the version committed at ``version_ts``, or at least those of :func:`covering`.
    """
    if not table.locks and DEFAULT_LOCK not in cells:
        return version_ts
    locks = covering(table, column_ids)
    told = [lock for lock in locks if lock == DEFAULT_LOCK or lock in cells] or locks
    return max((_value(cells, lock, version_ts) for lock in told), default=version_ts)


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
    bumped = set(covering(table, assigned)) if assigned else set()
    drop: set[int] = set()
    if DEFAULT_LOCK in bumped:
        changes.pop(DEFAULT_LOCK, None)
        drop.add(DEFAULT_LOCK)
    else:
        changes[DEFAULT_LOCK] = Timestamp(_value(cells, DEFAULT_LOCK, version_ts))
    for lock in _enforced(table):
        if lock.id in bumped:
            changes[lock.id] = COMMIT_TS
        elif lock.id in cells or lock.state is ElementState.PUBLIC:
            changes[lock.id] = Timestamp(_value(cells, lock.id, version_ts))
    return changes, drop & set(cells)


def raised(
    table: Table,
    cells: Mapping[int, Cell],
    version_ts: int,
    moves: Collection[tuple[int, int]],
    coming: Collection[int] = (),
) -> dict[int, int]:
    """Return the locks that must say something later, or anything at all, and what: microseconds since the epoch.

    ``moves`` are (column, lock that will cover it alone): that lock becomes as late as all that cover the column now.
    ``coming`` are locks that every row must have: without a move they begin as late as what covers their columns.
    """
    wanted: dict[int, int] = {}
    for column_id, lock in moves:
        wanted[lock] = max(wanted.get(lock, 0), lock_value(table, cells, version_ts, (column_id,)))
    for column_lock in table.locks:
        if column_lock.id in coming and column_lock.id not in wanted:
            wanted[column_lock.id] = lock_value(table, cells, version_ts, column_lock.column_ids)
    there = {lock: _value(cells, lock, version_ts) for lock in (DEFAULT_LOCK, *cells) if lock in wanted}
    return {lock: ts for lock, ts in wanted.items() if there.get(lock, -1) < ts}


def locks_carried_over(
    table: Table, cells: Mapping[int, Cell], version_ts: int, raised_to: Mapping[int, int] = MappingProxyType({})
) -> tuple[dict[int, Cell], set[int]]:
    """Return the lock cells to set and to drop in a new version in which nothing changed: for the reorganiser.

    Locks on their way out are folded into those that cover their columns, too; ``raised_to`` is what :func:`raised`
    found.
    """
    leaving = [lock for lock in table.locks if lock.state is ElementState.DELETE_ONLY]
    values = {DEFAULT_LOCK: _value(cells, DEFAULT_LOCK, version_ts)}
    for lock in _enforced(table):
        if lock.id in cells or lock.state is ElementState.PUBLIC:
            values[lock.id] = _value(cells, lock.id, version_ts)
    heirs = {DEFAULT_LOCK, *(lock.id for lock in _enforced(table))}
    for lock in leaving:
        if lock.id in cells and lock.column_ids:
            for heir in heirs.intersection(covering(table, lock.column_ids)):
                values[heir] = max(values.get(heir, 0), _value(cells, lock.id, version_ts))
    for lock_id, ts in raised_to.items():
        values[lock_id] = max(values.get(lock_id, 0), ts)
    changes: dict[int, Cell] = {
        cell_id: Timestamp(version_ts) for cell_id, cell in cells.items() if cell is THIS_VERSION
    }
    changes |= {lock_id: Timestamp(ts) for lock_id, ts in values.items()}
    gone = {lock.id for lock in leaving}
    return {lock_id: cell for lock_id, cell in changes.items() if lock_id not in gone}, gone & set(cells)


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
