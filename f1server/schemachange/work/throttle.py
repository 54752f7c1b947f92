"""How fast the reorganiser works, so that users do not notice: additive increase, multiplicative decrease. Pure.

What tells whether users are disturbed is how long the storage tier takes over their reads and commits
(:class:`spanstore.client.ForegroundLoad`), compared with how long it takes when the reorganiser rests. Load changes
over the hours that a large table takes, so the figure at rest is taken again and again: every few seconds of work there
is a short rest, at the end of which the figures are those of users alone. While they are slowed down by more than is
allowed the rate is cut; while they are not it grows by a step. Where there are next to no users it grows fast, and
nobody rests. Between its bounds the rate may be anything; the lower bound sees to it that every change ends: in some
minutes, so that it is lower for tables with fewer rows. Work begins there, and goes back there when users come, since
until the first rest nobody knows how they are served without it.

Several workers rest at the same time, since rests are at certain times of a clock that they share: each would find the
others' work in the figures otherwise.

Figures of a second are uncertain: among users one request takes ten times as long as another. So the figure at rest is
an average over several rests, and one figure never does more than one cut or one step.
"""

from dataclasses import dataclass, field, replace

__all__ = ["Figures", "Throttle", "ThrottleOptions"]

_WORK_S = 10.0
_REST_S = 1.5
_PERIOD_S = _WORK_S + _REST_S
_SOON_S = 0.3
_DECIDE_S = 1.0
_FEW = 5.0
"""So few requests of users in a second say nothing, and are hardly in danger."""
_CUT = 0.7
_STEPS = 10
"""So many steps lead from the lower bound to twice of it: who need not hurry gropes its way in small ones."""
_IDLE_GROWTH = 4.0
_UNHURRIED_S = 330.0
"""How long a walk over a table may take that has to yield to users all the time."""
_MOST_PATIENCE = 6.0
"""How much slower than a large table's the walk over a small one may be."""
_AHEAD = 10
"""Rows that are written later are read at so many times the pace: a tenth of the time is for that."""
_FORGET_S = 5.0
"""After so long without work what is found in the figures is no longer believed."""
_MEMORY = 0.5
"""What weight the figure of a rest has beside those before it."""


@dataclass(frozen=True, slots=True)
class ThrottleOptions:
    """``slowdown``: how much longer users may wait, 0.05 is 5 %; rates are rows a second that are written.

    With ``min_rate`` an index on a million rows is filled and verified within ten minutes. Work begins at
    ``least_rate`` (0: at ``min_rate``), and never gets slower.
    """

    slowdown: float = 0.05
    min_rate: float = 3_000.0
    max_rate: float = 50_000.0
    least_rate: float = 0.0

    @property
    def floor(self) -> float:
        """The lower bound of the rate."""
        return self.least_rate or self.min_rate

    def over(self, table_rows: int) -> "ThrottleOptions":
        """Return the options for a table of so many rows (0: nobody knows): a small one need not hurry."""
        if not table_rows:
            return self
        least = max(table_rows / _UNHURRIED_S, self.min_rate / _MOST_PATIENCE)
        return replace(self, least_rate=min(least, self.min_rate))

    def shared(self, workers: int) -> "ThrottleOptions":
        """Return the options of each of some workers that work at the same time."""
        rates = (self.min_rate, self.max_rate, self.least_rate)
        return ThrottleOptions(self.slowdown, *(rate / workers for rate in rates))


@dataclass(frozen=True, slots=True)
class Figures:
    """How users are served: how many reads and commits there were of late, and how long one takes on average.

    It is ``age_s`` since that was heard.
    """

    reads: float = 0.0
    read_us: float = 0.0
    commits: float = 0.0
    commit_us: float = 0.0
    age_s: float = 0.0

    @property
    def requests(self) -> float:
        """Reads and commits."""
        return self.reads + self.commits

    @property
    def any_users(self) -> bool:
        """Are there so many that they may be disturbed?"""
        return self.requests >= _FEW


@dataclass(slots=True)
class _AtRest:
    """What users wait for while the reorganiser rests, in microseconds; None: not known yet."""

    read_us: float | None = None
    commit_us: float | None = None

    def learn(self, found: Figures) -> None:
        if found.reads >= _FEW:
            self.read_us = _mixed(self.read_us, found.read_us)
        if found.commits >= _FEW:
            self.commit_us = _mixed(self.commit_us, found.commit_us)


def _mixed(before: float | None, now: float) -> float:
    return now if before is None else before + _MEMORY * (now - before)


@dataclass(slots=True)
class Throttle:
    """Says how long to wait before each batch. Times are seconds since the epoch."""

    options: ThrottleOptions
    rate: float = 0.0
    """Rows a second, rests aside."""
    _at_rest: _AtRest = field(default_factory=_AtRest)
    _free_s: float = 0.0
    """When the next batch may begin."""
    _decided_s: float = 0.0
    _rested: float = -1.0
    """The period in which it rested last, and in which it learnt last what is so at rest."""
    _learnt: float = -1.0

    def __post_init__(self) -> None:
        """Begin at the lower bound."""
        self.rate = self.rate or self.options.floor

    def adjust(self, options: ThrottleOptions) -> None:
        """Go by other bounds from now on. Where the lower one was the rate, the new one is."""
        if options != self.options:
            at_floor = self.rate <= self.options.floor
            self.options = options
            self.rate = options.floor if at_floor else self.rate
            self._bound()

    def wait_s(self, rows: int, figures: Figures, now_s: float) -> float:
        """Return how long a batch of ``rows`` has to wait; it is asked once for each batch, which then happens."""
        if now_s >= self._free_s + _FORGET_S:
            self._begin_again()
        begin_s = max(self._free_s, now_s)
        period, phase_s = divmod(begin_s, _PERIOD_S)
        if phase_s < _REST_S and figures.any_users:
            self._rested = period
            begin_s = period * _PERIOD_S + _REST_S
        else:
            self._look(figures, now_s)
        self._free_s = begin_s + rows / self._working_rate()
        return begin_s - now_s

    def ahead_s(self, rows: int, figures: Figures, now_s: float) -> float:
        """Return how long to wait after so many rows were read that are written later: it is work, too."""
        if now_s >= self._free_s + _FORGET_S:
            self._begin_again()
        self._free_s = max(self._free_s, now_s)
        return rows / (self.rate * _AHEAD) if figures.any_users else 0.0

    def rate_now(self, figures: Figures) -> float:
        """Return the rate that it has, or is about to have as nobody is there."""
        return self.rate if figures.any_users else self.options.max_rate

    def _begin_again(self) -> None:
        """Forget what was found out: that was another change, at another time, with other users or none."""
        self.rate = self.options.floor
        self._at_rest = _AtRest()

    def _working_rate(self) -> float:
        """The lower bound holds with the rests in it."""
        return max(self.rate, self.options.floor * _PERIOD_S / _WORK_S)

    def _look(self, figures: Figures, now_s: float) -> None:
        period, phase_s = divmod(now_s, _PERIOD_S)
        if self._rested == period and self._learnt != period:
            # What was heard as soon as the rest was over is about the rest.
            heard_s = phase_s - figures.age_s
            if heard_s >= _REST_S:
                self._learnt = period
                if heard_s <= _REST_S + _SOON_S:
                    self._at_rest.learn(figures)
                self._decided_s = now_s
        elif now_s >= self._decided_s + _DECIDE_S:
            self._decided_s = now_s
            self._decide(figures)

    def _decide(self, figures: Figures) -> None:
        options = self.options
        slowdown = self._slowdown(figures)
        if not figures.any_users:
            self.rate *= _IDLE_GROWTH
        elif slowdown is None:
            self.rate = options.floor
        elif slowdown > options.slowdown:
            self.rate *= _CUT
        else:
            self.rate += options.floor / _STEPS
        self._bound()

    def _bound(self) -> None:
        self.rate = min(max(self.rate, self.options.floor), self.options.max_rate)

    def _slowdown(self, figures: Figures) -> float | None:
        """Return how much longer users wait than at rest, 0.1 is 10 %; None: it is not known."""
        kinds = (
            (figures.reads, figures.read_us, self._at_rest.read_us),
            (figures.commits, figures.commit_us, self._at_rest.commit_us),
        )
        known = [(count, mean / rest) for count, mean, rest in kinds if count >= _FEW and rest]
        if not known:
            return None
        return sum(count * ratio for count, ratio in known) / sum(count for count, _ in known) - 1
