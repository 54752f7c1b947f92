"""Faults as data: a plan is drawn from a seed, may be printed, shortened and played again.

:func:`draw_config` picks kinds and rates, :func:`draw_plan` a schedule, :func:`play` performs it and undoes what it
did. Faults overlap on purpose. ``max_down`` bounds how many nodes are dead, stopped or cut off at once; durability
must not need that bound (everything may crash), progress does.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from spanstore.testing.sim.net import LinkProfile
from spanstore.testing.sim.world import World


@dataclass(frozen=True, slots=True)
class Crash:
    """Kill a process and start it again ``duration_us`` later."""

    node: str
    duration_us: int
    silent: bool = False


@dataclass(frozen=True, slots=True)
class PowerCut:
    """Take the power from several machines in the same instant, and give it back ``duration_us`` later.

    What a majority acknowledged without a sync is lost only so.
    """

    nodes: tuple[str, ...]
    duration_us: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop a process for a while."""

    node: str
    duration_us: int


@dataclass(frozen=True, slots=True)
class Partition:
    """Cut all links between ``side`` and ``other``; ``one_way``: only those from ``side``."""

    side: tuple[str, ...]
    other: tuple[str, ...]
    duration_us: int
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connections between two nodes once."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class ClockJump:
    """Make the wall clock of a node wrong by ``error_us``; within the claimed bound unless the config allows lies."""

    node: str
    error_us: int


@dataclass(frozen=True, slots=True)
class ClockDrift:
    """Let the boot clock of a node run too fast by ``ppm``."""

    node: str
    ppm: int


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Make each sync of a node take up to ``extra_us`` longer for a while."""

    node: str
    extra_us: int
    duration_us: int


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Make frames between two nodes take ``mean_extra_us`` longer on average for a while."""

    first: str
    second: str
    mean_extra_us: int
    duration_us: int


Fault = Crash | PowerCut | Pause | Partition | Reset | ClockJump | ClockDrift | SlowDisk | SlowLink

KINDS = ("crash", "power_cut", "pause", "partition", "reset", "clock_jump", "clock_drift", "slow_disk", "slow_link")


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault and when it strikes, in microseconds from the start of the plan."""

    at_us: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class NemesisConfig:
    """Which faults, how often and how long. Intervals and durations are means of exponential distributions."""

    interval_us: int = 2_000_000
    duration_us: int = 1_500_000
    weights: tuple[tuple[str, int], ...] = tuple((kind, 1) for kind in KINDS)
    max_down: int | None = None
    lying_clocks: bool = False
    max_drift_ppm: int = 9_000


def draw_config(rng: random.Random, *, max_down: int | None = None, lying_clocks: bool = False) -> NemesisConfig:
    """Draw which kinds of faults there are and how often they strike; often only few kinds, which reach deeper."""
    kinds = rng.sample(KINDS, rng.randint(1, len(KINDS)))
    return NemesisConfig(
        interval_us=rng.choice((300_000, 1_000_000, 3_000_000)),
        duration_us=rng.choice((200_000, 1_000_000, 4_000_000)),
        weights=tuple((kind, rng.randint(1, 5)) for kind in KINDS if kind in kinds),
        max_down=max_down,
        lying_clocks=lying_clocks,
    )


def draw_plan(
    rng: random.Random,
    config: NemesisConfig,
    servers: Sequence[str],
    duration_us: int,
    *,
    clients: Sequence[str] = (),
    clock_bound_us: int = 0,
) -> tuple[Planned, ...]:
    """Draw a schedule of faults that strike ``servers`` (and their links to ``clients``) within ``duration_us``."""
    return tuple(_draw(rng, config, list(servers), list(clients), duration_us, clock_bound_us))


def _draw(
    rng: random.Random,
    config: NemesisConfig,
    servers: list[str],
    clients: list[str],
    total_us: int,
    bound_us: int,
) -> Iterator[Planned]:
    at_us = 0
    down: list[tuple[int, frozenset[str]]] = []
    kinds = [kind for kind, _ in config.weights]
    weights = [weight for _, weight in config.weights]
    while True:
        at_us += 1 + int(rng.expovariate(1.0 / config.interval_us))
        if at_us >= total_us:
            return
        lasting_us = 1_000 + int(rng.expovariate(1.0 / config.duration_us))
        fault = _fault(rng, rng.choices(kinds, weights)[0], config, servers, clients, lasting_us, bound_us)
        victims = _victims(fault)
        if victims and config.max_down is not None:
            down = [(until_us, nodes) for until_us, nodes in down if until_us > at_us]
            together = frozenset().union(victims, *(nodes for _, nodes in down)) & frozenset(servers)
            if len(together) > config.max_down:
                continue
            down.append((at_us + lasting_us, victims))
        yield Planned(at_us, fault)


def _fault(
    rng: random.Random,
    kind: str,
    config: NemesisConfig,
    servers: list[str],
    clients: list[str],
    lasting_us: int,
    bound_us: int,
) -> Fault:
    node = rng.choice(servers)
    others = [name for name in servers if name != node] or clients or [node]
    match kind:
        case "crash":
            return Crash(node, lasting_us, silent=rng.random() < 0.3)
        case "power_cut":
            return PowerCut(tuple(sorted(rng.sample(servers, rng.randint(1, len(servers))))), lasting_us)
        case "pause":
            return Pause(node, lasting_us)
        case "partition":
            return _partition(rng, node, servers, clients, lasting_us)
        case "reset":
            return Reset(node, rng.choice(others + clients))
        case "clock_jump":
            limit_us = rng.choice((1_000_000, 3_600_000_000)) if config.lying_clocks else bound_us
            return ClockJump(node, rng.choice((-limit_us, limit_us, rng.randint(-limit_us, limit_us))))
        case "clock_drift":
            return ClockDrift(node, rng.randint(-config.max_drift_ppm, config.max_drift_ppm))
        case "slow_disk":
            return SlowDisk(node, rng.choice((5_000, 100_000, 3_000_000)), lasting_us)
        case _:
            return SlowLink(node, rng.choice(others), rng.choice((2_000, 50_000, 500_000)), lasting_us)


def _partition(rng: random.Random, node: str, servers: list[str], clients: list[str], lasting_us: int) -> Partition:
    everyone = servers + clients
    one_way = rng.random() < 0.3
    if rng.random() < 0.5 or len(servers) < 3:
        side = [node]
    else:
        side = sorted(rng.sample(servers, rng.randint(1, len(servers) - 1)))
    # Clients fall on either side, so that a cut-off leader goes on hearing from some.
    with_clients = side + [name for name in clients if rng.random() < 0.5]
    rest = [name for name in everyone if name not in with_clients]
    return Partition(tuple(with_clients), tuple(rest), lasting_us, one_way)


def _victims(fault: Fault) -> frozenset[str]:
    match fault:
        case Crash(node) | Pause(node):
            return frozenset((node,))
        case PowerCut(nodes):
            return frozenset(nodes)
        case Partition(side, other):
            return frozenset(side if len(side) <= len(other) else other)
        case _:
            return frozenset()


async def play(world: World, plan: Sequence[Planned]) -> None:
    """Perform ``plan`` from now on, each fault undone after its duration; then undo everything."""
    start_us = world.now_us()
    for planned in plan:
        wait_us = start_us + planned.at_us - world.now_us()
        if wait_us > 0:
            await world.sleep_us(wait_us)
        strike(world, planned.fault)
    world.heal()


def strike(world: World, fault: Fault) -> None:
    """Let ``fault`` happen now, and arrange its end."""
    world.trace("nemesis", fault)
    match fault:
        case Crash(node, duration_us, silent):
            world.crash(node, silent=silent)
            world.net.later(duration_us, world.restart, node)
        case PowerCut(nodes, duration_us):
            for node in nodes:
                world.crash(node, silent=True)
                world.net.later(duration_us, world.restart, node, True)
        case Pause(node, duration_us):
            world.pause(node, duration_us)
        case Partition(side, other, duration_us, one_way):
            pairs = [(a, b) for a in side for b in other]
            if not one_way:
                pairs += [(b, a) for a, b in pairs]
            for src, dst in pairs:
                world.cut(src, dst)
            world.net.later(duration_us, _rejoin, world, pairs)
        case Reset(first, second):
            world.reset_links(first, second)
        case ClockJump(node, error_us):
            world.nodes[node].clock.error_us = error_us
        case ClockDrift(node, ppm):
            world.nodes[node].clock.set_drift(ppm)
        case SlowDisk(node, extra_us, duration_us):
            world.nodes[node].disk.slow_down(world.now_us() + duration_us, extra_us)
        case SlowLink(first, second, mean_extra_us, duration_us):
            usual = world.config.net.profile
            slow = replace(usual, mean_extra_us=usual.mean_extra_us + mean_extra_us)
            for pair in ((first, second), (second, first)):
                world.net.profiles[pair] = slow
                world.net.later(duration_us, _forget_profile, world, pair, slow)
        case _:
            assert_never(fault)


def _rejoin(world: World, pairs: list[tuple[str, str]]) -> None:
    for src, dst in pairs:
        world.net.heal(src, dst)


def _forget_profile(world: World, pair: tuple[str, str], slow: LinkProfile) -> None:
    if world.net.profiles.get(pair) is slow:
        del world.net.profiles[pair]
