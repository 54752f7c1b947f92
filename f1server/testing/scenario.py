"""A database under faults as data, drawn from a seed, and how it is run and judged.

Two f1servers and their clients work over a simulated storage cluster, some with slaves that run their queries. Servers
of all kinds die, stop, and are cut off, clocks err within their bound.
Then everything is healed: clients must end, and all checkers judge.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

import f1
from f1common.config import PaxosSection, StorageSection
from f1common.errors import Code, F1Error
from f1server.testing import sums
from f1server.testing.checks import check_consistency, check_history, check_indexes
from f1server.testing.cluster import F1Nodes
from f1server.testing.counters import CounterWorkload
from f1server.testing.kv import DDL, DIRECTORIES, F1Kv, keys_for
from f1server.testing.sums import SumsWorkload
from spanstore.testing.checkers import check_log_agreement, require
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.history import History, Status
from spanstore.testing.scenarios.checks import check_decisions, check_replicas
from spanstore.testing.sim import LinkProfile, Loss, NetConfig, Run, SimulationError, World, WorldConfig, simulate
from spanstore.testing.sim.nemesis import NemesisConfig, Planned, draw_plan, strike
from spanstore.testing.sim.world import NodeEnv
from spanstore.testing.workloads import (
    BankWorkload,
    ListAppendWorkload,
    RegisterWorkload,
    RingWorkload,
    Workload,
)
from spanstore.testing.workloads.base import READ_AT, persist, read_at

T = TypeVar("T")

CENTRAL_WORKLOADS = ("ring", "bank", "register", "list_append", "counters")
"""Run with and without slaves."""
WORKLOADS = (*CENTRAL_WORKLOADS, "sums")

PROGRESS_US = 120_000_000
"""How long after healing everything must be at rest."""

_POLL_S = 0.05
_PEER_METHOD = "/f1.span.SpanServer/Peer"
_STORAGE_FAULTS = ("crash", "pause", "partition", "reset", "clock_jump", "clock_drift", "slow_disk", "slow_link")
_F1_FAULTS = ("crash", "pause", "partition", "reset", "slow_link")
_SLAVE_FAULTS = _F1_FAULTS


class NoProgress(SimulationError):
    """After all faults were healed, something still did not come to its end."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. ``faults`` of spanservers and ``f1_faults`` of f1servers are (kind, weight); ``_ppm``: per million.

    ``churn``: indexes, columns, checks and locks come and go all the time. With ``slaves`` every query that can be
    spread is; ``slave_faults`` strike them and the master.
    """

    seed: int
    workload: str
    groups: int = 2
    keys: int = 6
    clients: int = 3
    f1servers: int = 2
    pause_us: int = 20_000
    run_us: int = 4_000_000
    lease_ms: int = 2_000
    clock_bound_us: int = 0
    max_drift_ppm: int = 0
    duplicate_ppm: int = 0
    drop_ppm: int = 0
    client_crashes: bool = False
    churn: bool = False
    faults: tuple[tuple[str, int], ...] = ()
    f1_faults: tuple[tuple[str, int], ...] = ()
    slaves: int = 0
    slave_faults: tuple[tuple[str, int], ...] = ()
    fault_interval_us: int = 1_000_000
    fault_duration_us: int = 700_000

    def with_(self, **changes: Any) -> "Scenario":
        """Return the scenario with some fields replaced."""
        return msgspec.structs.replace(self, **changes)

    def rng(self, purpose: str) -> random.Random:
        """Return the random numbers of one purpose, which no other purpose draws from."""
        return random.Random(f"{self.seed}/f1/{purpose}")


def draw(seed: int, workload: str | None = None, *, spread: bool = False) -> Scenario:
    """Draw the scenario of a seed; ``workload`` fixes what clients do and leaves the rest to the seed; ``spread``: with
    slaves, as it always is for sums."""
    rng = random.Random(f"{seed}/f1/draw")
    drawn = rng.choice(CENTRAL_WORKLOADS)
    lossy = rng.random() < 0.4
    scenario = Scenario(
        seed=seed,
        workload=workload or drawn,
        groups=rng.choice((1, 2, 3)),
        keys=rng.choice((4, 6, 8)),
        clients=rng.choice((2, 3, 4)),
        f1servers=rng.choice((2, 2, 3)),
        pause_us=rng.choice((20_000, 60_000)),
        run_us=rng.choice((2_000_000, 4_000_000)),
        lease_ms=rng.choice((500, 2_000)),
        clock_bound_us=rng.choice((0, 0, 1_000, 20_000)),
        max_drift_ppm=rng.choice((0, 9_000)),
        duplicate_ppm=20_000 if lossy else 0,
        drop_ppm=20_000 if lossy else 0,
        client_crashes=rng.random() < 0.3,
        churn=rng.random() < 0.4,
        faults=_some(rng, _STORAGE_FAULTS),
        f1_faults=_some(rng, _F1_FAULTS),
        fault_interval_us=rng.choice((300_000, 1_000_000)),
        fault_duration_us=rng.choice((100_000, 700_000, 2_000_000)),
    )
    # Drawn last and apart, so that the other seeds mean what they meant before there were slaves.
    if workload is None and spread:
        scenario = scenario.with_(workload=rng.choice((*CENTRAL_WORKLOADS, "sums", "sums", "sums")))
    if not spread and scenario.workload != "sums":
        return scenario
    return scenario.with_(
        slaves=rng.choice((1, 2, 3)),
        slave_faults=_some(rng, _SLAVE_FAULTS),
        # A query that is spread takes ten times the work of the simulator.
        run_us=scenario.run_us // 2,
        clients=min(scenario.clients, 3),
    )


def _some(rng: random.Random, kinds: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    chosen = rng.sample(kinds, rng.randint(0, 3))
    return tuple((kind, rng.randint(1, 5)) for kind in kinds if kind in chosen)


def make_workload(scenario: Scenario) -> Workload:
    """Make the workload of a scenario over rows of all tables."""
    keys = keys_for(scenario.keys)
    match scenario.workload:
        case "ring":
            return RingWorkload(keys, pause_us=scenario.pause_us)
        case "bank":
            return BankWorkload(keys, pause_us=scenario.pause_us)
        case "register":
            return RegisterWorkload(keys[:3], pause_us=scenario.pause_us)
        case "list_append":
            return ListAppendWorkload(keys[:4], appends_per_list=12, pause_us=scenario.pause_us)
        case "sums":
            return SumsWorkload(pause_us=scenario.pause_us)
        case _:
            return CounterWorkload(pause_us=scenario.pause_us)


@dataclass(frozen=True, slots=True)
class Stats:
    """What happened in a run that passed."""

    ok: int
    failed: int
    unknown: int
    faults: int
    entries: int
    exchanged_bytes: int = 0


class _Clients:
    """Client nodes; each runs the workload's loop, under a new process number whenever it is started again."""

    def __init__(self, nodes: F1Nodes, scenario: Scenario, workload: Workload, history: History) -> None:
        self._nodes = nodes
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
        self._processes += 1
        process = self._processes
        self._busy[env.name] = process
        rng = self._scenario.rng(f"client {process}")
        client = F1Kv(await self._nodes.connect(env), rng)
        await self._workload.client_loop(process, client, rng, self._history, lambda: self._stop)
        await client.conn.close()
        if self._busy.get(env.name) == process:
            del self._busy[env.name]

    def busy(self) -> list[str]:
        return sorted(self._busy)


_CHURNED = (
    ("CREATE {unique}INDEX Churn ON {table} ({columns})", "DROP INDEX Churn"),
    ("ALTER TABLE {table} ADD COLUMN Churn INT64 NOT NULL DEFAULT 7", "ALTER TABLE {table} DROP COLUMN Churn"),
    (
        "ALTER TABLE {table} ADD COLUMN Churn INT64, ADD CONSTRAINT Churned CHECK (Churn IS NULL)",
        "ALTER TABLE {table} DROP CONSTRAINT Churned, DROP COLUMN Churn",
    ),
    ("ALTER TABLE {table} ADD LOCK Churned ({last})", "ALTER TABLE {table} DROP CONSTRAINT Churned"),
)
"""What comes and goes, for a table and two columns of it."""

_CHURNED_TABLES = (("Flat", "K, V", "V"), ("Item", "V", "V"), ("Wide", "K, Extra", "Extra"), ("Counter", "Id, N", "N"))


class _Churn:
    """Somebody who makes indexes and drops them again, whatever becomes of the servers that do it."""

    NAME = "churn"

    def __init__(self, nodes: F1Nodes, scenario: Scenario) -> None:
        self._nodes = nodes
        self._rng = scenario.rng("churn")
        self.done = 0
        self.stopped = False

    def start(self, world: World) -> None:
        world.add_node(self.NAME, self._run)

    async def _run(self, env: NodeEnv) -> None:
        conn = await self._nodes.connect(env, autocommit=True)
        while not self.stopped:
            table, columns, last = self._rng.choice(_CHURNED_TABLES)
            unique = "UNIQUE " if self._rng.random() < 0.3 else ""
            for sql in self._rng.choice(_CHURNED):
                try:
                    await conn.execute(sql.format(table=table, columns=columns, last=last, unique=unique))
                    self.done += 1
                except F1Error as error:
                    if error.code is Code.INTERNAL:
                        raise
                    await self.clean(conn)
        await conn.close()

    async def clean(self, conn: f1.aio.Connection) -> None:
        """Remove what was left behind, as an operator would."""
        await _persist(conn, "DROP INDEX IF EXISTS Churn")
        for table, _, _ in _CHURNED_TABLES:
            await _persist(conn, f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS Churned")
            await _persist(conn, f"ALTER TABLE {table} DROP COLUMN IF EXISTS Churn")


async def _persist(conn: f1.aio.Connection, sql: str) -> None:
    while True:
        try:
            await conn.execute(sql)
            return
        except F1Error as error:
            if error.code is Code.INTERNAL:
                raise
            await asyncio.sleep(0.2)


def _plan(
    scenario: Scenario, storage: list[str], servers: list[str], clients: list[str], slaves: list[str]
) -> list[Planned]:
    plans: list[Planned] = []
    for kinds, victims, max_down, others in (
        (scenario.faults, storage, 1, servers),
        (scenario.f1_faults, servers, None, [*storage, *clients, *slaves]),
        (scenario.slave_faults, slaves, None, [*storage, *servers]),
        ((("crash", 1),) if scenario.client_crashes else (), clients, None, []),
    ):
        if kinds and victims:
            config = NemesisConfig(
                scenario.fault_interval_us, scenario.fault_duration_us, kinds, max_down, max_drift_ppm=9_000
            )
            plans += draw_plan(
                scenario.rng(f"nemesis {victims[0]}"),
                config,
                victims,
                scenario.run_us,
                clients=others,
                clock_bound_us=scenario.clock_bound_us,
            )
    return sorted(plans, key=lambda planned: planned.at_us)


async def _nemesis(world: World, plan: list[Planned]) -> None:
    start_us = world.now_us()
    for planned in plan:
        await world.sleep_us(max(0, start_us + planned.at_us - world.now_us()))
        strike(world, planned.fault)


async def _until(world: World, done: Callable[[], bool], what: Callable[[], str]) -> None:
    end_us = world.now_us() + PROGRESS_US
    while not done():
        if world.now_us() >= end_us:
            raise NoProgress(f"{PROGRESS_US / 1e6:g} s after the last fault was healed, {what()}")
        await asyncio.sleep(_POLL_S)


async def _bounded(env: NodeEnv, work: Coroutine[Any, Any, T], what: str) -> T:
    task = env.spawn(work)
    done, _ = await asyncio.wait([task], timeout=PROGRESS_US / 1e6)
    if not done:
        raise NoProgress(f"{PROGRESS_US / 1e6:g} s after the last fault was healed, {what}")
    return task.result()


async def _prepare(nodes: F1Nodes, env: NodeEnv, scenario: Scenario) -> F1Kv:
    await nodes.ready()
    conn = await nodes.connect(env)
    await conn.apply_schema({"schema.sql": DDL + (sums.DDL if scenario.workload == "sums" else "")})
    async with conn.transaction() as tx:
        await tx.insert("Dir", [{"D": d} for d in range(DIRECTORIES)])
    return F1Kv(conn, scenario.rng("admin"))


async def _play(world: World, scenario: Scenario) -> Stats:
    cluster = SimCluster(
        world,
        ClusterConfig(
            groups=scenario.groups,
            paxos=PaxosSection(lease_ms=600, heartbeat_ms=80, election_timeout_ms=300),
            storage=StorageSection(txn_idle_ms=3_000),
        ),
    )
    nodes = F1Nodes(world, cluster, servers=scenario.f1servers, lease_ms=scenario.lease_ms, slaves=scenario.slaves)
    cluster.start()
    nodes.start()
    admin = world.add_client("admin")
    kv = await _bounded(admin, _prepare(nodes, admin, scenario), "the schema is not there")
    history = History(world.now_us)
    workload = make_workload(scenario)
    await _bounded(admin, workload.setup(kv, history), "the data are not there")
    clients = _Clients(nodes, scenario, workload, history)
    clients.start(world)
    churn = _Churn(nodes, scenario)
    if scenario.churn:
        churn.start(world)
    slaves = [*nodes.slave_names, nodes.MASTER] if nodes.slave_names else []
    plan = _plan(scenario, cluster.names, nodes.names, clients.names, slaves)
    start_us = world.now_us()
    await _nemesis(world, plan)
    await world.sleep_us(max(0, start_us + scenario.run_us - world.now_us()))
    clients.stop()
    churn.stopped = True
    world.heal()
    await _until(world, lambda: not clients.busy(), lambda: f"clients {clients.busy()} still wait")
    final = await _bounded(admin, workload.final(kv, history), "the final reads do not succeed")
    await _bounded(admin, churn.clean(kv.conn), "a half made index cannot be dropped")
    await _until(world, lambda: not cluster.unsettled(), cluster.unsettled)
    await _until(world, lambda: not nodes.unspread(), nodes.unspread)
    await _judge(world, cluster, nodes, admin, kv, workload, history, final)
    counts = {status: sum(op.status is status for op in history.ops) for status in Status}
    return Stats(
        counts[Status.OK],
        counts[Status.FAIL],
        counts[Status.UNKNOWN],
        len(plan),
        len(cluster.applied),
        nodes.exchanged_bytes,
    )


async def _judge(
    world: World,
    cluster: SimCluster,
    nodes: F1Nodes,
    admin: NodeEnv,
    kv: F1Kv,
    workload: Workload,
    history: History,
    final: Any,
) -> None:
    async def look() -> list[Any]:
        client = cluster.client(admin)
        newest_ts = max((op.ts or 0 for op in history.ops), default=0)
        while (safe_ts := await client.safe_time()) <= newest_ts:
            await asyncio.sleep(_POLL_S)
        if not isinstance(workload, CounterWorkload | SumsWorkload):
            await persist(history, READ_AT, read_at(kv, safe_ts, sorted(final)))
        name = nodes.names[0]
        schema = (await nodes.processes[name].leases.current("default")).schema
        found: list[Any] = []
        for ts in (safe_ts, safe_ts - (world.now_us() // 2)):
            found += await check_indexes(client, schema, ts)
        found += await check_consistency(kv.conn)
        return found + await check_history(kv.conn, {table.name: table for table in schema.tables})

    violations = await _bounded(admin, look(), "the last look does not succeed")
    ops = history.ops
    world.trace("history", len(ops), [(op.status.value, op.ts) for op in ops])
    require(
        [
            *violations,
            *workload.check(ops, final),
            *check_log_agreement(cluster.applied),
            *check_decisions(cluster.applied),
            *check_replicas(cluster),
        ]
    )


def run(scenario: Scenario) -> Run[Stats]:
    """Run a scenario. Raises CheckFailed, SimulationError (NoProgress and NodeFailed among them) and F1Error."""
    config = WorldConfig(
        net=NetConfig(
            profile=LinkProfile(min_us=100, mean_extra_us=150),
            unordered_methods=frozenset((_PEER_METHOD,)),
            loss=Loss(drop=scenario.drop_ppm, duplicate=scenario.duplicate_ppm),
        ),
        clock_bound_us=scenario.clock_bound_us,
        max_drift_ppm=scenario.max_drift_ppm,
        limit_us=scenario.run_us + 600_000_000,
    )

    async def main(world: World) -> Stats:
        return await _play(world, scenario)

    return simulate(main, scenario.seed, config)
