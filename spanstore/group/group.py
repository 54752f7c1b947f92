"""One replica of one Paxos group: consensus, locks, timestamps and rows put together.

Pure: it never waits, sends or writes. The runtime drives it in *turns*, all groups of a spanserver together, so that a
turn costs one engine transaction and one sync:

1. ``begin_turn(view, now)`` with a fresh view of the engine;
2. ``on_peer`` and ``on_request`` for everything that arrived, ``tick`` when time is due;
3. ``end_turn(batch, now)`` adds what must be durable to the batch and returns the messages;
4. ``deliver`` lets answers go that need not wait for the batch;
5. the runtime commits the batch, calls ``durable(view, now)``, sends the messages that had to wait, and ``deliver``.

A failed commit is a crash: the runtime throws the object away and loads a new one from the disk.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from f1common.clock import Now
from f1common.errors import Code, F1Error
from spanstore.engine.base import Reader, WriteBatch
from spanstore.group import reads
from spanstore.group.config import GroupConfig
from spanstore.group.digests import Pacer, RangeDigest
from spanstore.group.leadership import PreferredLeader
from spanstore.group.members import Step, member_at, next_configuration, put_configuration
from spanstore.group.outbox import Outbox, Ticket, elsewhere
from spanstore.group.ownership import check_owned
from spanstore.group.requests import (
    ChangeMembers,
    MembersReply,
    Read,
    SafeTimeQuery,
    SafeTimeReply,
    Settle,
)
from spanstore.group.state import Done, MembersChanged, ReplicatedState
from spanstore.group.storage import DiskLog, check_records, load_hard_state, load_whole_from, put_effects
from spanstore.group.tenure import Tenure
from spanstore.group.validation import validate
from spanstore.group.versions import VersionOf, Versions
from spanstore.group.view import GroupView
from spanstore.mvcc.safetime import FollowerSafeTime
from spanstore.mvcc.versions import read_version
from spanstore.paxos.configuration import Configuration, server_of
from spanstore.paxos.core import Role
from spanstore.paxos.effects import Effects
from spanstore.paxos.messages import Accept, HardState, Message, Promise, TransferLeadership
from spanstore.paxos.replica import Replica
from spanstore.placement.holdings import Interval
from spanstore.txn.commands import (
    AbortCmd,
    BundleCmd,
    CommitCmd,
    DecideCmd,
    DigestCmd,
    NewLeader,
    PrepareCmd,
    encode_command,
)

_OF_ROWS = (CommitCmd, BundleCmd, AbortCmd, PrepareCmd, DecideCmd)
"""What changes rows, all of which are undecided until that is durable, and nothing else."""
_LEAVE_US = 1_000_000
_CATCH_UP_US = 100_000


@dataclass(slots=True)
class Outgoing:
    """Messages of a turn: (receiver, message)."""

    now: list[tuple[str, Message]] = field(default_factory=list)
    synced: list[tuple[str, Message]] = field(default_factory=list)


class Group:
    """A replica of a group; see the module docstring for how it is driven."""

    def __init__(
        self,
        *,
        group: int,
        me: str,
        founding: Configuration | None,
        owned: tuple[Interval, ...],
        config: GroupConfig,
        reader: Reader,
        now: Now,
        rng: random.Random,
        on_applied: Callable[[int, Done], None] | None = None,
        version_of: VersionOf,
    ) -> None:
        """Load the replica from the engine view ``reader``. Raises DATA_CORRUPTION for a damaged log or state.

        ``me`` names the replica, that is the life of it that is here. ``founding`` are the group's first members, for
        a replica that has no record of its members yet; None for a newcomer, which waits for the group's state.
        ``owned`` is what the group owns before any range moved.
        """
        self.group = group
        self._me = me
        self._opening_index = 0
        self._record_founders = False
        self._leaving_until_us = 0
        self._left = False
        self.may_lead = True
        self._condemned: F1Error | None = None
        self._pacer = Pacer(config.digest_every_us)
        self._config = config
        self.versions = Versions(version_of)
        check_records(reader, group)
        self._log = DiskLog(reader, group)
        self.state = ReplicatedState(group, reader, owned)
        self.replica = Replica(
            group=group,
            me=me,
            configuration=self._founded(founding),
            config=config.paxos,
            log=self._log,
            hard_state=load_hard_state(reader, group) or HardState(),
            applied_index=self.state.applied.index,
            now=now,
            rng=rng,
        )
        self._outbox = Outbox(self._not_leader)
        self._tenure: Tenure | None = None
        self._follower_safe = FollowerSafeTime()
        self._whole_from = load_whole_from(reader, group)
        self._reads: list[Ticket] = []
        self._effects = Effects()
        self._done: list[Done] = []
        self._changes_rows_only = True
        self._reader = reader
        self._now = now
        self._on_applied = on_applied
        self._changes: dict[int, Ticket] = {}
        self._heir: str | None = None
        self.preferred = PreferredLeader()
        self.clocks_ahead: dict[str, int] = {}
        """Peers whose messages are refused, and by how many microseconds they are too far ahead of the clock here."""

    def _founded(self, founding: Configuration | None) -> Configuration | None:
        """Return the members that are in force as of what is applied."""
        if self.state.configuration is None and founding is not None:
            self.state.configuration = founding
            self._record_founders = True
        return self.state.configuration

    # ------------------------------------------------------------------ turns

    def begin_turn(self, reader: Reader, now: Now) -> None:
        """Start a turn with a view that shows everything durable."""
        self._reader, self._now = reader, now
        self._log.bind(reader)
        self._follow_role()
        if self._tenure is not None:
            self._tenure.begin_turn(reader, now)

    def reads_beside(self) -> bool:
        """Tell whether reads may be answered between :meth:`end_turn` and :meth:`durable`.

        Not where a change takes effect that is in memory already, but not in the view, or the other way round: of who
        owns a range, of the members, of what is garbage.
        """
        return self._changes_rows_only and self._serving()

    def begin_beside(self, reader: Reader, now: Now) -> None:
        """Have reads answered from ``reader``, a view from before this turn's writes or from after them."""
        self._reader, self._now = reader, now
        if self._tenure is not None:
            self._tenure.look(reader, now)

    def on_peer(self, sender: str, message: Message) -> None:
        """Take in a Paxos message, unless it would drag this group's time along with a clock that is wrong."""
        match message:
            case Accept(ceiling=ts) | Promise(ceiling=ts) | TransferLeadership(highest_ts=ts):
                # A leader asks for a lease ahead, or for what a client saw, which may be ahead of its clock in turn.
                ahead = ts - self._now.tt.latest - self._config.paxos.lease_us - 2 * self._config.max_skew_us
                if ahead > 0:
                    self.clocks_ahead[sender] = ahead
                    return
                self.clocks_ahead.pop(sender, None)
            case _:
                pass  # these carry no time
        self.replica.step(sender, message, self._now)

    def on_request(self, ticket: Ticket) -> None:
        """Take in a client's request; it is answered exactly once through its ticket."""
        if ticket.deadline_us <= self._now.boot_us:
            self._outbox.fail(ticket.reply, Code.DEADLINE_EXCEEDED, "the request came too late to be worked on; retry")
            return
        if self._condemned is not None:
            self._outbox.send(ticket.reply, self._condemned)
            return
        try:
            validate(ticket.request, self._config.txn_max_bytes)
        except F1Error as error:
            self._outbox.send(ticket.reply, error)
            return
        if self._left:
            self._turn_away(ticket)
        elif isinstance(ticket.request, SafeTimeQuery):
            self._outbox.send(
                ticket.reply, SafeTimeReply(self._readable_ts(), reads.listed_groups(self._reader, self.group))
            )
        elif self._serving() and isinstance(ticket.request, ChangeMembers):
            self._change_members(ticket, ticket.request)
        elif self._serving():
            self._serving_tenure().handle(ticket)
        elif isinstance(ticket.request, Read | Settle) and ticket.request.timestamp > 0:
            if len(self._reads) < self._config.max_parked:
                self._reads.append(ticket)
            else:
                self._outbox.fail(ticket.reply, Code.OVERLOADED, "too many reads wait for this replica; retry later")
        else:
            self._outbox.send(ticket.reply, self._not_leader())

    def tick(self) -> None:
        """Let time pass."""
        self.replica.tick(self._now)
        self._follow_role()
        if not self.may_lead:
            self.hand_over()
        if self._tenure is not None and self._tenure.ready:
            self._tenure.tick()
            may_compare = self._serving() and self.versions.allows(DigestCmd, self.replica.configuration)
            compare = self._pacer.due(self._reader, self.group, self._now.boot_us) if may_compare else None
            if compare is not None:
                self.replica.propose(encode_command(compare))
            self._seek_preferred()
        expired = [t for t in self._reads if t.deadline_us <= self._now.boot_us]
        self._reads = [t for t in self._reads if t.deadline_us > self._now.boot_us]
        for ticket in expired:
            self._outbox.send(ticket.reply, reads.too_late(self.state, ticket.request, self._readable_ts()))

    def take_digests(self) -> list[RangeDigest]:
        """Return what this replica has in the ranges that were compared in this turn, of which it has all."""
        found, self.state.digests = self.state.digests, []
        if any(not digest.digest for digest in found) and self._outbox.damage is None:
            text = f"group {self.group}: a record is damaged that its replicas compared"
            self._outbox.damage = F1Error(Code.DATA_CORRUPTION, text)
        return found if self.state.applied.index >= self._whole_from else []

    def end_turn(self, batch: WriteBatch) -> Outgoing:
        """Add all that must become durable to ``batch`` and return the messages of the turn."""
        if self._record_founders and self.state.configuration is not None:
            put_configuration(batch, self.group, self.state.configuration)
            self.state.holding.record_first(batch)
            self._record_founders = False
        self._follow_role()
        self._serve_follower_reads()
        if self._tenure is not None:
            self._tenure.end_turn(None if self._serving() else self._not_leader())
            pair = self._tenure.safe_time()
            if pair is not None:
                self.replica.set_safe(*pair)
        if self._now.boot_us < self._leaving_until_us and (self._tenure is None or self._transfer()):
            self._leaving_until_us = 0
        self._effects = effects = self.replica.flush(self._now)
        if effects.lost_leadership:
            self._follow_role()
        put_effects(batch, self.group, effects)
        entries = self.replica.take_chosen(self._config.turn_max_bytes)
        self._done = self.state.apply(entries, batch, self._reader)
        self._changes_rows_only = all(isinstance(done.command, _OF_ROWS) for done in self._done)
        if self._tenure is not None:
            for done in self._done:
                self._tenure.chosen(done)
                self._members_changed(done)
        return Outgoing(effects.send_now, effects.send_synced)

    def deliver(self, now: Now) -> None:
        """Let go of answers whose conditions hold at ``now``, a sample taken just before the call."""
        self._outbox.deliver(now, lambda term: self._lease_holds(term, now))

    def next_answer_ts(self) -> int | None:
        """Return the earliest timestamp that has to pass before an answer may leave."""
        return self._outbox.next_ts()

    def durable(self, reader: Reader, now: Now) -> None:
        """The batch of this turn is on disk, and ``reader`` shows it."""
        self._now = now
        self._log.bind(reader)
        self._log.written(self._effects)
        self.replica.synced(self._effects, now)
        done, self._done = self._done, []
        self._changes_rows_only = True
        if done:
            self.state.durable()
            self.replica.applied(self.state.applied.index)
            for item in done:
                if self._on_applied is not None:
                    self._on_applied(self.group, item)
                if self._tenure is not None:
                    self._tenure.durable(item, now)
        self._follow_role()
        index, ts = self.replica.safe
        self._follower_safe.learn(index, ts)
        if self.state.applied.index >= self._whole_from:
            self._follower_safe.applied(self.state.applied.index)
        if self._tenure is not None:
            self._maybe_open(now)
            self._tenure.release_visible(now)

    def has_work(self) -> bool:
        """Tell whether another turn should follow at once."""
        if self.replica.chosen_index > self.state.applied.index:
            return True
        if self._tenure is not None and not self._tenure.ready and self._opening_index > self.replica.durable_index:
            return True  # the entry that opens the term was proposed after this turn's flush
        return self._tenure is not None and self._tenure.has_work()

    def next_wakeup(self, now: Now) -> int:
        """Return the boot time of the next turn that is due though nothing arrives, in microseconds."""
        due = self.replica.next_wakeup(now)
        stamps = [self._outbox.next_ts(), self._tenure.next_ts() if self._tenure is not None else None]
        for ts in stamps:
            if ts is not None:
                due = min(due, now.boot_us + max(1, ts - now.tt.earliest + 1))
        tenure = self._tenure
        again = (tenure.ask_again_us(), tenure.collect_again_us()) if tenure is not None else ()
        for then in again:
            if then is not None:
                due = min(due, max(then, now.boot_us + 1))
        if self._reads or (self._tenure is not None and self._tenure.waits_for_ceiling()):
            due = min(due, now.boot_us + 2_000)
        return due

    # ------------------------------------------------------------------ questions of the runtime

    def overdue(self) -> list[PrepareCmd]:
        """Return prepared transactions whose coordinator should be asked now."""
        return self._tenure.overdue() if self._tenure is not None and self._serving() else []

    def hand_over(self) -> None:
        """Give up leadership in favour of the voter that is furthest along; no transaction here survives it.

        Under load nobody holds all of the log at any moment: then nothing new is served until somebody does.
        """
        if self._tenure is not None and self._tenure.ready and not self._transfer():
            self._leaving_until_us = self._now.boot_us + _LEAVE_US

    def hand_over_to(self, heir: str) -> None:
        """Give up leadership in favour of the voter ``heir``, within a short time or not at all."""
        self._heir = heir
        if self._tenure is not None and self._tenure.ready and not self._transfer():
            self._leaving_until_us = self._now.boot_us + _CATCH_UP_US

    def _seek_preferred(self) -> None:
        """Let leadership go where it is wanted."""
        heir = self.preferred.heir(self.replica, self._now.boot_us, self._config.paxos.lease_us)
        if heir is not None and self.replica.configuration_settled:
            self.hand_over_to(heir)

    def set_may_lead(self, may: bool) -> None:
        """Say whether this replica may lead. One that may not stands for no election, and at the next tick begins to
        give leadership away."""
        self.may_lead = may
        self.replica.set_may_lead(may)

    @property
    def damage(self) -> F1Error | None:
        """The damage on this replica's disk that a request ran into, if any did."""
        return self._outbox.damage

    def condemn(self, error: F1Error) -> None:
        """This replica's data are damaged: serve nobody from now on and give leadership away. It still votes."""
        self._condemned = elsewhere(error)
        waiting, self._reads = self._reads, []
        for ticket in waiting:
            self._outbox.send(ticket.reply, self._condemned)
        self.set_may_lead(False)

    def discard(self, error: F1Error, now: Now) -> None:
        """Answer everybody who waits here: this object is about to be thrown away."""
        self._now = now
        self.condemn(error)
        if self._tenure is not None:
            self._tenure.close(elsewhere(error))
            self._tenure = None
        self._outbox.abandon()
        self.deliver(now)

    def leave(self) -> None:
        """Send elsewhere whoever waits for this replica's safe time, and whoever comes: it will hear of no more."""
        self._left = True
        waiting, self._reads = self._reads, []
        for ticket in waiting:
            self._turn_away(ticket)

    def _turn_away(self, ticket: Ticket) -> None:
        self._outbox.fail(ticket.reply, Code.UNAVAILABLE, f"{server_of(self._me)} is leaving; ask another server")

    def _transfer(self) -> bool:
        if self._tenure is None:
            return False
        heir, self._heir = self._heir, None
        others = [voter for voter in self.replica.configuration.voters if voter != self._me]
        if heir in others:
            others = [heir]
        for voter in sorted(others, key=lambda v: (-self.replica.match(v), v)):
            if self.replica.transfer(voter, self._tenure.highest_ts(), self._now):
                return True
        return False

    # ------------------------------------------------------------------ members

    def _change_members(self, ticket: Ticket, request: ChangeMembers) -> None:
        """Take one step; it is answered when it is chosen."""
        try:
            before = self.replica.configuration
            if request.version >= 0 and request.version != before.version:
                text = f"the members of group {self.group} are version {before.version}, not {request.version}"
                raise F1Error(Code.FAILED_PRECONDITION, f"{text}; look again")
            if request.step is Step.TRANSFER:
                self._transfer_to(member_at(before, request.name))
                self._outbox.send(ticket.reply, MembersReply(before))
                return
            after = next_configuration(before, request.step, request.name, request.home)
            self.versions.check_change(before, after)
            if self._me not in after.voters:
                if before.voters == (self._me,):
                    text = f"{self._me} is the only voter of group {self.group}: add another one first"
                    raise F1Error(Code.FAILED_PRECONDITION, text)
                # Whoever leads stays a voter: another one does it.
                self.hand_over()
                raise self._not_leader()
            self._changes[self.replica.change(after, self._now)] = ticket
        except F1Error as error:
            self._outbox.send(ticket.reply, error)

    def _transfer_to(self, member: str) -> None:
        if member == self._me:
            return
        if member not in self.replica.configuration.voters:
            raise F1Error(Code.FAILED_PRECONDITION, f"{member} does not vote in group {self.group}: it cannot lead")
        self._heir = member
        if not self._transfer():
            self._heir = None
            text = f"{member} has not caught up with the log of group {self.group}; retry"
            raise F1Error(Code.FAILED_PRECONDITION, text, retryable=True)

    def _members_changed(self, done: Done) -> None:
        if isinstance(done.command, MembersChanged):
            ticket = self._changes.pop(done.index, None)
            if ticket is not None:
                self._outbox.send(ticket.reply, MembersReply(done.command.configuration))

    def _forget_changes(self) -> None:
        error = self._not_leader()
        for ticket in self._changes.values():
            self._outbox.send(ticket.reply, F1Error(error.code, error.message, retryable=True, ambiguous=True))
        self._changes.clear()

    @property
    def member(self) -> str:
        """The name of this replica in its group."""
        return self._me

    def leads(self) -> bool:
        """Tell whether this replica leads, serving or not."""
        return self._tenure is not None

    def is_serving_leader(self) -> bool:
        """Tell whether this replica leads, holds its lease and has applied everything of earlier terms."""
        return self._serving()

    def view(self, now: Now) -> GroupView:
        """Return what status shows."""
        tenure = self._tenure
        holder = tenure.holder() if tenure is not None and tenure.ready else None
        return GroupView(
            group=self.group,
            role=self.replica.role.value,
            leader=server_of(self.replica.leader or ""),
            ballot_round=self.replica.ballot.round,
            chosen_index=self.replica.chosen_index,
            applied_index=self.state.applied.index,
            last_index=self.replica.last_index,
            safe_ts=self._readable_ts(),
            lease_valid=self.replica.lease_valid(now.boot_us),
            prepared=len(self.state.prepared),
            locked_transactions=tenure.locked_transactions() if tenure is not None else 0,
            safe_holder=holder[0] if holder else b"",
            safe_holder_ts=holder[1] if holder else 0,
            digest=self.state.applied.digest,
            member=self._me,
            configuration=self.replica.configuration,
            matches=tuple((member, self.replica.match(member)) for member in self.replica.configuration.members),
            collected=self.state.collected,
            damaged_keys=len(tenure.collecting.damaged) if tenure is not None else 0,
        )

    def newest_value(self, reader: Reader, key: bytes) -> bytes | None:
        """Return the newest value of ``key`` that this replica has applied, which may be stale."""
        version = read_version(reader, self.group, key, reads.NEWEST)
        return None if version is None else version.value

    # ------------------------------------------------------------------ leadership

    def _follow_role(self) -> None:
        """Make the tenure match the replica's role: one tenure per ballot, none for a follower."""
        leads = self.replica.role is Role.LEADER
        term = self.replica.ballot.round
        if self._tenure is not None and (not leads or self._tenure.term != term):
            self._tenure.close(self._not_leader())
            self._forget_changes()
            self._tenure = None
        if leads and self._tenure is None:
            self._tenure = Tenure(
                group=self.group,
                term=term,
                replica=self.replica,
                state=self.state,
                config=self._config,
                outbox=self._outbox,
                versions=self.versions,
                reader=self._reader,
                now=self._now,
            )
            floor = max(self.replica.ceiling_floor, self.state.max_ts)
            index = self.replica.propose(encode_command(NewLeader(term, self.replica.ballot.replica, floor)))
            self._opening_index = index if index is not None else 0
            self._tenure.begin_turn(self._reader, self._now)
            self.preferred.settled(self._now.boot_us)

    def _maybe_open(self, now: Now) -> None:
        tenure = self._tenure
        if tenure is not None and not tenure.ready and 0 < self._opening_index <= self.state.applied.index:
            tenure.open(now)

    def _serving(self) -> bool:
        tenure = self._tenure
        if tenure is None or not tenure.ready or self._now.boot_us < self._leaving_until_us:
            return False
        return self.replica.lease_valid(self._now.boot_us)

    def _serving_tenure(self) -> Tenure:
        if self._tenure is None:
            raise F1Error(Code.INTERNAL, "no tenure although serving")
        return self._tenure

    def _lease_holds(self, term: int, now: Now) -> bool:
        tenure = self._tenure
        return tenure is not None and tenure.term == term and self.replica.lease_valid(now.boot_us)

    def _not_leader(self) -> F1Error:
        leader = server_of(self.replica.leader or "")
        return F1Error(
            Code.NOT_LEADER,
            f"this replica does not lead group {self.group}; ask {leader or 'again soon, an election is on'}",
            details={"leader": leader, "group": str(self.group)},
        )

    # ------------------------------------------------------------------ reads at a timestamp, away from the leader

    def _readable_ts(self) -> int:
        """Return the highest timestamp at which this replica answers now."""
        return min(self._follower_safe.safe_ts, self._now.tt.earliest - 1)

    def _serve_follower_reads(self) -> None:
        readable, size = self._readable_ts(), 0
        waiting, self._reads = self._reads, []
        for ticket in waiting:
            request = ticket.request
            if not isinstance(request, Read | Settle):
                continue
            if self._serving():
                self._serving_tenure().handle(ticket)
            elif request.timestamp > readable or size >= self._config.turn_max_bytes:
                self._reads.append(ticket)
            else:
                try:
                    check_owned(self.state.holding, request, self.group)
                    leader = server_of(self.replica.leader or "")
                    answer = reads.answer(self._reader, self.state, request, request.timestamp, self._config, leader)
                    size += reads.size_of(answer)
                    self._outbox.send(ticket.reply, answer)
                except F1Error as error:
                    self._outbox.send(ticket.reply, error)
