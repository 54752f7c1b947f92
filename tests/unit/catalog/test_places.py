"""Copies of the canonical schema in several groups: leases while one group is away, and swaps of all at once."""

import asyncio
import random

import pytest

from f1common.errors import Code, F1Error
from f1server.catalog.codec import decode_schema
from f1server.catalog.leases import SchemaLeases, _Reason
from f1server.catalog.places import PLACES, SYSTEM_TABLE, database_key, lease_range, schema_key
from f1server.catalog.store import SchemaStore
from spanstore.client import Version
from tests.amounts import some
from tests.unit.catalog.servers import LEASE_US
from tests.unit.catalog.test_leases import T, U, check_versions, refused, sim

FIRST, SECOND = PLACES[1:]


def copies(cluster, database="default"):
    return [cluster.storage.newest(schema_key(database, place)) for place in PLACES]


async def worked(cluster, name, leases=5):
    """Use a schema for some leases' time, commit all the time, and return the versions that were used."""
    server, used = cluster.servers[name], set()
    for _ in range(leases * 10):
        async with server.leases.use("default") as leased:
            await server.commit(leased)
            used.add(leased.schema.version)
        await asyncio.sleep(LEASE_US / 10 / 1e6)
    return used


def test_all_copies_are_written_at_once():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        await a.ddl("CREATE DATABASE other")
        for database in ("default", "other"):
            versions = copies(cluster, database)
            assert len(set(versions)) == 1, versions
            rows = [cluster.storage.newest(database_key(database, place)) for place in PLACES]
            assert len(set(rows)) == 1, rows
        await a.ddl("DROP DATABASE other")
        assert {cluster.storage.newest(database_key("other", place)).value for place in PLACES} == {None}
        assert len(set(copies(cluster, "other"))) == 1

    sim(main)


@pytest.mark.parametrize("away", [{SYSTEM_TABLE}, {SYSTEM_TABLE, FIRST}, {FIRST, SECOND}])
def test_servers_keep_their_leases_while_groups_are_away(away):
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        version = (await a.leases.current("default")).schema.version
        a.client.away = away
        assert await worked(cluster, "a") == {version}
        a.client.away = set()
        await a.ddl(U)
        assert await worked(cluster, "a", 1) == {version + 1}

    sim(main)


def test_without_any_copy_there_is_no_lease():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        a.client.away = set(PLACES)
        with pytest.raises(F1Error) as caught:
            await worked(cluster, "a")
        assert caught.value.code in (Code.UNAVAILABLE, Code.FENCED)

    sim(main)


def test_a_lease_that_was_taken_at_a_copy_is_waited_for():
    async def main(cluster):
        a, b = cluster.server("a"), cluster.server("b")
        await a.ddl(T)
        first = (await b.leases.current("default")).schema.version
        cluster.deaf.add("b")
        b.client.away = {SYSTEM_TABLE}
        assert await worked(cluster, "b", 1) == {first}
        await b.leases._acquire("default", _Reason.RENEWAL)
        held = b.leases.status()[0][2]
        b.client.down = True
        await a.ddl(U)
        await a.ddl("DROP TABLE u")
        written = {decode_schema(v.value).version: v.ts for v in cluster.storage.rows[schema_key("default")]}
        assert written[first + 2] > held
        b.client.down = False
        check_versions(cluster)

    sim(main)


def old_cluster(cluster):
    """Take the copies away: as a cluster is that was made before there were any."""
    for place in PLACES[1:]:
        for key in (schema_key("default", place), database_key("default", place)):
            cluster.storage.rows.pop(key, None)


def test_a_cluster_without_copies_gets_them_and_has_no_lease_by_them_before():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        old_cluster(cluster)
        version = (await a.leases.refresh("default")).version
        a.client.away = {SYSTEM_TABLE}
        with pytest.raises(F1Error):
            await worked(cluster, "a")
        a.client.away = set()
        assert await a.store.replicate() == ["default"]
        assert await a.store.replicate() == []
        assert len(set(copies(cluster))) == 1
        assert await worked(cluster, "a", 1) == {version}
        a.client.away = {SYSTEM_TABLE}
        assert await worked(cluster, "a") == {version}

    sim(main)


def test_the_keeper_makes_the_copies():
    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        old_cluster(cluster)
        keeper = asyncio.create_task(a.changes.keep())
        async with asyncio.timeout(60):
            while len(set(copies(cluster))) != 1:
                await asyncio.sleep(0.1)
        keeper.cancel()
        await a.ddl(U)

    sim(main)


def test_a_copy_that_lags_is_never_taken_for_the_newest():
    """No transaction makes one; a server of a version without copies that changes the schema does."""

    async def main(cluster):
        a = cluster.server("a")
        await a.ddl(T)
        older = copies(cluster)[1]
        await a.ddl(U)
        known = await a.store.load("default")
        for version in (older, Version(older.ts, None)):
            cluster.storage.rows[schema_key("default", FIRST)] = [version]
            a.client.away = {SYSTEM_TABLE}
            assert (await a.store.load_any(known, 0.1)).schema == known.schema
            a.client.away = {SYSTEM_TABLE, SECOND}
            await refused(Code.UNAVAILABLE, a.store.load_any(known, 0.1))
        a.client.away = set()
        assert await a.store.replicate() == ["default"]
        assert decode_schema(copies(cluster)[1].value).version == known.schema.version

    sim(main)


def hunt(seed):
    """Servers lose sight of groups, of each other, and of everything, while the schema changes."""

    async def main(cluster):
        rng = random.Random(seed)
        names = ["a", "b", "c"]
        for name in names:
            cluster.server(name)
        ended = asyncio.Event()

        async def work(server):
            while not ended.is_set():
                await asyncio.sleep(rng.random() * 0.05)
                try:
                    async with server.leases.use("default") as leased:
                        await asyncio.sleep(rng.random() * 0.5)
                        await server.commit(leased)
                except F1Error as error:
                    assert error.code in (Code.UNAVAILABLE, Code.FENCED), error

        async def trouble():
            while not ended.is_set():
                server = cluster.servers[rng.choice(names)]
                server.client.away = set(rng.sample(PLACES, rng.choice([1, 1, 1, 2, 3])))
                cluster.deaf.add(server.name)
                await asyncio.sleep(rng.random() * 5)
                server.client.down = rng.random() < 0.3
                await asyncio.sleep(rng.random() * 2)
                server.client.down = False
                server.client.away = set()
                cluster.deaf.discard(server.name)

        async def change():
            while not ended.is_set():
                await asyncio.sleep(rng.random() * 0.3)
                server = cluster.servers[rng.choice(names)]
                task = asyncio.create_task(server.ddl(f"CREATE TABLE t{rng.randrange(10**9)} (a INT)"))
                await asyncio.wait([task], timeout=3.0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        tasks = [asyncio.create_task(work(cluster.servers[name])) for name in names for _ in range(2)]
        tasks += [asyncio.create_task(trouble()) for _ in range(2)]
        tasks.append(asyncio.create_task(change()))
        await asyncio.sleep(60)
        ended.set()
        await asyncio.wait(tasks, timeout=20)
        failed = [t.exception() for t in tasks if t.done() and t.exception()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not failed, failed
        return check_versions(cluster)

    return sim(main, seed)


@pytest.mark.parametrize("seed", some([0], range(1, 10)))
def test_never_are_versions_further_apart_than_neighbours_at_work_while_groups_are_away(seed):
    commits, versions = hunt(seed)
    # That there was something to see: seeds have 5 to 16 versions, as they happen to fall.
    assert commits > 100
    assert versions > 3


def test_a_fence_that_looks_at_leases_of_the_meta_group_only_is_found(monkeypatch):
    original_load, original_leases = SchemaStore._load, SchemaStore.leases

    async def load(self, database, places=PLACES):
        found = await original_load(self, database, places)
        found.leases[:] = [lease for lease in found.leases if lease.place == SYSTEM_TABLE]
        return found

    async def leases(self, database):
        return [lease for lease in await original_leases(self, database) if lease.place == SYSTEM_TABLE]

    monkeypatch.setattr(SchemaStore, "_load", load)
    monkeypatch.setattr(SchemaStore, "leases", leases)
    with pytest.raises(AssertionError, match="a commit under version"):
        for seed in range(6):
            hunt(seed)


def test_leases_are_in_the_groups_of_their_places():
    assert [lease_range("d", place).start < lease_range("e", place).start for place in PLACES] == [True] * 3
    assert SchemaLeases(None, None, server="a", address="a", lease_ms=800)._patience_s == 0.1
