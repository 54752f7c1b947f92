"""One replica of a Paxos group as a pure state machine. The package docstring explains the protocol.

The acceptor's part is in :mod:`spanstore.paxos.acceptor`, what all roles share in :mod:`spanstore.paxos.core`; here is
what a replica does by itself: standing for election, leading, and the turn that its driver takes with it.
"""

from collections.abc import Collection
from typing import assert_never

from f1common.clock import Now
from f1common.errors import Code, F1Error, check
from spanstore.paxos.acceptor import Acceptor
from spanstore.paxos.configuration import Configuration, check_step, decode_configuration, joined_at
from spanstore.paxos.core import Role
from spanstore.paxos.effects import Effects
from spanstore.paxos.leading import Leading
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    LogEntry,
    Message,
    OfferState,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    Removed,
    TransferLeadership,
)
from spanstore.paxos.quorum import majority


class Replica(Acceptor):
    """One replica; the driver's duties are described at :class:`Effects`.

    A turn is any number of ``step``, ``tick``, ``propose`` and ``synced`` calls, one :meth:`flush` and then
    :meth:`take_chosen`. Nothing here raises on what peers send, but InvariantViolation if agreement itself is broken.
    """

    # Inputs.

    def step(self, sender: str, message: Message, now: Now) -> None:
        """Take in one message. Strangers and messages in another's name are ignored.

        Whoever joined later than this replica's log knows is no stranger; only answers of known members count, though.
        """
        if sender == self.me or self._is_stranger(sender, message):
            return
        match message:
            case Accept():
                if message.ballot.replica == sender:
                    self._on_accept(sender, message, now)
            case Accepted():
                self._on_accepted(sender, message, now)
            case PreVote():
                if message.ballot.replica == sender:
                    self._on_pre_vote(sender, message, now)
            case PreVoteReply():
                self._on_pre_vote_reply(sender, message, now)
            case Prepare():
                if message.ballot.replica == sender:
                    self._on_prepare(sender, message, now)
            case Promise():
                self._on_promise(sender, message, now)
            case TransferLeadership():
                self._on_transfer(sender, message, now)
            case OfferState():
                fresh = message.ballot >= self._promised and message.first_index > self._chosen
                if fresh and message.ballot.replica == sender:
                    self._offered = (sender, message.first_index)
            case Removed():
                self._removed = self._removed or message.version >= joined_at(self.me)
            case _:
                assert_never(message)

    def tick(self, now: Now) -> None:
        """Let time pass: elections, a leader without a quorum, silent acceptors."""
        boot = now.boot_us
        leading = self._leading
        if leading is not None:
            if not leading.held.alone and boot >= leading.lost_quorum_at():
                self._follow(None, boot)
            elif self.configuration_settled and self.me not in self.configuration.voters:
                self._follow(None, boot)  # it led until the configuration that removes it was chosen
            else:
                leading.probe_silent(boot)
        elif boot >= self._deadline:
            self._ask(now)

    def propose(self, payload: bytes) -> int | None:
        """Append an entry to the log and return its index, None when not leader."""
        if self._role is not Role.LEADER:
            return None
        check(decode_configuration(payload) is None, "a configuration is proposed by change()")
        entry = LogEntry(self._log.last_index + 1, self._promised, payload)
        self._take(entry, now=None)
        return entry.index

    def why_no_change(self) -> str:
        """Leader: say why the configuration cannot change now, nothing if it can. It may a moment later.

        A leader first has an entry of its own chosen, with all before it: else a configuration of an older leader could
        still be chosen instead of this leader's. And the present configuration is chosen, since quorums of the next but
        one need not meet those of the one before. The ceilings used by then are safe as well: every Accept carries the
        ceiling, so whoever stored an entry after them holds them.
        """
        leading = self._leading
        if leading is None:
            return "this replica does not lead"
        if self._chosen < leading.first_own:
            return "the leader has just been elected"
        if not self.configuration_settled:
            return "the last change is not chosen yet"
        return ""

    def change(self, configuration: Configuration, now: Now) -> int:
        """Leader: propose the next configuration and return its index. It counts at once.

        Raises INVALID_ARGUMENT for what is not one step, FAILED_PRECONDITION (retryable) while no change is possible
        or when a new voter has not caught up.
        """
        check_step(self.configuration, configuration)
        why = self.why_no_change()
        leading = self._leading
        if why or leading is None:
            raise F1Error(Code.FAILED_PRECONDITION, f"group {self.group}: {why}; retry", retryable=True)
        self._check_quorum(leading, configuration.voters, now.boot_us)
        entry = LogEntry(self._log.last_index + 1, self._promised, configuration.encode())
        self._take(entry, now)
        return entry.index

    def _check_quorum(self, leading: Leading, voters: tuple[str, ...], boot_us: int) -> None:
        """Refuse voters that could not go on choosing entries at once: a new one must have caught up."""
        least = max(1, self._log.last_index - self._config.promote_lag_entries)  # a newcomer has matched nothing
        for voter in set(voters) - set(self.configuration.voters):
            if leading.match(voter) < least:
                text = f"group {self.group}: {voter} lacks too much of the log to vote yet; retry when it has caught up"
                raise F1Error(Code.FAILED_PRECONDITION, text, retryable=True)
        silent = boot_us - self._config.lease_us
        ready = [v for v in voters if v == self.me or (leading.match(v) >= least and leading.heard(v) > silent)]
        if len(ready) < majority(len(voters)):
            names = ", ".join(sorted(set(voters) - set(ready)))
            text = f"group {self.group} would have no majority at once, without {names}: add others first"
            raise F1Error(Code.FAILED_PRECONDITION, text, retryable=True, details={"majority": names})

    def set_may_lead(self, may: bool) -> None:
        """Say whether this replica may stand for election. One that leads goes on until the driver transfers that."""
        self._may_lead = may

    def transfer(self, to: str, highest_ts: int, now: Now) -> bool:
        """Give up leadership and lease in favour of ``to``; False, and nothing done, unless ``to`` is caught up.

        ``highest_ts``: at or above every timestamp that this leader gave out. True may still end with any leader.
        """
        leading = self._leading
        if leading is None or to == self.me or to not in self.configuration.voters:
            return False
        if leading.match(to) != self._log.last_index:
            return False
        if not self.configuration_settled:
            return False  # the heir might count by another configuration and not know it
        highest = max(highest_ts, leading.floor, self._safe[1])
        self._follow(None, now.boot_us)
        # After the sync, hence after the group has learned that its lease is gone.
        self._send_synced.append((to, TransferLeadership(leading.ballot, highest)))
        return True

    def set_safe(self, index: int, ts: int) -> None:
        """Leader: the pair that the next Accepts carry; pairs never go back.

        Ignored until an entry of the own ballot is chosen. Before, entries of an older leader that this one never saw
        may still be chosen instead of its own, with timestamps below its floor: nothing is safe.
        """
        leading = self._leading
        if leading is not None and self._chosen >= leading.first_own and ts > self._safe[1]:
            self._safe = (index, ts)

    def want_ceiling(self, ts: int) -> None:
        """Leader: ask for a ceiling of at least ``ts`` with the next flush."""
        if self._leading is not None:
            self._leading.want_ceiling(ts)

    def applied(self, index: int) -> None:
        """Take in that everything up to ``index`` was applied durably."""
        self._membership.settled(index)
        self._applied = max(self._applied, index)

    # Outputs.

    def flush(self, now: Now) -> Effects:
        """Return everything that accumulated since the last flush. Once per turn."""
        if self._leading is not None:
            self._renew(self._leading, now)
        if self._accepted is not None:
            self._send_synced.append((self._accepted.ballot.replica, self._accepted))
            self._accepted = None
        effects = Effects(
            hard_state=self._hard_state() if self._hard_state_changed else None,
            truncate_from=self._truncate_from,
            append=self._append,
            truncate_below=self._truncate(),
            send_now=self._send_now,
            send_synced=self._send_synced,
            became_leader=self._became_leader,
            lost_leadership=self._lost_leadership,
        )
        self._flushed_index = self._log.last_index
        self._hard_state_changed = False
        self._truncate_from = None
        self._append = []
        self._send_now = []
        self._send_synced = []
        self._became_leader = False
        self._lost_leadership = False
        return effects

    def synced(self, effects: Effects, now: Now) -> None:
        """Take in that the writes of ``effects`` are durable. In the order of flushes."""
        if effects.hard_state is not None:
            self._durable = effects.hard_state
        if effects.append:
            self._log.synced(effects.append[-1])
        if self._leading is not None:
            self._chosen = self._leading.chosen(self._chosen)
        elif self._promises is not None:
            self._count_promises(now)

    def take_chosen(self, max_bytes: int) -> list[LogEntry]:
        """Return the next chosen entries not handed out yet, in order, at most ``max_bytes`` but one at least.

        Only entries that a flush gave out: the write that applies them must not precede the one that appends them.
        """
        last = min(self._chosen, self._flushed_index)
        if last <= self._handed:
            return []
        entries, _ = self._log.entries(self._handed + 1, last, max_bytes)
        check(entries, f"chosen entry {self._handed + 1} of group {self.group} is not in the log")
        self._handed = entries[-1].index
        return entries

    # Candidate.

    def _ask(self, now: Now) -> None:
        """Begin a pre-vote, unless a lease that this replica granted, or may have granted, still runs."""
        boot = now.boot_us
        if self._granted.refuses(self.me, NO_BALLOT, boot):
            self._deadline = self._granted.until + self._jitter_us
            return
        if not self._stands():
            self._ask_whether_removed(boot)
            return
        self._role = Role.CANDIDATE
        self._leader = None
        self._promises = None
        self._asked = Ballot(max(self._promised.round, self._seen_round) + 1, self.me)
        self._pre_votes = set()
        # Grants elsewhere end at slightly other times: ask again soon.
        self._deadline = boot + self._config.heartbeat_us + self._rng.randrange(self._config.heartbeat_us)
        question = PreVote(self._asked, self._log.last_index, self._log.last_ballot)
        self._send_now.extend((other, question) for other in self._others)
        if self._agreed(self._pre_votes):
            self._elect(NO_BALLOT, now)

    def _stands(self) -> bool:
        """Tell whether this replica may be elected: a voter, or one that a configuration not yet chosen removes.

        The latter may be the only one whose log lets it win, until that configuration is chosen.
        """
        voters = self.configuration.voters + self._chosen_configuration.voters
        return self._may_lead and not self._removed and self.me in voters

    def _ask_whether_removed(self, boot_us: int) -> None:
        """Whoever does not stand and hears no leader may have been removed: a question that cannot be granted tells."""
        self._deadline = boot_us + self._config.lease_us + self._draw_jitter()
        question = PreVote(Ballot(self._promised.round, self.me), self._log.last_index, self._log.last_ballot)
        last_leader = self._promised.replica  # all that a newcomer knows
        asked = {*self._others, last_leader} - {self.me, ""}
        self._send_now.extend((other, question) for other in sorted(asked))

    def _agreed(self, others: Collection[str]) -> bool:
        """Tell whether ``others`` and this replica are a quorum; only voters count, which this one need not be."""
        voters = self.configuration.voters
        return sum(voter == self.me or voter in others for voter in voters) >= majority(len(voters))

    def _on_pre_vote_reply(self, sender: str, message: PreVoteReply, now: Now) -> None:
        self._note_round(message.promised)
        if self._role is not Role.CANDIDATE or self._promises is not None or message.ballot != self._asked:
            return
        if message.granted:
            self._pre_votes.add(sender)
            if self._agreed(self._pre_votes):
                self._elect(NO_BALLOT, now)
        elif message.promised >= self._asked:
            self._ask(now)  # for a higher ballot, which may be all that was missing

    def _elect(self, released: Ballot, now: Now) -> None:
        """Begin an election: the own promise first, and nothing leaves before it is durable."""
        previous = self._promised
        ballot = Ballot(max(previous.round, self._seen_round) + 1, self.me)
        self._promise(ballot)
        self._role = Role.CANDIDATE
        self._leader = None
        self._released = released
        self._promises = {self.me: Promise(ballot, True, ballot, previous, self._ceiling)}
        self._jitter_us = self._draw_jitter()
        self._deadline = now.boot_us + self._config.election_timeout_us + self._jitter_us
        question = Prepare(ballot, self._log.last_index, self._log.last_ballot, released)
        self._send_synced.extend((other, question) for other in self._others)

    def _on_promise(self, sender: str, message: Promise, now: Now) -> None:
        self._note_round(message.promised)
        if self._promises is None or message.ballot != self._promised:
            return
        if message.granted:
            self._promises.setdefault(sender, message)
            self._count_promises(now)

    def _count_promises(self, now: Now) -> None:
        promises = self._promises
        if promises is None or self._durable.promised != self._promised or not self._agreed(promises):
            return
        floor = max(promise.ceiling for promise in promises.values())
        if self._released != NO_BALLOT and all(p.previous <= self._released for p in promises.values()):
            # No leader came after the one that gave up, so what it says that it gave out is the truth.
            floor = min(floor, self._released_ts)
        self._lead(floor, now)

    def _on_transfer(self, sender: str, message: TransferLeadership, now: Now) -> None:
        if message.ballot != self._promised or sender != self._leader or self._role is not Role.FOLLOWER:
            return
        if self._granted.refuses(self.me, message.ballot, now.boot_us) or not self._stands():
            return
        self._released_ts = message.highest_ts
        self._elect(message.ballot, now)

    # Leader.

    def _lead(self, floor: int, now: Now) -> None:
        self._role = Role.LEADER
        self._leader = self.me
        self._promises = None
        self._became_leader = True
        self._leading = Leading(
            ballot=self._promised,
            me=self.me,
            configuration=self.configuration,
            config=self._config,
            log=self._log,
            floor=floor,
            boot_us=now.boot_us,
        )

    def _renew(self, leading: Leading, now: Now) -> None:
        rose = leading.raise_ceiling(now.tt.latest)
        if leading.ceiling > self._ceiling:
            self._ceiling = leading.ceiling
            self._hard_state_changed = True
        held = max(leading.held_by_all(), self._log.newest(self._config.log_hold_entries, self._config.log_hold_bytes))
        self._all_hold = max(self._all_hold, held - self._config.log_keep_entries)
        self._send_now.extend(
            leading.accepts(now, urgent=rose, chosen=self._chosen, safe=self._safe, all_hold=self._all_hold)
        )

    def _on_accepted(self, sender: str, message: Accepted, now: Now) -> None:
        leading = self._leading
        if leading is None or message.ballot != leading.ballot:
            return
        if message.promised > message.ballot:
            self._note_round(message.promised)
            self._follow(None, now.boot_us)
            # Nobody need have been elected with that ballot: ask at once.
            self._deadline = now.boot_us + self._rng.randrange(self._config.heartbeat_us)
            return
        leading.accepted(sender, message, now.boot_us)
        self._chosen = leading.chosen(self._chosen)

    def _truncate(self) -> int | None:
        """Return below which index the log may go now, in steps: what every voter holds and this one has applied."""
        keep = self._config.log_keep_entries
        # The entry at the border stays: it is the previous one of the first that an acceptor may need.
        limit = min(self._all_hold, self._applied)
        if limit < self._log.first_index + max(1, keep // 16):
            return None
        self._log.first_index = limit
        return limit
