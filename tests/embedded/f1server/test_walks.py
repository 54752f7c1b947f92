"""What the reorganiser writes from the rows of a snapshot, while these rows change: the Thomas write rule.

Between the scan of some rows and the commit of their entries users change them in every way, and afterwards the whole
database is checked. The defects are ways in which an entry could be written for a row that has none any more.
"""

import asyncio
import copy
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import f1
from f1.checking import check_database
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.rows.entries import Entries
from f1server.rows.keys import row_key
from f1server.schemachange.work import walk, walking
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.schemachange.work.walk import Walker
from f1server.schemachange.work.walking import Walk
from f1server.testing.database import Database, with_database
from spanstore.client import NoNewer, placement
from spanstore.runtime import wire as span_wire

BASE = "CREATE TABLE R (A INT64 NOT NULL, V INT64, W INT64, PRIMARY KEY (A))"
PLAIN = "CREATE INDEX RV ON R (V) STORING (W)"
UNIQUE = "CREATE UNIQUE INDEX RV ON R (V)"


async def findings(db: Database) -> list[Any]:
    return list((await check_database(db.conn.session, [], repair=False, examples=5)).findings)


def between(
    monkeypatch: pytest.MonkeyPatch, db: Database, work: Callable[[f1.aio.Connection], Coroutine[Any, Any, None]]
) -> None:
    """Let users do something between the scan of rows and the first commit of their entries."""
    enter = Walker._enter
    done = False

    async def late(self: Walker, walk: Walk, gathered: Any, watch: Any) -> None:
        nonlocal done
        if not done:
            done = True
            await db.env.spawn(work(db.conn))
        await enter(self, walk, gathered, watch)

    monkeypatch.setattr(Walker, "_enter", late)


async def changes(conn: f1.aio.Connection) -> None:
    """Change rows in every way that concerns an index over V; no two rows have the same V before or after."""
    await conn.execute("DELETE FROM R WHERE A = 1")
    await conn.execute("UPDATE R SET V = 1002 WHERE A = 2")
    await conn.execute("UPDATE R SET W = 0 WHERE A = 3")
    await conn.execute("UPDATE R SET V = NULL WHERE A = 4")
    await conn.execute("DELETE FROM R WHERE A = 5")
    await conn.execute("INSERT INTO R VALUES (5, 1005, 0)")
    await conn.execute("UPDATE R SET A = 1006 WHERE A = 6")
    # Another row takes over what one has given up, and one gets back what it had.
    await conn.execute("DELETE FROM R WHERE A = 7")
    await conn.execute("INSERT INTO R VALUES (1007, 7, 0)")
    await conn.execute("UPDATE R SET V = 1008 WHERE A = 8")
    await conn.execute("UPDATE R SET V = 8 WHERE A = 8")
    await conn.execute("INSERT INTO R VALUES (1009, 1009, 0)")


def built_meanwhile(monkeypatch: pytest.MonkeyPatch, index: str) -> list[Any]:
    """Build an index while rows change; return what a check finds."""

    async def body(db: Database) -> list[Any]:
        await db.conn.insert("R", [{"A": a, "V": a, "W": a} for a in range(120)])
        between(monkeypatch, db, changes)
        await db.conn.execute(index)
        return await findings(db)

    return with_database(body, BASE)


def refused(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    """Entries that were written wrongly are found before the index is public, and go with it; so `f1 check` says."""
    verify = Reorganiser.verify
    with pytest.raises(F1Error, match=r"there is no such row|the row has other values|its entry says") as caught:
        built_meanwhile(monkeypatch, index)
    assert caught.value.code is Code.INTERNAL
    monkeypatch.setattr(Reorganiser, "verify", lambda *_: asyncio.sleep(0))
    assert {finding.clause for finding in built_meanwhile(monkeypatch, index)} & {4, 5}
    monkeypatch.setattr(Reorganiser, "verify", verify)


@pytest.mark.parametrize("index", [PLAIN, UNIQUE])
def test_what_is_newer_stays(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    assert not built_meanwhile(monkeypatch, index)


@pytest.mark.parametrize("index", [PLAIN, UNIQUE])
def test_without_the_thomas_write_rule_entries_without_rows_are_found(
    monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    monkeypatch.setattr(walk, "NoNewer", lambda since_ts, leave_out=False: NoNewer(1 << 62, leave_out))
    refused(monkeypatch, index)


def test_unless_deletes_leave_a_trace_in_unique_indexes_entries_without_rows_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_own = Entries._is_own

    def traceless(self: Entries, key: bytes, entry: Any, read: Any) -> bool:
        stored = read(key) if key in self.reads else None
        return False if key in self.reads and (stored is None or not stored.value) else is_own(self, key, entry, read)

    monkeypatch.setattr(Entries, "_is_own", traceless)
    refused(monkeypatch, UNIQUE)


def test_of_two_rows_with_equal_values_one_is_gone_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete(conn: f1.aio.Connection) -> None:
        await conn.execute("DELETE FROM R WHERE A = 1")

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": 0 if a < 2 else a} for a in range(60)])
        between(monkeypatch, db, delete)
        await db.conn.execute(UNIQUE)
        assert await db.rows("SELECT A FROM R WHERE V = 0") == [(0,)]
        assert not await findings(db)

    with_database(body, BASE)


def test_a_row_that_gets_the_values_of_another_makes_the_change_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is in its way: the other row's entry is not there yet."""

    async def collide(conn: f1.aio.Connection) -> None:
        await conn.execute("UPDATE R SET V = 9 WHERE A = 1")

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(60)])
        between(monkeypatch, db, collide)
        with pytest.raises(F1Error, match="cannot be unique") as caught:
            await db.conn.execute(UNIQUE)
        assert caught.value.code is Code.ALREADY_EXISTS
        assert not await findings(db)

    with_database(body, BASE)


@pytest.mark.parametrize("index", [PLAIN, UNIQUE])
def test_a_walk_that_broke_off_is_done_again(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    """By a newer snapshot, in which some entries are there already, and some of those are of rows that have changed."""
    enter = Walker._enter
    walks = 0

    async def broken(self: Walker, walk: Walk, gathered: Any, watch: Any) -> None:
        nonlocal walks
        walks += 1
        if walks == 1:
            some = copy.copy(gathered)
            some.plain = gathered.plain[:90]
            some.contended = dict(list(gathered.contended.items())[:90])
            await enter(self, walk, some, watch)
            raise F1Error(Code.UNAVAILABLE, "the process died")
        await enter(self, walk, gathered, watch)

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a, "W": a} for a in range(120)])
        monkeypatch.setattr(Walker, "_enter", broken)
        building = db.env.spawn(db.conn.execute(index))
        while walks < 1:
            await asyncio.sleep(0.01)
        await changes(db.conn)
        await building
        assert walks > 1
        assert await db.rows("SELECT count(*) FROM R WHERE V > -1") == [(119,)]
        assert not await findings(db)

    with_database(body, BASE)


@pytest.mark.parametrize("index", [PLAIN, UNIQUE])
def test_spanservers_that_do_not_know_the_rule_are_worked_with_under_locks(
    monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    """In the middle of an upgrade."""

    def refused(precondition: Any) -> Any:
        if precondition.WhichOneof("test") == "no_newer":
            raise F1Error(Code.INVALID_ARGUMENT, "a precondition of an unknown kind")
        return known(precondition)

    known = span_wire._precondition
    monkeypatch.setattr(span_wire, "_precondition", refused)
    assert not built_meanwhile(monkeypatch, index)


def test_commits_are_small_in_number_and_in_size() -> None:
    sizes = [1] * 1_150
    assert [len(batch) for batch in walking.cut(sizes, lambda size: size)] == [500, 500, 150]
    large = [400_000, 400_000, 400_000, 5_000_000, 1, 1]
    assert list(walking.cut(large, lambda size: size)) == [[400_000, 400_000], [400_000], [5_000_000], [1, 1]]
    assert list(walking.cut([], len)) == []
    # Each batch is as large as is right when it begins.
    wanted = iter([3, 1_000, 2])
    found = [len(batch) for batch in walking.cut([1] * 600, lambda size: size, lambda: next(wanted, 2))]
    assert found == [3, 500, *[2] * 48, 1]


def test_how_users_are_served_is_asked_of_all_servers() -> None:
    """Also of those that the work on rows sends nothing to: users read rows there, while entries go elsewhere."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": a} for a in range(50)])
        for a in range(20):
            await db.rows("SELECT V FROM R WHERE A = ?", a)
            await db.conn.execute("UPDATE R SET W = 1 WHERE A = ?", (a,))
        load = await db.process(0)._background.foreground()
        assert load.reads > 10 and load.commits > 10 and load.age_s < 0.1
        # Here processors take no time, and reads do not wait for the disk.
        assert 0 <= load.read_us < load.commit_us
        # The work itself does not count.
        again = await db.process(0)._background.foreground()
        assert again.reads <= load.reads and again.commits <= load.commits

    with_database(body, BASE, spanservers=3, groups=3)


def test_leases_jobs_and_the_range_map_are_no_load_of_users() -> None:
    """They go on where nobody is: schema changes found them slow, and went at their lowest pace."""

    async def body(db: Database) -> None:
        await db.conn.insert("R", {"A": 1, "V": 1})
        await asyncio.sleep(20)  # simulated: what users did counts no more
        for _ in range(30):
            await db.process(0)._changes.listed("default")
        load = await db.process(0)._background.foreground()
        assert load.reads < 1 and load.commits < 1

    with_database(body, BASE, spanservers=3, groups=3)


@pytest.mark.parametrize("index", [PLAIN, "CREATE LOCAL INDEX RV ON R (A, V)"])
def test_a_value_that_is_too_long_for_an_index_is_named_with_its_row(index: str) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": "x" * (600 if a == 17 else 5), "W": a} for a in range(40)])
        with pytest.raises(F1Error, match=r"index RV of R has .* bytes, .*about the row with \(A\) = \(17\)") as caught:
            await db.conn.execute(index)
        assert caught.value.code is Code.KEY_TOO_LONG
        await db.conn.insert("R", {"A": 100, "V": "x" * 600})  # as if nobody had ever wanted the index
        assert not await findings(db)

    with_database(body, "CREATE TABLE R (A INT64 NOT NULL, V STRING, W INT64, PRIMARY KEY (A))")


def test_two_rows_with_equal_values_in_different_groups_fail_a_unique_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group, and each partition, has one of them; both are named, and nothing is left of the index."""
    monkeypatch.setattr("f1server.schemachange.work.tablewalk.ROWS_EACH", 20)

    async def body(db: Database) -> None:
        await db.conn.insert("R", [{"A": a, "V": 7 if a in (3, 150) else 1_000 + a} for a in range(200)])
        schema = (await db.process().leases.current("default")).schema
        end = tuples.encode((schema.table("R").id + 1,))
        start = row_key(schema, schema.table("R"), (100,))
        group = (await db.storage.range_map()).group_of(start)
        target = next(g for g in db.storage.groups() if g not in (0, group))
        await placement.wait_for_move(
            db.storage, (await placement.submit_move(db.storage, start, end, target)).number, 60.0
        )
        ranges, _ = await placement.stored_map(db.storage)
        keys = [row_key(schema, schema.table("R"), (a,)) for a in (3, 150)]
        assert len({ranges.group_of(key) for key in keys}) == 2
        with pytest.raises(F1Error, match=r"cannot be unique") as caught:
            await db.conn.execute(UNIQUE)
        assert caught.value.code is Code.ALREADY_EXISTS
        assert "(3)" in caught.value.message and "(150)" in caught.value.message
        await db.conn.insert("R", {"A": 500, "V": 7})
        assert await db.rows("SELECT count(*) FROM R WHERE V = 7") == [(3,)]
        assert not await findings(db)

    with_database(body, BASE, spanservers=3, groups=3)
