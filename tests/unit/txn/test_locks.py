"""What the golden scripts of the lock table cannot show: errors, queries and the end of a term."""

import pytest

from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.txn.locks import Acquired, Holder, LockMode, LockTable, Priority, Span, Waiter, Waiting, WaitPolicy

S, X, A = LockMode.SHARED, LockMode.EXCLUSIVE, LockMode.APPEND
Locks = list[tuple[Span, LockMode]]


def lock(table: LockTable, txn: bytes, age: int, locks: Locks, token: object = None) -> object:
    policy = WaitPolicy.WOUND_WAIT
    return table.acquire(txn, Priority(age, b""), locks, policy=policy, token=token or txn, boot_us=age)


def test_empty_range_is_refused() -> None:
    table = LockTable()
    for span in (Span(b"b", b"b"), Span(b"b", b"a")):
        with pytest.raises(F1Error) as caught:
            lock(table, b"t", 1, [(Span(b"x"), X), (span, S)])
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert table.holders_overlapping(span) == ()
    assert table.locks_of(b"t") == ()


def test_prepared_transaction_gets_no_more_locks() -> None:
    table = LockTable()
    lock(table, b"t", 1, [(Span(b"a"), X)])
    table.mark_prepared(b"t")
    assert lock(table, b"t", 1, [(Span(b"a"), S)]) == Acquired(), "what it has it may ask for again"
    with pytest.raises(F1Error) as caught:
        lock(table, b"t", 1, [(Span(b"b"), S)])
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_transaction_cannot_change_its_age() -> None:
    table = LockTable()
    lock(table, b"t", 5, [(Span(b"a"), X)])
    with pytest.raises(F1Error) as caught:
        lock(table, b"t", 1, [(Span(b"b"), X)])
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_equal_priorities_are_ordered_by_transaction() -> None:
    table = LockTable()
    lock(table, b"t2", 1, [(Span(b"a"), X)])
    assert lock(table, b"t3", 1, [(Span(b"a"), X)]) == Waiting((b"t2",))
    assert lock(table, b"t1", 1, [(Span(b"a"), X)]) == Acquired(wounded=(b"t2",))


def test_token_names_one_request() -> None:
    table = LockTable()
    lock(table, b"t1", 1, [(Span(b"a"), X)])
    lock(table, b"t2", 2, [(Span(b"a"), X)], token="same")
    with pytest.raises(InvariantViolation):
        lock(table, b"t3", 3, [(Span(b"a"), X)], token="same")


def test_restored_locks_do_not_clash() -> None:
    table = LockTable()
    table.restore_prepared(b"t1", Priority(1, b""), [(Span(b"a"), X)])
    with pytest.raises(InvariantViolation):
        table.restore_prepared(b"t2", Priority(2, b""), [(Span(b"a", b"b"), S)])


def test_holds_asks_for_every_lock_in_its_mode() -> None:
    table = LockTable()
    lock(table, b"t", 1, [(Span(b"a"), S), (Span(b"c", b"e"), S), (Span(b"e", b"g"), S), (Span(b"x", b"z"), A)])
    assert table.holds(b"t", [(Span(b"a"), S), (Span(b"d"), S), (Span(b"d", b"f"), S), (Span(b"x", b"y"), A)])
    assert not table.holds(b"t", [(Span(b"a"), X)])
    assert not table.holds(b"t", [(Span(b"a"), S), (Span(b"b"), S)])
    assert not table.holds(b"t", [(Span(b"c", b"h"), S)])
    assert not table.holds(b"t", [(Span(b"x"), S)])
    table.release(b"t")
    assert not table.holds(b"t", [(Span(b"a"), S)])
    assert table.holds(b"t", [])


def test_locks_for_a_prepare_come_sorted_and_without_what_exclusive_includes() -> None:
    table = LockTable()
    lock(table, b"t", 1, [(Span(b"b", b"c"), A), (Span(b"b"), S), (Span(b"b", b"c"), S), (Span(b"a"), S)])
    lock(table, b"t", 1, [(Span(b"a"), X)])
    expected = ((Span(b"a"), X), (Span(b"b"), S), (Span(b"b", b"c"), S), (Span(b"b", b"c"), A))
    assert table.locks_of(b"t") == expected
    new_leader = LockTable()
    new_leader.restore_prepared(b"t", Priority(1, b""), expected)
    assert new_leader.locks_of(b"t") == expected
    assert new_leader.is_prepared(b"t") and not new_leader.is_prepared(b"u")


def test_status_says_who_waits_for_whom_and_how_long() -> None:
    table = LockTable()
    lock(table, b"t1", 1, [(Span(b"a"), X)])
    lock(table, b"t3", 3, [(Span(b"a"), S), (Span(b"b"), S)])
    lock(table, b"t2", 2, [(Span(b"a", b"c"), X)])
    assert table.waiters(10) == (
        Waiter(b"t2", Priority(2, b""), WaitPolicy.WOUND_WAIT, ((Span(b"a", b"c"), X),), (b"t1",), 8),
        Waiter(b"t3", Priority(3, b""), WaitPolicy.WOUND_WAIT, ((Span(b"a"), S), (Span(b"b"), S)), (b"t1", b"t2"), 7),
    )
    assert table.holders_overlapping(Span(b"a")) == (Holder(b"t1", Priority(1, b""), (X,), False),)


def test_end_of_a_term_returns_who_waited_and_leaves_nothing() -> None:
    table = LockTable()
    lock(table, b"t1", 1, [(Span(b"a", b"c"), X)])
    lock(table, b"t2", 2, [(Span(b"a"), X)], token="first")
    lock(table, b"t3", 3, [(Span(b"b"), X)], token="second")
    assert table.clear() == ["first", "second"]
    assert table.waiters(9) == ()
    assert table.release(b"t1") == []
    assert lock(table, b"t4", 4, [(Span(b"a", b"c"), X)]) == Acquired()


def test_unknown_names_are_ignored() -> None:
    table = LockTable()
    assert table.release(b"nobody") == []
    assert table.cancel("nothing") == []
    table.mark_prepared(b"nobody")
    assert not table.is_prepared(b"nobody")


def test_one_hot_key_is_handed_from_the_oldest_to_the_next() -> None:
    """64 clients increment one row: each of them gets it once, in the order of age, none is wounded."""
    table = LockTable()
    ages = list(range(1, 65))
    lock(table, b"%02d" % ages[0], ages[0], [(Span(b"hot"), X)])
    for age in reversed(ages[1:]):
        assert isinstance(lock(table, b"%02d" % age, age, [(Span(b"hot"), X)], token=age), Waiting)
    for age in ages[:-1]:
        table.mark_prepared(b"%02d" % age)
        assert table.release(b"%02d" % age) == [age + 1]
