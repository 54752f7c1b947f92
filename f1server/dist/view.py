"""What an f1server believes of the slaves: the master's lists, and what its own calls have found out. Pure.

All times are microseconds of one boot clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["AVOID_US", "PoolView", "Slave", "SlaveState", "SlaveView"]

AVOID_US = 5_000_000
"""How long a slave that did not answer is avoided, unless the master sees it come back to life before."""

# A list of an earlier master is not believed so soon after one of a later master.
_EARLIER_MASTER_US = 5_000_000

Version = tuple[int, int]
"""Epoch of the master, and the version of its list."""


class SlaveState(StrEnum):
    """What the master thinks of a slave."""

    LIVE = "live"
    SUSPECT = "suspect"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Slave:
    """A slave that may be given work. ``incarnation`` names the run of its process: another run knows of no query."""

    name: str
    address: str
    incarnation: int
    zone: str = ""
    threads: int = 1
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SlaveView:
    """A slave as the master's list has it. ``since``: the version of the list since which it is in this state.

    ``avoided`` says why this f1server does not use it although it is live; empty: it does.
    """

    slave: Slave
    state: SlaveState
    since: Version
    running: int = 0
    program: str = ""
    reason: str = ""
    avoided: str = ""


@dataclass(frozen=True, slots=True)
class _Suspicion:
    incarnation: int
    since: Version
    until_us: int
    reason: str


class PoolView:
    """The slaves as one f1server sees them."""

    def __init__(self) -> None:
        self.version: Version = (0, 0)
        """Of the last list taken."""
        self._heard_us = 0
        self._views: dict[str, SlaveView] = {}
        self._suspicions: dict[str, _Suspicion] = {}

    def take(self, version: Version, settling: bool, slaves: Sequence[SlaveView], now_us: int) -> bool:
        """Take a list of the master, unless it is an old one; return whether the list was taken.

        A master that has just begun may not know all slaves yet (``settling``): those that an earlier master knew are
        kept until it has settled.
        """
        if self._is_old(version, now_us):
            return False
        kept = {}
        if settling:
            kept = {name: view for name, view in self._views.items() if view.since[0] != version[0]}
        self._views = kept | {view.slave.name: view for view in slaves}
        self.version, self._heard_us = version, now_us
        return True

    def _is_old(self, version: Version, now_us: int) -> bool:
        if version[0] == self.version[0]:
            return version[1] < self.version[1]
        # Epochs are times of hosts' clocks. A later one is a later master; an earlier one may be that of the only
        # master there is, on a host whose clock is behind.
        return version[0] < self.version[0] and now_us - self._heard_us < _EARLIER_MASTER_US

    def suspect(self, name: str, incarnation: int, reason: str, now_us: int) -> bool:
        """Avoid a slave that did not answer as it should; return whether it was in use until now.

        The suspicion ends when the master sees the slave come back to life, or after :data:`AVOID_US`: only another
        attempt shows whether it was the link between the two.
        """
        view = self._views.get(name)
        if view is None or view.slave.incarnation != incarnation or view.state is not SlaveState.LIVE:
            return False
        was_avoided = bool(self._avoided(view, now_us))
        self._suspicions[name] = _Suspicion(incarnation, view.since, now_us + AVOID_US, reason)
        return not was_avoided

    def live(self, now_us: int) -> tuple[Slave, ...]:
        """Return the slaves that work may be given to, by name."""
        return tuple(
            view.slave
            for _, view in sorted(self._views.items())
            if view.state is SlaveState.LIVE and not self._avoided(view, now_us)
        )

    def all(self, now_us: int) -> tuple[SlaveView, ...]:
        """Return all slaves of the list, by name."""
        return tuple(
            SlaveView(v.slave, v.state, v.since, v.running, v.program, v.reason, self._avoided(v, now_us))
            for _, v in sorted(self._views.items())
        )

    def _avoided(self, view: SlaveView, now_us: int) -> str:
        suspicion = self._suspicions.get(view.slave.name)
        if suspicion is None:
            return ""
        came_back = view.slave.incarnation != suspicion.incarnation or view.since > suspicion.since
        if came_back or now_us >= suspicion.until_us:
            del self._suspicions[view.slave.name]
            return ""
        return suspicion.reason
