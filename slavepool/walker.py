"""``python -m slavepool.walker SOCKET``: the child of a slave that does walks, started as one that gives way.

Its configuration comes as a line of JSON; it says "ready" when it serves, and ends when its input does: then its parent
is gone, however that happened.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import uvloop

from f1common.clock import clock_from_config
from f1common.config import Config
from f1common.ids import process_rng
from f1common.observe import logs
from f1common.pb import slave_pb2_grpc as stubs
from f1common.rpc.configured import channels_of
from f1common.rpc.status import maps_errors
from slavepool.walks import InPlaceWalks
from spanstore.client import SpanClient


class _Servicer(stubs.SlaveServicer):
    """Serves the streams that the parent hands over."""

    def __init__(self, walks: InPlaceWalks) -> None:
        self._walks = walks

    @maps_errors
    async def Reorganise(self, request_iterator: Any, context: Any) -> None:
        """Do a walk."""
        await self._walks.serve(context)


async def _serve(path: str, config: Config) -> None:
    clock = clock_from_config(config.clock)
    channels = channels_of(config)
    storage = [server.address for server in config.cluster.servers]
    client = SpanClient(
        storage, clock=clock, rng=process_rng(), channels=channels, zone=config.server.zone, background=True
    )
    walks = InPlaceWalks(client, clock)
    server = grpc.aio.server()
    stubs.add_SlaveServicer_to_server(_Servicer(walks), server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await walks.close()
    await server.stop(0)
    await client.close()
    await channels.close()


def main() -> None:
    """Serve until the input ends."""
    config = msgspec.json.decode(sys.stdin.readline(), type=Config)
    server, parent = config.server, os.getppid()
    logs.configure(logs.LogOptions(f"{server.name}-walks", server.zone, server.log_level, server.log_format))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1], config))
    if os.getppid() != parent:
        # It was killed, and left to nobody else to clear its folder away.
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)


if __name__ == "__main__":
    main()
