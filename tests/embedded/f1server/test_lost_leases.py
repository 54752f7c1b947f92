"""A server that cannot renew its schema lease serves nothing, and after a while asks to be started again."""

import asyncio

import pytest

from f1common.errors import Code, F1Error
from f1server.testing.database import Database, with_database


def storage(db: Database) -> list[str]:
    return [name for name in db.world.nodes if name.startswith("span")]


async def asked(db: Database, seconds: float) -> set[Code]:
    """Ask a server all the time; return what it says that is no answer."""
    said = set()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    conn = await db.at(0)
    while loop.time() < end:
        try:
            await asyncio.wait_for(conn.execute("SELECT V FROM A WHERE Id = 1"), 1.0)
        except F1Error as error:
            said.add(error.code)
        except TimeoutError:
            pass
        await asyncio.sleep(0.2)
    await conn.close()
    return said


@pytest.mark.parametrize("used", [True, False], ids=["used", "idle"])
@pytest.mark.parametrize(("away_s", "is_lost"), [(6.0, False), (30.0, True)])
def test_who_has_no_lease_for_long_is_lost(away_s: float, is_lost: bool, used: bool) -> None:
    async def body(db: Database) -> None:
        await db.conn.insert("A", {"Id": 1, "V": 10})
        leases = db.process().leases
        leases._lost_after_us = 10_000_000
        assert await asked(db, 5.0) == set() and not leases._failing_us
        for name in storage(db):
            db.world.crash(name)
        if used:
            assert await asked(db, away_s) <= {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
        else:
            await asyncio.sleep(away_s)
        assert leases.lost.is_set() is is_lost
        for name in storage(db):
            db.world.restart(name)
        await asyncio.sleep(5.0)
        assert await db.rows("SELECT V FROM A WHERE Id = 1") == [(10,)]
        assert not leases._failing_us  # the next outage is counted from its own beginning

    with_database(body, "CREATE TABLE A (Id INT64 NOT NULL, V INT64, PRIMARY KEY (Id))", f1servers=1)


def test_who_never_had_a_lease_waits_for_storage() -> None:
    async def body(db: Database) -> None:
        for name in storage(db):
            db.world.crash(name)
        name = db.nodes.names[0]
        db.world.crash(name)
        db.world.restart(name)
        await asyncio.sleep(1.0)
        leases = db.process().leases
        leases._lost_after_us = 2_000_000
        for _ in range(10):
            with pytest.raises(F1Error):
                await db.on(0, leases.held("default"))
            await asyncio.sleep(1.0)
        assert not leases.lost.is_set()
        for other in storage(db):
            db.world.restart(other)
        await db.nodes.ready()
        assert await db.rows("SELECT count(*) FROM A") == [(0,)]

    with_database(body, "CREATE TABLE A (Id INT64 NOT NULL, V INT64, PRIMARY KEY (Id))", f1servers=1)


def test_two_failures_with_a_while_between_them_are_no_long_outage() -> None:
    async def body(db: Database) -> None:
        leases = db.process().leases
        leases._lost_after_us = 10_000_000
        for pauses in ([0.0, 100.0], [9.0, 9.0]):
            leases._failing_us.clear()
            leases._failed("other", had_one=True)
            for pause_s in pauses:
                await asyncio.sleep(pause_s)
                leases._failed("other", had_one=False)
            assert leases.lost.is_set() is (pauses == [9.0, 9.0])

    with_database(body, f1servers=1)
