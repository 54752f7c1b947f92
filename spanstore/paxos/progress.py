"""What a leader knows about one acceptor: how far its log matches, and what is on the way to it."""

from collections import deque

from spanstore.paxos.lease import NEVER


class Progress:
    """Replication state of one acceptor under one ballot.

    Entries are pipelined: ``next_index`` moves on when they are sent, not when they are acknowledged. It falls back to
    what is known to match when the acceptor reports a gap (a message was lost) or says nothing for long; a silent
    acceptor is only ``probing``: it gets empty Accepts until it answers, so that a dead one costs nothing. One whose
    log ends before the leader's begins ``needs_state``; the log from where it was ``offered`` on is needed afterwards.
    """

    __slots__ = (
        "answered",
        "heard",
        "inflight",
        "inflight_bytes",
        "last_sent",
        "match",
        "needs_state",
        "next_index",
        "offered",
        "probing",
        "reset_at",
    )

    def __init__(self, next_index: int, boot_us: int) -> None:
        self.match = 0
        self.next_index = next_index
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        self.last_sent = NEVER
        self.heard = boot_us
        self.answered = NEVER
        self.reset_at = NEVER
        self.probing = False
        self.needs_state = False
        self.offered = 0

    def sent(self, end: int, size: int, boot_us: int) -> None:
        """Note that entries up to ``end``, ``size`` bytes, were sent."""
        if not self.inflight:
            # An acceptor that had nothing to answer was not silent.
            self.heard = max(self.heard, boot_us)
        self.next_index = end + 1
        self.inflight.append((end, size))
        self.inflight_bytes += size

    def matched(self, index: int) -> None:
        """Note that the acceptor holds everything up to ``index``."""
        self.probing = False
        self.needs_state = False
        if index > self.match:
            self.match = index
        if self.next_index <= index:
            self.next_index = index + 1
        while self.inflight and self.inflight[0][0] <= index:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def lacks_state(self, first_index: int) -> None:
        """Note that the acceptor must fetch the state, which the log from ``first_index`` on then continues."""
        if not self.needs_state or self.offered < first_index:
            self.offered = first_index
        self.needs_state = True

    def fall_back(self, next_index: int, boot_us: int) -> None:
        """Start again from ``next_index``; answers to what was sent before ``boot_us`` no longer say where."""
        self.next_index = max(next_index, self.match + 1)
        self.inflight.clear()
        self.inflight_bytes = 0
        self.reset_at = boot_us
