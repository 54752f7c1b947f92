"""Walks over tables in partitions: at slaves that die, by owners that die, after pauses; nothing is done in vain."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from f1.checking import check_database
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.process import F1Process
from f1server.schemachange import walkstore
from f1server.schemachange.reorganiser import Reorganiser
from f1server.schemachange.throttle import ThrottleOptions
from f1server.schemachange.walk import Walk, Walker
from f1server.testing.database import Database, with_database
from slavepool.walks import InPlaceWalks

BASE = "CREATE TABLE R (A INT64 NOT NULL, V INT64, W INT64, PRIMARY KEY (A))"
PLAIN = "CREATE INDEX RV ON R (V) STORING (W)"
ROWS = 300
EACH = 20


async def check(db: Database) -> None:
    result = await check_database(db.conn.session, [], repair=False, examples=5)
    assert not result.findings, result.findings


class Walks:
    """What is walked over, wherever that is: the first keys of the partitions, begun and ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[bytes] = []
        self.ended: list[bytes] = []
        self.snapshots: set[int] = set()
        self.pause_s = 0.0
        walk = Walker.walk

        async def noted(walker: Walker, what: Walk, tell: Any) -> None:
            self.begun.append(what.start)
            self.snapshots.add(what.snapshot)
            await asyncio.sleep(self.pause_s)
            await walk(walker, what, tell)
            self.ended.append(what.start)

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
            await asyncio.sleep(0.02)

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

    async def noted(walker: Walker, what: Walk, tell: Any) -> None:
        try:
            await walk(walker, what, tell)
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
    small_partitions(monkeypatch, rate=200)
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
