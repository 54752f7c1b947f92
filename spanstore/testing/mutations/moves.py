"""Defects of the moves of ranges between groups."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from msgspec.structs import replace

from spanstore.group import exporting
from spanstore.group.moves import Moves
from spanstore.group.state import ReplicatedState
from spanstore.group.tenure import Tenure
from spanstore.placement import copying
from spanstore.placement.jobs import JobState
from spanstore.runtime.mover import Mover
from spanstore.testing.mutations.mutation import FAST, Mutation, replaced
from spanstore.testing.scenarios import Scenario
from spanstore.testing.scenarios.aims import there_and_back
from spanstore.txn.commands import CopyStage, OwnCmd, Progress

_OVERLAP_S = 0.05


def _moving(scenario: Scenario, workload: str, **changes: Any) -> Scenario:
    """Many clients on few keys of two groups, and ranges that move all the time."""
    base = scenario.with_(workload=workload, clients=5, keys=4, groups=2, pause_us=2_000, run_us=4_000_000)
    return base.with_(**FAST, moves_us=150_000, faults=(), max_down=1).with_(**changes)


def _own_before_cede() -> Any:
    def change(step: Callable[..., Any]) -> Callable[..., Any]:
        async def broken(mover: Mover, row: Any) -> Any:
            if row.job.state is JobState.CEDING:
                copy = await mover._calls.begin(row.job)
                if copy is not None:
                    await mover._calls.stage(row.job, copy, replace(copy.progress, stage=CopyStage.READY))
                    await mover._calls.own(row.job, mover._client.strong_timestamp(), 0)
                    await asyncio.sleep(_OVERLAP_S)
            return await step(mover, row)

        return broken

    return replaced(Mover, "_step", change)


def _nothing_waited_for() -> Any:
    def change(drain: Callable[..., bool]) -> Callable[..., bool]:
        def broken(*arguments: Any) -> bool:
            drain(*arguments)
            return True

        return broken

    return replaced(Tenure, "drain", change)


@contextmanager
def _floor_left() -> Iterator[None]:
    def move(original: Callable[..., None]) -> Callable[..., None]:
        def broken(state: ReplicatedState, command: Any, batch: Any) -> None:
            original(state, replace(command, floor_ts=0) if isinstance(command, OwnCmd) else command, batch)

        return broken

    with ExitStack() as stack:
        stack.enter_context(replaced(Tenure, "promise", lambda _: lambda tenure, ts: None))
        stack.enter_context(replaced(ReplicatedState, "_move", move))
        yield


def _rest_forgotten() -> Any:
    def change(begin_last: Callable[..., Any]) -> Callable[..., Any]:
        return lambda progress: replace(begin_last(progress), stage=CopyStage.LAST_OUTCOMES)

    return replaced(copying, "begin_last", change)


def _outcomes_forgotten() -> Any:
    def change(is_new: Callable[..., bool]) -> Callable[..., bool]:
        return lambda key, value, request: request.stage not in exporting.OUTCOMES and is_new(key, value, request)

    return replaced(exporting, "_is_new", change)


def _leftovers_kept() -> Any:
    def change(next_clear: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: replace(next_clear(*arguments), progress=Progress(CopyStage.ROWS), clear=None)

    return replaced(Moves, "_next_clear", change)


def _old_data_kept() -> Any:
    """Neither does a group remove what it has given away, nor what it still has of a range that comes back."""
    return replaced(exporting, "leftovers", lambda _: lambda *arguments: None)


def _late_outcomes_forgotten() -> Any:
    """What was decided since the last pass stays behind."""

    def change(is_new: Callable[..., bool]) -> Callable[..., bool]:
        return lambda key, value, request: request.stage is not CopyStage.LAST_OUTCOMES and is_new(key, value, request)

    return replaced(exporting, "_is_new", change)


def _closed_to_nobody() -> Any:
    """Requests in a range that is being given up are taken in as before."""

    def change(admit: Callable[..., None]) -> Callable[..., None]:
        def broken(moves: Moves, request: Any) -> None:
            closing, moves._closing = moves._closing, None
            try:
                admit(moves, request)
            finally:
                moves._closing = closing

        return broken

    return replaced(Moves, "admit", change)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "own_before_cede",
        "the new group owns a range before the old one has given it up",
        _own_before_cede,
        lambda scenario: _moving(scenario, "bank"),
    ),
    Mutation(
        "cede_waits_for_nobody",
        "a range is given up while commands and prepared transactions in it are under way",
        _nothing_waited_for,
        lambda scenario: _moving(scenario, "bank"),
    ),
    Mutation(
        "last_rows_forgotten",
        "what was committed after the last pass stays behind",
        _rest_forgotten,
        lambda scenario: _moving(scenario, "bank"),
    ),
    Mutation(
        "outcomes_forgotten",
        "the records of outcomes stay behind when their anchors move",
        _outcomes_forgotten,
        lambda scenario: _moving(scenario, "commits", faults=(("reset", 1),), fault_interval_us=300_000),
    ),
    Mutation(
        "late_outcomes_forgotten",
        "the outcomes that were decided after the last pass stay behind when their anchors move",
        _late_outcomes_forgotten,
        lambda scenario: _moving(scenario, "commits", faults=(("reset", 1),), fault_interval_us=100_000),
    ),
    Mutation(
        "old_data_kept",
        "a range that comes back finds what the group had of it before",
        _old_data_kept,
        lambda scenario: there_and_back(scenario).with_(faults=()),
    ),
    Mutation(
        "closed_to_nobody",
        "a range that is being given up takes in requests as before",
        _closed_to_nobody,
        lambda scenario: _moving(scenario, "register", link_min_us=5_000, disk_min_us=10_000),
    ),
)

BY_HAND: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    # Whoever writes in the range soon after its move has heard the time of the old group, and brings it along: some
    # commits of other keys lie below the floor in such runs, those in the range do not.
    "floor_left_where_it_was": _floor_left,
    # Needs tombstones that were collected: what is left over is old, but true, until then.
    "leftovers_kept": _leftovers_kept,
}
"""Defects that seeds show too rarely: tests of the group step by step (tests/unit/group/test_moves.py) catch them."""
