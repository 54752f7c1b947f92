"""The orchestrator as it runs: over the storage tier, with the real services, in simulated worlds with faults.

Three spanservers, two processes of the timestamp service, one lock service and a few clients; leaders of the timestamp
service and spanservers are stopped and killed, the lock service is killed and comes back with nothing. The same checker
as for the protocol alone looks at what the clients saw.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from f1.orchestrator import aio, cells, protocol
from f1.orchestrator.remote import Locks, Timestamps
from f1.orchestrator.steps import Write
from f1.orchestrator.stores.span import SpanStore
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.orchestrator.allocation import AllocationConfig
from f1common.orchestrator.lock_table import LockConfig, LockTable, Mode, WantedLock
from f1common.pb import orchestrator_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from spanstore.client import SpanClient
from spanstore.testing.checkers import SnapshotRange, SnapshotTxn, check_snapshot_isolation, require
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import NodeEnv, World, run_sim
from txservices.locks import LockServicer
from txservices.records import record_over
from txservices.timestamps import TimestampServicer

PORT = 7600
LEASE_MS = 800
LEADERS = ("timestamps-1", "timestamps-2")


class Recorded(SpanStore):
    """Keeps what was decided, also when a sweep has removed it from the transaction table."""

    def __init__(self, decisions: dict[int, int], **options: Any) -> None:
        super().__init__("", **options)
        self._decisions = decisions

    async def put_if_absent(self, write: Write) -> bytes:
        found = await super().put_if_absent(write)
        self._decisions.setdefault(protocol.transaction_of(write.key), protocol.decode_decision(found))
        return found


@dataclass
class Stage:
    """All processes, and what their clients saw."""

    world: World
    leaders: dict[str, TimestampServicer] = field(default_factory=dict)
    locks: dict[str, LockServicer] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)
    history: list[SnapshotTxn] = field(default_factory=list)
    decisions: dict[int, int] = field(default_factory=dict)
    events: int = 0

    async def start(self) -> None:
        self.cluster = SimCluster(self.world, ClusterConfig(servers=3, groups=1))
        self.cluster.start()
        for name in LEADERS:
            self.world.add_node(name, self._timestamps)
        self.world.add_node("locks", self._locks)

    async def _timestamps(self, env: NodeEnv) -> None:
        record, _ = record_over(
            self.cluster.addresses, clock=env.clock, rng=env.rng, channels=ChannelCache(env.channel)
        )
        config = AllocationConfig(300_000, range_size=20)
        servicer = self.leaders[env.name] = TimestampServicer(record, env.clock, config, Metrics())
        server = env.server()
        stubs.add_TimestampsServicer_to_server(servicer, server)
        server.add_insecure_port(env.address(PORT))
        await server.start()
        env.spawn(servicer.run(), "leading")

    async def _locks(self, env: NodeEnv) -> None:
        table = LockTable(LockConfig(LEASE_MS * 1000, 20 * LEASE_MS * 1000), env.rng.getrandbits(60))
        servicer = self.locks[env.name] = LockServicer(table, env.clock, LEASE_MS, Metrics())
        server = env.server()
        stubs.add_LocksServicer_to_server(servicer, server)
        server.add_insecure_port(env.address(PORT))
        await server.start()

    def orchestrator(self, env: NodeEnv, **options: Any) -> aio.Orchestrator:
        channels = ChannelCache(env.channel)
        return aio.Orchestrator(
            Recorded(self.decisions, client=self.cluster.client(env), rng=env.rng),
            Timestamps(",".join(f"{name}:{PORT}" for name in LEADERS), channels=channels, rng=env.rng),
            Locks(f"locks:{PORT}", channels=channels, rng=env.rng),
            rng=env.rng,
            **options,
        )

    def leader(self) -> str | None:
        for name in LEADERS:
            node = self.world.nodes[name]
            if node.running and not node.paused and name in self.leaders and self.leaders[name].leading:
                return name
        return None

    # -- load --

    async def client(self, env: NodeEnv, transactions: int) -> None:
        o = self.orchestrator(env, serializable_tables=["s"])
        rng = env.rng
        for _ in range(transactions):
            self.events += 1
            began = self.events
            table = rng.choice("su")
            try:
                tx = await o.start()
            except F1Error:
                continue
            txn = SnapshotTxn(tx.start_ts, began, serializable=table == "s")
            self.history.append(txn)
            try:
                rows = sorted({rng.randrange(4) for _ in range(2)})
                if rng.random() < 0.3:
                    start = cells.table_prefix(table)
                    seen = [row async for row in tx.get_range(table, batch=rng.choice([1, 3, 100]))]
                    found = tuple((cells.cell_key(table, row.row, "x"), row.columns["x"]) for row in seen)
                    txn.ranges.append(SnapshotRange(start, start + b"\xff", found))
                values = await tx.get_many([(table, row, "x") for row in rows])
                keys = [cells.cell_key(table, row, "x") for row in rows]
                txn.reads += [(key, value or 0) for key, value in zip(keys, values, strict=True)]
                for row in {rng.randrange(4) for _ in range(rng.randrange(3))}:
                    key = cells.cell_key(table, row, "x")
                    txn.writes[key] = rng.random() < 0.8
                    txn.checked.add(key)
                    if txn.writes[key]:
                        tx.set(table, row, "x", tx.start_ts)
                    else:
                        tx.delete(table, row, "x")
                if txn.writes:
                    txn.committed = await tx.commit()
            except F1Error as error:
                assert error.code is not Code.INTERNAL, error
            finally:
                await tx.abort()
            self.events += 1
            txn.ended = self.events
            if rng.random() < 0.05:
                await o.sweep()

    async def faults(self, turns: int) -> None:
        rng = self.world.rng
        for _ in range(turns):
            await asyncio.sleep(rng.random() * 1.5)
            match rng.randrange(6):
                case 0:
                    self.world.crash("locks")
                    await asyncio.sleep(rng.random())
                    self.world.restart("locks")
                case 1 if (name := self.leader()) is not None:
                    self.world.pause(name, rng.randrange(1_500_000))
                case 2 if (name := self.leader()) is not None:
                    self.world.crash(name)
                    await asyncio.sleep(rng.random())
                    self.world.restart(name)
                case 3:
                    name = rng.choice(self.cluster.names)
                    self.world.crash(name)
                    await asyncio.sleep(rng.random())
                    self.world.restart(name)
                case 4:
                    self.world.pause(rng.choice(self.cluster.names), rng.randrange(2_000_000))
                case _:
                    self.world.pause(f"client-{rng.randrange(3)}", rng.randrange(2_000_000))
        self.world.heal()

    async def audit(self, env: NodeEnv) -> dict[int, int]:
        """Return all decisions: the transaction table, and what sweeps have removed from it."""
        store = SpanStore("", client=self.cluster.client(env), rng=env.rng)
        rows = await store.range(b"\x02", b"\x03", protocol.EVERYTHING, 100_000)
        for key, versions in rows:
            self.decisions.setdefault(protocol.transaction_of(key), protocol.decode_decision(versions[0].value))
        return self.decisions


async def play(world: World, turns: int, transactions: int) -> Stage:
    stage = Stage(world)
    await stage.start()
    envs = [world.add_client(f"client-{n}") for n in range(3)]
    load = [env.spawn(stage.client(env, transactions)) for env in envs]
    await stage.faults(turns)
    await asyncio.gather(*load)
    return stage


@pytest.mark.parametrize("seed", range(3))
def test_snapshot_isolation_holds_over_the_storage_tier(seed: int) -> None:
    async def main(world: World) -> int:
        stage = await play(world, 8, 25)
        env = world.add_client("auditor")
        decisions = await env.spawn(stage.audit(env))
        require(check_snapshot_isolation(stage.history, decisions))
        return sum(bool(txn.committed) for txn in stage.history)

    assert run_sim(main, seed) > 5


@pytest.mark.parametrize("seed", range(5))
def test_timestamps_rise_strictly_through_fail_overs(seed: int) -> None:
    async def main(world: World) -> None:
        stage = Stage(world)
        await stage.start()
        env = world.add_client("client-0")
        world.add_client("client-1")
        world.add_client("client-2")
        seen: list[tuple[float, float, int]] = []
        loop = asyncio.get_running_loop()

        async def ask() -> None:
            names = ",".join(f"{name}:{PORT}" for name in LEADERS)
            service = Timestamps(names, channels=ChannelCache(env.channel), rng=env.rng, timeout_s=60.0)
            for _ in range(150):
                began = loop.time()
                ts = await service.next()
                seen.append((began, loop.time(), ts))
                await asyncio.sleep(env.rng.random() * 0.05)

        asking = [env.spawn(ask()) for _ in range(3)]
        await stage.faults(10)
        await asyncio.gather(*asking)
        assert len({ts for _, _, ts in seen}) == len(seen) == 450
        for began, _, ts in seen:
            assert all(other < ts for _, ended, other in seen if ended < began)

    run_sim(main, seed)


def test_the_record_of_timestamps_is_no_load_of_users() -> None:
    async def main(world: World) -> None:
        stage = Stage(world)
        await stage.start()
        env = world.add_client("client-0")
        while stage.leader() is None:
            await asyncio.sleep(0.1)
        written = stage.leaders[stage.leader() or ""]._version
        await asyncio.sleep(20)

        async def ask() -> None:
            channels = ChannelCache(env.channel)
            addresses = stage.cluster.addresses
            client = SpanClient(addresses, clock=env.clock, rng=env.rng, channels=channels, background=True)
            load = await client.foreground()
            assert load.commits < 1 and load.reads < 1, load

        await asyncio.shield(env.spawn(ask()))
        assert stage.leaders[stage.leader() or ""]._version > written, "it has been written all the time"

    run_sim(main, 1)


def test_a_waiting_request_ends_with_its_caller() -> None:
    async def main(world: World) -> None:
        stage = Stage(world)
        await stage.start()
        env, rival = world.add_client("client-0"), world.add_client("client-1")
        wanted = [WantedLock(b"row", Mode.WRITE)]

        async def hold() -> None:
            locks = Locks(f"locks:{PORT}", channels=ChannelCache(env.channel), rng=env.rng)
            token = await locks.acquire(wanted, None, 5.0)
            waiting = asyncio.create_task(locks.acquire(wanted, None, 60.0))
            while stage.locks["locks"].desk.table.counts != (1, 1):
                await asyncio.sleep(0.01)
            waiting.cancel()
            while stage.locks["locks"].desk.table.counts != (1, 0):
                await asyncio.sleep(0.01)
            assert await locks.release([token, token]) == [True, False]

        await asyncio.shield(env.spawn(hold()))

        async def wait() -> None:
            locks = Locks(f"locks:{PORT}", channels=ChannelCache(rival.channel), rng=rival.rng)
            await locks.acquire(wanted, 7, 5.0)
            await locks.acquire(wanted, None, 60.0)

        rival.spawn(wait())
        while stage.locks["locks"].desk.table.counts != (1, 1):
            await asyncio.sleep(0.01)
        world.crash("client-1")
        while stage.locks["locks"].desk.table.counts[1]:
            await asyncio.sleep(0.01)

    run_sim(main, 1)


def test_bad_requests_are_refused() -> None:
    async def main(world: World) -> None:
        stage = Stage(world)
        await stage.start()
        env = world.add_client("client-0")

        async def work() -> None:
            locks = Locks(f"locks:{PORT}", channels=ChannelCache(env.channel), rng=env.rng)
            for bad in (
                [WantedLock(b"b", Mode.READ), WantedLock(b"a", Mode.READ)],
                [WantedLock(b"a", Mode.READ), WantedLock(b"a", Mode.WRITE)],
                [WantedLock(b"", Mode.READ)],
            ):
                with pytest.raises(F1Error) as caught:
                    await locks.acquire(bad, None, 5.0)
                assert caught.value.code is Code.INVALID_ARGUMENT
            for wrong in ("", "nowhere", "a:1,b:2"):
                with pytest.raises(F1Error):
                    Locks(wrong)

        await asyncio.shield(env.spawn(work()))

    run_sim(main, 1)
