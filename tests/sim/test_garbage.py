"""Garbage collection and reads of the past on simulated clusters, with windows so short that they pass in a test."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from f1common.config import PaxosSection, StorageSection
from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.errors import Code, F1Error
from f1common.pb import spanstore_pb2 as pb
from spanstore.client import ExpectUnchanged, KeyRange, ScanColumn, ScanSource, SpanClient, Transaction, Write
from spanstore.client.router import Router
from spanstore.client.twophase import txn_ref
from spanstore.group.garbage import Collected
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.mutations import garbage
from spanstore.testing.sim import World, WorldConfig, run_sim
from spanstore.testing.sim.net import NetConfig

T = TypeVar("T")

ONE, TWO = tuples.encode((1, 1)), tuples.encode((2, 1))
"""Keys in groups 1 and 2."""
APART = {0: (0, 1, 2), 1: (0, 1, 2), 2: (3, 4, 5)}
"""Group 2 has servers of its own, so that it can be down while the rest works."""
HOUR_MS = 3_600_000

Main = Callable[[World, SimCluster, SpanClient], Awaitable[T]]


def play(
    main: Main[T],
    seed: int = 1,
    *,
    version_ms: int = HOUR_MS,
    outcome_ms: int = HOUR_MS,
    zone: str = "",
    net: NetConfig | None = None,
    **shape: Any,
) -> T:
    storage = StorageSection(version_keep_ms=version_ms, outcome_keep_ms=outcome_ms, txn_idle_ms=10_000)

    async def whole(world: World) -> T:
        cluster = SimCluster(world, ClusterConfig(storage=storage, **shape))
        cluster.start()
        env = world.add_client("client")

        async def work() -> T:
            client = cluster.client(env, zone=zone)
            await cluster.settle(client)
            result = await main(world, cluster, client)
            await client.close()
            return result

        return await env.spawn(work())

    result: T = run_sim(whole, seed, WorldConfig(net=net or NetConfig(), limit_us=3_600_000_000))
    return result


def collected(cluster: SimCluster, group: int) -> Collected:
    """What the replica that is furthest along has collected."""
    return max((g.state.collected for _, g in cluster.replicas(group)), key=lambda c: (c.mark_ts, c.ended_ts))


def leader(cluster: SimCluster, group: int) -> str:
    (name,) = [name for name, replica in cluster.replicas(group) if replica.is_serving_leader()]
    return name


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    for _ in range(int(within_s / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still not so after {within_s} s")


async def put(client: SpanClient, values: dict[bytes, bytes]) -> None:
    """Commit, again if something else was in the way."""

    async def write(tx: Transaction) -> None:
        for key, value in values.items():
            tx.write(key, value)

    await client.run(write)


def versions(cluster: SimCluster, name: str, group: int, key: bytes) -> int:
    prefix = group.to_bytes(2, "big") + b"\x10" + key + b"\x00"
    return sum(found.startswith(prefix) and len(found) == len(prefix) + 8 for found in cluster.state(name, group))


# ---------------------------------------------------------------------- versions and pins


def test_old_versions_go_and_reads_below_the_mark_are_refused_everywhere() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        stamps = [await client.commit([Write(ONE, b"%d" % n)]) for n in range(30)]
        await until(lambda: versions(cluster, "span-a", 1, ONE) == 1)
        await until(lambda: len({g.state.collected.mark_ts for _, g in cluster.replicas(1)}) == 1)
        mark = collected(cluster, 1).mark_ts
        assert mark > stamps[-2]
        for anywhere in (False, True):
            for ranges in ([], [KeyRange(ONE, TWO)]):
                with pytest.raises(F1Error) as caught:
                    await client.read([ONE], ranges, timestamp=stamps[3], anywhere=anywhere)
                assert caught.value.code is Code.SNAPSHOT_TOO_OLD
                assert caught.value.details["mark"] == str(mark)
            assert (await client.read([ONE], timestamp=mark, anywhere=anywhere)).values() == [b"29"]
        scan = client.scan([KeyRange(ONE, TWO)], [ScanColumn("k", "BYTES", ScanSource.RAW_KEY)], timestamp=stamps[3])
        with pytest.raises(F1Error) as caught:
            await scan.read_all()
        assert caught.value.code is Code.SNAPSHOT_TOO_OLD

    play(main, version_ms=1_000)


def test_deleted_rows_go_altogether_and_do_not_come_back() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"1")])
        await client.commit([Write(ONE, None)])
        await until(lambda: versions(cluster, "span-a", 1, ONE) == 0, 5.0)
        found = await client.read([ONE], [KeyRange(ONE, TWO)])
        assert (found.versions, found.ranges) == ([None], [[]])

    play(main, version_ms=500)
    with garbage.delete_before_the_rest(), pytest.raises(AssertionError):
        play(main, version_ms=500)


@pytest.mark.parametrize("broken", [False, True])
def test_a_range_that_lost_its_deletes_is_not_called_unchanged(broken: bool) -> None:
    """Read before the delete, tested after its tombstone is collected: only the mark tells what may be gone."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"1")])
        since = (await client.read([ONE])).timestamp
        await client.commit([Write(ONE, None)])
        await until(lambda: versions(cluster, "span-a", 1, ONE) == 0)
        with pytest.raises(F1Error) as caught:
            await client.commit([Write(ONE, b"2")], [ExpectUnchanged(ONE, ONE + b"\x01", since)])
        assert caught.value.code is Code.ABORTED
        assert caught.value.retryable
        fresh = (await client.read([ONE])).timestamp
        await client.commit([Write(ONE, b"3")], [ExpectUnchanged(ONE, ONE + b"\x01", fresh)])

    if broken:
        with garbage.unchanged_below_the_mark(), pytest.raises(pytest.fail.Exception):
            play(main, version_ms=500)
    else:
        play(main, version_ms=500)


async def slow_scan(world: World, cluster: SimCluster, client: SpanClient) -> list[bytes]:
    """Scan rows one by one, slower than versions are kept, while all of them are written again and again."""
    keys = [tuples.encode((1, n)) for n in range(40)]
    ts = await client.commit([Write(key, encode_row({1: b"old" + bytes(2_000)})) for key in keys])
    columns = [ScanColumn("v", "BYTES", ScanSource.CELL, 1)]
    scan = client.scan([KeyRange(keys[0], tuples.encode((2,)))], columns, timestamp=ts, batch_rows=1, timeout_s=8.0)
    found = []
    async for batch in scan:
        found += batch.column(0).to_pylist()
        await client.commit([Write(key, encode_row({1: b"new" + bytes(2_000)})) for key in keys])
        await asyncio.sleep(0.1)
    assert len(found) == len(keys), "rows are missing"
    assert all(value.startswith(b"old") for value in found), "rows of later commits"
    return found


@pytest.mark.parametrize("broken", [False, True])
def test_a_scan_that_takes_longer_than_versions_are_kept_is_refused_in_its_middle(broken: bool) -> None:
    if broken:
        # Neither in the views nor where the timestamp is settled, which a scan that was broken off does again.
        with garbage.scan_below_the_mark(), garbage.read_below_the_mark(), pytest.raises(AssertionError, match="rows"):
            play(slow_scan, version_ms=300, net=NetConfig(window_bytes=10_000))
        return
    with pytest.raises(F1Error) as caught:
        play(slow_scan, version_ms=300, net=NetConfig(window_bytes=10_000))
    assert caught.value.code is Code.SNAPSHOT_TOO_OLD


def test_a_scan_whose_timestamp_is_pinned_may_take_long() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        now = (await client.read([ONE])).timestamp
        await client.pins.add("scan", now, ttl_s=30.0)
        await slow_scan(world, cluster, client)

    play(main, version_ms=300, net=NetConfig(window_bytes=10_000))


def test_a_pin_holds_while_leaders_change_and_ends_when_it_is_removed() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        ts = await client.commit([Write(ONE, b"then"), Write(TWO, b"then")])
        pin = await client.pins.add("backup", ts, ttl_s=3.0, owner="a test")
        assert await client.pins.list() == [pin]
        with pytest.raises(F1Error) as caught:
            await client.pins.add("backup", ts)
        assert caught.value.code is Code.ALREADY_EXISTS
        for n in range(6):
            await put(client, {ONE: b"%d" % n, TWO: b"%d" % n})
            victim = leader(cluster, n % 3)
            world.crash(victim)
            await asyncio.sleep(1.0)
            world.restart(victim)
            pin = await client.pins.refresh("backup", ttl_s=3.0)
            assert (await client.read([ONE, TWO], timestamp=ts)).values() == [b"then", b"then"]
        assert 0 < collected(cluster, 1).mark_ts <= ts
        assert await client.pins.remove("backup")
        assert not await client.pins.remove("backup")
        await until(lambda: collected(cluster, 1).mark_ts > ts)
        with pytest.raises(F1Error) as caught:
            await client.pins.refresh("backup")
        assert caught.value.code is Code.NOT_FOUND
        with pytest.raises(F1Error) as caught:
            await client.pins.add("late", ts)
        assert caught.value.code is Code.SNAPSHOT_TOO_OLD

    play(main, version_ms=500)


def test_an_expired_pin_counts_no_more_and_is_cleared_away() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        ts = await client.commit([Write(ONE, b"then")])
        await client.pins.add("short", ts, ttl_s=1.0)
        await client.commit([Write(ONE, b"now")])
        await until(lambda: collected(cluster, 1).mark_ts > ts)
        await asyncio.sleep(1.0)
        with pytest.raises(F1Error) as caught:
            await client.pins.refresh("short")
        assert caught.value.code is Code.NOT_FOUND
        assert not await client.pins.remove("short"), "leaders clear expired pins away"
        again = await client.pins.add("short", (await client.read([ONE])).timestamp)
        assert again.ts > ts

    play(main, version_ms=500)


def test_nothing_is_collected_while_the_pins_cannot_be_read() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(TWO, b"1")])
        ts = await client.commit([Write(TWO, b"2")])
        for name in cluster.voters(0):
            world.crash(name)
        await asyncio.sleep(5.0)
        assert collected(cluster, 2).mark_ts < ts
        for name in cluster.voters(0):
            world.restart(name)
        await until(lambda: versions(cluster, "span-d", 2, TWO) == 1)

    play(main, version_ms=1_500, servers=6, voters=APART)


@pytest.mark.parametrize("seed", range(2))
def test_leaders_change_in_the_middle_of_a_pass(seed: int) -> None:
    """A pass over many rows goes on under the next leader; at the end exactly the newest versions are left."""
    keys = [tuples.encode((1, n)) for n in range(5_000)]

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        for value in (b"1", b"2", b"3"):
            for first in range(0, len(keys), 500):
                await client.commit([Write(key, value) for key in keys[first : first + 500]])
        passes = collected(cluster, 1).passes
        handovers = 0
        while collected(cluster, 1).versions < 2 * len(keys):
            position = collected(cluster, 1).position
            if position > b"\x10" and handovers < 5:
                handovers += 1
                process = cluster.running(leader(cluster, 1))
                assert process is not None
                process.server.hand_over()
                await until(lambda: any(r.is_serving_leader() for _, r in cluster.replicas(1)))
            await asyncio.sleep(0.01)
        assert handovers >= 2
        assert collected(cluster, 1).passes <= passes + 40
        await until(lambda: not cluster.unsettled())
        assert collected(cluster, 1).versions == 2 * len(keys)
        assert (await client.read(keys)).values() == [b"3"] * len(keys)

    play(main, seed, version_ms=400)


# ---------------------------------------------------------------------- outcomes


class Driver:
    """Sends the messages of one commit over groups 1 and 2 by hand: none, once or twice, now or much later."""

    def __init__(self, client: SpanClient) -> None:
        self.router: Router = client._router
        self.id = client.new_commit_id(ONE)
        self.prepare_ts = 0

    def work(self, key: bytes) -> pb.TxnWork:
        return pb.TxnWork(
            txn=txn_ref(self.id, 1),
            priority_ts=self.id.created_ts,
            writes=[pb.Write(key=key, value=b"new", key_offset=-1)],
            deadline=self.id.created_ts + 3_600_000_000,
        )

    async def prepare(self) -> None:
        body = pb.Prepare(work=self.work(TWO), coordinator_group=1)
        reply = await self.router.send(2, lambda: pb.Request(prepare=body), 5.0)
        self.prepare_ts = reply.prepare.prepare_ts

    async def commit(self) -> int:
        body = pb.Commit(work=self.work(ONE), participants=[pb.PreparedIn(group=2, prepare_ts=self.prepare_ts)])
        return int((await self.router.send(1, lambda: pb.Request(commit=body), 5.0)).commit.ts)

    async def decide(self, ts: int) -> None:
        body = pb.Decide(txn=txn_ref(self.id, 1), commit=bool(ts), ts=ts)
        await self.router.send(2, lambda: pb.Request(decide=body), 5.0)


async def refused(sending: Awaitable[Any]) -> Code:
    with pytest.raises(F1Error) as caught:
        await sending
    return caught.value.code


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_participant_is_down_for_longer_than_outcomes_are_kept(seed: int, decided: bool) -> None:
    """It learns the truth all the same; only then is it forgotten, and then nobody is told anything but EXPIRED."""

    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"old"), Write(TWO, b"old")])
        lost = Driver(client)
        await lost.prepare()
        ts = await lost.commit() if decided else 0
        for name in cluster.voters(2):
            world.crash(name)
        settled = collected(cluster, 1).outcomes
        await asyncio.sleep(12.0)
        if decided:
            # Its age alone does not matter.
            assert (await client.outcome(lost.id)).ts == ts
            assert collected(cluster, 1).outcomes <= settled + 1
        for name in cluster.voters(2):
            world.restart(name)
        want = b"new" if decided else b"old"
        assert (await client.read([ONE, TWO], timeout_s=30.0)).values() == [want, want]
        await until(lambda: not any(r.state.prepared for _, r in cluster.replicas(2)))
        before = collected(cluster, 1).outcomes
        if decided:
            await until(lambda: collected(cluster, 1).outcomes > before or before > settled)
            await asyncio.sleep(3.0)
        assert await refused(client.outcome(lost.id)) is Code.EXPIRED
        # Everything arrives once more, delayed beyond all memory.
        await until(lambda: collected(cluster, 2).finished > 0)
        await asyncio.sleep(3.0)
        assert await refused(lost.commit()) is Code.EXPIRED
        assert await refused(lost.prepare()) is Code.FENCED
        assert await refused(lost.decide(ts or world.true_ts())) is Code.FAILED_PRECONDITION
        await lost.decide(0)
        assert (await client.read([ONE, TWO])).values() == [want, want]
        assert await refused(client.outcome(lost.id)) is Code.EXPIRED
        assert not any(r.state.prepared for _, r in cluster.replicas(2))

    play(main, seed, outcome_ms=2_000, servers=6, voters=APART)


def test_records_of_commits_go_and_those_in_the_window_stay() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        names = []
        for n in range(20):
            name = client.new_commit_id(ONE)
            ts = await client.commit([Write(ONE, b"%d" % n), Write(TWO, b"%d" % n)], commit_id=name)
            names.append((name, ts))
            await asyncio.sleep(0.1)
        told = []
        for name, ts in names:
            try:
                decision = await client.outcome(name)
                assert (decision.committed, decision.ts) == (True, ts)
                told.append(True)
            except F1Error as error:
                assert error.code is Code.EXPIRED
                assert client.strong_timestamp() - name.created_ts >= 1_000_000
                told.append(False)
        assert told == sorted(told), "older ones go first"
        assert told[-1]
        await until(lambda: collected(cluster, 1).outcomes >= 20 and collected(cluster, 2).finished >= 20)
        for name, _ in names:
            assert await refused(client.outcome(name)) is Code.EXPIRED

    play(main, outcome_ms=1_000)


# ---------------------------------------------------------------------- safe time and near reads


async def lag_us(world: World, client: SpanClient) -> int:
    return world.true_ts() - await client.safe_time()


def test_safe_time_of_an_idle_cluster_lags_less_than_a_second() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        for _ in range(50):
            await asyncio.sleep(0.137)
            assert await lag_us(world, client) < 1_000_000

    play(main)
    play(main, zone="b")


def test_safe_time_lags_less_than_a_second_under_load() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        async def write(n: int) -> None:
            for _ in range(60):
                await client.commit([Write(tuples.encode((1, n)), b"v"), Write(tuples.encode((2, n)), b"v")])

        writers = [asyncio.create_task(write(n)) for n in range(8)]
        while not all(task.done() for task in writers):
            assert await lag_us(world, client) < 1_000_000
            await asyncio.sleep(0.05)
        await asyncio.gather(*writers)

    play(main)


def test_a_prepared_transaction_holds_safe_time_back_exactly_and_status_names_it() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"old"), Write(TWO, b"old")])
        lost = Driver(client)
        # Nobody resolves it: its coordinator's group is down.
        await lost.prepare()
        await asyncio.sleep(0.5)
        for name in cluster.voters(1):
            world.crash(name)
        await asyncio.sleep(4.0)
        reply = await lost.router.send(2, lambda: pb.Request(safe_time=pb.SafeTime()), 5.0)
        assert reply.safe_time.safe_ts == lost.prepare_ts - 1
        (status,) = [
            group
            for answer in (await client.status()).values()
            if isinstance(answer, pb.StatusReply)
            for group in answer.groups
            if group.group == 2 and group.role == "leader"
        ]
        assert status.safe_holder == lost.id.unique.hex()
        assert status.safe_holder_ts == lost.prepare_ts
        for ts in (0, lost.prepare_ts):
            with pytest.raises(F1Error) as caught:
                await client.read([TWO], timestamp=ts, timeout_s=0.5)
            assert caught.value.code is Code.DEADLINE_EXCEEDED
            assert lost.id.unique.hex() in caught.value.message
        assert (await client.read([TWO], timestamp=lost.prepare_ts - 1)).values() == [b"old"]
        for name in cluster.voters(1):
            world.restart(name)
        assert (await client.read([TWO], timeout_s=30.0)).values() == [b"old"]
        assert await lag_us(world, client) < 1_000_000

    play(main, servers=6, voters={0: (3, 4, 5), 1: (0, 1, 2), 2: (3, 4, 5)})


def test_a_transaction_that_stays_open_for_ten_minutes_holds_nothing_back() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"old"), Write(TWO, b"old")])
        tx = client.transaction()
        for _ in range(120):
            await tx.read([ONE, TWO])
            tx.write(ONE, b"new")
            await asyncio.sleep(5.0)
            assert await lag_us(world, client) < 1_000_000
        await tx.commit(deadline=world.true_ts() + 60_000_000)
        assert (await client.read([ONE])).values() == [b"new"]

    # Few heartbeats, because ten minutes have many.
    play(main, paxos=PaxosSection(heartbeat_ms=900, election_timeout_ms=3_000, lease_ms=6_000))


def test_bounded_staleness_is_served_nearby_and_is_never_staler_than_that() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        for n in range(20):
            ts = await client.commit([Write(ONE, b"%d" % n), Write(TWO, b"%d" % n)])
            await asyncio.sleep(0.25)
            before = world.true_ts()
            found = await client.read([ONE, TWO], max_staleness_ms=1_000)
            assert found.timestamp >= before - 1_000_000
            one, two = found.values()
            assert one == two
            if found.timestamp >= ts:
                assert one == b"%d" % n
        # Near replicas cannot serve what is this fresh: the leaders are asked.
        ts = await client.commit([Write(ONE, b"last")])
        await asyncio.sleep(0.01)
        found = await client.read([ONE], max_staleness_ms=1)
        assert found.timestamp >= world.true_ts() - 20_000
        with pytest.raises(F1Error):
            await client.read([ONE], timestamp=ts, max_staleness_ms=5)

    play(main, zone="b")


def test_reads_at_the_safe_time_go_to_the_zone_of_the_client_and_elsewhere_if_nobody_is_there() -> None:
    async def main(world: World, cluster: SimCluster, client: SpanClient) -> None:
        await client.commit([Write(ONE, b"v"), Write(TWO, b"v")])
        await asyncio.sleep(1.0)
        near = next(name for name in cluster.names if name not in (leader(cluster, 1), leader(cluster, 2)))
        there = cluster.client(world.add_client("reader"), zone=near[-1])
        ts = await there.safe_time()
        for name in cluster.names:
            if name != near:
                world.pause(name)
        assert (await there.read([ONE, TWO], timestamp=ts, timeout_s=0.3)).values() == [b"v", b"v"]
        scan = there.scan([KeyRange(ONE, TWO)], [ScanColumn("k", "BYTES", ScanSource.RAW_KEY)], timestamp=ts)
        assert (await scan.read_all()).num_rows == 1
        for name in cluster.names:
            world.resume(name)
        world.crash(near)
        await asyncio.sleep(5.0)
        ts = await there.safe_time()
        assert (await there.read([ONE, TWO], timestamp=ts)).values() == [b"v", b"v"]
        assert (await there.read([ONE], max_staleness_ms=2_000)).values() == [b"v"]
        await there.close()

    play(main)
