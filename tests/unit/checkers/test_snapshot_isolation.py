"""The checker of snapshot isolation on histories with each of the anomalies."""

from spanstore.testing.checkers import SnapshotRange, SnapshotTxn, check_snapshot_isolation

X, Y = b"x", b"y"


def txn(start, began=0, **facts):
    return SnapshotTxn(start, began, **facts)


def wrong(transactions, decisions):
    return [violation.message for violation in check_snapshot_isolation(transactions, decisions)]


WRITER = txn(1, committed=True, ended=1, writes={X: True})


def test_a_sound_history():
    reader = txn(5, began=2, reads=[(X, 1), (Y, 0)], ranges=[SnapshotRange(X, Y, ((X, 1),))])
    early = txn(1, reads=[(X, 0)])
    assert wrong([WRITER, reader, early], {1: 2}) == []


def test_a_read_of_another_snapshot():
    assert wrong([WRITER, txn(5, began=2, reads=[(X, 0)])], {1: 2})
    assert wrong([WRITER, txn(2, reads=[(X, 1)])], {1: 3})
    assert wrong([WRITER, txn(5, began=2, ranges=[SnapshotRange(X, Y, ())])], {1: 2})


def test_a_read_of_a_failed_transaction():
    assert wrong([txn(1, committed=False, writes={X: True}), txn(5, reads=[(X, 1)])], {1: -1})


def test_a_delete_is_no_value():
    deleted = txn(3, began=1, committed=True, writes={X: False})
    assert wrong([WRITER, deleted, txn(5, began=2, reads=[(X, 0)])], {1: 2, 3: 4}) == []
    assert wrong([WRITER, deleted, txn(5, began=2, reads=[(X, 1)])], {1: 2, 3: 4})


def test_a_lost_update_where_that_was_promised():
    both = [txn(s, committed=True, writes={X: True}, checked={X}) for s in (1, 2)]
    assert wrong(both, {1: 3, 2: 4})
    assert wrong(both, {1: 3, 2: -1}) != [], "who was told that it had committed has not"
    for one in both:
        one.checked.clear()
    assert wrong(both, {1: 3, 2: 4}) == []


def test_write_skew_where_serializability_was_promised():
    one = txn(1, committed=True, reads=[(Y, 0)], writes={X: True})
    two = txn(2, committed=True, reads=[(X, 0)], writes={Y: True})
    assert wrong([one, two], {1: 3, 2: 4}) == []
    one.serializable = two.serializable = True
    assert wrong([one, two], {1: 3, 2: 4})
    three = txn(2, committed=True, ranges=[SnapshotRange(X, Y, ())], writes={Y: True}, serializable=True)
    assert wrong([one, three], {1: 3, 2: 4})


def test_a_transaction_that_begins_after_a_commit_and_does_not_see_it():
    late = txn(3, began=9)
    assert wrong([txn(4, committed=True, ended=5, writes={X: True}), late], {4: 6})


def test_who_was_told_the_wrong_thing():
    assert wrong([txn(1, committed=False, writes={X: True})], {1: 2})
