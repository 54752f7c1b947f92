"""An f1server that has no storage for long exits, and its supervisor starts it again."""

import json
import signal
import time
from pathlib import Path

from f1deploy.directory import ClusterDirectory
from f1deploy.processes import send_signal
from tests.integration.database import Database, running

OPTIONS = ("--spanservers", "1", "--f1servers", "1", "--set", "f1server.exit_after_ms=3000")


def pid_of(database: Database, name: str) -> int:
    processes = json.loads(database.command("cluster", "status", "--format", "json", "--dir", str(database.directory)))
    (pid,) = [process["pid"] for process in processes if process["name"] == name]
    return int(pid or 0)


def test_a_server_without_storage_exits_and_is_started_again(tmp_path: Path) -> None:
    with running(tmp_path, *OPTIONS) as database:
        with database.connect() as conn:
            conn.execute("CREATE TABLE A (Id INT64 PRIMARY KEY)")
            conn.execute("INSERT INTO A VALUES (1)")
        before = pid_of(database, "f1-1")
        storage = ClusterDirectory(database.directory).state("span-a1").identity
        send_signal(storage, signal.SIGSTOP)
        try:
            for _ in range(600):
                if pid_of(database, "f1-1") not in (0, before):
                    break
                time.sleep(0.1)
        finally:
            send_signal(storage, signal.SIGCONT)
        assert pid_of(database, "f1-1") not in (0, before)
        log = (database.directory / "log" / "f1-1.log").read_text()
        assert "no schema lease could be had for 3000 ms" in log
        with database.connect() as conn:
            assert conn.execute("SELECT Id FROM A").fetchall() == [(1,)]
