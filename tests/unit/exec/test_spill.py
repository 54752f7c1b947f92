"""Folders that killed processes spilled to do not stay for ever."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from f1server.exec.spill import spill_folder


def test_folders_of_dead_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"f1-spill-{dead.pid}", f"f1-spill-{os.getppid()}", "f1-spill-of-mine", f"other-{dead.pid}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.tmp").write_bytes(b"x")
    assert spill_folder() == str(tmp_path / f"f1-spill-{os.getpid()}")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([f"f1-spill-{os.getppid()}", "f1-spill-of-mine", f"other-{dead.pid}"])
