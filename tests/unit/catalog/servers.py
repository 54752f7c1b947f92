"""f1servers as far as the schema goes, in virtual time: leases, changes, and data work that only takes notes."""

import asyncio

from f1common.errors import Code, F1Error
from f1server.catalog.ddl import parse_ddl
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.store import SchemaStore
from f1server.schemachange.executor import SchemaChanges
from f1server.schemachange.jobs.jobs import JobStore
from f1server.schemachange.steps.states import Work
from spanstore.client import Write
from spanstore.testing.sim.clocks import SimClock
from tests.unit.catalog.fakes import FakeStorage

LEASE_US = 2_000_000


class Notes:
    """Data work that notes what it was asked to do, and when."""

    def __init__(self, server):
        self.server = server
        self.done = []
        self.full = set()
        self.fail = None
        self.gate = None

    async def forget(self, database):
        pass

    async def foresee(self, schema, tasks, watch):
        pass

    async def verify(self, schema, tasks, watch):
        pass

    async def has_rows(self, schema, table, column=None):
        return table.name in self.full

    async def run(self, schema, tasks, watch):
        at_us = self.server.cluster.storage.true_us()
        self.done += [(task.work.value, str(task.element), schema.version, at_us) for task in tasks]
        await asyncio.sleep(0.01)
        if self.gate is not None:
            await self.gate.wait()
        await watch(1, 0)
        if self.fail is not None and any(task.work is not Work.REMOVE for task in tasks):
            raise self.fail

    async def purge(self, before, tables):
        self.done.append(("purge", [t.name for t in tables]))


class Server:
    """One f1server."""

    def __init__(self, cluster, name, *, error_us=0, bound_us=0):
        self.cluster = cluster
        self.name = name
        world = cluster.world
        self.clock = SimClock(
            lambda: world.loop.now_us,
            epoch_us=world.true_ts() - world.loop.now_us,
            error_us=error_us,
            bound_us=bound_us,
        )
        self.client = cluster.storage.client()
        self.store = SchemaStore(self.client, self.clock, asyncio.sleep)
        self.leases = SchemaLeases(self.store, self.clock, server=name, address=f"{name}:7400")
        self.work = Notes(self)
        self.jobs = JobStore(self.client, self.clock)
        self.changes = SchemaChanges(
            self.store, self.jobs, self.leases, self.clock, work=self.work, nudge=cluster.nudge
        )

    async def ddl(self, sql, database="default"):
        return await self.changes.apply_ddl(database, parse_ddl(sql))

    async def commit(self, leased, key=b"\x99x"):
        """What a data commit does: its deadline is the end of the lease."""
        ts = await self.client.commit([Write(key, b"v")], deadline=leased.lease_end)
        self.cluster.data.append((ts, leased.schema.version))
        return ts


class Cluster:
    """Some servers over one store."""

    def __init__(self, world):
        self.world = world
        self.storage = FakeStorage(world.true_ts)
        self.servers = {}
        self.deaf = set()
        self.nudges = []
        self.data = []

    def server(self, name, **clock):
        self.servers[name] = Server(self, name, **clock)
        return self.servers[name]

    async def nudge(self, address, database, version):
        name = address.split(":")[0]
        self.nudges.append(name)
        await asyncio.sleep(0.001)
        if name in self.deaf or name not in self.servers:
            await asyncio.sleep(0.5)
            raise F1Error(Code.UNAVAILABLE, f"{name} does not answer")
        await self.servers[name].leases.catch_up(database, version)

    def kill(self, name):
        """The process ends without a word."""
        server = self.servers.pop(name)
        for task in (server.leases._task, *server.changes._mine.values()):
            if task is not None:
                task.cancel()

    async def close(self):
        for server in self.servers.values():
            await server.leases.close()
