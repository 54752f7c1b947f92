"""Databases by seed: SQL and NoSQL through two f1servers while servers of both tiers die, stop and are cut off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from f1server.testing.scenario import WORKLOADS, draw, run
from scripts.simulate_f1 import try_one
from tests.amounts import some

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", some([2_000], range(2_001, 2_005)))
def test_seeds(workload: str, seed: int) -> None:
    _, failure = try_one(draw(seed, workload))
    assert not failure, f"seed {seed}: {failure}"


@pytest.mark.parametrize("hash_seed", some(["1"], ["2"]))
def test_same_seed_is_the_same_run_also_in_another_process(hash_seed: str) -> None:
    scenario = draw(2_001, "register").with_(run_us=1_500_000)
    summary, failure = try_one(scenario)
    assert not failure, failure
    hashes = {summary.rpartition(" ")[2], run(scenario).trace_hash}
    code = (
        "from f1server.testing.scenario import draw, run\n"
        "print(run(draw(2_001, 'register').with_(run_us=1_500_000)).trace_hash)"
    )
    env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    hashes.add(done.stdout.strip())
    assert len(hashes) == 1
