"""The first attempt of a commit: look without locks, then commit if nothing of what was seen has changed.

Locks and looking are a round of their own, which every commit would pay for though hardly any meets another one. So
the first attempt reads without locks, plans, and has each version that it saw tested where the locks are, in the round
that commits. What is planned is the same as under locks: the test holds under the lock on the row, until the commit.
Rows to be inserted are not even looked for: that there is none is tested, too.

Whoever loses such a race begins again with locks, and for a while most commits of these tables take them at once
(:class:`Trust`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from f1common.aside import aside
from f1common.errors import F1Error
from f1server.catalog.leases import Leased
from f1server.rows.planner import Plan, WritePlanner
from f1server.rows.single import SingleWrite
from f1server.txn.readset import Conflict, ReadSetEntry, validate
from f1server.txn.together import ReadsTogether
from spanstore.client import Version
from spanstore.client.values import ExpectVersion

__all__ = ["Foreseen", "InTheWay", "Trust", "foresee", "foresee_single"]

_MOST_COMMITS = 64
_LOSS = 4
_GAIN = 2
"""A race that is lost costs about twice what one that is won saves, and more where many wait for the same row."""
_CREDIT = 8
"""So many wins may a table be behind before it is in doubt, a loss counting :data:`_LOSS` of them: a third loss in a
row begins a doubt, one in five or fewer never does."""


class Trust:
    """Whether commits of a table should be tried without locks: seldom while others are in their way.

    A race that is lost now and then changes nothing. When they are more than every fifth, the table is in doubt.

    Of a table in doubt one commit in so many is tried, and all others take locks: four times as rarely after each one
    that met another, to one in :data:`_MOST_COMMITS`, and twice as often after each that did not, until all are again.
    So what many change at once is tried now and then by one, never by all of them at the moment when the doubt ends.
    The next loss begins another one.
    """

    def __init__(self) -> None:
        self._debt: dict[str, int] = {}
        self._every: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def has(self, tables: Collection[str]) -> bool:
        """Tell whether to try; called once for each commit."""
        if not self._every:
            return True
        doubted = [table for table in tables if table in self._every]
        for table in doubted:
            self._left[table] = max(0, self._left[table] - 1)
        if any(self._left[table] for table in doubted):
            return False
        for table in doubted:
            self._left[table] = self._every[table]
        return True

    def lose(self, tables: Iterable[str]) -> None:
        """A commit was tried, and another one was in its way."""
        for table in tables:
            debt = self._debt.get(table, 0) + _LOSS
            if table not in self._every and debt <= _CREDIT:
                self._debt[table] = debt
                continue
            self._debt.pop(table, None)
            self._every[table] = min(_LOSS * self._every.get(table, 1), _MOST_COMMITS)
            self._left[table] = self._every[table]

    def win(self, tables: Iterable[str]) -> None:
        """A commit was tried, and nobody was in its way."""
        for table in tables:
            if table in self._every:
                self._gain(table)
            elif table in self._debt:
                self._debt[table] -= 1
                if not self._debt[table]:
                    del self._debt[table]

    def _gain(self, table: str) -> None:
        every = self._every[table] // _GAIN
        if every > 1:
            self._every[table] = every
            self._left[table] = min(self._left[table], every)
        else:
            del self._every[table], self._left[table]
            self._debt[table] = _CREDIT


class InTheWay(Exception):
    """Rows cannot be seen without locks now: an undecided transaction holds them, as a rule."""


class Foreseen:
    """A plan, and the versions that it rests on."""

    __slots__ = ("expected", "plan")

    def __init__(self, plan: Plan, expected: Sequence[ExpectVersion]) -> None:
        self.plan = plan
        self.expected = expected


async def foresee(
    planner: WritePlanner,
    together: ReadsTogether,
    leased: Leased,
    read_set: Sequence[ReadSetEntry],
    read_ts: int,
    unique: bytes,
) -> Foreseen | None:
    """Plan without locks; None if that needs ranges, or finds nothing to write, or anything wrong.

    ``unique`` names the commit. What is wrong is said by who looks under locks. Raises Conflict: that a row has changed
    stays true; and InTheWay.
    """
    if planner.looks_below():
        return None  # that needs ranges
    try:
        seen: dict[bytes, Version | None] = {}
        validated = {entry.key for entry in read_set}
        rows = planner.rows
        wanted = await aside(rows, planner.needs)
        seen.update(dict.fromkeys((wanted.rows & planner.insertions()) - validated))
        planner.give(seen)
        while wanted or validated:
            if wanted.ranges:
                return None
            keys = (wanted.rows | wanted.unique | wanted.shared_rows | validated) - seen.keys()
            found = await together.read_all(sorted(keys))
            if found is None:
                raise InTheWay
            seen.update(found)
            planner.give(found)
            if validated:
                await aside(len(read_set), lambda: validate(leased.schema, read_set, read_ts, seen.get))
                validated = set()
            wanted = await aside(rows, planner.needs)
        plan = await aside(rows, lambda: planner.plan(unique))
        return Foreseen(plan, _expected(seen)) if plan.writes else None
    except Conflict:
        raise
    except F1Error:
        return None


async def foresee_single(single: SingleWrite, together: ReadsTogether, unique: bytes) -> Foreseen | None:
    """As :func:`foresee`, for one write that asks for nothing but its row; for nothing at all if it replaces that."""
    version: Version | None = None
    if not (single.inserts or single.is_blind):
        found = await together.read_all([single.key])
        if found is None:
            raise InTheWay
        version = found[single.key]
    try:
        plan = single.plan(version, unique)
    except F1Error:
        return None
    if plan is None or not plan.writes:
        return None
    return Foreseen(plan, [] if single.is_blind else _expected({single.key: version}))


def _expected(seen: Mapping[bytes, Version | None]) -> list[ExpectVersion]:
    rows = {key: version for key, version in seen.items() if version is not None and version.value is not None}
    return [ExpectVersion(key, rows[key].ts if key in rows else 0) for key in sorted(seen)]
