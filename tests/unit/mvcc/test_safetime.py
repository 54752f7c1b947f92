"""Safe time of leaders and followers (Spanner, section 4.1.3)."""

from hypothesis import given
from hypothesis import strategies as st

from f1common.clock import TTInterval
from spanstore.mvcc.safetime import FollowerSafeTime, LeaderSafeTime

NOW = TTInterval(990, 1010)


def test_an_idle_leader_is_safe_up_to_now_and_its_ceiling() -> None:
    safe = LeaderSafeTime()
    assert safe.safe_ts(NOW, 5000) == 1010
    assert safe.safe_ts(NOW, 700) == 700


def test_undecided_transactions_hold_safe_time_back_until_they_end() -> None:
    safe = LeaderSafeTime()
    safe.begin(b"late", 900)
    safe.begin(b"early", 500)
    assert (safe.safe_ts(NOW, 5000), safe.oldest()) == (499, (500, b"early"))
    safe.end(b"early")
    assert (safe.safe_ts(NOW, 5000), safe.oldest()) == (899, (900, b"late"))
    safe.end(b"late")
    safe.end(b"unknown")
    assert (safe.safe_ts(NOW, 5000), safe.oldest(), len(safe)) == (1010, None, 0)


def test_a_prepared_transaction_keeps_its_first_timestamp() -> None:
    safe = LeaderSafeTime()
    safe.begin(b"t", 500)
    safe.begin(b"t", 800)
    assert safe.safe_ts(NOW, 5000) == 499
    assert safe.held_ts(b"t") == 500
    assert safe.held_ts(b"other") is None


def test_a_transaction_that_begins_again_after_its_end_counts_again() -> None:
    safe = LeaderSafeTime()
    safe.begin(b"t", 500)
    safe.end(b"t")
    safe.begin(b"t", 700)
    assert safe.oldest() == (700, b"t")
    safe.end(b"t")
    assert safe.oldest() is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 2000))))
def test_leader_against_a_dictionary(steps: list[tuple[bool, int, int]]) -> None:
    safe = LeaderSafeTime()
    oracle: dict[bytes, int] = {}
    for begins, number, ts in steps:
        txn = bytes([number])
        if begins:
            safe.begin(txn, ts)
            oracle.setdefault(txn, ts)
        else:
            safe.end(txn)
            oracle.pop(txn, None)
        assert safe.safe_ts(NOW, 1500) == min([1010, *(held - 1 for held in oracle.values())])
        assert len(safe) == len(oracle)


def test_a_follower_waits_for_the_index() -> None:
    safe = FollowerSafeTime()
    safe.learn(5, 100)
    safe.learn(7, 200)
    assert safe.safe_ts == 0
    safe.applied(5)
    assert safe.safe_ts == 100
    safe.learn(5, 120)
    assert safe.safe_ts == 120
    safe.applied(9)
    assert safe.safe_ts == 200


def test_old_messages_and_restarts_do_not_take_safe_time_back() -> None:
    safe = FollowerSafeTime()
    safe.applied(5)
    safe.learn(5, 100)
    safe.learn(3, 50)
    safe.learn(9, 90)
    safe.applied(4)
    safe.applied(20)
    assert safe.safe_ts == 100


def test_a_follower_far_behind_keeps_few_pairs_and_loses_nothing_in_the_end() -> None:
    safe = FollowerSafeTime()
    for n in range(1, 5000):
        safe.learn(n, n * 10)
    safe.applied(500)
    assert safe.safe_ts == 5000
    safe.applied(4999)
    assert safe.safe_ts == 49990


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(1, 100))))
def test_follower_against_a_list_of_pairs(steps: list[tuple[bool, int, int]]) -> None:
    """Never more than what was learned for what is applied; exactly that when pairs come in order."""
    safe = FollowerSafeTime()
    pairs: list[tuple[int, int]] = []
    applied = 0
    in_order = True
    for learns, index, ts in steps:
        if learns:
            in_order = in_order and all(i <= index and t <= ts for i, t in pairs)
            pairs.append((index, ts))
            safe.learn(index, ts)
        else:
            applied = max(applied, index)
            safe.applied(index)
        allowed = max((t for i, t in pairs if i <= applied), default=0)
        assert safe.safe_ts <= allowed
        if in_order:
            assert safe.safe_ts == allowed
