"""`f1 spanserver` as a process: how it ends, and what it says."""

import asyncio
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from f1common.encoding import tuple as tuples
from f1deploy.configs import write_configs
from f1deploy.directory import ClusterDirectory
from f1deploy.ports import FreePorts
from f1deploy.spec import HOST, ClusterSpec, Shape, plan
from spanstore.client import Write
from spanstore.tools.target import from_directory

WAIT_S = 30


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    """A cluster of one server that nobody has started."""
    made = ClusterDirectory(tmp_path / "cluster")
    made.create()
    configure(made, plan(Shape(spanservers=1, groups=1), "tea", 0, FreePorts(HOST, random.Random(str(tmp_path)))))
    return made


def configure(directory: ClusterDirectory, spec: ClusterSpec) -> None:
    directory.save(spec)
    write_configs(directory, spec)


@contextmanager
def spanserver(directory: ClusterDirectory, *, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """The server as a process of ours; `before` is run by the shell that becomes it."""
    command = f"{before} exec {sys.executable} -m f1 spanserver --config {directory.config_path('span-a1')}"
    with subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def put(directory: ClusterDirectory, count: int, size: int, timeout_s: float = WAIT_S) -> None:
    async def work() -> None:
        async with from_directory(directory.path).client() as client:
            for number in range(count):
                await client.commit([Write(tuples.encode((1, number)), bytes(size))], timeout_s=timeout_s)

    asyncio.run(work())


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_sigterm_ends_a_server_well(directory: ClusterDirectory) -> None:
    with spanserver(directory) as process:
        put(directory, 3, 100)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_a_busy_port_is_named(directory: ClusterDirectory) -> None:
    port = directory.load().processes[0].port
    with socket.create_server((HOST, port)), spanserver(directory) as process:
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert last_line(err).startswith(f"PORT_IN_USE: port {port} ")


def test_data_of_another_cluster_are_refused(directory: ClusterDirectory) -> None:
    with spanserver(directory):
        put(directory, 1, 10)
    configure(directory, msgspec.structs.replace(directory.load(), cluster_id="coffee"))
    with spanserver(directory) as process:
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert last_line(err).startswith("BAD_DATA_DIR: ")
    assert "'tea'" in err
