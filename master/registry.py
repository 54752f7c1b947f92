"""The registry of slaves: a pure state machine. Beats, ends of streams and time come in; lists go out.

All times are microseconds of one boot clock and never go back. A master that is not called for long has been stopped
itself; it cannot tell then who was silent meanwhile, so that everybody gets another chance.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = ["Beat", "Effects", "Entry", "PoolList", "Registry", "RegistryConfig", "SlaveIdentity", "State"]


class State(StrEnum):
    """What the master thinks of a slave."""

    LIVE = "live"
    SUSPECT = "suspect"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class SlaveIdentity:
    """One run of a slave. ``incarnation`` names it, ``started_us`` (Unix epoch) orders the runs of a name."""

    name: str
    address: str
    zone: str
    incarnation: int
    started_us: int = 0
    version: str = ""
    threads: int = 1
    memory_bytes: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """The later of two runs is the greater."""
        return (self.started_us, self.incarnation)


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life. ``link`` is the stream that it came by."""

    link: int
    slave: SlaveIdentity
    number: int = 0
    running: int = 0
    lag_us: int = 0
    draining: bool = False
    failing: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A slave in the list. ``since`` is the version of the list since which it has been in this state."""

    slave: SlaveIdentity
    state: State
    since: int
    running: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PoolList:
    """All slaves known, by name. ``settling``: those who are missing may only not have found this master yet."""

    epoch: int
    version: int
    settling: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Effects:
    """What the driver does: send ``push`` to all who watch; answer the beat that it is ``replaced``."""

    push: PoolList | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """Silences, in microseconds: after ``suspect_us`` no queries, after ``dead_us`` forgotten."""

    suspect_us: int = 1_000_000
    dead_us: int = 5_000_000

    @property
    def return_us(self) -> int:
        """How long a slave whose stream has ended may take to come back by another one before it is suspect.

        A broken connection is not a dead process: to suspect it at once would take work from it for nothing. The slave
        finds out with its next beat, and the configuration holds that period below half of ``suspect_us``.
        """
        return self.suspect_us // 2


@dataclass(slots=True)
class _Known:
    entry: Entry
    link: int
    heard_us: int
    suspect_us: int
    """When it becomes suspect, if nothing more is heard."""
    reason: str = ""
    """Why it will."""


class Registry:
    """All slaves that one master knows."""

    def __init__(self, epoch: int, now_us: int, config: RegistryConfig | None = None) -> None:
        """``epoch`` is when this master began, in microseconds since the Unix epoch: above that of any before it."""
        self._epoch = epoch
        self._config = config if config is not None else RegistryConfig()
        self._seen_us = now_us
        self._settled_us = now_us + self._config.dead_us
        self._settling = True
        self._blind_until_us = now_us
        self._version = 0
        self._known: dict[str, _Known] = {}

    def snapshot(self) -> PoolList:
        """Return the list as it is now."""
        entries = tuple(self._known[name].entry for name in sorted(self._known))
        return PoolList(self._epoch, self._version, self._settling, entries)

    def beat(self, beat: Beat, now_us: int) -> Effects:
        """Take a beat; it may be refused, because a later process has its slave's name."""
        before = self._version
        self._pass_time(now_us)
        name = beat.slave.name
        known = self._known.get(name)
        if known is not None and known.entry.slave.incarnation != beat.slave.incarnation:
            if known.entry.state is State.LIVE and beat.slave.order < known.entry.slave.order:
                return self._effects(before, replaced=True)
            known = None
        state, reason = _state_of(beat)
        if known is None:
            self._version += 1
            entry = Entry(beat.slave, state, self._version, beat.running, reason)
            self._known[name] = known = _Known(entry, beat.link, now_us, 0)
        known.link, known.heard_us, known.suspect_us = beat.link, now_us, now_us + self._config.suspect_us
        known.reason = "its beats have stopped"
        known.entry = replace(known.entry, running=beat.running)
        self._move(known, state, reason)
        return self._effects(before)

    def gone(self, link: int, now_us: int) -> Effects:
        """A stream has ended: its slave has died, or will beat through another one."""
        before = self._version
        self._pass_time(now_us)
        for name in sorted(self._known):
            known = self._known[name]
            if known.link != link:
                continue
            if known.entry.state is State.DRAINING:
                self._forget(name)
            elif now_us >= self._blind_until_us and now_us + self._config.return_us < known.suspect_us:
                known.suspect_us = now_us + self._config.return_us
                known.reason = "its stream to the master has ended"
        return self._effects(before)

    def tick(self, now_us: int) -> Effects:
        """Let time pass."""
        before = self._version
        self._pass_time(now_us)
        return self._effects(before)

    def next_us(self) -> int:
        """Return when :meth:`tick` is due, if nobody is heard before."""
        moments = [self._seen_us + self._config.suspect_us // 4]
        if self._settling:
            moments.append(self._settled_us)
        for known in self._known.values():
            is_live = known.entry.state is State.LIVE
            moments.append(known.suspect_us if is_live else known.heard_us + self._config.dead_us)
        return min(moments)

    def _stood_still(self, now_us: int) -> None:
        """Do not hold the master's own pause against the slaves: their beats wait in its sockets."""
        gap_us = now_us - self._seen_us
        self._seen_us = now_us
        if gap_us < self._config.suspect_us // 2:
            return
        self._settled_us += gap_us
        # Streams that were given up by the other side end only now, in our eyes.
        self._blind_until_us = now_us + self._config.suspect_us
        for known in self._known.values():
            known.heard_us += gap_us
            known.suspect_us += gap_us

    def _pass_time(self, now_us: int) -> None:
        self._stood_still(now_us)
        if self._settling and now_us >= self._settled_us:
            self._settling = False
            self._version += 1
        for name in sorted(self._known):
            known = self._known[name]
            if now_us - known.heard_us >= self._config.dead_us:
                self._forget(name)
            elif now_us >= known.suspect_us and known.entry.state is State.LIVE:
                self._move(known, State.SUSPECT, known.reason)

    def _move(self, known: _Known, state: State, reason: str) -> None:
        """Put a slave into a state. Only a change of state is a new version: words and loads are not."""
        if known.entry.state is state:
            return
        self._version += 1
        known.entry = replace(known.entry, state=state, since=self._version, reason=reason)

    def _forget(self, name: str) -> None:
        del self._known[name]
        self._version += 1

    def _effects(self, before: int, *, replaced: bool = False) -> Effects:
        return Effects(self.snapshot() if self._version != before else None, replaced)


def _state_of(beat: Beat) -> tuple[State, str]:
    if beat.draining:
        return State.DRAINING, "it is about to end"
    if beat.failing:
        return State.SUSPECT, beat.failing
    return State.LIVE, ""
