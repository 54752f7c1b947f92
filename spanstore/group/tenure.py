"""One leader's term: everything that a leader knows and a follower does not, and that is lost with leadership.

Locks, the timestamps given out, commands on their way through the log, requests that wait. A new object is made for
each term, so that nothing of an older term can survive in it, not even when leadership returns to the same process.

The path of a commit (a prepare goes the same way):

1. *judge*: has this attempt been decided already? A request whose transaction has a command in flight waits for it and
   is judged again then, so that a commit id is never executed twice;
2. *lock*: verify that locks taken earlier are still held under this term, take the write locks, and shared locks on
   what the preconditions look at;
3. *test* the preconditions on the newest versions, under those locks;
4. *stamp*: choose the timestamp above everything given out, at or above ``now().latest``, below the lease's ceiling;
5. *log* it. Once chosen it is answered, after commit-wait; once applied and visible, the locks go.
"""

import heapq
from typing import cast

from f1common.clock import Now, TTInterval
from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.engine.base import Reader
from spanstore.group import reads, storage
from spanstore.group.bundling import Bundling
from spanstore.group.collecting import Collecting
from spanstore.group.config import GroupConfig
from spanstore.group.flights import Flights, TxnCommand
from spanstore.group.leader_reads import LeaderReads
from spanstore.group.lock_queue import LockQueue, Parked
from spanstore.group.moves import Moves
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.prepared import PreparedSince
from spanstore.group.requests import (
    Bundle,
    ChangeMembers,
    Collect,
    CollectReply,
    Commit,
    CommitReply,
    Decide,
    DecideReply,
    LockRead,
    OldestPrepared,
    OldestPreparedReply,
    Outcome,
    OutcomeReply,
    Prepare,
    PrepareReply,
    Read,
    ReadReply,
    Release,
    ReleaseReply,
    SafeTimeQuery,
    Settle,
    TxnWork,
)
from spanstore.group.room import Room
from spanstore.group.state import Done, ReplicatedState
from spanstore.group.versions import Versions
from spanstore.mvcc.safetime import LeaderSafeTime
from spanstore.mvcc.timestamps import TimestampOracle, WaitForCeiling, check_skew
from spanstore.mvcc.versions import has_no_version
from spanstore.paxos.replica import Replica
from spanstore.txn import outcomes
from spanstore.txn.commands import (
    AbortCmd,
    BundleCmd,
    CollectCmd,
    Command,
    CommitCmd,
    DecideCmd,
    LockRecord,
    MoveCommand,
    PrepareCmd,
    RaiseMarkCmd,
    TxnRef,
    encode_command,
)
from spanstore.txn.locks import LockMode, Priority, WaitPolicy
from spanstore.txn.spans import Span


class Tenure:
    """The leader's side of a group for one ballot. Pure: inputs and a view in, proposals and answers out."""

    def __init__(
        self,
        *,
        group: int,
        term: int,
        replica: Replica,
        state: ReplicatedState,
        config: GroupConfig,
        outbox: Outbox,
        versions: Versions,
        reader: Reader,
        now: Now,
    ) -> None:
        self._reader, self._now = reader, now
        self.group = group
        self.term = term
        self.ready = False
        self._replica = replica
        self._state = state
        self._config = config
        self._versions = versions
        self._out = outbox
        self._waiting = waiting = LockQueue(outbox, config.max_parked, self._go, self._may_kill)
        self._locks = self._waiting.locks
        self._oracle = oracle = TimestampOracle()
        self._flights = flights = Flights(outbox)
        self._moves = Moves(self, state, config, outbox, term)
        self._again: list[Ticket] = []
        self._inherited_ts = 0
        self._undecided = undecided = LeaderSafeTime()
        self._bundling = Bundling(
            replica, state, config, oracle, undecided, waiting, flights, outbox, self._moves, versions, self._log
        )
        self._room = Room(config.turn_max_bytes)
        self._reads = LeaderReads(
            term=term,
            replica=replica,
            state=state,
            config=config,
            outbox=outbox,
            oracle=self._oracle,
            undecided=self._undecided,
            locks=self._locks,
            room=self._room,
        )
        self._releases: list[tuple[int, bytes]] = []
        self._prepared = PreparedSince(config.resolve_after_us)
        self.collecting = Collecting(group, state, config)

    # ------------------------------------------------------------------ life of the term

    def open(self, now: Now) -> None:
        """All entries of earlier terms are applied: rebuild the locks of prepared transactions and start to serve."""
        # What was written under earlier terms is not locked until its timestamp has passed: nobody is shown it before.
        self._inherited_ts = self._state.max_ts
        self._oracle.raise_floor(max(self._replica.ceiling_floor, self._inherited_ts))
        for unique in sorted(self._state.prepared):
            record = self._state.prepared[unique]
            requests = [(lock.span, lock.mode) for lock in record.locks]
            self._locks.restore_prepared(unique, record.priority, requests)
            self._undecided.begin(unique, record.prepare_ts)
            self._prepared.begin(unique, now.boot_us)
        self.ready = True

    def close(self, error: F1Error) -> None:
        """The term is over. What was proposed may or may not be chosen later: those answers are ambiguous."""
        unknown = F1Error(error.code, error.message, retryable=True, ambiguous=True, details=error.details)
        self._flights.close(unknown)
        self._moves.close(unknown)
        parked = self._waiting.all_parked()
        waiting = self._reads.take_waiting() + self._bundling.take_waiting()
        for ticket in [t for p in parked for t in p.replies] + waiting + self._again:
            self._out.send(ticket.reply, error)

    def begin_turn(self, reader: Reader, now: Now) -> None:
        """A turn starts with a fresh view: go on with whatever waited for the last one to become durable."""
        self.look(reader, now)
        self._waiting.boot_us = now.boot_us
        if not self.ready:
            return
        self._release_visible()
        again, self._again = self._again, []
        for ticket in again:
            self.handle(ticket)
        self._room.begin_turn()
        self._waiting.go_on(self._room.is_left)
        self._moves.go_on(now)
        for parked in list(self._waiting.for_ceiling):
            # Whoever goes on may kill another that waits.
            if parked in self._waiting.for_ceiling:
                self._waiting.for_ceiling.remove(parked)
                if not self._overtaken(parked):
                    self._stamp(parked)
        self._reads.go_on(self.handle)

    def end_turn(self, refusal: F1Error | None) -> None:
        """All that came in this turn was taken in, and the log is about to be written. ``refusal``: it cannot be."""
        self._bundling.end_turn(self._reader, self._now, refusal)

    def look(self, reader: Reader, now: Now) -> None:
        """Answer what comes from another view, in the middle of a turn."""
        self._reader, self._now = reader, now

    def tick(self) -> None:
        """Let go of requests whose caller stopped waiting, and of idle transactions (F1 section 5: ten seconds)."""
        now = self._now
        for parked in self._waiting.expire(now.boot_us):
            if not isinstance(parked.ticket.request, LockRead):
                self._kill(parked.txn, "its commit waited too long for locks")
        self._reads.expire(now)
        for txn in self._waiting.idle(now.boot_us - self._config.txn_idle_us):
            self._kill(txn, "it was idle for too long")
        self._collect(now)

    def _collect(self, now: Now) -> None:
        ceiling = self._replica.usable_ceiling
        if ceiling <= 0 or not self._replica.lease_valid(now.boot_us):
            return
        if not self._may_collect():
            return
        command = self.collecting.step(self._reader, now, self._undecided.safe_ts(now.tt, ceiling))
        if isinstance(command, RaiseMarkCmd):
            self._oracle.promise(command.mark_ts)
        if command is not None:
            self._log(command)

    def _may_collect(self) -> bool:
        return self._versions.allows(CollectCmd, self._replica.configuration)

    def collect_again_us(self) -> int | None:
        """Return when garbage collection has something to do, in boot time; None if that depends on something else."""
        return self.collecting.next_step_us() if self._may_collect() else None

    def overdue(self) -> list[PrepareCmd]:
        """Return prepared transactions whose decision is late; each is returned again only after another delay."""
        late = [unique for unique in self._prepared.late(self._now.boot_us) if not self._flights.has(unique)]
        return [self._state.prepared[unique] for unique in late if unique in self._state.prepared]

    def safe_time(self) -> tuple[int, int] | None:
        """Return (index, ts): whoever applied ``index`` has every commit at or below ``ts``; None if nothing is safe.

        Giving the pair out is a promise: no later timestamp of this leader will be at or below ``ts``.
        """
        now = self._now
        ceiling = self._replica.usable_ceiling
        if not self.ready or ceiling <= 0 or not self._replica.lease_valid(now.boot_us):
            return None
        ts = self._undecided.safe_ts(now.tt, ceiling)
        self._oracle.promise(ts)
        return self._replica.last_index, ts

    # ------------------------------------------------------------------ requests

    def handle(self, ticket: Ticket) -> None:
        """Take in a request. Every request is answered exactly once, now or later, through the outbox."""
        try:
            if isinstance(ticket.request, Bundle):
                self._bundling.take_in(ticket, ticket.request, self._now)
                return
            self._moves.admit(ticket.request)
            match ticket.request:
                case Read() | Settle():
                    self.read_rows(ticket)
                case LockRead():
                    self._lock_read(ticket, ticket.request)
                case Commit():
                    self._commit(ticket, ticket.request)
                case Prepare():
                    self._prepare(ticket, ticket.request)
                case Decide():
                    self._decide(ticket, ticket.request)
                case Outcome():
                    self._outcome(ticket, ticket.request)
                case Release():
                    self._release(ticket, ticket.request)
                case OldestPrepared():
                    oldest_ts = self._flights.oldest_prepared(self._state.prepared.values())
                    self._out.send_leased(ticket.reply, OldestPreparedReply(oldest_ts), self.term)
                case Collect(limit_ts=limit_ts, before_ts=before_ts, unsettled=unsettled):
                    self.collecting.permit(limit_ts, before_ts, unsettled)
                    self._out.send(ticket.reply, CollectReply(self._state.collected.mark_ts))
                case SafeTimeQuery() | ChangeMembers():
                    raise F1Error(Code.INTERNAL, "a replica answers for its safe time and its members itself")
                case request:
                    self._moves.handle(ticket, request, self._reader, self._now)
        except InvariantViolation:
            raise
        except F1Error as error:
            self._out.send(ticket.reply, error)

    def read_rows(self, ticket: Ticket) -> None:
        """Answer a read once its timestamp is settled in what it reads: nothing comes at or below it any more."""
        self._reads.read(ticket, self._reader, self._now)

    def _lock_read(self, ticket: Ticket, request: LockRead) -> None:
        txn = request.txn.unique
        if request.term and request.term != self.term:
            raise F1Error(Code.ABORTED, "the transaction's locks were lost when the leader changed; run it again")
        self._waiting.refuse_dead(request.txn)
        if not self._may_kill(txn):
            prepared = self._state.prepared.get(txn)
            if prepared is None or prepared.txn.attempt < request.txn.attempt:
                raise F1Error(Code.ABORTED, "another attempt of this transaction is still ending here; retry")
            raise F1Error(Code.FAILED_PRECONDITION, "the transaction is already committing; it can read no more")
        if request.mode == LockMode.APPEND:
            raise F1Error(Code.INVALID_ARGUMENT, "a read takes SHARED or EXCLUSIVE locks")
        wanted = [(span, request.mode) for span in reads.spans_of(request)]
        self._waiting.acquire(Parked(ticket, txn, [ticket], request.priority_ts, wanted, WaitPolicy.WOUND_WAIT))

    def _commit(self, ticket: Ticket, request: Commit) -> None:
        work = request.work
        if self._flights.wait_for(ticket, work.txn) or self._waiting.join(ticket, work.txn):
            return
        prepared = self._state.prepared.get(work.txn.unique)
        if prepared is not None:
            # With the same anchor: that was another group's when it was prepared here, and has moved here since.
            code = Code.ABORTED if prepared.txn.anchor == work.txn.anchor else Code.FAILED_PRECONDITION
            raise F1Error(code, "the transaction is prepared here: another group decides about it")
        match verdict := outcomes.judge_attempt(*self._about(work.txn)):
            case outcomes.AlreadyCommitted():
                self._out.send_after(ticket.reply, CommitReply(verdict.ts), verdict.ts)
            case outcomes.Fresh():
                policy = WaitPolicy.PREPARE if request.participants else WaitPolicy.WOUND_WAIT
                self._lock_for_work(ticket, work, policy)
            case outcomes.AlreadyAborted():
                raise F1Error(Code.ABORTED, f"attempt {work.txn.attempt} of this commit was aborted before")
            case outcomes.Expired():
                raise F1Error(Code.EXPIRED, "the commit id is older than outcomes are kept; its outcome is unknown")
            case outcomes.Premature():
                raise F1Error(
                    Code.FAILED_PRECONDITION,
                    f"attempt {work.txn.attempt} came before the end of the attempt below it was recorded",
                )

    def _about(self, txn: TxnRef) -> tuple[outcomes.OutcomeRecord | None, int, int, TTInterval, int]:
        """Return what a coordinator judges an attempt by."""
        record = storage.load_outcome(self._reader, self.group, txn)
        return record, txn.attempt, txn.created_ts, self._now.tt, self._config.outcome_keep_us

    def _prepare(self, ticket: Ticket, request: Prepare) -> None:
        work = request.work
        if self._flights.wait_for(ticket, work.txn) or self._waiting.join(ticket, work.txn):
            return
        verdict = outcomes.judge_prepare(
            storage.load_finished(self._reader, self.group, work.txn),
            self._state.prepared.get(work.txn.unique),
            work.txn.attempt,
            work.fence(self._config.outcome_keep_us),
            self._now.tt,
        )
        match verdict:
            case outcomes.AlreadyPrepared():
                self._out.send(ticket.reply, PrepareReply(verdict.prepare_ts))
            case outcomes.FreshPrepare(unresolved=unresolved):
                if unresolved:
                    text = f"attempt {unresolved} of this transaction is still prepared here; retry"
                    raise F1Error(Code.ABORTED, text)
                self._lock_for_work(ticket, work, WaitPolicy.PREPARE)
            case outcomes.AlreadyFinished() | outcomes.Stale():
                raise F1Error(Code.ABORTED, "this attempt was decided before its prepare arrived")
            case outcomes.PastDeadline():
                raise F1Error(Code.FENCED, "the prepare arrived after the transaction's deadline")

    def _lock_for_work(self, ticket: Ticket, work: TxnWork, policy: WaitPolicy) -> None:
        txn = work.txn.unique
        outcomes.check_created(work.txn.created_ts, self._now.tt, self._config.outcome_keep_us)
        self._waiting.refuse_dead(work.txn)
        if work.held and (work.term != self.term or not self._locks.holds(txn, work.held)):
            self._kill(txn, "its locks were lost", work.txn.attempt)
            raise F1Error(Code.ABORTED, "locks of the transaction were lost (leader change or wound); run it again")
        # Many appends where nothing is yet: nobody but inserters has anything to do there.
        appended = work.appended()
        if appended is not None and not has_no_version(self._reader, self.group, appended.start, appended.end or b""):
            appended = None
        self._waiting.acquire(Parked(ticket, txn, [ticket], work.priority_ts, work.wanted(appended), policy))

    def _decide(self, ticket: Ticket, request: Decide) -> None:
        txn = request.txn
        if self._flights.wait_for(ticket, txn):
            return
        prepared = self._state.prepared.get(txn.unique)
        if prepared is not None and prepared.txn.attempt == txn.attempt:
            # A commit at or below it did without this prepare, which some driver sent with a newer range map after the
            # attempt had committed under an older one: the writes are where the keys were, and came with them.
            superseded = request.ts is not None and request.ts <= prepared.prepare_ts
            if superseded and not self._state.holding.record.epoch:
                raise F1Error(Code.INVALID_ARGUMENT, "no coordinator commits at or below a prepare timestamp")
            if request.ts is not None:
                check_skew(request.ts, self._now.tt, self._config.max_skew_us)
            self._propose(DecideCmd(txn, None if superseded else request.ts), [ticket])
            return
        finished = storage.load_finished(self._reader, self.group, txn)
        if finished is not None and finished.attempt >= txn.attempt:
            self._out.send(ticket.reply, DecideReply())
            return
        if request.ts is not None:
            raise F1Error(Code.FAILED_PRECONDITION, "a commit was decided for a transaction that never prepared here")
        # Its prepare may still be on the way: remember the abort, so that it is refused.
        self._kill(txn.unique, "it was aborted", txn.attempt)
        keep_us = self._config.outcome_keep_us
        deadline = min(txn.created_ts, self._now.tt.latest + keep_us) + keep_us
        self._propose(DecideCmd(txn, None, deadline), [ticket])

    def _outcome(self, ticket: Ticket, request: Outcome) -> None:
        txn = request.txn
        if self._flights.wait_for(ticket, txn):
            return
        about = self._about(txn)
        verdict = outcomes.judge_inquiry(*about) if request.inquiry else outcomes.judge_attempt(*about)
        match verdict:
            case outcomes.AlreadyCommitted():
                self._out.send_after(ticket.reply, OutcomeReply(True, verdict.ts, txn.attempt), verdict.ts)
            case outcomes.AlreadyAborted():
                self._out.send(ticket.reply, OutcomeReply(False, 0, txn.attempt))
            case outcomes.Expired():
                raise F1Error(Code.EXPIRED, "the outcome of this commit id is no longer kept")
            case outcomes.TooEarly():
                raise F1Error(Code.UNAVAILABLE, "by some clocks this commit id expires just now; ask again")
            case outcomes.Fresh() | outcomes.MustLogAbort() | outcomes.Premature():
                # The abort of an attempt is that of all below it, heard of or not.
                if request.peek:
                    self._out.send(ticket.reply, OutcomeReply(None, 0, txn.attempt))
                    return
                if not request.inquiry:
                    outcomes.check_created(*about[2:])
                self._kill(txn.unique, "its outcome was asked for before it committed", txn.attempt)
                now = self._now.tt.latest
                self._propose(AbortCmd(txn, "never heard of", now), [ticket])

    def _release(self, ticket: Ticket, request: Release) -> None:
        if self._may_kill(request.txn.unique):
            self._kill(request.txn.unique, "it was released", request.txn.attempt)
        self._out.send(ticket.reply, ReleaseReply())

    # ------------------------------------------------------------------ under the locks

    def _kill(self, txn: bytes, reason: str, attempt: int = 0) -> None:
        """Take everything from a transaction that is not prepared; later requests of it are refused."""
        self._waiting.kill(txn, reason, attempt)

    def _may_kill(self, txn: bytes) -> bool:
        """What is in the log on its way, or prepared, can no longer die here, whatever its client sends."""
        return not self._flights.has(txn) and not self._locks.is_prepared(txn)

    def _overtaken(self, parked: Parked) -> bool:
        """Tell whether another request of its transaction was logged meanwhile; then it is judged again after that."""
        if self._may_kill(parked.txn):
            return False
        then = self._flights.after(parked.txn)
        (self._again if then is None else then).extend(parked.replies)
        return True

    def _go(self, parked: Parked) -> None:
        """The request holds its locks."""
        request = parked.ticket.request
        if self._overtaken(parked):
            return
        if isinstance(request, LockRead):
            found = reads.read_rows(self._reader, self.group, request.keys, request.ranges, reads.NEWEST, self._config)
            answer = ReadReply(self._now.tt.latest, found.versions, found.ranges, self.term)
            self._room.take(reads.size_of(answer))
            for ticket in parked.replies:
                self._out.send_leased(ticket.reply, answer, self.term, self._inherited_ts)
            return
        work = cast(Commit | Prepare, request).work
        failure = storage.failed_test(self._reader, self.group, work, self._state.collected.mark_ts)
        if failure is not None:
            self._kill(parked.txn, failure.message)
            self._waiting.answer(parked, failure.error())
            return
        self._stamp(parked)

    def _stamp(self, parked: Parked) -> None:
        request = cast(Commit | Prepare, parked.ticket.request)
        work, above = request.work, request.work.above
        fence = work.fence(self._config.outcome_keep_us)
        if isinstance(request, Commit):
            above = max([above, *(prepare_ts for _, prepare_ts in request.participants)])
        try:
            ts = self._oracle.commit_ts(
                self._now.tt,
                above=above,
                ceiling=self._replica.usable_ceiling,
                deadline=fence,
                max_skew_us=self._config.max_skew_us,
            )
        except F1Error as error:
            self._kill(parked.txn, error.message)
            self._waiting.answer(parked, error)
            return
        if isinstance(ts, WaitForCeiling):
            self._replica.want_ceiling(ts.needed)
            self._waiting.for_ceiling.append(parked)
            return
        writes = storage.made_writes(self._reader, self.group, work)
        if isinstance(request, Commit):
            groups = tuple(group for group, _ in request.participants)
            command: CommitCmd | PrepareCmd = CommitCmd(work.txn, ts, writes, groups, work.deadline)
        else:
            locks = tuple(LockRecord(s.start, s.end, mode) for s, mode in self._locks.locks_of(parked.txn))
            priority = Priority(work.priority_ts, parked.txn)
            command = PrepareCmd(work.txn, ts, priority, writes, locks, request.coordinator_group, fence)
        self._locks.mark_prepared(parked.txn)
        self._waiting.proposed(parked.txn)
        self._undecided.begin(parked.txn, ts)
        self._propose(command, parked.replies)

    def _propose(self, command: TxnCommand, tickets: list[Ticket]) -> None:
        self._flights.begin(self._log(command), command, tickets)

    def _log(self, command: Command) -> int:
        self._versions.check(type(command), self._replica.configuration)
        index = self._replica.propose(encode_command(command))
        if index is None:
            raise F1Error(Code.INTERNAL, "a tenure outlived its replica's leadership")
        return index

    # ------------------------------------------------------------------ what was chosen

    def chosen(self, done: Done) -> None:
        """An entry was chosen: tell who waits for it."""
        self._flights.chosen(done)

    def durable(self, done: Done, now: Now) -> None:
        """The rows of an entry are on disk: release its locks once they may be seen, judge again who waited for it."""
        command = done.command
        match command:
            case CommitCmd():
                self._undecided.end(command.txn.unique)
                heapq.heappush(self._releases, (command.ts, command.txn.unique))
            case BundleCmd():
                for one in command.commits:
                    self._undecided.end(one.txn.unique)
                    heapq.heappush(self._releases, (command.ts, one.txn.unique))
            case DecideCmd():
                # Nothing ends with the abort of an attempt that is not the one prepared here.
                if done.prepared is not None:
                    self._undecided.end(command.txn.unique)
                    self._prepared.end(command.txn.unique)
                    heapq.heappush(self._releases, (command.commit_ts or 0, command.txn.unique))
            case PrepareCmd():
                self._prepared.begin(command.txn.unique, now.boot_us)
            case _:
                pass  # the others hold no locks
        self._again.extend(self._flights.applied(done.index))
        self._moves.durable(done)
        self.collecting.durable(done)

    def release_visible(self, now: Now) -> None:
        """Release the locks of commits whose timestamp has passed (commit-wait)."""
        self._now = now
        self._release_visible()

    def _release_visible(self) -> None:
        tt = self._now.tt
        while self._releases and tt.after(self._releases[0][0]):
            _, txn = heapq.heappop(self._releases)
            self._waiting.granted(self._locks.release(txn))

    def has_work(self) -> bool:
        """Tell whether something can go on as soon as there is a fresh view."""
        return bool(self._again) or self._waiting.can_go_on()

    def next_ts(self) -> int | None:
        """Return the earliest timestamp that locks or answers wait for."""
        return self._releases[0][0] if self._releases else None

    def ask_again_us(self) -> int | None:
        """Return when to look again at requests that were refused their locks, or wait for others, in boot time."""
        due = self._waiting.ask_again_us(), self._bundling.due_us()
        return min((then for then in due if then is not None), default=None)

    def waits_for_ceiling(self) -> bool:
        """Tell whether a commit or a read waits for a higher ceiling or another commit, or a range for its end."""
        return bool(self._waiting.for_ceiling or len(self._reads) or self._moves.is_closing())

    def holder(self) -> tuple[bytes, int] | None:
        """Return (transaction, timestamp) of who holds safe time back, for status."""
        oldest = self._undecided.oldest()
        return None if oldest is None else (oldest[1], oldest[0])

    def highest_ts(self) -> int:
        """Return a timestamp at or above everything that this leader gave out."""
        return self._oracle.last_ts

    # ------------------------------------------------------------------ for moves of ranges

    def propose_move(self, command: MoveCommand) -> int:
        """Log a command and return its index. Raises FAILED_PRECONDITION while not all members know it."""
        return self._log(command)

    def drain(self, span: Span) -> bool:
        """Wound the unprepared transactions that lock something in ``span``; tell whether nothing is left there."""
        for txn in self._waiting.concerned(span) + [h.txn for h in self._locks.holders_overlapping(span)]:
            self._kill(txn, "a range that it reads or writes moves to another group")
        start, end = span.start, cast(bytes, span.end)
        return not self._locks.holders_overlapping(span) and not self._flights.has_anchor_in(start, end)

    def promised_ts(self) -> int:
        """Return a timestamp at or above everything that was given out or promised in this term and before."""
        return max(self._oracle.last_ts, self._state.max_ts)  # the latter: by coordinators elsewhere

    def promise(self, ts: int) -> None:
        """Give out no timestamp at or below ``ts``."""
        self._oracle.raise_floor(ts)

    def oldest_decision_ts(self) -> int | None:
        """Return the timestamp of the oldest outcome that is on its way through the log."""
        return self._flights.oldest_decision_ts()

    def locked_transactions(self) -> int:
        """Return how many transactions hold or await locks and are not prepared."""
        return self._waiting.holders()
