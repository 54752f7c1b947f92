"""GRANT and REVOKE beside a change that works on rows, at real servers: in force at once, whatever becomes of it."""

import asyncio
from typing import Any

import pytest

import f1
from f1common.errors import Code, F1Error
from f1common.pb import f1_pb2 as pb
from f1server.catalog.store import SchemaStore
from f1server.schemachange.work.walking import WalkKind
from f1server.testing.database import Database, with_database
from tests.embedded.f1server.test_access import BOSS, code_of, given
from tests.embedded.f1server.test_divided_walks import BASE, PLAIN, ROWS, Walks, filled, small_partitions, until

LEASE_MS = 2_000
GRANTS = "GRANT SELECT, INSERT, UPDATE ON R TO app"
MOVE = "ALTER TABLE R SET PRIMARY KEY (W, A)"


async def prepared(db: Database) -> tuple[f1.aio.Connection, list[f1.aio.Connection]]:
    """Fill the table; return connections of the superuser, and of ``app`` to each server."""
    await filled(db)
    boss, _ = await given(db, GRANTS)
    names = set(db.nodes.slave_names)
    await until(lambda: all({s.name for s in db.process(i).pool.live()} == names for i in range(2)))
    return boss, [await db.login("app", "app word", number) for number in range(2)]


async def jobs(conn: f1.aio.Connection, order: Any = pb.SchemaJobs.LIST, number: int = 0) -> list[pb.SchemaJob]:
    return list((await conn.session.schema_jobs(pb.SchemaJobs(order=order, number=number))).jobs)


async def running(conn: f1.aio.Connection) -> pb.SchemaJob:
    (job,) = [job for job in await jobs(conn) if job.state in ("running", "undoing", "paused")]
    return job


async def paused(conn: f1.aio.Connection) -> pb.SchemaJob:
    number = (await running(conn)).number
    await jobs(conn, pb.SchemaJobs.PAUSE, number)
    while (job := await running(conn)).state != "paused":
        await asyncio.sleep(0.01)
    return job


async def refused_everywhere(apps: list[f1.aio.Connection], number: int) -> bool:
    """Tell whether no server lets ``app`` insert."""
    rows = [{"A": 1_000 + 10 * number + n, "V": n, "W": n} for n in range(len(apps))]
    codes = [await code_of(app.insert("R", row)) for app, row in zip(apps, rows, strict=True)]
    return codes == [Code.PERMISSION_DENIED] * len(apps)


@pytest.mark.parametrize("slaves", [0, 2])
def test_a_right_is_revoked_while_an_index_is_filled(monkeypatch: pytest.MonkeyPatch, slaves: int) -> None:
    small_partitions(monkeypatch, rate=60)
    walks = Walks(monkeypatch)

    async def body(db: Database) -> None:
        boss, apps = await prepared(db)
        await apps[0].insert("R", {"A": 999, "V": 0, "W": 0})
        building = db.env.spawn(boss.execute(PLAIN))
        await until(lambda: len(walks.begun) > 4)
        loop = asyncio.get_running_loop()
        for number, right in enumerate(("INSERT", "SELECT")):
            began_s = loop.time()
            await boss.execute(f"REVOKE {right} ON R FROM app")
            # Walks of slaves go on under the new version, so that nobody waits for them.
            assert loop.time() - began_s < LEASE_MS / 4_000
            assert await refused_everywhere(apps, number)
        assert await code_of(apps[1].execute("SELECT * FROM R")) is Code.PERMISSION_DENIED
        assert not building.done()
        await building
        assert await refused_everywhere(apps, 2)
        filling = [start for kind, start in walks.begun if kind is WalkKind.CHANGE]
        assert len(filling) >= ROWS // 30 and len(set(filling)) == len(filling)  # nothing was done again
        await boss.execute("DROP INDEX RV")

    with_database(body, BASE, slaves=slaves, lease_ms=LEASE_MS)


@pytest.mark.parametrize("begun", [1, 10, 18])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("change", [PLAIN, MOVE])
def test_what_changes_while_another_change_is_paused_stays(
    monkeypatch: pytest.MonkeyPatch, change: str, back: bool, begun: int
) -> None:
    """Of a table that moves both forms have the rights, whichever is public in the end."""
    small_partitions(monkeypatch, rate=2_000)
    walks = Walks(monkeypatch)
    walks.pause_s = 0.05

    async def body(db: Database) -> None:
        boss, apps = await prepared(db)
        changing = db.env.spawn(boss.execute(change))
        await until(lambda: len(walks.begun) >= begun)
        job = await paused(boss)
        await boss.execute("REVOKE INSERT ON R FROM app")
        await boss.execute("GRANT DELETE ON R TO app")
        await boss.execute("CREATE ROLE late LOGIN PASSWORD 'late word'")
        await boss.execute("GRANT SELECT ON R TO late")
        assert await refused_everywhere(apps, 0)
        await jobs(boss, pb.SchemaJobs.CANCEL if back else pb.SchemaJobs.RESUME, job.number)
        assert await code_of(changing) is (Code.CANCELLED if back else None)
        assert await refused_everywhere(apps, 1)
        await apps[0].execute("DELETE FROM R WHERE A = 7 AND W = 7")
        late = await db.login("late", "late word", 1)
        assert await (await late.execute("SELECT COUNT(*) FROM R")).fetchone() == (ROWS - 1,)
        states = {job.what: job.state for job in await jobs(boss)}
        assert states["REVOKE INSERT ON R FROM app"] == "done"

    with_database(body, BASE, lease_ms=LEASE_MS)


def test_who_takes_over_keeps_what_was_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, rate=300)
    walks = Walks(monkeypatch)
    walks.pause_s = 0.1

    async def body(db: Database) -> None:
        boss, _ = await prepared(db)
        building = db.env.spawn(boss.execute(PLAIN))
        await until(lambda: len(walks.ended) > 4)
        done = set(walks.ended)
        await boss.execute("REVOKE INSERT ON R FROM app")
        owner = (await running(boss)).owner
        db.world.crash(owner)
        begun = len(walks.begun)
        await building
        assert done.isdisjoint(walks.begun[begun:])  # what was done before roles changed is done
        assert (await jobs(boss))[-2].owner != owner
        left = 1 - db.nodes.names.index(owner)
        assert await refused_everywhere([await db.login("app", "app word", left)], 0)
        await boss.execute("DROP INDEX RV")

    with_database(body, BASE, lease_ms=LEASE_MS)


def test_a_client_whose_server_dies_after_the_commit_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, rate=60)
    walks = Walks(monkeypatch)
    write = SchemaStore.write
    died: list[str] = []

    async def body(db: Database) -> None:
        boss, _ = await prepared(db)
        building = db.env.spawn(boss.execute(PLAIN))
        await until(lambda: len(walks.begun) > 4)

        async def dies(self: SchemaStore, *args: Any, **more: Any) -> Any:
            done = await write(self, *args, **more)
            if not died:
                name = next(name for name, process in db.nodes.processes.items() if process._store is self)
                died.append(name)
                db.env.spawn(_crash(db, name))
                await asyncio.sleep(1)
            return done

        with monkeypatch.context() as patched:
            patched.setattr(SchemaStore, "write", dies)
            await boss.execute("REVOKE INSERT ON R FROM app")
        assert died
        await building
        assert [job.what for job in await jobs(boss)].count("REVOKE INSERT ON R FROM app") == 1
        left = next(n for n, name in enumerate(db.nodes.names) if name not in died)
        assert await refused_everywhere([await db.login("app", "app word", left)], 0)

    with_database(body, BASE, lease_ms=LEASE_MS)


async def _crash(db: Database, name: str) -> None:
    db.world.crash(name)


def test_sessions_of_a_role_that_is_dropped_meanwhile_end(monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, rate=60)
    walks = Walks(monkeypatch)

    async def body(db: Database) -> None:
        boss, apps = await prepared(db)
        building = db.env.spawn(boss.execute(PLAIN))
        await until(lambda: len(walks.begun) > 4)
        await boss.execute("REVOKE ALL ON ALL TABLES FROM app")
        await boss.execute("DROP ROLE app")
        for app in apps:
            with pytest.raises(F1Error) as caught:
                await app.insert("R", {"A": 999, "V": 0, "W": 0})
            assert caught.value.code is Code.UNAUTHENTICATED
        await building
        assert BOSS.split()[2] in {role.name for role in (await db.process().leases.current("default")).schema.roles}

    with_database(body, BASE, lease_ms=LEASE_MS)
