"""Spanservers on real file systems that are small, become read-only, or hold a damaged file."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from f1deploy.configs import write_configs
from f1deploy.directory import ClusterDirectory
from f1deploy.ports import FreePorts
from f1deploy.spec import HOST, Shape, plan
from spanstore.client import SpanClient, Write
from spanstore.engine import keyspace
from spanstore.engine.damage import DAMAGE_FILE
from spanstore.engine.directory import DATA_FILE
from spanstore.mvcc.versions import version_key
from spanstore.scrub.offline import check_directory
from spanstore.tools.target import from_directory

WAIT_S = 30
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
T = TypeVar("T")

SETTINGS = ("storage.reserve_mib=16", "storage.digest_every_ms=0")


def key(number: int) -> bytes:
    return tuples.encode((1, number))


class Servers:
    """Spanservers of one cluster as processes of ours; a server's log is kept in its data directory's parent."""

    def __init__(self, base: Path, count: int) -> None:
        self.directory = ClusterDirectory(base / "cluster")
        self.directory.create()
        spec = plan(Shape(spanservers=count, groups=1), "tea", 0, FreePorts(HOST, random.Random(str(base))))
        self.directory.save(spec)
        write_configs(self.directory, spec)
        self.names = [process.name for process in spec.processes if process.kind == "spanserver"]
        self.addresses = {process.name: process.address for process in spec.processes}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._runner = asyncio.Runner()

    def data(self, name: str) -> Path:
        return self.directory.config_path(name).parent / self._data_dir(name)

    def _data_dir(self, name: str) -> str:
        text = self.directory.config_path(name).read_text()
        return text.split('data_dir = "')[1].split('"')[0]

    def start(self, name: str, *settings: str, before: str = "") -> None:
        options = " ".join(f"--set {setting}" for setting in (*SETTINGS, *settings))
        command = (
            f"{before} exec {sys.executable} -m f1 spanserver --config {self.directory.config_path(name)} {options}"
        )
        with self.log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def log(self, name: str) -> Path:
        return self.directory.path / f"{name}.test.log"

    def ends(self, name: str) -> int:
        return self._processes.pop(name).wait(WAIT_S)

    def alive(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def stop(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGTERM)
        self._processes.pop(name).wait(WAIT_S)

    def kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._runner.close()

    def run(self, work: Callable[[SpanClient], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with from_directory(self.directory.path).client() as client:
                return await work(client)

        return self._runner.run(connected())

    def put(self, number: int, size: int, timeout_s: float = WAIT_S) -> None:
        async def work(client: SpanClient) -> None:
            await client.commit([Write(key(number), bytes(size))], timeout_s=timeout_s)

        self.run(work)

    def length(self, number: int) -> int | None:
        async def work(client: SpanClient) -> int | None:
            found = (await client.read([key(number)], timeout_s=WAIT_S)).versions[0]
            return None if found is None or found.value is None else len(found.value)

        return self.run(work)

    def status(self) -> dict[str, pb.StatusReply]:
        async def work(client: SpanClient) -> dict[str, pb.StatusReply]:
            answers = await client.status()
            return {a.name: a for a in answers.values() if isinstance(a, pb.StatusReply)}

        return self.run(work)

    def conditions(self, name: str) -> list[str]:
        found = self.status().get(name)
        return [] if found is None else list(found.conditions)

    def until(self, done: Callable[[], object], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            with suppress(F1Error, KeyError):  # a server may be starting
                if done():
                    return
            time.sleep(0.1)
        pytest.fail(f"{what}; conditions: { {name: self.conditions(name) for name in self.names} }")

    def health(self, name: str, part: str) -> int:
        with grpc.insecure_channel(self.addresses[name]) as channel:
            request = health_pb2.HealthCheckRequest(service=part)
            return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=5).status)


@contextmanager
def servers(base: Path, count: int) -> Iterator[Servers]:
    made = Servers(base, count)
    try:
        yield made
    finally:
        made.kill_all()


@contextmanager
def small_disk(path: Path, mib: int) -> Iterator[None]:
    """A file system of its own, in memory, of so many MiB."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill_up(path: Path) -> Path:
    """Take all the room that is left on a disk."""
    hog = path.parent / f"{path.name}-hog" if not path.is_mount() else path / "hog"
    with hog.open("wb") as stream, suppress(OSError):
        while True:
            stream.write(bytes(1 << 20))
            stream.flush()
    return hog


@pytest.fixture
def mounting() -> None:
    """For tests that mount file systems, which only root may."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")


@pytest.mark.usefixtures("mounting")
def test_a_leader_whose_disk_is_full_hands_over_and_comes_back(tmp_path: Path) -> None:
    with servers(tmp_path, 3) as cluster, small_disk(cluster.data(cluster.names[0]), 64):
        victim = cluster.names[0]
        for name in cluster.names:
            cluster.start(name)
        cluster.put(1, 1000)
        hog = fill_up(cluster.data(victim))
        # The file has its reserve; what is written now uses it up.
        for number in range(2, 60):
            cluster.put(number, 200_000)
        cluster.until(lambda: any("DISK_FULL" in text for text in cluster.conditions(victim)), "it does not say so")
        cluster.until(lambda: cluster.health(victim, "disk") == NOT_SERVING, "its health does not say so")
        cluster.until(lambda: not leads(cluster, victim), "it leads on")
        cluster.put(60, 200_000)
        assert not leads(cluster, victim)
        assert all(cluster.length(n) == 200_000 for n in (2, 20, 60))
        hog.unlink()
        cluster.until(lambda: not cluster.conditions(victim), "it does not recover")
        cluster.until(lambda: behind(cluster) == 0, "it does not catch up")
        assert cluster.alive(victim)
        for name in cluster.names:
            cluster.stop(name)
        assert not any(check_directory(cluster.data(name)).findings for name in cluster.names)


def leads(cluster: Servers, name: str) -> bool:
    return any(group.role == "leader" for group in cluster.status()[name].groups)


def behind(cluster: Servers) -> int:
    found: dict[int, list[int]] = {}
    for reply in cluster.status().values():
        for group in reply.groups:
            found.setdefault(group.group, []).append(group.applied_index)
    return max(max(indexes) - min(indexes) for indexes in found.values())


@pytest.mark.usefixtures("mounting")
def test_with_all_disks_full_writes_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    with servers(tmp_path, 1) as cluster, small_disk(cluster.data(cluster.names[0]), 48):
        (name,) = cluster.names
        cluster.start(name)
        cluster.put(1, 1000)
        hog = fill_up(cluster.data(name))
        error = None
        for number in range(2, 60):
            try:
                cluster.put(number, 200_000)
            except F1Error as caught:
                error = caught
                break
        assert error is not None and error.code is Code.DISK_FULL and not error.ambiguous, error
        assert "free space" in error.message
        assert cluster.length(1) == 1000 and cluster.length(number - 1) == 200_000
        assert cluster.length(number) is None

        async def remove(client: SpanClient) -> None:
            await client.commit([Write(key(2), None)], timeout_s=WAIT_S)

        cluster.run(remove)
        assert cluster.length(2) is None
        assert cluster.alive(name)
        hog.unlink()
        cluster.until(lambda: not cluster.conditions(name), "it does not recover")
        cluster.put(number, 200_000)
        assert cluster.length(number) == 200_000


@pytest.mark.usefixtures("mounting")
def test_a_disk_that_becomes_read_only_ends_the_server_which_waits_for_it(tmp_path: Path) -> None:
    with servers(tmp_path, 1) as cluster, small_disk(cluster.data(cluster.names[0]), 64):
        (name,) = cluster.names
        disk = str(cluster.data(name))
        cluster.start(name)
        cluster.put(1, 1000)
        cluster.stop(name)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        cluster.start(name)
        cluster.until(lambda: b"read-only" in cluster.log(name).read_bytes(), "it does not say why it waits")
        assert cluster.alive(name)
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert cluster.length(1) == 1000


def test_a_server_that_cannot_write_at_all_ends_with_the_reason(tmp_path: Path) -> None:
    """Files may grow to 9 MB, and one write takes more than the little that is kept in reserve."""
    with servers(tmp_path, 1) as cluster:
        (name,) = cluster.names
        cluster.start(name, "storage.reserve_mib=1", before="ulimit -f 9000;")
        cluster.put(1, 100)
        with pytest.raises(F1Error):
            for number in range(2, 60):
                cluster.put(number, 300_000, timeout_s=3)
        assert cluster.ends(name) == 1
        assert cluster.log(name).read_text().strip().splitlines()[-1].startswith("DISK_FULL: ")
        # What was acknowledged is there, once there is room again.
        cluster.start(name)
        assert cluster.length(1) == 100
        assert all(cluster.length(n) == 300_000 for n in range(2, number))
        cluster.put(60, 300_000)


def test_a_damaged_row_is_never_served_and_its_replica_stays_out(tmp_path: Path) -> None:
    with servers(tmp_path, 3) as cluster:
        victim = cluster.names[0]
        for name in cluster.names:
            cluster.start(name)
        for number in range(20):
            cluster.put(number, 1000 + number)
        for name in cluster.names:
            cluster.stop(name)
        flip_in_value(cluster.data(victim) / DATA_FILE, key(7))
        assert any("damaged" in str(found) for found in check_directory(cluster.data(victim)).findings)
        # Nobody rebuilds it here, which the placement driver would do after some seconds.
        for name in cluster.names:
            cluster.start(name, "placement.period_ms=86400000")
        assert all(cluster.length(number) == 1000 + number for number in range(20))
        scrub(cluster, victim)
        cluster.until(lambda: cluster.status()[victim].damaged_groups, "scrubbing did not find it")
        assert any("damaged: group" in text for text in cluster.conditions(victim))
        cluster.until(lambda: cluster.health(victim, "data") == NOT_SERVING, "its health does not say so")
        assert cluster.health(victim, "") == health_pb2.HealthCheckResponse.SERVING
        assert (cluster.data(victim) / DAMAGE_FILE).exists()
        cluster.stop(victim)
        cluster.start(victim, "placement.period_ms=86400000")
        cluster.until(lambda: cluster.status()[victim].damaged_groups, "it forgot")
        cluster.put(7, 2007)
        assert cluster.length(7) == 2007


def scrub(cluster: Servers, name: str) -> None:
    async def work(client: SpanClient) -> int:
        return await client.scrub(name)

    passes = cluster.run(work)
    cluster.until(lambda: cluster.status()[name].scrub.passes >= passes, "the pass does not end")


def flip_in_value(file: Path, row: bytes) -> None:
    """Flip a bit in the value of a row, which is all zeros, in every page that has it or had it once."""
    data = bytearray(file.read_bytes())
    groups = [group for group in range(4) if version_key(group, row, 0)[:-9] in data]
    stem = keyspace.data_prefix(groups[0]) + row
    at = data.find(stem)
    while at >= 0:
        value = at + len(stem) + 9 + 5
        if not any(data[value : value + 500]):  # the key alone is in index pages, and so are parts of it elsewhere
            data[value + 40] ^= 4
        at = data.find(stem, at + 1)
    file.write_bytes(data)


def test_a_truncated_file_ends_the_server_and_is_noted(tmp_path: Path) -> None:
    with servers(tmp_path, 1) as cluster:
        (name,) = cluster.names
        cluster.start(name)
        cluster.put(1, 100)
        cluster.stop(name)
        os.truncate(cluster.data(name) / DATA_FILE, 16_384)
        cluster.start(name)
        assert cluster.ends(name) == 1
        assert b"DATA_CORRUPTION" in cluster.log(name).read_bytes()
        assert (cluster.data(name) / DAMAGE_FILE).exists()
        shutil.rmtree(cluster.data(name))
