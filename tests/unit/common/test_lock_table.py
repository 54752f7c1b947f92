"""The lock service's table: who is granted what, for how long, and what is remembered."""

import random

import pytest

from f1common.errors import Code, F1Error
from f1common.orchestrator.lock_table import Done, LockConfig, LockTable, Mode, Token, WantedLock

R, W = Mode.READ, Mode.WRITE
FAR = 10**9


def table(incarnation: int = 1, lease: int = 100, tenure: int = 1000) -> LockTable:
    return LockTable(LockConfig(lease, tenure), incarnation)


def want(*names: str, mode: Mode = W) -> list[WantedLock]:
    return [WantedLock(name.encode(), mode) for name in names]


def granted(done: list[Done]) -> list[bytes]:
    return [item.request for item in done if item.token is not None]


def test_readers_share_and_a_writer_is_alone() -> None:
    t = table()
    for name in (b"r1", b"r2"):
        assert granted(t.acquire(name, want("a", mode=R), None, 0, FAR)) == [name]
    assert t.acquire(b"w", want("a"), None, 1, FAR) == []
    assert t.acquire(b"r3", want("a", mode=R), None, 2, FAR) == [], "it does not overtake the writer"
    assert t.release([Token(1, 1)], 3) == ([True], [])
    alive, done = t.release([Token(1, 2)], 4)
    assert alive == [True] and granted(done) == [b"w"]
    assert granted(t.release([Token(1, 3)], 5)[1]) == [b"r3"]


def test_a_request_is_granted_as_a_whole_and_holds_nothing_before() -> None:
    t = table()
    t.acquire(b"one", want("b"), None, 0, FAR)
    assert t.acquire(b"two", want("a", "b"), None, 0, FAR) == []
    assert t.counts == (1, 1)
    assert granted(t.acquire(b"other", want("c"), None, 1, FAR)) == [b"other"]
    assert granted(t.release([Token(1, 1)], 2)[1]) == [b"two"]


def test_a_lease_lapses_unless_it_is_refreshed_and_ends_with_its_tenure() -> None:
    t = table()
    t.acquire(b"one", want("a"), None, 0, FAR)
    token = Token(1, 1)
    for now in range(60, 1000, 60):
        assert t.refresh([token], now)[0] == [True]
    assert t.acquire(b"two", want("a"), None, 990, FAR) == []
    assert t.validate([token], 999)[0] == [True]
    alive, done = t.validate([token], 1000)
    assert alive == [False] and granted(done) == [b"two"]
    assert t.refresh([token], 1001)[0] == [False]


def test_a_request_that_waits_too_long_ends() -> None:
    t = table(lease=500)
    t.acquire(b"one", want("a"), None, 0, FAR)
    assert t.acquire(b"now", want("a"), None, 0, 0) == [Done(b"now", None)]
    t.acquire(b"two", want("a"), None, 0, 50)
    t.acquire(b"three", want("a", mode=R), None, 0, FAR)
    assert t.tick(50) == [Done(b"two", None)]
    assert granted(t.release([Token(1, 1)], 51)[1]) == [b"three"]


def test_a_request_that_is_sent_again_is_granted_once() -> None:
    t = table()
    first = t.acquire(b"one", want("a"), None, 0, FAR)
    assert t.acquire(b"one", want("a"), None, 5, FAR) == first
    t.release([Token(1, 1)], 6)
    assert t.acquire(b"one", want("a"), None, 7, FAR) == [Done(b"one", None)]
    t.withdraw(b"early", 8)
    assert t.acquire(b"early", want("a"), None, 9, FAR) == [Done(b"early", None)], "its withdrawal came first"
    assert t.counts == (0, 0)
    t.tick(120)
    assert t.next_us() is None, "nothing is remembered for longer than a lease lasts"


def test_a_token_ends_with_its_incarnation() -> None:
    old, new = table(1), table(2)
    old.acquire(b"one", want("a"), None, 0, FAR)
    new.acquire(b"one", want("a"), None, 0, FAR)
    assert new.validate([Token(1, 1), Token(2, 1)], 1)[0] == [False, True]


def test_the_oldest_bound() -> None:
    t = table()
    assert t.oldest_bound(0)[0] is None
    t.acquire(b"one", [], 7, 0, FAR)
    t.acquire(b"two", [], 5, 50, FAR)
    t.acquire(b"three", want("a"), None, 50, FAR)
    assert t.oldest_bound(60)[0] == 5
    t.withdraw(b"two", 61)
    assert t.oldest_bound(62)[0] == 7
    assert t.oldest_bound(100)[0] is None


def test_bad_requests() -> None:
    t = table()
    for locks in (want("b", "a"), want("a", "a"), want(""), want("x" * 5000)):
        with pytest.raises(F1Error) as caught:
            t.acquire(b"one", locks, None, 0, FAR)
        assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(F1Error):
        t.acquire(b"", want("a"), None, 0, FAR)
    with pytest.raises(F1Error):
        LockConfig(10, 5)


@pytest.mark.parametrize("seed", range(30))
def test_conflicting_leases_never_overlap_and_nobody_waits_for_ever(seed: int) -> None:
    rng = random.Random(seed)
    t = table(lease=50, tenure=200)
    held: dict[Token, list[WantedLock]] = {}
    wanted: dict[bytes, list[WantedLock]] = {}
    now = 0

    def settle(done: list[Done]) -> None:
        alive = dict(zip(list(held), t.validate(list(held), now)[0], strict=True))
        for token, is_alive in alive.items():
            if not is_alive:
                del held[token]
        for item in done:
            locks = wanted.pop(item.request)
            if item.token is not None and t.validate([item.token], now)[0] == [True]:
                held[item.token] = locks
        users: dict[bytes, list[Mode]] = {}
        for locks in held.values():
            for lock in locks:
                users.setdefault(lock.name, []).append(lock.mode)
        assert all(len(modes) == 1 or W not in modes for modes in users.values()), users

    for number in range(300):
        now += rng.randrange(20)
        settle(t.tick(now))
        if rng.random() < 0.6:
            name = b"%d" % number
            chosen = sorted(rng.sample("abcd", rng.randrange(1, 4)))
            wanted[name] = [WantedLock(c.encode(), rng.choice([R, W])) for c in chosen]
            settle(t.acquire(name, wanted[name], None, now, now + 10_000))
        elif held and rng.random() < 0.5:
            token = rng.choice(sorted(held))
            del held[token]
            settle(t.release([token], now)[1])
        elif held:
            settle(t.refresh([rng.choice(sorted(held))], now)[1])
    while wanted:
        now += 50
        assert now < 10_000 + 300 * 20, "a waiter starves"
        settle(t.tick(now))
