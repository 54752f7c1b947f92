"""Transactions on a simulated cluster: the real servers, streams and client, somebody dies at the worst moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import ExpectAbsent, ExpectVersion, KeyRange, SpanClient, Transaction, Write
from spanstore.client.router import Router
from spanstore.client.twophase import txn_ref
from spanstore.testing.cluster import SimCluster
from spanstore.testing.sim import World, run_sim

T = TypeVar("T")

ONE, TWO = tuples.encode((1, 1)), tuples.encode((2, 1))
"""Keys in two groups."""


def play(main: Callable[[World, SimCluster, SpanClient], Awaitable[T]], seed: int = 1) -> T:
    async def whole(world: World) -> T:
        cluster = SimCluster(world)
        cluster.start()
        env = world.add_client("client")

        async def work() -> T:
            client = cluster.client(env)
            await cluster.settle(client)
            found = await client.range_map()
            assert found.group_of(ONE) != found.group_of(TWO)
            result = await main(world, cluster, client)
            await client.close()
            return result

        return await env.spawn(work())

    result: T = run_sim(whole, seed)
    return result


async def values(client: SpanClient) -> list[bytes | None]:
    return (await client.read([ONE, TWO])).values()


async def leader_of(client: SpanClient, key: bytes) -> str:
    group = (await client.range_map()).group_of(key)
    for reply in (await client.status()).values():
        if isinstance(reply, F1Error):
            continue
        for status in reply.groups:
            if status.group == group and status.role == "leader" and status.lease_valid:
                return reply.name
    raise AssertionError(f"nobody leads group {group}")


class Driver:
    """Sends the messages of one two-group commit by hand, so that it can die in between."""

    def __init__(self, client: SpanClient, router: Router, value: bytes) -> None:
        self.client = client
        self.router = router
        self.value = value
        self.id = client.new_commit_id(ONE)
        self.prepare_ts = 0
        self.coordinator: int | None = None

    def work(self, key: bytes) -> pb.TxnWork:
        return pb.TxnWork(
            txn=txn_ref(self.id, 1),
            priority_ts=self.id.created_ts,
            writes=[pb.Write(key=key, value=self.value, key_offset=-1)],
            deadline=self.id.created_ts + 30_000_000,
        )

    async def prepare(self) -> None:
        ranges = await self.client.range_map()
        body = pb.Prepare(work=self.work(TWO), coordinator_group=self.coordinator or ranges.group_of(ONE))
        reply = await self.router.send(ranges.group_of(TWO), lambda: pb.Request(prepare=body), 5.0)
        self.prepare_ts = reply.prepare.prepare_ts

    async def commit(self) -> int:
        ranges = await self.client.range_map()
        participants = [pb.PreparedIn(group=ranges.group_of(TWO), prepare_ts=self.prepare_ts)]
        body = pb.Commit(work=self.work(ONE), participants=participants)
        return int((await self.router.send(ranges.group_of(ONE), lambda: pb.Request(commit=body), 5.0)).commit.ts)


def driver(client: SpanClient, value: bytes) -> Driver:
    return Driver(client, client._router, value)


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("killed", ["nobody", "participant", "coordinator"])
def test_driver_dies_between_prepare_and_decision(decided: bool, killed: str) -> None:
    """The locks are gone within a bound, and the outcome is one and the same everywhere."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"old"), Write(TWO, b"old")])
        dying = driver(client, b"new")
        await dying.prepare()
        if decided:
            await dying.commit()
        if killed != "nobody":
            name = await leader_of(client, TWO if killed == "participant" else ONE)
            world.crash(name)
        before = world.now_us()
        ts = await client.commit([Write(TWO, b"later")], timeout_s=20.0)
        assert world.now_us() - before < 8_000_000
        if killed != "nobody":
            world.restart(name)
        want = b"new" if decided else b"old"
        assert await values(client) == [want, b"later"]
        told = await client.outcome(dying.id)
        assert told.committed is decided
        snapshot = await client.read([ONE, TWO], timestamp=(told.ts if decided else ts - 1))
        assert snapshot.values() == [want, want]
        if not decided:
            with pytest.raises(F1Error) as caught:
                await dying.commit()
            assert caught.value.code is Code.ABORTED

    play(main)


def test_prepare_that_names_a_coordinator_that_does_not_exist_is_resolved_by_its_anchor() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        dying = driver(client, b"new")
        dying.coordinator = 999
        await dying.prepare()
        await client.commit([Write(TWO, b"later")], timeout_s=20.0)
        assert (await client.outcome(dying.id)).committed is False

    play(main)


def test_named_commit_over_two_groups_sent_again_returns_the_same_timestamp() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        name = client.new_commit_id(ONE)
        writes = [Write(ONE, b"1"), Write(TWO, b"2")]
        ts = await client.commit(writes, commit_id=name)
        for _ in range(3):
            assert await client.commit(writes, commit_id=name) == ts
            await asyncio.sleep(0.3)
        both = await asyncio.gather(*(client.commit(writes, commit_id=name) for _ in range(5)))
        assert set(both) == {ts}
        assert await values(client) == [b"1", b"2"]

    play(main)


@pytest.mark.parametrize("seed", range(6))
def test_two_drivers_of_one_named_commit_agree(seed: int) -> None:
    """Both begin it at once, one of them against a precondition that fails for whoever comes second."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        for n in range(8):
            keys = [tuples.encode((1, n)), tuples.encode((2, n))]
            name = client.new_commit_id(keys[0])
            writes = [Write(key, b"v%d" % n) for key in keys]
            tests = [ExpectAbsent(key) for key in keys]
            results = await asyncio.gather(
                *(client.commit(writes, tests, commit_id=name) for _ in range(3)), return_exceptions=True
            )
            told = await client.outcome(name)
            await asyncio.sleep(0.5)
            found = (await client.read(keys)).values()
            assert found == ([b"v%d" % n] * 2 if told.committed else [None, None])
            stamps = {r for r in results if isinstance(r, int)}
            assert stamps <= {told.ts}
            for failure in (r for r in results if isinstance(r, F1Error)):
                # Whoever is told that nothing happened must not find that it did.
                assert not told.committed or failure.ambiguous, (failure, told)

    play(main, seed)


@pytest.mark.parametrize("seed", range(4))
def test_write_skew_over_two_groups_when_the_readers_leader_dies(seed: int) -> None:
    """Each reads both and writes one if both are there: at most one row may go."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"on"), Write(TWO, b"on")])

        async def leave(mine: bytes) -> None:
            async def work(tx: Transaction) -> None:
                if (await tx.read([ONE, TWO])).values() == [b"on", b"on"]:
                    await asyncio.sleep(0.05)
                    tx.write(mine, b"off")

            await client.run(work)

        first, second = asyncio.create_task(leave(ONE)), asyncio.create_task(leave(TWO))
        await asyncio.sleep(0.04 + 0.01 * seed)
        victim = await leader_of(client, ONE if seed % 2 else TWO)
        world.crash(victim)
        await asyncio.gather(first, second)
        world.restart(victim)
        assert sorted(v or b"" for v in await values(client)) == [b"off", b"on"]

    play(main, seed)


def test_counter_is_exact_while_connections_break() -> None:
    """Sixteen tasks increment one row of each group together; each success that was told is counted, and no other."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"0"), Write(TWO, b"0")])
        done = 0

        async def increment() -> None:
            nonlocal done

            async def work(tx: Transaction) -> None:
                read = await tx.read([ONE, TWO], exclusive=True)
                for key, value in zip((ONE, TWO), read.values(), strict=True):
                    tx.write(key, b"%d" % (int(value or b"0") + 1))

            for _ in range(3):
                await client.run(work, attempts=200)
                done += 1

        async def breaker() -> None:
            for n in range(12):
                await asyncio.sleep(0.15)
                world.reset_links("client", cluster.names[n % 3])

        await asyncio.gather(breaker(), *(increment() for _ in range(16)))
        assert done == 48
        assert await values(client) == [b"48", b"48"]

    play(main)


def test_safe_time_goes_on_while_a_transaction_stays_open() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        tx = client.transaction()
        await tx.read([ONE, TWO], exclusive=True)
        for _ in range(20):
            await asyncio.sleep(0.4)
            assert world.true_ts() - await client.safe_time() < 1_000_000
        await tx.rollback()

    play(main)


def test_range_of_several_groups_is_read_at_one_moment() -> None:
    """A transfer between groups goes on: every reader sees the same sum, whether it locks or reads a snapshot."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        keys = [tuples.encode((table, n)) for table in (1, 2) for n in range(4)]
        await client.commit([Write(key, b"10") for key in keys])
        stop = False

        async def transfer() -> None:
            turn = 0
            while not stop:
                turn += 1
                giver, taker = keys[turn % 4], keys[4 + turn % 3]

                async def work(tx: Transaction, giver: bytes = giver, taker: bytes = taker) -> None:
                    read = await tx.read([giver, taker], exclusive=True)
                    low, high = (int(v or b"0") for v in read.values())
                    tx.write(giver, b"%d" % (low - 1))
                    tx.write(taker, b"%d" % (high + 1))

                await client.run(work)

        writer = asyncio.create_task(transfer())
        everything = [KeyRange(tuples.encode((1,)), tuples.encode((3,)))]
        for _ in range(20):
            snapshot = await client.read(ranges=everything)
            assert sum(int(row.value) for row in snapshot.ranges[0]) == 80
            assert {row.key for row in snapshot.ranges[0]} == set(keys)

            async def look(tx: Transaction) -> int:
                read = await tx.read(ranges=everything)
                return sum(int(row.value) for row in read.ranges[0])

            assert await client.run(look) == 80
        stop = True
        await writer

    play(main)


def test_version_precondition_across_groups_lets_one_of_two_through() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        ts = await client.commit([Write(ONE, b"0"), Write(TWO, b"0")])
        tests = [ExpectVersion(ONE, ts), ExpectVersion(TWO, ts)]
        results = await asyncio.gather(
            *(client.commit([Write(ONE, b"%d" % n), Write(TWO, b"%d" % n)], tests) for n in (1, 2, 3)),
            return_exceptions=True,
        )
        winners = [n for n, r in enumerate(results, 1) if isinstance(r, int)]
        assert len(winners) <= 1
        want = b"%d" % winners[0] if winners else b"0"
        assert await values(client) == [want, want]
        assert all(isinstance(r, int) or (isinstance(r, F1Error) and r.code is Code.ABORTED) for r in results)

    play(main)
