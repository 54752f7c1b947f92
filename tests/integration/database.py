"""A database on a real cluster, used as from a shell: `with running(folder) as database`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import f1
from f1deploy.directory import ClusterDirectory
from f1deploy.processes import Identity, is_alive, send_signal


@dataclass(frozen=True)
class Database:
    """A running cluster, and what its clients need to know."""

    directory: Path
    hosts: str

    def command(self, *arguments: str, timeout_s: float = 600) -> str:
        """Run a command that must succeed and return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "f1", *arguments],
            cwd=self.directory.parent,
            env={**os.environ, "F1_HOST": self.hosts},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout

    def fallbacks(self) -> list[str]:
        """Return what the f1servers logged of queries that slaves could not run, which then ran centrally."""
        logs = sorted((self.directory / "log").glob("f1-*.log"))
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [line for line in lines if "a distributed query runs centrally" in line]

    def connect(self, database: str | None = None) -> f1.Connection:
        return f1.connect(self.hosts, database, autocommit=True, timeout_s=300.0)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Database]:
    """Start a cluster below `folder`; it is killed in the end."""
    directory = folder / "cluster"
    database = Database(directory, "")
    where = ("--dir", str(directory))
    database.command("cluster", "up", "--port", "0", "--slaves", "0", "--no-orchestrator", *where, *options)
    try:
        status = json.loads(database.command("cluster", "status", "--format", "json", *where))
        servers = [process["address"] for process in status if process["kind"] == "f1server"]
        yield Database(directory, ",".join(servers))
    finally:
        end(directory)


def end(directory: Path) -> None:
    """Kill a cluster: draining it takes a while, and that it can be is for the tests of `f1 cluster down` to show."""
    cluster = ClusterDirectory(directory)
    names = [process.name for process in cluster.load().processes]
    for name in names:
        cluster.give_order(name, up=False)
    # The supervisor goes first: nobody starts anything from here on.
    _kill([cluster.supervisor()], signal.SIGTERM)
    _kill([cluster.state(name).identity for name in names], signal.SIGKILL)


def _kill(processes: Sequence[Identity | None], number: signal.Signals) -> None:
    for process in processes:
        send_signal(process, number)
    while any(map(is_alive, processes)):
        time.sleep(0.02)


def query(connection: f1.Connection, sql: str) -> pa.Table:
    """Run a statement and return its whole result."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow()
