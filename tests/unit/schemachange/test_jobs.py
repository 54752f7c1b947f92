"""Schema changes as jobs: carried on by others, paused, resumed, cancelled, and fenced."""

import asyncio
import re

from f1common.errors import Code
from f1server.catalog.schema import ElementState
from f1server.schemachange.jobs.jobs import Order
from tests.unit.catalog.test_leases import refused, sim


def test_what_a_dead_server_left_half_built_is_finished_by_another():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        task.cancel()
        cluster.kill("a")
        await a.changes.close()
        error = await refused(Code.ALREADY_EXISTS, b.ddl("CREATE INDEX i ON t (b)"))
        assert "DROP removes" not in error.message
        assert (await b.store.load("default")).schema.table("t").index("i")
        assert [done[:2] for done in b.work.done] == [("fill", "index i")]
        listed = await b.changes.listed("default")
        assert [(job.what, job.state) for job in listed] == [("CREATE TABLE t", "done"), ("CREATE INDEX i", "done")]

    sim(main)


def test_a_change_is_paused_resumed_and_cancelled():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        keeper = asyncio.create_task(b.changes.keep())
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        (job,) = [job for job in await b.changes.listed("default") if not job.ended]
        await b.changes.order("default", job.number, Order.PAUSE)
        await asyncio.sleep(3)
        a.work.gate.set()
        await asyncio.sleep(5)
        assert [job.state for job in await b.changes.listed("default")] == ["done", "paused"]
        assert not task.done()
        await refused(Code.NOT_FOUND, b.changes.resume("default", 77))
        error = await refused(Code.FAILED_PRECONDITION, b.ddl("CREATE TABLE waits (a INT64)"))
        assert f"f1 schema resume {job.number}" in error.message
        await b.changes.resume("default", job.number)
        await task
        schema = (await a.store.load("default")).schema
        assert schema.table("t").index("i").state is ElementState.PUBLIC
        # The other way: back to where it came from, however far it is.
        a.work.gate = asyncio.Event()
        b.work.gate = a.work.gate
        seen = len(a.work.done)
        task = asyncio.create_task(a.ddl("CREATE INDEX j ON t (b)"))
        while len(a.work.done) == seen:
            await asyncio.sleep(0.001)
        (job,) = [job for job in await b.changes.listed("default") if not job.ended]
        await b.changes.order("default", job.number, Order.CANCEL)
        await asyncio.sleep(3)
        a.work.gate.set()
        await refused(Code.CANCELLED, task)
        assert [i.name for i in (await a.store.load("default")).schema.table("t").indexes] == ["i"]
        keeper.cancel()

    sim(main)


def test_an_owner_that_was_replaced_writes_no_version():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        first = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        # It stands still: nobody hears of it, but it lives.
        a.client.down = True
        await asyncio.sleep(10)
        await b.ddl("CREATE TABLE u (a INT64)")
        versions = (await b.store.load("default")).schema.version
        a.client.down = False
        a.work.gate.set()
        await first
        await asyncio.sleep(5)
        assert (await b.store.load("default")).schema.version == versions
        assert [job.state for job in await b.changes.listed("default")] == ["done"] * 3

    sim(main)


def test_a_change_says_whom_it_waits_for_and_which_step_it_is_at():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        await b.leases.current("default")
        cluster.kill("b")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        seen: list[tuple[int, int, str]] = []
        while not a.work.done:
            await asyncio.sleep(0.05)
            jobs = [job for job in await a.changes.listed("default") if not job.ended]
            seen += [(job.step_number, job.steps, job.step) for job in jobs if job.step and job.step not in str(seen)]
        assert [place[:2] for place in seen] == [(2, 3)], seen
        assert re.fullmatch(
            r"waits until all servers have version 3: b \(its lease ends \d\d:\d\d:\d\d UTC\)", seen[0][2]
        )
        await asyncio.sleep(2)
        (job,) = [job for job in await a.changes.listed("default") if not job.ended]
        assert (job.step_number, job.steps, job.step) == (2, 3, "fills and validates: index i")
        a.work.gate.set()
        await task
        (job,) = [job for job in await a.changes.listed("default") if job.what == "CREATE INDEX i"]
        assert job.ended_ts > job.created_ts
        assert job.worked_rows == 1
        assert job.worked_ms >= 2_000


def test_a_cancelled_change_that_is_paused_goes_back_when_it_is_resumed():
    async def main(cluster):
        a = cluster.server("a")
        keeper = asyncio.create_task(a.changes.keep())
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        number = (await a.jobs.running("default")).job.number
        await a.changes.order("default", number, Order.CANCEL)
        await asyncio.sleep(3)
        gate, a.work.gate = a.work.gate, asyncio.Event()
        gate.set()
        while len(a.work.done) < 2:
            await asyncio.sleep(0.001)
        assert [done[0] for done in a.work.done] == ["fill", "remove"]
        await a.changes.order("default", number, Order.PAUSE)
        await a.changes.order("default", number, Order.PAUSE)
        await asyncio.sleep(3)
        a.work.gate.set()
        while (row := await a.jobs.running("default")).job.state != "paused":
            await asyncio.sleep(0.001)
        # To pause what is paused is no order for later.
        assert (await a.changes.order("default", number, Order.PAUSE)).order == row.job.order == ""
        await a.changes.resume("default", number)
        await refused(Code.FAILED_PRECONDITION, a.changes.resume("default", number))
        await refused(Code.CANCELLED, task)
        assert (await a.store.load("default")).schema.table("t").indexes == ()
        keeper.cancel()

    sim(main)


def test_a_change_that_has_not_stopped_yet_goes_on_when_it_is_resumed():
    """Else it would stop after somebody was told that it runs, and wait for ever."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        number = (await a.jobs.running("default")).job.number
        await b.changes.order("default", number, Order.PAUSE)
        assert (await b.changes.resume("default", number)).order is Order.NONE
        await asyncio.sleep(3)
        a.work.gate.set()
        await task
        assert (await a.store.load("default")).schema.table("t").index("i").state is ElementState.PUBLIC

    sim(main)


def test_a_change_that_is_cancelled_is_not_resumed():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        number = (await a.jobs.running("default")).job.number
        error = await refused(Code.FAILED_PRECONDITION, b.changes.resume("default", number))
        assert "is running, it is not paused" in error.message
        await b.changes.order("default", number, Order.CANCEL)
        error = await refused(Code.FAILED_PRECONDITION, b.changes.resume("default", number))
        assert "goes back, it is not paused" in error.message
        await asyncio.sleep(3)
        a.work.gate.set()
        await refused(Code.CANCELLED, task)

    sim(main)


def test_who_waits_for_a_change_is_told_when_that_is_paused():
    """As who comes afterwards: nobody can say for how long it stays so."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        number = (await a.jobs.running("default")).job.number
        waits = [asyncio.create_task(server.ddl("CREATE TABLE waits (a INT64)")) for server in (a, b)]
        await asyncio.sleep(1)
        await b.changes.order("default", number, Order.PAUSE)
        await asyncio.sleep(3)
        a.work.gate.set()
        for waiting in waits:
            error = await refused(Code.FAILED_PRECONDITION, asyncio.wait_for(waiting, 30))
            assert f"f1 schema resume {number}" in error.message
        assert not task.done()
        await b.changes.resume("default", number)
        await task

    sim(main)


def test_a_cancel_is_not_overruled_by_a_pause():
    """Both are ordered before the owner looks: whoever cancelled was told that the change goes back."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        number = (await a.jobs.running("default")).job.number
        for order in (Order.PAUSE, Order.CANCEL, Order.PAUSE):
            await b.changes.order("default", number, order)
        await asyncio.sleep(3)
        a.work.gate.set()
        await refused(Code.CANCELLED, task)
        assert (await a.store.load("default")).schema.table("t").indexes == ()

    sim(main)


def test_an_order_that_comes_while_another_is_obeyed_is_obeyed_too(monkeypatch):
    """The owner has read that it is to pause and writes that it does, when somebody cancels the change."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.gate = asyncio.Event()
        task = asyncio.create_task(a.ddl("CREATE INDEX i ON t (b)"))
        while not a.work.done:
            await asyncio.sleep(0.001)
        number = (await a.jobs.running("default")).job.number
        await b.changes.order("default", number, Order.PAUSE)
        put = a.jobs.put

        async def late(row, job):
            if job.state == "paused":
                monkeypatch.setattr(a.jobs, "put", put)
                await b.changes.order("default", number, Order.CANCEL)
            return await put(row, job)

        monkeypatch.setattr(a.jobs, "put", late)
        await asyncio.sleep(3)
        a.work.gate.set()
        await refused(Code.CANCELLED, task)

    sim(main)


def test_changes_that_begin_at_once_have_numbers_of_their_own(monkeypatch):
    """One is begun and ended by another server between the look for a number and the first write."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        next_number, numbers = a.jobs.next_number, []

        async def slowly(database):
            numbers.append(await next_number(database))
            if len(numbers) == 1:
                await b.ddl("CREATE TABLE other (a INT64)")
            return numbers[-1]

        monkeypatch.setattr(a.jobs, "next_number", slowly)
        await a.ddl("CREATE TABLE t (a INT64)")
        listed = [(job.number, job.what) for job in await b.changes.listed("default")]
        assert listed == [(1, "CREATE TABLE other"), (2, "CREATE TABLE t")]
        assert numbers == [1, 2]

    sim(main)
