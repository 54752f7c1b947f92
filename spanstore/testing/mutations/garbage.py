"""Defects of garbage collection: what is needed goes, what is gone is answered.

Functions without an underscore are no :data:`MUTATIONS`: no workload deletes rows or scans slowly, so tests of their
own look for what these break.
"""

from collections.abc import Callable
from typing import Any

from spanstore.group import collecting, reads
from spanstore.mvcc import collect
from spanstore.runtime import collector
from spanstore.scan import cursor
from spanstore.testing.mutations.mutation import FAST, Mutation, replaced
from spanstore.testing.scenarios import Scenario
from spanstore.txn import outcomes

SHORT: dict[str, Any] = {"version_keep_ms": 200, "outcome_keep_ms": 3_600_000, "max_down": 1}
"""Old versions go while the run lasts."""


def _busy(scenario: Scenario, workload: str, **changes: Any) -> Scenario:
    """Many clients on few keys of two groups, without faults."""
    usual: dict[str, Any] = {"clients": 5, "keys": 4, "groups": 2, "pause_us": 4_000, "run_us": 5_000_000}
    return scenario.with_(workload=workload, faults=(), **{**usual, **SHORT, **changes})


def _pins_overlooked() -> Any:
    return replaced(collector, "highest_mark", lambda _: lambda read_ts, keep_us, pins: read_ts - keep_us)


def _pins_end_early() -> Any:
    """A pin counts only while this leader's read is well before its end, as if it had expired half a second early."""

    def change(highest: Callable[..., int]) -> Callable[..., int]:
        def broken(read_ts: int, keep_us: int, pins: Any) -> int:
            return highest(read_ts, keep_us, [pin for pin in pins if pin.expires_ts > read_ts + 500_000])

        return broken

    return replaced(collector, "highest_mark", change)


def _newest_removed_too() -> Any:
    """The newest version at or below the mark is taken for garbage like those under it."""

    def change(find: Callable[..., collect.Found]) -> Callable[..., collect.Found]:
        def broken(reader: Any, group: int, position: bytes, mark_ts: int, **limits: Any) -> collect.Found:
            found = find(reader, group, position, mark_ts, **limits)
            found.garbage = [g._replace(newest_ts=mark_ts) for g in found.garbage]
            return found

        return broken

    return replaced(collecting, "find_garbage", change)


def delete_before_the_rest() -> Any:
    """Of a deleted row, the delete goes and what it hid stays."""

    def change(find: Callable[..., collect.Found]) -> Callable[..., collect.Found]:
        def broken(*arguments: Any, **limits: Any) -> collect.Found:
            found = find(*arguments, **limits)
            found.garbage = [g._replace(oldest_ts=g.newest_ts) for g in found.garbage]
            return found

        return broken

    return replaced(collecting, "find_garbage", change)


def read_below_the_mark() -> Any:
    """Reads, and scans when they begin, do not look at the mark."""
    return replaced(reads, "check_readable", lambda _: lambda *arguments: None)


def scan_below_the_mark() -> Any:
    """Scans do not look at the mark again in the views that they read: for a test that lets one take long."""
    return replaced(cursor, "check_readable", lambda _: lambda *arguments: None)


def _outcome_forgotten() -> Any:
    def change(_: Any) -> Callable[..., bool]:
        def broken(record: outcomes.OutcomeRecord, before_ts: int, unsettled: Any = ()) -> bool:
            return record.created_ts < before_ts and record.decided_ts < before_ts

        return broken

    return replaced(outcomes, "collectable", change)


def _expired_is_aborted() -> Any:
    def change(judge: Callable[..., outcomes.Verdict]) -> Callable[..., outcomes.Verdict]:
        def broken(record: Any, attempt: int, *arguments: Any) -> outcomes.Verdict:
            verdict = judge(record, attempt, *arguments)
            return outcomes.AlreadyAborted(attempt) if isinstance(verdict, outcomes.Expired) else verdict

        return broken

    return replaced(outcomes, "judge_attempt", change)


def unchanged_below_the_mark() -> Any:
    """Whether a range has changed since a timestamp below the mark is tested on what is left of it."""

    def change(evaluate: Callable[..., Any]) -> Callable[..., Any]:
        return lambda tests, latest, newest, mark_ts=0, *rest: evaluate(tests, latest, newest, 0, *rest)

    return replaced(outcomes, "evaluate", change)


def _mark_above_undecided(scenario: Scenario) -> Scenario:
    """Drivers die between prepare and decision, and what they prepared stays for longer than versions are kept."""
    return _busy(scenario, "bank", **FAST).with_(
        faults=(("client_crash", 1),), fault_interval_us=100_000, fault_duration_us=50_000
    )


def _mark_ignores_safe_time() -> Any:
    def change(step: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, reader, now, safe_ts: step(self, reader, now, 1 << 62)

    return replaced(collecting.Collecting, "step", change)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "mark_raised_past_pin",
        "leaders raise their garbage marks without a look at the pins",
        _pins_overlooked,
        lambda scenario: _busy(scenario, "commits"),
    ),
    Mutation(
        "pin_ends_early",
        "leaders take pins for expired half a second before they are",
        _pins_end_early,
        lambda scenario: _busy(scenario, "commits"),
    ),
    Mutation(
        "newest_version_removed",
        "the newest version at or below the mark is removed with those that it hides",
        _newest_removed_too,
        lambda scenario: _busy(scenario, "bank"),
    ),
    Mutation(
        "read_below_the_mark",
        "reads below the garbage mark are answered from what is left",
        read_below_the_mark,
        lambda scenario: _busy(scenario, "bank"),
    ),
    Mutation(
        "mark_ignores_safe_time",
        "the garbage mark may pass transactions that are prepared",
        _mark_ignores_safe_time,
        _mark_above_undecided,
    ),
    Mutation(
        "outcome_forgotten",
        "an outcome record is dropped by its age, though a participant still has the transaction prepared",
        _outcome_forgotten,
        lambda scenario: _mark_above_undecided(scenario).with_(outcome_keep_ms=500),
    ),
    Mutation(
        "expired_is_aborted",
        "an id that is older than outcomes are kept is called aborted",
        _expired_is_aborted,
        lambda scenario: _busy(scenario, "commits", outcome_keep_ms=500),
    ),
)
