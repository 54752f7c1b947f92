"""Leader leases: what an acceptor granted, and what a leader holds.

The rule (DESIGN section 4; Spanner section 2.1 and appendix A): an acceptor that takes an Accept refuses every other
candidate until its own clock has advanced ``lease_us`` since the receipt. The leader counts from when it *sent*
that Accept, and less by the drift margin. Sending precedes receipt, so the leader stops before its quorum does, and
as any two quorums intersect, a successor is elected only after that. Neither side ever compares two clocks.

A lease is granted by memory alone, so whoever restarts has forgotten it: it refuses everybody for the longest
lease that it may have granted (:attr:`HardState.max_lease_us`, and the configured one).
"""

from spanstore.paxos.messages import NO_BALLOT, Ballot
from spanstore.paxos.quorum import reached_by


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

    __slots__ = ("_ceilings", "_held_us", "_others", "_sent", "start")

    def __init__(self, others: tuple[str, ...], quorum: int, held_us: int) -> None:
        """``others``: the acceptors besides the leader, who always agrees with itself; ``quorum`` includes it."""
        self._others = quorum - 1
        self._held_us = held_us
        self._sent: dict[str, int | None] = dict.fromkeys(others)
        self._ceilings: dict[str, int] = dict.fromkeys(others, 0)
        self.start: int | None = None

    def ack(self, acceptor: str, sent_boot_us: int, ceiling: int) -> None:
        """Take in that ``acceptor`` granted what was sent at ``sent_boot_us`` and holds ``ceiling`` durably."""
        before = self._sent[acceptor]
        if before is None or sent_boot_us > before:
            self._sent[acceptor] = sent_boot_us
            known = sorted((sent for sent in self._sent.values() if sent is not None), reverse=True)
            if len(known) >= self._others:
                self.start = known[self._others - 1]
        if ceiling > self._ceilings[acceptor]:
            self._ceilings[acceptor] = ceiling

    def valid(self, boot_us: int) -> bool:
        """Tell whether no other leader can exist at ``boot_us``, a fresh sample of the leader's boot clock."""
        if self._others == 0:
            return True
        return self.start is not None and boot_us < self.start + self._held_us

    def usable_ceiling(self, own: int) -> int:
        """Return the highest ceiling that a quorum holds durably; ``own`` is the leader's durable one."""
        return reached_by([own, *self._ceilings.values()], self._others + 1)
