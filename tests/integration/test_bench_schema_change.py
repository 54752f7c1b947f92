"""The benchmark of schema changes runs through the real processes, and its index is checked in the end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_index_is_built_on_200_000_rows_while_they_are_in_use(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "f1", "bench", "schema-change", "--rows", "200000", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["errors"] == 0, report["first_error"]
    assert report["operations"] > 1000
    assert [row["work"] for row in report["rows"]][-2:] == ["index build, nobody there", "index build under load"]
    assert all(row["ours"] > 0 for row in report["rows"])
