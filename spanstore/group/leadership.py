"""Who should lead: leadership goes back by itself to the servers where it is wanted.

A group's leader zone is a wish: nothing is unsafe while another zone leads, so it is only acted on now and then, and
given up for a while when it does not work.
"""

from collections.abc import Iterable

from spanstore.paxos.configuration import server_of
from spanstore.paxos.replica import Replica

_LOOK_EVERY_US = 1_000_000
_LONGEST_PAUSE_US = 60_000_000


class PreferredLeader:
    """Decides when, and to whom, a leader that is not where it should be hands over."""

    __slots__ = ("_next_us", "_pause_us", "servers")

    def __init__(self, servers: frozenset[str] = frozenset()) -> None:
        """``servers``: where leadership belongs; none means anywhere."""
        self.servers = servers
        self._pause_us = _LOOK_EVERY_US
        self._next_us = 0

    def settled(self, boot_us: int) -> None:
        """Leadership has just begun here: whoever sent it here had a reason, so it stays for a moment.

        After a minute in which nothing was tried, earlier failures say nothing any more.
        """
        if boot_us - self._next_us >= _LONGEST_PAUSE_US:
            self._pause_us = _LOOK_EVERY_US
        self._next_us = boot_us + self._pause_us

    def heir(self, replica: Replica, boot_us: int, lease_us: int) -> str | None:
        """Return the voter that should lead instead of this leader, if it is time to look and one is fit to.

        Each look that finds one doubles the time to the next, up to a minute: a wish that fails again and again, or
        that two servers have different ideas of, costs little.
        """
        if not self.servers or server_of(replica.me) in self.servers or boot_us < self._next_us:
            return None
        self._next_us = boot_us + self._pause_us
        fit = list(self._fit(replica, boot_us - lease_us))
        if not fit:
            return None
        self._pause_us = min(2 * self._pause_us, _LONGEST_PAUSE_US)
        return max(fit, key=lambda voter: (replica.match(voter), voter))

    def _fit(self, replica: Replica, silent_since_us: int) -> Iterable[str]:
        for voter in replica.configuration.voters:
            wanted = voter != replica.me and server_of(voter) in self.servers
            if wanted and replica.heard(voter) > silent_since_us and replica.match(voter) >= replica.chosen_index:
                yield voter
