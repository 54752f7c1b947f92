"""One replica of a Paxos group as a pure state machine. The package docstring explains the protocol.

This is the one big file of the package: the rules of a protocol are checked against each other, so they stand together.
"""

import random
from enum import Enum
from typing import assert_never

from f1common.clock import Now
from f1common.errors import check
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.effects import Effects
from spanstore.paxos.leading import Leading
from spanstore.paxos.lease import Granted
from spanstore.paxos.log import LogReader, LogTail
from spanstore.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    HardState,
    LogEntry,
    Message,
    Prepare,
    PreVote,
    PreVoteReply,
    Promise,
    TransferLeadership,
)
from spanstore.paxos.progress import NEVER
from spanstore.paxos.quorum import majority


class Role(Enum):
    """What a replica is at the moment."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Replica:
    """One replica; the driver's duties are described at :class:`Effects`.

    A turn is any number of ``step``, ``tick``, ``propose`` and ``synced`` calls, one :meth:`flush` and then
    :meth:`take_chosen`. Nothing here raises on what peers send, but InvariantViolation if agreement itself is broken.
    """

    def __init__(
        self,
        *,
        group: int,
        me: str,
        voters: tuple[str, ...],
        config: PaxosConfig,
        log: LogReader,
        hard_state: HardState,
        applied_index: int,
        now: Now,
        rng: random.Random,
    ) -> None:
        """Start or restart from what is on disk: nobody is promised anything for one maximum lease from ``now``.

        A group of one voter needs not wait: nobody else can have been promised anything.
        """
        check(me in voters, f"{me} is not among the voters of group {group}")
        check(len(set(voters)) == len(voters), f"group {group} names a voter twice")
        self.group = group
        self.me = me
        self.voters = voters
        self._others = tuple(sorted(voter for voter in voters if voter != me))
        self._quorum = majority(len(voters))
        self._config = config
        self._rng = rng
        self._log = LogTail(log, config.cache_bytes)
        check(0 <= applied_index <= self._log.last_index, f"applied {applied_index}, log ends {self._log.last_index}")

        self._promised = hard_state.promised
        self._ceiling = hard_state.ceiling
        self._max_lease_us = max(hard_state.max_lease_us, config.lease_us)
        self._hard_state_changed = self._max_lease_us != hard_state.max_lease_us
        self._durable = hard_state

        self._role = Role.FOLLOWER
        self._leader: str | None = None
        self._chosen = applied_index
        self._applied = applied_index
        self._handed = applied_index
        self._safe = (0, 0)
        quarantine = self._max_lease_us if self._others else 0
        self._granted = Granted(now.boot_us + quarantine)
        self._jitter_us = self._draw_jitter() if self._others else 0
        self._deadline = now.boot_us + quarantine + self._jitter_us
        # Until then a promise given to one candidate keeps others from asking: fewer duels, no safety in it.
        self._courtesy_until = NEVER

        # Candidate. The ballot asked about in a pre-vote; promises by acceptor in an election, when it has begun.
        self._asked = NO_BALLOT
        self._pre_votes: set[str] = set()
        self._promises: dict[str, Promise] | None = None
        self._released = NO_BALLOT
        self._released_ts = 0
        self._seen_round = hard_state.promised.round

        self._leading: Leading | None = None  # set exactly while the role is LEADER

        # What accumulates for the next flush.
        self._flushed_index = self._log.last_index
        self._append: list[LogEntry] = []
        self._truncate_from: int | None = None
        self._all_hold = 0
        self._send_now: list[tuple[str, Message]] = []
        self._send_synced: list[tuple[str, Message]] = []
        self._accepted: Accepted | None = None
        self._became_leader = False
        self._lost_leadership = False

    # What others may know.

    @property
    def role(self) -> Role:
        """Follower, candidate or leader."""
        return self._role

    @property
    def ballot(self) -> Ballot:
        """The highest ballot promised; a leader's own while it leads."""
        return self._promised

    @property
    def leader(self) -> str | None:
        """The leader that this replica knows of, perhaps itself."""
        return self._leader

    @property
    def chosen_index(self) -> int:
        """All entries up to this index are known to be chosen."""
        return self._chosen

    @property
    def last_index(self) -> int:
        """The last index of the log, durable or not."""
        return self._log.last_index

    @property
    def durable_index(self) -> int:
        """The log is durable up to this index."""
        return self._log.durable_index

    @property
    def safe(self) -> tuple[int, int]:
        """The newest (index, timestamp) learned: a replica that applied the index has all up to the timestamp.

        Under load the newest index is always a little ahead of what is applied: note the pairs that pass.
        """
        return self._safe

    @property
    def ceiling_floor(self) -> int:
        """Leader: no earlier leader gave out a timestamp above this one: give out only higher ones. Otherwise 0."""
        return 0 if self._leading is None else self._leading.floor

    @property
    def usable_ceiling(self) -> int:
        """Leader: the highest timestamp that may be given out, as a quorum promised durably; otherwise 0."""
        leading = self._leading
        if leading is None:
            return 0
        return leading.held.usable_ceiling(min(self._durable.ceiling, leading.ceiling))

    def match(self, replica: str) -> int:
        """Leader: how far ``replica`` is known to hold this leader's log durably; otherwise 0."""
        if self._leading is None:
            return 0
        return self._log.durable_index if replica == self.me else self._leading.match(replica)

    def lease_valid(self, boot_us: int) -> bool:
        """Tell whether this replica leads and holds the lease at ``boot_us``, which must be a fresh sample."""
        return self._leading is not None and self._leading.held.valid(boot_us)

    def next_wakeup(self, now: Now) -> int:
        """Return the boot time at which :meth:`tick` should be called at the latest, in microseconds."""
        if self._leading is None:
            return max(self._deadline, now.boot_us)
        if not self._others:
            return now.boot_us + self._config.lease_us
        return max(self._leading.next_due(), now.boot_us)

    # Inputs.

    def step(self, sender: str, message: Message, now: Now) -> None:
        """Take in one message. Strangers and messages in another's name are ignored."""
        if sender not in self._others:
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
            case _:
                assert_never(message)

    def tick(self, now: Now) -> None:
        """Let time pass: elections, a leader without a quorum, silent acceptors."""
        boot = now.boot_us
        leading = self._leading
        if leading is not None:
            if self._others and boot >= leading.lost_quorum_at():
                self._follow(None, boot)
            else:
                leading.probe_silent(boot)
        elif boot >= self._deadline:
            self._ask(now)

    def propose(self, payload: bytes) -> int | None:
        """Append an entry to the log and return its index, None when not leader."""
        if self._role is not Role.LEADER:
            return None
        entry = LogEntry(self._log.last_index + 1, self._promised, payload)
        self._log.append(entry)
        self._append.append(entry)
        return entry.index

    def transfer(self, to: str, highest_ts: int, now: Now) -> bool:
        """Give up leadership and lease in favour of ``to``; False, and nothing done, unless ``to`` is caught up.

        ``highest_ts``: at or above every timestamp that this leader gave out. True may still end with any leader.
        """
        leading = self._leading
        if leading is None or to not in self._others or leading.match(to) != self._log.last_index:
            return False
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

    # Acceptor.

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
        """Tell whether no lease forbids this candidate and its log is at least as up to date as the own one."""
        if self.lease_valid(boot_us) or self._granted.refuses(sender, released, boot_us):
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
        match = self._match_log(message)
        if match is None:
            gap = message.prev_index > self._log.last_index
            self._answer(message, ok=False, index=self._log.last_index if gap else self._chosen)
            return
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

    def _match_log(self, message: Accept) -> int | None:
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
            log.append(entry)
        self._append.extend(new)
        return prev + len(message.entries)

    def _drop_suffix(self, first: int) -> None:
        check(first > self._chosen, f"chosen entry {first} of group {self.group} would be overwritten")
        self._log.truncate(first)
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

    # Candidate.

    def _ask(self, now: Now) -> None:
        """Begin a pre-vote, unless a lease that this replica granted, or may have granted, still runs."""
        boot = now.boot_us
        if self._granted.refuses(self.me, NO_BALLOT, boot):
            self._deadline = self._granted.until + self._jitter_us
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
        if self._quorum == 1:
            self._elect(NO_BALLOT, now)

    def _on_pre_vote_reply(self, sender: str, message: PreVoteReply, now: Now) -> None:
        self._note_round(message.promised)
        if self._role is not Role.CANDIDATE or self._promises is not None or message.ballot != self._asked:
            return
        if message.granted:
            self._pre_votes.add(sender)
            if len(self._pre_votes) + 1 >= self._quorum:
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
        if promises is None or self._durable.promised != self._promised or len(promises) < self._quorum:
            return
        floor = max(promise.ceiling for promise in promises.values())
        if self._released != NO_BALLOT and all(p.previous <= self._released for p in promises.values()):
            # No leader came after the one that gave up, so what it says that it gave out is the truth.
            floor = min(floor, self._released_ts)
        self._lead(floor, now)

    def _on_transfer(self, sender: str, message: TransferLeadership, now: Now) -> None:
        if message.ballot != self._promised or sender != self._leader or self._role is not Role.FOLLOWER:
            return
        if self._granted.refuses(self.me, message.ballot, now.boot_us):
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
            others=self._others,
            quorum=self._quorum,
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
        self._all_hold = max(self._all_hold, leading.held_by_all() - self._config.log_keep_entries)
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

    # Common.

    def _promise(self, ballot: Ballot) -> None:
        self._promised = ballot
        self._note_round(ballot)
        self._hard_state_changed = True

    def _note_round(self, ballot: Ballot) -> None:
        if ballot.round > self._seen_round:
            self._seen_round = ballot.round

    def _follow(self, leader: str | None, boot_us: int) -> None:
        """Be a follower, of nobody until the next Accept if ``leader`` is None; the election delay starts anew."""
        if self._leading is not None:
            self._lost_leadership = True
            self._leading = None
        self._role = Role.FOLLOWER
        self._leader = leader
        self._promises = None
        self._jitter_us = self._draw_jitter()
        self._deadline = max(boot_us + self._config.election_timeout_us, self._granted.until) + self._jitter_us

    def _draw_jitter(self) -> int:
        return self._rng.randrange(self._config.election_timeout_us)

    def _hard_state(self) -> HardState:
        return HardState(self._promised, self._ceiling, self._max_lease_us)

    def _truncate(self) -> int | None:
        """Return below which index the log may go now, in steps: what every voter holds and this one has applied."""
        keep = self._config.log_keep_entries
        # The entry at the border stays: it is the previous one of the first that an acceptor may need.
        limit = min(self._all_hold, self._applied)
        if limit < self._log.first_index + max(1, keep // 16):
            return None
        self._log.first_index = limit
        return limit


def _well_formed(message: Accept) -> bool:
    """Tell whether the fields fit together: entries follow each other, ballots never fall."""
    ballot = message.prev_ballot
    index = message.prev_index
    if index < 0 or (index == 0) != (ballot == NO_BALLOT) or message.lease_us < 0:
        return False
    for entry in message.entries:
        index += 1
        if entry.index != index or entry.ballot < ballot:
            return False
        ballot = entry.ballot
    return ballot <= message.ballot
