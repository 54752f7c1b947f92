"""Schema leases over simulated spanservers: skewed clocks, a server cut off, killed leaders of the meta group."""

import asyncio

import pytest

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.store import SchemaStore
from f1server.schemachange.executor import SchemaChanges
from f1server.schemachange.jobs.jobs import JobStore
from spanstore.client import Write
from spanstore.testing.cluster import SimCluster
from spanstore.testing.sim import World, WorldConfig

BOUND_US = 20_000


class NoWork:
    async def forget(self, database):
        pass

    async def foresee(self, schema, tasks, watch):
        pass

    async def verify(self, schema, tasks, watch):
        pass

    async def has_rows(self, schema, table, column=None):
        return False

    async def run(self, schema, tasks, watch):
        pass

    async def purge(self, before, tables, indexes):
        pass


class F1:
    """One f1server, as far as the schema goes, on a node of its own."""

    def __init__(self, world, cluster, name, error_us, peers):
        self.env = world.add_client(name)
        self.env.clock.error_us = error_us
        self.client = cluster.client(self.env)
        self.store = SchemaStore(self.client, self.env.clock, asyncio.sleep)
        self.leases = SchemaLeases(self.store, self.env.clock, server=name, address=name)
        self.changes = SchemaChanges(
            self.store,
            JobStore(self.client, self.env.clock),
            self.leases,
            self.env.clock,
            work=NoWork(),
            nudge=self.nudge,
        )
        self.peers = peers
        self.cut = False
        peers[name] = self

    async def nudge(self, address, database, version):
        if self.cut:
            raise F1Error(Code.UNAVAILABLE, "cut off")
        await self.peers[address].do(self.peers[address].leases.catch_up(database, version))

    async def do(self, work):
        return await self.env.spawn(work)

    async def ddl(self, sql):
        return await self.do(self.changes.apply_ddl("default", parse_ddl(sql)))

    async def commit(self, leased):
        return await self.do(self.client.commit([Write(tuples.encode((1, 1)), b"x")], deadline=leased.lease_end))


def play(main, seed):
    world = World(seed, WorldConfig(clock_bound_us=BOUND_US))

    async def whole(world):
        cluster = SimCluster(world)
        cluster.start()
        peers = {}
        slow = F1(world, cluster, "slow", -BOUND_US, peers)
        fast = F1(world, cluster, "fast", BOUND_US, peers)
        await main(world, cluster, slow, fast)

    return world.run(whole)


async def refused(code, awaitable):
    with pytest.raises(F1Error) as caught:
        await awaitable
    assert caught.value.code is code, caught.value


@pytest.mark.parametrize("seed", [1, 2])
def test_changes_reach_both_servers(seed):
    async def main(world, cluster, slow, fast):
        for server in (slow, fast):
            leased = await server.do(server.leases.current("default"))
            await server.commit(leased)
        await slow.ddl("CREATE TABLE t (a INT64 PRIMARY KEY, b INT64)")
        await fast.ddl("CREATE INDEX i ON t (b)")
        for server in (slow, fast):
            schema = (await server.do(server.leases.current("default"))).schema
            assert schema.table("t").index("i")
            assert schema.version == 5

    play(main, seed)


def test_a_server_that_is_cut_off_stops_and_the_others_go_on():
    async def main(world, cluster, slow, fast):
        await slow.do(slow.leases.current("default"))
        old = await fast.do(fast.leases.current("default"))
        fast_commit = fast.commit(old)
        await fast_commit
        world.partition(["fast"])
        slow.cut = True
        await slow.ddl("CREATE TABLE t (a INT64 PRIMARY KEY)")
        await slow.ddl("CREATE TABLE u (a INT64 PRIMARY KEY)")
        assert world.true_ts() > old.lease_end - BOUND_US
        await refused(Code.UNAVAILABLE, fast.do(fast.leases.current("default")))
        world.heal_links()
        await refused(Code.FENCED, fast.commit(old))
        leased = await fast.do(fast.leases.current("default"))
        assert leased.schema.version == 3
        await fast.commit(leased)

    play(main, 3)


def test_leases_survive_the_death_of_the_leader_of_the_meta_group():
    async def main(world, cluster, slow, fast):
        for server in (slow, fast):
            await server.do(server.leases.current("default"))
        for name in ("span-a", "span-b", "span-c"):
            world.crash(name)
            await slow.ddl(f'CREATE TABLE "{name}" (a INT64 PRIMARY KEY)')
            world.restart(name)
            await asyncio.sleep(3)
        schema = (await fast.do(fast.leases.current("default"))).schema
        assert sorted(t.name for t in schema.tables) == ["span-a", "span-b", "span-c"]

    play(main, 4)
