"""Starts the cluster and its peers for a measurement, and fills them."""

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import uvloop

import f1
from f1common.errors import Code, F1Error
from f1deploy.bench.database.clients import ACCOUNTS, DDL, DIRECTORY, ROW_BYTES, ROWS, START_BALANCE, F1Opener, item
from f1deploy.bench.database.load import Opener
from f1deploy.bench.database.peers import POSTGRES_DDL, EtcdOpener, PostgresOpener, item_key
from f1deploy.bench.database.rounds import System
from f1deploy.bench.local import LocalCluster, local_cluster
from f1deploy.bench.postgres import Postgres, find_postgres, postgres
from spanstore.tools.bench import reason_of
from spanstore.tools.etcdstore import EtcdCluster, EtcdStore, find_binary
from spanstore.tools.ports import free_ports

__all__ = ["Running", "check_accounts", "our_system", "running"]

_BATCH = 500
_DISTRIBUTION = "f1db"

Say = Callable[[str], object]
_Start = Callable[[ExitStack], tuple[System, Postgres | None]]


@dataclass(frozen=True, slots=True)
class Running:
    """What is up: our cluster, PostgreSQL if it is there, all as systems by name, and what is missing."""

    cluster: LocalCluster
    postgres: Postgres | None
    systems: Mapping[str, System]
    missing: tuple[str, ...]


@contextmanager
def running(peers: frozenset[str], f1servers: int, say: Say) -> Iterator[Running]:
    """Start and fill our cluster and those of the ``peers`` that are installed; remove all of it in the end."""
    systems: dict[str, System] = {}
    missing: list[str] = []
    server: Postgres | None = None
    with ExitStack() as stack:
        say("starting a cluster")
        options = ("--spanservers", "3", "--f1servers", str(f1servers), "--slaves", "0")
        # Ranges stay where they are: a move in the middle of a window would be somebody's bad luck.
        cluster = stack.enter_context(local_cluster(*options, "--set", "placement.balance_load=false"))
        systems["f1db"] = _ours(cluster, f1servers)
        for name, start in ((name, start) for name, start in _PEERS.items() if name in peers):
            say(f"starting {name}")
            try:
                systems[name], found = _started(stack, start)
                server = found or server
            except _Missing as why:
                missing.append(f"{name} {why}")
        say("writing rows")
        _fill(cluster.hosts)
        yield Running(cluster, server, systems, tuple(missing))


class _Missing(Exception):
    """A peer is not there, and why."""


def _started(stack: ExitStack, start: _Start) -> tuple[System, Postgres | None]:
    """Start and fill a peer, which ``stack`` ends. Raises _Missing, and then nothing of it is left."""
    with ExitStack() as own:
        try:
            made = start(own)
        except (F1Error, OSError, subprocess.SubprocessError) as error:
            raise _Missing(f"could not start: {reason_of(error)}") from error
        stack.enter_context(own.pop_all())
        return made


def our_system(cluster: LocalCluster, opener: Opener, settings: str) -> System:
    """Return our cluster as a system."""
    processes = {int(server["pid"]): str(server["kind"]) for server in cluster.servers()}
    return System(f"f1db {version(_DISTRIBUTION)}", settings, opener, processes)


def _ours(cluster: LocalCluster, f1servers: int) -> System:
    servers = f"three spanservers, {f1servers} f1server{'' if f1servers == 1 else 's'}"
    return our_system(cluster, F1Opener(cluster.hosts), f"{servers}, fsync on")


def _fill(hosts: str) -> None:
    with f1.connect(hosts, autocommit=True, timeout_s=60.0) as connection:
        connection.apply_schema({"bench.sql": DDL})
        for table in ("Tracked", "Plain", "Item"):
            for at in range(0, ROWS, _BATCH):
                rows = [{"Id": key, "Value": item(key)} for key in range(at, min(at + _BATCH, ROWS))]
                connection.upsert(table, rows)
        for table in ("Account1", "Account2"):
            connection.upsert(table, [{"Id": key, "Balance": START_BALANCE} for key in range(ACCOUNTS)])
        for table in ("Directory", "PlainDirectory"):
            connection.upsert(table, {"Id": DIRECTORY})


def check_accounts(hosts: str) -> None:
    """See that transfers moved money, and neither lost nor made any. Raises F1Error DATA_CORRUPTION."""
    with f1.connect(hosts, autocommit=True, timeout_s=60.0) as connection, connection.transaction("snapshot") as tx:
        balances = [row["Balance"] for table in ("Account1", "Account2") for row in tx.read(table)]
    expected = 2 * ACCOUNTS * START_BALANCE
    if sum(balances) != expected:
        text = f"the accounts hold {sum(balances)} after the transfers, and held {expected} before"
        raise F1Error(Code.DATA_CORRUPTION, text)
    if set(balances) == {START_BALANCE}:
        raise F1Error(Code.DATA_CORRUPTION, "transfers were acknowledged, and no account has changed")


def _etcd(stack: ExitStack) -> tuple[System, None]:
    binary = find_binary()
    if binary is None:
        raise _Missing("is not installed (Debian: apt-get install etcd-server)")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="f1-bench-etcd-"))
    cluster = stack.enter_context(EtcdCluster(binary, Path(folder), free_ports()))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_fill_etcd(cluster))
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    version = said.partition("\n")[0].removeprefix("etcd Version:").strip()
    opener, processes = EtcdOpener(cluster.addresses), dict.fromkeys(cluster.pids, "etcd")
    return System(f"etcd {version}", "three members, fsync on", opener, processes), None


async def _fill_etcd(cluster: EtcdCluster) -> None:
    await cluster.ready()
    store = EtcdStore(cluster.addresses)
    try:
        await store.put_many([(item_key(number), item(number)) for number in range(ROWS)])
        await store.put_many([(b"row/%06d" % number, bytes(ROW_BYTES)) for number in range(ROWS)])
    finally:
        await store.close()


def _postgres(stack: ExitStack) -> tuple[System, Postgres]:
    programs = find_postgres()
    if programs is None:
        raise _Missing("is not installed (Debian: apt-get install postgresql)")
    server = stack.enter_context(postgres(programs, standbys=("a", "b")))
    server.run(POSTGRES_DDL)
    server.run(f"INSERT INTO Directory VALUES ({DIRECTORY})")
    settings = "two synchronous standbys, ANY 1 (a, b), fsync on"
    opener, processes = PostgresOpener(server.psql), dict.fromkeys(server.pids, "PostgreSQL")
    return System(server.version(), settings, opener, processes), server


_PEERS: Mapping[str, _Start] = {"etcd": _etcd, "PostgreSQL": _postgres}
