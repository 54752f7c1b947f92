"""Transactions over several groups, in any order of steps: no deadlock, no starvation, never two clashing writers.

The drivers obey the rules of the package docstring (a transaction prepares only after all of its reads were answered)
and nothing else: steps of all transactions interleave freely, an abort reaches the groups one by one.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanstore.txn.locks import Acquired, LockMode, LockTable, Priority, Refused, Span, WaitPolicy
from tests.amounts import examples

S, X, A = LockMode.SHARED, LockMode.EXCLUSIVE, LockMode.APPEND
KEYS = [bytes([letter]) for letter in b"abcd"]
Locks = tuple[tuple[Span, LockMode], ...]


class Stuck(AssertionError):
    """Transactions are left and none of them can do anything, or they go on for ever."""


@dataclass
class Txn:
    name: bytes
    priority: Priority
    reads: list[tuple[int, Locks]]
    writes: dict[int, Locks]
    read_position: int = 0
    waiting: set[tuple[int, int]] = field(default_factory=set)
    granted: set[int] = field(default_factory=set)
    prepared: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    committed: bool = False
    doomed: bool = False
    done: bool = False
    attempts: int = 1

    @property
    def groups(self) -> set[int]:
        """Every group where it holds any lock is a participant."""
        return {group for group, _ in self.reads} | set(self.writes)

    @property
    def coordinator(self) -> int:
        return min(self.writes)


class World:
    def __init__(self, txns: list[Txn], groups: int, choose: Callable[[int], int], prepare_policy: WaitPolicy) -> None:
        self.txns = {txn.name: txn for txn in txns}
        self.tables = [LockTable() for _ in range(groups)]
        self.choose = choose
        self.prepare_policy = prepare_policy
        self.tokens = 0
        self.owner: dict[int, tuple[Txn, bool]] = {}

    def run(self) -> None:
        for _ in range(20_000):
            steps = [step for txn in self.txns.values() for step in self.steps(txn)]
            if not steps:
                if any(not txn.done for txn in self.txns.values()):
                    raise Stuck([txn.name for txn in self.txns.values() if not txn.done])
                return
            steps[self.choose(len(steps))]()
            self.refuse_cycles()
        raise Stuck("no end after 20,000 steps")

    def steps(self, txn: Txn) -> list[Callable[[], None]]:
        """What may happen next for ``txn``; nothing if it waits."""
        if txn.done:
            return []
        if txn.doomed:
            return [partial(self.abort, txn, group) for group in sorted(txn.used)]
        if txn.committed:
            return [partial(self.finish, txn, group) for group in sorted(txn.used)]
        result: list[Callable[[], None]] = []
        result += [partial(self.log, txn, group) for group in sorted(txn.granted - txn.prepared)]
        if txn.read_position < len(txn.reads):
            # Reads travel at the same time: one that waits does not hold back the next.
            result.append(partial(self.read, txn))
        elif txn.asked or not txn.waiting:
            # So do prepares, but none goes before every read was answered.
            others = txn.groups - {txn.coordinator}
            result += [partial(self.prepare, txn, group) for group in sorted(others - txn.asked)]
            if txn.prepared >= others and txn.coordinator not in txn.asked:
                result.append(partial(self.prepare, txn, txn.coordinator))
        return result

    def ask(self, txn: Txn, group: int, locks: Locks, policy: WaitPolicy, *, commit: bool) -> None:
        self.tokens += 1
        token = self.tokens
        self.owner[token] = txn, commit
        txn.used.add(group)
        result = self.tables[group].acquire(txn.name, txn.priority, locks, policy=policy, token=token, boot_us=token)
        for name in result.wounded:
            self.txns[name].doomed = True
        self.wake(group, result.granted)
        match result:
            case Acquired():
                if commit:
                    txn.granted.add(group)
            case Refused():
                txn.doomed = True
            case _:
                txn.waiting.add((group, token))

    def wake(self, group: int, tokens: tuple[object, ...] | list[object]) -> None:
        for token in tokens:
            assert isinstance(token, int)
            txn, commit = self.owner[token]
            txn.waiting.discard((group, token))
            if commit:
                txn.granted.add(group)

    def read(self, txn: Txn) -> None:
        group, locks = txn.reads[txn.read_position]
        txn.read_position += 1
        self.ask(txn, group, locks, WaitPolicy.WOUND_WAIT, commit=False)

    def prepare(self, txn: Txn, group: int) -> None:
        txn.asked.add(group)
        policy = WaitPolicy.WOUND_WAIT if len(txn.groups) == 1 else self.prepare_policy
        self.ask(txn, group, txn.writes.get(group, ()), policy, commit=True)

    def log(self, txn: Txn, group: int) -> None:
        """The leader verifies that every lock is still held, then the transaction is beyond wounding."""
        table = self.tables[group]
        held = [lock for where, locks in txn.reads if where == group for lock in locks]
        assert table.holds(txn.name, [*held, *txn.writes.get(group, ())]), "a lock was lost and nobody was told"
        table.mark_prepared(txn.name)
        txn.prepared.add(group)
        if group == txn.coordinator:
            assert txn.prepared == txn.groups
            txn.committed = True

    def finish(self, txn: Txn, group: int) -> None:
        txn.used.discard(group)
        txn.done = not txn.used
        self.wake(group, self.tables[group].release(txn.name))

    def abort(self, txn: Txn, group: int) -> None:
        txn.used.discard(group)
        self.wake(group, self.tables[group].release(txn.name))
        if not txn.used:
            txn.waiting, txn.granted, txn.prepared, txn.asked = set(), set(), set(), set()
            txn.read_position, txn.doomed = 0, False
            txn.attempts += 1

    def refuse_cycles(self) -> None:
        """A doomed or committed transaction acts without waiting, so only the edges of the others can be in a cycle."""
        edges: dict[bytes, set[bytes]] = {}
        for table in self.tables:
            for waiter in table.waiters(self.tokens):
                txn = self.txns[waiter.txn]
                if not txn.doomed and not txn.committed:
                    edges.setdefault(waiter.txn, set()).update(waiter.blockers)
        while leaves := [name for name in edges if not edges[name] & edges.keys()]:
            for name in leaves:
                del edges[name]
        if edges:
            raise Stuck(f"a cycle of waits: {edges}")


def make_txns(rng: random.Random, count: int, groups: int) -> list[Txn]:
    def locks(modes: list[LockMode], most: int) -> Locks:
        result = []
        for _ in range(rng.randint(1, most)):
            wide = rng.random() < 0.25
            span = Span(*sorted(rng.sample(KEYS, 2))) if wide else Span(rng.choice(KEYS))
            result.append((span, rng.choice(modes)))
        return tuple(result)

    txns = []
    for number in range(count):
        home = rng.sample(range(groups), min(groups, rng.choice([1, 2, 2, 3, 4])))
        reads = [(rng.choice(home), locks([S, S, X], 2)) for _ in range(rng.randint(0, 3))]
        writes = {group: locks([X, X, A, S], 3) for group in rng.sample(home, rng.randint(1, len(home)))}
        name = b"t%d" % number
        txns.append(Txn(name, Priority(rng.randint(1, 4), name), reads, writes))
    return txns


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 32), st.integers(2, 8), st.integers(1, 4))
def test_every_transaction_commits(seed: int, count: int, groups: int) -> None:
    rng = random.Random(seed)
    world = World(make_txns(rng, count, groups), groups, rng.randrange, WaitPolicy.PREPARE)
    world.run()
    for table in world.tables:
        assert not table.waiters(0) and not table.holders_overlapping(Span(KEYS[0], b"\xff"))


def test_wound_wait_alone_deadlocks_on_prepared_transactions() -> None:
    """The reason for the PREPARE policy, and proof that the test above can fail."""
    with pytest.raises(Stuck, match="cycle"):
        for seed in range(500):
            rng = random.Random(seed)
            World(make_txns(rng, 6, 3), 3, rng.randrange, WaitPolicy.WOUND_WAIT).run()


def test_oldest_transaction_is_never_refused_for_long() -> None:
    """One hot key, all over two groups: with kept priorities the attempts stay bounded."""
    hot: Locks = ((Span(b"a"), X),)
    for seed in range(20):
        rng = random.Random(seed)
        txns = [Txn(b"t%02d" % n, Priority(n, b""), [], {0: hot, 1: hot}) for n in range(16)]
        World(txns, 2, rng.randrange, WaitPolicy.PREPARE).run()
        assert txns[0].attempts <= 2, "the oldest of all lost more often than to one that was prepared already"
