"""How far the work on rows is: counted by the owner of a change, and shown in its row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from f1common.clock import Clock
from f1server.schemachange.jobs.ownership import Owner

__all__ = ["Progress", "Stretch", "Watch"]

_LEFT_AFTER_US = 5_000_000
_LEFT_AFTER_SHARE = 0.25
_LEFT_AFTER_ROWS = 300_000
"""Before so much is done nobody can tell how long the rest takes: workers start, read rows and sort their entries long
before the first of them counts as done."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the work on rows: one walk. ``rows``: about how many it goes over, 0 if nobody knows.

    ``name`` is what tells it from others. ``cost``: what a row of it takes, in terms of a row that is written.
    """

    name: tuple[int, int]
    rows: int
    cost: float = 1.0


class Watch(Protocol):
    """Watches the work on data; called between batches."""

    @property
    def job(self) -> int:
        """Number of the schema change that the work is for; 0: none, so that nothing is remembered of it."""

    def foresee(self, stretches: Sequence[Stretch]) -> None:
        """This is all the work that there will be, if all goes well."""

    def begin(self, stretch: Stretch, *, done: int = 0, size: int = 0) -> None:
        """The one before has ended, this begins; ``done`` of its rows, with ``size`` bytes, have been done before."""

    async def __call__(self, rows: int, size: int) -> None:
        """So many more rows, with so many bytes, are done (below 0: again to be done). Raises to stop the work."""


class Progress:
    """The :class:`Watch` of the owner of a change.

    It is about the work under one version of the schema; the next version's is foreseen when that has come. Until then
    what is shown never falls, and its total is what was foreseen. Tables grow meanwhile, estimates are wrong, and what
    a worker did that died is done again: so a stretch counts by the share of it that is done, of the rows that were
    foreseen for it. Only work that was not foreseen adds to the total.
    """

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._clock = clock
        self._began_us = clock.sample().boot_us
        self._here = 0
        self._cost_here = 0.0
        self._left: dict[tuple[int, int], Stretch] = {}
        """What was foreseen and has not begun."""
        self._now = Stretch((0, 0), 0)
        self._now_rows = 0
        self._now_done = 0
        self._before = 0
        """Rows of the stretches that have ended, as foreseen."""
        owner.rows = owner.bytes = owner.rows_total = owner.left_ms = 0

    @property
    def job(self) -> int:
        """Number of the change."""
        return self._owner.job.number

    @property
    def worked(self) -> int:
        """How many rows were worked on since this began."""
        return self._here

    def foresee(self, stretches: Sequence[Stretch]) -> None:
        """This is all the work that there will be, if all goes well."""
        self._left = {stretch.name: stretch for stretch in stretches}
        self._owner.rows_total = sum(stretch.rows for stretch in stretches)

    def begin(self, stretch: Stretch, *, done: int = 0, size: int = 0) -> None:
        """The one before has ended, this begins; ``done`` of its rows, with ``size`` bytes, have been done before."""
        self.end()
        foreseen = self._left.pop(stretch.name, None)
        if foreseen is None or not foreseen.rows:
            foreseen = stretch
            self._owner.rows_total += stretch.rows
        self._now, self._now_rows, self._now_done = foreseen, stretch.rows, done
        self._owner.bytes += size
        self._show()

    def end(self) -> None:
        """The stretch has ended."""
        self._before += self._now.rows
        self._now, self._now_rows, self._now_done = Stretch((0, 0), 0), 0, 0
        self._show()

    async def __call__(self, rows: int, size: int) -> None:
        """So many more rows are done. Raises what the owner obeys."""
        self._here += rows
        self._cost_here += rows * self._now.cost
        self._now_done += rows
        self._owner.bytes += size
        self._show()
        await self._owner.obey()

    def _show(self) -> None:
        done = int(self._now.rows * self._share)
        self._owner.rows = max(self._owner.rows, self._before + done)
        self._owner.left_ms = self._left_ms()

    @property
    def _share(self) -> float:
        """Which part of the stretch is done."""
        return min(max(self._now_done, 0) / max(self._now_rows, 1), 1.0)

    def _left_ms(self) -> int:
        """Return how long the rest takes; 0: nobody knows."""
        took_us = self._clock.sample().boot_us - self._began_us
        left = self._now.rows * (1 - self._share) * self._now.cost
        left += sum(stretch.rows * stretch.cost for stretch in self._left.values())
        enough = min(_LEFT_AFTER_SHARE * (left + self._cost_here), _LEFT_AFTER_ROWS)
        if took_us < _LEFT_AFTER_US or self._cost_here <= 0 or self._cost_here < enough:
            return 0
        return int(left * took_us / self._cost_here / 1000)
