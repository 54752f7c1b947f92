"""Whole clusters by seed: every workload under faults, healed at the end; and the same seed is the same run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.simulate import try_one
from spanstore.testing.scenarios import WORKLOADS, Scenario, decode, draw, encode, run
from tests.amounts import some

ROOT = Path(__file__).resolve().parents[2]
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("first", some([1_002], range(1_004, 1_012, 2)))
def test_seeds(workload: str, first: int) -> None:
    for seed in (first, first + 1):
        verdict = try_one(draw(seed, workload))
        assert not verdict.failure, f"seed {seed}: {verdict.failure}"


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_kept_scenario(path: Path) -> None:
    """Runs that showed a fault once. Code that has changed since may take another course in them."""
    verdict = try_one(decode(path.read_bytes()))
    assert not verdict.failure, verdict.failure


@pytest.mark.parametrize("hash_seed", some(["1"], ["2"]))
def test_same_seed_is_the_same_run_also_in_another_process(hash_seed: str) -> None:
    scenario = draw(1_003, "commits")
    hashes = {run(scenario).trace_hash for _ in range(2)}
    command = [sys.executable, "scripts/simulate.py", "--seeds", "1003", "--workload", "commits"]
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    hashes.add(done.stdout.partition("trace ")[2].split()[0])
    assert len(hashes) == 1


def test_other_seed_is_another_run() -> None:
    assert run(draw(1_003, "commits")).trace_hash != run(draw(1_003, "commits").with_(seed=1_004)).trace_hash


def test_nothing_is_checked_in_vain() -> None:
    """Over some seeds, operations succeed, fail and stay open, and faults of every kind happen."""
    drawn = [draw(seed) for seed in range(200)]
    kinds = {kind for scenario in drawn for kind, _ in scenario.faults}
    assert {scenario.workload for scenario in drawn} == set(WORKLOADS)
    assert len(kinds) == 19
    stats = run(draw(1_000, "commits").with_(faults=(("crash", 1), ("pause", 1)), run_us=2_000_000)).value
    assert stats.ok > 50
    assert stats.faults > 0


def test_scenarios_are_data() -> None:
    for seed in range(20):
        assert decode(encode(draw(seed))) == draw(seed)
    assert isinstance(draw(1), Scenario)
