"""The benchmarks of the database and of growth run through the real processes; their answers have the public form."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ONLY = "upsert,read,select,rows-plain,transfer,load-plain,scan"


def run(folder: Path, *options: str, name: str = "database") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "f1", "bench", name, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.timeout(600)
def test_every_kind_of_work_is_measured_and_checked(tmp_path: Path) -> None:
    small = ("--seconds", "0.3", "--rounds", "1", "--clients", "2", "--processes", "1", "--scale", "0.001")
    done = run(tmp_path, *small, "--only", ONLY, "--no-peer", "--svg", "curves.svg", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["machine"] and report["notes"] == ["No peer was asked for"]
    rows: dict[tuple[str, str], dict[str, Any]] = {(row["work"], row["unit"]): row for row in report["rows"]}
    assert [key for key in rows if key[0].startswith("transfer")] == [("transfer, two groups", "ms, p50")]
    assert {key[0] for key in rows} == {
        "upsert by key, change history",
        "strong read by key",
        "SELECT by key",
        "500 rows, one directory, no history",
        "transfer, two groups",
        "f1 load of lineitem, no history",
        "scan of lineitem with a sum",
    }
    for row in rows.values():
        # The scan of a small table may take less than the clock of processes tells.
        assert row["ours"] > 0 and (row["cpu_us"] > 0 or "scan" in row["work"]) and row["errors"] == 0, row
        assert row["ours_range"] == [row["ours"], row["ours"]] and row["ran"].startswith("f1db ")
        assert row["rounds"] == 1
    assert rows["upsert by key, change history", "writes/s"]["checked"] > 0
    assert rows["500 rows, one directory, no history", "rows/s"]["checked"] > 0
    assert rows["scan of lineitem with a sum", "rows/s"]["checked"] == 6_005
    # Against what ran beside it in the same run: our own, and DuckDB within this process.
    select, transfer = rows["SELECT by key", "ms, p50"], rows["transfer, two groups", "ms, p50"]
    assert select["peer_name"].endswith("strong read by key") and select["goal"] == "at most 1.3"
    assert transfer["met"] in (True, False) and transfer["ratio"] > 0
    assert rows["scan of lineitem with a sum", "rows/s"]["peer_name"].startswith("DuckDB")
    assert (tmp_path / "curves.svg").read_text().startswith("<svg ")


def test_a_name_that_is_no_work_is_said_before_anything_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "--only", "writes")
    assert done.returncode == 1
    assert done.stderr.startswith("INVALID_ARGUMENT: --only takes some of upsert, upsert-plain, read, select, rows")


@pytest.mark.timeout(600)
def test_a_curve_is_measured_and_drawn(tmp_path: Path) -> None:
    small = ("--only", "rows,versions", "--seconds", "0.2", "--rounds", "1", "--most-rows", "1000")
    done = run(tmp_path, *small, "--svg", ".", "--format", "json", name="growth")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {(row["curve"], row["x"]) for row in report["rows"]} == {
        *(("rows", size) for size in (100, 1_000)),
        *(("versions", count) for count in (1, 2, 4, 8, 16, 32)),
    }
    assert all(row["low"] <= row["ours"] <= row["high"] for row in report["rows"])
    assert len(report["fits"]) == 6 + 2
    assert all(fit["statement"].startswith(f"{fit['curve']} x ") for fit in report["fits"])
    assert {path.name for path in tmp_path.glob("*.svg")} == {"growth-rows.svg", "growth-versions.svg"}
