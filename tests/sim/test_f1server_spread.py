"""Databases by seed whose queries slaves run, while slaves, the master, f1servers and spanservers die and are cut off.

Many more: ``python scripts/simulate_f1.py --spread --seeds 0-200``.
"""

import dataclasses
from typing import Any
from unittest.mock import patch

import pytest

from f1server.testing.scenario import Scenario, Stats, draw, run
from f1server.txn.reader import RowReader
from scripts.quiet import quiet
from scripts.simulate_f1 import try_one
from slavepool import service
from slavepool.assignment import Assignment
from slavepool.run import SlaveRun
from tests.amounts import some
from tests.sim.test_f1server_mutations import Mutation

FAULTS = (("crash", 3), ("pause", 3), ("partition", 2), ("reset", 2))


def stats(scenario: Scenario) -> Stats:
    with quiet():
        return run(scenario).value


def short(seed: int, workload: str, **changes: Any) -> Scenario:
    return draw(seed, workload, spread=True).with_(run_us=500_000, clients=2, slaves=2, pause_us=60_000, **changes)


@pytest.mark.parametrize("seed", some([7_000], range(7_001, 7_006)))
def test_sums_while_everything_fails(seed: int) -> None:
    faults = {"slave_faults": FAULTS, "f1_faults": FAULTS, "fault_interval_us": 100_000, "fault_duration_us": 100_000}
    found = stats(short(seed, "sums", **faults))
    assert found.ok > 5
    assert found.faults > 2
    assert found.exchanged_bytes > 0


@pytest.mark.parametrize("workload", ["bank"])
def test_what_other_workloads_read_comes_from_slaves(workload: str) -> None:
    # Worlds of other seeds do 5 to 10 transactions, this one 13 or 15: a change of the schedule must not end the test.
    found = stats(short(7_006, workload, slave_faults=FAULTS, fault_interval_us=300_000))
    assert found.ok > 5
    assert found.exchanged_bytes > 0


def test_same_seed_is_the_same_run() -> None:
    scenario = short(7_002, "sums", slave_faults=FAULTS).with_(run_us=150_000)
    with quiet():
        assert len({run(scenario).trace_hash for _ in range(2)}) == 1


# ---------------------------------------------------------------- broken slaves are caught


def reader_of_a_second_ago(*args: Any, timestamp: int, **kwargs: Any) -> RowReader:
    return RowReader(*args, timestamp=timestamp - 1_000_000, **kwargs)


def reader_of_just_before(*args: Any, timestamp: int, **kwargs: Any) -> RowReader:
    """A slave that reads as of the moment in which it begins would do this, the other way round."""
    return RowReader(*args, timestamp=timestamp - 20_000, **kwargs)


def everything(self: Assignment, part: Any, planned: Any) -> Any:
    return planned


def nothing_noted(self: SlaveRun) -> list[Any]:
    return []


NO_FAULTS: dict[str, Any] = {"slaves": 2, "slave_faults": (), "clients": 2, "run_us": 250_000, "groups": 1}

MUTATIONS = {
    "slaves read what was there a second ago": Mutation(
        service, "RowReader", reader_of_a_second_ago, "sums", NO_FAULTS, 3
    ),
    "slaves read what was there just before": Mutation(
        service, "RowReader", reader_of_just_before, "sums", NO_FAULTS, 3
    ),
    "slaves note nothing for optimistic transactions": Mutation(
        SlaveRun, "read_set", nothing_noted, "sums", NO_FAULTS, 4
    ),
    "every slave reads everything": Mutation(Assignment, "_clipped", everything, "sums", NO_FAULTS, 2),
}


_QUICK = ("slaves read what was there just before", "slaves note nothing for optimistic transactions")


@pytest.mark.parametrize("name", some(_QUICK, [name for name in MUTATIONS if name not in _QUICK]))
def test_broken_slaves_are_caught(name: str) -> None:
    mutation = MUTATIONS[name]
    for seed in range(9_000, 9_000 + mutation.seeds):
        scenario = mutation.scenario(seed)
        with patch.object(mutation.target, mutation.name, mutation.broken):
            _, failure = try_one(scenario)
        if failure:
            assert "CheckFailed" in failure, failure
            return
    pytest.fail(f"{mutation.seeds} seeds did not notice: {name}")


def test_slaves_that_are_not_broken_pass() -> None:
    """What finds the broken ones finds nothing in the code as it is."""
    _, failure = try_one(dataclasses.replace(next(iter(MUTATIONS.values())), broken=RowReader).scenario(9_000))
    assert not failure, failure
