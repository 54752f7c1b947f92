"""A cluster that is started for a measurement and removed again, driven through the command line."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from f1common.errors import Code, F1Error
from f1common.programs import exit_at_sigterm, interrupted_with_us
from f1deploy.directory import ClusterDirectory

__all__ = ["LocalCluster", "cpu_of_trees", "local_cluster"]

_TICKS = os.sysconf("SC_CLK_TCK")


class LocalCluster:
    """A cluster in ``folder / "cluster"``; ``hosts`` are its f1servers, for ``f1.connect``."""

    def __init__(self, folder: Path) -> None:
        """Start nothing yet."""
        self.folder = folder
        self.hosts = ""
        self._kinds: dict[int, str] = {}

    def f1(self, *arguments: str) -> tuple[str, float]:
        """Run a command; return what it prints and the processor time that it took, in seconds.

        Raises F1Error INTERNAL if it fails; it has said why on stderr.
        """
        command = [sys.executable, "-P", "-m", "f1", *arguments]
        env = {**os.environ, "F1_HOST": self.hosts}
        with (
            subprocess.Popen(
                command, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            ) as process,
            interrupted_with_us(process),
        ):
            said = process.stdout.read() if process.stdout else ""
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise F1Error(Code.INTERNAL, f"`f1 {' '.join(arguments)}` failed")
        return said, used.ru_utime + used.ru_stime

    def cluster(self, *arguments: str) -> str:
        """Run a command of ``f1 cluster`` on it and return what it prints."""
        return self.f1("cluster", *arguments, "--dir", str(self.folder / "cluster"))[0]

    def servers(self) -> list[dict[str, Any]]:
        """Return what ``f1 cluster status`` says of each process."""
        found: list[dict[str, Any]] = json.loads(self.cluster("status", "--format", "json"))
        return found

    def find_hosts(self) -> None:
        """Learn the addresses of the f1servers, and which processes there are."""
        servers = self.servers()
        self.hosts = ",".join(server["address"] for server in servers if server["kind"] == "f1server")
        self._kinds = {int(server["pid"]): str(server["kind"]) for server in servers}

    def cpu_s(self) -> Counter[str]:
        """Return the processor time of the servers and of their child processes so far, in seconds, by kind.

        The servers are those that were there when hosts were found: to ask anew takes a second of a processor, which
        whoever is measured meanwhile would notice.
        """
        used: Counter[str] = Counter()
        for pid, spent_s in cpu_of_trees(self._kinds).items():
            used[self._kinds[pid]] += spent_s  # type: ignore[assignment]
        return used


def cpu_of_trees(pids: Iterable[int]) -> dict[int, float]:
    """Return the processor time of each process and of all below it so far, in seconds."""
    running = _processes()
    return {pid: _cpu_of_tree(pid, running) for pid in pids}


def _processes() -> dict[int, tuple[int, float]]:
    """Return the parent of each process, and its processor time and that of its children that have ended, in
    seconds."""
    found: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has just ended: its parent has its time
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = int(fields[1]), sum(int(field) for field in fields[11:15]) / _TICKS
    return found


def _cpu_of_tree(pid: int, running: dict[int, tuple[int, float]]) -> float:
    own = running.get(pid, (0, 0.0))[1]
    return own + sum(_cpu_of_tree(child, running) for child, (parent, _) in running.items() if parent == pid)


@contextmanager
def local_cluster(*options: str) -> Iterator[LocalCluster]:
    """Start a cluster on free ports with further options of ``f1 cluster up``, and remove it with all its data.

    Without ``--orchestrator`` among them its services do not run: what is measured is to have the machine. A SIGTERM
    meanwhile ends the process as an exit would, so that nothing stays behind.
    """
    with exit_at_sigterm(), tempfile.TemporaryDirectory(prefix="f1-bench-") as folder:
        made = LocalCluster(Path(folder))
        services = () if "--orchestrator" in options else ("--no-orchestrator",)
        try:
            made.cluster("up", "--port", "0", *services, *options)
            made.find_hosts()
            yield made
        finally:
            if ClusterDirectory(made.folder / "cluster").exists():  # also of one that was not up yet
                made.cluster("down")
