"""Whether this server is fit to lead, and what is wrong with it: its clock, its disk, its data.

A few times a second it measures, tells its peers how it is, and hears how they are. A server whose clock is wrong leads
nothing. One whose disk is nearly full or slow leads no group that has a voter who is better off; where nobody is, it
stays, since a slow leader, or one that refuses what would add data, is better than none.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from f1common.clock import Clock, HoldoverClock
from f1common.errors import F1Error
from spanstore.engine.base import Engine
from spanstore.group.requests import Bundle, Commit, Prepare, Request
from spanstore.paxos.messages import Accept, Message
from spanstore.runtime.clockwatch import FRESH_US, ClockReport, ClockWatch
from spanstore.runtime.diskwatch import DiskWatch, Room

_log = logging.getLogger(__name__)

PERIOD_S = 0.25


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a server tells its peers of itself."""

    clock: ClockReport
    unfit: bool = False
    """It should not lead: its disk is nearly full, or slow."""
    full: bool = False
    """It takes no new entries of logs."""


@dataclass(frozen=True, slots=True)
class _Heard:
    report: ServerReport
    at_us: int


class Supervision:
    """Watches over one server. The owner calls :meth:`look` regularly and acts on what it says."""

    def __init__(
        self,
        *,
        engine: Engine,
        clock: Clock,
        drift_ppm: int,
        settle_us: int,
        slow_sync_us: int,
    ) -> None:
        self.disk = DiskWatch(slow_sync_us)
        self._engine = engine
        self._clock = clock
        self._clocks = ClockWatch((), drift_ppm=drift_ppm, settle_us=settle_us)
        self._heard: dict[str, _Heard] = {}
        self._sync_since: int | None = None
        self._said: frozenset[str] = frozenset()
        self._settle_us = settle_us
        self._failed_until_us = 0
        self._failure: F1Error | None = None
        self.clock_fault = ""
        """Why this server may not lead anything, as long as its clock is the reason."""
        self.unfit = False
        """Whether its disk is such that others should lead."""

    # ------------------------------------------------------------------ measurements

    def sync_began(self, boot_us: int) -> None:
        """A commit of the engine is under way."""
        self._sync_since = boot_us

    def sync_ended(self, boot_us: int) -> None:
        """It is over."""
        if self._sync_since is not None:
            self.disk.synced(self._sync_since, boot_us)
        self._sync_since = None
        if self.disk.near_the_end():
            self.disk.measured(self._engine.space())

    def heard(self, sender: str, report: ServerReport) -> None:
        """Take in what a peer tells of itself."""
        now = self._clock.sample()
        self._clocks.heard(sender, report.clock, now)
        self._heard[sender] = _Heard(report, now.boot_us)

    # ------------------------------------------------------------------ conclusions

    def look(self, peers: Iterable[str]) -> dict[str, ServerReport]:
        """Measure, conclude, and return what to tell each of ``peers``, the other servers of the cluster."""
        now = self._clock.sample()
        self._clocks.set_peers(peers)
        self.disk.measured(self._engine.space())
        failure = self._source_failure(now.boot_us)
        self.clock_fault = failure or self._clocks.judge(now)
        full = self.disk.room is Room.FULL
        self.unfit = self.disk.room is not Room.ENOUGH or self.disk.slow(now.boot_us, self._sync_since)
        self._say(now.boot_us)
        incarnation = self._engine.incarnation
        return {name: ServerReport(self._clocks.report(name, incarnation, now), self.unfit, full) for name in peers}

    def _source_failure(self, boot_us: int) -> str:
        """Return why the clock's source does not vouch for it, also for a while after it did not."""
        failure = self._clock.failure if isinstance(self._clock, HoldoverClock) else None
        if failure is not None:
            self._failure, self._failed_until_us = failure, boot_us + self._settle_us
        elif boot_us >= self._failed_until_us:
            self._failure = None
        return "" if self._failure is None else self._failure.message

    def may_lead(self, voters: tuple[str, ...], me: str) -> bool:
        """Tell whether this server may lead a group of these voters."""
        if self.clock_fault:
            return False
        return not self.unfit or not any(self._is_fit(voter) for voter in voters if voter != me)

    def _is_fit(self, server: str) -> bool:
        heard = self._heard.get(server)
        return heard is not None and self._is_fresh(heard) and not heard.report.unfit

    def _is_fresh(self, heard: _Heard) -> bool:
        return self._clock.sample().boot_us - heard.at_us < FRESH_US

    def others_may_lead(self) -> bool:
        """Tell whether another server says of itself that it has room: then leadership is about to go there."""
        return any(self._is_fresh(heard) and not heard.report.unfit for heard in self._heard.values())

    def refuses(self, request: Request) -> str:
        """Say why a client's request would take room that is kept for other things; nothing if it may go on.

        What ends something is never refused: a coordinator's decision about prepared work, a participant's, a release.
        """
        if self.disk.room is Room.ENOUGH or not isinstance(request, Commit | Prepare | Bundle):
            return ""
        if isinstance(request, Commit) and request.participants:
            return ""
        # One of a bundle that may go on is sent alone when the bundle is refused.
        works = request.works if isinstance(request, Bundle) else (request.work,)
        if self.disk.room is Room.LOW and all(write.value is None for work in works for write in work.writes):
            return ""
        return self.disk.text(self._clock.sample().boot_us)

    def drops(self, sender: str, message: Message) -> bool:
        """Tell whether a leader's entries are to be left alone: there is no room, and others have it.

        A leader whose own disk is full sends only what keeps a group together.
        """
        if self.disk.room is not Room.FULL or not isinstance(message, Accept) or not message.entries:
            return False
        heard = self._heard.get(sender)
        return heard is None or not heard.report.full

    def conditions(self) -> list[str]:
        """Say what is wrong with clock and disk, for an operator."""
        now = self._clock.sample()
        found = [f"CLOCK_SKEW: {self.clock_fault}"] if self.clock_fault else []
        disagreements = self._clocks.disagreements(now)
        if disagreements and not self.clock_fault:
            found.append(f"clocks disagree, and too few to tell whose is wrong: {', '.join(disagreements)}")
        disk = self.disk.text(now.boot_us, self._sync_since)
        return [*found, disk] if disk else found

    def _say(self, boot_us: int) -> None:
        """Log each condition once when it begins, and its end."""
        kinds: Mapping[str, str] = {text.split(":")[0]: text for text in self.conditions()}
        for kind in sorted(kinds.keys() - self._said):
            _log.error("%s", kinds[kind])
        for kind in sorted(self._said - kinds.keys()):
            _log.warning("no longer: %s", kind)
        self._said = frozenset(kinds)
