"""When a lease on a schema is renewed."""

import asyncio

import pytest

from f1server.catalog.leases import SchemaLeases
from tests.unit.catalog.servers import LEASE_US
from tests.unit.catalog.test_leases import sim


@pytest.mark.parametrize(("percent", "renewals"), [(10, 30), (50, 10), (75, 6)])
def test_a_lease_is_renewed_when_the_share_of_it_is_over_that_is_configured(percent, renewals):
    async def main(cluster):
        a = cluster.server("a")
        a.leases = SchemaLeases(a.store, a.clock, server="a", address="a:7400", renewal_percent=percent)
        ends = set()
        for _ in range(1000):
            leased = await a.leases.current("default")
            assert leased.lease_end - cluster.storage.true_us() > LEASE_US * (100 - percent - 15) / 100
            ends.add(leased.lease_end)
            await asyncio.sleep(0.01)
        assert 0.5 * renewals < len(ends) < 1.7 * renewals, len(ends)

    sim(main)
