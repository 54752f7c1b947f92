"""The contract of stores over the storage tier: the suite of the others, on a simulated cluster of three servers."""

import asyncio

import pytest

from f1.orchestrator.stores.span import SpanStore
from spanstore.testing.cluster import ClusterConfig, SimCluster
from spanstore.testing.sim import World, run_sim
from tests.contract.stores.test_store_contract import TESTS, Test


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
