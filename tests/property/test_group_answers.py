"""Any requests, in any order, with leaders that come and go: each is answered once, and the answers agree.

The oracle is the log: what replicas applied must be the same everywhere, and every answer must be true of it.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from f1common.errors import Code, F1Error
from spanstore.engine.base import WriteBatch
from spanstore.engine.keyspace import outcome_key
from spanstore.group.config import GroupConfig
from spanstore.group.requests import (
    Commit,
    CommitReply,
    Decide,
    LockRead,
    Outcome,
    OutcomeReply,
    Prepare,
    PrepareReply,
    RangeRead,
    Read,
    ReadReply,
    Release,
    Request,
    SafeTimeQuery,
    Settle,
    TxnWork,
)
from spanstore.mvcc.versions import read_version
from spanstore.testing.replicas import EPOCH, FAST, GROUP, MS, Asked, Replicas
from spanstore.txn.commands import CommitCmd, DecideCmd, PrepareCmd, TxnRef, Write
from spanstore.txn.locks import LockMode
from spanstore.txn.outcomes import ExpectAbsent, ExpectExists, ExpectUnchangedRange, Precondition, decode_outcome
from spanstore.txn.spans import Span
from tests.amounts import some

KEYS = [b"k%d" % n for n in range(12)]
HERE, ELSEWHERE = b"k0", b"z0"
EXPECTED = {
    Code.ABORTED,
    Code.ALREADY_EXISTS,
    Code.CLOCK_SKEW,
    Code.DEADLINE_EXCEEDED,
    Code.EXPIRED,
    Code.FAILED_PRECONDITION,
    Code.FENCED,
    Code.INVALID_ARGUMENT,
    Code.NOT_FOUND,
    Code.NOT_LEADER,
    Code.OVERLOADED,
    Code.WRONG_RANGE,
}


@dataclass
class Chaos:
    """Draws requests about few transactions and few keys, so that they meet."""

    rng: random.Random
    world: Replicas
    sent: list[tuple[str, Asked]] = field(default_factory=list)
    terms: dict[bytes, int] = field(default_factory=dict)
    decided: dict[tuple[bytes, int], Decide] = field(default_factory=dict)
    held: dict[bytes, list[tuple[Span, LockMode]]] = field(default_factory=lambda: defaultdict(list))
    made: dict[tuple[bytes, int], Commit | Prepare] = field(default_factory=dict)
    rests_on: list[tuple[Commit | Prepare, list[tuple[LockRead, ReadReply]]]] = field(default_factory=list)
    """Commits and prepares with the locked reads that they claim to hold."""
    reads: dict[bytes, list[tuple[LockRead, ReadReply]]] = field(default_factory=lambda: defaultdict(list))
    steps: int = 0
    verified: int = 0

    def ref(self, here: bool) -> TxnRef:
        number = self.steps // 8 + self.rng.randrange(6)
        number -= (number % 3 == 0) == here
        # A few requests are about a transaction of the wrong kind.
        anchor = HERE if here != (self.rng.random() < 0.02) else ELSEWHERE
        return TxnRef(anchor, b"t%d" % number, EPOCH, 2 if self.rng.random() < 0.1 else 1)

    def work(self, ref: TxnRef) -> TxnWork:
        rng = self.rng
        keys = rng.sample(KEYS, rng.randrange(4))
        writes = [Write(key, rng.choice((None, b"%d" % rng.randrange(99)))) for key in keys]
        if rng.random() < 0.2:
            writes.append(Write(b"h" + bytes(8), bytes(8), 1, (0,)))
        tests: list[Precondition] = []
        if rng.random() < 0.3:
            key = rng.choice(KEYS)
            tests.append(rng.choice((ExpectAbsent(key), ExpectExists(key), ExpectUnchangedRange(b"h", b"i", EPOCH))))
        held = tuple(self.held[ref.unique]) if rng.random() < 0.9 else ()
        near = self.world.true_ts + rng.choice((-5, 0, 5, 60, 700)) * MS
        return TxnWork(
            ref,
            EPOCH + int(ref.unique[1:]),
            tuple(writes),
            tuple(tests),
            held,
            self.terms.get(ref.unique, 0),
            near if rng.random() < 0.1 else rng.choice((0, 1, 1, 1)) * (EPOCH + 50_000 * MS),
            near if rng.random() < 0.1 else 0,
        )

    def request(self) -> Request:
        rng = self.rng
        kind = rng.choice("ccccpppddollllllllllrrwsS")
        ref = self.ref(kind in "coS" or (kind in "lw" and rng.random() < 0.6))
        some = tuple(rng.sample(KEYS, rng.randrange(3)))
        ranges = (RangeRead(b"h", rng.choice((b"i", b"k3")), rng.randrange(3), rng.random() < 0.5),)
        at = rng.choice((0, 0, self.world.true_ts + rng.randrange(-50, 80) * MS))
        match kind:
            case "c":
                participants = ((3, self.world.true_ts + rng.randrange(50) * MS),) if rng.random() < 0.3 else ()
                return self.once(ref, lambda: Commit(self.work(ref), participants))
            case "p":
                return self.once(ref, lambda: Prepare(self.work(ref), 7))
            case "d":
                return self.decision(ref)
            case "o":
                return Outcome(ref, rng.random() < 0.3, rng.random() < 0.3)
            case "l":
                mode = rng.choice((LockMode.SHARED, LockMode.EXCLUSIVE))
                term = self.terms.get(ref.unique, 0) if rng.random() < 0.5 else 0
                return LockRead(
                    ref, EPOCH + int(ref.unique[1:]), mode, some, ranges if rng.random() < 0.3 else (), term
                )
            case "w":
                return Release(ref)
            case "s":
                return SafeTimeQuery()
            case "S":
                return Settle(max(at, 1), ranges)
            case _:
                return Read(at, some, ranges)

    def once(self, ref: TxnRef, make: Callable[[], Commit | Prepare]) -> Commit | Prepare:
        """An attempt is always asked for with the same words; most often it is the only one of its transaction."""
        attempt = (ref.unique, ref.attempt)
        if attempt not in self.made:
            self.made[attempt] = make()
            self.rests_on.append((self.made[attempt], list(self.reads[ref.unique])))
        return self.made[attempt]

    def decision(self, ref: TxnRef) -> Decide:
        """Decide about what is prepared, mostly; its coordinator never says two different things."""
        leader = self.world.members[self.world.leader() or "a"].group
        prepared = sorted(leader.state.prepared.values(), key=lambda r: r.txn.unique) if leader is not None else []
        if not prepared or self.rng.random() < 0.2:
            ts = None if self.rng.random() < 0.8 else self.world.true_ts
            return self.decided.setdefault((ref.unique, ref.attempt), Decide(ref, ts))
        record = self.rng.choice(prepared)
        ts = self.rng.choice((None, record.prepare_ts + 1 + self.rng.randrange(60) * MS))
        return self.decided.setdefault((record.txn.unique, record.txn.attempt), Decide(record.txn, ts))

    def note(self) -> None:
        """Remember the locks that were granted, as a client does: those of an older term are lost."""
        for _, asked in self.sent:
            request = asked.request
            if isinstance(request, LockRead) and isinstance(asked.answers[0] if asked.answers else None, ReadReply):
                unique, reply = request.txn.unique, asked.of(ReadReply)
                if self.terms.get(unique) != reply.term:
                    self.terms[unique] = reply.term
                    self.held[unique] = []
                    self.reads[unique] = []
                spans = [Span(k) for k in request.keys] + [Span(r.start, r.end) for r in request.ranges]
                self.held[unique] += [(s, request.mode) for s in spans]
                self.reads[unique].append((request, reply))
        self.sent = [(n, a) for n, a in self.sent if not a.done]

    def step(self) -> None:
        rng, world = self.rng, self.world
        self.steps += 1
        for _ in range(rng.choice((0, 1, 1, 3, 8))):
            name = rng.choice("abc") if rng.random() < 0.15 else (world.leader() or "b")
            if world.members[name].group is None:
                continue
            asked = world.ask(name, self.request(), timeout_us=rng.choice((1, 30, 200, 2_000)) * MS)
            self.sent.append((name, asked))
            if rng.random() < 0.2:
                self.sent.append((name, world.ask(name, asked.request, timeout_us=rng.randrange(1, 500) * MS)))
        self.note()
        fault = rng.random()
        if fault < 0.01:
            world.isolate(rng.choice("abc"))
        elif fault < 0.02:
            world.paused.add(rng.choice("abc"))
        elif fault < 0.03:
            world.members[rng.choice("abc")].stall_us = rng.randrange(400) * MS
        elif fault < 0.035:
            world.held.add(tuple(rng.sample("abc", 2)))  # type: ignore[arg-type]
        elif fault < 0.045:
            group = world.members[world.leader() or "a"].group
            if group is not None:
                group.hand_over()
        elif fault < 0.05:
            self.crash(rng.choice("abc"))
        elif fault < 0.11:
            world.heal()
            for name, member in world.members.items():
                if member.group is None:
                    world.restart(name)
        if rng.random() < 0.01:
            self.interrupted_turn(world.leader() if rng.random() < 0.7 else rng.choice("abc"))
        world.step(rng.choice((1, 1, 1, 5, 20)) * MS)

    def interrupted_turn(self, name: str | None) -> None:
        """While the disk works, a server hands over because it drains, or dies, before or after the sync."""
        world = self.world
        if name is None or name in world.paused or world.members[name].group is None:
            return
        batch = WriteBatch()
        out = world.work(name, batch)
        what = self.rng.choice(("hand over", "die", "die after the sync"))
        if what == "hand over":
            world.members[name].live.hand_over()
        if what != "die":
            world.commit(name, batch)
        if what == "hand over":
            world.finish(name, out)
        else:
            self.crash(name)

    def crash(self, name: str) -> None:
        if self.world.members[name].group is not None:
            self.world.crash(name)
            # Whoever asked it learns of it by the broken connection.
            for asked in [a for n, a in self.sent if n == name and not a.done]:
                self.world.asked.remove(asked)
            self.sent = [(n, a) for n, a in self.sent if n != name or a.done]


def check_logs(world: Replicas) -> None:
    logs: dict[int, bytes] = {}
    for member in world.members.values():
        for done in member.applied:
            payload = done.payload()
            assert logs.setdefault(done.index, payload) == payload, f"entry {done.index} differs"


def check_answers(world: Replicas) -> None:
    """Every answer that states a fact must be true of what was applied."""
    applied = {d.index: d for m in world.members.values() for d in m.applied}
    decided: dict[tuple[bytes, int], int] = {}
    prepared: dict[tuple[bytes, int], int] = {}
    with world.members["a"].engine.snapshot() as reader:
        for index in sorted(applied):
            match applied[index].command:
                case CommitCmd(txn=txn, ts=ts):
                    decided[txn.unique, txn.attempt] = ts
                case PrepareCmd(txn=txn, prepare_ts=ts):
                    assert (txn.unique, txn.attempt) not in prepared, "prepared twice"
                    prepared[txn.unique, txn.attempt] = ts
                case DecideCmd(txn=txn, commit_ts=int() as ts):
                    assert ts > prepared[txn.unique, txn.attempt]
                case _:
                    pass
        for unique, attempt in decided:
            record = reader.get(outcome_key(GROUP, unique, HERE))
            assert record is not None
            assert decode_outcome(record).attempt == attempt, "two attempts of one id committed"
            assert decode_outcome(record).ts == decided[unique, attempt], "an id committed twice"
    for asked in world.asked:
        match asked.request, asked.answer:
            case _, F1Error(code=code):
                assert code in EXPECTED, asked
            case Commit(work=work), CommitReply(ts=ts):
                mine = [decided.get((work.txn.unique, n)) for n in range(1, work.txn.attempt + 1)]
                assert ts in mine
            case Prepare(work=work), PrepareReply(prepare_ts=ts):
                assert prepared[work.txn.unique, work.txn.attempt] == ts
            case Outcome(txn=txn), OutcomeReply(committed=True, ts=ts):
                assert ts in [at for (unique, _), at in decided.items() if unique == txn.unique]
            case Outcome(txn=txn), OutcomeReply(committed=False):
                assert (txn.unique, txn.attempt) not in decided, "told aborted, and committed"
            case _:
                pass


def check_reads(world: Replicas) -> None:
    """Every snapshot read must be what the rows at its timestamp are, now that all is applied."""
    with world.members["a"].engine.snapshot() as reader:
        for asked in world.asked:
            answer = asked.answer
            if not isinstance(asked.request, Read) or not isinstance(answer, ReadReply):
                continue
            for key, version in zip(asked.request.keys, answer.versions, strict=True):
                assert version == read_version(reader, GROUP, key, answer.timestamp), asked


def check_locks(world: Replicas, chaos: Chaos) -> None:
    """What a transaction read under its locks is what stood there right below its commit timestamp."""
    decided: dict[tuple[bytes, int], int] = {}
    for done in world.members["a"].applied:
        match done.command:
            case CommitCmd(txn=txn, ts=ts):
                decided[txn.unique, txn.attempt] = ts
            case DecideCmd(txn=txn, commit_ts=int() as ts) if done.prepared is not None:
                decided[txn.unique, txn.attempt] = ts
            case _:
                pass
    with world.members["a"].engine.snapshot() as reader:
        for request, found in chaos.rests_on:
            ts = decided.get((request.work.txn.unique, request.work.txn.attempt), 0) if request.work.held else 0
            for read, reply in found if ts else []:
                for key, version in zip(read.keys, reply.versions, strict=True):
                    assert version == read_version(reader, GROUP, key, ts - 1), (request, read)
                    chaos.verified += 1


@pytest.mark.parametrize("seed", some(range(8), range(8, 60)))
def test_every_request_is_answered_once_and_truly(seed: int) -> None:
    rng = random.Random(seed)
    config = GroupConfig(
        paxos=FAST,
        turn_max_bytes=rng.choice((1, 300, 1 << 20)),
        txn_idle_us=rng.choice((100, 10_000)) * MS,
        max_parked=rng.choice((2, 20_000)),
        resolve_after_us=100 * MS,
    )
    with Replicas(config=config, owned=((b"", b"z"),), bound_us=rng.choice((0, 1, 10)) * MS) as world:
        for member in world.members.values():
            member.skew_us = rng.randint(-member.bound_us, member.bound_us)
        world.lead("a")
        chaos = Chaos(rng, world)
        for _ in range(400):
            chaos.step()
        world.heal()
        for name, member in world.members.items():
            if member.group is None:
                world.restart(name)
        world.run(1_500 * MS, step_us=5 * MS)
        # Whatever is still in doubt is decided; then nothing may be left that waits.
        leader = world.leader()
        assert leader is not None
        for record in sorted(world.members[leader].live.state.prepared.values(), key=lambda r: r.txn.unique):
            decision = chaos.decided.get((record.txn.unique, record.txn.attempt)) or Decide(record.txn, None)
            world.get(leader, decision, within_us=20_000 * MS)
        world.run(4_000 * MS, step_us=20 * MS)
        unanswered = [a.request for a in world.asked if not a.done]
        assert not unanswered
        assert not world.crashed
        check_logs(world)
        check_answers(world)
        check_reads(world)
        check_locks(world, chaos)
        digests = {m.live.state.applied for m in world.members.values()}
        assert len(digests) == 1
