"""An index is built by real slaves while rows change; a slave is killed in the middle of it, and then the owner."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import f1
from f1deploy.cluster import Cluster
from tests.integration.database import Database, running

ROWS = 45_000
RATE = 4_000
"""Rows a second: the build takes long enough for what happens meanwhile."""


@contextmanager
def changing(database: Database) -> Iterator[list[int]]:
    """Change rows all the time; yields how often so far."""
    count = [0]
    ended = threading.Event()

    def work() -> None:
        with database.connect() as conn:
            while not ended.is_set():
                a = (count[0] * 7_919) % ROWS
                conn.execute("UPDATE R SET V = ? WHERE A = ?", (count[0], a))
                conn.execute("DELETE FROM R WHERE A = ?", ((a + 1) % ROWS,))
                conn.execute("INSERT INTO R VALUES (?, ?, 'new')", (ROWS + count[0], count[0]))
                count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass")


def job_of(database: Database) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(database.command("schema", "history", "--format", "json"))
    return found[-1]


def log_of(database: Database, name: str) -> str:
    return (database.directory / "log" / f"{name}.log").read_text()


def test_a_slave_and_the_owner_die_in_the_middle_of_a_build(tmp_path: Path) -> None:
    rates = [f"f1server.reorganise_{bound}_rows_per_s={RATE}" for bound in ("min", "max")]
    options = ("--spanservers", "1", "--groups", "2", "--slaves", "2", "--set", rates[0], "--set", rates[1])
    with running(tmp_path, *options) as database:
        cluster = Cluster(database.directory)
        with database.connect() as conn:
            conn.execute("CREATE TABLE R (A INT64 NOT NULL, V INT64, S STRING, PRIMARY KEY (A))")
        table = tmp_path / "rows.csv"
        table.write_text("A,V,S\n" + "".join(f"{a},{a % 1000},row {a}\n" for a in range(ROWS)))
        database.command("load", "R", str(table))

        def build() -> None:
            try:
                with f1.connect(database.hosts.split(",")[0], autocommit=True, timeout_s=600.0) as owner:
                    owner.execute("CREATE INDEX RV ON R (V) STORING (S)")
            except f1.Error:
                pass  # the server that was asked is killed

        with changing(database) as count:
            building = threading.Thread(target=build)
            building.start()
            until(lambda: job_of(database)["rows"] > 2_000)
            cluster.kill("slave-1")
            until(lambda: job_of(database)["rows"] > ROWS // 2)
            cluster.kill("f1-1")
            building.join()
            until(lambda: job_of(database)["state"] == "done")
            changes = count[0]
        assert changes > 10
        # How much was finished by then is not certain here; test_divided_walks sees that only the rest is done.
        assert "is carried on here" in log_of(database, "f1-2")
        assert "a process that works on rows was started" in log_of(database, "slave-2")
        cluster.start("f1-1")
        database.command("check")
        with database.connect() as conn:
            plan = "\n".join(str(row[0]) for row in conn.execute("EXPLAIN SELECT A FROM R WHERE V = 5").fetchall())
            assert "RV" in plan
