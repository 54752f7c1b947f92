"""Committing from outside the tier: one round for one group, two-phase commit for several.

Who drives an attempt for the first time may decide to abort it as long as it has not sent the coordinator's Commit.
From then on, and for an id that may have been driven before, only the coordinator's log knows: a lost answer and a
refusal are resolved by asking for the outcome, which aborts the attempt for ever if the coordinator never heard of it.
If this process dies in between, the participants ask the coordinator themselves.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from f1common.aside import MANY_ROWS, aside
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client.router import Router, Sent, made
from spanstore.client.values import (
    CommitId,
    Decision,
    ExpectAbsent,
    ExpectExists,
    ExpectUnchanged,
    ExpectVersion,
    NoNewer,
    Precondition,
    Puts,
    Write,
    size_of,
)
from spanstore.placement.range_map import RangeMap

Spawn = Callable[[Coroutine[Any, Any, None], str], None]
"""Starts a task whose end nobody waits for, and which the client ends when it is closed."""

_PACKED = pb.Precondition(understands=1)
_STAMPED = pb.Precondition(understands=2)
_MANY = 4
"""So many plain writes of a share go together."""
_RESOLVE_S = 10.0
_DECIDE_S = 30.0


@dataclass(slots=True)
class Share:
    """What one group has to do with a transaction. ``held``: locks taken there (start, end or None, mode)."""

    writes: list[Write] = field(default_factory=list)
    preconditions: list[Precondition] = field(default_factory=list)
    puts: list[Puts] = field(default_factory=list)
    held: list[tuple[bytes, bytes | None, int]] = field(default_factory=list)
    term: int = 0

    @property
    def rows(self) -> int:
        """How many keys it writes."""
        return len(self.writes) + sum(map(len, self.puts))

    @property
    def size(self) -> int:
        """How many bytes the keys and values have."""
        return size_of(self.writes, self.puts)

    def packed(self) -> tuple[list[Write], list[Precondition], list[pb.Puts]]:
        """Return what is left of the writes and tests when those of many rows go together, and these."""
        given = [_puts(puts) for puts in self.puts]
        plain = [w for w in self.writes if _is_plain(w)]
        appends = _appends(self.writes)
        if len(plain) + len(appends) < _MANY or len({w.key for w in self.writes}) < len(self.writes):
            return self.writes, self.preconditions, given  # of two writes of one key the last one counts
        absent = {test.key for test in self.preconditions if isinstance(test, ExpectAbsent)}
        new, old = [w for w in plain if w.key in absent], [w for w in plain if w.key not in absent]
        found = [
            pb.Puts(keys=[w.key for w in some], values=[w.value or b"" for w in some], absent=some is new)
            for some in (new, old)
            if some
        ]
        if appends:
            keys, values = [w.key for w in appends], [w.value or b"" for w in appends]
            found.append(pb.Puts(keys=keys, values=values, stamp_before_end=_stamp_before_end(appends[0])))
        put = {w.key for w in new}
        gone = {w.key for w in (*plain, *appends)}
        rest = [w for w in self.writes if w.key not in gone]
        tests = [p for p in self.preconditions if not (isinstance(p, ExpectAbsent) and p.key in put)]
        return rest, tests, [*given, *found]

    def unpacked(self) -> tuple[list[Write], list[Precondition], list[pb.Puts]]:
        """Return the same for a server that knows each write and test by itself only."""
        writes = [*self.writes, *(write for puts in self.puts for write in puts.writes())]
        new = [ExpectAbsent(key) for puts in self.puts if puts.absent for key in puts.keys]
        return writes, [*self.preconditions, *new], []


class Plan(msgspec.Struct, frozen=True):
    """A commit to be driven. ``coordinator`` owns the anchor; ``deadline`` is the write fence.

    ``named``: the id came from outside, so that this attempt may have been driven before, by whomever.
    """

    id: CommitId
    attempt: int
    priority_ts: int
    coordinator: int
    shares: dict[int, Share]
    deadline: int
    above: int
    named: bool = False

    def txn(self) -> pb.TxnRef:
        """Return the message that names this attempt."""
        return txn_ref(self.id, self.attempt)

    def work(self, group: int, *, packed: bool = False) -> pb.TxnWork:
        """Return the message of a group's share. ``packed``: plain writes go together, which older servers know not."""
        share = self.shares.get(group) or Share()
        writes, tests, puts = share.packed() if packed else share.unpacked()
        return pb.TxnWork(
            txn=self.txn(),
            priority_ts=self.priority_ts,
            writes=[_write(w) for w in writes],
            preconditions=[*map(_precondition, tests), *_understood(puts)],
            puts=puts,
            held=[_lock(*lock) for lock in share.held],
            term=share.term,
            deadline=self.deadline,
            above=self.above,
        )


def txn_ref(commit_id: CommitId, attempt: int) -> pb.TxnRef:
    """Return the message of an attempt of a commit id."""
    return pb.TxnRef(anchor=commit_id.anchor, unique=commit_id.unique, created_ts=commit_id.created_ts, attempt=attempt)


async def commit(router: Router, plan: Plan, timeout_s: float, spawn: Spawn) -> int:
    """Drive ``plan`` to its end and return the commit timestamp.

    Raises what stopped it (ABORTED and the like mean that nothing happened, for good), or UNKNOWN_OUTCOME, ambiguous,
    when the coordinator could not be reached to tell.
    """
    others = sorted(group for group in plan.shares if group != plan.coordinator)
    prepared: list[pb.PreparedIn] = []
    if others:
        try:
            prepared = await _prepare_all(router, plan, others, timeout_s)
        except F1Error as error:
            # Who drove it before may have come further: a participant that says no has perhaps finished long ago.
            decision = await _resolve(router, plan, error) if plan.named else Decision(False, 0)
            return _end(router, plan, others, decision, error, spawn)
    sent = Sent()

    def request(packed: bool) -> pb.Request:
        return pb.Request(commit=pb.Commit(work=plan.work(plan.coordinator, packed=packed), participants=prepared))

    try:
        response = await _send_work(router, plan, plan.coordinator, request, timeout_s, sent)
        ts = int(response.commit.ts)
    except F1Error as error:
        decision = Decision(False, 0)
        if error.ambiguous or sent.repeated or plan.named:
            decision = await _resolve(router, plan, error)
        return _end(router, plan, others, decision, error, spawn)
    return _end(router, plan, others, Decision(True, ts), None, spawn)


def _end(router: Router, plan: Plan, others: list[int], decision: Decision, cause: F1Error | None, spawn: Spawn) -> int:
    """Let the participants know of the decision, and return its timestamp or raise ``cause``, which led to an abort."""
    if decision.committed or cause is None:
        for group in others:
            spawn(_decide(router, plan, group, decision.ts), "decide")
        return decision.ts
    spawn(_abort_others(router, plan, others), "abort")
    raise _not_committed(cause) from cause


def _not_committed(error: F1Error) -> F1Error:
    """The attempt is over for good: what was ambiguous on the way no longer is."""
    if not error.ambiguous:
        return error
    return F1Error(Code.ABORTED, f"the commit did not happen: {error.message}; run it again")


async def _prepare_all(router: Router, plan: Plan, groups: list[int], timeout_s: float) -> list[pb.PreparedIn]:
    async def prepare(group: int) -> pb.PreparedIn:
        def request(packed: bool) -> pb.Request:
            work = plan.work(group, packed=packed)
            return pb.Request(prepare=pb.Prepare(work=work, coordinator_group=plan.coordinator))

        response = await _send_work(router, plan, group, request, timeout_s, Sent())
        return pb.PreparedIn(group=group, prepare_ts=response.prepare.prepare_ts)

    tasks = [asyncio.create_task(prepare(group), name=f"prepare in group {group}") for group in groups]
    try:
        # One refusal decides: whoever still waits for locks elsewhere only keeps others waiting.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failures = [error for task in tasks if task.done() and (error := task.exception()) is not None]
        if failures:
            # A definite refusal says more than a time-out beside it.
            failures.sort(key=lambda f: isinstance(f, F1Error) and f.ambiguous)
            raise failures[0]
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()


async def _send_work(
    router: Router, plan: Plan, group: int, request: Callable[[bool], pb.Request], timeout_s: float, sent: Sent
) -> pb.Response:
    """Send a share, packed unless a server was met that knows not how: it has refused it, and done nothing."""
    packed = router.packs()
    try:
        return await router.send(group, await _maker(plan, group, request, packed), timeout_s, sent=sent)
    except F1Error as error:
        if not packed or error.code is not Code.INVALID_ARGUMENT or "unknown kind" not in error.message:
            raise
    router.pack_later()
    return await router.send(group, await _maker(plan, group, request, False), timeout_s, sent=sent)


async def _maker(
    plan: Plan, group: int, request: Callable[[bool], pb.Request], packed: bool
) -> Callable[[], pb.Request]:
    """Return what makes a message for each copy; one of many rows is made once, beside what else there is to do."""
    rows = share.rows if (share := plan.shares.get(group)) is not None else 0
    if rows < MANY_ROWS:
        return lambda: request(packed)
    whole = await aside(rows, lambda: made(lambda: request(packed)))
    return partial(_copy, whole)


def _copy(message: pb.Request) -> pb.Request:
    copied = pb.Request()
    copied.CopyFrom(message)
    return copied


async def _resolve(router: Router, plan: Plan, cause: F1Error) -> Decision:
    try:
        return await outcome(router, plan.id, plan.attempt, _RESOLVE_S)
    except F1Error as error:
        raise F1Error(
            Code.UNKNOWN_OUTCOME,
            f"the commit may or may not have happened ({cause.message}; then: {error.message}); "
            "ask for the outcome of its commit id later",
            ambiguous=True,
            details={"anchor": plan.id.anchor.hex(), "unique": plan.id.unique.hex(), "attempt": str(plan.attempt)},
        ) from error


async def outcome(
    router: Router, commit_id: CommitId, attempt: int, timeout_s: float, *, peek: bool = False
) -> Decision:
    """Ask the coordinator; unless ``peek``, an attempt that it never heard of is aborted by the question.

    That is whoever owns the anchor now: the record moves with it.
    """

    def request() -> pb.Request:
        return pb.Request(outcome=pb.Outcome(txn=txn_ref(commit_id, attempt), peek=peek))

    async def ask(ranges_map: RangeMap, left_s: float) -> pb.Response:
        return await router.send(ranges_map.group_of(commit_id.anchor), request, left_s)

    response = await router.with_map(ask, timeout_s)
    states = {pb.COMMITTED: True, pb.ABORTED: False}
    return Decision(states.get(response.outcome.state), int(response.outcome.ts))


async def _abort_others(router: Router, plan: Plan, groups: list[int]) -> None:
    await asyncio.gather(
        release(router, plan, plan.coordinator), *(_decide(router, plan, group, None) for group in groups)
    )


async def release(router: Router, plan: Plan, group: int) -> None:
    """Give up locks; whatever goes wrong, idle locks end by themselves."""
    try:
        await router.send(group, lambda: pb.Request(release=pb.Release(txn=plan.txn())), 2.0)
    except F1Error:
        return


async def _decide(router: Router, plan: Plan, group: int, ts: int | None) -> None:
    def request() -> pb.Request:
        return pb.Request(decide=pb.Decide(txn=plan.txn(), commit=ts is not None, ts=ts or 0))

    try:
        await router.send(group, request, _DECIDE_S)
    except F1Error:
        return  # the participant asks the coordinator by itself


def share_out(
    ranges_map: RangeMap, writes: Iterable[Write], preconditions: Iterable[Precondition], puts: Iterable[Puts] = ()
) -> dict[int, Share]:
    """Deal writes and preconditions to the groups that own their keys."""
    shares: dict[int, Share] = {}
    for write in writes:
        _share(shares, ranges_map.group_of(write.key)).writes.append(write)
    for many in puts:
        for group, mine in _cut(ranges_map, many).items():
            _share(shares, group).puts.append(mine)
    for test in preconditions:
        if isinstance(test, ExpectUnchanged):
            for start, end, group in ranges_map.pieces(test.start, test.end):
                _share(shares, group).preconditions.append(ExpectUnchanged(start, end, test.since_ts))
        elif isinstance(test, NoNewer):
            for share in shares.values():
                if share.rows:
                    share.preconditions.append(test)
        else:
            _share(shares, ranges_map.group_of(test.key)).preconditions.append(test)
    return shares


def _share(shares: dict[int, Share], group: int) -> Share:
    found = shares.get(group)
    if found is None:
        found = shares[group] = Share()
    return found


def _cut(ranges_map: RangeMap, puts: Puts) -> dict[int, Puts]:
    """Cut many writes at the borders of ranges, and return what each group gets."""
    found: dict[int, tuple[list[bytes], list[bytes]]] = {}
    start = 0
    while start < len(puts.keys):
        owner = ranges_map.lookup(puts.keys[start])
        end = bisect_left(puts.keys, owner.end, start)
        keys, values = found.setdefault(owner.group, ([], []))
        keys += puts.keys[start:end]
        values += puts.values[start:end]
        start = end
    return {group: Puts(keys, values, puts.absent, puts.stamp_before_end) for group, (keys, values) in found.items()}


def _is_plain(write: Write) -> bool:
    """Tell whether it puts a value, and neither key nor value has the commit timestamp in it."""
    return write.value is not None and write.key_offset < 0 and not write.value_offsets


def _appends(writes: Sequence[Write]) -> list[Write]:
    """Return the writes whose keys have the commit timestamp, all at the same distance from their ends."""
    found = [w for w in writes if w.key_offset >= 0 and w.value is not None and not w.value_offsets]
    return [w for w in found if _stamp_before_end(w) == _stamp_before_end(found[0])]


def _stamp_before_end(write: Write) -> int:
    return len(write.key) - write.key_offset


def _puts(puts: Puts) -> pb.Puts:
    return pb.Puts(keys=puts.keys, values=puts.values, absent=puts.absent, stamp_before_end=puts.stamp_before_end)


def _understood(puts: Sequence[pb.Puts]) -> Sequence[pb.Precondition]:
    """Return what a server must know that is sent these."""
    if not puts:
        return ()
    return (_STAMPED,) if any(some.stamp_before_end for some in puts) else (_PACKED,)


def _write(write: Write) -> pb.Write:
    if _is_plain(write):
        return pb.Write(key=write.key, value=write.value)  # as nearly all are
    message = pb.Write(key=write.key, key_offset=write.key_offset, value_offsets=write.value_offsets)
    if write.value is not None:
        message.value = write.value
    return message


def _lock(start: bytes, end: bytes | None, mode: int) -> pb.Lock:
    message = pb.Lock(start=start, mode=pb.EXCLUSIVE if mode == pb.EXCLUSIVE else pb.SHARED)
    if end is not None:
        message.end = end
    return message


def _precondition(test: Precondition) -> pb.Precondition:
    match test:
        case ExpectVersion(key, ts):
            return pb.Precondition(version=pb.ExpectVersion(key=key, ts=ts))
        case ExpectExists(key):
            return pb.Precondition(exists=key)
        case ExpectAbsent(key):
            return pb.Precondition(absent=key)
        case ExpectUnchanged(start, end, since_ts):
            return pb.Precondition(unchanged=pb.ExpectUnchanged(start=start, end=end, since_ts=since_ts))
        case NoNewer(since_ts, leave_out):
            return pb.Precondition(no_newer=pb.NoNewer(since_ts=since_ts, leave_out=leave_out))
