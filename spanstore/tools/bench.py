"""``f1 bench``: what the storage tier does in a second, with another system beside it.

The load comes from processes of its own, the servers are processes of the same machine or another. Without ``--host``
and ``--dir`` a cluster is started for the benchmark and removed again. After the transfers the sum of all accounts is
checked: a benchmark that loses money is worth nothing.
"""

import asyncio
import multiprocessing
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer
from rich.table import Table

from f1common.clock import boot_us
from f1common.errors import Code, F1Error
from f1common.programs import deaf_to_interrupts, exit_at_sigterm, run_with_us
from spanstore.tools import etcdstore
from spanstore.tools.load import (
    LoadResult,
    LoadSpec,
    StoreSpec,
    make_store,
    quantile_ms,
    run_load,
    warm_up,
)
from spanstore.tools.ports import free_ports
from spanstore.tools.show import wide_console
from spanstore.tools.target import (
    DEFAULT_DIRECTORY,
    DirOption,
    HostOption,
    Target,
    cpu_seconds,
    from_directory,
    resolve,
)
from spanstore.tools.works import UNITS, WORKS, Store, Work

_WARM_UP_US = 1_500_000
_MAX_CLIENTS = 4096

T = TypeVar("T")

Say = Callable[[str], object]


class Format(Enum):
    """How results are printed."""

    table = "table"
    json = "json"


class Row(msgspec.Struct, frozen=True):
    """One measurement. ``ours`` and ``peer`` are operations a second, ``ratio`` is ours over peer's.

    ``cpu_us`` is the processor time that all our servers together spent on one operation, in microseconds, None where
    the servers do not tell; ``load_cpu`` how much of one processor the load took. Latencies are in milliseconds.
    """

    work: str
    clients: int
    unit: str
    ours: float
    peer: float | None
    peer_name: str | None
    ratio: float | None
    cpu_us: float | None
    p50_ms: float
    p99_ms: float
    peer_p50_ms: float | None
    peer_p99_ms: float | None
    errors: int
    first_error: str
    load_cpu: float


class Report(msgspec.Struct, frozen=True):
    """What ``f1 bench NAME --format json`` prints; ``note`` says why there is no peer."""

    machine: str
    rows: list[Row]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One work at one number of clients against one store."""

    rate: float
    p50_ms: float
    p99_ms: float
    errors: int
    first_error: str
    load_cpu: float
    cpu_us: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, for how long, and by how many load processes."""

    works: Sequence[Work]
    clients: Sequence[int]
    seconds: float
    processes: int


def kv(
    host: HostOption = None,
    directory: DirOption = None,
    clients: Annotated[str, typer.Option(help="Numbers of clients to measure with.")] = "1,16,64",
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="Length of each measurement.")] = 5.0,
    form: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    peer: Annotated[bool, typer.Option(help="Measure etcd beside it, if it is installed.")] = True,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Processes that make the load.")] = 1,
) -> None:
    """Measure transfers between accounts, single-row writes and strong single-row reads.

    Without --host and --dir: the cluster in ./f1-cluster if there is one, else a cluster started for this purpose.
    """
    plan = Plan(WORKS, parse_clients(clients), seconds, processes)
    console = wide_console(stderr=True)
    with ExitStack() as stack:
        own = host is None and directory is None and not DEFAULT_DIRECTORY.is_dir()
        target = stack.enter_context(_temporary_cluster()) if own else resolve(host, directory)
        say: Say = stack.enter_context(console.status("starting")).update if console.is_terminal else _say_nothing
        report = asyncio.run(_compare(target, plan, etcdstore.find_binary() if peer else None, say))
    if not peer:
        report = msgspec.structs.replace(report, note="no peer was asked for")
    if form is Format.json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _print(report)


def _say_nothing(_: str) -> None:
    pass


async def _compare(target: Target, plan: Plan, etcd_binary: str | None, say: Say) -> Report:
    """Measure our cluster, then, when it is at rest, etcd."""
    with load_processes(plan.processes) as pool:
        spec = StoreSpec("f1db", target.addresses, target.clock)
        ours = await Bench(pool, spec, plan, lambda: cpu_seconds(target), say).run()
        theirs, note = await _measure_etcd(etcd_binary, pool, plan, say)
    return Report(machine(), [_row(key, ours[key], theirs.get(key)) for key in ours], note)


async def _measure_etcd(
    binary: str | None, pool: ProcessPoolExecutor, plan: Plan, say: Say
) -> tuple[dict[tuple[Work, int], Measured], str]:
    """Return what etcd does, or why it is not there."""
    if binary is None:
        return {}, "etcd is not installed"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="f1-bench-etcd-"))
        try:
            etcd = stack.enter_context(etcdstore.EtcdCluster(binary, Path(folder), free_ports()))
            await etcd.ready()
        except (F1Error, OSError) as error:
            return {}, f"etcd could not start: {reason_of(error)}"
        return await Bench(pool, StoreSpec("etcd", etcd.addresses), plan, etcd.cpu_seconds, say).run(), ""


def reason_of(error: Exception) -> str:
    """Return why a peer is not there, as part of a line."""
    said = error.message if isinstance(error, F1Error) else str(error)
    return " ".join(said.split()).rstrip(".")


@contextmanager
def load_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start the load processes and let them import what they need. If what is within ends early, so do they."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        try:
            with deaf_to_interrupts():
                started = [pool.submit(warm_up) for _ in range(count)]
            for future in started:
                future.result()
            yield pool
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise


def shares_of(clients: int, processes: int) -> list[int]:
    """Deal clients to at most so many processes, evenly; each has one at least."""
    processes = min(processes, clients)
    return [clients // processes + (number < clients % processes) for number in range(processes)]


async def run_window(
    pool: ProcessPoolExecutor,
    load: Callable[[T], LoadResult],
    specs: Sequence[T],
    window_us: tuple[int, int],
    cpu: Callable[[], float | None],
) -> tuple[list[LoadResult], float | None]:
    """Run one load process for each of ``specs``; return what they saw, and what ``cpu`` grew by within the window."""
    loop = asyncio.get_running_loop()
    running = [loop.run_in_executor(pool, load, spec) for spec in specs]
    try:
        await _sleep_until(window_us[0])
        before = cpu()
        await _sleep_until(window_us[1])
        after = cpu()
        results = await asyncio.gather(*running)
    finally:
        for future in running:
            future.cancel()  # if this ends early nobody asks how they end
    return results, None if before is None or after is None else after - before


def parse_clients(text: str) -> tuple[int, ...]:
    """Split ``1,16,64``. Raises F1Error INVALID_ARGUMENT."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(1 <= number <= _MAX_CLIENTS for number in numbers):
        raise F1Error(Code.INVALID_ARGUMENT, f"--clients takes numbers from 1 to {_MAX_CLIENTS}: 1,16,64, not {text!r}")
    return numbers


@contextmanager
def _temporary_cluster() -> Iterator[Target]:
    """Start a cluster as a user would, and remove it with all its data in the end."""
    with exit_at_sigterm(), tempfile.TemporaryDirectory(prefix="f1-bench-") as folder:
        directory = Path(folder) / "cluster"
        try:
            _cluster_command("up", "--dir", str(directory), "--port", "0", "--f1servers", "0")
            yield from_directory(directory)
        finally:
            if (directory / "cluster.json").exists():  # also of one that was not up yet
                _cluster_command("down", "--dir", str(directory))


def _cluster_command(*arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "f1", "cluster", *arguments]
    done = run_with_us(command)
    if done.returncode:
        raise F1Error(Code.UNAVAILABLE, f"`f1 cluster {arguments[0]}` failed: {done.stderr.strip()}")


class Bench:
    """The measurements of one store."""

    def __init__(
        self, pool: ProcessPoolExecutor, store: StoreSpec, plan: Plan, cpu: Callable[[], float | None], say: Say
    ) -> None:
        """``cpu`` returns the processor seconds that the servers have used; ``say`` shows what is being done."""
        self._pool = pool
        self._store = store
        self._plan = plan
        self._cpu = cpu
        self._say = say

    async def run(self) -> dict[tuple[Work, int], Measured]:
        """Measure all works with all numbers of clients.

        Raises F1Error DATA_CORRUPTION if the accounts do not add up, UNAVAILABLE if nothing of a work succeeds.
        """
        self._say(f"{self._store.kind}: writing accounts and rows")
        results: dict[tuple[Work, int], Measured] = {}
        store = make_store(self._store)
        try:
            await store.prepare()
            for work in self._plan.works:
                for clients in self._plan.clients:
                    self._say(f"{self._store.kind}: {work}, {clients} clients")
                    results[work, clients] = await self._measure(work, clients)
            await _check_total(store)
            await store.clean()
        finally:
            await store.close()
        return results

    async def _measure(self, work: Work, clients: int) -> Measured:
        begin_us = boot_us() + _WARM_UP_US
        end_us = begin_us + int(self._plan.seconds * 1_000_000)
        shares = shares_of(clients, self._plan.processes)
        specs = [LoadSpec(self._store, work, share, begin_us, end_us, n) for n, share in enumerate(shares)]
        results, spent = await run_window(self._pool, run_load, specs, (begin_us, end_us), self._cpu)
        return summary(work, results, self._plan.seconds, spent)


async def _sleep_until(moment_us: int) -> None:
    await asyncio.sleep(max(moment_us - boot_us(), 0) / 1_000_000)


def summary(work: str, results: Sequence[LoadResult], seconds: float, cpu_s: float | None) -> Measured:
    """Add up what the load processes saw. Raises F1Error UNAVAILABLE if nothing of the work succeeded."""
    latencies = [latency for result in results for latency in result.latencies_us]
    first_error = next((result.first_error for result in results if result.first_error), "")
    if not latencies:
        reason = first_error or "nothing ended in time"
        raise F1Error(Code.UNAVAILABLE, f"no operation of {work!r} succeeded: {reason}")
    return Measured(
        rate=len(latencies) / seconds,
        p50_ms=quantile_ms(latencies, 0.5),
        p99_ms=quantile_ms(latencies, 0.99),
        errors=sum(result.errors for result in results),
        first_error=first_error,
        load_cpu=sum(result.cpu_s for result in results) / seconds,
        cpu_us=None if cpu_s is None else cpu_s * 1_000_000 / len(latencies),
    )


async def _check_total(store: Store) -> None:
    total, expected = await store.total(), store.expected_total
    if total != expected:
        raise F1Error(
            Code.DATA_CORRUPTION, f"the accounts hold {total} after the transfers, and held {expected} before"
        )


def _row(key: tuple[Work, int], ours: Measured, peer: Measured | None) -> Row:
    work, clients = key
    return Row(
        work=work,
        clients=clients,
        unit=UNITS[work],
        ours=round(ours.rate, 1),
        peer=None if peer is None else round(peer.rate, 1),
        peer_name=None if peer is None else etcdstore.BINARY,
        ratio=None if peer is None else round(ours.rate / peer.rate, 3),
        cpu_us=None if ours.cpu_us is None else round(ours.cpu_us, 1),
        p50_ms=round(ours.p50_ms, 2),
        p99_ms=round(ours.p99_ms, 2),
        peer_p50_ms=None if peer is None else round(peer.p50_ms, 2),
        peer_p99_ms=None if peer is None else round(peer.p99_ms, 2),
        errors=ours.errors,
        first_error=ours.first_error,
        load_cpu=round(ours.load_cpu, 2),
    )


def machine() -> str:
    """Describe the machine in one line."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cpus = len(os.sched_getaffinity(0))
    python = platform.python_version()
    return f"{cpus} x {model or platform.machine()}, {memory:.0f} GiB, Linux {platform.release()}, Python {python}"


def _print(report: Report) -> None:
    table = Table(box=None, pad_edge=False, title=report.machine, title_justify="left", title_style="dim")
    peer = next((row.peer_name for row in report.rows if row.peer_name), None)
    columns = ["work", "clients", "a second", "p50 ms", "p99 ms", "cpu us", "errors"]
    columns += [peer, "p50 ms", "p99 ms", "ratio"] if peer else []
    for column in columns:
        table.add_column(column, justify="left" if column == "work" else "right", no_wrap=True)
    for row in report.rows:
        cpu = "" if row.cpu_us is None else f"{row.cpu_us:.0f}"
        cells = [row.work, str(row.clients), f"{row.ours:,.0f}", f"{row.p50_ms:.1f}", f"{row.p99_ms:.1f}", cpu]
        cells.append(str(row.errors) if row.errors else "")
        if row.peer is not None and row.ratio is not None:
            cells += [f"{row.peer:,.0f}", f"{row.peer_p50_ms:.1f}", f"{row.peer_p99_ms:.1f}", f"{row.ratio:.2f}"]
        table.add_row(*cells)
    wide_console().print(table)
    for line in sorted({row.first_error for row in report.rows if row.first_error}):
        typer.echo(f"An error was: {line}")
    if report.note:
        typer.echo(f"No peer: {report.note}.")
