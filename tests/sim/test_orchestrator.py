"""The orchestrator's protocol in simulated worlds: whatever stands still, forgets or comes late.

Each promise is then broken in the code, and the same worlds must show it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from f1.orchestrator import protocol, sweeping
from f1.orchestrator.protocol import Attempt
from f1.orchestrator.steps import Acquire, NextTimestamp, OldestBound, Put, Validate, Write
from f1common.errors import F1Error
from f1common.orchestrator import allocation, lock_table
from spanstore.testing.checkers import check_snapshot_isolation, require
from spanstore.testing.mutations.mutation import replaced
from tests.sim import orchestrator_world
from tests.sim.orchestrator_world import Setting, World, play

MIXED = Setting()
ROUGH = Setting(pause=0.05, forget=0.01, put_fails=0.08, fail_over=0.02, clients=6)
CALM = Setting(pause=0.0, forget=0.0, put_fails=0.0, fail_over=0.0)
UNCHECKED = replace(MIXED, mode="unchecked")
HOLDING = replace(CALM, mode="unchecked", sweeps=0)
"""Nothing goes wrong and nobody looks for conflicts, so nothing may keep a transaction from committing."""


def check(world: World) -> None:
    require(check_snapshot_isolation(world.history, world.store.decisions))
    if world.setting == HOLDING:
        denied = [txn.start for txn in world.history if txn.writes and not txn.committed]
        assert not denied, f"{denied} held their locks and were failed all the same"


@pytest.mark.parametrize("seed", range(0, 150, 10))
@pytest.mark.parametrize(
    "setting", [MIXED, ROUGH, CALM, UNCHECKED, HOLDING], ids=["mixed", "rough", "calm", "unchecked", "holding"]
)
def test_snapshot_isolation_holds(seed: int, setting: Setting) -> None:
    for one in range(seed, seed + 10):
        check(play(one, setting))


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_snapshot_isolation_holds_in_thousands_of_worlds(first: int) -> None:
    for seed in range(first, first + 250):
        check(play(seed, (MIXED, ROUGH, UNCHECKED, ROUGH)[seed % 4]))


def test_transactions_commit_and_sweeps_remove() -> None:
    worlds = [play(seed, CALM) for seed in range(5)]
    assert all(sum(bool(txn.committed) for txn in world.history) > 10 for world in worlds)
    assert all(sum(report.old_versions for report in world.reports) > 0 for world in worlds)
    assert sum(report.deletes for world in worlds for report in world.reports) > 0
    rough = [play(seed, ROUGH) for seed in range(10)]
    assert sum(report.failed_values for world in rough for report in world.reports) > 0


def test_the_same_seed_plays_the_same_world() -> None:
    assert play(7, ROUGH).store.cells == play(7, ROUGH).store.cells


# ---------------------------------------------------------------------- broken builds


def _taken_for_granted(tokens: int) -> Any:
    """The lock service is not asked whether leases are still held: two of them at commit, one after a read."""

    def change(perform: Callable[..., None]) -> Callable[..., None]:
        def broken(self: World, client: Any, step: Any) -> None:
            if isinstance(step, Validate) and len(step.tokens) == tokens:
                client.waiting, client.answer = None, True
            else:
                perform(self, client, step)

        return broken

    return replaced(World, "_perform", change)


def _answered(owner: Any, name: str, answer: Any) -> Any:
    """A part of the protocol takes no step and returns ``answer``."""

    def steps(*_: Any) -> Any:
        yield from ()
        return answer

    return replaced(owner, name, lambda _: steps)


def _not_waited_for() -> Any:
    def decide(starts: Any, known: Any) -> Any:
        found = yield from protocol.look_up(starts, known)
        for ts in sorted(set(starts) - found.keys()):
            found[ts] = yield from protocol.fail(ts, known)
        return found

    return replaced(protocol, "decide", lambda _: decide)


def _written_late() -> Any:
    """Values carry a timestamp of their commit instead of the start timestamp."""

    def change(commit: Callable[..., Any]) -> Callable[..., Any]:
        def broken(attempt: Attempt, known: Any) -> Any:
            attempt.start_ts = yield NextTimestamp()
            return (yield from commit(attempt, known))

        return broken

    return replaced(protocol, "commit", change)


def _validated_too_early() -> Any:
    """The locks are validated before the values are written, not after."""

    def change(commit: Callable[..., Any]) -> Callable[..., Any]:
        def broken(attempt: Attempt, known: Any) -> Any:
            steps = commit(attempt, known)
            step, answer = next(steps), None
            while True:
                if isinstance(step, Put):
                    validate = Validate((attempt.lease, *([attempt.commit_lease] if attempt.commit_lease else [])))
                    held = yield validate
                    yield step
                    step = steps.send(None)
                    answer = held
                else:
                    answer = yield step
                try:
                    step = steps.send(answer)
                except StopIteration as end:
                    return end.value

        return broken

    return replaced(protocol, "commit", change)


def _horizon_is_now() -> Any:
    def horizon() -> Any:
        return (yield NextTimestamp())

    return replaced(sweeping, "horizon", lambda _: horizon)


def _leases_asked_for_first() -> Any:
    def horizon() -> Any:
        oldest = yield OldestBound()
        now = yield NextTimestamp()
        return now if oldest is None else min(now, oldest)

    return replaced(sweeping, "horizon", lambda _: horizon)


def _leased_after_the_timestamp() -> Any:
    def start(last_ts: int) -> Any:
        start_ts = yield NextTimestamp()
        return Attempt(start_ts, (yield Acquire((), start_ts - 1)))

    return replaced(protocol, "start", lambda _: start)


def _garbage_reversed() -> Any:
    return replaced(sweeping, "_garbage", lambda garbage: lambda *arguments: garbage(*arguments)[::-1])


def _newest_swept() -> Any:
    def change(garbage: Callable[..., list[int]]) -> Callable[..., list[int]]:
        def broken(versions: Any, decisions: Any, report: Any) -> list[int]:
            found = garbage(versions, decisions, report)
            old = [v.ts for v in versions if 0 < decisions.get(v.ts, 0) <= report.horizon]
            return found + [ts for ts in old if ts not in found]

        return broken

    return replaced(sweeping, "_garbage", change)


def _put_over() -> Any:
    """Put-if-absent puts whatever is there."""

    def put(self: Any, write: Write) -> bytes | None:
        self.put(write)
        self.decisions.setdefault(protocol.transaction_of(write.key), protocol.decode_decision(write.value))
        return write.value

    return replaced(orchestrator_world.Store, "put_if_absent", lambda _: put)


BROKEN: dict[str, tuple[Callable[[], AbstractContextManager[None]], Setting]] = {
    "locks are not validated at commit": (lambda: _taken_for_granted(2), MIXED),
    "locks are validated before the values are written": (_validated_too_early, ROUGH),
    "the lease is not looked at after a read": (lambda: _taken_for_granted(1), MIXED),
    "readers do not wait for writers": (_not_waited_for, HOLDING),
    "dead writers are not failed": (lambda: _answered(protocol, "fail", protocol.FAILED), MIXED),
    "decisions are overwritten": (_put_over, MIXED),
    "values are stamped late": (_written_late, MIXED),
    "conflicts are not looked for": (lambda: _answered(protocol, "_has_conflict", False), MIXED),
    "reads are not looked at again": (lambda: _answered(protocol, "_reads_stand", True), MIXED),
    "ranges are not looked at again": (lambda: _answered(protocol, "_range_stands", True), MIXED),
    "the sweep does not ask for running transactions": (_horizon_is_now, MIXED),
    "the sweep asks before it has its timestamp": (_leases_asked_for_first, MIXED),
    "the start timestamp is leased when it is known": (_leased_after_the_timestamp, MIXED),
    "the sweep removes what is in sight": (_newest_swept, MIXED),
    "the sweep removes deletes before what they hide": (_garbage_reversed, ROUGH),
    "the sweep does not fail whom it sweeps": (lambda: _answered(sweeping, "fail", protocol.FAILED), MIXED),
    "the sweep forgets who failed": (lambda: replaced(sweeping, "decode_decision", lambda _: lambda data: 1), ROUGH),
    "a token outlives its lock service": (
        lambda: replaced(lock_table.LockTable, "_find", lambda _: lambda self, token: self._leases.get(token.number)),
        ROUGH,
    ),
    "a leader of timestamps does not look at its lease": (
        lambda: replaced(allocation.Tenure, "is_leased", lambda _: lambda self, now_us: True),
        MIXED,
    ),
    "a candidate does not wait for the lease to end": (
        lambda: replaced(
            allocation.Candidacy,
            "observe",
            lambda _: lambda self, record, version, now_us: allocation.BoundRecord(record.term + 1, record.bound),
        ),
        MIXED,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_build_is_caught(name: str) -> None:
    broken, setting = BROKEN[name]
    for seed in range(300):
        try:
            with broken():
                check(play(seed, setting))
        except (AssertionError, F1Error):
            check(play(seed, setting))
            return
    pytest.fail("300 worlds did not show it")
