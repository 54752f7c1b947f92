"""Which timestamps a leader gives out (Spanner, section 4.1 and 4.2).

One number carries the monotony: ``last_ts``, the highest timestamp that was given out or promised. Commits and
prepares lie strictly above it, so that a read at or below it never sees a commit come afterwards. It only grows, and
a new leader begins it at the highest ceiling that any leader before it can have had.
"""

from dataclasses import dataclass

from f1common.clock import TTInterval
from f1common.errors import Code, F1Error


@dataclass(frozen=True, slots=True)
class WaitForCeiling:
    """The timestamp is above what the quorum promised to respect: ask it for ``needed`` and try again."""

    needed: int


class TimestampOracle:
    """The timestamps of one leader in one term. Nothing that it gives out is ever at or below an earlier promise."""

    __slots__ = ("_last_ts",)

    def __init__(self, last_ts: int = 0) -> None:
        """Start above ``last_ts``."""
        self._last_ts = last_ts

    @property
    def last_ts(self) -> int:
        """The highest timestamp given out or promised."""
        return self._last_ts

    def raise_floor(self, ts: int) -> None:
        """Begin a term above ``ts``: the highest ceiling learned, and whatever was applied."""
        self.promise(ts)

    def promise(self, ts: int) -> None:
        """No later commit or prepare will be at or below ``ts``: what a read and a safe time need."""
        if ts > self._last_ts:
            self._last_ts = ts

    def commit_ts(
        self,
        now: TTInterval,
        *,
        above: int,
        ceiling: int,
        max_skew_us: int,
        deadline: int | None = None,
        not_before: int | None = None,
    ) -> int | WaitForCeiling:
        """Return the timestamp of a commit or prepare, at or above ``now.latest`` and strictly above everything else.

        ``above`` comes from others: the participants' prepare timestamps and what the client saw. ``deadline`` and
        ``not_before`` are the write's fences, both inclusive. Raises F1Error FENCED if the timestamp misses them and
        CLOCK_SKEW if ``above`` is more than ``max_skew_us`` ahead; both are definite: nothing was given out.
        """
        check_skew(above, now, max_skew_us)
        ts = max(now.latest, self._last_ts + 1, above + 1)
        if deadline is not None and ts > deadline:
            raise F1Error(
                Code.FENCED,
                f"the commit timestamp {ts} would be {ts - deadline} us past the write's deadline",
                details={"fence": "deadline", "ts": str(ts)},
            )
        if not_before is not None and ts < not_before:
            raise F1Error(
                Code.FENCED,
                f"the commit timestamp {ts} would be {not_before - ts} us before the write's time",
                details={"fence": "not_before", "ts": str(ts)},
            )
        if ts > ceiling:
            return WaitForCeiling(ts)
        self._last_ts = ts
        return ts

    def read_ts(self, now: TTInterval, ceiling: int) -> int:
        """Return the timestamp of a strong read: it sees every commit that anybody was told of before it arrived.

        At least the last timestamp given out here, and at least ``now.latest``: another group, as the coordinator, may
        have given a transaction that is only prepared here any timestamp up to now. Where that lies above the ceiling,
        nothing is promised; the caller waits for a higher one and observes the read then.
        """
        ts = max(self._last_ts, now.latest)
        if ts <= ceiling:
            self._last_ts = ts
        return ts

    def observe_read(self, ts: int, now: TTInterval, ceiling: int, max_skew_us: int) -> None:
        """Somebody reads at ``ts``: no commit comes at or below it any more.

        Nothing is promised above the ceiling: there the caller waits and asks again. Raises F1Error CLOCK_SKEW if
        ``ts`` is further ahead than clocks may differ: honouring it would drag this group's time along.
        """
        check_skew(ts, now, max_skew_us)
        if ts <= ceiling:
            self.promise(ts)


def check_skew(ts: int, now: TTInterval, max_skew_us: int) -> None:
    """Refuse a timestamp of somebody else that is too far ahead. Raises F1Error CLOCK_SKEW."""
    if ts > now.latest + max_skew_us:
        raise F1Error(
            Code.CLOCK_SKEW,
            f"timestamp {ts} is {ts - now.latest} us ahead of this server's clock, more than the {max_skew_us} us that "
            "clocks may differ: repair the clock of its sender, or of this server",
            details={"ahead_us": str(ts - now.latest)},
        )
