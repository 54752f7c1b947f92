"""The leader's half of a replica: everything that one leadership, under one ballot, knows and does."""

from f1common.clock import Now
from f1common.errors import InvariantViolation
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.configuration import Configuration
from spanstore.paxos.lease import NEVER, Held
from spanstore.paxos.log import LogTail
from spanstore.paxos.messages import Accept, Accepted, Ballot, LogEntry, OfferState
from spanstore.paxos.progress import Progress
from spanstore.paxos.quorum import majority, reached_by

FOREVER = 1 << 60
"""Microseconds that do not pass."""

_Slice = tuple[tuple[LogEntry, ...], int]


class Leading:
    """State of a leader from its election until it is deposed or steps down; then it is thrown away."""

    def __init__(
        self,
        *,
        ballot: Ballot,
        me: str,
        configuration: Configuration,
        config: PaxosConfig,
        log: LogTail,
        floor: int,
        boot_us: int,
    ) -> None:
        """``floor``: the highest timestamp ceiling learned; ``configuration``: the newest of the log."""
        self.ballot = ballot
        self.floor = floor
        self.ceiling = 0
        self.first_own = log.last_index + 1
        self.held = Held(config.held_us)
        self._me = me
        self._config = config
        self._log = log
        self._counted_at = boot_us
        self._wanted = 0
        self._progress: dict[str, Progress] = {}
        self.count(configuration, boot_us)

    def count(self, configuration: Configuration, boot_us: int) -> None:
        """Send to, and count the answers of, the members of ``configuration`` from now on."""
        self._voters = configuration.voters
        self._quorum = majority(len(configuration.voters))
        for member in configuration.members:
            if member != self._me and member not in self._progress:
                self._progress[member] = Progress(self._log.last_index + 1, boot_us)
        for member in set(self._progress) - set(configuration.members):
            del self._progress[member]
        self._counted_at = boot_us
        self.held.count(configuration.voters, self._me)

    def match(self, acceptor: str) -> int:
        """Return up to which index ``acceptor`` is known to hold this leader's log durably."""
        progress = self._progress.get(acceptor)
        return 0 if progress is None else progress.match

    def heard(self, acceptor: str) -> int:
        """Return when ``acceptor`` last answered, in boot time; far in the past for a stranger."""
        progress = self._progress.get(acceptor)
        return NEVER if progress is None else progress.answered

    def held_by_all(self) -> int:
        """Return up to which index every member holds the log durably, or will once it has fetched the state."""
        matches = [p.offered if p.needs_state else p.match for p in self._progress.values()]
        return min([self._log.durable_index, *matches])

    def next_due(self) -> int:
        """Return when the next heartbeat is due or the leadership is lost for want of a quorum."""
        if not self._progress:
            return self._counted_at + FOREVER
        due = self._beat_after(min(progress.last_sent for progress in self._progress.values()))
        return due if self.held.alone else min(due, self.lost_quorum_at())

    def _beat_after(self, sent_us: int) -> int:
        """Return when the heartbeat after what was sent at ``sent_us`` is due.

        Heartbeats of all groups fall on the same moments of the server's boot clock: one turn makes those of all groups
        that it leads, and one message to each other server carries them. An idle server so wakes ten times a second,
        however many groups it leads.
        """
        return (sent_us // self._config.heartbeat_us + 1) * self._config.heartbeat_us

    def lost_quorum_at(self) -> int:
        """Return when the latest lease has ended also for the acceptors."""
        start = self.held.start
        return max(self._counted_at, NEVER if start is None else start) + self._config.lease_us

    def want_ceiling(self, ts: int) -> None:
        """Ask for a ceiling of at least ``ts`` with the next Accepts."""
        self._wanted = max(self._wanted, ts)

    def raise_ceiling(self, tt_latest: int) -> bool:
        """Set the ceiling to ask for; tell whether it rose, in which case an Accept must go out now.

        It rises in steps of half a lease, so that most heartbeats cost no write.
        """
        config = self._config
        if tt_latest + config.lease_us // 2 <= self.ceiling and self._wanted <= self.ceiling:
            return False
        self.ceiling = max(tt_latest + config.lease_us, self.floor + config.lease_us // 4, self._wanted, self.ceiling)
        return True

    def probe_silent(self, boot_us: int) -> None:
        """Stop sending entries to acceptors that leave everything unanswered."""
        for progress in self._progress.values():
            if progress.inflight and boot_us - progress.heard >= self._config.retry_us:
                self._fall_back(progress, progress.match + 1, boot_us)
                progress.probing = True

    def accepts(
        self, now: Now, *, urgent: bool, chosen: int, safe: tuple[int, int], all_hold: int
    ) -> list[tuple[str, Accept | OfferState]]:
        """Return at most one Accept for each acceptor: whatever fits, or a heartbeat if one is due or ``urgent``.

        Whoever lacks entries that the log no longer has is offered the state with each heartbeat.
        """
        boot_us = now.boot_us
        slices: dict[int, _Slice] = {}
        messages: list[tuple[str, Accept | OfferState]] = []
        lowest = self._lowest_next()
        for other, progress in self._progress.items():
            progress.next_index = max(progress.next_index, lowest)  # the log may have been cut meanwhile
            entries, size = self._next_entries(progress, slices)
            if not entries and not urgent and boot_us < self._beat_after(progress.last_sent):
                continue
            progress.last_sent = boot_us
            prev_index = progress.next_index - 1
            prev_ballot = self._log.ballot_at(prev_index)
            if prev_ballot is None:
                raise InvariantViolation(f"entry {prev_index} is not in the log of its leader")
            accept = Accept(
                ballot=self.ballot,
                prev_index=prev_index,
                prev_ballot=prev_ballot,
                entries=entries,
                chosen_index=chosen,
                ceiling=self.ceiling,
                sent_boot_us=boot_us,
                lease_us=self._config.lease_us,
                safe_index=safe[0],
                safe_ts=safe[1],
                truncate_below=all_hold,
            )
            if entries:
                progress.sent(entries[-1].index, size, boot_us)
            messages.append((other, accept))
            if progress.needs_state:
                messages.append((other, OfferState(self.ballot, self._log.first_index)))
        return messages

    def _next_entries(self, progress: Progress, slices: dict[int, _Slice]) -> _Slice:
        first = progress.next_index
        if progress.probing or first > self._log.last_index:
            return (), 0
        if progress.inflight_bytes >= self._config.max_inflight_bytes:
            return (), 0
        found = slices.get(first)
        if found is None:
            entries, size = self._log.entries(first, self._log.last_index, self._config.max_accept_bytes)
            found = slices[first] = (tuple(entries), size)
        return found

    def accepted(self, sender: str, message: Accepted, boot_us: int) -> None:
        """Take in an answer of this ballot that does not depose the leader."""
        progress = self._progress.get(sender)
        if progress is None:
            return
        progress.heard = progress.answered = boot_us
        if message.hint < 0 and not message.ok:
            self._begins(sender, progress, boot_us)
            return
        sent = min(message.sent_boot_us, progress.last_sent)
        self.held.ack(sender, sent, min(message.ceiling, self.ceiling))
        if message.ok:
            progress.matched(min(message.match_index, self._log.last_index))
        elif sent >= progress.reset_at:
            before = progress.next_index
            lowest = self._lowest_next()
            cut = message.hint + 1 < lowest
            if cut and before <= lowest:
                progress.lacks_state(self._log.first_index)
            else:
                progress.needs_state = False
            self._fall_back(progress, min(message.hint + 1, before), boot_us)
            # No step back is no progress: wait for the next heartbeat instead of asking in a circle. And whoever may
            # lack what the log has no more is asked about its first entry alone, to know for certain.
            progress.probing = progress.next_index >= before or cut

    def _begins(self, sender: str, progress: Progress, boot_us: int) -> None:
        """``sender`` has no state: a newcomer, or a member that lost its disk and what it promised and stored.

        A learner is offered the state, then and later. A voter had one when it became a voter: it must not vote again
        under this name, so it is given nothing to do so with, and its grants do not count.
        """
        progress.match = 0
        if sender not in self._voters:
            progress.lacks_state(self._log.first_index)
        self._fall_back(progress, 1, boot_us)
        progress.probing = True

    def _fall_back(self, progress: Progress, next_index: int, boot_us: int) -> None:
        progress.fall_back(max(next_index, self._lowest_next()), boot_us)

    def _lowest_next(self) -> int:
        """Return the first index that can be sent: the entry at the border of a cut log is the one before it."""
        first = self._log.first_index
        return first + 1 if first > 1 else 1

    def chosen(self, before: int) -> int:
        """Return the chosen index: entries of the own ballot that a quorum holds, and with them all before.

        An entry of an older ballot is not chosen by being on a quorum of disks: a candidate whose last entry is of a
        ballot between may still be elected and overwrite it (Ongaro and Ousterhout, section 5.4.2, figure 8).
        """
        reached = reached_by([self._durable_at(voter) for voter in self._voters], self._quorum)
        if reached > before and self._log.ballot_at(reached) == self.ballot:
            return reached
        return before

    def _durable_at(self, voter: str) -> int:
        return self._log.durable_index if voter == self._me else self._progress[voter].match
