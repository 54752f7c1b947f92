"""A slave's parts put together, for the real process and the simulator: clock and channels come in."""

import asyncio
import random
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from f1common.clock import Clock
from f1common.config import Config
from f1common.observe.logs import get_logger
from f1common.observe.metrics import Metrics
from f1common.pb import master_pb2 as pb
from f1common.rpc.channels import ChannelCache
from slavepool.heartbeat import Heartbeat, Vitals
from slavepool.reorganising import ChildWalks
from slavepool.service import SERVICE_NAME, PartService
from slavepool.walks import InPlaceWalks
from spanstore.client import SpanClient

SERVICE_NAMES: tuple[str, ...] = (SERVICE_NAME,)
"""Full names of the services of a slave, for reflection."""

_INCARNATION_BITS = 63

_log = get_logger(__name__)


class SlaveService(Protocol):
    """One of the services that a slave hosts."""

    def register(self, server: Any) -> None:
        """Register the servicer on a ``grpc.aio`` server (or one like it)."""
        ...

    def vitals(self) -> Vitals:
        """Tell how the work goes; asked at each beat."""
        ...

    async def drain(self) -> None:
        """Let running requests end; no new query is sent here any more."""
        ...

    async def close(self) -> None:
        """Free everything."""
        ...


class SlaveProcess:
    """Everything that one slave process runs."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        channels: ChannelCache,
        rng: random.Random,
        *,
        metrics: Metrics | None = None,
        inline: bool = False,
    ) -> None:
        """``inline``: no threads (the simulator has none). Needs a running event loop.

        What is at hand for services: ``config``, ``clock``, ``channels``, ``rng``, ``metrics``, ``inline``, ``client``
        (the storage tier) and ``incarnation``.
        """
        self.config = config
        self.clock = clock
        self.channels = channels
        self.rng = rng
        self.metrics = metrics or Metrics()
        self.inline = inline
        self.incarnation = rng.getrandbits(_INCARNATION_BITS) | 1
        """Names this run of the process; who calls a slave says which run it means."""
        storage = [server.address for server in config.cluster.servers]
        self.client = SpanClient(storage, clock=clock, rng=rng, channels=channels, zone=config.server.zone)
        self._background = SpanClient(
            storage, clock=clock, rng=rng, channels=channels, zone=config.server.zone, background=True
        )
        walks = InPlaceWalks(self._background, clock) if inline else ChildWalks(lambda: config)
        self.parts = PartService(config.slave, self.client, channels, metrics=self.metrics, inline=inline, walks=walks)
        self.services: list[SlaveService] = [self.parts]
        self.heartbeat: Heartbeat | None = None

    async def start(self, server: Any) -> None:
        """Register the services on a ``grpc.aio`` server (or one like it)."""
        for service in self.services:
            service.register(server)

    def announce(self, address: str) -> None:
        """Begin to beat: whoever reads the master's list finds this slave at ``address``, ``host:port``."""
        config = self.config
        if not config.cluster.master:
            _log.warning("cluster.master is not configured: nobody will find this slave")
            return
        identity = pb.SlaveIdentity(
            name=config.server.name,
            address=address,
            zone=config.server.zone,
            version=_version(),
            incarnation=self.incarnation,
            started_us=self.clock.sample().tt.latest,
            threads=config.slave.threads,
            memory_bytes=config.slave.memory_mib << 20,
        )
        self.heartbeat = Heartbeat(
            config.cluster.master,
            identity,
            period_ms=config.slave.heartbeat_ms,
            channels=self.channels,
            rng=random.Random(self.rng.random()),
            vitals=self._vitals,
            metrics=self.metrics,
        )
        self.heartbeat.start()

    def _vitals(self) -> Vitals:
        each = [service.vitals() for service in self.services]
        return Vitals(sum(v.running for v in each), "; ".join(v.failing for v in each if v.failing))

    async def replaced(self) -> None:
        """Return when a later process has this one's name."""
        if self.heartbeat is None:
            await asyncio.Event().wait()
        else:
            await self.heartbeat.replaced.wait()

    async def drain(self) -> None:
        """Tell the master that no queries are wanted, and let the running ones end."""
        if self.heartbeat is not None:
            await self.heartbeat.drain()
        for service in self.services:
            await service.drain()

    async def stop(self) -> None:
        """End everything. The channels are the caller's to close."""
        if self.heartbeat is not None:
            await self.heartbeat.close()
        for service in self.services:
            await service.close()
        await self._background.close()
        await self.client.close()


def _version() -> str:
    try:
        return version("f1db")
    except PackageNotFoundError:
        return "unknown"
