"""Two processes that use the name of one server: one was taken for dead, stood still, and is back."""

import asyncio

from tests.unit.catalog.test_leases import T, check_versions, sim


def test_two_processes_of_one_name_hide_nothing_of_each_other():
    """One was taken for dead and is back: what the other one may still commit stays in the row that both write."""

    async def main(cluster):
        back, b = cluster.server("a"), cluster.server("b")
        await back.leases.current("default")
        a = cluster.server("a")
        async with a.leases.use("default") as leased:
            cluster.deaf.add("a")
            change = asyncio.create_task(b.ddl(T))
            await asyncio.sleep(0.2)
            schema = await back.leases.refresh("default")
            assert (leased.schema.version, schema.version) == (1, 2)
            (row,) = [row for row in await a.store.leases("default") if row.server == "a"]
            assert row.version == 2
            assert row.end_below(2) >= leased.deadline() > cluster.storage.true_us()
            await a.commit(leased)
        await change
        check_versions(cluster)

    sim(main)


def test_one_that_stops_does_not_remove_the_row_of_the_other():
    async def main(cluster):
        back = cluster.server("a")
        async with back.leases.use("default"):
            pass
        a = cluster.server("a")
        async with a.leases.use("default"):
            pass
        (before,) = await a.store.leases("default")
        await back.leases.close()
        assert await a.store.leases("default") == [before]

    sim(main)
