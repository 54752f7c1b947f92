"""The pool on real processes: slaves and the master are killed, stopped and started, and `f1 status` is watched."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from f1.commands.status import asked, pool_of
from f1common.config import Config
from f1deploy.cluster import Cluster
from f1deploy.directory import ClusterDirectory
from f1deploy.processes import spawn
from tests.integration.database import Database, running

LIVE = {"slave-1": "live", "slave-2": "live"}


class Pool:
    """A small cluster with two slaves, and somebody who looks at it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.cluster = Cluster(database.directory)

    def shell(self, command: str, name: str) -> None:
        """As at a shell; the other tests do the same without the command line, which takes a while to start."""
        self.database.command("cluster", command, name, "--dir", str(self.database.directory))

    def shown(self) -> dict[str, Any]:
        """What `f1 status --format json` prints of the pool."""
        found: dict[str, Any] = json.loads(self.database.command("status", "--format", "json"))["pool"]
        return found

    def status(self) -> dict[str, Any]:
        found = pool_of(asked(self.database.hosts.split(",")))
        assert found is not None
        return found

    def states(self) -> dict[str, str]:
        return {slave["name"]: slave["state"] for slave in self.status()["slaves"]}

    def process(self, name: str) -> dict[str, Any]:
        return {item.name: msgspec.structs.asdict(item) for item in self.cluster.status()}[name]

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(f"it did not come to pass: {self.status()}, {self.cluster.status()}")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    small = ("--spanservers", "1", "--groups", "1", "--f1servers", "2", "--slaves", "2")
    with running(tmp_path_factory.mktemp("pool"), *small) as database:
        yield Pool(database)


def test_a_cluster_is_up_once_every_f1server_knows_all_slaves(pool: Pool) -> None:
    kinds = {item.name: (item.kind, item.state) for item in pool.cluster.status()}
    assert kinds["master"] == ("master", "running")
    assert kinds["slave-1"] == kinds["slave-2"] == ("slave", "running")
    found = pool.shown()
    assert found["master"]["address"] == pool.process("master")["address"]
    assert found["master"]["state"] == "connected"
    assert [slave["address"] for slave in found["slaves"]] == [pool.process(f"slave-{i}")["address"] for i in (1, 2)]
    assert pool.states() == LIVE
    assert "slave-2" in pool.database.command("status")


def test_a_killed_slave_leaves_the_pool_and_comes_back_when_started(pool: Pool) -> None:
    version = pool.status()["master"]["version"]
    pool.shell("kill", "slave-1")
    pool.until(lambda: pool.states().get("slave-1") != "live")
    pool.until(lambda: pool.states() == {"slave-2": "live"})
    assert [slave["name"] for slave in pool.shown()["slaves"]] == ["slave-2"]
    pool.shell("start", "slave-1")
    pool.until(lambda: pool.states() == LIVE)
    assert pool.status()["master"]["version"] > version


def test_a_slave_that_dies_by_itself_is_restarted_into_the_pool(pool: Pool) -> None:
    def run() -> list[str]:
        return [slave["incarnation"] for slave in pool.status()["slaves"] if slave["name"] == "slave-2"]

    before = run()
    os.kill(pool.process("slave-2")["pid"], signal.SIGKILL)
    pool.until(lambda: run() != before and pool.states() == LIVE)


def test_a_hung_slave_is_suspect_until_it_goes_on(pool: Pool) -> None:
    pool.cluster.pause("slave-2")
    pool.until(lambda: pool.states() == {"slave-1": "live", "slave-2": "suspect"})
    (reason,) = [slave["reason"] for slave in pool.status()["slaves"] if slave["state"] == "suspect"]
    assert reason == "its beats have stopped"
    pool.cluster.resume("slave-2")
    pool.until(lambda: pool.states() == LIVE)


def test_the_pool_outlives_the_master_and_a_new_one_takes_nobody_away(pool: Pool) -> None:
    epoch = pool.status()["master"]["epoch"]
    pool.cluster.kill("master")
    pool.until(lambda: pool.status()["master"]["state"] == "away")
    assert pool.states() == LIVE
    pool.cluster.start("master")
    pool.until(lambda: pool.states() == LIVE and pool.status()["master"]["epoch"] > epoch)
    grace_over = time.monotonic() + 6
    while time.monotonic() < grace_over:
        assert pool.states() == LIVE
        time.sleep(0.1)


def test_a_hung_master_changes_nothing(pool: Pool) -> None:
    pool.cluster.pause("master")
    pool.until(lambda: pool.status()["master"]["state"] == "away")
    assert pool.states() == LIVE
    pool.cluster.resume("master")
    pool.until(lambda: pool.status()["master"]["state"] == "connected")
    pool.until(lambda: pool.states() == LIVE)


def test_a_slave_that_is_terminated_says_so_and_is_forgotten_at_once(pool: Pool) -> None:
    """The supervisor starts it again, since nobody ordered it to end."""
    os.kill(pool.process("slave-1")["pid"], signal.SIGTERM)
    log = pool.cluster.directory.log_path("master")
    pool.until(lambda: "slave is draining slave=slave-1" in log.read_text())
    pool.until(lambda: pool.states() == LIVE)
    told = [line for line in log.read_text().splitlines() if "slave=slave-1" in line][-3:]
    assert ["draining" in told[0], "forgotten" in told[1], "live" in told[2]] == [True] * 3, told


def test_the_pool_grows_by_a_slave_that_nobody_has_announced(pool: Pool, tmp_path: Path) -> None:
    """A configuration file and a process are enough: nothing else has to know of a new slave."""
    directory = ClusterDirectory(pool.database.directory)
    kept = Config.load(directory.config_path("slave-1"), {})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = directory.config_path("slave-1").read_text()
    text = text.replace('"slave-1"', '"slave-3"').replace(f"\nport = {kept.server.port}", f"\nport = {port}")
    text = text.replace(f"metrics_port = {kept.server.metrics_port}", "metrics_port = 0")
    (tmp_path / "slave-3.toml").write_text(text)
    command = directory.process_command("slave-1", "slave")[:-1]
    added = spawn([*command, str(tmp_path / "slave-3.toml")], tmp_path / "log")
    try:
        pool.until(lambda: pool.states() == {**LIVE, "slave-3": "live"})
    finally:
        os.kill(added.pid, signal.SIGTERM)
        os.waitpid(added.pid, 0)
    pool.until(lambda: pool.states() == LIVE)
