"""Faults before and after every write that a schema change makes, for every kind of change.

A case is a change of one element. It runs in a simulated database: server ``f1-a`` carries it out, ``f1-b`` hears of
every new version at once, ``f1-c`` of none before it renews its lease, so that ``f1-b`` and ``f1-c`` write under
neighbouring versions all the time, and a transaction is open. A first run counts the writes of the change: its own row,
versions of the schema, leases, batches of rows. Then there is one run for each of these points and each way to fail at
it (:func:`run_all`): whoever makes the write dies before or after it, stands still until others have finished, or loses
the request or the answer.

Whatever happens, the change ends within some lease periods, forwards or backwards; the seven clauses hold at the edges
of every version of the schema and after every write; nothing of the change is left over; the rows are those that were
acknowledged (:func:`run_point` raises otherwise).
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from unittest.mock import patch

import f1
from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema
from f1server.catalog.schema import Schema
from f1server.catalog.store import SchemaStore
from f1server.schemachange.executor import SchemaChanges
from f1server.schemachange.jobs.jobs import Job, JobState, JobStore, Order
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
from f1server.testing.continuous import ContinuousCheck
from f1server.testing.database import Database, with_database
from spanstore.client import twophase
from spanstore.testing.checkers import Violation, require

__all__ = ["Mode", "Outcome", "Strike", "between_writes", "run_all", "run_point"]

LEASE_MS = 1_000
FROZEN_US = 13_000_000
"""Longer than an owner may be silent and others need to finish, shorter than the fence of any commit."""
BOUND_S = 30.0
"""Within what a change has ended, whatever its owner does: the owner's lease, and some twenty lease periods."""


class Mode(StrEnum):
    """What happens at a write."""

    CRASH_BEFORE = "dies before"
    CRASH_AFTER = "dies after"
    FREEZE = "stands still before"
    LOST_REQUEST = "loses the request of"
    LOST_ANSWER = "loses the answer of"
    PAUSE = "is told twice to pause before"
    CANCEL = "is told twice to cancel before"
    ALL = "is told to pause, to resume and to cancel before"


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault at the write with a number, counted from 0 over all who carry the change out."""

    point: int
    mode: Mode


def run_all(seed: int) -> int:
    """Run the faults of one mode at all points of one case, in one layout, with or without naughty writers.

    The ``seed`` picks these; ``len(CASES) * 32`` seeds in a row are all there is. Returns how many faults struck.
    """
    names, layouts, modes = tuple(CASES), tuple(LAYOUTS), tuple(Mode)
    seed, name = divmod(seed, len(names))
    seed, layout = divmod(seed, len(layouts))
    seed, mode = divmod(seed, len(modes))
    seed, naughty = divmod(seed, 2)
    count = run_point(names[name], layouts[layout], None, seed=seed, naughty=bool(naughty)).writes
    struck = 0
    for point in range(count):
        strike = Strike(point, modes[mode])
        outcome = run_point(names[name], layouts[layout], strike, seed=seed, naughty=bool(naughty))
        struck += bool(outcome.struck)
    return struck


# ------------------------------------------------------------------ striking

_ACTING: ContextVar[SchemaChanges | None] = ContextVar("acting", default=None)
"""Whose schema change the running code carries out."""


_ORDERS: Mapping[Mode, tuple[Order | None, ...]] = {
    Mode.PAUSE: (Order.PAUSE, Order.PAUSE),
    Mode.CANCEL: (Order.CANCEL, Order.CANCEL),
    Mode.ALL: (Order.PAUSE, None, Order.CANCEL, Order.PAUSE),
}
"""None: to go on."""


class _Striker:
    """Counts the writes of schema changes, and strikes once."""

    def __init__(self, strike: Strike | None) -> None:
        self._strike = strike
        self._db: Database | None = None
        self.count = 0
        self.struck = ""
        self.cancelled = strike is not None and strike.mode in (Mode.CANCEL, Mode.ALL)
        self.timestamps: list[int] = []
        """When the writes happened, those without an answer left out."""

    def watch(self, db: Database) -> None:
        """Begin to count."""
        self._db = db

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let all writes of schema changes go through here."""
        with contextlib.ExitStack() as stack:
            for name in ("_change", "_take", "_carry_out"):
                stack.enter_context(patch.object(SchemaChanges, name, _acting(getattr(SchemaChanges, name))))
            stack.enter_context(patch.object(twophase, "commit", self._commit(twophase.commit)))
            stack.enter_context(small_batches())
            yield

    def _commit(self, original: Any) -> Any:
        async def commit(*args: Any) -> int:
            changes, db = _ACTING.get(), self._db
            if changes is None or db is None:
                return int(await original(*args))
            point, self.count = self.count, self.count + 1
            if self._strike is None or point != self._strike.point:
                ts = int(await original(*args))
            else:
                ts = await self._hit(db, changes, self._strike.mode, lambda: original(*args))
            self.timestamps.append(ts)
            return ts

        return commit

    async def _hit(self, db: Database, changes: SchemaChanges, mode: Mode, send: Any) -> int:
        name = changes._leases.server
        self.struck = f"{name} {mode} write {self.count - 1}"
        lost = F1Error(Code.UNKNOWN_OUTCOME, "the answer was lost")
        if mode is Mode.LOST_REQUEST:
            raise lost
        if mode in _ORDERS:
            await self._order(db, mode)
        if mode in (Mode.CRASH_BEFORE, Mode.FREEZE):
            await self._stop(db, name, FROZEN_US if mode is Mode.FREEZE else None)
        ts = int(await send())
        if mode is Mode.CRASH_AFTER:
            await self._stop(db, name, None)
        if mode is Mode.LOST_ANSWER:
            raise lost
        return ts

    async def _order(self, db: Database, mode: Mode) -> None:
        """Give orders for the change through another server, all at once. Refusals are part of the game."""
        changes = db.process(1)._changes
        running = await JobStore(db.storage, db.env.clock).running("default")
        if running is None:
            return
        number = running.job.number

        async def give(order: Order | None) -> None:
            with contextlib.suppress(F1Error):
                if order is None:
                    await changes.resume("default", number)
                else:
                    await changes.order("default", number, order)

        await asyncio.gather(*(db.on(1, give(order)) for order in _ORDERS[mode]))

    async def _stop(self, db: Database, name: str, frozen_us: int | None) -> None:
        """Have this very process stopped from outside, before it does anything else."""
        done = asyncio.Event()

        async def stop() -> None:
            if frozen_us is None:
                db.world.crash(name)
                await asyncio.sleep(1)
                db.world.restart(name)
            else:
                db.world.pause(name, frozen_us)
            done.set()

        db.env.spawn(stop())
        await done.wait()


@contextlib.contextmanager
def between_writes(db: Database, before: Callable[[str, int], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """Do something before each write of schema changes: ``before(server, number of the write)`` is awaited."""
    original = twophase.commit
    numbers = itertools.count()

    async def commit(*args: Any) -> int:
        changes = _ACTING.get()
        if changes is not None:
            await db.env.spawn(before(changes._leases.server, next(numbers)))
        return int(await original(*args))

    with contextlib.ExitStack() as stack:
        for name in ("_change", "_take", "_carry_out"):
            stack.enter_context(patch.object(SchemaChanges, name, _acting(getattr(SchemaChanges, name))))
        stack.enter_context(patch.object(twophase, "commit", commit))
        yield


def _acting(method: Any) -> Any:
    async def acting(self: SchemaChanges, *args: Any, **kwargs: Any) -> Any:
        token = _ACTING.set(self)
        try:
            return await method(self, *args, **kwargs)
        finally:
            _ACTING.reset(token)

    return acting


# ------------------------------------------------------------------ one run


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went. ``state`` is None if the change was never begun; times are simulated seconds."""

    writes: int
    state: JobState | None
    took_s: float
    struck: str
    checks: int


def run_point(
    name: str,
    layout: str,
    strike: Strike | None,
    *,
    seed: int = 1,
    naughty: bool = False,
    crossing: bool = False,
) -> Outcome:
    """Run a case with a fault; ``crossing``: two servers write the same rows all the time.

    Raises CheckFailed, AssertionError, and what fails a simulation.
    """
    case = CASES[name]
    striker = _Striker(strike)
    run = _Run(case, LAYOUTS[layout], striker, random.Random(f"{seed}/{name}/{layout}"), naughty=naughty)
    run.crossing = crossing
    with striker.installed():
        return with_database(run.body, seed=seed, groups=2, f1servers=3, lease_ms=LEASE_MS)


class _Run:
    def __init__(self, case: Case, layout: Layout, striker: _Striker, rng: random.Random, *, naughty: bool) -> None:
        self._case = case
        self._layout = layout
        self._striker = striker
        self._rng = rng
        self._naughty = naughty
        self.crossing = False
        self._writers = [Writer(n, layout, case, random.Random(rng.random()), naughty=naughty) for n in range(2)]

    async def body(self, db: Database) -> Outcome:
        """Make the change while others write, and judge."""
        case, layout = self._case, self._layout
        other = "CREATE TABLE Other (K INT64 NOT NULL, Name STRING, PRIMARY KEY (K))"
        ddl = [*layout.tables, other]
        await db.conn.apply_schema({"s.sql": ";\n".join(ddl), "t.proto": PROTO})
        for statement in "; ".join(map(layout.ddl, case.before)).split("; ") if case.before else ():
            await db.conn.execute(statement)
        await self._fill(db)
        _deafen(db, 2)
        conns = [await db.at(1), await db.at(2)]
        store = SchemaStore(db.storage, db.env.clock, asyncio.sleep)
        jobs = JobStore(db.storage, db.env.clock)
        before = (await store.load("default")).schema
        ended = asyncio.Event()
        writing = [db.env.spawn(writer.run(conn, ended)) for writer, conn in zip(self._writers, conns, strict=True)]
        if self.crossing:
            writing.append(db.env.spawn(cross(conns, self._writers[0], layout, self._rng, ended)))
        opened = await self._open(await db.at(2))
        await asyncio.sleep(0.5)
        self._striker.watch(db)
        began_us = db.world.now_us()
        job = await self._change(db, jobs, len(await jobs.log("default")))
        took_s = (db.world.now_us() - began_us) / 1e6
        if took_s > BOUND_S:
            raise AssertionError(f"the change took {took_s:g} s")
        if self._striker.struck and "still" in self._striker.struck:
            await db.world.sleep_us(max(0, began_us + FROZEN_US + 4_000_000 - db.world.now_us()))
        await self._close(opened)
        await asyncio.sleep(1)
        ended.set()
        await asyncio.gather(*writing)
        checker = ContinuousCheck(
            db.storage, db.env.clock, db.env.rng, lambda schema: db.process(1)._sql.evaluators().checks(schema)
        )
        found = await checker.versions(before.commit_ts)
        for ts in self._striker.timestamps:
            found += await checker.at(ts)
        require([*found, *await self._judge(db, store, before, job)])
        state = job.state if job is not None else None
        return Outcome(self._striker.count, state, took_s, self._striker.struck, checker.looked)

    async def _fill(self, db: Database) -> None:
        await db.conn.insert("Other", [{"K": k} for k in range(10)])
        if len(self._layout.keys) == 1:
            above = (*range(100, 107), *range(200, 207), *range(STATIC, 1_000))
            await db.conn.insert("Above", [{"A": a} for a in above])
        else:
            await db.conn.insert("Root", [{"A": a} for a in range(2)])
            await db.conn.insert("Mid", [{"A": a, "B": 1} for a in range(2)])
        for number in (*range(STATIC, STATIC + 4), COUNTER):
            await db.conn.insert("R", self._layout.key(number) | self._writers[0].fresh(number, naughty=False))
        for writer in self._writers:
            await writer.begin(db.conn)

    async def _open(self, conn: f1.aio.Connection) -> Any:
        """Begin a transaction that has read, and ends when the change has."""
        tx = await conn.begin("optimistic")
        row = await tx.get("R", tuple(self._layout.key(STATIC).values()), columns=["N"])
        if row is None:
            raise AssertionError("a row is missing")
        await tx.update("R", self._layout.key(STATIC) | {"N": row["N"] + 1})
        return conn

    async def _close(self, conn: f1.aio.Connection) -> None:
        try:
            await conn.commit()
        except F1Error as error:
            if not self._case.moves or error.code is not Code.ABORTED:
                raise
            key, name = self._layout.key(STATIC), self._layout.keys[-1]
            await conn.execute(f"UPDATE R SET N = N + 1 WHERE {name} = ?", (key[name],))

    async def _change(self, db: Database, jobs: JobStore, done: int) -> Job | None:
        """Have server ``f1-a`` make the change; return it when it has ended, whoever ended it."""
        conn = await db.at(0)

        async def execute() -> None:
            for statement in self._layout.ddl(self._case.change).split("; "):
                await conn.execute(statement)

        asked = db.env.spawn(execute())
        while True:
            if asked.done():
                await asyncio.sleep(0.1)
            else:
                await asyncio.wait([asked], timeout=0.1)
            running = await jobs.running("default")
            if running is not None and running.job.state is JobState.PAUSED:
                await self._resume(db, running.job.number)
            if running is None and asked.done():
                break
            if running is None and len(await jobs.log("default")) > done and self._striker.struck:
                break
            if db.world.now_us() > 10 * 60_000_000:
                raise AssertionError(f"the change does not end: {running}")
        asked.cancel()
        error = (await asyncio.gather(asked, return_exceptions=True))[0]
        log = (await jobs.log("default"))[done:]
        if error is None and not log:
            raise AssertionError("the statement returned, and there was no change")
        return log[-1] if log else None

    async def _resume(self, db: Database, number: int) -> None:
        """Let a paused change stand for a while, then have it go on, twice and at once."""
        await asyncio.sleep(1)

        async def resume(server: int) -> None:
            with contextlib.suppress(F1Error):
                await db.process(server)._changes.resume("default", number)

        await asyncio.gather(*(db.on(server, resume(server)) for server in (1, 2)))

    async def _judge(self, db: Database, store: SchemaStore, before: Schema, job: Job | None) -> list[Violation]:
        found: list[Violation] = []
        schema = (await store.load("default")).schema
        wanted = before
        if job is not None:
            wanted = decode_schema(job.goal if job.state is JobState.DONE else job.base, 0)
            allowed = {JobState.DONE} | ({JobState.FAILED} if self._naughty else set())
            if self._striker.cancelled:
                allowed.add(JobState.CANCELLED)
            if job.state not in allowed:
                found.append(Violation("job", f"the change ended as {job.state}: {job.error}"))
        elif self._striker.struck.endswith("write 0") is False:
            found.append(Violation("job", "the change was begun and is not known any more"))
        if _shape(schema) != _shape(wanted):
            found.append(Violation("schema", f"the schema is {_shape(schema)}, not {_shape(wanted)}"))
        return found + await self._judge_rows(db, done=job is not None and job.state is JobState.DONE)

    async def _judge_rows(self, db: Database, *, done: bool) -> list[Violation]:
        rows = {row[self._layout.keys[-1]]: row for row in await db.conn.read("R")}
        expected = {number: values for writer in self._writers for number, values in writer.rows.items()}
        renamed = done and "Y" in self._case.everywhere
        found: list[Violation] = []
        for number in sorted(set(expected) | {n for n in rows if n < STATIC}):
            there = rows.get(number)
            wanted = expected.get(number)
            if there is not None and wanted is not None:
                have = {n: plain(there["Y" if n == "Z" and renamed else n]) for n in wanted}
                if have != wanted:
                    found.append(Violation("rows", f"row {number} is {have}, not {wanted}"))
            elif there is not wanted:
                found.append(Violation("rows", f"row {number} is {there}, not {wanted}"))
        for number, row in rows.items():
            if SHARED <= number < COUNTER:
                continue
            wrong = {n: row[n] for n, value in self._case.everywhere.items() if done and row[n] != value}
            if wrong:
                found.append(Violation("rows", f"row {number} has {wrong}"))
        added = sum(writer.added for writer in self._writers)
        perhaps = sum(writer.perhaps for writer in self._writers)
        if not added <= rows[COUNTER]["N"] <= added + perhaps:
            found.append(Violation("counter", f"{rows[COUNTER]['N']} increments, {added} acknowledged"))
        if rows[STATIC]["N"] != 1:
            found.append(Violation("rows", "the open transaction is lost"))
        return found


def _deafen(db: Database, deaf: int) -> None:
    """Nobody tells this server of a new version: it finds out when it renews its lease."""
    address = db.nodes.host(db.nodes.names[deaf])
    for number in range(len(db.nodes.names)):
        changes = db.process(number)._changes
        original = changes._nudge

        async def nudge(to: str, database: str, version: int, original: Any = original) -> object:
            if to == address:
                raise F1Error(Code.UNAVAILABLE, "the message was lost")
            return await original(to, database, version)

        changes._nudge = nudge


def _shape(schema: Schema) -> tuple[Any, ...]:
    """Return what a schema is, whatever its version is called and since when its indexes are filled."""
    tables = tuple(
        replace(table, readable_from=0, indexes=tuple(replace(index, readable_from=0) for index in table.indexes))
        for table in schema.tables
    )
    return (sorted(tables, key=lambda table: table.id), schema.views, schema.proto_files)
