"""The acceptor's half of a replica: what it promises, accepts and answers."""

from f1common.clock import Now
from f1common.errors import check
from spanstore.paxos.configuration import is_readable, joined_at
from spanstore.paxos.core import ReplicaCore
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Message,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    Removed,
)


class Acceptor(ReplicaCore):
    """A replica that answers what others ask."""

    def _on_prepare(self, sender: str, message: Prepare, now: Now) -> None:
        previous = self._promised
        granted = message.ballot >= previous and self._may_elect(sender, message, message.released, now.boot_us)
        if not granted:
            refusal = Promise(message.ballot, False, previous, previous, self._ceiling)
            self._send_now.append((sender, refusal))
            return
        if message.ballot > previous:
            self._promise(message.ballot)
            self._follow(None, now.boot_us)
        self._courtesy_until = now.boot_us + self._config.election_timeout_us
        promise = Promise(message.ballot, True, message.ballot, previous, self._ceiling)
        self._send_synced.append((sender, promise))

    def _may_elect(self, sender: str, message: Prepare | PreVote, released: Ballot, boot_us: int) -> bool:
        """Tell whether no lease forbids this candidate and its log is at least as up to date as the own one.

        A newcomer promises nothing: it is no voter, or has forgotten what it promised as one.
        """
        if self._newcomer or self.lease_valid(boot_us) or self._granted.refuses(sender, released, boot_us):
            return False
        return (message.last_ballot, message.last_index) >= (self._log.last_ballot, self._log.last_index)

    def _on_pre_vote(self, sender: str, message: PreVote, now: Now) -> None:
        boot = now.boot_us
        granted = (
            message.ballot > self._promised
            and boot >= self._courtesy_until
            and self._promises is None
            and self._may_elect(sender, message, NO_BALLOT, boot)
        )
        self._send_now.append((sender, PreVoteReply(message.ballot, granted, self._promised)))

    def _is_stranger(self, sender: str, message: Message) -> bool:
        """Tell whether ``sender`` was removed, by a configuration that is chosen; a candidate is told so.

        Whoever joined by a later version than that one is believed, also if the log has another change there: that one
        may never be chosen.
        """
        chosen = self._chosen_configuration
        known = sender in chosen.members or sender in self.configuration.members
        if known or joined_at(sender) > chosen.version or self._newcomer:
            return False
        if isinstance(message, PreVote | Prepare) and chosen.version:
            self._send_now.append((sender, Removed(message.ballot, chosen.version)))
        return True

    def _on_accept(self, sender: str, message: Accept, now: Now) -> None:
        if message.ballot < self._promised:
            refusal = Accepted(message.ballot, self._promised, False, 0, 0, message.sent_boot_us, 0)
            self._send_now.append((sender, refusal))
            return
        if not _well_formed(message):
            return
        if message.ballot > self._promised:
            self._promise(message.ballot)
        if self._leader != sender:
            self._follow(sender, now.boot_us)
        self._grant(sender, message, now.boot_us)
        if message.safe_ts > self._safe[1]:
            self._safe = (message.safe_index, message.safe_ts)
        if self._newcomer:
            self._answer(message, ok=False, index=-1)
            return
        match = self._match_log(message, now)
        if match is None:
            gap = message.prev_index > self._log.last_index
            self._answer(message, ok=False, index=self._log.last_index if gap else self._chosen)
            return
        self._offered = None
        self._chosen = max(self._chosen, min(message.chosen_index, match))
        self._all_hold = max(self._all_hold, message.truncate_below)
        self._answer(message, ok=True, index=match)

    def _grant(self, sender: str, message: Accept, boot_us: int) -> None:
        if message.lease_us > self._max_lease_us:
            self._max_lease_us = message.lease_us
            self._hard_state_changed = True
        if message.ceiling > self._ceiling:
            self._ceiling = message.ceiling
            self._hard_state_changed = True
        self._granted.grant(sender, message.ballot, boot_us + message.lease_us)
        self._deadline = self._granted.until + self._jitter_us

    def _match_log(self, message: Accept, now: Now) -> int | None:
        """Make the log agree with the Accept and return up to where it does; None if it does not fit."""
        log = self._log
        prev = message.prev_index
        if prev > log.last_index:
            return None
        if prev != log.last_index or message.prev_ballot != log.last_ballot:
            known = log.ballot_at(prev) if prev >= self._log.first_index else message.prev_ballot
            if known != message.prev_ballot:
                check(prev > self._chosen, f"chosen entry {prev} of group {self.group} has two ballots")
                return None
        new = message.entries
        if new and prev < log.last_index:
            held = 0
            for entry in new:
                if entry.index >= self._log.first_index and log.ballot_at(entry.index) != entry.ballot:
                    break
                held += 1
            new = new[held:]
            if new and new[0].index <= log.last_index:
                self._drop_suffix(new[0].index)
        for entry in new:
            self._take(entry, now)
        return prev + len(message.entries)

    def _drop_suffix(self, first: int) -> None:
        check(first > self._chosen, f"chosen entry {first} of group {self.group} would be overwritten")
        self._log.truncate(first)
        if self._membership.truncated(first):
            self._count()
        if self._append:
            self._append = [entry for entry in self._append if entry.index < first]
        if first <= self._flushed_index:
            self._truncate_from = first
            self._flushed_index = first - 1

    def _answer(self, message: Accept, *, ok: bool, index: int) -> None:
        """Answer once per turn: matches and send times only grow under one ballot, so the last says it all."""
        match, hint = (index, 0) if ok else (0, index)
        sent = message.sent_boot_us
        before = self._accepted
        if before is not None and before.ballot == message.ballot:
            sent = max(sent, before.sent_boot_us)
            if before.ok:
                ok, match, hint = True, max(match, before.match_index), 0
        self._accepted = Accepted(message.ballot, message.ballot, ok, match, hint, sent, self._ceiling)


def _well_formed(message: Accept) -> bool:
    """Tell whether the fields fit together: entries follow each other, ballots never fall."""
    ballot = message.prev_ballot
    index = message.prev_index
    if index < 0 or (index == 0) != (ballot == NO_BALLOT) or message.lease_us < 0:
        return False
    for entry in message.entries:
        index += 1
        if entry.index != index or entry.ballot < ballot or not is_readable(entry.payload):
            return False
        ballot = entry.ballot
    return ballot <= message.ballot
