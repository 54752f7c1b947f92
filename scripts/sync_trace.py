"""Show with strace that a majority has synced a write before its client hears of it. SIGKILL alone does not test that.

`python scripts/sync_trace.py` starts three spanservers, attaches strace to them and has clients commit rows, each with
a mark of its own in its value. In the traces a mark is durable on a server when the system call that wrote it to the
data file is followed by a `fdatasync` of that file and by the write of a meta page, whose descriptor is open with
O_DSYNC (so LMDB commits). At least two servers must be done with that before a row is acknowledged.
"""

import argparse
import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from f1common.encoding import tuple as tuples
from f1common.errors import F1Error
from f1deploy.cluster import Cluster, UpOptions
from spanstore.client import SpanClient, Write
from spanstore.tools.ourstore import group_prefixes
from spanstore.tools.target import from_directory

MAJORITY = 2
ATTACH_S = 2.0
MARK = re.compile(r"mark-\d{6}\.")
CALL = re.compile(
    r"^(?P<at>\d+\.\d+) (?P<name>\w+)\(\d+<(?P<path>[^>]*)>(?P<rest>.*) = (?P<result>-?\d+).* <(?P<took>[\d.]+)>$"
)
META_BYTES = 120
"""LMDB writes this much of a meta page, and nothing else of that size."""


def mark(number: int) -> str:
    return f"mark-{number:06d}."


@dataclass(frozen=True, slots=True)
class Call:
    """A system call on the data file; times are seconds since the epoch."""

    name: str
    begin: float
    end: float
    result: int
    marks: frozenset[str]


def parse(lines: Sequence[str]) -> list[Call]:
    """Return the calls of one thread on the data file in their order."""
    calls = []
    for line in lines:
        match = CALL.match(line)
        if match and match["path"].endswith("/data.mdb"):
            begin = float(match["at"])
            marks = frozenset(MARK.findall(match["rest"]))
            calls.append(Call(match["name"], begin, begin + float(match["took"]), int(match["result"]), marks))
    return calls


def durable_moments(calls: Sequence[Call]) -> dict[str, float]:
    """Return for each mark the moment from which it survives a loss of power on this server."""
    moments: dict[str, float] = {}
    written: set[str] = set()
    synced: set[str] = set()
    for call in calls:
        if call.name in ("fdatasync", "fsync") and call.result == 0:
            synced |= written
            written = set()
        elif call.name == "pwrite64" and call.result == META_BYTES:
            for each in synced:
                moments.setdefault(each, call.end)
            synced = set()
        elif call.result > 0:
            written |= call.marks
    return moments


@contextmanager
def traced(pid: int, output: Path) -> Iterator[None]:
    """Trace all threads of a process, each into a file of its own."""
    calls = "trace=fdatasync,fsync,pwrite64,writev,pwritev"
    command = ["strace", "-ff", "-ttt", "-T", "-y", "-s", "1000000", "-e", calls, "-o", str(output), "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


async def commit_rows(client: SpanClient, rows: int, clients: int) -> dict[str, float]:
    """Commit rows in all groups and return when each was acknowledged."""
    homes = group_prefixes(await client.range_map())
    acknowledged: dict[str, float] = {}
    numbers = iter(range(rows))

    async def one() -> None:
        for number in numbers:
            key = homes[number % len(homes)] + tuples.encode(("sync", number))
            try:
                await client.commit([Write(key, mark(number).encode())], timeout_s=20.0)
            except F1Error as error:
                print(f"{mark(number)} failed: {error}")
            else:
                acknowledged[mark(number)] = time.time()

    await asyncio.gather(*(one() for _ in range(clients)))
    return acknowledged


def judge(acknowledged: Mapping[str, float], servers: Sequence[Mapping[str, float]]) -> tuple[list[str], Counter[int]]:
    """Return the marks that fewer than a majority had synced in time, and how many servers had, as a distribution."""
    counts = {
        name: sum(server.get(name, float("inf")) <= moment for server in servers)
        for name, moment in acknowledged.items()
    }
    return [name for name, count in sorted(counts.items()) if count < MAJORITY], Counter(counts.values())


def check_attached(pids: Sequence[int]) -> None:
    for pid in pids:
        if "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
            raise SystemExit(f"strace could not attach to process {pid}")


async def trace(directory: Path, pids: Sequence[int], rows: int, clients: int) -> dict[str, float]:
    async with from_directory(directory).client() as client:
        await client.range_map()
        await asyncio.sleep(ATTACH_S)
        check_attached(pids)
        return await commit_rows(client, rows, clients)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args(arguments)
    if shutil.which("strace") is None:
        raise SystemExit("strace is not installed")
    with tempfile.TemporaryDirectory(prefix="f1-sync-") as folder:
        cluster = Cluster(Path(folder) / "cluster")
        cluster.up(UpOptions(port=0, f1servers=0))
        try:
            pids = [item.pid for item in cluster.status() if item.pid is not None]
            outputs = [Path(folder) / f"trace-{number}" for number in range(len(pids))]
            with traced(pids[0], outputs[0]), traced(pids[1], outputs[1]), traced(pids[2], outputs[2]):
                acknowledged = asyncio.run(trace(cluster.directory.path, pids, given.rows, given.clients))
        finally:
            cluster.down()
        servers: list[dict[str, float]] = []
        for output in outputs:
            files = sorted(output.parent.glob(f"{output.name}.*"))
            found = [durable_moments(parse(file.read_text(errors="replace").splitlines())) for file in files]
            servers.append({name: moment for moments in found for name, moment in moments.items()})
    early, counts = judge(acknowledged, servers)
    print(f"{len(acknowledged)} of {given.rows} rows were acknowledged; synced before that")
    for count in sorted(counts):
        print(f"  on {count} servers: {counts[count]}")
    print(f"acknowledged before a majority had synced: {', '.join(early) or 'none'}")
    return 1 if early or not acknowledged else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
