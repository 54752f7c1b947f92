"""Leases on schemas and the fence of schema writes (schema-change paper, section 3), over a store in memory."""

import asyncio
import random
from dataclasses import replace

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema
from f1server.catalog.leases import Leased
from f1server.catalog.places import schema_key
from f1server.catalog.schema import ElementState
from f1server.catalog.store import SchemaStore
from f1server.schemachange.executor import SchemaChanges
from spanstore.testing.sim import run_sim
from tests.amounts import some
from tests.unit.catalog.samples import PROTOS
from tests.unit.catalog.servers import LEASE_US, Cluster

T = "CREATE TABLE t (a INT64 PRIMARY KEY)"
U = "CREATE TABLE u (a INT64 PRIMARY KEY)"


def sim(main, seed=1):
    async def whole(world):
        cluster = Cluster(world)
        try:
            return await main(cluster)
        finally:
            await cluster.close()

    return run_sim(whole, seed)


async def refused(code, awaitable):
    with pytest.raises(F1Error) as caught:
        await awaitable
    assert caught.value.code is code, caught.value
    return caught.value


def test_the_default_database_is_there_and_others_are_made():
    async def main(cluster):
        a = cluster.server("a")
        leased = await a.leases.current("default")
        assert leased.schema.tables == ()
        assert leased.lease_end > cluster.storage.true_us()
        error = await refused(Code.NOT_FOUND, a.leases.current("other"))
        assert "CREATE DATABASE other" in error.message
        await a.ddl("CREATE DATABASE other")
        await a.ddl("CREATE DATABASE IF NOT EXISTS other")
        await refused(Code.ALREADY_EXISTS, a.ddl("CREATE DATABASE other"))
        assert (await a.leases.current("other")).schema.database == "other"
        assert await a.store.databases() == ["default", "other"]
        await refused(Code.INVALID_ARGUMENT, a.ddl("DROP DATABASE default"))

    sim(main)


def test_a_lease_lasts_and_is_renewed():
    async def main(cluster):
        a = cluster.server("a")
        first = await a.leases.current("default")
        for _ in range(40):
            await asyncio.sleep(0.3)
            leased = await a.leases.current("default")
            left = leased.lease_end - cluster.storage.true_us()
            assert LEASE_US * 0.3 < left <= LEASE_US
        assert leased.lease_end > first.lease_end
        rows = await a.store.leases("default")
        assert [(r.server, r.address, r.version) for r in rows] == [("a", "a:7400", 1)]

    sim(main)


def test_commits_that_take_longer_than_a_copy_is_waited_for_give_a_lease_all_the_same(monkeypatch):
    """What a try of its own has left refuses no server: where storage is slow none would ever be ready."""
    write = SchemaStore._write_lease_at

    async def slowly(*args):
        ts = await write(*args)
        await asyncio.sleep(0.2 * LEASE_US / 1e6)
        return ts

    async def main(cluster):
        a = cluster.server("a")
        monkeypatch.setattr(SchemaStore, "_write_lease_at", slowly)
        for _ in range(20):
            assert (await a.leases.current("default")).lease_end > cluster.storage.true_us()
            await asyncio.sleep(0.3)
        await a.ddl(T)
        assert (await a.leases.current("default")).schema.version == 2

    sim(main)


def test_unused_leases_lapse_and_come_back():
    async def main(cluster):
        a = cluster.server("a")
        await a.leases.current("default")
        await asyncio.sleep(200)
        assert a.leases.status() == []
        assert (await a.leases.current("default")).lease_end > cluster.storage.true_us()

    sim(main)


def test_a_server_that_cannot_renew_stops_and_its_commits_are_fenced():
    async def main(cluster):
        a = cluster.server("a")
        leased = await a.leases.current("default")
        await a.commit(leased)
        a.client.down = True
        await asyncio.sleep(LEASE_US / 1e6 * 0.4)
        assert (await a.leases.current("default")).schema.version == leased.schema.version
        last = await a.leases.current("default")
        await asyncio.sleep(LEASE_US / 1e6 + 0.1)
        error = await refused(Code.UNAVAILABLE, a.leases.current("default"))
        assert "no valid lease" in error.message
        a.client.down = False
        await refused(Code.FENCED, a.commit(last))
        assert (await a.leases.current("default")).lease_end > last.lease_end

    sim(main)


def test_a_change_reaches_all_servers_before_it_returns():
    async def main(cluster):
        a, b, c = (cluster.server(name) for name in "abc")
        for server in (a, b):
            async with server.leases.use("default"):
                pass
        started = cluster.world.now_us()
        applied = await a.ddl(T)
        assert cluster.world.now_us() - started < 200_000
        assert applied.schema.version == 2
        for server in (a, b, c):
            async with server.leases.use("default") as leased:
                assert leased.schema.table("t").id == 1
        assert cluster.nudges == ["b"]

    sim(main)


def test_changes_follow_each_other_at_once_if_all_servers_confirm():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        for server in (a, b):
            async with server.leases.use("default"):
                pass
        started = cluster.world.now_us()
        for n in range(10):
            await (a, b)[n % 2].ddl(f"CREATE TABLE t{n} (a INT64 PRIMARY KEY, b INT64)")
        assert cluster.world.now_us() - started < 1_000_000
        schema = (await a.store.load("default")).schema
        drawn = [t.id for t in schema.tables] + [c.id for t in schema.tables for c in t.columns]
        assert sorted(drawn) == list(range(1, 31))

    sim(main)


def test_a_silent_server_is_waited_for_until_its_lease_ends():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        async with b.leases.use("default") as old:
            pass
        cluster.deaf.add("b")
        b.client.down = True
        await a.ddl(T)
        assert cluster.storage.true_us() > old.lease_end
        b.client.down = False
        assert (await b.leases.current("default")).schema.version == 2

    sim(main)


def test_a_dead_server_delays_one_change_only():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        async with b.leases.use("default"):
            pass
        cluster.kill("b")
        await a.ddl(T)
        started = cluster.world.now_us()
        await a.ddl(U)
        assert cluster.world.now_us() - started < 100_000

    sim(main)


def test_a_change_waits_for_work_under_the_old_version():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        done = []

        async def work():
            async with b.leases.use("default") as leased:
                await asyncio.sleep(0.7)
                await b.commit(leased)
                done.append(leased.schema.version)

        started = cluster.world.now_us()
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        change = asyncio.create_task(a.ddl(T))
        await asyncio.sleep(0.3)
        assert not change.done()
        # New work at the same server is under the new version already.
        async with b.leases.use("default") as leased:
            assert leased.schema.version == 2
        await task
        await asyncio.sleep(0.01)
        rows = {row.server: row for row in await a.store.leases("default")}
        assert (rows["b"].version, rows["b"].old_version) == (2, 0), "the end of old work is told at once"
        await change
        assert done == [1]
        assert cluster.world.now_us() - started < 1_000_000

    sim(main)


def test_without_a_word_about_its_end_work_counts_until_its_task_is_over():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")

        async def work(seconds, error=None):
            for _ in range(2):
                await b.leases.current("default")
            await asyncio.sleep(seconds)
            if error is not None:
                raise error

        async def delay_of_a_change(sql, *arguments):
            task = asyncio.create_task(work(*arguments))
            await asyncio.sleep(0.02)
            started = cluster.world.now_us()
            await a.ddl(sql)
            took = (cluster.world.now_us() - started) / LEASE_US
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return took

        assert await delay_of_a_change(T, 0) < 0.1
        assert 0.3 < await delay_of_a_change(U, LEASE_US / 1e6 * 0.4) < 0.6
        assert await delay_of_a_change("DROP TABLE t", 0, F1Error(Code.NOT_FOUND, "nothing happened")) < 0.1
        assert await delay_of_a_change("DROP TABLE u", 0, ValueError("who knows")) > 0.4
        assert 0.4 < await delay_of_a_change(T, LEASE_US / 1e6 * 100) < 1.1

    sim(main)


def test_a_change_does_not_wait_for_the_statement_that_makes_it():
    async def main(cluster):
        a = cluster.server("a")
        started = cluster.world.now_us()
        for sql in (T, U, "DROP TABLE t"):
            await a.leases.current("default")
            await a.ddl(sql)
        assert cluster.world.now_us() - started < 500_000

    sim(main)


def test_work_that_fails_with_an_unknown_end_counts_until_the_lease_ends():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        with pytest.raises(F1Error):
            async with b.leases.use("default") as leased:
                raise F1Error(Code.UNKNOWN_OUTCOME, "a commit without an answer")
        await a.ddl(T)
        assert cluster.storage.true_us() > leased.lease_end
        with pytest.raises(F1Error):
            async with b.leases.use("default") as leased:
                raise F1Error(Code.ABORTED, "nothing happened")
        await a.ddl(U)
        assert cluster.storage.true_us() < leased.lease_end

    sim(main)


def test_renewals_count_for_work_that_is_under_way_and_changes_wait_for_it():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        with pytest.raises(F1Error):
            async with b.leases.use("default") as leased:
                await asyncio.sleep(LEASE_US / 1e6 * 1.6)
                assert cluster.storage.true_us() > leased.lease_end
                deadline = leased.deadline()
                assert deadline > cluster.storage.true_us()
                await b.commit(Leased(leased.schema, deadline))
                raise F1Error(Code.UNKNOWN_OUTCOME, "another commit, without an answer")
        await a.ddl(T)
        assert cluster.storage.true_us() > deadline

    sim(main)


def test_work_under_an_old_version_keeps_the_end_of_the_lease_it_was_given():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        async with b.leases.use("default") as leased:
            change = asyncio.create_task(a.ddl(T))
            await asyncio.sleep(LEASE_US / 1e6 * 0.2)
            assert (await b.leases.current("default")).schema.version > leased.schema.version
            ends = [leased.deadline()]
            await asyncio.sleep(LEASE_US / 1e6 * 0.7)
            ends.append(leased.deadline())
        await change
        assert ends == [leased.lease_end] * 2

    sim(main)


def test_a_restarted_server_speaks_for_what_it_was_before():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        leased = await b.leases.current("default")
        cluster.kill("b")
        again = cluster.server("b")
        change = asyncio.create_task(a.ddl(T))
        await asyncio.sleep(0.1)
        async with again.leases.use("default"):
            pass
        await change
        # A commit that the dead process sent may still arrive: it must not meet version 3.
        assert cluster.storage.true_us() > leased.lease_end

    sim(main)


def test_an_old_version_is_fenced_before_the_version_after_the_next():
    """Without the fence of the schema write, a commit under version 1 could follow version 3."""

    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        old = await b.leases.current("default")
        cluster.deaf.add("b")
        b.client.down = True
        # The first change is written, and its server dies before it has waited for anybody.
        await a.store.write("default", lambda schema, _: bumped(schema))
        c = cluster.server("c")
        await c.store.write("default", lambda schema, _: bumped(schema))
        second = (await c.store.load("default")).schema_ts
        assert second > old.lease_end
        b.client.down = False
        await refused(Code.FENCED, b.commit(old))

    sim(main)


def test_the_fence_holds_even_if_the_clock_of_the_changing_server_lies():
    async def main(cluster):
        a, b = cluster.server("a", error_us=5_000_000), cluster.server("b")
        old = await b.leases.current("default")
        cluster.deaf.add("b")
        for _ in range(2):
            stored, _ = await a.store.write("default", lambda schema, _: bumped(schema))
        assert stored.schema_ts > old.lease_end

    sim(main)


def bumped(schema):
    return replace(schema, version=schema.version + 1)


def test_an_unknown_name_reads_again():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        async with a.leases.use("default"):
            pass
        stored, _ = await b.store.write("default", lambda schema, _: bumped(schema))
        assert (await a.leases.refresh("default")).version == stored.schema.version
        before = len(cluster.storage.commits)
        await a.leases.refresh("default")
        assert len(cluster.storage.commits) == before, "nothing new: nothing is written"

    sim(main)


def test_closing_frees_others_unless_work_may_go_on():
    async def main(cluster):
        a, b, c = (cluster.server(name) for name in "abc")
        async with b.leases.use("default"):
            pass
        await c.leases.current("default")
        await b.leases.close()
        await c.leases.close()
        assert [row.server for row in await a.store.leases("default")] == ["c"]
        await refused(Code.UNAVAILABLE, b.leases.current("default"))

    sim(main)


def test_lost_answers_of_schema_writes_are_asked_for():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl("CREATE TABLE first (a INT64)")
        a.client.lose_answers = 1
        await a.ddl(T)
        a.client.lose_requests = 1
        await a.ddl(U)
        assert [t.name for t in (await a.store.load("default")).schema.tables] == ["first", "t", "u"]
        await refused(Code.ALREADY_EXISTS, a.ddl(U))

    sim(main)


def test_two_changes_at_once_are_both_made():
    async def main(cluster):
        servers = [cluster.server(f"s{n}") for n in range(4)]
        await asyncio.gather(*(s.ddl(f"CREATE TABLE t{n} (a INT64)") for n, s in enumerate(servers)))
        schema = (await servers[0].store.load("default")).schema
        assert [t.name for t in sorted(schema.tables, key=lambda t: t.name)] == ["t0", "t1", "t2", "t3"]
        assert len({t.id for t in schema.tables}) == 4
        assert schema.version == 5

    sim(main)


def test_an_index_is_built_between_write_only_and_public():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        old = await b.leases.current("default")
        await a.ddl("CREATE INDEX i ON t (b)")
        ((work, element, version, at),) = a.work.done
        assert (work, element, version) == ("fill", "index i", old.schema.version + 2)
        assert at > old.lease_end, "the snapshot lies after all that older versions can commit"
        schema = (await b.leases.current("default")).schema
        assert schema.table("t").index("i").state is ElementState.PUBLIC
        await a.ddl("DROP INDEX i")
        assert [done[:2] for done in a.work.done[1:]] == [("remove", "index i")]

    sim(main)


def test_an_index_that_cannot_be_filled_is_removed_again():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        a.work.fail = F1Error(Code.ALREADY_EXISTS, "two rows have b = 1")
        error = await refused(Code.ALREADY_EXISTS, a.ddl("CREATE UNIQUE INDEX i ON t (b)"))
        assert "two rows" in error.message
        assert (await a.store.load("default")).schema.table("t").indexes == ()
        assert a.work.done[-1][:2] == ("remove", "index i")
        a.work.fail = None
        await a.ddl("CREATE UNIQUE INDEX i ON t (b)")

    sim(main)


def test_dropped_databases_are_purged_and_may_come_again():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl("CREATE DATABASE d")
        await a.ddl(T, "d")
        async with b.leases.use("d"):
            pass
        await a.ddl("DROP DATABASE d")
        assert a.work.done == [("purge", ["t"])]
        await refused(Code.NOT_FOUND, b.leases.current("d"))
        await refused(Code.NOT_FOUND, a.ddl(U, "d"))
        await refused(Code.NOT_FOUND, a.ddl("DROP DATABASE d"))
        await a.ddl("DROP DATABASE IF EXISTS d; CREATE DATABASE d")
        schema = (await b.leases.current("d")).schema
        assert (schema.tables, schema.version) == ((), 4)

    sim(main)


def test_sources_are_planned_and_applied():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        sql = [("s.sql", "CREATE TABLE Customer (Id INT64 PRIMARY KEY, Info PROTO<adwords.CustomerInfo>)")]
        planned = await a.changes.apply_sources("default", sql, PROTOS, dry_run=True)
        assert [line for step in planned.steps for line in step.what] == [
            "set the .proto files: adwords.proto",
            "create table Customer",
            "table t: delete-only",
            "table t: dropped",
        ]
        assert (await a.store.load("default")).schema.version == 2
        a.work.full.add("t")
        error = await refused(Code.FAILED_PRECONDITION, a.changes.apply_sources("default", sql, PROTOS))
        assert "--allow-data-loss" in error.message
        applied = await a.changes.apply_sources("default", sql, PROTOS, allow_data_loss=True)
        assert [t.name for t in applied.schema.tables] == ["Customer"]
        again = await a.changes.apply_sources("default", sql, PROTOS)
        assert again.steps == ()
        assert again.schema.version == applied.schema.version
        await a.changes.apply_sources("default", [], [])
        assert (await a.store.load("default")).schema.tables == ()
        bad = [("s.sql", "CREATE DATABASE x")]
        await refused(Code.INVALID_ARGUMENT, a.changes.apply_sources("default", bad, []))

    sim(main)


def versions_at_work(seed, seconds):
    """Servers with skewed clocks work, go deaf, die and change the schema; each commit has its time and version."""

    async def main(cluster):
        rng = random.Random(seed)
        bound = 50_000
        names = ["a", "b", "c"]
        for name in names:
            cluster.server(name, error_us=rng.randrange(-bound, bound), bound_us=bound)
        ended = asyncio.Event()

        async def work(name):
            while not ended.is_set():
                server = cluster.servers[name]
                await asyncio.sleep(rng.random() * 0.05)
                try:
                    if rng.random() < 0.3:
                        leased = await server.leases.current("default")
                        await asyncio.sleep(rng.random() * 3)
                        await server.commit(leased)
                    else:
                        async with server.leases.use("default") as leased:
                            await asyncio.sleep(rng.random() * 0.5)
                            await server.commit(leased)
                except F1Error as error:
                    assert error.code in (Code.UNAVAILABLE, Code.FENCED), error

        async def trouble():
            while not ended.is_set():
                await asyncio.sleep(rng.random() * 3)
                name = rng.choice(names)
                what = rng.random()
                server = cluster.servers[name]
                if what < 0.4:
                    server.client.down = True
                    cluster.deaf.add(name)
                    await asyncio.sleep(rng.random() * 4)
                    server.client.down = False
                    cluster.deaf.discard(name)
                elif what < 0.7:
                    cluster.kill(name)
                    cluster.server(name, error_us=rng.randrange(-bound, bound), bound_us=bound)

        async def change(n):
            while not ended.is_set():
                await asyncio.sleep(rng.random() * 0.5)
                server = cluster.servers[rng.choice(names)]
                task = asyncio.create_task(server.ddl(f"CREATE TABLE t{n}_{rng.randrange(10**9)} (a INT)"))
                await asyncio.wait([task], timeout=rng.choice([0.05, 5.0]))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        tasks = [asyncio.create_task(work(name)) for name in names for _ in range(3)]
        tasks += [asyncio.create_task(trouble()), asyncio.create_task(change(0)), asyncio.create_task(change(1))]
        await asyncio.sleep(seconds)
        ended.set()
        await asyncio.wait(tasks, timeout=10)
        assert not [t for t in tasks if t.done() and t.exception()], [t.exception() for t in tasks if t.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return check_versions(cluster)

    return sim(main, seed)


@pytest.mark.parametrize("seed", some([0, 1, 6], [2, 3, 4, 5, *range(7, 12)]))
def test_never_are_versions_further_apart_than_neighbours_at_work(seed):
    commits, versions = versions_at_work(seed, 60)
    assert commits > 100
    assert versions > 10


def check_versions(cluster):
    """Each data commit under version N lies below the commit of version N + 2."""
    written = {decode_schema(v.value).version: v.ts for v in cluster.storage.rows[schema_key("default")]}
    for ts, version in cluster.data:
        after_next = written.get(version + 2)
        assert after_next is None or ts < after_next, f"a commit under version {version} at {ts}"
    return len(cluster.data), len(written)


def test_a_store_that_ignores_leases_is_caught(monkeypatch):
    """The check above fails if nobody waits for other servers, and schema writes have no fence either."""

    async def hasty(self, database, version, owner=None):
        pass

    async def unfenced(self, fence, writes, expected):
        return await original(self, 0, writes, expected)

    original = SchemaStore._commit_above
    monkeypatch.setattr(SchemaStore, "_commit_above", unfenced)
    monkeypatch.setattr(SchemaChanges, "_converge", hasty)
    with pytest.raises(AssertionError, match="a commit under version"):
        for seed in range(20):
            versions_at_work(seed, 6)  # nobody waits: versions come by the dozen, each larger than the last
