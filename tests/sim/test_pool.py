"""Master, slaves and the pools of f1servers in simulated worlds: what dies, hangs, is cut off and comes back.

One slave is never touched, nor is its link to the master: it must never be missing at an f1server that has once seen
it, whatever happens to masters, other slaves and the links of f1servers. Once nothing has happened for a while, every
pool holds exactly the slaves that work.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from f1common.config import (
    ClockSection,
    ClusterGroup,
    ClusterRange,
    ClusterSection,
    ClusterServer,
    Config,
    MasterSection,
    ServerSection,
)
from f1common.rpc.channels import ChannelCache
from f1server.dist.pool import SlavePool
from master.process import MasterProcess
from slavepool.process import SlaveProcess
from spanstore.testing.sim import NodeEnv, World, simulate

PORT = 7500
STEADY = "slave-0"
SLAVES = [STEADY, "slave-1", "slave-2"]
SERVERS = ["f1-a", "f1-b"]
# A connection that stands still is given up within four seconds, after which there are back-offs.
QUIET_S = 16.0
CLUSTER = ClusterSection(
    cluster_id="sim",
    servers=(ClusterServer(name="span-a1", zone="a", address="span-a1:1"),),
    groups=(ClusterGroup(id=0, voters=("span-a1",)),),
    ranges=(ClusterRange(start="", group=0),),
    master=f"master:{PORT}",
)


@dataclass
class Pool:
    """All processes of one world, and whom they are known to."""

    world: World
    pools: dict[str, SlavePool] = field(default_factory=dict)
    slaves: dict[str, SlaveProcess] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    async def start(self) -> None:
        self.world.add_node("master", self._master)
        for name in SLAVES:
            self.world.add_node(name, self._slave)
        for name in SERVERS:
            self.world.add_node(name, self._f1server)
        await asyncio.sleep(0.001)

    async def _master(self, env: NodeEnv) -> None:
        process = MasterProcess(MasterSection(), env.clock)
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(PORT))
        await server.start()

    async def _slave(self, env: NodeEnv) -> None:
        config = Config(
            server=ServerSection(name=env.name, zone="a", port=PORT, data_dir="sim"),
            clock=ClockSection(),
            cluster=CLUSTER,
        )
        process = SlaveProcess(config, env.clock, ChannelCache(env.channel), env.rng, inline=True)
        self.slaves[env.name] = process
        server = env.server()
        await process.start(server)
        server.add_insecure_port(env.address(PORT))
        await server.start()
        process.announce(env.address(PORT))

    async def _f1server(self, env: NodeEnv) -> None:
        pool = SlavePool(
            CLUSTER.master, server=env.name, clock=env.clock, channels=ChannelCache(env.channel), rng=env.rng
        )
        self.pools[env.name] = pool
        self.seen.discard(env.name)  # a new f1server knows nobody
        pool.start()

    def running(self, name: str) -> bool:
        node = self.world.nodes[name]
        return node.running and not node.paused

    def live(self, server: str) -> dict[str, int]:
        return {slave.name: slave.incarnation for slave in self.pools[server].live()}

    def check_steady(self) -> None:
        """The slave that nothing happens to is in every pool that has seen it."""
        for server in SERVERS:
            if not self.running(server):
                continue
            found = STEADY in self.live(server)
            assert found or server not in self.seen, (server, self.pools[server].status())
            if found:
                self.seen.add(server)

    def settled(self) -> bool:
        """Whether all pools hold the slaves that work, in the runs that they are in."""
        expected = {name: self.slaves[name].incarnation for name in SLAVES if self.running(name)}
        return all(self.live(server) == expected for server in SERVERS if self.running(server))


async def until(condition: Callable[[], bool], seconds: float, check: Callable[[], None] = lambda: None) -> bool:
    """Wait in virtual time, checking all along."""
    for _ in range(int(seconds / 0.05)):
        check()
        if condition():
            return True
        await asyncio.sleep(0.05)
    return condition()


def strike(pool: Pool, rng: random.Random) -> None:
    """Do one thing, or undo what was done."""
    world = pool.world
    anybody = rng.choice(["master", *SLAVES[1:], *SERVERS])
    match rng.choice(["crash", "power", "pause", "cut", "reset", "return", "return"]):
        case "crash":
            world.crash(anybody)
        case "power":
            world.crash(anybody, silent=True)
        case "pause":
            world.pause(anybody, rng.choice([400_000, 1_200_000, 3_000_000, 9_000_000]))
        case "cut":
            other = rng.choice([name for name in ("master", *SLAVES[1:], *SERVERS) if name != anybody])
            world.cut(anybody, other)
            if rng.random() < 0.5:
                world.cut(other, anybody)
        case "reset":
            world.reset_links("master", rng.choice([*SLAVES[1:], *SERVERS]))
        case _:
            world.restart(anybody)
            world.resume(anybody)
            if rng.random() < 0.5:
                world.heal_links()


async def play(world: World, seed: int) -> int:
    """Let things happen, then nothing, several times over."""
    rng = random.Random(seed)
    pool = Pool(world)
    await pool.start()
    assert await until(pool.settled, QUIET_S, pool.check_steady)
    events = 0
    for _ in range(3):
        for _ in range(rng.randrange(3, 12)):
            strike(pool, rng)
            events += 1
            await until(lambda: False, rng.choice([0.05, 0.3, 1.5, 4.0]), pool.check_steady)
        # The master and the links come back, the slaves and f1servers stay as they are.
        world.heal_links()
        world.restart("master")
        world.resume("master")
        assert await until(pool.settled, QUIET_S, pool.check_steady), {n: p.status() for n, p in pool.pools.items()}
        # A pause of the plan may end meanwhile; whoever returns is found as well.
    world.heal()
    assert await until(pool.settled, QUIET_S, pool.check_steady)
    assert all(set(pool.live(server)) == set(SLAVES) for server in SERVERS)
    return events


@pytest.mark.parametrize("seed", range(24))
def test_pools_hold_the_slaves_that_work(seed: int) -> None:
    assert simulate(lambda world: play(world, seed), seed).value >= 9


def test_same_seed_is_the_same_run() -> None:
    runs = [simulate(lambda world: play(world, 5), 5).trace_hash for _ in range(2)]
    assert runs[0] == runs[1]


async def hang(world: World) -> None:
    pool = Pool(world)
    await pool.start()
    assert await until(pool.settled, QUIET_S)
    world.pause("slave-1")
    assert await until(pool.settled, 1.5), "a hung slave is out of the pools within suspect_ms and a beat"
    world.crash("master")
    world.crash("slave-2")
    await asyncio.sleep(60)
    for server in SERVERS:
        assert set(pool.live(server)) == {STEADY, "slave-2"}, "without a master the last list is kept"
        run = pool.live(server)["slave-2"]
        pool.pools[server].suspect("slave-2", run, "no answer")
        assert set(pool.live(server)) == {STEADY}
    await asyncio.sleep(4.9)
    assert set(pool.live("f1-a")) == {STEADY}
    await asyncio.sleep(0.2)
    assert set(pool.live("f1-a")) == {STEADY, "slave-2"}, "without news it is tried again after a while"
    world.restart("master")
    world.restart("slave-2")
    world.resume("slave-1")
    assert await until(pool.settled, QUIET_S)
    assert set(pool.live("f1-a")) == set(SLAVES)


@pytest.mark.parametrize("seed", range(5))
def test_a_hung_slave_is_avoided_with_and_without_a_master(seed: int) -> None:
    simulate(hang, seed)


async def two_of_a_name(world: World) -> None:
    pool = Pool(world)
    await pool.start()
    assert await until(pool.settled, QUIET_S)
    await asyncio.sleep(1)
    first = pool.slaves["slave-1"]

    async def impostor(env: NodeEnv) -> None:
        config = Config(
            server=ServerSection(name="slave-1", zone="a", port=PORT, data_dir="sim"),
            clock=ClockSection(),
            cluster=CLUSTER,
        )
        process = SlaveProcess(config, env.clock, ChannelCache(env.channel), env.rng, inline=True)
        pool.slaves["slave-1"] = process
        process.announce(env.address(PORT))

    world.add_node("elsewhere", impostor)
    async with asyncio.timeout(2):
        await first.replaced()
    assert await until(pool.settled, 1), "the later one is in the pools"
    for _ in range(20):
        await asyncio.sleep(0.3)
        assert pool.settled(), "and stays, although the earlier one beats on"


def test_of_two_slaves_with_one_name_the_earlier_is_told_to_end() -> None:
    simulate(two_of_a_name, 1)


async def drain(world: World) -> None:
    pool = Pool(world)
    await pool.start()
    assert await until(pool.settled, QUIET_S)
    process = pool.slaves["slave-1"]
    await process.drain()
    gone = lambda: all("slave-1" not in pool.live(server) for server in SERVERS)  # noqa: E731
    assert await until(gone, 0.2), "no new query comes"
    await process.stop()
    named = lambda: {s.name for p in pool.pools.values() if (found := p.status()) for s in found.slaves}  # noqa: E731
    assert await until(lambda: "slave-1" not in named(), 0.5), "and the master forgets it without waiting"


def test_a_slave_that_drains_leaves_at_once() -> None:
    simulate(drain, 1)
