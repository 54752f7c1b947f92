"""Transactions of the orchestrator on real processes that are killed and stopped: what all clients saw is one history.

Clients are processes of their own, which are killed and stopped too. In the end the checker of snapshot isolation looks
at what they wrote down, and the transaction table says what became of those that did not live to write it.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from f1.orchestrator import SpanStore, protocol
from f1deploy.cluster import Cluster
from spanstore.testing.checkers import check_snapshot_isolation, require
from tests.integration.database import Database, running
from tests.integration.orchestrator_load import Book, History, Options, connect, fill

CLIENTS = 4
PATIENCE_S = 240.0
SETTINGS = ("orchestrator.lock_lease_ms=1500", "orchestrator.lock_tenure_ms=20000")


class Stage:
    """The cluster, its clients, and the faults that befall both."""

    def __init__(self, database: Database, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.cluster = Cluster(database.directory)
        self._started = 0
        self.clients: list[subprocess.Popen[bytes]] = []
        found = json.loads(database.command("status", "--format", "json"))["orchestrator"]
        timestamps = ",".join(item["address"] for item in found["timestamps"])
        self.options = Options(database.hosts, timestamps, found["locks"]["address"], str(folder / "main.jsonl"), 0)

    def fill(self) -> None:
        async def main() -> None:
            book = Book(Path(self.options.path))
            o = connect(self.options, book)
            await fill(o, book)
            await o.close()

        asyncio.run(main())

    def start_client(self) -> None:
        self._started += 1
        path = str(self.folder / f"client-{self._started}.jsonl")
        options = msgspec.structs.replace(self.options, path=path, seed=self.rng.getrandbits(32))
        command = [sys.executable, "-m", "tests.integration.orchestrator_load", msgspec.json.encode(options).decode()]
        self.clients.append(subprocess.Popen(command))

    def history(self) -> History:
        return History(self.folder.glob("*.jsonl"))

    def progress(self, commits: int = 15) -> None:
        """Wait until so many transactions more have committed."""
        goal = self.history().commits + commits
        end = time.monotonic() + PATIENCE_S
        while self.history().commits < goal:
            dead = [client.returncode for client in self.clients if client.poll() is not None]
            assert not dead, f"a client ended by itself: {dead}, {self.history().violations}"
            assert time.monotonic() < end, f"nothing commits any more; {self.history().errors}"
            time.sleep(0.2)

    # -- faults --

    def kill_process(self, name: str) -> None:
        """SIGKILL: the supervisor starts it again."""
        for status in self.cluster.status():
            if status.name == name and status.pid is not None:
                os.kill(status.pid, signal.SIGKILL)

    def stop_process(self, name: str) -> None:
        """Stop a process for longer than leases last, and let it go on."""
        self.cluster.pause(name)
        time.sleep(self.rng.uniform(0.2, 4.0))
        self.cluster.resume(name)

    def kill_client(self, _name: str) -> None:
        client = self.clients.pop(self.rng.randrange(len(self.clients)))
        client.kill()
        client.wait()
        self.start_client()

    def stop_client(self, _name: str) -> None:
        client = self.rng.choice(self.clients)
        client.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.2, 4.0))
        client.send_signal(signal.SIGCONT)

    def fault(self) -> None:
        names = ["timestamps-1", "timestamps-2", "locks", "span-a1", "span-b1", "span-c1"]
        faults: list[Callable[[str], None]] = [self.kill_process, self.stop_process, self.kill_client, self.stop_client]
        chosen = self.rng.choice(faults)
        chosen(self.rng.choice(names))

    def audit(self) -> History:
        """End all clients; return their history, with the decisions that the transaction table has."""
        for client in self.clients:
            client.send_signal(signal.SIGTERM)
        for client in self.clients:
            assert client.wait(PATIENCE_S) == 0
        history = self.history()

        async def rows() -> None:
            store = SpanStore(self.options.storage, timeout_s=PATIENCE_S)
            start = b"\x02"
            while page := await store.range(start, b"\x03", protocol.EVERYTHING, 1000):
                for key, versions in page:
                    commit = protocol.decode_decision(versions[0].value)
                    history.decide(protocol.transaction_of(key), commit)
                start = page[-1][0] + b"\x00"
            await store.close()

        asyncio.run(rows())
        return history


def play(folder: Path, seed: int, faults: int) -> History:
    settings = [word for item in SETTINGS for word in ("--set", item)]
    with running(folder, "--orchestrator", "--groups", "2", "--f1servers", "1", *settings) as database:
        books = folder / "books"
        books.mkdir()
        stage = Stage(database, books, seed)
        stage.fill()
        try:
            for _ in range(CLIENTS):
                stage.start_client()
            for _ in range(faults):
                stage.progress(stage.rng.randrange(1, 20))
                stage.fault()
            stage.progress(30)
            history = stage.audit()
        finally:
            for client in stage.clients:
                client.kill()
                client.wait()
        database.command("check")
    assert not history.violations
    require(check_snapshot_isolation(list(history.transactions.values()), history.decisions))
    return history


def test_what_clients_see_is_one_history_whoever_is_killed_or_stopped(tmp_path: Path) -> None:
    history = play(tmp_path, 1, 8)
    assert history.commits > 50


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(10, 16))
def test_the_same_for_a_long_time(tmp_path: Path, seed: int) -> None:
    history = play(tmp_path, seed, 30)
    assert history.commits > 200
