"""Databases by seed whose roles change beside schema changes: what was revoked is used by nobody and never comes back.

Many more: ``python scripts/seeds.py --kinds roles``.
"""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from f1server.catalog import carriedroles
from f1server.schemachange import executor, rolechanges
from f1server.schemachange.jobs.jobs import Job
from f1server.schemachange.jobs.ownership import Owner
from f1server.testing.change_worlds import ChangeScenario, ChangeStats, draw_roles, run
from scripts.quiet import quiet
from spanstore.testing.checkers import CheckFailed
from tests.amounts import some


def stats(scenario: ChangeScenario) -> ChangeStats:
    with quiet():
        return run(scenario).value


@pytest.mark.parametrize("seed", some([8], [3, 14, *range(20, 26)]))
def test_seeds(seed: int) -> None:
    found = stats(draw_roles(seed))
    assert found.role_changes
    assert found.checks > found.versions


def test_roles_change_beside_other_changes_and_users_commit_meanwhile() -> None:
    # In some worlds users may write next to nothing most of the time.
    found = [stats(restless(seed)) for seed in (1, 2)]
    assert all(each.beside > 3 for each in found)
    assert sum(each.user_commits for each in found) > 20


def test_same_seed_is_the_same_run() -> None:
    scenario = draw_roles(8).with_(run_us=1_500_000)
    with quiet():
        assert len({run(scenario).trace_hash for _ in range(2)}) == 1


# ---------------------------------------------------------------- it fails where it should


def restless(seed: int, **changes: Any) -> ChangeScenario:
    """Three servers whose indexes and tables come and go, while two admins change roles."""
    usual: dict[str, Any] = {"kinds": ("index", "required column", "table", "another parent"), "naughty": False}
    usual |= {"admins": 2, "orders_ppm": 0, "lease_ms": 500, "clock_bound_us": 5_000, "late_ppm": 0, "crossing": False}
    usual |= {"deaf_ppm": 200_000, "write_pause_ms": 300, "run_us": 4_000_000}
    return ChangeScenario(seed=seed, **(usual | changes))


_read, _fence = Owner._read, Owner.fence
_carried, _change_roles = carriedroles.carried, rolechanges.change_roles


async def remembers_its_own_ends(self: Owner) -> None:
    base, goal = self.job.base, self.job.goal
    await _read(self)
    self.row = replace(self.row, job=replace(self.job, base=base, goal=goal))


async def does_not_compare(self: Owner, planned: Job) -> Any:
    return await _fence(self, await self.look())


def only_to_where_it_goes(made: Any, target: Any, *, ahead: bool) -> Any:
    return _carried(made, target, ahead=ahead) if ahead else target


def only_to_where_it_came_from(made: Any, target: Any, *, ahead: bool) -> Any:
    return target if ahead else _carried(made, target, ahead=ahead)


async def in_haste(change: Any, store: Any, jobs: Any, clock: Any, converge: Any) -> Any:
    async def at_once(*_: Any) -> None:
        """Believe that all servers have it."""

    return await _change_roles(change, store, jobs, clock, at_once)


BROKEN: Mapping[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "the owner writes its old goal back": (Owner, "_read", remembers_its_own_ends, {}),
    "the owner writes what it planned before": (Owner, "fence", does_not_compare, {}),
    "the goal stays as it was": (rolechanges, "carried", only_to_where_it_came_from, {}),
    "the schema of before stays as it was": (rolechanges, "carried", only_to_where_it_goes, {"orders_ppm": 1_000_000}),
    "REVOKE does not wait for all servers": (executor, "change_roles", in_haste, {"deaf_ppm": 1_000_000, "admins": 7}),
}
"""What shows each soon: an admin for each fact has every right given and taken away again and again."""


_QUICK = "the owner writes its old goal back"


@pytest.mark.parametrize("name", [_QUICK, *(pytest.param(n, marks=pytest.mark.long) for n in BROKEN if n != _QUICK)])
def test_broken_servers_are_caught(name: str) -> None:
    target, attribute, broken, changes = BROKEN[name]
    for seed in range(2, 10):
        try:
            with patch.object(target, attribute, broken):
                stats(restless(seed, **changes))
        except CheckFailed as failed:
            assert "rights" in str(failed) or "roles" in str(failed)
            return
    pytest.fail(f"8 seeds did not notice: {name}")
