"""Databases by seed: SQL and NoSQL through two f1servers while servers of both tiers die, stop and are cut off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from f1server.testing.scenario import WORKLOADS, draw, run
from scripts.simulate_f1 import try_one

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("seed", [2_000, *(pytest.param(n, marks=pytest.mark.long) for n in (2_001, 2_002))])
def test_seeds(workload: str, seed: int) -> None:
    _, failure = try_one(draw(seed, workload))
    assert not failure, f"seed {seed}: {failure}"


def test_same_seed_is_the_same_run_also_in_another_process() -> None:
    scenario = draw(2_001, "register").with_(run_us=1_500_000)
    summary, failure = try_one(scenario)
    assert not failure, failure
    hashes = {summary.rpartition(" ")[2], run(scenario).trace_hash}
    code = (
        "from f1server.testing.scenario import draw, run\n"
        "print(run(draw(2_001, 'register').with_(run_us=1_500_000)).trace_hash)"
    )
    for seed_of_hash in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed_of_hash, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
        )
        hashes.add(done.stdout.strip())
    assert len(hashes) == 1
