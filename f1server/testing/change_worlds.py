"""Databases by seed whose schema changes all the time, while their f1servers disagree about it as far as they may.

The clocks of the servers stand at opposite ends of their bound, answers to renewals of leases come late by up to two
and a half lease periods, servers die, stop and are cut off. Elements of all kinds come and go; changes are paused,
resumed and cancelled, also twice. Through each server somebody writes, rows of their own and rows that all of them
write, now and then what a constraint that may be there forbids.

All the while the seven clauses of definition 4 are checked at pinned timestamps, and at the end at the edges of every
version of the schema. No commit may happen under a version that is older than the last but one
(:class:`VersionsAtWork`). Rows must be those that were acknowledged. In some of these databases people log in, and
admins change roles all the while (:mod:`f1server.testing.role_worlds`).
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec

import f1
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.schema import Schema
from f1server.catalog.store import SchemaStore
from f1server.exec.duck import Duck, DuckConfig
from f1server.exec.rowwise import RowEvaluator
from f1server.process import F1Process
from f1server.testing.changes import (
    CASES,
    COUNTER,
    LAYOUTS,
    PROTO,
    SHARED,
    STATIC,
    Case,
    Layout,
    Writer,
    cross,
    plain,
    small_batches,
)
from f1server.testing.cluster import F1Nodes
from f1server.testing.continuous import ContinuousCheck
from f1server.testing.role_worlds import ADMIN, MAKER, PASSWORD, PREPARED, USERS, Roles
from f1server.txn.committer import Committer
from spanstore.testing.checkers import Violation, require
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import Run, SimulationError, World, WorldConfig, simulate
from spanstore.testing.sim.nemesis import NemesisConfig, draw_plan, strike

__all__ = ["ChangeScenario", "ChangeStats", "VersionsAtWork", "draw", "draw_roles", "run"]

PROGRESS_S = 240.0
"""How long after healing everything must be at rest: changes that wait for each other among them."""

_FAULTS = ("crash", "pause", "partition", "reset", "slow_link")
_NAUGHTY: tuple[dict[str, Any], ...] = ({"V": None}, {"V": -1}, {"V": 77}, {"U": STATIC}, {"S": "longer"})


class ChangeScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. ``late_ppm`` of the answers to lease renewals come late; ``orders_ppm`` of the changes get orders.

    ``deaf_ppm`` of the messages about a new version are lost. ``crossing``: two servers write the same rows in turn.
    """

    seed: int
    layout: str = "flat"
    f1servers: int = 3
    lease_ms: int = 1_000
    clock_bound_us: int = 50_000
    late_ppm: int = 100_000
    deaf_ppm: int = 500_000
    crossing: bool = True
    naughty: bool = True
    orders_ppm: int = 200_000
    admins: int = 0
    """Who change roles meanwhile; 0: nobody has to log in."""
    kinds: tuple[str, ...] = ()
    """Names of the cases to draw changes from; none: all."""
    faults: tuple[tuple[str, int], ...] = ()
    fault_interval_us: int = 1_500_000
    fault_duration_us: int = 700_000
    write_pause_ms: int = 100
    run_us: int = 8_000_000

    def with_(self, **changes: Any) -> "ChangeScenario":
        """Return the scenario with some fields replaced."""
        return msgspec.structs.replace(self, **changes)

    def rng(self, purpose: str) -> random.Random:
        """Return the random numbers of one purpose."""
        return random.Random(f"{self.seed}/changes/{purpose}")


def draw_roles(seed: int) -> ChangeScenario:
    """Draw the scenario of a seed in which roles change as well. Versions are quick, so that there are many."""
    rng = random.Random(f"{seed}/roles/draw")
    return draw(seed).with_(
        admins=rng.choice((1, 2, 2)),
        orders_ppm=rng.choice((200_000, 700_000)),
        clock_bound_us=rng.choice((0, 5_000, 20_000)),
        lease_ms=rng.choice((500, 1_000)),
        deaf_ppm=rng.choice((0, 300_000, 1_000_000)),
        write_pause_ms=200,
    )


def draw(seed: int) -> ChangeScenario:
    """Draw the scenario of a seed."""
    rng = random.Random(f"{seed}/changes/draw")
    chosen = rng.sample(_FAULTS, rng.randint(0, 3))
    drawn = ChangeScenario(
        seed=seed,
        layout=rng.choice(tuple(LAYOUTS)),
        f1servers=rng.choice((2, 3, 3)),
        lease_ms=rng.choice((500, 1_000, 2_000)),
        clock_bound_us=rng.choice((0, 5_000, 50_000, 200_000)),
        late_ppm=rng.choice((0, 100_000, 300_000)),
        naughty=rng.random() < 0.5,
        orders_ppm=rng.choice((0, 200_000)),
        deaf_ppm=rng.choice((0, 500_000, 1_000_000)),
        crossing=rng.random() < 0.5,
        faults=tuple((kind, rng.randint(1, 5)) for kind in _FAULTS if kind in chosen),
        fault_interval_us=rng.choice((700_000, 2_000_000)),
        fault_duration_us=rng.choice((200_000, 1_000_000, 3_000_000)),
    )
    # A lease is written by a commit, which waits for twice the bound: of a shorter one nothing is left to work under.
    return drawn.with_(lease_ms=max(drawn.lease_ms, drawn.clock_bound_us // 200))


class ChangeStats(msgspec.Struct, frozen=True):
    """What happened in a run that passed."""

    changes: int
    versions: int
    commits: int
    fenced: int
    behind: int
    """Commits under the last version but one."""
    checks: int
    role_changes: int = 0
    beside: int = 0
    """Versions that changed roles beside another change."""
    user_commits: int = 0
    slowest_role_change_s: float = 0.0


class VersionsAtWork:
    """Notes under which version of the schema each commit of data happened."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, int]] = []
        self.fenced = 0
        self.cut_off = 0
        """Commits that were given up under way, with the stream of their client."""

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Note the commits of all f1servers."""
        original = Committer.carry_out

        async def carry_out(committer: Committer, tx: Any, leased: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                done = await original(committer, tx, leased, *args, **kwargs)
            except F1Error as error:
                self.fenced += error.code is Code.FENCED
                raise
            except asyncio.CancelledError:
                self.cut_off += 1
                raise
            self.commits.append((done.ts, leased.schema.version))
            return done

        with patch.object(Committer, "carry_out", carry_out):
            yield

    def check(self, edges: list[tuple[int, int]]) -> list[Violation]:
        """Compare with (timestamp, version) of every version of the schema, ascending."""
        found = []
        for ts, version in sorted(self.commits):
            current = max((v for since, v in edges if since <= ts), default=version)
            if not current - 1 <= version <= current:
                text = f"a commit at {ts} under version {version}, when version {current} was there"
                found.append(Violation("versions", text))
        return found

    def behind(self, edges: list[tuple[int, int]]) -> int:
        """Count the commits under the last version but one."""
        return sum(version < max((v for since, v in edges if since <= ts), default=0) for ts, version in self.commits)


@contextlib.contextmanager
def late_replies(scenario: ChangeScenario) -> Iterator[None]:
    """Let some answers to renewals come late, by up to two and a half lease periods."""
    original = SchemaStore.write_lease
    rng = scenario.rng("late")

    async def write_lease(store: SchemaStore, *args: Any, **kwargs: Any) -> Any:
        ts = await original(store, *args, **kwargs)
        if rng.random() * 1e6 < scenario.late_ppm:
            await asyncio.sleep(rng.random() * 2.5 * scenario.lease_ms / 1_000)
        return ts

    with patch.object(SchemaStore, "write_lease", write_lease):
        yield


@contextlib.contextmanager
def deaf(scenario: ChangeScenario) -> Iterator[None]:
    """Lose some of the messages by which servers tell each other of a new version."""
    original = F1Process._nudge
    rng = scenario.rng("deaf")

    async def nudge(process: F1Process, address: str, database: str, version: int) -> None:
        if rng.random() * 1e6 < scenario.deaf_ppm:
            raise F1Error(Code.UNAVAILABLE, "the message was lost")
        await original(process, address, database, version)

    with patch.object(F1Process, "_nudge", nudge):
        yield


def run(scenario: ChangeScenario) -> Run[ChangeStats]:
    """Run a scenario. Raises CheckFailed, SimulationError and F1Error."""
    duck = Duck(DuckConfig(memory_mb=64, threads=1))
    versions = VersionsAtWork()
    config = WorldConfig(clock_bound_us=scenario.clock_bound_us, limit_us=scenario.run_us + 900_000_000)

    async def main(world: World) -> ChangeStats:
        return await _Play(world, scenario, versions, duck).play()

    try:
        with versions.installed(), late_replies(scenario), deaf(scenario), small_batches():
            return simulate(main, scenario.seed, config)
    finally:
        duck.close()


class _Play:
    """One run."""

    def __init__(self, world: World, scenario: ChangeScenario, versions: VersionsAtWork, duck: Duck) -> None:
        self._world = world
        self._scenario = scenario
        self._versions = versions
        self._layout: Layout = LAYOUTS[scenario.layout]
        self._cluster = SimCluster(world, ClusterConfig(servers=1, groups=2))
        self._nodes = F1Nodes(world, self._cluster, servers=scenario.f1servers, lease_ms=scenario.lease_ms)
        self._cluster.start()
        self._nodes.start()
        self._skew()
        self._admin = world.add_client("admin")
        client = self._cluster.client(self._admin)
        evaluator = RowEvaluator(duck, self._admin.clock)
        self._store = SchemaStore(client, self._admin.clock, asyncio.sleep)
        self._checker = ContinuousCheck(client, self._admin.clock, scenario.rng("checker"), evaluator.checks)
        # Some changes move the table: writers name rows by columns, which its key may not be for a while.
        naughty = Case("", "", naughty=scenario.rng("naughty").choice(_NAUGHTY), moves=True)
        self._writers = [
            Writer(n, self._layout, naughty, scenario.rng(f"writer {n}"), naughty=scenario.naughty)
            for n in range(scenario.f1servers)
        ]
        values = Writer(len(self._writers), self._layout, naughty, scenario.rng("users"), naughty=False)
        self._roles = Roles(self._layout, values, scenario.rng("roles"), world.true_ts)
        self._over = False
        self._made = 0

    def _skew(self) -> None:
        """Put the clocks of the first two servers at opposite ends of the bound."""
        bound = self._scenario.clock_bound_us
        for name, error_us in zip(self._nodes.names, (bound, -bound), strict=False):
            self._world.nodes[name].clock.error_us = error_us

    async def play(self) -> ChangeStats:
        """Prepare, let everything happen, heal, and judge."""
        with self._roles.installed():
            return await self._play()

    async def _play(self) -> ChangeStats:
        conn = await self._bounded(self._prepare(), "the data are not there")
        ended = asyncio.Event()
        writing = [self._admin.spawn(self._write(n, ended)) for n in range(len(self._writers))]
        if self._scenario.crossing:
            conns = [await self._connect(n) for n in range(len(self._writers))]
            rng = self._scenario.rng("cross")
            writing.append(self._admin.spawn(cross(conns, self._writers[0], self._layout, rng, ended)))
        changing = self._admin.spawn(self._changes())
        admins = [self._admin.spawn(self._change_roles(n)) for n in range(self._scenario.admins)]
        if admins:
            writing += [self._admin.spawn(self._use_rights(name, ended)) for name in USERS]
        watching = self._admin.spawn(self._checker.follow(0.25, lambda: self._over))
        await self._faults()
        self._over = True
        self._world.heal()
        await self._bounded(asyncio.gather(changing, *admins), "a change does not end")
        ended.set()
        await self._bounded(asyncio.gather(*writing), "writers do not end")
        await self._bounded(self._clean(conn), "what is left cannot be dropped")
        violations = await self._bounded(watching, "the continuous check does not end")
        violations += await self._bounded(self._checker.versions(), "the last check does not end")
        violations += await self._bounded(self._judge_rows(conn), "rows cannot be read")
        schemas = await self._schemas()
        edges = sorted((ts, schema.version) for ts, schema in schemas)
        if admins:
            violations += self._roles.judge([found for found in schemas if found[0] > self._prepared_ts])
        require([*violations, *self._versions.check(edges)])
        return ChangeStats(
            self._made,
            len(edges),
            len(self._versions.commits),
            self._versions.fenced,
            self._versions.behind(edges),
            self._checker.looked,
            self._roles.made,
            sum(schema.elements_since > 0 for _, schema in schemas),
            len(self._roles.commits),
            self._roles.slowest_s,
        )

    async def _bounded(self, work: Any, what: str) -> Any:
        task = asyncio.ensure_future(work)
        # A commit waits for twice the bound of the clocks, and moves of tables make hundreds of them one by one; a case
        # may move its table there and back again before it makes its change.
        limit_s = PROGRESS_S + self._scenario.clock_bound_us / 400
        done, _ = await asyncio.wait([task], timeout=limit_s)
        if not done:
            raise SimulationError(f"{limit_s:g} s after the last fault was healed, {what}")
        return task.result()

    async def _schemas(self) -> list[tuple[int, Schema]]:
        """Return every version of the schema and when it was written, ascending."""
        return [(ts, (await self._store.schemas_at(ts))["default"]) for ts in await self._checker.edges()]

    # ------------------------------------------------------------------ users

    def _sources(self) -> dict[str, str]:
        other = "CREATE TABLE Other (K INT64 NOT NULL, Name STRING, PRIMARY KEY (K))"
        return {"s.sql": ";\n".join([*self._layout.tables, other]), "t.proto": PROTO}

    async def _prepare(self) -> f1.aio.Connection:
        await self._nodes.ready()
        conn = await self._nodes.connect(self._admin, autocommit=True)
        await conn.apply_schema(self._sources())
        await conn.insert("Other", [{"K": k} for k in range(10)])
        if len(self._layout.keys) > 1:
            await conn.insert("Root", [{"A": a} for a in range(2)])
            await conn.insert("Mid", [{"A": a, "B": 1} for a in range(2)])
        else:
            # Few: walks go over them, too, when R is below them.
            own = (number for writer in self._writers for number in writer.numbers)
            rest = (*range(STATIC, STATIC + 4), *range(SHARED, SHARED + 22), COUNTER)
            await conn.insert("Above", [{"A": a} for a in (*own, *rest)])
        for number in (*range(STATIC, STATIC + 4), COUNTER):
            await conn.insert("R", self._layout.key(number) | self._writers[0].fresh(number, naughty=False))
        for writer in self._writers:
            writer.pause_s = self._scenario.write_pause_ms / 1_000
            await writer.begin(conn)
        if self._scenario.admins:
            for statement in PREPARED:
                await conn.execute(statement)
            await self._require_passwords()
            conn = await self._login(ADMIN)
        self._roles.start()
        self._prepared_ts = self._world.true_ts()
        return conn

    async def _require_passwords(self) -> None:
        """Start all f1servers again, which want people to log in from now on."""
        self._nodes.authentication = "password"
        for name in self._nodes.names:
            self._world.crash(name)
            self._world.restart(name)
        while any(n not in self._nodes.processes or not self._nodes.processes[n].doors for n in self._nodes.names):
            await asyncio.sleep(0.05)
        await self._nodes.ready()

    async def _login(self, user: str, hosts: str = "") -> f1.aio.Connection:
        """Connect to some servers, as a role if that has to be said. It may take a while."""
        who = {"user": user, "password": PASSWORD} if self._nodes.authentication == "password" else {}
        while True:
            try:
                return await self._nodes.connect(self._admin, hosts=hosts, autocommit=True, **who)
            except F1Error:
                await asyncio.sleep(0.2)

    async def _change_roles(self, number: int) -> None:
        conn = await self._login(ADMIN)
        await self._roles.admin(number, self._scenario.admins, conn, lambda: self._over)
        await conn.close()

    async def _use_rights(self, name: str, ended: asyncio.Event) -> None:
        async def connect(user: str, number: int) -> f1.aio.Connection:
            return await self._login(user, self._nodes.host(self._nodes.names[number]))

        await self._roles.user(name, connect, len(self._nodes.names), ended)

    async def _write(self, number: int, ended: asyncio.Event) -> None:
        conn = await self._connect(number)
        await self._writers[number].run(conn, ended)
        await conn.close()

    async def _connect(self, number: int) -> f1.aio.Connection:
        return await self._login(ADMIN, self._nodes.host(self._nodes.names[number]))

    # ------------------------------------------------------------------ changes

    async def _changes(self) -> None:
        rng = self._scenario.rng("changes")
        conn = await self._login(MAKER)
        names = self._scenario.kinds or tuple(CASES)
        while not self._over:
            case = CASES[rng.choice(names)]
            orders = (
                self._admin.spawn(self._orders(conn, rng)) if rng.random() * 1e6 < self._scenario.orders_ppm else None
            )
            for text in (*case.before, case.change):
                for statement in self._layout.ddl(text).split("; "):
                    await self._ask(conn, statement)
            if orders is not None:
                await orders
            await self._clean(conn)
            await asyncio.sleep(rng.random() * self._scenario.lease_ms / 1_000)
        await conn.close()

    async def _ask(self, conn: f1.aio.Connection, statement: str) -> None:
        try:
            await conn.execute(statement)
            self._made += 1
        except F1Error as error:
            if error.code is Code.INTERNAL:
                raise

    async def _orders(self, conn: f1.aio.Connection, rng: random.Random) -> None:
        """Pause, resume and cancel what runs, also twice; in the end nothing is paused."""
        session = conn.session
        orders = [rng.choice((pb.SchemaJobs.PAUSE, pb.SchemaJobs.RESUME, pb.SchemaJobs.CANCEL)) for _ in range(4)]
        for order in (*orders, pb.SchemaJobs.RESUME):
            await asyncio.sleep(rng.random() * self._scenario.lease_ms / 1_000)
            await self._order(session, order)
        # An order may fail for a reason that passes.
        while await self._order(session, pb.SchemaJobs.RESUME):
            await asyncio.sleep(0.5)

    async def _order(self, session: Any, order: Any) -> bool:
        """Give an order to what runs; tell whether there is anything."""
        try:
            listed = await session.schema_jobs(pb.SchemaJobs())
            running = [job for job in listed.jobs if job.state in ("running", "paused", "undoing")]
            for job in running:
                await session.schema_jobs(pb.SchemaJobs(order=order, number=job.number))
        except F1Error as error:
            if error.code is Code.INTERNAL:
                raise
            return True
        return bool(running)

    async def _clean(self, conn: f1.aio.Connection) -> None:
        """Bring the tables back to what they were, as an operator would."""
        renamed = {
            " Y INT64": "ALTER TABLE R RENAME COLUMN Y TO Z",
            "TABLE Another": "ALTER TABLE Another RENAME TO Other",
        }
        while True:
            try:
                ddl = await conn.show_schema()
                for text, statement in renamed.items():
                    if text in ddl:
                        await conn.execute(statement)
                await self._move_back(conn, ddl)
                sources = self._sources()
                if "VARCHAR(50)" in ddl:
                    sources["s.sql"] = sources["s.sql"].replace("VARCHAR(5)", "VARCHAR(50)")
                await conn.apply_schema(sources, allow_data_loss=True)
                return
            except F1Error as error:
                if error.code is Code.INTERNAL:
                    raise
            await asyncio.sleep(0.2)

    async def _move_back(self, conn: f1.aio.Connection, ddl: str) -> None:
        """Give R the key and the parent that it had: a move stands alone, so that sources with other changes do not."""
        layout = self._layout
        definition = ddl.partition("CREATE TABLE R (")[2].partition(";")[0]
        if layout.ddl("PRIMARY KEY ({key})") in definition and definition.endswith(layout.ddl("){here}")):
            return
        # Under a key with U some shared rows may have become two.
        number = layout.keys[-1]
        await conn.execute(f"DELETE FROM R WHERE {number} >= {SHARED} AND {number} <> {COUNTER} AND {number} <> U")
        await conn.execute(layout.ddl("ALTER TABLE R SET PRIMARY KEY ({key}){here}"))

    # ------------------------------------------------------------------ faults, verdict

    async def _faults(self) -> None:
        scenario = self._scenario
        start_us = self._world.now_us()
        if scenario.faults:
            config = NemesisConfig(scenario.fault_interval_us, scenario.fault_duration_us, scenario.faults, None)
            others = [*self._cluster.names, "admin"]
            for planned in draw_plan(
                scenario.rng("nemesis"), config, self._nodes.names, scenario.run_us, clients=others
            ):
                await self._world.sleep_us(max(0, start_us + planned.at_us - self._world.now_us()))
                strike(self._world, planned.fault)
        await self._world.sleep_us(max(0, start_us + scenario.run_us - self._world.now_us()))

    async def _judge_rows(self, conn: f1.aio.Connection) -> list[Violation]:
        rows = {row[self._layout.keys[-1]]: row for row in await conn.read("R")}
        expected = {number: values for writer in self._writers for number, values in writer.rows.items()}
        found: list[Violation] = []
        for number in sorted(set(expected) | {n for n in rows if n < STATIC}):
            there, wanted = rows.get(number), expected.get(number)
            have = None if there is None or wanted is None else {n: plain(there[n]) for n in wanted}
            if have != wanted or (there is None) != (wanted is None):
                found.append(Violation("rows", f"row {number} is {there}, not {wanted}"))
        added = sum(writer.added for writer in self._writers)
        perhaps = sum(writer.perhaps for writer in self._writers)
        if not added <= rows[COUNTER]["N"] <= added + perhaps:
            found.append(Violation("counter", f"{rows[COUNTER]['N']} increments, {added} acknowledged"))
        return found
