"""A local cluster through the command line, as a user has it: real processes, killed and started."""

import asyncio
import contextlib
import csv
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest

from f1.cli import GROUP, build, run
from f1common.encoding import tuple as tuples
from f1deploy.cluster import Cluster
from f1deploy.directory import ClusterDirectory
from f1deploy.processes import is_alive
from spanstore.client import SpanClient, Write
from spanstore.tools.target import from_directory

ERROR = re.compile(r"[A-Z_]+: .+")
NAMES = ["span-a1", "span-b1", "span-c1"]


class User:
    """Somebody at a shell."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def f1(self, *arguments: str, timeout_s: float = 90) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "f1", *arguments]
        return subprocess.run(
            command,
            cwd=self.directory.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def cluster(self, command: str, *arguments: str) -> str:
        done = self.f1("cluster", command, *arguments, "--dir", str(self.directory))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """The error of a command that fails: one line with a code, exit 1. Run here, since a process takes a while."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(build(entry_points(group=GROUP), arguments), arguments)
        # Where there is no terminal, what a command waits for stands in lines of its own before the error, and so does
        # what it cannot know at the moment, of groups that are just electing a leader.
        beside = ("waiting for", "groups ")
        error = "".join(line for line in err.getvalue().splitlines(keepends=True) if not line.startswith(beside))
        assert (code, out.getvalue(), error.count("\n")) == (1, "", 1), err.getvalue()
        assert ERROR.fullmatch(error.rstrip()), error
        return error

    def status(self) -> dict[str, dict[str, Any]]:
        return {item.name: msgspec.structs.asdict(item) for item in Cluster(self.directory).status()}

    def states(self) -> list[str]:
        return [item["state"] for item in self.status().values()]

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(150):
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(f"it did not come to pass; {self.status()}\n{self.cluster('logs', '-n', '20')}")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a running cluster."""
    made = User(tmp_path_factory.mktemp("user") / "cluster")
    out = made.cluster("up", "--port", "0", "--f1servers", "0", "--slaves", "0")
    assert all(name in out for name in NAMES)
    yield made
    made.cluster("down")
    directory = ClusterDirectory(made.directory)
    assert not is_alive(directory.supervisor())


def with_client(user: User, work: Callable[[SpanClient], Any]) -> Any:
    async def connected() -> Any:
        async with from_directory(user.directory).client() as client:
            return await work(client)

    return asyncio.run(connected())


def test_status_lists_what_runs(user: User) -> None:
    items = json.loads(user.cluster("status", "--format", "json"))
    assert [item["name"] for item in items] == NAMES
    for item in items:
        assert set(item) == {"name", "kind", "pid", "address", "state"}
        assert (item["kind"], item["state"]) == ("spanserver", "running")
        assert "spanserver" in Path(f"/proc/{item['pid']}/cmdline").read_text()
        host, _, port = item["address"].rpartition(":")
        socket.create_connection((host, int(port)), 5).close()


def test_ranges_are_listed_in_every_form(user: User) -> None:
    where = ("--dir", str(user.directory))
    rows = json.loads(user.f1("range", "list", *where, "--format", "json").stdout)
    assert rows[0]["start"] == ""
    assert [row["start"] for row in rows[1:]] == [row["end"] for row in rows[:-1]]
    assert {row["group"] for row in rows} == {0, 1, 2, 3, 4}
    parsed = list(csv.DictReader(io.StringIO(user.f1("range", "list", *where, "--format", "csv").stdout)))
    assert [row["start"] for row in parsed] == [row["start"] for row in rows]
    address = user.status()["span-b1"]["address"]
    table = user.f1("range", "list", "--host", address)
    assert (table.returncode, len(table.stdout.splitlines())) == (0, len(rows) + 2)


def test_every_group_has_a_leader_with_a_lease(user: User) -> None:
    def all_led() -> bool:
        status = json.loads(user.f1("status", "--dir", str(user.directory), "--format", "json").stdout)
        assert [server["error"] for server in status["servers"]] == ["", "", ""]
        return all(group["leader"] in NAMES and group["lease_valid"] for group in status["groups"])

    user.until(all_led)


def test_a_killed_process_stays_down_and_data_stay_readable(user: User) -> None:
    key = tuples.encode((1, "tea"))
    with_client(user, lambda client: client.commit([Write(key, b"green")], timeout_s=20))
    user.cluster("kill", "span-a1")
    time.sleep(1)
    assert user.status()["span-a1"] | {"address": ""} == {
        "name": "span-a1",
        "kind": "spanserver",
        "pid": None,
        "address": "",
        "state": "stopped",
    }
    found = with_client(user, lambda client: client.read([key], timeout_s=20))
    assert found.values() == [b"green"]
    assert "not running" in user.refused("cluster", "kill", "span-a1", "--dir", str(user.directory))
    user.cluster("start", "span-a1")
    assert user.states() == ["running"] * 3


def test_a_process_that_dies_by_itself_is_restarted(user: User) -> None:
    before = user.status()["span-b1"]["pid"]
    os.kill(before, signal.SIGKILL)
    user.until(lambda: user.status()["span-b1"]["pid"] not in (before, None) and user.states() == ["running"] * 3)


def test_a_paused_process_says_so(user: User) -> None:
    user.cluster("pause", "span-c1")
    assert user.status()["span-c1"]["state"] == "paused"
    user.cluster("resume", "span-c1")
    user.until(lambda: user.states() == ["running"] * 3)


def test_the_death_of_the_supervisor_costs_nothing(user: User) -> None:
    pids = [item["pid"] for item in user.status().values()]
    supervisor = ClusterDirectory(user.directory).supervisor()
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    user.until(lambda: not is_alive(supervisor))
    assert "supervisor is dead" in user.f1("cluster", "status", "--dir", str(user.directory)).stderr
    user.cluster("start", "span-a1")
    assert ClusterDirectory(user.directory).supervisor() != supervisor
    assert [item["pid"] for item in user.status().values()] == pids
    os.kill(pids[2], signal.SIGKILL)
    user.until(lambda: user.status()["span-c1"]["pid"] not in (pids[2], None))
    user.until(lambda: user.states() == ["running"] * 3)


def test_logs_are_shown_under_their_names(user: User) -> None:
    assert "listen" in user.cluster("logs", "span-a1")
    assert all(line.startswith(tuple(NAMES)) for line in user.cluster("logs").splitlines())
    assert "supervising" in user.cluster("logs", "supervisor")


def test_mistakes_are_answered_in_one_line(user: User, tmp_path: Path) -> None:
    here = ("--dir", str(user.directory))
    assert user.refused("cluster", "up", *here).startswith("ALREADY_EXISTS: ")
    assert user.refused("cluster", "kill", "span-z9", *here).startswith("NOT_FOUND: ")
    assert user.refused("cluster", "logs", "span-z9", *here).startswith("NOT_FOUND: ")
    assert user.refused("cluster", "start", "master", *here).startswith("NOT_FOUND: ")
    assert user.refused("cluster", "status", "--dir", str(tmp_path)).startswith("NOT_FOUND: ")
    (tmp_path / "x").write_text("x")
    assert user.refused("cluster", "up", "--dir", str(tmp_path)).startswith("BAD_DATA_DIR: ")
    new = ("--dir", str(tmp_path / "new"))
    assert "need 4 spanservers" in user.refused("cluster", "up", "--readonly", "1", *new)
    assert user.refused("cluster", "up", "--voters", "2", *new).startswith("INVALID_ARGUMENT: ")
    assert user.refused("cluster", "drain", "span-z9", *here).startswith("NOT_FOUND: ")
    assert user.refused("cluster", "remove", "span-z9", "--force", *here).startswith("NOT_FOUND: ")
    assert user.refused("cluster", "remove", "span-a1", *here).startswith("FAILED_PRECONDITION: span-a1 has replicas")
    assert "no place" in user.refused("cluster", "drain", "span-a1", "--any-zone", *here)
    assert "span-a1 runs" in user.refused("cluster", "remove", "span-a1", "--force", *here)
    assert user.refused("cluster", "add", "--kind", "slave", *here).startswith("FAILED_PRECONDITION: ")
    assert user.refused("cluster", "add", "--zone", "A1", *here).startswith("INVALID_ARGUMENT: ")
    assert user.refused("cluster", "add", *new).startswith("NOT_FOUND: ")
    nobody = ("--f1servers", "0", "--slaves", "2", "--dir", str(tmp_path / "new"))
    assert user.refused("cluster", "up", *nobody).startswith("INVALID_ARGUMENT: ")
    port = user.status()["span-a1"]["address"].rpartition(":")[2]
    assert user.refused("cluster", "up", "--dir", str(tmp_path / "new"), "--port", port).startswith("PORT_IN_USE: ")
    assert user.refused("status", "--host", "nonsense").startswith("INVALID_ARGUMENT: ")
    assert user.refused("spanserver", "--config", str(tmp_path / "none.toml")).startswith("NOT_FOUND: ")


def test_a_benchmark_runs_and_reports(user: User) -> None:
    done = user.f1(
        *("bench", "kv", "--dir", str(user.directory), "--no-peer", "--format", "json"),
        *("--clients", "4", "--seconds", "2"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [row["work"] for row in report["rows"]] == [
        "transfer, one group",
        "transfer, two groups",
        "write one row",
        "read one row",
    ]
    assert all(row["ours"] > 0 and row["cpu_us"] > 0 and row["peer"] is None for row in report["rows"])


def test_down_and_up_again_keeps_the_data(user: User) -> None:
    keys = [tuples.encode((table, "kept")) for table in range(1, 9)]
    writes = [Write(key, random.Random(key).randbytes(50)) for key in keys]
    with_client(user, lambda client: client.commit(writes, timeout_s=20))
    user.cluster("down")
    assert user.states() == ["stopped"] * 3
    assert "down already" in user.cluster("down")
    here = ("--dir", str(user.directory))
    assert user.refused("cluster", "start", "span-a1", *here).startswith("FAILED_PRECONDITION: ")
    assert user.refused("cluster", "up", "--groups", "7", *here).startswith("FAILED_PRECONDITION: ")
    user.cluster("up")
    found = with_client(user, lambda client: client.read(keys, timeout_s=20))
    assert found.values() == [write.value for write in writes]


def test_a_server_that_cannot_start_is_named_with_its_reason(tmp_path: Path) -> None:
    user = User(tmp_path / "cluster")
    directory = ClusterDirectory(user.directory)
    directory.create()
    foreign = directory.data / "span-b1"
    foreign.mkdir()
    (foreign / "data.mdb").write_bytes(b"not a database" * 1000)
    error = user.refused("cluster", "up", "--port", "0", "--dir", str(user.directory))
    assert error.startswith("UNAVAILABLE: span-b1 does not stay up (exit code 1): DATA_CORRUPTION: ")
    assert set(user.states()) == {"stopped"}
    assert not is_alive(directory.supervisor())
