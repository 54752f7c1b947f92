"""Scans in simulated clusters: under faults they see whole commits, all that were acknowledged, and each row once."""

import asyncio
import random

import pytest

from f1common.encoding import tuple as tuples
from f1common.encoding.row import encode_row
from f1common.errors import Code, F1Error
from spanstore.client import KeyRange, ScanColumn, ScanSource, SpanClient, Write
from spanstore.client.placement import submit_move, wait_for_move
from spanstore.scan import cursor
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.scenarios.moves import Shuffler
from spanstore.testing.sim import NetConfig, World, WorldConfig, simulate
from spanstore.testing.sim.nemesis import draw_config, draw_plan, play

EVERYTHING = [KeyRange(tuples.encode((1,)), tuples.encode((30,)))]
COLUMNS = [
    ScanColumn("table", "INT64", ScanSource.KEY_PART, 0),
    ScanColumn("id", "INT64", ScanSource.KEY_PART, 1),
    ScanColumn("ts", "INT64", ScanSource.VERSION_TS),
    ScanColumn("n", "INT64", number=1),
]
WRITERS = 3
ROWS = 40

Row = tuple[int, int]


def commit_of(writer: int, number: int) -> list[Write]:
    """The same number in rows of two tables, which lie in two groups, and in one of many rows of a third."""
    rows = [(1, writer), (2, writer), (3, 100 + (writer * 7 + number) % ROWS)]
    return [Write(tuples.encode(row), encode_row({1: number})) for row in rows]


async def write(client: SpanClient, writer: int, acknowledged: dict[Row, int], stop: asyncio.Event) -> None:
    """Commit one number after the other and note what is acknowledged."""
    number = 0
    while not stop.is_set():
        await asyncio.sleep(0.03)
        number += 1
        try:
            ts = await client.commit(commit_of(writer, number), timeout_s=5)
        except F1Error as error:
            assert error.ambiguous or error.retryable or error.code in (Code.DEADLINE_EXCEEDED, Code.FENCED), error
            continue
        for table in (1, 2):
            acknowledged[table, writer] = max(ts, acknowledged.get((table, writer), 0))


async def scan_once(client: SpanClient, acknowledged: dict[Row, int], rng: random.Random) -> bool:
    """Scan and check; False if the scan came to no end while faults were on."""
    known = dict(acknowledged)
    old = rng.random() < 0.3 and known
    timestamp = rng.choice(sorted(known.values())) if old else 0
    scan = client.scan(
        EVERYTHING, COLUMNS, timestamp=timestamp, batch_rows=rng.choice((9, 0)), anywhere=bool(old), timeout_s=8
    )
    try:
        table = await scan.read_all()
    except F1Error as error:
        assert error.code is Code.DEADLINE_EXCEEDED or error.retryable, error
        return False
    columns = [table.column(name).to_pylist() for name in ("table", "id", "ts", "n")]
    rows = {(where, row): (ts, number) for where, row, ts, number in zip(*columns, strict=True)}
    assert len(rows) == table.num_rows
    assert all(ts <= scan.timestamp for ts, _ in rows.values())
    for row, ts in known.items():
        if ts <= scan.timestamp:
            assert rows[row][0] >= ts, (row, ts, scan.timestamp)
        assert timestamp or ts <= scan.timestamp
    for writer in range(WRITERS):
        assert rows.get((1, writer)) == rows.get((2, writer))
    return True


async def play_scans(world: World, seed: int, faulty: bool, moving: bool = False) -> int:
    rng = random.Random(seed)
    cluster = SimCluster(world, ClusterConfig(groups=rng.choice((2, 3))))
    cluster.start()
    envs = [world.add_client(f"client-{i}") for i in range(WRITERS + 1)]
    clients = [cluster.client(env) for env in envs]
    await envs[0].spawn(cluster.settle(clients[0]))
    acknowledged: dict[Row, int] = {}
    stop = asyncio.Event()
    tasks = [envs[i].spawn(write(clients[i], i, acknowledged, stop)) for i in range(WRITERS)]
    names = [env.name for env in envs]
    plan = draw_plan(rng, draw_config(rng, max_down=1), cluster.names, 6_000_000, clients=names) if faulty else ()
    nemesis = asyncio.create_task(play(world, plan))
    if moving:
        keys = [tuples.encode(row) for row in ((1, 1), (2, 0), (2, 2), (3, 110), (3, 125))]
        mover = cluster.client(envs[0])
        shuffler = Shuffler(mover, keys, cluster.groups, random.Random(f"{seed} ranges"))
        tasks.append(envs[0].spawn(shuffler.run(200_000, stop.is_set)))
    done = 0
    while not nemesis.done() or done < (8 if moving else 5):
        done += await envs[WRITERS].spawn(scan_once(clients[WRITERS], acknowledged, rng))
        await asyncio.sleep(0.3)
    await nemesis
    stop.set()
    await asyncio.gather(*tasks)
    # With all healed, a strong scan sees everything, and another client's scan at its timestamp sees the same.
    await envs[WRITERS].spawn(cluster.settle(clients[WRITERS]))
    assert await envs[WRITERS].spawn(scan_once(clients[WRITERS], acknowledged, random.Random(0)))
    first = clients[WRITERS].scan(EVERYTHING, COLUMNS)
    table = await envs[WRITERS].spawn(first.read_all())
    again = await envs[0].spawn(
        clients[0].scan(EVERYTHING, COLUMNS, timestamp=first.timestamp, anywhere=True).read_all()
    )
    order = [(name, "ascending") for name in ("table", "id")]
    assert table.sort_by(order).equals(again.sort_by(order))
    assert table.num_rows > 2 * WRITERS
    return done


@pytest.mark.parametrize("seed", range(2))
def test_scans_without_faults(seed: int) -> None:
    assert simulate(lambda world: play_scans(world, seed, False), seed).value >= 5


@pytest.mark.parametrize("seed", [100, 101, *(pytest.param(n, marks=pytest.mark.long) for n in (102, 103))])
def test_scans_under_faults(seed: int) -> None:
    simulate(lambda world: play_scans(world, seed, True), seed)


@pytest.mark.parametrize(("seed", "faulty"), [(200, False), (201, True)])
def test_scans_while_ranges_move(seed: int, faulty: bool) -> None:
    simulate(lambda world: play_scans(world, seed, faulty, True), seed)


async def scan_across_moves(world: World, seed: int) -> None:
    """A scan is read so slowly that its range moves away and its rows are removed in its middle, several times."""
    rng = random.Random(seed)
    cluster = SimCluster(world, ClusterConfig(groups=2))
    cluster.start()
    env = world.add_client("client")
    client = cluster.client(env)
    await env.spawn(cluster.settle(client))
    keys = [tuples.encode((1, n)) for n in range(60)]
    start, end = tuples.encode((1,)), tuples.encode((2,))

    async def move() -> None:
        now = (await client.range_map(refresh=True)).group_of(keys[0])
        job = await submit_move(client, start, end, 2 if now == 1 else 1)
        await wait_for_move(client, job.number, timeout_s=30)

    async def work() -> None:
        await client.commit([Write(key, encode_row({1: bytes(2_000), 2: n})) for n, key in enumerate(keys)])
        columns = [ScanColumn("v", "BYTES", number=1), ScanColumn("n", "INT64", number=2)]
        scan = client.scan([KeyRange(start, end)], columns, batch_rows=rng.choice((1, 4)), timeout_s=60)
        found: list[int] = []
        pauses = set(rng.sample(range(5, 50), 3))
        async for batch in scan:
            found += batch.column("n").to_pylist()
            if any(pause <= len(found) for pause in pauses):
                pauses = {pause for pause in pauses if pause > len(found)}
                await move()
        assert found == list(range(len(keys)))

    await env.spawn(work())


SLOW_READER = WorldConfig(net=NetConfig(window_bytes=8_000))


@pytest.mark.parametrize("seed", range(3))
def test_a_scan_goes_on_where_its_range_has_gone(seed: int) -> None:
    simulate(lambda world: scan_across_moves(world, seed), seed, SLOW_READER)


def test_views_without_what_was_given_away_are_seen_to_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that reads on in a group that has given the range away misses rows."""
    monkeypatch.setattr(cursor, "check_view", lambda reader, plan: None)
    with pytest.raises(AssertionError):
        simulate(lambda world: scan_across_moves(world, 0), 0, SLOW_READER)


def test_same_seed_is_the_same_run() -> None:
    hashes = {simulate(lambda world: play_scans(world, 100, True), 100).trace_hash for _ in range(2)}
    assert len(hashes) == 1
