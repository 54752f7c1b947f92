"""The kinds of simulated worlds of which `scripts/seeds.py` runs thousands.

A kind turns a seed into one run that raises if anything is wrong. `code` names the files whose text decides what such a
run does and finds: a count of seeds belongs to that text, whatever else is in the commit.
"""

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanstore.testing.sim.world import simulated_us

ROOT = Path(__file__).resolve().parents[1]

CORE_CODE = ("f1common/clock.py", "f1common/errors.py", "spanstore/paxos", "spanstore/testing/paxos_*.py")
STORAGE_CODE = ("f1common", "spanstore")
DATABASE_CODE = (*STORAGE_CODE, "f1server", "master", "slavepool", "client/f1")
PROTOCOL_CODE = ("client/f1/orchestrator", "f1common/orchestrator", "f1common/encoding", "spanstore/testing/checkers")
SERVICES_CODE = (*STORAGE_CODE, "client/f1/orchestrator", "txservices")
NOT_RUN = ("spanstore/tools/", "spanstore/testing/mutations/", "spanstore/testing/paxos_", "f1common/rpc/health")
"""What is in the folders that count and no world of theirs runs."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of world.

    `seeds` is how many `seeds.py` runs by default, `first` where they begin: tests use lower ones. `whole` tells whole
    clusters from worlds that have no replicas of data on servers. `batch` seeds go to a process at a time.
    """

    name: str
    what: str
    run: Callable[[int], float]
    """Runs a seed and returns the simulated seconds. Raises whatever is wrong."""
    code: tuple[str, ...]
    seeds: int
    first: int = 100_000
    whole: bool = True
    batch: int = 1

    @property
    def range(self) -> range:
        """The seeds that are run by default."""
        return range(self.first, self.first + self.seeds)

    def digest(self, root: Path = ROOT) -> str:
        """Return twelve digits that stand for the text of the code that counts."""
        total = hashlib.sha256()
        for path in sorted({path for pattern in self.code for path in _files(root, pattern)}):
            total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        return total.hexdigest()[:12]


def _files(root: Path, pattern: str) -> Iterator[Path]:
    for path in root.glob(pattern):
        if path.is_file():
            yield path
        for file in path.rglob("*.py"):
            if not file.relative_to(root).as_posix().startswith(NOT_RUN):
                yield file


def _core(module: str, name: str, **length: int) -> Callable[[int], float]:
    def run(seed: int) -> float:
        world = getattr(importlib.import_module(f"spanstore.testing.{module}"), name)(seed)
        world.run(**length)
        return float(world.time / 1e6)

    return run


def _timed(run: Callable[[int], None]) -> Callable[[int], float]:
    """The same, with the virtual time of all simulations that ended in it."""

    def timed(seed: int) -> float:
        before_us = simulated_us()
        run(seed)
        return (simulated_us() - before_us) / 1e6

    return timed


def _cluster(bend: Callable[[Any], Any]) -> Callable[[int], float]:
    def run(seed: int) -> None:
        from spanstore.testing import scenarios

        scenarios.run(bend(scenarios.draw(seed)))

    return _timed(run)


def _dense(scenario: Any) -> Any:
    """Half as long, with as many faults: clusters start and heal as before, and more of them run."""
    return scenario.with_(
        run_us=scenario.run_us // 2,
        fault_interval_us=scenario.fault_interval_us // 2,
        fault_duration_us=scenario.fault_duration_us // 2,
    )


def _moving(scenario: Any) -> Any:
    return _dense(scenario).with_(moves_us=150_000)


def _balanced(scenario: Any) -> Any:
    return _dense(scenario).with_(balance=True)


def _back(scenario: Any) -> Any:
    from spanstore.testing.scenarios.aims import there_and_back

    return there_and_back(scenario)


def _absent(scenario: Any) -> Any:
    from spanstore.testing.scenarios.aims import absences

    return absences(scenario)


@_timed
def _database(seed: int) -> None:
    from f1server.testing import scenario

    scenario.run(scenario.draw(seed))


@_timed
def _spread_database(seed: int) -> None:
    from f1server.testing import scenario

    scenario.run(scenario.draw(seed, spread=True))


@_timed
def _changes(seed: int) -> None:
    from f1server.testing import change_worlds

    change_worlds.run(change_worlds.draw(seed))


@_timed
def _roles(seed: int) -> None:
    from f1server.testing import change_worlds

    change_worlds.run(change_worlds.draw_roles(seed))


@_timed
def _change_faults(seed: int) -> None:
    """One kind of change with one kind of fault, at every write that it makes."""
    from f1server.testing import change_faults

    change_faults.run_all(seed)


@_timed
def _sites(seed: int) -> None:
    from spanstore.testing.sim.world import WorldConfig, run_sim
    from spanstore.testing.sites import measure
    from tests.sim import test_sites

    report = run_sim(measure, seed, WorldConfig(clock_bound_us=test_sites.CLOCK_BOUND_US, max_drift_ppm=100))
    for name, check in vars(test_sites).items():
        if name.startswith("test_"):
            check(report)


def _tests(module: str, *cases: tuple[str, Mapping[str, Any]]) -> Callable[[int], float]:
    """Tests that take a seed, in turn, each with all its other arguments given."""

    def run(seed: int) -> None:
        name, arguments = cases[seed % len(cases)]
        getattr(importlib.import_module(f"tests.sim.{module}"), name)(seed=seed, **arguments)

    return _timed(run)


_DIFFERS = "test_a_replica_that_differs_is_found_by_the_others_and_out"
_WRONG_CLOCK = "test_a_leader_whose_clock_is_wrong_leads_no_more_and_drags_nobody_along"
_disks = _tests(
    "test_disks",
    *((_DIFFERS, {"lost": lost, "leads": leads}) for lost in (False, True) for leads in (False, True)),
    ("test_sound_replicas_never_differ", {}),
    *((_WRONG_CLOCK, {"error_us": error_us}) for error_us in (3_600_000_000, -3_600_000_000, 200_000)),
    ("test_a_boot_clock_that_drifts_beyond_its_bound_is_reported", {}),
    ("test_leadership_leaves_a_server_without_room_and_all_without_refuse_writes", {}),
    ("test_leadership_leaves_a_server_whose_syncs_take_three_seconds", {}),
    ("test_a_damaged_row_is_not_read", {}),
)
_servers = _tests(
    "test_servers",
    ("test_a_server_is_emptied_and_removed_while_clients_write", {}),
    ("test_a_dead_server_is_replaced_and_does_no_harm_when_it_comes_back", {}),
    ("test_a_server_without_its_disk_is_built_anew", {}),
)
_members = _tests(
    "test_membership",
    ("test_a_voter_that_lost_its_disk_does_not_vote", {}),
    ("test_a_dead_voter_is_replaced_while_writes_go_on", {}),
    ("test_a_lost_disk_is_rebuilt_from_the_others", {}),
    ("test_dead_servers_and_lost_disks_are_made_up_for", {}),
)
_garbage = _tests(
    "test_garbage",
    ("test_leaders_change_in_the_middle_of_a_pass", {}),
    ("test_a_participant_is_down_for_longer_than_outcomes_are_kept", {"decided": False}),
    ("test_a_participant_is_down_for_longer_than_outcomes_are_kept", {"decided": True}),
)
_slaves = _tests(
    "test_pool",
    ("test_pools_hold_the_slaves_that_work", {}),
    ("test_a_hung_slave_is_avoided_with_and_without_a_master", {}),
)


@_timed
def _scans(seed: int) -> None:
    from spanstore.testing.sim import simulate
    from tests.sim.test_scans import SLOW_READER, play_scans, scan_across_moves

    if seed % 4 == 3:
        simulate(lambda world: scan_across_moves(world, seed), seed, SLOW_READER)
    else:
        simulate(lambda world: play_scans(world, seed, seed % 4 > 0, seed % 4 > 1), seed)


def _orchestrator(seed: int) -> float:
    from tests.sim import test_orchestrator as tests
    from tests.sim.orchestrator_world import play

    settings = (tests.MIXED, tests.ROUGH, tests.UNCHECKED, tests.ROUGH, tests.HOLDING)
    world = play(seed, settings[seed % len(settings)])
    tests.check(world)
    return world.now / 1e6


_orchestrator_services = _tests(
    "test_orchestrator_services",
    ("test_snapshot_isolation_holds_over_the_storage_tier", {}),
    ("test_timestamps_rise_strictly_through_fail_overs", {}),
)


def _with(code: Sequence[str], *tests: str) -> tuple[str, ...]:
    return (*code, *(f"tests/sim/{name}.py" for name in tests))


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "core",
            "one Paxos group: its state machines alone",
            _core("paxos_world", "World", leases=6),
            CORE_CODE,
            20_000,
            whole=False,
            batch=50,
        ),
        Kind(
            "core members",
            "the same while members come and go and disks are lost",
            _core("paxos_members", "MembersWorld"),
            CORE_CODE,
            4_000,
            whole=False,
            batch=10,
        ),
        Kind("transactions", "clusters under any faults", _cluster(_dense), STORAGE_CODE, 2_000),
        Kind("moves", "the same while ranges split, merge and move", _cluster(_moving), STORAGE_CODE, 1_000),
        Kind("back", "ranges move there and back, rows are deleted", _cluster(_back), STORAGE_CODE, 300),
        Kind("balance", "the load balancer at work", _cluster(_balanced), STORAGE_CODE, 200),
        Kind("transfer", "replicas that were absent fetch the state", _cluster(_absent), STORAGE_CODE, 500),
        Kind("garbage", "versions and outcomes are collected", _garbage, _with(STORAGE_CODE, "test_garbage"), 200),
        Kind("scans", "scans under faults and moves", _scans, _with(STORAGE_CODE, "test_scans"), 300),
        Kind("members", "replicas come, go and are lost", _members, _with(STORAGE_CODE, "test_membership"), 150),
        Kind("servers", "servers are drained and removed", _servers, _with(STORAGE_CODE, "test_servers"), 150),
        Kind(
            "disks",
            "disks and clocks that are wrong",
            _disks,
            _with(STORAGE_CODE, "test_disks", "disk_stage"),
            300,
        ),
        Kind("sites", "five data centres", _sites, _with(STORAGE_CODE, "test_sites"), 50),
        Kind("databases", "f1servers and clients of SQL", _database, DATABASE_CODE, 500),
        Kind("spread", "the same with slaves", _spread_database, DATABASE_CODE, 200),
        Kind("changes", "f1servers on two versions of a schema that changes", _changes, DATABASE_CODE, 1_000),
        Kind("roles", "the same while admins grant and revoke", _roles, DATABASE_CODE, 500),
        Kind(
            "change faults",
            "schema changes whose owners fail before and after each of their writes",
            _change_faults,
            DATABASE_CODE,
            1_056,
        ),
        Kind("slaves", "masters and slaves", _slaves, _with(DATABASE_CODE, "test_pool"), 200, whole=False),
        Kind(
            "orchestrator",
            "the orchestrator's protocol: clients that stand still, locks that are forgotten, writes that come late",
            _orchestrator,
            _with(PROTOCOL_CODE, "orchestrator_world", "test_orchestrator"),
            5_000,
            whole=False,
            batch=50,
        ),
        Kind(
            "orchestrator services",
            "its services over the storage tier: leaders of timestamps and the lock service die and stand still",
            _orchestrator_services,
            _with(SERVICES_CODE, "test_orchestrator_services"),
            300,
        ),
    )
}
