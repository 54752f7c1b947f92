"""The contract of stores over the storage tier: the suite of the others, on a simulated cluster of three servers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from f1.orchestrator import protocol
from f1.orchestrator.steps import Version, Write
from f1.orchestrator.stores.span import SpanStore
from f1common.clock import Now
from f1common.errors import Code, F1Error
from spanstore.client import SpanClient
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import World, run_sim
from tests.contract.stores.test_store_contract import TESTS, Test, key


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_contract(test: Test) -> None:
    async def main(world: World) -> None:
        cluster = SimCluster(world, ClusterConfig(servers=3, groups=2))
        cluster.start()
        env = world.add_client("client")

        async def work() -> None:
            client = cluster.client(env)
            await cluster.settle(client)
            store = SpanStore("", client=client)
            await test(store)
            await store.close()
            await client.close()

        await asyncio.shield(env.spawn(work()))

    run_sim(main, 1)


def on_a_cluster(work: Callable[[SpanStore, SpanClient], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        cluster = SimCluster(world, ClusterConfig(servers=3, groups=2))
        cluster.start()
        env = world.add_client("client")

        async def connected() -> None:
            client = cluster.client(env)
            await cluster.settle(client)
            await work(SpanStore("", client=client), client)
            await client.close()

        await asyncio.shield(env.spawn(connected()))

    run_sim(main, 1)


def test_a_cell_with_many_versions_costs_a_range_few_reads() -> None:
    async def work(store: SpanStore, client: SpanClient) -> None:
        hot, cold = key("t", 1), [key("t", n) for n in range(2, 5)]
        await store.put([Write(hot, ts, b"%d" % ts) for ts in range(1, 401)])
        await store.put([Write(k, 1, b"") for k in cold])
        reads = 0
        read = client.read

        async def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*arguments, **options)

        client.read = counted  # type: ignore[method-assign]
        for below, expected in ((protocol.EVERYTHING, 400), (200, 199)):
            reads = 0
            page = await store.range(key("t"), key("u"), below, 2)
            assert page == [(hot, [Version(expected, b"%d" % expected)]), (cold[0], [Version(1, b"")])]
            assert reads <= 4
        ((_, versions),) = await store.range(key("t"), key("t", 2), protocol.EVERYTHING, 2, every=True)
        assert [version.ts for version in versions] == list(range(400, 0, -1))

    on_a_cluster(work)


def test_values_that_are_too_large_for_one_message_are_read_in_several() -> None:
    async def work(store: SpanStore, _: SpanClient) -> None:
        keys = [key("t", n) for n in range(10)]
        for n, one in enumerate(keys):
            await store.put([Write(one, 1, b"%d" % n + b"x" * (8 << 20))])
        found = await store.get_versions([(one, 2) for one in keys])
        assert [version.value[:1] for version in found if version and version.value] == [b"%d" % n for n in range(10)]

    on_a_cluster(work)


class LateClock:
    """A clock that is 100 s behind, for its first readings or for ever."""

    def __init__(self, clock: Any, readings: int) -> None:
        self._clock = clock
        self._left = readings

    def sample(self) -> Now:
        now: Now = self._clock.sample()
        self._left -= 1
        behind_us = 100_000_000 if self._left >= 0 else 0
        return replace(now, tt=replace(now.tt, earliest=now.tt.earliest - behind_us, latest=now.tt.latest - behind_us))


def test_a_write_that_came_too_late_is_made_again_unless_the_clock_is_wrong() -> None:
    async def work(store: SpanStore, client: SpanClient) -> None:
        right = client._clock
        await store.put([Write(key("t", 1), 1, b"before")])
        client._clock = LateClock(right, 1)  # as after a process that stood still
        await store.put([Write(key("t", 1), 2, b"late")])
        assert await store.get_versions([(key("t", 1), 3)]) == [Version(2, b"late")]
        client._clock = LateClock(right, 1_000_000)
        for call in (store.put([Write(key("t", 1), 3, b"")]), store.put_if_absent(Write(key("t", 2), 0, b""))):
            with pytest.raises(F1Error, match="this machine's clock is behind") as caught:
                await call
            assert (caught.value.code, caught.value.ambiguous) == (Code.CLOCK_SKEW, False)
        client._clock = right
        assert await store.get_versions([(key("t", 1), 4), (key("t", 2), 1)]) == [Version(2, b"late"), None]

    on_a_cluster(work)
