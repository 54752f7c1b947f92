"""Walks over tables in partitions: at slaves that die, by owners that die, after pauses; nothing is done in vain."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from f1.checking import check_database
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1common.rpc.versions import check_version
from f1server.process import F1Process
from f1server.schemachange.work import walkstore
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.walking import Walk, WalkKind
from f1server.testing.database import Database, with_database
from slavepool.walks import InPlaceWalks
from spanstore.client import SpanClient

BASE = "CREATE TABLE R (A INT64 NOT NULL, V INT64, W INT64, PRIMARY KEY (A))"
PLAIN = "CREATE INDEX RV ON R (V) STORING (W)"
ROWS = 300
EACH = 20


async def check(db: Database) -> None:
    result = await check_database(db.conn.session, [], repair=False, examples=5)
    assert not result.findings, result.findings


class Walks:
    """What is walked over, wherever that is: what for, and the first keys of the partitions, begun and ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[WalkKind, bytes]] = []
        self.ended: list[tuple[WalkKind, bytes]] = []
        self.snapshots: set[int] = set()
        self.pause_s = 0.0
        walk = Walker.walk

        async def noted(walker: Walker, what: Walk, tell: Any, ended: Any) -> Any:
            self.begun.append((what.kind, what.start))
            if what.kind is WalkKind.CHANGE:
                self.snapshots.add(what.snapshot)
            await asyncio.sleep(self.pause_s)
            sums = await walk(walker, what, tell, ended)
            self.ended.append((what.kind, what.start))
            return sums

        monkeypatch.setattr(Walker, "walk", noted)


def small_partitions(monkeypatch: pytest.MonkeyPatch, rate: float = 50_000) -> None:
    """Let tables be divided though they are small, and the work be slow if that is wanted."""
    init = Reorganiser.__init__

    def divided(self: Reorganiser, *args: Any, options: ThrottleOptions, **more: Any) -> None:
        init(self, *args, options=ThrottleOptions(0.05, rate, rate), **more)
        self._walks.rows_each = EACH

    monkeypatch.setattr(Reorganiser, "__init__", divided)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def filled(db: Database) -> None:
    for first in range(0, ROWS, 100):
        await db.conn.insert("R", [{"A": a, "V": a, "W": a} for a in range(first, first + 100)])


@asynccontextmanager
async def changing(db: Database) -> Any:
    """Change rows all the time."""
    count = 0

    async def work() -> None:
        nonlocal count
        while True:
            a = (count * 37) % ROWS
            await db.conn.execute("UPDATE R SET V = ? WHERE A = ?", (10_000 + count, a))
            await db.conn.execute("DELETE FROM R WHERE A = ?", ((a + 11) % ROWS,))
            await db.conn.execute("INSERT INTO R VALUES (?, ?, 0)", (ROWS + count, -count))
            count += 1
            await asyncio.sleep(0.1)

    task = db.env.spawn(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def jobs(db: Database, order: int = pb.SchemaJobs.LIST, number: int = 0) -> list[pb.SchemaJob]:
    return list((await db.conn.session.schema_jobs(pb.SchemaJobs(order=order, number=number))).jobs)  # type: ignore[arg-type]


async def with_slaves(db: Database) -> None:
    names = set(db.nodes.slave_names)
    await until(lambda: all({s.name for s in db.process(i).pool.live()} == names for i in range(2)))


@pytest.mark.parametrize("killed", [False, True])
def test_slaves_do_the_work_and_one_that_dies_loses_nothing(monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    small_partitions(monkeypatch, rate=600)
    walks = Walks(monkeypatch)
    served: list[Any] = []
    serve = InPlaceWalks.serve

    async def noted(self: InPlaceWalks, context: Any) -> None:
        served.append(self)
        await serve(self, context)

    monkeypatch.setattr(InPlaceWalks, "serve", noted)

    async def body(db: Database) -> None:
        await filled(db)
        await with_slaves(db)
        async with changing(db):
            building = db.env.spawn(db.conn.execute(PLAIN))
            await until(lambda: len(walks.begun) > 4)
            if killed:
                db.world.crash("slave-a")
            await building
        assert len(served) > 8 and len(set(map(id, served))) == 2
        if not killed:
            assert sorted(walks.begun) == sorted(set(walks.begun))  # nobody does it twice
        (ended,) = [job for job in await jobs(db) if "RV" in job.what]
        assert ended.state == "done"
        assert not await db.storage.pins.list()
        await check(db)

    with_database(body, BASE, slaves=2)


def test_slaves_copy_the_rows_of_a_table_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, rate=2_000)
    walks = Walks(monkeypatch)
    served: list[Any] = []
    serve = InPlaceWalks.serve

    async def noted(self: InPlaceWalks, context: Any) -> None:
        served.append(self)
        await serve(self, context)

    monkeypatch.setattr(InPlaceWalks, "serve", noted)

    async def body(db: Database) -> None:
        await filled(db)
        await with_slaves(db)
        async with changing(db):
            moving = db.env.spawn(db.conn.execute("ALTER TABLE R SET PRIMARY KEY (W, A)"))
            await until(lambda: len(walks.begun) > 4)
            db.world.crash("slave-a")
            await moving
        assert len(served) > 8
        assert len(set(map(id, served))) == 2
        key = (await db.process().leases.current("default")).schema.table("R").key_columns
        assert [column.name for column in key] == ["W", "A"]
        assert not await db.storage.pins.list()
        await check(db)

    with_database(body, BASE, slaves=2)


def test_a_slave_commits_up_to_its_fence_and_not_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner dies and nobody extends the fence: what the slave still does is refused, by itself or by storage."""
    small_partitions(monkeypatch, rate=5)
    walks = Walks(monkeypatch)
    refused: list[F1Error] = []
    walk = Walker.walk

    async def noted(walker: Walker, what: Walk, tell: Any, ended: Any) -> Any:
        try:
            return await walk(walker, what, tell, ended)
        except F1Error as error:
            refused.append(error)
            raise

    monkeypatch.setattr(Walker, "walk", noted)
    # The stream of a dead owner is not noticed: only the fence is left.
    monkeypatch.setattr("slavepool.walks._Session.read", lambda self: asyncio.sleep(1_000))

    async def body(db: Database) -> None:
        await filled(db)
        await with_slaves(db)
        db.env.spawn(db.conn.execute(PLAIN))
        await until(lambda: len(walks.begun) > 1)
        await until(lambda: len(refused) > 0)
        assert {error.code for error in refused} <= {Code.ABORTED, Code.FENCED}

    with_database(body, BASE, slaves=1)


def test_the_next_owner_does_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, rate=200)
    walks = Walks(monkeypatch)

    async def body(db: Database) -> None:
        await filled(db)
        first = await db.at(0)
        async with changing(db):
            building = db.env.spawn(first.execute(PLAIN))
            await until(lambda: len(walks.ended) >= 6)
            done = set(walks.ended[:4])  # what has just ended may not be noted yet
            db.world.crash("f1-a")
            await asyncio.gather(building, return_exceptions=True)  # its end is not known
            while (await jobs(db))[-1].state != "done":
                await asyncio.sleep(0.1)
        again = [start for start in walks.begun if walks.begun.count(start) > 1]
        assert not done & set(again), (walks.begun, walks.ended)
        assert len(walks.snapshots) == 1
        await check(db)

    with_database(body, BASE)


def test_without_notes_the_next_owner_would_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walkstore.WalkState, "with_done", lambda self, *_: self)
    with pytest.raises(AssertionError, match=r"assert not"):
        test_the_next_owner_does_what_is_left(monkeypatch)


@pytest.mark.parametrize("kept", [True, False])
def test_after_a_pause_it_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """If the snapshot can no longer be read, what is left is done at a newer one."""
    small_partitions(monkeypatch, rate=80)  # an order is seen after a second and a half at most
    walks = Walks(monkeypatch)

    async def body(db: Database) -> None:
        await filled(db)
        async with changing(db):
            building = db.env.spawn(db.conn.execute(PLAIN))
            await until(lambda: len(walks.ended) >= 4)
            number = (await jobs(db))[-1].number
            await jobs(db, pb.SchemaJobs.PAUSE, number)
            while (paused := (await jobs(db))[-1]).state != "paused":
                await asyncio.sleep(0.05)
            assert 0 < paused.rows < ROWS and paused.rows_total >= ROWS // 2 and paused.bytes > 0
            done, begun = set(walks.ended), len(walks.begun)
            if not kept:
                (pin,) = await db.storage.pins.list()
                await db.storage.pins.remove(pin.name)
                await asyncio.sleep(5.0)
            await jobs(db, pb.SchemaJobs.RESUME, number)
            await building
        assert not done & set(walks.begun[begun:])
        assert len(walks.snapshots) == (1 if kept else 2)
        assert not await db.storage.pins.list()
        await check(db)

    with_database(body, BASE, version_keep_ms=0 if kept else 1_000)


def test_what_a_process_has_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that fails leaves no pin, and nothing that says how far it was."""
    small_partitions(monkeypatch)

    async def body(db: Database) -> None:
        await filled(db)
        await db.conn.execute("UPDATE R SET V = 5 WHERE A = 250")
        with pytest.raises(F1Error, match="cannot be unique"):
            await db.conn.execute("CREATE UNIQUE INDEX RV ON R (V)")
        assert not await db.storage.pins.list()
        process: F1Process = db.process(0)
        assert await walkstore.WalkStore(process.client).clear("default") == []
        await check(db)

    with_database(body, BASE)


def test_the_next_owner_verifies_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is filled a second time, and what has been verified is not read again: rows, and entries too."""
    small_partitions(monkeypatch, rate=200)
    walks = Walks(monkeypatch)
    kinds = (WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES)

    async def body(db: Database) -> None:
        await filled(db)
        first = await db.at(0)
        async with changing(db):
            building = db.env.spawn(first.execute(PLAIN))
            await until(lambda: sum(kind is kinds[0] for kind, _ in walks.ended) >= 6)
            noted = set([walk for walk in walks.ended if walk[0] is kinds[0]][:4])
            begun = len(walks.begun)
            db.world.crash("f1-a")
            await asyncio.gather(building, return_exceptions=True)
            while (await jobs(db))[-1].state != "done":
                await asyncio.sleep(0.1)
        assert {kind for kind, _ in walks.begun[begun:]} == set(kinds)
        assert not noted & set(walks.begun[begun:])
        assert sum(kind is kinds[1] for kind, _ in walks.begun) > 4
        await check(db)

    with_database(body, BASE)


def test_sums_are_of_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the rows' snapshot is lost in the middle, they are added up again from the beginning, and all agrees."""
    small_partitions(monkeypatch, rate=40)
    walks = Walks(monkeypatch)
    rows, entries = WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES

    async def body(db: Database) -> None:
        await filled(db)
        async with changing(db):
            building = db.env.spawn(db.conn.execute(PLAIN))
            await until(lambda: sum(kind is rows for kind, _ in walks.ended) >= 4)
            number = (await jobs(db))[-1].number
            await jobs(db, pb.SchemaJobs.PAUSE, number)
            while (await jobs(db))[-1].state != "paused":
                await asyncio.sleep(0.05)
            begun = len(walks.begun)
            for pin in await db.storage.pins.list():
                await db.storage.pins.remove(pin.name)
            await asyncio.sleep(5.0)
            await jobs(db, pb.SchemaJobs.RESUME, number)
            await building
        later = walks.begun[begun:]
        assert {start for kind, start in walks.ended if kind is rows} == {
            start for kind, start in later if kind is rows
        }
        assert {kind for kind, _ in later} == {rows, entries}
        await check(db)

    with_database(body, BASE, version_keep_ms=1_000)


FAMILY = (
    "CREATE TABLE P (A INT64, PRIMARY KEY (A))",
    "CREATE TABLE C (A INT64, B INT64, V INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT P",
    "CREATE LOCAL INDEX CV ON C (A, V)",
    "CREATE INDEX CW ON C (V)",
)


async def family(db: Database) -> None:
    await db.conn.insert("P", [{"A": a} for a in range(60)])
    await db.conn.insert("C", [{"A": a, "B": b, "V": a * b} for a in range(60) for b in range(3)])


@pytest.mark.parametrize("slaves", [pytest.param(0, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("what", ["DROP TABLE P CASCADE", "DROP INDEX CV", "ALTER TABLE C DROP COLUMN V CASCADE"])
def test_what_is_dropped_is_removed_part_by_part_and_nothing_is_ever_an_orphan(
    monkeypatch: pytest.MonkeyPatch, what: str, slaves: int
) -> None:
    small_partitions(monkeypatch, rate=600)
    monkeypatch.setattr("f1server.schemachange.work.purging._CHUNK", 5)
    monkeypatch.setattr("f1server.schemachange.work.purging._HELD", 12)
    walks = Walks(monkeypatch)

    async def body(db: Database) -> None:
        await family(db)
        if slaves:
            await with_slaves(db)
        dropping = db.env.spawn(db.conn.execute(what))
        while not dropping.done():
            result = await check_database(db.conn.session, [], repair=False, examples=5)
            assert not result.findings, result.findings
            await asyncio.sleep(0.02)
        await dropping
        assert sum(kind is WalkKind.PURGE for kind, _ in walks.begun) > 4
        assert sorted(set(walks.begun)) == sorted(walks.begun)
        await check(db)
        assert not await db.storage.pins.list()

    with_database(body, *FAMILY, slaves=slaves)


def test_the_next_owner_removes_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, rate=40)
    walks = Walks(monkeypatch)

    async def body(db: Database) -> None:
        await family(db)
        first = await db.at(0)
        dropping = db.env.spawn(first.execute("DROP INDEX CW"))
        while not (job := (await jobs(db))[-1]).rows:
            await asyncio.sleep(0.05)
        assert job.rows <= job.rows_total and "removes" in job.step
        await until(lambda: len(walks.ended) >= 4)
        noted, begun = set(walks.ended[:2]), len(walks.begun)
        assert {kind for kind, _ in noted} == {WalkKind.PURGE}
        db.world.crash("f1-a")
        await asyncio.gather(dropping, return_exceptions=True)
        while (await jobs(db))[-1].state != "done":
            await asyncio.sleep(0.1)
        assert walks.begun[begun:] and not noted & set(walks.begun[begun:])
        await check(db)

    with_database(body, *FAMILY)


def test_slaves_of_an_older_version_leave_to_this_server_what_they_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch)
    walks = Walks(monkeypatch)
    monkeypatch.setattr("slavepool.walks.check_version", lambda peer, theirs, *_, **__: check_version(peer, theirs, 1))

    async def body(db: Database) -> None:
        await filled(db)
        await with_slaves(db)
        await db.conn.execute(PLAIN)
        await db.conn.execute("DROP INDEX RV")
        assert {kind for kind, _ in walks.ended} == set(WalkKind) - {WalkKind.VERIFY_ROWS, WalkKind.VERIFY_ENTRIES}
        await check(db)

    with_database(body, BASE, slaves=2)


def test_a_change_far_above_the_size_of_a_commit_is_taken_back_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 40 MB of entries are written before two rows with equal values are found; one commit takes 32 MiB."""
    walks = Walks(monkeypatch)
    largest = 0
    commit = SpanClient.commit

    async def measured(self: SpanClient, writes: Any, *args: Any, **more: Any) -> int:
        nonlocal largest
        largest = max(largest, sum(len(write.key) + len(write.value or b"") for write in writes))
        return await commit(self, writes, *args, **more)

    async def body(db: Database) -> None:
        large = "x" * 400_000
        for a in range(100):
            await db.conn.insert("R", {"A": a, "V": max(a, 1), "T": large})
        await db.conn.execute("DELETE FROM R WHERE A = 0")
        await db.conn.insert("R", {"A": 1_000, "V": 99, "T": ""})
        monkeypatch.setattr("f1server.schemachange.work.purging._CHUNK", 20)
        monkeypatch.setattr(SpanClient, "commit", measured)
        building = db.env.spawn(db.conn.execute("CREATE UNIQUE INDEX RV ON R (V) STORING (T)"))
        seen: list[pb.SchemaJob] = []
        while not building.done():
            if (job := (await jobs(db))[-1]).state == "undoing":
                seen.append(job)
            await asyncio.sleep(0.005)
        with pytest.raises(F1Error, match="cannot be unique"):
            await building
        assert {kind for kind, _ in walks.begun} == {WalkKind.CHANGE, WalkKind.PURGE}
        assert any("removes" in job.step and job.error for job in seen)
        await check(db)

    with_database(body, "CREATE TABLE R (A INT64 NOT NULL, V INT64, T STRING, PRIMARY KEY (A))")
    assert largest < 2 << 20
