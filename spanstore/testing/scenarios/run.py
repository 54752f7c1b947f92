"""Running a scenario: workload, nemesis, healing, progress, and every checker there is."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error, InvariantViolation
from spanstore.client import SpanClient
from spanstore.client.placement import stored_map
from spanstore.engine.base import EngineFailed
from spanstore.testing.adapter import SpanKv, read_replica
from spanstore.testing.checkers import (
    CheckFailed,
    Violation,
    check_log_agreement,
    require,
)
from spanstore.testing.cluster import TABLES, ClusterConfig, SimCluster
from spanstore.testing.history import Attempt, History, Status
from spanstore.testing.scenarios import faults
from spanstore.testing.scenarios.checks import LeaseWatch, check_decisions, check_replicas
from spanstore.testing.scenarios.commits import CommitsWorkload
from spanstore.testing.scenarios.moves import (
    Founder,
    OwnerWatch,
    Shuffler,
    Shuttle,
    check_moves,
    check_owners,
    count_moves,
)
from spanstore.testing.scenarios.scenario import Scenario
from spanstore.testing.sim import Run, SimulationError, World, simulate
from spanstore.testing.sim.world import NodeEnv
from spanstore.testing.workloads import (
    BankWorkload,
    ListAppendWorkload,
    RegisterWorkload,
    RingWorkload,
    Workload,
)
from spanstore.testing.workloads.base import READ_AT, Final, persist, read_at

PROGRESS_US = 60_000_000
"""How long after healing everything must be at rest; far above what it takes, but bounded."""

_T = TypeVar("_T")

PROGRESS = "progress"
INVARIANT = "invariant"
ERROR = "error"

_LOOKS = 10
"""So often may a load balancer have begun a move just when it was to be checked who owns what."""
_POLL_S = 0.05


class NoProgress(SimulationError):
    """After all faults were healed, something still did not come to its end."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What happened in a run that passed."""

    ok: int
    failed: int
    unknown: int
    faults: int
    entries: int
    transfers: int
    resumed: int
    moves: int = 0
    founded: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Who caught what: a checker's name, or :data:`INVARIANT`, :data:`PROGRESS`, :data:`ERROR`."""

    caught_by: str
    message: str


def keys_of(scenario: Scenario) -> list[bytes]:
    """Return the keys of a scenario's workload, in all groups."""
    # A ring takes no key with a #, which is how one of the tables is encoded.
    tables = [table for table in range(1, TABLES + 1) if b"#" not in tuples.encode((table,))]
    return [tuples.encode((tables[i * len(tables) // scenario.keys], f"k{i}")) for i in range(scenario.keys)]


def make_workload(scenario: Scenario, keys: list[bytes], servers: list[str]) -> Workload:
    """Make the workload of a scenario."""
    match scenario.workload:
        case "ring":
            return RingWorkload(keys, pause_us=scenario.pause_us)
        case "bank":
            return BankWorkload(keys, pause_us=scenario.pause_us)
        case "register":
            return RegisterWorkload(keys[:3], pause_us=scenario.pause_us)
        case "list_append":
            return ListAppendWorkload(keys[:5], pause_us=scenario.pause_us)
        case "commits":
            # Servers' clocks may be ahead of the clients'.
            keep_us = scenario.outcome_keep_ms * 1000 - 2 * scenario.clock_bound_us
            return CommitsWorkload(keys, servers, pause_us=scenario.pause_us, outcome_keep_us=keep_us)
        case name:
            raise F1Error(Code.INVALID_ARGUMENT, f"there is no workload {name}")


class _Clients:
    """Client nodes; each runs the workload's loop, under a new process number whenever it is started again."""

    def __init__(self, cluster: SimCluster, scenario: Scenario, workload: Workload, history: History) -> None:
        self._cluster = cluster
        self._scenario = scenario
        self._workload = workload
        self._history = history
        self._processes = 0
        self._busy: dict[str, int] = {}
        self._stop = False
        self.names = [f"client-{i}" for i in range(scenario.clients)]

    def start(self, world: World) -> None:
        for name in self.names:
            world.add_node(name, self._run)

    def stop(self) -> None:
        self._stop = True

    async def _run(self, env: NodeEnv) -> None:
        first = self._processes + 1
        self._processes += self._scenario.together
        self._busy[env.name] = first
        kv = SpanKv(self._cluster.client(env), self._cluster.client(env))
        await asyncio.gather(*(self._loop(process, kv) for process in range(first, self._processes + 1)))
        if self._busy.get(env.name) == first:
            del self._busy[env.name]

    async def _loop(self, process: int, kv: SpanKv) -> None:
        rng = self._scenario.rng(f"client {process}")
        await self._workload.client_loop(process, kv, rng, self._history, lambda: self._stop)

    def stopping(self) -> bool:
        return self._stop

    def busy(self) -> list[str]:
        return sorted(self._busy)


class _Changes:
    """Whoever changes the range map, and founds a group, while the clients work."""

    def __init__(self, cluster: SimCluster, scenario: Scenario, client: SpanClient, keys: list[bytes]) -> None:
        mover = Shuttle if scenario.shuttle else Shuffler
        self._scenario = scenario
        self._shuffler = mover(client, keys, cluster.groups, scenario.rng("moves"))
        self.founder = Founder(cluster, client, scenario.rng("founding"))
        self._shuffling: asyncio.Task[None] | None = None
        self._founding: asyncio.Task[None] | None = None

    def start(self, admin: NodeEnv, until: Callable[[], bool]) -> None:
        scenario = self._scenario
        if scenario.moves_us:
            self._shuffling = admin.spawn(self._shuffler.run(scenario.moves_us, until))
            if scenario.founds:
                self._founding = admin.spawn(self.founder.run(self._shuffler, scenario.run_us / 3e6, until))

    async def settle(self, admin: NodeEnv) -> None:
        if self._shuffling is not None:
            await _bounded(self._shuffling, "whoever changes the range map still waits")
        if self._shuffling is not None or self._scenario.balance:
            await _bounded(admin.spawn(self._shuffler.settle()), "moves of ranges do not end")
        if self._founding is not None:
            await _bounded(self._founding, "whoever founds a group still waits")
            await _bounded(admin.spawn(self.founder.settle()), "the new group does not serve")


async def _until(world: World, done: Callable[[], bool], limit_us: int, what: Callable[[], str]) -> None:
    end_us = world.now_us() + limit_us
    while not done():
        if world.now_us() >= end_us:
            raise NoProgress(f"{limit_us / 1e6:g} s after the last fault was healed, {what()}")
        await asyncio.sleep(_POLL_S)


async def _play(world: World, scenario: Scenario) -> Stats:
    config = ClusterConfig(
        servers=scenario.servers,
        groups=scenario.groups,
        paxos=scenario.paxos(),
        storage=scenario.storage(),
        placement=scenario.placement(),
    )
    cluster = SimCluster(world, config)
    cluster.start()
    history = History(world.now_us)
    keys = keys_of(scenario)
    workload = make_workload(scenario, keys, cluster.names)
    admin = world.add_client("admin")
    kv = SpanKv(cluster.client(admin))
    await admin.spawn(workload.setup(kv, history))

    leases = LeaseWatch(cluster)
    watching = asyncio.create_task(leases.run(), name="lease watch")
    owners = OwnerWatch(cluster, keys)
    moving = scenario.moves_us or scenario.balance
    watching_owners = asyncio.create_task(owners.run(), name="owner watch") if moving else None
    clients = _Clients(cluster, scenario, workload, history)
    clients.start(world)
    plan = faults.draw_plan(scenario, cluster.names, clients.names)
    start_us = world.now_us()
    changes = _Changes(cluster, scenario, kv.client, keys)
    changes.start(admin, clients.stopping)
    await faults.play(world, cluster, plan)
    await world.sleep_us(max(0, start_us + scenario.run_us - world.now_us()))
    clients.stop()
    faults.heal(world, cluster)

    await _until(world, lambda: not clients.busy(), PROGRESS_US, lambda: f"clients {clients.busy()} still wait")
    await changes.settle(admin)
    final = await _bounded(admin.spawn(workload.final(kv, history)), "the final reads do not succeed")
    await _until(world, lambda: not cluster.unsettled(), PROGRESS_US, cluster.unsettled)
    everywhere = admin.spawn(_read_everywhere(cluster, kv, history, sorted(final)))
    safe = await _bounded(everywhere, "safe time stands still or replicas do not answer")
    ops = history.ops
    world.trace("history", len(ops), [(op.status.value, op.ts) for op in ops], safe)
    watching.cancel()
    if watching_owners is not None:
        watching_owners.cancel()
    violations = _check(cluster, workload, history, final)
    violations += await _owners_at_rest(world, cluster, admin, kv, changes, scenario)
    violations += check_moves(cluster, cluster.first_map)
    require([*violations, *leases.violations, *owners.violations])
    moves = count_moves(cluster.applied)
    counts = {status: sum(op.status is status for op in ops) for status in Status}
    return Stats(
        ok=counts[Status.OK],
        failed=counts[Status.FAIL],
        unknown=counts[Status.UNKNOWN],
        faults=len(plan),
        entries=len(cluster.applied),
        transfers=cluster.transfers,
        resumed=cluster.resumed,
        moves=moves,
        founded=changes.founder.founded,
    )


async def _owners_at_rest(
    world: World, cluster: SimCluster, admin: NodeEnv, kv: SpanKv, changes: _Changes, scenario: Scenario
) -> list[Violation]:
    """Check who owns what once nothing moves. A load balancer may begin a move just then: that is no finding unless it
    is found each time."""
    found: list[Violation] = []
    for _ in range(_LOOKS if scenario.balance else 1):
        await changes.settle(admin)
        await _until(world, lambda: not cluster.unsettled(), PROGRESS_US, cluster.unsettled)
        ranges, _ = await _bounded(admin.spawn(stored_map(kv.client)), "the range map cannot be read")
        found = check_owners(cluster, ranges)
        if not found:
            break
    return found


async def _bounded(task: asyncio.Task[_T], what: str) -> _T:
    done, _ = await asyncio.wait([task], timeout=PROGRESS_US / 1e6)
    if not done:
        raise NoProgress(f"{PROGRESS_US / 1e6:g} s after the last fault was healed, {what}")
    return task.result()


async def _read_everywhere(cluster: SimCluster, kv: SpanKv, history: History, keys: list[bytes]) -> int:
    """Read all keys at the global safe time, from the leaders and from every server's own replicas."""
    newest_ts = max((op.ts or 0 for op in history.ops), default=0)

    async def safe_ts() -> int:
        while (ts := await kv.client.safe_time()) <= newest_ts:
            await asyncio.sleep(_POLL_S)
        return ts

    # The timestamp anew at each try: where versions are kept for a moment only, the last one may be too old by now.
    async def at_leaders(attempt: Attempt) -> int:
        return await read_at(kv, await safe_ts(), keys)(attempt)

    ts = (await persist(history, READ_AT, at_leaders)).ts or 0
    for server in cluster.names:

        async def body(attempt: Attempt, server: str = server) -> int:
            ts = await safe_ts()
            for key, value in zip(keys, await read_replica(kv.client, server, ts, keys), strict=True):
                attempt.read(key, value)
            return ts

        await persist(history, READ_AT, body)
    return ts


def _check(cluster: SimCluster, workload: Workload, history: History, final: Final) -> list[Violation]:
    return [
        *workload.check(history.ops, final),
        *check_log_agreement(cluster.applied),
        *check_decisions(cluster.applied),
        *check_replicas(cluster),
    ]


def run(scenario: Scenario) -> Run[Stats]:
    """Run a scenario. Raises CheckFailed, SimulationError (NoProgress and NodeFailed among them) and F1Error."""

    async def main(world: World) -> Stats:
        return await _play(world, scenario)

    return simulate(main, scenario.seed, scenario.world((EngineFailed,)))


def failure_of(error: BaseException) -> Failure:
    """Say who caught what a run raised."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, CheckFailed):
        names = sorted({violation.checker for violation in error.violations})
        return Failure(error.violations[0].checker, f"{', '.join(names)}: {error.violations[0]}")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, InvariantViolation):
            return Failure(INVARIANT, text)
        cause = cause.__cause__
    if isinstance(error, NoProgress):
        return Failure(PROGRESS, text)
    return Failure(ERROR, text)
