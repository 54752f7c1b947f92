"""Databases by seed whose schema changes all the time: neighbouring versions, skewed clocks, late leases, dead servers.

Random stops seldom meet a commit as it is sent: what the fence is for is shown by ``test_late_commits.py``.
Many more: ``python scripts/seeds.py --kinds changes``.
"""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest

import f1
from f1server.catalog.leases import SchemaLeases
from f1server.schemachange.steps import states
from f1server.schemachange.steps.states import ElementClass, ElementState, FigureRow, Path, Step, Work
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.schemachange.work.tablewalk import TableWalks
from f1server.testing.change_worlds import ChangeScenario, ChangeStats, draw, run
from scripts.quiet import quiet
from spanstore.testing.checkers import CheckFailed
from tests.amounts import some


def stats(scenario: ChangeScenario) -> ChangeStats:
    with quiet():
        return run(scenario).value


@pytest.mark.parametrize("seed", some([9], [26, *range(50, 60)]))
def test_seeds(seed: int) -> None:
    found = stats(draw(seed))
    assert found.checks > found.versions


def test_neighbouring_versions_are_at_work_while_changes_come_and_go() -> None:
    found = stats(draw(9).with_(faults=(), orders_ppm=0, run_us=5_000_000))
    assert found.behind > 5
    assert found.versions > 4


def test_same_seed_is_the_same_run() -> None:
    scenario = draw(26).with_(run_us=1_500_000)
    with quiet():
        assert len({run(scenario).trace_hash for _ in range(2)}) == 1


# ---------------------------------------------------------------- it fails where it should


_take = SchemaLeases._take
_snapshot = TableWalks._snapshot


async def for_two_periods(self: SchemaLeases, *args: Any) -> Any:
    held = await _take(self, *args)
    held.lease_end += self._lease_us
    return held


async def too_early(self: TableWalks, key: bytes) -> int:
    return await _snapshot(self, key) - 1_500_000


async def unverified(*_: Any) -> None:
    """Believe that all went well."""


NO_WRITE_ONLY = Path(
    ElementState.ABSENT,
    (Step(FigureRow.FIRST, ElementState.DELETE_ONLY), Step(FigureRow.THIRD, ElementState.PUBLIC)),
    Work.FILL,
)
PAUSES: dict[str, Any] = {
    "faults": (("pause", 5),),
    "fault_interval_us": 400_000,
    "fault_duration_us": 1_500_000,
    "kinds": ("index", "required column", "lock", "column"),
}
BROKEN: Mapping[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "a lease is taken as valid for twice its period": (
        SchemaLeases,
        "_take",
        for_two_periods,
        {"late_ppm": 300_000, "faults": (("partition", 1),)},
    ),
    "required columns skip write-only": (
        states,
        "PATHS",
        {**states.PATHS, (ElementClass.REQUIRED, ElementState.PUBLIC): NO_WRITE_ONLY},
        {"kinds": ("required column",)},
    ),
    "the reorganiser's snapshot is too early": (TableWalks, "_snapshot", too_early, {"kinds": ("index",)}),
}


def restless(seed: int, **changes: Any) -> ChangeScenario:
    """Three servers that write much, whose schema changes by what matters here."""
    usual: dict[str, Any] = {"kinds": ("index", "required column"), "naughty": False, "orders_ppm": 0}
    usual |= {"write_pause_ms": 25, "run_us": 6_000_000}
    return ChangeScenario(seed=seed, **(usual | changes))


_QUICK = "required columns skip write-only"


@pytest.mark.parametrize("name", [_QUICK, *(pytest.param(n, marks=pytest.mark.long) for n in BROKEN if n != _QUICK)])
def test_broken_servers_are_caught(name: str) -> None:
    """By the seven clauses, also where a verification before public would have kept the harm from users."""
    target, attribute, broken, changes = BROKEN[name]
    for seed in range(1, 9):
        try:
            with patch.object(target, attribute, broken), patch.object(Reorganiser, "verify", unverified):
                stats(restless(seed, **changes))
        except CheckFailed:
            return
    pytest.fail(f"8 seeds did not notice: {name}")


@pytest.mark.parametrize(
    "name", [_QUICK, pytest.param("the reorganiser's snapshot is too early", marks=pytest.mark.long)]
)
def test_what_a_broken_server_fills_is_refused_before_it_is_public(name: str) -> None:
    target, attribute, broken, changes = BROKEN[name]
    with patch.object(target, attribute, broken), pytest.raises(f1.InternalError, match="was not made public"):
        for seed in range(1, 9):
            stats(restless(seed, **changes))


def test_servers_that_are_not_broken_pass() -> None:
    """What finds the broken ones finds nothing in the code as it is."""
    assert stats(restless(0, **PAUSES)).behind
