"""Leader leases: what an acceptor granted, and what a leader holds.

The rule (DESIGN section 4; Spanner section 2.1 and appendix A): an acceptor that takes an Accept refuses every other
candidate until its own clock has advanced ``lease_us`` since the receipt. The leader counts from when it *sent*
that Accept, and less by the drift margin. Sending precedes receipt, so the leader stops before its quorum does, and
as any two quorums intersect, a successor is elected only after that. Neither side ever compares two clocks.

A lease is granted by memory alone, so whoever restarts has forgotten it: it refuses everybody for the longest
lease that it may have granted (:attr:`HardState.max_lease_us`, and the configured one).
"""

from spanstore.paxos.messages import NO_BALLOT, Ballot
from spanstore.paxos.quorum import majority, reached_by

NEVER = -(1 << 62)
"""A boot time before all others."""


class Granted:
    """Acceptor side: the latest lease granted, and the quarantine after a start. Times are of the own boot clock.

    Only the latest needs remembering: an Accept of a newer ballot proves an election, whose quorum intersected
    that of any earlier lease and had waited it out.
    """

    __slots__ = ("_ballot", "_holder", "_quarantine_until", "until")

    def __init__(self, quarantine_until: int) -> None:
        self._quarantine_until = quarantine_until
        self._holder = ""
        self._ballot = NO_BALLOT
        self.until = quarantine_until

    def grant(self, holder: str, ballot: Ballot, until: int) -> None:
        """Refuse all but ``holder`` until ``until``."""
        self._holder = holder
        self._ballot = ballot
        if until > self.until:
            self.until = until

    def refuses(self, candidate: str, released: Ballot, boot_us: int) -> bool:
        """Tell whether ``candidate`` may not be promised anything at ``boot_us``.

        ``released`` is a ballot whose leader gave up its lease for this candidate. It opens no quarantine: what
        was forgotten may have been a lease of another ballot.
        """
        if boot_us < self._quarantine_until:
            return True
        return boot_us < self.until and self._holder != candidate and self._ballot != released


class Held:
    """Leader side, for one ballot: since when a quorum refuses others, and what ceiling it promised."""

    __slots__ = ("_ceilings", "_held_us", "_needed", "_quorum", "_sent", "_voters", "start")

    def __init__(self, held_us: int) -> None:
        self._held_us = held_us
        self._sent: dict[str, int] = {}
        self._ceilings: dict[str, int] = {}
        self._voters: tuple[str, ...] = ()
        self._quorum = 0
        self._needed = 0
        self.start: int | None = None

    def count(self, voters: tuple[str, ...], me: str) -> None:
        """Count the answers of ``voters`` from now on. The leader ``me``, if it is one, always agrees with itself."""
        self._voters = tuple(voter for voter in voters if voter != me)
        self._quorum = majority(len(voters))
        self._needed = self._quorum - (me in voters)
        self._settle()

    def ack(self, acceptor: str, sent_boot_us: int, ceiling: int) -> None:
        """Take in that ``acceptor`` granted what was sent at ``sent_boot_us`` and holds ``ceiling`` durably."""
        if sent_boot_us > self._sent.get(acceptor, NEVER):
            self._sent[acceptor] = sent_boot_us
            self._settle()
        if ceiling > self._ceilings.get(acceptor, 0):
            self._ceilings[acceptor] = ceiling

    def _settle(self) -> None:
        """Set the start of the lease: the latest time at or after which a quorum was sent what it granted."""
        if self._needed > 0:
            start = reached_by([self._sent.get(voter, NEVER) for voter in self._voters], self._needed)
            self.start = start if start > NEVER else None

    @property
    def alone(self) -> bool:
        """Whether the leader is the only voter: then nobody else need agree."""
        return self._needed == 0

    def valid(self, boot_us: int) -> bool:
        """Tell whether no other leader can exist at ``boot_us``, a fresh sample of the leader's boot clock."""
        if self._needed == 0:
            return True
        return self.start is not None and boot_us < self.start + self._held_us

    def usable_ceiling(self, own: int) -> int:
        """Return the highest ceiling that a quorum holds durably; ``own`` is the leader's durable one."""
        ceilings = [self._ceilings.get(voter, 0) for voter in self._voters]
        if self._needed < self._quorum:
            ceilings.append(own)
        return reached_by(ceilings, self._quorum)
