"""How fast the reorganiser works, so that users do not notice: additive increase, multiplicative decrease. Pure.

What tells whether users are disturbed is how long the storage tier takes over their reads and commits
(:class:`spanstore.client.ForegroundLoad`), compared with how long it takes when the reorganiser rests. Load changes
over the hours that a large table takes, so the figure at rest is taken again and again: every few seconds of work there
is a short rest, at the end of which the figures are those of users alone. While they are slowed down by more than is
allowed the rate is cut; while they are not it grows by a step. Where there are next to no users it grows fast, and
nobody rests. Between its bounds the rate may be anything; the lower bound sees to it that every change ends.

Figures of a second are uncertain: among users one request takes ten times as long as another. So the figure at rest is
an average over several rests, and one figure never does more than one cut or one step.
"""

from dataclasses import dataclass, field

__all__ = ["Figures", "Throttle", "ThrottleOptions"]

_WORK_S = 10.0
_REST_S = 1.5
_DECIDE_S = 1.0
_FEW = 5.0
"""So few requests of users in a second say nothing, and are hardly in danger."""
_CUT = 0.7
_STEPS = 10
"""So many steps lead from the lower bound to twice of it."""
_IDLE_GROWTH = 1.5
_MEMORY = 0.5
"""What weight the figure of a rest has beside those before it."""


@dataclass(frozen=True, slots=True)
class ThrottleOptions:
    """``slowdown``: how much longer users may wait, 0.05 is 5 %; rates are rows a second."""

    slowdown: float = 0.05
    min_rate: float = 2_000.0
    max_rate: float = 50_000.0

    def shared(self, workers: int) -> "ThrottleOptions":
        """Return the options of each of some workers that work at the same time."""
        return ThrottleOptions(self.slowdown, self.min_rate / workers, self.max_rate / workers)


@dataclass(frozen=True, slots=True)
class Figures:
    """How users are served: how many reads and commits there were of late, and how long one takes on average."""

    reads: float = 0.0
    read_us: float = 0.0
    commits: float = 0.0
    commit_us: float = 0.0


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
    """Says how long to wait before each batch. Times are seconds of a clock that is the caller's."""

    options: ThrottleOptions
    rate: float = 0.0
    """Rows a second, rests aside."""
    _at_rest: _AtRest = field(default_factory=_AtRest)
    _free_s: float = 0.0
    """When the next batch may begin."""
    _resting: bool = False
    _until_s: float = 0.0
    """When the rest, or the work between two rests, is over."""
    _decided_s: float = 0.0

    def __post_init__(self) -> None:
        """Begin at the lower bound."""
        self.rate = self.rate or self.options.min_rate

    def wait_s(self, rows: int, figures: Figures, now_s: float) -> float:
        """Return how long a batch of ``rows`` has to wait; it is asked once for each batch, which then happens."""
        self._look(figures, now_s)
        begin_s = max(self._free_s, now_s)
        if self._resting:
            begin_s = max(begin_s, self._until_s)
        self._free_s = begin_s + rows / self._working_rate()
        return begin_s - now_s

    def _working_rate(self) -> float:
        """The lower bound holds with the rests in it."""
        return max(self.rate, self.options.min_rate * (_WORK_S + _REST_S) / _WORK_S)

    def _look(self, figures: Figures, now_s: float) -> None:
        if self._resting:
            if now_s >= self._until_s:
                self._at_rest.learn(figures)
                self._resting, self._until_s, self._decided_s = False, now_s + _WORK_S, now_s
            return
        if now_s >= self._decided_s + _DECIDE_S:
            self._decided_s = now_s
            self._decide(figures)
        if now_s >= self._until_s and figures.reads + figures.commits >= _FEW:
            self._resting, self._until_s = True, now_s + _REST_S

    def _decide(self, figures: Figures) -> None:
        options = self.options
        slowdown = self._slowdown(figures)
        if figures.reads + figures.commits < _FEW:
            self.rate *= _IDLE_GROWTH
        elif slowdown is None or slowdown > options.slowdown:
            self.rate *= _CUT
        else:
            self.rate += options.min_rate / _STEPS
        self.rate = min(max(self.rate, options.min_rate), options.max_rate)

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
