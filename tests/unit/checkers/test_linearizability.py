"""The search against its known anomalies and against a dumb oracle (Herlihy and Wing, 1990)."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanstore.testing.checkers import check_linearizable
from spanstore.testing.history import Op, Read, Status, Write
from tests.amounts import examples

K = b"k"


def bad(*ops):
    return bool(check_linearizable(ops))


def test_sequential_histories(h):
    assert not bad(h.op(1, 0, 1, h.r(K, None)), h.op(1, 2, 3, h.w(K, b"1")), h.op(2, 4, 5, h.r(K, b"1")))
    assert bad(h.op(1, 2, 3, h.w(K, b"1")), h.op(2, 4, 5, h.r(K, None)))


def test_a_stale_read_after_a_fresh_one(h):
    write = h.op(1, 0, 100, h.w(K, b"1"))
    assert not bad(write, h.op(2, 10, 20, h.r(K, None)), h.op(2, 30, 40, h.r(K, b"1")))
    assert bad(write, h.op(2, 10, 20, h.r(K, b"1")), h.op(3, 30, 40, h.r(K, None)))


def test_a_value_that_nobody_wrote(h):
    assert bad(h.op(1, 0, 1, h.w(K, b"1")), h.op(2, 2, 3, h.r(K, b"2")))


def test_a_lost_conditional_write(h):
    first = h.op(1, 0, 10, h.r(K, None), h.w(K, b"1"))
    assert not bad(first, h.op(2, 0, 10, h.r(K, b"1"), h.w(K, b"2")))
    assert bad(first, h.op(2, 0, 10, h.r(K, None), h.w(K, b"2"))), "both replaced the same value"


def test_a_failed_write_has_no_effect(h):
    assert bad(h.op(1, 0, 1, h.w(K, b"1"), status=h.FAIL), h.op(2, 2, 3, h.r(K, b"1")))


def test_an_unknown_write_may_happen_late_or_never_but_not_early_nor_twice(h):
    unknown = h.op(1, 10, 20, h.w(K, b"1"), status=h.UNKNOWN)
    assert not bad(unknown, h.op(2, 30, 40, h.r(K, None)))
    assert not bad(unknown, h.op(2, 30, 40, h.r(K, None)), h.op(2, 50, 60, h.r(K, b"1")))
    assert bad(unknown, h.op(2, 0, 5, h.r(K, b"1")))
    assert bad(unknown, h.op(2, 30, 40, h.r(K, b"1")), h.op(2, 50, 60, h.r(K, None)))
    over = h.op(2, 41, 45, h.w(K, b"2"))
    assert bad(
        unknown, h.op(2, 30, 40, h.r(K, b"1")), over, h.op(2, 50, 60, h.r(K, b"2")), h.op(2, 61, 62, h.r(K, b"1"))
    )


def test_a_chain_of_unknown_conditional_writes(h):
    first = h.op(1, 0, 1, h.r(K, None), h.w(K, b"1"), status=h.UNKNOWN)
    second = h.op(2, 0, 1, h.r(K, b"1"), h.w(K, b"2"), status=h.UNKNOWN)
    assert not bad(first, second, h.op(3, 5, 6, h.r(K, b"2")))
    assert bad(second, h.op(3, 5, 6, h.r(K, b"2")))


def test_keys_are_independent(h):
    assert not bad(h.op(1, 0, 1, h.w(b"a", b"1")), h.op(1, 2, 3, h.r(b"b", None)))


def _brute(ops, initial=None):
    """Try every order of every subset of the unknown operations."""
    certain = [o for o in ops if o.status is Status.OK]
    unknown = [o for o in ops if o.status is Status.UNKNOWN]
    for size in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, size):
            for order in itertools.permutations([*certain, *chosen]):
                if _explains(order, initial):
                    return True
    return False


def _explains(order, state):
    for i, earlier in enumerate(order):
        if any(later.end_us < earlier.invoke_us for later in order[i + 1 :]):
            return False
    for o in order:
        for step in o.steps:
            if isinstance(step, Write):
                state = step.value
            elif step.value != state:
                return False
    return True


values = st.sampled_from([None, b"1", b"2", b"3"])
bodies = st.one_of(
    values.map(lambda v: (Read(K, v),)),
    values.map(lambda v: (Write(K, v),)),
    st.tuples(values, values).map(lambda p: (Read(K, p[0]), Write(K, p[1]))),
)


@st.composite
def histories(draw):
    ops = []
    for process in range(draw(st.integers(1, 6))):
        invoke = draw(st.integers(0, 20))
        ops.append(
            Op(
                process=process,
                kind="t",
                invoke_us=invoke,
                return_us=invoke + draw(st.integers(0, 12)),
                status=draw(st.sampled_from([Status.OK, Status.OK, Status.UNKNOWN])),
                steps=draw(bodies),
            )
        )
    return ops


@settings(max_examples=examples(400))
@given(histories())
def test_against_the_oracle(ops):
    assert bool(check_linearizable(ops)) is not _brute(ops)


def simulate_register(seed, count, processes, *, writes=0.5, lose=False):
    """A history of a perfect register, whose operations take effect at a random moment of their interval."""
    rng = random.Random(seed)
    free = [0] * processes
    moments = []
    for number in range(count):
        process = min(range(processes), key=free.__getitem__)
        invoke = free[process] + rng.randrange(1, 50)
        ret = invoke + rng.randrange(1, 200)
        free[process] = ret
        status = Status.UNKNOWN if rng.random() < 0.03 else Status.OK
        moments.append((rng.randint(invoke, ret), number, process, invoke, ret, status))
    state = None
    ops = []
    for _, number, process, invoke, ret, status in sorted(moments):
        if rng.random() >= writes:
            steps = (Read(K, state),)
        else:
            steps = (Write(K, b"%d" % number),)
            lost = lose and number > count // 2 and status is Status.OK
            lose = lose and not lost
            if not lost and not (status is Status.UNKNOWN and rng.random() < 0.5):
                state = b"%d" % number
        ops.append(Op(process=process, kind="t", invoke_us=invoke, return_us=ret, status=status, steps=steps))
    return ops


@pytest.mark.parametrize("seed", range(5))
def test_long_histories_are_searched_quickly(seed):
    assert not bad(*simulate_register(seed, 2000, 8))


def test_one_lost_write_in_a_long_history_is_found():
    found = [bad(*simulate_register(seed, 300, 3, writes=0.1, lose=True)) for seed in range(30)]
    assert sum(found) >= 20, "one that is overwritten at once cannot be noticed"
    assert not any(bad(*simulate_register(seed, 300, 3, writes=0.1)) for seed in range(30))
