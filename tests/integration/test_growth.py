"""A local cluster that grows, shrinks and loses a disk while somebody writes: real processes, from a command line."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from f1common.encoding import tuple as tuples
from f1deploy.directory import ClusterDirectory
from spanstore.client import SpanClient, Write
from spanstore.tools.target import from_directory

KEYS = [tuples.encode((table, "row")) for table in range(1, 5)]


class User:
    """Somebody at a shell."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def f1(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "f1", *arguments, "--dir", str(self.directory)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.f1(*arguments, "--format", "json"))

    def voters(self) -> list[set[str]]:
        groups = self.json("group", "list")
        return [{member["server"] for member in group["members"] if member["votes"]} for group in groups]


class Writer(threading.Thread):
    """Writes rising numbers all the time. Commits may be slow; none may fail for good."""

    def __init__(self, directory: Path) -> None:
        super().__init__(name="writer")
        self.acknowledged: dict[bytes, int] = {}
        self.failure: BaseException | None = None
        self._directory = directory
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            from_directory(self._directory).run(self._write)
        except BaseException as error:
            self.failure = error

    async def _write(self, client: SpanClient) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            key = KEYS[number % len(KEYS)]
            await client.commit([Write(key, str(number).encode())], timeout_s=30)
            self.acknowledged[key] = number
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a running cluster in which nothing moves without an order."""
    made = User(tmp_path_factory.mktemp("growth") / "cluster")
    settings = ("--set", "placement.rebalance=false", "--set", "placement.period_ms=300")
    made.f1("cluster", "up", "--port", "0", "--f1servers", "0", "--slaves", "0", "--groups", "2", *settings)
    yield made
    made.f1("cluster", "down")


@pytest.fixture
def writer(user: User) -> Iterator[Writer]:
    """Writes during the test; at its end every acknowledged write is there."""
    made = Writer(user.directory)
    made.start()
    yield made
    made.stop()

    async def read(client: SpanClient) -> list[bytes | None]:
        return (await client.read(KEYS, timeout_s=30)).values()

    found = from_directory(user.directory).run(read)
    assert set(made.acknowledged) == set(KEYS)
    assert [int(value or b"0") for value in found] == [made.acknowledged[key] for key in KEYS]


def test_a_server_comes_and_another_one_goes_while_somebody_writes(user: User, writer: Writer) -> None:
    (new,) = user.json("cluster", "add", "--zone", "b")
    assert (new["name"], new["kind"], new["state"]) == ("span-b2", "spanserver", "running")
    (group,) = user.json("group", "replace", "1", "span-b1", "span-b2")
    assert {member["server"] for member in group["members"]} == {"span-a1", "span-b2", "span-c1"}
    drained = user.json("cluster", "drain", "span-b1")
    assert drained == {"server": "span-b1", "state": "drained", "groups": [0, 2]}
    assert user.voters() == [{"span-a1", "span-b2", "span-c1"}] * 3
    before = {item["name"]: item["pid"] for item in user.json("cluster", "status")}
    assert user.json("cluster", "remove", "span-b1")["state"] == "removed"
    after = {item["name"]: item["pid"] for item in user.json("cluster", "status")}
    assert after == {name: pid for name, pid in before.items() if name != "span-b1"}
    directory = ClusterDirectory(user.directory)
    assert not directory.config_path("span-b1").exists()
    assert directory.load().removed == ("span-b1",)


def test_a_server_whose_disk_is_lost_is_built_anew_while_somebody_writes(user: User, writer: Writer) -> None:
    user.f1("cluster", "kill", "span-c1")
    directory = ClusterDirectory(user.directory)
    shutil.rmtree(directory.data / "span-c1")
    user.f1("cluster", "start", "span-c1")
    assert user.json("cluster", "rebuild", "span-c1") == {"server": "span-c1", "state": "rebuilt", "groups": [0, 1, 2]}
    assert "it was lost" in directory.log_path("span-c1").read_text()
    for group in user.json("group", "list"):
        (member,) = [member for member in group["members"] if member["server"] == "span-c1"]
        assert (member["votes"], member["member"] != "span-c1") == (True, True)


def test_a_group_is_founded_loses_its_leader_and_a_disk_while_somebody_writes(user: User, writer: Writer) -> None:
    (group,) = user.json("group", "create", "more")
    assert (group["group"], group["name"], len(group["members"])) == (3, "more", 3)
    user.f1("range", "move", "1", "2", "--to", "3")
    (again,) = user.json("group", "create", "more")
    assert again["group"] == 3
    leader = again["leader"]
    user.f1("cluster", "kill", leader)
    directory = ClusterDirectory(user.directory)
    shutil.rmtree(directory.data / leader)
    user.f1("cluster", "start", leader)
    assert user.json("cluster", "rebuild", leader)["groups"] == [0, 1, 2, 3]
    (_, _, _, founded) = user.json("group", "list")
    lives = {member["server"]: member["member"] for member in founded["members"] if member["votes"]}
    # Its first life was in the directory that is gone.
    assert "#0-" not in lives.pop(leader) and all("#0-" in member for member in lives.values())


def test_what_has_grown_and_shrunk_goes_down_and_up_again(user: User) -> None:
    voters = user.voters()
    user.f1("cluster", "down")
    user.f1("cluster", "up")
    assert user.voters() == voters
    states = {item["name"]: item["state"] for item in user.json("cluster", "status")}
    assert states == {"span-a1": "running", "span-b2": "running", "span-c1": "running"}
