"""Benchmarks that are interrupted say nothing of their load processes, and peers that cannot start end none."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from f1common.clock import boot_us
from f1deploy.bench import schema_change
from f1deploy.bench.database import systems
from spanstore.tools import bench
from spanstore.tools.load import LoadResult

_PROGRAM = """
import time
from f1common.programs import exit_at_sigterm
from spanstore.tools.bench import load_processes

if __name__ == "__main__":
    try:
        with exit_at_sigterm(), load_processes(2) as pool:
            futures = [pool.submit(time.sleep, 600) for _ in range(2)]
            print("working", flush=True)
            futures[0].result()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_load_processes_end_with_what_they_work_for(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    command, env = (
        [sys.executable, str(tmp_path / "program.py")],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    pipe = subprocess.PIPE
    # A shell starts what runs in its background with SIGINT ignored, which children have from their parent.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.send_signal(sent)
        # To the end of the output, which the load processes have open as well.
        out, err = process.communicate(timeout=60)
    assert (out, err) == ("interrupted\n" if sent == signal.SIGINT else "", "")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder of programs that say why they do not start."""
    for name in ("etcd", "initdb", "postgres"):
        (tmp_path / name).write_text("#!/bin/sh\necho starting >&2\necho no room for data >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_peers_that_cannot_start_are_told_as_missing(monkeypatch: pytest.MonkeyPatch, broken: Path) -> None:
    class Cluster:
        hosts = ""

    @contextmanager
    def cluster(*options: str) -> Iterator[Cluster]:
        yield Cluster()

    monkeypatch.setattr(systems, "local_cluster", cluster)
    monkeypatch.setattr(systems, "_ours", lambda *_: "ours")
    monkeypatch.setattr(systems, "_fill", lambda _: None)
    monkeypatch.setattr(systems, "find_binary", lambda: str(broken / "etcd"))
    monkeypatch.setattr(systems, "find_postgres", lambda: broken)
    with systems.running(frozenset({"etcd", "PostgreSQL"}), 2, lambda _: None) as up:
        assert list(up.systems) == ["f1db"] and up.postgres is None
        assert up.missing[0] == "etcd could not start: a member ended with 3: no room for data"
        assert up.missing[1].startswith("PostgreSQL could not start: ")


def test_so_are_those_of_other_benchmarks(broken: Path) -> None:
    theirs, note = schema_change._peer(broken, broken)
    assert theirs is None and note.startswith("PostgreSQL could not start: ")
    nothing: Any = None
    found = asyncio.run(bench._measure_etcd(str(broken / "etcd"), nothing, nothing, nothing))
    assert found == ({}, "etcd could not start: a member ended with 3: no room for data")
    assert asyncio.run(bench._measure_etcd(str(broken / "no"), nothing, nothing, nothing))[1].startswith(
        "etcd could not start: [Errno 2]"
    )
    assert asyncio.run(bench._measure_etcd(None, nothing, nothing, nothing)) == ({}, "etcd is not installed")


def test_nobody_is_told_how_the_load_of_an_interrupted_window_ended(caplog: pytest.LogCaptureFixture) -> None:
    ending = threading.Event()

    def load(_: int) -> LoadResult:
        ending.wait()
        raise BrokenProcessPool

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            now = boot_us()
            pools: Any = pool
            window = asyncio.create_task(bench.run_window(pools, load, [1], (now, now + 600_000_000), lambda: None))
            await asyncio.sleep(0.05)
            window.cancel()
            await asyncio.wait([window])
            ending.set()
        await asyncio.sleep(0.05)

    asyncio.run(main())
    gc.collect()
    assert caplog.records == []
