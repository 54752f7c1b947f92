"""An f1server's parts put together, for the real process and the simulator: clock and channels come in."""

import asyncio
import logging
import random
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from f1common.clock import Clock
from f1common.config import Config
from f1common.errors import F1Error
from f1common.ids import secret_bytes
from f1common.observe.metrics import Metrics
from f1common.pb import f1_pb2 as pb
from f1common.pb import f1_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1server.access.gate import Gate
from f1server.access.keys import SigningKeys
from f1server.access.login import Logins
from f1server.catalog.leases import SchemaLeases
from f1server.catalog.store import SchemaStore
from f1server.check.checker import Checker
from f1server.dist.coordinator import Coordinator
from f1server.dist.pool import SlavePool
from f1server.dist.queries import DistributedQueries
from f1server.dist.statistics import StatisticsCache
from f1server.schemachange.executor import SchemaChanges
from f1server.schemachange.jobs.jobs import JobStore
from f1server.schemachange.preview.planner import SchemaPlanner
from f1server.schemachange.preview.survey import Surveyor
from f1server.schemachange.work.reorganiser import Reorganiser
from f1server.schemachange.work.throttle import ThrottleOptions
from f1server.service import TOKEN_KEY, Doors, F1Servicer
from f1server.session import Frontend, Identity
from f1server.sql import SqlRunner
from f1server.txn.committer import Committer
from f1server.txn.pessimistic import PessimisticTransactions
from spanstore.client import SpanClient

_log = logging.getLogger(__name__)

DEFAULT_DATABASE = "default"


class F1Process:
    """Everything that one f1server process runs."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        channels: ChannelCache,
        rng: random.Random,
        *,
        address: str,
        draining: asyncio.Event | None = None,
        inline: bool = False,
        metrics: Metrics | None = None,
    ) -> None:
        """``address`` is where other f1servers reach this one; ``inline``: no threads (the simulator has none)."""
        self._channels = channels
        storage = [server.address for server in config.cluster.servers]
        zone = config.server.zone
        self.client = SpanClient(storage, clock=clock, rng=rng, channels=channels, zone=zone)
        self._background = SpanClient(storage, clock=clock, rng=rng, channels=channels, zone=zone, background=True)
        """For work that nobody waits for."""
        self.pool = SlavePool(
            config.cluster.master, server=config.server.name, clock=clock, channels=channels, rng=rng, metrics=metrics
        )
        self._store = SchemaStore(self.client, clock, asyncio.sleep, self.client.group_of)
        self.leases = self._make_leases(config, clock, address)
        jobs = JobStore(self.client, clock)
        self._changes = self._make_changes(config, clock, jobs)
        self._keeping: asyncio.Task[None] | None = None
        self._sql = sql = SqlRunner(
            self.client, self.leases, self._changes, self._store, clock, rng, config.f1server, inline=inline
        )
        committer = Committer(
            self.client, self.leases, clock, rng, sql.evaluators(), sql.together, self._store, jobs.way_back
        )
        pessimistic = PessimisticTransactions(self.client, committer, self.leases, clock, rng)
        statistics = StatisticsCache(self.client, clock, max_age_ms=config.f1server.statistics_ms)
        coordinator = Coordinator(self.pool, self._sql.engine, self.client, channels, rng)
        self._sql.connect(
            committer,
            pessimistic,
            DistributedQueries(coordinator, self.pool, statistics, config.f1server, self._sql.executor, rng),
        )
        checker = Checker(
            self.client, self._store, self.leases, rng, self._sql.evaluators().checks, executor=self._sql.executor
        )
        surveyor = Surveyor(checker, self._sql.evaluators)
        self.frontend = Frontend(
            _identity(config),
            client=self.client,
            leases=self.leases,
            store=self._store,
            changes=self._changes,
            committer=committer,
            pessimistic=pessimistic,
            sql=self._sql,
            planner=SchemaPlanner(self.client, self._store, jobs, checker, surveyor, rng, sql.try_expressions),
            checker=checker,
            clock=clock,
            rng=rng,
            pool=self.pool,
        )
        self.doors = self._make_doors(config, clock, rng.randbytes if inline else secret_bytes)
        """Where clients log in; None: they do not."""
        self._servicer = F1Servicer(self.frontend, draining=draining, doors=self.doors)
        self.ready = asyncio.Event()
        """Set when the default database can be used."""
        self._opening: asyncio.Task[None] | None = None

    def _make_leases(self, config: Config, clock: Clock, address: str) -> SchemaLeases:
        return SchemaLeases(
            self._store,
            clock,
            server=config.server.name,
            address=address,
            lease_ms=config.f1server.schema_lease_ms,
            renewal_percent=config.f1server.schema_lease_renewal_percent,
            lost_after_ms=config.f1server.exit_after_ms,
        )

    def _make_doors(self, config: Config, clock: Clock, random_bytes: Callable[[int], bytes]) -> Doors | None:
        if config.f1server.authentication == "none":
            return None
        keys = SigningKeys(self.client, clock, random_bytes)
        logins = Logins(self.leases, keys, clock, random_bytes, token_ms=config.f1server.token_ms)
        return Doors(logins, Gate(self.leases, keys, clock))

    def _make_changes(self, config: Config, clock: Clock, jobs: JobStore) -> SchemaChanges:
        section = config.f1server
        work = Reorganiser(
            self._background,
            self.leases,
            lambda: self._sql.evaluators(),
            clock,
            options=ThrottleOptions(
                section.reorganise_slowdown_percent / 100,
                section.reorganise_min_rows_per_s,
                section.reorganise_max_rows_per_s,
            ),
            pool=self.pool,
            channels=self._channels,
            sleep=asyncio.sleep,
            verifies=section.verify_schema_changes,
        )
        return SchemaChanges(
            self._store,
            jobs,
            self.leases,
            clock,
            work=work,
            nudge=self._nudge,
            try_expressions=lambda old, new: self._sql.try_expressions(old, new),
            sleep=asyncio.sleep,
        )

    async def start(self, server: Any) -> None:
        """Register the service on a ``grpc.aio`` server (or one like it) and connect to the storage tier."""
        stubs.add_F1ServerServicer_to_server(self._servicer, server)
        self.frontend.start()
        self.pool.start()
        self._opening = asyncio.create_task(self._open(), name="open the default database")
        self._keeping = asyncio.create_task(self._changes.keep(), name="keeper of schema changes")

    async def _open(self) -> None:
        """Create the default database if nobody has, and take the lease on its schema."""
        while True:
            try:
                await self._store.create_database(DEFAULT_DATABASE, exists_ok=True)
                await self.leases.current(DEFAULT_DATABASE)
                self.ready.set()
                return
            except F1Error as error:
                _log.warning("the default database cannot be opened yet: %s", error)
                await asyncio.sleep(0.2)

    async def _nudge(self, address: str, database: str, version: int) -> None:
        """Tell another f1server of a new schema version; it finds out by itself if this does not arrive."""
        stub = stubs.F1ServerStub(self._channels.get(address))
        metadata = ((TOKEN_KEY, await self.doors.gate.server_token()),) if self.doors is not None else ()
        request = pb.RefreshSchemaRequest(database=database, version=version)
        await stub.RefreshSchema(request, timeout=1.0, metadata=metadata)

    async def drain(self) -> None:
        """Let running requests end."""
        await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End everything."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._changes.close()
        await self._servicer.close()
        await self.frontend.close()
        await self.pool.close()
        await self.leases.close()
        await self._sql.close()
        await self._background.close()
        await self.client.close()


def _identity(config: Config) -> Identity:
    storage = tuple(server.address for server in config.cluster.servers)
    cluster = config.cluster
    return Identity(config.server.name, config.server.zone, _version(), storage, cluster.timestamps, cluster.locks)


def _version() -> str:
    try:
        return version("f1db")
    except PackageNotFoundError:
        return "unknown"
