"""Defects of transactions: locks, timestamps, fences, outcomes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec.structs import replace

from spanstore.client import transaction
from spanstore.client.twophase import Plan
from spanstore.group import storage
from spanstore.group.bundling import Bundling
from spanstore.group.group import Group
from spanstore.group.leader_reads import LeaderReads
from spanstore.group.lock_queue import Parked
from spanstore.group.outbox import Outbox, Ticket
from spanstore.group.requests import Commit, Outcome, OutcomeReply, Prepare, TxnWork
from spanstore.group.state import ReplicatedState
from spanstore.group.tenure import Tenure
from spanstore.mvcc.safetime import LeaderSafeTime
from spanstore.mvcc.timestamps import TimestampOracle
from spanstore.testing.mutations.mutation import FAST, Mutation, replaced
from spanstore.testing.scenarios import Scenario
from spanstore.txn import outcomes
from spanstore.txn.commands import CommitCmd, PrepareCmd
from spanstore.txn.locks import LockTable

_CALM: dict[str, Any] = {"faults": (), "max_down": 1}
_TURNOVER: dict[str, Any] = {
    **FAST,
    "faults": (("handover", 3), ("crash", 2)),
    "fault_interval_us": 300_000,
    "fault_duration_us": 100_000,
    "max_down": 1,
}
"""Leaders come and go."""
_SHARED: dict[str, Any] = {"together": 8, "clients": 2, "pause_us": 500}
"""Clients that commit many things at a time."""


def _busy(scenario: Scenario, workload: str, **changes: Any) -> Scenario:
    """Many clients on few keys of two groups."""
    usual = {"clients": 5, "keys": 4, "groups": 2, "pause_us": 2_000, "run_us": 4_000_000, "together": 1}
    return scenario.with_(workload=workload, **{**usual, **changes})


def _prepared_forgotten() -> Any:
    def change(init: Callable[..., None]) -> Callable[..., None]:
        def broken(state: ReplicatedState, *arguments: Any) -> None:
            init(state, *arguments)
            state.prepared.clear()

        return broken

    return replaced(ReplicatedState, "__init__", change)


def _prepared_locks_forgotten() -> Any:
    return replaced(LockTable, "restore_prepared", lambda _: lambda *arguments: None)


def _fence_skipped() -> Any:
    def change(commit_ts: Callable[..., Any]) -> Callable[..., Any]:
        def broken(oracle: TimestampOracle, now: Any, **arguments: Any) -> Any:
            return commit_ts(oracle, now, **(arguments | {"deadline": None}))

        return broken

    return replaced(TimestampOracle, "commit_ts", change)


def _locks_released_early() -> Any:
    def change(propose: Callable[..., None]) -> Callable[..., None]:
        def broken(tenure: Tenure, command: Any, tickets: list[Ticket]) -> None:
            propose(tenure, command, tickets)
            if isinstance(command, CommitCmd | PrepareCmd):
                tenure._waiting.granted(tenure._locks.release(command.txn.unique))

        return broken

    return replaced(Tenure, "_propose", change)


def _floor_ignored() -> Any:
    return replaced(TimestampOracle, "raise_floor", lambda _: lambda oracle, ts: None)


@contextmanager
def _executed_twice() -> Iterator[None]:
    """Neither the leader nor the replicas look at what is recorded."""

    def fresh(_: Any) -> Callable[..., Any]:
        return lambda *arguments: outcomes.Fresh()

    def commit(original: Callable[..., None]) -> Callable[..., None]:
        def broken(*arguments: Any) -> None:
            with replaced(outcomes, "judge_attempt", fresh):
                original(*arguments)

        return broken

    def record(_: Any) -> Callable[..., Any]:
        return lambda before, *commit: outcomes.OutcomeRecord.committed(*commit)

    with ExitStack() as stack:
        stack.enter_context(replaced(Tenure, "_commit", commit))
        stack.enter_context(replaced(outcomes, "after_commit", record))
        yield


def _reads_below_undecided() -> Any:
    return replaced(LeaderReads, "_undecided_below", lambda _: lambda *arguments: None)


@contextmanager
def _reads_below_undecided_beside() -> Iterator[None]:
    def blind(look: Callable[..., None]) -> Callable[..., None]:
        def broken(group: Group, *arguments: Any) -> None:
            look(group, *arguments)
            if group._tenure is not None:
                group._tenure._reads._undecided = LeaderSafeTime()

        return broken

    def seeing(begin_turn: Callable[..., None]) -> Callable[..., None]:
        def broken(tenure: Tenure, *arguments: Any) -> None:
            tenure._reads._undecided = tenure._undecided
            begin_turn(tenure, *arguments)

        return broken

    with replaced(Group, "begin_beside", blind), replaced(Tenure, "begin_turn", seeing):
        yield


def _safe_time_runs_ahead() -> Any:
    return replaced(LeaderSafeTime, "safe_ts", lambda _: lambda undecided, now, ceiling: min(now.latest, ceiling))


@contextmanager
def _no_commit_wait() -> Iterator[None]:
    def release(_: Any) -> Callable[..., None]:
        def broken(tenure: Tenure) -> None:
            while tenure._releases:
                tenure._waiting.granted(tenure._locks.release(tenure._releases.pop(0)[1]))

        return broken

    def send(_: Any) -> Callable[..., None]:
        def broken(outbox: Outbox, reply: Any, answer: Any, visible_ts: int) -> None:
            outbox.send(reply, answer)

        return broken

    with ExitStack() as stack:
        stack.enter_context(replaced(Outbox, "send_after", send))
        stack.enter_context(replaced(Tenure, "_release_visible", release))
        yield


def _held_unverified() -> Any:
    def change(lock_for_work: Callable[..., None]) -> Callable[..., None]:
        def broken(tenure: Tenure, ticket: Ticket, work: TxnWork, policy: Any) -> None:
            lock_for_work(tenure, ticket, replace(work, held=()), policy)

        return broken

    return replaced(Tenure, "_lock_for_work", change)


def _aborted_from_ignorance() -> Any:
    def change(outcome: Callable[..., None]) -> Callable[..., None]:
        def broken(tenure: Tenure, ticket: Ticket, request: Outcome) -> None:
            recorded = storage.load_outcome(tenure._reader, tenure.group, request.txn)
            unknown = recorded is None and not tenure._flights.has(request.txn.unique)
            if unknown and not request.peek:
                tenure._out.send(ticket.reply, OutcomeReply(False, 0, request.txn.attempt))
            else:
                outcome(tenure, ticket, request)

        return broken

    return replaced(Tenure, "_outcome", change)


@contextmanager
def _tested_before_locks() -> Iterator[None]:
    """Preconditions are evaluated when the request arrives, and not again when its locks are held."""

    def early(lock_for_work: Callable[..., None]) -> Callable[..., None]:
        def broken(tenure: Tenure, ticket: Ticket, work: TxnWork, policy: Any) -> None:
            failure = outcomes.evaluate(work.preconditions, *storage.newest_of(tenure._reader, tenure.group))
            if failure is not None:
                tenure._kill(work.txn.unique, failure.message)
                raise failure.error()
            lock_for_work(tenure, ticket, work, policy)

        return broken

    def late(original: Callable[..., None]) -> Callable[..., None]:
        def broken(tenure: Tenure, parked: Parked) -> None:
            request = parked.ticket.request
            if isinstance(request, Commit | Prepare):
                tenure._stamp(parked)
            else:
                original(tenure, parked)

        return broken

    with ExitStack() as stack:
        stack.enter_context(replaced(Tenure, "_lock_for_work", early))
        stack.enter_context(replaced(Tenure, "_go", late))
        yield


def _bundles_lock_over_others() -> Any:
    def change(acquire_free: Callable[..., bool]) -> Callable[..., bool]:
        def broken(*arguments: Any) -> bool:
            with (
                replaced(LockTable, "_clashing_holders", lambda _: lambda *arguments: set()),
                replaced(LockTable, "_clashing_requests", lambda _: lambda *arguments: []),
            ):
                return acquire_free(*arguments)

        return broken

    return replaced(LockTable, "acquire_free", change)


def _bundles_untested() -> Any:
    def change(take: Callable[..., Any]) -> Callable[..., Any]:
        def broken(bundling: Bundling, work: TxnWork, *arguments: Any) -> Any:
            return take(bundling, replace(work, preconditions=()), *arguments)

        return broken

    return replaced(Bundling, "_take", change)


def _readers_left_out() -> Any:
    def change(plan: Callable[..., Plan]) -> Callable[..., Plan]:
        def broken(*arguments: Any) -> Plan:
            made = plan(*arguments)
            writers = {
                group: share
                for group, share in made.shares.items()
                if share.writes or share.preconditions or group == made.coordinator
            }
            return replace(made, shares=writers)

        return broken

    return replaced(transaction.Transaction, "_plan", change)


def _skewed(scenario: Scenario, workload: str, bound_us: int) -> Scenario:
    """Clocks at opposite ends of their bound."""
    return _busy(scenario, workload, **_TURNOVER).with_(
        clock_bound_us=bound_us,
        faults=(("handover", 4), ("clock_jump", 3)),
        fault_interval_us=150_000,
    )


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "prepare_forgotten",
        "a restarted replica does not load what it had prepared",
        _prepared_forgotten,
        lambda scenario: _busy(scenario, "bank", **_TURNOVER),
    ),
    Mutation(
        "prepared_locks_forgotten",
        "a new leader serves without the locks of prepared transactions",
        _prepared_locks_forgotten,
        lambda scenario: _busy(scenario, "bank", **_TURNOVER),
    ),
    Mutation(
        "fence_skipped",
        "the coordinator does not compare the timestamp that it chose with the deadline",
        _fence_skipped,
        lambda scenario: _busy(scenario, "commits", link_min_us=5_000, link_mean_extra_us=10_000, **_CALM),
    ),
    Mutation(
        "lock_released_early",
        "locks go when the command is proposed, not when it is applied and visible",
        _locks_released_early,
        lambda scenario: _busy(scenario, "bank", **_CALM),
    ),
    Mutation(
        "timestamp_not_ratcheted",
        "a new leader starts at its own clock, not above the ceilings and timestamps of those before it",
        _floor_ignored,
        lambda scenario: _skewed(scenario, ("bank", "register", "commits")[scenario.seed % 3], 50_000),
    ),
    Mutation(
        "commit_id_executed_twice",
        "neither leader nor replicas remember which commit ids were executed",
        _executed_twice,
        lambda scenario: _busy(scenario, "commits", faults=(("reset", 1),), fault_interval_us=300_000),
    ),
    Mutation(
        "read_below_undecided",
        "a read does not wait for commits that may get a timestamp below its own",
        _reads_below_undecided,
        lambda scenario: _busy(scenario, "bank", **_CALM),
    ),
    Mutation(
        "read_beside_below_undecided",
        "a read that arrives while the disk works does not wait for what is being written",
        _reads_below_undecided_beside,
        lambda scenario: _busy(scenario, "register", **_CALM, disk_min_us=10_000),
    ),
    Mutation(
        "safe_time_runs_ahead",
        "safe time is not held back by prepared transactions and commits in flight",
        _safe_time_runs_ahead,
        lambda scenario: _busy(scenario, "commits", **_CALM),
    ),
    Mutation(
        "commit_wait_skipped",
        "commits are answered, and their locks released, before their timestamps have passed",
        _no_commit_wait,
        lambda scenario: _busy(scenario, "bank", **_CALM).with_(clock_bound_us=50_000),
    ),
    Mutation(
        "held_locks_unverified",
        "commit and prepare do not verify that the locks taken by the reads are still held",
        _held_unverified,
        lambda scenario: _busy(scenario, "bank", **_TURNOVER),
    ),
    Mutation(
        "abort_not_logged",
        "asked about an attempt that it never heard of, the coordinator says aborted without logging that",
        _aborted_from_ignorance,
        lambda scenario: _busy(scenario, "commits", **_CALM),
    ),
    Mutation(
        "tested_before_locked",
        "preconditions are tested when the request arrives, not under its locks",
        _tested_before_locks,
        lambda scenario: _busy(scenario, "bank" if scenario.seed % 2 else "register", **_CALM),
    ),
    Mutation(
        "bundled_over_locks",
        "commits that come together take locks that others hold",
        _bundles_lock_over_others,
        lambda scenario: _busy(scenario, "register", **_CALM, **_SHARED),
    ),
    Mutation(
        "bundled_untested",
        "the preconditions of commits that come together are not tested",
        _bundles_untested,
        lambda scenario: _busy(scenario, "register", **_CALM, **_SHARED),
    ),
    Mutation(
        "readers_left_out",
        "a group in which a transaction only holds shared locks does not take part in its commit",
        _readers_left_out,
        lambda scenario: _busy(scenario, "list_append", **_TURNOVER),
    ),
)
