"""Partitions of a walk in lots: whoever goes on after a pause, or after a death, begins where the last lot ended."""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import f1
from f1common.pb import f1_pb2 as pb
from f1server.schemachange.work import walkstore
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.schemachange.work.verification import KEYS_FOR_ONE
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.walking import Rest, Walk, WalkKind
from f1server.testing.database import Database, with_database
from spanstore.client import NoNewer, SpanClient
from tests.embedded.f1server.test_divided_walks import (
    BASE,
    PLAIN,
    ROWS,
    changing,
    check,
    filled,
    jobs,
    until,
    with_slaves,
)

SEGMENT = 20
RATE = 40


class Lots:
    """What was walked over: the parts, and what was told to be left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[Walk] = []
        self.rests: list[tuple[WalkKind, Rest]] = []
        self.entered: Counter[bytes] = Counter()
        walk, commit = Walker.walk, SpanClient.commit

        async def noted(walker: Walker, what: Walk, tell: Any, ended: Any) -> Any:
            def told(rest: Rest) -> None:
                self.rests.append((what.kind, rest))
                ended(rest)

            self.begun.append(what)
            return await walk(walker, what, tell, told)

        async def counted(client: SpanClient, writes: Any, expected: Any = (), **more: Any) -> int:
            ts = await commit(client, writes, expected, **more)
            if any(isinstance(condition, NoNewer) for condition in expected):
                self.entered.update(write.key for write in writes)
            return ts

        monkeypatch.setattr(Walker, "walk", noted)
        monkeypatch.setattr(SpanClient, "commit", counted)
        for module in ("walking", "tablewalk"):
            monkeypatch.setattr(f"f1server.schemachange.work.{module}.SEGMENT_ROWS", SEGMENT)
        monkeypatch.setattr("f1server.schemachange.work.tablewalk._AT_ONCE", SEGMENT)
        monkeypatch.setattr("f1server.schemachange.work.dealing._NOTE_S", 0.5)
        monkeypatch.setattr("f1server.schemachange.work.pacing._LEAST_ROWS", SEGMENT // 2)

    def of(self, kind: WalkKind) -> list[Rest]:
        return [rest for what, rest in self.rests if what is kind]


def slow(monkeypatch: pytest.MonkeyPatch, rows_each: int, rate: float = RATE) -> None:
    init = Reorganiser.__init__

    def divided(self: Reorganiser, *args: Any, options: ThrottleOptions, **more: Any) -> None:
        init(self, *args, options=ThrottleOptions(0.05, rate, rate), **more)
        self._walks.rows_each = rows_each

    monkeypatch.setattr(Reorganiser, "__init__", divided)


async def paused(db: Database) -> int:
    number = (await jobs(db))[-1].number
    await jobs(db, pb.SchemaJobs.PAUSE, number)
    while (await jobs(db))[-1].state != "paused":
        await asyncio.sleep(0.05)
    return number


@pytest.mark.parametrize("kind", [WalkKind.CHANGE, WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES])
def test_after_a_pause_it_goes_on_behind_the_last_lot(monkeypatch: pytest.MonkeyPatch, kind: WalkKind) -> None:
    slow(monkeypatch, 10_000, RATE / KEYS_FOR_ONE.get(kind, 1))
    lots = Lots(monkeypatch)

    async def body(db: Database) -> None:
        await filled(db)
        building = db.env.spawn(db.conn.execute(PLAIN))
        await until(lambda: len(lots.of(kind)) >= 3)
        number = await paused(db)
        rest, begun = lots.of(kind)[-1], len(lots.begun)
        ends = [0, *(rest.rows for rest in lots.of(kind))]
        assert all(SEGMENT <= later - earlier <= 4 * SEGMENT for earlier, later in pairwise(ends)), ends
        await asyncio.sleep(1.0)
        assert lots.of(kind)[-1] == rest
        await jobs(db, pb.SchemaJobs.RESUME, number)
        await building
        later = [walk for walk in lots.begun[begun:] if walk.kind is kind]
        assert [(walk.start, walk.end) for walk in later] == [(rest.start, rest.end)]
        # What was added up before the pause counts, or each entry would have been looked at.
        assert {walk.kind for walk in lots.begun} == {WalkKind.CHANGE, WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES}
        assert len(lots.entered) == ROWS
        again = sum(times - 1 for times in lots.entered.values())
        assert again <= RATE + SEGMENT, lots.entered
        await check(db)

    with_database(body, BASE)


@pytest.mark.parametrize("twice", [True, False])
@pytest.mark.parametrize("verified", [True, False])
def test_what_is_twice_is_seen_also_by_a_later_snapshot(
    monkeypatch: pytest.MonkeyPatch, twice: bool, verified: bool
) -> None:
    """Whoever goes on after a pause that was longer than snapshots are kept finds entries that are none of users'."""
    slow(monkeypatch, 10_000)
    lots = Lots(monkeypatch)
    if not verified:
        monkeypatch.setattr(Reorganiser, "verify", _nothing)

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a, "W": a} for a in range(ROWS)])
        if twice:
            await db.conn.execute(f"UPDATE R SET V = 5 WHERE A = {ROWS - 10}")
        building = db.env.spawn(db.conn.execute("CREATE UNIQUE INDEX RV ON R (V) STORING (W)"))
        await until(lambda: len(lots.of(WalkKind.CHANGE)) >= 3)
        number = await paused(db)
        await db.conn.execute("UPDATE R SET W = -W WHERE A IN (2, 3)")
        await db.conn.execute("DELETE FROM R WHERE A = 4")
        await asyncio.sleep(900.0)
        await jobs(db, pb.SchemaJobs.RESUME, number)
        with suppress(f1.Error):  # the pause was longer than a client waits
            await building
        while not (job := (await jobs(db))[-1]).ended_ts:
            await asyncio.sleep(0.5)
        if twice:
            assert f"(A) = (5) and ({ROWS - 10}) have the same values" in job.error, job
        else:
            assert job.state == "done", job
        assert len({walk.snapshot for walk in lots.begun if walk.kind is WalkKind.CHANGE}) == 2
        await check(db)

    ddl = "CREATE TABLE R (A INT64 NOT NULL, V INT64, W INT64, PRIMARY KEY (A))"
    with_database(body, ddl, version_keep_ms=60_000)


def test_by_its_age_alone_nobody_knows_whose_an_entry_is(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = walkstore.WalkStore.change

    async def forgotten(*args: Any) -> Any:
        return msgspec.structs.replace(await edit(*args), earlier=False)

    monkeypatch.setattr(walkstore.WalkStore, "change", forgotten)
    with pytest.raises(AssertionError, match="have the same values"):
        test_what_is_twice_is_seen_also_by_a_later_snapshot(monkeypatch, True, True)


async def _nothing(*_: Any, **__: Any) -> None:
    return None


def test_without_notes_it_would_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walkstore.WalkState, "with_rests", lambda self, rests: self)
    with pytest.raises(AssertionError, match=r"assert \[\("):
        test_after_a_pause_it_goes_on_behind_the_last_lot(monkeypatch, WalkKind.CHANGE)


def test_without_the_sums_of_lots_each_entry_would_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    then = Rest.then
    monkeypatch.setattr(Rest, "then", lambda self, later: then(self, Rest(later.start, later.end, later.rows)))
    with pytest.raises(AssertionError, match="VERIFY_ROWS"):
        test_after_a_pause_it_goes_on_behind_the_last_lot(monkeypatch, WalkKind.SUM_ROWS)


def test_pauses_of_every_two_seconds_hold_nothing_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, 10_000, RATE / 2)
    lots = Lots(monkeypatch)

    async def body(db: Database) -> None:
        await filled(db)
        building = db.env.spawn(db.conn.execute(PLAIN))
        pauses = 0
        while not building.done():
            await asyncio.sleep(2.0)
            job = (await jobs(db))[-1]
            if job.state == "running" and job.rows:
                await jobs(db, pb.SchemaJobs.RESUME, await paused(db))
                pauses += 1
            assert pauses < 100
        await building
        assert pauses > 5
        assert {walk.kind for walk in lots.begun} == {WalkKind.CHANGE, WalkKind.SUM_ROWS, WalkKind.SUM_ENTRIES}
        await check(db)

    with_database(body, BASE)


@pytest.mark.parametrize("killed", ["f1-a", "slave-a"])
def test_whoever_takes_over_goes_on_behind_the_last_lot(monkeypatch: pytest.MonkeyPatch, killed: str) -> None:
    """Beside writers, in three partitions of five lots or so."""
    slow(monkeypatch, 100)
    lots = Lots(monkeypatch)
    slaves = 1 if killed == "slave-a" else 0

    async def body(db: Database) -> None:
        await filled(db)
        if slaves:
            await with_slaves(db)
        first = await db.at(0)
        async with changing(db):
            building = db.env.spawn(first.execute(PLAIN))
            await until(lambda: len(lots.of(WalkKind.CHANGE)) >= 4)
            await asyncio.sleep(1.0)
            begun = len(lots.begun)
            db.world.crash(killed)
            if slaves:
                db.world.restart(killed)
            await asyncio.gather(building, return_exceptions=True)
            while (await jobs(db))[-1].state != "done":
                await asyncio.sleep(0.1)
        starts = {walk.start for walk in lots.begun[:begun]}
        rests = {rest.start for _, rest in lots.rests}
        later = [walk for walk in lots.begun[begun:] if walk.kind is WalkKind.CHANGE]
        assert any(walk.start in rests - starts for walk in later), later
        await check(db)

    with_database(body, BASE, slaves=slaves)


@pytest.mark.parametrize("what", ["DROP INDEX CW", "DROP TABLE C CASCADE", "ALTER TABLE C DROP COLUMN V CASCADE"])
def test_removals_go_on_too(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    slow(monkeypatch, 10_000)
    monkeypatch.setattr("f1server.schemachange.work.purging._CHUNK", 5)
    lots = Lots(monkeypatch)

    async def body(db: Database) -> None:
        await db.conn.insert("P", [{"A": a} for a in range(60)])
        await db.conn.insert("C", [{"A": a, "B": b, "V": a * b} for a in range(60) for b in range(4)])
        dropping = db.env.spawn(db.conn.execute(what))
        await until(lambda: len(lots.rests) >= 2)
        number = await paused(db)
        (kind, rest), begun = lots.rests[-1], len(lots.begun)
        await check(db)
        await jobs(db, pb.SchemaJobs.RESUME, number)
        await dropping
        later = [(walk.start, walk.end) for walk in lots.begun[begun:] if walk.kind is kind]
        assert later[0] == (rest.start, rest.end)
        if kind is WalkKind.PURGE:
            ends = [walk.end for walk in lots.begun[:begun] if walk.kind is kind]
            assert rest.end < max(ends)  # from the last descendant on
        await check(db)

    with_database(
        body,
        "CREATE TABLE P (A INT64, PRIMARY KEY (A))",
        "CREATE TABLE C (A INT64, B INT64, V INT64, PRIMARY KEY (A, B)) INTERLEAVE IN PARENT P",
        "CREATE INDEX CW ON C (V)",
    )
