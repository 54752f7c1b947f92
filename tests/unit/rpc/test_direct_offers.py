"""Which servers offer direct streams, as the configuration says."""

import asyncio
from typing import Any

import pytest

from f1common.config import (
    ClockSection,
    ClusterGroup,
    ClusterRange,
    ClusterSection,
    ClusterServer,
    Config,
    ServerSection,
    StreamsSection,
)
from f1common.rpc.configured import f1server_factory, storage_server_factory
from f1common.rpc.direct.listening import DirectServer

CLUSTER = ClusterSection(
    cluster_id="c",
    servers=(ClusterServer(name="s", zone="a", address="s:1"),),
    groups=(ClusterGroup(id=0, voters=("s",)),),
    ranges=(ClusterRange(start="", group=0),),
)


def config(server: dict[str, Any], streams: dict[str, Any]) -> Config:
    return Config(
        server=ServerSection(name="a", zone="a", port=1, data_dir="a", **server),
        clock=ClockSection(source="same_host", offset_us=0),
        cluster=CLUSTER,
        streams=StreamsSection(**streams),
    )


@pytest.mark.parametrize(
    ("server", "streams", "to_clients"),
    [
        ({}, {}, True),
        ({"host": "::1"}, {}, True),
        ({"host": "localhost"}, {}, True),
        ({"host": "127.0.0.9"}, {}, True),
        ({"advertise": "db.example:7400"}, {}, False),
        ({"host": "0.0.0.0"}, {}, False),
        ({"host": "db.example"}, {}, False),
        ({"host": "db.example"}, {"direct_port": 7410}, True),
        ({"host": "db.example"}, {"direct_port": 7410, "direct": False}, False),
        ({}, {"direct": False}, False),
    ],
)
def test_clients_are_offered_direct_streams_where_they_reach_them(
    server: dict[str, Any], streams: dict[str, Any], to_clients: bool
) -> None:
    async def offers(factory: Any) -> bool:
        return isinstance(factory(config(server, streams))(()), DirectServer)

    assert asyncio.run(offers(f1server_factory)) is to_clients
    # Servers of one cluster reach each other.
    assert asyncio.run(offers(storage_server_factory)) is streams.get("direct", True)
