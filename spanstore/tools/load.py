"""A closed loop of clients against one store, in a process of its own: how many operations, how long each took.

Every client is a task that begins its next operation when the last one has ended. Several load processes begin at the
same moment of the boot clock, warm up, and count what ends inside the same window, so that their counts add up.
"""

import asyncio
import functools
import os
import random
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import uvloop

from f1common.clock import Clock, boot_us
from f1common.errors import F1Error
from spanstore.tools.etcdstore import EtcdStore
from spanstore.tools.ourstore import SpanStore
from spanstore.tools.target import process_rng
from spanstore.tools.works import Store, Work

PAUSE_AFTER_ERROR_S = 0.05


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Where a store is and what kind; ``clock`` only matters to ours."""

    kind: Literal["f1db", "etcd"]
    addresses: tuple[str, ...]
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One load process: ``begin_us`` and ``end_us`` bound what is counted, on the boot clock."""

    store: StoreSpec
    work: Work
    clients: int
    begin_us: int
    end_us: int
    seed: int


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one load process saw: latencies of successes in microseconds, failures, and its processor time.

    ``checked``: rows that were read afterwards and held what had been acknowledged.
    """

    latencies_us: "array[int]"
    errors: int
    first_error: str
    cpu_s: float
    checked: int = 0


def make_store(spec: StoreSpec) -> Store:
    """Connect to a store. Needs a running event loop."""
    match spec.kind:
        case "f1db":
            # Not the seed: commit ids come from here, and two processes must never draw the same ones.
            return SpanStore(spec.addresses, spec.clock, process_rng())
        case "etcd":
            return EtcdStore(spec.addresses)
        case _:
            assert_never(spec.kind)


@functools.cache
def process_runner() -> asyncio.Runner:
    """The one event loop of a load process: gRPC stays with the first loop that it meets."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def warm_up() -> None:
    """Do nothing in a load process but have it started, with everything imported."""


def run_load(spec: LoadSpec) -> LoadResult:
    """Run the load; what a load process is started for."""
    return process_runner().run(_load(spec))


async def _load(spec: LoadSpec) -> LoadResult:
    store = make_store(spec.store)
    window = Window(spec.begin_us, spec.end_us)
    try:
        rngs = [random.Random(f"{spec.seed} {number}") for number in range(spec.clients)]
        cpu_s = await run_clients([functools.partial(store.perform, spec.work, rng) for rng in rngs], window, own_cpu_s)
    finally:
        await store.close()
    return LoadResult(window.latencies_us, window.errors, window.first_error, cpu_s)


def own_cpu_s() -> float:
    """Return the processor time that this process has used, in seconds."""
    used = os.times()
    return used.user + used.system


async def run_clients(
    operations: Sequence[Callable[[], Awaitable[None]]], window: "Window", cpu_s: Callable[[], float]
) -> float:
    """Run a client for each operation until the window ends; return the processor time from its begin, in seconds."""
    running = asyncio.gather(*(_client(operation, window) for operation in operations))
    await asyncio.sleep(max(window.begin_us - boot_us(), 0) / 1_000_000)
    before = cpu_s()
    await running
    return cpu_s() - before


class Window:
    """Collects what ends between two moments."""

    def __init__(self, begin_us: int, end_us: int) -> None:
        self.begin_us = begin_us
        self.end_us = end_us
        self.latencies_us: array[int] = array("q")
        self.errors = 0
        self.first_error = ""

    def succeeded(self, began_us: int, ended_us: int) -> None:
        """Count an operation if it ended inside."""
        if self.begin_us <= ended_us < self.end_us:
            self.latencies_us.append(ended_us - began_us)

    def failed(self, error: F1Error) -> None:
        """Count a failure, whenever it was."""
        self.errors += 1
        self.first_error = self.first_error or str(error)


async def _client(operation: Callable[[], Awaitable[None]], window: Window) -> None:
    while (began := boot_us()) < window.end_us:
        try:
            await operation()
        except F1Error as error:
            window.failed(error)
            await asyncio.sleep(PAUSE_AFTER_ERROR_S)
        else:
            window.succeeded(began, boot_us())


def quantile_ms(latencies_us: Sequence[int], share: float) -> float:
    """Return the latency that ``share`` of the operations did not exceed, in milliseconds; 0 without any."""
    if not latencies_us:
        return 0.0
    ordered = sorted(latencies_us)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1000
