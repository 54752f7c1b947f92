"""The sums behind what is shown of a change: shares of what was foreseen, and how long the rest takes."""

import asyncio
from types import SimpleNamespace
from typing import Any

from f1common.clock import ManualClock
from f1server.schemachange.jobs.progress import Progress, Stretch

FILL, SUM = Stretch((1, 0), 1_000), Stretch((1, 5), 1_000, 0.25)


class Shown:
    """A change of which a watch tells."""

    def __init__(self) -> None:
        async def obey() -> None:
            pass

        owner: Any = SimpleNamespace(job=SimpleNamespace(number=1), obey=obey)
        self.owner = owner
        self.clock = ManualClock()
        self.watch = Progress(owner, self.clock)

    def work(self, rows: int, seconds: float = 0) -> None:
        self.clock.advance(int(seconds * 1e6))
        asyncio.run(self.watch(rows, 10 * rows))

    @property
    def rows(self) -> tuple[int, int]:
        return self.owner.rows, self.owner.rows_total


def test_shares_of_what_was_foreseen_are_shown() -> None:
    shown = Shown()
    shown.watch.foresee([FILL, SUM])
    assert shown.rows == (0, 2_000)
    shown.watch.begin(Stretch(FILL.name, 1_500))  # the table has grown
    shown.work(750)
    assert shown.rows == (500, 2_000)
    shown.work(-300)  # a worker died
    assert shown.rows == (500, 2_000)
    shown.work(1_200)  # more than the estimate
    assert shown.rows == (1_000, 2_000)
    shown.watch.begin(Stretch(SUM.name, 900, 0.25), done=450, size=1)
    assert shown.rows == (1_500, 2_000)
    shown.work(400)
    shown.watch.end()
    assert shown.rows == (2_000, 2_000)
    assert shown.watch.worked == 750 - 300 + 1_200 + 400


def test_what_was_not_foreseen_adds_to_the_total() -> None:
    shown = Shown()
    shown.watch.foresee([FILL, Stretch((2, 0), 0)])
    shown.watch.begin(FILL)
    shown.watch.begin(Stretch((2, 0), 10))
    assert shown.rows == (1_000, 1_010)
    shown.watch.begin(Stretch((3, 2), 90))
    assert shown.rows == (1_010, 1_100)


def test_how_long_the_rest_takes_is_told_when_it_means_something() -> None:
    shown = Shown()
    shown.watch.foresee([FILL, SUM])
    shown.watch.begin(FILL)
    shown.work(100, seconds=4)
    assert shown.owner.left_ms == 0  # too early
    shown.work(10, seconds=7)
    assert shown.owner.left_ms == 0  # too little: 110 of 1,250
    shown.work(290, seconds=9)
    assert shown.owner.left_ms == 42_500  # 400 in 20 s; 600 are left, and 1,000 that cost a quarter
    shown.work(600, seconds=30)
    shown.watch.begin(SUM)
    assert shown.owner.left_ms == 12_500
    shown.watch.end()
    assert shown.owner.left_ms == 0
