"""Ctrl-C while a schema change is waited for: who stops waiting is told that it goes on, and how to follow it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import f1
from f1.shell.render import Format
from f1.shell.repl import Repl
from f1common.pb import f1_pb2 as pb
from tests.unit.client_f1.fake_server import FakeCluster, fake_cluster, once

ENDED = pb.SchemaJob(number=6, state="done")
RUNS = pb.SchemaJob(number=7, state="running")


def interrupted(cluster: FakeCluster, kind: str, *arguments: str) -> tuple[int, str, str]:
    """Run a command, interrupt it once a server has a request of this kind; return how it ended and what it said."""
    command = [sys.executable, "-P", "-m", "f1", *arguments, "--host", cluster.hosts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not cluster.served(kind) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([ENDED, RUNS], "the servers go on with schema change 7: `f1 schema jobs` shows it, `f1 schema cancel 7`"),
        ([ENDED], "no schema change runs any more: `f1 schema history` tells whether it was made"),
    ],
)
def test_ddl(jobs: Sequence[pb.SchemaJob], told: str) -> None:
    with fake_cluster(1) as cluster:
        cluster.servers[0].jobs.extend(jobs)
        cluster.set_fault(once("hang", "execute"))
        code, out, err = interrupted(cluster, "execute", "sql", "-c", "CREATE INDEX I ON Account (Note)")
    assert (code, out) == (130, "")
    assert told in err
    assert "Traceback" not in err


def test_sources(tmp_path: Path) -> None:
    (tmp_path / "s.sql").write_text("CREATE TABLE T (K INT64 PRIMARY KEY)")
    with fake_cluster(1) as cluster:
        cluster.servers[0].jobs.append(RUNS)
        cluster.set_fault(once("hang", "apply_schema"))
        code, _, err = interrupted(cluster, "apply_schema", "schema", "apply", str(tmp_path / "s.sql"))
    assert code == 130
    assert "go on with schema change 7" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("sql", "told"), [("DROP INDEX I;", "go on with schema change 7"), ("SELECT 1;", "Cancelled.")]
)
def test_in_the_shell(sql: str, told: str) -> None:
    with fake_cluster(1) as cluster:
        cluster.servers[0].jobs.append(RUNS)
        cluster.set_fault(once("hang", "execute"))

        def interrupt() -> None:
            while not cluster.served("execute"):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        out: list[str] = []
        repl = Repl(lambda name: f1.connect(cluster.hosts, name, autocommit=True), None, Format.table, write=out.append)
        pressing = threading.Thread(target=interrupt)
        pressing.start()
        repl.run(sql)
        pressing.join()
    assert told in "".join(out)


def test_a_query_is_just_cancelled() -> None:
    with fake_cluster(1) as cluster:
        cluster.servers[0].jobs.append(RUNS)
        cluster.set_fault(once("hang", "execute"))
        assert interrupted(cluster, "execute", "sql", "-c", "SELECT 1") == (130, "", "")
