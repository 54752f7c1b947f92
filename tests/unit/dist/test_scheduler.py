"""The core of the coordinator: its rules one by one, then anything that can happen, in any order."""

from hypothesis import given
from hypothesis import strategies as st

from f1common.errors import Code, F1Error
from f1server.dist.scheduler import Effects, Failure, Scheduler, SchedulerLimits, Worker

A, B, C = (Worker(name, 1, f"{name}:1") for name in "abc")
LIMITS = SchedulerLimits(silence_us=2_000_000, attempts=4)
GONE = F1Error(Code.UNAVAILABLE, "gone")


def started(*workers: Worker) -> Scheduler:
    scheduler = Scheduler(LIMITS)
    assert scheduler.begin(workers, 0) == Effects(start=tuple(sorted(workers)))
    return scheduler


def going(*workers: Worker) -> Scheduler:
    scheduler = started(*workers)
    for i in range(len(workers)):
        scheduler.ready(1, i, 0)
    return scheduler


def test_all_are_ready_before_any_goes() -> None:
    scheduler = started(A, B)
    assert scheduler.ready(1, 1, 0) == Effects()
    assert scheduler.ready(1, 1, 0) == Effects()
    assert scheduler.ready(1, 0, 0) == Effects(go=True)


def test_it_ends_when_all_have_ended() -> None:
    scheduler = going(A, B)
    assert scheduler.done(1, 0, 0) == Effects()
    assert scheduler.done(1, 0, 0) == Effects()
    assert scheduler.done(1, 1, 0) == Effects(finished=True)
    assert scheduler.ended


def test_who_breaks_off_is_reported_and_left_out() -> None:
    scheduler = going(A, B)
    effects = scheduler.failed(1, 0, Failure(GONE, broke=True))
    assert effects == Effects(suspect=((A, "gone"),), cancel=True, retry=True)
    assert scheduler.begin((A, B), 0) == Effects(start=(B,))


def test_another_run_of_the_same_slave_is_another_slave() -> None:
    scheduler = going(A, B)
    scheduler.failed(1, 0, Failure(GONE, broke=True))
    again = Worker("a", 2, "a:1")
    assert scheduler.begin((again, B), 0) == Effects(start=(again, B))


def test_who_cannot_be_reached_by_others_is_left_out_and_not_reported() -> None:
    scheduler = going(A, B, C)
    assert scheduler.failed(1, 0, Failure(GONE, blamed=2)) == Effects(cancel=True, retry=True)
    assert scheduler.begin((A, B, C), 0) == Effects(start=(A, B))


def test_an_error_that_passes_leaves_nobody_out() -> None:
    scheduler = going(A, B)
    assert scheduler.failed(1, 0, Failure(GONE)) == Effects(cancel=True, retry=True)
    assert scheduler.begin((A, B), 0) == Effects(start=(A, B))


def test_an_error_of_the_query_is_final() -> None:
    scheduler = going(A, B)
    error = F1Error(Code.INVALID_ARGUMENT, "division by zero")
    assert scheduler.failed(1, 0, Failure(error)) == Effects(cancel=True, failed=error)
    assert scheduler.ended
    assert scheduler.begin((A, B), 0) == Effects()


def test_after_four_attempts_it_fails() -> None:
    scheduler = Scheduler(LIMITS)
    for _ in range(3):
        scheduler.begin((A, B), 0)
        assert scheduler.failed(scheduler.attempt, 0, Failure(GONE)).retry
    scheduler.begin((A, B), 0)
    assert scheduler.failed(4, 0, Failure(GONE)) == Effects(cancel=True, failed=GONE)


def test_nobody_left() -> None:
    scheduler = going(A)
    scheduler.failed(1, 0, Failure(GONE, broke=True))
    effects = scheduler.begin((A,), 0)
    assert effects.failed is not None
    assert effects.failed.code is Code.UNAVAILABLE
    assert "gone" in effects.failed.message


def test_silence() -> None:
    scheduler = going(A, B)
    for now in range(500_000, 2_500_000, 500_000):
        scheduler.heard(1, 1, now)
        assert scheduler.tick(now) == Effects()
    effects = scheduler.tick(2_500_000)
    assert [worker for worker, _ in effects.suspect] == [A]
    assert effects.retry


def test_silence_while_this_server_stood_still_is_nobody_s() -> None:
    scheduler = going(A, B)
    scheduler.tick(500_000)
    assert scheduler.tick(60_000_000) == Effects()
    assert scheduler.tick(60_500_000) == Effects()


def test_what_is_said_of_an_earlier_attempt_is_not_heard() -> None:
    scheduler = going(A, B)
    scheduler.failed(1, 0, Failure(GONE))
    scheduler.begin((A, B), 0)
    assert scheduler.failed(1, 1, Failure(GONE, broke=True)) == Effects()
    assert scheduler.ready(1, 0, 0) == Effects()
    assert scheduler.ready(2, 0, 0) == Effects()
    assert scheduler.ready(2, 1, 0) == Effects(go=True)


def test_who_ends_before_it_was_told_to_go_is_at_fault() -> None:
    scheduler = started(A, B)
    assert [worker for worker, _ in scheduler.done(1, 1, 0).suspect] == [B]


def test_cancelled() -> None:
    scheduler = going(A, B)
    assert scheduler.cancel() == Effects(cancel=True)
    assert scheduler.cancel() == Effects()
    assert scheduler.done(1, 0, 0) == Effects()


ERRORS = (GONE, F1Error(Code.INVALID_ARGUMENT, "wrong"), F1Error(Code.OVERLOADED, "full"))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("ready", "done", "fail", "break", "blame", "tick", "begin", "lost", "cancel")),
        st.integers(0, 2),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=80,
)


@given(STEPS, st.lists(st.sets(st.sampled_from((A, B, C))), min_size=1, max_size=6))
def test_whatever_happens(steps: list[tuple[str, int, int, bool]], pools: list[set[Worker]]) -> None:
    """Go once for each attempt and only after every Ready; success only after every Done; nothing after the end; no
    more attempts than allowed; nobody again who was left out; each attempt that ended without success is cancelled."""
    scheduler = Scheduler(LIMITS)
    now, begun, out = 0, 0, set[Worker]()
    workers: tuple[Worker, ...] = ()
    ready, done, under_way, went, ended = set[int](), set[int](), False, False, False
    for what, position, other, stale in steps:
        now += 400_000
        attempt = scheduler.attempt - 1 if stale else scheduler.attempt
        known = position < len(workers)
        fault = Failure(ERRORS[other], broke=what == "break", blamed=other if what == "blame" else None)
        match what:
            case "begin":
                effects = scheduler.begin(sorted(pools[begun % len(pools)]), now)
            case "ready" if known:
                effects = scheduler.ready(attempt, position, now)
                ready |= set() if stale else {position}
            case "done" if known and (went or stale):
                effects = scheduler.done(attempt, position, now)
                done |= set() if stale else {position}
            case "fail" | "break" | "blame" if known:
                effects = scheduler.failed(attempt, position, fault)
                if effects.cancel and not stale and what != "fail":
                    out.add(workers[position if what == "break" else other % max(len(workers), 1)])
            case "tick":
                effects = scheduler.tick(now)
                out |= {worker for worker, _ in effects.suspect}
            case "lost":
                effects = scheduler.lost(attempt, GONE)
            case "cancel":
                effects = scheduler.cancel()
            case _:
                continue
        if ended:
            assert effects == Effects()
        if effects.start:
            assert not under_way
            begun += 1
            workers, ready, done, went, under_way = effects.start, set(), set(), False, True
        if effects.go:
            assert under_way
            assert not went
            assert ready == set(range(len(workers)))
            went = True
        if effects.finished:
            assert went
            assert done == set(range(len(workers)))
            under_way = False
        assert effects.cancel <= under_way
        assert effects.retry <= effects.cancel
        if effects.cancel:
            under_way = False
        assert not (effects.retry and effects.failed)
        assert begun <= LIMITS.attempts
        assert scheduler.attempt == begun
        ended = scheduler.ended
        assert not (ended and under_way)


@given(st.lists(st.sampled_from(("fail", "break", "silent")), max_size=6))
def test_it_always_comes_to_an_end(faults: list[str]) -> None:
    """Whatever befalls its attempts, a query that is driven ends, and it succeeds if an attempt is left alone."""
    scheduler, now = Scheduler(LIMITS), 0
    live = {A, B, C}
    for fault in [*faults, ""]:
        effects = scheduler.begin(sorted(live), now)
        if effects.failed is not None:
            break
        for i in range(len(effects.start)):
            scheduler.ready(scheduler.attempt, i, now)
        if fault == "silent":
            while not (effects := scheduler.tick(now)).cancel:
                now += 500_000
        elif fault:
            effects = scheduler.failed(scheduler.attempt, 0, Failure(GONE, broke=fault == "break"))
        else:
            count = len(effects.start)
            assert [scheduler.done(scheduler.attempt, i, now).finished for i in range(count)][-1]
        if scheduler.ended:
            break
    assert scheduler.ended
