"""Faults that users of other databases met while their schemas changed, one test for each, flat and interleaved.

Kills between all pairs of state writes, and orders in every state, are in ``test_faults.py``; delayed answers to lease
renewals, by any time and at random, in ``tests/sim/test_changes.py``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import f1
from f1common.errors import Code, F1Error
from f1server.catalog.store import SchemaStore
from f1server.rows.values import shown_all
from f1server.schemachange.jobs.jobs import JobState, JobStore
from f1server.testing.change_faults import between_writes
from f1server.testing.change_worlds import VersionsAtWork
from f1server.testing.changes import LAYOUTS, PROTO, Layout, small_batches
from f1server.testing.continuous import ContinuousCheck
from f1server.testing.database import Database, with_database
from spanstore.client import SpanClient
from tests.amounts import some

OTHER = "CREATE TABLE Other (K INT64 NOT NULL, V INT64, PRIMARY KEY (K))"
LEASE_MS = 2_000

both = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


class Stage:
    """A database with a dozen rows in R, V and U their numbers, and three servers, the last deaf to new versions."""

    def __init__(self, db: Database, layout: Layout) -> None:
        self.db = db
        self.layout = layout
        self.jobs = JobStore(db.storage, db.env.clock)
        self.checker = ContinuousCheck(
            db.storage, db.env.clock, db.env.rng, lambda schema: db.process(1)._sql.evaluators().checks(schema)
        )

    def row(self, number: int, **values: object) -> dict[str, object]:
        return self.layout.key(number) | values

    def key(self, number: int) -> tuple[int, ...]:
        return tuple(self.layout.key(number).values())

    async def fill(self, rows: int = 12) -> None:
        if len(self.layout.keys) > 1:
            await self.db.conn.insert("Root", [{"A": a} for a in range(2)])
            await self.db.conn.insert("Mid", [{"A": a, "B": 1} for a in range(2)])
        await self.db.conn.insert("R", [self.row(n, V=n, U=n, N=0) for n in range(rows)])

    async def check(self) -> None:
        """Nothing is wrong at the edges of any version, nor now, and no change is left."""
        assert not await self.checker.versions()
        assert await self.jobs.running("default") is None

    async def last(self) -> Any:
        return (await self.jobs.log("default"))[-1]


def play(layout: Layout, body: Callable[[Stage], Awaitable[None]], *, rows: int = 12, **world: Any) -> None:
    async def main(db: Database) -> None:
        await db.conn.apply_schema({"s.sql": ";\n".join([*layout.tables, OTHER]), "t.proto": PROTO})
        stage = Stage(db, layout)
        await stage.fill(rows)
        deafen(db, 2)
        await body(stage)

    with small_batches():
        with_database(main, f1servers=3, lease_ms=LEASE_MS, **world)


def deafen(db: Database, deaf: int) -> None:
    """Nobody tells a server of new versions."""
    address = db.nodes.host(db.nodes.names[deaf])
    for number in range(len(db.nodes.names)):
        changes = db.process(number)._changes

        async def nudge(to: str, database: str, version: int, tell: Any = changes._nudge) -> object:
            if to == address:
                raise F1Error(Code.UNAVAILABLE, "the message was lost")
            return await tell(to, database, version)

        changes._nudge = nudge


@both
def test_clocks_at_both_ends_of_their_bound(layout: Layout) -> None:
    """What is read for the index is read after the last write under the schema without it, whatever clocks say."""
    snapshots: list[int] = []
    original = SpanClient.scan

    def scan(self: SpanClient, *args: Any, timestamp: int = 0, **kwargs: Any) -> Any:
        if kwargs.get("table") is not None:
            snapshots.append(timestamp)
        return original(self, *args, timestamp=timestamp, **kwargs)

    async def body(stage: Stage) -> None:
        db = stage.db
        for name, error_us in zip(db.nodes.names, (-BOUND_US, 0, BOUND_US), strict=True):
            db.world.nodes[name].clock.error_us = error_us
        slow, fast = await db.at(0), await db.at(2)
        await fast.update("R", stage.row(0, V=100))
        ended = asyncio.Event()
        writing = db.env.spawn(keep_writing(stage, fast, ended))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SpanClient, "scan", scan)
            await slow.execute("CREATE INDEX X ON R (V)")
        ended.set()
        await writing
        public, write_only, delete_only = (await stage.checker.edges())[-1:-4:-1]
        version = (await stage.checker._store.schemas_at(write_only))["default"].version
        older = [ts for ts, under in noted.commits if under < version and ts > delete_only]
        assert snapshots and older, "servers that do not know of the index write"
        assert max(older) < min(snapshots) < public
        await stage.check()

    noted = VersionsAtWork()
    with noted.installed():
        play(layout, body, clock_bound_us=BOUND_US)


BOUND_US = 100_000


async def keep_writing(stage: Stage, conn: f1.aio.Connection, ended: asyncio.Event, first: int = 0) -> None:
    number = 0
    while not ended.is_set():
        number += 1
        await conn.update("R", stage.row(first + number % 3, V=number))
        await asyncio.sleep(0.02)


@both
def test_rows_that_go_and_change_while_the_reorganiser_stands_still(layout: Layout) -> None:
    """Between its read of rows and the write of entries: deleted, changed, there again, and versions collected."""

    async def body(stage: Stage) -> None:
        db = stage.db
        other = await db.at(1)
        stopped: list[int] = []

        async def before(server: str, number: int) -> None:
            if number != 4 or stopped:
                return
            stopped.append(number)
            for gone in range(0, 12, 4):
                await other.delete("R", stage.key(gone))
                await other.update("R", stage.row(gone + 1, V=50 + gone))
                await other.delete("R", stage.key(gone + 2))
                await other.insert("R", stage.row(gone + 2, V=70 + gone, U=gone + 2))
            await asyncio.sleep(5)  # longer than versions are kept

        with between_writes(db, before):
            await (await db.at(0)).execute("CREATE INDEX X ON R (V)")
        assert stopped
        assert (await stage.last()).state is JobState.DONE
        assert not await stage.checker.at(db.storage.strong_timestamp())
        assert len(await db.rows("SELECT V FROM R WHERE V >= 50")) == 6

    play(layout, body, version_keep_ms=2_000)


@both
def test_an_answer_to_a_renewal_that_comes_a_whole_period_late(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has a lease from when it was written, not from when it hears of it: no three versions are at work."""
    noted = VersionsAtWork()
    original = SchemaStore.write_lease

    async def body(stage: Stage) -> None:
        db = stage.db
        late_store = db.process(2).leases._store

        async def write_lease(store: SchemaStore, *args: Any, **kwargs: Any) -> Any:
            ts = await original(store, *args, **kwargs)
            if store is late_store:
                await asyncio.sleep(LEASE_MS / 1_000)
            return ts

        conn = await db.at(2)
        await conn.update("R", stage.row(0, V=1))
        monkeypatch.setattr(SchemaStore, "write_lease", write_lease)
        ended = asyncio.Event()

        async def write() -> None:
            while not ended.is_set():
                try:
                    await conn.update("R", stage.row(0, V=1))
                except F1Error as error:
                    assert error.code in (Code.UNAVAILABLE, Code.ABORTED, Code.DEADLINE_EXCEEDED), error
                await asyncio.sleep(0.05)

        writing = db.env.spawn(write())
        first = await db.at(0)
        for statement in ("CREATE INDEX X ON R (V)", "ALTER TABLE R ADD COLUMN W INT64 NOT NULL DEFAULT 7"):
            await first.execute(statement)
        ended.set()
        await writing
        await stage.check()
        edges = await stage.checker.edges()
        versions = [(ts, (await stage.checker._store.schemas_at(ts))["default"].version) for ts in edges]
        assert not noted.check(versions)
        assert noted.commits

    with noted.installed():
        play(layout, body)


@both
def test_a_key_that_moves_to_another_row_does_not_fail_a_unique_index(layout: Layout) -> None:
    """A running transaction deletes the row and inserts the key anew under another, while the build stands still."""

    async def body(stage: Stage) -> None:
        db = stage.db
        other = await db.at(1, autocommit=False)
        moved: list[int] = []

        async def before(server: str, number: int) -> None:
            if 3 <= number < 9:
                async with other.transaction("optimistic") as tx:
                    await tx.delete("R", stage.key(number))
                    await tx.insert("R", stage.row(100 + number, U=number, V=0))
                moved.append(number)

        with between_writes(db, before):
            await (await db.at(0)).execute("CREATE UNIQUE INDEX X ON R (U)")
        assert len(moved) == 6
        with pytest.raises(F1Error) as caught:
            await db.conn.insert("R", stage.row(200, U=moved[0]))
        assert caught.value.code is Code.ALREADY_EXISTS
        await stage.check()

    play(layout, body)


@both
def test_two_rows_with_one_key_fail_a_unique_index_and_leave_no_trace(layout: Layout) -> None:
    async def body(stage: Stage) -> None:
        db = stage.db
        await db.conn.update("R", stage.row(9, U=2))
        with pytest.raises(F1Error) as caught:
            await db.conn.execute("CREATE UNIQUE INDEX X ON R (U)")
        assert caught.value.code is Code.ALREADY_EXISTS
        assert all(shown_all(stage.key(number)) in caught.value.message for number in (2, 9)), caught.value
        for server in range(3):
            await (await db.at(server)).insert("R", stage.row(300 + server, U=2))
        await stage.check()

    play(layout, body)


@both
def test_a_server_that_hangs_delays_a_change_by_one_lease(layout: Layout) -> None:
    """It stands still before a commit is sent. The job says whom it waits for; the late write is refused and redone."""
    noted = VersionsAtWork()

    async def body(stage: Stage) -> None:
        db = stage.db
        name = db.nodes.names[2]
        hung = await db.at(2)
        await hung.update("R", stage.row(0, V=1))
        calm_us = -db.world.now_us()
        await (await db.at(0)).execute("CREATE INDEX Calm ON R (V)")
        calm_us += db.world.now_us()
        committer = db.frontend(2)._committer
        carry_out = committer.carry_out

        async def stop(tx: Any, *args: Any, **kwargs: Any) -> Any:
            committer.carry_out = carry_out  # type: ignore[method-assign]
            commit = tx.commit

            async def late(**limits: Any) -> Any:
                db.env.spawn(hang())
                await asyncio.sleep(0.001)
                return await commit(**limits)

            tx.commit = late
            return await carry_out(tx, *args, **kwargs)

        async def hang() -> None:
            db.world.pause(name, 3 * LEASE_MS * 500)

        committer.carry_out = stop  # type: ignore[method-assign]
        late = db.env.spawn(hung.update("R", stage.row(0, V=500)))
        await asyncio.sleep(0.05)
        assert db.world.nodes[name].paused
        began_us = db.world.now_us()
        change = db.env.spawn((await db.at(0)).execute("CREATE INDEX X ON R (V)"))
        said = set()
        while not change.done():
            running = await stage.jobs.running("default")
            said.add(running.job.step if running is not None else "")
            await asyncio.sleep(0.1)
        await change
        assert any(name in step for step in said), said
        assert db.world.now_us() - began_us < calm_us + LEASE_MS * 1_000
        await late
        # Its client may have given the stream up before; in any case what was sent under the old version is not there.
        assert noted.fenced or noted.cut_off
        assert await db.rows("SELECT V FROM R WHERE V = 500") == [(500,)]
        await stage.check()

    with noted.installed():
        play(layout, body)


@both
def test_a_failed_validation_of_a_large_table_is_rolled_back_in_chunks(layout: Layout) -> None:
    """What was entered goes in many small commits, visibly, and whoever takes over goes on."""

    async def body(stage: Stage) -> None:
        db = stage.db
        await db.conn.update("R", stage.row(59, U=1))
        seen: list[tuple[JobState, str]] = []
        crashed: list[str] = []

        async def before(server: str, number: int) -> None:
            running = await stage.jobs.running("default")
            if running is None:
                return
            seen.append((running.job.state, running.job.step))
            removing = [step for state, step in seen if state is JobState.UNDOING]
            if len(removing) == 8 and not crashed:
                crashed.append(server)
                db.env.spawn(crash(server))
                await asyncio.sleep(1)

        async def crash(server: str) -> None:
            db.world.crash(server)
            await asyncio.sleep(2)
            db.world.restart(server)

        with between_writes(db, before):
            first = await db.at(0)
            await asyncio.gather(first.execute("CREATE UNIQUE INDEX X ON R (U)"), return_exceptions=True)
            while await stage.jobs.running("default") is not None:
                await asyncio.sleep(0.1)
        job = await stage.last()
        assert (job.state, job.error_code) == (JobState.FAILED, Code.ALREADY_EXISTS.value)
        assert crashed
        assert sum(state is JobState.UNDOING for state, _ in seen) > 15, "it goes back in many commits"
        assert any("removes: index X" in step for _, step in seen)
        await stage.check()

    play(layout, body, rows=60)


@both
@pytest.mark.parametrize("rounds", some([1], [3]))
def test_changes_of_one_table_do_not_disturb_users_of_others(layout: Layout, rounds: int) -> None:
    """R changes all the time. No request for Other fails; those for R fail only for what is gone."""

    async def body(stage: Stage) -> None:
        db = stage.db
        ended = asyncio.Event()
        asked = 0

        async def use(server: int) -> None:
            nonlocal asked
            conn = await db.at(server)
            while not ended.is_set():
                asked += 1
                await conn.upsert("Other", {"K": server * 10 + asked % 7, "V": asked})
                await (await conn.execute("SELECT count(*) FROM Other WHERE V > 3")).fetchall()
                await asyncio.sleep(0.2)

        async def use_changed(server: int) -> None:
            conn = await db.at(server)
            while not ended.is_set():
                try:
                    await conn.update("R", stage.row(1, V=1, W=2))
                except F1Error as error:
                    assert error.code is Code.NOT_FOUND and "W" in error.message, error
                await asyncio.sleep(0.1)

        using = [db.env.spawn(use(server)) for server in (0, 1, 2)] + [db.env.spawn(use_changed(1))]
        admin = await db.at(0)
        for _ in range(rounds):
            for statement in (
                "ADD COLUMN W INT64 NOT NULL DEFAULT 7",
                "ADD LOCK L (N)",
                "DROP CONSTRAINT L",
                "DROP COLUMN W",
            ):
                await admin.execute(f"ALTER TABLE R {statement}")
                await asyncio.sleep(0.2)
        ended.set()
        await asyncio.gather(*using)
        assert asked > 50
        await stage.check()

    play(layout, body)


@both
def test_a_hundred_changes_cost_the_waits_and_the_walks_of_the_longest(layout: Layout) -> None:
    async def body(stage: Stage) -> None:
        db = stage.db
        scans: list[tuple[bytes, bytes]] = []
        original = SpanClient.scan

        def scan(self: SpanClient, ranges: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("table") is not None:
                scans.extend((span.start, span.end) for span in ranges)
            return original(self, ranges, *args, **kwargs)

        async def cost(files: dict[str, str]) -> int:
            scans.clear()
            before = len(await stage.checker.edges())
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(SpanClient, "scan", scan)
                await db.conn.apply_schema(files)
            # The lots of the two walks may differ: how many rows take a second is found out on the way.
            borders = sorted({border for span in scans for border in span})
            depths = {sum(start <= border < end for start, end in scans) for border in borders[:-1]}
            assert depths == {2}, "each part of the table is walked over once, and verified once"
            return len(await stage.checker.edges()) - before

        def files(count: int) -> dict[str, str]:
            more = []
            for n in range(count // 4):
                more.append(f"CREATE INDEX X{n} ON R (V, U, N{', S' * (n % 2)})")
                more.append(f"CREATE INDEX Y{n} ON R (U) STORING (N)")
            columns = "".join(f" C{n} INT64 NOT NULL DEFAULT {n}, D{n} INT64," for n in range(count // 4))
            ddl = ";\n".join([*layout.tables, OTHER, *more]).replace(" V INT64,", f" V INT64,{columns}", 1)
            return {"s.sql": ddl, "t.proto": PROTO}

        one = await cost(files(4))
        hundred = await cost(files(104))
        assert hundred == one
        assert one == 3
        schema = (await stage.checker._store.load("default")).schema
        assert len(schema.table("R").indexes) == 52
        assert not await stage.checker.at(db.storage.strong_timestamp())

    play(layout, body)
