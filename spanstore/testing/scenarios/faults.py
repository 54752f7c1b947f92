"""Faults of whole clusters, beside those of the simulator's nemesis.

Leaders hand over, clients die, processes are back at once, power fails everywhere, disks fail, single links are cut so
that two servers reach a third but not each other.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from f1common.errors import Code
from spanstore.testing.cluster import SimCluster
from spanstore.testing.scenarios.scenario import COMMON_FAULTS, OWN_FAULTS, TRANSFER_FAULTS, Scenario
from spanstore.testing.sim import World, nemesis

_BOUNCE_US = 10_000


@dataclass(frozen=True, slots=True)
class HandOver:
    """Ask a server to give the leadership of all its groups away, as before a planned stop."""

    node: str


@dataclass(frozen=True, slots=True)
class ClientCrash:
    """Kill a client, in the middle of whatever it drives, and start it again."""

    node: str
    duration_us: int


@dataclass(frozen=True, slots=True)
class Reboot:
    """A machine loses its power; its boot clock starts at zero when it is back."""

    node: str
    duration_us: int


@dataclass(frozen=True, slots=True)
class Absence:
    """A server is cut off for so long that the others' logs go on without it, whatever else happens to it."""

    node: str
    duration_us: int


@dataclass(frozen=True, slots=True)
class Bounce:
    """A process dies and is running again before anybody misses it."""

    node: str


@dataclass(frozen=True, slots=True)
class Blackout:
    """All servers lose their power at once, and come back in this order, one by one."""

    nodes: tuple[str, ...]
    duration_us: int


@dataclass(frozen=True, slots=True)
class LinkCut:
    """Two servers do not reach each other; others reach both."""

    first: str
    second: str
    duration_us: int


@dataclass(frozen=True, slots=True)
class LeaderCut:
    """Cut the leader of a group off, with some clients; ``restart``: all other servers are restarted meanwhile."""

    group: int
    clients: tuple[str, ...]
    restart: bool
    duration_us: int


@dataclass(frozen=True, slots=True)
class DiskError:
    """The next sync of a server fails, having kept its writes or not: the process ends and is started again."""

    node: str
    kept: bool


@dataclass(frozen=True, slots=True)
class DiskFull:
    """Every sync of a server fails for want of space, for a while."""

    node: str
    duration_us: int


OwnFault = HandOver | ClientCrash | Reboot | Absence | Bounce | Blackout | DiskError | DiskFull | LinkCut | LeaderCut


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault and when it strikes, in microseconds from the start."""

    at_us: int
    fault: nemesis.Fault | OwnFault


def draw_plan(scenario: Scenario, servers: Sequence[str], clients: Sequence[str]) -> list[Planned]:
    """Draw the faults of the safety phase."""
    common = tuple((kind, weight) for kind, weight in scenario.faults if kind in COMMON_FAULTS)
    own = [(kind, weight) for kind, weight in scenario.faults if kind in OWN_FAULTS + TRANSFER_FAULTS]
    total = sum(weight for _, weight in scenario.faults)
    plan: list[Planned] = []
    if common:
        share = sum(weight for _, weight in common) / total
        config = nemesis.NemesisConfig(
            interval_us=int(scenario.fault_interval_us / share),
            duration_us=scenario.fault_duration_us,
            weights=common,
            max_down=scenario.max_down,
        )
        planned = nemesis.draw_plan(
            scenario.rng("nemesis"),
            config,
            servers,
            scenario.run_us,
            clients=clients,
            clock_bound_us=scenario.clock_bound_us,
        )
        plan += [Planned(p.at_us, p.fault) for p in planned]
    if own:
        share = sum(weight for _, weight in own) / total
        plan += _draw_own(scenario, own, int(scenario.fault_interval_us / share), servers, clients)
    return sorted(plan, key=lambda p: p.at_us)


def _draw_own(
    scenario: Scenario, kinds: list[tuple[str, int]], interval_us: int, servers: Sequence[str], clients: Sequence[str]
) -> Iterator[Planned]:
    rng = scenario.rng("own faults")
    at_us = 0
    while True:
        at_us += 1 + int(rng.expovariate(1.0 / interval_us))
        if at_us >= scenario.run_us:
            return
        lasting_us = 1_000 + int(rng.expovariate(1.0 / scenario.fault_duration_us))
        kind = rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        yield Planned(at_us, _own_fault(rng, kind, servers, clients, lasting_us))


def _own_fault(
    rng: random.Random, kind: str, servers: Sequence[str], clients: Sequence[str], lasting_us: int
) -> OwnFault:
    node = rng.choice(servers)
    match kind:
        case "handover":
            return HandOver(node)
        case "client_crash":
            return ClientCrash(rng.choice(clients), lasting_us // 10)
        case "reboot":
            return Reboot(node, lasting_us)
        case "blackout":
            return Blackout(tuple(rng.sample(list(servers), len(servers))), lasting_us)
        case "bounce":
            return Bounce(node)
        case "absence":
            return Absence(node, 1_000_000 + lasting_us)
        case "leader_cut":
            kept = tuple(sorted(rng.sample(list(clients), len(clients) // 2)))
            return LeaderCut(rng.randrange(8), kept, rng.random() < 0.7, lasting_us)
        case "link_cut":
            return LinkCut(node, rng.choice([name for name in servers if name != node]), lasting_us)
        case "disk_error":
            return DiskError(node, rng.random() < 0.5)
        case _:
            return DiskFull(node, lasting_us)


async def play(world: World, cluster: SimCluster, plan: Sequence[Planned]) -> None:
    """Perform ``plan``, each fault undone after its duration."""
    start_us = world.now_us()
    for planned in plan:
        wait_us = start_us + planned.at_us - world.now_us()
        if wait_us > 0:
            await world.sleep_us(wait_us)
        fault = planned.fault
        if isinstance(fault, OwnFault):
            world.trace("fault", fault)
            _strike(world, cluster, fault)
        else:
            nemesis.strike(world, fault)


def _strike(world: World, cluster: SimCluster, fault: OwnFault) -> None:
    match fault:
        case HandOver(node):
            process = cluster.running(node)
            if process is not None:
                process.server.hand_over()
        case ClientCrash(node, duration_us):
            world.crash(node)
            world.net.later(duration_us, world.restart, node)
        case Reboot(node, duration_us):
            world.crash(node, silent=True)
            world.net.later(duration_us, _boot, world, node)
        case Absence(node, duration_us):
            if world.now_us() < cluster.next_absence_us:
                return  # one at a time, and one that was absent comes back to the others before the next one goes
            cluster.next_absence_us = world.now_us() + 2 * duration_us
            others = [name for name in sorted(world.nodes) if name != node]
            _cut(world, [pair for other in others for pair in ((node, other), (other, node))], duration_us)
        case Bounce(node):
            world.crash(node)
            world.net.later(_BOUNCE_US, world.restart, node)
        case Blackout(nodes, duration_us):
            for number, node in enumerate(nodes):
                world.crash(node, silent=True)
                world.net.later(duration_us + number * _BOUNCE_US, _boot, world, node)
        case LinkCut(first, second, duration_us):
            _cut(world, [(first, second), (second, first)], duration_us)
        case LeaderCut():
            _cut_leader(world, cluster, fault)
        case DiskError(node, kept):
            cluster.engines[node].fail_next_commit(Code.UNAVAILABLE, kept=kept)
        case DiskFull(node, duration_us):
            engine = cluster.engines[node]
            engine.disk_full = True
            world.net.later(duration_us, setattr, engine, "disk_full", False)
        case _:
            assert_never(fault)


def _cut(world: World, pairs: Sequence[tuple[str, str]], duration_us: int) -> None:
    for src, dst in pairs:
        world.cut(src, dst)
        world.net.later(duration_us, world.net.heal, src, dst)


def _cut_leader(world: World, cluster: SimCluster, fault: LeaderCut) -> None:
    replicas = cluster.replicas(cluster.groups[fault.group % len(cluster.groups)])
    leaders = [name for name, replica in replicas if replica.is_serving_leader()]
    if not leaders:
        return
    leader = leaders[0]
    side = (leader, *fault.clients)
    rest = [name for name in sorted(world.nodes) if name not in side]
    _cut(world, [pair for a in side for b in rest for pair in ((a, b), (b, a))], fault.duration_us)
    if fault.restart:
        for name in cluster.names:
            if name != leader:
                world.crash(name)
                world.net.later(_BOUNCE_US, world.restart, name)


def _boot(world: World, node: str) -> None:
    world.restart(node, reboot=True)


def heal(world: World, cluster: SimCluster) -> None:
    """Undo everything that is still wrong."""
    for name in cluster.names:
        engine = cluster.engines.get(name)
        if engine is not None:
            engine.disk_full = False
    world.heal()
