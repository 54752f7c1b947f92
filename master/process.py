"""A master's parts put together, for the real process and the simulator: the clock comes in."""

import asyncio
from typing import Any

from f1common.clock import Clock
from f1common.config import MasterSection
from f1common.observe.metrics import Metrics
from f1common.pb import master_pb2_grpc as stubs
from master.registry import Registry, RegistryConfig
from master.service import MasterServicer


class MasterProcess:
    """Everything that one master process runs."""

    def __init__(self, config: MasterSection, clock: Clock, *, metrics: Metrics | None = None) -> None:
        """Needs a running event loop."""
        now = clock.sample()
        limits = RegistryConfig(suspect_us=config.suspect_ms * 1000, dead_us=config.dead_ms * 1000)
        self.registry = Registry(now.tt.latest, now.boot_us, limits)
        self._servicer = MasterServicer(self.registry, clock, config, metrics or Metrics())
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, server: Any) -> None:
        """Register the service on a ``grpc.aio`` server (or one like it) and let time pass."""
        stubs.add_MasterServicer_to_server(self._servicer, server)
        self._ticking = asyncio.create_task(self._servicer.run(), name="ticks of the master")

    async def drain(self) -> None:
        """End the streams: slaves and f1servers look for the next master."""
        self._servicer.close()

    async def stop(self) -> None:
        """End everything."""
        self._servicer.close()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
