"""State transfer between processes: a server that was down while the log was cut, killed in the middle of it."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1common.pb import spanstore_pb2 as pb
from f1deploy.configs import write_configs
from f1deploy.directory import ClusterDirectory
from f1deploy.ports import FreePorts
from f1deploy.spec import HOST, Shape, plan
from spanstore.client import SpanClient, Write
from spanstore.testing.adapter import read_replica
from spanstore.tools.target import from_directory

WAIT_S = 60
LATE = "span-c1"
SETTINGS = (
    "paxos.lease_ms=600",
    "paxos.heartbeat_ms=80",
    "paxos.election_timeout_ms=300",
    "paxos.log_keep_entries=10",
    "paxos.log_hold_entries=50",
    "storage.scan_processes=0",
    "storage.transfer_chunk_bytes=65536",
    # Slow enough to be killed in the middle.
    "storage.transfer_bytes_per_s=1000000",
)


class Servers:
    """The processes of a cluster in ``path``."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.directory = ClusterDirectory(path)
        self.directory.create()
        spec = plan(Shape(spanservers=3, groups=1, f1servers=0), "tea", 0, FreePorts(HOST, random.Random(str(path))))
        spec = msgspec.structs.replace(spec, overrides=SETTINGS)
        self.directory.save(spec)
        write_configs(self.directory, spec)
        self.names = [process.name for process in spec.spanservers()]
        self._stack = stack
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, name: str) -> Path:
        return self.directory.path / f"{name}.out"

    def start(self, name: str) -> None:
        out = self._stack.enter_context(self.log(name).open("ab"))
        command = [sys.executable, "-m", "f1", "spanserver", "--config", str(self.directory.config_path(name))]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self._running[name] = process

    def end(self, name: str, how: int) -> None:
        self._running[name].send_signal(how)
        self._running[name].wait(WAIT_S)


def key(number: int) -> bytes:
    return tuples.encode((1, number))


def value(number: int) -> bytes:
    return random.Random(number).randbytes(20_000)


async def put(client: SpanClient, numbers: range) -> int:
    ts = 0
    for number in numbers:
        ts = await client.commit([Write(key(number), value(number))], timeout_s=30)
    return ts


async def status_of(client: SpanClient, name: str) -> pb.StatusReply | None:
    for answer in (await client.status()).values():
        if isinstance(answer, pb.StatusReply) and answer.name == name:
            return answer
    return None


async def until(client: SpanClient, done: Callable[[pb.StatusReply], bool]) -> pb.StatusReply:
    """Wait for a status of the late server. Raises TimeoutError."""
    async with asyncio.timeout(WAIT_S):
        while True:
            status = await status_of(client, LATE)
            if status is not None and done(status):
                return status
            await asyncio.sleep(0.05)


async def read_all(client: SpanClient, ts: int, numbers: range) -> None:
    """Compare what the late server alone answers with what was written."""
    for first in range(0, len(numbers), 50):
        some = numbers[first : first + 50]
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    found = await read_replica(client, LATE, ts, [key(number) for number in some])
                    break
                except F1Error:
                    await asyncio.sleep(0.2)  # its safe time is not there yet
        assert found == [value(number) for number in some], f"keys {some} differ at {LATE}"


async def late(servers: Servers) -> None:
    for name in servers.names:
        servers.start(name)
    async with from_directory(servers.directory.path).client() as client:
        await put(client, range(20))
        servers.end(LATE, signal.SIGTERM)
        ts = await put(client, range(20, 320))
        servers.start(LATE)
        # Killed in the middle: what it had by then it need not fetch again.
        before = await until(client, lambda s: any(i.base_index and i.received_bytes > 1_000_000 for i in s.installing))
        servers.end(LATE, signal.SIGKILL)
        ts = await put(client, range(320, 330))
        servers.start(LATE)
        after = await until(client, lambda s: len(s.installing) > 0)
        had = {i.group: (i.base_index, i.received_bytes) for i in before.installing}
        for item in after.installing:
            assert item.base_index == had[item.group][0]
            assert item.received_bytes >= had[item.group][1]
        await until(client, lambda s: len(s.installing) == 0 and len(s.groups) == 2)
        await read_all(client, ts, range(330))


def test_a_server_that_was_away_too_long_fetches_the_state_though_it_is_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(tmp_path / "cluster", stack)
        asyncio.run(late(servers))
        log = servers.log(LATE).read_text()
    assert "fetching the state" in log
    assert "are installed" in log
    assert "Traceback" not in log
