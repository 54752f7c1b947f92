"""A spanserver's parts put together, for the real process and the simulator: engine, clock and channels come in."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import grpc.aio

from f1common.clock import Clock
from f1common.config import Config
from f1common.errors import Code, F1Error
from f1common.ids import new_id
from f1common.observe.metrics import Metrics
from f1common.pb import spanstore_pb2 as pb
from f1common.pb import spanstore_pb2_grpc as stubs
from f1common.rpc.channels import ChannelCache
from f1common.rpc.status import error_from_exception, error_from_rpc
from spanstore.client import SpanClient
from spanstore.client.router import Router
from spanstore.engine.base import Engine, EngineFailed
from spanstore.engine.damage import WHOLE_SERVER
from spanstore.group.config import GroupConfig
from spanstore.group.digests import RangeDigest
from spanstore.group.outbox import Ticket
from spanstore.group.requests import Answer, Commit, TxnWork
from spanstore.group.state import Done
from spanstore.paxos.config import PaxosConfig
from spanstore.paxos.configuration import Configuration
from spanstore.placement.range_map import META_GROUP, RANGE_MAP_KEY, RangeMap
from spanstore.placement.settings import SETTINGS_KEY, encode_settings
from spanstore.runtime.birth import Birth, Hello
from spanstore.runtime.collector import GarbageCollector
from spanstore.runtime.load_balancer import LoadBalancer
from spanstore.runtime.metering import Sources, sample
from spanstore.runtime.move_calls import MoveCalls
from spanstore.runtime.mover import Mover
from spanstore.runtime.peers import PROTOCOL_VERSION, PeerLinks
from spanstore.runtime.placement import PlacementDriver
from spanstore.runtime.registrar import Registrar
from spanstore.runtime.resolver import InDoubtResolver
from spanstore.runtime.scrubbing import Scrubber
from spanstore.runtime.service import SpanServicer
from spanstore.runtime.spanserver import SpanServer
from spanstore.runtime.state_source import StateSource
from spanstore.runtime.supervision import PERIOD_S, Supervision
from spanstore.runtime.topology import Topology
from spanstore.runtime.transfer import Transfers
from spanstore.runtime.versions import PeerVersions
from spanstore.scan.service import ScanService
from spanstore.scan.source import Source
from spanstore.txn.commands import TxnRef, Write
from spanstore.txn.outcomes import ExpectAbsent

_log = logging.getLogger(__name__)

SERVICE_NAME = "f1.span.SpanServer"
_BOOTSTRAP_PERIOD_S = 0.05
_DRAIN_STEP_S = 0.05
_DRAIN_STEPS = 25
_HELLO_S = 2.0


def topology_of(config: Config) -> Topology:
    """Return the cluster as the configuration describes it."""
    cluster = config.cluster
    return Topology(
        cluster_id=cluster.cluster_id,
        servers={s.name: (s.zone, s.address) for s in cluster.servers},
        groups={g.id: Configuration(0, g.voters, g.readers) for g in cluster.groups},
        ranges=RangeMap.from_starts([(bytes.fromhex(r.start), r.group) for r in cluster.ranges]),
        leader_zones={g.id: g.preferred_zone for g in cluster.groups},
    )


def group_config(config: Config) -> GroupConfig:
    """Return the groups' settings as the configuration has them."""
    paxos, storage = config.paxos, config.storage
    return GroupConfig(
        paxos=PaxosConfig(
            lease_us=paxos.lease_ms * 1000,
            heartbeat_us=paxos.heartbeat_ms * 1000,
            election_timeout_us=paxos.election_timeout_ms * 1000,
            retry_us=2 * paxos.heartbeat_ms * 1000,
            drift_margin_ppm=2 * paxos.clock_drift_ppm,
            max_accept_bytes=paxos.max_batch_bytes,
            max_inflight_bytes=paxos.max_inflight_bytes,
            log_keep_entries=paxos.log_keep_entries,
            log_hold_entries=max(paxos.log_hold_entries, paxos.log_keep_entries),
            log_hold_bytes=paxos.log_hold_bytes,
        ),
        turn_max_bytes=storage.turn_max_bytes,
        txn_max_bytes=storage.txn_max_bytes,
        txn_idle_us=storage.txn_idle_ms * 1000,
        outcome_keep_us=storage.outcome_keep_ms * 1000,
        version_keep_us=storage.version_keep_ms * 1000,
        max_skew_us=config.clock.max_skew_ms * 1000,
        digest_every_us=storage.digest_every_ms * 1000,
        load_window_us=config.placement.load_window_ms * 1000,
    )


def _inline(engine: Engine, clock: Clock) -> Source:
    """Return the source that scans in this process. Imported here, because Arrow is large and a pool does without."""
    from spanstore.scan.inline import InlineSource

    return InlineSource(engine, clock)


def _supervision(config: Config, engine: Engine, clock: Clock) -> Supervision:
    return Supervision(
        engine=engine,
        clock=clock,
        drift_ppm=config.paxos.clock_drift_ppm,
        settle_us=config.clock.settle_ms * 1000,
        slow_sync_us=config.storage.slow_sync_ms * 1000,
    )


class SpanProcess:
    """Everything that one spanserver process runs."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        clock: Clock,
        channels: ChannelCache,
        rng: random.Random,
        *,
        draining: asyncio.Event | None = None,
        scan_source: Source | None = None,
        on_applied: Callable[[int, Done], None] | None = None,
        on_installed: Callable[[int, int], None] | None = None,
        scrub: bool = False,
        version: int = PROTOCOL_VERSION,
    ) -> None:
        """Load the replicas. Without a ``scan_source``, such as a pool of processes, scans run in this process.

        ``version`` of the protocol is what it speaks. ``scrub``: the data lie in ``server.data_dir`` and are read there
        regularly to find damage.
        Needs a running event loop. Raises EngineFailed DATA_CORRUPTION if the pages themselves are damaged; a replica
        whose records are damaged is left out.
        """
        self._clock, self._rng, self._channels = clock, rng, channels
        topology = topology_of(config)
        addresses = sorted(address for _, address in topology.servers.values())
        self._birth = Birth(config.server.name, topology.founders(), engine, rng)
        self._versions = PeerVersions(config.server.name, version)
        self._links = PeerLinks(config.server.name, topology.cluster_id, self._address_of, channels, rng, version)
        self.server = SpanServer(
            name=config.server.name,
            topology=topology,
            engine=engine,
            clock=clock,
            config=group_config(config),
            send=self._links.send,
            rng=rng,
            inbox_messages=config.limits.inbox_messages,
            on_applied=on_applied,
            founder=self._birth.born and not self._birth.lost,
            supervision=_supervision(config, engine, clock),
            home=self._birth.home,
            version_of=self._versions.of,
        )
        self._scrubber = self._make_scrubber(config) if scrub else None
        self._client = SpanClient(addresses, clock=clock, rng=random.Random(rng.random()), channels=channels)
        self.registrar = Registrar(self.server, self._client, self._answers_at, self._fail, version)
        self.placement = PlacementDriver(self.server, self._client, self.registrar, clock, config.placement)
        self.balancer = LoadBalancer(self.server, self._client, clock, config.placement)
        self.server.is_server, self.server.send_digest = self.registrar.is_server, self._send_digest
        self.server.has_group, self._versions.stored = self.registrar.has_group, self.registrar.version_of
        self._router = Router(addresses, channels=channels, rng=random.Random(rng.random()))
        self._resolver = InDoubtResolver(self.server, self._router, clock)
        self._mover = self._make_mover(config, random.Random(rng.random()))
        self._collector = GarbageCollector(self.server, self._router, clock)
        self.transfers = self._make_transfers(config, engine, on_installed)
        hosts = self.server.groups.__contains__
        source = StateSource(config.server.name, topology.cluster_id, engine, hosts, config.storage)
        scans = ScanService(self.server.submit, clock, scan_source or _inline(engine, clock), self.server.mark_damaged)
        self._handed_over = asyncio.Event()
        self._servicer = SpanServicer(
            self.server,
            engine,
            clock,
            scans.scan,
            source=source,
            installing=self.transfers.status,
            directory=self.registrar.view,
            hello=self._birth.hello,
            versions=self._versions,
            draining=draining,
            handed_over=self._handed_over,
            scrubber=self._scrubber,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[F1Error] = asyncio.get_running_loop().create_future()
        """Set when the replicas crashed, or this server was removed from the cluster: the process must end."""

    def _make_transfers(
        self, config: Config, engine: Engine, on_installed: Callable[[int, int], None] | None
    ) -> Transfers:
        return Transfers(
            self.server,
            engine,
            self._channels,
            self.registrar,
            cluster_id=self.server.topology.cluster_id,
            at_once=config.storage.transfers_in,
            on_installed=on_installed,
        )

    def _make_mover(self, config: Config, rng: random.Random) -> Mover:
        patience_us = config.placement.move_patience_ms * 1000
        return Mover(self.server, self._client, MoveCalls(self._router), rng, patience_us)

    def _make_scrubber(self, config: Config) -> Scrubber:
        return Scrubber(
            Path(config.server.data_dir),
            map_bytes=config.storage.map_size_gib << 30,
            bytes_per_s=config.storage.scrub_bytes_per_s,
            every_us=config.storage.scrub_every_s * 1_000_000,
            clock=self._clock,
            on_finding=self.server.mark_damaged,
        )

    def measure(self, metrics: Metrics) -> None:
        """Set the metrics of background work to what is so now."""
        parts = Sources(self.server.groups, self._collector, self._mover, self.transfers, self._scrubber)
        sample(metrics, parts, self._clock.sample())

    def health(self) -> dict[str, bool]:
        """Tell how this server is: as a whole (the empty name) and as to its data, its disk and its clock."""
        watch, casualties = self.server.supervision, self.server.casualties
        return {
            "": not casualties.is_out(WHOLE_SERVER),
            "data": not casualties.reasons,
            "disk": watch is None or not watch.unfit,
            "clock": watch is None or not watch.clock_fault,
        }

    async def start(self, server: Any) -> None:
        """Register the service on a ``grpc.aio`` server (or one like it) and begin to drive the groups."""
        await self._birth.prepare()
        stubs.add_SpanServerServicer_to_server(self._servicer, server)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._guard(self.server.run), name="driver"),
            loop.create_task(self._guard(self.transfers.run), name="transfers"),
            loop.create_task(self._resolver.run(), name="resolver"),
            loop.create_task(self._guard(self._begin), name="bootstrap"),
            loop.create_task(self._collector.run(), name="garbage collector"),
            loop.create_task(self.registrar.run(), name="registrar"),
            loop.create_task(self.placement.run(), name="placement"),
            loop.create_task(self.balancer.run(), name="load balancer"),
            loop.create_task(self._supervise(), name="supervision"),
            loop.create_task(self._guard(self._mover.run), name="mover"),
        ]
        if self._scrubber is not None:
            self._tasks.append(loop.create_task(self._scrubber.run(), name="scrubber"))

    def _address_of(self, server: str) -> str | None:
        return self.registrar.address_of(server)

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do ``work``; its failure is the process's. (It begins here: a task that never started leaves nothing.)"""
        try:
            await work()
        except Exception as error:
            # Whatever it is, the replicas' memory cannot be trusted any more, and a server without a driver is silent.
            _log.error("the replicas of %s have crashed", self.server.name, exc_info=error)
            self._fail(error_from_exception(error))

    def _fail(self, error: F1Error) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    async def _begin(self) -> None:
        """Find out what an empty directory is, begin the first replicas if it is a founder's, store the first map."""
        try:
            if not self._birth.born:
                await self._birth.settle(self._greet)
                if not self._birth.lost:
                    await self.server.found(self.server.topology.groups)
            await self._bootstrap()
        except EngineFailed as error:
            # The driver may have nothing to write for a while: the process ends now.
            if not self.failed.done():
                self.failed.set_result(error)

    async def _greet(self, server: str) -> Hello:
        """Ask another founder what it is. Raises F1Error."""
        if server not in self.server.topology.servers:
            raise F1Error(Code.UNAVAILABLE, f"{server} was removed from the cluster")
        reply = await self._hello_at(self.server.topology.servers[server][1])
        if reply.name != server:
            raise F1Error(Code.UNAVAILABLE, f"{reply.name} answers where {server} should be")
        return Hello(reply.nonce, dict(reply.certificate) if reply.born else None)

    async def _hello_at(self, address: str) -> pb.HelloReply:
        """Greet whoever is at ``address``. Raises F1Error."""
        stub = stubs.SpanServerStub(self._channels.get(address))
        request = pb.HelloRequest(sender=self.server.name, cluster_id=self.server.topology.cluster_id)
        try:
            reply: pb.HelloReply = await stub.Hello(request, timeout=_HELLO_S)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error
        return reply

    async def _answers_at(self, server: str, address: str) -> bool:
        """Tell whether ``server`` is reached at ``address``."""
        try:
            return (await self._hello_at(address)).name == server
        except F1Error:
            return False

    def _send_digest(self, group: int, member: str, digest: RangeDigest) -> None:
        for server in self.registrar.peers():
            self._links.digest(group, member, server, digest)

    async def _supervise(self) -> None:
        """Look after clock and disk, and tell the peers how this server is."""
        while not self.failed.done():
            try:
                for to, report in sorted(self.server.supervise(self.registrar.peers()).items()):
                    self._links.report(to, report)
            except F1Error as error:
                _log.warning("supervision: %s", error)  # the driver meets the same error, and ends the process
            await asyncio.sleep(PERIOD_S)

    async def _bootstrap(self) -> None:
        """Store the first range map and the settings, unless they are there.

        Whoever leads the meta group does, and only one succeeds.
        """
        first = {
            RANGE_MAP_KEY: self.server.topology.ranges.encode(),
            SETTINGS_KEY: encode_settings(self.server.settings),
        }
        while META_GROUP in self.server.groups and (missing := sorted(first.keys() - self._stored_keys(first))):
            if self.server.groups[META_GROUP].is_serving_leader():
                self._store_first({key: first[key] for key in missing})
            await asyncio.sleep(_BOOTSTRAP_PERIOD_S)

    def _stored_keys(self, keys: Iterable[bytes]) -> set[bytes]:
        ranges = [(key, key + b"\0") for key in keys]
        return {key for key, _ in self.server.stored_rows(META_GROUP, ranges) or ()}

    def _store_first(self, rows: dict[bytes, bytes]) -> None:
        now = self._clock.sample()
        txn = TxnRef(RANGE_MAP_KEY, new_id(self._rng), now.tt.latest, 1)
        work = TxnWork(
            txn=txn,
            priority_ts=now.tt.latest,
            writes=tuple(Write(key, value) for key, value in rows.items()),
            preconditions=tuple(ExpectAbsent(key) for key in rows),
        )

        def stored(answer: Answer) -> None:
            _log.info("first range map and settings: %s", answer)

        self.server.submit(META_GROUP, Ticket(Commit(work), stored, now.boot_us + 2_000_000), 1000)

    async def drain(self) -> None:
        """Hand leadership over and let what is under way end."""
        self.server.hand_over()
        try:
            for _ in range(_DRAIN_STEPS):
                await asyncio.sleep(_DRAIN_STEP_S)
                if not self.server.leads_any():
                    return
            _log.warning("%s leaves as a leader: its groups pause until its leases have ended", self.server.name)
        finally:
            self._handed_over.set()
            self.server.leave()

    async def stop(self) -> None:
        """End all tasks and links. The engine is the caller's to close."""
        self.server.stop()
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._links.close()
        await self._client.close()
        await self._router.close()
