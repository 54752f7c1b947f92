"""Bank, ring, log agreement, timestamps: each is seen to fail on what it must find, and to accept what is right."""

import pytest

from spanstore.testing.checkers import (
    Applied,
    CheckFailed,
    Installed,
    check_bank,
    check_log_agreement,
    check_ring,
    check_snapshot_replay,
    check_timestamp_order,
    require,
)


def only(violations):
    (violation,) = violations
    return violation.message


# -- bank --


def bank(h, *views, final=(5, 5)):
    ops = [h.op(1, i, i + 1, h.r(b"a", b"%d" % a), h.r(b"b", b"%d" % b), ts=i) for i, (a, b) in enumerate(views)]
    return check_bank(ops, [b"a", b"b"], 10, {b"a": b"%d" % final[0], b"b": b"%d" % final[1]})


def test_bank(h):
    assert bank(h, (5, 5), (4, 6), (10, 0)) == []
    assert only(bank(h, (5, 5), (4, 5))) == "the view at 1 sums to 9, not 10"
    assert only(bank(h, (5, 5), final=(5, 6))) == "the final view sums to 11, not 10"
    assert only(bank(h, (11, -1))) == "the view at 0 has negative balances: [b'b']"


def test_bank_ignores_partial_views_and_needs_a_whole_final_one(h):
    partial = [h.op(1, 0, 1, h.r(b"a", b"9"))]
    assert check_bank(partial, [b"a", b"b"], 10, {b"a": b"9", b"b": b"1"}) == []
    assert len(check_bank([], [b"a", b"b"], 10, {b"a": b"10"})) == 1


def test_require_raises_with_the_operations(h):
    with pytest.raises(CheckFailed, match="sums to 9"):
        require(bank(h, (4, 5)))
    require([])


# -- ring --


@pytest.mark.parametrize(
    ("successors", "fault"),
    [
        ((1, 2, 3, 0), None),
        ((2, 3, 1, 0), None),
        ((1, 0, 3, 2), "closes after 2 of 4"),
        ((1, 2, 3, 1), "does not come back"),
        ((1, 2, 3, 9), "is no key"),
        ((1, None, 3, 0), "has no successor"),
    ],
)
def test_ring(h, successors, fault):
    keys = [b"0", b"1", b"2", b"3"]
    values = [None if s is None else b"%d" % s for s in successors]
    good = {b"0": b"1", b"1": b"2", b"2": b"3", b"3": b"0"}
    view = [h.op(1, 0, 1, *(h.r(key, value) for key, value in zip(keys, values, strict=True)), ts=7)]
    as_view = check_ring(view, keys, good)
    as_final = check_ring([], keys, dict(zip(keys, values, strict=True)))
    if fault is None:
        assert as_view == as_final == []
    else:
        assert fault in only(as_view)
        assert fault in only(as_final)


# -- log agreement --


def applied(replica, index, entry, incarnation=1, group=1):
    return Applied(replica, incarnation, group, index, entry)


def test_logs_that_agree():
    events = [applied("a", 1, b"x"), applied("b", 1, b"x"), applied("a", 2, b"y"), applied("a", 1, b"z", group=2)]
    assert check_log_agreement(events) == []


def test_a_restart_may_repeat_but_not_skip():
    start = [applied("a", 1, b"x"), applied("a", 2, b"y"), applied("a", 3, b"z")]
    assert check_log_agreement([*start, applied("a", 2, b"y", 2), applied("a", 3, b"z", 2)]) == []
    assert "missing" in only(check_log_agreement([*start, applied("a", 5, b"v", 2)]))


def test_logs_that_diverge_have_gaps_or_lose_their_order():
    assert "but a applied b'x'" in only(check_log_agreement([applied("a", 1, b"x"), applied("b", 1, b"y")]))
    assert "follows 1" in only(check_log_agreement([applied("a", 1, b"x"), applied("a", 3, b"z")]))
    twice = [applied("a", 1, b"x"), applied("a", 2, b"y"), applied("a", 2, b"y")]
    assert "follows 2" in only(check_log_agreement(twice))
    assert "missing" in only(check_log_agreement([applied("a", 2, b"x")]))
    assert "but a applied" in only(
        check_log_agreement([applied("a", 1, b"x"), applied("a", 1, b"lost and replaced", 2)])
    )


def test_a_checkpoint_may_jump_ahead_but_not_back():
    assert check_log_agreement([applied("a", 1, b"x"), Installed("a", 1, 1, 9), applied("a", 10, b"y")]) == []
    back = [applied("a", 1, b"x"), applied("a", 2, b"x"), Installed("a", 1, 1, 1)]
    assert "went back from 2" in only(check_log_agreement(back))


# -- timestamp order --


def test_timestamps_follow_real_time(h):
    w = h.w(b"k", b"v")
    assert check_timestamp_order([h.op(1, 0, 10, w, ts=5), h.op(2, 11, 20, w, ts=6)]) == []
    assert check_timestamp_order([h.op(1, 0, 10, w, ts=5), h.op(2, 10, 20, w, ts=4)]) == [], "concurrent"
    assert "below" in only(check_timestamp_order([h.op(1, 0, 10, w, ts=5), h.op(2, 11, 20, w, ts=4)]))
    assert "is that of" in only(check_timestamp_order([h.op(1, 0, 10, w, ts=5), h.op(2, 11, 20, w, ts=5)]))


def test_a_strong_read_is_not_older_than_what_had_returned(h):
    w, r = h.w(b"k", b"v"), h.r(b"k", b"v")
    assert check_timestamp_order([h.op(1, 0, 10, w, ts=5), h.op(2, 11, 20, r, ts=5)]) == []
    assert "below" in only(check_timestamp_order([h.op(1, 0, 10, w, ts=5), h.op(2, 11, 20, r, ts=4)]))
    assert "below" in only(check_timestamp_order([h.op(1, 0, 10, r, ts=5), h.op(2, 11, 20, w, ts=4)]))


# -- snapshot replay --


def test_reads_equal_a_replay(h):
    ops = [
        h.op(1, 0, 1, h.w(b"k", b"1"), h.w(b"l", b"1"), ts=10),
        h.op(1, 2, 3, h.r(b"k", b"1"), h.w(b"k", b"2"), h.r(b"k", b"2"), ts=20),
        h.op(1, 4, 5, h.w(b"k", None), ts=30),
        h.op(2, 6, 7, h.r(b"k", None), h.r(b"l", None), ts=9),
        h.op(2, 6, 7, h.r(b"k", b"1"), h.r(b"l", b"1"), ts=10),
        h.op(2, 6, 7, h.r(b"k", b"2"), h.r(b"l", b"1"), ts=29),
        h.op(2, 6, 7, h.r(b"k", None), h.r(b"l", b"1"), ts=30),
    ]
    assert check_snapshot_replay(ops) == []


@pytest.mark.parametrize(("ts", "value"), [(9, b"1"), (10, None), (20, b"1"), (19, b"2"), (20, b"never")])
def test_a_read_that_differs_from_the_replay(h, ts, value):
    ops = [
        h.op(1, 0, 1, h.w(b"k", b"1"), ts=10),
        h.op(1, 2, 3, h.w(b"k", b"2"), ts=20),
        h.op(2, 6, 7, h.r(b"k", value), ts=ts),
    ]
    assert "but a replay gives" in only(check_snapshot_replay(ops))


def test_a_lost_update_differs_from_the_replay(h):
    ops = [
        h.op(1, 0, 1, h.r(b"k", None), h.w(b"k", b"1"), ts=10),
        h.op(2, 0, 1, h.r(b"k", None), h.w(b"k", b"2"), ts=20),
    ]
    assert "a read of b'k' at 19 saw None" in only(check_snapshot_replay(ops))


def test_two_commits_of_one_key_at_one_timestamp(h):
    ops = [h.op(1, 0, 1, h.w(b"k", b"1"), ts=10), h.op(2, 0, 1, h.w(b"k", b"2"), ts=10)]
    assert "two commits" in only(check_snapshot_replay(ops))


def test_an_unknown_commit_may_be_seen_or_not_but_by_all_or_none(h):
    known = h.op(1, 0, 1, h.w(b"k", b"1"), h.w(b"l", b"1"), ts=10)
    unknown = h.op(1, 2, 3, h.w(b"k", b"2"), h.w(b"l", b"2"), status=h.UNKNOWN)

    def read(ts, k, ell):
        return h.op(2, 6, 7, h.r(b"k", k), h.r(b"l", ell), ts=ts)

    assert check_snapshot_replay([known, unknown, read(20, b"1", b"1")]) == []
    assert check_snapshot_replay([known, unknown, read(20, b"2", b"2")]) == []
    assert check_snapshot_replay([known, unknown, read(20, b"1", b"1"), read(21, b"2", b"2")]) == []
    assert "missed a commit" in only(check_snapshot_replay([known, unknown, read(20, b"2", b"1")])), "torn"
    back = [known, unknown, h.op(2, 6, 7, h.r(b"k", b"2"), ts=20), h.op(2, 8, 9, h.r(b"k", b"1"), ts=21)]
    assert "missed a commit" in only(check_snapshot_replay(back)), "seen, and lost again"


def test_bounds_of_an_unknown_commit_must_fit_together(h):
    ops = [
        h.op(1, 0, 1, h.w(b"k", b"1"), ts=10),
        h.op(1, 0, 1, h.w(b"l", b"1"), ts=30),
        h.op(1, 2, 3, h.w(b"k", b"2"), h.w(b"l", b"2"), status=h.UNKNOWN),
        h.op(2, 6, 7, h.r(b"k", b"2"), ts=20),
        h.op(2, 6, 7, h.r(b"l", b"2"), ts=40),
    ]
    assert "no timestamp of this unknown commit" in only(check_snapshot_replay(ops))


def test_an_effect_before_its_cause_is_found(h):
    ops = [h.op(2, 0, 1, h.r(b"k", b"2"), ts=20), h.op(1, 2, 3, h.w(b"k", b"2"), status=h.UNKNOWN)]
    assert "but a replay gives None" in only(check_snapshot_replay(ops))
