"""Every anomaly by name, and a dumb oracle for strict serializability of small histories (Elle; Adya)."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanstore.testing.checkers import check_list_append
from spanstore.testing.checkers.list_append import decode_list, encode_list
from spanstore.testing.history import Op, Read, Status, Write
from tests.amounts import examples

X, Y = b"x", b"y"


def r(key, *elements):
    return Read(key, encode_list(elements) or None)


def w(key, *elements):
    return Write(key, encode_list(elements))


def names(*ops):
    return [violation.message.split(":")[0] for violation in check_list_append(ops)]


def test_the_codec():
    assert decode_list(None) == decode_list(b"") == ()
    assert decode_list(encode_list([1, 23, 4])) == (1, 23, 4)


def test_a_clean_history(h):
    assert not names(
        h.op(1, 0, 10, r(X), w(X, 1)),
        h.op(2, 5, 15, r(X, 1), w(X, 1, 2), r(Y), w(Y, 3)),
        h.op(1, 20, 30, r(X, 1, 2), r(Y, 3)),
    )


def test_g0(h):
    # Both append to both, in different orders. The reads are of later transactions.
    assert names(
        h.op(1, 0, 10, w(X, 1), w(Y, 1)),
        h.op(2, 0, 10, w(X, 1, 2), w(Y, 2)),
        h.op(3, 11, 12, r(X, 1, 2)),
        h.op(3, 13, 14, r(Y, 2, 1)),
    ) == ["G0"]


def test_g1a(h):
    assert names(h.op(1, 0, 1, w(X, 1), status=h.FAIL), h.op(2, 2, 3, r(X, 1))) == ["G1a"]


def test_g1b(h):
    assert names(h.op(1, 0, 9, w(X, 1), w(X, 1, 2)), h.op(2, 0, 9, r(X, 1)), h.op(3, 0, 9, r(X, 1, 2))) == ["G1b"]


def test_g1c(h):
    assert names(h.op(1, 0, 9, w(X, 1), r(Y, 2)), h.op(2, 0, 9, w(Y, 2), r(X, 1))) == ["G1c"]


def test_g_single_read_skew(h):
    assert names(h.op(1, 0, 9, w(X, 1), w(Y, 1)), h.op(2, 0, 9, r(X), r(Y, 1)), h.op(3, 20, 21, r(X, 1))) == [
        "G-single"
    ]


def test_a_lost_update(h):
    assert names(
        h.op(1, 0, 9, r(X), w(X, 1)),
        h.op(2, 0, 9, r(X), w(X, 2)),
        h.op(3, 0, 9, r(X, 1, 2)),
    ) == ["G-single"]
    assert names(h.op(1, 0, 9, r(X), w(X, 1)), h.op(2, 0, 9, r(X), w(X, 2)), h.op(3, 20, 21, r(X, 2))) == [
        "G-single"
    ], "the first update vanished"


def test_g2_write_skew(h):
    assert names(h.op(1, 0, 9, r(X), w(Y, 1)), h.op(2, 0, 9, r(Y), w(X, 2)), h.op(3, 0, 9, r(X, 2), r(Y, 1))) == ["G2"]


def test_a_stale_read(h):
    assert names(h.op(1, 0, 1, w(X, 1)), h.op(2, 2, 3, r(X)), h.op(3, 4, 5, r(X, 1))) == ["G-single-realtime"]
    assert not names(h.op(1, 0, 1, w(X, 1)), h.op(2, 1, 3, r(X)), h.op(3, 4, 5, r(X, 1))), "concurrent"


def test_order_of_appends_against_real_time(h):
    assert names(h.op(1, 0, 1, w(X, 1)), h.op(2, 2, 3, w(X, 2)), h.op(3, 4, 5, r(X, 2, 1))) == ["G0-realtime"]


def test_an_acknowledged_append_that_nobody_sees_afterwards(h):
    assert names(h.op(1, 0, 1, w(X, 1)), h.op(2, 2, 3, r(X))) == ["G-single-realtime"]


def test_a_read_of_the_future(h):
    assert names(h.op(2, 0, 1, r(X, 1)), h.op(1, 2, 3, w(X, 1))) == ["G1c-realtime"]


def test_orders_duplicates_and_garbage(h):
    a, b = h.op(1, 0, 9, w(X, 1)), h.op(2, 0, 9, w(X, 2))
    assert names(a, b, h.op(3, 0, 9, r(X, 1, 2)), h.op(3, 10, 11, r(X, 2))) == ["incompatible order"]
    assert names(a, h.op(3, 0, 9, r(X, 1, 1))) == ["duplicate"]
    assert names(a, h.op(3, 0, 9, r(X, 1, 7))) == ["garbage"]


def test_internal_consistency(h):
    assert names(h.op(1, 0, 9, r(X), w(X, 1), r(X))) == ["internal"]
    assert names(h.op(1, 0, 9, r(X), r(X, 1)), h.op(2, 0, 9, w(X, 1))) == ["internal"]
    assert not names(h.op(1, 0, 9, r(X), w(X, 1), r(X, 1)))


def test_unknown_outcomes(h):
    unknown = h.op(1, 10, 20, r(X), w(X, 1), status=h.UNKNOWN)
    assert not names(unknown, h.op(2, 30, 40, r(X)), h.op(2, 50, 60, r(X, 1))), "it took effect late"
    assert not names(unknown, h.op(2, 30, 40, r(X))), "or never"
    assert names(unknown, h.op(2, 0, 5, r(X, 1))) == ["G1c-realtime"], "but not before it was asked for"
    torn = h.op(1, 0, 9, w(X, 1), w(Y, 1), status=h.UNKNOWN)
    assert names(torn, h.op(2, 30, 40, r(X, 1), r(Y))) == ["G-single"], "nor in half"


# -- an oracle: try all orders of all subsets of the unknown ones --


def _strictly_serializable(ops):
    certain = [o for o in ops if o.status is Status.OK]
    unknown = [o for o in ops if o.status is Status.UNKNOWN]
    for size in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, size):
            for order in itertools.permutations([*certain, *chosen]):
                if _in_real_time(order) and _replays(order):
                    return True
    return False


def _in_real_time(order):
    return not any(b.end_us < a.invoke_us for i, a in enumerate(order) for b in order[i + 1 :])


def _replays(order):
    state = {}
    for o in order:
        for step in o.steps:
            current = state.get(step.key, ())
            if isinstance(step, Write):
                state[step.key] = (*current, decode_list(step.value)[-1])
            elif o.status is Status.OK and decode_list(step.value) != current:
                return False
    return True


@st.composite
def histories(draw):
    """Run a few transactions one after the other, sometimes wrongly, and give them intervals."""
    count = draw(st.integers(2, 5))
    state = {X: (), Y: ()}
    old = dict(state)
    element = 0
    ops = []
    moment = 0
    for process in range(count):
        view = dict(old if draw(st.integers(0, 4)) == 0 else state)
        old = dict(state)
        status = draw(st.sampled_from([Status.OK, Status.OK, Status.OK, Status.UNKNOWN]))
        applied = status is Status.OK or draw(st.booleans())
        steps = []
        for _ in range(draw(st.integers(1, 3))):
            key = draw(st.sampled_from([X, Y]))
            if draw(st.booleans()):
                steps.append(r(key, *view[key]))
            else:
                element += 1
                view[key] = (*view[key], element)
                steps.append(w(key, *view[key]))
                if applied:
                    state[key] = (*state[key], element)
        moment += draw(st.integers(1, 3))
        spread = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        ops.append(
            Op(
                process=process,
                kind="t",
                invoke_us=moment - spread[0],
                return_us=moment + spread[1],
                status=status,
                steps=tuple(steps),
            )
        )
    return ops


@settings(max_examples=examples(500))
@given(histories())
def test_against_the_oracle(ops):
    assert (not check_list_append(ops)) == _strictly_serializable(ops)


def simulate_lists(seed, count, processes, keys):
    """A perfect store: each transaction takes effect at a random moment of its interval."""
    rng = random.Random(seed)
    free = [0] * processes
    moments = []
    for number in range(count):
        process = min(range(processes), key=free.__getitem__)
        invoke = free[process] + rng.randrange(1, 50)
        ret = invoke + rng.randrange(1, 200)
        free[process] = ret
        status = rng.choices((Status.OK, Status.UNKNOWN, Status.FAIL), (90, 5, 5))[0]
        moments.append((rng.randint(invoke, ret), number, process, invoke, ret, status))
    state = {}
    ops = []
    for _, number, process, invoke, ret, status in sorted(moments):
        applied = status is Status.OK or (status is Status.UNKNOWN and rng.random() < 0.5)
        view = dict(state)
        steps = []
        for i in range(rng.randint(1, 4)):
            key = b"%d" % rng.randrange(keys)
            if rng.random() < 0.5:
                steps.append(r(key, *view.get(key, ())))
            else:
                view[key] = (*view.get(key, ()), number * 10 + i)
                steps.append(w(key, *view[key]))
        if applied:
            state = view
        ops.append(Op(process=process, kind="t", invoke_us=invoke, return_us=ret, status=status, steps=tuple(steps)))
    return ops


@pytest.mark.parametrize("seed", range(4))
def test_long_histories_are_checked_quickly(seed):
    ops = simulate_lists(seed, 1500, 10, 20)
    assert not check_list_append(ops)
    # One read that misses the newest element of a key that somebody had read before it began.
    for number in range(len(ops) // 2, len(ops)):
        op = ops[number]
        reads = [s for s in op.steps if isinstance(s, Read) and len(decode_list(s.value)) > 3]
        if op.status is Status.OK and len(op.steps) == 1 and reads:
            ops[number] = Op(
                process=op.process,
                kind="t",
                invoke_us=op.invoke_us,
                return_us=op.return_us,
                status=op.status,
                steps=(r(reads[0].key, *decode_list(reads[0].value)[:-3]),),
            )
            break
    assert check_list_append(ops)
