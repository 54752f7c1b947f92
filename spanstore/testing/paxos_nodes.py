"""What a simulated Paxos group consists of: disks, nodes with clocks, and the ways in which a build is broken.

Part of :mod:`spanstore.testing.paxos_world`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from f1common.clock import Now, TTInterval
from spanstore.paxos import Ballot, Configuration, Effects, HardState, LogEntry, Replica

MS = 1000
TT_BOUND = 4 * MS


class Violation(AssertionError):
    """A checker found the run to be wrong."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise Violation(message)


class Disk:
    """What is durable of one replica. Implements LogReader. ``configuration`` is as of ``applied``."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self.configuration = configuration
        self.hard_state = HardState()
        self.applied = 0
        self.first = 1
        self.log: list[LogEntry] = []

    def install(self, applied: int, border: LogEntry, configuration: Configuration | None) -> None:
        """Take over the state of another replica; the log stays if it goes on from there."""
        if self.ballot_at(applied) == border.ballot:
            del self.log[: applied - self.first]
        else:
            self.log = [border]
        self.first = self.applied = applied
        self.configuration = configuration

    def write(self, effects: Effects, applied: int, configuration: Configuration | None = None) -> None:
        if effects.hard_state is not None:
            self.hard_state = effects.hard_state
        if effects.truncate_from is not None:
            del self.log[effects.truncate_from - self.first :]
        for entry in effects.append:
            require(entry.index == self.first + len(self.log), "the driver is told to write a log with a gap")
            self.log.append(entry)
        if effects.truncate_below is not None:
            require(effects.truncate_below <= applied, "the log goes before it is applied")
            del self.log[: effects.truncate_below - self.first]
            self.first = effects.truncate_below
        self.applied = max(self.applied, applied)
        if configuration is not None:
            self.configuration = configuration

    def first_index(self) -> int:
        return self.first

    def last_index(self) -> int:
        return self.first + len(self.log) - 1

    def ballot_at(self, index: int) -> Ballot | None:
        at = index - self.first
        return self.log[at].ballot if 0 <= at < len(self.log) else None

    def entries(self, first: int, max_bytes: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        for entry in self.log[first - self.first :] if first >= self.first else []:
            max_bytes -= len(entry.payload)
            if found and max_bytes < 0:
                break
            found.append(entry)
        return found


@dataclass
class Job:
    effects: Effects
    applied: int
    due: int
    configuration: Configuration | None


@dataclass
class Node:
    name: str
    rate_ppm: int
    boot_base: int
    tt_error: int
    disk: Disk = field(default_factory=Disk)
    member: str = ""
    """The name of the replica that lives here, if any."""
    replica: Replica | None = None
    life: int = 0
    paused_until: int = 0
    jobs: list[Job] = field(default_factory=list)
    applied: int = 0
    configuration: Configuration | None = None
    installing: bool = False
    last_given: int = 0
    wakeup: int = -1

    def now(self, time: int) -> Now:
        boot = self.boot_base + time + time * self.rate_ppm // 1_000_000
        true = 1_000_000 + time + self.tt_error
        return Now(boot, TTInterval(true - TT_BOUND, true + TT_BOUND))


@dataclass(frozen=True)
class Mutation:
    """What a broken variant changes: the replica's class, or the driver's order."""

    replica: type[Replica] = Replica
    send_before_sync: bool = False
    forget_hard_state: bool = False
    install_forgets_promise: bool = False
    keep_name: bool = False
    """A server that has lost its disk comes back as the same member."""
    world: Mapping[str, Any] = field(default_factory=dict)
    """Choices that a seed would make, fixed so that the fault matters."""


NO_MUTATION = Mutation()
