"""Statements about roles beside a schema change: in force when they return, and kept whatever becomes of it."""

import asyncio

import pytest
from msgspec.structs import replace

from f1common.errors import Code, F1Error
from f1server.access.rights import Caller
from f1server.catalog.codec import decode_schema
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.roles import Privilege
from f1server.catalog.schema import ElementState
from f1server.schemachange.jobs import jobs as jobs_module
from f1server.schemachange.jobs.jobs import JobState, Order
from tests.unit.catalog.test_leases import refused, sim

BASE = (
    "CREATE TABLE t (a INT64 PRIMARY KEY, b INT64); CREATE TABLE s (a INT64 PRIMARY KEY); CREATE ROLE r; CREATE ROLE q;"
    "GRANT SELECT, INSERT ON t TO r; GRANT q TO r"
)


async def begin(cluster, change="CREATE INDEX i ON t (b)", prepared=BASE):
    """Have server a make a change that stops in its work on rows."""
    a, b = cluster.server("a"), cluster.server("b")
    await a.ddl(prepared)
    a.work.gate = b.work.gate = asyncio.Event()
    a.work.done.clear()
    task = asyncio.create_task(a.ddl(change))
    while not a.work.done:
        await asyncio.sleep(0.001)
    return a, b, task


async def running(server):
    (job,) = [job for job in await server.changes.listed("default") if not job.ended]
    return job


async def pause(server):
    await server.changes.order("default", (await running(server)).number, Order.PAUSE)
    await asyncio.sleep(3)  # until the owner has heard of it, which works on rows
    server.work.gate.set()
    while (await running(server)).state is not JobState.PAUSED:
        await asyncio.sleep(0.01)
    server.work.gate.clear()


async def schema_of(server):
    return (await server.store.load("default")).schema


async def all_have(server, version):
    now = server.clock.sample().tt.earliest
    return not any(lease.end_below(version) >= now for lease in await server.store.leases("default"))


def may(schema, role, table="t"):
    number = schema.role(role).id
    found = [t for t in schema.tables if t.name == table]
    return next((grant.privileges for t in found for grant in t.grants if grant.role_id == number), Privilege(0))


def index_of(schema):
    return {index.name: index.state for table in schema.tables for index in table.indexes}


def test_a_right_is_revoked_while_rows_are_worked_on_and_the_work_is_not_begun_again():
    async def main(cluster):
        a, b, task = await begin(cluster)
        before = await b.leases.current("default")
        await b.ddl("REVOKE INSERT ON t FROM r")
        assert not task.done()
        numbers = [job.number for job in await b.changes.listed("default")]
        assert numbers == sorted(numbers)
        schema = await schema_of(b)
        assert may(schema, "r") == Privilege.SELECT and index_of(schema) == {"i": ElementState.WRITE_ONLY}
        assert schema.elements_version == before.schema.version == schema.version - 1
        for server in (a, b):
            async with server.leases.use("default") as leased:
                assert leased.schema.version == schema.version
        a.work.gate.set()
        await task
        assert [done[:3] for done in a.work.done] == [("fill", "index i", before.schema.version)]
        schema = await schema_of(a)
        assert may(schema, "r") == Privilege.SELECT and index_of(schema) == {"i": ElementState.PUBLIC}
        listed = await a.changes.listed("default")
        assert [job.number for job in listed] == list(range(1, len(listed) + 1))
        assert [(job.what, job.state) for job in listed[-2:]] == [
            ("CREATE INDEX i", "done"),
            ("REVOKE INSERT ON t FROM r", "done"),
        ]

    sim(main)


def test_behind_a_paused_change_rights_change_and_stay_when_it_goes_on_or_back():
    async def main(cluster):
        for order in (None, Order.CANCEL):
            a, b, task = await begin(cluster, prepared=BASE if order is None else "GRANT INSERT ON t TO r")
            await pause(a)
            await b.ddl("REVOKE INSERT ON t FROM r; GRANT UPDATE ON s TO q; REVOKE q FROM r")
            error = await refused(Code.FAILED_PRECONDITION, b.ddl("GRANT DELETE ON s TO q; CREATE TABLE u (a INT64)"))
            assert "is paused" in error.message
            error = await refused(Code.NOT_FOUND, b.ddl("GRANT DELETE ON nowhere TO q"))
            assert "there is no table nowhere" in error.message
            await refused(Code.ALREADY_EXISTS, b.ddl("CREATE ROLE r"))
            error = await refused(Code.FAILED_PRECONDITION, b.ddl("DROP ROLE r"))
            assert "r has SELECT on t" in error.message
            number = (await running(b)).number
            a.work.gate.set()
            if order is None:
                await b.changes.resume("default", number)
                await task
            else:
                await b.changes.order("default", number, order)
                await refused(Code.CANCELLED, task)
            schema = await schema_of(b)
            assert index_of(schema) == ({"i": ElementState.PUBLIC} if order is None else {})
            assert may(schema, "r") == Privilege.SELECT and may(schema, "q", "s") == Privilege.UPDATE
            assert schema.role("r").member_of == ()
            if order is None:
                await a.ddl("DROP INDEX i; GRANT q TO r")

    sim(main)


def test_who_takes_the_change_over_goes_on_with_the_roles_that_are_there():
    async def main(cluster):
        a, b, task = await begin(cluster)
        await b.ddl("REVOKE INSERT ON t FROM r")
        task.cancel()
        cluster.kill("a")
        await a.changes.close()
        await b.ddl("REVOKE SELECT ON t FROM r")
        b.work.gate.set()
        job = await running(b)
        await b.changes._outcome(job)
        schema = await schema_of(b)
        assert index_of(schema) == {"i": ElementState.PUBLIC} and may(schema, "r") == 0

    sim(main)


def test_an_owner_that_is_gone_is_not_kept_alive_by_changes_of_roles():
    async def main(cluster):
        a, b, task = await begin(cluster)
        task.cancel()
        cluster.kill("a")
        await a.changes.close()
        keeper = asyncio.create_task(b.changes.keep())
        b.work.gate.set()
        for n in range(6):
            await b.ddl(f"{'REVOKE' if n % 2 else 'GRANT'} DELETE ON t {'FROM' if n % 2 else 'TO'} r")
            await asyncio.sleep(jobs_module.OWNER_LEASE_US / 2e6)
        assert all(job.ended for job in await b.changes.listed("default"))
        assert index_of(await schema_of(b)) == {"i": ElementState.PUBLIC}
        keeper.cancel()

    sim(main)


def test_many_change_roles_at_once_beside_one_change():
    async def main(cluster):
        a, b, task = await begin(cluster)
        c = cluster.server("c")
        names = [f"role{n}" for n in range(8)]
        await asyncio.gather(
            *(
                server.ddl(f"CREATE ROLE {name}; GRANT SELECT ON t TO {name}")
                for server, name in zip([a, b, c, b] * 2, names, strict=True)
            )
        )
        schema = await schema_of(a)
        assert all(may(schema, name) == Privilege.SELECT for name in names)
        listed = await a.changes.listed("default")
        assert len({job.number for job in listed}) == len(listed)
        a.work.gate.set()
        await task
        schema = await schema_of(a)
        assert all(may(schema, name) == Privilege.SELECT for name in names)
        assert len(a.work.done) == 1

    sim(main)


def test_what_the_change_itself_does_about_roles_stays():
    """A table that comes belongs to whoever makes it, and sources take rights."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl(BASE + "; GRANT CREATE ON SCHEMA TO r")
        r = Caller((await schema_of(a)).role("r").id, "r")
        a.work.gate = asyncio.Event()
        statements = parse_ddl("CREATE INDEX i ON t (b); CREATE TABLE kid (a INT64 PRIMARY KEY REFERENCES t)")
        task = asyncio.create_task(a.changes.apply_ddl("default", statements, r))
        while not a.work.done:
            await asyncio.sleep(0.001)
        # The change was allowed when it was begun.
        await b.ddl("REVOKE CREATE ON SCHEMA FROM r; REVOKE INSERT ON t FROM r")
        await refused(Code.PERMISSION_DENIED, a.changes.apply_ddl("default", parse_ddl("GRANT SELECT ON t TO q"), r))
        a.work.gate.set()
        await task
        schema = await schema_of(a)
        assert may(schema, "r") == Privilege.SELECT and may(schema, "r", "kid") == 15
        assert not schema.role("r").create and index_of(schema)["i"] is ElementState.PUBLIC

    sim(main)


SOURCES = (
    "CREATE TABLE t (a INT64 PRIMARY KEY, b INT64); CREATE TABLE s (a INT64 PRIMARY KEY); CREATE INDEX i ON t (b); "
)


@pytest.mark.parametrize("back", [False, True])
def test_statements_that_change_nothing_now_hold_for_where_the_change_goes_and_comes_from(back):
    """The sources have taken INSERT from r, and given DELETE, before rows are worked on: going back would turn that."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl(BASE)
        a.work.gate = b.work.gate = asyncio.Event()
        sources = SOURCES + "CREATE ROLE r; CREATE ROLE q; GRANT SELECT, DELETE ON t TO r; CREATE ROLE new"
        task = asyncio.create_task(a.changes.apply_sources("default", [("s.sql", sources)], []))
        while not a.work.done:
            await asyncio.sleep(0.001)
        assert may(await schema_of(a), "r") == Privilege.SELECT | Privilege.DELETE
        for text in (
            "REVOKE INSERT ON t FROM r",
            "GRANT DELETE ON t TO r",
            "REVOKE q FROM r",
            "GRANT SELECT ON s TO new",
        ):
            await b.ddl(text)
        if back:
            await b.changes.order("default", (await running(b)).number, Order.CANCEL)
        a.work.gate.set()
        await (refused(Code.CANCELLED, task) if back else task)
        schema = await schema_of(a)
        assert may(schema, "r") == Privilege.SELECT | Privilege.DELETE
        assert schema.role("r").member_of == () and ("new" in schema.roles_by_name) is not back
        known = {role.id for role in schema.roles}
        assert all(grant.role_id in known for table in schema.tables for grant in table.grants)

    sim(main)


@pytest.mark.parametrize("back", [False, True])
def test_a_role_that_is_dropped_is_gone_whatever_the_change_wanted(back):
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl(BASE + "; GRANT CREATE ON SCHEMA TO r")
        r = Caller((await schema_of(a)).role("r").id, "r")
        a.work.gate = asyncio.Event()
        text = "CREATE INDEX i ON t (b); CREATE TABLE kid (a INT64 PRIMARY KEY REFERENCES t)"
        task = asyncio.create_task(a.changes.apply_ddl("default", parse_ddl(text), r))
        while not a.work.done:
            await asyncio.sleep(0.001)
        await b.ddl("REVOKE ALL ON ALL TABLES FROM r; REVOKE CREATE ON SCHEMA FROM r; DROP ROLE r")
        if back:
            await b.changes.order("default", (await running(b)).number, Order.CANCEL)
        a.work.gate.set()
        await (refused(Code.CANCELLED, task) if back else task)
        schema = await schema_of(a)
        assert "r" not in schema.roles_by_name
        assert not any(grant for table in schema.tables for grant in table.grants)
        assert ("kid" in schema.by_name) is not back

    sim(main)


def test_a_name_that_the_change_brings_is_waited_for():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl(BASE)
        a.work.gate = b.work.gate = asyncio.Event()
        task = asyncio.create_task(
            a.ddl("CREATE INDEX i ON t (b); CREATE TABLE kid (a INT64 PRIMARY KEY REFERENCES t)")
        )
        while not a.work.done:
            await asyncio.sleep(0.001)
        await pause(a)
        error = await refused(Code.FAILED_PRECONDITION, b.ddl("GRANT SELECT ON kid TO r"))
        assert "there is no table kid" in error.message and "is paused" in error.message
        await b.changes.resume("default", (await running(b)).number)
        asked = asyncio.create_task(b.ddl("GRANT SELECT ON kid TO r"))
        await asyncio.sleep(3)
        assert not asked.done()
        a.work.gate.set()
        await asyncio.gather(task, asked)
        assert may(await schema_of(a), "r", "kid") == Privilege.SELECT

    sim(main)


def test_rights_of_tables_that_are_dropped_and_stay_after_all_are_revoked():
    async def main(cluster):
        a, b, task = await begin(cluster, "CREATE INDEX i ON s (a); DROP TABLE t")
        schema = await schema_of(a)
        assert "t" not in schema.by_name and may(schema, "r") == Privilege.SELECT | Privilege.INSERT
        await b.ddl("REVOKE ALL ON ALL TABLES FROM r")
        await b.changes.order("default", (await running(b)).number, Order.CANCEL)
        a.work.gate.set()
        await refused(Code.CANCELLED, task)
        schema = await schema_of(a)
        assert "t" in schema.by_name and may(schema, "r") == 0

    sim(main)


def test_a_client_that_asks_again_gets_the_answer_when_all_servers_have_the_version():
    async def main(cluster):
        _, b, task = await begin(cluster)
        cluster.deaf.add("c")
        c = cluster.server("c")
        await c.leases.current("default")
        asked = asyncio.create_task(
            b.changes.apply_ddl("default", parse_ddl("REVOKE INSERT ON t FROM r"), change_id=b"x" * 16)
        )
        while may(await schema_of(b), "r") != Privilege.SELECT:
            await asyncio.sleep(0.001)
        version = (await schema_of(b)).version
        assert not await all_have(b, version)
        job, done = await c.changes.follow("default", b"x" * 16)
        assert await all_have(b, version)
        assert job.what == "REVOKE INSERT ON t FROM r" and done.steps[0].what[0].startswith("set the grants on t")
        await asked
        task.cancel()

    sim(main)


def test_whoever_finds_nothing_to_revoke_knows_that_nobody_uses_the_right():
    async def main(cluster):
        _, b, task = await begin(cluster)
        cluster.deaf.add("c")
        c = cluster.server("c")
        await c.leases.current("default")
        first = asyncio.create_task(b.ddl("REVOKE INSERT ON t FROM r"))
        while may(await schema_of(b), "r") != Privilege.SELECT:
            await asyncio.sleep(0.001)
        version = (await schema_of(b)).version
        assert not await all_have(b, version)
        await cluster.server("d").ddl("REVOKE INSERT ON t FROM r")
        assert await all_have(b, version) and (await schema_of(b)).version == version
        assert [job.state for job in await b.changes.listed("default")][-2:] == ["running", "done"]
        await first
        task.cancel()

    sim(main)


def meanwhile(monkeypatch, target, name, work):
    """Before a method is called the next time, do something else; what is returned says whether it was."""
    original, done = getattr(target, name), asyncio.Event()

    async def method(*args, **kwargs):
        if not done.is_set():
            done.set()
            await work()
        return await original(*args, **kwargs)

    monkeypatch.setattr(target, name, method)
    return done


@pytest.mark.parametrize("name", ["load", "leases", "write"])
def test_roles_change_while_the_owner_plans(monkeypatch, name):
    """What it has planned by the row of before would give the right back."""

    async def main(cluster):
        a, b, task = await begin(cluster)
        done = meanwhile(monkeypatch, a.store, name, lambda: b.ddl("REVOKE INSERT ON t FROM r"))
        a.work.gate.set()
        await task
        assert done.is_set()
        schema = await schema_of(a)
        assert may(schema, "r") == Privilege.SELECT and index_of(schema) == {"i": ElementState.PUBLIC}
        assert len(a.work.done) == 1

    sim(main)


def test_roles_change_while_the_owner_ends(monkeypatch):
    """The change ends when all servers have these roles too: whoever finds none running looks at nothing else."""

    async def main(cluster):
        a, b, task = await begin(cluster)
        cluster.deaf.add("c")
        c = cluster.server("c")
        asked = []

        async def revoke():
            await c.leases.current("default")
            asked.append(asyncio.create_task(b.ddl("REVOKE INSERT ON t FROM r")))
            while may(await schema_of(b), "r") != Privilege.SELECT:
                await asyncio.sleep(0.001)

        meanwhile(monkeypatch, a.jobs, "end", revoke)
        a.work.gate.set()
        await task
        schema = await schema_of(a)
        assert await all_have(b, schema.version)
        assert may(schema, "r") == Privilege.SELECT and index_of(schema) == {"i": ElementState.PUBLIC}
        (job,) = [job for job in await b.changes.listed("default") if job.what == "CREATE INDEX i"]
        role = schema.role("r").id
        (table,) = [table for table in decode_schema(job.goal).tables if table.name == "t"]
        assert [grant.privileges for grant in table.grants if grant.role_id == role] == [Privilege.SELECT]
        await asyncio.gather(*asked)

    sim(main)


def test_beside_an_owner_of_an_older_build_roles_wait():
    async def main(cluster):
        a, b, task = await begin(cluster)
        await b.jobs.change("default", (await running(b)).number, lambda job: replace(job, joint=False))
        asked = asyncio.create_task(b.ddl("REVOKE INSERT ON t FROM r"))
        await asyncio.sleep(0.5)
        assert may(await schema_of(b), "r") == Privilege.SELECT | Privilege.INSERT and not asked.done()
        a.work.gate.set()
        await asyncio.gather(task, asked)
        assert may(await schema_of(b), "r") == Privilege.SELECT

    sim(main)


def test_the_log_keeps_those_that_ended_last(monkeypatch):
    monkeypatch.setattr(jobs_module, "_KEPT", 5)

    async def main(cluster):
        a, b, task = await begin(cluster)
        for n in range(12):
            await b.ddl(f"{'REVOKE' if n % 2 else 'GRANT'} DELETE ON t {'FROM' if n % 2 else 'TO'} r")
        number = (await running(b)).number
        assert len(await b.changes.listed("default")) <= 7
        a.work.gate.set()
        await task
        assert (await b.jobs.ended("default", number)).state is JobState.DONE
        await b.ddl("GRANT DELETE ON s TO r")
        assert (await b.jobs.ended("default", number)).state is JobState.DONE

    sim(main)


def test_storage_that_loses_answers_does_not_lose_statements():
    async def main(cluster):
        a, b, task = await begin(cluster)
        b.client.lose_answers = 1
        await b.ddl("REVOKE INSERT ON t FROM r")
        b.client.lose_requests = 1
        try:
            await b.ddl("REVOKE SELECT ON t FROM r")
        except F1Error as error:
            assert error.ambiguous
            await b.ddl("REVOKE SELECT ON t FROM r")
        a.work.gate.set()
        await task
        assert may(await schema_of(a), "r") == 0

    sim(main)


def test_a_name_that_the_change_is_going_to_take_is_waited_for(monkeypatch):
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl(BASE)
        asked = []

        async def create():
            asked.append(asyncio.create_task(b.ddl("CREATE ROLE new")))
            await b.ddl("REVOKE INSERT ON t FROM r")
            await asyncio.sleep(3)
            assert not asked[0].done()

        done = meanwhile(monkeypatch, a.store, "write", create)
        sources = SOURCES + "CREATE ROLE r; CREATE ROLE q; GRANT SELECT, INSERT ON t TO r; CREATE ROLE new"
        await a.changes.apply_sources("default", [("s.sql", sources)], [])
        assert done.is_set()
        await refused(Code.ALREADY_EXISTS, asked[0])
        # The sources had INSERT too: what is revoked before they are that far is not given again.
        assert may(await schema_of(a), "r") == Privilege.SELECT

    sim(main)
