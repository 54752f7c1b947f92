"""Which cluster a command talks to: `--host`, or the directory of a local cluster, where its clock is known too."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import grpc
import typer
import uvloop

from f1common.clock import BoundedClock, Clock, boot_id, boot_us, clock_from_config
from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2, f1_pb2_grpc
from f1common.rpc.channels import channel_options
from spanstore.client import SpanClient

DEFAULT_DIRECTORY = Path("f1-cluster")
DEFAULT_HOST = "127.0.0.1:7400"
HOST_VARIABLE = "F1_HOST"

# Without the cluster's own configuration the system clock has to do; this is far above what NTP leaves.
_CLOCK_BOUND_US = 50_000
_METRICS_TIMEOUT_S = 2.0
_ASK_S = 1.0

T = TypeVar("T")

HostOption = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="HOST:PORT,...", help=f"Addresses of servers of the cluster. [default: ${HOST_VARIABLE}]"
    ),
]
DirOption = Annotated[
    Path | None, typer.Option("--dir", help="Directory of a local cluster. [default: f1-cluster if there is one]")
]


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to talk to. ``metrics`` are the addresses of the servers' metrics, as far as they are known."""

    addresses: tuple[str, ...]
    clock: Clock
    metrics: tuple[str, ...] = ()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[SpanClient]:
        """Connect, and close in the end."""
        client = SpanClient(self.addresses, clock=self.clock, rng=process_rng())
        try:
            yield client
        finally:
            await client.close()

    def run(self, work: Callable[[SpanClient], Awaitable[T]]) -> T:
        """Run ``work`` with a client on an event loop of its own."""

        async def connected() -> T:
            async with self.client() as client:
                return await work(client)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(connected())


def process_rng() -> random.Random:
    """Return a generator whose numbers no other process draws: what it makes names transactions."""
    return random.Random(f"{boot_id()} {boot_us()} {os.getpid()}")


def resolve(host: str | None, directory: Path | None) -> Target:
    """Return the cluster that the options name.

    Without either: what the environment says, else the local cluster in ``f1-cluster`` if that exists, else the default
    address. Raises F1Error INVALID_ARGUMENT or NOT_FOUND.
    """
    if host is not None and directory is not None:
        raise F1Error(Code.INVALID_ARGUMENT, "--host and --dir both name the cluster; give one of them")
    if directory is None and host is None:
        host = os.environ.get(HOST_VARIABLE) or None
    if host is not None:
        return Target(storage_of(parse_hosts(host)), BoundedClock(_CLOCK_BOUND_US))
    if directory is None and not DEFAULT_DIRECTORY.is_dir():
        return Target((DEFAULT_HOST,), BoundedClock(_CLOCK_BOUND_US))
    return from_directory(directory or DEFAULT_DIRECTORY)


def storage_of(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return the spanservers behind f1servers; other addresses, and those where nobody answers, stay as they are."""
    for address in addresses:
        with grpc.insecure_channel(address, options=channel_options()) as channel:
            try:
                reply = f1_pb2_grpc.F1ServerStub(channel).Status(f1_pb2.StatusRequest(), timeout=_ASK_S)
            except grpc.RpcError:
                continue  # it is a spanserver, or it is not there: whoever uses it says so
            if reply.storage:
                return tuple(reply.storage)
    return addresses


def parse_hosts(text: str) -> tuple[str, ...]:
    """Split ``host:port,...``. Raises F1Error INVALID_ARGUMENT."""
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in addresses:
        name, _, port = address.rpartition(":")
        if not name or not port.isdigit() or not 0 < int(port) < 65536:
            raise F1Error(Code.INVALID_ARGUMENT, f"--host takes HOST:PORT,..., and {address!r} is no HOST:PORT")
    if not addresses:
        raise F1Error(Code.INVALID_ARGUMENT, "--host takes HOST:PORT,..., not nothing")
    return addresses


def from_directory(directory: Path) -> Target:
    """Return the local cluster in a directory, from the configuration of its spanservers. Raises F1Error NOT_FOUND."""
    configs = [Config.load(path, {}) for path in sorted((directory / "conf").glob("span-*.toml"))]
    if not configs:
        raise F1Error(
            Code.NOT_FOUND, f"{directory} is no cluster's directory; name one with --dir, or its servers with --host"
        )
    metrics = tuple(f"{c.server.host}:{c.server.metrics_port}" for c in configs if c.server.metrics_port)
    addresses = tuple(server.address for server in configs[0].cluster.servers)
    return Target(addresses, clock_from_config(configs[0].clock), metrics)


def cpu_seconds(target: Target) -> float | None:
    """Return the processor time that all servers have used, None if one does not tell."""
    total = 0.0
    for address in target.metrics:
        try:
            with urlopen(f"http://{address}/metrics", timeout=_METRICS_TIMEOUT_S) as reply:
                text = reply.read().decode()
        except (URLError, OSError):
            return None
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        if "process_cpu_seconds_total" not in samples:
            return None
        total += float(samples["process_cpu_seconds_total"])
    return total if target.metrics else None
