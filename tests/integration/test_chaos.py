"""Real processes under faults: the clients' histories pass every checker. And the demo does what it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import chaos
from scripts.chaos import Death, Outcome

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, *arguments: str, timeout_s: float, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *arguments],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("faults", [",".join(chaos.FAULTS), "crash,pause,absence,restart"], ids=["grpc", "direct"])
def test_histories_of_a_short_run_are_right(faults: str) -> None:
    out = run("chaos.py", "--seconds", "12", "--seed", "3", "--faults", faults, timeout_s=280)
    assert "0 violations" in out
    assert "1 servers drained, 1 servers joined, 1 servers removed" in out


@pytest.mark.long
def test_histories_of_twenty_minutes_are_right() -> None:
    out = run("chaos.py", "--seconds", "1200", "--seed", "4", timeout_s=2400)
    print(out)
    assert "0 violations" in out
    assert "group away after a crash of its leader" in out


def test_the_demo_ends_well_without_a_terminal_and_leaves_nothing(tmp_path: Path) -> None:
    out = run("demo.py", "--clicks", "4000", timeout_s=280, env={"TMPDIR": str(tmp_path)})
    assert "4,000 rows loaded into AdClick" in out
    assert "scan Keyword by index KeywordByText" in out
    assert "(intact)" in out
    assert "Campaigns whose budget is not what the acknowledged transfers make it: 0." in out
    assert os.listdir(tmp_path) == []


def test_a_pause_ends_with_the_first_acknowledgement_after_the_death_of_the_leader() -> None:
    outcome = Outcome(
        deaths=[
            Death(1_000, "crash", "span-a1", (1, 2)),
            Death(9_000, "crash", "span-b1", ()),
            Death(1, "pause", "x", (1,)),
        ],
        acknowledged={1: [(100, 900), (950, 4_000), (4_001, 5_000)], 2: [(900, 1_001), (1_002, 8_000)]},
    )
    assert outcome.pauses_ms("crash") == [3.0, 6.999]
    assert "group away after a crash of its leader, ms: p10 3, p50 7, p90 7, p99 7, longest 7 (2)" in chaos.report(
        outcome
    )
