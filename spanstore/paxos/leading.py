"""The leader's half of a replica: everything that one leadership, under one ballot, knows and does."""

from f1common.clock import Now
from f1common.errors import InvariantViolation
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.lease import Held
from spanstore.paxos.log import LogTail
from spanstore.paxos.messages import Accept, Accepted, Ballot, LogEntry
from spanstore.paxos.progress import NEVER, Progress
from spanstore.paxos.quorum import reached_by

_Slice = tuple[tuple[LogEntry, ...], int]


class Leading:
    """State of a leader from its election until it is deposed or steps down; then it is thrown away."""

    def __init__(
        self,
        *,
        ballot: Ballot,
        others: tuple[str, ...],
        quorum: int,
        config: PaxosConfig,
        log: LogTail,
        floor: int,
        boot_us: int,
    ) -> None:
        """``others``: the acceptors besides the leader. ``floor``: the highest timestamp ceiling learned."""
        self.ballot = ballot
        self.floor = floor
        self.ceiling = 0
        self.first_own = log.last_index + 1
        self.held = Held(others, quorum, config.held_us)
        self._quorum = quorum
        self._config = config
        self._log = log
        self._elected_at = boot_us
        self._wanted = 0
        self._progress = {other: Progress(log.last_index + 1, boot_us) for other in others}

    def match(self, acceptor: str) -> int:
        """Return up to which index ``acceptor`` is known to hold this leader's log durably."""
        return self._progress[acceptor].match

    def held_by_all(self) -> int:
        """Return up to which index every voter holds the log durably."""
        return min([self._log.durable_index, *[progress.match for progress in self._progress.values()]])

    def next_due(self) -> int:
        """Return when the next heartbeat is due or the leadership is lost for want of a quorum."""
        sent = min(progress.last_sent for progress in self._progress.values())
        return min(sent + self._config.heartbeat_us, self.lost_quorum_at())

    def lost_quorum_at(self) -> int:
        """Return when the latest lease has ended also for the acceptors."""
        start = self.held.start
        return max(self._elected_at, NEVER if start is None else start) + self._config.lease_us

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
    ) -> list[tuple[str, Accept]]:
        """Return at most one Accept for each acceptor: whatever fits, or a heartbeat if one is due or ``urgent``."""
        boot_us = now.boot_us
        slices: dict[int, _Slice] = {}
        messages: list[tuple[str, Accept]] = []
        lowest = self._lowest_next()
        for other, progress in self._progress.items():
            progress.next_index = max(progress.next_index, lowest)  # the log may have been cut meanwhile
            entries, size = self._next_entries(progress, slices)
            if not entries and not urgent and boot_us < progress.last_sent + self._config.heartbeat_us:
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
        progress = self._progress[sender]
        progress.heard = boot_us
        sent = min(message.sent_boot_us, progress.last_sent)
        self.held.ack(sender, sent, min(message.ceiling, self.ceiling))
        if message.ok:
            progress.matched(min(message.match_index, self._log.last_index))
        elif sent >= progress.reset_at:
            before = progress.next_index
            self._fall_back(progress, min(message.hint + 1, before), boot_us)
            # No step back is no progress: wait for the next heartbeat instead of asking in a circle.
            progress.probing = progress.next_index >= before

    def _fall_back(self, progress: Progress, next_index: int, boot_us: int) -> None:
        progress.fall_back(max(next_index, self._lowest_next()), boot_us)

    def _lowest_next(self) -> int:
        """Return the first index that may have to be sent: every voter holds the one at the border of a cut log.

        A voter that lost its disk reports a gap there with every heartbeat; only state transfer would help it.
        """
        first = self._log.first_index
        return first + 1 if first > 1 else 1

    def chosen(self, before: int) -> int:
        """Return the chosen index: entries of the own ballot that a quorum holds, and with them all before.

        An entry of an older ballot is not chosen by being on a quorum of disks: a candidate whose last entry is of a
        ballot between may still be elected and overwrite it (Ongaro and Ousterhout, section 5.4.2, figure 8).
        """
        matches = [progress.match for progress in self._progress.values()]
        matches.append(self._log.durable_index)
        reached = reached_by(matches, self._quorum)
        if reached > before and self._log.ballot_at(reached) == self.ballot:
            return reached
        return before
