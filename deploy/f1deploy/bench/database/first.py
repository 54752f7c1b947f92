"""An early revision of ours, from a checkout, beside the present one: what scans of its own cluster cost.

It is run by its own command line with its own code, in the environment of this one. Generated protobuf code has to be
there (`python scripts/proto.py`). Only what its first revisions had is asked of it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from f1common.errors import Code, F1Error
from f1common.programs import run_with_us
from f1deploy.bench.local import cpu_of_trees
from f1deploy.directory import ClusterDirectory

__all__ = ["FirstVersion", "first_version", "require_checkout"]

_SOURCE_ROOTS = ("", "client", "deploy")


class FirstVersion:
    """A running cluster of the revision."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        """``folder`` is where its data are."""
        self._folder = folder
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(checkout / root) for root in _SOURCE_ROOTS)}
        describe = ["git", "-C", str(checkout), "describe", "--always"]
        said = subprocess.run(describe, capture_output=True, text=True, check=False)
        self.name = f"f1db {said.stdout.strip() or checkout.name}"
        self._pids: tuple[int, ...] = ()

    def f1(self, *arguments: str) -> str:
        """Run a command and return what it prints. Raises F1Error INTERNAL with what it says."""
        command = [sys.executable, "-P", "-m", "f1", *arguments]
        done = run_with_us(command, cwd=self._folder, env=self._env)
        if done.returncode:
            raise F1Error(Code.INTERNAL, f"`f1 {' '.join(arguments)}` of {self.name} failed: {done.stderr.strip()}")
        return done.stdout

    def find_servers(self) -> None:
        """Learn the processes and the addresses of the cluster."""
        servers = json.loads(self.f1("cluster", "status", "--format", "json"))
        self._pids = tuple(int(server["pid"]) for server in servers)
        self._env["F1_HOST"] = ",".join(server["address"] for server in servers if server["kind"] == "f1server")

    def cpu_s(self) -> float:
        """Return the processor time of its servers so far, in seconds."""
        return sum(cpu_of_trees(self._pids).values())

    def query(self, sql: str) -> list[dict[str, object]]:
        """Return the rows of a query by column name."""
        found: list[dict[str, object]] = json.loads(self.f1("sql", "--format", "json", "-c", sql))
        return found


def require_checkout(folder: Path) -> None:
    """Raise F1Error NOT_FOUND if a folder is no checkout of ours."""
    if not (folder / "spanstore").is_dir() or not (folder / "client" / "f1").is_dir():
        raise F1Error(Code.NOT_FOUND, f"{folder} is no checkout of f1db; make one with `git worktree add`")


@contextmanager
def first_version(checkout: Path) -> Iterator[FirstVersion]:
    """Start a cluster of the revision and remove it again. Raises F1Error NOT_FOUND if there is no such checkout."""
    require_checkout(checkout)
    with tempfile.TemporaryDirectory(prefix="f1-bench-first-") as folder:
        made = FirstVersion(checkout.resolve(), Path(folder))
        try:
            made.f1("cluster", "up", "--port", "0", "--slaves", "0")
            made.find_servers()
            yield made
        finally:
            if ClusterDirectory(Path(folder) / "f1-cluster").exists():  # also of one that was not up yet
                made.f1("cluster", "down")
