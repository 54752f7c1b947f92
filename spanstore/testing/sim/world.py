"""One simulated world: nodes, their network, clocks and disks, and a hash over all that happened, from one seed."""

import asyncio
import gc
import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any, Generic, TypeVar

from f1common.errors import InvariantViolation, check
from spanstore.testing.sim.channel import SimChannel
from spanstore.testing.sim.clocks import SimClock, SimDisk
from spanstore.testing.sim.loop import Domain, SimulationError, VirtualLoop
from spanstore.testing.sim.net import NetConfig, Network
from spanstore.testing.sim.server import SimServer

T = TypeVar("T")

_ONLY_HERE = 3
"""References to a task that nobody has any more: its domain's, that of who looks for it, and that of the question."""
_LAST_TURNS = 10
"""Turns of the loop after the end, in the same instant: whoever waits for a task that has just failed hears of it."""

_MICROS = 1_000_000
_EPOCH_US = 1_700_000_000_000_000
_TAIL_LINES = 400

Start = Callable[["NodeEnv"], Awaitable[None]]


@dataclass(slots=True)
class WorldConfig:
    """Parameters of a world. ``clock_bound_us`` 0: all nodes share one perfect clock, as on one host."""

    net: NetConfig = field(default_factory=NetConfig)
    clock_bound_us: int = 0
    max_drift_ppm: int = 0
    disk_min_us: int = 100
    disk_mean_extra_us: int = 200
    shuffle_timers: bool = True
    limit_us: int = 3_600 * _MICROS
    keep_lines: bool = False
    tolerated_exits: tuple[type[BaseException], ...] = ()


class NodeFailed(SimulationError):
    """The program of a node ended with an error that nobody expected."""


class NodeEnv:
    """What one incarnation of a node gets from its world."""

    __slots__ = ("_node", "_world", "channels", "incarnation", "name", "rng")

    def __init__(self, world: "World", node: "Node", incarnation: int) -> None:
        self._world = world
        self._node = node
        self.name = node.name
        self.incarnation = incarnation
        self.rng = random.Random(f"{world.seed}/{node.name}/{incarnation}")
        self.channels: list[SimChannel] = []

    @property
    def clock(self) -> SimClock:
        """Both clocks of the node."""
        return self._node.clock

    @property
    def disk(self) -> SimDisk:
        """How fast the node's disk is."""
        return self._node.disk

    @property
    def durable(self) -> dict[str, Any]:
        """What survives a crash, such as the contents of a simulated disk."""
        return self._node.durable

    @property
    def loop(self) -> VirtualLoop:
        """The loop."""
        return self._world.loop

    @property
    def world(self) -> "World":
        """The world, for test code that runs as a node."""
        return self._world

    def address(self, port: int) -> str:
        """Return the address of a port of this node."""
        return f"{self.name}:{port}"

    def channel(self, target: str, options: Sequence[Any] | None = None) -> SimChannel:
        """Make a channel to an address."""
        return SimChannel(self._world.net, self._node.alive(), target)

    def server(self, interceptors: Sequence[Any] = ()) -> SimServer:
        """Make a server."""
        return SimServer(self._world.net, self._node.alive(), interceptors)

    def spawn(self, coro: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run ``coro`` as a task of this node, whoever calls."""
        return self._world.loop.create_task(coro, name=name, context=self._node.alive().context.copy())

    def on_crash(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` at the moment this incarnation is killed, before anything else happens: for engines."""
        self._node.alive().on_death.append(callback)


class Node:
    """A named machine with one process at a time."""

    def __init__(self, name: str, start: Start, clock: SimClock, disk: SimDisk) -> None:
        self.name = name
        self.start = start
        self.clock = clock
        self.disk = disk
        self.durable: dict[str, Any] = {}
        self.domain: Domain | None = None
        self.env: NodeEnv | None = None
        self.incarnations = 0
        self.exit: BaseException | None = None

    @property
    def running(self) -> bool:
        """Tell whether there is a process, be it a stopped one."""
        return self.domain is not None

    @property
    def paused(self) -> bool:
        """Tell whether the process stands still."""
        return self.domain is not None and self.domain.held

    def alive(self) -> Domain:
        """Return the domain of the running process."""
        check(self.domain is not None, f"{self.name} is not running")
        return self.domain  # type: ignore[return-value]


class World:
    """Everything there is. Times are microseconds of virtual time."""

    def __init__(self, seed: int | str, config: WorldConfig | None = None) -> None:
        self.seed = seed
        self.config = config or WorldConfig()
        self.rng = random.Random(f"{seed}/world")
        timers = random.Random(f"{seed}/timers") if self.config.shuffle_timers else None
        self.loop = VirtualLoop(timers, start_us=_MICROS, limit_us=self.config.limit_us)
        self.net = Network(self.loop, random.Random(f"{seed}/net"), self.config.net, self._trace_frame)
        self.nodes: dict[str, Node] = {}
        self.lines: list[str] = []
        self._tail: deque[tuple[int, str, str, str, str, int]] = deque(maxlen=_TAIL_LINES)
        self._hash = hashlib.blake2b(digest_size=16)
        self._domains: list[Domain] = []
        self._failure: BaseException | None = None
        self._main: asyncio.Task[Any] | None = None

    # -- time and trace --

    def now_us(self) -> int:
        """Return virtual time."""
        return self.loop.now_us

    def true_ts(self) -> int:
        """Return the true time in microseconds since the Unix epoch."""
        return _EPOCH_US + self.loop.now_us

    async def sleep_us(self, us: int) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(us / _MICROS)

    def _trace_frame(self, src: str, dst: str, method: str, kind: str, data: bytes) -> None:
        now = self.loop.now_us
        self._tail.append((now, src, dst, method, kind, len(data)))
        self._hash.update(f"{now} {src}>{dst} {method} {kind} {len(data)}\n".encode())
        if data:
            self._hash.update(data)
        if self.config.keep_lines:
            self.lines.append(f"{now} {src}>{dst} {method} {kind} {len(data)} {hashlib.md5(data).hexdigest()[:8]}")

    def trace(self, event: str, *facts: object) -> None:
        """Fold an event into the hash. ``facts`` must print alike in every run."""
        self._trace_frame(event, " ".join(map(str, facts)), "", "event", b"")

    def trace_hash(self) -> str:
        """Return the hash over all that has happened so far."""
        return self._hash.hexdigest()

    def tail(self) -> str:
        """Return the last events, for the report of a failure."""
        return "\n".join(
            f"{now} {src}>{dst} {method} {kind} {size}" for now, src, dst, method, kind, size in self._tail
        )

    # -- nodes --

    def add_node(self, name: str, start: Start) -> Node:
        """Add a node and start its program, which gets the node's environment. It may end; its tasks go on."""
        check(name not in self.nodes, f"there is a node {name} already")
        rng = random.Random(f"{self.seed}/{name}/hardware")
        config = self.config
        bound = config.clock_bound_us
        clock = SimClock(
            lambda: self.loop.now_us,
            epoch_us=_EPOCH_US,
            boot_us=rng.randrange(1, 10**12) if bound else 0,
            bound_us=bound,
            error_us=rng.randint(-bound, bound),
            drift_ppm=rng.randint(-config.max_drift_ppm, config.max_drift_ppm),
        )
        disk = SimDisk(
            lambda: self.loop.now_us, rng, min_us=config.disk_min_us, mean_extra_us=config.disk_mean_extra_us
        )
        node = Node(name, start, clock, disk)
        self.nodes[name] = node
        self._boot(node)
        return node

    def add_client(self, name: str) -> NodeEnv:
        """Add a node without a program of its own; use ``spawn`` of what is returned."""
        node = self.add_node(name, _nothing)
        check(node.env is not None, "a started node has an environment")
        return node.env  # type: ignore[return-value]

    def _boot(self, node: Node) -> None:
        node.incarnations += 1
        node.exit = None
        node.domain = Domain(node.name)
        self._domains.append(node.domain)
        node.env = NodeEnv(self, node, node.incarnations)
        self.net.powerless.discard(node.name)
        self.trace("start", node.name, node.incarnations)
        self.loop.create_task(self._program(node, node.env), name=node.name, context=node.domain.context.copy())

    async def _program(self, node: Node, env: NodeEnv) -> None:
        try:
            await node.start(env)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.exit_node(node.name, error)

    def exit_node(self, name: str, error: BaseException) -> None:
        """Let the process of ``name`` end by itself because of ``error``. Fails the simulation unless tolerated."""
        node = self.nodes[name]
        if isinstance(error, InvariantViolation) or not isinstance(error, self.config.tolerated_exits):
            failure = NodeFailed(f"{name} failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.fail(failure)
        node.exit = error
        self.crash(name)

    def fail(self, error: BaseException) -> None:
        """End the simulation with ``error``."""
        if self._failure is None:
            self._failure = error
            if self._main is not None:
                self._main.cancel()

    def crash(self, name: str, *, silent: bool = False) -> None:
        """Kill the process of ``name``; ``silent``: its machine loses power, so that nobody resets its connections."""
        node = self.nodes[name]
        domain = node.domain
        if domain is None:
            return
        self.trace("crash", name, silent)
        self.loop.kill(domain)
        node.domain = None
        node.env = None
        if silent:
            self.net.powerless.add(name)
        self.net.domain_died(domain, silent=silent)

    def restart(self, name: str, reboot: bool = False) -> None:
        """Start the program of ``name`` again after a crash; ``reboot``: its boot clock starts at zero."""
        node = self.nodes[name]
        if node.domain is None:
            if reboot:
                node.clock.reboot()
            self._boot(node)

    def pause(self, name: str, duration_us: int | None = None) -> None:
        """Give the process of ``name`` no turns (SIGSTOP), for ``duration_us`` or until resumed; time goes on."""
        domain = self.nodes[name].domain
        if domain is None or domain.held:
            return
        self.trace("pause", name, duration_us)
        self.loop.hold(domain)
        self.net.domain_held(domain)
        if duration_us is not None:
            self.net.later(duration_us, self._resume, domain)

    def resume(self, name: str) -> None:
        """Give the process of ``name`` its turns again (SIGCONT)."""
        domain = self.nodes[name].domain
        if domain is not None:
            self._resume(domain)

    def _resume(self, domain: Domain) -> None:
        if domain.held and not domain.dead:
            self.trace("resume", domain.name)
            self.loop.release(domain)

    # -- links --

    def cut(self, src: str, dst: str) -> None:
        """Lose all packets from ``src`` to ``dst``."""
        self.trace("cut", src, dst)
        self.net.cut(src, dst)

    def partition(self, side: Iterable[str], other: Iterable[str] | None = None) -> None:
        """Cut both ways between ``side`` and ``other``, by default all the rest."""
        inside = sorted(side)
        outside = sorted(other) if other is not None else [name for name in self.nodes if name not in inside]
        for first in inside:
            for second in outside:
                self.cut(first, second)
                self.cut(second, first)

    def heal_links(self) -> None:
        """Heal all links."""
        self.trace("heal")
        self.net.heal_all()

    def reset_links(self, first: str, second: str) -> None:
        """Break all connections between two nodes now."""
        self.trace("reset", first, second)
        self.net.reset(first, second)

    def heal(self) -> None:
        """Undo every fault: links, clocks, disks, stopped and killed processes."""
        config = self.config
        self.heal_links()
        self.net.profiles.clear()
        for node in self.nodes.values():
            node.disk.heal()
            if not node.clock.is_true():
                node.clock.error_us = 0
            node.clock.bound_us = config.clock_bound_us
            self.resume(node.name)
            self.restart(node.name)

    # -- the frame --

    def run(self, main: Callable[["World"], Awaitable[T]]) -> T:
        """Run ``main`` to its end, then end everything. Raises what ``main`` or the program of a node raised."""
        loop = self.loop
        collecting = gc.isenabled()
        # The cyclic collector would finalise generators and calls at moments that depend on earlier runs.
        gc.collect()
        gc.disable()
        try:
            self._main = loop.create_task(_await(main, self), name="main")
            try:
                result: T = loop.run_until_complete(self._main)
            except asyncio.CancelledError:
                if self._failure is None:
                    raise
            if self._failure is not None:
                raise self._failure
            self._raise_unhandled()
            return result
        finally:
            loop.unwind(self._domains)
            loop.close()
            if collecting:
                gc.enable()
            self._domains.clear()
            gc.collect()

    def _raise_unhandled(self) -> None:
        """Raise what a task failed of if nobody took notice, or could have."""
        for domain in self._domains:
            for task in domain.tasks:
                if task.done() and not task.cancelled() and task._log_traceback:
                    if domain.dead and getrefcount(task) > _ONLY_HERE:
                        continue  # who has it was killed before looking
                    error = task.exception()
                    raise NodeFailed(
                        f"a task of {domain.name} failed unnoticed: {task.get_name()}: {error!r}"
                    ) from error
        for context in self.loop.unhandled:
            error = context.get("exception")
            raise SimulationError(f"{context.get('message')}: {error!r}") from error


async def _await(main: Callable[[World], Awaitable[T]], world: World) -> T:
    result = await main(world)
    for _ in range(_LAST_TURNS):
        await asyncio.sleep(0)
    return result


async def _nothing(_env: NodeEnv) -> None:
    return


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """What became of a simulation."""

    value: T
    trace_hash: str
    events: int
    virtual_us: int


_simulated = [0]


def simulated_us() -> int:
    """Return how much virtual time has passed in this process, in all worlds that have ended: for who counts it."""
    return _simulated[0]


def simulate(main: Callable[[World], Awaitable[T]], seed: int | str, config: WorldConfig | None = None) -> Run[T]:
    """Run ``main`` in a new world made from ``seed``.

    Raises what ``main`` raises, Deadlock, Livelock, TimeLimit, and NodeFailed when a node's program failed.
    """
    world = World(seed, config)
    try:
        value = world.run(main)
    except BaseException as error:
        error.add_note(f"seed {seed}, virtual time {world.loop.now_us} us; last events:\n{world.tail()}")
        raise
    finally:
        _simulated[0] += world.loop.now_us
    return Run(value, world.trace_hash(), world.loop.events, world.loop.now_us)


def run_sim(main: Callable[[World], Awaitable[T]], seed: int | str, config: WorldConfig | None = None) -> T:
    """Run ``main`` in a new world made from ``seed`` and return its value. Raises as :func:`simulate` does."""
    return simulate(main, seed, config).value
