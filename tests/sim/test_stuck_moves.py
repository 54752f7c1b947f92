"""Moves of ranges that cannot go on: they are given up, and hold up neither later ones nor the collection elsewhere."""

import asyncio
from collections.abc import Callable

import pytest

from f1common.config import PlacementSection, StorageSection
from f1common.encoding import tuple as tuples
from f1common.errors import Code, F1Error
from f1common.observe.metrics import Metrics
from f1common.rpc.channels import ChannelCache
from spanstore.client import Write
from spanstore.client.placement import move_jobs, submit_move, wait_for_move
from spanstore.client.router import Router
from spanstore.group.move_requests import ExportReply
from spanstore.placement.copying import Wanted
from spanstore.placement.jobs import JobState, MoveJob
from spanstore.runtime.move_calls import MoveCalls
from spanstore.runtime.mover import Mover
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim.world import World, run_sim

STUCK = 1
TABLES = [tuples.encode((table,)) for table in range(1, 6)]


def marks(cluster: SimCluster) -> dict[int, int]:
    return {g: max(r.state.collected.mark_ts for _, r in cluster.replicas(g)) for g in cluster.groups}


def measured(cluster: SimCluster) -> Callable[..., float]:
    """Return what the server that leads the meta group tells a Prometheus."""
    metrics = Metrics()
    leader = next(name for name, replica in cluster.replicas(0) if replica.is_serving_leader())
    cluster.processes[leader].measure(metrics)
    return lambda name, **labels: metrics.value(name, labels)


async def a_copy_that_cannot_be_read(world: World) -> str:
    """The first move comes no further; return its message once a later one is done."""
    config = ClusterConfig(groups=3, storage=StorageSection(version_keep_ms=1_000))
    config.placement = PlacementSection(replace_after_ms=0, rebalance=False, balance_load=False, move_patience_ms=8_000)
    cluster = SimCluster(world, config)
    cluster.start()
    client = cluster.client(world.add_client("client"))
    await cluster.settle(client)
    ranges = await client.range_map()
    key = TABLES[0] + tuples.encode((1,))
    await client.commit([Write(key, b"here")])
    source = ranges.group_of(TABLES[0])
    target, third = sorted({1, 2, 3} - {source})
    stuck = await submit_move(client, TABLES[0], TABLES[1], target)
    assert stuck.number == STUCK
    later = await submit_move(client, TABLES[0], TABLES[1], third)
    await asyncio.sleep(2)
    began = marks(cluster)
    for value in range(40):
        writes = [Write(table + tuples.encode((2,)), b"%d" % value) for table in TABLES]
        await client.commit(writes)
        await asyncio.sleep(0.1)
    ended = marks(cluster)
    assert ended[third] > began[third], "a group that no range moves from or to collects nothing"
    assert (ended[source], ended[target]) == (began[source], began[target])
    assert (await wait_for_move(client, later.number, 30)).state is JobState.DONE
    (job, _) = await move_jobs(client)
    assert job.state is JobState.FAILED
    assert (await client.range_map(refresh=True)).group_of(TABLES[0]) == third
    assert (await client.read([key])).values() == [b"here"]
    metrics = measured(cluster)
    assert metrics("f1_moves_ended", state="failed") == metrics("f1_moves_ended", state="done") == 1
    assert metrics("f1_collected_versions", group=str(third)) > 10
    assert 1 <= metrics("f1_oldest_kept_seconds", group=str(third)) < 20
    for _, replica in cluster.replicas(target):
        assert replica.state.holding.record.incoming is None and replica.state.holding.record.closed >= STUCK
    return job.message


@pytest.fixture(autouse=True)
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    export = MoveCalls.export

    async def fails(self: MoveCalls, job: MoveJob, wanted: Wanted) -> ExportReply:
        if job.number == STUCK:
            raise F1Error(Code.DATA_CORRUPTION, "a record is damaged")
        return await export(self, job, wanted)

    monkeypatch.setattr(MoveCalls, "export", fails)


def test_a_move_that_comes_no_further_is_given_up_and_undone() -> None:
    message = run_sim(a_copy_that_cannot_be_read, 1)
    assert "it came no further for" in message and "a record is damaged" in message


def test_a_mover_without_an_end_to_its_patience_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Mover, number: int, error: F1Error) -> None:
        return None

    monkeypatch.setattr(Mover, "_given_up", never)
    with pytest.raises(F1Error, match="DEADLINE_EXCEEDED"):
        run_sim(a_copy_that_cannot_be_read, 1)


async def a_range_that_is_to_go_nowhere(world: World) -> tuple[Code, list[bytes | None]]:
    """A group is told to give a range up to a group that is not; return its answer, and what is read afterwards."""
    cluster = SimCluster(world, ClusterConfig(groups=2))
    cluster.start()
    env = world.add_client("client")
    client = cluster.client(env)
    await cluster.settle(client)
    await client.commit([Write(TABLES[0], b"here")])
    source = (await client.range_map()).group_of(TABLES[0])
    router = Router(cluster.addresses, channels=ChannelCache(env.channel), rng=env.rng)
    job = MoveJob(number=1, start=TABLES[0], end=TABLES[1], source=source, target=77, created_ts=0)
    with pytest.raises(F1Error) as refused:
        await MoveCalls(router).cede(job)
    return refused.value.code, (await client.read([TABLES[0]])).values()


def test_a_range_is_not_given_up_to_a_group_that_is_not() -> None:
    assert run_sim(a_range_that_is_to_go_nowhere, 1) == (Code.NOT_FOUND, [b"here"])
