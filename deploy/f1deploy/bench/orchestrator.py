"""``f1 bench orchestrator``: transactions of the orchestrator over each store, beside the storage tier's own.

A transaction reads two cells of many and writes both. In memory and on LMDB with the services' twins in the process;
over the storage tier with both services as processes, and there the same work with the storage tier's own pessimistic
transactions, in the same run on the same cluster. Clients are tasks of one process, as many as given.
"""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from f1.orchestrator import LmdbStore, LocalLocks, LocalTimestamps, Locks, MemoryStore, SpanStore, Timestamps, aio
from f1.orchestrator.stores.base import Store
from f1common.clock import boot_us, clock_from_config
from f1common.config import Config
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.ids import process_rng
from f1deploy.bench.local import LocalCluster, local_cluster
from f1deploy.bench.report import Format, Row
from spanstore.client import KeyRange, SpanClient, Transaction
from spanstore.tools.bench import machine
from spanstore.tools.load import quantile_ms

__all__ = ["Report", "command"]

_CELLS = 10_000
_NATIVE_TABLE = 1_000_000
_ATTEMPTS = 1_000
_WAIT_S = 60.0

Work = Callable[[random.Random], Awaitable[None]]


class Report(msgspec.Struct, frozen=True):
    """What ``--format json`` prints."""

    machine: str
    rows: list[Row]


class Measured(msgspec.Struct, frozen=True):
    """Commits a second, and latencies of whole transactions with their retries, in milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float


def command(
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="How long each figure is measured.")] = 10.0,
    clients: Annotated[list[int] | None, typer.Option(min=1, help="Clients at a time. [default: 1, 16, 64]")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
) -> None:
    """Measure commits a second and latencies over each store, on a cluster of its own."""
    counts = clients or [1, 16, 64]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="f1-bench-") as folder:
        for name in ("memory", "lmdb"):
            store = MemoryStore() if name == "memory" else LmdbStore(Path(folder) / "store")
            found = _run(_orchestrated(partial(_within_the_process, store), counts, seconds))
            rows += [row for count, measured in found for row in _rows(name, count, measured, None)]
    with local_cluster("--f1servers", "1", "--slaves", "0", "--orchestrator") as cluster:
        timestamps, locks = _services(cluster)

        def over_span() -> aio.Orchestrator:
            return aio.Orchestrator(
                SpanStore(cluster.hosts, timeout_s=_WAIT_S),
                Timestamps(timestamps, timeout_s=_WAIT_S),
                Locks(locks, timeout_s=_WAIT_S),
            )

        ours = _run(_orchestrated(over_span, counts, seconds))
        native = dict(_run(_native(cluster, counts, seconds)))
        rows += [row for c, m in ours for row in _rows("spanstore", c, m, native[c])]
    report = Report(machine(), rows)
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _print(report)


def _within_the_process(store: Store) -> aio.Orchestrator:
    return aio.Orchestrator(store, LocalTimestamps(), LocalLocks())


def _run(work: Awaitable[list[tuple[int, Measured]]]) -> list[tuple[int, Measured]]:
    async def main() -> list[tuple[int, Measured]]:
        return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


async def _orchestrated(
    make: Callable[[], aio.Orchestrator], counts: list[int], seconds: float
) -> list[tuple[int, Measured]]:
    o = make()

    async def one(rng: random.Random) -> None:
        first, second = rng.sample(range(_CELLS), 2)

        async def move(tx: aio.Transaction) -> None:
            a, b = await tx.get_many([("bench", first, "n"), ("bench", second, "n")])
            tx.set("bench", first, "n", (a or 0) - 1)
            tx.set("bench", second, "n", (b or 0) + 1)

        await o.run(move, attempts=_ATTEMPTS)

    try:
        # Services that were just started are waited for, and connections are made, before the first figure.
        await one(random.Random("warm up"))
        found = [(count, await _measure(one, count, seconds)) for count in counts]
        async with await o.start() as tx:
            _require_nothing([row.columns["n"] async for row in tx.get_range("bench")])
        return found
    finally:
        await o.close()


async def _native(cluster: LocalCluster, counts: list[int], seconds: float) -> list[tuple[int, Measured]]:
    config = Config.load(sorted((cluster.folder / "cluster" / "conf").glob("span-*.toml"))[0], {})
    addresses = [server.address for server in config.cluster.servers]
    client = SpanClient(addresses, clock=clock_from_config(config.clock), rng=process_rng())

    async def one(rng: random.Random) -> None:
        keys = [tuples.encode((_NATIVE_TABLE, number)) for number in rng.sample(range(_CELLS), 2)]

        async def move(tx: Transaction) -> None:
            values = (await tx.read(keys, exclusive=True)).values()
            for key, value, change in zip(keys, values, (-1, 1), strict=True):
                tx.write(key, str(int(value or b"0") + change).encode())

        await client.run(move, attempts=_ATTEMPTS)

    try:
        # Services that were just started are waited for, and connections are made, before the first figure.
        await one(random.Random("warm up"))
        found = [(count, await _measure(one, count, seconds)) for count in counts]
        everything = KeyRange(tuples.encode((_NATIVE_TABLE,)), tuples.encode((_NATIVE_TABLE + 1,)))
        _require_nothing([int(row.value) for row in (await client.read([], [everything])).ranges[0]])
        return found
    finally:
        await client.close()


def _require_nothing(values: Iterable[object]) -> None:
    """What one cell has more another has less. Raises F1Error DATA_CORRUPTION."""
    cells: list[int] = [value for value in values if isinstance(value, int)]
    total = sum(cells, 0)
    if not cells or total:
        raise F1Error(Code.DATA_CORRUPTION, f"{len(cells)} cells hold {total} together after transfers, not 0")


async def _measure(one: Work, clients: int, seconds: float) -> Measured:
    """Let so many clients work, each with one transaction after the other."""
    taken_us: list[int] = []
    began_us = boot_us()
    end_us = began_us + int(seconds * 1_000_000)

    async def client(number: int) -> None:
        rng = random.Random(f"bench {clients} {number}")
        while (started_us := boot_us()) < end_us:
            await one(rng)
            taken_us.append(boot_us() - started_us)

    await asyncio.gather(*(client(number) for number in range(clients)))
    took_s = (boot_us() - began_us) / 1_000_000
    return Measured(len(taken_us) / took_s, quantile_ms(taken_us, 0.5), quantile_ms(taken_us, 0.99))


def _rows(store: str, clients: int, ours: Measured, native: Measured | None) -> Iterator[Row]:
    for what, unit in (("rate", "commits/s"), ("p50_ms", "ms, median"), ("p99_ms", "ms, 99 %")):
        value = getattr(ours, what)
        if native is None:
            yield Row(f"orchestrator over {store}", clients, unit, round(value, 3))
            continue
        peer = getattr(native, what)
        ratio = value / peer if what == "rate" else peer / value
        yield Row(
            f"orchestrator over {store}",
            clients,
            unit,
            round(value, 3),
            round(peer, 3),
            "transactions of spanstore",
            round(ratio, 3),
        )


def _services(cluster: LocalCluster) -> tuple[str, str]:
    """Return the addresses of the timestamp services, and of the lock service."""
    servers = cluster.servers()
    timestamps, locks = ([s["address"] for s in servers if s["kind"] == kind] for kind in ("timestamps", "locks"))
    return ",".join(timestamps), ",".join(locks)


def _print(report: Report) -> None:
    table = Table(title=report.machine)
    for column in ("work", "clients", "unit", "ours", "peer", "ratio"):
        table.add_column(column)
    for row in report.rows:
        peer = "" if row.peer is None else f"{row.peer:g} ({row.peer_name})"
        table.add_row(row.work, str(row.clients), row.unit, f"{row.ours:g}", peer, f"{row.ratio or '':}")
    Console().print(table)
