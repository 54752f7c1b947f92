"""Is this server's clock right? Its interval is compared with the peers', and a majority decides. Pure.

Each server tells the others now and then what time it is (:class:`ClockReport`), and with that when it last heard of
them, so that the receiver can bound how old the report is without trusting any wall clock:

* The peer made the report before it arrived, so its *earliest* may not lie above our *latest*: else it is ahead of us.
* It made the report after it had received our last one. What passed since we sent that, less how long the peer kept
  it, bounds the report's age; the peer's *latest* plus that age may not lie below our *earliest*: else it is behind.

If neither holds, the two intervals may contain one absolute time, and nothing is said. If one does, at least one of the
two bounds is false. Who is wrong is decided by number: a server that disagrees with a majority of all servers (itself
not counted among those it disagrees with) takes itself out of leadership; two of three suffice. With fewer witnesses
nobody is out, and the disagreement is reported.

The same reports tell how far the peers' boot clocks got, on which leases rest. Over a window of half a minute to five
minutes two of them may differ by twice the bound of their drift, plus what is not known of the reports' age.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from f1common.clock import Now

FRESH_US = 10_000_000
"""A peer that was not heard of for so long is no witness."""

SLACK_US = 1_000
"""What is not worth a word: rounding, and the time between sampling two clocks."""

_WINDOW_US = 300_000_000
_SHORTEST_US = 30_000_000
_SPACING_US = 5_000_000
_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class ClockReport:
    """What a server says of its clocks. ``incarnation`` names the process, whose boot clock it is.

    ``echo_boot_us``: our boot time in the last report that the sender has of us, 0 for none; ``held_us``: how long the
    sender had it when it made this report, on its boot clock.
    """

    incarnation: int
    boot_us: int
    earliest: int
    latest: int
    echo_boot_us: int
    held_us: int


@dataclass(frozen=True, slots=True)
class _Sample:
    """Both boot clocks at one time; the peer's is of up to ``age_us`` before."""

    own_us: int
    peer_us: int
    age_us: int


@dataclass(slots=True)
class _Peer:
    incarnation: int = 0
    heard_us: int = 0
    said_boot_us: int = 0
    ahead_us: int = 0
    """By how much the peer's clock is ahead for certain; negative: behind."""
    drift_ppm: int = 0
    """By how much the peer's boot clock is faster, where that is more than clocks may differ."""
    samples: deque[_Sample] = field(default_factory=deque)


class ClockWatch:
    """What one server knows of the others' clocks."""

    def __init__(self, peers: Iterable[str], *, drift_ppm: int, settle_us: int) -> None:
        """``drift_ppm`` bounds the drift of one boot clock; a clock counts as right again after ``settle_us``."""
        self._peers: dict[str, _Peer] = {}
        self.set_peers(peers)
        self._drift_ppm = drift_ppm
        self._settle_us = settle_us
        self._wrong_until_us = 0
        self._wrong = ""

    def set_peers(self, peers: Iterable[str]) -> None:
        """Compare with these servers from now on."""
        self._peers = {name: self._peers.get(name) or _Peer() for name in peers}

    @property
    def _majority(self) -> int:
        return (len(self._peers) + 1) // 2 + 1

    def report(self, to: str, incarnation: int, now: Now) -> ClockReport:
        """Return what to tell ``to``."""
        peer = self._peers[to]
        held_us = now.boot_us - peer.heard_us if peer.said_boot_us else 0
        return ClockReport(incarnation, now.boot_us, now.tt.earliest, now.tt.latest, peer.said_boot_us, held_us)

    def heard(self, sender: str, report: ClockReport, now: Now) -> None:
        """Take in a report; ``now`` was sampled when it arrived."""
        peer = self._peers.get(sender)
        if peer is None:
            return
        if report.incarnation != peer.incarnation:
            peer.incarnation, peer.drift_ppm = report.incarnation, 0
            peer.samples.clear()
        peer.heard_us, peer.said_boot_us = now.boot_us, report.boot_us
        ahead_us = report.earliest - now.tt.latest
        age_us = self._age_us(report, now)
        behind_us = 0 if age_us is None else now.tt.earliest - report.latest - age_us
        peer.ahead_us = ahead_us if ahead_us > SLACK_US else -behind_us if behind_us > SLACK_US else 0
        if age_us is not None:
            self._compare_boot(peer, _Sample(now.boot_us, report.boot_us, age_us))

    def _age_us(self, report: ClockReport, now: Now) -> int | None:
        """Return how old the report is at most, None if the sender has not heard of us yet."""
        passed_us = now.boot_us - report.echo_boot_us
        if not report.echo_boot_us or passed_us < 0:
            return None
        # Either clock may have run too slow or too fast meanwhile; a little more, since the bound is of true time.
        drift_us = (passed_us + report.held_us) * self._drift_ppm // _PPM * 51 // 50
        return max(0, passed_us - report.held_us + drift_us)

    def _compare_boot(self, peer: _Peer, sample: _Sample) -> None:
        samples = peer.samples
        if not samples or max(sample.own_us - samples[-1].own_us, sample.peer_us - samples[-1].peer_us) >= _SPACING_US:
            samples.append(sample)
        while samples and max(sample.own_us - samples[0].own_us, sample.peer_us - samples[0].peer_us) > _WINDOW_US:
            samples.popleft()
        if not samples:
            return
        first = samples[0]
        own_us, peer_us = sample.own_us - first.own_us, sample.peer_us - first.peer_us
        longest_us = max(own_us, peer_us)
        if longest_us < _SHORTEST_US:
            return
        permitted_us = longest_us * 2 * self._drift_ppm // _PPM + first.age_us + sample.age_us + SLACK_US
        excess_us = abs(peer_us - own_us) - permitted_us
        peer.drift_ppm = 0 if excess_us <= 0 else (peer_us - own_us) * _PPM // longest_us

    def judge(self, now: Now) -> str:
        """Say what is wrong with this server's clock, nothing if it may lead."""
        fresh = self._fresh(now)
        skewed = {name: peer.ahead_us for name, peer in fresh.items() if peer.ahead_us}
        drifting = {name: peer.drift_ppm for name, peer in fresh.items() if peer.drift_ppm}
        found = ""
        if len(skewed) >= self._majority:
            found = "this server's clock is wrong, or its bound is: " + ", ".join(map(_skew, skewed.items()))
        elif len(drifting) >= self._majority:
            found = "this server's boot clock drifts beyond its bound: " + ", ".join(map(_drift, drifting.items()))
        if found:
            self._wrong, self._wrong_until_us = found, now.boot_us + self._settle_us
        elif now.boot_us >= self._wrong_until_us:
            self._wrong = ""
        return self._wrong

    def disagreements(self, now: Now) -> list[str]:
        """Say with whom this server disagrees, whoever is wrong."""
        found = []
        for name, peer in sorted(self._fresh(now).items()):
            if peer.ahead_us:
                found.append(_skew((name, peer.ahead_us)))
            if peer.drift_ppm:
                found.append(_drift((name, peer.drift_ppm)))
        return found

    def _fresh(self, now: Now) -> dict[str, _Peer]:
        # A boot clock that stands still would keep everybody fresh for ever; then they are.
        return {
            name: peer
            for name, peer in self._peers.items()
            if peer.said_boot_us and now.boot_us - peer.heard_us < FRESH_US
        }


def _skew(item: tuple[str, int]) -> str:
    name, ahead_us = item
    return f"{name} is {abs(ahead_us) / 1000:g} ms {'ahead' if ahead_us > 0 else 'behind'}"


def _drift(item: tuple[str, int]) -> str:
    name, ppm = item
    return f"the boot clock of {name} runs {abs(ppm)} ppm {'faster' if ppm > 0 else 'slower'}"
