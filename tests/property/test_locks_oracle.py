"""The lock table against an oracle that knows only the rules and works everything out anew after each call."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from spanstore.txn.locks import (
    Acquired,
    LockMode,
    LockTable,
    Priority,
    Refused,
    Span,
    Waiting,
    WaitPolicy,
)
from tests.amounts import examples

KEYS = [bytes([letter]) for letter in b"abcde"]
TXNS = [b"t%d" % number for number in range(6)]
S, X, A = LockMode.SHARED, LockMode.EXCLUSIVE, LockMode.APPEND
COMPATIBLE = {(S, S), (A, A)}

Lock = tuple[Span, LockMode]


def places(span: Span) -> frozenset[float]:
    first = KEYS.index(span.start)
    if span.end is None:
        return frozenset([float(first)])
    return frozenset(first + step / 2 for step in range(2 * (KEYS.index(span.end) - first)))


def clash(mine: list[Lock], theirs: list[Lock]) -> bool:
    return any(
        places(span) & places(other) and (mode, other_mode) not in COMPATIBLE
        for span, mode in mine
        for other, other_mode in theirs
    )


def age(txn: bytes) -> tuple[int, bytes]:
    return PRIORITY[txn], txn


PRIORITY = {txn: 10 + number // 2 for number, txn in enumerate(TXNS)}
"""Pairs of transactions have the same timestamp: ties are part of the game."""


@dataclass(eq=False)
class Ask:
    txn: bytes
    locks: list[Lock]
    prepare: bool
    token: int


@dataclass
class Oracle:
    held: dict[bytes, list[Lock]] = field(default_factory=dict)
    prepared: set[bytes] = field(default_factory=set)
    line: list[Ask] = field(default_factory=list)

    def owns(self, txn: bytes, lock: Lock) -> bool:
        span, mode = lock
        enough = [places(mine) for mine, held in self.held.get(txn, []) if held in (mode, X)]
        return places(span) <= frozenset().union(*enough)

    def waits_behind(self, ask: Ask, other: Ask) -> bool:
        """A prepare waits behind earlier prepares only; anything else behind every prepare and its elders."""
        if other.txn == ask.txn or not clash(ask.locks, other.locks):
            return False
        if ask.prepare:
            return other.prepare and self.line.index(other) < self.line.index(ask)
        return other.prepare or age(other.txn) < age(ask.txn)

    def blockers(self, ask: Ask) -> set[bytes]:
        holders = {txn for txn, locks in self.held.items() if txn != ask.txn and clash(ask.locks, locks)}
        return holders | {other.txn for other in self.line if self.waits_behind(ask, other)}

    def settle(self) -> list[int]:
        """Grant whatever nothing stands in the way of, until nothing changes."""
        granted = []
        while free := [ask for ask in self.line if not self.blockers(ask)]:
            ask = min(free, key=lambda free: (age(free.txn), free.token))
            self.line.remove(ask)
            self.held.setdefault(ask.txn, []).extend(ask.locks)
            granted.append(ask.token)
        return granted

    def acquire(self, ask: Ask) -> tuple[str, list[bytes], list[int], list[int]]:
        if not ask.locks:
            return "acquired", [], [], []
        rivals = [txn for txn, locks in self.held.items() if txn != ask.txn and clash(ask.locks, locks)]
        waiting = [other for other in self.line if other.txn != ask.txn and clash(ask.locks, other.locks)]
        if ask.prepare and any(age(txn) < age(ask.txn) for txn in [*rivals, *(other.txn for other in waiting)]):
            return "refused", [], [], []
        wounded = sorted(txn for txn in rivals if txn not in self.prepared and age(txn) > age(ask.txn))
        dropped = []
        for txn in wounded:
            dropped += self.forget(txn)
        self.line.append(ask)
        granted = self.settle()
        if ask.token in granted:
            return "acquired", wounded, dropped, [token for token in granted if token != ask.token]
        return "waiting", wounded, dropped, granted

    def forget(self, txn: bytes) -> list[int]:
        self.held.pop(txn, None)
        self.prepared.discard(txn)
        dropped = [ask.token for ask in self.line if ask.txn == txn]
        self.line = [ask for ask in self.line if ask.txn != txn]
        return dropped


any_span = st.one_of(
    st.sampled_from(KEYS).map(Span),
    st.lists(st.sampled_from(KEYS), min_size=2, max_size=2, unique=True).map(lambda ends: Span(*sorted(ends))),
)
any_lock = st.tuples(any_span, st.sampled_from([S, S, X, X, A]))
any_txn = st.sampled_from(TXNS)
Command = tuple[str, bytes, list[Lock], bool]
no_locks: st.SearchStrategy[list[Lock]] = st.just([])
command: st.SearchStrategy[Command] = st.one_of(
    st.tuples(st.just("acquire"), any_txn, st.lists(any_lock, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("acquire"), any_txn, st.lists(any_lock, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("prepared"), any_txn, no_locks, st.just(False)),
    st.tuples(st.just("release"), any_txn, no_locks, st.just(False)),
    st.tuples(st.just("cancel"), any_txn, no_locks, st.just(False)),
)


@settings(max_examples=examples(600))
@given(st.lists(command, max_size=40))
def test_table_agrees_with_the_rules(commands: list[Command]) -> None:
    table, oracle = LockTable(), Oracle()
    for number, (what, txn, locks, prepare) in enumerate(commands):
        match what:
            case "acquire":
                if txn not in oracle.prepared:
                    compare_acquire(table, oracle, txn, locks, prepare, number)
            case "prepared":
                if txn in oracle.held:
                    table.mark_prepared(txn)
                    oracle.prepared.add(txn)
            case "release":
                oracle.forget(txn)
                assert table.release(txn) == oracle.settle()
            case _:
                token = next((ask.token for ask in oracle.line if ask.txn == txn), -1)
                oracle.line = [ask for ask in oracle.line if ask.token != token]
                assert table.cancel(token) == oracle.settle()
        compare_state(table, oracle, number)
    assert sorted(map(str, table.clear())) == sorted(str(ask.token) for ask in oracle.line)
    assert not table.waiters(0) and not table.holders_overlapping(Span(KEYS[0], KEYS[-1]))


def compare_acquire(
    table: LockTable, oracle: Oracle, txn: bytes, locks: list[Lock], prepare: bool, number: int
) -> None:
    result = table.acquire(
        txn,
        Priority(PRIORITY[txn], b"same"),
        locks,
        policy=WaitPolicy.PREPARE if prepare else WaitPolicy.WOUND_WAIT,
        token=number,
        boot_us=number,
    )
    missing = [lock for lock in locks if not oracle.owns(txn, lock)]
    kind, wounded, dropped, granted = oracle.acquire(Ask(txn, missing, prepare, number))
    assert isinstance(result, {"acquired": Acquired, "waiting": Waiting, "refused": Refused}[kind])
    assert list(result.wounded) == wounded
    assert sorted(map(str, result.dropped)) == sorted(map(str, dropped))
    assert list(result.granted) == granted


def compare_state(table: LockTable, oracle: Oracle, number: int) -> None:
    for txn in TXNS:
        mine = oracle.held.get(txn, [])
        assert {span for span, _ in table.locks_of(txn)} == {span for span, _ in mine}
        assert table.holds(txn, mine) and table.holds(txn, table.locks_of(txn))
        assert table.is_prepared(txn) == (txn in oracle.prepared)
        for other in TXNS:
            if other != txn:
                assert not clash(mine, oracle.held.get(other, [])), "two clashing locks are held"
    waiters = table.waiters(number)
    expected = sorted(oracle.line, key=lambda ask: (age(ask.txn), ask.token))
    assert [waiter.txn for waiter in waiters] == [ask.txn for ask in expected]
    assert [waiter.waited_us for waiter in waiters] == [number - ask.token for ask in expected]
    assert [set(waiter.blockers) for waiter in waiters] == [oracle.blockers(ask) for ask in expected]
    for ask in expected:
        if ask.prepare:
            for txn in oracle.blockers(ask):
                assert age(txn) > age(ask.txn), "a prepare waits for younger transactions only"
